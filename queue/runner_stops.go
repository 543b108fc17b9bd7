package queue

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/pace"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/internal/block"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// A job may be the reason why its worker is stopped: package stops has the rules. A job that is handed back
// soon after its begin becomes a delayed job, whose row has the count, even if it does not pause. Its key
// waits for it. Each other end of its attempt leaves the count at 0: done, failed, snoozed, handed back
// later, or the death of its worker.

// begunSoon reports whether a job had begun soon before the stop, and how long before. One that has a slot and waits
// there to run alone has not begun. mu is held.
func (run *runner) begunSoon(d *Delivery) (after time.Duration, ok bool) {
	after = max(0, run.halt.at.Sub(d.began))
	return after, run.halt.at != 0 && d.began != 0 && after < pace.Soon && !d.trial.unbegun && (run.lone.d != d || run.lone.began)
}

// findSuspects counts the jobs that are about to be handed back, and had begun soon before the stop. mu is held.
func (run *runner) findSuspects() {
	if !run.closing {
		run.halt.at = instant.Now() // only who has received the jobs stops
	}
	run.halt.suspects = 0
	for d := range run.underWay() {
		if _, ok := run.begunSoon(d); ok {
			run.halt.suspects++
		}
	}
}

// underWay lists the jobs that have begun and not returned. mu is held.
func (slots *handlerSlots) underWay() func(yield func(*Delivery) bool) {
	return func(yield func(*Delivery) bool) {
		for _, unit := range slots.slots {
			for _, d := range unit {
				if !yield(d) {
					return
				}
			}
		}
		for d := range slots.taken {
			if !yield(d) {
				return
			}
		}
	}
}

// handsBack returns the move of a job that is handed back; ok is false if its row stays as it is, for
// whoever takes the block next. mu is held.
func (run *runner) handsBack(d *Delivery, err error, after time.Duration) (m *move, ok bool) {
	var chosen *result
	errors.As(err, &chosen)
	ran, soon := run.begunSoon(d)
	if chosen == nil && !soon && (d.Stops == 0 || d.state.From != tableDelayed) {
		return m, false
	}
	set, ordered := d.b.q.set, d.line() != ""
	m = newMove(d, set, run.policy(d), ordered, &result{err, handed, after}, "")
	m.reason, m.holds = "handed back: the worker was stopped", ordered
	if soon {
		m.stops = d.Stops + 1
		v := pace.Judge("worker", m.stops, run.halt.suspects == 1, ran, rand.Float64())
		m.delay, m.reason = max(after, v.Pause), v.Why
		if v.Fails {
			m.verdict, m.attempts, m.detail, m.holds, m.err = buried, d.Attempt, limitText(err.Error(), 32000), false, errors.New(v.Why)
			return m, true
		}
	}
	switch {
	case m.delay > 0:
		m.holds = ordered && set.KeyRetry == "hold"
	case run.closing: // it keeps its place among the others
		m.delay = min(0, time.Duration(cmp.Or(d.state.RunAt, store.TimeOf(d.ID).UnixMicro())-run.c.clock.now())*time.Microsecond)
	}
	return m, true
}

// heedHandBacks counts the suspects if some outcomes are those of HandBack, before the first one is recorded. mu is held.
func (run *runner) heedHandBacks(all []tried) {
	if run.closing && run.halt.suspects > 0 {
		return // it was the same stop
	}
	if slices.ContainsFunc(all, func(t tried) bool {
		r, ok := t.err.(*result) //nolint:errorlint // see answerOf
		return ok && r.what == handed
	}) {
		run.findSuspects()
	}
}

// handLate writes the moves of jobs that are handed back though their handlers have not returned. mu is not held.
func (run *runner) handLate(ctx context.Context, b *tenure, node string, moves []*move) error {
	err := run.flush.commitMoves(ctx, b, node, moves)
	switch {
	case errors.Is(err, errBlockLost), run.flush.refuses(err): // they begin again, as they are
		return nil
	case err != nil:
		return err
	}
	run.mu.Lock()
	defer run.mu.Unlock()
	for _, m := range moves {
		run.moved(m, node)
	}
	return nil
}

// lateMoves takes the jobs out that are to be handed back though their handlers have not returned, by block. mu is held.
func (run *runner) lateMoves() map[*tenure][]*move {
	all := map[*tenure][]*move{}
	for d := range run.underWay() {
		if d.hasEnded() || d.state.Row != block.RowFree || d.state.Tx != block.TxNone || run.opt.AtMostOnce ||
			d.b.Gone && d.state.From != tableRunning {
			continue
		}
		if m, ok := run.handsBack(d, errHandedOver, 0); ok {
			d.state.Phase = block.PhaseEnded
			delete(run.out, d.at())
			run.settled(d, ErrLost) // whatever is said of it from now on
			all[d.b] = append(all[d.b], m)
		}
	}
	return all
}

// acquitPaused lets the jobs of the worker's queues begin that pause, because this worker is stopped without them. If
// it fails, they pause on.
func (run *runner) acquitPaused(ctx context.Context) {
	run.mu.Lock()
	ids := idsOfQueues(run.queues)
	run.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second) // the stop does not wait for it for long
	defer cancel()
	found := map[store.BlockID][]int64{}
	err := run.db.ShortTx(ctx, func(ctx context.Context, tx *sqlrun.Session) error {
		args := sqlrun.Args{"queues": store.IDList(ids), "since": -pace.Soon.Microseconds(), "stops": pace.Suspicious, "limit": store.Chunk}
		clear(found)
		_, err := sqlrun.Select(ctx, tx, store.LockPaused, args, func(rows *sql.Rows) (none struct{}, err error) {
			var at store.JobID
			err = rows.Scan(&at.Queue, &at.Divided, &at.ID)
			found[at.BlockID] = append(found[at.BlockID], at.ID)
			return none, err
		})
		for at, jobs := range found {
			if err == nil {
				_, err = tx.Exec(ctx, store.AcquitPaused, store.JobArgs(at.Queue, at.Divided, 0, jobs))
			}
		}
		return err
	})
	if err != nil {
		run.log.Warn("jobs that pause since workers were stopped could not be told that this one stops without them", "err", err)
	}
	for at, jobs := range found {
		if err == nil {
			run.log.Info("jobs that paused since workers were stopped begin: this one is stopped without them", "block", at, "ids", jobs)
		}
	}
}
