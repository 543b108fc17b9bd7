package queue

import (
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/queue/internal/board"
	"github.com/dbcron/dbcron/queue/internal/limit"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// A block is a part of a queue's jobs that this worker has leased: the jobs that it has read, and
// their outcomes. No other worker reads the block meanwhile, so its jobs are neither locked nor
// marked. The worker's mu guards it.
//
// Ids are older than their commits, so the cursor alone does not say what was read: jobs that
// were committed late are found by reading again from an earlier id (the horizon), and seen holds
// the ids that were read already. An id stays in seen until a read has returned that was sent
// after the commit of its row's deletion, because an older snapshot would show the row again. A
// block that is crowded is not read, and forgets ids without such a read: only one flusher at a
// time works on a block, so no older read is under way.
type block struct {
	q       *workQueue
	divided int
	fence   int64
	since   int64 // when it was taken, in µs by the database's clock
	from    instant.Instant
	fifo    bool // its jobs run one after the other

	seen      map[int64]*Delivery
	ready     readyList                     // may start
	aside     map[*limit.Limiter]*readyList // could start, except for a limit of their kind
	keyQueues map[string]*keyQueue          // keys with jobs here
	unloaded  []*Delivery                   // may start, except that they lack their payloads

	skipped map[*limit.Limiter]int64       // the first job that was put back, by kinds at a limit
	gated   map[*limit.Limiter][]*keyQueue // keys all of whose jobs were put back, because the first waits for a limit
	resumed []*keyQueue                    // keys whose jobs that were put back are to be read
	reread  bool                           // the last read was of such jobs
	count   int                            // in ready, bare, or under suspicion: read and not started
	active  int                            // started and not finished

	reads board.Reads // plans reads of ready jobs
	dues  board.Dues  // plans reads of delayed jobs
	due   int64       // when the next delayed job is due, in µs; 0: none known
	batch int         // how many jobs are read at once, if more than opt.Batch: see worker_adapt.go
	says  int         // the same according to its row; both 0: opt.Batch

	followed map[int64]bool // jobs for which the block was, or will be, read whole: see enqueue_late.go

	checked instant.Instant // last check that waiting jobs still exist

	acks    []*Delivery // finished, to be deleted
	sent    []*Delivery // acks that a flusher is writing
	moves   []move
	missed  []heldKey // jobs whose rows were gone: see releaseIfMine
	forget  []int64   // deleted; forgotten once a later read has returned
	lost    []int64   // the same, learned during a read that may have begun before
	keyed   bool      // its queue has had jobs with keys
	had     string    // the worker that had it before, if that was lost
	suspect int       // how many of its jobs may have crashed the previous worker; see worker_suspect.go
	doubted []*Delivery

	refusals []*refusal         // outcomes that the database refuses, in order
	stuck    map[int64]*refusal // delayed jobs that it refuses to move to another block; of share

	withheld int // acks written by handlers' transactions: see withhold
	accused  int // from its row: how many of its workers died in a row

	deleted   int  // jobs deleted by this worker: see worker_sentinel.go
	sentinels bool // the sentinels are there

	held    int // bytes of payloads read ahead
	average int // recent size of a row's payload

	serving bool       // a flusher serves it
	queued  bool       // or will serve it
	spot    board.Spot // its position among its queue's blocks with ready jobs

	forKind string          // according to its row: see worker_kinds.go
	heir    string          // the kind for which it is handed over
	waiting instant.Instant // since when jobs wait here that only others handle; 0: none do
	left    bool            // due jobs stay in their table because this worker does not handle them
	strand  string          // the kind of a checked out job that others are to adopt
	barred  map[string]bool // keys behind jobs left in their table by a worker that removes what it reads

	leaving bool            // to be handed over: nothing more is started
	leaves  instant.Instant // since when
	kept    instant.Instant // when it was taken, or kept, beyond the worker's share; 0: never
	stirred bool            // it is not still: see worker_rounds.go
	swept   instant.Instant // last read of its delayed jobs from the beginning

	gone     bool            // lost or handed over
	failures int             // consecutive failures of reads or writes
	retryAt  instant.Instant // after a failure, leave it alone until then
}

// at returns the block's position.
func (b *block) at() store.BlockID { return store.BlockID{Queue: b.q.id, Divided: b.divided} }

// A blockLease is a block, and under what it is leased.
type blockLease struct {
	store.BlockID
	fence int64
	node  string
}

// lease returns the lease of a block that a worker has under a name.
func (b *block) lease(node string) blockLease { return blockLease{b.at(), b.fence, node} }

// add adds a job that was read. It returns false if the job was read before.
func (b *block) add(d *Delivery) bool {
	if _, ok := b.seen[d.ID]; ok {
		return false
	}
	b.seen[d.ID] = d
	b.weigh(d, d.bytes())
	if d.line() == "" {
		b.makeStartable(d)
		return true
	}
	b.wait(d)
	return true
}

// admit makes a job startable, unless it must be checked out first.
func (b *block) makeStartable(d *Delivery) {
	b.count++
	if b.suspect > 0 && d.from != tableRunning && store.TimeOf(d.ID).UnixMicro() <= b.since {
		b.suspect--
		b.doubt(d)
		return
	}
	b.makeReady(d)
}

// pop takes the most urgent job that may start, and sets aside those that the limit of their kind
// holds back.
func (b *block) pop() *Delivery {
	for p := range b.ready {
		d := b.fromAside(p)
		for d == nil && more(&b.ready, p) {
			d = b.ready.Take(p)
			switch g := b.q.limiterOf(d.Kind); {
			case !b.q.opens(g):
				b.count--
				b.setAside(g, d)
				d = nil
			case d.unloaded:
				b.unloaded = append(b.unloaded, d)
				d = nil
			default:
				b.count--
			}
		}
		if d != nil {
			b.engage(d)
			return d
		}
	}
	return nil
}

// more reports whether a list has a job of a priority.
func more(list *readyList, priority int) bool {
	_, has := list.First(priority)
	return has
}

// engage has a job begin that pop has taken.
func (b *block) engage(d *Delivery) {
	d.phase = phaseRunning
	b.weigh(d, 0)
	if d.from != tableRunning {
		b.active++
	}
}

// fromAside takes a job that was set aside and may go on.
func (b *block) fromAside(priority int) *Delivery {
	for g, s := range b.aside {
		if b.q.opens(g) {
			for d := s.Take(priority); d != nil; d = s.Take(priority) {
				if !d.unloaded {
					return d
				}
				b.count++
				b.unloaded = append(b.unloaded, d)
			}
		}
	}
	return nil
}

func (b *block) setAside(g *limit.Limiter, d *Delivery) {
	if b.aside == nil {
		b.aside = map[*limit.Limiter]*readyList{}
	}
	if b.aside[g] == nil {
		b.aside[g] = &readyList{}
	}
	b.aside[g].Put(d.place(), d)
	b.q.w.parkAtLimit(d)
	b.shed(d)
	b.q.w.limits.Wake()
	if b.q.w.choice.perCaller && !b.serving { // a caller that asks for other kinds waits for what is behind
		b.evict()
	}
}

// hasReady reports whether to call pop. It may still find none, because the limit of a job's kind
// is checked when the job is taken.
func (b *block) hasReady() bool {
	for g, s := range b.aside {
		if b.q.opens(g) && s.Len() > 0 {
			return true
		}
	}
	return b.ready.Len() > 0
}

// unstarted lists the jobs that could start, or could start except for a limit.
func (b *block) unstarted() iter.Seq[*Delivery] {
	return func(yield func(*Delivery) bool) {
		for _, d := range b.unloaded {
			if !yield(d) {
				return
			}
		}
		for _, s := range slices.Concat([]*readyList{&b.ready}, slices.Collect(maps.Values(b.aside))) {
			for d := range s.All() {
				if !yield(d) {
					return
				}
			}
		}
	}
}

// idle reports that no job of the block is running and no outcome is waiting to be written.
func (b *block) idle() bool {
	if b.q.w.opt.AtMostOnce && len(b.seen) > 0 {
		return false // their rows are gone already
	}
	return b.active == 0 && len(b.acks) == 0 && b.withheld == 0 && len(b.moves) == 0 && !b.serving && !b.unended()
}

// room reports whether to read more startable jobs. Jobs that wait for others of their keys do
// not count, because the job that they wait for may be still unread.
func (b *block) room() bool {
	w := b.q.w
	return b.count == 0 || b.count < b.atOnce()/2 && w.held <= w.opt.ReadAhead/2
}

// crowded reports that so many jobs wait for others of their keys that no more such jobs are
// read.
func (b *block) crowded() bool {
	for _, s := range b.aside { // or for a limit
		if s.Len() >= b.fill() {
			return true
		}
	}
	return len(b.seen) >= 100*b.q.w.opt.Batch || len(b.refusals) >= maxRefused
}

const (
	// Window is how far back workers look for jobs that were committed late. A transaction that
	// enqueues jobs should not last longer: then its jobs are found at once, and those of a key
	// in order. Jobs committed later are found too, but with a delay: of up to twice the time that
	// their transaction took, and of a minute at most.
	Window = board.Window

	lookEvery  = board.LookEvery
	wholeEvery = time.Minute
)

// plan says from where to read, if there is reason to. closed is a time in µs that no id
// is drawn of any more.
func (b *block) plan(at instant.Instant, closed int64) (r board.Read, ok bool) {
	if !b.open() || !b.room() || b.crowded() {
		return r, false
	}
	due := b.reads.Due(at, b.q.w.whole)
	if first := b.rereads(); first != 0 && (!due || !b.reread) { // alternately
		b.reread = true
		return b.reads.PlanBack(first, b.rowsAtOnce()), true
	}
	b.reread = false
	if !due {
		return r, false
	}
	r = b.reads.Plan(at, b.q.w.whole, b.rowsAtOnce(), agoOf(closed), b.keyed, b.seenAfter)
	if r.Routine {
		clear(b.followed) // the reread jobs schedule a read of the block
	}
	return r, true
}

// agoOf returns the ids of past times, given the time in µs of which no id is drawn any more.
func agoOf(closed int64) board.Ago {
	return func(d time.Duration) int64 { return store.TickOf(closed - d.Microseconds()) }
}

// open reports whether jobs of the block may be read.
func (b *block) open() bool { return !b.gone && !b.leaving && b.q.set.State == "active" }

// startable reports whether jobs that were read may be started: even in a block that is to be
// handed over, if their rows are gone already.
func (b *block) startable() bool { return b.open() || b.q.w.opt.AtMostOnce && !b.gone }

// seenAfter counts the known jobs that a read from there will return again.
func (b *block) seenAfter(after board.Cursor) (n int) {
	for id, d := range b.seen {
		if id > after[d.Priority] {
			n++
		}
	}
	return n
}

// noteRead raises the cursor to a job that was read.
func (b *block) noteRead(d *Delivery) {
	if d.from == tableReady {
		b.reads.Read(d.Priority, d.ID)
	}
}

// late reports whether a job, if it is new here, was committed later than Window, and was not put back.
func (b *block) late(d *Delivery, r board.Read) bool {
	if d.from != tableReady || r.Back || !b.reads.Late(d.Priority, d.ID) {
		return false
	}
	l := b.keyQueues[d.line()]
	return d.line() == "" || l == nil || l.Skipped() == 0
}

// wants reports whether a flusher has work here.
func (b *block) wants(at instant.Instant) bool {
	if len(b.acks) > 0 || len(b.moves) > 0 || len(b.missed) > 0 || len(b.retries(at)) > 0 {
		return true
	}
	if at >= b.q.w.lease.deadline { // nothing is read without the lease: see planTrip
		return false
	}
	if b.loads() {
		return true
	}
	if !b.open() || !b.room() {
		return false
	}
	return b.dues.Ripe || b.dues.LookDue(at) || !b.crowded() && (b.reads.Due(at, b.q.w.whole) || b.rereads() != 0) || b.checkDue(at)
}

// checkDue reports whether to check that the jobs waiting here still exist.
func (b *block) checkDue(at instant.Instant) bool {
	return at.Sub(b.checked) >= lookEvery && (b.count > 0 || len(b.keyQueues) > 0 || len(b.aside) > 0)
}

// waits lists jobs that were read and not started, except for those that are checked out. It
// takes the jobs of each list that start next, since there may be very many.
func (b *block) waits() (all []*Delivery) {
	look := func(list iter.Seq[*Delivery]) {
		for d := range list {
			if len(all) == store.Chunk {
				return
			}
			if d.waits() {
				all = append(all, d)
			}
		}
	}
	look(b.ready.FirstOf(b.q.w.opt.Batch))
	for _, s := range b.aside {
		look(s.FirstOf(b.q.w.opt.Batch))
	}
	look(slices.Values(b.doubted[:min(b.q.w.opt.Batch, len(b.doubted))]))
	for _, l := range b.keyQueues {
		look(firstOf(l.Waiting(), 10))
	}
	return all
}

// firstOf returns up to n of the first jobs of a list.
func firstOf(list iter.Seq[*Delivery], n int) iter.Seq[*Delivery] {
	return func(yield func(*Delivery) bool) {
		left := n
		for d := range list {
			if left--; left < 0 || !yield(d) {
				return
			}
		}
	}
}

// forgetSoon schedules the removal from seen of a job that another process has ended at an
// unknown time. A read under way may have begun before that, and return the row.
func (b *block) forgetSoon(id int64) {
	if b.serving {
		b.lost = append(b.lost, id)
		b.reads.Ring()
		return
	}
	b.forget, b.reads.Dirty = append(b.forget, id), true
}

// removeMissing removes those of some waiting jobs whose rows were looked for and are not there. mu is
// held.
func (b *block) removeMissing(waits []*Delivery, there map[int64]bool) {
	if there == nil { // nobody has looked
		return
	}
	for _, d := range waits {
		if !there[d.ID] && d.waits() {
			b.remove(d)
		}
	}
}

// remove removes a waiting job whose row is gone.
func (b *block) remove(d *Delivery) {
	same := func(o *Delivery) bool { return o == d }
	n := len(b.doubted)
	b.doubted = slices.DeleteFunc(b.doubted, same)
	b.count -= n - len(b.doubted)
	n = len(b.unloaded)
	b.unloaded = slices.DeleteFunc(b.unloaded, same)
	b.count -= n - len(b.unloaded)
	if b.ready.Remove(d.Priority, d) {
		b.count--
	}
	b.weigh(d, 0)
	for _, s := range b.aside {
		s.Remove(d.Priority, d)
	}
	if l := b.keyQueues[d.line()]; d.line() != "" && l != nil {
		l.Remove(d)
	}
	d.phase = phaseEnded
	b.forget = append(b.forget, d.ID)
	b.q.w.releaseIfMine(b, d.line(), d.ID)
}
