package block

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/dbcron/dbcron/internal/instant"
)

// A lateModel is a long transaction beside other jobs, which come every so often for a while.
type lateModel struct {
	at      instant.Instant
	us      int64 // the database's clock
	begins  instant.Instant
	took    time.Duration
	rows    []lateRow // in order
	next    instant.Instant
	traffic time.Duration
	others  int
	late    int
}

// A lateRow is a job: its id, or when it is due.
type lateRow struct {
	id   int64
	late bool // of the transaction
}

const lateStep = 250 * time.Millisecond

func newLateModel(t *rapid.T) *lateModel {
	m := &lateModel{at: instant.Instant(time.Hour), us: int64(time.Hour / time.Microsecond)}
	m.begins, m.next = m.at.Add(10*time.Second), m.at
	m.took = Window + time.Duration(rapid.Int64Range(0, int64(80*time.Second)).Draw(t, "transaction"))
	m.traffic = time.Duration(rapid.Int64Range(int64(lateStep), int64(20*time.Second)).Draw(t, "traffic every"))
	m.others, m.late = rapid.IntRange(1, 100).Draw(t, "traffic"), rapid.IntRange(1, 20).Draw(t, "jobs")
	return m
}

// pass lets time pass, and returns how long the transaction has been committed.
func (m *lateModel) pass() time.Duration {
	m.us += lateStep.Microseconds()
	m.at = m.at.Add(lateStep)
	if m.at >= m.begins && m.late > 0 {
		for ; m.late > 0; m.late-- {
			m.rows = append(m.rows, lateRow{m.us<<12 - int64(m.late), true})
		}
	}
	if m.at >= m.next && m.others > 0 {
		m.others--
		m.next = m.at.Add(m.traffic)
		m.rows = append(m.rows, lateRow{id: m.us<<12 + 1000})
	}
	return m.at.Sub(m.begins.Add(m.took))
}

// find returns up to limit committed jobs after an id.
func (m *lateModel) find(after int64, limit int) (found []int64) {
	for _, r := range m.rows {
		if r.id > after && (!r.late || m.at >= m.begins.Add(m.took)) && len(found) < limit {
			found = append(found, r.id)
		}
	}
	return found
}

func (m *lateModel) remove(ids []int64) {
	m.rows = slices.DeleteFunc(m.rows, func(r lateRow) bool { return slices.Contains(ids, r.id) })
}

// check fails if jobs of the transaction wait for too long.
func (m *lateModel) check(t *rapid.T, after time.Duration) {
	if n := len(m.find(0, 100)); n > 0 && after > min(2*m.took, time.Minute)+2*lateStep {
		t.Fatalf("%d jobs are not read %v after the commit of a transaction of %v", n, after, m.took)
	}
}

// However long a transaction took, and whatever else is enqueued meanwhile: its jobs are read within twice
// that time after its commit, and within a minute, in which the whole block is read.
func TestLateReads(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m, s, limit := newLateModel(t), Reads{Dirty: true, Unseen: true}, rapid.IntRange(1, 8).Draw(t, "limit")
		for after := m.pass(); after < 2*time.Minute; after = m.pass() {
			if len(m.find(s.Cursor()[1], 1)) > 0 {
				s.Rouse()
			}
			for s.Due(m.at, time.Minute) {
				ago := func(d time.Duration) int64 { return (m.us - d.Microseconds()) << 12 }
				r := s.Plan(m.at, time.Minute, limit, ago, false, func(Cursor) int { return 0 })
				found, got := m.find(r.After[1], r.Limit), Fetched{}
				for _, id := range found {
					got = Fetched{got.Rows + 1, Place{1, id}}
					if s.Late(1, id) && after < 0 {
						t.Fatalf("%d was in time, and counts as late", id)
					}
					s.Read(1, id)
				}
				s.Took(r, got, len(found), m.at)
				m.remove(found)
			}
			m.check(t, after)
		}
	})
}

// Delayed jobs that were due before their commit likewise, and in a quiet block by looks that read nothing.
func TestLateDues(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m, s, limit := newLateModel(t), Dues{Ripe: true}, rapid.IntRange(1, 8).Draw(t, "limit")
		looks, whole := rapid.Bool().Draw(t, "looks"), m.at
		for after := m.pass(); after < 2*time.Minute; after = m.pass() {
			all := m.at.Sub(whole) >= time.Minute
			if all {
				whole = m.at
			}
			upto := m.us - 2*Window.Microseconds()
			if looks {
				from := s.LookFrom(m.at, upto)
				if all {
					from = 0
				}
				if next := m.find(from<<12, 1); len(next) > 0 {
					if next[0]>>12 < s.Horizon() {
						s.Anew()
					}
					s.Ripe = true
				}
			}
			s.Ripe = s.Ripe || len(m.find(s.cursor.At<<12|s.cursor.ID&4095, 1)) > 0
			for s.Ripe || all || !looks && s.LookDue(m.at) {
				r := s.Plan(m.at, upto, limit, 0, all, false)
				all = false
				found, last := m.find(r.After.At<<12|r.After.ID&4095, r.Limit), Due{}
				for _, id := range found {
					last = Due{id >> 12, id}
				}
				s.Took(r, len(found), last)
				m.remove(found)
			}
			m.check(t, after)
		}
	})
}

// Looks back pass each entry a few times, however many come.
func TestDepthsCost(t *testing.T) {
	var d Depths
	var looked time.Duration
	const long = 10 * time.Minute
	for at := instant.Instant(time.Hour); at < instant.Instant(time.Hour).Add(long); at = at.Add(50 * time.Millisecond) {
		if depth := d.Due(at, at); depth > 0 {
			d.Look(at, depth)
			looked += depth
		}
	}
	if times := looked.Seconds() / long.Seconds(); times > 7 {
		t.Errorf("looks pass each entry %.1f times", times)
	}
}
