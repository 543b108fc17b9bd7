package block

import (
	"cmp"
	"maps"
	"slices"
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
	t    *rapid.T
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
	next    map[string]int64 // by line: the job that could begin already when an end was refused
	stolen  bool             // another worker has the block
	putBack bool             // and jobs of the stolen one's line were put back since: reads do not ask who has the block
}

// A row is a job in the database.
type row struct {
	id, runAt      int64
	line, kind     string
	priority, size int
	from           store.JobTable
	holds          bool // its line waits for it
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

func newWorld(t *rapid.T) *world {
	batch := rapid.IntRange(1, 4).Draw(t, "batch")
	h := &host{limits: map[string]*limit.Limiter{}, opens: map[*limit.Limiter]bool{}, out: map[int64]bool{}}
	terms := &Terms{Batch: batch, Whole: time.Hour, Room: Room{Size: rapid.SampledFrom([]int{100, 1 << 20}).Draw(t, "room"), Readers: 1}}
	b := New(h, terms)
	w := &world{
		t: t, b: &b, host: h, gate: &limit.Limiter{Kind: "limited"}, at: instant.Instant(time.Hour), us: modelNow,
		rows: map[int64]*row{}, order: map[string][]int64{}, begun: map[int64]*Job{}, done: map[int64]int{},
		deaf: map[int64]bool{}, aside: map[int64]*Refusal{}, retried: map[int64]int{}, next: map[string]int64{},
	}
	h.limits["limited"], h.opens[w.gate] = w.gate, true
	return w
}

func (w *world) now() Now {
	return Now{At: w.at, Closed: w.us - 2*maxSkew.Microseconds(), Leased: !w.lost, Size: w.b.terms.Batch}
}

// pass lets time pass. What was drawn is committed in time.
func (w *world) pass(d time.Duration) {
	w.at, w.us = w.at.Add(d), w.us+d.Microseconds()
	for len(w.drawn) > 0 && w.us >= store.TimeOf(w.drawn[0].id).Add(Window).UnixMicro() {
		w.commitDrawn()
	}
}

// draw inserts a job that is committed later.
func (w *world) draw() {
	w.us++
	w.last = max(w.last+1, store.TickOf(w.us))
	w.drawn = append(w.drawn, &row{id: w.last, priority: normal, kind: "free"})
}

func (w *world) commitDrawn() {
	w.rows[w.drawn[0].id] = w.drawn[0]
	w.drawn = w.drawn[1:]
}

func (w *world) enqueue(line, kind string, size int, delay time.Duration) {
	w.pass(time.Millisecond)
	w.last = max(w.last+1, store.TickOf(w.us))
	r := &row{id: w.last, line: line, kind: kind, size: size, priority: normal}
	if line == "" {
		r.priority = 1 + int(w.last%Priorities)
	}
	if delay > 0 && line == "" {
		r.from, r.runAt = store.AmongDelayed, w.us+delay.Microseconds()
	}
	w.rows[r.id] = r
	if line != "" {
		w.order[line] = append(w.order[line], r.id)
	}
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
	b, p, f := w.b, w.b.Plan(w.now()), &Found{}
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
	b.ForgetDeleted(p)
	b.Sift(p, w.found)
	b.Take(p, w.found, w.at, time.Millisecond)
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
	case j.Line != "" && len(first) > 0 && first[0] != j.ID && w.rows[j.ID] != nil && (!w.putBack || j.Line != "b"):
		t.Fatalf("%d of line %s begins, and it is the turn of %d", j.ID, j.Line, first[0])
	case j.Line != "" && w.next[j.Line] != 0 && w.next[j.Line] != j.ID && w.rows[j.ID] != nil:
		t.Fatalf("%d of line %s begins, behind an end that is refused", j.ID, j.Line)
	case !w.host.opens[w.gate] && j.Kind == "limited":
		t.Fatalf("%d begins, and its limit is closed", j.ID)
	}
	w.begun[j.ID] = j
}

// end ends a job that has begun.
func (w *world) end(id int64, fails bool) {
	j, b := w.begun[id], w.b
	delete(w.begun, id)
	j.Phase = PhaseEnded
	b.Active--
	if fails && w.retried[id] < 3 {
		w.retried[id]++
		b.Move(&retry{j, 10 * time.Millisecond})
		return
	}
	w.done[id]++
	w.order[j.Line] = slices.DeleteFunc(w.order[j.Line], func(o int64) bool { return o == id })
	b.Finish(j)
	b.Release(j.Line, id)
}

// endElsewhere has another process end a job that has begun here: a claim, say.
func (w *world) endElsewhere(id int64) {
	j, b := w.begun[id], w.b
	delete(w.begun, id)
	delete(w.rows, id)
	delete(w.deaf, id)
	j.Phase = PhaseWritten
	b.Active--
	w.done[id]++
	w.order[j.Line] = slices.DeleteFunc(w.order[j.Line], func(o int64) bool { return o == id })
	b.ForgetSoon(id)
	if j.Line != "" {
		b.Part(j.Line, id)
	}
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
			if r.line != "" && !slices.Contains(w.order[r.line], id) {
				w.order[r.line] = append(w.order[r.line], id)
				slices.Sort(w.order[r.line])
			}
		}
	}
	w.b.Gone = true
	w.b.Drop()
	if w.b.terms.Held != 0 {
		w.t.Fatalf("%d bytes of a lost block are counted", w.b.terms.Held)
	}
	b := New(w.host, w.b.terms)
	w.b, w.stolen, w.putBack, w.trip = &b, false, false, nil
	clear(w.begun)
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
	for _, r := range w.rows {
		if r.from == store.AmongDelayed && r.runAt <= w.us {
			w.b.Dues.Saw(r.runAt)
			w.b.IsDue()
		}
	}
	// What waits for a job that is nowhere goes on: see letGo in package queue.
	for _, line := range w.b.Lines() {
		if t, held := w.b.Holder(line); held && t.Away && w.rows[t.ID] == nil {
			w.b.ReleaseIfHeld(line, t.ID)
		}
	}
}

// Whatever happens: the jobs of a line begin in their order, one at a time; each job that stays in the database is done, and done once;
// and at the end nothing is owed, held or remembered.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
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
			"draw": func(*rapid.T) { w.draw() },
			"commit": func(*rapid.T) {
				if len(w.drawn) > 0 {
					w.commitDrawn()
				}
			},
			"elsewhere": func(t *rapid.T) {
				if id, ok := one(t, w.begun); ok {
					w.endElsewhere(id)
				}
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
					w.pass(time.Millisecond)
					w.plan(succeeds)
					w.apply()
					w.begin()
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
			"fill": func(*rapid.T) { // trips until no more is read: the block may be crowded then
				for range 300 {
					if w.pass(time.Millisecond); !w.b.Wants(w.now()) {
						return
					}
					w.plan(succeeds)
					w.apply()
				}
			},
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
				if r := w.rows[id]; w.begun[id] == nil && w.done[id] == 0 && w.trip == nil && r.from == store.AmongReady {
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
			"look":  func(*rapid.T) { w.look() },
		})
		w.lost, w.host.opens[w.gate] = false, true
		w.pass(Window)
		if w.stolen { // its lease ends here, at the latest
			w.lose()
		}
		clear(w.deaf)
		for i, left := 0, len(w.rows); len(w.rows) > 0 || len(w.begun) > 0 || w.trip != nil; i++ {
			if len(w.rows) != left {
				i, left = 0, len(w.rows)
			}
			if i > 200 { // ten seconds
				t.Fatalf("%d rows are left, the first %+v; it wants a trip: %v; ready %v, lines %v, refusals %d",
					len(w.rows), w.sorted(w.some())[0], w.b.Wants(w.now()), w.b.HasReady(), w.b.Lines(), len(w.b.Refusals))
			}
			w.goOn(50 * time.Millisecond)
		}
		for range 200 { // until what was deleted is forgotten
			w.goOn(time.Second)
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

// goOn lets a time pass in which all goes well.
func (w *world) goOn(d time.Duration) {
	w.b.ResumeOpen()
	w.look()
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
