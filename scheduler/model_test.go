package scheduler

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/guardian"
)

// A model knows what must have come of what two daemons and a few people did.
type model struct {
	t       *testing.T
	db      *dbtest.DB
	daemons [2]*Scheduler
	held    [2][]*execution // what each daemon runs, as it believes

	past     []life           // plans that have ended
	open     map[int64]life   // plans of schedules that exist, by their id
	recorded map[int64]string // outcomes that were written, by the run's id
}

var modelNames = []string{"a", "b", "c"}

// changed lets a person change schedules, and keeps the books of their lives.
func (m *model) changed(change func()) {
	before := m.schedules()
	change()
	after := m.schedules()
	for id, s := range before {
		if now, there := after[id]; !there || now.Spec != s.Spec {
			l := m.open[id]
			l.end = s.Due
			// Slots that had come when their times were changed were recorded.
			for there && s.State == "active" && !l.end.After(m.now()) {
				l.end = l.end.Add(l.every)
			}
			m.past = append(m.past, l)
			delete(m.open, id)
		}
	}
	for id, s := range after {
		if _, known := m.open[id]; !known {
			slots, err := s.Slots()
			if err != nil {
				m.t.Fatal(err)
			}
			m.open[id] = life{name: s.Name, first: s.Due, every: slots.Spec().Every()}
		}
	}
}

func (m *model) now() time.Time {
	now, err := Clock(m.t.Context(), m.db.DB)
	if err != nil {
		m.t.Fatal(err)
	}
	return now
}

func (m *model) schedules() map[int64]Schedule {
	all, err := List(m.t.Context(), m.db.DB, "", 100)
	if err != nil {
		m.t.Fatal(err)
	}
	found := map[int64]Schedule{}
	for _, s := range all {
		found[s.ID] = s
	}
	return found
}

func (m *model) crash(who int) {
	m.daemons[who], m.held[who] = daemon(m.t, m.db, Options{}), nil
}

// ends lets the command of one of a daemon's runs end.
func (m *model) ends(r *rapid.T, cause guardian.Cause) {
	who := rapid.IntRange(0, 1).Draw(r, "who")
	if len(m.held[who]) == 0 {
		return
	}
	i := rapid.IntRange(0, len(m.held[who])-1).Draw(r, "run")
	e := m.held[who][i]
	m.held[who] = slices.Delete(m.held[who], i, i+1)
	e.stopped.Store(cause == guardian.Stopped)
	result := guardian.Result{Cause: cause, ExitCode: rapid.IntRange(0, 1).Draw(r, "code")}
	ended(m.t, m.daemons[who], e, result)
	if cause == guardian.Exited && !e.lost.Load() {
		m.recorded[e.id] = []string{"ok", "failed"}[result.ExitCode]
	}
}

func (m *model) actions() map[string]func(*rapid.T) {
	who := func(r *rapid.T) int { return rapid.IntRange(0, 1).Draw(r, "who") }
	name := func(r *rapid.T) string { return rapid.SampledFrom(modelNames).Draw(r, "name") }
	spec := func(r *rapid.T) string {
		return rapid.SampledFrom([]string{"@every 10s", "@every 15s"}).Draw(r, "spec")
	}
	advance := func(r *rapid.T) {
		m.db.Advance(m.t, time.Duration(rapid.IntRange(1, 40).Draw(r, "seconds"))*time.Second)
	}
	claim := func(r *rapid.T) {
		i := who(r)
		m.held[i] = append(m.held[i], claimed(m.t, m.daemons[i], rapid.IntRange(1, 4).Draw(r, "limit"))...)
	}
	takeOver := func(r *rapid.T) {
		i := who(r)
		m.held[i] = append(m.held[i], takenOver(m.t, m.daemons[i], rapid.IntRange(1, 4).Draw(r, "limit"))...)
	}
	return map[string]func(*rapid.T){
		"advance": advance, "advance more": advance,
		"claim": claim, "claim more": claim,
		"take over": takeOver,
		"renew": func(r *rapid.T) {
			if err := m.daemons[who(r)].renew(m.t.Context()); err != nil {
				r.Fatal(err)
			}
		},
		"finish":    func(r *rapid.T) { m.ends(r, guardian.Exited) },
		"hand back": func(r *rapid.T) { m.ends(r, guardian.Stopped) },
		"deadline":  func(r *rapid.T) { m.ends(r, guardian.Deadline) },
		"crash":     func(r *rapid.T) { m.crash(who(r)) },
		"add": func(r *rapid.T) {
			s := Schedule{Name: name(r), Spec: spec(r), Command: "true"}
			m.changed(func() { _ = Add(m.t.Context(), m.db.DB, s) }) // there may be one
		},
		"delete": func(r *rapid.T) {
			n := name(r)
			m.changed(func() { _ = Delete(m.t.Context(), m.db.DB, n) }) // there may be none
		},
		"import": func(r *rapid.T) {
			var given []Schedule
			for _, key := range []string{"x", "y"} {
				if rapid.Bool().Draw(r, key) {
					given = append(given, entry(key, spec(r), "true"))
				}
			}
			m.changed(func() { imported(m.t, m.db, "file", given...) })
		},
		"pause or resume": func(r *rapid.T) {
			m.db.Do(m.t, `UPDATE {prefix}schedule SET state = CASE state WHEN 'active' THEN 'paused' ELSE 'active' END WHERE name = :name`,
				dialect.Args{"name": name(r)})
		},
	}
}

// check compares the tables with the books.
func (m *model) check(r *rapid.T) {
	lives := m.past
	for id, s := range m.schedules() {
		if s.State == "failed" {
			r.Errorf("%s has failed: %s", s.Name, s.Reason)
		}
		l := m.open[id]
		l.end = s.Due
		lives = append(lives, l)
	}
	all := allRuns(m.t, m.db, "")
	account(r, all, lives)
	ends := 0
	for _, run := range all {
		if want, wrote := m.recorded[run.ID]; wrote && run.State != want {
			r.Errorf("run %d was recorded as %s, and is %s", run.ID, want, run.State)
		} else if wrote {
			ends++
		}
		if run.State == "ok" && m.recorded[run.ID] != "ok" {
			r.Errorf("run %d is ok, and nobody has said so", run.ID)
		}
	}
	if ends != len(m.recorded) {
		r.Errorf("%d outcomes were recorded, and %d are there", len(m.recorded), ends)
	}
}

// Two daemons and a few people take random steps, and each slot of each
// schedule is accounted for exactly once.
func TestModel(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		rapid.Check(t, func(r *rapid.T) {
			db.Do(t, `DELETE FROM {prefix}schedule`, nil)
			db.Do(t, `DELETE FROM {prefix}run`, nil)
			m := &model{t: t, db: db, open: map[int64]life{}, recorded: map[int64]string{}}
			m.crash(0)
			m.crash(1)
			m.changed(func() {
				for _, name := range modelNames {
					add(t, db, name, "@every 10s")
				}
				imported(t, db, "file", entry("x", "@every 10s", "true"), entry("y", "@every 15s", "true"))
			})
			r.Repeat(m.actions())
			m.check(r)
			// In the end all comes right.
			db.Do(t, `UPDATE {prefix}schedule SET state = 'active'`, nil)
			db.Advance(t, time.Minute)
			settle(t, daemon(t, db, Options{}))
			m.checkEnd(r)
		})
	})
}

// checkEnd is check after a healthy daemon had time for all that was left.
func (m *model) checkEnd(r *rapid.T) {
	for _, run := range allRuns(m.t, m.db, "") {
		if run.State == "ok" && m.recorded[run.ID] == "" {
			m.recorded[run.ID] = "ok" // by the last daemon
		}
	}
	if left := m.db.List(m.t, `SELECT schedule, state FROM {prefix}run WHERE next_exec IS NOT NULL`, nil); len(left) > 0 {
		r.Errorf("in the end there are %v", left)
	}
	m.check(r)
}
