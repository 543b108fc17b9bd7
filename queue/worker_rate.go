package queue

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

const (

	// drawEvery is how often a worker asks that did not get enough.
	drawEvery = 20 * time.Millisecond
)

// drawTokens draws for a limiter. It returns how many jobs may begin, and when to ask again. A
// negative number gives back unused tokens.
func (k *limitKeeper) drawTokens(ctx context.Context, g *limiter, want int) (got int, again time.Duration, err error) {
	after := g.drawnTo // which only its keeper changes
	err = k.db.ShortTx(ctx, func(ctx context.Context, tx *sqlrun.Session) error {
		var now, drawn int64
		var per string
		l := store.Limit{Queue: g.q.name, Kind: g.kind}
		args := sqlrun.Args{"queue": g.q.id, "kind": g.kind}
		err := tx.Get(ctx, store.LockLimit, args, &now, &drawn, &l.Rate, &per, &l.Burst)
		if err == nil {
			err = l.Parse(per)
		}
		if got, again = want, 0; err != nil || l.Rate == 0 {
			return orGone(err) // the limit no longer exists
		}
		var until int64
		if want > 0 {
			var wait int64
			if got, until, wait = l.Draw(now, drawn, want); got < want {
				again = max(time.Duration(wait)*time.Microsecond, drawEvery)
			}
		} else {
			until = l.PutBack(now, drawn, g.drawnTo, -want)
		}
		if got == 0 {
			return nil
		}
		after, args["drawn"] = until, until
		_, err = tx.Exec(ctx, store.SetDrawn, args)
		return err
	})
	if err == nil && want > 0 {
		g.drawnTo = after
	}
	return got, again, err
}

// tendRate draws for the jobs that wait at a limiter, and gives back unused tokens. It returns
// when to look again; 0: when needed.
func (k *limitKeeper) tendRate(ctx context.Context, g *limiter) (time.Duration, error) {
	k.mu.Lock()
	at, want := instant.Now(), 0
	waiting, need := g.waiting(), g.ready()
	switch {
	case g.limit.Rate == 0:
		g.tokens = 0
	case g.tokens > 0 && at.Sub(g.drawn) > store.DrawFor:
		want, g.tokens = -g.tokens, 0
	case need > g.tokens && at >= g.askRate:
		want = max(need, min(waiting, g.limit.Ahead())) - g.tokens
	}
	wait := max(0, g.askRate.Sub(at))
	if need <= g.tokens || g.limit.Rate == 0 {
		wait = 0
		if g.tokens > 0 {
			wait = store.DrawFor
		}
	}
	k.mu.Unlock()
	if want == 0 {
		return wait, nil
	}
	got, again, err := k.drawTokens(ctx, g, want)
	if err != nil || want < 0 {
		return time.Millisecond, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	g.tokens += got
	g.drawn = instant.Now()
	g.askRate = g.drawn.Add(again)
	if got > 0 {
		k.slots.reopen(g, got)
	}
	return again, nil
}

// returnTokens gives back unused tokens when the worker ends.
func (k *limitKeeper) returnTokens(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	end, err := k.turn.take(ctx) // what is being drawn is returned, too
	if err != nil {
		k.log.Warn("unused permits of rates could not be returned; fewer jobs begin for a while", "err", err)
		return
	}
	defer end()
	for _, g := range k.limiters() {
		k.mu.Lock()
		n := g.tokens
		g.tokens = 0
		k.mu.Unlock()
		if n == 0 {
			continue
		}
		if _, _, err := k.drawTokens(ctx, g, -n); err != nil {
			k.log.Warn("unused permits of a rate could not be returned; fewer jobs begin for a while", "queue",
				g.q.name, "kind", g.kind, "jobs", n, "err", err)
		}
	}
}

// orGone returns nil if a row does not exist.
func orGone(err error) error {
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	return err
}
