package bench

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	web "github.com/dbcron/dbcron/client"
	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/lock"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/scheduler"
	"github.com/dbcron/dbcron/wire"
)

// How long work waits whose process is killed or paused, until it begins in another one. All settings are the defaults.

const (
	mineVariable   = "DBCRON_BENCH_MINE"   // what is the victim's
	daemonVariable = "DBCRON_BENCH_DAEMON" // the address of a daemon

	recoveries = 20
)

func mine(n int) string { return "recovery" + strconv.Itoa(n) }

// A recovery is work of one kind: what a victim does, which keeps it until it ends, and what takes it over.
type recovery struct {
	name   string
	role   func(ctx context.Context, db *dialect.DB) error
	setUp  func(t *testing.T, b *bed)
	rescue func(t *testing.T, ctx context.Context, b *bed, begun func(what string))
}

// daemonOf is the address of the daemon that the test has started.
var daemonOf string

func keep(ctx context.Context) error {
	say("begun")
	<-ctx.Done()
	return context.Cause(ctx)
}

var recoveryKinds = []recovery{{
	name: "worker",
	role: func(ctx context.Context, db *dialect.DB) error {
		return workOn(ctx, db, []string{os.Getenv(mineVariable)}, func(ctx context.Context, _ *queue.Delivery) error { return keep(ctx) })
	},
	setUp: func(t *testing.T, b *bed) {
		for n := range recoveries {
			j := job(n)
			j.Queue = mine(n)
			enqueue(t, b, j)
		}
	},
	rescue: func(t *testing.T, ctx context.Context, b *bed, begun func(string)) {
		var names []string
		for n := range recoveries {
			names = append(names, mine(n))
		}
		over(t, ctx, workOn(ctx, open(t, b.URL, 10), names, func(_ context.Context, d *queue.Delivery) error { begun(d.Queue); return nil }))
	},
}, {
	name: "daemon",
	role: func(ctx context.Context, db *dialect.DB) error {
		return serveAs(ctx, db, []string{os.Getenv(mineVariable)}, func(ctx context.Context, _ *scheduler.Running) error { return keep(ctx) })
	},
	setUp: func(t *testing.T, b *bed) {
		for n := range recoveries {
			if err := scheduler.Add(t.Context(), b.DB.DB, scheduler.Schedule{
				Name: mine(n), Spec: "@every 24h", Kind: "func", Command: "keep", Tag: mine(n), Policy: scheduler.Policy{FirstRun: "now"},
			}); err != nil {
				t.Fatal(err)
			}
		}
	},
	rescue: func(t *testing.T, ctx context.Context, b *bed, begun func(string)) {
		var tags []string
		for n := range recoveries {
			tags = append(tags, mine(n))
		}
		over(t, ctx, serveAs(ctx, open(t, b.URL, 10), tags, func(_ context.Context, run *scheduler.Running) error {
			begun(run.Schedule)
			return nil
		}))
	},
}, {
	name: "lock",
	role: func(ctx context.Context, db *dialect.DB) error {
		l, err := lock.New(db, lock.Options{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			return err
		}
		lease, err := l.Acquire(ctx, os.Getenv(mineVariable))
		if err != nil {
			return err
		}
		return keep(lease.Context())
	},
	setUp: func(*testing.T, *bed) {},
	rescue: func(t *testing.T, ctx context.Context, b *bed, begun func(string)) {
		l, err := lock.New(open(t, b.URL, 10), lock.Options{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Error(err)
			return
		}
		var all sync.WaitGroup
		for n := range recoveries {
			all.Go(func() {
				if _, err := l.Acquire(ctx, mine(n)); over(t, ctx, err) {
					begun(mine(n))
				}
			})
		}
		all.Wait()
	},
}, {
	name: "claim",
	role: func(ctx context.Context, _ *dialect.DB) error {
		return claims(ctx, os.Getenv(daemonVariable), 1, func(ctx context.Context, c *wire.Claim) (any, error) {
			say("claimed-" + c.Key)
			return nil, keep(ctx)
		})
	},
	setUp: func(t *testing.T, b *bed) {
		for n := range recoveries {
			j := job(n)
			j.Queue, j.Key = "claims", mine(n)
			enqueue(t, b, j)
		}
	},
	rescue: func(t *testing.T, ctx context.Context, _ *bed, begun func(string)) {
		over(t, ctx, claims(ctx, daemonOf, recoveries, func(_ context.Context, c *wire.Claim) (any, error) { begun(c.Key); return nil, nil }))
	},
}}

func init() {
	for _, k := range recoveryKinds {
		roles["recovery of a "+k.name] = k.role
	}
}

// over reports whether something succeeded. That it was ended is no error.
func over(t *testing.T, ctx context.Context, err error) bool {
	if err != nil && ctx.Err() == nil {
		t.Error(err)
	}
	return err == nil
}

func enqueue(t *testing.T, b *bed, j queue.Job) {
	t.Helper()
	if _, err := client(t, b).Enqueue(t.Context(), j); err != nil {
		t.Fatal(err)
	}
}

func workOn(ctx context.Context, db *dialect.DB, queues []string, h queue.Handler) error {
	c, err := queue.New(db, queue.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	w, err := c.Worker(queue.WorkerOptions{Queues: queues, Concurrency: 2 * recoveries})
	if err == nil {
		err = w.HandleOthers(h)
	}
	if err != nil {
		return err
	}
	return w.Run(ctx)
}

func serveAs(ctx context.Context, db *dialect.DB, tags []string, h func(context.Context, *scheduler.Running) error) error {
	s, err := scheduler.New(db, scheduler.Options{Tags: tags, MaxRuns: 2 * recoveries, Logger: slog.New(slog.DiscardHandler)})
	if err == nil {
		err = s.Handle("keep", h)
	}
	if err != nil {
		return err
	}
	return s.Run(ctx)
}

func claims(ctx context.Context, daemon string, concurrency int, h web.Handler) error {
	c, err := web.New(daemon, web.Options{})
	if err != nil {
		return err
	}
	return c.Work(ctx, web.WorkOptions{Queue: "claims", Concurrency: concurrency, Handle: h, Logger: slog.New(slog.DiscardHandler)})
}

// TestRecovery measures how long work waits after its process was killed (SIGKILL) or paused (SIGSTOP) until it begins in another
// process: twenty times each, at random moments between two renewals.
func TestRecovery(t *testing.T) {
	program := filepath.Join(t.TempDir(), "dbcron")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-C", "..", "-o", program, "./cmd/dbcron").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, how := range []struct {
		name   string
		signal syscall.Signal
	}{{"killed", syscall.SIGKILL}, {"paused", syscall.SIGSTOP}} {
		t.Run(how.name, func(t *testing.T) {
			queues(t, func(t *testing.T, b *bed) {
				port := dbtest.FreePort(t)
				daemonOf = "http://127.0.0.1:" + port
				serve := exec.CommandContext(t.Context(), program, "serve", "--listen", "127.0.0.1:"+port, "--tag", "nothing")
				serve.Env = append(os.Environ(), "DBCRON_DATABASE_URL="+b.URL)
				if err := serve.Start(); err != nil {
					t.Fatal(err)
				}
				defer func() { _ = serve.Process.Kill(); _ = serve.Wait() }()
				var all sync.WaitGroup
				for _, k := range recoveryKinds {
					k.setUp(t, b)
				}
				began := loadOf()
				for _, k := range recoveryKinds {
					all.Go(func() { goOn(t, b, k, how.name, how.signal) })
				}
				all.Wait()
				t.Attr(how.name+"_load", strconv.Itoa(int(100*max(began, loadOf()))))
			})
		})
	}
}

// loadOf is the load of the machine, of the last minute.
func loadOf() (n float64) {
	text, _ := os.ReadFile("/proc/loadavg")
	_, _ = fmt.Sscan(string(text), &n)
	return n
}

// goOn starts the victims of a kind, kills or pauses them, and measures how long it takes until their work begins elsewhere.
func goOn(t *testing.T, b *bed, k recovery, how string, signal syscall.Signal) {
	victims := map[string]*child{}
	for n := range recoveries {
		c := start(t, "recovery of a "+k.name, b.URL, mineVariable+"="+mine(n), daemonVariable+"="+daemonOf)
		name := mine(n)
		if k.name == "claim" { // whichever it gets
			name = c.claimed(t)
		}
		c.until(t, "begun")
		victims[name] = c
	}
	ctx, stop := context.WithCancel(t.Context())
	var mu sync.Mutex
	ended, took := map[string]instant.Instant{}, map[string]time.Duration{}
	done := make(chan struct{})
	var rescuer sync.WaitGroup
	rescuer.Go(func() {
		k.rescue(t, ctx, b, func(what string) {
			at := instant.Now()
			mu.Lock()
			defer mu.Unlock()
			if at0, is := ended[what]; !is {
				t.Errorf("%s: %s began though its process was alive", k.name, what)
			} else if _, again := took[what]; !again {
				took[what] = at.Sub(at0)
			}
			if len(took) == recoveries {
				close(done)
			}
		})
	})
	pause(t, 10*time.Second) // the rescuer is there, and idle
	for what, c := range victims {
		pause(t, rand.N(time.Second))
		mu.Lock()
		ended[what] = instant.Now()
		_ = c.cmd.Process.Signal(signal)
		mu.Unlock()
	}
	select {
	case <-done:
	case <-time.After(3 * time.Minute):
		t.Errorf("%s: only %d of %d went on within three minutes", k.name, len(took), recoveries)
	}
	stop()
	rescuer.Wait()
	for _, c := range victims {
		c.kill()
	}
	all := slices.Sorted(func(yield func(time.Duration) bool) {
		for _, d := range took {
			if !yield(d) {
				return
			}
		}
	})
	if len(all) == 0 {
		return
	}
	n := len(all)
	t.Attr(how+"_"+k.name+"_times", strconv.Itoa(n))
	t.Attr(how+"_"+k.name+"_median", strconv.FormatInt(all[n/2].Milliseconds(), 10))
	t.Attr(how+"_"+k.name+"_longest", strconv.FormatInt(all[n-1].Milliseconds(), 10))
	t.Logf("%-8s %-8s %v: median %v, longest %v of %d", b.Engine, k.name, signal, all[n/2].Round(time.Millisecond), all[n-1].Round(time.Millisecond), n)
}

// claimed returns the key of the job that a child has claimed.
func (c *child) claimed(t *testing.T) string {
	t.Helper()
	for c.lines.Scan() {
		var what string
		var at instant.Instant
		if _, err := fmt.Sscan(c.lines.Text(), &what, &at); err == nil && len(what) > len("claimed-") {
			return what[len("claimed-"):]
		}
	}
	t.Errorf("a child has ended before it claimed: %v", c.lines.Err())
	return ""
}
