package queue

import (
	"cmp"
	"context"
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
func (h *holder) current(ctx context.Context, q *workQueue, rows []store.BlockRow) ([]store.BlockRow, error) {
	if len(rows) == 0 {
		return rows, nil
	}
	oldest := slices.MinFunc(rows, func(a, b store.BlockRow) int { return cmp.Compare(a.Generation, b.Generation) }).Generation
	old := slices.DeleteFunc(slices.Clone(rows), func(r store.BlockRow) bool { return r.Generation != oldest })
	if len(old) == len(rows) {
		return rows, nil
	}
	// Read the settings after the blocks: a queue has keys before it has a job with one.
	set, err := h.c.read(ctx, q.name)
	if err != nil {
		return nil, err
	}
	var empty bool
	var age int64
	args := sqlrun.Args{"queue": q.id, "generation": oldest, "first": old[0].Divided, "last": old[len(old)-1].Divided}
	if err := h.db.Get(ctx, store.DrainedBlocks, args, &empty, &age); err != nil {
		return nil, err
	}
	// If the database's clock was set forward, not all producers have noticed that yet, and may still enqueue by the old time.
	closed := h.c.clock.closed(instant.Now())
	passed := closed > set.After(oldest).From+2*Window.Microseconds()
	if empty && passed && time.Duration(age)*time.Microsecond > store.ResizeAfter+2*Window {
		if err := h.retire(ctx, q, args, old); err != nil {
			return nil, err
		}
		h.mu.Lock()
		for _, r := range old {
			if b := q.blocks[r.Divided]; b != nil {
				h.occupants.drop(b, ErrLost)
			}
		}
		h.mu.Unlock()
		rows = slices.DeleteFunc(rows, func(r store.BlockRow) bool { return r.Generation == oldest })
		return h.current(ctx, q, rows)
	}
	if now := set.GenerationAt(h.c.clock.now()); now.Number > oldest {
		if err := h.occupants.forward(ctx, q, now, old); err != nil {
			return nil, err
		}
	}
	if set.Ordered {
		return old, nil
	}
	// The queue may get its first key before the next generation begins: then that has to wait for the old one. So
	// nobody has its blocks until no job of the old one can come any more.
	begun := set.GenerationAt(closed - Window.Microseconds()).Number
	return slices.DeleteFunc(slices.Clone(rows), func(r store.BlockRow) bool { return r.Generation > max(begun, oldest) }), nil
}

// retire removes the blocks of a drained generation, and then their sentinels: whoever places
// some has locked the block's row before.
func (h *holder) retire(ctx context.Context, q *workQueue, generation sqlrun.Args, blocks []store.BlockRow) error {
	return h.db.ShortTx(ctx, func(ctx context.Context, tx *sqlrun.Session) error {
		if _, err := tx.Exec(ctx, store.RetireBlocks, generation); err != nil || !h.db.Dialect.PassesEnds {
			return err
		}
		for _, r := range blocks {
			args := store.SentinelArgs(q.id, r.Divided)
			for _, stmt := range []*sqlrun.Stmt{store.RemoveReadySentinels, store.RemoveDelayedSentinel} {
				if _, err := tx.Exec(ctx, stmt, args); err != nil {
					return err
				}
			}
		}
		return nil
	})
}
