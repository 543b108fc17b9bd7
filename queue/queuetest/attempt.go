package queuetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/queue/internal/rig"
)

// A Verdict is the outcome of an attempt at a job.
type Verdict string

// Verdicts.
const (
	Done      Verdict = "done"
	Retried   Verdict = "retried"   // it has failed, and comes back: as the retry policy says, or after the delay of queue.RetryAfter
	Snoozed   Verdict = "snoozed"   // it comes back, and the attempt does not count
	Discarded Verdict = "discarded" // it will not be retried
	Dead      Verdict = "dead"      // by queue.Bury, or because this was its last attempt
)

// An Outcome describes an attempt at a job.
type Outcome struct {
	queue.Job
	ID        int64
	Attempt   int
	Verdict   Verdict
	Err       error          // what the handler returned
	After     time.Duration  // the delay that the handler has asked for, with queue.RetryAfter or queue.Snooze
	Stack     string         // of a panic
	Completed bool           // the handler has called CompleteTx
	Progress  queue.Progress // as last stored
}

// String describes the outcome in words.
func (o Outcome) String() string {
	text := fmt.Sprintf("job %d of kind %q in queue %q, attempt %d: %s", o.ID, o.Kind, o.Queue, o.Attempt, o.Verdict)
	if o.After > 0 {
		text += fmt.Sprintf(" after %v", o.After)
	}
	if o.Err != nil {
		text += fmt.Sprintf(": %v", o.Err)
	}
	if o.Stack != "" {
		text += "\n" + o.Stack
	}
	return text
}

func outcomes(all []rig.Outcome) []Outcome {
	list := make([]Outcome, len(all))
	for i, o := range all {
		d := o.Delivery.(*queue.Delivery)
		list[i] = Outcome{
			Job: d.Job, ID: d.ID, Attempt: d.Attempt, Verdict: verdictOf(o.Verdict), Err: o.Err, After: o.After,
			Stack: o.Stack, Completed: o.Completed, Progress: d.Progress(),
		}
	}
	return list
}

// verdictOf returns the verdict for one of the worker's, which tells by whom a delay was chosen.
func verdictOf(of string) Verdict {
	if of == "failed" || of == "retry" {
		return Retried
	}
	return Verdict(of)
}

// Worker returns a worker without a database, for registering handlers for [Do].
func Worker(t testing.TB) *queue.Worker {
	t.Helper()
	w, err := client(t, nil).Worker(queue.WorkerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// Do makes the first attempt at a job with the handlers of w, in this goroutine, and returns
// the outcome. It does not use a database: CompleteTx writes nothing, but the Outcome shows
// that it was called. The job's timeout applies. The retry policy is that of the job and the
// handler, with 10 attempts by default. A job that could not be enqueued fails the test.
func Do(t testing.TB, w *queue.Worker, job queue.Job) Outcome {
	t.Helper()
	return DoAttempt(t, w, 1, job)
}

// DoAttempt is [Do] for a later attempt.
func DoAttempt(t testing.TB, w *queue.Worker, number int, job queue.Job) Outcome {
	t.Helper()
	return attempt(t, w, number, job)[0]
}

// DoBatch is [Do] for several jobs of a kind with a batch handler.
func DoBatch(t testing.TB, w *queue.Worker, jobs ...queue.Job) []Outcome {
	t.Helper()
	for _, j := range jobs {
		if j.Kind != jobs[0].Kind {
			t.Fatalf("queuetest: a batch has jobs of one kind, not of %q and %q", jobs[0].Kind, j.Kind)
		}
	}
	return attempt(t, w, 1, jobs...)
}

func attempt(t testing.TB, w *queue.Worker, number int, jobs ...queue.Job) []Outcome {
	t.Helper()
	if len(jobs) == 0 || number < 1 {
		t.Fatalf("queuetest: %d jobs, attempt %d: there is one job at least, and attempts count from 1", len(jobs), number)
	}
	var all []rig.Outcome
	task := &rig.Task{Jobs: jobs, Number: number, Done: func(some []rig.Outcome) bool { all = some; return true }}
	if err := w.RunOnce(rig.With(t.Context(), task)); err != nil {
		t.Fatalf("queuetest: %v", err)
	}
	return outcomes(all)
}
