package limit

import (
	"cmp"
	"context"
	"database/sql"
	"math/rand/v2"
	"slices"

	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// Permits of tenants: see tenant.go.

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
