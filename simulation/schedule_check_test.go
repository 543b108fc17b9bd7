package simulation

import (
	"slices"
	"strings"
	"time"

	"github.com/dbcron/dbcron/scheduler"
)

// Check looks whether each slot has an outcome, and one only, whether the functions that ran are those that
// the history has, and whether they overlapped where they must not.
func (s *scheduleWork) Check(w *World) error {
	jobs, err := s.countJobs(w)
	if err != nil {
		return err
	}
	for _, name := range s.order {
		one := s.given[name]
		runs, err := scheduler.History(w.Free(), w.Operator, name, 1_000_000)
		if err != nil {
			return err
		}
		slices.SortFunc(runs, func(a, b scheduler.Run) int {
			if c := a.Due.Compare(b.Due); c != 0 {
				return c
			}
			return a.Attempt - b.Attempt
		})
		if one.KeepRuns > 0 {
			one.runs = s.cut(w, one, runs)
		}
		s.checkSlots(w, one, runs)
		s.checkTimes(w, one, runs)
		s.checkFunctions(w, one, runs)
		s.checkOverlap(w, one)
		if one.Kind == "job" {
			s.checkJobs(w, one, runs, jobs[name])
		}
	}
	return nil
}

// cut looks whether the history has as many runs as it is to keep, and returns the stretches that it may know of.
func (s *scheduleWork) cut(w *World, one *simSchedule, runs []scheduler.Run) (known []*stretch) {
	if len(runs) == 0 {
		w.Violate("history", about(one), "%s is to keep %d runs, and has none", one.Name, one.KeepRuns)
		return nil
	}
	oldest := runs[0].Due
	for _, st := range one.runs {
		if !st.due.Before(oldest) {
			known = append(known, st)
		}
	}
	if len(known) < len(one.runs) {
		w.count("a history is cut")
		if len(runs) < one.KeepRuns {
			w.Violate("history", about(one), "%s is to keep %d runs, and has %d of more", one.Name, one.KeepRuns, len(runs))
		}
	}
	return known
}

// checkTimes looks for runs that began when they must not: before the delay of their slot, or later than they may.
func (s *scheduleWork) checkTimes(w *World, one *simSchedule, runs []scheduler.Run) {
	last := time.Time{}
	for _, r := range runs {
		if r.Cause != "slot" || r.Attempt > 1 || r.Due.Equal(last) {
			continue
		}
		last = r.Due
		switch late := r.Started.Sub(r.Due); {
		case w.Stepped() || one.MissedWindow == 0 || r.State == "skipped":
		case r.State == "missed":
			w.count("a slot is later than it may be")
			if now := r.Finished.Sub(r.To); now < one.MissedWindow && one.Missed == "all" {
				w.Violate("missed", about(one), "%s: slot %v is missed %v after it, and may be %v late", one.Name, r.To.Format(time.TimeOnly), now, one.MissedWindow)
			}
		case one.Missed != "all" && (one.Overlap == "allow" || one.Overlap == "forbid") && !r.Started.IsZero() && late > one.MissedWindow+one.Jitter+10*time.Second:
			w.Violate("late slot", about(one), "%s: slot %v began %v after it, and may be %v late", one.Name, r.Due.Format(time.TimeOnly), late, one.MissedWindow)
		}
		if late := r.Started.Sub(r.Due); one.Jitter > 0 && !r.Started.IsZero() && late > one.every/20 {
			w.count("a slot waits for its jitter")
		}
	}
}

// checkSlots looks for slots without an outcome, or with two.
func (s *scheduleWork) checkSlots(w *World, one *simSchedule, runs []scheduler.Run) {
	next, slots := time.Time{}, 0
	for i, r := range runs {
		w.mu.Lock()
		w.done["runs "+r.State] += int(max(1, r.Slots))
		w.mu.Unlock()
		s.reached(w, r)
		if i > 0 && r.Due.Equal(runs[i-1].Due) && r.Cause == runs[i-1].Cause {
			before := runs[i-1]
			again := before.State == "lost" || before.State == "retry" || before.State == "failed" && before.Attempt < max(1, one.MaxAttempts)+w.knobs["daemons"]*100
			if r.Attempt != before.Attempt+1 || !again {
				w.Violate("two outcomes", about(one), "%s: slot %v has attempt %d (%s) after attempt %d (%s)", one.Name,
					r.Due.Format(time.TimeOnly), r.Attempt, r.State, before.Attempt, before.State)
			}
			continue
		}
		if i > 0 && (runs[i-1].State == "lost" || runs[i-1].State == "retry") {
			w.Violate("no outcome", about(one), "%s: the last attempt at slot %v is %s", one.Name, runs[i-1].Due.Format(time.TimeOnly), runs[i-1].State)
		}
		if r.Cause != "slot" {
			continue
		}
		inStep := slots > 1 || slots == 1 && one.FirstRun == "next" // a first run now is at no whole second
		slots++
		if inStep && !r.Due.Equal(next) {
			w.Violate("no outcome", about(one), "%s: slot %v should come, and %v comes (%s)", one.Name, next.Format(time.TimeOnly), r.Due.Format(time.TimeOnly), r.State)
		}
		next = r.Due.Add(one.every)
		if r.State == "skipped" || r.State == "missed" {
			next = r.To.Add(one.every)
		}
	}
	if !next.IsZero() && !next.After(one.Ends) {
		w.Violate("no outcome", about(one), "%s has ended, and slot %v has no outcome", one.Name, next.Format(time.TimeOnly))
	}
}

// reached counts the situations that a run shows.
func (s *scheduleWork) reached(w *World, r scheduler.Run) {
	switch {
	case r.State == "lost":
		w.count("a run is lost")
	case r.State == "retry":
		w.count("a run is handed back")
	case r.State == "skipped":
		w.count("a slot is skipped")
	case r.State == "missed":
		w.count("a slot is missed")
	case r.State == "cancelled" && strings.HasPrefix(r.Error, "replaced"):
		w.count("a run is replaced")
	case r.Attempt == 1 && r.State == "ok" && r.Started.Sub(r.Due) > 2*time.Second:
		w.count("a run has waited for the one before")
	}
}

func about(one *simSchedule) []string {
	return []string{one.Name + ":", one.Name + " ", `"` + one.Name + `"`}
}

// checkFunctions compares the functions that ran with the history.
func (s *scheduleWork) checkFunctions(w *World, one *simSchedule, runs []scheduler.Run) {
	byID := map[int64]scheduler.Run{}
	for _, r := range runs {
		byID[r.ID] = r
	}
	seen := map[int64]*stretch{}
	for _, st := range one.runs {
		r, known := byID[st.id]
		switch {
		case !known:
			w.Violate("phantom", about(one), "%s: run %d was begun, and is not in the history", one.Name, st.id)
		case seen[st.id] != nil:
			w.Violate("doubled", about(one), "%s: run %d was begun by %s and by %s", one.Name, st.id, seen[st.id].who, st.who)
		case r.State == "lost" && st.ended && st.err == nil:
			w.count("a run is taken over whose function had just ended")
		case r.State == "ok" && st.ended && st.err != nil:
			w.Violate("outcome", about(one), "%s: run %d is ok, and its function returned: %v", one.Name, st.id, st.err)
		}
		seen[st.id] = st
	}
	for _, r := range runs {
		if one.Kind == "func" && r.State == "ok" && seen[r.ID] == nil {
			w.Violate("phantom", about(one), "%s: run %d is ok, and no function ran", one.Name, r.ID)
		}
	}
}

// checkOverlap looks for two functions that ran at a time. If the server's clock was set, that may be.
func (s *scheduleWork) checkOverlap(w *World, one *simSchedule) {
	if one.Overlap == "allow" || w.Stepped() {
		return
	}
	all := slices.Clone(one.runs)
	slices.SortStableFunc(all, func(a, b *stretch) int { return a.from.Compare(b.from) })
	for i := 1; i < len(all); i++ {
		if a, b := all[i-1], all[i]; b.from.Before(a.to) {
			w.Violate("overlap", about(one), "%s: run %d on %s began %v before the end of run %d on %s", one.Name, b.id, b.who, a.to.Sub(b.from), a.id, a.who)
		}
		if a, b := all[i-1], all[i]; b.fence <= a.fence {
			w.Violate("fence", about(one), "%s: run %d has the fence %d, after run %d had %d", one.Name, b.id, b.fence, a.id, a.fence)
		}
	}
}

// countJobs counts the jobs that were enqueued, by schedule and slot.
func (s *scheduleWork) countJobs(w *World) (map[string]map[string]int, error) {
	all := map[string]map[string]int{}
	rows, err := w.Operator.Pool().QueryContext(w.Free(),
		`SELECT json_extract(payload, '$.schedule'), json_extract(payload, '$.due') FROM dbcron_job WHERE id > 0`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var name, due string
		if err := rows.Scan(&name, &due); err != nil {
			return nil, err
		}
		if all[name] == nil {
			all[name] = map[string]int{}
		}
		all[name][due]++
	}
	return all, rows.Err()
}

// checkJobs compares the jobs of a schedule with its slots: each slot that is ok has one.
func (s *scheduleWork) checkJobs(w *World, one *simSchedule, runs []scheduler.Run, jobs map[string]int) {
	for _, r := range runs {
		due := r.Due.UTC().Format(time.RFC3339Nano)
		want := 0
		if r.State == "ok" {
			want = 1
		}
		if got := jobs[due]; got != want {
			w.Violate(map[bool]string{true: "lost", false: "doubled"}[got < want], about(one), "%s: slot %v is %s, and has %d jobs", one.Name, due, r.State, got)
		}
		delete(jobs, due)
	}
	for due := range jobs {
		if at, err := time.Parse(time.RFC3339Nano, due); err == nil && one.KeepRuns > 0 && len(runs) > 0 && at.Before(runs[0].Due) {
			continue // its run is no longer kept
		}
		w.Violate("phantom", about(one), "%s: a job of slot %s, which has no run", one.Name, due)
	}
}
