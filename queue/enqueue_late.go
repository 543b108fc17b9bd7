package queue

import (
	"sync"

	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/queue/internal/block"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// How a key keeps its order when a job is committed late. Workers look for jobs in the order of
// ids, and look back by [Window]. If a statement or commit took longer, they may miss a job for a
// while, and a job of its key that was enqueued later must not begin before it. So the next job of
// its block carries a mark: its id ends in [store.Follower]. A worker that reads such an id reads the
// whole block before it goes on.
//
// A producer that learns that its commit came later than Window also says so to the workers, which then
// read from its first id on.
//
// An id of another origin ends so by chance once in 4096 times. That costs one more read and
// nothing else.

// Window is how far back workers look for jobs that were committed late. A transaction that
// enqueues jobs should not last longer: then its jobs are found at once, and those of a key
// in order. Jobs committed later are found too, but with a delay: of up to twice the time that
// their transaction took, and of a minute at most.
const Window = block.Window

// lateAfter is how old an id may be when its job is committed; after that the commit is late. The
// rest of Window is for the time until a worker reads.
const lateAfter = Window / 2

// late records the blocks in which jobs may have been committed late since the last marked job.
type late struct {
	mu     sync.Mutex
	blocks map[store.BlockID]int // number of late commits; 0: never
	n      int
}

// number marks rows that follow late ones. Their ids are fresh.
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

// ordered reports whether a row's place among those of its key matters.
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

// lateFrom returns the first ids, by queue, of ready rows that were committed too late to be found. They
// are now.
func lateFrom(rows []jobRow) map[int]int64 {
	if len(rows) == 0 || since(rows[0].drawn) <= Window {
		return nil
	}
	first := map[int]int64{}
	for i := range rows {
		if r := &rows[i]; r.id != 0 && r.runAt == 0 {
			first[r.queue] = block.Least(first[r.queue], r.id)
		}
	}
	return first
}

// stale reports whether rows got their blocks from settings so old that a generation unknown to
// them may have begun.
func stale(rows []jobRow) bool {
	for i := range rows {
		if q := rows[i].of; (i == 0 || rows[i-1].of != q) && since(q.At) > store.ResizeAfter-store.SettingsAge/4 {
			return true
		}
	}
	return false
}
