package queue

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// How the blocks of a queue are replaced when their number changes. Jobs enqueued from some
// moment on go to the blocks of a new generation; those of old generations are removed when
// they are empty. All producers know of that moment before it comes. So a job's id determines
// its generation, whoever enqueues it: of two jobs of a key, the earlier one is never in the
// later generation.

// current returns the blocks to work on: those of all generations that have begun or, in a queue with keys, of the
// oldest one only. It retires a generation that has no jobs left and will get none: all
// producers have known of the next one for long enough.
func (w *Worker) current(ctx context.Context, q *workQueue, rows []store.BlockRow) ([]store.BlockRow, error) {
	if len(rows) == 0 {
		return rows, nil
	}
	oldest := slices.MinFunc(rows, func(a, b store.BlockRow) int { return cmp.Compare(a.Generation, b.Generation) }).Generation
	old := slices.DeleteFunc(slices.Clone(rows), func(r store.BlockRow) bool { return r.Generation != oldest })
	if len(old) == len(rows) {
		return rows, nil
	}
	// Read the settings after the blocks: a queue has keys before it has a job with one.
	set, err := w.c.read(ctx, q.name)
	if err != nil {
		return nil, err
	}
	var empty bool
	var age int64
	args := sqlrun.Args{"queue": q.id, "generation": oldest, "first": old[0].Divided, "last": old[len(old)-1].Divided}
	if err := w.db.Get(ctx, store.DrainedBlocks, args, &empty, &age); err != nil {
		return nil, err
	}
	if empty && time.Duration(age)*time.Microsecond > store.ResizeAfter+2*Window {
		if err := w.retire(ctx, q, args, old); err != nil {
			return nil, err
		}
		w.mu.Lock()
		for _, r := range old {
			if b := q.blocks[r.Divided]; b != nil {
				w.drop(b, ErrLost)
			}
		}
		w.mu.Unlock()
		rows = slices.DeleteFunc(rows, func(r store.BlockRow) bool { return r.Generation == oldest })
		return w.current(ctx, q, rows)
	}
	if now := set.GenerationAt(w.c.clock.now()); now.Number > oldest {
		if err := w.forward(ctx, q, now, old); err != nil {
			return nil, err
		}
	}
	if set.Ordered {
		return old, nil
	}
	// The queue may get its first key before the next generation begins: then that has to wait for the old one. So
	// nobody has its blocks until no job of the old one can come any more.
	begun := set.GenerationAt(w.c.clock.now() - Window.Microseconds()).Number
	return slices.DeleteFunc(slices.Clone(rows), func(r store.BlockRow) bool { return r.Generation > max(begun, oldest) }), nil
}

// forward moves delayed jobs of this worker's blocks of an old generation to where they would
// be enqueued now: a generation must not have to wait for a job that is due in a year. It
// leaves jobs that are due soon, and retries that hold their keys, since the other jobs of
// these keys are still here.
func (w *Worker) forward(ctx context.Context, q *workQueue, to store.Generation, old []store.BlockRow) error {
	for _, r := range old {
		w.mu.Lock()
		b, node := q.blocks[r.Divided], w.lease.node
		w.mu.Unlock()
		if b == nil || node == "" {
			continue
		}
		for moved := store.Chunk; moved == store.Chunk && ctx.Err() == nil; {
			var err error
			if moved, err = w.forwardPart(ctx, b, to, node); err != nil && !errors.Is(err, errBlockLost) {
				return err
			}
		}
	}
	return nil
}

// A laterRow is a job to be moved to another block.
type laterRow struct {
	id        int64
	key, kind string
}

// forwardPart moves some jobs of a block, and returns their number. Jobs that the database
// refuses to move stay, and are tried again later.
func (w *Worker) forwardPart(ctx context.Context, b *tenure, to store.Generation, node string) (moved int, err error) {
	var part []laterRow
	write := func(only []laterRow) error {
		var twins []laterRow
		err := w.db.ShortTx(ctx, func(ctx context.Context, tx *sqlrun.Session) (err error) {
			part, twins, err = w.forwardSome(ctx, tx, b, to, node, only)
			return err
		})
		if err == nil {
			w.stickTwins(b, to, twins)
		}
		return err
	}
	err = write(nil)
	if !w.flush.refuses(err) {
		w.mu.Lock()
		defer w.mu.Unlock()
		for i := range part {
			w.unstick(b, part[i].id)
		}
		return len(part), err
	}
	all := slices.Clone(part)
	s := sifter[laterRow]{refuses: w.flush.refuses, write: func(some []laterRow) error {
		err := write(some)
		w.mu.Lock()
		defer w.mu.Unlock()
		for i := range some {
			if err == nil {
				w.unstick(b, some[i].id)
			}
		}
		return err
	}, refuse: func(row laterRow, err error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.book.stick(b, &row, err)
	}}
	return 0, s.halve(byKey(all, func(laterRow) string { return "" }), err)
}

// stickTwins records that jobs cannot be moved yet because another one waits in their new block that has their id.
func (w *Worker) stickTwins(b *tenure, to store.Generation, twins []laterRow) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range twins {
		r := &twins[i]
		w.book.stick(b, r, fmt.Errorf("a delayed job has the same id, %d, in block %d, where both belong since the number of blocks was changed: "+
			"this one stays in block %d until it is due, or until the other one has gone, and nothing has to be done",
			r.id, to.Block(r.key, r.id), b.divided))
	}
}

// forwardSome moves those of a block's jobs that are not due soon, or only the given ones. It leaves
// out those whose id another one has in their new block.
func (w *Worker) forwardSome(ctx context.Context, tx *sqlrun.Session, b *tenure, to store.Generation, node string,
	only []laterRow,
) (moved, twins []laterRow, err error) {
	args := sqlrun.Args{
		"queue": b.q.id, "divided": b.divided, "fence": b.fence, "node": node, "soon": Window.Microseconds(),
		"limit": store.Chunk,
	}
	all, err := sqlrun.Select(ctx, tx, store.LockLater, args, func(rows *sql.Rows) (r laterRow, err error) {
		var key sql.NullString
		err = rows.Scan(&r.id, &key, &r.kind)
		r.key = key.String
		return r, err
	})
	if err != nil {
		return nil, nil, err
	}
	if all = w.mayMove(b, all, only); len(all) == 0 {
		return nil, nil, nil
	}
	rows := make([]sqlrun.Args, len(all))
	for i, r := range all {
		rows[i] = sqlrun.Args{"queue": b.q.id, "block": b.divided, "job": r.id, "target": to.Block(r.key, r.id)}
	}
	rows, ids, err := withRoom(ctx, tx, b, rows)
	if err != nil {
		return nil, nil, err
	}
	for _, r := range all {
		if slices.Contains(ids, r.id) {
			moved = append(moved, r)
		} else {
			twins = append(twins, r)
		}
	}
	if len(rows) == 0 {
		return nil, twins, nil
	}
	if _, err := tx.Exec(ctx, store.DivideAnew, sqlrun.Args{"to": b.q.id, "rows": rows}); err != nil {
		return moved, nil, err
	}
	if n, err := tx.Exec(ctx, store.AckDelayed, store.JobArgs(b.q.id, b.divided, 0, ids)); err != nil || n != int64(len(ids)) {
		return moved, nil, store.Short(err, n, len(ids))
	}
	return moved, twins, holds(ctx, tx, b, node)
}

// mayMove leaves out jobs that were refused a moment ago, or that are not among the given ones.
// It forgets refused jobs that no longer exist.
func (w *Worker) mayMove(b *tenure, all, only []laterRow) []laterRow {
	w.mu.Lock()
	defer w.mu.Unlock()
	if only == nil {
		for id := range b.stuck {
			if !slices.ContainsFunc(all, func(r laterRow) bool { return r.id == id }) {
				w.unstick(b, id)
			}
		}
	}
	at := instant.Now()
	return slices.DeleteFunc(all, func(r laterRow) bool {
		if only != nil {
			return !slices.Contains(only, r)
		}
		stuck := b.stuck[r.id]
		return stuck != nil && at < stuck.Next
	})
}

// withRoom leaves out jobs that cannot be moved yet because another job with their id waits in
// the target block. If one arrives there just now, the transaction fails, and the next one sees
// it.
func withRoom(ctx context.Context, tx *sqlrun.Session, b *tenure,
	rows []sqlrun.Args,
) (left []sqlrun.Args, ids []int64, err error) {
	byTarget, taken := map[int][]int64{}, map[int64]bool{}
	for _, row := range rows {
		target := row["target"].(int)
		byTarget[target] = append(byTarget[target], row["job"].(int64))
	}
	for target, wanted := range byTarget {
		there, err := sqlrun.Select(ctx, tx, store.PresentDelayed, store.JobArgs(b.q.id, target, 0, wanted), store.ScanID)
		if err != nil {
			return nil, nil, err
		}
		for _, id := range there {
			taken[id] = true
		}
	}
	for _, row := range rows {
		if id := row["job"].(int64); !taken[id] {
			left, ids = append(left, row), append(ids, id)
		}
	}
	return left, ids, nil
}

// recall recreates retired blocks for jobs that arrived in them late: their producer was
// suspended for long.
func (s *sweeper) recall(ctx context.Context, q *workQueue, rows []store.BlockRow) error {
	var gaps []sqlrun.Args
	last := -1
	for _, r := range rows {
		if r.Divided > last+1 {
			gaps = append(gaps, sqlrun.Args{"above": last, "below": r.Divided})
		}
		last = r.Divided
	}
	if len(gaps) == 0 {
		return nil
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
	if err != nil {
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
	}
	return nil
}
