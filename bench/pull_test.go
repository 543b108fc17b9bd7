package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dbcron/dbcron/queue"
)

var (
	waiting  = flag.Int("waiting", 1000, "clients that wait in TestPullWaiting")
	claimers = flag.Int("claimers", 8, "clients that claim and complete in TestPull")
)

// An office is a dbcron serve in a process of its own.
type office struct {
	url    string
	cmd    *exec.Cmd
	client *http.Client
}

func openOffice(t *testing.T, b *bed) *office {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "dbcron")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "./cmd/dbcron")
	build.Dir = ".."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	at, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := at.Addr().String()
	if err := at.Close(); err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	d := &office{url: "http://" + address + "/api/v1/", client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 2 * *waiting}}}
	d.cmd = exec.CommandContext(context.Background(), binary, "serve", "--listen", address)
	d.cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "DBCRON_DATABASE_URL=" + b.URL}
	d.cmd.Stderr = log
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		d.client.CloseIdleConnections()
		_ = d.cmd.Process.Signal(os.Interrupt)
		_ = d.cmd.Wait()
		_ = log.Close()
	})
	for over := time.Now().Add(stalled); ; {
		if c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address); err == nil {
			_ = c.Close()
			return d
		} else if time.Now().After(over) {
			t.Fatal(err)
		}
		pause(t, 10*time.Millisecond)
	}
}

// post sends a request and reads the answer.
func (d *office) post(ctx context.Context, path string, body, answer any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, d.url+path, bytes.NewReader(text))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	got, err := d.client.Do(r)
	if err != nil {
		return err
	}
	defer got.Body.Close()
	if text, err = io.ReadAll(got.Body); err == nil && got.StatusCode >= 300 {
		err = fmt.Errorf("%s: %d %s", path, got.StatusCode, text)
	}
	if err == nil && answer != nil {
		err = json.Unmarshal(text, answer)
	}
	return err
}

type claim struct {
	Token string `json:"token"`
	ID    string `json:"id,omitempty"`
}

func (d *office) claim(ctx context.Context, limit int, wait string) ([]claim, error) {
	var got struct{ Jobs []claim }
	err := d.post(ctx, "queues/default/claim", map[string]any{"max": limit, "wait": wait, "lease": "10m"}, &got)
	return got.Jobs, err
}

func (d *office) complete(ctx context.Context, jobs []claim) error {
	for i := range jobs {
		jobs[i].ID = ""
	}
	var got struct{ Done int }
	err := d.post(ctx, "claims/complete", map[string]any{"claims": jobs}, &got)
	if err == nil && got.Done != len(jobs) {
		err = fmt.Errorf("%d of %d were completed", got.Done, len(jobs))
	}
	return err
}

// cpu returns the CPU time that the process has used so far.
func (d *office) cpu() (used time.Duration) {
	stat := procStat(strconv.Itoa(d.cmd.Process.Pid))
	if len(stat) < 15 {
		return 0
	}
	for _, field := range stat[13:15] {
		ticks, _ := strconv.Atoi(field)
		used += time.Duration(ticks) * 10 * time.Millisecond
	}
	return used
}

// TestPull prints how many jobs a second are claimed and completed over HTTP, 100 at a time, with 1
// client and with several (-claimers).
func TestPull(t *testing.T) {
	queues(t, func(t *testing.T, b *bed) {
		o := newOurs(t, b, "dbcron, pull", queue.WorkerOptions{})
		d := openOffice(t, b)
		for _, clients := range []int{1, *claimers} {
			const part = 10_000
			for first := 0; first < *jobs; first += part {
				if err := o.many(t.Context(), first, min(part, *jobs-first)); err != nil {
					t.Fatal(err)
				}
			}
			o.analyze(t)
			var done atomic.Int64
			var group sync.WaitGroup
			began := time.Now()
			for range clients {
				group.Go(func() {
					for over := time.Now().Add(10 * stalled); done.Load() < int64(*jobs) && time.Now().Before(over); {
						got, err := d.claim(t.Context(), 100, "1s")
						if err == nil && len(got) > 0 {
							err = d.complete(t.Context(), got)
						}
						if err != nil {
							t.Error(err)
							return
						}
						done.Add(int64(len(got)))
					}
				})
			}
			group.Wait()
			took := time.Since(began)
			if left := o.left(t); left > 0 || done.Load() != int64(*jobs) {
				t.Errorf("%d jobs were done, and %d are left", done.Load(), left)
			}
			t.Logf("%-8s claim and complete, 100 at a time, %2d clients: %8.0f jobs/s", b.Dialect.Name, clients, float64(*jobs)/took.Seconds())
			o.wipe(t)
		}
	})
}

// TestPullWaiting prints what many waiting clients (-waiting) cost a daemon, and the time from the
// call that enqueues a job in another process to the answer of the client that gets it.
func TestPullWaiting(t *testing.T) {
	queues(t, func(t *testing.T, b *bed) {
		o := newOurs(t, b, "dbcron, pull", queue.WorkerOptions{})
		d := openOffice(t, b)
		if _, err := o.one(t.Context(), 0); err != nil { // makes the queue
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		type arrival struct {
			id string
			at time.Time
		}
		arrived := make(chan arrival, 1)
		var group sync.WaitGroup
		for range *waiting {
			group.Go(func() {
				for ctx.Err() == nil {
					got, err := d.claim(ctx, 1, "30s")
					at := time.Now()
					if ctx.Err() != nil {
						return
					}
					if err != nil {
						t.Error(err)
						return
					}
					if len(got) > 0 {
						arrived <- arrival{got[0].ID, at}
						if err := d.complete(ctx, got); err != nil && ctx.Err() == nil {
							t.Error(err)
						}
					}
				}
			})
		}
		<-arrived
		pause(t, 2*time.Second) // until all are waiting
		before := d.cpu()
		pause(t, *span)
		idle := float64(d.cpu()-before) / float64(*span)
		var all []time.Duration
		for i := range 500 {
			at := time.Now()
			id, err := o.one(t.Context(), i)
			if err != nil {
				t.Fatal(err)
			}
			select {
			case a := <-arrived:
				if a.id != strconv.FormatInt(id, 10) {
					t.Fatalf("%s came, and not %d", a.id, id)
				}
				all = append(all, a.at.Sub(at))
			case <-time.After(stalled):
				t.Fatalf("job %d did not come", i)
			}
			pause(t, 5*time.Millisecond)
		}
		cancel()
		group.Wait()
		slices.Sort(all)
		t.Logf("%-8s %d clients wait: %.2f %% of a core while nothing comes; from enqueueing to the answer p50 %v, p99 %v",
			b.Dialect.Name, *waiting, 100*idle, all[len(all)/2].Round(10*time.Microsecond), all[len(all)*99/100].Round(10*time.Microsecond))
	})
}
