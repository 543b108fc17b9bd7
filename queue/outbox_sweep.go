package queue

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"time"

	"github.com/dbcron/dbcron/internal/pace"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/internal/trouble"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// What every worker removes from time to time, in small transactions: remains of processes, and
// jobs and keys that have expired. Several may do so at once.

// sweepEvery is the interval between sweeps.
const sweepEvery = time.Minute

// A sweeper removes them.
type sweeper struct {
	*core
	life *lifetime
}

// sweepOften sweeps until ctx ends or the worker is stopped. Nothing else waits for it: there
// may be very much to remove.
func (s *sweeper) sweepOften(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		defer cancel()
		select {
		case <-ctx.Done():
		case <-s.life.stopping:
		}
	}()
	trouble := trouble.New(s.log, "removing leftover rows")
	for {
		err := s.sweep(ctx)
		if ctx.Err() != nil {
			return
		}
		trouble.Note(err)
		if !pace.Sleep(ctx, sweepEvery) {
			return
		}
	}
}

// sweep removes the remains of processes that ended long ago.
func (s *sweeper) sweep(ctx context.Context) error {
	long := sqlrun.Args{"since": -time.Hour.Microseconds()}
	_, err1 := s.db.Exec(ctx, store.ExpelIdleNodes, long)
	_, err2 := s.db.Exec(ctx, store.ForgetNodes, long)
	_, err3 := s.db.Exec(ctx, store.ForgetWorkers, nil)
	_, err4 := s.db.Exec(ctx, store.SweepPermits, nil)
	_, err5 := s.db.Exec(ctx, store.SweepTenants, sqlrun.Args{"since": -time.Minute.Microseconds()})
	err := errors.Join(err1, err2, err3, err4, err5, s.purge(ctx, store.OutdatedDead, sqlrun.Args{}, store.PurgeDead),
		s.purge(ctx, store.OutdatedDone, sqlrun.Args{}, store.PurgeDone),
		s.purge(ctx, store.OldKeys, sqlrun.Args{}, store.PassKeys), s.c.purgeGroups(ctx), s.c.purgeCounts(ctx), s.c.sweepRefusals(ctx))
	s.mu.Lock()
	queues, keep := s.queues, map[int]int{}
	for _, q := range queues {
		if q.set != nil && q.set.KeepDeadMax > 0 {
			keep[q.id] = q.set.KeepDeadMax
		}
	}
	s.mu.Unlock()
	blocks, failed := s.c.readBlocks(ctx, idsOfQueues(queues))
	err = errors.Join(err, failed)
	for _, q := range queues {
		err = errors.Join(err, s.recall(ctx, q, blocks[q.id]))
	}
	for id, n := range keep {
		err = errors.Join(err, s.purgeSurplus(ctx, id, n))
	}
	return err
}

// purgeSurplus removes the oldest dead jobs of a queue beyond the limit. It removes fewer if
// somebody else removes or retries some meanwhile.
func (s *sweeper) purgeSurplus(ctx context.Context, queue, keep int) error {
	args := sqlrun.Args{"queue": queue, "keep": keep}
	var most int64
	if err := s.db.Get(ctx, store.SurplusOf, args, &most); err != nil {
		if errors.Is(err, sql.ErrNoRows) {
			err = nil
		}
		return err
	}
	args["most"] = most
	return s.purge(ctx, store.SurplusDead, args, store.PurgeDead)
}

// purge removes, in small transactions, what outdated finds, such as expired dead jobs, or unique keys.
func (s *sweeper) purge(ctx context.Context, outdated *sqlrun.Stmt, args sqlrun.Args, remove *sqlrun.Stmt) error {
	args["limit"] = store.Chunk
	for ctx.Err() == nil {
		n := 0
		err := s.db.ShortTx(ctx, func(ctx context.Context, tx *sqlrun.Session) error {
			byBlock, uniques := map[store.BlockID][]int64{}, map[store.BlockID][]string{}
			_, err := sqlrun.Select(ctx, tx, outdated, args, func(rows *sql.Rows) (id int64, err error) {
				var at store.BlockID
				var unique string
				err = rows.Scan(&at.Queue, &at.Divided, &id, &unique)
				byBlock[at], uniques[at] = append(byBlock[at], id), append(uniques[at], unique)
				return id, err
			})
			if err != nil {
				return err
			}
			n = 0
			for at, ids := range byBlock { // whose rows are locked
				n += len(ids)
				args := store.JobArgs(at.Queue, at.Divided, 0, ids)
				args["uniques"] = uniques[at]
				if _, err := tx.Exec(ctx, remove, args); err != nil {
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

// recall recreates retired blocks for jobs that arrived in them late: their producer was
// suspended for long. A look finds the first one of each gap between the blocks that are there.
func (s *sweeper) recall(ctx context.Context, q *workQueue, rows []store.BlockRow) error {
	there := make([]int, len(rows))
	for i := range rows {
		there[i] = rows[i].Divided
	}
	for {
		found, err := s.strays(ctx, q, there)
		if err != nil || len(found) == 0 {
			return err
		}
		for divided := range found {
			_, err = s.db.Exec(ctx, store.CreateBlocks, sqlrun.Args{"rows": []sqlrun.Args{{
				"queue": q.id, "divided": divided,
				"generation": 0, "fifo": "no",
			}}})
			if err != nil && !s.db.Dialect.Duplicate(err) { // another worker may have been first
				return err
			}
			there = append(there, divided)
		}
		slices.Sort(there)
	}
}

// strays returns blocks that are not there, and have jobs: the first of each gap.
func (s *sweeper) strays(ctx context.Context, q *workQueue, there []int) (map[int]bool, error) {
	var gaps []sqlrun.Args
	last := -1
	for _, divided := range there {
		if divided > last+1 {
			gaps = append(gaps, sqlrun.Args{"above": last, "below": divided})
		}
		last = divided
	}
	if len(gaps) == 0 {
		return nil, nil
	}
	found := map[int]bool{}
	err := s.db.Pipeline(ctx, &sqlrun.Step{ // so that its plan is cached
		Stmt: store.StrayBlocks, Args: sqlrun.Args{"queue": q.id, "gaps": gaps},
		Scan: func(row *sqlrun.Row) error {
			for column := range 2 {
				if !row.Null(column) {
					found[int(row.Int(column))] = true
				}
			}
			return nil
		},
	})
	return found, err
}
