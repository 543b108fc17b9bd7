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

// Rates. A limit's row says until when its rate has been used up: the generic cell rate
// algorithm (ITU-T I.371), which needs no more than that one instant. Workers draw what
// they need for the next moment at once, so that the row is written some ten times a
// second by each of them and not for each job. A worker draws for jobs that can begin at once
// except for the rate: what it had drawn for jobs that wait for a permit would let all of them
// begin together when the permits come.

const (

	// drawEvery is how often a worker asks that did not get enough.
	drawEvery = 20 * time.Millisecond
)

// drawTokens draws for a limiter. It returns how many jobs may begin for that, and when to
// ask again. A negative number gives back what was drawn and not used.
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
			return orGone(err) // there is no such limit any more
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

// tendRate draws for the jobs that wait at a limiter, and gives back what is not used. It
// returns when to look again; 0: when there is need.
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

// returnTokens gives back what was drawn and not used, when the worker ends.
func (k *limitKeeper) returnTokens(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
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

// orGone is nil if a row that was looked for is not there.
func orGone(err error) error {
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	return err
}
