package oteldbcron_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/sqlite"
	"github.com/dbcron/dbcron/oteldbcron"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/sqlschema"
)

// A program whose jobs belong to the traces in which they are enqueued. A real one has an
// exporter of its own, such as OTLP's, in place of the one in memory.
func Example() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	folder, err := os.MkdirTemp("", "dbcron")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(folder)
	db, err := sqlite.Open(ctx, "sqlite:"+filepath.Join(folder, "jobs.db"), dialect.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	if err := sqlschema.Migrate(ctx, db); err != nil {
		log.Fatal(err)
	}

	spans := tracetest.NewInMemoryExporter()
	provider := sdk.NewTracerProvider(sdk.WithSyncer(spans))
	tracing := oteldbcron.New(oteldbcron.Options{Provider: provider})

	c, err := queue.New(db, queue.Options{})
	if err != nil {
		log.Fatal(err)
	}
	c.Use(tracing.Enqueue)
	w, err := c.Worker(queue.WorkerOptions{})
	if err != nil {
		log.Fatal(err)
	}
	w.Use(tracing.Work)
	err = w.Handle("greet", func(context.Context, *queue.Delivery) error {
		defer stop()
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}

	inRequest, request := provider.Tracer("shop").Start(ctx, "POST /orders")
	if _, err := c.Enqueue(inRequest, queue.Job{Kind: "greet"}); err != nil {
		log.Fatal(err)
	}
	request.End()
	if err := w.Run(ctx); err != nil {
		log.Fatal(err)
	}
	for _, span := range spans.GetSpans() {
		fmt.Println(span.Name, span.SpanContext.TraceID() == request.SpanContext().TraceID())
	}
	// Output:
	// enqueue greet true
	// POST /orders true
	// wait greet true
	// process greet true
}
