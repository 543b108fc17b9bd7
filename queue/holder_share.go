package queue

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"time"

	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/jobfield"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/internal/share"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// How a worker does what package share computes.

// shareEvery is the interval between rounds of an active queue.
const shareEvery = 500 * time.Millisecond

// settingsEvery is the interval between two reads of a queue's settings.
const settingsEvery = 2 * time.Second

// noteRound records that the worker has its share of the blocks.
func (h *holder) noteRound(err error) {
	if err == nil {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.sharings++
	}
}

// shareQueue runs one round for a queue.
func (h *holder) shareQueue(ctx context.Context, q *workQueue, name string) error {
	return h.shareQueues(ctx, []*workQueue{q}, name)
}

// shareQueues runs one round for some queues. A failed step does not prevent the others:
// whatever cannot be read or written, free blocks are taken.
func (h *holder) shareQueues(ctx context.Context, due []*workQueue, name string) error {
	adopt := h.occupants.orphansOf(due)
	failed := h.refreshSettings(ctx, due)
	s, err := h.announceAndView(ctx, due, name)
	if err != nil {
		return errors.Join(failed, err)
	}
	var shared []*workQueue
	var claims []*allotment
	rows, holders := map[*workQueue][]store.BlockRow{}, []*store.LeaseRow(nil)
	for _, q := range due {
		rows[q] = slices.Clone(s.blocks[q.id])
		holders = append(holders, ofBlocks(rows[q])...)
	}
	failed = errors.Join(failed, h.expelLate(ctx, holders))
	for _, q := range due {
		some, err := h.shareOne(ctx, q, s.workers[q.id], rows[q], name)
		if failed = errors.Join(failed, err); err == nil {
			shared, claims = append(shared, q), append(claims, some...)
		}
	}
	failed = errors.Join(failed, h.handOverIdle(ctx, due...), h.takeFreeBlocks(ctx, claims, name))
	return errors.Join(failed, adopt(ctx, shared, s, name), h.lookForDue(ctx, due))
}

// shareOne shares the blocks of a queue, by what a survey says: it marks those that are to be handed
// over, and returns which it may take.
func (h *holder) shareOne(
	ctx context.Context, q *workQueue, all []share.Worker, rows []store.BlockRow, name string,
) (claims []*allotment, failed error) {
	if forgotten := h.check(q, rows, name); len(forgotten) > 0 {
		failed = errors.Join(failed, h.handOver(ctx, forgotten, name))
	}
	rows, err := h.current(ctx, q, rows)
	if err != nil {
		return nil, errors.Join(failed, err)
	}
	turn := int(h.c.clock.now() / h.rotate.Microseconds())
	drained := h.lease.noteDrained(all, name)
	h.noteSurplus(q, all, len(rows))
	h.choice.noteKinds(q, all, name)
	parts := share.Parts(all, rows)
	stays, lacks := !share.OthersMove(all, name) && !drained, map[*share.Part]int{}
	for _, p := range parts {
		n := p.Target(name, turn)
		lacks[p] = n - h.surrender(q, p, n, stays)
	}
	h.yield(q)
	vacant := h.vacantBlocks(q, all, name, rows)
	for _, p := range parts {
		claims = append(claims, &allotment{q, share.Allotment{Free: share.Free(p.Rows), Vacant: vacant, Lacks: lacks[p]}})
	}
	return claims, failed
}

// noteSurplus logs once that a queue has too few blocks for its workers. Of dbcron's own queues each daemon is a worker, and nobody waits.
func (h *holder) noteSurplus(q *workQueue, all []share.Worker, blocks int) {
	n, surplus := share.IsSurplus(all, blocks)
	if surplus && !q.surplus && !jobfield.Reserved(q.name) {
		h.log.Warn("the queue has more workers than blocks, so some of them are idle; add blocks: dbcron queue resize",
			"queue", q.name, "workers", n, "blocks", blocks)
	}
	q.surplus = surplus
}

// noteDrained notices that somebody has drained or undrained this worker.
func (l *nodeLease) noteDrained(all []share.Worker, name string) bool {
	at := slices.IndexFunc(all, func(r share.Worker) bool { return r.Node == name })
	l.mu.Lock()
	defer l.mu.Unlock()
	switch drained := l.drained != nil; {
	case at < 0 || all[at].Drained == drained:
		return drained
	case drained:
		l.drained = nil
		l.log.Info("no longer drained: it takes jobs again", "node", name)
	default:
		l.drained = &all[at].By
		l.log.Info("drained: it takes no more jobs, and finishes those that it has begun", "node", name, "by", all[at].By)
	}
	return l.drained != nil
}

// announceAndView returns the workers of some queues, and what they have. It does not rely on having
// told the others about this worker: their list shows whether they know it, and whether they
// take it for busy.
func (h *holder) announceAndView(ctx context.Context, due []*workQueue, name string) (*view, error) {
	says, kinds := h.choice.announces()
	for tries := 0; ; tries++ {
		s, err := h.c.commons.views.get(ctx, idsOfQueues(due)...)
		if err != nil {
			return nil, err
		}
		fresh, other := []sqlrun.Args(nil), map[int][]int{}
		h.mu.Lock()
		for _, q := range due {
			all := s.workers[q.id]
			h.noteRoster(q, all)
			q.busy = h.isBusy
			at, busy := slices.IndexFunc(all, func(r share.Worker) bool { return r.Node == name }), 0
			if q.busy || at >= 0 && all[at].Drained { // workers of 0.1 know the former, and not the latter
				busy = 1
			}
			if h.hungry {
				busy = share.Starved
			}
			switch {
			case at < 0:
				fresh = append(fresh, sqlrun.Args{"queue": q.id, "node": name, "busy": busy, "does": kinds})
			case all[at].Busy != busy || all[at].Says != says:
				other[busy] = append(other[busy], q.id)
			}
		}
		h.mu.Unlock()
		if tries > 0 || len(fresh)+len(other) == 0 {
			return s, nil
		}
		if err := h.tellOthers(ctx, name, fresh, other, kinds); err != nil {
			return nil, err
		}
	}
}

// tellOthers tells the others on which queues this worker works, and where it is busy or no
// longer busy.
func (h *holder) tellOthers(ctx context.Context, name string, fresh []sqlrun.Args, other map[int][]int, kinds any) error {
	var told []int
	for part := range slices.Chunk(fresh, maxSurveyed) {
		if _, err := h.db.Exec(ctx, store.RegisterWorker, sqlrun.Args{"rows": part}); err != nil {
			return err
		}
	}
	for _, row := range fresh {
		told = append(told, row["queue"].(int))
	}
	for busy, queues := range other {
		told = append(told, queues...)
		for part := range slices.Chunk(queues, maxSurveyed) {
			args := sqlrun.Args{"queues": store.IDList(part), "node": name, "busy": busy, "does": kinds}
			if _, err := h.db.Exec(ctx, store.SetBusy, args); err != nil {
				return err
			}
		}
	}
	h.c.bells.announce(ctx, told...)
	return nil
}

// colleagues lists the workers of a queue, including this one.
func (h *holder) colleagues(ctx context.Context, q *workQueue) ([]share.Worker, error) {
	found, err := h.c.readWorkers(ctx, []int{q.id})
	return found[q.id], err
}

// meet applies new settings.
func (h *holder) meet(q *workQueue, set *store.Queue) {
	h.mu.Lock()
	defer h.mu.Unlock()
	resumed := !q.set.Active() && set.Active()
	q.set = set
	q.shareOut(set.Shares)
	q.recheck()
	for _, b := range q.blocks {
		b.Keyed = b.Keyed || set.Ordered
		if resumed {
			h.rouse(b)
			h.restart(b)
		}
	}
}

// restart lets the jobs of a block begin again after a while in which none could. Those that wait at limits were in no demand
// meanwhile, and nobody else tells of them. mu is held.
func (h *holder) restart(b *tenure) {
	b.AskTenants()
	h.limits.Wake()
	h.occupants.offer(b, b.Count)
}

// expelLate declares processes lost if their blocks or permits are needed.
func (h *holder) expelLate(ctx context.Context, all []*store.LeaseRow) (failed error) {
	gone, asked := map[string]bool{}, map[string]bool{}
	for _, r := range all {
		if r.Free() || r.InTime {
			continue
		}
		if !asked[r.LockBy] {
			asked[r.LockBy] = true
			var err error
			gone[r.LockBy], err = h.expelOne(ctx, r.LockBy)
			failed = errors.Join(failed, err)
		}
		r.Live = !gone[r.LockBy]
	}
	return failed
}

func ofBlocks(rows []store.BlockRow) (all []*store.LeaseRow) {
	for i := range rows {
		all = append(all, &rows[i].LeaseRow)
	}
	return all
}

// expelOne declares a process lost that is late. It reports whether the process is no longer live, which
// is for good. It may still be: it has renewed its lease since, or another transaction holds its row.
func (h *holder) expelOne(ctx context.Context, node string) (gone bool, err error) {
	n, err := h.db.Exec(ctx, store.ExpelNode, sqlrun.Args{"node": node})
	if n > 0 {
		h.occupants.died()
		h.log.Warn("a worker did not renew its lease in time; others take over what it had", "node", node)
	}
	if n > 0 || err != nil {
		return n > 0, err
	}
	var state string
	if err = h.db.Get(ctx, store.NodeState, sqlrun.Args{"node": node}, &state); errors.Is(err, sql.ErrNoRows) {
		return true, nil
	}
	return err == nil && state != "live", err
}

// check drops blocks that no longer belong to this worker according to the table. It returns
// those that do and that the worker does not know of: it may have taken them without receiving
// the answer, or failed to hand them over.
func (h *holder) check(q *workQueue, rows []store.BlockRow, name string) (forgotten []*tenure) {
	h.mu.Lock()
	defer h.mu.Unlock()
	there := map[int]int64{}
	for _, r := range rows {
		if r.State == "LEASED" && r.LockBy == name {
			there[r.Divided] = r.Fence
			if q.blocks[r.Divided] == nil {
				b := newTenure(q)
				b.divided, b.fence, b.forKind = r.Divided, r.Fence, r.ForKind
				forgotten = append(forgotten, b)
			}
		}
	}
	for _, b := range q.blocks {
		if fence, ok := there[b.divided]; !ok || fence != b.fence {
			h.log.Warn("a block was taken away", "queue", q.name, "block", b.divided)
			h.occupants.drop(b, ErrLost)
		}
	}
	return forgotten
}

// surrender marks the blocks of a part that exceed the worker's n for hand-over, and returns how many stay. With keeps, blocks
// that it took because nobody else did stay for a while.
func (h *holder) surrender(q *workQueue, p *share.Part, n int, keeps bool) (stay int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	at := instant.Now()
	var held []share.Held
	for _, b := range q.blocks {
		if b.Leaving && at.Sub(b.leaves) >= leaveWithin {
			h.remain(b, at)
		}
		if !b.Leaving {
			held = append(held, share.Held{
				Divided: b.divided, Active: b.Active, Since: b.Since,
				Beyond: b.beyond, Stays: keeps && (b.kept != 0 && at.Sub(b.kept) < keepFor || b.Unended(h.life.closing)), // otherwise ended jobs would run again
			})
		}
	}
	gone, stay := p.GiveUp(held, n)
	for _, divided := range gone {
		h.leave(q.blocks[divided])
	}
	return stay
}

// leaveWithin is how long a running worker waits for a block to become idle for hand-over;
// meanwhile nobody runs the block's ready jobs. keepFor is how long it then keeps the block
// before it tries again.
const (
	leaveWithin = 2 * time.Second
	keepFor     = 5 * time.Second
)

// leave stops starting jobs of a block, and checks out those that run. mu is held.
func (h *holder) leave(b *tenure) {
	b.Leaving, b.leaves = true, instant.Now()
	b.q.recheck()
	h.occupants.checkOutAll(b, b.leaves)
}

// remain resumes a block that was to be handed over and does not become idle, because a running
// job cannot be checked out. mu is held.
func (h *holder) remain(b *tenure, at instant.Instant) {
	if h.life.closing || h.lease.drained != nil {
		return
	}
	b.Leaving, b.kept, b.beyond, b.heir = false, at, false, ""
	h.restart(b)
	h.occupants.suspectMore()
	h.enlist(b)
}

// handOverIdle hands over the marked blocks of some queues in which nothing is under way.
func (h *holder) handOverIdle(ctx context.Context, queues ...*workQueue) (failed error) {
	h.mu.Lock()
	var idle []*tenure
	unstarted := map[*tenure][]int64{}
	name := h.lease.node
	for _, q := range queues {
		for _, b := range q.blocks {
			if !b.Leaving || !b.idle() {
				continue
			}
			b.Gone = true // nothing is read any more
			if ids := h.occupants.moveOut(b); len(ids) > 0 {
				unstarted[b] = ids
			}
			b.Lighten()
			delete(q.blocks, b.divided)
			idle = append(idle, b)
		}
	}
	h.mu.Unlock()
	for b, ids := range unstarted {
		args := store.JobArgs(b.q.id, b.divided, 0, ids)
		args["node"] = name
		_, err := h.db.Exec(ctx, store.HandRunning, args)
		failed = errors.Join(failed, err)
	}
	if len(idle) > 0 {
		failed = errors.Join(failed, h.handOver(ctx, idle, name)) // else it is taken away when the lease has ended
		var told []int
		for _, b := range idle {
			told = append(told, b.q.id)
		}
		slices.Sort(told)
		h.c.bells.announce(ctx, slices.Compact(told)...)
	}
	return failed
}

// handOverAll calls handOverIdle for all queues.
func (h *holder) handOverAll(ctx context.Context) {
	h.mu.Lock()
	queues := h.queues
	h.mu.Unlock()
	if err := h.handOverIdle(ctx, queues...); err != nil {
		h.log.Warn("handing blocks over failed; others take them when the lease has ended", "err", err)
	}
}
