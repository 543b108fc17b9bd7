package queue_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/engines"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/sqlschema"
)

// open makes a database with dbcron's tables, and a client. A program that has a *sql.DB or a
// pgxpool.Pool uses the Wrap or WrapDB of its engine: postgres.Wrap.
func open(ctx context.Context) (c *queue.Client, db *dialect.DB, done func()) {
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
	c, err = queue.New(db, queue.Options{Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		log.Fatal(err)
	}
	return c, db, func() {
		_ = db.Close()
		_ = os.RemoveAll(dir)
	}
}

// until stands for what a program does at startup: it checks the errors of setting handlers,
// and runs the worker until ctx ends.
func until(ctx context.Context, w *queue.Worker, set ...error) {
	if err := errors.Join(set...); err != nil {
		log.Fatal(err)
	}
	if err := w.Run(ctx); err != nil {
		log.Fatal(err)
	}
}

func worker(c *queue.Client, opt queue.WorkerOptions) *queue.Worker {
	w, err := c.Worker(opt)
	if err != nil {
		log.Fatal(err)
	}
	return w
}

type order struct {
	Number   int
	Customer string
}

// A kind of jobs has arguments of a type of its own. Enqueueing and handling a job agree on it.
func Example() {
	ctx, stop := context.WithCancel(context.Background())
	c, _, done := open(ctx)
	defer done()

	confirm := queue.Kind[order]{Name: "confirm", Queue: "mail"}
	if _, err := c.Enqueue(ctx, confirm.Job(order{1815, "Ada"})); err != nil {
		panic(err)
	}

	w := worker(c, queue.WorkerOptions{Queues: []string{"mail"}})
	until(ctx, w, queue.HandleKind(w, confirm, func(_ context.Context, o order, d *queue.Delivery) error {
		fmt.Printf("order %d of %s, attempt %d\n", o.Number, o.Customer, d.Attempt)
		stop() // a program would run until it is stopped
		return nil
	}))
	// Output: order 1815 of Ada, attempt 1
}

// A job that is enqueued in a transaction is there if and when that commits.
func ExampleClient_EnqueueTx() {
	ctx := context.Background()
	c, db, done := open(ctx)
	defer done()

	if _, err := adminOf(c).Edit(ctx, "mail", func(q *admin.Queue) { q.MaxAttempts = 5 }); err != nil { // makes it
		panic(err)
	}
	place := func(paid bool) error {
		tx, err := db.Pool().BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback() //nolint:errcheck // after a commit it does nothing
		// … the order's own rows are written here …
		_, wake, err := c.EnqueueTx(ctx, tx, queue.Job{Queue: "mail", Kind: "confirm", Payload: []byte(`{"order": 1815}`)})
		if err != nil {
			return err
		}
		if !paid {
			return errors.New("not paid: nothing is confirmed")
		}
		if err := tx.Commit(); err != nil {
			return err
		}
		wake()
		return nil
	}
	for _, paid := range []bool{false, true} {
		err := place(paid)
		counts, countErr := adminOf(c).Count(ctx, "mail", 100)
		fmt.Println(counts.Ready, err, countErr)
	}
	// Output:
	// 0 not paid: nothing is confirmed <nil>
	// 1 <nil> <nil>
}

// What a handler writes in the transaction that completes its job happens exactly once, also if
// the process dies.
func ExampleDelivery_CompleteTx() {
	ctx, stop := context.WithCancel(context.Background())
	c, db, done := open(ctx)
	defer done()
	if _, err := db.Pool().ExecContext(ctx, "CREATE TABLE balance (amount INT)"); err != nil {
		panic(err)
	}
	if _, err := c.Enqueue(ctx, queue.Job{Kind: "deposit", Key: "account-7"}); err != nil {
		panic(err)
	}

	w := worker(c, queue.WorkerOptions{})
	until(ctx, w, w.Handle("deposit", func(ctx context.Context, d *queue.Delivery) error {
		tx, err := db.Pool().BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback() //nolint:errcheck // after a commit it does nothing
		if _, err := tx.ExecContext(ctx, "INSERT INTO balance (amount) VALUES (100)"); err != nil {
			return err
		}
		if err := d.CompleteTx(ctx, tx); err != nil {
			return err
		}
		if err := tx.Commit(); err != nil {
			return err
		}
		fmt.Println("deposited")
		stop()
		return nil
	}))
	// Output: deposited
}

// Jobs of one key are done one after the other, in the order in which they were enqueued,
// whatever number of workers there is.
func ExampleJob_key() {
	ctx, stop := context.WithCancel(context.Background())
	c, _, done := open(ctx)
	defer done()
	for _, what := range []string{"create", "rename", "delete"} {
		if _, err := c.Enqueue(ctx, queue.Job{Kind: what, Key: "document-1"}); err != nil {
			panic(err)
		}
	}

	w := worker(c, queue.WorkerOptions{Concurrency: 8})
	until(ctx, w, w.HandleOthers(func(_ context.Context, d *queue.Delivery) error {
		fmt.Println(d.Kind)
		if d.Kind == "delete" {
			stop()
		}
		return nil
	}))
	// Output:
	// create
	// rename
	// delete
}

// A job with a unique key is not enqueued while another one has it.
func ExampleJob_unique() {
	ctx := context.Background()
	c, _, done := open(ctx)
	defer done()
	for range 2 {
		e, err := c.Enqueue(ctx, queue.Job{Kind: "reindex", Unique: "reindex:catalogue", Delay: time.Minute})
		fmt.Println("was there already:", e.Existed, err)
	}
	// Output:
	// was there already: false <nil>
	// was there already: true <nil>
}

// A handler's error decides the outcome of the job.
func ExampleHandler() {
	ctx, stop := context.WithCancel(context.Background())
	c, _, done := open(ctx)
	defer done()
	if _, err := c.Enqueue(ctx, queue.Job{Kind: "charge", Payload: []byte(`{"card": "expired"}`)}); err != nil {
		panic(err)
	}

	w := worker(c, queue.WorkerOptions{})
	until(ctx, w, w.Handle("charge", func(_ context.Context, d *queue.Delivery) error {
		if d.Attempt == 1 {
			fmt.Println("the bank does not answer")
			return queue.RetryAfter(10*time.Millisecond, errors.New("timeout")) // other errors: as the queue says
		}
		fmt.Println("the card has expired")
		defer stop()
		return queue.Bury(errors.New("card expired")) // no further attempt would help: it becomes a dead letter
	}))
	dead, _, err := adminOf(c).Jobs(context.Background(), admin.Filter{Queue: "default", State: admin.StateDead})
	fmt.Println(len(dead), dead[0].Error, err)
	// Output:
	// the bank does not answer
	// the card has expired
	// 1 card expired <nil>
}

// A batch handler processes several jobs at once, and returns the outcome of each.
func ExampleWorker_HandleBatch() {
	ctx, stop := context.WithCancel(context.Background())
	c, _, done := open(ctx)
	defer done()
	var jobs []queue.Job
	for n := range 4 {
		jobs = append(jobs, queue.Job{Kind: "click", Payload: fmt.Append(nil, n)})
	}
	if _, err := c.EnqueueMany(ctx, jobs); err != nil {
		panic(err)
	}

	seen := 0
	w := worker(c, queue.WorkerOptions{})
	until(ctx, w, w.HandleBatch("click", queue.BatchOptions{Max: 100, Wait: time.Second / 10},
		func(_ context.Context, batch []*queue.Delivery) error {
			results := make(queue.Results, len(batch)) // nil: it is done
			if seen += len(batch); seen == len(jobs) {
				fmt.Println("all clicks were stored")
				stop()
			}
			return results
		}))
	// Output: all clicks were stored
}

// When all jobs of a group have ended, its callback is enqueued, once, and reads what they have
// made.
func ExampleClient_EnqueueGroup() {
	ctx, stop := context.WithCancel(context.Background())
	c, _, done := open(ctx)
	defer done()
	_, _, err := c.EnqueueGroup(ctx, queue.Group{Callback: &queue.Job{Kind: "sum"}},
		queue.Job{Kind: "square", Payload: []byte("3")},
		queue.Job{Kind: "square", Payload: []byte("4")})
	if err != nil {
		panic(err)
	}

	w := worker(c, queue.WorkerOptions{})
	until(ctx, w,
		w.Handle("square", func(_ context.Context, d *queue.Delivery) error {
			var n int
			if err := d.Decode(&n); err != nil {
				return err
			}
			return d.SetResult(n * n)
		}),
		w.Handle("sum", func(ctx context.Context, d *queue.Delivery) error {
			for r, err := range c.Results(ctx, d.Callback) {
				if err != nil {
					return err
				}
				fmt.Println(r.State, string(r.Result))
			}
			stop()
			return nil
		}))
	// Output:
	// done 9
	// done 16
}

// A long job stores its progress. The next attempt continues from there, whatever ended this
// one.
func ExampleCheckpoint() {
	ctx, stop := context.WithCancel(context.Background())
	c, _, done := open(ctx)
	defer done()
	if _, err := c.Enqueue(ctx, queue.Job{Kind: "import"}); err != nil {
		panic(err)
	}

	w := worker(c, queue.WorkerOptions{})
	until(ctx, w, w.Handle("import", func(ctx context.Context, d *queue.Delivery) error {
		line, _, err := queue.Resume[int](d)
		if err != nil {
			return err
		}
		for ; line < 4; line++ {
			if d.Attempt == 1 && line == 2 {
				return queue.RetryAfter(time.Millisecond, errors.New("a hiccup"))
			}
			fmt.Println("line", line)
			if err := queue.Checkpoint(ctx, d, line+1); err != nil {
				return err
			}
		}
		stop()
		return nil
	}))
	// Output:
	// line 0
	// line 1
	// line 2
	// line 3
}

// A topic enqueues a copy of a job in each queue that has subscribed.
func ExampleClient_Publish() {
	ctx := context.Background()
	c, _, done := open(ctx)
	defer done()
	for _, name := range []string{"mail", "statistics"} {
		if err := c.Subscribe(ctx, "order-placed", name); err != nil {
			panic(err)
		}
	}
	p, err := c.Publish(ctx, "order-placed", queue.Job{Kind: "order-placed", Payload: []byte(`{"order": 1815}`)})
	fmt.Println(len(p.Copies), "copies", err)
	// Output: 2 copies <nil>
}

// A Receiver is for programs that have a loop of their own instead of handlers.
func ExampleClient_Receiver() {
	ctx := context.Background()
	c, _, done := open(ctx)
	defer done()
	if _, err := c.Enqueue(ctx, queue.Job{Kind: "resize", Payload: []byte(`{"image": 5}`)}); err != nil {
		panic(err)
	}

	r, err := c.Receiver(ctx, queue.WorkerOptions{})
	if err != nil {
		panic(err)
	}
	defer r.Close()
	batch, err := r.Receive(ctx, 10, 5*time.Second)
	if err != nil {
		panic(err)
	}
	for _, d := range batch {
		fmt.Println(d.Kind, string(d.Payload))
		if err := r.Complete(ctx, d); err != nil {
			panic(err)
		}
	}
	// Output: resize {"image": 5}
}

// A kind can have a retry policy of its own, which may depend on the error.
func ExampleHandleKindWith() {
	ctx, stop := context.WithCancel(context.Background())
	c, _, done := open(ctx)
	defer done()

	confirm := queue.Kind[order]{Name: "confirm"}
	errBusy := errors.New("the mail server is busy")
	policy := queue.RetryPolicy{
		MaxAttempts: 5, Timeout: 30 * time.Second,
		Backoff: func(attempt int, err error) time.Duration {
			if errors.Is(err, errBusy) {
				return time.Millisecond // a program would say a minute
			}
			return time.Duration(attempt*attempt) * time.Second
		},
	}
	w := worker(c, queue.WorkerOptions{})
	set := queue.HandleKindWith(w, confirm, policy, func(_ context.Context, o order, d *queue.Delivery) error {
		if d.Attempt < 3 {
			return errBusy
		}
		fmt.Println("order", o.Number, "at attempt", d.Attempt)
		stop()
		return nil
	})
	if _, err := c.Enqueue(ctx, confirm.Job(order{1815, "Ada"})); err != nil {
		panic(err)
	}
	until(ctx, w, set)
	// Output: order 1815 at attempt 3
}

// A typed batch has the payloads of many jobs, and each job has an outcome of its own.
func ExampleHandleKindBatch() {
	ctx, stop := context.WithCancel(context.Background())
	c, _, done := open(ctx)
	defer done()

	count := queue.Kind[int]{Name: "count"}
	if _, err := c.EnqueueMany(ctx, []queue.Job{count.Job(1), count.Job(2), count.Job(3)}); err != nil {
		panic(err)
	}
	var total atomic.Int64
	w := worker(c, queue.WorkerOptions{})
	until(ctx, w, queue.HandleKindBatch(w, count, queue.BatchOptions{Max: 100},
		func(_ context.Context, batch []queue.TypedDelivery[int]) error {
			results := make(queue.Results, len(batch)) // nil: done
			for _, d := range batch {
				if total.Add(int64(d.Args)) == 6 {
					stop()
				}
			}
			return results
		}))
	fmt.Println(total.Load())
	// Output: 6
}

// Events tell a program the outcomes of its workers' jobs.
func ExampleClient_Events() {
	ctx, stop := context.WithCancel(context.Background())
	c, _, done := open(ctx)
	defer done()

	events, err := c.Events(queue.EventOptions{Outcomes: []string{queue.EventDead}})
	if err != nil {
		panic(err)
	}
	defer events.Close()
	go func() {
		for e := range events.C {
			fmt.Println(e.Kind, e.Outcome, e.Err)
			stop()
		}
	}()
	w := worker(c, queue.WorkerOptions{})
	set := w.Handle("fails", func(context.Context, *queue.Delivery) error { return queue.Bury(errors.New("no such customer")) })
	if _, err := c.Enqueue(ctx, queue.Job{Kind: "fails"}); err != nil {
		panic(err)
	}
	until(ctx, w, set)
	// Output: fails dead no such customer
}

// Middleware of a client sees all jobs that are enqueued, also in transactions.
func ExampleClient_Use() {
	ctx := context.Background()
	c, _, done := open(ctx)
	defer done()

	c.Use(func(next queue.Enqueuer) queue.Enqueuer {
		return func(ctx context.Context, jobs []queue.Job) ([]queue.Enqueued, error) {
			for _, j := range jobs {
				fmt.Println("enqueueing", j.Kind)
			}
			return next(ctx, jobs)
		}
	})
	if _, err := c.EnqueueMany(ctx, []queue.Job{{Kind: "welcome"}, {Kind: "remind", Delay: time.Hour}}); err != nil {
		panic(err)
	}
	// Output:
	// enqueueing welcome
	// enqueueing remind
}

// adminOf returns an admin client for a client's database.
func adminOf(c *queue.Client) *admin.Client {
	a, err := admin.New(c.DB(), admin.Options{})
	if err != nil {
		panic(err)
	}
	return a
}
