package queue

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/internal/trouble"
	"github.com/dbcron/dbcron/queue/internal/block"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// A trip is a flusher's work for a block at a time: it writes the outcomes of jobs, and reads the next ones,
// in one round trip where possible. The plan is made, and the result applied, under the worker's mutex.
type trip struct {
	b         *tenure
	plan      *block.Plan
	at        instant.Instant // when it began
	node      string
	keyed     bool
	keep      time.Duration // how long done jobs are kept; 0: not at all
	tied      bool          // some of the acks have ties (unique keys, groups), or all jobs are kept
	sentinels bool          // place sentinels

	// What of the plan is still to be written.
	acks  []*Delivery
	moves []*move

	tripResult
}

// A tripResult is what a trip has done and found, even if it failed later on.
type tripResult struct {
	noting *sqlrun.Step // wrote the batch size
	placed bool         // sentinels were placed

	ended    []*Delivery     // acks that are committed, whatever happens to the rest
	deleted  map[int64]bool  // if it matters: which of their rows existed
	moved    []*move         // committed moves
	consumed []*Delivery     // retried claims, with their results: see mine
	mine     []bool          // whether their rows existed
	refused  []refusedEnd    // steps to set aside
	barred   map[string]bool // their keys
	passed   []*Delivery     // read jobs that stay in their table: refused, or behind such a job

	fresh, ripe []*Delivery       // the ready and due jobs read
	picked      []*Delivery       // the jobs read ahead of others
	loaded      map[int64]payload // the payloads read
	found       block.Found
}

// Runs are the attempts at jobs, as the outbox sees them. mu is held.
type runs interface {
	checkedOut(m *move, node string) // a job has a row of its own now, under a name of the worker
	freed(d *Delivery)               // a job that was to have one runs on in its place
	undone(moves []*move)            // moves that were not written, of a block that is gone
	forgo(d *Delivery)               // a checked out job has not started, and is somebody else's
	supersede(d *Delivery)           // a job was read
	written(d *Delivery)             // a job's outcome is committed, or will not be
}

// An outbox holds what is still to be written, and writes it: the ends of jobs, their moves, refused
// outcomes, the rows that belong to this worker, and counters.
type outbox struct {
	*core
	life *lifetime
	h    *holder
	runs runs

	remnants map[*tenure]bool          // blocks that are gone, with unwritten outcomes
	out      map[store.JobID]*Delivery // checked out jobs whose rows have this worker's present name
	rows     map[store.JobID]*Delivery // running rows under that name, until they are deleted
	toHand   []*Delivery               // checked out, and cancelled because the worker is stopping
	ends     concluder
	book     refusalBook
	tally    tally
	flush    flusher
}

// flushBlocks serves the blocks that need it, one after the other.
func (box *outbox) flushBlocks(ctx context.Context) {
	trouble := trouble.New(box.log, "reading and writing jobs")
	box.mu.Lock()
	defer box.mu.Unlock()
	for {
		for len(box.h.serve) == 0 && !box.life.stopped {
			box.h.chores.Wait()
		}
		if box.life.stopped {
			return
		}
		trouble.Note(box.serveNext(ctx))
		box.h.occupants.tellClosing()
	}
}

// serveNext serves the next block that needs it. mu is held, but not during statements.
func (box *outbox) serveNext(ctx context.Context) error {
	b := box.h.neediest()
	b.queued, b.Serving = false, true
	t := box.planTrip(b)
	box.mu.Unlock()
	err := box.flush.makeTrip(ctx, t)
	box.mu.Lock()
	b.Serving = false
	box.apply(t, err)
	return err
}

// planTrip determines the work for a block. mu is held.
func (box *outbox) planTrip(b *tenure) *trip {
	t := &trip{b: b, node: box.h.lease.node, keyed: b.Keyed, keep: b.q.set.KeepDone, at: instant.Now()}
	t.plan = b.Plan(box.h.now(t.at))
	for _, s := range t.plan.Behind {
		m, _ := s.Move.(*move)
		box.setAside(refusedEnd{d: deliveryOf(s.Job), move: m})
	}
	t.acks = deliveriesOf(t.plan.Acks)
	t.moves = movesOf(t.plan.Moves)
	t.tied = t.keep > 0 || slices.ContainsFunc(t.acks, (*Delivery).tied)
	t.sentinels = box.flush.wantsSentinels(b)
	return t
}

// apply records what a round has done. mu is held.
func (box *outbox) apply(t *trip, err error) {
	b := t.b
	defer b.q.recheck()
	box.recordWritten(t)
	if err != nil {
		box.failedTrip(t, err)
		return
	}
	b.failures = 0
	if t.plan.Batch > 0 && t.noting.Changed > 0 {
		b.Batch, b.Says = t.plan.Batch, t.plan.Batch
	}
	if len(b.Refusals) == 0 {
		delete(box.remnants, b)
	}
	if b.Gone {
		box.h.enlist(b)
		return
	}
	for _, h := range t.plan.Gone {
		b.Release(h.Line, h.ID)
		box.h.occupants.offer(b, 1)
	}
	box.recordRead(t)
	if b.Doubted() > 0 {
		box.h.occupants.suspectMore()
	}
	box.h.enlist(b)
	if b.Leaving && b.idle() {
		box.h.nudge()
	}
	box.h.nudgeIfExhausted(b)
}

// recordWritten records the outcomes that a round has written, even if it failed later on. mu is held.
func (box *outbox) recordWritten(t *trip) {
	t.b.Returned()
	box.recordEnds(t)
	box.recordDeletions(t)
	for _, m := range t.moved {
		box.moved(m, t.node)
	}
	for _, x := range t.refused {
		box.setAside(x)
	}
	for _, d := range t.passed {
		t.b.PassOver(&d.state)
	}
	box.recordConsumed(t)
}

// recordRead takes in the jobs that a round has read, and forgets those that are there no more. mu is
// held.
func (box *outbox) recordRead(t *trip) {
	b, f := t.b, &t.found
	b.ForgetDeleted()
	f.Fresh, f.Ripe, f.Picked = jobsOf(t.fresh), jobsOf(t.ripe), jobsOf(t.picked)
	t.recordLoads()
	if !box.opt.AtMostOnce { // otherwise it was done before their rows were removed
		b.Sift(t.plan, f)
	}
	for _, list := range [][]*block.Job{f.Fresh, f.Ripe, f.Picked} {
		for _, j := range list {
			box.runs.supersede(deliveryOf(j))
			if box.opt.AtMostOnce {
				box.ends.noteEnd(deliveryOf(j).Group)
			}
		}
	}
	took := b.Take(t.plan, f, instant.Now(), since(t.at))
	for _, j := range took.Late {
		box.tally.countLate(deliveryOf(j), reading{box.c.clock.skew(), t.at})
	}
	for _, j := range took.Lost {
		box.runs.forgo(deliveryOf(j))
	}
	box.h.occupants.offer(b, took.Fresh+len(t.plan.Loads))
}

// failedTrip keeps the unwritten work of a round for the next one. mu is held.
func (box *outbox) failedTrip(t *trip, err error) {
	b := t.b
	if errors.Is(err, errBlockLost) {
		box.h.occupants.drop(b, ErrLost)
		b.TakeBack(jobsOf(t.acks), nil, nil) // deleting done jobs is right in any case
		box.runs.undone(t.moves)
		box.enlistGone(b)
		return
	}
	b.TakeBack(jobsOf(t.acks), blockMoves(t.moves), t.plan.Gone)
	b.PickAgain(t.plan.Pick)
	b.failures++
	b.Reads.Distrust()
	b.retryAt = instant.Now().Add(min(time.Duration(50<<min(b.failures, 6))*time.Millisecond, 2*time.Second))
	if b.Gone {
		box.remnants[b] = true
	}
	// watch enlists it again
}

// enlistGone has what is unwritten of a lost block written. It may be pausing after a failure, and watch looks only
// after blocks that the worker has, and after remnants. mu is held.
func (box *outbox) enlistGone(b *tenure) {
	if len(b.Acks)+len(b.Moves) > 0 {
		box.remnants[b] = true
	}
	b.q.h.enlist(b)
}

// recordEnds records the deleted jobs. mu is held.
func (box *outbox) recordEnds(t *trip) {
	if len(t.ended) == 0 {
		return
	}
	b, at := t.b, box.c.clock.reading()
	for _, d := range t.ended {
		held := box.opt.AckEach || d.refusal != nil // the key's next job
		here := !box.exact || t.deleted[d.ID]
		if here {
			box.conclude(d, at, done, nil, 0)
		} else {
			box.conclude(d, at, lost, ErrLost, 0)
		}
		b.Deleted(&d.state, held, here)
		if held && here {
			box.h.occupants.offer(b, 1)
		}
	}
	clear(t.ended) // release the memory of jobs that are done
}

// serveAll reads and writes everything pending.
func (box *outbox) serveAll(ctx context.Context) error {
	box.mu.Lock()
	defer box.mu.Unlock()
	for len(box.h.serve) > 0 {
		// Retry a failed block after a moment, if that makes sense.
		if err := box.serveNext(ctx); err != nil && !box.db.Dialect.Retryable(err) {
			return err
		}
	}
	return nil
}
