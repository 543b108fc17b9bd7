package block

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/dbcron/dbcron/internal/instant"
)

// A dueModel is the delayed jobs of a block, those who enqueue them, and the time, which is the
// model's. A job is due after it was written, and committed at most a window later.
type dueModel struct {
	dues Dues
	at   instant.Instant
	us   int64 // the database's clock
	next int64
	open []openDue
	rows []Due // committed
	read map[Due]bool
}

type openDue struct {
	Due
	drawn int64
}

const dueWindow = 2_000_000

func (m *dueModel) pass(us int64) {
	for len(m.open) > 0 && m.open[0].drawn+dueWindow <= m.us+us { // it is committed in time
		m.commit(0)
	}
	m.us += us
	m.at = m.at.Add(time.Duration(us) * time.Microsecond)
}

func (m *dueModel) commit(i int) {
	m.rows = append(m.rows, m.open[i].Due)
	m.open = slices.Delete(m.open, i, i+1)
	slices.SortFunc(m.rows, func(a, b Due) int {
		if a.Before(b) {
			return -1
		}
		return 1
	})
}

// round makes a read, in which time passes, as does what is committed meanwhile.
func (m *dueModel) round(t *rapid.T, limit int, all, keyed, fails bool, takes int64) {
	r := m.dues.Plan(m.at, m.us-dueWindow, limit, len(m.read), all, keyed)
	var found []Due
	for _, d := range m.rows {
		if r.After.Before(d) && d.At <= m.us && len(found) < r.Limit {
			found = append(found, d)
		}
	}
	snapshot := slices.Clone(m.rows)
	m.pass(takes)
	if fails {
		return
	}
	var last Due
	if len(found) > 0 {
		last = found[len(found)-1]
	}
	m.dues.Took(r, len(found), last)
	for _, d := range found {
		m.read[d] = true
	}
	for _, d := range snapshot {
		switch {
		case m.read[d]:
		case !m.dues.horizon.Before(d):
			t.Fatalf("%+v is up to the horizon, %+v, and was not read", d, m.dues.horizon)
		case keyed && slices.ContainsFunc(found, d.Before):
			t.Fatalf("%+v was read before %+v, which was committed", last, d)
		}
	}
	if len(found) < r.Limit && m.dues.Ripe {
		t.Fatal("all was read, and it is read on")
	}
}

// look looks for the first job after the horizon, as a worker does now and then.
func (m *dueModel) look() {
	for _, d := range m.rows {
		if d.At >= m.dues.Horizon() && d.At <= m.us {
			m.dues.Saw(d.At)
			m.dues.Ripe = true
			return
		}
	}
}

// someTime is for how long something takes, in µs.
func someTime(t *rapid.T) int64 {
	return rapid.SampledFrom([]int64{0, 3, 3, 10_000, 600_000, 3_000_000}).Draw(t, "time")
}

// Whatever is committed late, done, missed, or fails to be read, for however long: every job that
// is in time is read once there is time, without a read of all.
func TestDues(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &dueModel{at: instant.Instant(time.Hour), us: int64(time.Hour / time.Microsecond), read: map[Due]bool{}}
		limit, keyed := rapid.IntRange(1, 6).Draw(t, "limit"), rapid.Bool().Draw(t, "keyed")
		t.Repeat(map[string]func(*rapid.T){
			"write": func(t *rapid.T) {
				m.next++
				delay := rapid.SampledFrom([]int64{1, 2, 4, 1000, 3_000_000}).Draw(t, "delay")
				m.open = append(m.open, openDue{Due{m.us + delay, rapid.Int64Range(1, 3).Draw(t, "part")<<32 | m.next}, m.us})
			},
			"commit": func(t *rapid.T) {
				if len(m.open) > 0 {
					m.commit(rapid.IntRange(0, len(m.open)-1).Draw(t, "which"))
				}
			},
			"pass": func(t *rapid.T) { m.pass(someTime(t)) },
			"look": func(*rapid.T) { m.look() },
			"do": func(t *rapid.T) {
				for range rapid.IntRange(1, 5).Draw(t, "jobs") {
					if at := slices.IndexFunc(m.rows, func(d Due) bool { return m.read[d] }); at >= 0 {
						delete(m.read, m.rows[at])
						m.rows = slices.Delete(m.rows, at, at+1)
					}
				}
			},
			"miss": func(t *rapid.T) { // it was returned, and is not taken
				if at := slices.IndexFunc(m.rows, func(d Due) bool { return m.read[d] }); at >= 0 {
					delete(m.read, m.rows[at])
					m.dues.Missed(m.rows[at])
				}
			},
			"read": func(t *rapid.T) {
				fails, all := rapid.IntRange(0, 5).Draw(t, "fails") == 0, rapid.IntRange(0, 9).Draw(t, "all") == 0
				m.round(t, limit, all, keyed, fails, someTime(t))
			},
			"anew": func(t *rapid.T) {
				if rapid.IntRange(0, 9).Draw(t, "does") == 0 {
					m.dues.Anew()
				}
			},
		})
		m.pass(6_000_000)
		for range 200 {
			if m.look(); m.dues.Ripe {
				m.round(t, limit, false, keyed, false, 100_000)
			}
			m.rows = slices.DeleteFunc(m.rows, func(d Due) bool { return m.read[d] })
			clear(m.read)
			m.pass(10_000)
		}
		if len(m.rows) > 0 {
			t.Fatalf("%d were never read, the first %+v; %+v", len(m.rows), m.rows[0], m.dues)
		}
	})
}

// A backlog that was due long ago is read without going back: what was done is not passed again.
func TestDuesGoOn(t *testing.T) {
	var s Dues
	at, r := instant.Instant(time.Hour), DueRead{}
	for i := range int64(9) {
		r = s.Plan(at, 1_000_000_000, 5, 100, i == 0, i%2 == 1)
		if r.After.At != i || i > 0 && r.Limit != 5 {
			t.Fatalf("read %d is %+v", i, r)
		}
		s.Took(r, r.Limit, Due{i + 1, 7})
		at = at.Add(time.Minute)
	}
	if s.Took(s.Plan(at, 1_000_000_000, 5, 100, false, false), 0, Due{}); s.Ripe || s.Horizon() != 9 {
		t.Errorf("all was read: %+v", s)
	}
	if r := s.Plan(at, 1_000_000_000, 5, 100, false, false); r.After != (Due{9, 7}) {
		t.Errorf("it goes on as %+v", r)
	}
}

// The first read of a backlog looks at all that is due: the next ones go back to the horizon only after
// a while.
func TestDuesOfABacklog(t *testing.T) {
	var s Dues
	at, last := instant.Instant(time.Hour), Due{2_000_000, 7}
	s.Took(s.Plan(at, 1_000_000, 5, 0, false, false), 5, last)
	if r := s.Plan(at.Add(LookEvery/2), 1_000_000, 5, 100, false, false); r.After != last || r.Limit != 5 {
		t.Errorf("the second read goes back: %+v", r)
	}
	if r := s.Plan(at.Add(LookEvery), 1_000_000, 5, 100, false, false); r.After.At != 1_000_000 || r.Limit != 105 {
		t.Errorf("a read after a while does not go back: %+v", r)
	}
}

// With keys each read begins where all is known, and not where the last one ended: a job due earlier may have been committed since.
func TestDuesOfKeysFromTheHorizon(t *testing.T) {
	for _, keyed := range []bool{false, true} {
		s := Dues{cursor: Due{100, 1}, horizon: Due{50, 1}, looked: 1}
		if r := s.Plan(2, 200, 10, 3, false, keyed); r.After.Before(s.cursor) != keyed || keyed && (r.After != s.horizon || r.Limit != 13) {
			t.Errorf("keyed %v: it reads %d behind %v", keyed, r.Limit, r.After)
		}
	}
}
