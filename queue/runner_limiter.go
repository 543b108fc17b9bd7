package queue

import (
	"context"
	"slices"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/queue/internal/limit"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// What limits mean for a worker's jobs. Package limit counts them, and gets permits and tokens. Jobs of
// a kind or a tenant whose limiter is closed are set aside in their block, so that those of others continue.
// A block of a queue whose own limiter is closed is left alone.

// The limiters that a job has passed.
const (
	throughQueue = 1 << iota
	throughKind
	throughTenant
)

// passLimits records that a job passes its limiters. mu is held.
func (run *runner) passLimits(q *workQueue, d *Delivery) {
	limits := q.limits
	if !limits.Limited() {
		return
	}
	if l := limits.Own(); l != nil {
		d.limiters |= throughQueue
		l.Pass(d.Cost)
	}
	if l := limits.Of(d.Kind); l != nil && d.Kind != "" {
		d.limiters |= throughKind
		l.Pass(d.Cost)
	}
	if l := limits.Tenant(d.Tenant); l != nil {
		d.limiters |= throughTenant
		l.Pass(d.Cost)
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
	if d.limiters&throughTenant != 0 {
		exit(d.b.q.limits.InUse(d.Tenant))
	}
	d.limiters = 0
}

// reopen lets n jobs continue that wait at a limiter. mu is held.
func (run *runner) reopen(q *workQueue, l *limit.Limiter, n int) {
	for _, b := range q.blocks {
		if b.ResumeOf(l) {
			run.offer(b, 0)
		}
	}
	for range min(n, run.idle) {
		run.work.Signal()
	}
	if len(run.lone.parked) > 0 {
		signal(run.lone.wake)
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
	var each store.Limit
	named := map[string]store.Limit{}
	for _, r := range rows {
		switch {
		case r.Tenant == "":
			there[r.Kind] = true
			run.setLimit(q, r.Kind, r.Applied())
		case r.Kind != "": // written by hand
		case r.Tenant == store.EachTenant:
			each = r.Applied()
		default:
			named[r.Tenant] = r.Applied()
		}
	}
	if run.limits.SetTenants(q.limits, each, named) {
		run.meetTenants(q)
	}
	for _, kind := range q.limits.Kinds() {
		if !there[kind] {
			run.setLimit(q, kind, store.Limit{})
		}
	}
}

// meetTenants has the limits of tenants, which have changed, count the jobs that run, and lets go on what may. mu is held.
func (run *runner) meetTenants(q *workQueue) {
	run.everyRunning(func(d *Delivery) {
		if d.b.q != q || d.hasEnded() || d.limiters&throughTenant != 0 {
			return
		}
		if l := q.limits.Tenant(d.Tenant); l != nil {
			d.limiters |= throughTenant
			l.Admit(1)
		}
	})
	for _, b := range q.blocks {
		b.ResumeTenants()
		run.offer(b, run.idle)
	}
}

// everyRunning calls f with each job that runs, or waits for others of its batch. mu is held.
func (run *runner) everyRunning(f func(*Delivery)) {
	for d := range run.underWay() {
		f(d)
	}
	for h := range run.everyHandler() {
		for _, g := range h.gathered {
			for _, d := range g.jobs {
				f(d)
			}
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
	run.everyRunning(func(d *Delivery) {
		if d.b.q == q && (kind == "" || kind == d.Kind) && !d.hasEnded() && d.limiters&bit == 0 {
			d.limiters |= bit
			n++
		}
	})
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
			open, soon := b.HeldSoon(w.idle)
			d.Tenants, d.Soon = d.Tenants+open, d.Soon+soon
		}
		for kind, waits := range b.Aside() {
			if kind == l || l.Kind == "" && !kind.Barred() && w.choice.wanted.Takes(kind.Kind) {
				d.Aside[kind] += waits
			}
		}
	}
	d.Closing, d.Most = w.closing, w.mayBegin()
	return d
}

// mayBegin returns how many jobs could begin now if nothing kept them from it. mu is held.
func (run *runner) mayBegin() int {
	switch {
	case run.idle == 0 || run.closing && !run.opt.AtMostOnce:
		return 0
	case len(run.slots) == 0: // a Receiver, which may take any number
		return run.opt.Batch
	}
	return run.idle
}

// beginnings say how many jobs have begun in a moment of late: the one before, or the present one.
type beginnings struct {
	since  instant.Instant
	base   int // how many jobs had begun then
	before int // how many began in the moment before
}

// count returns that number, of jobs of which so many have begun by now.
func (p *beginnings) count(begun int, at instant.Instant) int {
	if took := at.Sub(p.since); took >= store.DrawFor {
		p.before = begun - p.base
		if took >= 2*store.DrawFor {
			p.before = 0
		}
		p.since, p.base = at, begun
	}
	return max(p.before, begun-p.base)
}

func (s limited) RoomOf(limits *limit.Queue, some []*limit.Limiter) limit.Room {
	w := s.run
	w.mu.Lock()
	defer w.mu.Unlock()
	r := limit.Room{Waits: make([]int, len(some)), Free: w.mayBegin(), Closing: w.closing}
	q := s.queueOf(limits)
	if q == nil {
		r.Free = 0
		return r
	}
	if len(w.slots) > 0 && (!w.closing || w.opt.AtMostOnce) { // the slots are not to wait for permits
		r.Free += len(w.slots) + min(w.lately.count(w.begun, instant.Now()), store.Chunk)
	}
	for _, b := range q.blocks {
		if !b.Startable() || !b.HoldsTenants() {
			continue
		}
		for i, l := range some {
			r.Waits[i] += b.HeldAt(l)
		}
		r.Free -= b.HeldOpen()
	}
	r.Free = max(0, r.Free)
	return r
}

func (s limited) ReopenedTenants(limits *limit.Queue, some []*limit.Limiter) {
	s.run.mu.Lock()
	defer s.run.mu.Unlock()
	q := s.queueOf(limits)
	if q == nil {
		return
	}
	for _, l := range some {
		s.run.reopen(q, l, l.Vacant())
	}
}

func (s limited) Forget(limits *limit.Queue, some []*limit.Limiter) {
	s.run.mu.Lock()
	defer s.run.mu.Unlock()
	if q := s.queueOf(limits); q != nil {
		some = slices.DeleteFunc(some, func(l *limit.Limiter) bool {
			for _, b := range q.blocks {
				if b.HeldAt(l) > 0 {
					return true
				}
			}
			return false
		})
	}
	limits.Forget(some)
}
