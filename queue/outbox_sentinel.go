package queue

import (
	"context"

	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// While an old snapshot exists, deleted rows stay, and MariaDB walks over them: see
// store/sentinel.go. A worker places the sentinels of a block once it has done so many of its
// jobs that the walk would cost more than the sentinels. They only affect speed: nothing
// depends on them.

// sentinelsAfter is the number of jobs of a block after which its sentinels are placed.
const sentinelsAfter = 1000

// wantsSentinels reports whether to place a block's sentinels.
func (f *flusher) wantsSentinels(b *tenure) bool {
	return f.db.Dialect.PassesEnds && b.deleted >= sentinelsAfter && !b.sentinels
}

// placeSentinels places the sentinels of a block that is this worker's. A process that retires
// its blocks removes them: it either waits for this, or was first. If one exists, all do. After
// a failure it is tried again after as many jobs.
func (f *flusher) placeSentinels(ctx context.Context, t *trip) {
	args := store.SentinelArgs(t.b.q.id, t.b.divided)
	err := f.db.ShortTx(ctx, func(ctx context.Context, tx *sqlrun.Session) error {
		if err := holds(ctx, tx, t.b, t.node); err != nil {
			return err
		}
		for _, stmt := range []*sqlrun.Stmt{store.PlaceReadySentinels, store.PlaceDelayedSentinel} {
			if _, err := tx.Exec(ctx, stmt, args); err != nil {
				return err
			}
		}
		return nil
	})
	if t.placed = err == nil || f.db.Dialect.Duplicate(err); !t.placed {
		f.log.Debug("placed no sentinels, which make reads cheaper under old snapshots", "queue", t.b.q.name, "block", t.b.divided, "err", err)
	}
}

// recordDeletions counts the rows that a round has deleted. mu is held.
func (box *outbox) recordDeletions(t *trip) {
	b := t.b
	if t.sentinels {
		b.deleted, b.sentinels = 0, t.placed
	}
	b.deleted += len(t.ended) + len(t.moved)
	if box.opt.AtMostOnce { // it deletes what it reads
		b.deleted += len(t.fresh) + len(t.ripe)
	}
}
