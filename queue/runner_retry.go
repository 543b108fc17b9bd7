package queue

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/dbcron/dbcron/internal/barrier"
	"github.com/dbcron/dbcron/internal/pace"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// What becomes of a job after an attempt that has not succeeded: whether it is tried again, and when.

// moveFor returns the move of a job that is not done.
func (known *kindHandlers) moveFor(d *Delivery, what verdict, after time.Duration, err error, detail string) *move {
	return newMove(d, d.b.q.set, known.policy(d), d.line() != "", &result{err, what, after}, detail)
}

// newMove returns the move of a job after an attempt that has ended with an error. ordered reports
// whether other jobs may have to wait for it.
func newMove(d *Delivery, q *store.Queue, p RetryPolicy, ordered bool, end *result, detail string) *move {
	m := &move{
		d: d, verdict: end.what, err: end.error, keep: keepOf(q), attempts: d.Attempt, crashes: d.Crashes, delay: end.after,
		reason: limitText(end.Error(), 4000), detail: limitText(detail, 32000),
	}
	switch end.what {
	case snoozed, handed:
		m.attempts--
	case buried:
		if d.Attempt < p.MaxAttempts {
			m.ended = fmt.Sprintf("its handler gave the job up after attempt %d of %d", d.Attempt, p.MaxAttempts)
		}
	case failed, retryIn:
		if d.Attempt >= p.MaxAttempts {
			m.verdict = buried
		} else if end.what == failed {
			m.delay = pace.Delay(p.Delay, p.MaxDelay, d.Attempt, rand.Float64())
		}
	}
	m.holds = m.verdict != buried && ordered && q.KeyRetry == "hold"
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

// tried reads what a handler has returned for a job, and adds the delay of the policy's Backoff.
func (r RetryPolicy) tried(d *Delivery, err error, stack string) tried {
	after, asked, odd := r.ask(d, err)
	where, as := answerOf(err)
	if a, ok := as.(*answer); ok && odd != nil { //nolint:errorlint // see answerOf
		a.text = fmt.Sprintf("%s; the queue's delay applies, because of Backoff: %v", a.text, odd)
	}
	if asked {
		as = &result{as, retryIn, max(0, after)}
	}
	return tried{as, cmp.Or(stack, where)}
}

// ask calls the policy's Backoff. It does not if the handler has chosen the outcome, or if the attempt
// failed because the job was taken away.
func (r RetryPolicy) ask(d *Delivery, err error) (after time.Duration, asked bool, odd error) {
	if r.Backoff == nil || err == nil {
		return 0, false, nil
	}
	if _, chosen, _ := barrier.Find[*result](err); chosen {
		return 0, false, nil
	}
	for _, taken := range []error{ErrLost, errHandedOver} {
		if is, _ := barrier.Is(context.Cause(&d.ctx), taken); is {
			return 0, false, nil
		}
	}
	_, odd = barrier.Do(func() { after = r.Backoff(d.Attempt, err) })
	return after, odd == nil, odd
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

// A tried is the result of running a handler on a job. Its error was read: see answerOf.
type tried struct {
	err   error
	stack string
}
