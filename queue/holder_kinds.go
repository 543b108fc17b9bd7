package queue

import (
	"slices"
	"time"

	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/queue/internal/limit"
	"github.com/dbcron/dbcron/queue/internal/share"
)

// Workers that do not handle all kinds. A worker announces the kinds that it handles in its row
// of queue_worker, and leaves jobs of other kinds where they are: such a job waits as for a limit
// that never opens, so jobs behind it continue, except for those of its key.
//
// A block has one holder, and its jobs may be of kinds that take several workers. So its holder
// hands it over if other workers handle its jobs: at once if nothing else is left, and otherwise
// after a turn. The block's row then names the kind, and the block counts toward the share of the
// workers that handle it: see partsOf. It stays with them until a job comes that they do not
// handle.
//
// A kind that no worker handles keeps no block from anybody. Its jobs wait, and it is logged
// once.
//
// That a job is done by a worker that handles its kind never depends on these rows: a worker
// begins no job of a kind that it does not handle.

const (
	// kindTurn is how long a worker keeps a block with jobs that others could run and it cannot.
	kindTurn = 2 * time.Second

	// unknownAfter is how long jobs of an unhandled kind wait before that is logged: the workers
	// of a deployment do not all start at once.
	unknownAfter = 5 * time.Second

	// maxUnknown is how many of such kinds a worker remembers.
	maxUnknown = 100
)

// knows reports whether the worker handles a kind, if only by burying its jobs. mu is held.
func (k *kindChoice) knows(kind string) bool { return !k.selective || k.handled.Takes(kind) }

// announces returns the kinds that the worker handles, as text for its row and as an argument.
func (k *kindChoice) announces() (text string, arg any) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.selective {
		return "", nil
	}
	return k.handled.Text, k.handled.Text
}

// noteKinds records the kinds that the other workers handle.
func (k *kindChoice) noteKinds(q *workQueue, all []share.Worker, name string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	var others []*share.KindSet
	if k.selective {
		others = share.KindsOfOthers(all, name)
	}
	if !slices.Equal(others, q.others) {
		q.others = others
		for _, b := range q.blocks {
			q.h.sortAnew(b)
		}
	}
}

// othersDo reports whether another worker of the queue handles a kind. mu is held.
func (q *workQueue) othersDo(kind string) bool {
	return slices.ContainsFunc(q.others, func(s *share.KindSet) bool { return s.Takes(kind) })
}

// stranger returns the limiter that holds back jobs of kinds that this worker does not handle.
// mu is held.
func (q *workQueue) stranger(kind string) *limit.Limiter {
	if q.othersKinds == nil {
		q.othersKinds, q.unhandledKinds = limit.Barrier(q.limits, ""), limit.Barrier(q.limits, "")
	}
	if q.othersDo(kind) {
		return q.othersKinds
	}
	w := q.h
	if w.choice.unknown == nil {
		w.choice.unknown = map[kindOf]instant.Instant{}
	}
	if at := (kindOf{q, kind}); w.choice.unknown[at] == 0 && len(w.choice.unknown) < maxUnknown {
		w.choice.unknown[at] = instant.Now()
	}
	return q.unhandledKinds
}

// A kindOf is a kind of a queue.
type kindOf struct {
	q    *workQueue
	kind string
}

// tellUnknown logs once which kinds no worker handles. mu is held.
func (k *kindChoice) tellUnknown(q *workQueue) {
	for at, from := range k.unknown {
		switch {
		case at.q != q || from < 0 || since(from) < unknownAfter:
		case q.othersDo(at.kind) || k.knows(at.kind):
			delete(k.unknown, at)
		default:
			k.unknown[at] = -1
			k.log.Warn("jobs wait because no worker of their queue handles their kind; dbcron doctor counts them", "queue", q.name, "kind", at.kind)
		}
	}
}

// sortAnew sorts the jobs of a block that have not begun again, after the kinds that this
// worker or others handle have changed. mu is held.
func (h *holder) sortAnew(b *tenure) {
	h.occupants.offer(b, b.SortAnew(b.q.othersKinds, b.q.unhandledKinds, b.q.unnamedKinds))
	h.enlist(b)
}

// yield marks the blocks of a queue that should go to workers that handle other kinds.
func (h *holder) yield(q *workQueue) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.choice.selective {
		return
	}
	h.choice.tellUnknown(q)
	at := instant.Now()
	for _, b := range q.blocks {
		if kind, goes := yields(b, at); goes {
			b.heir = kind
			h.leave(b)
		}
	}
}

// yields reports whether a block should go to others, and for which kind. mu is held.
func yields(b *tenure, at instant.Instant) (kind string, goes bool) {
	if kind = b.forOthers(); kind == "" {
		b.waiting = 0
		return "", false
	}
	if b.waiting == 0 {
		b.waiting = at
	}
	if b.Leaving || !b.Open() || b.kept != 0 && at.Sub(b.kept) < keepFor {
		return "", false
	}
	return kind, b.Exhausted() || at.Sub(b.waiting) >= kindTurn && at.Sub(b.from) >= kindTurn
}

// forOthers returns the kind of the block's first job that only others handle, or "". mu is
// held.
func (b *tenure) forOthers() string {
	if kind := b.FirstAt(b.q.othersKinds); kind != "" {
		return kind
	}
	if b.strand != "" && b.q.othersDo(b.strand) {
		return b.strand
	}
	return ""
}

// nudgeIfExhausted wakes a flusher for a block that goes to other workers. mu is held.
func (h *holder) nudgeIfExhausted(b *tenure) {
	if h.choice.selective && b.Exhausted() {
		if _, goes := yields(b, instant.Now()); goes {
			h.nudge()
		}
	}
}

// unstrand forgets the jobs that wait to be adopted, so that they are checked again. mu is held.
func (q *workQueue) unstrand() {
	if q.h.opt.AtMostOnce { // jobs left in the table
		return
	}
	for _, b := range q.blocks {
		b.strand = ""
	}
}

// strands reports whether a checked out job whose worker has ended is left to others, because
// this worker does not handle its kind.
func (k *kindChoice) strands(q *workQueue, r *runningRow) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.knows(r.kind) {
		return false
	}
	if b := q.blocks[r.divided]; b != nil && q.stranger(r.kind) == q.othersKinds {
		b.strand = r.kind
	}
	return true
}

// A kindChoice says which kinds the worker handles, and which ones others are known to handle.
type kindChoice struct {
	*core
	selective bool                       // it does not handle all kinds
	handled   *share.KindSet             // the kinds that it handles, if it picks
	wanted    *share.KindSet             // the kinds wanted now; nil: all
	unknown   map[kindOf]instant.Instant // kinds that nobody handles: since when, or -1 once logged
}
