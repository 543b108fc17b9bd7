package block

import (
	"slices"
	"testing"

	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// What a trip cannot write at once keeps the order of a key: no job is moved before all that are done are written.
func TestMovesWaitForAcks(t *testing.T) {
	b := newBlock(1)
	b.Keyed = true
	for id := range int64(store.Chunk + 1) {
		b.Finish(ready(id+1, "k"))
	}
	b.Move(&retry{j: ready(store.Chunk+2, "k")})
	if p := b.Plan(now(1, modelNow)); len(p.Acks) != store.Chunk || len(p.Moves) > 0 {
		t.Errorf("%d are written, and %d moved", len(p.Acks), len(p.Moves))
	}
	if p := b.Plan(now(1, modelNow)); len(p.Acks) != 1 || len(p.Moves) != 1 {
		t.Errorf("%d are written, and %d moved", len(p.Acks), len(p.Moves))
	}
}

// A block that is lost deletes what is done, and neither reads nor waits for anything.
func TestLostBlock(t *testing.T) {
	b := newBlock(1)
	for id := range int64(3) {
		j := ready(id+1, "k")
		j.Size = 10
		b.Add(j)
	}
	b.Settle()
	b.IsDue()
	first := b.Pop()
	first.Phase = PhaseEnded
	b.Active--
	b.Missed = []HeldKey{{9, "l"}}
	b.Gone = true
	b.Drop()
	b.Finish(first)
	b.Release(first.Line, first.ID)
	at := now(instant.Instant(1), modelNow)
	p := b.Plan(at)
	if !slices.Equal(p.Acks, []*Job{first}) || p.Reads || p.Delayed || p.Loads != nil || p.Waits != nil || p.Gone != nil || p.Moves != nil {
		t.Errorf("it plans %+v", p)
	}
	r := &Refusal{Job: first}
	b.SetAside(r) // which the database refuses
	b.Relieve(r)
	b.Returned()
	b.Deleted(first, true, false)
	if b.Wants(at) || len(b.Missed) > 0 || len(b.keyQueues) > 0 || b.held != 0 || b.terms.Held != 0 || b.Active != 0 || !b.Idle(false) {
		t.Errorf("left: %+v", b)
	}
}

// What another process has ended is remembered until what a trip has read meanwhile is taken in: one that has just ended, or is under
// way.
func TestForgetSoon(t *testing.T) {
	for _, serving := range []bool{false, true} {
		b := newBlock(1)
		b.Add(ready(1, ""))
		b.Engage(b.Pop())
		p := &Plan{Reads: true, Read: Read{Limit: 1}}
		if b.Serving = serving; serving {
			b.ForgetSoon(1)
			b.Serving = false
			b.ForgetDeleted()
		} else {
			b.ForgetDeleted()
			b.ForgetSoon(1)
		}
		if got := b.Take(p, &Found{Fresh: []*Job{ready(1, "")}}, 1, 0); got.Fresh != 0 {
			t.Errorf("%d jobs are new", got.Fresh)
		}
		b.Plan(now(2, modelNow))
		if b.ForgetDeleted(); b.Known() != 0 {
			t.Errorf("%d jobs are remembered", b.Known())
		}
	}
}

// What a failed trip was to write is written before what was owed since.
func TestFailedTripGoesFirst(t *testing.T) {
	b := newBlock(1)
	b.Keyed = true
	b.Finish(ready(1, "k"))
	first := b.Plan(now(1, modelNow))
	b.Finish(ready(2, "k"))
	b.TakeBack(first.Acks, first.Moves, first.Gone)
	if p := b.Plan(now(2, modelNow)); len(p.Acks) != 2 || p.Acks[0].ID != 1 {
		t.Errorf("it writes %v", p.Acks)
	}
}

// Whatever makes a trip necessary says so.
func TestOwes(t *testing.T) {
	refusal := &Refusal{Job: ready(1, "k")}
	for name, do := range map[string]func(b *Block){
		"jobs of a key that were put back": func(b *Block) { b.resume(b.keyQueue("k")) },
		"a read from an id on":             func(b *Block) { b.ReadFrom(7) },
		"a row that is gone":               func(b *Block) { b.ReleaseIfHeld("k", 1) },
		"a refusal that is over":           func(b *Block) { b.Refusals = append(b.Refusals, refusal); b.host.(*host).owes = 0; b.Relieve(refusal) },
		"ends that were withheld":          func(b *Block) { b.HandBack([]*Job{ready(1, "")}, nil, true) },
	} {
		b := newBlock(1)
		if do(b); b.host.(*host).owes == 0 {
			t.Errorf("after %s nothing is owed", name)
		}
	}
}
