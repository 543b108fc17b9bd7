// Package limit keeps a worker to the limits of its queues, their kinds and their tenants: how many jobs run at a
// time, and how many begin in a time, across all workers.
//
// A [Limiter] admits the jobs that a limit bounds. It is open while it has an unused permit
// (permit.go) and a token of the rate (rate.go). The worker asks [Limiter.Open] before it begins a
// job, and then calls [Limiter.Pass], and [Limiter.Exit] when the job has ended. The [Keeper] gets
// permits and tokens when jobs wait for them, and gives them back.
package limit

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/trouble"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// A Worker is what a Keeper needs of the worker that it serves. Keepers call these methods without
// holding a lock.
type Worker interface {
	// DB returns the database through which the worker works.
	DB() *dialect.DB

	// Node returns the name under which the worker has its lease, or "".
	Node() string

	// Demand returns which jobs wait at a limiter.
	Demand(*Limiter) Demand

	// Reopened says that n jobs may pass a limiter at which jobs wait.
	Reopened(l *Limiter, n int)

	// ReadLimits hands over the limits of a queue as just read. The worker passes them to [Keeper.Set].
	ReadLimits(*Queue, []store.LimitRow)

	// Expel declares processes lost whose permits are needed, if they are late.
	Expel(context.Context, []*store.LeaseRow) error

	// Announce tells other workers that permits were given back.
	Announce(context.Context)

	// RoomOf returns how many jobs wait at some limiters of tenants, and how many more may become ready to begin.
	RoomOf(*Queue, []*Limiter) Room

	// ReopenedTenants says that jobs may pass some limiters of tenants at which jobs wait.
	ReopenedTenants(*Queue, []*Limiter)

	// Forget calls [Queue.Forget] for those of some limiters of tenants at which no job waits.
	Forget(*Queue, []*Limiter)
}

// Demand describes the jobs that have been read and wait at a limiter.
type Demand struct {
	Ready   int              // that only the queue's own limit keeps from beginning
	Aside   map[*Limiter]int // that wait for the limit of their kind: this one, or for a queue's limiter any of its kinds'
	Most    int              // how many jobs could begin now if nothing kept them from it
	Tenants int              // that wait at limiters of tenants that are open; only for a queue's limiter
	Soon    int              // and at those that only a rate closes
	Closing bool             // the worker is stopping
}

// A Queue has the limiters of a queue; a nil Queue has none. It is safe for concurrent use.
type Queue struct {
	ID     int
	Name   string
	byKind atomic.Pointer[map[string]*Limiter] // never changed, but replaced; nil: none

	perTenant atomic.Bool // it has limits of tenants, or has had some
	keeper    *Keeper
	tenants   tenants
}

// Limited reports whether the queue has limiters, even if their limits have been deleted.
func (q *Queue) Limited() bool { return q != nil && (q.byKind.Load() != nil || q.perTenant.Load()) }

// Of returns the limiter of a kind, or nil. The empty kind is the queue's own limiter.
func (q *Queue) Of(kind string) *Limiter { return q.all()[kind] }

// Own returns the limiter of all jobs of the queue, or nil.
func (q *Queue) Own() *Limiter { return q.Of("") }

// Kinds returns the kinds that have limiters, in any order. "" is the queue's own.
func (q *Queue) Kinds() []string { return slices.Collect(maps.Keys(q.all())) }

// all returns the limiters of the queue by kind.
func (q *Queue) all() map[string]*Limiter {
	if q == nil {
		return nil
	}
	if all := q.byKind.Load(); all != nil {
		return *all
	}
	return nil
}

// A Limiter admits the jobs of a queue, of one of its kinds, or of a tenant. A nil Limiter admits all. It stays
// when its limit is deleted, and then admits all, too. It is safe for concurrent use.
type Limiter struct {
	Queue  *Queue
	Kind   string // "": all kinds
	Tenant string // "": all tenants; only those of all kinds have one

	keeper  *Keeper // nil: it admits none
	limit   store.Limit
	active  int            // jobs that have passed and not ended
	permits map[int]permit // by slot
	keep    int            // permits beyond that are given back
	room    int            // how many jobs may be active
	spare   instant.Instant
	refused int             // consecutive failures to get permits
	ask     instant.Instant // for permits: not before
	look    instant.Instant // when to check that the permits still exist
	doubt   bool            // it is unknown whether some were taken or given back

	tokens  int   // how many jobs may begin
	dear    int   // the cost of the job that came first and found too few; 0: none did
	drawnTo int64 // µs: the rate was used up until then after the last draw
	drawn   instant.Instant
	askRate instant.Instant // for tokens: not before

	back int // tokens to be put back

	// Of a tenant.
	inLine bool // it is in its queue's line
	hungry bool // it lacked something for the jobs that wait
}

// Barrier returns a limiter that never admits a job.
func Barrier(q *Queue, kind string) *Limiter { return &Limiter{Queue: q, Kind: kind} }

// Barred reports whether the limiter never admits a job.
func (l *Limiter) Barred() bool { return l != nil && l.keeper == nil }

// Open reports whether a job may pass.
func (l *Limiter) Open() bool {
	if l == nil || l.keeper == nil {
		return l == nil
	}
	l.keeper.mu.Lock()
	defer l.keeper.mu.Unlock()
	return l.open()
}

// Admits reports whether a job may pass that counts for so many at the rate. If there are too few tokens for it, the limiter is
// closed to all until there are enough: otherwise cheap jobs would take each of them before it.
func (l *Limiter) Admits(cost int) bool {
	if l == nil || l.keeper == nil {
		return l == nil
	}
	l.keeper.mu.Lock()
	defer l.keeper.mu.Unlock()
	if l.limit.Rate > 0 && l.tokens < cost {
		l.dear = max(l.dear, cost)
	}
	return l.open()
}

// open is Open with mu held.
func (l *Limiter) open() bool {
	return l.vacant() > 0 && (l.limit.Rate == 0 || l.tokens >= max(1, l.dear))
}

// Pass records that a job has passed that counts for so many at the rate.
func (l *Limiter) Pass(cost int) {
	if l == nil || l.keeper == nil {
		return
	}
	l.keeper.mu.Lock()
	defer l.keeper.mu.Unlock()
	l.active++
	l.tokens, l.dear = max(0, l.tokens-max(1, cost)), 0
	if cost > 1 { // others may wait that the tokens were enough for
		if l.Tenant != "" {
			l.Queue.tenants.enter(l)
		}
		l.keeper.Wake()
	}
}

// Admit records that n jobs run that have begun before the limiter was made.
func (l *Limiter) Admit(n int) {
	l.keeper.mu.Lock()
	defer l.keeper.mu.Unlock()
	l.active += n
}

// Exit records that a job that had passed has ended. closing says that the worker is stopping: then
// its permit goes back at once. It reports whether another job may pass.
func (l *Limiter) Exit(closing bool) (open bool) {
	if l == nil || l.keeper == nil {
		return false
	}
	k := l.keeper
	k.mu.Lock()
	defer k.mu.Unlock()
	l.active--
	if len(l.permits) > l.keep || closing {
		l.look = 0
		k.Wake()
	}
	return l.open()
}

// Limit returns the limit in effect. Both of its numbers are zero if there is none.
func (l *Limiter) Limit() store.Limit {
	l.keeper.mu.Lock()
	defer l.keeper.mu.Unlock()
	return l.limit
}

// Unused returns how many tokens of the rate the worker has, and how often in a row it got fewer
// permits than it asked for.
func (l *Limiter) Unused() (tokens, refused int) {
	l.keeper.mu.Lock()
	defer l.keeper.mu.Unlock()
	return l.tokens, l.refused
}

// vacant returns the number of unused permits. mu is held.
func (l *Limiter) vacant() int {
	switch {
	case l.limit.Wrong != "":
		return 0
	case l.limit.Running == 0:
		return store.MaxRunning
	}
	return max(0, l.room-l.active)
}

// recount updates how many jobs the available permits allow. mu is held.
func (l *Limiter) recount() {
	n := 0
	for slot := range l.permits {
		if slot < l.limit.Running {
			n++
		}
	}
	l.room = min(n, l.keep)
}

// waiting returns how many jobs wait for this limiter only. mu is held.
func (l *Limiter) waiting(d Demand) int {
	n := d.Ready
	for g, waits := range d.Aside {
		if g == l || l.Kind == "" && g.open() {
			n += waits
		}
	}
	return n + d.Tenants
}

// need returns how many of them could begin if the limiter were open. mu is held.
func (l *Limiter) need(d Demand) int { return min(l.waiting(d), d.Most) }

// needPermits returns how many permits could be used. For a queue's limiter this includes jobs that
// will begin within a moment when their kind's rate admits them, for which nothing is drawn before.
// mu is held.
func (l *Limiter) needPermits(d Demand) int {
	n := l.waiting(d) + d.Soon
	for g, waits := range d.Aside {
		if g != l && l.Kind == "" && !g.open() && g.limit.Rate > 0 && g.vacant() > 0 {
			n += min(waits, g.limit.Ahead())
		}
	}
	return min(n, d.Most)
}

// needTokens returns how many waiting jobs could begin now, apart from the rate: each has a permit.
// mu is held.
func (l *Limiter) needTokens(d Demand) int {
	n := min(l.need(d), l.vacant())
	if own := l.Queue.Own(); l.Kind != "" && own != nil {
		n = min(n, own.vacant())
	}
	return n
}

// tokensFor returns how many tokens so many jobs need, if they are as cheap as can be, except for the one that comes first. mu is held.
func (l *Limiter) tokensFor(jobs int) int {
	if jobs == 0 {
		return 0
	}
	return max(jobs, l.dear)
}

// A Keeper gets permits and tokens for the jobs of a worker that wait for them, and gives them back.
// Its methods are safe for concurrent use; a worker may call them with its own mutex held, except for
// Keep and ReturnTokens.
type Keeper struct {
	worker Worker
	log    *slog.Logger
	turn   func(context.Context) (end func(), err error) // one goroutine at a time draws
	wake   chan struct{}
	any    atomic.Bool // there are limiters

	mu     sync.Mutex // guards what follows, and all limiters. A worker's mutex is never taken while it is held.
	queues map[int]*Queue
	losses int // of the lease
}

// NewKeeper returns the Keeper of a worker. turn lets one caller at a time draw.
func NewKeeper(w Worker, log *slog.Logger, turn func(context.Context) (end func(), err error)) *Keeper {
	return &Keeper{worker: w, log: log, turn: turn, wake: make(chan struct{}, 1), queues: map[int]*Queue{}}
}

// Queue returns the limiters of a queue.
func (k *Keeper) Queue(id int, name string) *Queue {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.queues[id] == nil {
		k.queues[id] = &Queue{ID: id, Name: name, keeper: k}
	}
	return k.queues[id]
}

// Limited reports whether there are limiters.
func (k *Keeper) Limited() bool { return k.any.Load() }

// Wake has the keeper look after its limiters now: a job was held back, say.
func (k *Keeper) Wake() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// Set applies a limit, and makes its limiter if there is none yet. made reports whether it did: the
// worker then calls [Limiter.Admit] for the jobs that run. free is how many jobs may pass if the limit
// has changed, and 0 otherwise.
func (k *Keeper) Set(q *Queue, kind string, limit store.Limit) (l *Limiter, made bool, free int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if l = q.Of(kind); l == nil {
		l, made = &Limiter{Queue: q, Kind: kind, keeper: k, permits: map[int]permit{}, keep: store.MaxRunning}, true
		all := map[string]*Limiter{kind: l}
		maps.Copy(all, q.all())
		q.byKind.Store(&all)
		k.any.Store(true)
	}
	if l.limit == limit {
		return l, made, 0
	}
	if limit.Rate == 0 {
		l.tokens = 0
	}
	l.limit, l.look, l.ask, l.askRate = limit, 0, 0, 0
	l.recount()
	k.Wake()
	free = l.vacant()
	if limit.Rate > 0 {
		free = min(free, l.tokens)
	}
	return l, made, free
}

// Lose gives up permits and tokens, because the lease was lost: others may have them by now.
func (k *Keeper) Lose() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.losses++
	lose := func(l *Limiter) {
		clear(l.permits)
		l.tokens, l.back = 0, 0
		l.recount()
	}
	for _, q := range k.queues {
		for _, l := range q.all() {
			lose(l)
		}
		for _, l := range q.tenants.of {
			lose(l)
			q.tenants.enter(l) // jobs that wait here go on with other permits
		}
	}
}

// AskAgain has limiters that were denied permits or tokens ask at once: some were given back.
func (k *Keeper) AskAgain() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, q := range k.queues {
		for _, l := range q.all() {
			if l.askRate = 0; l.refused > 0 {
				l.ask = 0
			}
			k.Wake()
		}
		for _, l := range q.tenants.of {
			if l.refused > 0 || l.hungry {
				l.ask, l.askRate, q.tenants.next = 0, 0, 0
			}
			k.Wake()
		}
	}
}

// Keep looks after the limiters until ctx ends.
func (k *Keeper) Keep(ctx context.Context) {
	trouble := trouble.New(k.log, "keeping to limits")
	for {
		wait, err := k.tend(ctx)
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

// tend looks after all limiters, and returns when to do so again at the latest.
func (k *Keeper) tend(ctx context.Context) (next time.Duration, err error) {
	end, err := k.turn(ctx)
	if err != nil {
		return time.Hour, err
	}
	defer end()
	next = time.Hour
	for _, l := range k.limiters() {
		for _, tend := range []func(context.Context, *Limiter) (time.Duration, error){k.balancePermits, k.balanceTokens} {
			wait, e := tend(ctx, l)
			if e != nil {
				err, wait = errors.Join(err, e), permitAgain
			}
			if wait > 0 {
				next = min(next, max(wait, time.Millisecond))
			}
		}
	}
	for _, q := range k.perTenant() {
		wait, e := k.tendTenants(ctx, q)
		if e != nil {
			err, wait = errors.Join(err, e), permitAgain
		}
		if wait > 0 {
			next = min(next, max(wait, time.Millisecond))
		}
	}
	return next, err
}

func (k *Keeper) limiters() (all []*Limiter) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, q := range k.queues {
		all = slices.AppendSeq(all, maps.Values(q.all()))
	}
	return all
}
