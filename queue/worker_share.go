package queue

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"time"

	"github.com/dbcron/dbcron/internal/instant"
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
func (w *Worker) noteRound(err error) {
	if err == nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.sharings++
	}
}

// shareQueue runs one round for a queue.
func (w *Worker) shareQueue(ctx context.Context, q *workQueue, name string) error {
	return w.shareQueues(ctx, []*workQueue{q}, name)
}

// shareQueues runs one round for some queues. A failed step does not prevent the others:
// whatever cannot be read or written, free blocks are taken.
func (w *Worker) shareQueues(ctx context.Context, due []*workQueue, name string) error {
	g := w.takeSnapshot(due)
	failed := w.refreshSettings(ctx, due)
	s, err := w.announceAndView(ctx, due, name)
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
	failed = errors.Join(failed, w.expelLate(ctx, holders))
	for _, q := range due {
		some, err := w.shareOne(ctx, q, s.workers[q.id], rows[q], name)
		if failed = errors.Join(failed, err); err == nil {
			shared, claims = append(shared, q), append(claims, some...)
		}
	}
	failed = errors.Join(failed, w.handOverIdle(ctx, due...), w.takeFreeBlocks(ctx, claims, name))
	var around orphanSearch
	for _, q := range shared {
		failed = errors.Join(failed, w.noteTrusted(ctx, q, name), w.noteStuck(ctx, q, name), w.findOrphans(ctx, q, s, g, name, &around))
	}
	return errors.Join(failed, w.adoptAll(ctx, &around, name), w.trust(ctx, around.cleared, name), w.lookForDue(ctx, due))
}

// shareOne shares the blocks of a queue, by what a survey says: it marks those that are to be handed
// over, and returns which it may take.
func (w *Worker) shareOne(
	ctx context.Context, q *workQueue, all []share.Worker, rows []store.BlockRow, name string,
) (claims []*allotment, failed error) {
	if forgotten := w.check(q, rows, name); len(forgotten) > 0 {
		failed = errors.Join(failed, w.handOver(ctx, forgotten, name))
	}
	rows, err := w.current(ctx, q, rows)
	if err != nil {
		return nil, errors.Join(failed, err)
	}
	turn := int(w.c.clock.now() / w.rotate.Microseconds())
	drained := w.lease.noteDrained(all, name)
	w.noteSurplus(q, all, len(rows))
	w.choice.noteKinds(q, all, name)
	parts := share.Parts(all, rows)
	stays, lacks := !share.OthersMove(all, name) && !drained, map[*share.Part]int{}
	for _, p := range parts {
		n := p.Target(name, turn)
		lacks[p] = n - w.surrender(q, p, n, stays)
	}
	w.yield(q)
	vacant := w.vacantBlocks(q, all, name, rows)
	for _, p := range parts {
		claims = append(claims, &allotment{q, share.Allotment{Free: share.Free(p.Rows), Vacant: vacant, Lacks: lacks[p]}})
	}
	return claims, failed
}

// noteSurplus logs once that a queue has too few blocks for its workers.
func (w *Worker) noteSurplus(q *workQueue, all []share.Worker, blocks int) {
	n, surplus := share.IsSurplus(all, blocks)
	if surplus && !q.surplus {
		w.log.Warn("the queue has more workers than blocks, so some of them are idle; add blocks: dbcron queue resize",
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
func (w *Worker) announceAndView(ctx context.Context, due []*workQueue, name string) (*view, error) {
	says, kinds := w.choice.announces()
	for tries := 0; ; tries++ {
		s, err := w.c.commons.views.get(ctx, idsOfQueues(due)...)
		if err != nil {
			return nil, err
		}
		fresh, other := []sqlrun.Args(nil), map[int][]int{}
		w.mu.Lock()
		for _, q := range due {
			all := s.workers[q.id]
			w.noteRoster(q, all)
			q.busy = w.isBusy
			at, busy := slices.IndexFunc(all, func(r share.Worker) bool { return r.Node == name }), 0
			if q.busy || at >= 0 && all[at].Drained { // workers of 0.1 know the former, and not the latter
				busy = 1
			}
			if w.hungry {
				busy = share.Starved
			}
			switch {
			case at < 0:
				fresh = append(fresh, sqlrun.Args{"queue": q.id, "node": name, "busy": busy, "does": kinds})
			case all[at].Busy != busy || all[at].Says != says:
				other[busy] = append(other[busy], q.id)
			}
		}
		w.mu.Unlock()
		if tries > 0 || len(fresh)+len(other) == 0 {
			return s, nil
		}
		if err := w.tellOthers(ctx, name, fresh, other, kinds); err != nil {
			return nil, err
		}
	}
}

// tellOthers tells the others on which queues this worker works, and where it is busy or no
// longer busy.
func (w *Worker) tellOthers(ctx context.Context, name string, fresh []sqlrun.Args, other map[int][]int, kinds any) error {
	var told []int
	for part := range slices.Chunk(fresh, maxSurveyed) {
		if _, err := w.db.Exec(ctx, store.RegisterWorker, sqlrun.Args{"rows": part}); err != nil {
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
			if _, err := w.db.Exec(ctx, store.SetBusy, args); err != nil {
				return err
			}
		}
	}
	w.c.bells.announce(ctx, told...)
	return nil
}

// colleagues lists the workers of a queue, including this one.
func (w *Worker) colleagues(ctx context.Context, q *workQueue) ([]share.Worker, error) {
	found, err := w.c.readWorkers(ctx, []int{q.id})
	return found[q.id], err
}

// meet applies new settings.
func (w *Worker) meet(q *workQueue, set *store.Queue) {
	w.mu.Lock()
	defer w.mu.Unlock()
	resumed := q.set.State != "active" && set.State == "active"
	q.set = set
	q.recheck()
	for _, b := range q.blocks {
		b.Keyed = b.Keyed || set.Ordered
		if resumed {
			w.rouse(b)
			w.offer(b, b.Count)
		}
	}
}

// expelLate declares processes lost if their blocks or permits are needed.
func (w *Worker) expelLate(ctx context.Context, all []*store.LeaseRow) (failed error) {
	gone, asked := map[string]bool{}, map[string]bool{}
	for _, h := range all {
		if h.Free() || h.InTime {
			continue
		}
		if !asked[h.LockBy] {
			asked[h.LockBy] = true
			var err error
			gone[h.LockBy], err = w.expelOne(ctx, h.LockBy)
			failed = errors.Join(failed, err)
		}
		h.Live = !gone[h.LockBy]
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
func (w *Worker) expelOne(ctx context.Context, node string) (gone bool, err error) {
	n, err := w.db.Exec(ctx, store.ExpelNode, sqlrun.Args{"node": node})
	if n > 0 {
		signal(w.ends.died)
		w.log.Warn("a worker did not renew its lease in time; others take over what it had", "node", node)
	}
	if n > 0 || err != nil {
		return n > 0, err
	}
	var state string
	if err = w.db.Get(ctx, store.NodeState, sqlrun.Args{"node": node}, &state); errors.Is(err, sql.ErrNoRows) {
		return true, nil
	}
	return err == nil && state != "live", err
}

// check drops blocks that no longer belong to this worker according to the table. It returns
// those that do and that the worker does not know of: it may have taken them without receiving
// the answer, or failed to hand them over.
func (w *Worker) check(q *workQueue, rows []store.BlockRow, name string) (forgotten []*tenure) {
	w.mu.Lock()
	defer w.mu.Unlock()
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
			w.log.Warn("a block was taken away", "queue", q.name, "block", b.divided)
			w.drop(b, ErrLost)
		}
	}
	return forgotten
}

// surrender marks the blocks of a part that exceed the worker's n for hand-over, and returns how many stay. With keeps, blocks
// that it took because nobody else did stay for a while.
func (w *Worker) surrender(q *workQueue, p *share.Part, n int, keeps bool) (stay int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	at := instant.Now()
	var held []share.Held
	for _, b := range q.blocks {
		if b.Leaving && at.Sub(b.leaves) >= leaveWithin {
			w.remain(b, at)
		}
		if !b.Leaving {
			held = append(held, share.Held{
				Divided: b.divided, Active: b.Active, Since: b.Since,
				Beyond: b.beyond, Stays: keeps && (b.kept != 0 && at.Sub(b.kept) < keepFor || b.Unended(w.closing)), // otherwise ended jobs would run again
			})
		}
	}
	gone, stay := p.GiveUp(held, n)
	for _, divided := range gone {
		w.leave(q.blocks[divided])
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
func (w *Worker) leave(b *tenure) {
	b.Leaving, b.leaves = true, instant.Now()
	b.q.recheck()
	for j := range b.AllSeen() {
		if d := deliveryOf(j); j.InPlace() && !w.opt.AtMostOnce && b.mayLeave(d, b.leaves) {
			w.checkOut(d, d.Crashes)
		}
	}
}

// remain resumes a block that was to be handed over and does not become idle, because a running
// job cannot be checked out. mu is held.
func (w *Worker) remain(b *tenure, at instant.Instant) {
	if w.closing || w.lease.drained != nil {
		return
	}
	b.Leaving, b.kept, b.beyond, b.heir = false, at, false, ""
	w.offer(b, b.Count)
	w.suspectMore()
	w.enlist(b)
}

// handOverIdle hands over the marked blocks of some queues in which nothing is under way.
func (w *Worker) handOverIdle(ctx context.Context, queues ...*workQueue) (failed error) {
	w.mu.Lock()
	var idle []*tenure
	unstarted := map[*tenure][]int64{}
	name := w.lease.node
	for _, q := range queues {
		for _, b := range q.blocks {
			if !b.Leaving || !b.idle() {
				continue
			}
			b.Gone = true // nothing is read any more
			w.forsake(b)
			b.Lighten()
			delete(q.blocks, b.divided)
			idle = append(idle, b)
			for j := range b.Unstarted() { // checked out and not started
				if j.From == tableRunning {
					w.forgo(deliveryOf(j))
					unstarted[b] = append(unstarted[b], j.ID)
				}
			}
		}
	}
	w.mu.Unlock()
	for b, ids := range unstarted {
		args := store.JobArgs(b.q.id, b.divided, 0, ids)
		args["node"] = name
		_, err := w.db.Exec(ctx, store.HandRunning, args)
		failed = errors.Join(failed, err)
	}
	if len(idle) > 0 {
		failed = errors.Join(failed, w.handOver(ctx, idle, name)) // else it is taken away when the lease has ended
		var told []int
		for _, b := range idle {
			told = append(told, b.q.id)
		}
		slices.Sort(told)
		w.c.bells.announce(ctx, slices.Compact(told)...)
	}
	return failed
}

// handOverAll calls handOverIdle for all queues.
func (w *Worker) handOverAll(ctx context.Context) {
	w.mu.Lock()
	queues := w.queues
	w.mu.Unlock()
	if err := w.handOverIdle(ctx, queues...); err != nil {
		w.log.Warn("handing blocks over failed; others take them when the lease has ended", "err", err)
	}
}
