package queue

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/internal/block"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// How a worker takes over checked out jobs of its blocks whose workers have ended.

// adoptAll takes over what a round has found, as far as there are places, those jobs first for
// which others wait. It lists those that are to run alone: see runner_trial.go.
func (run *runner) adoptAll(ctx context.Context, found *orphanSearch, name string) (failed error) {
	slices.SortStableFunc(found.orphans, func(a, b orphan) int { return cmp.Compare(block.RankOf(a.line), block.RankOf(b.line)) })
	var accused []orphan
	var full [trials]bool // a place that becomes free meanwhile belongs to the first that found none: to the next round
	for i := range found.orphans {
		o := &found.orphans[i]
		alone, err := run.adoptOne(ctx, o, name, &full)
		if failed = errors.Join(failed, err); err != nil && !run.flush.refuses(err) { // it does not concern this row alone
			return failed
		}
		if alone {
			accused = append(accused, *o)
		}
	}
	run.mu.Lock()
	defer run.mu.Unlock()
	run.lone.list(found.queues, accused)
	return failed
}

// turnOf returns the block of a job that may be taken over, or nil: the worker does not have it, or
// leaves it, or earlier jobs of the job's key wait. mu is held.
func (run *runner) turnOf(o *orphan) *tenure {
	b := o.q.blocks[o.divided]
	if b == nil || b.Leaving || run.closing || !b.TakesTurn(o.line, o.id) {
		return nil
	}
	return b
}

// adoptOne takes a job over if there is a place for it: full says for which trials this round has found none. It
// reports whether the job is to run alone, and waits for that where it is.
func (run *runner) adoptOne(ctx context.Context, o *orphan, name string, full *[trials]bool) (alone bool, err error) {
	run.mu.Lock()
	if run.lone.past[o.at(o.q)] { // as found, it is no more
		run.mu.Unlock()
		return false, nil
	}
	b, why := run.turnOf(o), run.trialOf(o.q, o.runningRow)
	room := b != nil
	switch {
	case !room:
		alone = why == accused // its turn may come before the next round
	case run.guilty(o.q, o.found()):
		room = !run.appeals(o.q, &o.runningRow)
	case why == accused && run.passes(o):
		room, alone = false, true
	case why != accused && (full[why] || !run.admits(why)):
		room, full[why], run.refused[why] = false, true, true
	}
	run.mu.Unlock()
	if !room {
		return alone, nil
	}
	return false, run.adopt(ctx, o, b, name, why, why.state(), func(d *Delivery) {
		if why == accused { // it waits for a limit
			run.park(d)
			return
		}
		run.queueUp(d)
	})
}

// passes reports whether nothing but its trial keeps a job from beginning: no limit, and no other
// worker that does its kind. Of which tenant it is, is known when it was taken over. mu is held.
func (run *runner) passes(o *orphan) bool {
	return run.choice.knows(o.kind) && !o.q.limits.PerTenant() && o.q.opens(o.q.limits.Own()) && o.q.opens(o.q.limiterOf(o.kind))
}

// queueUp has a job that was taken over begin when it is its turn. mu is held.
func (run *runner) queueUp(d *Delivery) {
	b := d.b
	d.weigh()
	b.Admit(&d.state)
	run.offer(b, 1)
}

// adopt takes a job over on a trial, counts the crash if its worker died, and gives it to begin,
// with mu held. A job that was convicted becomes a dead letter instead.
func (run *runner) adopt(
	ctx context.Context, o *orphan, b *tenure, name string, why trial, state string, begin func(*Delivery),
) error {
	run.mu.Lock()
	if why != trusted {
		run.onTrial[why]++
	}
	run.mu.Unlock()
	d, err := run.readAdopted(ctx, o, b, name, state)
	run.mu.Lock()
	defer run.mu.Unlock()
	if d == nil || err != nil || b.Gone {
		if why != trusted {
			run.onTrial[why]--
		}
		return err // adopted and not begun: if this process ends, its crashes stay the same
	}
	d.tryAs(why)
	run.out[d.at()], run.rows[d.at()] = d, d
	b.TakeIn(d.line(), d.ID)
	if found := o.found(); run.guilty(o.q, found) {
		d.state.Phase = block.PhaseEnded
		delete(run.out, d.at())
		run.acquit(d)
		b.Move(&move{
			d: d, verdict: buried, keep: keepOf(o.q.set), attempts: d.Attempt, crashes: d.Crashes, reason: run.verdictText(o.q, found),
		})
		run.enlist(b)
		return nil
	}
	begin(d)
	return nil
}

// readAdopted makes the row of a job this worker's, and returns the job; nil: somebody else has
// changed the row.
func (run *runner) readAdopted(ctx context.Context, o *orphan, b *tenure, name, state string) (*Delivery, error) {
	found := o.found()
	n, err := run.db.Exec(ctx, store.AdoptRunning, sqlrun.Args{
		"queue": o.q.id, "divided": o.divided, "id": o.id, "from": o.lockBy, "was": o.state, "had": o.charged, "node": name, "fence": b.fence,
		"state": state, "died": found.crashes - o.crashes, "lost": found.losses - o.losses, "charged": found.charged,
	})
	if err != nil || n == 0 {
		return nil, err
	}
	var d *Delivery
	step := &sqlrun.Step{
		Stmt: store.GetRunning, Args: sqlrun.Args{"queue": o.q.id, "divided": o.divided, "id": o.id, "node": name},
		Scan: func(row *sqlrun.Row) error {
			d = run.flush.reader(store.GetRunning, b, 1, nil).running(row)
			return nil
		},
	}
	return d, run.db.Pipeline(ctx, step)
}
