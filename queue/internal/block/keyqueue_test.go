package block

import (
	"maps"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// A keyModel is the jobs of a key wherever they are. Their ids say their order.
type keyModel struct {
	q      KeyQueue[int64]
	next   int64          // the newest job
	cursor int64          // what was read of the table
	table  map[int64]bool // neither running nor delayed
	seen   map[int64]bool // of these, what is in memory
	away   map[int64]bool // elsewhere, or failed, and to come back
	start  int64          // it may begin; 0: none may
	begun  map[int64]bool
	over   map[int64]bool
	due    map[int64]bool // were delayed: what is not read yet may be before them
	ran    map[int64]bool // ran elsewhere already when that was found out
}

func newKeyModel(t *rapid.T) *keyModel {
	var elsewhere []int64
	for id := range rapid.Int64Range(0, 3).Draw(t, "elsewhere") {
		elsewhere = append(elsewhere, id+1)
	}
	newest := int64(len(elsewhere))
	m := &keyModel{
		table: map[int64]bool{}, seen: map[int64]bool{}, away: map[int64]bool{}, begun: map[int64]bool{}, over: map[int64]bool{}, due: map[int64]bool{}, ran: map[int64]bool{},
		next: newest, cursor: newest,
	}
	for _, id := range rapid.Permutation(elsewhere).Draw(t, "found") { // as when a block is taken
		m.q.Hold(id)
		m.away[id] = true
	}
	return m
}

// begin notes that a job begins, and looks whether it is its turn.
func (m *keyModel) begin(t *rapid.T, id int64) {
	for before := int64(1); before < id; before++ {
		if !m.over[before] && !m.begun[before] && (!m.due[id] || !m.table[before]) && !m.ran[id] {
			t.Fatalf("%d begins before %d", id, before)
		}
	}
	m.begun[id] = true
	delete(m.table, id)
	delete(m.seen, id)
}

// follows looks whether a job that gets a turn is before those that were put back. had are those
// that have one.
func (m *keyModel) follows(t *rapid.T, id int64, had []Turn) {
	first := m.q.Skipped()
	if first != 0 && first <= id && !slices.ContainsFunc(had, func(t Turn) bool { return t.ID == id }) {
		t.Fatalf("%d has its turn before %d, which was put back", id, first)
	}
}

// step lets the next job go.
func (m *keyModel) step(t *rapid.T) {
	had := m.q.Turns()
	id, ok := m.q.Step()
	if !ok {
		return
	}
	m.follows(t, id, had)
	if m.start != 0 {
		t.Fatalf("%d may begin, and so may %d", id, m.start)
	}
	m.start = id
}

// wanted tells whether jobs that were put back are to be read, since few are left.
func (m *keyModel) wanted() bool {
	holder, held := m.q.Holder()
	return m.q.Wants(2) && (!held || !holder.Away)
}

// add adds jobs that a read has returned in any order.
func (m *keyModel) add(t *rapid.T, ids []int64, after int64) {
	for _, id := range ids {
		if m.seen[id] || m.q.Skips(id, after, m.wanted()) {
			continue
		}
		m.seen[id] = true
		if m.q.Wait(id, id, id) {
			m.start = id
		}
	}
	m.step(t)
}

// above lists up to n jobs of the table above an id.
func (m *keyModel) above(after int64, n int) []int64 {
	ids := slices.DeleteFunc(slices.Sorted(maps.Keys(m.table)), func(id int64) bool { return id <= after })
	return ids[:min(n, len(ids))]
}

// read reads up to n jobs above an id. The next read begins where it ends.
func (m *keyModel) read(t *rapid.T, after int64, n int) {
	ids := m.above(after, n)
	switch {
	case len(ids) == n:
		m.cursor = ids[n-1]
	case len(ids) > 0:
		m.cursor = max(m.cursor, ids[len(ids)-1])
	}
	if len(ids) > 0 {
		m.add(t, rapid.Permutation(ids).Draw(t, "order"), after)
	}
	if len(ids) < n && m.wanted() && after < m.q.Skipped() { // all that is there has come
		m.q.SkipFrom(0)
		m.step(t)
	}
}

// readBack reads jobs again that were put back, and takes those up to the last one.
func (m *keyModel) readBack(t *rapid.T, n int) {
	first := m.q.Skipped()
	if !m.wanted() || first > m.cursor {
		return
	}
	ids := m.above(first-1, n)
	upto := int64(math.MaxInt64 - 1)
	if len(ids) == n {
		upto = ids[n-1]
	}
	if m.q.SkipFrom(upto + 1); upto >= m.cursor {
		m.q.SkipFrom(0)
		m.cursor = max(m.cursor, slices.Max(append(ids, 0)))
	}
	for _, id := range ids {
		if !m.seen[id] {
			m.seen[id] = true
			if m.q.Wait(id, id, id) {
				m.start = id
			}
		}
	}
	m.step(t)
}

// leave leaves a job to a later read.
func (m *keyModel) leave(id int64) bool {
	if !m.table[id] {
		return false
	}
	delete(m.seen, id)
	return true
}

// run begins what may begin, and up to most others with it.
func (m *keyModel) run(t *rapid.T, most int) {
	if m.start == 0 {
		return
	}
	if !m.q.HeldBy(m.start) {
		t.Fatalf("%d begins, and holds the others not", m.start)
	}
	m.begin(t, m.start)
	m.start = 0
	for n := 1; n < most; n++ {
		had := m.q.Turns()
		id, ok := m.q.Join(n, func(int64) bool { return true })
		if !ok {
			return
		}
		m.follows(t, id, had)
		m.begin(t, id)
	}
}

// end ends a job, or fails it.
func (m *keyModel) end(t *rapid.T, id int64, failed bool) {
	delete(m.begun, id)
	if failed {
		m.q.Part(id)
		m.away[id] = true
		return
	}
	m.over[id] = true
	m.q.Release(id)
	if m.q.Release(id) {
		t.Fatalf("the turn of %d ends twice", id)
	}
	m.step(t)
}

// comeBack brings a job back: its retry is due, or its worker has ended and it is adopted.
func (m *keyModel) comeBack(t *rapid.T, id int64, adopted bool) {
	if adopted && m.q.HeldBy(id) {
		delete(m.away, id)
		m.q.TakeIn(id)
		m.begin(t, id)
		return
	}
	if adopted {
		return // it waits for its turn where it is
	}
	delete(m.away, id)
	if m.q.Wait(id, id, id) {
		m.start = id
	}
	m.step(t)
}

// one draws a job of a set.
func one(t *rapid.T, set map[int64]bool) (id int64, ok bool) {
	if len(set) == 0 {
		return 0, false
	}
	return rapid.SampledFrom(slices.Sorted(maps.Keys(set))).Draw(t, "job"), true
}

// Jobs of a key are read in any order and in any parts, put back and read again, begin alone or
// together, end, fail, come back, and are adopted: whenever one begins, all before it have ended or
// begin with it, and in the end all have been done.
func TestKeyQueue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newKeyModel(t)
		t.Repeat(map[string]func(*rapid.T){
			"enqueue": func(t *rapid.T) {
				for range rapid.IntRange(1, 5).Draw(t, "n") {
					m.next++
					m.table[m.next] = true
				}
			},
			"read": func(t *rapid.T) {
				from := m.cursor - rapid.Int64Range(0, 3).Draw(t, "back")
				m.read(t, from, rapid.IntRange(1, 5).Draw(t, "n"))
			},
			"come due": func(*rapid.T) { // a delayed job, which is read once all before it have been
				if m.cursor == m.next {
					m.next++
					m.cursor, m.due[m.next] = m.next, true
					m.q.Wait(m.next, m.next, m.next)
					m.step(t)
				}
			},
			"read back": func(t *rapid.T) { m.readBack(t, rapid.IntRange(1, 5).Draw(t, "n")) },
			"put back":  func(t *rapid.T) { m.q.PutBack(rapid.IntRange(0, 3).Draw(t, "keep"), m.leave) },
			"give way": func(*rapid.T) { // it waits for a limit
				if m.start != 0 && m.table[m.start] && m.q.GiveWay(m.start, m.leave) {
					m.leave(m.start)
					m.start = 0
				}
			},
			"begin": func(t *rapid.T) { m.run(t, rapid.IntRange(1, 6).Draw(t, "most")) },
			"end": func(t *rapid.T) {
				if id, ok := one(t, m.begun); ok {
					m.end(t, id, rapid.Bool().Draw(t, "failed"))
				}
			},
			"come back": func(t *rapid.T) {
				if id, ok := one(t, m.away); ok {
					m.comeBack(t, id, rapid.Bool().Draw(t, "adopted"))
				}
			},
			"run elsewhere": func(*rapid.T) {
				if m.cursor == m.next {
					m.next++
					m.q.Hold(m.next)
					m.cursor, m.away[m.next], m.ran[m.next] = m.next, true, true
				}
			},
			"hold what is here": func(t *rapid.T) {
				if id, ok := one(t, m.begun); ok {
					m.q.Hold(id)
					m.q.HoldBehind(id, func(int64) bool { return true })
				}
			},
			"": func(t *rapid.T) {
				if m.q.Len() != len(slices.Collect(m.q.Waiting())) || !slices.IsSorted(slices.Collect(m.q.Waiting())) {
					t.Fatalf("there wait %v", slices.Collect(m.q.Waiting()))
				}
				for _, turn := range m.q.Turns() {
					if here := m.begun[turn.ID] || m.start == turn.ID; turn.Away == here {
						t.Fatalf("it has a turn: %+v, and is here: %v", turn, here)
					}
				}
			},
		})
		for i := 0; len(m.over) < int(m.next); i++ {
			if i > 1000 {
				t.Fatalf("%d of %d are done; %+v", len(m.over), m.next, m.q)
			}
			m.read(t, m.cursor, 5)
			m.readBack(t, 5)
			m.run(t, 3)
			for _, id := range slices.Sorted(maps.Keys(m.begun)) {
				m.end(t, id, false)
			}
			for _, id := range slices.Sorted(maps.Keys(m.away)) {
				m.comeBack(t, id, m.q.HeldBy(id))
			}
		}
		if m.q.SkipFrom(0); !m.q.Empty() {
			t.Fatalf("left: %+v", m.q)
		}
	})
}

// Of what a read returns, jobs stay in their table from the first one on that was put back, until
// more is wanted.
func TestSkips(t *testing.T) {
	var q KeyQueue[int64]
	for id := range int64(9) {
		q.Wait(id+1, id+1, id+1)
	}
	q.PutBack(5, func(int64) bool { return true })
	switch {
	case q.Skipped() != 6 || q.Len() != 5 || q.Wants(5) || !q.Wants(6):
		t.Errorf("put back from %d on, %d wait", q.Skipped(), q.Len())
	case q.Skips(5, 0, false) || !q.Skips(6, 5, false) || !q.Skips(7, 6, true) || q.Skips(6, 5, true) || q.Skipped() != 0:
		t.Error("a job that was put back is read when it is not wanted, or not when it is")
	}
}

// Jobs that are set aside hold their key before those that have begun after them.
func TestHoldBehind(t *testing.T) {
	var q KeyQueue[int64]
	aside := map[int64]bool{}
	q.Wait(3, 3, 3)
	q.Step()
	for _, id := range []int64{1, 2} {
		q.HoldBehind(id, func(id int64) bool { return aside[id] })
		aside[id] = true
	}
	q.Hold(4)
	if got := q.Turns(); !slices.Equal(got, []Turn{{ID: 1}, {ID: 2}, {ID: 3}, {ID: 4, Away: true}}) {
		t.Errorf("the turns are %+v", got)
	}
	if q.Remove(3); q.Release(2) || !q.Release(1) || !q.HeldBy(3) {
		t.Errorf("the turns are %+v", q.Turns())
	}
}

// A job that runs elsewhere holds its key behind those that have begun here, whatever their ids: its retry would begin beside them.
func TestHoldBehindThoseHere(t *testing.T) {
	var q KeyQueue[int64]
	q.Wait(2, 2, 2)
	q.Step()
	q.Hold(1)
	if !q.HeldBy(2) || q.Wait(1, 1, 1) {
		t.Errorf("the turns are %+v", q.Turns())
	}
}

// A job makes way for others only if it has its key to itself, and with all that wait.
func TestGiveWay(t *testing.T) {
	var q KeyQueue[int64]
	leave := func(int64) bool { return true }
	for id := range int64(3) {
		q.Wait(id+1, id+1, id+1)
	}
	q.Step()
	q.Hold(9)
	if q.GiveWay(1, leave) || len(q.Turns()) != 2 || q.Len() != 2 {
		t.Errorf("a job makes way that another one waits behind elsewhere: %+v", q)
	}
	q.Release(9)
	if q.GiveWay(2, leave) || q.Len() != 2 {
		t.Errorf("a job makes way whose turn has not come: %+v", q)
	}
	if !q.GiveWay(1, leave) || len(q.Turns()) != 0 || q.Len() != 0 || q.Skipped() != 1 {
		t.Errorf("a job does not make way: %+v", q)
	}
}

// A job that has come back, and whose turn has not come, stays: nobody would read it for a key that waits for it.
func TestPutBackLeavesTurns(t *testing.T) {
	var q KeyQueue[int64]
	q.Hold(1)
	q.Hold(2)
	q.Wait(2, 2, 2)
	q.Wait(3, 3, 3)
	q.PutBack(0, func(int64) bool { return true })
	if q.Len() != 1 || q.Skipped() != 3 {
		t.Errorf("%d wait, and %d is the first that was put back", q.Len(), q.Skipped())
	}
}

// Behind a job that was put back those with later ids are, and none with earlier ones.
func TestSkipsOnlyWhatIsBehind(t *testing.T) {
	var q KeyQueue[*Job]
	q.SkipFrom(10)
	for id, skips := range map[int64]bool{9: false, 10: true, 11: true} {
		if q.Skips(id, 20, false) != skips {
			t.Errorf("whether %d stays in the table, behind 10: %v", id, !skips)
		}
	}
}
