package limit

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
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

	// drawAgain is how long it waits if it has to wait for longer, or an eighth of that time: meanwhile others put back what they do not
	// need, and clocks are set right.
	drawAgain = time.Second
)

// A Drawing is what is drawn from a rate, or put back, in one transaction: first what goes back, so that what is drawn, and how long
// to wait for more, is of all that there is.
type Drawing struct {
	*Limiter
	limit      store.Limit
	Want, Back int
	least      int   // if it gets any at all
	after      int64 // until when the rate is used up then

	Got   int
	Again time.Duration // when to ask again, if it got fewer than it wanted
}

// draws returns what to draw for so many waiting jobs, and up to most if it draws anything, and what to put back: what
// has not been used for
// long, and what is too little for the job that comes first. mu is held.
func (l *Limiter) draws(at instant.Instant, jobs, most int) *Drawing {
	if l.tokens > 0 && (l.tokens < l.dear || at.Sub(l.drawn) > store.DrawFor) {
		l.back, l.tokens, l.askRate = l.back+l.tokens, 0, 0 // until when to wait was computed without these
	}
	d := &Drawing{Limiter: l, limit: l.limit, Back: l.back, least: l.dear - l.tokens}
	if need := l.tokensFor(jobs); need > l.tokens && at >= l.askRate {
		d.Want = max(need, most) - l.tokens
	}
	return d
}

// from puts back and draws from a rate that is used up until drawn. It returns until when the rate is used up then.
func (d *Drawing) from(now, drawn int64) int64 {
	d.Got, d.Again, d.after = 0, 0, d.drawnTo
	if d.Back > 0 {
		drawn = d.limit.PutBack(now, drawn, d.drawnTo, d.Back)
	}
	if d.Want == 0 {
		return drawn
	}
	got, until, wait := d.limit.Draw(now, drawn, d.Want, d.least)
	if d.Got = got; got < d.Want {
		d.Again = max(time.Duration(wait)*time.Microsecond, drawEvery)
	}
	if got == 0 {
		return drawn
	}
	d.after = until
	return until
}

// record records what was drawn and put back. mu is held.
func (d *Drawing) record(at instant.Instant) {
	d.back -= min(d.back, d.Back)
	if d.Want > 0 {
		d.tokens += d.Got
		d.drawn, d.askRate, d.drawnTo = at, at.Add(min(d.Again, max(drawAgain, d.Again/8))), d.after
	}
}

// frees reports whether others may have waited for long for what was put back.
func (d *Drawing) frees() bool {
	return d.Back > 0 && d.Got == 0 && d.limit.Rate > 0 && d.limit.Cost(1) > drawAgain.Microseconds()
}

// Draw locks a limit's row, and draws from its rate. If there is no rate any more, it gets all. One goroutine at a time may call it.
func (k *Keeper) Draw(ctx context.Context, d *Drawing) error {
	err := k.worker.DB().ShortTx(ctx, func(ctx context.Context, tx *sqlrun.Session) error {
		var now, drawn int64
		var ahead int
		d.limit = store.Limit{Queue: d.Queue.Name, Kind: d.Kind}
		reading := d.limit.Reading()
		args := sqlrun.Args{"queue": d.Queue.ID, "kind": d.Kind}
		err := tx.Get(ctx, store.LockLimit, args, append([]any{&now, &drawn, &ahead}, reading.RatePlaces()...)...)
		if reading.Done(); err == nil && d.limit.Wrong != "" { // it was written since the worker has read it
			err = fmt.Errorf("limit of queue %q and kind %q: %s", d.limit.Queue, d.limit.Kind, d.limit.Wrong)
		}
		if errors.Is(err, sql.ErrNoRows) || err == nil && d.limit.Rate == 0 {
			d.limit, d.Got, d.Again, d.after = store.Limit{}, d.Want, 0, d.drawnTo
			return nil
		}
		if err != nil {
			return err
		}
		if args["drawn"], args["ahead"], err = (&clock{tx: tx}).settle(ctx, d, now, drawn, ahead); err != nil || args["drawn"] == drawn {
			return err
		}
		_, err = tx.Exec(ctx, store.SetDrawn, args)
		return err
	})
	if err != nil {
		return err
	}
	k.mu.Lock()
	d.record(instant.Now())
	k.mu.Unlock()
	if d.frees() {
		k.worker.Announce(ctx)
	}
	return nil
}

// A clock reads the time once in a transaction: when it has its locks.
type clock struct {
	tx  *sqlrun.Session
	now int64
}

// settle does a drawing from a rate whose row is locked. It returns what the row is to say.
func (c *clock) settle(ctx context.Context, d *Drawing, now, drawn int64, ahead int) (until int64, rest int, err error) {
	owed := d.limit.Owed(now, drawn, ahead)
	if owed != drawn { // perhaps only by a time of before the wait for the lock
		if c.now == 0 {
			if err = c.tx.Get(ctx, store.ReadClock, nil, &c.now); err != nil {
				return 0, 0, err
			}
		}
		now = c.now
		owed = d.limit.Owed(now, drawn, ahead)
	}
	until = d.from(now, owed)
	return until, d.limit.AheadOf(now, until), nil
}

// balanceTokens draws for the jobs that wait at a limiter, and gives back unused tokens. It returns
// when to look again; 0: when needed.
func (k *Keeper) balanceTokens(ctx context.Context, l *Limiter) (time.Duration, error) {
	k.mu.Lock()
	none := l.limit.Rate == 0
	if none {
		l.tokens, l.back = 0, 0
	}
	k.mu.Unlock()
	if none {
		return 0, nil
	}
	demand := k.worker.Demand(l)
	k.mu.Lock()
	at, jobs := instant.Now(), l.needTokens(demand)
	d := l.draws(at, jobs, min(l.waiting(demand), l.limit.Ahead()))
	wait := max(0, l.askRate.Sub(at))
	if l.tokensFor(jobs) <= l.tokens {
		wait = 0
		if l.tokens > 0 {
			wait = store.DrawFor
		}
	}
	k.mu.Unlock()
	if d.Want == 0 && d.Back == 0 {
		return wait, nil
	}
	if err := k.Draw(ctx, d); err != nil {
		return time.Millisecond, err
	}
	k.mu.Lock()
	wait = max(time.Millisecond, l.askRate.Sub(instant.Now()))
	k.mu.Unlock()
	if d.Got > 0 {
		k.worker.Reopened(l, d.Got)
	}
	return wait, nil
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
		l.back, l.tokens = l.back+l.tokens, 0
		d := &Drawing{Limiter: l, Back: l.back}
		k.mu.Unlock()
		if d.Back == 0 {
			continue
		}
		if err := k.Draw(ctx, d); err != nil {
			k.log.Warn("unused permits of a rate could not be returned; fewer jobs begin for a while", "queue",
				l.Queue.Name, "kind", l.Kind, "jobs", d.Back, "err", err)
		}
	}
}
