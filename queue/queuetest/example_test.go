package queuetest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"testing"
	"time"

	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/queue/queuetest"
)

type user struct {
	Name string `json:"name"`
}

var (
	welcome = queue.Kind[user]{Name: "welcome", Queue: "mail"}
	remind  = queue.Kind[user]{Name: "remind", Queue: "mail"}
)

// handlers gives a worker the handlers of the program.
func handlers(c *queue.Client, w *queue.Worker) error {
	return errors.Join(
		queue.HandleKind(w, welcome, func(ctx context.Context, u user, _ *queue.Delivery) error {
			if u.Name == "" {
				return queue.Bury(errors.New("a user without a name"))
			}
			fmt.Println("welcome", u.Name)
			job := remind.Job(u)
			job.Delay = 14 * 24 * time.Hour
			_, err := c.Enqueue(ctx, job)
			return err
		}),
		queue.HandleKind(w, remind, func(_ context.Context, u user, _ *queue.Delivery) error {
			fmt.Println("how do you like it,", u.Name)
			return nil
		}),
	)
}

func Example() {
	t := start() // in a test it is the *testing.T
	defer t.end()

	c := queuetest.Client(t, queuetest.DB(t))
	w, err := c.Worker(queue.WorkerOptions{Queues: []string{"mail"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := handlers(c, w); err != nil {
		t.Fatal(err)
	}

	if _, err := c.Enqueue(t.Context(), welcome.Job(user{"Ada"})); err != nil {
		t.Fatal(err)
	}
	queuetest.Enqueued(t, c, welcome.Job(user{"Ada"}))
	queuetest.NotEnqueued(t, c, queue.Job{Queue: "mail", Kind: "remind"})

	queuetest.Drain(t, w)
	reminder := queuetest.Enqueued(t, c, remind.Job(user{"Ada"}))
	fmt.Println(reminder.State)

	queuetest.Advance(t, c, 14*24*time.Hour)
	for _, o := range queuetest.Drain(t, w) {
		fmt.Println(o.Kind, o.Verdict)
	}
	// Output:
	// welcome Ada
	// delayed
	// how do you like it, Ada
	// remind done
}

// Of a handler alone it is asked what becomes of a job, without a database.
func ExampleDo() {
	t := start()
	defer t.end()

	w := queuetest.Worker(t)
	if err := handlers(nil, w); err != nil {
		t.Fatal(err)
	}
	o := queuetest.Do(t, w, welcome.Job(user{}))
	fmt.Println(o.Verdict, o.Err)
	// Output: dead a user without a name
}

// A standIn is a *testing.T for examples, which have none.
type standIn struct {
	testing.TB
	dir  string
	last []func()
}

func start() *standIn {
	dir, err := os.MkdirTemp("", "queuetest")
	if err != nil {
		panic(err)
	}
	return &standIn{dir: dir}
}

func (t *standIn) end() {
	for i := len(t.last) - 1; i >= 0; i-- {
		t.last[i]()
	}
	_ = os.RemoveAll(t.dir)
}

func (t *standIn) Helper()                           {}
func (t *standIn) TempDir() string                   { return t.dir }
func (t *standIn) Context() context.Context          { return context.Background() }
func (t *standIn) Output() io.Writer                 { return io.Discard }
func (t *standIn) Cleanup(f func())                  { t.last = append(t.last, f) }
func (t *standIn) Fatal(args ...any)                 { panic(fmt.Sprint(args...)) }
func (t *standIn) Errorf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }
func (t *standIn) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }
