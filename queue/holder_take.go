package queue

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"slices"

	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/internal/block"
	"github.com/dbcron/dbcron/queue/internal/share"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// vacantAfter is how long a block is free before a worker takes it beyond its share: longer than
// its rightful worker needs to find it.
const vacantAfter = 3 * shareEvery

// vacantBlocks returns the blocks that have been free for so long that they are taken beyond the
// worker's share.
func (h *holder) vacantBlocks(q *workQueue, all []share.Worker, name string, rows []store.BlockRow) (vacant map[int]bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	at := instant.Now()
	q.vacant = q.vacant.Note(rows, at)
	if !q.busy && !h.life.closing && h.lease.drained == nil && !share.OthersMove(all, name) {
		vacant = q.vacant.Over(at, vacantAfter)
	}
	return vacant
}

// An allotment is what a worker may take of a part of a queue's blocks.
type allotment struct {
	q *workQueue
	share.Allotment
}

// A candidate is a block that a worker tries to take.
type candidate struct {
	of  *allotment
	row store.BlockRow
	got bool
}

// How the block's last holder ended: it handed the block over, died, or lives and has said so.
const (
	endFreed = iota
	endDied
	endLeft
)

// end returns how the block's last holder ended.
func (x *candidate) end() int {
	switch {
	case x.row.State == "FREE":
		return endFreed
	case x.row.Left:
		return endLeft
	}
	return endDied
}

// maxTaken is how many blocks a transaction takes.
const maxTaken = 1000

// takeFreeBlocks takes free blocks of some queues, as many as each lacks, and vacant ones. A block that
// cannot be taken does not prevent others.
func (h *holder) takeFreeBlocks(ctx context.Context, claims []*allotment, name string) (failed error) {
	down := func(err error) bool { return ctx.Err() != nil || h.db.Dialect.Unavailable(err) }
	for {
		var all []*candidate
		for _, c := range claims {
			for _, row := range c.Next() {
				all = append(all, &candidate{of: c, row: row})
			}
		}
		if len(all) == 0 {
			return failed
		}
		slices.SortFunc(all, func(a, b *candidate) int { // so that nobody waits for somebody who waits for it
			return cmp.Or(cmp.Compare(a.of.q.id, b.of.q.id), cmp.Compare(a.row.Divided, b.row.Divided))
		})
		for parts := chunks(all, maxTaken); len(parts) > 0; {
			if h.ending() {
				return failed
			}
			part := parts[0]
			parts = parts[1:]
			err := h.takeSome(ctx, part, name)
			failed = errors.Join(failed, err)
			switch {
			case err == nil:
			case down(err):
				return failed
			case len(part) > 1: // one of them is refused
				parts = append(chunks(part, 1), parts...)
			}
		}
		h.noteTaken(all)
	}
}

func chunks[T any](all []T, n int) [][]T { return slices.Collect(slices.Chunk(all, n)) }

// ending reports whether the worker is being stopped.
func (h *holder) ending() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.life.closing
}

// noteTaken counts the blocks that were taken, and keeps those for a while that are beyond the
// worker's share.
func (h *holder) noteTaken(all []*candidate) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, x := range all {
		if !x.got {
			continue
		}
		q, divided := x.of.q, x.row.Divided
		delete(q.vacant, divided)
		if b := q.blocks[divided]; x.of.Took() && b != nil {
			b.kept, b.beyond = instant.Now(), true
		}
	}
}

// takeSome takes blocks that nobody has, or whose workers have ended.
func (h *holder) takeSome(ctx context.Context, some []*candidate, name string) error {
	rows, byID := make([]sqlrun.Args, len(some)), map[store.BlockID]*candidate{}
	for i, x := range some {
		id := store.BlockID{Queue: x.of.q.id, Divided: x.row.Divided}
		rows[i], byID[id] = sqlrun.Args{
			"queue": id.Queue, "block": id.Divided, "seen": x.row.Fence, "was": x.row.State, "died": x.end(),
		}, x
	}
	reads := h.readSize()
	args := sqlrun.Args{"node": name, "batch": max(h.opt.Batch, reads)}
	got, err := h.mark(ctx, args, rows, byID)
	if err != nil || len(got) == 0 {
		return err
	}
	all := make([]*tenure, len(got))
	for i, x := range got {
		all[i] = h.newBlock(x, reads)
	}
	h.noteLost(got)
	ours, err := h.receive(ctx, all, name)
	for _, x := range got {
		x.got = ours
	}
	return err
}

// mark makes blocks this worker's, and returns those that it got.
func (h *holder) mark(
	ctx context.Context, args sqlrun.Args, rows []sqlrun.Args, byID map[store.BlockID]*candidate,
) (got []*candidate, err error) {
	err = h.db.ShortTx(ctx, func(ctx context.Context, tx *sqlrun.Session) error {
		got = nil
		free := map[store.BlockID]bool{}
		_, err := sqlrun.Select(ctx, tx, store.FreeBlocks, sqlrun.Args{"rows": rows}, func(rows *sql.Rows) (id store.BlockID, err error) {
			if err = rows.Scan(&id.Queue, &id.Divided); err == nil {
				free[id] = true
				got = append(got, byID[id])
			}
			return id, err
		})
		if err != nil || len(got) == 0 {
			return err
		}
		args["rows"] = slices.DeleteFunc(slices.Clone(rows), func(row sqlrun.Args) bool {
			return !free[store.BlockID{Queue: row["queue"].(int), Divided: row["block"].(int)}]
		})
		n, err := tx.Exec(ctx, store.TakeBlocks, args)
		return store.Short(err, n, len(got))
	})
	return got, err
}

func (h *holder) readSize() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.reads.size
}

// newBlock makes a block of a row that this worker has taken.
func (h *holder) newBlock(x *candidate, reads int) *tenure {
	q, r := x.of.q, &x.row
	b := newTenure(q)
	b.divided, b.fence, b.forKind, b.from, b.fifo = r.Divided, r.Fence+1, r.ForKind, instant.Now(), r.FIFO
	b.share()
	b.Since, b.Keyed, b.Batch, b.Says = h.c.clock.now(), q.set.Ordered || r.FIFO, reads, reads
	switch x.end() {
	case endDied:
		b.accused, b.had = r.Suspects+1, r.LockBy
	case endLeft: // what was suspected before is so still
		b.accused, b.had = r.Suspects, r.LockBy
	}
	if b.accused > 0 && !h.opt.Isolated && !h.opt.AtMostOnce {
		b.Suspect = suspicion(r.Batch, b.accused)
		b.SuspectAhead = b.Suspect
	}
	return b
}

// noteLost logs from which workers blocks were taken over.
func (h *holder) noteLost(got []*candidate) {
	blocks, queues := map[string]int{}, map[string]map[string]bool{}
	for _, x := range got {
		if by := x.row.LockBy; x.end() == endDied {
			if queues[by] == nil {
				queues[by] = map[string]bool{}
			}
			blocks[by]++
			queues[by][x.of.q.name] = true
		}
	}
	for by, n := range blocks {
		h.log.Info("took blocks over from a worker that was lost", "from", by, "blocks", n, "queues", len(queues[by]))
	}
}

// fewBlocks are so few that flushers look into them: more are looked into by one statement first, since
// most have no jobs.
const fewBlocks = 64

// receive begins with blocks that this worker has taken. If it cannot be known what their jobs wait
// for, it hands them over again. It reports whether the worker has them.
func (h *holder) receive(ctx context.Context, all []*tenure, name string) (ours bool, err error) {
	if err := h.holdBusyKeys(ctx, all); err != nil {
		_ = h.handOver(ctx, all, name)
		return false, err
	}
	many := len(all) > fewBlocks
	h.mu.Lock()
	if ours = h.lease.node == name; !ours {
		h.mu.Unlock()
		return false, nil // others take them when they see that this process is gone
	}
	for _, b := range all {
		b.Leaving = h.life.closing // which drain will see
		b.q.blocks[b.divided], b.q.known = b, false
		if many {
			b.Serving, b.Dues.Ripe = true, false
			continue
		}
		h.enlist(b)
	}
	h.mu.Unlock()
	if many {
		h.lookInto(ctx, all)
	}
	return true, nil
}

// lookInto looks which of some blocks have jobs, for flushers that leave them alone meanwhile. The
// others are then as if they had been read. If it cannot look, flushers read all.
func (h *holder) lookInto(ctx context.Context, all []*tenure) {
	rows, dues := make([]lookRow, len(all)), make([]dueRow, len(all))
	for i, b := range all {
		rows[i], dues[i] = lookRow{at: b.at()}, dueRow{b: b}
	}
	at := instant.Now()
	there, err := h.c.lookAbove(ctx, rows)
	if err == nil {
		err = h.lookForNext(ctx, dues)
	}
	took := since(at)
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, b := range all {
		b.Serving = false
		b.q.recheck()
		switch {
		case err != nil:
			b.Dues.Ripe = true
		case !there[b.at()] && !b.Reads.Told && !b.Gone && !b.Leaving:
			b.FoundEmpty(h.now(at), 0, took, instant.Now())
			if b.still() && !b.wants(instant.Now()) {
				continue
			}
		}
		h.enlist(b)
	}
	h.occupants.tellClosing()
}

// handOver frees blocks of this worker.
func (h *holder) handOver(ctx context.Context, all []*tenure, name string) (failed error) {
	for part := range slices.Chunk(all, maxTaken) {
		rows := make([]sqlrun.Args, len(part))
		for i, b := range part {
			rows[i] = sqlrun.Args{"queue": b.q.id, "block": b.divided, "held": b.fence, "heir": cmp.Or(b.heir, b.forKind)}
		}
		failed = errors.Join(failed, h.db.Pipeline(ctx, &sqlrun.Step{ // for the sake of its plans
			Stmt: store.HandOverBlocks, Args: sqlrun.Args{"rows": rows, "node": name},
		}))
	}
	return failed
}

// holdBusyKeys finds the keys of blocks whose jobs have to wait for a job that runs elsewhere, or for a
// retry. Running ones are read first, so a job that becomes delayed meanwhile is seen there. Several
// jobs of a key were a batch, of which some may still run and some wait: they go in order,
// wherever they are.
func (h *holder) holdBusyKeys(ctx context.Context, all []*tenure) error {
	byID, keys := map[store.BlockID]*tenure{}, map[*tenure][]block.HeldKey{}
	var queues []int
	for _, b := range all {
		byID[b.at()] = b
		queues = append(queues, b.q.id)
	}
	slices.Sort(queues)
	for part := range slices.Chunk(slices.Compact(queues), maxSurveyed) {
		running, err := h.c.readRunning(ctx, part, runningPage)
		if err != nil {
			return err
		}
		for _, r := range running {
			if b := byID[store.BlockID{Queue: r.queue, Divided: r.divided}]; b != nil && b.lineOf(r.key) != "" {
				keys[b] = append(keys[b], block.HeldKey{ID: r.id, Line: r.key})
			}
		}
	}
	holding, err := h.holding(ctx, all)
	if err != nil {
		return err
	}
	for _, b := range holding {
		waiting, err := h.readHeld(ctx, b, heldPage)
		if err != nil {
			return err
		}
		keys[b] = append(keys[b], waiting...)
	}
	for b, held := range keys {
		slices.SortFunc(held, func(a, b block.HeldKey) int { return cmp.Compare(a.ID, b.ID) })
		for _, h := range held {
			b.Hold(b.lineOf(h.Line), h.ID)
		}
	}
	return nil
}

// heldPage is how many rows a statement reads of them. Some engines refuse results of more than 10,000.
const heldPage = 5000

// readHeld reads them in parts, whose rows of the last key are left to the next one: it may have more.
func (h *holder) readHeld(ctx context.Context, b *tenure, limit int) (all []block.HeldKey, err error) {
	for after := ""; ; {
		rows, err := sqlrun.Select(ctx, &h.db.Session, store.HeldKeys,
			sqlrun.Args{"queue": b.q.id, "divided": b.divided, "after": after, "limit": limit},
			func(rows *sql.Rows) (h block.HeldKey, err error) {
				return h, rows.Scan(&h.ID, &h.Line)
			})
		if err != nil || len(rows) < limit {
			return append(all, rows...), err
		}
		last := rows[len(rows)-1].Line
		n := slices.IndexFunc(rows, func(h block.HeldKey) bool { return h.Line == last })
		if n == 0 {
			limit *= 2
			continue
		}
		all, after = append(all, rows[:n]...), rows[n-1].Line
	}
}

// holding lists those of some blocks in which jobs wait for a retry, and others of their keys for them.
func (h *holder) holding(ctx context.Context, all []*tenure) (some []*tenure, err error) {
	if len(all) == 1 {
		return all, nil
	}
	byID, rows := map[store.BlockID]*tenure{}, make([]sqlrun.Args, len(all))
	for i, b := range all {
		byID[b.at()], rows[i] = b, sqlrun.Args{"queue": b.q.id, "block": b.divided}
	}
	for part := range slices.Chunk(rows, maxLooked) {
		err = errors.Join(err, h.db.Pipeline(ctx, &sqlrun.Step{ // for the sake of its plans
			Stmt: store.HoldingBlocks, Args: sqlrun.Args{"rows": part},
			Scan: func(row *sqlrun.Row) error {
				some = append(some, byID[store.BlockID{Queue: int(row.Int(0)), Divided: int(row.Int(1))}])
				return nil
			},
		}))
	}
	return some, err
}

// suspicion is how many jobs of a block are under suspicion when its worker, which
// read so many at a time, has died so many times in a row: as many as it may have
// read and not finished, and more each time.
func suspicion(reads, times int) int { return 2 * max(1, reads) << min(times-1, 10) }
