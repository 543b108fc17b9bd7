package limit

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// Rates. A limit's row says until when its rate is used up: the generic cell rate algorithm
// (ITU-T I.371), which needs only that instant. Workers draw what they need for the next moment
// at once, so that each of them writes the row about ten times a second and not for each job. A
// worker draws only for jobs that can begin at once apart from the rate: tokens drawn for jobs
// that wait for a permit would let all of them begin together when the permits come.

// drawEvery is how often a worker asks that did not get enough.
const drawEvery = 20 * time.Millisecond

// Draw takes up to want tokens from the rate of a limiter. It returns how many it got, and, if these
// are fewer, when to ask again. One goroutine at a time may call it for a limiter.
func (k *Keeper) Draw(ctx context.Context, l *Limiter, want int) (got int, again time.Duration, err error) {
	var after int64 // until when the rate is used up then; only its keeper changes l.drawnTo
	k.mu.Lock()
	least := l.dear - l.tokens
	k.mu.Unlock()
	err = k.onRate(ctx, l, func(limit *store.Limit, now, drawn int64) int64 {
		var wait int64
		got, again, after = want, 0, l.drawnTo
		if limit == nil {
			return drawn
		}
		var until int64
		if got, until, wait = limit.Draw(now, drawn, want, least); got < want {
			again = max(time.Duration(wait)*time.Microsecond, drawEvery)
		}
		if got == 0 {
			return drawn
		}
		after = until
		return until
	})
	if err == nil {
		l.drawnTo = after
	}
	return got, again, err
}

// PutBack gives n unused tokens back to the rate of a limiter. One goroutine at a time may call it, or
// [Keeper.Draw], for a limiter.
func (k *Keeper) PutBack(ctx context.Context, l *Limiter, n int) error {
	return k.onRate(ctx, l, func(limit *store.Limit, now, drawn int64) int64 {
		if limit == nil {
			return drawn
		}
		return limit.PutBack(now, drawn, l.drawnTo, n)
	})
}

// onRate locks a limit's row, and writes until when its rate is used up, which change computes. limit
// is nil if there is no rate any more.
func (k *Keeper) onRate(ctx context.Context, l *Limiter, change func(limit *store.Limit, now, drawn int64) int64) error {
	return k.worker.DB().ShortTx(ctx, func(ctx context.Context, tx *sqlrun.Session) error {
		var now, drawn int64
		var per string
		limit := &store.Limit{Queue: l.Queue.Name, Kind: l.Kind}
		args := sqlrun.Args{"queue": l.Queue.ID, "kind": l.Kind}
		err := tx.Get(ctx, store.LockLimit, args, &now, &drawn, &limit.Rate, &per, &limit.Burst)
		if err == nil {
			err = limit.Parse(per)
		}
		if errors.Is(err, sql.ErrNoRows) || err == nil && limit.Rate == 0 {
			limit, err = nil, nil
		}
		if err != nil {
			return err
		}
		until := change(limit, now, drawn)
		if until == drawn {
			return nil
		}
		args["drawn"] = until
		_, err = tx.Exec(ctx, store.SetDrawn, args)
		return err
	})
}

// balanceTokens draws for the jobs that wait at a limiter, and gives back unused tokens. It returns
// when to look again; 0: when needed.
func (k *Keeper) balanceTokens(ctx context.Context, l *Limiter) (time.Duration, error) {
	k.mu.Lock()
	none := l.limit.Rate == 0
	if none {
		l.tokens = 0
	}
	k.mu.Unlock()
	if none {
		return 0, nil
	}
	demand := k.worker.Demand(l)
	k.mu.Lock()
	at, want, surplus := instant.Now(), 0, 0
	need := l.tokensFor(l.needTokens(demand))
	switch {
	case l.tokens > 0 && at.Sub(l.drawn) > store.DrawFor:
		surplus, l.tokens = l.tokens, 0
	case need > l.tokens && at >= l.askRate:
		want = max(need, min(l.waiting(demand), l.limit.Ahead())) - l.tokens
	}
	wait := max(0, l.askRate.Sub(at))
	if need <= l.tokens {
		wait = 0
		if l.tokens > 0 {
			wait = store.DrawFor
		}
	}
	k.mu.Unlock()
	switch {
	case surplus > 0:
		return time.Millisecond, k.PutBack(ctx, l, surplus)
	case want == 0:
		return wait, nil
	}
	got, again, err := k.Draw(ctx, l, want)
	if err != nil {
		return time.Millisecond, err
	}
	k.mu.Lock()
	l.tokens += got
	l.drawn = instant.Now()
	l.askRate = l.drawn.Add(again)
	k.mu.Unlock()
	if got > 0 {
		k.worker.Reopened(l, got)
	}
	return again, nil
}

// ReturnTokens gives back unused tokens when the worker ends.
func (k *Keeper) ReturnTokens(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	end, err := k.turn(ctx) // what is being drawn is returned, too
	if err != nil {
		k.log.Warn("unused permits of rates could not be returned; fewer jobs begin for a while", "err", err)
		return
	}
	defer end()
	if err := k.returnTenantTokens(ctx); err != nil {
		k.log.Warn("unused permits of tenants' rates could not be returned; fewer of their jobs begin for a while", "err", err)
	}
	for _, l := range k.limiters() {
		k.mu.Lock()
		n := l.tokens
		l.tokens = 0
		k.mu.Unlock()
		if n == 0 {
			continue
		}
		if err := k.PutBack(ctx, l, n); err != nil {
			k.log.Warn("unused permits of a rate could not be returned; fewer jobs begin for a while", "queue",
				l.Queue.Name, "kind", l.Kind, "jobs", n, "err", err)
		}
	}
}
