package queue

import (
	"context"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/queue/internal/limit"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// What limits mean for a worker's jobs. Package limit counts them, and gets permits and tokens. Jobs of
// a kind whose limiter is closed are set aside in their block, so that those of other kinds continue.
// A block of a queue whose own limiter is closed is left alone.

// The limiters that a job has passed.
const (
	throughQueue = 1 << iota
	throughKind
)

// passLimits records that a job passes its limiters. mu is held.
func (run *runner) passLimits(q *workQueue, d *Delivery) {
	limits := q.limits
	if !limits.Limited() {
		return
	}
	if l := limits.Own(); l != nil {
		d.limiters |= throughQueue
		l.Pass()
	}
	if l := limits.Of(d.Kind); l != nil && d.Kind != "" {
		d.limiters |= throughKind
		l.Pass()
	}
}

// exitLimits records that a job that had passed limiters has ended. mu is held.
func (run *runner) exitLimits(d *Delivery) {
	if d.limiters == 0 {
		return
	}
	exit := func(l *limit.Limiter) {
		if l.Exit(run.closing) && d.b.q.opens(l) {
			run.reopen(d.b.q, l, 1)
		}
	}
	if d.limiters&throughQueue != 0 {
		exit(d.b.q.limits.Own())
	}
	if d.limiters&throughKind != 0 {
		exit(d.b.q.limits.Of(d.Kind))
	}
	d.limiters = 0
}

// reopen lets n jobs continue that wait at a limiter. mu is held.
func (run *runner) reopen(q *workQueue, l *limit.Limiter, n int) {
	for _, b := range q.blocks {
		b.ResumeOf(l)
		run.offer(b, 0)
	}
	for range min(n, run.idle) {
		run.work.Signal()
	}
}

// meetLimits applies the limits of a queue as just read.
func (run *runner) meetLimits(q *workQueue, rows []store.LimitRow) {
	run.mu.Lock()
	defer run.mu.Unlock()
	if run.alone {
		return
	}
	there := map[string]bool{}
	for _, r := range rows {
		there[r.Kind] = true
		run.setLimit(q, r.Kind, r.Limit)
	}
	for _, kind := range q.limits.Kinds() {
		if !there[kind] {
			run.setLimit(q, kind, store.Limit{})
		}
	}
}

// setLimit sets a limit, which counts the jobs that run. mu is held.
func (run *runner) setLimit(q *workQueue, kind string, to store.Limit) *limit.Limiter {
	l, made, free := run.limits.Set(q.limits, kind, to)
	if made {
		l.Admit(run.countRunning(q, kind))
	}
	if free > 0 && run.choice.wanted.Takes(kind) {
		run.reopen(q, l, free)
	}
	return l
}

// countRunning counts the running jobs that have not passed a limiter of a kind, and records that they
// have. mu is held.
func (run *runner) countRunning(q *workQueue, kind string) (n int) {
	bit := uint8(throughKind)
	if kind == "" {
		bit = throughQueue
	}
	count := func(d *Delivery) {
		if d.b.q == q && (kind == "" || kind == d.Kind) && !d.hasEnded() && d.limiters&bit == 0 {
			d.limiters |= bit
			n++
		}
	}
	for d := range run.underWay() {
		count(d)
	}
	for h := range run.everyHandler() {
		for _, g := range h.gathered {
			for _, d := range g.jobs {
				count(d)
			}
		}
	}
	return n
}

// limited is the worker as its limits' keeper sees it.
type limited struct{ run *runner }

func (s limited) DB() *dialect.DB { return s.run.db }

func (s limited) Announce(ctx context.Context) { s.run.c.bells.announce(ctx) }

func (s limited) Expel(ctx context.Context, holders []*store.LeaseRow) error {
	return s.run.expelLate(ctx, holders)
}

func (s limited) Node() string {
	s.run.mu.Lock()
	defer s.run.mu.Unlock()
	return s.run.lease.node
}

// queueOf returns the queue of a limiter, or nil. mu is held.
func (s limited) queueOf(limits *limit.Queue) *workQueue {
	for _, q := range s.run.queues {
		if q.limits == limits {
			return q
		}
	}
	return nil
}

func (s limited) ReadLimits(limits *limit.Queue, rows []store.LimitRow) {
	s.run.mu.Lock()
	q := s.queueOf(limits)
	s.run.mu.Unlock()
	if q != nil {
		s.run.meetLimits(q, rows)
	}
}

func (s limited) Reopened(l *limit.Limiter, n int) {
	s.run.mu.Lock()
	defer s.run.mu.Unlock()
	if q := s.queueOf(l.Queue); q != nil && q.opens(l) {
		s.run.reopen(q, l, n)
	}
}

func (s limited) Demand(l *limit.Limiter) (d limit.Demand) {
	w := s.run
	w.mu.Lock()
	defer w.mu.Unlock()
	q := s.queueOf(l.Queue)
	if q == nil {
		return d
	}
	d.Aside = map[*limit.Limiter]int{}
	for _, b := range q.blocks {
		if !b.Startable() {
			continue
		}
		if l.Kind == "" {
			d.Ready += b.Count
		}
		for kind, waits := range b.Aside() {
			if kind == l || l.Kind == "" && !kind.Barred() && w.choice.wanted.Takes(kind.Kind) {
				d.Aside[kind] += waits
			}
		}
	}
	d.Closing = w.closing
	switch {
	case w.idle == 0 || w.closing && !w.opt.AtMostOnce:
	case len(w.slots) == 0: // a Receiver, which may take any number
		d.Most = w.opt.Batch
	default:
		d.Most = w.idle
	}
	return d
}
