package queue

import (
	"sync"

	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// What keeps the order of a key when a job is committed late: workers look for jobs in the
// order of ids, and back by [Window]. If a statement or a commit has taken longer, a job
// may be passed over for a while, and one of its key that is enqueued after it must not be
// begun before it. So the next job of its block says that there may be one: its id ends
// in [follower]. A worker that reads such an id reads all of the block before it goes on.
//
// Of an id that ends so by chance, one in 4096 that others than this package make, nothing
// follows but one more read.

// comesLate reports whether a job that was read says that one before it may not have been: not
// if all of the block is read since, in however many parts.
func (b *block) comesLate(d *Delivery) bool {
	return d.line() != "" && d.ID&store.Follower == store.Follower && b.seen[d.ID] == nil && !b.followed[d.ID]
}

// readWhole has all of the block read before jobs begin that follow late ones.
func (b *block) readWhole(rows []*Delivery) {
	if b.followed == nil {
		b.followed = map[int64]bool{}
	}
	for _, d := range rows {
		if b.comesLate(d) {
			b.followed[d.ID] = true
		}
	}
	b.reads.Anew()
}

// lateAfter is how long after an id was drawn its job is committed late. The rest of Window
// is for what passes before a worker reads.
const lateAfter = Window / 2

// late are the blocks in which jobs may have been committed late since one was that follows
// them.
type late struct {
	mu     sync.Mutex
	blocks map[store.BlockID]int // how often there were; 0: never
	n      int
}

// number has rows follow those that were late. Their ids are fresh.
func (l *late) number(rows []jobRow) {
	if len(rows) == 0 {
		return
	}
	rows[0].drawn = instant.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.blocks) == 0 {
		return
	}
	for i := range rows {
		r := &rows[i]
		if r.after = l.blocks[store.BlockID{Queue: r.queue, Divided: r.divided}]; r.after != 0 && r.ordered() {
			r.id |= store.Follower
		}
	}
}

// ordered reports whether a row has a place among those of its key.
func (r *jobRow) ordered() bool {
	return (r.Key != "" || r.of != nil && r.of.FIFO) && r.runAt == 0 && r.holder == 0
}

// note records that rows were committed.
func (l *late) note(rows []jobRow) {
	if len(rows) == 0 {
		return
	}
	if since(rows[0].drawn) > lateAfter {
		l.mark(rows)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.blocks) == 0 {
		return
	}
	for i := range rows {
		r := &rows[i]
		if at := (store.BlockID{Queue: r.queue, Divided: r.divided}); r.after != 0 && r.ordered() && l.blocks[at] == r.after {
			delete(l.blocks, at)
		}
	}
}

// mark records that rows were, or will be, committed late.
func (l *late) mark(rows []jobRow) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.blocks == nil {
		l.blocks = map[store.BlockID]int{}
	}
	l.n++
	for i := range rows {
		if r := &rows[i]; r.ordered() {
			l.blocks[store.BlockID{Queue: r.queue, Divided: r.divided}] = l.n
		}
	}
}
