package queue

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"

	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// Delayed jobs of blocks that are to be replaced: see holder_generation.go.

// forward moves delayed jobs of this worker's blocks of an old generation to where they would
// be enqueued now: a generation must not have to wait for a job that is due in a year. It
// leaves jobs that are due soon, and retries that hold their keys, since the other jobs of
// these keys are still here.
func (box *outbox) forward(ctx context.Context, q *workQueue, to store.Generation, old []store.BlockRow) error {
	for _, r := range old {
		box.mu.Lock()
		b, node := q.blocks[r.Divided], box.h.lease.node
		box.mu.Unlock()
		if b == nil || node == "" {
			continue
		}
		for moved := store.Chunk; moved == store.Chunk && ctx.Err() == nil; {
			var err error
			if moved, err = box.forwardPart(ctx, b, to, node); err != nil && !errors.Is(err, errBlockLost) {
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
func (box *outbox) forwardPart(ctx context.Context, b *tenure, to store.Generation, node string) (moved int, err error) {
	var part []laterRow
	write := func(only []laterRow) error {
		var twins []laterRow
		err := box.db.ShortTx(ctx, func(ctx context.Context, tx *sqlrun.Session) (err error) {
			part, twins, err = box.forwardSome(ctx, tx, b, to, node, only)
			return err
		})
		if err == nil {
			box.stickTwins(b, to, twins)
		}
		return err
	}
	err = write(nil)
	if !box.refuses(err) {
		box.mu.Lock()
		defer box.mu.Unlock()
		for i := range part {
			box.unstick(b, part[i].id)
		}
		return len(part), err
	}
	all := slices.Clone(part)
	s := sifter[laterRow]{refuses: box.refuses, write: func(some []laterRow) error {
		err := write(some)
		box.mu.Lock()
		defer box.mu.Unlock()
		for i := range some {
			if err == nil {
				box.unstick(b, some[i].id)
			}
		}
		return err
	}, refuse: func(row laterRow, err error) {
		box.mu.Lock()
		defer box.mu.Unlock()
		box.book.stick(b, &row, err)
	}}
	return 0, s.halve(byKey(all, func(laterRow) string { return "" }), err)
}

// stickTwins records that jobs cannot be moved yet because another one waits in their new block that has their id.
func (box *outbox) stickTwins(b *tenure, to store.Generation, twins []laterRow) {
	box.mu.Lock()
	defer box.mu.Unlock()
	for i := range twins {
		r := &twins[i]
		box.book.stick(b, r, fmt.Errorf("a delayed job has the same id, %d, in block %d, where both belong since the number of blocks was changed: "+
			"this one stays in block %d until it is due, or until the other one has gone, and nothing has to be done",
			r.id, to.Block(r.key, r.id), b.divided))
	}
}

// forwardSome moves those of a block's jobs that are not due soon, or only the given ones. It leaves
// out those whose id another one has in their new block.
func (box *outbox) forwardSome(ctx context.Context, tx *sqlrun.Session, b *tenure, to store.Generation, node string,
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
	if all = box.mayMove(b, all, only); len(all) == 0 {
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
func (box *outbox) mayMove(b *tenure, all, only []laterRow) []laterRow {
	box.mu.Lock()
	defer box.mu.Unlock()
	if only == nil {
		for id := range box.book.stuck[b] {
			if !slices.ContainsFunc(all, func(r laterRow) bool { return r.id == id }) {
				box.unstick(b, id)
			}
		}
	}
	at := instant.Now()
	return slices.DeleteFunc(all, func(r laterRow) bool {
		if only != nil {
			return !slices.Contains(only, r)
		}
		stuck := box.book.stuck[b][r.id]
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
