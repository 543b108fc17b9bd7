package block

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/queue/internal/limit"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// A world is a worker of a queue with its blocks, and the time, which is nobody's but the world's. The worker is simple: it does
// for its blocks what package queue does, one thing after the other.
type world struct {
	t     failer
	host  *host
	gate  *limit.Limiter // of kind "limited"
	wall  *limit.Limiter // a barrier for kind "strange", if nobody here does that
	terms *Terms
	turns *Turns // of a fair queue
	all   []*tenure

	at    instant.Instant
	us    int64 // the database's clock
	last  int64 // the last id
	lost  bool  // the lease is in doubt
	began []*Job
	trips int
	picks int // how many of them have picked
}

// A tenure is a block of the worker, with its rows in the database.
type tenure struct {
	*world
	b *Block

	rows  map[int64]*row
	ready []*row             // those that were ever ready, in the order in which they are read
	order map[string][]int64 // the ids of a line that are not done, as they were enqueued

	trip     *Plan
	found    *Found
	written  []Step // by that trip, and whether their rows were there
	were     []bool
	denied   []Step // refused by it, or behind such
	passed   []*Job // read, and not removed before they begin
	consumed []*Job // removed
	fate     fate
	begun    map[int64]*Job
	done     map[int64]int
	deaf     map[int64]bool // their ends are refused
	aside    map[int64]*Refusal
	retried  map[int64]int
	drawn    []*row           // not committed yet
	late     int              // how many jobs were committed late
	followed int              // and up to which of them jobs were committed in time that follow it
	due      int64            // when to look for delayed jobs
	away     map[int64]*Job   // other processes have ended these, and the worker does not know yet
	strays   map[int64]bool   // jobs of which it finds out by looking only that they are no longer there
	tx       *completion      // under way
	batches  map[int64]bool   // the first jobs of batches that gather, and whether they are full
	units    map[int64][]*Job // by each of its jobs: a batch that runs
	again    map[int64]bool   // done again after the block was lost: behind retries of later ones, perhaps
	next     map[string]int64 // by line: the job that could begin already when an end was refused
	stolen   bool             // another worker has the block
	empty    instant.Instant  // the last trip that did nothing
	mixed    bool             // jobs that were picked no longer count as such
	putBack  bool             // and jobs of the stolen one's line were put back since: reads do not ask who has the block
}

// A row is a job in the database.
type row struct {
	id, runAt      int64
	tenant         string
	line, kind     string
	priority, size int // 0: as it comes
	cost           int
	from           store.JobTable
	holds          bool  // its line waits for it
	after          int   // it follows so many that were committed late
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

// A checkOut gives a job a row of its own.
type checkOut struct{ j *Job }

func (m *checkOut) Of() *Job  { return m.j }
func (m *checkOut) Out() bool { return true }

// A failer is a test, or one run of it.
type failer interface {
	Helper()
	Fatal(...any)
	Fatalf(string, ...any)
	Logf(string, ...any)
}

// drawWorld draws a worker of some blocks.
func drawWorld(t *rapid.T, blocks int) *world {
	batch := rapid.SampledFrom([]int{1, 1, 1, 2, 3}).Draw(t, "batch")
	return newWorld(t, blocks, batch, rapid.SampledFrom([]int{100, 1 << 20}).Draw(t, "room"))
}

func newWorld(t failer, blocks, batch, room int) *world {
	h := &host{limits: map[string]*limit.Limiter{}, opens: map[*limit.Limiter]bool{}, out: map[int64]bool{}}
	keeper := limit.NewKeeper(nil, nil, nil) // a limiter without one is a barrier
	q := keeper.Queue(1, "q")
	gate, _, _ := keeper.Set(q, "limited", store.Limit{Running: 1})
	whole, _, _ := keeper.Set(q, "", store.Limit{Rate: 1, Per: time.Second, Burst: 1})
	h.limits["limited"], h.whole, h.lacks = gate, whole, map[*limit.Limiter]int{}
	h.opens[gate], h.opens[whole] = true, true
	w := &world{
		t: t, host: h, gate: gate, wall: limit.Barrier(q, ""), at: instant.Instant(time.Hour), us: modelNow, turns: &Turns{},
		terms: &Terms{Batch: batch, Whole: time.Hour, Room: Room{Size: room, Readers: 1}},
	}
	for range blocks {
		b := New(h, w.terms)
		w.all = append(w.all, &tenure{
			world: w, b: &b, rows: map[int64]*row{}, order: map[string][]int64{}, begun: map[int64]*Job{}, done: map[int64]int{},
			deaf: map[int64]bool{}, aside: map[int64]*Refusal{}, retried: map[int64]int{}, next: map[string]int64{},
			away: map[int64]*Job{}, strays: map[int64]bool{}, again: map[int64]bool{},
			batches: map[int64]bool{}, units: map[int64][]*Job{},
		})
	}
	return w
}

// newTenure returns a block of a worker that has no other.
func newTenure(t failer, batch, room int) *tenure { return newWorld(t, 1, batch, room).all[0] }

// consumeFirst has the worker remove the rows of jobs before these begin.
func (w *world) consumeFirst() { w.terms.AtMostOnce = true }

// share makes the queue fair, or not.
func (w *world) share(fair bool) {
	for _, x := range w.all {
		x.mixed = true
		if x.b.Share(nil); fair {
			x.b.Share(w.turns)
		}
	}
}

func (w *world) now() Now {
	return Now{At: w.at, Closed: w.us - 2*maxSkew.Microseconds(), Leased: !w.lost, Size: w.terms.Batch}
}

// pass lets time pass. What was drawn is committed in time, unless its transaction is slow.
func (w *world) pass(d time.Duration) {
	w.at, w.us = w.at.Add(d), w.us+d.Microseconds()
	for _, x := range w.all {
		for _, r := range slices.Clone(x.drawn) {
			most := Window
			if r.slow {
				most *= 2
			}
			if w.us >= store.TimeOf(r.id).Add(most).UnixMicro() {
				x.commitDrawn(r)
			}
		}
		if x.due != 0 && w.us >= x.due {
			x.due = 0
			x.b.IsDue()
		}
	}
}

// newRow draws the id of a job. Of a line, the one before was committed then.
func (w *tenure) newRow(r row) *row {
	for _, o := range slices.Clone(w.drawn) {
		if r.line != "" && o.line == r.line {
			w.commitDrawn(o)
		}
	}
	w.last = max(w.last+1, store.TickOf(w.us))
	if r.line != "" && w.late > w.followed { // as a producer marks it
		w.last |= store.Follower
		r.after = w.late
	}
	r.id, r.tenant = w.last, cmp.Or(r.tenant, r.line) // all of a line are one tenant's
	switch {
	case r.priority != 0:
	case r.line != "":
		r.priority = normal
	default:
		r.priority = 1 + int(w.last>>store.IdBits%Priorities)
	}
	return &r
}

// draw inserts a job that is committed later.
func (w *tenure) draw(r row) {
	w.pass(time.Millisecond)
	w.drawn = append(w.drawn, w.newRow(r))
}

// commit commits what was drawn, in time or not.
func (w *tenure) commit() {
	for _, r := range slices.Clone(w.drawn) {
		w.commitDrawn(r)
	}
	w.b.Reads.Rouse()
}

func (w *tenure) commitDrawn(r *row) {
	w.drawn = slices.DeleteFunc(w.drawn, func(o *row) bool { return o == r })
	if r.slow {
		w.late++
	}
	w.insert(r)
}

func (w *tenure) insert(r *row) {
	r.committed = w.us
	w.rows[r.id] = r
	if !r.slow && r.after > 0 && r.after == w.late {
		w.followed = w.late
	}
	if r.from == store.AmongReady {
		w.putReady(r)
	}
	if r.line != "" {
		w.order[r.line] = append(w.order[r.line], r.id)
	}
}

// putReady puts a row into the table of ready jobs.
func (w *tenure) putReady(r *row) {
	at, had := slices.BinarySearchFunc(w.ready, r, func(a, b *row) int {
		return cmp.Or(cmp.Compare(a.priority, b.priority), cmp.Compare(a.id, b.id))
	})
	if r.from, r.holds = store.AmongReady, false; !had {
		w.ready = slices.Insert(w.ready, at, r)
	}
}

// enqueue inserts a job, and announces it.
func (w *tenure) enqueue(r row, delay time.Duration) {
	w.pass(time.Millisecond)
	w.enqueueAtOnce(1, r, delay)
}

// enqueueAtOnce inserts jobs within one instant.
func (w *tenure) enqueueAtOnce(n int, r row, delay time.Duration) {
	for range n {
		one := w.newRow(r)
		if delay > 0 && r.line == "" {
			one.from, one.runAt = store.AmongDelayed, w.us+delay.Microseconds()
		}
		w.insert(one)
	}
	w.b.Reads.Rouse()
}

// job is a row as a reader makes it.
func (w *tenure) job(r *row, room *Allowance) *Job {
	j := &Job{ID: r.id, Priority: r.priority, Kind: r.kind, Line: r.line, Order: r.id, RunAt: r.runAt, From: r.from, Size: r.size, Tenant: r.tenant, Cost: r.cost}
	if r.from == store.AmongDelayed && !r.holds {
		j.Order = store.TickOf(r.runAt)
	}
	j.Unloaded = !room.Takes(r.size)
	return j
}

// plan begins a trip: it writes, and then reads what there is now.
func (w *tenure) plan(is fate) {
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
	if w.trips++; p.Pick != nil {
		w.picks++
	}
	w.trip, w.found, w.fate, w.written, w.were, w.denied = p, f, is, nil, nil, nil
	w.passed, w.consumed = nil, nil
	if w.stolen && (len(p.Gone) > 0 || slices.ContainsFunc(p.Moves, Move.Out)) {
		w.lose()
		return
	}
	if is == fails {
		return
	}
	for _, r := range p.Again {
		if r.Consumes {
			w.consume(r.Job)
			continue
		}
		w.write(Step{r.Job, r.Move}, false)
	}
	barred := map[string]bool{}
	for _, j := range p.Acks {
		w.write(Step{Job: j}, barred[j.Line])
		barred[j.Line] = j.Line != "" && (barred[j.Line] || w.deaf[j.ID])
	}
	for _, m := range p.Moves {
		j := m.Of()
		w.write(Step{j, m}, barred[j.Line])
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
	if w.terms.AtMostOnce {
		b.Sift(p, f)
		f.Fresh, f.Ripe = w.consumeAll(f.Fresh), w.consumeAll(f.Ripe)
	}
	if p.Look != nil {
		f.Sights = w.sights(p.Look)
	}
	if k := p.Pick; k != nil {
		for _, r := range w.sorted(store.AmongReady) {
			if len(f.Picked) < k.Limit && r.priority == k.Priority && r.id > k.After && r.id <= k.Upto && slices.Contains(k.Tenants, r.tenant) {
				f.Picked = append(f.Picked, w.job(r, &p.Room))
			}
		}
	}
	if p.Loads != nil {
		f.Loaded = map[int64]bool{}
		for _, j := range p.Loads {
			f.Loaded[j.ID] = w.has(j)
		}
	}
	if len(p.Waits) > 0 && !w.terms.AtMostOnce {
		f.There = map[int64]bool{}
		for _, j := range p.Waits {
			f.There[j.ID] = w.has(j)
		}
	}
}

// consumeAll removes the rows of jobs before they begin, of a line one after the other, and returns those that may begin.
func (w *tenure) consumeAll(jobs []*Job) []*Job {
	return slices.DeleteFunc(jobs, func(j *Job) bool {
		behind := slices.ContainsFunc(w.denied, func(s Step) bool { return j.Line != "" && s.Job.Line == j.Line })
		if behind || w.b.Bars(j.Line) || w.aside[j.ID] != nil {
			w.passed = append(w.passed, j)
			return true
		}
		return !w.consume(j)
	})
}

// consume removes the row of a job before it begins, and reports whether it may begin.
func (w *tenure) consume(j *Job) bool {
	if w.deaf[j.ID] {
		w.denied, w.passed = append(w.denied, Step{Job: j}), append(w.passed, j)
		return false
	}
	there := w.has(j)
	delete(w.rows, j.ID)
	w.consumed, w.were = append(w.consumed, j), append(w.were, there)
	return there
}

// sights are what a look finds: the first rows of each priority, by their tenants.
func (w *tenure) sights(l *Look) (all []Sight) {
	var rows [Priorities + 1]int
	at := map[tenancy]int{}
	for _, r := range w.sorted(store.AmongReady) {
		if r.id <= l.After[r.priority] || rows[r.priority] == l.Limit {
			continue
		}
		rows[r.priority]++
		of := tenancy{r.tenant, r.priority}
		if _, is := at[of]; !is {
			at[of], all = len(all), append(all, Sight{Tenant: r.tenant, Priority: r.priority, First: r.id})
		}
		s := &all[at[of]]
		s.Last = r.id
		s.Rows++
		if r.line != "" && r.id&store.Follower == store.Follower {
			s.FirstMark, s.LastMark = cmp.Or(s.FirstMark, r.id), r.id
		}
	}
	return all
}

// checkPlan checks what a trip is to do: something, nothing twice, and no more than the worker may.
func (w *tenure) checkPlan(p *Plan, crowded bool) {
	reads := p.Reads || p.Delayed || p.Look != nil || p.Pick != nil || len(p.Loads) > 0 || len(p.Waits) > 0
	again := map[int64]bool{}
	for _, r := range p.Again {
		again[r.Job.ID] = true
	}
	nothing := !reads && len(p.Acks)+len(p.Moves)+len(p.Gone)+len(p.Again)+len(p.Behind) == 0
	every := LookEvery
	if w.b.Fair() {
		every = 1     // nobody may be picked yet, for another reason
		if !nothing { // nor again, after this
			w.empty = 0
		}
	}
	switch {
	case w.lost && reads:
		w.t.Fatal("a trip reads, and the lease is in doubt")
	case crowded && p.Reads: // ids are forgotten that such a read would return
		w.t.Fatal("a trip reads a crowded block")
	case nothing && w.empty != 0 && w.at.Sub(w.empty) < every:
		w.t.Fatal("trips do nothing") // one a second does, of a block in which nothing waits that could be gone
	case len(again) < len(p.Again):
		w.t.Fatal("a trip tries a refused step twice")
	case nothing:
		w.empty = w.at
	}
}

// write writes one step to the database, unless it is refused, or waits behind such a step.
func (w *tenure) write(s Step, behind bool) {
	r := w.rows[s.Job.ID]
	if was := s.Move != nil && s.Move.Out() && r != nil && r.from == store.AmongRunning; !was && (behind || w.deaf[s.Job.ID]) {
		w.denied = append(w.denied, s)
		return
	}
	for _, r := range w.b.Refusals {
		if r.Job == s.Job {
			break
		}
		if r.Job.Line != "" && r.Job.Line == s.Job.Line {
			w.t.Fatalf("the outcome of %d is written before that of %d, which was refused", s.Job.ID, r.Job.ID)
		}
	}
	there := w.has(s.Job)
	w.written, w.were = append(w.written, s), append(w.were, there)
	to := store.AmongDelayed
	switch m := s.Move.(type) {
	case nil:
		delete(w.rows, s.Job.ID)
		return
	case *checkOut:
		to = store.AmongRunning
	case *retry:
		if there {
			r.runAt, r.holds = w.us+m.after.Microseconds(), s.Job.Line != ""
		}
	}
	switch {
	case there:
		r.from = to
	case r != nil && r.from == to: // an earlier trip has moved it, and was not heard of
		w.were[len(w.were)-1] = true
	}
}

// has reports whether the row of an attempt at a job is there.
func (w *tenure) has(j *Job) bool {
	r := w.rows[j.ID]
	return r != nil && r.from == j.From && (r.from != store.AmongDelayed || r.runAt == j.RunAt)
}

// sorted are the rows of a table in the order in which they are read.
func (w *tenure) sorted(from store.JobTable) (all []*row) {
	if from == store.AmongReady {
		w.ready = slices.DeleteFunc(w.ready, func(r *row) bool { return w.rows[r.id] == nil })
		for _, r := range w.ready {
			if r.from == from {
				all = append(all, r)
			}
		}
		return all
	}
	for _, r := range w.rows {
		if r.from == from {
			all = append(all, r)
		}
	}
	slices.SortFunc(all, func(a, b *row) int { return cmp.Or(cmp.Compare(a.runAt, b.runAt), cmp.Compare(a.id, b.id)) })
	return all
}

// apply ends a trip.
func (w *tenure) apply() {
	p, b := w.trip, w.b
	if p == nil {
		return
	}
	w.trip, b.Serving = nil, false
	b.Returned()
	if w.fate != succeeds { // another trip does it again
		b.TakeBack(p.Acks, p.Moves, p.Gone)
		b.PickAgain(p.Pick)
		b.Reads.Distrust()
		for _, j := range w.consumed { // and these are lost
			w.forgo(j)
		}
		return
	}
	for i, s := range w.written {
		w.wrote(s, w.were[i])
	}
	for _, s := range w.denied {
		w.setAside(s, w.deaf[s.Job.ID])
	}
	for _, j := range w.passed {
		b.PassOver(j)
	}
	for i, j := range w.consumed {
		if r := w.aside[j.ID]; r != nil {
			w.relieve(r)
			if w.were[i] {
				b.Add(j)
				b.Settle()
			} else {
				w.forgo(j)
			}
		}
	}
	for _, h := range p.Gone {
		b.Release(h.Line, h.ID)
	}
	b.ForgetDeleted()
	if !w.terms.AtMostOnce {
		b.Sift(p, w.found)
	}
	for _, j := range slices.Concat(w.found.Fresh, w.found.Ripe, w.found.Picked) {
		if w.away[j.ID] != nil { // it has come back
			w.learn(j.ID)
		}
	}
	back := b.skipped[w.gate]
	b.Take(p, w.found, w.at, time.Millisecond)
	for _, j := range slices.Concat(w.found.Fresh, w.found.Picked) {
		if back != 0 && j.ID > back && j.Line == "" && j.Kind == "limited" && b.Seen(j.ID) == j {
			w.t.Fatalf("%d is taken in, behind %d, which was put back", j.ID, back)
		}
	}
	w.putBack = w.putBack || w.stolen && b.HasPutBack("b")
}

func (w *tenure) setAside(s Step, tried bool) {
	if s.Job.Row == RowLeaving {
		if s.Job.Row = RowFree; s.Job.Running() { // it runs on where it is
			return
		}
	}
	r := w.aside[s.Job.ID]
	if r == nil {
		r = &Refusal{Job: s.Job}
		w.aside[s.Job.ID] = r
	}
	r.Move, r.Consumes = s.Move, w.terms.AtMostOnce
	if tried {
		r.Next = w.at.Add(500 * time.Millisecond)
		if first := w.order[s.Job.Line]; s.Job.Line != "" && !r.Consumes && !r.Out() && len(first) > 0 && w.next[s.Job.Line] == 0 {
			w.next[s.Job.Line] = first[0]
		}
	}
	w.b.SetAside(r)
	if !r.Consumes && !r.Out() {
		w.b.Unweigh(s.Job)
	}
}

func (w *tenure) relieve(r *Refusal) {
	delete(w.aside, r.Job.ID)
	delete(w.next, r.Job.Line)
	w.b.Relieve(r)
}

// forgo gives up a job that is lost, as may be where rows are removed before jobs begin.
func (w *tenure) forgo(j *Job) {
	w.order[j.Line] = slices.DeleteFunc(w.order[j.Line], func(id int64) bool { return id == j.ID })
}

// wrote records that the outcome of a job is committed, and whether its row was there.
func (w *tenure) wrote(s Step, there bool) {
	b, j := w.b, s.Job
	r := w.aside[j.ID]
	if r != nil {
		w.relieve(r)
	}
	if s.Move != nil && s.Move.Out() {
		w.checkedOut(j, there)
		return
	}
	j.Phase = PhaseWritten
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

// checkedOut records that a job has a row of its own, unless its row was gone.
func (w *tenure) checkedOut(j *Job, there bool) {
	b := w.b
	j.Row = RowFree
	b.Forget(j.ID)
	switch {
	case there && j.Phase == PhaseRead:
		j.From = store.AmongRunning
		b.Readmit(j)
	case there:
		b.Disengage(j)
		j.From, w.host.out[j.ID] = store.AmongRunning, true
	case j.Phase == PhaseRead: // it was cancelled
		b.Count--
		b.Unweigh(j)
		b.ReleaseIfHeld(j.Line, j.ID)
	}
}

// try puts jobs on trial, up to a number: those for which others wait first.
func (w *tenure) try(most int) {
	for rank := range Ranks {
		for ; most > 0; most-- {
			j := w.b.Try(rank)
			if j == nil {
				break
			}
			for _, o := range w.b.doubted {
				if RankOf(o.Line) < rank {
					w.t.Fatalf("%d is tried before %d, for which others wait", j.ID, o.ID)
				}
			}
			j.Tried, j.Row = true, RowLeaving
			w.b.Move(&checkOut{j})
		}
	}
}

// crash has the worker die, and another one begin with its block, which suspects some of the jobs.
func (w *tenure) crash(suspects int) {
	w.lose()
	w.mixed = false
	w.b.Suspect, w.b.SuspectAhead, w.b.Since = suspects, suspects, w.us
}

// clear ends that, once all that were suspected have been tried.
func (w *tenure) clear() {
	b := w.b
	tried := func(j *Job) bool { return j.Tried }
	if slices.ContainsFunc(slices.Collect(maps.Values(w.begun)), tried) || slices.ContainsFunc(slices.Collect(b.Unstarted()), tried) {
		return
	}
	if b.Doubted() == 0 && !b.Reads.Dirty && !b.Reads.Full && !b.Serving && !slices.ContainsFunc(b.Refusals, (*Refusal).Out) {
		b.Suspect, b.SuspectAhead = 0, 0
	}
}

// handle has the worker do jobs of the kind "strange", or leave them to others.
func (w *world) handle(strange bool) {
	w.host.unknown = map[string]*limit.Limiter{"strange": w.wall}
	if strange {
		w.host.unknown = nil
	}
	for _, x := range w.all {
		x.b.SortAnew(w.wall)
	}
}

// open opens the limit, or closes it.
func (w *world) open(opens bool) {
	w.host.opens[w.gate], w.host.opens[w.host.whole] = opens, true
	clear(w.host.lacks)
	for _, x := range w.all {
		if opens {
			x.b.ResumeOpen()
		}
	}
}

// head returns the block whose job begins next, if there is one.
func (w *world) head() (best *tenure) {
	var first Place
	for _, x := range w.all {
		if h, ok := x.b.Head(); ok && (best == nil || h.Before(first)) {
			best, first = x, h
		}
	}
	return best
}

// begin begins the next job, if there is one: those before it of its line are done.
func (w *tenure) begin() *Job {
	if w.lost {
		return nil
	}
	if !w.host.Opens(w.host.whole) {
		return nil
	}
	j := w.b.Pop()
	if j == nil {
		return nil
	}
	w.checkBegins(j)
	if w.b.Fair() { // another one may be needed now
		w.empty = 0
	}
	if j.Kind == "batched" && j.Line != "" {
		w.batches[j.ID] = w.b.Gather(j, 3, func() { w.batches[j.ID] = true })
	}
	return j
}

// checkBegins checks that a job may begin, alone or in one batch with others, and records it.
func (w *tenure) checkBegins(j *Job, mates ...*Job) {
	t, line := w.t, w.order[j.Line]
	mine := j.Line != "" && slices.Contains(line, j.ID) && (!w.putBack || j.Line != "b")
	var before []int64 // of its line
	for _, id := range line {
		if id == j.ID {
			break
		}
		if !w.again[id] && !slices.ContainsFunc(mates, func(o *Job) bool { return o.ID == id }) {
			before = append(before, id)
		}
	}
	switch {
	case w.begun[j.ID] != nil:
		t.Fatalf("%d begins twice at a time", j.ID)
	case w.done[j.ID] > 0:
		t.Fatalf("%d begins, and is done", j.ID)
	case j.Unloaded:
		t.Fatalf("%d begins without its payload", j.ID)
	case mine && len(before) > 0:
		t.Fatalf("%d of line %s begins, and it is the turn of %d", j.ID, j.Line, before[0])
	case mine && w.next[j.Line] != 0 && w.next[j.Line] != j.ID:
		t.Fatalf("%d of line %s begins, behind an end that is refused", j.ID, j.Line)
	case !w.host.opens[w.gate] && j.Kind == "limited":
		t.Fatalf("%d begins, and its limit is closed", j.ID)
	case j.Kind == "limited" && !w.host.Admits(w.gate, j.Cost) || !w.host.Admits(w.host.whole, j.Cost):
		t.Fatalf("%d begins, and costs too much", j.ID)
	case w.host.unknown[j.Kind] != nil:
		t.Fatalf("%d begins, and nobody here does its kind", j.ID)
	case w.b.Suspect > 0 && !w.mixed && !j.Tried && !j.Picked && j.From != store.AmongRunning && store.TimeOf(j.ID).UnixMicro() <= w.b.Since:
		t.Fatalf("%d begins without a trial", j.ID)
	}
	w.begun[j.ID] = j
	w.began = append(w.began, j)
}

// ripen begins the rest of a batch of a line.
func (w *tenure) ripen(id int64) {
	first := w.begun[id]
	if delete(w.batches, id); first == nil || w.lost || !w.b.StopGathering(first) {
		return
	}
	batch := []*Job{first}
	defer func() {
		for _, j := range batch {
			w.units[j.ID] = batch
		}
	}()
	for len(batch) < 3 && w.host.Opens(w.host.whole) {
		j := w.b.Join(first.Line, len(batch), first.Kind)
		if j == nil {
			return
		}
		if j.Kind != first.Kind || first.Tried || j.Tried {
			w.t.Fatalf("%d of kind %s begins in one batch with %d", j.ID, j.Kind, id)
		}
		w.checkBegins(j, batch...)
		batch = append(batch, j)
	}
}

// end ends a job that has begun, with the others of its batch, in their order: the handler of all has returned. If it fails,
// those behind it do, too.
func (w *tenure) end(id int64, fails bool) {
	first := w.begun[id]
	if first == nil { // it has ended with others
		return
	}
	unit := slices.DeleteFunc(slices.Clone(w.units[id]), func(j *Job) bool { return w.begun[j.ID] != j })
	if !slices.Contains(unit, first) {
		unit = []*Job{first}
	}
	if w.away[id] == nil && slices.ContainsFunc(unit, func(j *Job) bool { return j.Row == RowLeaving }) { // their outcomes wait for that
		return
	}
	for _, j := range unit {
		if w.begun[j.ID] == j {
			w.endOne(j.ID, fails && j.ID >= id)
		}
	}
}

func (w *tenure) endOne(id int64, fails bool) {
	j, b := w.begun[id], w.b
	if w.away[id] != nil {
		w.learn(id)
		return
	}
	if w.tx != nil && (w.tx.j == j || j.Line != "" && w.tx.j.Line == j.Line) { // the handler of both has returned
		w.endTx(true)
	}
	delete(w.begun, id)
	delete(w.host.out, id)
	delete(w.batches, id)
	b.Disengage(j)
	j.Phase = PhaseEnded
	if w.terms.AtMostOnce { // its row is gone
		w.done[id]++
		w.forgo(j)
		b.ForgetNow(id)
		b.Release(j.Line, id)
		return
	}
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
func (w *tenure) endElsewhere(id int64, fails bool) {
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
func (w *tenure) learn(id int64) {
	j, b := w.away[id], w.b
	if j.Row == RowLeaving { // not before that is written
		return
	}
	delete(w.begun, id)
	delete(w.away, id)
	delete(w.host.out, id)
	delete(w.batches, id)
	b.Disengage(j)
	j.Phase = PhaseWritten
	switch b.Seen(id) {
	case j:
		b.ForgetSoon(id)
	case nil:
	default:
		return // it has come back
	}
	if j.Line != "" {
		w.strays[id] = true
		b.Part(j.Line, id)
	}
}

// beginTx has a handler's transaction complete a job, with those before it of its line.
func (w *tenure) beginTx(id int64) {
	j := w.begun[id]
	if w.tx != nil || w.away[id] != nil || w.rows[id] == nil || j.Row == RowLeaving && !w.b.KeepIn(j) {
		return
	}
	j.Tx = TxPinned
	taken, sent, paused := w.b.Withhold(j)
	w.tx = &completion{j, taken, slices.Concat(taken, sent, []*Job{j}), paused}
	for _, r := range paused {
		w.tx.all = append(w.tx.all, r.Job)
	}
}

// endTx ends it. Nothing of the line is left then that would be done again after a crash.
func (w *tenure) endTx(commits bool) {
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
	if !commits {
		x.j.Tx = TxNone
	}
	w.b.HandBack(x.taken, x.paused, commits)
}

// steal has another worker take the block, and begin a job that waits here.
func (w *tenure) steal(id int64) {
	w.stolen, w.rows[id].from = true, store.AmongRunning
	w.putBack = w.b.HasPutBack("b")
}

// lose ends the block here, and takes it again: whatever others have begun they have handed back.
func (w *tenure) lose() {
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
	for id, j := range w.rows { // its retry was not written, and that of one behind it in its batch was
		if j.line != "" && !j.holds && (w.begun[id] != nil || w.retried[id] > 0) {
			for _, r := range w.rows {
				w.again[id] = w.again[id] || r.line == j.line && r.holds && r.id > id
			}
		}
	}
	for line := range w.order { // completed by transactions whose ends nobody has noted
		w.order[line] = slices.DeleteFunc(w.order[line], func(id int64) bool { return w.rows[id] == nil })
	}
	w.b.Gone = true
	w.b.Drop()
	if len(w.all) == 1 && w.terms.Held != 0 {
		w.t.Fatalf("%d bytes of a lost block are counted", w.terms.Held)
	}
	b := New(w.host, w.terms)
	b.Share(w.b.fair.turns)
	w.b, w.stolen, w.putBack, w.trip, w.empty = &b, false, false, nil, 0
	for id := range w.begun {
		delete(w.host.out, id)
	}
	clear(w.begun)
	clear(w.away)
	clear(w.batches)
	clear(w.units)
	w.tx = nil
	clear(w.aside)
	clear(w.next)
	for _, r := range w.rows {
		if r.from == store.AmongRunning {
			w.putReady(r)
		}
		if r.holds {
			b.Hold(r.line, r.id)
		}
	}
}

// look looks for jobs that nobody has announced, as polls, rounds and timers do.
func (w *tenure) look() {
	w.clear()
	if kind := w.b.FirstAt(w.wall); kind != "" && w.host.unknown[kind] == nil {
		w.t.Fatalf("a job of kind %s waits for another worker", kind)
	}
	if b := w.b; !b.Reads.Dirty && !b.Serving {
		after := b.Reads.Cursor()
		back, due := b.Reads.LookFrom(w.at, w.terms.Whole, w.now().Ago())
		if due = due && !b.HoldsSome() && b.Reads.Level(); due {
			after = back
		}
		some := slices.ContainsFunc(w.sorted(store.AmongReady), func(r *row) bool { return r.id > after[r.priority] })
		switch {
		case some:
			b.Reads.Rouse()
		case due:
			b.FoundEmpty(w.now(), w.terms.Whole, time.Millisecond, w.at)
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
func (w *tenure) lookForDue() {
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
func (w *tenure) dueAt(us int64) {
	if w.due == 0 || us < w.due {
		w.due = us
	}
}

// rest lets four seconds pass in which nothing begins or ends, and looks at what is left in memory.
func (w *tenure) rest() {
	if w.lost || w.stolen {
		return
	}
	t, b := w.t, w.b
	w.apply()
	reads := true // all the time
	trips, most := 0, 40+4*len(w.rows)/w.terms.Batch
	if w.terms.AtMostOnce { // it may pass over those behind one that cannot be removed one at a time
		most = 40 + 4*len(w.rows)
	}
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
	if !b.HasRoom() || w.terms.AtMostOnce {
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

// check checks what is always so.
func (w *tenure) check() {
	b, here, picked := w.b, map[tenancy]int{}, 0
	n := 0
	for _, j := range w.begun {
		if j.From != store.AmongRunning {
			n++
		}
	}
	if b.Active != n {
		w.t.Fatalf("%d run, and it counts %d", n, b.Active)
	}
	if was, is := b.Recount(); was != is {
		w.t.Fatalf("it counts %d jobs that may start, and has %d", was, is)
	}
	for j := range b.AllSeen() {
		if j.guest != nil {
			here[tenancy{j.Tenant, j.Priority}]++
			if j.Picked {
				picked++
			}
		}
	}
	for of, x := range b.fair.tenants {
		if x.here != here[of] {
			w.t.Fatalf("it counts %d jobs of %v that may start, and has %d", x.here, of, here[of])
		}
	}
	if b.fair.picked != picked {
		w.t.Fatalf("it counts %d jobs as picked, and has %d", b.fair.picked, picked)
	}
	for id, full := range w.batches {
		if j := w.begun[id]; !full && j != nil && w.away[id] == nil && b.keyQueues[j.Line].HeldBy(id) && b.WaitingOf(j.Line) >= 2 {
			w.t.Fatalf("the batch of %d is full, and goes on waiting", id)
		}
	}
	w.checkLines()
}

// checkLines checks that ends that were refused keep their order, and that a line is read for at once when it needs jobs that
// were put back.
func (w *tenure) checkLines() {
	b := w.b
	if len(b.Refusals) != len(w.aside) {
		w.t.Fatalf("%d steps are set aside, and it has %d", len(w.aside), len(b.Refusals))
	}
	for line, l := range b.keyQueues {
		var turns, refused []int64
		for j := range l.Waiting() {
			if j.Phase != PhaseRead {
				w.t.Fatalf("%d of line %s waits, and was removed, or has begun", j.ID, line)
			}
		}
		for _, r := range b.Refusals {
			if r.Job.Line == line && !r.Consumes {
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
func (w *tenure) isPutBack(r *row) bool {
	if l := w.b.keyQueues[r.line]; r.line != "" {
		return w.b.Bars(r.line) || l != nil && l.Skipped() != 0 && r.id >= l.Skipped()
	}
	if w.aside[r.id] != nil { // it could not be removed before it begins
		return true
	}
	first := w.b.skipped[w.b.barrier(r.kind)]
	return first != 0 && r.id >= first
}

// conclude goes on until all is done, and checks that nothing is left.
func (w *tenure) conclude() {
	t := w.t
	if w.stolen { // its lease ends here, at the latest
		w.lose()
	}
	clear(w.deaf)
	for i, left := 0, len(w.rows); len(w.rows) > 0 || len(w.begun) > 0 || w.trip != nil || w.tx != nil; i++ {
		if len(w.rows) != left {
			i, left = 0, len(w.rows)
		}
		if i > 400 { // twenty seconds
			for _, r := range w.rows {
				t.Logf("left: %+v", r)
			}
			t.Fatalf("%d rows are left, and %d jobs run; in a trip: %v; it wants one: %v; ready %v, lines %v, refusals %d",
				len(w.rows), len(w.begun), w.trip != nil, w.b.Wants(w.now()), w.b.HasReady(), w.b.Lines(), len(w.b.Refusals))
		}
		w.goOn(50 * time.Millisecond)
	}
	for range 200 { // until what was deleted is forgotten
		w.goOn(time.Second)
	}
	for range 2 { // until the block was read whole
		w.goOn(w.terms.Whole)
	}
	if len(w.b.followed) > 0 {
		t.Fatalf("it remembers %d jobs that follow late ones", len(w.b.followed))
	}
	if w.b.HoldsSome() || !w.b.Idle(false) || w.b.held != 0 {
		t.Fatalf("left: %+v, %d bytes", w.b, w.b.held)
	}
	for id, n := range w.done {
		if n != 1 {
			t.Fatalf("%d was done %d times", id, n)
		}
	}
	w.check()
}

// work makes a trip, and begins what may begin.
func (w *tenure) work() {
	w.pass(time.Millisecond)
	w.plan(succeeds)
	w.apply()
	w.try(1)
	w.begin()
}

// fill makes trips until no more is read: the block may be crowded then.
func (w *tenure) fill() {
	for range 300 {
		if w.pass(time.Millisecond); !w.b.Wants(w.now()) {
			return
		}
		w.plan(succeeds)
		w.apply()
	}
}

// goOn lets a time pass in which all goes well.
func (w *tenure) goOn(d time.Duration) {
	for id := range w.away {
		w.learn(id)
	}
	if w.tx != nil {
		w.endTx(true)
	}
	w.b.ResumeOpen()
	w.look()
	w.lookForDue()
	w.try(32)
	w.pass(d)
	w.plan(succeeds)
	w.apply()
	for id := range w.batches {
		w.ripen(id)
	}
	for {
		n := -1
		for n < len(w.begun) {
			n = len(w.begun)
			w.begin()
		}
		for _, id := range slices.Sorted(maps.Keys(w.begun)) {
			w.end(id, false)
		}
		if n == len(w.begun) { // all of them are being checked out
			return
		}
	}
}

// serve makes the trips that blocks want, some of each.
func (w *world) serve() {
	for _, x := range w.all {
		for range 20 {
			if !x.b.Wants(w.now()) {
				break
			}
			w.pass(time.Millisecond)
			x.plan(succeeds)
			x.apply()
		}
	}
}

// rush makes a trip for each block, and begins all that it brings. Each ends at once.
func (w *world) rush() {
	for _, x := range w.all {
		if x.b.Wants(w.now()) {
			x.plan(succeeds)
			x.apply()
		}
		for j := x.begin(); j != nil; j = x.begin() {
			x.end(j.ID, false)
		}
	}
}

// run begins so many jobs one after the other, or all. Each ends at once.
func (w *world) run(most int) {
	for n, idle := 0, 0; n < most; {
		w.serve()
		if x := w.head(); x != nil {
			if j := x.begin(); j != nil {
				x.end(j.ID, false)
				n++
			}
			idle = 0
			continue
		}
		left := 0
		for _, x := range w.all {
			x.look()
			left += len(x.rows) + len(x.drawn)
		}
		if left == 0 {
			return
		}
		if idle++; idle > 600 {
			w.t.Fatalf("%d jobs never begin", left)
		}
		w.pass(100 * time.Millisecond)
	}
}
