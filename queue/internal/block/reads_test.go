package block

import (
	"cmp"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/dbcron/dbcron/internal/instant"
)

// A readModel is the ready jobs of a block, those who enqueue them, and the time, which is the
// model's. An id is drawn, and its job is committed at most Window later. An id is a time in µs and
// a number, as in the tables.
type readModel struct {
	reads Reads
	at    instant.Instant
	us    int64 // the database's clock
	last  int64
	open  []drawnJob
	rows  []Place // committed
	read  map[int64]int
	done  []int64 // whose deletion is committed: to be forgotten
}

type drawnJob struct {
	Place
	drawn int64
}

func (m *readModel) pass(d time.Duration) {
	for len(m.open) > 0 && m.open[0].drawn+Window.Microseconds() <= m.us+d.Microseconds() { // it is committed in time
		m.commit(0)
	}
	m.us += d.Microseconds()
	m.at = m.at.Add(d)
}

func (m *readModel) commit(i int) {
	m.rows = append(m.rows, m.open[i].Place)
	m.open = slices.Delete(m.open, i, i+1)
	slices.SortFunc(m.rows, func(a, b Place) int { return cmp.Or(a.Priority-b.Priority, cmp.Compare(a.Order, b.Order)) })
}

// plan makes a read if there is reason to.
func (m *readModel) plan(limit int, keyed bool) (r Read, ok bool) {
	const never = 1000 * time.Hour
	if !m.reads.Due(m.at, never) {
		return r, false
	}
	return m.reads.Plan(m.at, never, limit, func(d time.Duration) int64 { return (m.us - d.Microseconds()) << 12 }, keyed, func(after Cursor) (n int) {
		for id, p := range m.read {
			if id > after[p] {
				n++
			}
		}
		return n
	}), true
}

// round reads, while time passes before the read is sent and after.
func (m *readModel) round(t *rapid.T, limit int, keyed, fails bool, before, after time.Duration) {
	r, ok := m.plan(limit, keyed)
	if !ok {
		return
	}
	forget := m.done
	m.pass(before)
	var found []Place
	for _, j := range m.rows {
		if j.Order > r.After[j.Priority] && len(found) < r.Limit {
			found = append(found, j)
		}
	}
	snapshot := slices.Clone(m.rows)
	m.pass(after)
	if fails {
		m.reads.Distrust()
		return
	}
	for _, id := range forget {
		delete(m.read, id)
	}
	m.done = m.done[len(forget):]
	got, fresh := Fetched{Rows: len(found)}, 0
	for _, j := range found {
		if m.reads.Read(j.Priority, j.Order); m.read[j.Order] == 0 {
			fresh++
		}
		m.read[j.Order], got.Last = j.Priority, j
	}
	m.reads.Took(r, got, fresh, m.at)
	for _, j := range snapshot {
		switch {
		case m.read[j.Order] != 0:
		case j.Order <= m.reads.Horizon()[j.Priority]:
			t.Fatalf("%+v is below the horizon, %v, and was not read", j, m.reads.Horizon())
		case keyed && slices.ContainsFunc(found, func(o Place) bool { return o.Priority == j.Priority && o.Order > j.Order }):
			t.Fatalf("%+v was read before %+v, which was committed", got.Last, j)
		}
	}
}

// ring tells of jobs above the cursor, as those do who look for new ones.
func (m *readModel) ring() {
	if slices.ContainsFunc(m.rows, func(j Place) bool { return j.Order > m.reads.Cursor()[j.Priority] }) {
		m.reads.Rouse()
	}
}

// do ends some of what was read.
func (m *readModel) do(most int) {
	for range most {
		at := slices.IndexFunc(m.rows, func(j Place) bool { return m.read[j.Order] != 0 })
		if at < 0 {
			return
		}
		m.done = append(m.done, m.rows[at].Order)
		m.rows = slices.Delete(m.rows, at, at+1)
	}
}

// Whatever is committed late, read, done, put back, or not read at all, for however long: every job
// that is in time is read once there is time, without a read of all; and in a block with keys before
// anything later of its priority.
func TestReads(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &readModel{
			reads: Reads{Dirty: true, Unseen: true}, at: instant.Instant(time.Hour), us: int64(time.Hour / time.Microsecond),
			read: map[int64]int{},
		}
		limit, keyed := rapid.IntRange(1, 8).Draw(t, "limit"), rapid.Bool().Draw(t, "keyed")
		long := func(t *rapid.T, name string, most time.Duration) time.Duration {
			return time.Duration(rapid.Int64Range(0, int64(most/time.Microsecond)).Draw(t, name)) * time.Microsecond
		}
		t.Repeat(map[string]func(*rapid.T){
			"draw": func(t *rapid.T) {
				m.us++
				m.last++
				m.open = append(m.open, drawnJob{Place{rapid.IntRange(1, Priorities).Draw(t, "priority"), m.us<<12 + m.last%1000}, m.us})
			},
			"commit": func(t *rapid.T) {
				if len(m.open) > 0 {
					m.commit(rapid.IntRange(0, len(m.open)-1).Draw(t, "which"))
				}
			},
			"pass":  func(t *rapid.T) { m.pass(long(t, "time", 3*time.Second)) },
			"stall": func(t *rapid.T) { m.pass(long(t, "time", time.Minute)) },
			"ring":  func(*rapid.T) { m.ring() },
			"do":    func(t *rapid.T) { m.do(rapid.IntRange(1, 10).Draw(t, "jobs")) },
			"put back": func(t *rapid.T) { // and read again from there
				if at := slices.IndexFunc(m.rows, func(j Place) bool { return m.read[j.Order] != 0 }); at >= 0 {
					j := m.rows[at]
					delete(m.read, j.Order)
					m.reads.Pass(j.Priority, j.Order)
					m.reads.From(j.Order)
				}
			},
			"read": func(t *rapid.T) {
				fails := rapid.IntRange(0, 5).Draw(t, "fails") == 0
				m.round(t, limit, keyed, fails, long(t, "before", 3*time.Second), long(t, "after", 3*time.Second))
			},
		})
		m.pass(Window)
		for range 2000 {
			m.ring()
			m.pass(100 * time.Millisecond)
			m.round(t, limit, keyed, false, 0, 0)
			m.do(100)
		}
		if len(m.rows) > 0 {
			t.Fatalf("%d jobs were never read, the first %+v; %+v", len(m.rows), m.rows[0], m.reads)
		}
	})
}

// A producer that was late says from which id on to read: the next read begins there, although all before was thought to be known.
func TestFromBelowTheHorizon(t *testing.T) {
	s := Reads{Whole: 1, Looked: 1}
	for p := range s.cursor {
		s.cursor[p], s.horizon[p] = 100, 90
	}
	s.From(50)
	r := s.Plan(2, time.Minute, 10, func(time.Duration) int64 { return 80 }, false, func(Cursor) int { return 0 })
	for p, after := range r.After {
		if after != 49 {
			t.Errorf("of priority %d it reads behind %d", p, after)
		}
	}
}
