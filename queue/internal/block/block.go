// Package block has a worker's view of a block of jobs that it has leased: the jobs that it has read, in
// which order they begin, what it reads next, and what it owes to the database.
//
// A [Block] plans what the next round trip reads and writes ([Block.Plan]), takes in what it has read
// ([Block.Take]), and says which job begins next ([Block.Pop]). It has no clock and no goroutine, knows no
// statement and no handler, and asks its worker little: see [Host]. The parts know even less: [Reads] and
// [Dues] are the cursors, [Ready] and [KeyQueue] the lists, [Heap] the order between blocks.
//
// Nothing in it is safe for concurrent use: the worker guards it.
package block

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/queue/internal/limit"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// A Host is what a block asks of its worker, and tells it.
type Host interface {
	// Active reports whether the block's queue lets jobs be read and begun.
	Active() bool

	// Gate returns the limiter that jobs of a kind pass, or nil.
	Gate(kind string) *limit.Limiter

	// Tenant returns the limiter that jobs of a tenant pass, or nil.
	Tenant(name string) *limit.Limiter

	// Stranger returns the barrier that holds back jobs of a kind that the worker does not handle, or nil.
	Stranger(kind string) *limit.Limiter

	// Opens reports whether a job may pass a limiter now.
	Opens(*limit.Limiter) bool

	// Admits reports whether a job of a cost may.
	Admits(l *limit.Limiter, cost int) bool

	// Whole returns the limiter of all jobs of the queue, or nil.
	Whole() *limit.Limiter

	// IsOut reports whether the worker runs a job under a row of its own, which may take long.
	IsOut(id int64) bool

	// Held says that a job waits for a limit.
	Held(*Job)

	// Shed drops what a job carries: it is read again when its turn comes.
	Shed(*Job)

	// Owes says that the block may have something to read or to write.
	Owes()
}

// Terms are what applies to all blocks of a worker.
type Terms struct {
	Batch      int           // how many jobs it reads at once, at least
	AtMostOnce bool          // it removes the rows of jobs before they begin
	Whole      time.Duration // interval between reads of a whole block
	PerCaller  bool          // its callers ask for certain kinds only
	Room                     // for reading ahead
}

// A Block is the jobs of a block in memory.
//
// Ids are older than their commits, so the cursor alone does not say what was read: jobs that
// were committed late are found by reading again from an earlier id (the horizon), and seen holds
// the ids that were read already. An id stays in seen while a read may be under way that was sent
// before the commit of its row's deletion, because its snapshot would show the row again. Only one
// flusher at a time works on a block, and it writes before it reads: so its trip's end is late enough
// for what it has deleted, and the end of the next one for what others have.
type Block struct {
	host  Host
	terms *Terms

	stock
	backlog
	Owed
	fair fairness

	Reads    Reads           // plans reads of ready jobs
	Dues     Dues            // plans reads of delayed jobs
	followed map[int64]bool  // jobs for which the block was, or will be, read whole: see late.go
	checked  instant.Instant // last check that waiting jobs still exist
	Keyed    bool            // its queue has had jobs with keys
	Batch    int             // how many jobs are read at once, if more than Terms.Batch
	Says     int             // the same according to its row; both 0: Terms.Batch
	forget   []int64         // deleted; forgotten when the trip ends
	lost     []int64         // the same, learned during a read that may have begun before

	held    int // bytes of payloads read ahead
	average int // recent size of a row's payload

	Serving bool // a flusher serves it
	Leaving bool // to be handed over: nothing more is started
	Left    bool // due jobs stay in their table because this worker does not handle them
	Gone    bool // lost or handed over
}

// stock is the jobs that were read.
type stock struct {
	seen      map[int64]*Job
	ready     list                     // may start
	aside     map[*limit.Limiter]*list // could start, except for a limit of their kind
	waits                              // could start, except for a limit of their tenant
	keyQueues map[string]*keyQueue     // keys with jobs here
	unloaded  []*Job                   // may start, except that they lack their payloads
	doubted   []*Job                   // may have ended the previous worker: they wait for their trials
	Suspect   int                      // how many of its jobs may have done that; see queue/runner_suspect.go
	Since     int64                    // in µs: only older ones may

	SuspectAhead int // how many of those that are picked may have done that

	Count  int // in ready, unloaded, or under suspicion: read and not started
	Active int // started and not finished
}

// A list holds jobs that may start, or wait to, ordered by their places.
type list = Ready[*Job]

// New returns a block of which nothing is known.
func New(host Host, terms *Terms) Block {
	return Block{
		host: host, terms: terms, stock: stock{seen: map[int64]*Job{}, keyQueues: map[string]*keyQueue{}},
		Reads: Reads{Dirty: true, Unseen: true}, Dues: Dues{Ripe: true},
	}
}

// Add adds a job that was read. It returns false if the job was read before.
func (b *Block) Add(j *Job) bool {
	if _, ok := b.seen[j.ID]; ok {
		return false
	}
	b.seen[j.ID] = j
	b.Weigh(j)
	if j.Line == "" {
		b.makeStartable(j)
		return true
	}
	b.wait(j)
	return true
}

// makeStartable makes a job startable, unless it must be checked out first.
func (b *Block) makeStartable(j *Job) {
	b.Count++
	b.comes(j)
	suspect := &b.Suspect
	if j.Picked {
		suspect = &b.SuspectAhead
	}
	if *suspect > 0 && j.From != store.AmongRunning && store.TimeOf(j.ID).UnixMicro() <= b.Since {
		*suspect--
		b.doubt(j)
		return
	}
	b.makeReady(j)
}

// makeReady makes a job that counts already startable, unless this worker does not handle its kind.
func (b *Block) makeReady(j *Job) {
	b.turn(j)
	if g := b.host.Stranger(j.Kind); g != nil {
		b.Count--
		b.setAside(g, j)
		return
	}
	b.ready.Put(j.Place(), j)
}

// Admit makes a job startable that has a row of its own: it was taken over.
func (b *Block) Admit(j *Job) {
	b.Count++
	b.Weigh(j)
	b.makeReady(j)
}

// Ask has a job that was admitted wait for its limit now, if there is one that keeps it from beginning, and not when its turn comes.
func (b *Block) Ask(j *Job) {
	if g := b.gate(j); g != nil && b.ready.Remove(j.Priority, j) {
		b.Count--
		b.setAside(g, j)
	}
}

// Lets reports whether no limit of its kind or its tenant keeps a job from beginning.
func (b *Block) Lets(j *Job) bool { return b.gate(j) == nil && b.dear(j) == nil }

// Start begins a job that was admitted, and that the limits let begin, before those whose turn is earlier.
func (b *Block) Start(j *Job) {
	if b.ready.Remove(j.Priority, j) {
		b.Count--
	}
	for _, s := range b.aside {
		s.Remove(j.Priority, j)
	}
	b.unhold(j)
	b.Engage(j)
}

// Readmit makes a job startable that has got a row of its own, and counts already.
func (b *Block) Readmit(j *Job) { b.makeReady(j) }

// doubt keeps a job that was read for its trial, behind those of its rank; in a fair queue at its turn.
func (b *Block) doubt(j *Job) {
	b.turn(j)
	at, _ := slices.BinarySearchFunc(b.doubted, j, func(o, j *Job) int {
		return cmp.Or(cmp.Compare(RankOf(o.Line), RankOf(j.Line)), cmp.Compare(o.Turn, j.Turn), -1)
	})
	b.doubted = slices.Insert(b.doubted, at, j)
}

// Doubted returns the number of jobs that wait for their trials.
func (b *Block) Doubted() int { return len(b.doubted) }

// Try takes out the next job of a rank that waits for its trial; nil: there is none.
func (b *Block) Try(rank int) *Job {
	if len(b.doubted) == 0 || RankOf(b.doubted[0].Line) != rank {
		return nil
	}
	j := b.doubted[0]
	b.doubted = b.doubted[1:]
	b.goes(j)
	return j
}

// Pop begins the most urgent job that may start, and sets aside those that the limit of their kind or of their
// tenant holds back.
func (b *Block) Pop() *Job {
	for p := range b.ready {
		for j := b.takeNext(p); j != nil; j = b.takeNext(p) {
			if g := b.gate(j); g != nil {
				b.setAside(g, j)
				continue
			}
			if g := b.dear(j); g != nil {
				b.setAside(g, j)
				return nil
			}
			if j.Unloaded {
				b.Count++
				b.comes(j)
				b.unloaded = append(b.unloaded, j)
				continue
			}
			b.hasCome(j)
			b.Engage(j)
			return j
		}
	}
	return nil
}

// takeNext takes the next job of a priority out of the lists, unless nothing is left there that may go on. It may still have to wait for
// another limit than the one that it has waited for.
func (b *Block) takeNext(priority int) *Job {
	if j := b.fromAside(priority); j != nil {
		return j
	}
	ready, has := b.ready.First(priority)
	if w := b.firstHeld(); w != nil && w.spot.First.Priority == priority && (!has || w.spot.First.Before(ready)) {
		return b.fromHeld(w)
	}
	if !has {
		return nil
	}
	b.Count--
	return b.ready.Take(priority)
}

// gate returns the limiter that keeps a job from beginning, or nil.
func (b *Block) gate(j *Job) *limit.Limiter {
	if g := b.host.Gate(j.Kind); !b.host.Admits(g, j.Cost) {
		return g
	}
	if g := b.host.Tenant(j.Tenant); !b.host.Admits(g, j.Cost) {
		return g
	}
	return nil
}

// dear returns the limiter of the queue if it is open, and yet keeps a job from beginning, because of its cost. Then all others
// wait for it, too.
func (b *Block) dear(j *Job) *limit.Limiter {
	if j.Cost <= 1 {
		return nil
	}
	if g := b.host.Whole(); !b.host.Admits(g, j.Cost) {
		return g
	}
	return nil
}

// Engage has a job begin that was taken out of the lists.
func (b *Block) Engage(j *Job) {
	j.Phase = PhaseRunning
	b.goes(j)
	b.Unweigh(j)
	if j.From != store.AmongRunning {
		b.Active++
	}
}

// Disengage records that a job that has begun no longer runs here without a row of its own.
func (b *Block) Disengage(j *Job) {
	if j.Running() && j.From != store.AmongRunning {
		b.Active--
	}
}

// fromAside takes a job that was set aside and may go on.
func (b *Block) fromAside(priority int) *Job {
	for g, s := range b.aside {
		if b.host.Opens(g) {
			if j := s.Take(priority); j != nil {
				return j
			}
		}
	}
	return nil
}

func (b *Block) setAside(g *limit.Limiter, j *Job) {
	if g.Tenant != "" {
		b.hold(g, j)
		return
	}
	if b.aside == nil {
		b.aside = map[*limit.Limiter]*list{}
	}
	if b.aside[g] == nil {
		b.aside[g] = &list{}
	}
	b.aside[g].Put(j.Place(), j)
	b.giveBack(j)
	b.goes(j)
	b.host.Held(j)
	b.shed(j)
	if b.terms.PerCaller && !b.Serving { // a caller that asks for other kinds waits for what is behind
		b.evict()
	}
}

// Aside iterates over the number of jobs that wait at each limiter of a kind. If there are only such as were put back, it
// counts one: they are read again when the limiter opens.
func (b *Block) Aside() iter.Seq2[*limit.Limiter, int] {
	return func(yield func(*limit.Limiter, int) bool) {
		for g, s := range b.aside {
			n := s.Len()
			if n == 0 && b.skipped[g] != 0 {
				n = 1
			}
			if !yield(g, n) {
				return
			}
		}
	}
}

// atLimits returns how many jobs wait at limiters.
func (b *Block) atLimits() (n int) {
	for _, s := range b.aside {
		n += s.Len()
	}
	return n + b.holding
}

// Head returns the place of the first of the block's jobs that may start, if there is one.
func (b *Block) Head() (h Place, ok bool) {
	held := b.firstHeld()
	for p := range b.ready {
		h, ok = b.ready.First(p)
		if held != nil && held.spot.First.Priority == p && (!ok || held.spot.First.Before(h)) {
			h, ok = held.spot.First, true
		}
		for g, s := range b.aside {
			if first, has := s.First(p); has && b.host.Opens(g) && (!ok || first.Before(h)) {
				h, ok = first, true
			}
		}
		if ok {
			return h, true
		}
	}
	return h, false
}

// Unstarted iterates over the jobs that could start, or could start except for a limit.
func (b *Block) Unstarted() iter.Seq[*Job] {
	return func(yield func(*Job) bool) {
		for _, j := range b.unloaded {
			if !yield(j) {
				return
			}
		}
		for _, s := range slices.Concat([]*list{&b.ready}, slices.Collect(maps.Values(b.aside)), b.heldLists()) {
			for j := range s.All() {
				if !yield(j) {
					return
				}
			}
		}
	}
}

// Seen returns a job that was read and is not forgotten, or nil.
func (b *Block) Seen(id int64) *Job { return b.seen[id] }

// Known returns how many jobs that is.
func (b *Block) Known() int { return len(b.seen) }

// AllSeen iterates over them. Jobs may be added and removed meanwhile.
func (b *Block) AllSeen() iter.Seq[*Job] { return maps.Values(b.seen) }

// Idle reports that no job of the block is running and no outcome is waiting to be written. closing says
// that the worker is being stopped.
func (b *Block) Idle(closing bool) bool {
	if b.terms.AtMostOnce && len(b.seen) > 0 {
		return false // their rows are gone already
	}
	return b.Active == 0 && b.settled() && !b.Serving && !b.Unended(closing)
}

// Exhausted reports whether the block has nothing left for this worker.
func (b *Block) Exhausted() bool {
	if b.ready.Len() > 0 || len(b.unloaded) > 0 || len(b.doubted) > 0 || b.Active > 0 ||
		b.Reads.Unseen || b.Reads.Full || b.Reads.Dirty || b.Serving || len(b.resumed) > 0 || b.holding > 0 {
		return false
	}
	for g, s := range b.aside {
		if !g.Barred() && s.Len() > 0 {
			return false
		}
	}
	return true
}

// HoldsSome reports whether unfinished jobs of the block are known.
func (b *Block) HoldsSome() bool {
	waits := b.Count + b.Active + b.Withheld + len(b.seen) + len(b.keyQueues) + b.atLimits()
	ends := len(b.Acks) + len(b.Moves) + len(b.Missed) + len(b.forget) + len(b.lost) + len(b.Refusals)
	put := len(b.skipped) + len(b.gated) + len(b.resumed)
	return waits+ends+put > 0
}

// Open reports whether jobs of the block may be read.
func (b *Block) Open() bool { return !b.Gone && !b.Leaving && b.host.Active() }

// Startable reports whether jobs that were read may be started: even in a block that is to be
// handed over, if their rows are gone already.
func (b *Block) Startable() bool { return b.Open() || b.terms.AtMostOnce && !b.Gone }

// Recount counts the jobs that were read and not started again. They differ from Count after a mistake only. jobs that
// are being checked out are in no list, so nothing is counted while a flusher serves the block.
func (b *Block) Recount() (was, is int) {
	if b.Serving {
		return b.Count, b.Count
	}
	n := b.ready.Len() + len(b.unloaded) + len(b.doubted)
	for _, m := range b.Moves {
		if m.Out() && m.Of().Phase == PhaseRead {
			n++
		}
	}
	for _, r := range b.Refusals {
		if r.Out() && !r.Job.HasEnded() {
			n++
		}
	}
	was, b.Count = b.Count, n
	return was, n
}

// remove removes a waiting job whose row is gone.
func (b *Block) remove(j *Job) {
	same := func(o *Job) bool { return o == j }
	n := len(b.doubted)
	b.doubted = slices.DeleteFunc(b.doubted, same)
	b.Count -= n - len(b.doubted)
	n = len(b.unloaded)
	b.unloaded = slices.DeleteFunc(b.unloaded, same)
	b.Count -= n - len(b.unloaded)
	if b.ready.Remove(j.Priority, j) {
		b.Count--
	}
	b.Unweigh(j)
	for _, s := range b.aside {
		s.Remove(j.Priority, j)
	}
	b.unhold(j)
	if l := b.keyQueues[j.Line]; j.Line != "" && l != nil {
		l.Remove(j)
	}
	b.giveBack(j)
	b.goes(j)
	j.Phase = PhaseEnded
	b.forget = append(b.forget, j.ID)
	b.ReleaseIfHeld(j.Line, j.ID)
}

// Drop forgets all jobs of a block that is gone. What is owed stays.
func (b *Block) Drop() {
	for j := range b.Unstarted() {
		b.giveBack(j)
	}
	b.stock = stock{
		seen: b.seen, keyQueues: map[string]*keyQueue{}, Since: b.Since, Suspect: b.Suspect, SuspectAhead: b.SuspectAhead, Active: b.Active,
	}
	b.fair = fairness{turns: b.fair.turns}
	b.Missed = nil
	b.Lighten()
}

// Lighten stops counting the payloads of a block that is gone.
func (b *Block) Lighten() {
	b.terms.Held -= b.held
	b.held = 0
}
