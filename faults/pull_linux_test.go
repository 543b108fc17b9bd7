package faults

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/queue/admin"
)

// An office is a dbcron serve that gives jobs to claimers.
type office struct {
	t    *testing.T
	url  string
	cmd  *exec.Cmd
	log  strings.Builder
	done chan struct{}
}

func openOffice(t *testing.T, db *dbtest.DB, binary string) *office {
	t.Helper()
	address := "127.0.0.1:" + dbtest.FreePort(t)
	o := &office{t: t, url: "http://" + address + "/api/v1/", done: make(chan struct{})}
	o.cmd = exec.CommandContext(context.Background(), binary, "serve", "--listen", address)
	o.cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "DBCRON_DATABASE_URL=" + db.URL}
	o.cmd.Stderr = &o.log
	if err := o.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { _ = o.cmd.Wait(); close(o.done) }()
	t.Cleanup(func() {
		_ = o.cmd.Process.Kill()
		<-o.done
		if t.Failed() {
			t.Log(o.log.String())
		}
	})
	return o
}

// post sends a request and reads the answer if there is one.
func (o *office) post(path string, body, answer any) {
	o.t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		o.t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(o.t.Context(), http.MethodPost, o.url+path, bytes.NewReader(text))
	if err != nil {
		o.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	got, err := http.DefaultClient.Do(r)
	if err != nil {
		return
	}
	defer got.Body.Close()
	if text, err = io.ReadAll(got.Body); err != nil {
		return
	}
	if got.StatusCode == http.StatusOK {
		if err := json.Unmarshal(text, answer); err != nil {
			o.t.Fatalf("%s: %v: %s", path, err, text)
		}
	}
}

type givenJob struct {
	Token   string `json:"token"`
	ID      string `json:"id,omitempty"`
	Attempt int    `json:"attempt,omitempty"`
	Crashes int    `json:"crashes,omitempty"`
}

// claim claims jobs, and retries while nobody answers.
func (o *office) claim(n int) []givenJob {
	o.t.Helper()
	var got struct{ Jobs []givenJob }
	o.post("queues/work/claim", map[string]any{"max": n, "wait": "1s", "lease": "12h"}, &got)
	return got.Jobs
}

// complete completes jobs and returns how many succeeded.
func (o *office) complete(jobs []givenJob) int {
	o.t.Helper()
	var claims []givenJob
	for _, j := range jobs {
		claims = append(claims, givenJob{Token: j.Token})
	}
	var got struct{ Done int }
	o.post("claims/complete", map[string]any{"claims": claims}, &got)
	return got.Done
}

// TestPullKilled kills a daemon that has given jobs out. Those completed meanwhile at another
// daemon are done. All others come back there, and none is lost.
func TestPullKilled(t *testing.T) {
	binary := build(t)
	dbtest.Processes.Each(t, func(t *testing.T, db *dbtest.DB) {
		w := newWorkshop(t, db)
		first, second := openOffice(t, db, binary), openOffice(t, db, binary)
		const n = 200
		missing := map[string]bool{}
		for _, id := range w.enqueue(plain(n)...) {
			missing[fmt.Sprint(id)] = true
		}
		var given []givenJob
		w.until("jobs are given out", func() bool {
			given = append(given, first.claim(60-len(given))...)
			return len(given) == 60
		})
		done := first.complete(given[:10])
		for _, j := range given[:10] {
			delete(missing, j.ID)
		}
		if err := first.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		<-first.done
		if elsewhere := second.complete(given[10:20]); elsewhere == 10 { // otherwise the lease had expired on a slow machine
			for _, j := range given[10:20] {
				delete(missing, j.ID)
			}
			done += elsewhere
		}
		w.until("all jobs are done", func() bool {
			for _, j := range second.claim(50) {
				if second.complete([]givenJob{j}) != 1 {
					t.Errorf("job %s is lost", j.ID)
				}
				if done++; !missing[j.ID] {
					t.Errorf("job %s, which was done, comes again", j.ID)
				}
				delete(missing, j.ID)
			}
			return len(missing) == 0
		})
		if counts, err := adminOf(w.c).Count(t.Context(), "work", 10); err != nil || counts != (admin.Counts{Limit: 10}) || done != n {
			t.Errorf("%d were done, and there are %+v, %v", done, counts, err)
		}
	}, (*testing.T).Parallel)
}

// TestPullStopped stops a daemon that has given jobs out. It ends soon, and the jobs go back without
// counting an attempt.
func TestPullStopped(t *testing.T) {
	binary := build(t)
	dbtest.Processes.Each(t, func(t *testing.T, db *dbtest.DB) {
		w := newWorkshop(t, db)
		first := openOffice(t, db, binary)
		w.enqueue(plain(5)...)
		var given []givenJob
		w.until("jobs are given out", func() bool {
			given = append(given, first.claim(5)...)
			return len(given) == 5
		})
		if err := first.cmd.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		select {
		case <-first.done:
		case <-time.After(patience):
			t.Fatal("it does not end")
		}
		if code := first.cmd.ProcessState.ExitCode(); code != 0 {
			t.Errorf("exit code %d", code)
		}
		second := openOffice(t, db, binary)
		left := 5
		w.until("they come again", func() bool {
			for _, j := range second.claim(5) {
				if j.Attempt != 1 || j.Crashes != 0 {
					t.Errorf("got %+v", j)
				}
				left -= second.complete([]givenJob{j})
			}
			return left == 0
		})
		if n := second.complete(given); n != 0 {
			t.Errorf("%d were completed by what they were given out with before", n)
		}
	}, (*testing.T).Parallel)
}
