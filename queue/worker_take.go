package queue

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"

	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/internal/board"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// Which free blocks a worker takes: those of its share at once, and after a moment also those of
// another worker's share that nobody has taken. That worker may be dead and not yet expired,
// unable to take blocks, or a row that outlives its process: no block waits for it while another
// worker has room.

// vacantAfter is how long a block is free before a worker takes it beyond its share: longer than
// its rightful worker needs to find it.
const vacantAfter = 3 * shareEvery

// A vacancy is a block that was free when the worker read the blocks.
type vacancy struct {
	fence int64
	from  instant.Instant // when it was first seen free
}

// freeBlocks lists the blocks that anybody may take: those that have waited longest first,
// and of those that were never had, any.
func freeBlocks(rows []store.BlockRow) []store.BlockRow {
	free := slices.DeleteFunc(slices.Clone(rows), func(r store.BlockRow) bool { return !r.Free() })
	rand.Shuffle(len(free), func(i, j int) { free[i], free[j] = free[j], free[i] })
	slices.SortStableFunc(free, func(a, b store.BlockRow) int { return cmp.Compare(a.LockAt, b.LockAt) })
	return free
}

// vacantBlocks returns the blocks that have been free for so long that they are taken beyond the
// worker's share.
func (w *Worker) vacantBlocks(q *workQueue, all []workerRow, name string, rows []store.BlockRow) (vacant map[int]bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	at, had := instant.Now(), q.vacant
	q.vacant, vacant = map[int]vacancy{}, map[int]bool{}
	may := !q.busy && !w.closing && !othersMove(all, name)
	for _, r := range rows {
		if !r.Free() {
			continue
		}
		v := had[r.Divided]
		if v.from == 0 || v.fence != r.Fence {
			v = vacancy{r.Fence, at}
		}
		q.vacant[r.Divided] = v
		vacant[r.Divided] = may && at.Sub(v.from) >= vacantAfter
	}
	return vacant
}

// othersMove reports whether somebody else is to have all blocks of a queue, to move jobs.
func othersMove(all []workerRow, name string) bool {
	return slices.ContainsFunc(all, func(r workerRow) bool { return r.inTime && r.busy == busyMoving && r.node != name })
}

// takeFree takes up to n free blocks, and vacant ones. A block that cannot be taken does not
// prevent others.
func (w *Worker) takeFree(ctx context.Context, q *workQueue, free []store.BlockRow, vacant map[int]bool, name string, n int) (err error) {
	for i := range free {
		r := &free[i]
		if n <= 0 && !vacant[r.Divided] {
			continue
		}
		got, e := w.takeOne(ctx, q, r, name)
		err = errors.Join(err, e)
		if e != nil && (ctx.Err() != nil || w.db.Dialect.Unavailable(e)) {
			break
		}
		if !got {
			continue
		}
		if n--; n < 0 {
			w.keepBlock(q, r.Divided)
		}
	}
	return err
}

// keepBlock keeps a block that was taken beyond the worker's share for a while.
func (w *Worker) keepBlock(q *workQueue, divided int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if b := q.blocks[divided]; b != nil {
		b.kept = instant.Now()
	}
}

func (w *Worker) takeOne(ctx context.Context, q *workQueue, r *store.BlockRow, name string) (bool, error) {
	w.mu.Lock()
	reads := w.reads.size
	w.mu.Unlock()
	args := sqlrun.Args{"queue": q.id, "divided": r.Divided, "fence": r.Fence, "node": name, "batch": max(w.opt.Batch, reads), "left": 0}
	if r.Left {
		args["left"] = 1
	}
	n, err := w.db.Exec(ctx, store.TakeBlock, args)
	if err != nil || n == 0 {
		return false, err
	}
	b := &block{
		q: q, divided: r.Divided, fence: r.Fence + 1, since: w.c.clock.now(), seen: map[int64]*Delivery{}, keyQueues: map[string]*keyQueue{},
		reads: board.Reads{Dirty: true, Unseen: true}, dues: board.Dues{Ripe: true}, keyed: q.set.Ordered || r.FIFO, fifo: r.FIFO,
		forKind: r.ForKind, from: instant.Now(), batch: reads, says: reads,
	}
	if r.State != "FREE" && !r.Left {
		b.accused = r.Suspects + 1
		if !w.opt.Isolated && !w.opt.AtMostOnce {
			b.suspect = suspicion(r.Batch, b.accused)
		}
		w.log.Info("took a block over from a worker that was lost", "queue", q.name, "block", r.Divided, "from", r.LockBy)
	}
	if err := w.findHeld(ctx, b); err != nil {
		_, _ = w.db.Exec(ctx, store.HandOverBlock, sqlrun.Args{
			"queue": q.id, "divided": r.Divided, "fence": b.fence, "node": name, "kind": r.ForKind,
		})
		return false, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.lease.node != name {
		return false, nil // others take it when they see that this process is gone
	}
	if w.closing {
		b.leaving = true // drain will see that
	}
	q.blocks[r.Divided], q.known = b, false
	w.enlist(b)
	return true, nil
}
