package limit

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"time"

	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// Rates of tenants: see tenant.go.

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
