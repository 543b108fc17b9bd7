package queue

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/internal/block"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// Jobs that are checked out, by this worker and by others, and the keys that wait for them.

// at returns the job's identification.
func (r *runningRow) at(q *workQueue) store.JobID {
	return store.JobID{BlockID: store.BlockID{Queue: q.id, Divided: r.divided}, ID: r.id}
}

// A orphanSearch is what a round has found in the blocks of its queues.
type orphanSearch struct {
	queues  []*workQueue // whose checked out jobs are known
	orphans []orphan
	cleared []*tenure // no job of these is under suspicion any more
}

// An orphan is a checked out job of this worker's blocks whose worker has ended.
type orphan struct {
	runningRow
	q    *workQueue
	line string
}

// findOrphans finds checked out jobs of this worker's blocks whose workers have ended, and lets
// keys go whose jobs were done elsewhere. g is what was known before the survey.
func (run *runner) findOrphans(ctx context.Context, q *workQueue, s *view, g snapshot, name string, found *orphanSearch) error {
	run.mu.Lock()
	q.unstrand()
	mine := map[int]*tenure{}
	for _, b := range q.blocks {
		if b.Leaving {
			continue
		}
		mine[b.divided] = b
		if b.accused > 0 && run.cleared(b) {
			found.cleared = append(found.cleared, b)
		}
	}
	run.mu.Unlock()
	if s.failed != nil {
		return s.failed
	}
	running := slices.Clone(s.running[q.id])
	if err := run.takeBack(ctx, q, running); err != nil {
		return err
	}
	run.cancelRemoved(q, g.out, running)
	if err := run.disown(ctx, q, running, name); err != nil {
		return err
	}
	if len(mine) == 0 {
		return nil
	}
	found.queues = append(found.queues, q)
	for _, r := range running {
		b := mine[r.divided]
		if b != nil && r.lockBy != name {
			run.unsettle(q) // it is to be adopted, though not by this round
		}
		if r.live && !r.inTime { // it may have had no blocks, and is lost nevertheless
			gone, err := run.expelOne(ctx, r.lockBy)
			if err != nil {
				return err
			}
			r.live = !gone
		}
		if b != nil && (r.state == rowHanded || !r.live) && !run.leads(r.at(q)) && !run.choice.strands(q, &r) {
			found.orphans = append(found.orphans, orphan{r, q, b.lineOf(r.key)})
		}
	}
	for b, keys := range g.foreign {
		if b.q != q {
			continue
		}
		if err := run.letGo(ctx, b, keys, running); err != nil {
			return err
		}
	}
	return nil
}

// unsettle schedules another round of a queue soon.
func (run *runner) unsettle(q *workQueue) {
	run.mu.Lock()
	defer run.mu.Unlock()
	q.unsettled = max(q.unsettled, instant.Now().Add(4*shareEvery))
}

// trust ends the suspicion against the jobs of some blocks.
func (run *runner) trust(ctx context.Context, blocks []*tenure, name string) (failed error) {
	for part := range slices.Chunk(blocks, maxTaken) {
		rows := make([]sqlrun.Args, len(part))
		for i, b := range part {
			rows[i] = sqlrun.Args{"queue": b.q.id, "block": b.divided, "held": b.fence}
		}
		step := &sqlrun.Step{Stmt: store.TrustBlocks, Args: sqlrun.Args{"rows": rows, "node": name}}
		err := run.db.Pipeline(ctx, step) // for the sake of its plans
		if failed = errors.Join(failed, err); err != nil || step.Changed < int64(len(part)) {
			continue // a row that is locked is tried again by the next round
		}
		run.mu.Lock()
		for _, b := range part {
			b.accused = 0
		}
		run.mu.Unlock()
	}
	return failed
}

// cancelRemoved ends checked-out jobs whose rows are gone, because somebody has cancelled them.
// out are those that were checked out before the rows were read: a job that has failed meanwhile,
// and has begun again, is another delivery.
func (box *outbox) cancelRemoved(q *workQueue, out map[store.JobID]*Delivery, rows []runningRow) {
	there := map[store.JobID]bool{}
	for _, r := range rows {
		there[r.at(q)] = true
	}
	box.mu.Lock()
	defer box.mu.Unlock()
	for id, d := range out {
		if box.out[id] == d && d.b.q == q && !there[id] && d.state.Tx == block.TxNone {
			d.ctx.end(errCancelled)
		}
	}
}

// disown hands over checked-out jobs that belong to this worker by their rows, and that it does
// not know of: the answer to their check-out was lost, or their block was lost before they began.
// It checks twice, since a check-out may be under way.
func (box *outbox) disown(ctx context.Context, q *workQueue, rows []runningRow, name string) error {
	box.mu.Lock()
	orphans := map[store.JobID]bool{}
	twice := map[int][]int64{}
	for _, r := range rows {
		if r.lockBy != name || r.state == rowHanded || box.rows[r.at(q)] != nil {
			continue
		}
		orphans[r.at(q)] = true
		if q.orphans[r.at(q)] {
			twice[r.divided] = append(twice[r.divided], r.id)
		}
	}
	q.orphans = orphans
	box.mu.Unlock()
	for divided, ids := range twice {
		args := store.JobArgs(q.id, divided, 0, ids)
		args["node"] = name
		if _, err := box.db.Exec(ctx, store.HandRunning, args); err != nil {
			return err
		}
	}
	return nil
}

// disregard forgets that a job is checked out here. mu is held.
func (box *outbox) disregard(d *Delivery) {
	for _, list := range []map[store.JobID]*Delivery{box.out, box.rows} {
		if list[d.at()] == d {
			delete(list, d.at())
		}
	}
}

// leads reports whether a checked out job is this worker's own.
func (box *outbox) leads(id store.JobID) bool {
	box.mu.Lock()
	defer box.mu.Unlock()
	return box.out[id] != nil
}

// cleared reports whether no job of a block is under suspicion any more. mu is held.
func (box *outbox) cleared(b *tenure) bool {
	if b.Doubted() > 0 || b.Reads.Dirty || b.Reads.Full || b.Serving || slices.ContainsFunc(b.Refusals, (*block.Refusal).Out) {
		return false
	}
	for _, d := range box.out {
		if d.b == b && d.trial.why != trusted {
			return false
		}
	}
	b.Suspect, b.SuspectAhead = 0, 0
	return true
}

// letGo releases keys whose jobs are neither running nor waiting for a retry any
// more. The running ones were read first; see holdBusyKeys.
func (run *runner) letGo(ctx context.Context, b *tenure, keys map[string]block.Turn, running []runningRow) error {
	waiting, err := run.readHeld(ctx, b, heldPage)
	if err != nil {
		return err
	}
	there := map[int64]bool{}
	for _, r := range running {
		if r.divided == b.divided {
			there[r.id] = true
		}
	}
	for _, h := range waiting {
		there[h.ID] = true
	}
	run.mu.Lock()
	defer run.mu.Unlock()
	if b.Gone {
		return nil
	}
	for key, was := range keys {
		// A job that was taken in and has parted again meanwhile is checked next time.
		if is, held := b.Holder(key); held && is == was && !there[was.ID] {
			b.ReleaseIfHeld(key, was.ID)
		}
	}
	return nil
}

// died reports whether the row's worker is taken to have died with the job: it did not hand it over,
// and has not said that it lives.
func (r *runningRow) died() bool { return r.state != rowHanded && !r.left }

// found returns the row as it is to be after it was taken over from a worker that has ended.
func (r runningRow) found() runningRow {
	switch {
	case r.state == rowHanded:
	case r.left:
		r.losses++
	default:
		r.crashes++
		r.charged = charge(r.charged, r.lockBy)
	}
	return r
}

// A snapshot is what a worker knew of its jobs before it read the tables.
type snapshot struct {
	out     map[store.JobID]*Delivery // checked out
	foreign map[*tenure]map[string]block.Turn
}

// takeSnapshot records what is known of the jobs of some queues.
func (run *runner) takeSnapshot(due []*workQueue) snapshot {
	run.mu.Lock()
	defer run.mu.Unlock()
	g := snapshot{out: maps.Clone(run.out), foreign: map[*tenure]map[string]block.Turn{}}
	for _, q := range due {
		for _, b := range q.blocks {
			for _, key := range b.Lines() {
				if turn, held := b.Holder(key); held && turn.Away && !b.Leaving {
					if g.foreign[b] == nil {
						g.foreign[b] = map[string]block.Turn{}
					}
					g.foreign[b][key] = turn
				}
			}
		}
	}
	return g
}
