//go:build unix

package scheduler

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/instant"
)

func handle(t *testing.T, s *Scheduler, name string, f Func) {
	t.Helper()
	if err := s.Handle(name, f); err != nil {
		t.Fatal(err)
	}
}

func addFunc(t *testing.T, db *dbtest.DB, name string, p Policy) {
	t.Helper()
	addJob(t, db, Schedule{Name: name, Kind: "func", Command: name, Policy: p})
}

// A function gets its run; what it writes is the run's output, and its error is a failure.
func TestFunctions(t *testing.T) {
	clockedMemory(t, func(t *testing.T, db *dbtest.DB) {
		s := daemon(t, db, Options{Tags: []string{"batch"}})
		handle(t, s, "Make Report, ü", func(ctx context.Context, run *Running) error {
			fmt.Fprintf(run, "%d %s %s %d %d %q %v", run.ID, run.Schedule, run.Due.Format(time.RFC3339), run.Attempt,
				run.Fence, run.Input, ctx.Err())
			var writers sync.WaitGroup // its methods may be called by several goroutines
			for range 4 {
				writers.Go(func() { _, _ = io.WriteString(run, ".") })
			}
			writers.Wait()
			if run.Attempt == 1 {
				return errors.New("not yet\x00")
			}
			return nil
		})
		addJob(t, db, Schedule{
			Name: "job", Kind: "func", Command: "Make Report, ü", Stdin: "in\nput", Tag: "batch",
			Policy: Policy{MaxAttempts: 2, RetryDelay: time.Second},
		})
		db.Advance(t, time.Hour)
		work(t, s)
		db.Advance(t, time.Second)
		work(t, s)
		wantRows(t, db, "job", "3600 1 failed", "3600 2 ok")
		for i, r := range allRuns(t, db, "job") {
			want := fmt.Sprintf("%d job 2026-03-02T10:00:00Z %d %d %q <nil>....", r.ID, i+1, i+1, "in\nput")
			if r.Output != want || r.ExitCode != -1 || i == 0 && r.Error != "not yet\uFFFD" {
				t.Errorf("%+v\nwant the output %q", r, want)
			}
		}
	})
}

// A panic is a failure, with its stack in the output, and the daemon continues.
func TestAFunctionThatPanics(t *testing.T) {
	clockedMemory(t, func(t *testing.T, db *dbtest.DB) {
		s := daemon(t, db, Options{})
		handle(t, s, "bad", func(_ context.Context, run *Running) error {
			fmt.Fprintln(run, "so far")
			return []error{}[run.Attempt]
		})
		addFunc(t, db, "bad", Policy{})
		db.Advance(t, time.Hour)
		work(t, s)
		db.Advance(t, time.Hour)
		work(t, s)
		wantRows(t, db, "bad", "3600 1 failed", "7200 1 failed")
		if r := allRuns(t, db, "bad")[0]; !strings.Contains(r.Error, "panic: runtime error: index out of range") ||
			!strings.Contains(r.Output, "function_test.go") {
			t.Errorf("error %q, output %q", r.Error, r.Output)
		}
	})
}

// bad is a program's error that panics when its text is asked for.
type bad struct{}

func (*bad) Error() string { panic("oh, Error") }

// Whatever code of a program's panics where the scheduler calls it, the daemon goes on, and the run says why:
// see the test of this name in package queue.
func TestUsersCodePanics(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		var none *fs.PathError
		s := daemon(t, db, Options{
			Logger: slog.New(panickingHandler{}),
			Ended:  func(string, time.Duration) { panic("oh, Ended") },
			Trace: func(r TracedRun) Trace {
				if r.Schedule == "text" {
					panic("oh, Trace")
				}
				return Trace{
					Context: func(context.Context) context.Context { panic("oh, Context") },
					End:     func(string, string) { panic("oh, End") },
				}
			},
		})
		want := map[string]string{
			"text": "panic: oh, Error, in a method of the returned error *scheduler.bad", "joined": "panic: oh, Error",
			"nil": "a nil *fs.PathError: return a plain nil for success", "error": "panic: ", "ok": "",
		}
		for name, f := range map[string]func() error{
			"text":   func() error { return &bad{} },
			"joined": func() error { return errors.Join(&bad{}) },
			"nil":    func() error { return none },
			"error":  func() error { panic(&bad{}) },
			"ok":     func() error { return nil },
		} {
			handle(t, s, name, func(context.Context, *Running) error { return f() })
			addFunc(t, db, name, Policy{})
		}
		for i := range 2 {
			db.Advance(t, time.Hour)
			work(t, s)
			for name, part := range want {
				runs := allRuns(t, db, name)
				if state := map[bool]string{true: "ok", false: "failed"}[part == ""]; len(runs) != i+1 || runs[i].State != state ||
					!strings.Contains(runs[i].Error, part) {
					t.Errorf("%s: %+v, want an error with %q", name, runs, part)
				}
			}
		}
	})
}

type panickingHandler struct{ slog.Handler }

func (panickingHandler) Enabled(context.Context, slog.Level) bool  { return true }
func (panickingHandler) Handle(context.Context, slog.Record) error { panic("oh, Handle") }

// Much output of a function is capped.
func TestAFunctionThatSaysMuch(t *testing.T) {
	clockedMemory(t, func(t *testing.T, db *dbtest.DB) {
		s := daemon(t, db, Options{MaxOutput: 1000})
		handle(t, s, "much", func(_ context.Context, run *Running) error {
			for i := range 100_000 {
				fmt.Fprintln(run, i)
			}
			return nil
		})
		addFunc(t, db, "much", Policy{})
		db.Advance(t, time.Hour)
		work(t, s)
		if r := only(t, db, "much"); r.State != "ok" || len(r.Output) > 1200 || !strings.HasPrefix(r.Output, "0\n1\n") ||
			!strings.HasSuffix(r.Output, "\n99999\n") {
			t.Errorf("%+v", r)
		}
	})
}

func TestHandleRefuses(t *testing.T) {
	s, err := New(nil, Options{})
	if err != nil {
		t.Fatal(err)
	}
	work := func(context.Context, *Running) error { return nil }
	handle(t, s, "work", work)
	for _, name := range []string{"work", "", " ", " work", "work ", "a\nb", "a\x00b", "\xff", strings.Repeat("x", 201)} {
		if err := s.Handle(name, work); !errors.Is(err, ErrInvalid) {
			t.Errorf("%.20q: %v, want ErrInvalid", name, err)
		}
	}
	if err := s.Handle("nothing", nil); !errors.Is(err, ErrInvalid) {
		t.Errorf("nil: %v, want ErrInvalid", err)
	}
	handle(t, s, "Work", work) // compared by bytes
}

// The context of a function ends with its timeout, when its run is cancelled,
// and when the lease is lost or ends; what it returns then does not matter.
func TestFunctionsAreTold(t *testing.T) {
	clockedMemory(t, func(t *testing.T, db *dbtest.DB) {
		s := daemon(t, db, Options{Lease: time.Hour})
		begun := make(chan struct{}, 10)
		told := make(chan string, 10)
		for _, name := range []string{"timeout", "cancel", "lost", "lease"} {
			handle(t, s, name, func(ctx context.Context, run *Running) error {
				begun <- struct{}{}
				<-ctx.Done()
				told <- run.Schedule
				return errors.New("something else went wrong")
			})
		}
		addFunc(t, db, "timeout", Policy{Timeout: 20 * time.Millisecond})
		db.Advance(t, time.Hour)
		work(t, s)
		if r := only(t, db, "timeout"); <-told != "timeout" || r.State != "timeout" || !strings.Contains(r.Error, "longer than 20ms") {
			t.Errorf("%+v", r)
		}
		<-begun
		db.Do(t, `DELETE FROM {prefix}schedule`, nil)

		addFunc(t, db, "cancel", Policy{})
		db.Advance(t, time.Hour)
		beginDue(t, s)
		<-begun
		if was := cancelRun(t, db, s, only(t, db, "cancel").ID, "not wanted"); was.State != "running" || was.Cancel != "" {
			t.Errorf("Cancel returned %+v", was)
		}
		work(t, s)
		if r := only(t, db, "cancel"); <-told != "cancel" || r.State != "cancelled" || r.Error != "not wanted" || r.Cancel != "" {
			t.Errorf("%+v", r)
		}
		db.Do(t, `DELETE FROM {prefix}schedule`, nil)

		addFunc(t, db, "lost", Policy{})
		db.Advance(t, time.Hour)
		beginDue(t, s)
		<-begun
		db.Advance(t, 2*time.Hour)
		other := daemon(t, db, Options{})
		handle(t, other, "lost", func(context.Context, *Running) error { return nil })
		work(t, other)
		if err := renewAll(t, s); err != nil {
			t.Fatal(err)
		}
		s.runs.Wait()
		if all := allRuns(t, db, "lost"); <-told != "lost" || all[0].State != "lost" || all[0].Error == "something else went wrong" ||
			all[1].Attempt != 2 {
			t.Errorf("%+v", all)
		}
		db.Do(t, `DELETE FROM {prefix}schedule`, nil)

		addFunc(t, db, "lease", Policy{})
		db.Advance(t, time.Hour)
		runs, _, err := s.claim(t.Context(), s.lanes()[2], 1)
		if err != nil || len(runs) != 1 {
			t.Fatal(runs, err, s.lanes())
		}
		runs[0].deadline = instant.Now().Add(200 * time.Millisecond)
		s.start(t.Context(), runs)
		s.runs.Wait()
		if r := only(t, db, "lease"); <-told != "lease" || r.State != "running" {
			t.Errorf("%+v", r)
		}
	})
}

// A daemon that stops tells its functions, hands back those that return, and
// leaves nothing behind.
func TestDrainTellsFunctions(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		leaks := goleak.IgnoreCurrent()
		s := daemon(t, again(t, db), Options{Grace: -1})
		begun := make(chan struct{}, 2)
		handle(t, s, "gives up", func(ctx context.Context, run *Running) error {
			begun <- struct{}{}
			<-ctx.Done()
			_, _ = io.WriteString(run, "half")
			return ctx.Err()
		})
		handle(t, s, "completes", func(ctx context.Context, run *Running) error {
			begun <- struct{}{}
			<-ctx.Done()
			_, _ = io.WriteString(run, "whole")
			return nil
		})
		addFunc(t, db, "gives up", Policy{FirstRun: "now"})
		addFunc(t, db, "completes", Policy{FirstRun: "now"})
		stop := running(t, s)
		<-begun
		<-begun
		stop()
		if err := s.db.Close(); err != nil {
			t.Error(err)
		}
		goleak.VerifyNone(t, leaks)
		if r := only(t, db, "gives up"); r.State != "retry" || r.Output != "half" || r.Next.IsZero() {
			t.Errorf("%+v", r)
		}
		if r := only(t, db, "completes"); r.State != "ok" || r.Output != "whole" {
			t.Errorf("%+v", r)
		}
	})
}

// A function that goes on after its timeout, or though it was cancelled, keeps its run, its lease and its
// place: the next slot and the next attempt do not run beside it, and the run says why. The class: what waits for
// the end of work begins when the work has ended, not when somebody has lost patience.
func TestFunctionsThatDoNotReturn(t *testing.T) {
	clockedMemory(t, func(t *testing.T, db *dbtest.DB) {
		var log bytes.Buffer
		s := daemon(t, db, Options{Lease: 3 * time.Hour, KillGrace: 10 * time.Millisecond, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		goOn, begun := make(chan struct{}), make(chan struct{}, 2)
		for _, name := range []string{"timeout", "cancel"} {
			handle(t, s, name, func(_ context.Context, run *Running) error {
				_, _ = io.WriteString(run, "busy")
				begun <- struct{}{}
				<-goOn
				return nil
			})
		}
		// Its next slots wait for it, and so does its next attempt.
		addFunc(t, db, "timeout", Policy{Timeout: time.Second, Overlap: "queue", MaxAttempts: 2, RetryDelay: time.Second})
		addFunc(t, db, "cancel", Policy{})
		db.Advance(t, time.Hour)
		beginDue(t, s)
		<-begun
		<-begun
		cancelRun(t, db, s, only(t, db, "cancel").ID, "")
		ctx, cancel := context.WithCancel(t.Context())
		var showing sync.WaitGroup
		showing.Go(func() { s.show(ctx) })
		for name, why := range map[string]string{"timeout": "it took longer than 1s", "cancel": "cancelled by hand"} {
			eventually(t, "its run says that it goes on", func() bool {
				r := only(t, db, name)
				return r.State == "running" && r.Error == why+"; its work has not returned, and runs on" && r.Output == "busy"
			})
		}
		cancel()
		showing.Wait()
		db.Advance(t, time.Hour)
		beginDue(t, s)
		if n := s.busy(); n != 2 {
			t.Errorf("%d runs are executed", n)
		}
		close(goOn)
		eventually(t, "both are recorded", func() bool { return s.busy() == 0 })
		wantRows(t, db, "cancel", "3600 1 cancelled", "7200 1 skipped to 7200: 1")
		if r := rows(t, db, "timeout"); len(r) < 2 || r[0] != "3600 1 timeout" {
			t.Errorf("got %q", r)
		}
		for _, line := range []string{"work does not end though it was told to", "work that did not end has ended"} {
			if !strings.Contains(log.String(), line) {
				t.Errorf("no line %q in %s", line, log.String())
			}
		}
	})
}

// A daemon that stops waits for no such function. Nothing is written of a run that had time: its lease ends it.
// A timeout and a cancellation are recorded, and say that the work may go on.
func TestAStopWaitsForNoFunctionThatDoesNotReturn(t *testing.T) {
	clockedMemory(t, func(t *testing.T, db *dbtest.DB) {
		forever := make(chan struct{})
		defer close(forever)
		s := daemon(t, db, Options{Grace: -1, KillGrace: 10 * time.Millisecond})
		names := []string{"timeout", "cancel", "drain"}
		begun := make(chan struct{}, len(names))
		for _, name := range names {
			handle(t, s, name, func(_ context.Context, run *Running) error {
				_, _ = io.WriteString(run, "busy")
				begun <- struct{}{}
				<-forever
				return nil
			})
		}
		addFunc(t, db, "timeout", Policy{Timeout: 10 * time.Millisecond})
		addFunc(t, db, "cancel", Policy{})
		addFunc(t, db, "drain", Policy{})
		db.Advance(t, time.Hour)
		beginDue(t, s)
		for range names {
			<-begun
		}
		cancelRun(t, db, s, only(t, db, "cancel").ID, "")
		eventually(t, "two should have ended", func() bool {
			n := 0
			s.each(func(e *execution) {
				e.mu.Lock()
				defer e.mu.Unlock()
				if e.unheard != "" {
					n++
				}
			})
			return n == 2
		})
		s.drain(func() {})
		for name, state := range map[string]string{"timeout": "timeout", "cancel": "cancelled"} {
			r := only(t, db, name)
			said := r.Output == "busy" || r.Output == "" && name == "timeout" // its time may be over before it has said so
			if r.State != state || !strings.Contains(r.Error, "may still be running") || !said {
				t.Errorf("%+v", r)
			}
		}
		if r := only(t, db, "drain"); r.State != "running" || r.Error != "" || !r.Next.Equal(at(time.Hour+30*time.Second)) {
			t.Errorf("%+v", r)
		}
		db.Advance(t, 30*time.Second)
		other := daemon(t, db, Options{})
		handle(t, other, "drain", func(context.Context, *Running) error { return nil })
		work(t, other)
		wantRows(t, db, "drain", "3600 1 lost", "3600 2 ok")
	})
}

// A daemon runs the schedules of its tags and kinds, of functions those that it handles.
func TestLanes(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		for _, tag := range []string{"default", "gpu", "GPU", "eu-west"} {
			addJob(t, db, Schedule{Name: tag + " command", Command: "true", Tag: tag})
			addJob(t, db, Schedule{Name: tag + " one", Kind: "func", Command: "one", Tag: tag})
			addJob(t, db, Schedule{Name: tag + " two", Kind: "func", Command: "two", Tag: tag})
		}
		addJob(t, db, Schedule{Name: "gpu job", Kind: "job", Command: "work", Tag: "gpu"})
		db.Advance(t, time.Hour)
		nothing := func(context.Context, *Running) error { return nil }
		for _, c := range []struct {
			opt      Options
			handlers []string
			want     []string
		}{
			{Options{Tags: []string{"none"}}, []string{"one"}, nil},
			{Options{Kinds: []string{Functions}}, nil, nil},
			{Options{Kinds: []string{Functions}}, []string{"one"}, []string{"default one"}},
			{Options{Kinds: []string{Jobs, Functions}, Tags: []string{"gpu"}}, nil, []string{"gpu job"}},
			{Options{Kinds: []string{Commands}, Tags: []string{"default"}}, []string{"two"}, []string{"default command"}},
			{
				Options{Tags: []string{"gpu", "eu-west", "gpu"}},
				[]string{"two"},
				[]string{"eu-west command", "eu-west two", "gpu command", "gpu two"},
			},
			{
				Options{Tags: []string{"gpu", "GPU", "default", "eu-west"}, Kinds: []string{Functions}},
				[]string{"two", "one", "three"},
				[]string{"GPU one", "GPU two", "default two", "eu-west one", "gpu one"},
			},
			{Options{Tags: []string{"GPU"}}, nil, []string{"GPU command"}},
		} {
			s := daemon(t, db, c.opt)
			for _, name := range c.handlers {
				handle(t, s, name, nothing)
			}
			before := rows(t, db, "")
			work(t, s)
			s.apart.Wait() // jobs
			got := slices.DeleteFunc(rows(t, db, ""), func(row string) bool { return slices.Contains(before, row) })
			for i := range got {
				got[i] = strings.TrimSuffix(got[i], " 3600 1 ok")
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("a daemon with %q, kinds %q, %q ran %q, want %q", c.opt.Tags, c.opt.Kinds, c.handlers, got, c.want)
			}
		}
	})
}

// A run waits, is tried again and is taken over in its own lane.
func TestRunsStayInTheirLane(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		addJob(t, db, Schedule{Name: "fails", Command: "false", Tag: "gpu", Policy: Policy{MaxAttempts: 2, RetryDelay: time.Second}})
		addJob(t, db, Schedule{Name: "work", Kind: "func", Command: "work", Policy: Policy{MaxAttempts: 2, RetryDelay: time.Second}})
		strangers := []*Scheduler{daemon(t, db, Options{}), daemon(t, db, Options{Tags: []string{"gpu2", "gp"}})}
		handle(t, strangers[1], "work", func(context.Context, *Running) error { return nil })
		ours := daemon(t, db, Options{Tags: []string{"gpu", "default"}})
		handle(t, ours, "work", func(context.Context, *Running) error { return errors.New("no") })
		db.Advance(t, time.Hour)
		for round := range 3 {
			for _, s := range strangers {
				work(t, s)
			}
			if got := len(rows(t, db, "")); got != []int{0, 4, 6}[round] {
				t.Fatalf("round %d: %q", round, rows(t, db, ""))
			}
			work(t, ours)
			db.Advance(t, time.Second)
			if round == 1 { // two that are started by hand, and lost
				for _, name := range []string{"fails", "work"} {
					if _, err := Start(t.Context(), db.DB, name); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
		for _, r := range allRuns(t, db, "") {
			if r.By != ours.Node() && r.State != "waiting" {
				t.Errorf("%+v", r)
			}
		}
	})
}

// effects is a table of the test's own, and how many rows it has.
func effects(t *testing.T, db *dbtest.DB) (count func() int) {
	t.Helper()
	db.Do(t, `CREATE TABLE effect (id INTEGER NOT NULL)`, nil)
	return func() (n int) {
		t.Helper()
		db.Scan(t, `SELECT COUNT(*) FROM effect`, nil, &n)
		return n
	}
}

// The effect of a statement and its outcome are there together.
func TestStatements(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		count := effects(t, db)
		addJob(t, db, Schedule{
			Name: "insert", Kind: "sql", Command: "INSERT INTO effect (id) VALUES (1), (2)",
			Policy: Policy{OnSuccess: "next"},
		})
		addJob(t, db, Schedule{Name: "next", Spec: "@manual", Kind: "sql", Command: "UPDATE effect SET id = id + 1"})
		s := daemon(t, db, Options{})
		for n := 1; n <= 3; n++ {
			db.Advance(t, time.Hour)
			work(t, s)
			if got := count(); got != 2*n {
				t.Errorf("%d rows after %d slots", got, n)
			}
		}
		wantRows(t, db, "insert", "3600 1 ok", "7200 1 ok", "10800 1 ok")
		wantRows(t, db, "next", "3600 1 ok", "7200 1 ok", "10800 1 ok")
		if r := allRuns(t, db, "insert")[0]; r.Output != "2 rows\n" || r.ExitCode != -1 || r.Error != "" ||
			r.Finished.IsZero() || !r.Next.IsZero() {
			t.Errorf("%+v", r)
		}
		if r := allRuns(t, db, "next")[2]; r.Output != "6 rows\n" {
			t.Errorf("%+v", r)
		}
	})
}

// A statement that fails leaves nothing, and is tried again.
func TestAStatementThatFails(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		count := effects(t, db)
		addJob(t, db, Schedule{
			Name: "job", Kind: "sql", Command: "INSERT INTO effect (id) VALUES (1), (NULL)",
			Policy: Policy{MaxAttempts: 2, RetryDelay: time.Second},
		})
		addJob(t, db, Schedule{Name: "syntax", Kind: "sql", Command: "SELEC 1; {prefix} :id $1 ?"})
		db.Advance(t, time.Hour)
		s := daemon(t, db, Options{})
		work(t, s)
		db.Advance(t, time.Second)
		work(t, s)
		wantRows(t, db, "", "job 3600 1 failed", "job 3600 2 failed", "syntax 3600 1 failed")
		if n := count(); n != 0 {
			t.Errorf("%d rows of a statement that failed", n)
		}
		for _, r := range allRuns(t, db, "") {
			if r.Error == "" || r.Output != "" {
				t.Errorf("%+v", r)
			}
		}
	})
}

// A statement whose run was taken over meanwhile is rolled back.
func TestAStatementWhoseLeaseIsLost(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		count := effects(t, db)
		addJob(t, db, Schedule{Name: "job", Kind: "sql", Command: "INSERT INTO effect (id) VALUES (1)"})
		db.Advance(t, time.Hour)
		s, other := daemon(t, db, Options{}), daemon(t, db, Options{})
		runs, _, err := s.claim(t.Context(), "default", 1)
		if err != nil || len(runs) != 1 {
			t.Fatal(runs, err)
		}
		db.Advance(t, time.Minute)
		taken := takenOver(t, other, 1)
		s.start(t.Context(), runs)
		s.runs.Wait()
		if n := count(); n != 0 {
			t.Errorf("%d rows of a run that was lost", n)
		}
		wantRows(t, db, "job", "3600 1 lost", "3600 2 running")
		other.start(t.Context(), []run{taken[0].run})
		other.runs.Wait()
		if n := count(); n != 1 {
			t.Errorf("%d rows", n)
		}
		wantRows(t, db, "job", "3600 1 lost", "3600 2 ok")
	})
}

// Whatever call is cut, a slot that is ok has had its effect exactly once.
func TestFaultsInStatements(t *testing.T) {
	clockedDialects(t, func(t *testing.T, db *dbtest.DB) {
		count := effects(t, db)
		var s *Scheduler
		var runs []run
		prepare := func() {
			db.Do(t, `DELETE FROM effect`, nil)
			addJob(t, db, Schedule{
				Name: "job", Kind: "sql", Command: "INSERT INTO effect (id) VALUES (1)",
				Policy: Policy{MaxAttempts: 3, RetryDelay: time.Second},
			})
			db.Advance(t, time.Hour)
			s = daemon(t, db, Options{})
			var err error
			if runs, _, err = s.claim(t.Context(), "default", 1); err != nil || len(runs) != 1 {
				t.Fatal(runs, err)
			}
		}
		faults(t, db, prepare, func(broken *dbtest.DB, what string) {
			s.db = broken.DB
			s.start(t.Context(), runs)
			s.runs.Wait()
			db.Advance(t, 40*time.Second)
			work(t, daemon(t, db, Options{}))
			ok := 0
			all := allRuns(t, db, "job")
			for _, r := range all {
				if r.State == "ok" {
					ok++
				}
			}
			if n := count(); ok != 1 || n != 1 || all[len(all)-1].State != "ok" {
				t.Errorf("%s: %d rows, and the runs are %q", what, n, rows(t, db, "job"))
			}
		})
	})
}

// A statement that takes too long is ended, and leaves nothing.
func TestAStatementThatTakesTooLong(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		count := effects(t, db)
		numbers := make([]string, 300)
		for i := range numbers {
			numbers[i] = fmt.Sprintf("(%d)", i)
		}
		db.Do(t, `CREATE TABLE n (id INTEGER)`, nil)
		db.Do(t, `INSERT INTO n VALUES `+strings.Join(numbers, ", "), nil)
		addJob(t, db, Schedule{
			Name: "slow", Kind: "sql", Policy: Policy{Timeout: 300 * time.Millisecond},
			Command: "INSERT INTO effect (id) SELECT a.id FROM n a, n b, n c, n d WHERE a.id + b.id + c.id + d.id = -1 OR a.id < 0",
		})
		addJob(t, db, Schedule{Name: "quick", Kind: "sql", Command: "SELECT 1"})
		db.Advance(t, time.Hour)
		work(t, daemon(t, db, Options{}))
		if r := only(t, db, "slow"); r.State != "timeout" || !strings.Contains(r.Error, "longer than 300ms") || count() != 0 {
			t.Errorf("%+v, and %d rows", r, count())
		}
		if r := only(t, db, "quick"); r.State != "ok" {
			t.Errorf("%+v", r)
		}
	})
}
