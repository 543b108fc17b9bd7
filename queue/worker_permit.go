package queue

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

// A permit is a permit held by this worker.
type permit struct {
	fence int64
	since instant.Instant
}

// A permitRow is a stored permit.
type permitRow struct {
	store.LeaseRow
	slot int
}

func ofPermits(rows []permitRow) (all []*store.LeaseRow) {
	for i := range rows {
		all = append(all, &rows[i].LeaseRow)
	}
	return all
}

func (k *limitKeeper) readPermits(ctx context.Context, g *limiter) ([]permitRow, error) {
	return sqlrun.Select(ctx, &k.db.Session, store.Permits, sqlrun.Args{"queue": g.q.id, "kind": g.kind},
		func(rows *sql.Rows) (r permitRow, err error) {
			return r, rows.Scan(&r.slot, &r.State, &r.LockBy, &r.Fence, &r.Live, &r.InTime)
		})
}

// tendPermits gets permits for the jobs that wait at a limiter, and gives back those that are
// not needed, or that others wait for. It returns when to look again; 0: when needed.
func (k *limitKeeper) tendPermits(ctx context.Context, g *limiter) (time.Duration, error) {
	k.mu.Lock()
	at, node := instant.Now(), k.lease.node
	short := k.short(g)
	due := (len(g.permits) > 0 || g.doubt) && at >= g.look || short > 0 && at >= g.ask
	wait := time.Duration(0)
	switch {
	case short > 0 && node != "":
		wait = max(g.ask.Sub(at), time.Millisecond)
	case len(g.permits) > 0 || g.doubt:
		wait = max(g.look.Sub(at), time.Millisecond)
	}
	k.mu.Unlock()
	if node == "" || !due {
		return wait, nil
	}
	err := k.exchangePermits(ctx, g, node)
	k.mu.Lock()
	defer k.mu.Unlock()
	if g.doubt = err != nil; g.doubt {
		g.look = at.Add(permitAgain)
	}
	return time.Millisecond, err // it is signalled when it needs more
}

// exchangePermits gives back and takes permits.
func (k *limitKeeper) exchangePermits(ctx context.Context, g *limiter, node string) error {
	limits, err := store.ReadLimits(ctx, &k.db.Session, map[int]string{g.q.id: g.q.name})
	if err != nil {
		return err
	}
	k.meetLimits(g.q, limits)
	rows, err := k.readPermits(ctx, g)
	if err == nil {
		rows, err = k.completePermits(ctx, g, rows)
	}
	if err == nil {
		err = k.expel(ctx, ofPermits(rows))
	}
	if err != nil {
		return err
	}
	waiter := ""
	for _, l := range limits {
		if l.Kind == g.kind {
			waiter = l.WaitingBy
		}
	}
	if err := k.givePermits(ctx, g, rows, node, waiter); err != nil {
		return err
	}
	return k.takePermits(ctx, g, rows, node)
}

// short returns how many more permits could be used. mu is held.
func (k *limitKeeper) short(g *limiter) int {
	if g.limit.Running == 0 {
		return 0
	}
	return max(0, min(g.needPermits(), g.limit.Running)-g.vacant())
}

// completePermits creates missing permits.
func (k *limitKeeper) completePermits(ctx context.Context, g *limiter, rows []permitRow) ([]permitRow, error) {
	k.mu.Lock()
	most := g.limit.Running
	k.mu.Unlock()
	there := map[int]bool{}
	for _, r := range rows {
		there[r.slot] = true
	}
	var missing []sqlrun.Args
	for slot := range most {
		if !there[slot] {
			missing = append(missing, sqlrun.Args{"queue": g.q.id, "kind": g.kind, "slot": slot})
		}
	}
	if len(missing) == 0 {
		return rows, nil
	}
	for len(missing) > 0 {
		n := min(store.Chunk, len(missing))
		if _, err := k.db.Exec(ctx, store.CreatePermits, sqlrun.Args{"rows": missing[:n]}); err != nil {
			return nil, err
		}
		missing = missing[n:]
	}
	return k.readPermits(ctx, g)
}

// givePermits gives back surplus permits, and those that this worker has without knowing: it
// may have taken a permit without receiving the answer.
func (k *limitKeeper) givePermits(ctx context.Context, g *limiter, rows []permitRow, node, waiter string) error {
	back := k.surplusPermits(g, rows, node, waiter)
	for slot, fence := range back {
		args := sqlrun.Args{"queue": g.q.id, "kind": g.kind, "slot": slot, "fence": fence, "node": node}
		if _, err := k.db.Exec(ctx, store.ReturnPermit, args); err != nil {
			return err
		}
	}
	if len(back) > 0 && waiter != "" {
		k.c.bells.announce(ctx)
	}
	return nil
}

// surplusPermits removes from a limiter what is to be given back: slots and their fences. A
// worker keeps at least as many permits as it has active jobs, even if the limit was lowered.
func (k *limitKeeper) surplusPermits(g *limiter, rows []permitRow, node, waiter string) map[int]int64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	back := map[int]int64{}
	there, others := map[int]bool{}, map[string]bool{}
	for _, r := range rows {
		switch p, ok := g.permits[r.slot]; {
		case r.Free():
		case r.LockBy != node:
			others[r.LockBy] = true
		case ok && p.fence == r.Fence:
			there[r.slot] = true
		default:
			back[r.slot] = r.Fence
		}
	}
	maps.DeleteFunc(g.permits, func(slot int, _ permit) bool { return !there[slot] })
	if waiter == node {
		waiter = ""
	}
	contenders := 1 + len(others)
	if waiter != "" && !others[waiter] {
		contenders++
	}
	at := instant.Now()
	g.keep = g.quota(at, contenders, waiter != "")
	for _, slot := range slices.Backward(slices.Sorted(maps.Keys(g.permits))) {
		if n := len(g.permits); n > g.active && (n > g.keep || slot >= g.limit.Running) {
			back[slot] = g.permits[slot].fence
			delete(g.permits, slot)
			if waiter != "" {
				g.ask = at.Add(permitPause + rand.N(permitPause))
			}
		}
	}
	g.recount()
	g.look = at.Add(permitsEvery)
	return back
}

// quota returns how many permits a worker may keep if so many workers have or want some. mu is
// held.
func (g *limiter) quota(at instant.Instant, contenders int, waited bool) int {
	spare := g.active + g.needPermits()
	if len(g.permits) <= spare {
		g.quiet = at
	}
	switch share := g.limit.Running / contenders; {
	case !waited && at.Sub(g.quiet) < time.Second && !g.q.w.closing:
		return store.MaxRunning
	case !waited:
		return spare
	case share > 0:
		return min(share, spare)
	}
	for _, p := range g.permits { // fewer permits than workers
		if at.Sub(p.since) >= permitTurn {
			return 0
		}
	}
	return min(1, spare)
}

// takePermits takes as many permits as could be used, if they are available.
func (k *limitKeeper) takePermits(ctx context.Context, g *limiter, rows []permitRow, node string) error {
	k.mu.Lock()
	at := instant.Now()
	want, most := k.short(g), g.limit.Running
	if at < g.ask {
		want = 0
	} else if most := g.keep - len(g.permits); want > most { // others are to get more
		want, g.ask = max(0, most), at.Add(permitAgain)
	}
	k.mu.Unlock()
	if want == 0 {
		return nil
	}
	var free []permitRow
	holders := map[string]bool{node: true}
	for _, r := range rows {
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
		args := sqlrun.Args{"queue": g.q.id, "kind": g.kind, "slot": r.slot, "fence": r.Fence, "node": node}
		n, err := k.db.Exec(ctx, store.TakePermit, args)
		if err != nil {
			return err
		}
		if n > 0 {
			k.gotPermit(g, r, node)
			got++
		}
	}
	return k.denied(ctx, g, got < want, len(holders), node)
}

func (k *limitKeeper) gotPermit(g *limiter, r *permitRow, node string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.lease.node != node {
		return // others take it when they see that this process is gone
	}
	g.permits[r.slot] = permit{r.Fence + 1, instant.Now()}
	g.recount()
	if g.open() {
		k.slots.reopen(g, 1)
	}
}

// denied records in the limit's row that this worker waits, if it has less than its share.
func (k *limitKeeper) denied(ctx context.Context, g *limiter, is bool, holders int, node string) error {
	k.mu.Lock()
	if !is {
		g.refusals, g.ask = 0, 0
		k.mu.Unlock()
		return nil
	}
	again := permitAgain << min(g.refusals, 2)
	g.refusals++
	g.ask = instant.Now().Add(again/2 + rand.N(again))
	claims := len(g.permits) < max(1, g.limit.Running/holders)
	k.mu.Unlock()
	if !claims {
		return nil
	}
	_, err := k.db.Exec(ctx, store.WaitForPermit, sqlrun.Args{
		"queue": g.q.id, "kind": g.kind, "node": node, "lasts": waitLasts.Microseconds(), "soon": waitLasts.Microseconds() / 2,
	})
	return err
}

// askAgain makes workers that were denied permits ask at once: some were given back.
func (k *limitKeeper) askAgain() {
	for _, g := range k.limiters() {
		k.mu.Lock()
		if g.refusals > 0 {
			g.ask = 0
		}
		k.mu.Unlock()
		signal(k.wake)
	}
}

// loseLimits gives up permits and tokens: others may have them by now. mu is held.
func (k *limitKeeper) loseLimits() {
	for _, q := range k.queues {
		for _, g := range q.limiters {
			clear(g.permits)
			g.tokens = 0
			g.recount()
		}
	}
}
