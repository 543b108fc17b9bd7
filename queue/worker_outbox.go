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
	loaded      map[int64]payload // the payloads read
	found       block.Found
}

// An outbox holds what is still to be written: the blocks with ended or moved jobs, refused
// outcomes, the rows that belong to this worker, and counters.
type outbox struct {
	*core
	life *lifetime

	remnants map[*tenure]bool          // blocks that are gone, with unwritten outcomes
	out      map[store.JobID]*Delivery // checked out jobs whose rows have this worker's present name
	rows     map[store.JobID]*Delivery // running rows under that name, until they are deleted
	toHand   []*Delivery               // checked out, and cancelled because the worker is stopping
	ends     concluder
	book     refusalBook
	tally    tally
}

// flushBlocks serves the blocks that need it, one after the other.
func (w *Worker) flushBlocks(ctx context.Context) {
	trouble := trouble.New(w.log, "reading and writing jobs")
	w.mu.Lock()
	defer w.mu.Unlock()
	for {
		for len(w.serve) == 0 && !w.stopped {
			w.chores.Wait()
		}
		if w.stopped {
			return
		}
		trouble.Note(w.serveNext(ctx))
		w.tellClosing()
	}
}

// serveNext serves the next block that needs it. mu is held, but not during statements.
func (w *Worker) serveNext(ctx context.Context) error {
	b := w.neediest()
	b.queued, b.Serving = false, true
	t := w.planTrip(b)
	w.mu.Unlock()
	err := w.flush.makeTrip(ctx, t)
	w.mu.Lock()
	b.Serving = false
	w.apply(t, err)
	return err
}

// planTrip determines the work for a block. mu is held.
func (w *Worker) planTrip(b *tenure) *trip {
	t := &trip{b: b, node: w.lease.node, keyed: b.Keyed, keep: b.q.set.KeepDone, at: instant.Now()}
	t.plan = b.Plan(w.now(t.at))
	for _, s := range t.plan.Behind {
		m, _ := s.Move.(*move)
		w.setAside(refusedEnd{d: deliveryOf(s.Job), move: m})
	}
	t.acks = deliveriesOf(t.plan.Acks)
	t.moves = movesOf(t.plan.Moves)
	t.tied = t.keep > 0 || slices.ContainsFunc(t.acks, (*Delivery).tied)
	t.sentinels = w.flush.wantsSentinels(b)
	return t
}

// apply records what a round has done. mu is held.
func (w *Worker) apply(t *trip, err error) {
	b := t.b
	defer b.q.recheck()
	w.recordWritten(t)
	if err != nil {
		w.failedTrip(t, err)
		return
	}
	b.failures = 0
	if t.plan.Batch > 0 && t.noting.Changed > 0 {
		b.Batch, b.Says = t.plan.Batch, t.plan.Batch
	}
	if len(b.Refusals) == 0 {
		delete(w.remnants, b)
	}
	if b.Gone {
		w.enlist(b)
		return
	}
	for _, h := range t.plan.Gone {
		b.Release(h.Line, h.ID)
		w.offer(b, 1)
	}
	w.recordRead(t)
	if b.Doubted() > 0 {
		w.suspectMore()
	}
	w.enlist(b)
	if b.Leaving && b.idle() {
		w.nudge()
	}
	w.nudgeIfExhausted(b)
}

// recordWritten records the outcomes that a round has written, even if it failed later on. mu is held.
func (w *Worker) recordWritten(t *trip) {
	t.b.Returned()
	w.recordEnds(t)
	w.recordDeletions(t)
	for _, m := range t.moved {
		w.moved(m, t.node)
	}
	for _, x := range t.refused {
		w.setAside(x)
	}
	for _, d := range t.passed {
		t.b.NoteRead(&d.state)
	}
	w.recordConsumed(t)
}

// recordRead takes in the jobs that a round has read, and forgets those that are there no more. mu is
// held.
func (w *Worker) recordRead(t *trip) {
	b, f := t.b, &t.found
	b.ForgetDeleted(t.plan)
	f.Fresh, f.Ripe = jobsOf(t.fresh), jobsOf(t.ripe)
	t.recordLoads()
	b.Sift(t.plan, f)
	for _, list := range [][]*block.Job{f.Fresh, f.Ripe} {
		for _, j := range list {
			w.supersede(deliveryOf(j))
			if w.opt.AtMostOnce {
				w.ends.noteEnd(deliveryOf(j).Group)
			}
		}
	}
	took := b.Take(t.plan, f, instant.Now(), since(t.at))
	for _, j := range took.Late {
		w.tally.countLate(deliveryOf(j), reading{w.c.clock.skew(), t.at})
	}
	for _, j := range took.Lost {
		w.forgo(deliveryOf(j))
	}
	w.offer(b, took.Fresh+len(t.plan.Loads))
}

// failedTrip keeps the unwritten work of a round for the next one. mu is held.
func (w *Worker) failedTrip(t *trip, err error) {
	b := t.b
	if errors.Is(err, errBlockLost) {
		w.drop(b, ErrLost)
		b.TakeBack(jobsOf(t.acks), nil, nil) // deleting done jobs is right in any case
		w.undone(t.moves)
		w.enlistGone(b)
		return
	}
	b.TakeBack(jobsOf(t.acks), blockMoves(t.moves), t.plan.Gone)
	b.failures++
	b.Reads.Distrust()
	b.retryAt = instant.Now().Add(min(time.Duration(50<<min(b.failures, 6))*time.Millisecond, 2*time.Second))
	if b.Gone {
		w.remnants[b] = true
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
func (w *Worker) recordEnds(t *trip) {
	if len(t.ended) == 0 {
		return
	}
	b, at := t.b, w.c.clock.reading()
	for _, d := range t.ended {
		held := w.opt.AckEach || d.refusal != nil // the key's next job
		here := !w.exact || t.deleted[d.ID]
		if here {
			w.conclude(d, at, done, nil, 0)
		} else {
			w.conclude(d, at, lost, ErrLost, 0)
		}
		b.Deleted(&d.state, held, here)
		if held && here {
			w.offer(b, 1)
		}
	}
	clear(t.ended) // release the memory of jobs that are done
}
