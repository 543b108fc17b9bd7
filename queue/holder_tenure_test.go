package queue

import (
	"fmt"
	"testing"
	"time"

	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/queue/internal/block"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// newBlock returns a block as a worker would have it that has just taken it.
func newBlock(batch int) *tenure {
	w := bareWorker(WorkerOptions{Batch: batch})
	w.terms = block.Terms{Batch: batch, Whole: wholeEvery, Room: block.Room{Size: defaultReadAhead}}
	w.remnants = map[*tenure]bool{}
	w.lease.deadline = instant.Now().Add(time.Hour)
	b := newTenure(&workQueue{h: &w.holder, set: &store.Queue{Settings: store.Settings{State: "active"}}})
	b.Reads.Unseen = false
	return b
}

// ready returns a job that was read of a block.
func ready(b *tenure, id int64) *Delivery {
	d := &Delivery{Job: Job{Priority: Normal}, ID: id}
	d.comesFrom(b)
	return d
}

// A worker that renewed its lease late, but has it again, continues with what it has read.
func TestReadyAfterALateRenewal(t *testing.T) {
	b := newBlock(100)
	w := runnerOf(b)
	w.chores.L, w.work.L = &w.mu, &w.mu
	w.queues = []*workQueue{b.q}
	w.lease.deadline = 0
	b.Add(&ready(b, 1).state)
	w.offer(b, 1)
	if d := w.popReady(); d != nil {
		t.Fatalf("%d begins, and the lease is over", d.ID)
	}
	w.lease.deadline = instant.Now().Add(time.Hour)
	if d := w.popReady(); d == nil {
		t.Error("the job is not offered any more")
	}
}

// A failure of a job that has a row of its own is written, although the block that it
// came from was lost.
func TestMovesOutliveTheBlock(t *testing.T) {
	b := newBlock(100)
	w := runnerOf(b)
	w.log = quiet()
	own, of := ready(b, 1), ready(b, 2)
	own.state.From = tableRunning
	own.state.Phase, of.state.Phase = block.PhaseEnded, block.PhaseEnded
	w.apply(&trip{b: b, plan: &block.Plan{}, moves: []*move{{d: own, verdict: failed}, {d: of, verdict: failed}}}, errBlockLost)
	if len(b.Moves) != 1 || b.Moves[0].Of() != &own.state {
		t.Errorf("to be written: %s", fmt.Sprint(b.Moves))
	}
}

// Without the lease a flusher reads nothing, so a block is not served again and again until the loss is noticed.
func TestNothingIsWantedWithoutTheLease(t *testing.T) {
	b := newBlock(100)
	w := runnerOf(b)
	at := instant.Now()
	if !b.wants(at) {
		t.Error("with the lease, nothing is wanted of a block that was not read yet")
	}
	w.lease.deadline = at
	if b.wants(at) {
		t.Error("something is wanted that no trip does")
	}
	b.Finish(&ready(b, 1).state)
	if !b.wants(at) {
		t.Error("what is done is not written")
	}
}

// What a lost block has not written is tried again, also if it was lost while it paused after a failure: whoever
// waits for the outcome of its jobs would wait for ever.
func TestMovesOutliveAPause(t *testing.T) {
	for _, byTrip := range []bool{false, true} {
		b := newBlock(100)
		w := runnerOf(b)
		w.log = quiet()
		own, done := ready(b, 1), ready(b, 2)
		own.state.From = tableRunning
		own.state.Phase, done.state.Phase = block.PhaseEnded, block.PhaseEnded
		b.Moves, b.failures, b.retryAt = []block.Move{&move{d: own, verdict: failed}}, 1, instant.Now().Add(time.Hour)
		if byTrip {
			b.Moves = nil
			w.apply(&trip{b: b, plan: &block.Plan{}, acks: []*Delivery{done}}, errBlockLost)
		} else {
			w.drop(b, ErrLost)
		}
		if !w.remnants[b] || len(b.Moves)+len(b.Acks) != 1 {
			t.Errorf("by a trip %v: %d moves and %d acks are left, and are remnants: %v", byTrip, len(b.Moves), len(b.Acks), w.remnants[b])
		}
	}
}
