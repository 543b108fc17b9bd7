package block

import (
	"testing"

	"github.com/dbcron/dbcron/queue/internal/store"
)

// A mark has the block read whole once: neither again by that read, in whatever parts, nor by a job that was read before, or that
// has no key.
func TestMarks(t *testing.T) {
	b := newBlock(1)
	b.Keyed = true
	b.Reads.Whole, b.Reads.Dirty = 1, false
	marked := func(n int64, line string) *Job { return ready(n<<20|store.Follower, line) }
	known := marked(1, "k")
	b.Add(known)
	asks := func(j *Job, r Read) bool {
		p, f := &Plan{Reads: true, Read: r}, &Found{Fresh: []*Job{j, marked(9, "l")}}
		if b.Sift(p, f); p.Reads == (f.Fresh == nil) || p.Reads == b.Reads.Dirty {
			t.Fatalf("it takes %d jobs, and reads again: %v", len(f.Fresh), b.Reads.Dirty)
		}
		return !p.Reads
	}
	b.followed = map[int64]bool{marked(9, "l").ID: true}
	for name, asked := range map[string]bool{
		"without a key":       asks(marked(2, ""), Read{}),
		"read before":         asks(known, Read{}),
		"without a mark":      asks(ready(2<<20, "k"), Read{}),
		"read with the block": asks(marked(3, "k"), Read{Whole: true}),
	} {
		if asked {
			t.Errorf("a job %s has the block read whole", name)
		}
	}
	clear(b.followed)
	if !asks(marked(4, "k"), Read{}) || b.Reads.Whole != 0 {
		t.Error("a marked job does not have the block read whole")
	}
	if b.Reads.Dirty = false; asks(marked(4, "k"), Read{}) {
		t.Error("a marked job has the block read whole twice")
	}
	back := &Found{Fresh: []*Job{marked(5, "k")}}
	b.keyQueue("k").skipped, b.resumed = marked(5, "k").ID, []*keyQueue{b.keyQueue("k")}
	b.keyQueue("k").waiting = nil
	p := &Plan{Reads: true, Read: Read{Back: true, Limit: 9, Upto: 1 << 40}}
	if b.Sift(p, back); !p.Reads || len(back.Fresh) != 1 {
		t.Error("a marked job that was put back has the block read whole")
	}
}
