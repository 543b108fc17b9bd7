package block

import (
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/dbcron/dbcron/queue/internal/limit"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// drawRow draws a job.
func drawRow(t *rapid.T) row {
	r := row{size: 1, line: rapid.SampledFrom([]string{"", "a", "a", "b"}).Draw(t, "line")}
	r.kind = rapid.SampledFrom([]string{"free", "free", "limited", "batched", "strange"}).Draw(t, "kind")
	r.cost = rapid.SampledFrom([]int{0, 0, 1, 2, 3}).Draw(t, "cost")
	if r.line == "" {
		r.tenant = rapid.SampledFrom([]string{"", "", "", "a", "c"}).Draw(t, "tenant")
	}
	return r
}

// Whatever happens: the jobs of a line begin in their order, one at a time; each job that stays in the database is done, and done once;
// and at the end nothing is owed, held or remembered.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		world := drawWorld(t, rapid.SampledFrom([]int{1, 1, 1, 2}).Draw(t, "blocks"))
		if rapid.IntRange(0, 5).Draw(t, "consumes") == 5 {
			world.consumeFirst()
		}
		world.share(rapid.IntRange(0, 2).Draw(t, "fair") == 2)
		in := func(do func(*rapid.T, *tenure)) func(*rapid.T) {
			return func(t *rapid.T) {
				w := world.all[0]
				if len(world.all) > 1 {
					w = rapid.SampledFrom(world.all).Draw(t, "block")
				}
				do(t, w)
			}
		}
		one := func(t *rapid.T, set map[int64]*Job) (int64, bool) {
			if len(set) == 0 {
				return 0, false
			}
			return rapid.SampledFrom(slices.Sorted(maps.Keys(set))).Draw(t, "job"), true
		}
		t.Repeat(map[string]func(*rapid.T){
			"": func(*rapid.T) {
				for _, w := range world.all {
					w.check()
				}
			},
			"enqueue": in(func(t *rapid.T, w *tenure) {
				for range rapid.IntRange(1, 10).Draw(t, "n") {
					r := drawRow(t)
					r.size = rapid.IntRange(0, 60).Draw(t, "size")
					w.enqueue(r, drawn(t, "delay", time.Second))
				}
			}),
			"flood": in(func(t *rapid.T, w *tenure) {
				if len(w.rows) > 500 {
					return
				}
				r := drawRow(t)
				for range rapid.IntRange(10, 120*w.terms.Batch).Draw(t, "n") {
					w.enqueue(r, 0)
				}
			}),
			"draw": in(func(t *rapid.T, w *tenure) {
				r := drawRow(t)
				r.slow = rapid.IntRange(0, 3).Draw(t, "slow") == 0
				w.draw(r)
			}),
			"late": in(func(t *rapid.T, w *tenure) { // below the cursor
				r := drawRow(t)
				r.kind, r.slow = "free", rapid.IntRange(0, 3).Draw(t, "slow") == 0
				w.draw(r)
				for range Priorities {
					w.enqueue(row{kind: "free", size: 1}, 0)
				}
				w.fill()
				if rapid.Bool().Draw(t, "rest") {
					w.rest()
				}
			}),
			"commit": in(func(_ *rapid.T, w *tenure) {
				if len(w.drawn) > 0 && !w.drawn[0].slow {
					w.commitDrawn(w.drawn[0])
				}
			}),
			"elsewhere": in(func(t *rapid.T, w *tenure) {
				if id, ok := one(t, w.begun); ok {
					w.endElsewhere(id, rapid.Bool().Draw(t, "fails"))
				}
			}),
			"learn": in(func(t *rapid.T, w *tenure) {
				if id, ok := one(t, w.away); ok {
					w.learn(id)
				}
			}),
			"complete": in(func(t *rapid.T, w *tenure) {
				if id, ok := one(t, w.begun); ok && !w.terms.AtMostOnce {
					w.beginTx(id)
				}
			}),
			"completed": in(func(t *rapid.T, w *tenure) {
				if w.tx != nil {
					w.endTx(rapid.IntRange(0, 2).Draw(t, "commits") > 0)
				}
			}),
			"out": in(func(t *rapid.T, w *tenure) { // it runs for long
				if id, ok := one(t, w.begun); ok {
					if j := w.begun[id]; j.InPlace() && !w.b.Bars(j.Line) && !w.terms.AtMostOnce && rapid.Bool().Draw(t, "row") {
						w.deaf[id] = w.deaf[id] || rapid.IntRange(0, 3).Draw(t, "refused") == 3
						j.Row = RowLeaving
						w.b.Move(&checkOut{j})
						return
					}
					w.host.out[id] = true
				}
			}),
			"ripe": in(func(t *rapid.T, w *tenure) {
				for _, id := range slices.Sorted(maps.Keys(w.batches)) {
					w.ripen(id)
				}
			}),
			"crash": in(func(t *rapid.T, w *tenure) {
				if !w.terms.AtMostOnce && rapid.IntRange(0, 2).Draw(t, "crash") == 2 {
					w.crash(rapid.IntRange(1, 6).Draw(t, "suspects"))
				}
			}),
			"try": in(func(t *rapid.T, w *tenure) {
				for _, j := range w.b.doubted {
					w.deaf[j.ID] = w.deaf[j.ID] || rapid.IntRange(0, 5).Draw(t, "refused") == 5
				}
				w.try(rapid.IntRange(1, 4).Draw(t, "n"))
			}),
			"handle": func(t *rapid.T) { world.handle(rapid.Bool().Draw(t, "strange")) },
			"refuse": in(func(t *rapid.T, w *tenure) { // to be removed before it begins
				if w.terms.AtMostOnce && len(w.rows) > 0 {
					w.deaf[rapid.SampledFrom(slices.Sorted(maps.Keys(w.rows))).Draw(t, "row")] = true
				}
			}),
			"rest": in(func(_ *rapid.T, w *tenure) { w.rest() }),
			"crowd": in(func(t *rapid.T, w *tenure) {
				if len(w.rows) > 300 {
					return
				}
				switch n := w.terms.Batch; rapid.IntRange(0, 2).Draw(t, "with") {
				case 0: // a line stands still
					w.work()
					for id, j := range w.begun {
						w.host.out[id] = w.host.out[id] || j.Line == "a"
					}
					for range rapid.IntRange(60, 120).Draw(t, "n") * n {
						w.enqueue(row{line: "a", kind: "free", size: 1}, 0)
					}
				case 1: // jobs wait for a limit
					w.host.opens[w.gate] = false
					for range rapid.IntRange(20, 50).Draw(t, "n") * n {
						w.enqueue(row{kind: "limited", size: 1}, 0)
					}
				case 2: // lines do
					w.host.opens[w.gate] = false
					for i := range rapid.IntRange(20, 30).Draw(t, "n") * n {
						w.enqueue(row{line: "a" + strconv.Itoa(i), kind: "limited", size: 1}, 0)
						w.enqueue(row{line: "a" + strconv.Itoa(i), kind: "free", size: 1}, 0)
					}
				}
				w.fill()
			}),
			"steal": in(func(t *rapid.T, w *tenure) {
				for line, first := range w.order {
					if line == "b" && !w.terms.AtMostOnce && len(first) > 1 && w.begun[first[0]] == nil && w.b.Seen(first[0]) != nil && w.rows[first[0]].from == store.AmongReady && w.trip == nil {
						w.steal(first[0])
						return
					}
				}
			}),
			"plan": in(func(t *rapid.T, w *tenure) {
				w.plan(rapid.SampledFrom([]fate{succeeds, succeeds, fails, unheard}).Draw(t, "fate"))
			}),
			"apply": in(func(_ *rapid.T, w *tenure) { w.apply() }),
			"begin": in(func(t *rapid.T, w *tenure) {
				for range rapid.IntRange(1, 3).Draw(t, "n") {
					if x := world.head(); x != nil {
						w = x
					}
					w.begin()
				}
			}),
			"trip": in(func(_ *rapid.T, w *tenure) {
				w.plan(succeeds)
				w.apply()
			}),
			"work": in(func(t *rapid.T, w *tenure) {
				for range rapid.IntRange(1, 4).Draw(t, "n") {
					w.work()
					if id, ok := one(t, w.begun); ok {
						w.deaf[id] = rapid.IntRange(0, 5).Draw(t, "refused") == 0
						w.end(id, rapid.IntRange(0, 5).Draw(t, "fails") == 0)
					}
				}
			}),
			"end": in(func(t *rapid.T, w *tenure) {
				if id, ok := one(t, w.begun); ok {
					w.deaf[id] = w.deaf[id] || rapid.IntRange(0, 3).Draw(t, "refused") == 0
					w.end(id, rapid.IntRange(0, 3).Draw(t, "fails") == 0)
				}
			}),
			"fill": in(func(_ *rapid.T, w *tenure) { w.fill() }),
			"accept": in(func(t *rapid.T, w *tenure) {
				if rapid.IntRange(0, 2).Draw(t, "accept") == 0 {
					clear(w.deaf)
				}
			}),
			"cancel": in(func(t *rapid.T, w *tenure) {
				if len(w.rows) == 0 {
					return
				}
				id := rapid.SampledFrom(slices.Sorted(maps.Keys(w.rows))).Draw(t, "row")
				if r := w.rows[id]; w.begun[id] == nil && w.done[id] == 0 && w.trip == nil && r.from != store.AmongRunning && w.tx == nil {
					w.strays[id] = w.strays[id] || r.from == store.AmongDelayed
					delete(w.rows, id)
					w.order[r.line] = slices.DeleteFunc(w.order[r.line], func(o int64) bool { return o == id })
				}
			}),
			"limit": in(func(t *rapid.T, w *tenure) {
				w.open(rapid.Bool().Draw(t, "open"))
			}),
			"cost": in(func(t *rapid.T, w *tenure) {
				which := rapid.SampledFrom([]*limit.Limiter{w.gate, w.host.whole}).Draw(t, "limit")
				w.host.lacks[which] = rapid.SampledFrom([]int{0, 2, 3}).Draw(t, "lacks")
			}),
			"lease": func(t *rapid.T) { world.lost = rapid.Bool().Draw(t, "lost") },
			"share": func(t *rapid.T) {
				if rapid.IntRange(0, 3).Draw(t, "share") == 0 {
					world.share(!world.all[0].b.Fair())
				}
			},
			"pass": func(t *rapid.T) { world.pass(drawn(t, "time", 3*time.Second)) },
			"look": in(func(_ *rapid.T, w *tenure) {
				w.look()
				w.lookForDue()
			}),
		})
		world.lost = false
		for _, w := range world.all {
			w.rest()
		}
		world.open(true)
		world.handle(true)
		for range 3 {
			world.pass(Window) // until all is committed
		}
		for _, w := range world.all {
			w.conclude()
		}
		if world.terms.Held != 0 {
			t.Fatalf("%d bytes are counted", world.terms.Held)
		}
	})
}

// A key whose jobs were put back for a limit goes on, although the first of them was cancelled meanwhile and the block is
// read again in parts.
func TestCancelledWhilePutBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t, 1).all[0]
		w.host.opens[w.gate] = false
		for _, kind := range []string{"limited", "free"} {
			for i := range 40 * w.terms.Batch {
				w.enqueue(row{line: "a" + strconv.Itoa(i), kind: kind, size: 1}, 0)
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
		w := drawWorld(t, 1).all[0]
		w.terms.Batch = 1
		var lines []string
		for i := range 12 {
			lines = append(lines, "a"+strconv.Itoa(i))
		}
		for _, line := range lines {
			w.enqueue(row{line: line, kind: "free", size: 1}, 0)
		}
		for range 2 * len(lines) {
			w.work()
		}
		for id := range w.begun {
			w.host.out[id] = true
		}
		for range 15 {
			for _, line := range lines {
				w.enqueue(row{line: line, kind: "free", size: 1}, 0)
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
	w := newTenure(t, 1, 100)
	for range 101 {
		w.enqueue(row{line: "a", kind: "free", size: 1}, 0)
	}
	w.fill()
	w.draw(row{line: "b", kind: "free", size: 1, slow: true}) // once it is read, it keeps the retry from being read, and the rest of the key is put back
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
	w := newTenure(t, 4, 1<<20)
	for range 500 {
		w.enqueue(row{line: "a", kind: "free", size: 1}, 0)
	}
	w.work()
	for id := range w.begun {
		w.host.out[id] = true // it runs for long
	}
	for range 5000 {
		w.enqueue(row{kind: "free", size: 1, priority: normal}, 0)
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

// What a worker that removes rows before jobs begin has to leave in its table does not keep it from reading what is behind that, nor
// does it read it again and again.
func TestReadsOnBehindWhatItLeaves(t *testing.T) {
	for name, delay := range map[string]time.Duration{"ready": 0, "due": time.Millisecond} {
		w := newTenure(t, 1, 100)
		w.consumeFirst()
		w.b.Keyed = true // each read returns what is left above the horizon
		for range 4 {
			w.enqueue(row{kind: "free", size: 1, priority: normal}, delay)
			w.deaf[w.last] = true
		}
		w.enqueue(row{kind: "free", size: 1, priority: normal}, delay)
		w.pass(5 * time.Millisecond)
		w.b.IsDue()
		w.fill()
		if w.trips > 20 {
			t.Errorf("%s: there are %d trips", name, w.trips)
		}
		if j := w.b.Pop(); j == nil || j.ID != w.last {
			t.Errorf("%s: what is behind those is not read", name)
		}
	}
}

// A worker that removes rows before jobs begin keeps the order of keys as any other: of the first ones of a queue, and behind a job that was
// committed late.
func TestConsumesInOrder(t *testing.T) {
	for name, late := range map[string]bool{"the first keys": false, "behind a late one": true} {
		w := newTenure(t, 8, 1000)
		w.consumeFirst()
		all := func() {
			w.pass(time.Millisecond)
			w.serve()
			for j := w.begin(); j != nil; j = w.begin() {
				w.end(j.ID, false)
			}
		}
		if w.enqueueAtOnce(1, row{priority: normal}, 0); late {
			w.enqueueAtOnce(1, row{line: "other"}, 0)
		}
		all()
		w.draw(row{line: "k", slow: late})
		first := w.drawn[0].id
		w.enqueueAtOnce(1, row{priority: normal}, 0)
		all()
		for range 35 {
			if late {
				w.pass(100 * time.Millisecond)
				w.enqueueAtOnce(1, row{priority: normal}, 0)
				all()
			}
		}
		w.enqueueAtOnce(1, row{line: "k"}, 0) // the first one is committed just before
		if all(); w.done[first] == 0 || w.done[w.last] == 0 {
			t.Errorf("%s: they do not begin", name)
		}
	}
}

// A job begins alone, and not with others of its key, if it may have crashed a worker, if others of its block may have, and if it no
// longer holds its key; and in a block that goes.
func TestBeginsAlone(t *testing.T) {
	for name, alone := range map[string]func(*Block, *Job){
		"it is on trial":           func(_ *Block, j *Job) { j.Tried = true },
		"others are suspected":     func(b *Block, _ *Job) { b.Suspect = 1 },
		"others wait for trials":   func(b *Block, _ *Job) { b.doubt(ready(9, "")) },
		"an end before is refused": func(b *Block, _ *Job) { b.SetAside(&Refusal{Job: ready(1, "k")}) },
		"its block leaves":         func(b *Block, _ *Job) { b.Leaving = true },
		"its block is lost":        func(b *Block, _ *Job) { b.Gone = true },
		"":                         func(*Block, *Job) {},
	} {
		b := newBlock(10)
		b.Add(ready(2, "k"))
		b.Add(ready(3, "k"))
		b.Settle()
		j := b.Pop()
		b.Gather(j, 3, func() {})
		alone(b, j)
		if b.StopGathering(j) != (name == "") {
			t.Errorf("others begin with it: %v, although %s", name != "", name)
		}
	}
}

// Due jobs that were left in their table, since others do their kind, are read again once that changes.
func TestLeftIsReadAgain(t *testing.T) {
	b := newBlock(1)
	b.Left, b.Dues.Ripe, b.Dues.horizon = true, false, Due{1, 1}
	if b.SortAnew(); b.Left || !b.Dues.Ripe || b.Dues.Horizon() != 0 {
		t.Errorf("they are not: %+v", b.Dues)
	}
}

// The first job of a batch of a key waits until as many others of its kind wait as fill it, or one of another kind; and for nothing if
// nothing can come.
func TestGather(t *testing.T) {
	for _, x := range []struct {
		most  int
		line  string
		kinds []string // of those behind it
		full  int      // after so many of them; 0: at once, -1: never
	}{
		{1, "k", nil, 0}, {3, "", nil, 0}, {3, "k", []string{"a"}, -1}, {3, "k", []string{"a", "a"}, 2}, {3, "k", []string{"b"}, 1},
	} {
		b, got := newBlock(10), -1
		job := func(id int64, kind string) *Job {
			return &Job{ID: id, Priority: normal, Line: x.line, Order: id, Kind: kind}
		}
		b.Add(job(1, "a"))
		b.Settle()
		come := 0
		if b.Gather(b.Pop(), x.most, func() { got = come }) {
			got = 0
		}
		for _, kind := range x.kinds {
			come++
			b.Add(job(int64(1+come), kind))
		}
		if got != x.full {
			t.Errorf("%+v: it is full after %d", x, got)
		}
	}
}

// A batch gathers on while the end of the job before it is refused, and after that.
func TestGathersBehindARefusedEnd(t *testing.T) {
	b := newBlock(1)
	add := func(id int64) {
		b.Add(ready(id, "k"))
		b.Settle()
	}
	add(1)
	first := b.Pop()
	first.Phase = PhaseEnded
	b.Finish(first)
	b.Release(first.Line, first.ID)
	add(2)
	full := false
	b.Gather(b.Pop(), 3, func() { full = true })
	r := &Refusal{Job: first}
	b.SetAside(r)
	b.Relieve(r)
	b.Deleted(first, true, true)
	add(3)
	add(4)
	if !full {
		t.Error("it goes on waiting, although it is full")
	}
}

// A block that is found empty when it is due to be read whole forgets which jobs have had it read whole.
func TestFoundEmptyForgets(t *testing.T) {
	b := newBlock(1)
	b.Reads.Whole, b.followed = 1, map[int64]bool{1: true}
	if b.FoundEmpty(now(2, modelNow), 1, 0, 2); len(b.followed) > 0 {
		t.Error("it remembers a job")
	}
}

// What was put back at a limit is read again once the limit opens.
func TestPutBackAtALimitIsReadAgain(t *testing.T) {
	w := newTenure(t, 1, 1<<20)
	w.open(false)
	for range 60 {
		w.enqueue(row{kind: "limited", size: 1, priority: normal}, 0)
	}
	for range 100 { // until no look goes back so far
		w.work()
		w.pass(time.Second)
	}
	if w.b.skipped[w.gate] == 0 {
		t.Fatal("nothing was put back")
	}
	w.open(true)
	for range 400 { // twenty seconds
		w.goOn(50 * time.Millisecond)
	}
	if len(w.rows) > 0 {
		t.Fatalf("%d jobs are left", len(w.rows))
	}
}

// A job that is committed in time, and after others with later ids were read, is read within LookEvery, although nobody announces it.
func TestReadsGoBack(t *testing.T) {
	w := newTenure(t, 10, 1<<20)
	r := row{kind: "free", size: 1, priority: normal}
	w.draw(r)
	w.enqueue(r, 0)
	w.fill()
	late := w.drawn[0]
	w.commitDrawn(late)
	w.pass(LookEvery)
	w.fill()
	if w.b.Seen(late.id) == nil {
		t.Error("it is not read")
	}
}

// A retry that is read before the attempt before it is forgotten is read again.
func TestRetryIsReadAgain(t *testing.T) {
	b := newBlock(1)
	b.Add(ready(1, ""))
	b.Pop()
	b.Dues.horizon = Due{100, 0}
	again := &Job{ID: 1, Priority: normal, From: store.AmongDelayed, RunAt: 50}
	b.Take(&Plan{Delayed: true, Due: DueRead{Limit: 2}}, &Found{Ripe: []*Job{again}, Rows: 1, Last: again.Due()}, 1, 0)
	if !b.Dues.late || !b.Dues.horizon.Before(again.Due()) {
		t.Errorf("it is not: %+v", b.Dues)
	}
}
