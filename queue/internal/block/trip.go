package block

import (
	"iter"
	"slices"
	"time"

	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// A trip is a flusher's work for a block at a time: it writes the outcomes of jobs, and reads the next ones, in one round
// trip where possible. [Block.Plan] says what it does, and [Block.Take] takes in what it has read; what it has written is told
// one by one, with [Block.Deleted] and its like.

// Now is what a plan depends on besides its block.
type Now struct {
	At     instant.Instant
	Closed int64 // µs by the database's clock: no id is drawn of an earlier time any more
	Leased bool  // the worker's lease is not in doubt: without it nothing is read
	Size   int   // how many jobs the worker reads at once
}

// Ago returns the ids of past times.
func (n Now) Ago() Ago {
	return func(d time.Duration) int64 { return store.TickOf(n.Closed - d.Microseconds()) }
}

// DuesUpto returns the time in µs up to which all due jobs are committed, if they are in time.
func (n Now) DuesUpto() int64 { return n.Closed - 2*Window.Microseconds() }

// A Plan says what a trip writes and reads. The trip takes out of Acks and Moves what it has written, or set aside.
type Plan struct {
	Acks   []*Job
	Moves  []Move
	Again  []*Refusal // refused before, to be tried again
	Gone   []HeldKey  // jobs whose lines continue if the block is still this worker's
	Behind []Step     // steps that are to be set aside, behind those of their lines

	Reads   bool // reads ready jobs
	Read    Read
	Delayed bool // reads jobs that are due
	Due     DueRead
	Batch   int       // the batch size to write to the block's row; 0: no change
	Room    Allowance // payload bytes that may be kept
	Look    *Look     // which tenants have jobs that are not read soon; nil: nobody asks
	Pick    *Pick     // jobs of theirs to read; nil: none
	Loads   []*Job    // jobs whose payloads to read
	Waits   []*Job    // jobs to check for existence
}

// A Step is what is to be written of a job that has ended, or is checked out.
type Step struct {
	Job  *Job
	Move Move // nil: the job is done
}

// Plan determines the next trip, and takes what it writes out of what the block owes.
func (b *Block) Plan(now Now) *Plan {
	p := &Plan{}
	n := min(store.Chunk, len(b.Acks))
	p.Acks, b.Acks = b.Acks[:n:n], b.Acks[n:]
	if !b.Keyed || len(b.Acks) == 0 { // jobs of a key leave in order: done ones before moved ones
		p.Moves, b.Moves = b.Moves, nil
	}
	p.Gone, b.Missed = b.Missed, nil
	b.forget, b.lost = append(b.forget, b.lost...), nil
	b.keepBehind(p)
	p.Again = b.retries(now)
	b.sent = p.Acks
	if !now.Leased {
		return p
	}
	p.Batch = b.rebatch(now.Size)
	if p.Read, p.Reads = b.planRead(now); !p.Reads {
		p.Batch = 0
	}
	if b.Open() && b.HasRoom() && (b.Dues.Ripe || p.Read.Whole || b.Dues.LookDue(now.At)) {
		p.Delayed = true
		p.Due = b.Dues.Plan(now.At, now.DuesUpto(), b.AtOnce(), len(b.seen), p.Read.Whole, b.Keyed)
	}
	b.planAhead(p, now)
	p.Room = b.terms.Allow()
	p.Loads = b.toLoad(p.Room.left)
	for _, j := range p.Loads {
		p.Room.left = max(0, p.Room.left-j.Size)
	}
	if b.Open() && b.checkDue(now.At) {
		b.checked = now.At
		p.Waits = b.Waits()
	}
	return p
}

// keepBehind takes out of a plan what has to wait for jobs of its line that are set aside.
func (b *Block) keepBehind(p *Plan) {
	if len(b.Refusals) == 0 { // only for speed: nothing is copied
		return
	}
	var acks []*Job
	var moves []Move
	for _, j := range p.Acks {
		if b.Bars(j.Line) {
			p.Behind = append(p.Behind, Step{Job: j})
		} else {
			acks = append(acks, j)
		}
	}
	for _, m := range p.Moves {
		if b.Bars(m.Of().Line) {
			p.Behind = append(p.Behind, Step{m.Of(), m})
		} else {
			moves = append(moves, m)
		}
	}
	p.Acks, p.Moves = acks, moves
}

// rebatch returns the number to write to the block's row, of a worker that reads size jobs at once; 0: no change. Reads get
// larger after the row was written. They get smaller before, and the row is written when the jobs of larger
// reads are done.
func (b *Block) rebatch(size int) int {
	if size < b.Batch {
		if len(b.seen) > size {
			return 0
		}
		b.Batch = size
	}
	if b.Says == size {
		return 0
	}
	return size
}

// planRead says from where to read ready jobs, if there is reason to.
func (b *Block) planRead(now Now) (r Read, ok bool) {
	if !b.Open() || !b.HasRoom() || b.Crowded() {
		return r, false
	}
	due := b.Reads.Due(now.At, b.terms.Whole)
	if first := b.rereads(); first != 0 && (!due || !b.reread) { // alternately
		b.reread = true
		return b.Reads.PlanBack(first, b.rowsAtOnce()), true
	}
	b.reread = false
	if !due {
		return r, false
	}
	r = b.Reads.Plan(now.At, b.terms.Whole, b.rowsAtOnce(), now.Ago(), b.Keyed, b.seenAfter)
	if r.Routine {
		clear(b.followed) // the reread jobs schedule a read of the block
	}
	return r, true
}

// seenAfter counts the known jobs that a read from there will return again.
func (b *Block) seenAfter(after Cursor) (n int) {
	for id, j := range b.seen {
		if id > after[j.Priority] {
			n++
		}
	}
	return n
}

// Wants reports whether a trip has something to do. It needs the time and the lease only.
func (b *Block) Wants(now Now) bool {
	if len(b.Acks) > 0 || len(b.Moves) > 0 || len(b.Missed) > 0 || len(b.retries(now)) > 0 {
		return true
	}
	if !now.Leased {
		return false
	}
	if b.Loads() {
		return true
	}
	if b.wantsAhead(now.At) {
		return true
	}
	if !b.Open() || !b.HasRoom() {
		return false
	}
	at := now.At
	return b.Dues.Ripe || b.Dues.LookDue(at) || !b.Crowded() && (b.Reads.Due(at, b.terms.Whole) || b.rereads() != 0) || b.checkDue(at)
}

// checkDue reports whether to check that the jobs waiting here still exist.
func (b *Block) checkDue(at instant.Instant) bool {
	return at.Sub(b.checked) >= LookEvery && (b.Count > 0 || len(b.keyQueues) > 0 || b.atLimits() > 0)
}

// Waits lists jobs that were read and not started, except for those that are checked out. It
// takes the jobs of each list that start next, since there may be very many.
func (b *Block) Waits() (all []*Job) {
	look := func(some iter.Seq[*Job]) {
		for j := range some {
			if len(all) == store.Chunk {
				return
			}
			if j.Waits() {
				all = append(all, j)
			}
		}
	}
	look(b.ready.FirstOf(b.terms.Batch))
	for _, s := range b.aside {
		look(s.FirstOf(b.terms.Batch))
	}
	for _, s := range b.byTenant {
		look(s.FirstOf(b.terms.Batch))
	}
	look(slices.Values(b.doubted[:min(b.terms.Batch, len(b.doubted))]))
	for _, l := range b.keyQueues {
		look(firstOf(l.Waiting(), 10))
	}
	return all
}

// firstOf returns up to n of the first jobs of a list.
func firstOf(some iter.Seq[*Job], n int) iter.Seq[*Job] {
	return func(yield func(*Job) bool) {
		left := n
		for j := range some {
			if left--; left < 0 || !yield(j) {
				return
			}
		}
	}
}

// A Found is what a trip has read.
type Found struct {
	Fresh  []*Job  // the ready jobs read
	Got    Fetched // their number, and the last of them
	Ripe   []*Job  // the due jobs read
	Rows   int     // their number, and the last of them
	Last   Due
	Sights []Sight        // of Plan.Look
	Picked []*Job         // the jobs of Plan.Pick
	There  map[int64]bool // those of Plan.Waits that exist; nil: nobody has looked
	Loaded map[int64]bool // those of Plan.Loads whose payloads were read; nil: no payloads were
}

// A Taken is what came of it.
type Taken struct {
	Fresh int    // how many jobs are new
	Late  []*Job // those of them that were committed late
	Lost  []*Job // checked out, and their rows are gone: they do not begin
}

// Sift leaves out of what was read what may have to wait for jobs that were missed, and has the block read from further
// back: an earlier job of a key may have been committed after a later one was read. A worker that removes jobs before they begin does it
// before that.
func (b *Block) Sift(p *Plan, f *Found) {
	if p.Read.Back {
		f.Fresh = b.keepWanted(p.Read, f.Fresh)
	}
	if p.Reads && !p.Read.Whole && !p.Read.Back && slices.ContainsFunc(f.Fresh, b.comesLate) {
		// A job of its key may have been committed long after its id was drawn. A read of the whole block has returned it, and
		// what was put back had its mark looked at when it was read first.
		b.readWhole(f.Fresh)
		f.Fresh, p.Reads = nil, false
	}
	hasKey := func(j *Job) bool { return j.Line != "" }
	if !b.Keyed && p.Reads && !b.Reads.FromHorizon(p.Read) && slices.ContainsFunc(f.Fresh, hasKey) {
		// The first keys: earlier jobs may have been committed after later ones were read. As if it had not been made, the read is made
		// again, from the horizon on as in a queue with keys.
		b.Keyed = true
		f.Fresh, p.Reads = nil, false
	}
}

// Take takes in what a trip has read, after [Block.Sift], at an instant. took is how long the trip was.
func (b *Block) Take(p *Plan, f *Found, at instant.Instant, took time.Duration) (t Taken) {
	b.removeMissing(p.Waits, f.There)
	b.sized(p.Room)
	if p.Loads != nil {
		t.Lost = b.takeLoads(p, f)
	}
	if p.Delayed {
		b.Dues.Took(p.Due, f.Rows, f.Last)
	}
	for _, j := range f.Fresh {
		b.takeOne(j, p.Read, &t)
	}
	if p.Reads && !p.Read.Back && b.Fair() {
		b.brings(f.Fresh)
	}
	for _, j := range f.Ripe {
		b.takeOne(j, p.Read, &t)
	}
	b.takeAhead(p, f, at, took, &t)
	b.Settle()
	b.Reads.Shaken = b.Reads.Shaken || took > Window // only for speed: whom the same stall has kept from committing in time is found at once
	if p.Reads {
		b.Reads.Took(p.Read, f.Got, t.Fresh, at)
		b.RestAfter(p.Read, at, took)
		b.hasReadAgain(p.Read)
	}
	for _, j := range f.Ripe { // after that: this trip may have skipped what is behind a retry
		if l := b.keyQueues[j.Line]; l != nil {
			b.readOn(l)
		}
	}
	b.evict()
	return t
}

// takeOne takes in a job that was read.
func (b *Block) takeOne(j *Job, r Read, t *Taken) {
	b.noteRead(j)
	b.Keyed = b.Keyed || j.Line != ""
	late := b.late(j, r)
	if j.From == store.AmongReady && !r.Back && b.skips(j, r) {
		return
	}
	was := b.seen[j.ID]
	if b.Add(j) {
		t.Fresh++
		if late {
			t.Late = append(t.Late, j)
		}
	} else if j.From == store.AmongDelayed && (was.From != store.AmongDelayed || was.RunAt != j.RunAt) {
		b.Dues.Missed(j.Due()) // another attempt than the one in memory
	}
}

// ForgetDeleted forgets, after a trip, the ids whose deletion it and every later one sees.
func (b *Block) ForgetDeleted() {
	for _, id := range b.forget {
		delete(b.seen, id)
	}
	b.forget = b.forget[:0]
}

// Returned records that no flusher writes acks any more.
func (b *Block) Returned() { b.sent = nil }

// PassOver records that a job that was read stays in its table: it could not be removed before it begins.
func (b *Block) PassOver(j *Job) {
	b.noteRead(j)
	if j.From == store.AmongDelayed {
		b.Dues.Pass(j.Due())
		return
	}
	b.Reads.Pass(j.Priority, j.ID)
}

// noteRead raises the cursor to a job that was read.
func (b *Block) noteRead(j *Job) {
	if j.From == store.AmongReady {
		b.Reads.Read(j.Priority, j.ID)
	}
}

// removeMissing removes those of some waiting jobs whose rows were looked for and are not there.
func (b *Block) removeMissing(waits []*Job, there map[int64]bool) {
	if there == nil { // nobody has looked
		return
	}
	for _, j := range waits {
		if !there[j.ID] && j.Waits() {
			b.remove(j)
		}
	}
}

// takeLoads takes in jobs whose payloads were read. Jobs whose turn has come continue; a job that was
// cancelled is forgotten.
func (b *Block) takeLoads(p *Plan, f *Found) (lost []*Job) {
	for _, j := range p.Loads {
		if !b.CanLoad(j) {
			continue
		}
		at := slices.Index(b.unloaded, j)
		switch {
		case f.Loaded[j.ID]:
			j.Unloaded = false
			b.Weigh(j)
			if at >= 0 {
				b.unloaded = slices.Delete(b.unloaded, at, at+1)
				b.makeReady(j)
			}
		case at >= 0 && j.From == store.AmongRunning:
			b.unloaded = slices.Delete(b.unloaded, at, at+1)
			b.Count--
			b.ReleaseIfHeld(j.Line, j.ID)
			lost = append(lost, j)
		default:
			b.remove(j)
		}
	}
	return lost
}

// CanLoad reports whether a job still waits for its payload: it may have been taken or put back meanwhile.
func (b *Block) CanLoad(j *Job) bool {
	return j.Unloaded && j.Row != RowLeaving && !j.HasEnded() && (j.From == store.AmongRunning || b.seen[j.ID] == j)
}

// FoundEmpty records that a block had no ready job where a look back was due, as if it
// had been read from there. It is due from the beginning if every is 0.
func (b *Block) FoundEmpty(now Now, every time.Duration, took time.Duration, at instant.Instant) {
	r := b.Reads.Plan(now.At, every, 1, now.Ago(), false, func(Cursor) int { return 0 })
	b.Reads.Took(r, Fetched{}, 0, now.At)
	b.RestAfter(r, at, took)
	if r.Routine {
		clear(b.followed)
	}
}

// RestAfter delays the next read of the whole block, or look far back, after one that took long:
// such a read walks over what is deleted, and should take at most a twentieth of the time.
func (b *Block) RestAfter(r Read, at instant.Instant, took time.Duration) {
	b.Reads.Rest(r, at, min(20*took, 5*time.Minute))
}
