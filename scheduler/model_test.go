package scheduler

import (
	"cmp"
	"errors"
	"flag"
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

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
	fences   map[int64]int64  // the last of each schedule, by its id
	cut      bool             // a was deleted, so that a run of it that ended later started nothing
}

// policies are those of the schedules that people create; a's runs start m.
var policies = map[string]Policy{
	"a": {OnSuccess: "m"},
	"b": {Overlap: "queue", Missed: "all", MissedWindow: time.Minute, MaxAttempts: 3, RetryDelay: 5 * time.Second, RetryPastNext: true},
	"c": {Overlap: "allow", MaxAttempts: 2, RetryDelay: 5 * time.Second},
	"d": {Overlap: "replace", MaxAttempts: 2, RetryDelay: 5 * time.Second, RetryPastNext: true},
}

var modelNames = []string{"a", "b", "c", "d"}

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
		if _, known := m.open[id]; !known && s.Spec != "@manual" {
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
	if cause == guardian.Stopped {
		e.stopFor(stop{cause: drained}, true)
	}
	m.end(who, e, guardian.Result{Cause: cause, ExitCode: rapid.IntRange(0, 1).Draw(r, "code")})
}

func (m *model) end(who int, e *execution, result guardian.Result) {
	o := outcomeOf(e, result)
	ended(m.t, m.daemons[who], e, result)
	if !o.back && !o.none && !e.isLost() {
		m.recorded[e.id] = o.state
	}
}

// obey lets a daemon ask which runs it is to end, and end them.
func (m *model) obey(r *rapid.T, who int) {
	if err := m.daemons[who].cancelRequests(m.t.Context()); err != nil {
		r.Fatal(err)
	}
	m.held[who] = slices.DeleteFunc(m.held[who], func(e *execution) bool {
		if e.why().cause != cancelled {
			return false
		}
		m.end(who, e, guardian.Result{Cause: guardian.Stopped, ExitCode: 143})
		return true
	})
}

// begun records what a daemon has begun, and checks the fences.
func (m *model) begun(r *rapid.T, who int, held []*execution) {
	m.held[who] = append(m.held[who], held...)
	slices.SortFunc(held, func(a, b *execution) int { return cmp.Compare(a.fence, b.fence) })
	for _, e := range held {
		if e.fence <= m.fences[e.what.ID] {
			r.Errorf("%s has fence %d after %d", e.schedule, e.fence, m.fences[e.what.ID])
		}
		m.fences[e.what.ID] = e.fence
	}
}

// plan lets a daemon plan resumed schedules: slots that came meanwhile are skipped, and others
// begin.
func (m *model) plan(r *rapid.T, who int) {
	before := m.schedules()
	unplanned := m.db.List(m.t, `SELECT id FROM {prefix}schedule WHERE state = 'active' AND next_exec IS NULL`, nil)
	if n, err := m.daemons[who].planNew(m.t.Context(), "default"); err != nil || n != len(unplanned) {
		r.Fatalf("%d of %d were planned: %v", n, len(unplanned), err)
	}
	now, after := m.now(), m.schedules()
	for id, s := range before {
		if !slices.Contains(unplanned, strconv.FormatInt(id, 10)) {
			continue
		}
		l := m.open[id]
		for l.end = s.Due; !l.end.After(now); {
			l.end = l.end.Add(l.every)
		}
		m.past = append(m.past, l)
		m.open[id] = life{name: s.Name, first: after[id].Due, every: l.every}
	}
}

// one at a time: of no schedule but those that allow it do two runs run.
func (m *model) oneAtATime(r *rapid.T) {
	two := m.db.List(m.t, `SELECT schedule, COUNT(*) FROM {prefix}run
		WHERE state = 'running' AND schedule NOT IN ('c', 'm') GROUP BY schedule HAVING COUNT(*) > 1`, nil)
	if len(two) > 0 {
		r.Errorf("these run at a time: %v", two)
	}
}

// starts lets a person run something that may not be there, or is busy.
func (m *model) starts(r *rapid.T, name string) {
	m.db.Advance(m.t, time.Millisecond) // no two at a moment, and none at a slot's
	if _, err := Start(m.t.Context(), m.db.DB, name); err != nil && !errors.Is(err, ErrBusy) && !errors.Is(err, ErrNotFound) {
		r.Error(err)
	}
}

// backfills runs the newest slots again. Those that no daemon has claimed yet
// are left out: see TestAStretchThatBeginsWithASlotThatHasARun.
func (m *model) backfills(r *rapid.T, name string) {
	now := m.now()
	for _, s := range m.schedules() {
		if to := s.Due.Add(-time.Microsecond); s.Name == name && !to.After(now) {
			if _, err := Backfill(m.t.Context(), m.db.DB, name, to.Add(-20*time.Second), to, false); err != nil {
				r.Error(err)
			}
		}
	}
}

// cancels asks for the end of a run that has not ended, if there is one.
func (m *model) cancels(r *rapid.T) {
	var ids []int64
	for _, run := range allRuns(m.t, m.db, "") {
		if !run.Next.IsZero() {
			ids = append(ids, run.ID)
		}
	}
	if len(ids) == 0 {
		return
	}
	id := rapid.SampledFrom(ids).Draw(r, "run")
	if _, err := Cancel(m.t.Context(), m.db.DB, id, "not wanted"); err != nil {
		r.Error(err)
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
		m.begun(r, i, claimed(m.t, m.daemons[i], rapid.IntRange(1, 6).Draw(r, "limit")))
	}
	takeOver := func(r *rapid.T) {
		i := who(r)
		m.begun(r, i, takenOver(m.t, m.daemons[i], rapid.IntRange(1, 6).Draw(r, "limit")))
	}
	// Both daemons do all that there is to do, a few seconds later: so much happens.
	tick := func(r *rapid.T) {
		m.db.Advance(m.t, time.Duration(rapid.IntRange(1, 15).Draw(r, "seconds"))*time.Second)
		for i, s := range m.daemons {
			m.begun(r, i, takenOver(m.t, s, 100))
			m.begun(r, i, claimed(m.t, s, 100))
		}
	}
	return map[string]func(*rapid.T){
		"tick": tick, "tick again": tick, "tick once more": tick, "tick for ever": tick,
		"advance": advance, "claim": claim, "take over": takeOver,
		"plan":     func(r *rapid.T) { m.plan(r, who(r)) },
		"obey":     func(r *rapid.T) { m.obey(r, who(r)) },
		"start":    func(r *rapid.T) { m.starts(r, name(r)) },
		"backfill": func(r *rapid.T) { m.backfills(r, name(r)) },
		"cancel":   func(r *rapid.T) { m.cancels(r) },
		"":         m.oneAtATime,
		"renew": func(r *rapid.T) {
			if err := renewAll(m.t, m.daemons[who(r)]); err != nil {
				r.Fatal(err)
			}
		},
		"finish":     func(r *rapid.T) { m.ends(r, guardian.Exited) },
		"finish too": func(r *rapid.T) { m.ends(r, guardian.Exited) },
		"hand back":  func(r *rapid.T) { m.ends(r, guardian.Stopped) },
		"deadline":   func(r *rapid.T) { m.ends(r, guardian.Deadline) },
		"crash":      func(r *rapid.T) { m.crash(who(r)) },
		"add": func(r *rapid.T) {
			s := Schedule{Name: name(r), Spec: spec(r), Command: "true"}
			s.Policy = policies[s.Name]
			m.changed(func() { _ = Add(m.t.Context(), m.db.DB, s) }) // there may be one
		},
		"delete": func(r *rapid.T) {
			n := name(r)
			m.changed(func() { _ = Delete(m.t.Context(), m.db.DB, n) }) // there may be none
			m.cut = m.cut || n == "a"
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
		"pause":  func(r *rapid.T) { _ = Pause(m.t.Context(), m.db.DB, name(r), "for a while") }, // there may be none
		"resume": func(r *rapid.T) { m.resumeAll(r) },
	}
}

func (m *model) resumeAll(r *rapid.T) {
	for _, s := range m.schedules() {
		if err := Resume(m.t.Context(), m.db.DB, s.Name); err != nil {
			r.Error(err)
		}
	}
}

// check compares the tables with the books.
func (m *model) check(r *rapid.T) {
	lives := m.past
	for id, s := range m.schedules() {
		if s.State == "failed" {
			r.Errorf("%s has failed: %s", s.Name, s.Reason)
		}
		if l, slots := m.open[id]; slots {
			l.end = s.Due
			lives = append(lives, l)
		}
	}
	all := allRuns(m.t, m.db, "")
	accountAll(r, all, lives, m.cut)
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

// accountAll is account for all policies: a slot may have further attempts after
// failures, and be run again by a person; and there are runs at no slot, which
// a person or another schedule has started.
func accountAll(r *rapid.T, all []Run, lives []life, cut bool) {
	covered := map[string]map[int64]int{}
	for _, l := range lives {
		if covered[l.name] == nil {
			covered[l.name] = map[int64]int{}
		}
		for slot := l.first; slot.Before(l.end); slot = slot.Add(l.every) {
			covered[l.name][slot.UnixMicro()] = 0
		}
	}
	well, started := map[int64]int{}, map[int64]int{} // runs of a that were ok, and of m that followed, by slot
	for i, run := range all {
		slots, due := covered[run.Schedule], run.Due.UnixMicro()
		_, known := slots[due]
		switch {
		case run.State == "skipped" || run.State == "missed":
			n := int64(0)
			for slot := range slots {
				if slot >= due && slot <= run.To.UnixMicro() {
					slots[slot]++
					n++
				}
			}
			if _, ends := slots[run.To.UnixMicro()]; n != run.Slots || !known || !ends || run.Attempt != 1 {
				r.Errorf("%s: range %v to %v, attempt %d: says %d slots, and has %d", run.Schedule, run.Due, run.To, run.Attempt, run.Slots, n)
			}
		case run.Attempt == 1 && run.Cause == "slot":
			slots[due]++
			if !known {
				r.Errorf("%s %v: a run at no slot", run.Schedule, run.Due)
			}
		case run.Attempt == 1 && run.Cause == "chain":
			started[due]++
		}
		if run.Schedule == "a" && run.State == "ok" {
			well[due]++
		}
		before := i > 0 && all[i-1].Schedule == run.Schedule && all[i-1].Due.Equal(run.Due)
		switch {
		case !before && run.Attempt != 1, before && run.Attempt != all[i-1].Attempt+1:
			r.Errorf("%s %v: attempt %d out of order", run.Schedule, run.Due, run.Attempt)
		case before && run.Cause != "backfill" && !slices.Contains([]string{"lost", "retry", "failed"}, all[i-1].State):
			r.Errorf("%s %v: attempt %d is %s, and there is another", run.Schedule, run.Due, run.Attempt-1, all[i-1].State)
		case before && slices.Contains([]string{"ok", "waiting", "running"}, all[i-1].State):
			r.Errorf("%s %v: attempt %d is %s, and was run again", run.Schedule, run.Due, run.Attempt-1, all[i-1].State)
		}
	}
	for name, slots := range covered {
		for slot, n := range slots {
			if n != 1 {
				r.Errorf("%s: slot %v is covered %d times", name, instantOf(slot), n)
			}
		}
	}
	if cut {
		maps.DeleteFunc(well, func(due int64, _ int) bool { return started[due] == 0 })
	}
	if !maps.Equal(well, started) {
		r.Errorf("runs of a were ok at %v, and m was started for %v", well, started)
	}
}

// Two daemons and a few people take random steps, and each slot of each
// schedule is accounted for exactly once; no two runs run at a time that must
// not; what follows is started once; and fences grow.
func TestModel(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		left, failed := 1_000_000, false
		if flag.Lookup("rapid.checks").Value.String() == "20" { // what TestMain sets: each takes a while
			left = 4
		}
		rapid.Check(t, func(r *rapid.T) {
			if left--; left < 0 && !failed {
				return
			}
			defer func() { failed = failed || r.Failed() }()
			db.Do(t, `DELETE FROM {prefix}schedule`, nil)
			db.Do(t, `DELETE FROM {prefix}run`, nil)
			m := &model{t: t, db: db, open: map[int64]life{}, recorded: map[int64]string{}, fences: map[int64]int64{}}
			m.crash(0)
			m.crash(1)
			m.changed(func() {
				addWith(t, db, "m", "@manual", Policy{Overlap: "allow"})
				for _, name := range modelNames {
					addWith(t, db, name, "@every 10s", policies[name])
				}
				imported(t, db, "file", entry("x", "@every 10s", "true"), entry("y", "@every 15s", "true"))
			})
			r.Repeat(m.actions())
			m.check(r)
			// In the end all comes right.
			m.resumeAll(r)
			m.plan(r, 0)
			for range 3 {
				db.Advance(t, 31*time.Second)
				settle(t, daemon(t, db, Options{}))
			}
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
