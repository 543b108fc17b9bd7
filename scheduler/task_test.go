package scheduler

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/guardian"
	"github.com/dbcron/dbcron/internal/instant"
)

// obedient works until its context ends, and returns why.
func obedient(ctx context.Context, _ *guardian.Output) guardian.Result {
	<-ctx.Done()
	return guardian.Result{Cause: guardian.Exited, ExitCode: -1, Err: context.Cause(ctx)}
}

func later(d time.Duration) instant.Instant { return instant.Now().Add(d) }

// Work whose lease has ended before it begins, since its process was paused, is not begun: whatever its kind, and also if
// the pause comes after the look at the lease.
func TestNothingBeginsAfterItsLease(t *testing.T) {
	past := instant.Now().Add(-time.Millisecond)
	notBegun := func(what string, r guardian.Result) {
		t.Helper()
		if r.Cause != guardian.NotStarted || !errors.Is(r.Err, guardian.ErrPast) {
			t.Errorf("%s: %+v", what, r)
		}
	}
	notBegun("a task", start(past, time.Hour, 100, func(context.Context, *guardian.Output) guardian.Result {
		t.Error("it has begun")
		return guardian.Result{Cause: guardian.Exited}
	}).Wait())
	for _, kind := range []string{"func", "http", "sql", "argv", "shell"} {
		e := newExecution(run{schedule: "job", attempt: 1, what: &Schedule{Name: "job", Kind: kind, Command: "true"}, deadline: past})
		s := &Scheduler{handlers: map[string]Func{"true": func(context.Context, *Running) error {
			t.Error("the function was called")
			return nil
		}}}
		notBegun(kind, s.execute(e))
	}
}

// However a task ends, its result says how.
func TestTaskEnds(t *testing.T) {
	for want, end := range map[guardian.Cause]func(*task){
		guardian.Stopped: (*task).Stop,
		guardian.Killed:  (*task).Kill,
		guardian.Deadline: func(work *task) {
			work.mu.Lock()
			work.deadline = instant.Now()
			work.mu.Unlock()
			work.watch() // as the timer does
		},
	} {
		begun := make(chan struct{})
		work := start(later(time.Hour), time.Hour, 100, func(ctx context.Context, out *guardian.Output) guardian.Result {
			close(begun)
			return obedient(ctx, out)
		})
		<-begun
		end(work)
		if r := work.Wait(); r.Cause != want || r.Err == nil || errors.Is(r.Err, errUnfinished) && want != guardian.Deadline {
			t.Errorf("%+v, want the cause %s", r, want)
		}
	}
	// One that has succeeded all the same has.
	work := start(later(time.Hour), time.Hour, 100, func(ctx context.Context, out *guardian.Output) guardian.Result {
		<-ctx.Done()
		_, _ = io.WriteString(out, "done")
		return guardian.Result{Cause: guardian.Exited, ExitCode: -1}
	})
	work.Stop()
	if r := work.Wait(); r.Cause != guardian.Exited || r.Err != nil || r.Output != "done" {
		t.Errorf("%+v", r)
	}
}

// A deadline that is extended does not end a task before it comes; an earlier
// one changes nothing.
func TestTaskDeadline(t *testing.T) {
	ended := make(chan struct{})
	work := start(later(50*time.Millisecond), time.Hour, 100, func(ctx context.Context, _ *guardian.Output) guardian.Result {
		select {
		case <-ctx.Done():
			return guardian.Result{Cause: guardian.Exited, Err: context.Cause(ctx)}
		case <-ended:
			return guardian.Result{Cause: guardian.Exited}
		}
	})
	work.Extend(later(time.Hour))
	work.Extend(later(time.Minute))
	work.watch() // as the timer does
	work.mu.Lock()
	deadline, cause := work.deadline, work.cause
	work.mu.Unlock()
	if cause != "" || deadline.Sub(instant.Now()) < 50*time.Minute {
		t.Errorf("ended for %q, or its deadline moved back: %v", cause, deadline.Sub(instant.Now()))
	}
	close(ended)
	if r := work.Wait(); r.Err != nil {
		t.Error(r.Err)
	}
}

// A task that does not return is waited for as long as its grace, and then left.
func TestTaskThatDoesNotReturn(t *testing.T) {
	forever := make(chan struct{})
	defer close(forever)
	work := start(later(time.Hour), 10*time.Millisecond, 100, func(_ context.Context, out *guardian.Output) guardian.Result {
		_, _ = io.WriteString(out, "busy")
		<-forever
		return guardian.Result{}
	})
	eventually(t, "it has begun", func() bool { text, _ := work.Output(); return text == "busy" })
	work.Stop()
	if r := work.Wait(); !errors.Is(r.Err, errUnfinished) || r.Cause != guardian.Stopped || r.Output != "busy" {
		t.Errorf("%+v", r)
	}
}

// Kill waits for a moment only, also for a task that was told to stop before:
// Abort must not wait for a long grace.
func TestKillAfterStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		forever := make(chan struct{})
		defer close(forever)
		begun := time.Now() //nolint:forbidigo // how long it takes, by the bubble's clock
		work := start(later(24*time.Hour), time.Hour, 100, func(context.Context, *guardian.Output) guardian.Result {
			<-forever
			return guardian.Result{}
		})
		work.Stop()
		work.Kill()
		if r := work.Wait(); !errors.Is(r.Err, errUnfinished) {
			t.Errorf("%+v", r)
		}
		if took := time.Since(begun); took > time.Minute {
			t.Errorf("killed after %v", took)
		}
	})
}

// A task whose goroutine is ended has an error, as one that panics.
func TestTaskPanics(t *testing.T) {
	for what, f := range map[string]func(){
		"panic":   func() { panic("no\x00t\xff text") },
		"nothing": func() { panic(nil) },
		"exit":    runtime.Goexit,
	} {
		work := start(later(time.Hour), time.Hour, 1000, func(_ context.Context, out *guardian.Output) guardian.Result {
			_, _ = io.WriteString(out, "before")
			f()
			return guardian.Result{}
		})
		r := work.Wait()
		if r.Err == nil || r.Cause != guardian.Exited {
			t.Errorf("%s: %+v", what, r)
		}
		if !strings.Contains(r.Output, "before") {
			t.Errorf("%s: what it wrote before is lost; output %.60q…", what, r.Output)
		}
	}
}

// The output of what runs grows in the table: that of a command, and that of a
// function.
func TestLiveOutput(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		dir := t.TempDir()
		wait := func(file string) {
			eventually(t, file, func() bool { _, err := os.Stat(dir + "/" + file); return err == nil })
		}
		const until = "until test -e %s; do sleep 0.05; done; "
		addJob(t, db, Schedule{Name: "command", Command: "echo one; " + fmt.Sprintf(until, dir+"/1") + "echo two; " +
			fmt.Sprintf(until, dir+"/2") + "echo three", Policy: Policy{FirstRun: "now"}})
		addJob(t, db, Schedule{Name: "function", Kind: "func", Command: "work", Policy: Policy{FirstRun: "now"}})
		s := daemon(t, db, Options{})
		err := s.Handle("work", func(_ context.Context, run *Running) error {
			for i, word := range []string{"one", "two", "three"} {
				fmt.Fprintln(run, word)
				if i < 2 {
					wait(fmt.Sprint(i + 1))
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { // before the daemon stops, should the test fail
			for _, file := range []string{"/1", "/2"} {
				_ = os.WriteFile(dir+file, nil, 0o600)
			}
		})
		stop := running(t, s)
		shown := func(state, output string) {
			t.Helper()
			eventually(t, "the output of a run is "+output, func() bool {
				all := allRuns(t, db, "")
				for _, r := range all {
					if r.State != state || r.Output != output {
						return false
					}
				}
				return len(all) == 2
			})
		}
		shown("running", "one\n")
		if err := os.WriteFile(dir+"/1", nil, 0o600); err != nil {
			t.Fatal(err)
		}
		shown("running", "one\ntwo\n")
		if err := os.WriteFile(dir+"/2", nil, 0o600); err != nil {
			t.Fatal(err)
		}
		shown("ok", "one\ntwo\nthree\n")
		stop()
	})
}

// Output written after a run was lost is not shown: the row keeps what it had when it was lost.
func TestLiveOutputOfALostRun(t *testing.T) {
	clockedMemory(t, func(t *testing.T, db *dbtest.DB) {
		add(t, db, "job", "@every 1h")
		db.Advance(t, time.Hour)
		held := claimed(t, daemon(t, db, Options{}), 1)
		show := func() int64 {
			n, err := db.Exec(t.Context(), publish, map[string]any{"id": held[0].id, "claim": held[0].claim, "output": "news", "error": ""})
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
		if n := show(); n != 1 || only(t, db, "job").Output != "news" {
			t.Errorf("%d rows", n)
		}
		db.Advance(t, time.Minute)
		takenOver(t, daemon(t, db, Options{}), 1)
		if n := show(); n != 0 {
			t.Errorf("%d rows of a lost run", n)
		}
	})
}
