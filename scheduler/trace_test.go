package scheduler

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/jobfield"
	"github.com/dbcron/dbcron/internal/sqlrun"
)

// traceFunc is a function that says which trace it belongs to.
func traceFunc(_ context.Context, run *Running) error {
	fmt.Fprintln(run, run.Trace)
	return nil
}

// traced adds a schedule of each kind that hands on a trace, and returns what to read the
// traces of their runs with, in the order of the names.
func traced(t *testing.T, db *dbtest.DB) (names []string, traces func() []string) {
	t.Helper()
	var mu sync.Mutex
	var sent string
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		sent = r.Header.Get("Traceparent")
	}))
	t.Cleanup(server.Close)
	addJob(t, db, Schedule{Name: "command", Command: "echo $TRACEPARENT"})
	addFunc(t, db, "function", Policy{})
	addJob(t, db, Schedule{Name: "job", Kind: "job", Command: "welcome"})
	addJob(t, db, Schedule{Name: "request", Kind: "http", Command: "POST " + server.URL})
	return []string{"command", "function", "job", "request"}, func() (all []string) {
		for _, name := range []string{"command", "function"} {
			all = append(all, strings.TrimSpace(only(t, db, name).Output))
		}
		var job string
		if err := db.Get(t.Context(), sqlrun.Unlisted("SELECT trace FROM {prefix}job"), nil, &job); err != nil {
			t.Fatal(err)
		}
		mu.Lock()
		defer mu.Unlock()
		return append(all, job, sent)
	}
}

// Each run has a trace of its own, which its work gets.
func TestTraces(t *testing.T) {
	clockedMemory(t, func(t *testing.T, db *dbtest.DB) {
		_, traces := traced(t, db)
		s := daemon(t, db, Options{})
		handle(t, s, "function", traceFunc)
		db.Advance(t, time.Hour)
		work(t, s)
		s.apart.Wait() // the job
		all := traces()
		if slices.ContainsFunc(all, func(text string) bool { return !jobfield.ValidTrace(text) }) {
			t.Errorf("got %q", all)
		}
		if slices.Sort(all); len(slices.Compact(all)) != 4 {
			t.Errorf("runs share a trace: %q", all)
		}
	})
}

// Whoever traces runs says which trace each belongs to, and hears of its end.
func TestTracer(t *testing.T) {
	clockedMemory(t, func(t *testing.T, db *dbtest.DB) {
		type key struct{}
		names, traces := traced(t, db)
		addJob(t, db, Schedule{Name: "fails", Command: "exit 3"})
		var mu sync.Mutex
		var said []string
		parentOf := func(name string) string {
			return fmt.Sprintf("00-%032x-%016x-01", len(name), len(name))
		}
		s := daemon(t, db, Options{Trace: func(r TracedRun) Trace {
			return Trace{
				Parent:  parentOf(r.Schedule),
				Context: func(ctx context.Context) context.Context { return context.WithValue(ctx, key{}, r.Schedule) },
				End: func(state, why string) {
					mu.Lock()
					defer mu.Unlock()
					said = append(said, fmt.Sprintf("%s %s %d %s %t: %s %s", r.Schedule, r.Kind, r.Attempt, r.Cause,
						r.Due.Equal(at(time.Hour)), state, why))
				},
			}
		}})
		handle(t, s, "function", func(ctx context.Context, run *Running) error {
			if ctx.Value(key{}) != "function" {
				t.Errorf("the context is of %v", ctx.Value(key{}))
			}
			return traceFunc(ctx, run)
		})
		db.Advance(t, time.Hour)
		work(t, s)
		s.apart.Wait() // the job
		for i, trace := range traces() {
			if trace != parentOf(names[i]) {
				t.Errorf("%s belongs to %q", names[i], trace)
			}
		}
		mu.Lock()
		defer mu.Unlock()
		slices.Sort(said)
		want := []string{
			"command shell 1 slot true: ok ", "fails shell 1 slot true: failed exit code 3", "function func 1 slot true: ok ",
			"job job 1 slot true: ok ", "request http 1 slot true: ok ",
		}
		if !slices.Equal(said, want) {
			t.Errorf("heard %q, not %q", said, want)
		}
	})
}
