package queue

import (
	"errors"
	"fmt"
	"time"

	"github.com/dbcron/dbcron/internal/barrier"
	"github.com/dbcron/dbcron/queue/internal/store"
)

var (
	// ErrInvalid means that a job or a setting is invalid: the error's text names the field and
	// the problem. Nothing was written.
	ErrInvalid = store.ErrInvalid

	// ErrTooLarge means that a payload exceeds the limit of its queue. It is also an [ErrInvalid].
	ErrTooLarge = fmt.Errorf("%w: too large", ErrInvalid)

	// ErrUnknownOutcome means that the answer to the commit was lost, so jobs may or may not have
	// been enqueued. Look the id up to find out.
	ErrUnknownOutcome = errors.New("queue: the outcome is unknown")

	// ErrNotFound means that there is no such queue or job.
	ErrNotFound = store.ErrNotFound

	// ErrDeleted means that a queue is marked as deleted and accepts no jobs.
	ErrDeleted = store.ErrDeleted

	// ErrState means that a job's state does not allow the operation: only a dead job, or one
	// that is done and kept, can be deleted, and a ready or running job cannot be retried.
	ErrState = store.ErrState

	// ErrLost means that a job no longer belongs to this worker: it was finished or taken over
	// elsewhere, or cancelled.
	ErrLost = errors.New("queue: the job no longer belongs to this worker")

	// ErrRefused means that the database refuses to record a job's outcome, for a reason specific
	// to the job, such as a trigger or a missing right. The worker that has the job retries until
	// the database accepts it, and gives the job to nobody meanwhile. For a job that [Client.SettleClaims] ends, the caller
	// has to retry.
	ErrRefused = errors.New("queue: the database refuses to record the job's outcome")

	// ErrStuck means that a worker has ended because none of its handlers returns: see EndStuck of [WorkerOptions].
	ErrStuck = errors.New("queue: the handlers of all slots do not return though the time of their jobs is over")

	// ErrNotKept means that [Client.Await] cannot say how a job ends, or has ended: its queue keeps no done jobs.
	ErrNotKept = errors.New("queue: how the job ends is not kept")

	// ErrNotDone means that a job has no result, since it has ended otherwise.
	ErrNotDone = errors.New("queue: the job was not done")

	// ErrClosed means that a worker has stopped.
	ErrClosed = errors.New("queue: closed")
)

// An InvalidError is an [ErrInvalid] that names the invalid field: Field is the name of the column,
// and Problem what is wrong.
type InvalidError = store.InvalidError

// invalid makes an ErrInvalid about a field.
func invalid(field, format string, args ...any) error { return store.Invalid(field, format, args...) }

// A JobError is an error about one of several jobs that were to be enqueued together.
type JobError struct {
	Index int // index of the job, from 0
	Of    int // number of jobs
	Err   error
}

func (e *JobError) Error() string { return fmt.Sprintf("job %d of %d: %v", e.Index+1, e.Of, e.Err) }

// Unwrap returns the error about the job.
func (e *JobError) Unwrap() error { return e.Err }

// A result is an outcome that a handler chooses by returning an error.
type result struct {
	error
	what  verdict
	after time.Duration
}

func (r *result) Unwrap() error { return r.error }

// A verdict is the outcome of an attempt.
type verdict uint8

const (
	done    verdict = iota
	failed          // delay by the retry policy
	retryIn         // delay chosen by the handler
	snoozed         // like retryIn, but the attempt does not count
	discard         // ended, though not done
	buried          // no further attempts
	lost            // nothing to write: the job belongs to somebody else
	handed          // left to whoever takes the block next
)

// RetryAfter makes an attempt fail with err, and delays the next one by d. It counts as an
// attempt.
func RetryAfter(d time.Duration, err error) error {
	return &result{orText(err, "retry"), retryIn, max(0, d)}
}

// Snooze ends an attempt without counting it: the job comes back after d. There is no limit to
// the number of snoozes.
func Snooze(d time.Duration) error {
	return &result{errors.New("snoozed"), snoozed, max(0, d)}
}

// HandBack ends an attempt without counting it, because whoever does the job is being stopped: the job is
// done again by others, as if its worker had handed it over. A job may be the reason for that. So one that
// was handed back three times in a row, within a minute after its begin, pauses before it begins again, and
// at the fifth time it becomes a dead letter, if nothing else was handed back with it that had begun within
// that minute, and no worker was stopped during the pauses: see docs/queue-retries.md.
func HandBack(err error) error { return &result{orText(err, "handed back"), handed, 0} }

// Discard ends a job without a further attempt. It leaves no trace but a log line, unless its
// queue keeps done jobs: then the job is kept with the reason.
func Discard(err error) error { return &result{orText(err, "discarded"), discard, 0} }

// Bury ends a job without a further attempt: it becomes a dead letter with err as the reason.
func Bury(err error) error { return &result{orText(err, "buried"), buried, 0} }

// Failed reports whether a handler's return value is a failed attempt, or the end of a job that
// was buried: it is neither nil nor made by Snooze, HandBack or Discard. It is for middleware.
func Failed(err error) bool {
	if err == nil {
		return false
	}
	r, chosen, _ := barrier.Find[*result](err)
	return !chosen || r.what != snoozed && r.what != handed && r.what != discard
}

func orText(err error, text string) error {
	if err == nil {
		return errors.New(text)
	}
	return err
}

// Results is the return value of a batch handler when the jobs of a batch have different
// outcomes: an error or nil for each job, in the order of the batch.
type Results []error

func (r Results) Error() string {
	n := 0
	for _, err := range r {
		if err != nil {
			n++
		}
	}
	return fmt.Sprintf("%d of %d jobs failed", n, len(r))
}

// Unwrap returns the non-nil ones.
func (r Results) Unwrap() (errs []error) {
	for _, err := range r {
		if err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

// errCancelled is the cause of the end of a job's context when its row was removed.
var errCancelled = fmt.Errorf("%w: it was cancelled", ErrLost)

// ErrTimeout is the cause of the end of a job's context when the job exceeds its timeout.
var ErrTimeout = errors.New("queue: the job took longer than it may")

// ErrStalled is the cause of the end of a job's context when the job has made no progress for the
// Stall of its kind's RetryPolicy.
var ErrStalled = errors.New("queue: the job made no progress")

// errHandedOver is the cause of the end of a job's context when its worker is being stopped.
var errHandedOver = errors.New("queue: the worker is being stopped")
