// Package oteldbcron traces dbcron with OpenTelemetry: spans for jobs that are enqueued, wait and are done, and for
// runs of schedules. dbcron itself does not import OpenTelemetry; this module hooks into it.
//
//	tracing := oteldbcron.New(oteldbcron.Options{})
//	client.Use(tracing.Enqueue)    // a queue.Client
//	worker.Use(tracing.Work)       // a queue.Worker, before its handlers are set
//	worker.HandleBatch("clicks", queue.BatchOptions{}, tracing.Batch(handler))
//	scheduler.New(db, scheduler.Options{Trace: tracing.Run})
//
// A job carries the trace in which it was enqueued, whoever does it: a worker in Go or another language, or an
// endpoint.
package oteldbcron

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/scheduler"
)

// Options configures a Tracing. The zero value is ready to use.
type Options struct {
	Provider trace.TracerProvider // default: OpenTelemetry's global one
}

// A Tracing creates spans. Its methods are hooks, safe for concurrent use.
type Tracing struct {
	tracer trace.Tracer
}

// New returns a Tracing.
func New(opt Options) *Tracing {
	if opt.Provider == nil {
		opt.Provider = otel.GetTracerProvider()
	}
	return &Tracing{opt.Provider.Tracer("github.com/dbcron/dbcron/oteldbcron")}
}

// format is how jobs carry their trace: a W3C traceparent.
var format propagation.TraceContext

// parent returns the traceparent of a context's span, or "" if there is none.
func parent(ctx context.Context) string {
	carrier := propagation.MapCarrier{}
	format.Inject(ctx, carrier)
	return carrier["traceparent"]
}

// follow returns a context that belongs to a traceparent's span.
func follow(ctx context.Context, traceparent string) context.Context {
	return format.Extract(ctx, propagation.MapCarrier{"traceparent": traceparent})
}

func system(more ...attribute.KeyValue) trace.SpanStartEventOption {
	return trace.WithAttributes(append(more, attribute.String("messaging.system", "dbcron"))...)
}

// Enqueue makes a span for each call that enqueues jobs. Jobs without a trace become part of it: see
// [queue.Client.Use].
func (t *Tracing) Enqueue(next queue.Enqueuer) queue.Enqueuer {
	return func(ctx context.Context, jobs []queue.Job) ([]queue.Enqueued, error) {
		if len(jobs) == 0 {
			return next(ctx, jobs)
		}
		name := "enqueue " + jobs[0].Kind
		if slices.ContainsFunc(jobs, func(j queue.Job) bool { return j.Kind != jobs[0].Kind }) {
			name = "enqueue jobs"
		}
		ctx, span := t.tracer.Start(ctx, name, trace.WithSpanKind(trace.SpanKindProducer), system(
			attribute.String("messaging.operation.type", "send"), attribute.Int("messaging.batch.message_count", len(jobs))))
		defer span.End()
		if own := parent(ctx); own != "" {
			jobs = slices.Clone(jobs)
			for i := range jobs {
				if jobs[i].Trace == "" {
					jobs[i].Trace = own
				}
			}
		}
		all, err := next(ctx, jobs)
		if len(all) == 1 {
			span.SetAttributes(attribute.String("messaging.destination.name", all[0].Queue),
				attribute.String("messaging.message.id", strconv.FormatInt(all[0].ID, 10)))
		}
		note(span, err)
		return all, err
	}
}

// Work makes two spans for each attempt at a job: the time it waited, for the first attempt, and the time it took.
// They belong to the job's trace; the context of the handler carries the second span: see [queue.Worker.Use].
func (t *Tracing) Work(next queue.Handler) queue.Handler {
	return func(ctx context.Context, d *queue.Delivery) (err error) {
		ctx = follow(ctx, d.Trace)
		t.waited(ctx, d)
		ctx, span := t.tracer.Start(ctx, "process "+d.Kind, trace.WithSpanKind(trace.SpanKindConsumer), system(aboutJob(d)...))
		defer ended(span, &err)
		return next(ctx, d)
	}
}

// Batch is Work for a handler of batches: one span per batch, linked to the traces of its jobs.
func (t *Tracing) Batch(next queue.BatchHandler) queue.BatchHandler {
	return func(ctx context.Context, batch []*queue.Delivery) (err error) {
		var links []trace.Link
		for _, d := range batch {
			of := follow(context.WithoutCancel(ctx), d.Trace)
			t.waited(of, d)
			if link := trace.LinkFromContext(of, attribute.String("messaging.message.id", strconv.FormatInt(d.ID, 10))); link.SpanContext.IsValid() {
				links = append(links, link)
			}
		}
		name, attributes := "process", []attribute.KeyValue{attribute.Int("messaging.batch.message_count", len(batch))}
		if len(batch) > 0 {
			name = "process " + batch[0].Kind
			attributes = append(attributes, attribute.String("messaging.operation.type", "process"),
				attribute.String("messaging.destination.name", batch[0].Queue))
		}
		ctx, span := t.tracer.Start(ctx, name, trace.WithNewRoot(), trace.WithSpanKind(trace.SpanKindConsumer),
			trace.WithLinks(links...), system(attributes...))
		defer ended(span, &err)
		return next(ctx, batch)
	}
}

func aboutJob(d *queue.Delivery) []attribute.KeyValue {
	return []attribute.KeyValue{
		attribute.String("messaging.operation.type", "process"), attribute.String("messaging.destination.name", d.Queue),
		attribute.String("messaging.message.id", strconv.FormatInt(d.ID, 10)), attribute.Int("dbcron.attempt", d.Attempt),
	}
}

// waited makes a span from when a job was enqueued until now. Later attempts have waited for the queue's backoff,
// which says nothing about its workers. The start is by the database's clock and the end by this host's; the span's
// length is clamped where they differ.
func (t *Tracing) waited(ctx context.Context, d *queue.Delivery) {
	if d.Attempt > 1 || !trace.SpanContextFromContext(ctx).IsValid() {
		return
	}
	now, from := time.Now(), d.Enqueued()
	if from.After(now) {
		from = now
	}
	_, span := t.tracer.Start(ctx, "wait "+d.Kind, trace.WithTimestamp(from), system(attribute.String("messaging.destination.name", d.Queue)))
	span.End(trace.WithTimestamp(now))
}

// ended ends the span of an attempt, even if it panics.
func ended(span trace.Span, err *error) {
	if p := recover(); p != nil {
		note(span, fmt.Errorf("panic: %v", p))
		span.End()
		panic(p)
	}
	switch {
	case queue.Failed(*err):
		note(span, *err)
	case *err != nil:
		span.SetAttributes(attribute.String("dbcron.outcome", (*err).Error()))
	}
	span.End()
}

// note records an error.
func note(span trace.Span, err error) {
	if err == nil {
		return
	}
	span.RecordError(err)
	span.SetStatus(codes.Error, err.Error())
}

// Run makes a span for each run of a schedule: see [scheduler.Options]. Commands, requests and jobs belong to it, and
// so does what a function does with its context.
func (t *Tracing) Run(r scheduler.TracedRun) scheduler.Trace {
	ctx, span := t.tracer.Start(context.Background(), "run "+r.Schedule, trace.WithNewRoot(), trace.WithAttributes(
		attribute.String("dbcron.schedule", r.Schedule), attribute.String("dbcron.kind", r.Kind), attribute.Int64("dbcron.run", r.ID),
		attribute.Int("dbcron.attempt", r.Attempt), attribute.String("dbcron.cause", r.Cause),
		attribute.String("dbcron.due", r.Due.UTC().Format(time.RFC3339))))
	return scheduler.Trace{
		Parent:  parent(ctx),
		Context: func(of context.Context) context.Context { return trace.ContextWithSpan(of, span) },
		End: func(state, why string) {
			span.SetAttributes(attribute.String("dbcron.outcome", state))
			if state != "ok" && state != "retry" && state != "cancelled" && state != "skipped" {
				if why == "" {
					why = state
				}
				note(span, errors.New(why))
			}
			span.End()
		},
	}
}
