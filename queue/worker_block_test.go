package queue

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/queue/internal/board"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// newBlock returns a block as a worker would have it that has just taken it.
func newBlock(batch int) *block {
	w := &Worker{core: core{c: &Client{}, opt: WorkerOptions{Batch: batch, ReadAhead: defaultReadAhead}}, whole: wholeEvery}
	w.remnants = map[*block]bool{}
	w.lease.deadline = instant.Now().Add(time.Hour)
	q := &workQueue{w: w, set: &store.Queue{Settings: store.Settings{State: "active"}}}
	return &block{q: q, seen: map[int64]*Delivery{}, keyQueues: map[string]*keyQueue{}, reads: board.Reads{Dirty: true}, dues: board.Dues{Ripe: true}}
}

func ready(id int64, key string) *Delivery {
	return &Delivery{Job: Job{Key: key, Priority: Normal}, ID: id, order: id}
}

// The most urgent jobs go first, and those of one priority in their order.
func TestPop(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := newBlock(100)
		var all []*Delivery
		for i, p := range rapid.SliceOfN(rapid.IntRange(Urgent, Idle), 0, 30).Draw(t, "priorities") {
			d := ready(int64(i+1), "")
			d.Priority = p
			all = append(all, d)
			if !b.add(d) || b.add(d) {
				t.Fatalf("%d was not taken in once", d.ID)
			}
		}
		slices.SortStableFunc(all, func(a, b *Delivery) int { return cmp.Compare(a.Priority, b.Priority) })
		for i, want := range all {
			if b.count != len(all)-i || !b.hasReady() {
				t.Fatalf("%d are left, and it says %d", len(all)-i, b.count)
			}
			if d := b.pop(); d != want {
				t.Fatalf("popped %d, not %d", d.ID, want.ID)
			}
		}
		if b.pop() != nil || b.hasReady() || b.count != 0 || b.active != len(all) || b.idle() != (len(all) == 0) {
			t.Fatalf("count %d, active %d", b.count, b.active)
		}
	})
}

// A linesModel is how a block should treat keys: jobs come in any order, one of a key at a time
// is under way, and the others follow in order, whatever holds them.
type linesModel struct {
	b       *block
	next    int64
	waiting map[string][]int64  // read and not popped, by key
	under   map[string]int64    // popped, by key
	foreign map[string]int64    // held by a job that is not here
	away    map[string][]int64  // and then by these
	running map[int64]*Delivery // popped
}

// ended records that the turn of a key's job is over.
func (m *linesModel) ended(key string, id int64) {
	delete(m.foreign, key)
	if next := m.away[key]; len(next) > 0 {
		m.foreign[key], m.away[key] = next[0], next[1:]
	}
	m.b.release(key, id)
	m.b.release(key, id) // once more does nothing
}

func (m *linesModel) check(t *rapid.T) {
	for key, l := range m.b.keyQueues {
		p, held := l.Holder()
		if !held {
			t.Fatalf("key %s: %d wait for nobody", key, l.Len())
		}
		if id, ok := m.foreign[key]; ok != p.Away || ok && p.ID != id {
			t.Fatalf("key %s is held by %+v, and should be by %d", key, p, id)
		}
	}
	for key, ids := range m.waiting {
		if len(ids) > 0 && m.b.keyQueues[key] == nil {
			t.Fatalf("key %s has no line", key)
		}
	}
}

// Of a key one job is under way at a time, and they go in their order; none stays
// behind when nothing is under way any more.
func TestLines(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		keys := []string{"a", "b"}
		m := &linesModel{
			b: newBlock(100), waiting: map[string][]int64{}, under: map[string]int64{},
			foreign: map[string]int64{}, away: map[string][]int64{}, running: map[int64]*Delivery{},
		}
		last := map[string]int64{}
		popped := func(d *Delivery) {
			if id := m.under[d.Key]; id != 0 {
				t.Fatalf("key %s: %d goes while %d does", d.Key, d.ID, id)
			}
			if _, held := m.foreign[d.Key]; held {
				t.Fatalf("key %s: %d goes, and the key is held", d.Key, d.ID)
			}
			if d.ID < last[d.Key] {
				t.Fatalf("key %s: %d goes after %d", d.Key, d.ID, last[d.Key])
			}
			last[d.Key], m.under[d.Key], m.running[d.ID] = d.ID, d.ID, d
			m.waiting[d.Key] = slices.DeleteFunc(m.waiting[d.Key], func(id int64) bool { return id == d.ID })
		}
		t.Repeat(map[string]func(*rapid.T){
			"": m.check,
			"read": func(t *rapid.T) { // a batch, whose jobs come in any order
				var batch []*Delivery
				for range rapid.IntRange(1, 5).Draw(t, "n") {
					m.next++
					batch = append(batch, ready(m.next, rapid.SampledFrom(keys).Draw(t, "key")))
				}
				for _, d := range rapid.Permutation(batch).Draw(t, "order") {
					m.b.add(d)
					m.waiting[d.Key] = append(m.waiting[d.Key], d.ID)
				}
				m.b.settle()
			},
			"start": func(*rapid.T) {
				if d := m.b.pop(); d != nil {
					popped(d)
				}
			},
			"end": func(t *rapid.T) {
				if len(m.running) == 0 {
					return
				}
				id := rapid.SampledFrom(slices.Sorted(maps.Keys(m.running))).Draw(t, "id")
				key := m.running[id].Key
				delete(m.running, id)
				delete(m.under, key)
				m.ended(key, id)
			},
			"hold": func(t *rapid.T) { // as when a block is taken
				key := rapid.SampledFrom(keys).Draw(t, "key")
				m.next++
				if m.b.keyQueues[key] == nil {
					m.foreign[key] = m.next
				} else {
					m.away[key] = append(m.away[key], m.next)
				}
				if its := m.foreign[key] == m.next; m.b.takesTurn(key, m.next) != its {
					t.Fatalf("key %s: it is the turn of %d: %v", key, m.next, !its)
				}
				m.b.hold(key, m.next) // once more does nothing
			},
			"let go": func(t *rapid.T) {
				key := rapid.SampledFrom(keys).Draw(t, "key")
				m.b.release(key, 1<<40) // another job's end: not that key's business
				if id, ok := m.foreign[key]; ok {
					m.ended(key, id)
				}
			},
			"the retry comes": func(t *rapid.T) {
				key := rapid.SampledFrom(keys).Draw(t, "key")
				id, ok := m.foreign[key]
				if !ok {
					return
				}
				delete(m.foreign, key)
				before := last[key]
				last[key] = 0 // it has its turn, whatever its id
				m.b.add(ready(id, key))
				for d := m.b.pop(); d != nil; d = m.b.pop() {
					popped(d)
				}
				last[key] = before
				if m.under[key] != id {
					t.Fatalf("key %s: the retry %d does not go", key, id)
				}
			},
		})
		// All end: all get their turn.
		for _, key := range keys {
			for m.foreign[key] != 0 {
				m.ended(key, m.foreign[key])
			}
		}
		for len(m.running) > 0 || m.b.hasReady() {
			for d := m.b.pop(); d != nil; d = m.b.pop() {
				popped(d)
			}
			for id, d := range m.running {
				delete(m.running, id)
				delete(m.under, d.Key)
				for m.ended(d.Key, id); m.foreign[d.Key] != 0; {
					m.ended(d.Key, m.foreign[d.Key])
				}
			}
		}
		if len(m.b.keyQueues) > 0 || m.b.count > 0 {
			t.Fatalf("%d lines and %d jobs are left", len(m.b.keyQueues), m.b.count)
		}
	})
}

// Jobs of a key begin several at a time, end or fail each by itself, and come back
// whenever they like, any number of times: whenever one begins, those before it have
// ended, or begin with it.
func TestLineOfBatches(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := newBlock(100)
		over, begun, away, next := map[int64]bool{}, map[int64]bool{}, map[int64]bool{}, int64(0)
		begin := func(d *Delivery) {
			for id := int64(1); id < d.ID; id++ {
				if !over[id] && !begun[id] {
					t.Fatalf("%d begins before %d", d.ID, id)
				}
			}
			begun[d.ID] = true
		}
		of := func(t *rapid.T, set map[int64]bool) (id int64, ok bool) {
			if len(set) == 0 {
				return 0, false
			}
			return rapid.SampledFrom(slices.Sorted(maps.Keys(set))).Draw(t, "job"), true
		}
		start := func(most int) {
			first := b.pop()
			if first == nil {
				return
			}
			begin(first)
			for n := 1; n < most; n++ {
				d := b.keyQueues["k"].join(n, "")
				if d == nil {
					return
				}
				b.engage(d)
				begin(d)
			}
		}
		comeBack := func(id int64) {
			delete(away, id)
			b.add(ready(id, "k"))
			b.settle()
		}
		fail := func(id int64) {
			delete(begun, id)
			delete(b.seen, id)
			away[id] = true
			b.part("k", id)
		}
		end := func(id int64) {
			delete(begun, id)
			over[id] = true
			b.release("k", id)
		}
		t.Repeat(map[string]func(*rapid.T){
			"read": func(t *rapid.T) {
				for range rapid.IntRange(1, 5).Draw(t, "n") {
					next++
					b.add(ready(next, "k"))
				}
				b.settle()
			},
			"begin": func(t *rapid.T) { start(rapid.IntRange(1, 6).Draw(t, "most")) },
			"fail": func(t *rapid.T) {
				if id, ok := of(t, begun); ok {
					fail(id)
				}
			},
			"end": func(t *rapid.T) {
				if id, ok := of(t, begun); ok {
					end(id)
				}
			},
			"come back": func(t *rapid.T) {
				if id, ok := of(t, away); ok {
					comeBack(id)
				}
			},
		})
		for len(over) < int(next) {
			for _, id := range slices.Sorted(maps.Keys(begun)) {
				end(id)
			}
			for _, id := range slices.Sorted(maps.Keys(away)) {
				comeBack(id)
			}
			if start(3); len(begun) == 0 && len(over) < int(next) {
				t.Fatalf("%d of %d have ended, and none begins: %+v", len(over), next, b.keyQueues["k"])
			}
		}
		if len(b.keyQueues) > 0 {
			t.Fatalf("left: %+v", b.keyQueues["k"])
		}
	})
}

// Of several retries of a key, one that was read before its turn waits for that, and
// goes before jobs that are no retries.
func TestLineOfRetries(t *testing.T) {
	b := newBlock(100)
	for id := range int64(3) {
		b.hold("k", id+1)
	}
	for _, id := range []int64{4, 3, 5} {
		b.add(ready(id, "k"))
	}
	for id := range int64(5) {
		b.settle()
		if d := b.pop(); (d == nil) != (id < 2) || d != nil && d.ID != id+1 {
			t.Fatalf("popped %+v in the turn of %d", d, id+1)
		}
		b.release("k", id+1)
	}
	if len(b.keyQueues) > 0 {
		t.Fatalf("left: %+v", b.keyQueues["k"])
	}
}

// Jobs that are equal in order, such as delayed ones that are due at the same time,
// go by their ids.
func TestLineOfEquals(t *testing.T) {
	b := newBlock(100)
	for id := range int64(5) {
		d := ready(id+1, "k")
		d.order = 7
		b.add(d)
	}
	b.settle()
	for id := range int64(5) {
		d := b.pop()
		if d == nil || d.ID != id+1 {
			t.Fatalf("popped %+v, not %d", d, id+1)
		}
		b.release("k", d.ID)
	}
}

// Jobs of one key that wait for their turn do not keep the others from being read,
// nor the retry that they wait for.
func TestLinesDoNotStopReading(t *testing.T) {
	b := newBlock(4)
	b.hold("k", 1)
	for id := range int64(50) {
		b.add(ready(id+2, "k"))
	}
	b.settle()
	b.dues.Ripe, b.reads.Dirty = true, true
	if now := instant.Now(); !b.wants(now) {
		t.Error("neither other jobs nor the retry is read")
	}
}

// A readModel has a block's rows in the database, of which a read sees those committed when it
// was sent.
type readModel struct {
	b    *block
	w    *Worker
	rows map[int64]bool // committed
	late []int64        // inserted with an id, not committed yet
	done map[int64]int
}

// modelNow is a time at which the model's jobs are a second old.
var modelNow = store.Epoch.Add(time.Hour).UnixMicro()

// read makes a round as a flusher does, with what happens in between.
func (m *readModel) read(t *rapid.T, meanwhile func()) bool {
	at := instant.Now()
	plan, ok := m.b.plan(at, modelNow)
	if !ok {
		return false
	}
	m.b.queued, m.b.serving = false, true
	m.w.serve = nil
	forgotten := slices.Clone(m.b.forget)
	var found []int64
	for _, id := range slices.Sorted(maps.Keys(m.rows)) {
		if id > plan.After[Normal] && len(found) < plan.Limit {
			found = append(found, id)
		}
	}
	meanwhile()
	m.b.serving = false
	for _, id := range forgotten {
		delete(m.b.seen, id)
	}
	m.b.forget = m.b.forget[len(forgotten):]
	fresh := 0
	for _, id := range found {
		d := ready(id, "")
		m.b.noteRead(d)
		if m.b.add(d) {
			fresh++
			if m.done[id] > 0 {
				t.Fatalf("%d is read again after it was done", id)
			}
		}
	}
	m.b.settle()
	got := board.Fetched{Rows: len(found)}
	if len(found) > 0 {
		got.Last = board.Place{Priority: Normal, Order: found[len(found)-1]}
	}
	m.b.reads.Took(plan, got, fresh, instant.Now())
	return true
}

// Whatever is committed while a block is read: as long as there is something above
// the cursor, or it was rung for since the read was sent, the block wants to be read
// or has something to do. And no job is read twice.
func TestReading(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		batch := rapid.IntRange(1, 6).Draw(t, "batch")
		m := &readModel{b: newBlock(batch), rows: map[int64]bool{}, done: map[int64]int{}}
		m.b.keyed, m.b.dues.Ripe = rapid.Bool().Draw(t, "keyed"), false
		m.w = m.b.q.w
		m.w.chores.L = &m.w.mu
		m.w.queues = []*workQueue{m.b.q}
		next := store.TickOf(modelNow - time.Second.Microseconds())
		commit := func(id int64) {
			m.rows[id] = true
			m.w.rouse(m.b)
		}
		insert := func() int64 {
			next++
			return next
		}
		var rung bool
		awake := func() {
			if rung && m.b.count < max(1, batch/2) && !m.b.wants(instant.Now()) {
				t.Fatal("it was rung for, and sleeps")
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"insert": func(*rapid.T) { commit(insert()); rung = true; awake() },
			"insert and commit later": func(*rapid.T) {
				m.late = append(m.late, insert())
			},
			"commit what is late": func(*rapid.T) {
				if len(m.late) > 0 {
					commit(m.late[0])
					m.late, rung = m.late[1:], true
					awake()
				}
			},
			"read": func(t *rapid.T) {
				n := rapid.IntRange(0, 2).Draw(t, "inserted meanwhile")
				if m.read(t, func() {
					rung = false
					for range n {
						commit(insert())
						rung = true
					}
				}) {
					awake()
				}
			},
			"do": func(*rapid.T) {
				if d := m.b.pop(); d != nil {
					m.b.active--
					m.done[d.ID]++
					delete(m.rows, d.ID)
					m.b.forget = append(m.b.forget, d.ID)
				}
			},
		})
		for _, id := range m.late {
			commit(id)
		}
		for i := 0; len(m.rows) > 0; i++ {
			if i > 1000 {
				t.Fatalf("never read: %v, cursor %d", slices.Sorted(maps.Keys(m.rows)), m.b.reads.Cursor()[Normal])
			}
			m.read(t, func() {})
			for d := m.b.pop(); d != nil; d = m.b.pop() {
				m.done[d.ID]++
				delete(m.rows, d.ID)
				m.b.forget = append(m.b.forget, d.ID)
			}
		}
		for id, n := range m.done {
			if n != 1 {
				t.Fatalf("%d was done %d times", id, n)
			}
		}
	})
}

// A worker that renewed its lease late, but has it again, continues with what it has read.
func TestReadyAfterALateRenewal(t *testing.T) {
	b := newBlock(100)
	w := b.q.w
	w.chores.L, w.work.L = &w.mu, &w.mu
	w.queues = []*workQueue{b.q}
	w.lease.deadline = 0
	b.add(ready(1, ""))
	w.offer(b, 1)
	if d := w.popReady(); d != nil {
		t.Fatalf("%d begins, and the lease is over", d.ID)
	}
	w.lease.deadline = instant.Now().Add(time.Hour)
	if d := w.popReady(); d == nil {
		t.Error("the job is not offered any more")
	}
}

// A failure of a job that has a row of its own is written, although the block that it
// came from was lost.
func TestMovesOutliveTheBlock(t *testing.T) {
	b := newBlock(100)
	w := b.q.w
	w.log = quiet()
	w.assemble()
	own, of := ready(1, ""), ready(2, "")
	own.from, own.b, of.b = tableRunning, b, b
	own.phase, of.phase = phaseEnded, phaseEnded
	w.apply(&trip{tripPlan: tripPlan{b: b, moves: []move{{d: own, verdict: failed}, {d: of, verdict: failed}}}}, errBlockLost)
	if len(b.moves) != 1 || b.moves[0].d != own {
		t.Errorf("to be written: %s", fmt.Sprint(b.moves))
	}
}

// Without the lease a flusher reads nothing, so a block is not served again and again until the loss is noticed.
func TestNothingIsWantedWithoutTheLease(t *testing.T) {
	b := newBlock(100)
	w := b.q.w
	at := instant.Now()
	if !b.wants(at) {
		t.Error("with the lease, nothing is wanted of a block that was not read yet")
	}
	w.lease.deadline = at
	if b.wants(at) {
		t.Error("something is wanted that no trip does")
	}
	b.acks = []*Delivery{ready(1, "")}
	if !b.wants(at) {
		t.Error("what is done is not written")
	}
}

// What a lost block has not written is tried again, also if it was lost while it paused after a failure: whoever
// waits for the outcome of its jobs would wait for ever.
func TestMovesOutliveAPause(t *testing.T) {
	for _, byTrip := range []bool{false, true} {
		b := newBlock(100)
		w := b.q.w
		w.log = quiet()
		w.assemble()
		own, done := ready(1, ""), ready(2, "")
		own.from, own.b, done.b = tableRunning, b, b
		own.phase, done.phase = phaseEnded, phaseEnded
		b.moves, b.failures, b.retryAt = []move{{d: own, verdict: failed}}, 1, instant.Now().Add(time.Hour)
		if byTrip {
			b.moves = nil
			w.apply(&trip{tripPlan: tripPlan{b: b, acks: []*Delivery{done}}}, errBlockLost)
		} else {
			w.drop(b, ErrLost)
		}
		if !w.remnants[b] || len(b.moves)+len(b.acks) != 1 {
			t.Errorf("by a trip %v: %d moves and %d acks are left, and are remnants: %v", byTrip, len(b.moves), len(b.acks), w.remnants[b])
		}
	}
}

// A horizonModel is a block, those who enqueue, and the time, which is nobody's but the
// model's. An id is drawn, and its job is committed at most Window later.
type horizonModel struct {
	b    *block
	at   instant.Instant
	us   int64 // the database's clock
	last int64
	open []*Delivery // drawn
	rows []*Delivery // committed, and not done
	read map[int64]bool
}

// pass advances the time: drawn ids are committed in time.
func (m *horizonModel) pass(d time.Duration) {
	m.at, m.us = m.at.Add(d), m.us+d.Microseconds()
	m.open = slices.DeleteFunc(m.open, func(d *Delivery) bool {
		late := m.us >= d.runAt+Window.Microseconds()
		if late {
			m.rows = append(m.rows, d)
		}
		return late
	})
}

// draw draws an id; runAt is when the job is due.
func (m *horizonModel) draw(priority int, skew time.Duration) {
	m.us++
	m.last++
	d := ready(store.TickOf(m.us+skew.Microseconds())+m.last%1000, "")
	d.Priority, d.runAt = priority, m.us
	m.open = append(m.open, d)
}

func (m *horizonModel) commit(i int) {
	m.rows = append(m.rows, m.open[i])
	m.open = slices.Delete(m.open, i, i+1)
}

// round reads as a flusher does, if there is reason to, while time passes before the read is
// made and after.
func (m *horizonModel) round(t *rapid.T, before, after time.Duration, fails bool) {
	plan, ok := m.b.plan(m.at, m.us-2*maxSkew.Microseconds())
	if !ok {
		return
	}
	m.pass(before)
	slices.SortFunc(m.rows, func(a, b *Delivery) int {
		return cmp.Or(cmp.Compare(a.Priority, b.Priority), cmp.Compare(a.ID, b.ID))
	})
	var found []*Delivery
	for _, d := range m.rows {
		if d.ID > plan.After[d.Priority] && len(found) < plan.Limit {
			found = append(found, d)
		}
	}
	snapshot := slices.Clone(m.rows)
	m.pass(after)
	if fails {
		m.b.reads.Distrust()
		return
	}
	got, fresh := board.Fetched{Rows: len(found)}, 0
	for _, d := range found {
		got.Last = board.Place{Priority: d.Priority, Order: d.ID}
		m.b.noteRead(d)
		if m.b.add(d) {
			fresh++
		}
		m.read[d.ID] = true
	}
	m.b.reads.Took(plan, got, fresh, instant.Now())
	for _, d := range snapshot {
		switch {
		case m.read[d.ID]:
		case d.ID <= m.b.reads.Horizon()[d.Priority]:
			t.Fatalf("%d is below the horizon, %d, and was not read", d.ID, m.b.reads.Horizon()[d.Priority])
		case m.b.keyed && slices.ContainsFunc(found, func(o *Delivery) bool { return o.Priority == d.Priority && o.ID > d.ID }):
			t.Fatalf("%d was read before %d, which was committed", got.Last.Order, d.ID)
		}
	}
}

// do ends some of the jobs that were read.
func (m *horizonModel) do(most int) {
	for range most {
		d := m.b.pop()
		if d == nil {
			return
		}
		m.b.active--
		m.rows = slices.DeleteFunc(m.rows, func(o *Delivery) bool { return o == d })
		m.b.forget = append(m.b.forget, d.ID)
	}
}

// ring rings if there is something above the cursor, as the poller does.
func (m *horizonModel) ring() {
	if slices.ContainsFunc(m.rows, func(d *Delivery) bool { return d.ID > m.b.reads.Cursor()[d.Priority] }) {
		m.b.reads.Rouse()
	}
}

// Whatever a worker does or does not do, for however long: jobs committed in time are read once
// there is time and room, without a read of the whole block; and in a block with keys before
// any later job of their priority.
func TestHorizon(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &horizonModel{
			b: newBlock(rapid.IntRange(1, 8).Draw(t, "batch")), at: instant.Instant(time.Hour),
			us: modelNow, read: map[int64]bool{},
		}
		m.b.keyed = rapid.Bool().Draw(t, "keyed")
		m.b.q.w.whole = 1000 * time.Hour
		t.Repeat(map[string]func(*rapid.T){
			"draw": func(t *rapid.T) {
				skew := drawn(t, "skew", 3*maxSkew) - maxSkew
				m.draw(rapid.IntRange(Urgent, Idle).Draw(t, "priority"), skew)
			},
			"commit": func(t *rapid.T) {
				if len(m.open) > 0 {
					m.commit(rapid.IntRange(0, len(m.open)-1).Draw(t, "which"))
				}
			},
			"pass":  func(t *rapid.T) { m.pass(drawn(t, "time", 3*time.Second)) },
			"stall": func(t *rapid.T) { m.pass(drawn(t, "time", time.Minute)) },
			"ring":  func(*rapid.T) { m.ring() },
			"do":    func(t *rapid.T) { m.do(rapid.IntRange(1, 10).Draw(t, "jobs")) },
			"pause": func(t *rapid.T) { m.b.q.set.State = rapid.SampledFrom([]string{"active", "paused"}).Draw(t, "state") },
			"read": func(t *rapid.T) {
				m.round(t, drawn(t, "before", 3*time.Second), drawn(t, "after", 3*time.Second), rapid.IntRange(0, 5).Draw(t, "fails") == 0)
			},
		})
		m.b.q.set.State = "active"
		m.pass(Window)
		for range 2000 {
			m.ring()
			m.pass(100 * time.Millisecond)
			m.round(t, 0, 0, false)
			m.do(100)
		}
		if len(m.rows) > 0 {
			t.Fatalf("%d jobs were never read, the first %d; cursor %v, horizon %v", len(m.rows), m.rows[0].ID, m.b.reads.Cursor(), m.b.reads.Horizon())
		}
	})
}
