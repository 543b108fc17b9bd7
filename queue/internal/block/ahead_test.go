package block

import (
	"slices"
	"testing"
	"time"

	"github.com/dbcron/dbcron/queue/internal/store"
)

// A job that was taken over, and whose row is gone when its payload is read, does not begin; its line waits for the fence.
func TestLostBeforeItsPayload(t *testing.T) {
	b := newBlock(1)
	j := ready(1, "k")
	j.From, j.Unloaded = store.AmongRunning, true
	b.TakesTurn("k", 1)
	b.TakeIn("k", 1)
	if b.Admit(j); b.Pop() != nil {
		t.Fatal("it begins without its payload")
	}
	p := b.Plan(now(1, modelNow))
	if !slices.Equal(p.Loads, []*Job{j}) {
		t.Fatalf("the payloads of %v are read", p.Loads)
	}
	got := b.Take(p, &Found{Loaded: map[int64]bool{}}, 1, time.Millisecond)
	if !slices.Equal(got.Lost, p.Loads) || b.Count != 0 || b.Lacks() || !slices.Equal(b.Missed, []HeldKey{{1, "k"}}) {
		t.Errorf("lost: %v; %d are left, and %v wait for the fence", got.Lost, b.Count, b.Missed)
	}
}

// A job that was taken, put back or cancelled while its payload was read stays as it is.
func TestLateForItsPayload(t *testing.T) {
	for name, change := range map[string]func(*Block, *Job){
		"is being checked out": func(_ *Block, j *Job) { j.Row = RowLeaving },
		"was cancelled":        func(b *Block, j *Job) { b.remove(j) },
		"was put back":         func(b *Block, j *Job) { b.ready.Take(normal); b.Count--; b.skip(j) },
	} {
		for _, loaded := range []bool{false, true} {
			b := newBlock(1)
			j := ready(1, "")
			j.Size, j.Unloaded = 10, true
			b.Add(j)
			p := &Plan{Loads: []*Job{j}}
			change(b, j)
			phase, forget := j.Phase, len(b.forget)
			b.Take(p, &Found{Loaded: map[int64]bool{1: loaded}}, 1, time.Millisecond)
			if !j.Unloaded || j.Phase != phase || len(b.forget) != forget || b.held != 0 {
				t.Errorf("it %s, and its payload comes (%v): %+v, %d bytes are held", name, loaded, j, b.held)
			}
		}
	}
}

// A read is of no more rows than there is memory for, if they are as large as those that were read before.
func TestReadsAsMuchAsFits(t *testing.T) {
	b := newBlock(1000)
	b.terms.Size, b.terms.Held = 1_000_000, 0
	if n := b.rowsAtOnce(); n != 1000 {
		t.Errorf("it reads %d rows, and knows nothing of their sizes", n)
	}
	p := &Plan{Room: b.terms.Allow()}
	for range 10 {
		p.Room.Takes(4000)
	}
	b.Take(p, &Found{}, 1, 0)
	if n := b.rowsAtOnce(); n < 250 || n > 600 {
		t.Errorf("with room for 250 rows like the last ones, it reads %d", n)
	}
}
