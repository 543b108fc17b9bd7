package limit

import (
	"context"
	"database/sql"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// Permits. The number of permits is the number of jobs that may run at a time, across all
// workers. Permits are rows that workers lease like blocks, while they have jobs that wait for
// them; they lose them if they miss their heartbeats. Unused permits go back after a moment. A
// worker that gets none although it has less than its share records that in the limit's row.
// Then those with more give theirs back as their jobs end. If there are fewer permits than
// workers, the workers take turns.

const (
	// permitsEvery is the interval between checks whether others wait for this worker's
	// permits.
	permitsEvery = 500 * time.Millisecond

	// permitAgain is how soon a worker that got none asks again; up to four times that.
	permitAgain = 100 * time.Millisecond

	// permitTurn is how long a worker keeps permits that others wait for, when there are fewer
	// permits than workers. permitPause is how long it then leaves them to the others.
	permitTurn  = 2 * time.Second
	permitPause = 300 * time.Millisecond

	// waitLasts is how long a worker counts as waiting after it has said so.
	waitLasts = 2 * time.Second
)

// A permit is a permit that the worker holds.
type permit struct {
	fence int64
	since instant.Instant
}

// A permitRow is a stored permit.
type permitRow struct {
	store.LeaseRow
	slot int
}

// An exchange is one round trip of permits: what is known while some are given back and others taken.
type exchange struct {
	*Limiter
	node   string // under which the worker holds them
	losses int    // of the keeper, before the node was read: a later one ends its permits
	rows   []permitRow
	waiter string // the worker that waits for a permit; "": none
	demand Demand // of a tenant
	missed bool   // it is not known that all were given back
}

// balancePermits gets permits for the jobs that wait at a limiter, and gives back those that are
// not needed, or that others wait for. It returns when to look again; 0: when needed.
func (k *Keeper) balancePermits(ctx context.Context, l *Limiter) (time.Duration, error) {
	k.mu.Lock()
	losses, none := k.losses, l.limit.Running == 0 && len(l.permits) == 0 && !l.doubt
	k.mu.Unlock()
	if none { // as for each kind that callers of a Receiver have named
		return 0, nil
	}
	demand, node := k.worker.Demand(l), k.worker.Node()
	k.mu.Lock()
	at := instant.Now()
	short := l.short(demand)
	due := (len(l.permits) > 0 || l.doubt) && at >= l.look || short > 0 && at >= l.ask
	wait := time.Duration(0)
	switch {
	case short > 0 && node != "":
		wait = max(l.ask.Sub(at), time.Millisecond)
	case len(l.permits) > 0 || l.doubt:
		wait = max(l.look.Sub(at), time.Millisecond)
	}
	k.mu.Unlock()
	if node == "" || !due {
		return wait, nil
	}
	err := k.exchange(ctx, &exchange{Limiter: l, node: node, losses: losses})
	k.mu.Lock()
	defer k.mu.Unlock()
	if l.doubt = err != nil; l.doubt {
		l.look = at.Add(permitAgain)
	}
	return time.Millisecond, err // it is woken when it needs more
}

// exchange gives back and takes permits.
func (k *Keeper) exchange(ctx context.Context, x *exchange) error {
	limits, err := store.ReadLimits(ctx, &k.worker.DB().Session, map[int]string{x.Queue.ID: x.Queue.Name})
	if err != nil {
		return err
	}
	k.worker.ReadLimits(x.Queue, limits)
	for _, r := range limits {
		if r.Kind == x.Kind {
			x.waiter = r.WaitingBy
		}
	}
	for _, step := range []func(context.Context, *exchange) error{k.readPermits, k.completePermits, k.expelHolders, k.givePermits} {
		if err := step(ctx, x); err != nil {
			return err
		}
	}
	return k.takePermits(ctx, x)
}

// short returns how many more permits could be used. mu is held.
func (l *Limiter) short(d Demand) int {
	if l.limit.Running == 0 {
		return 0
	}
	return max(0, min(l.needPermits(d), l.limit.Running)-l.vacant())
}

func (k *Keeper) readPermits(ctx context.Context, x *exchange) (err error) {
	x.rows, err = sqlrun.Select(ctx, &k.worker.DB().Session, store.Permits, sqlrun.Args{"queue": x.Queue.ID, "kind": x.Kind},
		func(rows *sql.Rows) (r permitRow, err error) {
			return r, rows.Scan(&r.slot, &r.State, &r.LockBy, &r.Fence, &r.Live, &r.InTime)
		})
	return err
}

// completePermits creates missing permits.
func (k *Keeper) completePermits(ctx context.Context, x *exchange) error {
	most := x.Limit().Running
	there := map[int]bool{}
	for _, r := range x.rows {
		there[r.slot] = true
	}
	var missing []sqlrun.Args
	for slot := range most {
		if !there[slot] {
			missing = append(missing, sqlrun.Args{"queue": x.Queue.ID, "kind": x.Kind, "slot": slot})
		}
	}
	if len(missing) == 0 {
		return nil
	}
	for part := range slices.Chunk(missing, store.Chunk) {
		if _, err := k.worker.DB().Exec(ctx, store.CreatePermits, sqlrun.Args{"rows": part}); err != nil {
			return err
		}
	}
	return k.readPermits(ctx, x)
}

// expelHolders declares those holders lost that are late.
func (k *Keeper) expelHolders(ctx context.Context, x *exchange) error {
	leases := make([]*store.LeaseRow, len(x.rows))
	for i := range x.rows {
		leases[i] = &x.rows[i].LeaseRow
	}
	return k.worker.Expel(ctx, leases)
}

// givePermits gives back surplus permits, and those that this worker has without knowing: it
// may have taken a permit without receiving the answer.
func (k *Keeper) givePermits(ctx context.Context, x *exchange) error {
	back := k.surplusPermits(x, k.worker.Demand(x.Limiter))
	for slot, fence := range back {
		args := sqlrun.Args{"queue": x.Queue.ID, "kind": x.Kind, "slot": slot, "fence": fence, "node": x.node}
		if _, err := k.worker.DB().Exec(ctx, store.ReturnPermit, args); err != nil {
			return err
		}
	}
	if len(back) > 0 && x.waiter != "" {
		k.worker.Announce(ctx)
	}
	return nil
}

// surplusPermits removes from a limiter what is to be given back: slots and their fences. A
// worker keeps at least as many permits as it has active jobs, even if the limit was lowered.
func (k *Keeper) surplusPermits(x *exchange, d Demand) map[int]int64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	back := map[int]int64{}
	there, others := map[int]bool{}, map[string]bool{}
	for _, r := range x.rows {
		switch p, ok := x.permits[r.slot]; {
		case r.Free():
		case r.LockBy != x.node:
			others[r.LockBy] = true
		case ok && p.fence == r.Fence:
			there[r.slot] = true
		default:
			back[r.slot] = r.Fence
		}
	}
	maps.DeleteFunc(x.permits, func(slot int, _ permit) bool { return !there[slot] })
	waited := x.waiter != "" && x.waiter != x.node
	contenders := 1 + len(others)
	if waited && !others[x.waiter] {
		contenders++
	}
	at := instant.Now()
	x.keep = x.quota(at, d, contenders, waited)
	for _, slot := range slices.Backward(slices.Sorted(maps.Keys(x.permits))) {
		if n := len(x.permits); n > x.active && (n > x.keep || slot >= x.limit.Running) {
			back[slot] = x.permits[slot].fence
			delete(x.permits, slot)
			if waited {
				x.ask = at.Add(permitPause + rand.N(permitPause))
			}
		}
	}
	x.recount()
	x.look = at.Add(permitsEvery)
	return back
}

// quota returns how many permits a worker may keep if so many workers have or want some. waited
// reports whether another one waits. mu is held.
func (l *Limiter) quota(at instant.Instant, d Demand, contenders int, waited bool) int {
	used := l.active + l.needPermits(d)
	if len(l.permits) <= used {
		l.spare = at
	}
	switch share := l.limit.Running / contenders; {
	case !waited && at.Sub(l.spare) < time.Second && !d.Closing:
		return store.MaxRunning
	case !waited:
		return used
	case share > 0:
		return min(share, used)
	}
	for _, p := range l.permits { // fewer permits than workers
		if at.Sub(p.since) >= permitTurn {
			return 0
		}
	}
	return min(1, used)
}

// takePermits takes as many permits as could be used, if they are available.
func (k *Keeper) takePermits(ctx context.Context, x *exchange) error {
	x.demand = k.worker.Demand(x.Limiter)
	want, most := k.wantOf(x), x.Limit().Running
	if want == 0 {
		return nil
	}
	var free []permitRow
	holders := map[string]bool{x.node: true}
	for _, r := range x.rows {
		if !r.Free() {
			holders[r.LockBy] = true
		} else if r.slot < most {
			free = append(free, r)
		}
	}
	rand.Shuffle(len(free), func(i, j int) { free[i], free[j] = free[j], free[i] })
	got := 0
	for i := 0; i < len(free) && got < want; i++ {
		r := &free[i]
		args := sqlrun.Args{"queue": x.Queue.ID, "kind": x.Kind, "slot": r.slot, "fence": r.Fence, "node": x.node}
		n, err := k.worker.DB().Exec(ctx, store.TakePermit, args)
		if err != nil {
			return err
		}
		if n > 0 {
			if k.gotPermit(x, r) {
				k.worker.Reopened(x.Limiter, 1)
			}
			got++
		}
	}
	return k.denied(ctx, x, got < want, len(holders))
}

// wantOf returns how many permits to take.
func (k *Keeper) wantOf(x *exchange) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	at, want := instant.Now(), x.short(x.demand)
	if x.Tenant != "" {
		want = x.lacks(x.demand)
	}
	if at < x.ask {
		return 0
	}
	if most := x.keep - len(x.permits); want > most { // others are to get more
		want, x.ask = max(0, most), at.Add(permitAgain)
	}
	return want
}

// gotPermit records a permit that was taken, and reports whether a job may pass now. If the lease was
// lost meanwhile, others take the permit when they see that its process is gone.
func (k *Keeper) gotPermit(x *exchange, r *permitRow) (open bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.losses != x.losses {
		return false
	}
	x.permits[r.slot] = permit{r.Fence + 1, instant.Now()}
	x.recount()
	return x.open()
}

// refuses records whether fewer permits were got than were wanted. It reports whether this worker has less than its share,
// so that the others are to know that it waits.
func (k *Keeper) refuses(x *exchange, is bool, holders int) (claims bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !is {
		x.refused, x.ask = 0, 0
		return false
	}
	again := permitAgain << min(x.refused, 2)
	x.refused++
	x.ask = instant.Now().Add(again/2 + rand.N(again))
	return len(x.permits) < max(1, x.limit.Running/holders)
}

// denied records in the limit's row that this worker waits, if it has less than its share.
func (k *Keeper) denied(ctx context.Context, x *exchange, is bool, holders int) error {
	if !k.refuses(x, is, holders) {
		return nil
	}
	_, err := k.worker.DB().Exec(ctx, store.WaitForPermit, sqlrun.Args{
		"queue": x.Queue.ID, "kind": x.Kind, "node": x.node, "lasts": waitLasts.Microseconds(), "soon": waitLasts.Microseconds() / 2,
	})
	return err
}
