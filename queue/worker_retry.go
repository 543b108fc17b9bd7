package queue

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/dbcron/dbcron/internal/backoff"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// What becomes of a job after an attempt that has not succeeded: whether it is tried again, and when.

// moveFor returns the move of a job that is not done.
func (known *kindHandlers) moveFor(d *Delivery, what verdict, after time.Duration, err error, detail string) move {
	return newMove(d, d.b.q.set, known.policy(d), d.line() != "", &result{err, what, after}, detail)
}

// newMove returns the move of a job after an attempt that has ended with an error. ordered reports
// whether other jobs may have to wait for it.
func newMove(d *Delivery, q *store.Queue, p RetryPolicy, ordered bool, end *result, detail string) move {
	m := move{
		d: d, what: end.what, err: end.error, keep: keepOf(q), tries: d.Attempt, died: d.Crashes, later: end.after,
		why: limitText(end.Error(), 4000), more: limitText(detail, 32000),
	}
	switch end.what {
	case snoozed:
		m.tries--
	case failed, retryIn:
		if d.Attempt >= p.MaxAttempts {
			m.what = buried
		} else if end.what == failed {
			m.later = backoff.Delay(p.Delay, p.MaxDelay, d.Attempt, rand.Float64())
		}
	}
	m.holds = m.what != buried && ordered && q.KeyRetry == "hold"
	return m
}

// policy returns the retry policy of a job.
func (known *kindHandlers) policy(d *Delivery) RetryPolicy {
	p := policyOf(d.b.q.set)
	if h := known.handlerOf(d.Kind); h != nil {
		p = h.retry.over(p)
	}
	if d.MaxAttempts > 0 {
		p.MaxAttempts = d.MaxAttempts
	}
	return p
}

// policyOf returns the retry policy of jobs of a queue, if neither they nor their handlers have one.
func policyOf(q *store.Queue) RetryPolicy {
	return RetryPolicy{MaxAttempts: q.MaxAttempts, Delay: q.RetryDelay, MaxDelay: q.RetryMaxDelay}
}

// timed adds the delay of the policy's Backoff to the outcome of an attempt. It does not call
// Backoff if the handler has chosen the outcome, or if the attempt failed because the job was
// taken away.
func (r RetryPolicy) timed(d *Delivery, err error) error {
	var said *result
	if r.Backoff == nil || err == nil || errors.As(err, &said) {
		return err
	}
	cause := context.Cause(&d.ctx)
	if errors.Is(cause, ErrLost) || errors.Is(cause, errHandedOver) {
		return err
	}
	after := r.Delay
	if _, bad := protect(func() error { after = r.Backoff(d.Attempt, err); return nil }); bad != nil {
		return err // the queue's delay
	}
	return RetryAfter(after, err)
}

// over returns policy p with the fields that are set in r.
func (r RetryPolicy) over(p RetryPolicy) RetryPolicy {
	if r.MaxAttempts > 0 {
		p.MaxAttempts = r.MaxAttempts
	}
	if r.Delay > 0 {
		p.Delay = r.Delay
		p.MaxDelay = max(p.MaxDelay, r.Delay)
	}
	if r.MaxDelay > 0 {
		p.MaxDelay = max(r.MaxDelay, p.Delay)
	}
	return p
}
