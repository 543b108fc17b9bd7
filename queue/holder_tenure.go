package queue

import (
	"time"

	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/queue/internal/block"
	"github.com/dbcron/dbcron/queue/internal/limit"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// A tenure is a block that this worker has leased: its jobs in memory, what it owes to the database, and the rest of what
// the worker knows of it. No other worker reads the block meanwhile, so its jobs are neither locked nor
// marked. The worker's mu guards it.
type tenure struct {
	block.Block
	q       *workQueue
	divided int
	fence   int64
	from    instant.Instant // when it was taken
	fifo    bool            // its jobs run one after the other

	queued   bool       // a flusher will serve it
	spot     block.Spot // its position among its queue's blocks with ready jobs
	failures int        // consecutive failures of reads or writes
	retryAt  instant.Instant
	due      int64           // when the next delayed job is due, in µs; 0: none known
	stirred  bool            // it is not still: see holder_rounds.go
	swept    instant.Instant // last read of its delayed jobs from the beginning

	had     string // the worker that had it before, if that was lost
	accused int    // from its row: how many of its workers died in a row
	stuck   int    // number of delayed jobs that cannot be moved to another block

	deleted   int  // jobs deleted by this worker: see outbox_sentinel.go
	sentinels bool // the sentinels are there

	forKind string          // according to its row: see holder_kinds.go
	heir    string          // the kind for which it is handed over
	waiting instant.Instant // since when jobs wait here that only others handle; 0: none do
	strand  string          // the kind of a checked out job that others are to adopt
	barred  map[string]bool // keys behind jobs left in their table by a worker that removes what it reads
	leaves  instant.Instant // since when it is leaving
	kept    instant.Instant // when it was taken, or kept, beyond the worker's share; 0: never
	beyond  bool            // it was taken beyond the share, since nobody else has
}

// wholeEvery is the interval between reads of a whole block, unless a test is in haste.
const wholeEvery = time.Minute

// newTenure returns a block of a queue that this worker is about to have.
func newTenure(q *workQueue) *tenure {
	b := &tenure{q: q}
	b.Block = block.New(blockHost{b}, &q.h.terms)
	b.share()
	return b
}

// at returns the block's position.
func (b *tenure) at() store.BlockID { return store.BlockID{Queue: b.q.id, Divided: b.divided} }

// A blockLease is a block, and under what it is leased.
type blockLease struct {
	store.BlockID
	fence int64
	node  string
}

// lease returns the lease of a block that a worker has under a name.
func (b *tenure) lease(node string) blockLease { return blockLease{b.at(), b.fence, node} }

// wants reports whether a flusher has work here. mu is held.
func (b *tenure) wants(at instant.Instant) bool {
	return b.Wants(block.Now{At: at, Leased: at < b.q.h.lease.deadline})
}

// idle reports that no job of the block is running and no outcome is waiting to be written. mu is held.
func (b *tenure) idle() bool { return b.Idle(b.q.h.life.closing) }

// now returns what plans depend on. mu is held.
func (h *holder) now(at instant.Instant) block.Now {
	now := block.Now{At: at, Closed: h.c.clock.closed(at), Leased: at < h.lease.deadline, Size: h.reads.size}
	// A step that this time may know of, plans must know of: a look back from it could begin between two jobs of a key that
	// were enqueued since.
	h.heedSteps()
	return now
}

// heedSteps schedules a read of all blocks after the database's clock was set: earlier ids and
// times cannot be compared with later ones. mu is held.
func (h *holder) heedSteps() {
	n := h.c.clock.stepped()
	if n == h.steps {
		return
	}
	h.steps = n
	h.log.Warn("the database's clock was set; all blocks are read again")
	for _, q := range h.queues {
		for _, b := range q.blocks {
			b.Reads.Distrust()
			b.Dues.Anew()
		}
	}
}

// A blockHost is the worker as one of its blocks sees it. mu is held.
type blockHost struct{ b *tenure }

func (h blockHost) Active() bool { return h.b.q.set.Active() }

func (h blockHost) Gate(kind string) *limit.Limiter { return h.b.q.limiterOf(kind) }

func (h blockHost) Tenant(name string) *limit.Limiter { return h.b.q.limits.Tenant(name) }

func (h blockHost) Stranger(kind string) *limit.Limiter {
	if h.b.q.h.choice.knows(kind) {
		return nil
	}
	return h.b.q.stranger(kind)
}

func (h blockHost) Opens(l *limit.Limiter) bool { return h.b.q.opens(l) }

func (h blockHost) Admits(l *limit.Limiter, cost int) bool {
	return h.b.q.opens(l) && l.Admits(cost)
}

func (h blockHost) Whole() *limit.Limiter { return h.b.q.limits.Own() }

func (h blockHost) IsOut(id int64) bool {
	return h.b.q.h.occupants.isOut(store.JobID{BlockID: h.b.at(), ID: id})
}

func (h blockHost) Held(j *block.Job) {
	hold := h.b.q.h
	hold.occupants.parkAtLimit(j)
	hold.limits.Wake()
}

func (h blockHost) Shed(j *block.Job) {
	h.b.q.h.occupants.shed(j)
}

func (h blockHost) Owes() { h.b.q.h.enlist(h.b) }

// A FIFO queue has one block, and runs its jobs one after the other as if all of them had the
// same key. FIFO is a property of a generation of blocks: changing the setting creates a new
// generation, and jobs enqueued from some moment on belong to it, whoever enqueues them. Its
// jobs begin when those of earlier generations have ended: see holder_generation.go. So each
// job runs by the rules that applied when it was enqueued, and no worker has to learn of a
// change in time. The hold_key of such a job without a key is block.FIFO.

// lineOf returns the sequence of the jobs of a key: see Delivery.line.
func (b *tenure) lineOf(key string) string {
	if b.fifo {
		return block.FIFO
	}
	return key
}

// limiterOf returns the limiter for the jobs of a kind, or nil if there is none.
func (q *workQueue) limiterOf(kind string) *limit.Limiter {
	if !q.limits.Limited() || kind == "" {
		return nil
	}
	if l := q.limits.Of(kind); l != nil || !q.h.terms.PerCaller {
		return l
	}
	return q.unnamedKinds // see holder_kinds.go
}

// opens reports whether a job may pass a limiter: its kind is wanted, and the limit allows it. mu is held.
func (q *workQueue) opens(l *limit.Limiter) bool {
	return l == nil || q.h.choice.wanted.Takes(l.Kind) && l.Open()
}
