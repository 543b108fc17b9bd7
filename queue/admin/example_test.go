package admin_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/engines"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/sqlschema"
)

// open is here for what a program has already: a database with dbcron's tables, and a client.
func open(ctx context.Context) (db *dialect.DB, c *queue.Client, done func()) {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		panic(err)
	}
	if db, err = engines.Open(ctx, "sqlite:"+filepath.Join(dir, "app.db"), dialect.Options{}); err != nil {
		panic(err)
	}
	if err := sqlschema.Migrate(ctx, db); err != nil {
		panic(err)
	}
	if c, err = queue.New(db, queue.Options{Logger: slog.New(slog.NewTextHandler(io.Discard, nil))}); err != nil {
		panic(err)
	}
	return db, c, func() {
		_ = db.Close()
		_ = os.RemoveAll(dir)
	}
}

// Dead letters are retried when what was wrong is mended.
func ExampleClient_Bulk() {
	ctx := context.Background()
	db, c, done := open(ctx)
	defer done()
	for _, kind := range []string{"pay", "pay", "mail"} {
		if _, err := c.Enqueue(ctx, queue.Job{Kind: kind}); err != nil {
			panic(err)
		}
	}
	w, err := c.Worker(queue.WorkerOptions{})
	if err != nil {
		panic(err)
	}
	buried := func(context.Context, *queue.Delivery) error { return queue.Bury(errors.New("the bank is closed")) }
	if err := errors.Join(w.Handle("pay", buried), w.Handle("mail", buried), w.RunOnce(ctx)); err != nil {
		panic(err)
	}

	a, err := admin.New(db, admin.Options{})
	if err != nil {
		panic(err)
	}
	dead, _, err := a.Jobs(ctx, admin.Filter{State: admin.StateDead})
	if err != nil {
		panic(err)
	}
	fmt.Println(len(dead), "dead:", dead[0].Error)
	r, err := a.Bulk(ctx, admin.BulkRetry, admin.Filter{Kind: "pay"}, admin.BulkOptions{})
	fmt.Println(r.Done, "retried", err)
	// Output:
	// 3 dead: the bank is closed
	// 2 retried <nil>
}

// A limit holds over all workers of a queue.
func ExampleClient_EditLimit() {
	ctx := context.Background()
	db, _, done := open(ctx)
	defer done()
	a, err := admin.New(db, admin.Options{})
	if err != nil {
		panic(err)
	}
	if _, err := a.Edit(ctx, "mail", func(q *admin.Queue) { q.Timeout = time.Minute }); err != nil { // makes it
		panic(err)
	}
	l, err := a.EditLimit(ctx, "mail", "newsletter", func(l *admin.Limit) {
		l.Running, l.Rate, l.Per = 2, 100, time.Minute
	})
	fmt.Println(l.Running, l.Rate, l.Per, err)
	// Output: 2 100 1m0s <nil>
}
