package queue

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"slices"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/internal/block"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// CompleteTx completes the job in a transaction of the handler's, on the same database: the
// effects of the transaction happen exactly once, if and when it commits, and in order for jobs
// of one key. tx is as for [Client.EnqueueTx]. After an [ErrLost] the transaction must be rolled
// back: the job has been done elsewhere. The handler commits, and returns nil.
func (d *Delivery) CompleteTx(ctx context.Context, tx dialect.Execer) error {
	run, b := d.runner(), d.b
	if run.opt.AtMostOnce {
		return invalid("complete", "a worker that removes jobs before they are done cannot complete them")
	}
	if !d.isStored() {
		run.mu.Lock()
		defer run.mu.Unlock()
		d.state.Tx = block.TxPinned
		return nil
	}
	if err := run.pin(ctx, d); err != nil {
		return err
	}
	run.mu.Lock()
	end := store.End{BlockID: b.at(), Node: run.lease.node, Keep: b.q.set.KeepDone}
	from, lost := d.state.From, d.hasEnded() || d.ctx.over
	var earlier []doneJobs
	if !lost {
		for _, part := range byTable(d.withhold()) {
			earlier = append(earlier, doneJobs{part[0].state.From, doneOf(part)})
		}
	}
	one := doneOf([]*Delivery{d}) // here, as the worker may end the job meanwhile: at its timeout, say
	run.mu.Unlock()
	if lost {
		return lostJob(d)
	}
	on := run.db.On(tx)
	for _, part := range earlier {
		if _, err := end.Remove(ctx, on, part.from, part.rows); err != nil {
			return err
		}
	}
	here, err := end.Remove(ctx, on, from, one)
	if err == nil && len(here) == 0 && from != tableRunning {
		// It may have been checked out, or may be about to be: see pin.
		here, err = end.Remove(ctx, on, tableRunning, one)
	}
	if err == nil && len(here) == 0 {
		err = run.whyUnseen(ctx, d, end.Node)
	}
	if err == nil {
		err = end.Release(ctx, on)
	}
	if outdated := run.db.Dialect.Outdated; err != nil && outdated != nil && outdated(err) {
		return fmt.Errorf("the transaction began, at REPEATABLE READ, before others changed a row that completing the job changes, "+
			"and is rolled back. Begin it after the long part of the work, or use READ COMMITTED: %w", err)
	}
	if err == nil {
		run.mu.Lock()
		defer run.mu.Unlock()
		d.state.Tx = block.TxCompleted
	}
	return err
}

// whyUnseen returns the error of a job whose row a handler's transaction does not see. It may be there all the same, under this worker's
// name: a transaction at REPEATABLE READ or SERIALIZABLE sees the tables as they were when it began.
func (run *runner) whyUnseen(ctx context.Context, d *Delivery, node string) error {
	lost := lostJob(d)
	args := sqlrun.Args{"queue": d.b.q.id, "divided": d.b.divided, "id": d.ID, "node": node}
	there, err := sqlrun.Select(ctx, &run.db.Session, store.GetRunning, args, func(*sql.Rows) (none struct{}, err error) { return none, nil })
	if err != nil || len(there) == 0 {
		return lost
	}
	return fmt.Errorf("%w: this worker still has it, but the transaction does not see that: it began, at REPEATABLE READ or SERIALIZABLE, "+
		"before the job moved to dbcron_job_running, as jobs do that run for seconds. Begin it after the long part of the work, or "+
		"use READ COMMITTED", lost)
}

// withhold returns the jobs of the job's key that have ended here and are not deleted yet, which its transaction
// deletes: see [block.Block.Withhold]. mu is held.
func (d *Delivery) withhold() []*Delivery {
	taken, sent, paused := d.b.Withhold(&d.state)
	x := cmp.Or(d.withheld, &withheld{})
	x.acks, x.paused = append(x.acks, taken...), append(x.paused, paused...)
	d.withheld = x
	all := deliveriesOf(slices.Concat(x.acks, sent))
	for _, r := range paused {
		all = append(all, deliveryOf(r.Job))
	}
	return all
}

// How long a completion waits for a check-out, and how long the other jobs of a batch stay
// in their tables after one was completed.
const (
	checkOutWait = time.Second
	mateStays    = 5 * time.Second
)

// pin keeps a job in its table, with those of its key that run in the same batch: a crash must
// not leave a later job checked out and an earlier one not. The rest of the batch stays, too,
// for a while: the same transaction will probably complete it.
//
// pin waits for a check-out under way, except on engines with one writer, where the handler's
// transaction is the writer. The check-out may in turn wait for a lock of that transaction, a
// circle that no server sees: InnoDB locks each row that a DELETE passes, and completing a job
// locks rows of groups. So pin waits for at most checkOutWait. Then a single job is completed
// all the same: the server orders the two statements, or finds the deadlock. A batch of a key
// is not, since part of it could be checked out.
func (run *runner) pin(ctx context.Context, d *Delivery) error {
	run.mu.Lock()
	defer run.mu.Unlock()
	batch, ofKey := run.batch(d), run.mates(d)
	now := instant.Now()
	for _, m := range batch {
		m.inPlaceUntil = max(m.inPlaceUntil, now.Add(mateStays))
		if m.state.Row == block.RowLeaving {
			m.b.KeepIn(&m.state)
		}
	}
	for _, m := range ofKey {
		m.state.Tx = max(m.state.Tx, block.TxPinned)
	}
	if run.db.Dialect.SkipLocked == "" {
		return nil
	}
	moving := func(m *Delivery) bool { return m.state.Row != block.RowFree }
	for slices.ContainsFunc(batch, moving) {
		if since(now) > checkOutWait {
			if len(ofKey) == 1 || !slices.ContainsFunc(ofKey, moving) {
				return nil
			}
			return fmt.Errorf("queue: job %d cannot be completed now: its batch is being checked out, which waits for a lock", d.ID)
		}
		if err := run.moment(ctx); err != nil {
			return err
		}
	}
	return nil
}

// batch returns the jobs that run in one batch with d, and d. mu is held.
func (slots *handlerSlots) batch(d *Delivery) []*Delivery {
	for _, unit := range slots.slots {
		if len(unit) > 1 && slices.Contains(unit, d) {
			return unit
		}
	}
	return []*Delivery{d}
}
