package queue

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/internal/trouble"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// What every worker removes from time to time: what is left of processes, jobs and keys whose
// time is over, in small transactions. Several may do so at once.

// sweepEvery is how often a worker sweeps.
const sweepEvery = time.Minute

// sweepOften sweeps until ctx ends or the worker is being stopped. Nothing else waits for it:
// there may be very much to remove.
func (w *Worker) sweepOften(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		defer cancel()
		select {
		case <-ctx.Done():
		case <-w.stopping:
		}
	}()
	trouble := trouble.New(w.log, "removing leftover rows")
	for {
		err := w.sweep(ctx)
		if ctx.Err() != nil {
			return
		}
		trouble.Note(err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(sweepEvery):
		}
	}
}

// sweep removes what is left of processes that ended long ago.
func (w *Worker) sweep(ctx context.Context) error {
	long := sqlrun.Args{"since": -time.Hour.Microseconds()}
	_, err1 := w.db.Exec(ctx, store.ExpelIdleNodes, long)
	_, err2 := w.db.Exec(ctx, store.ForgetNodes, long)
	_, err3 := w.db.Exec(ctx, store.ForgetWorkers, nil)
	_, err4 := w.db.Exec(ctx, store.SweepPermits, nil)
	err := errors.Join(err1, err2, err3, err4, w.purge(ctx, store.OutdatedDead, sqlrun.Args{}, store.PurgeDead),
		w.purge(ctx, store.OutdatedDone, sqlrun.Args{}, store.PurgeDone),
		w.purge(ctx, store.OldKeys, sqlrun.Args{}, store.PurgeKeys), w.c.purgeGroups(ctx), w.c.purgeCounts(ctx), w.c.sweepRefusals(ctx))
	w.mu.Lock()
	queues, keep := w.queues, map[int]int{}
	for _, q := range queues {
		if q.set != nil && q.set.KeepDeadMax > 0 {
			keep[q.id] = q.set.KeepDeadMax
		}
	}
	w.mu.Unlock()
	blocks, failed := w.c.readBlocks(ctx, idsOfQueues(queues))
	err = errors.Join(err, failed)
	for _, q := range queues {
		err = errors.Join(err, w.recall(ctx, q, blocks[q.id]))
	}
	for id, n := range keep {
		err = errors.Join(err, w.purgeSurplus(ctx, id, n))
	}
	return err
}

// purgeSurplus removes the oldest dead jobs of a queue but for so many. What somebody else
// removes or retries meanwhile makes it fewer.
func (w *Worker) purgeSurplus(ctx context.Context, queue, keep int) error {
	args := sqlrun.Args{"queue": queue, "keep": keep}
	var most int64
	if err := w.db.Get(ctx, store.SurplusOf, args, &most); err != nil {
		if errors.Is(err, sql.ErrNoRows) {
			err = nil
		}
		return err
	}
	args["most"] = most
	return w.purge(ctx, store.SurplusDead, args, store.PurgeDead)
}

// purge removes what outdated finds, such as dead jobs whose time is over, by a statement
// and in small transactions.
func (w *Worker) purge(ctx context.Context, outdated *sqlrun.Stmt, args sqlrun.Args, remove *sqlrun.Stmt) error {
	args["limit"] = store.Chunk
	for ctx.Err() == nil {
		n := 0
		err := w.db.ShortTx(ctx, func(ctx context.Context, tx *sqlrun.Session) error {
			byBlock := map[store.BlockID][]int64{}
			_, err := sqlrun.Select(ctx, tx, outdated, args, func(rows *sql.Rows) (id int64, err error) {
				var at store.BlockID
				err = rows.Scan(&at.Queue, &at.Divided, &id)
				byBlock[at] = append(byBlock[at], id)
				return id, err
			})
			if err != nil {
				return err
			}
			n = 0
			for at, ids := range byBlock { // whose rows are locked
				n += len(ids)
				if _, err := tx.Exec(ctx, remove, store.JobArgs(at.Queue, at.Divided, 0, ids)); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil || n < store.Chunk {
			return err
		}
	}
	return nil
}
