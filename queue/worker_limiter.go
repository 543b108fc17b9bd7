package queue

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/trouble"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// A limiter admits the jobs that a limit bounds: those of a queue, or of one of its kinds. It
// is open while it has unused permits, and tokens of the rate. Jobs of a kind whose limiter is
// closed are set aside in their block, so that those of other kinds continue. A block of a
// queue whose own limiter is closed is left alone.
//
// The worker's mu guards it. A limiter is never removed, even if its limit is.
type limiter struct {
	q     *workQueue
	kind  string      // empty: the queue's own
	never bool        // it holds kinds that this worker does not handle
	limit store.Limit // both numbers are zero without a limit

	active   int            // jobs that have passed and not ended
	permits  map[int]permit // by slot
	keep     int            // permits beyond that are given back
	room     int            // how many jobs may be active
	quiet    instant.Instant
	refusals int             // consecutive failures to get permits
	ask      instant.Instant // for permits: not before
	look     instant.Instant // when to check that the permits still exist
	doubt    bool            // it is unknown whether some were taken or given back

	tokens  int   // how many jobs may begin
	drawnTo int64 // µs: the rate was used up until then after the last draw
	drawn   instant.Instant
	askRate instant.Instant // for tokens: not before
}

// The limiters that a job has passed.
const (
	throughQueue = 1 << iota
	throughKind
)

// A limitKeeper enforces the limits of a worker's queues and kinds: it gets permits
// (worker_permit.go) and tokens (worker_rate.go) for waiting jobs, and gives them back.
type limitKeeper struct {
	*core
	slots *handlerSlots
	lease *nodeLease
	life  *lifetime
	known *kindHandlers
	expel func(context.Context, []*store.LeaseRow) error // frees the permits of lost processes

	turn    turn
	limited bool          // there are limiters
	wake    chan struct{} // signals to look after the limiters now
}

// limiterOf returns the limiter for the jobs of a kind, or nil if there is none.
func (q *workQueue) limiterOf(kind string) *limiter {
	if q.limiters == nil || kind == "" {
		return nil
	}
	if g := q.limiters[kind]; g != nil || !q.w.choice.gates {
		return g
	}
	return q.rest // see worker_kinds.go
}

// limiterWith returns the limiter of a kind with a limit of its own, or nil.
func (q *workQueue) limiterWith(kind string) *limiter {
	if kind == "" {
		return nil
	}
	return q.limiters[kind]
}

// own returns the limiter of all of a queue's jobs, or nil.
func (q *workQueue) own() *limiter { return q.limiters[""] }

// open reports whether a job may pass.
func (g *limiter) open() bool {
	return g == nil || !g.never && g.q.w.choice.asking.takes(g.kind) &&
		(g.limit.Running == 0 || g.active < g.room) && (g.limit.Rate == 0 || g.tokens > 0)
}

// free returns how many jobs may pass now.
func (g *limiter) free() int {
	n := g.vacant()
	if g.limit.Rate > 0 {
		n = min(n, g.tokens)
	}
	return max(0, n)
}

// recount updates how many jobs the available permits allow.
func (g *limiter) recount() {
	n := 0
	for slot := range g.permits {
		if slot < g.limit.Running {
			n++
		}
	}
	g.room = min(n, g.keep)
}

// closed tells the limiter's keeper that a job was held back. mu is held.
func (g *limiter) closed() { signal(g.q.w.limits.wake) }

// pass records that a job has passed its limiters. mu is held.
func (k *limitKeeper) pass(d *Delivery) {
	q := d.b.q
	if g := q.own(); g != nil {
		d.limiters |= throughQueue
		g.active++
		g.tokens = max(0, g.tokens-1)
	}
	if g := q.limiterWith(d.Kind); g != nil {
		d.limiters |= throughKind
		g.active++
		g.tokens = max(0, g.tokens-1)
	}
}

// exit records that a job that had passed limiters has ended. mu is held.
func (k *limitKeeper) exit(d *Delivery) {
	if d.limiters == 0 {
		return
	}
	q := d.b.q
	if d.limiters&throughQueue != 0 {
		k.vacate(q.own())
	}
	if d.limiters&throughKind != 0 {
		k.vacate(q.limiterWith(d.Kind))
	}
	d.limiters = 0
}

func (k *limitKeeper) vacate(g *limiter) {
	g.active--
	if len(g.permits) > g.keep || k.life.closing {
		g.look = 0
		g.closed()
	}
	if g.open() {
		k.slots.reopen(g, 1)
	}
}

// reopen lets n jobs continue that wait at a limiter. mu is held.
func (slots *handlerSlots) reopen(g *limiter, n int) {
	for _, b := range g.q.blocks {
		b.resumeOf(g)
		slots.offer(b, 0)
	}
	for range min(n, slots.idle) {
		slots.work.Signal()
	}
}

// waiting returns the number of read jobs that wait for this limiter only. mu is held.
func (g *limiter) waiting() int {
	return g.behind(func(kind *limiter, n int) int {
		if kind.open() {
			return n
		}
		return 0
	})
}

// behind counts the jobs that wait for a limiter. of says how many of a queue's jobs count that
// were set aside for one of its kinds. mu is held.
func (g *limiter) behind(of func(kind *limiter, n int) int) (n int) {
	for _, b := range g.q.blocks {
		if !b.startable() {
			continue
		}
		if g.kind == "" {
			n += b.count
		}
		for kind, s := range b.aside {
			switch {
			case kind == g:
				n += s.Len()
			case g.kind == "":
				n += of(kind, s.Len())
			}
		}
	}
	return n
}

// need returns how many of them could begin if the limiter were open. mu is held.
func (g *limiter) need() int { return g.startable(g.waiting()) }

// startable returns how many of n jobs could begin if the limiter were open. mu is held.
func (g *limiter) startable(n int) int {
	w := g.q.w
	if w.idle == 0 || w.closing && !w.opt.AtMostOnce {
		return 0
	}
	if len(w.slots) == 0 { // a Receiver, which may take any number
		return min(n, w.opt.Batch)
	}
	return min(n, w.idle)
}

// needPermits returns how many permits could be used. For a queue's limiter this includes jobs
// that will begin within a moment when their kind's rate admits them, for which nothing is
// drawn before. mu is held.
func (g *limiter) needPermits() int {
	return g.startable(g.behind(func(kind *limiter, n int) int {
		switch {
		case kind.open():
			return n
		case kind.limit.Rate > 0 && kind.vacant() > 0:
			return min(n, kind.limit.Ahead())
		}
		return 0
	}))
}

// ready returns how many waiting jobs could begin now, apart from the rate: each has a permit.
// mu is held.
func (g *limiter) ready() int {
	n := min(g.need(), g.vacant())
	if own := g.q.own(); g.kind != "" && own != nil {
		n = min(n, own.vacant())
	}
	return n
}

// vacant returns the number of unused permits. mu is held.
func (g *limiter) vacant() int {
	if g.limit.Running == 0 {
		return store.MaxRunning
	}
	return max(0, g.room-g.active)
}

// meetLimits applies the limits of a queue as just read.
func (k *limitKeeper) meetLimits(q *workQueue, limits []store.LimitRow) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.alone {
		return
	}
	there := map[string]bool{}
	for _, l := range limits {
		there[l.Kind] = true
		k.limit(q, l.Kind, l.Limit)
	}
	for kind := range q.limiters {
		if !there[kind] {
			k.limit(q, kind, store.Limit{})
		}
	}
}

// limit sets the limit of a limiter. mu is held.
func (k *limitKeeper) limit(q *workQueue, kind string, l store.Limit) {
	g := q.limiters[kind]
	if g == nil {
		if q.limiters == nil {
			q.limiters = map[string]*limiter{}
		}
		g = &limiter{q: q, kind: kind, permits: map[int]permit{}, keep: store.MaxRunning}
		q.limiters[kind], k.limited = g, true
		k.admitted(g)
	}
	if g.limit == l {
		return
	}
	if l.Rate == 0 {
		g.tokens = 0
	}
	g.limit, g.look, g.ask, g.askRate = l, 0, 0, 0
	g.recount()
	g.closed()
	if n := g.free(); n > 0 {
		k.slots.reopen(g, n)
	}
}

// admitted counts running jobs at a new limiter. mu is held.
func (k *limitKeeper) admitted(g *limiter) {
	bit := uint8(throughKind)
	if g.kind == "" {
		bit = throughQueue
	}
	count := func(d *Delivery) {
		if d.b.q == g.q && (g.kind == "" || g.kind == d.Kind) && !d.ended && d.limiters&bit == 0 {
			d.limiters |= bit
			g.active++
		}
	}
	for _, unit := range k.slots.slots {
		for _, d := range unit {
			count(d)
		}
	}
	for h := range k.known.everyHandler() {
		for _, g := range h.gathered {
			for _, d := range g.jobs {
				count(d)
			}
		}
	}
	for d := range k.slots.taken {
		count(d)
	}
}

// keepLimiters gets permits and tokens when jobs wait for them, and gives them back.
func (k *limitKeeper) keepLimiters(ctx context.Context) {
	trouble := trouble.New(k.log, "keeping to limits")
	for {
		wait, err := k.tendLimiters(ctx)
		if ctx.Err() == nil {
			trouble.Note(err)
		}
		select {
		case <-ctx.Done():
			return
		case <-k.wake:
		case <-time.After(wait):
		}
	}
}

// tendLimiters looks after all limiters, and returns when to do so again at the latest.
func (k *limitKeeper) tendLimiters(ctx context.Context) (next time.Duration, err error) {
	end, err := k.turn.take(ctx)
	if err != nil {
		return time.Hour, err
	}
	defer end()
	next = time.Hour
	for _, g := range k.limiters() {
		for _, tend := range []func(context.Context, *limiter) (time.Duration, error){k.tendPermits, k.tendRate} {
			wait, e := tend(ctx, g)
			if e != nil {
				err, wait = errors.Join(err, e), permitAgain
			}
			if wait > 0 {
				next = min(next, max(wait, time.Millisecond))
			}
		}
	}
	return next, err
}

func (k *limitKeeper) limiters() (all []*limiter) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, q := range k.queues {
		all = slices.AppendSeq(all, maps.Values(q.limiters))
	}
	return all
}
