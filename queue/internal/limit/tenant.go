package limit

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"maps"
	"math/rand/v2"
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
	if is.Running == 0 && is.Rate == 0 {
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

// exchange gives back and takes permits.
func (x *round) exchange(ctx context.Context, all []*exchange) error {
	known, err := x.read(ctx, all)
	if err != nil {
		return err
	}
	if err := x.giveBack(ctx, all); err != nil {
		return err
	}
	denied, err := x.take(ctx, all)
	if err != nil || len(denied) == 0 {
		return err
	}
	return x.wait(ctx, denied, known)
}

// read reads who has permits, and who waits for some. It returns which tenants have rows.
func (x *round) read(ctx context.Context, all []*exchange) (known map[string]bool, err error) {
	on, args := &x.worker.DB().Session, sqlrun.Args{"queue": x.q.ID, "tenants": namesOf(all)}
	at := map[string]*exchange{}
	for _, e := range all {
		at[e.Tenant], e.rows, e.waiter = e, nil, ""
	}
	_, err = sqlrun.Select(ctx, on, store.TenantPermits, args, func(rows *sql.Rows) (none struct{}, err error) {
		var name string
		var r permitRow
		if err = rows.Scan(&name, &r.slot, &r.State, &r.LockBy, &r.Fence, &r.Live, &r.InTime); err == nil && at[name] != nil {
			at[name].rows = append(at[name].rows, r)
		}
		return none, err
	})
	if err != nil {
		return nil, err
	}
	known = map[string]bool{}
	_, err = sqlrun.Select(ctx, on, store.WaitingTenants, args, func(rows *sql.Rows) (none struct{}, err error) {
		var name, waiter string
		if err = rows.Scan(&name, &waiter); err == nil && at[name] != nil {
			known[name], at[name].waiter = true, waiter
		}
		return none, err
	})
	if err != nil {
		return nil, err
	}
	var leases []*store.LeaseRow
	for _, e := range all {
		for i := range e.rows {
			leases = append(leases, &e.rows[i].LeaseRow)
		}
	}
	return known, x.worker.Expel(ctx, leases)
}

// giveBack gives back surplus permits, those that this worker has without knowing, and those of processes that have ended.
func (x *round) giveBack(ctx context.Context, all []*exchange) error {
	var back []sqlrun.Args
	waited := false
	for _, e := range all {
		for slot, fence := range x.surplusPermits(e, e.demand) {
			back = append(back, sqlrun.Args{"name": e.Tenant, "nth": slot, "held": fence, "who": x.node})
			waited = waited || e.waiter != ""
		}
		for _, r := range e.rows {
			if r.Free() {
				back = append(back, sqlrun.Args{"name": e.Tenant, "nth": r.slot, "held": r.Fence, "who": r.LockBy})
			}
		}
	}
	missed, err := x.end(ctx, back)
	if err != nil {
		return err
	}
	for _, e := range all {
		e.missed = missed
	}
	if waited {
		x.worker.Announce(ctx)
	}
	return nil
}

// end ends permits. It reports whether some are not ended: somebody has locked them, or they have ended before.
func (x *round) end(ctx context.Context, back []sqlrun.Args) (missed bool, err error) {
	for part := range slices.Chunk(back, store.Chunk) {
		n, err := x.worker.DB().Exec(ctx, store.ReturnTenantPermits, sqlrun.Args{"queue": x.q.ID, "rows": part})
		if err != nil {
			return true, err
		}
		missed = missed || n < int64(len(part))
	}
	return missed, nil
}

// take takes as many permits as could be used, if they are available. It returns for which tenants to record that
// this worker waits.
func (x *round) take(ctx context.Context, all []*exchange) (denied []*exchange, err error) {
	fence := 1 + rand.Int64N(1<<62)
	var rows []sqlrun.Args
	var takers []*exchange
	want, got := map[*exchange]int{}, map[*exchange]int{}
	for _, e := range all {
		want[e] = x.wantOf(e)
		if want[e] == 0 {
			continue
		}
		takers = append(takers, e)
		for _, slot := range e.freeSlots(want[e]) {
			rows = append(rows, sqlrun.Args{
				"queue": x.q.ID, "name": e.Tenant, "slot": slot, "node": x.node, "fence": fence,
			})
		}
	}
	if len(takers) == 0 {
		return nil, nil
	}
	slices.SortFunc(rows, func(a, b sqlrun.Args) int { // in one order, so that two workers do not wait for each other
		return cmp.Or(cmp.Compare(a["name"].(string), b["name"].(string)), cmp.Compare(a["slot"].(int), b["slot"].(int)))
	})
	for part := range slices.Chunk(rows, store.Chunk) {
		if _, err := x.worker.DB().Exec(ctx, store.TakeTenantPermits, sqlrun.Args{"rows": part}); err != nil {
			return nil, err
		}
	}
	if len(rows) > 0 {
		at := map[string]*exchange{}
		for _, e := range takers {
			at[e.Tenant] = e
		}
		args := sqlrun.Args{"queue": x.q.ID, "node": x.node, "fence": fence, "tenants": namesOf(takers)}
		_, err = sqlrun.Select(ctx, &x.worker.DB().Session, store.TakenTenantPermits, args, func(rows *sql.Rows) (none struct{}, err error) {
			var name string
			var slot int
			if err = rows.Scan(&name, &slot); err == nil && at[name] != nil {
				x.gotPermit(at[name], &permitRow{LeaseRow: store.LeaseRow{Fence: fence - 1}, slot: slot})
				got[at[name]]++
			}
			return none, err
		})
		if err != nil {
			return nil, err
		}
	}
	for _, e := range takers {
		if x.refuses(e, got[e] < want[e], e.holders()) {
			denied = append(denied, e)
		}
	}
	return denied, nil
}

// freeSlots returns up to n slots of a limit that nobody has.
func (e *exchange) freeSlots(n int) (free []int) {
	most := e.Limit().Running
	taken := map[int]bool{}
	for _, r := range e.rows {
		taken[r.slot] = taken[r.slot] || !r.Free()
	}
	if most == 0 {
		return nil
	}
	for i, from := 0, rand.IntN(most); i < most && len(free) < n; i++ {
		if slot := (from + i) % most; !taken[slot] {
			free = append(free, slot)
		}
	}
	return free
}

// holders counts the workers that have permits, and this one.
func (e *exchange) holders() int {
	all := map[string]bool{e.node: true}
	for _, r := range e.rows {
		if !r.Free() {
			all[r.LockBy] = true
		}
	}
	return len(all)
}

// wait records that this worker waits for permits of some tenants.
func (x *round) wait(ctx context.Context, denied []*exchange, known map[string]bool) error {
	var fresh []sqlrun.Args
	for _, e := range denied {
		if !known[e.Tenant] {
			fresh = append(fresh, sqlrun.Args{"queue": x.q.ID, "name": e.Tenant})
		}
	}
	if err := x.insert(ctx, fresh); err != nil {
		return err
	}
	_, err := x.worker.DB().Exec(ctx, store.WaitForTenants, sqlrun.Args{
		"queue": x.q.ID, "tenants": namesOf(denied), "node": x.node, "lasts": waitLasts.Microseconds(), "soon": waitLasts.Microseconds() / 2,
	})
	return err
}

// insert makes rows of tenants.
func (x *round) insert(ctx context.Context, rows []sqlrun.Args) error {
	if len(rows) == 0 {
		return nil
	}
	slices.SortFunc(rows, func(a, b sqlrun.Args) int { return cmp.Compare(a["name"].(string), b["name"].(string)) })
	_, err := x.worker.DB().Exec(ctx, store.MakeTenants, sqlrun.Args{"rows": rows})
	return err
}

// returnStrays ends permits that this worker has without knowing.
func (x *round) returnStrays(ctx context.Context, at instant.Instant) error {
	x.mu.Lock()
	due := len(x.q.tenants.of) > 0 && at.Sub(x.q.tenants.strays) >= strayEvery
	if due {
		x.q.tenants.strays = at
	}
	x.mu.Unlock()
	if !due {
		return nil
	}
	type own struct {
		name  string
		slot  int
		fence int64
	}
	args := sqlrun.Args{"queue": x.q.ID, "node": x.node}
	found, err := sqlrun.Select(ctx, &x.worker.DB().Session, store.OwnTenantPermits, args, func(rows *sql.Rows) (o own, err error) {
		return o, rows.Scan(&o.name, &o.slot, &o.fence)
	})
	if err != nil {
		return err
	}
	var back []sqlrun.Args
	x.mu.Lock()
	for _, o := range found {
		if l := x.q.tenants.of[o.name]; l == nil || l.permits[o.slot].fence != o.fence {
			back = append(back, sqlrun.Args{"name": o.name, "nth": o.slot, "held": o.fence, "who": x.node})
		}
	}
	x.mu.Unlock()
	_, err = x.end(ctx, back)
	return err
}

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

// A drawing is what is drawn from the rate of a tenant, or put back.
type drawing struct {
	*Limiter
	limit      store.Limit
	want, back int
	least      int   // if it gets any at all
	after      int64 // until when the rate is used up then

	got   int
	again time.Duration
}

// drawFor draws for the jobs that wait at some limiters and have permits, and puts back what was drawn and is not used.
func (x *round) drawFor(ctx context.Context, all []*exchange) error {
	var some []*drawing
	x.mu.Lock()
	at, own := instant.Now(), x.q.Own()
	for _, e := range all {
		l := e.Limiter
		if l.limit.Rate == 0 {
			l.tokens, l.back = 0, 0
			continue
		}
		if l.tokens > 0 && at.Sub(l.drawn) > store.DrawFor {
			l.back, l.tokens = l.back+l.tokens, 0
		}
		need := min(l.need(e.demand), l.vacant())
		if own != nil {
			need = min(need, own.vacant())
		}
		need = l.tokensFor(need)
		d := &drawing{Limiter: l, limit: l.limit, back: l.back, least: l.dear - l.tokens}
		if need > l.tokens && at >= l.askRate {
			d.want = max(need, min(e.demand.Ready, l.limit.Ahead(), l.vacant())) - l.tokens
		}
		if d.want > 0 || d.back > 0 {
			some = append(some, d)
		}
	}
	x.mu.Unlock()
	return x.draw(ctx, some)
}

// draw draws from the rates of tenants. What is locked is left for later; rows that are missing are made.
func (x *round) draw(ctx context.Context, some []*drawing) error {
	for try := 0; len(some) > 0; try++ {
		there, err := x.drawLocked(ctx, some)
		if err != nil {
			return err
		}
		x.mu.Lock()
		at := instant.Now()
		rest := slices.DeleteFunc(some, func(d *drawing) bool {
			if !there[d.Tenant] {
				d.askRate = at.Add(drawEvery)
				return false
			}
			d.Limiter.back -= min(d.Limiter.back, d.back)
			if d.want > 0 {
				d.tokens += d.got
				d.drawn, d.askRate, d.drawnTo = at, at.Add(d.again), d.after
			}
			return true
		})
		x.mu.Unlock()
		if some = rest; len(some) == 0 || try > 0 {
			return nil
		}
		if some, err = x.missing(ctx, some); err != nil {
			return err
		}
	}
	return nil
}

// missing makes the rows of tenants that have none. Those of which there is one have nothing else to be told.
func (x *round) missing(ctx context.Context, some []*drawing) (rest []*drawing, err error) {
	known := map[string]bool{}
	_, err = sqlrun.Select(ctx, &x.worker.DB().Session, store.WaitingTenants, sqlrun.Args{"queue": x.q.ID, "tenants": namesOf(some)},
		func(rows *sql.Rows) (none struct{}, err error) {
			var name, waiter string
			if err = rows.Scan(&name, &waiter); err == nil {
				known[name] = true
			}
			return none, err
		})
	if err != nil {
		return nil, err
	}
	var fresh []sqlrun.Args
	x.mu.Lock()
	for _, d := range some {
		switch {
		case known[d.Tenant]:
		case d.want > 0:
			rest = append(rest, d)
			fresh = append(fresh, sqlrun.Args{"queue": x.q.ID, "name": d.Tenant})
		default: // it was swept: a full burst is there
			d.Limiter.back = 0
		}
	}
	x.mu.Unlock()
	return rest, x.insert(ctx, fresh)
}

// drawLocked draws from those rates whose rows are there and not locked.
func (x *round) drawLocked(ctx context.Context, some []*drawing) (there map[string]bool, err error) {
	at := map[string]*drawing{}
	for _, d := range some {
		at[d.Tenant] = d
	}
	err = x.worker.DB().ShortTx(ctx, func(ctx context.Context, tx *sqlrun.Session) error {
		there = map[string]bool{}
		var changed []sqlrun.Args
		_, err := sqlrun.Select(ctx, tx, store.LockTenants, sqlrun.Args{"queue": x.q.ID, "tenants": namesOf(some)},
			func(rows *sql.Rows) (none struct{}, err error) {
				var name string
				var now, drawn int64
				if err = rows.Scan(&name, &now, &drawn); err != nil || at[name] == nil {
					return none, err
				}
				d := at[name]
				there[name] = true
				if until := d.from(now, drawn); until != drawn {
					filled := min(until+d.limit.Cost(max(d.limit.Burst, d.limit.Ahead())+1), now+fullAtMost.Microseconds())
					changed = append(changed, sqlrun.Args{"queue": x.q.ID, "name": name, "drawn": until, "filled": filled})
				}
				return none, nil
			})
		if err != nil || len(changed) == 0 {
			return err
		}
		_, err = tx.Exec(ctx, store.SetDrawnTenants, sqlrun.Args{"rows": changed})
		return err
	})
	return there, err
}

// from puts back and draws from a rate that is used up until drawn. It returns until when the rate is used up then.
func (d *drawing) from(now, drawn int64) int64 {
	d.got, d.again, d.after = 0, 0, d.drawnTo
	if d.back > 0 {
		drawn = d.limit.PutBack(now, drawn, d.drawnTo, d.back)
	}
	if d.want == 0 {
		return drawn
	}
	got, until, wait := d.limit.Draw(now, drawn, d.want, d.least)
	if d.got = got; got < d.want {
		d.again = max(time.Duration(wait)*time.Microsecond, drawEvery)
	}
	if got == 0 {
		return drawn
	}
	d.after = until
	return until
}

// returnTenantTokens gives back what was drawn for tenants, when the worker ends.
func (k *Keeper) returnTenantTokens(ctx context.Context) (failed error) {
	for _, q := range k.perTenant() {
		var some []*drawing
		k.mu.Lock()
		for _, l := range q.tenants.of {
			if l.back, l.tokens = l.back+l.tokens, 0; l.back > 0 && l.limit.Rate > 0 {
				some = append(some, &drawing{Limiter: l, limit: l.limit, back: l.back})
			}
		}
		k.mu.Unlock()
		for part := range slices.Chunk(some, store.Chunk) {
			failed = errors.Join(failed, (&round{Keeper: k, q: q}).draw(ctx, part))
		}
	}
	return failed
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
