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

// normal is the usual priority, and maxSkew how far hosts' clocks are apart.
const (
	normal  = 3
	maxSkew = 50 * time.Millisecond
)

// A host is a worker as a block sees it.
type host struct {
	paused  bool
	limits  map[string]*limit.Limiter // by kind
	tenants *limit.Queue              // nil: no limits of tenants
	whole   *limit.Limiter            // of all jobs
	opens   map[*limit.Limiter]bool
	lacks   map[*limit.Limiter]int    // the least cost for which a limiter has too little; 0: it has enough
	unknown map[string]*limit.Limiter // barriers, by kind
	out     map[int64]bool
	held    int
	shed    int
	owes    int
}

func (h *host) Active() bool                        { return !h.paused }
func (h *host) Gate(kind string) *limit.Limiter     { return h.limits[kind] }
func (h *host) Tenant(name string) *limit.Limiter   { return h.tenants.Tenant(name) }
func (h *host) Stranger(kind string) *limit.Limiter { return h.unknown[kind] }
func (h *host) Opens(l *limit.Limiter) bool         { return l == nil || h.opens[l] }
func (h *host) Whole() *limit.Limiter               { return h.whole }
func (h *host) Admits(l *limit.Limiter, cost int) bool {
	if h.lacks[l] > 0 && cost >= h.lacks[l] {
		h.opens[l] = false // to all, until there is enough
	}
	return h.Opens(l)
}
func (h *host) IsOut(id int64) bool { return h.out[id] }
func (h *host) Held(*Job)           { h.held++ }
func (h *host) Shed(*Job)           { h.shed++ }
func (h *host) Owes()               { h.owes++ }

// newBlock returns a block as a worker would have it that has just taken it.
func newBlock(batch int) *Block {
	b := New(&host{}, &Terms{Batch: batch, Whole: time.Minute, Room: Room{Size: 64 << 20, Readers: 1}})
	b.Reads.Unseen = false
	return &b
}

// HasReady reports whether some job of a block may begin, as far as limits are known.
func (b *Block) HasReady() bool {
	_, ok := b.Head()
	return ok
}

func ready(id int64, line string) *Job { return &Job{ID: id, Priority: normal, Line: line, Order: id} }

// now is an instant at which no id is drawn any more of times before us.
func now(at instant.Instant, us int64) Now { return Now{At: at, Closed: us, Leased: true} }

// drawn draws a duration of up to a maximum.
func drawn(t *rapid.T, what string, most time.Duration) time.Duration {
	return time.Duration(rapid.Int64Range(0, int64(most)).Draw(t, what))
}

// The most urgent jobs go first, and those of one priority in their order.
func TestPop(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := newBlock(100)
		var all []*Job
		for i, p := range rapid.SliceOfN(rapid.IntRange(1, Priorities), 0, 30).Draw(t, "priorities") {
			d := ready(int64(i+1), "")
			d.Priority = p
			all = append(all, d)
			if !b.Add(d) || b.Add(d) {
				t.Fatalf("%d was not taken in once", d.ID)
			}
		}
		slices.SortStableFunc(all, func(a, b *Job) int { return cmp.Compare(a.Priority, b.Priority) })
		for i, want := range all {
			if b.Count != len(all)-i || !b.HasReady() {
				t.Fatalf("%d are left, and it says %d", len(all)-i, b.Count)
			}
			if d := b.Pop(); d != want {
				t.Fatalf("popped %d, not %d", d.ID, want.ID)
			}
		}
		if b.Pop() != nil || b.HasReady() || b.Count != 0 || b.Active != len(all) || b.Idle(false) != (len(all) == 0) {
			t.Fatalf("count %d, active %d", b.Count, b.Active)
		}
	})
}

// A linesModel is how a block should treat keys: jobs come in any order, one of a key at a time
// is under way, and the others follow in order, whatever holds them.
type linesModel struct {
	b       *Block
	next    int64
	waiting map[string][]int64 // read and not popped, by key
	under   map[string]int64   // popped, by key
	foreign map[string]int64   // held by a job that is not here
	away    map[string][]int64 // and then by these
	running map[int64]*Job     // popped
}

// ended records that the turn of a key's job is over.
func (m *linesModel) ended(key string, id int64) {
	delete(m.foreign, key)
	if next := m.away[key]; len(next) > 0 {
		m.foreign[key], m.away[key] = next[0], next[1:]
	}
	m.b.Release(key, id)
	m.b.Release(key, id) // once more does nothing
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
			foreign: map[string]int64{}, away: map[string][]int64{}, running: map[int64]*Job{},
		}
		last := map[string]int64{}
		popped := func(d *Job) {
			if id := m.under[d.Line]; id != 0 {
				t.Fatalf("key %s: %d goes while %d does", d.Line, d.ID, id)
			}
			if _, held := m.foreign[d.Line]; held {
				t.Fatalf("key %s: %d goes, and the key is held", d.Line, d.ID)
			}
			if d.ID < last[d.Line] {
				t.Fatalf("key %s: %d goes after %d", d.Line, d.ID, last[d.Line])
			}
			last[d.Line], m.under[d.Line], m.running[d.ID] = d.ID, d.ID, d
			m.waiting[d.Line] = slices.DeleteFunc(m.waiting[d.Line], func(id int64) bool { return id == d.ID })
		}
		t.Repeat(map[string]func(*rapid.T){
			"": m.check,
			"read": func(t *rapid.T) { // a batch, whose jobs come in any order
				var batch []*Job
				for range rapid.IntRange(1, 5).Draw(t, "n") {
					m.next++
					batch = append(batch, ready(m.next, rapid.SampledFrom(keys).Draw(t, "key")))
				}
				for _, d := range rapid.Permutation(batch).Draw(t, "order") {
					m.b.Add(d)
					m.waiting[d.Line] = append(m.waiting[d.Line], d.ID)
				}
				m.b.Settle()
			},
			"start": func(*rapid.T) {
				if d := m.b.Pop(); d != nil {
					popped(d)
				}
			},
			"end": func(t *rapid.T) {
				if len(m.running) == 0 {
					return
				}
				id := rapid.SampledFrom(slices.Sorted(maps.Keys(m.running))).Draw(t, "id")
				key := m.running[id].Line
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
				if its := m.foreign[key] == m.next; m.b.TakesTurn(key, m.next) != its {
					t.Fatalf("key %s: it is the turn of %d: %v", key, m.next, !its)
				}
				m.b.Hold(key, m.next) // once more does nothing
			},
			"let go": func(t *rapid.T) {
				key := rapid.SampledFrom(keys).Draw(t, "key")
				m.b.Release(key, 1<<40) // another job's end: not that key's business
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
				m.b.Add(ready(id, key))
				for d := m.b.Pop(); d != nil; d = m.b.Pop() {
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
		for len(m.running) > 0 || m.b.HasReady() {
			for d := m.b.Pop(); d != nil; d = m.b.Pop() {
				popped(d)
			}
			for id, d := range m.running {
				delete(m.running, id)
				delete(m.under, d.Line)
				for m.ended(d.Line, id); m.foreign[d.Line] != 0; {
					m.ended(d.Line, m.foreign[d.Line])
				}
			}
		}
		if len(m.b.keyQueues) > 0 || m.b.Count > 0 {
			t.Fatalf("%d lines and %d jobs are left", len(m.b.keyQueues), m.b.Count)
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
		begin := func(d *Job) {
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
			first := b.Pop()
			if first == nil {
				return
			}
			begin(first)
			for n := 1; n < most; n++ {
				d := b.Join("k", n, "")
				if d == nil {
					return
				}
				begin(d)
			}
		}
		comeBack := func(id int64) {
			delete(away, id)
			b.Add(ready(id, "k"))
			b.Settle()
		}
		fail := func(id int64) {
			delete(begun, id)
			delete(b.seen, id)
			away[id] = true
			b.Part("k", id)
		}
		end := func(id int64) {
			delete(begun, id)
			over[id] = true
			b.Release("k", id)
		}
		t.Repeat(map[string]func(*rapid.T){
			"read": func(t *rapid.T) {
				for range rapid.IntRange(1, 5).Draw(t, "n") {
					next++
					b.Add(ready(next, "k"))
				}
				b.Settle()
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
		b.Hold("k", id+1)
	}
	for _, id := range []int64{4, 3, 5} {
		b.Add(ready(id, "k"))
	}
	for id := range int64(5) {
		b.Settle()
		if d := b.Pop(); (d == nil) != (id < 2) || d != nil && d.ID != id+1 {
			t.Fatalf("popped %+v in the turn of %d", d, id+1)
		}
		b.Release("k", id+1)
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
		d.Order = 7
		b.Add(d)
	}
	b.Settle()
	for id := range int64(5) {
		d := b.Pop()
		if d == nil || d.ID != id+1 {
			t.Fatalf("popped %+v, not %d", d, id+1)
		}
		b.Release("k", d.ID)
	}
}

// Jobs of one key that wait for their turn do not keep the others from being read,
// nor the retry that they wait for.
func TestLinesDoNotStopReading(t *testing.T) {
	b := newBlock(4)
	b.Hold("k", 1)
	for id := range int64(50) {
		b.Add(ready(id+2, "k"))
	}
	b.Settle()
	b.Dues.Ripe, b.Reads.Dirty = true, true
	if !b.Wants(now(instant.Now(), modelNow)) {
		t.Error("neither other jobs nor the retry is read")
	}
}

// A blockReadModel has a block's rows in the database, of which a read sees those committed when it
// was sent.
type blockReadModel struct {
	b    *Block
	rows map[int64]bool // committed
	late []int64        // inserted with an id, not committed yet
	done map[int64]int
}

// modelNow is a time at which the model's jobs are a second old.
var modelNow = store.Epoch.Add(time.Hour).UnixMicro()

// read makes a round as a flusher does, with what happens in between.
func (m *blockReadModel) read(t *rapid.T, meanwhile func()) bool {
	at := instant.Now()
	plan, ok := m.b.planRead(now(at, modelNow))
	if !ok {
		return false
	}
	m.b.Serving = true
	forgotten := slices.Clone(m.b.forget)
	var found []int64
	for _, id := range slices.Sorted(maps.Keys(m.rows)) {
		if id > plan.After[normal] && len(found) < plan.Limit {
			found = append(found, id)
		}
	}
	meanwhile()
	m.b.Serving = false
	for _, id := range forgotten {
		delete(m.b.seen, id)
	}
	m.b.forget = m.b.forget[len(forgotten):]
	fresh := 0
	for _, id := range found {
		d := ready(id, "")
		m.b.noteRead(d)
		if m.b.Add(d) {
			fresh++
			if m.done[id] > 0 {
				t.Fatalf("%d is read again after it was done", id)
			}
		}
	}
	m.b.Settle()
	got := Fetched{Rows: len(found)}
	if len(found) > 0 {
		got.Last = Place{Priority: normal, Order: found[len(found)-1]}
	}
	m.b.Reads.Took(plan, got, fresh, instant.Now())
	return true
}

// Whatever is committed while a block is read: as long as there is something above
// the cursor, or it was rung for since the read was sent, the block wants to be read
// or has something to do. And no job is read twice.
func TestReading(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		batch := rapid.IntRange(1, 6).Draw(t, "batch")
		m := &blockReadModel{b: newBlock(batch), rows: map[int64]bool{}, done: map[int64]int{}}
		m.b.Keyed, m.b.Dues.Ripe = rapid.Bool().Draw(t, "keyed"), false
		next := store.TickOf(modelNow - time.Second.Microseconds())
		commit := func(id int64) {
			m.rows[id] = true
			m.b.Reads.Rouse()
		}
		insert := func() int64 {
			next++
			return next
		}
		var rung bool
		awake := func() {
			if rung && m.b.Count < max(1, batch/2) && !m.b.Wants(now(instant.Now(), modelNow)) {
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
				if d := m.b.Pop(); d != nil {
					m.b.Active--
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
				t.Fatalf("never read: %v, cursor %d", slices.Sorted(maps.Keys(m.rows)), m.b.Reads.Cursor()[normal])
			}
			m.read(t, func() {})
			for d := m.b.Pop(); d != nil; d = m.b.Pop() {
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

// A horizonModel is a block, those who enqueue, and the time, which is nobody's but the
// model's. An id is drawn, and its job is committed at most Window later.
type horizonModel struct {
	b    *Block
	at   instant.Instant
	us   int64 // the database's clock
	last int64
	open []*Job // drawn
	rows []*Job // committed, and not done
	read map[int64]bool
}

// pass advances the time: drawn ids are committed in time.
func (m *horizonModel) pass(d time.Duration) {
	m.at, m.us = m.at.Add(d), m.us+d.Microseconds()
	m.open = slices.DeleteFunc(m.open, func(d *Job) bool {
		late := m.us >= d.RunAt+Window.Microseconds()
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
	d.Priority, d.RunAt = priority, m.us
	m.open = append(m.open, d)
}

func (m *horizonModel) commit(i int) {
	m.rows = append(m.rows, m.open[i])
	m.open = slices.Delete(m.open, i, i+1)
}

// round reads as a flusher does, if there is reason to, while time passes before the read is
// made and after.
func (m *horizonModel) round(t *rapid.T, before, after time.Duration, fails bool) {
	plan, ok := m.b.planRead(now(m.at, m.us-2*maxSkew.Microseconds()))
	if !ok {
		return
	}
	m.pass(before)
	slices.SortFunc(m.rows, func(a, b *Job) int {
		return cmp.Or(cmp.Compare(a.Priority, b.Priority), cmp.Compare(a.ID, b.ID))
	})
	var found []*Job
	for _, d := range m.rows {
		if d.ID > plan.After[d.Priority] && len(found) < plan.Limit {
			found = append(found, d)
		}
	}
	snapshot := slices.Clone(m.rows)
	m.pass(after)
	if fails {
		m.b.Reads.Distrust()
		return
	}
	got, fresh := Fetched{Rows: len(found)}, 0
	for _, d := range found {
		got.Last = Place{Priority: d.Priority, Order: d.ID}
		m.b.noteRead(d)
		if m.b.Add(d) {
			fresh++
		}
		m.read[d.ID] = true
	}
	m.b.Reads.Took(plan, got, fresh, instant.Now())
	for _, d := range snapshot {
		switch {
		case m.read[d.ID]:
		case d.ID <= m.b.Reads.Horizon()[d.Priority]:
			t.Fatalf("%d is below the horizon, %d, and was not read", d.ID, m.b.Reads.Horizon()[d.Priority])
		case m.b.Keyed && slices.ContainsFunc(found, func(o *Job) bool { return o.Priority == d.Priority && o.ID > d.ID }):
			t.Fatalf("%d was read before %d, which was committed", got.Last.Order, d.ID)
		}
	}
}

// do ends some of the jobs that were read.
func (m *horizonModel) do(most int) {
	for range most {
		d := m.b.Pop()
		if d == nil {
			return
		}
		m.b.Active--
		m.rows = slices.DeleteFunc(m.rows, func(o *Job) bool { return o == d })
		m.b.forget = append(m.b.forget, d.ID)
	}
}

// ring rings if there is something above the cursor, as the poller does.
func (m *horizonModel) ring() {
	if slices.ContainsFunc(m.rows, func(d *Job) bool { return d.ID > m.b.Reads.Cursor()[d.Priority] }) {
		m.b.Reads.Rouse()
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
		m.b.Keyed = rapid.Bool().Draw(t, "keyed")
		m.b.terms.Whole = 1000 * time.Hour
		t.Repeat(map[string]func(*rapid.T){
			"draw": func(t *rapid.T) {
				skew := drawn(t, "skew", 3*maxSkew) - maxSkew
				m.draw(rapid.IntRange(1, Priorities).Draw(t, "priority"), skew)
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
			"pause": func(t *rapid.T) { m.b.host.(*host).paused = rapid.Bool().Draw(t, "paused") },
			"read": func(t *rapid.T) {
				m.round(t, drawn(t, "before", 3*time.Second), drawn(t, "after", 3*time.Second), rapid.IntRange(0, 5).Draw(t, "fails") == 0)
			},
		})
		m.b.host.(*host).paused = false
		m.pass(Window)
		for range 2000 {
			m.ring()
			m.pass(100 * time.Millisecond)
			m.round(t, 0, 0, false)
			m.do(100)
		}
		if len(m.rows) > 0 {
			t.Fatalf("%d jobs were never read, the first %d; cursor %v, horizon %v", len(m.rows), m.rows[0].ID, m.b.Reads.Cursor(), m.b.Reads.Horizon())
		}
	})
}

// A block's reads get larger after its row says so, and smaller before: so many jobs may have
// crashed a worker.
func TestRebatch(t *testing.T) {
	const least = 100
	b := newBlock(least)
	for _, step := range []struct{ size, seen, says, reads int }{
		{300, 0, 300, least},
		{300, 0, 0, 300},
		{least, 200, 0, 300},
		{least, 0, least, least},
		{300, 0, 300, least},
		{1000, 0, 1000, 300},
	} {
		for i := range step.seen {
			b.seen[int64(i)] = nil
		}
		says := b.rebatch(step.size)
		if says != step.says || b.AtOnce() != step.reads {
			t.Errorf("%+v: the row is to say %d, and the next read has %d", step, says, b.AtOnce())
		}
		if says > 0 {
			b.Batch, b.Says = says, says
		}
		clear(b.seen)
	}
}

// A job that comes back before all that began with it have ended begins without the jobs behind
// these.
func TestBatchBeginsAgain(t *testing.T) {
	b := newBlock(100)
	first, later := ready(1, "k"), ready(4, "k")
	l := b.keyQueue("k")
	for id := range int64(3) {
		l.HoldBehind(id+1, func(int64) bool { return true })
	}
	l.Wait(later.ID, later.ID, later)
	if j := b.Join("k", 1, ""); !b.StopGathering(first) || j != nil {
		t.Errorf("%+v begins with it", j)
	}
}

// Callers of a Receiver ask for some kinds each. Jobs of kinds that none asks for at the moment make way for those behind them, at
// once, and even if a caller has just come for them; but not while a trip is under way that may remove their rows.
func TestOtherKindsMakeWay(t *testing.T) {
	for name, x := range map[string]struct {
		perCaller, serving, makesWay bool
		tenant                       string
	}{
		"of a receiver":                  {true, false, true, ""},
		"of a receiver, while it serves": {true, true, false, ""},
		"of a worker":                    {false, false, false, ""},
		"of a receiver, by tenant":       {true, false, true, "a"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBlock(1)
			h := b.host.(*host)
			gate := limit.Barrier(nil, "rare")
			h.limits, h.opens = map[string]*limit.Limiter{"rare": gate}, map[*limit.Limiter]bool{gate: x.tenant != ""}
			keeper := limit.NewKeeper(nil, nil, nil)
			h.tenants = keeper.Queue(1, "q")
			keeper.SetTenants(h.tenants, store.Limit{Running: 1}, nil)
			b.terms.PerCaller, b.Serving = x.perCaller, x.serving
			for id := range int64(b.fill()) {
				j := ready(id+1, "")
				j.Kind, j.Tenant = "rare", x.tenant
				b.Add(j)
			}
			if j := b.Pop(); j != nil {
				t.Fatalf("%d begins", j.ID)
			}
			if b.Crowded() == x.makesWay {
				t.Errorf("the block is crowded: %v", b.Crowded())
			}
			if x.serving {
				b.Serving, h.opens[gate] = false, true
				if b.evict(); b.Crowded() {
					t.Error("the block is crowded after the trip, since a caller has come")
				}
			}
		})
	}
}

// Others of a key join a batch if their limits let them, for all that they cost.
func TestJoinsWithinLimits(t *testing.T) {
	for name, x := range map[string]struct {
		opens, joins bool
		kind, whole  int // what the limiters lack
	}{
		"open":                   {true, true, 0, 0},
		"the kind's is closed":   {false, false, 0, 0},
		"too dear for the kind":  {true, false, 5, 0},
		"too dear for the queue": {true, false, 0, 5},
		"enough is there":        {true, true, 6, 6},
		"too dear for both":      {true, false, 5, 5},
	} {
		w := newTenure(t, 3, 1<<20)
		b, h := w.b, w.host
		first, next := ready(1, "k"), ready(2, "k")
		first.Kind, next.Kind, next.Cost = "limited", "limited", 5
		b.Add(first)
		b.Add(next)
		b.Settle()
		if j := b.Pop(); j != first || b.Gather(j, 3, func() {}) {
			t.Fatalf("%s: the first job of its key did not begin", name)
		}
		h.opens[w.gate], h.lacks[w.gate], h.lacks[h.whole] = x.opens, x.kind, x.whole
		if !b.StopGathering(first) {
			t.Fatalf("%s: none may join", name)
		}
		if j := b.Join("k", 1, "limited"); (j == next) != x.joins {
			t.Errorf("%s: %v joins", name, j)
		}
	}
}
