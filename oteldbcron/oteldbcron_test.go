package oteldbcron

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/sqlite"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/scheduler"
	"github.com/dbcron/dbcron/sqlschema"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A rig is a database, a client whose jobs are traced, and the spans that were made.
type rig struct {
	*Tracing
	db       *dialect.DB
	client   *queue.Client
	provider *sdk.TracerProvider
	spans    *tracetest.InMemoryExporter
}

func newRig(t *testing.T) *rig {
	t.Helper()
	db, err := sqlite.Open(t.Context(), "sqlite:"+filepath.Join(t.TempDir(), "db"), dialect.Options{})
	must(t, err)
	t.Cleanup(func() { _ = db.Close() })
	must(t, sqlschema.Migrate(t.Context(), db))
	spans := tracetest.NewInMemoryExporter()
	provider := sdk.NewTracerProvider(sdk.WithSyncer(spans))
	r := &rig{Tracing: New(Options{Provider: provider}), db: db, provider: provider, spans: spans}
	r.client, err = queue.New(db, queue.Options{Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	must(t, err)
	r.client.Use(r.Enqueue)
	return r
}

// named is the only span of a name.
func (r *rig) named(t *testing.T, name string) tracetest.SpanStub {
	t.Helper()
	var found tracetest.SpanStubs
	for _, s := range r.spans.GetSpans() {
		if s.Name == name {
			found = append(found, s)
		}
	}
	if len(found) != 1 {
		t.Fatalf("there are %d spans %q: %v", len(found), name, r.spans.GetSpans())
	}
	return found[0]
}

func attributeOf(s *tracetest.SpanStub, key string) string {
	for _, a := range s.Attributes {
		if a.Key == attribute.Key(key) {
			return a.Value.String()
		}
	}
	return ""
}

// work does jobs until so many attempts have ended.
func (r *rig) work(t *testing.T, attempts int, set func(w *queue.Worker, ended func())) {
	t.Helper()
	w, err := r.client.Worker(queue.WorkerOptions{Concurrency: 1, Lease: time.Minute, Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	must(t, err)
	w.Use(r.Work)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	left := attempts
	set(w, func() {
		if left--; left == 0 {
			stop()
		}
	})
	must(t, w.Run(ctx))
}

// A job belongs to the trace in which it was enqueued, and so does what it enqueues itself.
func TestJobs(t *testing.T) {
	r := newRig(t)
	ctx, request := r.provider.Tracer("shop").Start(t.Context(), "request")
	first, err := r.client.Enqueue(ctx, queue.Job{Kind: "first"})
	must(t, err)
	request.End()
	r.work(t, 2, func(w *queue.Worker, ended func()) {
		must(t, w.Handle("first", func(ctx context.Context, _ *queue.Delivery) error {
			defer ended()
			_, err := r.client.EnqueueMany(ctx, []queue.Job{{Kind: "second"}, {Kind: "other", Delay: time.Hour}})
			return err
		}))
		must(t, w.Handle("second", func(context.Context, *queue.Delivery) error {
			defer ended()
			return nil
		}))
	})
	for _, name := range []string{"enqueue first", "wait first", "process first", "enqueue jobs", "wait second", "process second"} {
		if s := r.named(t, name); s.SpanContext.TraceID() != request.SpanContext().TraceID() || s.Status.Code != codes.Unset {
			t.Errorf("%s is of another trace, or in error: %+v", name, s)
		}
	}
	enqueued, process, wait := r.named(t, "enqueue first"), r.named(t, "process first"), r.named(t, "wait first")
	if enqueued.Parent.SpanID() != request.SpanContext().SpanID() || process.Parent.SpanID() != enqueued.SpanContext.SpanID() ||
		wait.Parent.SpanID() != enqueued.SpanContext.SpanID() || !process.Parent.IsRemote() ||
		process.SpanKind != trace.SpanKindConsumer || enqueued.SpanKind != trace.SpanKindProducer {
		t.Errorf("the parents are %v, %v and %v", enqueued.Parent, process.Parent, wait.Parent)
	}
	many := r.named(t, "enqueue jobs")
	if many.Parent.SpanID() != process.SpanContext.SpanID() || attributeOf(&many, "messaging.batch.message_count") != "2" {
		t.Errorf("what the job enqueues is no part of it: %+v", many)
	}
	if id := fmt.Sprint(first.ID); attributeOf(&process, "messaging.message.id") != id ||
		attributeOf(&enqueued, "messaging.message.id") != id ||
		attributeOf(&process, "messaging.destination.name") != "default" || attributeOf(&process, "dbcron.attempt") != "1" {
		t.Errorf("got %v and %v", process.Attributes, enqueued.Attributes)
	}
	if wait.StartTime.After(wait.EndTime) {
		t.Errorf("it waited from %v to %v", wait.StartTime, wait.EndTime)
	}
}

// What a handler returns is the status of its span.
func TestErrors(t *testing.T) {
	r := newRig(t)
	for _, kind := range []string{"fails", "panics", "snoozes", "discards", "buries"} {
		_, err := r.client.Enqueue(t.Context(), queue.Job{Kind: kind, MaxAttempts: 1})
		must(t, err)
	}
	r.work(t, 5, func(w *queue.Worker, ended func()) {
		for kind, f := range map[string]func() error{
			"fails": func() error { return errors.New("no luck") }, "panics": func() error { panic("oops") },
			"snoozes": func() error { return queue.Snooze(time.Hour) }, "discards": func() error { return queue.Discard(nil) },
			"buries": func() error { return queue.Bury(errors.New("never")) },
		} {
			must(t, w.Handle(kind, func(context.Context, *queue.Delivery) error {
				defer ended()
				return f()
			}))
		}
	})
	for kind, want := range map[string]string{"fails": "no luck", "panics": "panic: oops", "buries": "never", "snoozes": "", "discards": ""} {
		s := r.named(t, "process "+kind)
		if bad := s.Status.Code == codes.Error; bad != (want != "") || s.Status.Description != want || bad != (len(s.Events) == 1) {
			t.Errorf("%s: %+v and %v", kind, s.Status, s.Events)
		}
	}
	// What cannot be enqueued is an error, too.
	if _, err := r.client.Enqueue(t.Context(), queue.Job{Kind: "bad", Trace: "no trace"}); !errors.Is(err, queue.ErrInvalid) {
		t.Errorf("got %v", err)
	}
	if s := r.named(t, "enqueue bad"); s.Status.Code != codes.Error {
		t.Errorf("got %+v", s.Status)
	}
}

// A batch is one span, with a link to the trace of each of its jobs.
func TestBatches(t *testing.T) {
	r := newRig(t)
	traces := map[trace.TraceID]bool{}
	for range 3 {
		ctx, request := r.provider.Tracer("shop").Start(t.Context(), "request")
		_, err := r.client.Enqueue(ctx, queue.Job{Kind: "click"})
		must(t, err)
		request.End()
		traces[request.SpanContext().TraceID()] = true
	}
	r.work(t, 1, func(w *queue.Worker, ended func()) {
		must(t, w.HandleBatch("click", queue.BatchOptions{Max: 3, Wait: time.Minute},
			r.Batch(func(_ context.Context, batch []*queue.Delivery) error {
				defer ended()
				return nil
			})))
	})
	s := r.named(t, "process click")
	for _, link := range s.Links {
		delete(traces, link.SpanContext.TraceID())
	}
	if len(s.Links) != 3 || len(traces) > 0 || s.Parent.IsValid() || attributeOf(&s, "messaging.batch.message_count") != "3" {
		t.Errorf("the links are %v, and the parent %v", s.Links, s.Parent)
	}
}

// A run of a schedule is a trace, to which what it does belongs.
func TestRuns(t *testing.T) {
	r := newRig(t)
	for _, s := range []scheduler.Schedule{
		{Name: "nightly", Kind: "func", Command: "work", Policy: scheduler.Policy{FirstRun: "now"}},
		{Name: "enqueues", Kind: "job", Command: "welcome", Policy: scheduler.Policy{FirstRun: "now"}},
	} {
		s.Spec = "@yearly"
		must(t, scheduler.Add(t.Context(), r.db, s))
	}
	s, err := scheduler.New(r.db, scheduler.Options{Trace: r.Run, Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	must(t, err)
	must(t, s.Handle("work", func(ctx context.Context, _ *scheduler.Running) error {
		_, span := r.provider.Tracer("shop").Start(ctx, "inside")
		span.End()
		return errors.New("no luck")
	}))
	must(t, s.RunOnce(t.Context()))
	run, inside, enqueues := r.named(t, "run nightly"), r.named(t, "inside"), r.named(t, "run enqueues")
	if inside.Parent.SpanID() != run.SpanContext.SpanID() || run.Status.Code != codes.Error ||
		run.Status.Description != "no luck" || attributeOf(&run, "dbcron.outcome") != "failed" {
		t.Errorf("the run is %+v", run)
	}
	if enqueues.Status.Code != codes.Unset || attributeOf(&enqueues, "dbcron.outcome") != "ok" {
		t.Errorf("the run is %+v", enqueues)
	}
	r.work(t, 1, func(w *queue.Worker, ended func()) {
		must(t, w.Handle("welcome", func(context.Context, *queue.Delivery) error {
			defer ended()
			return nil
		}))
	})
	if s := r.named(t, "process welcome"); s.SpanContext.TraceID() != enqueues.SpanContext.TraceID() ||
		s.Parent.SpanID() != enqueues.SpanContext.SpanID() {
		t.Errorf("the job is of another trace: %+v", s)
	}
}
