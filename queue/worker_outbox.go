package queue

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/internal/trouble"
	"github.com/dbcron/dbcron/queue/internal/board"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// A trip is a flusher's work for a block at a time: it writes the outcomes of jobs, and reads the next ones,
// in one round trip where possible. The plan is made, and the result applied, under the worker's mutex.
type trip struct {
	tripPlan
	tripResult
}

// A tripPlan says what a trip writes and reads. Of moves and acks it keeps what is still to be written.
type tripPlan struct {
	b         *block
	at        instant.Instant // when it began
	node      string
	keyed     bool
	keep      time.Duration // how long done jobs are kept; 0: not at all
	tied      bool          // some of the acks have ties (unique keys, groups), or all jobs are kept
	sentinels bool          // place sentinels

	moves []move
	acks  []*Delivery
	again []*refusal // refused before, to be tried again
	gone  []heldKey  // jobs whose keys continue if the block is still this worker's

	reads   bool // reads ready jobs
	read    board.Read
	delayed bool // reads jobs that are due
	due     board.DueRead
	batch   int         // the batch size to write to the block's row; 0: no change
	room    allowance   // payload bytes that may be kept
	loads   []*Delivery // jobs whose payloads to read
	waits   []*Delivery // jobs to check for existence
}

// A tripResult is what a trip has done and found, even if it failed later on.
type tripResult struct {
	noting *sqlrun.Step // wrote the batch size
	placed bool         // sentinels were placed

	ended    []*Delivery     // acks that are committed, whatever happens to the rest
	deleted  map[int64]bool  // if it matters: which of their rows existed
	moved    []move          // committed moves
	consumed []*Delivery     // retried claims, with their results: see mine
	mine     []bool          // whether their rows existed
	refused  []refusedEnd    // steps to set aside
	barred   map[string]bool // their keys
	passed   []*Delivery     // read jobs that stay in their table: refused, or behind such a job

	there  map[int64]bool    // those of waits that exist
	loaded map[int64]payload // the payloads read

	fresh []*Delivery   // the ready jobs read
	got   board.Fetched // their number and size
	ripe  []*Delivery   // the due jobs read
	m     int           // their number
	last  board.Due
}

// An outbox holds what is still to be written: the blocks with ended or moved jobs, refused
// outcomes, the rows that belong to this worker, and counters.
type outbox struct {
	*core
	life *lifetime

	chores   sync.Cond                 // wakes flushers that wait for blocks
	serve    []*block                  // blocks that need a flusher
	needs    bool                      // the last one was chosen because it was neediest
	remnants map[*block]bool           // blocks that are gone, with unwritten outcomes
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
	b.queued, b.serving = false, true
	t := w.planTrip(b)
	w.mu.Unlock()
	err := w.flush.makeTrip(ctx, t)
	w.mu.Lock()
	b.serving = false
	w.apply(t, err)
	return err
}

// planTrip determines the work for a block. mu is held.
func (w *Worker) planTrip(b *block) *trip {
	t := &trip{tripPlan: tripPlan{b: b, node: w.lease.node, keyed: b.keyed, keep: b.q.set.KeepDone}}
	n := min(store.Chunk, len(b.acks))
	t.acks, b.acks = b.acks[:n:n], b.acks[n:]
	t.tied = t.keep > 0 || slices.ContainsFunc(t.acks, func(d *Delivery) bool { return d.tied() })
	if !t.keyed || len(b.acks) == 0 {
		t.moves, b.moves = b.moves, nil
	}
	t.gone, b.missed = b.missed, nil
	b.forget, b.lost = append(b.forget, b.lost...), nil
	at := instant.Now()
	t.at = at
	w.keepBehind(t)
	t.again = b.retries(at)
	b.sent = t.acks
	t.sentinels = w.flush.wantsSentinels(b)
	if at >= w.lease.deadline {
		return t
	}
	t.batch = w.rebatch(b)
	t.read, t.reads = b.plan(at, w.c.clock.closed(at))
	if !t.reads {
		t.batch = 0
	}
	if b.open() && b.room() && (b.dues.Ripe || t.read.Whole || b.dues.LookDue(at)) {
		t.delayed = true
		t.due = b.dues.Plan(at, duesUpto(w.c.clock.closed(at)), b.atOnce(), len(b.seen), t.read.Whole, b.keyed)
	}
	t.room = w.allow()
	t.loads = b.toLoad(t.room.left)
	for _, d := range t.loads {
		t.room.left = max(0, t.room.left-d.unloadedSize)
	}
	if b.open() && b.checkDue(at) {
		b.checked = at
		t.waits = b.waits()
	}
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
	if t.batch > 0 && t.noting.Changed > 0 {
		b.batch, b.says = t.batch, t.batch
	}
	if len(b.refusals) == 0 {
		delete(w.remnants, b)
	}
	if b.gone {
		w.enlist(b)
		return
	}
	for _, h := range t.gone {
		b.release(h.key, h.id)
		w.offer(b, 1)
	}
	w.recordRead(t)
	if len(b.doubted) > 0 {
		w.suspectMore()
	}
	w.enlist(b)
	if b.leaving && b.idle() {
		w.nudge()
	}
	w.nudgeIfExhausted(b)
}

// recordWritten records the outcomes that a round has written, even if it failed later on. mu is held.
func (w *Worker) recordWritten(t *trip) {
	t.b.sent = nil
	w.recordEnds(t)
	w.recordDeletions(t)
	for i := range t.moved {
		w.moved(&t.moved[i], t.node)
	}
	for _, x := range t.refused {
		w.setAside(x)
	}
	for _, d := range t.passed {
		t.b.noteRead(d)
	}
	w.recordConsumed(t)
}

// recordRead takes in the jobs that a round has read, and forgets those that are there no more. mu is
// held.
func (w *Worker) recordRead(t *trip) {
	b := t.b
	if t.reads || t.delayed || b.crowded() { // no more of these are read before there is room again
		for _, id := range b.forget {
			delete(b.seen, id)
		}
		b.forget = b.forget[:0]
	}
	w.readAnew(t)
	b.removeMissing(t.waits, t.there)
	b.sized(t.room)
	if t.loads != nil {
		w.recordLoads(t)
	}
	if t.delayed {
		b.dues.Took(t.due, t.m, t.last)
	}
	fresh := w.addFresh(t)
	b.settle()
	b.reads.Shaken = b.reads.Shaken || since(t.at) > Window // a key stands still
	if t.reads {
		b.reads.Took(t.read, t.got, fresh, instant.Now())
		b.restAfter(t.read, since(t.at))
		b.hasReadAgain(t.read)
	}
	b.evict()
	w.offer(b, fresh)
}

// failedTrip keeps the unwritten work of a round for the next one. mu is held.
func (w *Worker) failedTrip(t *trip, err error) {
	b := t.b
	if errors.Is(err, errBlockLost) {
		w.drop(b, ErrLost)
		b.acks = append(t.acks, b.acks...) // deleting done jobs is right in any case
		w.undone(t.moves)
		w.enlistGone(b)
		return
	}
	b.acks, b.moves, b.missed = append(t.acks, b.acks...), append(t.moves, b.moves...), append(t.gone, b.missed...)
	b.failures++
	b.reads.Distrust()
	b.retryAt = instant.Now().Add(min(time.Duration(50<<min(b.failures, 6))*time.Millisecond, 2*time.Second))
	if b.gone {
		w.remnants[b] = true
	}
	// watch enlists it again
}

// enlistGone has what is unwritten of a lost block written. It may be pausing after a failure, and watch looks only
// after blocks that the worker has, and after remnants. mu is held.
func (box *outbox) enlistGone(b *block) {
	if len(b.acks)+len(b.moves) > 0 {
		box.remnants[b] = true
	}
	box.enlist(b)
}

// readAnew discards what a round has read if earlier jobs may be missing, and schedules a read
// of the block from further back. mu is held.
func (w *Worker) readAnew(t *trip) {
	b := t.b
	if t.read.Back {
		t.fresh = b.keepWanted(t.read, t.fresh)
	}
	if t.reads && !t.read.Whole && !t.read.Back && !w.opt.AtMostOnce && slices.ContainsFunc(t.fresh, b.comesLate) {
		// A job of its key may have been committed long after its id was drawn.
		b.readWhole(t.fresh)
		t.fresh, t.reads = nil, false
	}
	if !b.keyed && t.reads && !b.reads.FromHorizon(t.read) && !w.opt.AtMostOnce && slices.ContainsFunc(t.fresh, (*Delivery).hasKey) {
		// The first keys: earlier jobs may have been committed after later ones were read. Read
		// again, as in a queue with keys.
		b.keyed = true
		b.reads.Back()
		t.fresh, t.reads = nil, false
	}
}

// addFresh adds the jobs that a round has read to its block, and returns how many are new there.
// mu is held.
func (w *Worker) addFresh(t *trip) (fresh int) {
	b := t.b
	for _, list := range [][]*Delivery{t.fresh, t.ripe} {
		for _, d := range list {
			b.noteRead(d)
			w.supersede(d)
			if w.opt.AtMostOnce {
				w.ends.noteEnd(d)
			}
			b.keyed = b.keyed || d.line() != ""
			late := b.late(d, t.read)
			if d.from == tableReady && !t.read.Back && b.skips(d, t.read) {
				continue
			}
			was := b.seen[d.ID]
			if b.add(d) {
				fresh++
				if late {
					w.tally.countLate(d, reading{w.c.clock.skew(), t.at})
				}
			} else if d.from == tableDelayed && (was.from != tableDelayed || was.runAt != d.runAt) {
				b.dues.Missed(d.due()) // another attempt than the one in memory
			}
		}
	}
	return fresh
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
		b.forget = append(b.forget, d.ID)
		switch {
		case held && here:
			w.release(d)
		case held:
			w.releaseIfMine(b, d.line(), d.ID)
		}
		b.spare(d)
	}
	clear(t.ended) // release the memory of jobs that are done
}

// nudge wakes a flusher for the blocks at once.
func (wake *wakeups) nudge() { signal(wake.tick) }
