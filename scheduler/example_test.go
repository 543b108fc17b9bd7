package scheduler_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/engines"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/scheduler"
	"github.com/dbcron/dbcron/sqlschema"
)

// open makes a database with dbcron's tables. A program that has a *sql.DB or a
// pgxpool.Pool uses the Wrap or WrapDB of its engine: postgres.Wrap.
func open(ctx context.Context) (db *dialect.DB, done func()) {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	db, err = engines.Open(ctx, "sqlite:"+filepath.Join(dir, "app.db"), dialect.Options{})
	if err != nil {
		log.Fatal(err)
	}
	if err := sqlschema.Migrate(ctx, db); err != nil {
		log.Fatal(err)
	}
	return db, func() {
		_ = db.Close()
		_ = os.RemoveAll(dir)
	}
}

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// A program runs its own functions on time: of all its processes, one for each
// slot.
func Example() {
	ctx, stop := context.WithCancel(context.Background())
	db, done := open(ctx)
	defer done()

	s, err := scheduler.New(db, scheduler.Options{Node: "shop", Kinds: []string{scheduler.Functions}, Logger: quiet})
	if err != nil {
		panic(err)
	}
	err = s.Handle("clean up", func(ctx context.Context, run *scheduler.Running) error {
		fmt.Println("cleaning up, attempt", run.Attempt, "of", run.Input)
		stop() // a program would run until it is stopped
		return ctx.Err()
	})
	if err != nil {
		panic(err)
	}
	err = scheduler.Add(ctx, db, scheduler.Schedule{
		Name: "nightly", Spec: "30 2 * * *", Zone: "Europe/Berlin", Kind: "func", Command: "clean up", Stdin: "old carts",
		Policy: scheduler.Policy{FirstRun: "now", Timeout: time.Hour},
	})
	if err != nil {
		panic(err)
	}
	fmt.Println(s.Run(ctx))
	// Output:
	// cleaning up, attempt 1 of old carts
	// <nil>
}

type digestArgs struct {
	To string `json:"to"`
}

// A program declares its periodic jobs when it starts: each of its processes does, and each
// slot becomes one job. A scheduler that lists its kinds runs no command that somebody writes
// into the table.
func ExamplePeriodicJob() {
	ctx, stop := context.WithCancel(context.Background())
	db, done := open(ctx)
	defer done()
	digest := queue.Kind[digestArgs]{Name: "digest", Queue: "mail"}

	every := scheduler.PeriodicJob("weekly digest", "@every 1s", digest.Job(digestArgs{To: "all"})) // or "0 7 * * 1"
	every.Zone = "Europe/Berlin"
	if err := scheduler.Put(ctx, db, every); err != nil {
		panic(err)
	}

	s, err := scheduler.New(db, scheduler.Options{Kinds: []string{scheduler.Functions, scheduler.Jobs}, Logger: quiet})
	if err != nil {
		panic(err)
	}
	c, err := queue.New(db, queue.Options{Logger: quiet})
	if err != nil {
		panic(err)
	}
	w, err := c.Worker(queue.WorkerOptions{Queues: []string{"mail"}})
	if err != nil {
		panic(err)
	}
	err = queue.HandleKind(w, digest, func(ctx context.Context, args digestArgs, d *queue.Delivery) error {
		once.Do(func() { fmt.Println("a digest for", args.To) })
		stop() // a program would continue
		return nil
	})
	if err != nil {
		panic(err)
	}
	var both sync.WaitGroup
	both.Go(func() { _ = s.Run(ctx) })
	both.Go(func() { _ = w.Run(ctx) })
	both.Wait()
	// Output: a digest for all
}

var once sync.Once

// A schedule's policy decides about slots that cannot run as planned.
func ExampleAdd() {
	ctx := context.Background()
	db, done := open(ctx)
	defer done()
	err := scheduler.Add(ctx, db, scheduler.Schedule{
		Name: "report", Spec: "0 6 * * 1-5", Zone: "America/New_York",
		Kind: "argv", Command: scheduler.Argv("/usr/bin/report", "--format", "two words"), Env: map[string]string{"LANG": "C.UTF-8"},
		Policy: scheduler.Policy{
			Missed:  "all",   // catch up on missed slots, oldest first,
			Overlap: "queue", // one after another

			MaxAttempts: 3, RetryDelay: time.Minute,
			Timeout:   30 * time.Minute,
			OnFailure: "call somebody",
		},
	})
	fmt.Println(err)
	err = scheduler.Add(ctx, db, scheduler.Schedule{
		Name: "call somebody", Spec: "@manual", Kind: "http",
		Command: "POST https://example.org/alarm",
	})
	fmt.Println(err)
	all, err := scheduler.List(ctx, db, "", 10)
	for _, s := range all {
		fmt.Println(s.Name, s.State, s.Kind, s.Command)
	}
	fmt.Println(err)
	// Output:
	// <nil>
	// <nil>
	// call somebody active http POST https://example.org/alarm
	// report active argv ["/usr/bin/report","--format","two words"]
	// <nil>
}

func ExampleSchedule_Problems() {
	s := scheduler.Schedule{
		Name: "report", Spec: "@daily", Kind: "sql", Command: "DELETE FROM cart", Dir: "/tmp",
		Policy: scheduler.Policy{Missed: "most"},
	}
	for _, p := range s.Problems() {
		fmt.Println(p.Field+":", p.Text)
	}
	// Output:
	// dir: is for commands, not for the kind sql
	// missed: "most" is not known; use skip, once, all
}

// Host cron or a timer can run due schedules, instead of a daemon.
func ExampleScheduler_RunOnce() {
	ctx := context.Background()
	db, done := open(ctx)
	defer done()
	if err := scheduler.Add(ctx, db, scheduler.Schedule{
		Name: "hello", Spec: "@manual",
		Command: `echo "hello, attempt $DBCRON_ATTEMPT"`,
	}); err != nil {
		panic(err)
	}
	if _, err := scheduler.Start(ctx, db, "hello"); err != nil {
		panic(err)
	}
	_, err := scheduler.Start(ctx, db, "hello")
	fmt.Println("a second time:", errors.Is(err, scheduler.ErrBusy))
	s, err := scheduler.New(db, scheduler.Options{Logger: quiet})
	if err != nil {
		panic(err)
	}
	fmt.Println(s.RunOnce(ctx))
	runs, err := scheduler.History(ctx, db, "hello", 1)
	if err != nil {
		panic(err)
	}
	fmt.Print(runs[0].State, ": ", runs[0].Output)
	// Output:
	// a second time: true
	// <nil>
	// ok: hello, attempt 1
}
