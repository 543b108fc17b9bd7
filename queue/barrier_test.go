package queue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/queue/admin"
)

// bad is a program's error whose methods panic, those that are named.
type bad struct{ in string }

func (b *bad) is(method string) {
	if strings.Contains(b.in, method) {
		panic("oh, " + method)
	}
}

func (b *bad) Error() string { b.is("Error"); return "a text" }
func (b *bad) Unwrap() error { b.is("Unwrap"); return nil }
func (b *bad) Is(error) bool { b.is("Is"); return false }
func (b *bad) As(any) bool   { b.is("As"); return false }

// worse panics with itself, which package fmt does not survive either.
type worse struct{}

func (worse) Error() string { panic(worse{}) }

// endless wraps itself.
type endless struct{}

func (endless) Error() string   { return "endless" }
func (e endless) Unwrap() error { return e }

// leaver ends the goroutine that asks for its text.
type leaver struct{}

func (leaver) Error() string { runtime.Goexit(); return "" }

// proud is a value to panic with.
type proud struct{}

func (proud) String() string { panic("oh, String") }

// misfit cannot be decoded or encoded.
type misfit struct{}

func (*misfit) UnmarshalJSON([]byte) error  { panic("oh, UnmarshalJSON") }
func (misfit) MarshalJSON() ([]byte, error) { panic("oh, MarshalJSON") }

// Whatever code of a program's panics where a worker calls it, the process goes on, and what it was called
// for has the panic's text. The class: each place where the product calls a function that a program has
// registered, or a method of one of its values. Those of this package are here, those of the others in
// their packages' tests of this name. A function that is given to a call and runs in it (Edit, Do) panics
// into its caller, which must have let go of everything. Not listed: drivers, and contexts' methods.
func TestUsersCodePanics(t *testing.T) {
	returns := func(err error) Handler { return func(context.Context, *Delivery) error { return err } }
	var none *bad
	handlers := map[string]struct {
		h    Handler
		want []string // parts of the error
	}{
		"panic":           {func(context.Context, *Delivery) error { panic("oh") }, []string{"panic: oh"}},
		"panic Stringer":  {func(context.Context, *Delivery) error { panic(proud{}) }, []string{"panic: ", "oh, String"}},
		"panic error":     {func(context.Context, *Delivery) error { panic(&bad{"Error"}) }, []string{"panic: ", "oh, Error"}},
		"panic worse":     {func(context.Context, *Delivery) error { panic(worse{}) }, []string{"panic: a queue.worse, whose text panics, too"}},
		"nil pointer":     {returns(none), []string{"panic: runtime error: invalid memory", "a nil *queue.bad: return a plain nil"}},
		"Error":           {returns(&bad{"Error"}), []string{"panic: oh, Error", "*queue.bad"}},
		"Unwrap":          {returns(&bad{"Unwrap"}), []string{"a text", "panic: oh, Unwrap", "*queue.bad"}},
		"Is":              {returns(&bad{"Is"}), []string{"a text", "panic: oh, Is"}},
		"As":              {returns(&bad{"As"}), []string{"a text", "panic: oh, As"}},
		"all":             {returns(&bad{"Error Unwrap Is As"}), []string{"panic: oh, Error"}},
		"worse":           {returns(worse{}), []string{"panic: a queue.worse, whose text panics, too"}},
		"joined":          {returns(errors.Join(errTest, &bad{"Error Unwrap"})), []string{"panic: oh, Error"}},
		"joined nil":      {returns(errors.Join(none)), []string{"panic: runtime error"}},
		"wrapped":         {returns(fmt.Errorf("so: %w", &bad{"Error Unwrap As"})), []string{"so: ", "oh, Error"}},
		"bury":            {returns(Bury(&bad{"Error Unwrap"})), []string{"panic: oh, Error"}},
		"bury wrapped":    {returns(fmt.Errorf("so: %w", Bury(&bad{"Error"}))), []string{"so: ", "oh, Error"}},
		"bury joined":     {returns(errors.Join(&bad{"Unwrap"}, Bury(errTest))), []string{"a text", "failed"}},
		"retry after":     {returns(RetryAfter(time.Millisecond, none)), []string{"panic: runtime error"}},
		"endless":         {returns(endless{}), []string{"endless", "Unwrap finds no end"}},
		"leaves":          {returns(leaver{}), []string{"the handler ended its goroutine"}},
		"timeout":         {func(ctx context.Context, _ *Delivery) error { <-ctx.Done(); return &bad{"Error Is"} }, []string{ErrTimeout.Error(), "panic: oh, Error"}},
		"middleware":      {func(context.Context, *Delivery) error { return nil }, []string{"panic: oh, middleware"}},
		"middleware text": {returns(&bad{"Error Unwrap"}), []string{"panic: oh, Error"}},
		"result": {func(_ context.Context, d *Delivery) error {
			d.Group = 1
			return d.SetResult(misfit{})
		}, []string{"panic: oh, MarshalJSON"}},
		"checkpoint": {func(ctx context.Context, d *Delivery) error { return Checkpoint(ctx, d, misfit{}) }, []string{"panic: oh, MarshalJSON"}},
	}
	memory(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		edit(t, c, impatient)
		w := worker(t, c, WorkerOptions{Concurrency: 4})
		events, err := c.Events(EventOptions{})
		must(t, err)
		w.Use(func(next Handler) Handler {
			return func(ctx context.Context, d *Delivery) error {
				err := next(ctx, d)
				switch d.Kind {
				case "middleware":
					panic("oh, middleware")
				case "middleware text":
					return errors.New(err.Error())
				}
				return err
			}
		})
		for kind, is := range handlers {
			p := RetryPolicy{}
			if kind == "timeout" {
				p.Timeout = time.Millisecond
			}
			must(t, w.HandleWith(kind, p, is.h))
		}
		must(t, HandleKind(w, Kind[misfit]{Name: "decode"}, func(context.Context, misfit, *Delivery) error { return nil }))
		must(t, w.HandleWith("backoff", RetryPolicy{Backoff: func(int, error) time.Duration { panic(worse{}) }}, returns(errTest)))
		must(t, w.HandleWith("backoff reads", RetryPolicy{Backoff: func(_ int, err error) time.Duration {
			return time.Duration(len(err.Error()))
		}}, returns(&bad{"Error As Unwrap"})))
		must(t, w.HandleBatch("batch", BatchOptions{}, func(context.Context, []*Delivery) error { return &bad{"Error As Unwrap"} }))
		must(t, w.HandleBatch("results", BatchOptions{}, func(context.Context, []*Delivery) error { return Results{&bad{"Error As"}} }))
		must(t, w.HandleBatch("many results", BatchOptions{}, func(context.Context, []*Delivery) error { return Results{nil, worse{}, none} }))
		must(t, w.HandleOthers(returns(none)))
		ids, wants := map[string]int64{}, map[string][]string{
			"decode": {"panic: oh, UnmarshalJSON"}, "backoff": {errTest.Error()[:2], "Backoff: panic: a queue.worse"},
			"backoff reads": {"panic: oh, Error", "Backoff: panic: oh, Error"}, "batch": {"panic: oh, Error"}, "results": {"panic: oh, Error"},
			"many results": {"returned 3 results for 1 jobs"}, "others": {"panic: runtime error"},
		}
		for kind, is := range handlers {
			wants[kind] = is.want
		}
		for kind := range wants {
			ids[kind] = enqueue(t, c, Job{Kind: kind, MaxAttempts: 1, Payload: []byte("1")})
		}
		discarded := enqueue(t, c, Job{Kind: "bury", MaxAttempts: 2, Key: "k"}) // two at once, one of them in a key
		handle(t, w, "discard", returns(Discard(&bad{"Error As Unwrap"})))
		enqueue(t, c, Job{Kind: "discard", Key: "k"})
		handle(t, w, "after", returns(nil))
		enqueue(t, c, Job{Kind: "after", Key: "k"})
		start(t, w)
		becomes(t, c, discarded, admin.StateDead)
		for kind, want := range wants {
			i := becomes(t, c, ids[kind], admin.StateDead)
			for _, part := range want {
				if !strings.Contains(i.Error, part) {
					t.Errorf("%s: dead because of %q, which lacks %q", kind, i.Error, part)
				}
			}
		}
		empty(t, db)
		events.Close()
		for e := range events.C { // a subscriber may look at all errors
			if e.Err != nil {
				_ = e.Err.Error()
				_ = errors.Is(e.Err, ErrTimeout)
			}
		}
	})
}

// What a program enqueues with code that panics is an error of that call.
func TestUsersCodePanicsWhileEnqueueing(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		var fail func()
		c.Use(func(next Enqueuer) Enqueuer {
			return func(ctx context.Context, jobs []Job) ([]Enqueued, error) {
				all, err := next(ctx, jobs)
				fail()
				return all, err
			}
		})
		fail = func() { panic("oh, middleware") }
		calls := map[string]func() error{
			"one":   func() error { _, err := c.Enqueue(t.Context(), Job{Kind: "k"}); return err },
			"many":  func() error { _, err := c.EnqueueMany(t.Context(), []Job{{Kind: "k"}, {Kind: "k"}}); return err },
			"group": func() error { _, _, err := c.EnqueueGroup(t.Context(), Group{}, Job{Kind: "k"}); return err },
		}
		for what, call := range calls {
			if err := call(); err == nil || !strings.Contains(err.Error(), "panic: oh, middleware") {
				t.Errorf("%s: %v", what, err)
			}
		}
		fail = func() {}
		if _, err := c.Enqueue(t.Context(), Kind[misfit]{Name: "k"}.Job(misfit{})); !errors.Is(err, ErrInvalid) ||
			!strings.Contains(err.Error(), "panic: oh, MarshalJSON") {
			t.Errorf("a payload whose encoding panics: %v", err)
		}
		enqueue(t, c, Job{Kind: "k"}) // nothing is left locked
	})
}

// What a Receiver is told may be an error that panics, and so may the client's callbacks.
func TestUsersCodePanicsInReceivers(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		r, err := c.Receiver(t.Context(), WorkerOptions{})
		must(t, err)
		id := enqueue(t, c, Job{Kind: "k", MaxAttempts: 1})
		all, err := r.Receive(t.Context(), 1, longWait)
		must(t, err)
		must(t, r.Fail(t.Context(), all[0], &bad{"Error As Unwrap"}))
		if i := becomes(t, c, id, admin.StateDead); !strings.Contains(i.Error, "panic: oh, Error") {
			t.Errorf("it is dead because of %q", i.Error)
		}
		must(t, r.Close())
	})
}

// LeaseLost may panic, and ask the worker for something.
func TestUsersCodePanicsAtALostLease(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		var r record
		var w *Worker
		c := client(t, db, Options{LeaseLost: func(why string) {
			r.add("%s", why)
			nameOf(w) // takes its mutex, as its methods do
			panic("oh, LeaseLost")
		}})
		w = worker(t, c, WorkerOptions{})
		handle(t, w, "k", func(context.Context, *Delivery) error { return nil })
		start(t, w)
		lapse(t, db, w, 0)
		enqueue(t, c, Job{Kind: "k"})
		empty(t, db)
		r.wants(t, "it could not be renewed in time")
	})
}

// A program's handler of log lines may panic, and call the worker or its client.
func TestUsersCodePanicsInLoggers(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		h := &loudHandler{}
		c := client(t, db, Options{Logger: slog.New(h)})
		edit(t, c, impatient)
		w := worker(t, c, WorkerOptions{})
		h.call = func() {
			nameOf(w) // takes its mutex, as its methods do
		}
		handle(t, w, "fail", func(context.Context, *Delivery) error { return errTest })
		handle(t, w, "discard", func(context.Context, *Delivery) error { return Discard(errTest) })
		handle(t, w, "k", func(context.Context, *Delivery) error { return nil })
		stop := start(t, w)
		dead := enqueue(t, c, Job{Kind: "fail", MaxAttempts: 2})
		enqueue(t, c, Job{Kind: "discard"})
		enqueue(t, c, Job{Kind: "k"})
		becomes(t, c, dead, admin.StateDead)
		empty(t, db)
		w.lose("for a test")
		stop()
		for _, line := range []string{"job failed", "job discarded", "job done", "the lease was lost; running jobs are cancelled, and done again by others"} {
			if !slices.Contains(h.got.all(), line) {
				t.Errorf("no line %q: %q", line, h.got.all())
			}
		}
	})
}

type loudHandler struct {
	call func()
	got  record
}

func (h *loudHandler) Enabled(context.Context, slog.Level) bool {
	if h.call == nil {
		return false
	}
	h.call()
	return true
}

func (h *loudHandler) Handle(_ context.Context, r slog.Record) error {
	h.call()
	h.got.add("%s", r.Message)
	panic("oh, Handle")
}

func (h *loudHandler) WithAttrs([]slog.Attr) slog.Handler { return h }
func (h *loudHandler) WithGroup(string) slog.Handler      { panic("oh, WithGroup") }
