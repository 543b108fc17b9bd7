package queue

import (
	"errors"
	"fmt"
	"time"
)

var (
	// ErrInvalid means that a job or a setting cannot be: the error's text says
	// what is wrong with which field. Nothing was written.
	ErrInvalid = errors.New("queue: invalid")

	// ErrTooLarge means that a payload is larger than its queue takes. It is an
	// ErrInvalid, too.
	ErrTooLarge = fmt.Errorf("%w: too large", ErrInvalid)

	// ErrUnknownOutcome means that jobs may or may not have been enqueued, because
	// the answer to the commit was lost. Looking for the id tells.
	ErrUnknownOutcome = errors.New("queue: the outcome is unknown")

	// ErrNotFound means that there is no such queue or job.
	ErrNotFound = errors.New("queue: not found")

	// ErrAmbiguous means that several jobs have an id, and which was meant is not clear.
	ErrAmbiguous = errors.New("queue: several jobs have this id")

	// ErrDeleted means that a queue is marked as deleted, and takes no jobs.
	ErrDeleted = errors.New("queue: the queue is deleted")

	// ErrInUse means that a queue cannot be deleted, since it has jobs or a route leads
	// to it.
	ErrInUse = errors.New("queue: the queue is in use")

	// ErrState means that a job's state does not allow what was asked: only a dead job
	// can be deleted, or one that is done and kept, and one that is ready or runs cannot be
	// retried.
	ErrState = errors.New("queue: the job's state does not allow that")

	// ErrLost means that a job is not this worker's any more: it has been finished
	// or taken over elsewhere, or cancelled.
	ErrLost = errors.New("queue: the job no longer belongs to this worker")

	// ErrRefused means that the database refuses to write what has become of a job, for a
	// reason that lies in the job, such as a trigger or a right. The worker that has it tries
	// again until it is not refused any more, and gives the job to nobody meanwhile. Of a
	// [Claim] it is for the caller to try again.
	ErrRefused = errors.New("queue: the database refuses to record the job's outcome")

	// ErrClosed means that a worker has stopped.
	ErrClosed = errors.New("queue: closed")
)

// An InvalidError is an [ErrInvalid] that tells which field it is about.
type InvalidError struct {
	Field   string // as columns are called
	Problem string // what is wrong with it
}

func (e *InvalidError) Error() string {
	return fmt.Sprintf("%v: %s: %s", ErrInvalid, e.Field, e.Problem)
}

// Unwrap returns ErrInvalid.
func (e *InvalidError) Unwrap() error { return ErrInvalid }

// invalid makes an ErrInvalid about a field.
func invalid(field, format string, args ...any) error {
	return &InvalidError{field, fmt.Sprintf(format, args...)}
}

// A JobError is an error about one of several jobs that were to be enqueued together.
type JobError struct {
	Index int // of the job, from 0
	Of    int // jobs
	Err   error
}

func (e *JobError) Error() string { return fmt.Sprintf("job %d of %d: %v", e.Index+1, e.Of, e.Err) }

// Unwrap returns what is wrong with the job.
func (e *JobError) Unwrap() error { return e.Err }

// A result is what a handler makes of a job by returning an error.
type result struct {
	error
	what  verdict
	after time.Duration
}

func (r *result) Unwrap() error { return r.error }

// A verdict is what becomes of a job after an attempt.
type verdict uint8

const (
	done    verdict = iota
	failed          // by the retry policy
	retryIn         // after the handler's own time
	snoozed         // as retryIn, and the attempt does not count
	discard         // done, though it was not
	buried          // no further attempts
	lost            // nothing is written: somebody else has it
	handed          // left to whoever takes the block next
)

// RetryAfter makes an attempt fail with err, and has the next one wait for d. It
// counts as an attempt.
func RetryAfter(d time.Duration, err error) error {
	return &result{orText(err, "retry"), retryIn, max(0, d)}
}

// Snooze ends an attempt that does not count: the job comes back after d, however
// often.
func Snooze(d time.Duration) error {
	return &result{errors.New("snoozed"), snoozed, max(0, d)}
}

// Discard ends a job without a further attempt, and without a trace but the log, unless
// its queue keeps jobs that are done: there it is kept with the reason.
func Discard(err error) error { return &result{orText(err, "discarded"), discard, 0} }

// Bury ends a job without a further attempt: it becomes a dead letter, with err as
// the reason.
func Bury(err error) error { return &result{orText(err, "buried"), buried, 0} }

// Failed tells whether what a handler returns is a failed attempt, or the end of a job that was
// given up: not nil, nor what [Snooze] and [Discard] make. It is for middleware.
func Failed(err error) bool {
	if err == nil {
		return false
	}
	var r *result
	return !errors.As(err, &r) || r.what != snoozed && r.what != discard
}

func orText(err error, text string) error {
	if err == nil {
		return errors.New(text)
	}
	return err
}

// Results are what a handler of batches returns when not all of a batch have the
// same outcome: an error, or nil, for each job of the batch in its order.
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

// Unwrap returns those that are errors.
func (r Results) Unwrap() (errs []error) {
	for _, err := range r {
		if err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}
