package limit

import (
	"context"
	"database/sql"
	"errors"
	"slices"

	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// Rates of tenants: see tenant.go.

// drawFor draws for the jobs that wait at some limiters and have permits, and puts back what was drawn and is not used.
func (x *round) drawFor(ctx context.Context, all []*exchange) error {
	var some []*Drawing
	x.mu.Lock()
	at, own := instant.Now(), x.q.Own()
	for _, e := range all {
		l := e.Limiter
		if l.limit.Rate == 0 {
			l.tokens, l.back = 0, 0
			continue
		}
		need := min(l.need(e.demand), l.vacant())
		if own != nil {
			need = min(need, own.vacant())
		}
		if d := l.draws(at, need, min(e.demand.Ready, l.limit.Ahead(), l.vacant())); d.Want > 0 || d.Back > 0 {
			some = append(some, d)
		}
	}
	x.mu.Unlock()
	return x.draw(ctx, some)
}

// draw draws from the rates of tenants. What is locked is left for later; rows that are missing are made.
func (x *round) draw(ctx context.Context, some []*Drawing) error {
	frees := false
	defer func() {
		if frees {
			x.worker.Announce(ctx)
		}
	}()
	for try := 0; len(some) > 0; try++ {
		there, err := x.drawLocked(ctx, some)
		if err != nil {
			return err
		}
		x.mu.Lock()
		at := instant.Now()
		rest := slices.DeleteFunc(some, func(d *Drawing) bool {
			if !there[d.Tenant] {
				d.askRate = at.Add(drawEvery)
				return false
			}
			d.record(at)
			frees = frees || d.frees()
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
func (x *round) missing(ctx context.Context, some []*Drawing) (rest []*Drawing, err error) {
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
		case d.Want > 0:
			rest = append(rest, d)
			fresh = append(fresh, sqlrun.Args{"queue": x.q.ID, "name": d.Tenant})
		default: // it was swept: a full burst is there
			d.back = 0
		}
	}
	x.mu.Unlock()
	return rest, x.insert(ctx, fresh)
}

// drawLocked draws from those rates whose rows are there and not locked.
func (x *round) drawLocked(ctx context.Context, some []*Drawing) (there map[string]bool, err error) {
	of := map[string]*Drawing{}
	for _, d := range some {
		of[d.Tenant] = d
	}
	type row struct {
		name       string
		now, drawn int64
		ahead      int
	}
	err = x.worker.DB().ShortTx(ctx, func(ctx context.Context, tx *sqlrun.Session) error {
		there = map[string]bool{}
		locked, err := sqlrun.Select(ctx, tx, store.LockTenants, sqlrun.Args{"queue": x.q.ID, "tenants": namesOf(some)},
			func(rows *sql.Rows) (r row, err error) { return r, rows.Scan(&r.name, &r.now, &r.drawn, &r.ahead) })
		if err != nil {
			return err
		}
		var changed []sqlrun.Args
		at := &clock{tx: tx}
		for _, r := range locked {
			d := of[r.name]
			if d == nil {
				continue
			}
			there[r.name] = true
			until, ahead, err := at.settle(ctx, d, r.now, r.drawn, r.ahead)
			if err != nil {
				return err
			}
			if until != r.drawn {
				filled := min(until+d.limit.Cost(max(d.limit.Burst, d.limit.Ahead())+1), r.now+fullAtMost.Microseconds())
				changed = append(changed, sqlrun.Args{"queue": x.q.ID, "name": r.name, "drawn": until, "ahead": ahead, "filled": filled})
			}
		}
		if len(changed) == 0 {
			return nil
		}
		_, err = tx.Exec(ctx, store.SetDrawnTenants, sqlrun.Args{"rows": changed})
		return err
	})
	return there, err
}

// returnTenantTokens gives back what was drawn for tenants, when the worker ends.
func (k *Keeper) returnTenantTokens(ctx context.Context) (failed error) {
	for _, q := range k.perTenant() {
		var some []*Drawing
		k.mu.Lock()
		for _, l := range q.tenants.of {
			if l.back, l.tokens = l.back+l.tokens, 0; l.back > 0 && l.limit.Rate > 0 {
				some = append(some, &Drawing{Limiter: l, limit: l.limit, Back: l.back})
			}
		}
		k.mu.Unlock()
		for part := range slices.Chunk(some, store.Chunk) {
			failed = errors.Join(failed, (&round{Keeper: k, q: q}).draw(ctx, part))
		}
	}
	return failed
}
