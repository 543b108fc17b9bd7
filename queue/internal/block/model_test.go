package block

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/queue/internal/limit"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// A world is a block with its worker, its rows in the database, and the time, which is nobody's but the world's. The worker is
// simple: it does for a block what package queue does, one thing after the other.
type world struct {
	t    failer
	b    *Block
	host *host
	gate *limit.Limiter // of kind "limited"

	at    instant.Instant
	us    int64 // the database's clock
	last  int64 // the last id
	rows  map[int64]*row
	order map[string][]int64 // the ids of a line that are not done, as they were enqueued

	trip    *Plan
	found   *Found
	written []Step // by that trip, and whether their rows were there
	were    []bool
	denied  []Step // refused by it, or behind such
	fate    fate
	begun   map[int64]*Job
	done    map[int64]int
	deaf    map[int64]bool // their ends are refused
	aside   map[int64]*Refusal
	lost    bool // the lease is in doubt
	retried map[int64]int
	drawn   []*row           // not committed yet
	mark    bool             // a job was committed late: the next one of a line carries a mark
	due     int64            // when to look for delayed jobs
	away    map[int64]*Job   // other processes have ended these, and the worker does not know yet
	strays  map[int64]bool   // jobs of which it finds out by looking only that they are no longer there
	tx      *completion      // under way
	again   map[int64]bool   // done again after the block was lost: behind retries of later ones, perhaps
	next    map[string]int64 // by line: the job that could begin already when an end was refused
	stolen  bool             // another worker has the block
	empty   instant.Instant  // the last trip that did nothing
	putBack bool             // and jobs of the stolen one's line were put back since: reads do not ask who has the block
}

// A row is a job in the database.
type row struct {
	id, runAt      int64
	line, kind     string
	priority, size int
	from           store.JobTable
	holds          bool  // its line waits for it
	slow           bool  // its transaction takes longer than Window
	committed      int64 // in µs
}

// A completion is a handler's transaction that completes its job.
type completion struct {
	j      *Job
	taken  []*Job
	all    []*Job // whose rows it deletes
	paused []*Refusal
}

// A fate is what becomes of a trip.
type fate int

const (
	succeeds fate = iota
	fails         // before it has written anything
	unheard       // its answer is lost
)

// A retry is the move of a job that has failed.
type retry struct {
	j     *Job
	after time.Duration
}

func (m *retry) Of() *Job  { return m.j }
func (m *retry) Out() bool { return false }

// A failer is a test, or one run of it.
type failer interface {
	Helper()
	Fatal(...any)
	Fatalf(string, ...any)
}

func drawWorld(t *rapid.T) *world {
	batch := rapid.SampledFrom([]int{1, 1, 1, 2, 3}).Draw(t, "batch")
	return newWorld(t, batch, rapid.SampledFrom([]int{100, 1 << 20}).Draw(t, "room"))
}

func newWorld(t failer, batch, room int) *world {
	h := &host{limits: map[string]*limit.Limiter{}, opens: map[*limit.Limiter]bool{}, out: map[int64]bool{}}
	terms := &Terms{Batch: batch, Whole: time.Hour, Room: Room{Size: room, Readers: 1}}
	b := New(h, terms)
	keeper := limit.NewKeeper(nil, nil, nil) // a limiter without one is a barrier
	gate, _, _ := keeper.Set(keeper.Queue(1, "q"), "limited", store.Limit{Running: 1})
	w := &world{
		t: t, b: &b, host: h, gate: gate, at: instant.Instant(time.Hour), us: modelNow,
		rows: map[int64]*row{}, order: map[string][]int64{}, begun: map[int64]*Job{}, done: map[int64]int{},
		deaf: map[int64]bool{}, aside: map[int64]*Refusal{}, retried: map[int64]int{}, next: map[string]int64{},
		away: map[int64]*Job{}, strays: map[int64]bool{}, again: map[int64]bool{},
	}
	h.limits["limited"], h.opens[w.gate] = w.gate, true
	return w
}

func (w *world) now() Now {
	return Now{At: w.at, Closed: w.us - 2*maxSkew.Microseconds(), Leased: !w.lost, Size: w.b.terms.Batch}
}

// pass lets time pass. What was drawn is committed in time, unless its transaction is slow.
func (w *world) pass(d time.Duration) {
	w.at, w.us = w.at.Add(d), w.us+d.Microseconds()
	for _, r := range slices.Clone(w.drawn) {
		most := Window
		if r.slow {
			most *= 2
		}
		if w.us >= store.TimeOf(r.id).Add(most).UnixMicro() {
			w.commitDrawn(r)
		}
	}
	if w.due != 0 && w.us >= w.due {
		w.due = 0
		w.b.IsDue()
	}
}

// newRow draws the id of a job. Of a line, the one before was committed then.
func (w *world) newRow(line, kind string, size int) *row {
	for _, r := range slices.Clone(w.drawn) {
		if line != "" && r.line == line {
			w.commitDrawn(r)
		}
	}
	w.last = max(w.last+1, store.TickOf(w.us))
	if line != "" && w.mark {
		w.last, w.mark = w.last|store.Follower, false
	}
	r := &row{id: w.last, line: line, kind: kind, size: size, priority: normal}
	if line == "" {
		r.priority = 1 + int(w.last>>store.IdBits%Priorities)
	}
	return r
}

// draw inserts a job that is committed later.
func (w *world) draw(line, kind string, slow bool) {
	w.pass(time.Millisecond)
	r := w.newRow(line, kind, 1)
	r.slow = slow
	w.drawn = append(w.drawn, r)
}

func (w *world) commitDrawn(r *row) {
	w.drawn = slices.DeleteFunc(w.drawn, func(o *row) bool { return o == r })
	w.mark = w.mark || r.slow
	w.insert(r)
}

func (w *world) insert(r *row) {
	r.committed = w.us
	w.rows[r.id] = r
	if r.line != "" {
		w.order[r.line] = append(w.order[r.line], r.id)
	}
}

func (w *world) enqueue(line, kind string, size int, delay time.Duration) {
	w.pass(time.Millisecond)
	r := w.newRow(line, kind, size)
	if delay > 0 && line == "" {
		r.from, r.runAt = store.AmongDelayed, w.us+delay.Microseconds()
	}
	w.insert(r)
	w.b.Reads.Rouse()
}

// job is a row as a reader makes it.
func (w *world) job(r *row, room *Allowance) *Job {
	j := &Job{ID: r.id, Priority: r.priority, Kind: r.kind, Line: r.line, Order: r.id, RunAt: r.runAt, From: r.from, Size: r.size}
	if r.from == store.AmongDelayed && !r.holds {
		j.Order = store.TickOf(r.runAt)
	}
	j.Unloaded = !room.Takes(r.size)
	return j
}

// plan begins a trip: it writes, and then reads what there is now.
func (w *world) plan(is fate) {
	if w.trip != nil || !w.b.Wants(w.now()) {
		return
	}
	crowded := w.b.Crowded()
	b, p, f := w.b, w.b.Plan(w.now()), &Found{}
	w.checkPlan(p, crowded)
	b.Serving = true
	for _, s := range p.Behind {
		w.setAside(s, false)
	}
	w.trip, w.found, w.fate, w.written, w.were, w.denied = p, f, is, nil, nil, nil
	if w.stolen && len(p.Gone) > 0 {
		w.lose()
		return
	}
	if is == fails {
		return
	}
	for _, r := range p.Again {
		w.commit(Step{r.Job, r.Move}, false)
	}
	barred := map[string]bool{}
	for _, j := range p.Acks {
		w.commit(Step{Job: j}, barred[j.Line])
		barred[j.Line] = j.Line != "" && (barred[j.Line] || w.deaf[j.ID])
	}
	for _, m := range p.Moves {
		j := m.Of()
		w.commit(Step{j, m}, barred[j.Line])
		barred[j.Line] = j.Line != "" && (barred[j.Line] || w.deaf[j.ID])
	}
	if p.Reads {
		var of [Priorities + 1]int // what was put back is read up to a limit for each priority
		for _, r := range w.sorted(store.AmongReady) {
			n := len(f.Fresh)
			if p.Read.Back {
				n = of[r.priority]
			}
			if r.id > p.Read.After[r.priority] && n < p.Read.Limit {
				of[r.priority]++
				f.Fresh = append(f.Fresh, w.job(r, &p.Room))
				f.Got = Fetched{len(f.Fresh), Place{r.priority, r.id}}
			}
		}
	}
	if p.Delayed {
		for _, r := range w.sorted(store.AmongDelayed) {
			if d := (Due{r.runAt, r.id}); p.Due.After.Before(d) && r.runAt <= w.us && len(f.Ripe) < p.Due.Limit {
				f.Ripe = append(f.Ripe, w.job(r, &p.Room))
				f.Rows, f.Last = len(f.Ripe), d
			}
		}
	}
	if p.Loads != nil {
		f.Loaded = map[int64]bool{}
		for _, j := range p.Loads {
			f.Loaded[j.ID] = w.has(j)
		}
	}
	if len(p.Waits) > 0 {
		f.There = map[int64]bool{}
		for _, j := range p.Waits {
			f.There[j.ID] = w.has(j)
		}
	}
}

// checkPlan checks what a trip is to do: something, nothing twice, and no more than the worker may.
func (w *world) checkPlan(p *Plan, crowded bool) {
	reads := p.Reads || p.Delayed || len(p.Loads) > 0 || len(p.Waits) > 0
	again := map[int64]bool{}
	for _, r := range p.Again {
		again[r.Job.ID] = true
	}
	switch {
	case w.lost && reads:
		w.t.Fatal("a trip reads, and the lease is in doubt")
	case crowded && p.Reads: // ids are forgotten that such a read would return
		w.t.Fatal("a trip reads a crowded block")
	case !reads && len(p.Acks)+len(p.Moves)+len(p.Gone)+len(p.Again)+len(p.Behind) == 0 && w.empty != 0 && w.at.Sub(w.empty) < LookEvery:
		w.t.Fatal("trips do nothing") // one a second does, of a block in which nothing waits that could be gone
	case len(again) < len(p.Again):
		w.t.Fatal("a trip tries a refused step twice")
	case !reads && len(p.Acks)+len(p.Moves)+len(p.Gone)+len(p.Again)+len(p.Behind) == 0:
		w.empty = w.at
	}
}

// commit writes one step to the database, unless it is refused, or waits behind such a step.
func (w *world) commit(s Step, behind bool) {
	if behind || w.deaf[s.Job.ID] {
		w.denied = append(w.denied, s)
		return
	}
	for id, r := range w.aside {
		if r.Job.Line != "" && r.Job.Line == s.Job.Line && id < s.Job.ID {
			w.t.Fatalf("the outcome of %d is written before that of %d, which was refused", s.Job.ID, id)
		}
	}
	there := w.has(s.Job)
	w.written, w.were = append(w.written, s), append(w.were, there)
	again, _ := s.Move.(*retry)
	switch r := w.rows[s.Job.ID]; {
	case again == nil:
		delete(w.rows, s.Job.ID)
	case there:
		r.from, r.runAt, r.holds = store.AmongDelayed, w.us+again.after.Microseconds(), s.Job.Line != ""
	case r != nil && r.from == store.AmongDelayed: // an earlier trip has moved it, and was not heard of
		w.were[len(w.were)-1] = true
	}
}

func (w *world) has(j *Job) bool { r := w.rows[j.ID]; return r != nil && r.from == j.From }

// sorted are the rows of a table in the order in which they are read.
func (w *world) sorted(from store.JobTable) []*row {
	all := slices.DeleteFunc(slices.Collect(maps.Values(w.rows)), func(r *row) bool { return r.from != from })
	slices.SortFunc(all, func(a, b *row) int {
		if from == store.AmongReady {
			return cmp.Or(cmp.Compare(a.priority, b.priority), cmp.Compare(a.id, b.id))
		}
		return cmp.Or(cmp.Compare(a.runAt, b.runAt), cmp.Compare(a.id, b.id))
	})
	return all
}

// apply ends a trip.
func (w *world) apply() {
	p, b := w.trip, w.b
	if p == nil {
		return
	}
	w.trip, b.Serving = nil, false
	b.Returned()
	if w.fate != succeeds { // another trip does it again
		b.TakeBack(p.Acks, p.Moves, p.Gone)
		b.Reads.Distrust()
		return
	}
	for i, s := range w.written {
		w.wrote(s, w.were[i])
	}
	for _, s := range w.denied {
		w.setAside(s, w.deaf[s.Job.ID])
	}
	for _, h := range p.Gone {
		b.Release(h.Line, h.ID)
	}
	b.ForgetDeleted()
	b.Sift(p, w.found)
	for _, j := range slices.Concat(w.found.Fresh, w.found.Ripe) {
		if w.away[j.ID] != nil { // it has come back
			w.learn(j.ID)
		}
	}
	back := b.skipped[w.gate]
	b.Take(p, w.found, w.at, time.Millisecond)
	for _, j := range w.found.Fresh {
		if back != 0 && j.ID > back && j.Line == "" && j.Kind == "limited" && b.Seen(j.ID) == j {
			w.t.Fatalf("%d is taken in, behind %d, which was put back", j.ID, back)
		}
	}
	w.putBack = w.putBack || w.stolen && b.HasPutBack("b")
}

func (w *world) setAside(s Step, tried bool) {
	r := w.aside[s.Job.ID]
	if r == nil {
		r = &Refusal{Job: s.Job}
		w.aside[s.Job.ID] = r
	}
	r.Move = s.Move
	if tried {
		r.Next = w.at.Add(500 * time.Millisecond)
		if first := w.order[s.Job.Line]; s.Job.Line != "" && len(first) > 0 && w.next[s.Job.Line] == 0 {
			w.next[s.Job.Line] = first[0]
		}
	}
	w.b.SetAside(r)
	w.b.Unweigh(s.Job)
}

// wrote records that the outcome of a job is committed, and whether its row was there.
func (w *world) wrote(s Step, there bool) {
	b, j := w.b, s.Job
	j.Phase = PhaseWritten
	r := w.aside[j.ID]
	if r != nil {
		delete(w.aside, j.ID)
		delete(w.next, j.Line)
		b.Relieve(r)
	}
	if s.Move == nil {
		b.Deleted(j, r != nil, true)
		return
	}
	b.Forget(j.ID)
	b.Spare(j)
	if r := w.rows[j.ID]; r != nil && r.from == store.AmongDelayed {
		w.dueAt(r.runAt)
	}
	switch {
	case !there:
		b.ReleaseIfHeld(j.Line, j.ID)
	case j.Line != "":
		b.Part(j.Line, j.ID)
	}
}

// begin begins the next job: those before it of its line are done.
func (w *world) begin() {
	if w.lost {
		return
	}
	t, j := w.t, w.b.Pop()
	if j == nil {
		return
	}
	switch first := w.order[j.Line]; {
	case w.begun[j.ID] != nil:
		t.Fatalf("%d begins twice at a time", j.ID)
	case w.done[j.ID] > 0:
		t.Fatalf("%d begins, and is done", j.ID)
	case j.Unloaded:
		t.Fatalf("%d begins without its payload", j.ID)
	case j.Line != "" && len(first) > 0 && first[0] != j.ID && !w.again[first[0]] && w.rows[j.ID] != nil && (!w.putBack || j.Line != "b"):
		t.Fatalf("%d of line %s begins, and it is the turn of %d", j.ID, j.Line, first[0])
	case j.Line != "" && w.next[j.Line] != 0 && w.next[j.Line] != j.ID && w.rows[j.ID] != nil && (!w.putBack || j.Line != "b"):
		t.Fatalf("%d of line %s begins, behind an end that is refused", j.ID, j.Line)
	case !w.host.opens[w.gate] && j.Kind == "limited":
		t.Fatalf("%d begins, and its limit is closed", j.ID)
	}
	w.begun[j.ID] = j
}

// end ends a job that has begun.
func (w *world) end(id int64, fails bool) {
	j, b := w.begun[id], w.b
	if w.away[id] != nil {
		w.learn(id)
		return
	}
	if w.tx != nil && w.tx.j == j {
		w.endTx(true)
	}
	delete(w.begun, id)
	delete(w.host.out, id)
	j.Phase = PhaseEnded
	b.Active--
	if fails && w.retried[id] < 3 && j.Tx != TxCompleted {
		w.retried[id]++
		b.Move(&retry{j, 10 * time.Millisecond})
		return
	}
	w.done[id]++
	w.order[j.Line] = slices.DeleteFunc(w.order[j.Line], func(o int64) bool { return o == id })
	b.Finish(j)
	b.Release(j.Line, id)
	if j.Kind == "limited" {
		b.ResumeOpen()
	}
}

// endElsewhere has another process end a job that has begun here: a claim, say.
func (w *world) endElsewhere(id int64, fails bool) {
	r := w.rows[id]
	if w.away[id] != nil || r == nil || w.tx != nil && w.tx.j.ID == id {
		return
	}
	for before := range w.done { // it would be done again after its retry, if the block were lost now
		if o := w.rows[before]; fails && o != nil && o.line == r.line {
			return
		}
	}
	w.away[id] = w.begun[id]
	delete(w.deaf, id)
	if fails {
		r.from, r.runAt, r.holds = store.AmongDelayed, w.us, r.line != ""
		return
	}
	delete(w.rows, id)
	w.done[id]++
	w.order[r.line] = slices.DeleteFunc(w.order[r.line], func(o int64) bool { return o == id })
}

// learn has the worker know of that.
func (w *world) learn(id int64) {
	j, b := w.away[id], w.b
	delete(w.begun, id)
	delete(w.away, id)
	delete(w.host.out, id)
	j.Phase = PhaseWritten
	b.Active--
	b.ForgetSoon(id)
	if j.Line != "" {
		w.strays[id] = true
		b.Part(j.Line, id)
	}
}

// beginTx has a handler's transaction complete a job, with those before it of its line.
func (w *world) beginTx(id int64) {
	j := w.begun[id]
	if w.tx != nil || w.away[id] != nil || w.rows[id] == nil {
		return
	}
	taken, sent, paused := w.b.Withhold(j)
	w.tx = &completion{j, taken, slices.Concat(taken, sent, []*Job{j}), paused}
	for _, r := range paused {
		w.tx.all = append(w.tx.all, r.Job)
	}
}

// endTx ends it. Nothing of the line is left then that would be done again after a crash.
func (w *world) endTx(commits bool) {
	x := w.tx
	w.tx = nil
	for _, j := range x.all {
		commits = commits && !w.deaf[j.ID]
	}
	if commits {
		x.j.Tx = TxCompleted
		for _, j := range x.all {
			delete(w.rows, j.ID)
		}
		for id, r := range w.rows {
			if r.line == x.j.Line && r.line != "" && id < x.j.ID && w.done[id] > 0 {
				w.t.Fatalf("%d is completed, and %d before it would be done again after a crash", x.j.ID, id)
			}
		}
	}
	w.b.HandBack(x.taken, x.paused, commits)
}

// steal has another worker take the block, and begin a job that waits here.
func (w *world) steal(id int64) {
	w.stolen, w.rows[id].from = true, store.AmongRunning
	w.putBack = w.b.HasPutBack("b")
}

// lose ends the block here, and takes it again: whatever others have begun they have handed back.
func (w *world) lose() {
	for id := range w.done {
		if r := w.rows[id]; r != nil { // it is done again
			delete(w.done, id)
			w.again[id] = true
			if r.line != "" && !slices.Contains(w.order[r.line], id) {
				w.order[r.line] = append(w.order[r.line], id)
				slices.Sort(w.order[r.line])
			}
		}
	}
	for line := range w.order { // completed by transactions whose ends nobody has noted
		w.order[line] = slices.DeleteFunc(w.order[line], func(id int64) bool { return w.rows[id] == nil })
	}
	w.b.Gone = true
	w.b.Drop()
	if w.b.terms.Held != 0 {
		w.t.Fatalf("%d bytes of a lost block are counted", w.b.terms.Held)
	}
	b := New(w.host, w.b.terms)
	w.b, w.stolen, w.putBack, w.trip, w.empty = &b, false, false, nil, 0
	clear(w.begun)
	clear(w.away)
	clear(w.host.out)
	w.tx = nil
	clear(w.aside)
	clear(w.next)
	for _, r := range w.rows {
		if r.from == store.AmongRunning {
			r.from = store.AmongReady
		}
		if r.holds {
			b.Hold(r.line, r.id)
		}
	}
}

// look looks for jobs that nobody has announced, as polls, rounds and timers do.
func (w *world) look() {
	if b := w.b; !b.Reads.Dirty && !b.Serving {
		after := b.Reads.Cursor()
		back, due := b.Reads.LookFrom(w.at, b.terms.Whole, w.now().Ago())
		if due = due && !b.HoldsSome() && b.Reads.Level(); due {
			after = back
		}
		some := slices.ContainsFunc(w.sorted(store.AmongReady), func(r *row) bool { return r.id > after[r.priority] })
		switch {
		case some:
			b.Reads.Rouse()
		case due:
			b.FoundEmpty(w.now(), b.terms.Whole, time.Millisecond, w.at)
		}
	}
	// What waits for a job that another process has ended goes on: see letGo in package queue.
	for _, line := range w.b.Lines() {
		if t, held := w.b.Holder(line); held && t.Away && w.rows[t.ID] == nil && w.strays[t.ID] {
			w.b.ReleaseIfHeld(line, t.ID)
		}
	}
}

// lookForDue looks when the next delayed job is due.
func (w *world) lookForDue() {
	b := w.b
	if b.Dues.Ripe {
		return
	}
	since := b.Dues.Horizon()
	if !b.HoldsSome() && b.Reads.Level() {
		since = b.Dues.LookFrom(w.at, w.now().DuesUpto())
	}
	for _, r := range w.sorted(store.AmongDelayed) {
		if r.runAt > since {
			if r.runAt < b.Dues.Horizon() {
				b.Dues.Anew()
			}
			b.Dues.Saw(r.runAt)
			w.dueAt(r.runAt)
			return
		}
	}
}

// dueAt has delayed jobs looked for at a time.
func (w *world) dueAt(us int64) {
	if w.due == 0 || us < w.due {
		w.due = us
	}
}

// rest lets four seconds pass in which nothing begins or ends, and looks at what is left in memory.
func (w *world) rest() {
	if w.lost || w.stolen {
		return
	}
	t, b := w.t, w.b
	w.apply()
	reads := true // all the time
	trips, most := 0, 40+4*len(w.rows)/b.terms.Batch
	for i := range 80 {
		if w.look(); i%20 == 0 {
			w.lookForDue()
		}
		w.pass(50 * time.Millisecond)
		for b.Wants(w.now()) {
			if trips++; trips > most {
				t.Fatalf("%d trips, and nothing happens", trips)
			}
			w.plan(succeeds)
			if w.apply(); b != w.b {
				return // it was lost
			}
		}
		reads = reads && b.HasRoom() && !b.Crowded()
		for id, r := range w.rows {
			if reads && r.from == store.AmongReady && !r.slow && w.us > r.committed+1200_000 && b.Seen(id) == nil && !w.isPutBack(r) {
				t.Fatalf("%d was committed %d µs ago, and is not read", id, w.us-r.committed)
			}
		}
	}
	for line, l := range b.keyQueues {
		for j := range l.Waiting() {
			if l.Skipped() != 0 && j.ID >= l.Skipped() && j.From == store.AmongReady && l.turn(j.ID) < 0 {
				t.Fatalf("%d of line %s is in memory, behind %d, which was put back", j.ID, line, l.Skipped())
			}
		}
		if h, held := l.Holder(); held && h.Away && w.rows[h.ID] == nil {
			t.Fatalf("line %s waits for %d, which is not there", line, h.ID)
		}
		if reads && b.needs(l) {
			t.Fatalf("line %s needs jobs that were put back", line)
		}
	}
	if !b.HasRoom() {
		return
	}
	for i := 0; ; i++ { // those that are looked for first
		gone := slices.IndexFunc(b.Waits(), func(j *Job) bool { return !w.has(j) })
		if gone < 0 {
			return
		}
		if i > 200 {
			t.Fatalf("%d waits in memory, and was cancelled", b.Waits()[gone].ID)
		}
		w.look()
		w.pass(time.Second)
		w.plan(succeeds)
		if w.apply(); b != w.b {
			return
		}
	}
}

// checkLines checks that ends that were refused keep their order, and that a line is read for at once when it needs jobs that
// were put back.
func (w *world) checkLines() {
	b := w.b
	if len(b.Refusals) != len(w.aside) {
		w.t.Fatalf("%d steps are set aside, and it has %d", len(w.aside), len(b.Refusals))
	}
	for line, l := range b.keyQueues {
		var turns, refused []int64
		for _, r := range b.Refusals {
			if r.Job.Line == line {
				refused = append(refused, r.Job.ID)
			}
		}
		for _, t := range l.turns {
			if slices.Contains(refused, t.ID) {
				turns = append(turns, t.ID)
			}
		}
		if !slices.Equal(turns, refused) {
			w.t.Fatalf("the ends of %v of line %s are refused, and their turns are %v", refused, line, turns)
		}
		if l.resumed && b.needs(l) && l.Skipped() <= b.Reads.Committed() && b.HasRoom() && !b.Crowded() && !w.lost && !b.Wants(w.now()) {
			w.t.Fatalf("line %s needs jobs that were put back, and waits to be read", line)
		}
	}
}

// isPutBack reports whether a job is behind some that were put back.
func (w *world) isPutBack(r *row) bool {
	if l := w.b.keyQueues[r.line]; r.line != "" {
		return l != nil && l.Skipped() != 0 && r.id >= l.Skipped()
	}
	first := w.b.skipped[w.host.limits[r.kind]]
	return first != 0 && r.id >= first
}

// Whatever happens: the jobs of a line begin in their order, one at a time; each job that stays in the database is done, and done once;
// and at the end nothing is owed, held or remembered.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		lines, kinds := []string{"", "a", "a", "b"}, []string{"free", "free", "limited"}
		one := func(t *rapid.T, set map[int64]*Job) (int64, bool) {
			if len(set) == 0 {
				return 0, false
			}
			return rapid.SampledFrom(slices.Sorted(maps.Keys(set))).Draw(t, "job"), true
		}
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) {
				if n := len(w.begun); w.b.Active != n {
					t.Fatalf("%d run, and it counts %d", n, w.b.Active)
				}
				if was, is := w.b.Recount(); was != is {
					t.Fatalf("it counts %d jobs that may start, and has %d", was, is)
				}
				w.checkLines()
			},
			"enqueue": func(t *rapid.T) {
				for range rapid.IntRange(1, 10).Draw(t, "n") {
					w.enqueue(rapid.SampledFrom(lines).Draw(t, "line"), rapid.SampledFrom(kinds).Draw(t, "kind"),
						rapid.IntRange(0, 60).Draw(t, "size"), drawn(t, "delay", time.Second))
				}
			},
			"flood": func(t *rapid.T) {
				if len(w.rows) > 500 {
					return
				}
				line, kind := rapid.SampledFrom(lines).Draw(t, "line"), rapid.SampledFrom(kinds).Draw(t, "kind")
				for range rapid.IntRange(10, 120*w.b.terms.Batch).Draw(t, "n") {
					w.enqueue(line, kind, 1, 0)
				}
			},
			"draw": func(t *rapid.T) {
				w.draw(rapid.SampledFrom(lines).Draw(t, "line"), rapid.SampledFrom(kinds).Draw(t, "kind"), rapid.IntRange(0, 3).Draw(t, "slow") == 0)
			},
			"late": func(t *rapid.T) { // below the cursor
				w.draw(rapid.SampledFrom(lines).Draw(t, "line"), "free", rapid.IntRange(0, 3).Draw(t, "slow") == 0)
				for range Priorities {
					w.enqueue("", "free", 1, 0)
				}
				w.fill()
				if rapid.Bool().Draw(t, "rest") {
					w.rest()
				}
			},
			"commit": func(*rapid.T) {
				if len(w.drawn) > 0 && !w.drawn[0].slow {
					w.commitDrawn(w.drawn[0])
				}
			},
			"elsewhere": func(t *rapid.T) {
				if id, ok := one(t, w.begun); ok {
					w.endElsewhere(id, rapid.Bool().Draw(t, "fails"))
				}
			},
			"learn": func(t *rapid.T) {
				if id, ok := one(t, w.away); ok {
					w.learn(id)
				}
			},
			"complete": func(t *rapid.T) {
				if id, ok := one(t, w.begun); ok {
					w.beginTx(id)
				}
			},
			"completed": func(t *rapid.T) {
				if w.tx != nil {
					w.endTx(rapid.IntRange(0, 2).Draw(t, "commits") > 0)
				}
			},
			"out": func(t *rapid.T) { // it runs for long
				if id, ok := one(t, w.begun); ok {
					w.host.out[id] = true
				}
			},
			"rest": func(*rapid.T) { w.rest() },
			"crowd": func(t *rapid.T) {
				if len(w.rows) > 300 {
					return
				}
				switch n := w.b.terms.Batch; rapid.IntRange(0, 2).Draw(t, "with") {
				case 0: // a line stands still
					w.work()
					for id, j := range w.begun {
						w.host.out[id] = w.host.out[id] || j.Line == "a"
					}
					for range rapid.IntRange(60, 120).Draw(t, "n") * n {
						w.enqueue("a", "free", 1, 0)
					}
				case 1: // jobs wait for a limit
					w.host.opens[w.gate] = false
					for range rapid.IntRange(20, 50).Draw(t, "n") * n {
						w.enqueue("", "limited", 1, 0)
					}
				case 2: // lines do
					w.host.opens[w.gate] = false
					for i := range rapid.IntRange(20, 30).Draw(t, "n") * n {
						w.enqueue("a"+strconv.Itoa(i), "limited", 1, 0)
						w.enqueue("a"+strconv.Itoa(i), "free", 1, 0)
					}
				}
				w.fill()
			},
			"steal": func(t *rapid.T) {
				for line, first := range w.order {
					if line == "b" && len(first) > 1 && w.begun[first[0]] == nil && w.b.Seen(first[0]) != nil && w.rows[first[0]].from == store.AmongReady && w.trip == nil {
						w.steal(first[0])
						return
					}
				}
			},
			"plan": func(t *rapid.T) {
				w.plan(rapid.SampledFrom([]fate{succeeds, succeeds, fails, unheard}).Draw(t, "fate"))
			},
			"apply": func(*rapid.T) { w.apply() },
			"begin": func(t *rapid.T) {
				for range rapid.IntRange(1, 3).Draw(t, "n") {
					w.begin()
				}
			},
			"trip": func(*rapid.T) {
				w.plan(succeeds)
				w.apply()
			},
			"work": func(t *rapid.T) {
				for range rapid.IntRange(1, 4).Draw(t, "n") {
					w.work()
					if id, ok := one(t, w.begun); ok {
						w.deaf[id] = rapid.IntRange(0, 5).Draw(t, "refused") == 0
						w.end(id, rapid.IntRange(0, 5).Draw(t, "fails") == 0)
					}
				}
			},
			"end": func(t *rapid.T) {
				if id, ok := one(t, w.begun); ok {
					w.deaf[id] = w.deaf[id] || rapid.IntRange(0, 3).Draw(t, "refused") == 0
					w.end(id, rapid.IntRange(0, 3).Draw(t, "fails") == 0)
				}
			},
			"fill": func(*rapid.T) { w.fill() },
			"accept": func(t *rapid.T) {
				if rapid.IntRange(0, 2).Draw(t, "accept") == 0 {
					clear(w.deaf)
				}
			},
			"cancel": func(t *rapid.T) {
				if len(w.rows) == 0 {
					return
				}
				id := rapid.SampledFrom(slices.Sorted(maps.Keys(w.rows))).Draw(t, "row")
				if r := w.rows[id]; w.begun[id] == nil && w.done[id] == 0 && w.trip == nil && r.from != store.AmongRunning && w.tx == nil {
					w.strays[id] = w.strays[id] || r.from == store.AmongDelayed
					delete(w.rows, id)
					w.order[r.line] = slices.DeleteFunc(w.order[r.line], func(o int64) bool { return o == id })
				}
			},
			"limit": func(t *rapid.T) {
				if w.host.opens[w.gate] = rapid.Bool().Draw(t, "open"); w.host.opens[w.gate] {
					w.b.ResumeOpen()
				}
			},
			"lease": func(t *rapid.T) { w.lost = rapid.Bool().Draw(t, "lost") },
			"pass":  func(t *rapid.T) { w.pass(drawn(t, "time", 3*time.Second)) },
			"look": func(*rapid.T) {
				w.look()
				w.lookForDue()
			},
		})
		w.lost = false
		w.rest()
		w.host.opens[w.gate] = true
		for range 3 {
			w.pass(Window) // until all is committed
		}
		if w.stolen { // its lease ends here, at the latest
			w.lose()
		}
		clear(w.deaf)
		for i, left := 0, len(w.rows); len(w.rows) > 0 || len(w.begun) > 0 || w.trip != nil || w.tx != nil; i++ {
			if len(w.rows) != left {
				i, left = 0, len(w.rows)
			}
			if i > 400 { // twenty seconds
				t.Fatalf("%d rows are left, the first %+v; it wants a trip: %v; ready %v, lines %v, refusals %d",
					len(w.rows), w.sorted(w.some())[0], w.b.Wants(w.now()), w.b.HasReady(), w.b.Lines(), len(w.b.Refusals))
			}
			w.goOn(50 * time.Millisecond)
		}
		for range 200 { // until what was deleted is forgotten
			w.goOn(time.Second)
		}
		for range 2 { // until the block was read whole
			w.goOn(w.b.terms.Whole)
		}
		if len(w.b.followed) > 0 {
			t.Fatalf("it remembers %d jobs that follow late ones", len(w.b.followed))
		}
		if w.b.HoldsSome() || !w.b.Idle(false) || w.b.held != 0 || w.b.terms.Held != 0 {
			t.Fatalf("left: %+v, %d bytes", w.b, w.b.held)
		}
		for id, n := range w.done {
			if n != 1 {
				t.Fatalf("%d was done %d times", id, n)
			}
		}
	})
}

// work makes a trip, and begins what may begin.
func (w *world) work() {
	w.pass(time.Millisecond)
	w.plan(succeeds)
	w.apply()
	w.begin()
}

// fill makes trips until no more is read: the block may be crowded then.
func (w *world) fill() {
	for range 300 {
		if w.pass(time.Millisecond); !w.b.Wants(w.now()) {
			return
		}
		w.plan(succeeds)
		w.apply()
	}
}

// goOn lets a time pass in which all goes well.
func (w *world) goOn(d time.Duration) {
	for id := range w.away {
		w.learn(id)
	}
	if w.tx != nil {
		w.endTx(true)
	}
	w.b.ResumeOpen()
	w.look()
	w.lookForDue()
	w.pass(d)
	w.plan(succeeds)
	w.apply()
	for {
		n := -1
		for n < len(w.begun) {
			n = len(w.begun)
			w.begin()
		}
		if n == 0 {
			return
		}
		for _, id := range slices.Sorted(maps.Keys(w.begun)) {
			w.end(id, false)
		}
	}
}

// some is a table that has rows.
func (w *world) some() store.JobTable {
	for _, r := range w.rows {
		return r.from
	}
	return store.AmongReady
}

// A key whose jobs were put back for a limit goes on, although the first of them was cancelled meanwhile and the block is
// read again in parts.
func TestCancelledWhilePutBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		w.host.opens[w.gate] = false
		for _, kind := range []string{"limited", "free"} {
			for i := range 40 * w.b.terms.Batch {
				w.enqueue("a"+strconv.Itoa(i), kind, 1, 0)
			}
		}
		for range 300 {
			w.work()
			w.pass(50 * time.Millisecond)
		}
		if len(w.b.gated[w.gate]) == 0 {
			t.Fatal("no key was put back")
		}
		for _, l := range w.b.gated[w.gate] {
			delete(w.rows, l.Skipped())
			w.order[l.key] = w.order[l.key][1:]
		}
		w.host.opens[w.gate] = true
		for range 400 { // twenty seconds
			w.goOn(50 * time.Millisecond)
		}
		if len(w.rows) > 0 || w.b.HoldsSome() {
			t.Fatalf("%d rows are left", len(w.rows))
		}
	})
}

// Jobs of several keys that were put back are read as soon as their keys go on, in as many trips as it takes.
func TestPutBackIsReadAtOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		w.b.terms.Batch = 1
		var lines []string
		for i := range 12 {
			lines = append(lines, "a"+strconv.Itoa(i))
		}
		for _, line := range lines {
			w.enqueue(line, "free", 1, 0)
		}
		for range 2 * len(lines) {
			w.work()
		}
		for id := range w.begun {
			w.host.out[id] = true
		}
		for range 15 {
			for _, line := range lines {
				w.enqueue(line, "free", 1, 0)
			}
		}
		for range 8 {
			w.pass(LookEvery)
			w.fill()
		}
		for _, line := range lines {
			if !w.b.HasPutBack(line) || w.b.WaitingOf(line) > 0 {
				t.Fatalf("nothing of %s was put back", line)
			}
		}
		for _, id := range slices.Sorted(maps.Keys(w.begun)) {
			w.end(id, false)
		}
		for w.b.Wants(w.now()) {
			w.plan(succeeds)
			w.apply()
			w.begin()
		}
		for _, line := range lines {
			if l := w.b.keyQueues[line]; w.b.needs(l) && w.b.HasRoom() {
				t.Fatalf("%s needs jobs that were put back, and no trip is wanted", line)
			}
		}
	})
}

// A key whose first job failed, and has come back for its retry, has what was put back behind it read before that job ends.
func TestReadsOnBehindARetry(t *testing.T) {
	w := newWorld(t, 1, 100)
	for range 101 {
		w.enqueue("a", "free", 1, 0)
	}
	w.fill()
	w.draw("b", "free", true) // once it is read, it keeps the retry from being read, and the rest of the key is put back
	w.rest()
	for _, fails := range []bool{false, true} {
		w.work()
		w.end(w.order["a"][0], fails)
	}
	w.rest()
	if !w.b.HasPutBack("a") {
		t.Fatal("nothing of the key was put back")
	}
	w.begin()
	w.plan(succeeds)
	w.apply()
	w.begin()
	if len(w.begun) != 2 {
		t.Fatalf("%d jobs have begun, and not the retry and another one", len(w.begun))
	}
	w.rest() // it checks that no line needs jobs that were put back
}

// A key whose jobs were put back goes on although the block has more than is read, so that its less urgent jobs are not read.
func TestReadsOnBesideAFlood(t *testing.T) {
	w := newWorld(t, 4, 1<<20)
	for range 500 {
		w.enqueue("a", "free", 1, 0)
	}
	w.work()
	for id := range w.begun {
		w.host.out[id] = true // it runs for long
	}
	for range 5000 {
		w.enqueue("", "free", 1, 0)
		w.rows[w.last].priority = normal
	}
	step := func() (line string) {
		w.work()
		for _, id := range slices.Sorted(maps.Keys(w.begun)) {
			if j := w.begun[id]; !w.host.out[id] {
				line += j.Line
				w.end(id, false)
			}
		}
		return line
	}
	for range 2000 {
		step()
	}
	if !w.b.HasPutBack("a") {
		t.Fatal("nothing of the key was put back")
	}
	for id := range w.host.out {
		w.end(id, false)
	}
	for range 200 {
		if step() != "" {
			return
		}
	}
	t.Fatal("the key's next job does not begin")
}
