package limit

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// Limits of tenants. There may be very many tenants, each with few jobs. So a tenant has a limiter only while the worker has something
// of it, and the keeper asks for many of them at once: what it does takes as many round trips for a thousand tenants as for one.
//
// A permit of a tenant is a row that exists while a worker has it: it is inserted by the one who takes it, with a fence that
// nobody has used before, and deleted by the one who gives it back, or who finds that its worker has died. So a late statement of a
// worker that got no answer does not meet a later permit of the same slot.
//
// Limiters at which jobs come to wait stand in a line. From its head the keeper gets permits and tokens for as many jobs as can begin
// soon: those for which the worker has free slots, and as many again, so that the slots are busy meanwhile.

const (
	// tenantsEvery is how often the keeper looks through the limiters of tenants, at most: what to give back, and for
	// whom to ask again.
	tenantsEvery = 50 * time.Millisecond

	// strayEvery is the interval between checks for permits that a worker has without knowing: of a statement that came through long after
	// its answer was given up.
	strayEvery = 10 * time.Second

	// fullAtMost bounds the time for which a tenant's row is kept for its rate.
	fullAtMost = 50 * 365 * 24 * time.Hour
)

// A Room says how many jobs that wait for limits of tenants may get permits or tokens now.
type Room struct {
	Waits   []int // how many wait at each limiter
	Free    int   // how many jobs may become ready to begin, beyond those that are
	Closing bool  // the worker is stopping
}

// tenants are the limits of the tenants of a queue, and the limiters of those in use. The keeper's mutex guards them.
type tenants struct {
	each   store.Limit
	named  map[string]store.Limit
	of     map[string]*Limiter
	line   []*Limiter // at which jobs have come to wait
	next   instant.Instant
	strays instant.Instant
	sweeps bool // some may be in use no more
}

// limitOf returns the limit of a tenant. Both of its numbers are zero if there is none.
func (t *tenants) limitOf(name string) store.Limit {
	if l, is := t.named[name]; is {
		return l
	}
	return t.each
}

// PerTenant reports whether the queue has limits of tenants, or has had some.
func (q *Queue) PerTenant() bool { return q != nil && q.perTenant.Load() }

// Tenant returns the limiter of a tenant; nil: nothing limits it. A limiter that nobody uses may be forgotten, and
// is another one the next time.
func (q *Queue) Tenant(name string) *Limiter {
	if name == "" || !q.PerTenant() {
		return nil
	}
	q.keeper.mu.Lock()
	defer q.keeper.mu.Unlock()
	l := q.tenants.of[name]
	if l != nil {
		return l
	}
	is := q.tenants.limitOf(name)
	if is.Running == 0 && is.Rate == 0 && is.Wrong == "" {
		return nil
	}
	l = &Limiter{Queue: q, Tenant: name, keeper: q.keeper, limit: is, permits: map[int]permit{}, keep: store.MaxRunning}
	q.tenants.of[name] = l
	return l
}

// InUse returns the limiter of a tenant that has been made and is not forgotten, or nil.
func (q *Queue) InUse(name string) *Limiter {
	if !q.PerTenant() {
		return nil
	}
	q.keeper.mu.Lock()
	defer q.keeper.mu.Unlock()
	return q.tenants.of[name]
}

// Tenants returns how many tenants have limiters.
func (q *Queue) Tenants() int {
	q.keeper.mu.Lock()
	defer q.keeper.mu.Unlock()
	return len(q.tenants.of)
}

// SetTenants applies the limits of tenants: that of each, and those of some by name. It reports whether they have changed. The worker
// then calls [Limiter.Admit] for the jobs that run, and lets go on what may.
func (k *Keeper) SetTenants(q *Queue, each store.Limit, named map[string]store.Limit) (changed bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	t := &q.tenants
	if each == t.each && maps.Equal(named, t.named) {
		return false
	}
	t.each, t.named = each, named
	if t.of == nil {
		t.of = map[string]*Limiter{}
	}
	q.perTenant.Store(true)
	k.any.Store(true)
	for name, l := range t.of {
		if is := t.limitOf(name); is != l.limit {
			if is.Rate == 0 {
				l.tokens, l.back = 0, 0
			}
			l.limit, l.look, l.ask, l.askRate = is, 0, 0, 0
			l.recount()
			t.enter(l)
		}
	}
	t.next = 0
	k.Wake()
	return true
}

// enter puts a limiter at the end of the line. mu is held.
func (t *tenants) enter(l *Limiter) {
	if !l.inLine {
		l.inLine = true
		t.line = append(t.line, l)
	}
}

// Ask says that a job has come to wait at the limiter of a tenant.
func (l *Limiter) Ask() {
	l.keeper.mu.Lock()
	defer l.keeper.mu.Unlock()
	l.Queue.tenants.enter(l)
	l.keeper.Wake()
}

// Vacant returns how many jobs the permits let pass, whatever the rate says.
func (l *Limiter) Vacant() int {
	l.keeper.mu.Lock()
	defer l.keeper.mu.Unlock()
	return l.vacant()
}

// lacks returns how many more permits of a tenant could be used. mu is held.
func (l *Limiter) lacks(d Demand) int {
	if l.limit.Running == 0 {
		return 0
	}
	return max(0, min(l.needPermits(d)-l.vacant(), l.limit.Running-len(l.permits)))
}

// idle reports that the limiter stands for nothing that the worker has. mu is held.
func (l *Limiter) idle() bool {
	return l.active == 0 && len(l.permits) == 0 && !l.doubt && l.tokens == 0 && l.back == 0 && !l.inLine && !l.hungry
}

// tendTenants looks after the limiters of the tenants of a queue. It returns when to do so again at the latest; 0: when needed.
func (k *Keeper) tendTenants(ctx context.Context, q *Queue) (time.Duration, error) {
	k.mu.Lock()
	losses, at := k.losses, instant.Now()
	var due []*Limiter
	if at >= q.tenants.next {
		due = q.dueTenants(at)
	}
	k.mu.Unlock()
	node := k.worker.Node()
	if node == "" {
		return tenantsEvery, nil
	}
	x := &round{Keeper: k, q: q, node: node, losses: losses}
	var failed error
	for some := range slices.Chunk(due, store.Chunk) {
		failed = errors.Join(failed, x.tend(ctx, some, at))
	}
	for failed == nil {
		some := x.head(at)
		if len(some) == 0 {
			break
		}
		failed = x.tend(ctx, some, at)
	}
	failed = errors.Join(failed, x.returnStrays(ctx, at))
	x.forget()
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(q.tenants.of) == 0 {
		return 0, failed
	}
	return max(q.tenants.next.Sub(instant.Now()), time.Millisecond), failed
}

// dueTenants returns the limiters with something to give back, and puts those in line that may ask again. mu is held.
func (q *Queue) dueTenants(at instant.Instant) (due []*Limiter) {
	t := &q.tenants
	for _, l := range t.of {
		switch {
		case (len(l.permits) > 0 || l.doubt) && at >= l.look, l.back > 0, l.tokens > 0 && at.Sub(l.drawn) > store.DrawFor:
			due = append(due, l)
		case l.hungry && !l.inLine && at >= l.again():
			t.enter(l)
		}
		t.sweeps = t.sweeps || l.idle()
	}
	slices.SortFunc(due, func(a, b *Limiter) int { return cmp.Compare(a.Tenant, b.Tenant) }) // not in the order of a map
	t.next = at.Add(max(tenantsEvery, 20*instant.Now().Sub(at)))
	return due
}

// ready returns how many jobs may pass. mu is held.
func (l *Limiter) ready() int {
	switch {
	case l.limit.Rate == 0:
		return l.vacant()
	case !l.open(): // too few for the one that comes first, perhaps
		return 0
	}
	return min(l.vacant(), l.tokens)
}

// again returns when to ask again for what was denied. mu is held.
func (l *Limiter) again() instant.Instant {
	if l.limit.Rate > 0 && l.vacant() > 0 {
		return l.askRate
	}
	return l.ask
}

// A round is one look after the limiters of the tenants of a queue.
type round struct {
	*Keeper
	q      *Queue
	node   string // under which the worker has its permits
	losses int    // of the keeper, before the node was read: a later one ends its permits
}

// head takes the limiters at the head of the line, as far as there is room for their jobs.
func (x *round) head(at instant.Instant) (some []*Limiter) {
	x.mu.Lock()
	t := &x.q.tenants
	some = slices.Clone(t.line[:min(len(t.line), store.Chunk)])
	x.mu.Unlock()
	if len(some) == 0 {
		return nil
	}
	room := x.worker.RoomOf(x.q, some)
	x.mu.Lock()
	defer x.mu.Unlock()
	n := 0
	for i, l := range some {
		if room.Free <= 0 && !room.Closing {
			break
		}
		if n++; at >= l.again() && room.Waits[i] > l.ready() {
			room.Free -= min(room.Free, room.Waits[i]-l.ready())
		}
		l.inLine = false
	}
	t.line = slices.Delete(t.line, 0, n)
	return some[:n]
}

// tend gives back what some limiters have and do not need, and gets what they need.
func (x *round) tend(ctx context.Context, some []*Limiter, at instant.Instant) error {
	room := x.worker.RoomOf(x.q, some)
	all := make([]*exchange, 0, len(some))
	x.mu.Lock()
	for i, l := range some {
		e := &exchange{Limiter: l, node: x.node, losses: x.losses, demand: Demand{Ready: room.Waits[i], Closing: room.Closing}}
		e.demand.Most = min(room.Waits[i], l.ready())
		if more := min(room.Waits[i]-e.demand.Most, room.Free); more > 0 && at >= l.again() {
			e.demand.Most += more
			room.Free -= more
		}
		all = append(all, e)
	}
	asks := slices.DeleteFunc(slices.Clone(all), func(e *exchange) bool {
		looks := at >= e.look && (len(e.permits) > 0 || e.doubt)
		return !looks && (e.lacks(e.demand) == 0 || at < e.ask)
	})
	x.mu.Unlock()
	var failed error
	if len(asks) > 0 {
		failed = x.exchange(ctx, asks)
		x.mu.Lock()
		for _, e := range asks {
			if e.doubt = e.missed || failed != nil; e.doubt {
				e.look = at.Add(permitAgain)
			}
		}
		x.mu.Unlock()
	}
	failed = errors.Join(failed, x.drawFor(ctx, all))
	var open []*Limiter
	x.mu.Lock()
	for _, e := range all {
		if e.hungry = e.demand.Ready > e.ready(); e.open() && e.demand.Ready > 0 {
			open = append(open, e.Limiter)
		}
		if failed != nil {
			e.ask, e.askRate = max(e.ask, at.Add(permitAgain)), max(e.askRate, at.Add(permitAgain))
		}
	}
	x.mu.Unlock()
	if len(open) > 0 {
		x.worker.ReopenedTenants(x.q, open)
	}
	return failed
}

// names are some limiters as an argument.
func namesOf[L interface{ name() string }](some []L) []sqlrun.Args {
	names := make([]sqlrun.Args, len(some))
	for i, l := range some {
		names[i] = sqlrun.Args{"name": l.name()}
	}
	return names
}

func (l *Limiter) name() string { return l.Tenant }

// forget forgets the limiters that nobody uses.
func (x *round) forget() {
	x.mu.Lock()
	t := &x.q.tenants
	var idle []*Limiter
	if t.sweeps {
		for _, l := range t.of {
			if l.idle() {
				idle = append(idle, l)
			}
		}
		t.sweeps = false
	}
	x.mu.Unlock()
	if len(idle) > 0 {
		x.worker.Forget(x.q, idle)
	}
}

// Forget forgets those of some limiters of tenants that nobody uses. The worker calls it with its mutex held, so that nobody begins
// to use one meanwhile, for those at which no job waits.
func (q *Queue) Forget(some []*Limiter) {
	q.keeper.mu.Lock()
	defer q.keeper.mu.Unlock()
	for _, l := range some {
		if q.tenants.of[l.Tenant] == l && l.idle() {
			delete(q.tenants.of, l.Tenant)
		}
	}
}

// perTenant returns the queues with limits of tenants.
func (k *Keeper) perTenant() (all []*Queue) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, q := range k.queues {
		if q.PerTenant() {
			all = append(all, q)
		}
	}
	return all
}
