package faults

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/dbcron/dbcron/scheduler"
)

// account goes through the tables and fails the test unless each slot, from the
// first of each schedule to the one that is next, has exactly one outcome: a
// chain of attempts of which only the last may have ended by itself, or a place
// in one stretch of slots that did not run.
func (r *rig) account() {
	t := r.t
	all, err := scheduler.History(t.Context(), r.db.DB, "", 1_000_000)
	if err != nil {
		t.Fatal(err)
	}
	byName := map[string][]scheduler.Run{}
	states, slots := map[string]int64{}, int64(0)
	for _, run := range all {
		byName[run.Schedule] = append(byName[run.Schedule], run)
		states[run.State] += max(1, run.Slots)
	}
	schedules, err := scheduler.List(t.Context(), r.db.DB, "", 1000)
	if err != nil {
		t.Fatal(err)
	}
	if len(schedules) != 50 {
		t.Errorf("there are %d schedules, want 50", len(schedules))
	}
	for _, s := range schedules {
		n, err := covered(s, byName[s.Name])
		slots += n
		if err != nil {
			t.Errorf("%s: %v", s.Name, err)
		}
	}
	if slots == 0 || states["ok"] == 0 {
		t.Error("nothing has run")
	}
	var table strings.Builder
	fmt.Fprintf(&table, "%d daemons, %d schedules, %v: %d slots, each accounted for once;", r.plan.daemons, len(schedules), r.plan.end, slots)
	for _, state := range slices.Sorted(maps.Keys(states)) {
		fmt.Fprintf(&table, " %s %d", state, states[state])
	}
	t.Log(table.String())
}

// covered returns how many slots a schedule has had, and what is wrong with
// what the runs say of them.
func covered(s scheduler.Schedule, runs []scheduler.Run) (int64, error) {
	plan, err := s.Slots()
	if err != nil {
		return 0, err
	}
	slices.SortFunc(runs, func(a, b scheduler.Run) int {
		if c := a.Due.Compare(b.Due); c != 0 {
			return c
		}
		return a.Attempt - b.Attempt
	})
	var slots int64
	var next time.Time // the slot that the following run must be about
	for i := 0; i < len(runs); i++ {
		run := runs[i]
		if !next.IsZero() && !run.Due.Equal(next) {
			return slots, fmt.Errorf("after slot %d comes %v, want %v", slots, run.Due, next)
		}
		last := run.Due
		switch run.State {
		case "skipped", "missed":
			if n := 1 + int64(plan.Count(run.Due, run.To, 1_000_000)); n != run.Slots {
				return slots, fmt.Errorf("the stretch from %v to %v has %d slots, and says %d", run.Due, run.To, n, run.Slots)
			}
			last, slots = run.To, slots+run.Slots
		default:
			for attempt := 1; ; attempt++ {
				if runs[i].Attempt != attempt {
					return slots, fmt.Errorf("%v: attempt %d comes in place %d", run.Due, runs[i].Attempt, attempt)
				}
				if i+1 == len(runs) || !runs[i+1].Due.Equal(run.Due) {
					break
				}
				if runs[i].State != "lost" && runs[i].State != "retry" {
					return slots, fmt.Errorf("%v: attempt %d is %s, and yet there is another", run.Due, attempt, runs[i].State)
				}
				i++
			}
			if state := runs[i].State; state != "ok" {
				return slots, fmt.Errorf("%v: attempt %d, the last one, is %s (%s)", run.Due, runs[i].Attempt, state, runs[i].Error)
			}
			slots++
		}
		var ok bool
		if next, ok = plan.Next(last); !ok {
			return slots, fmt.Errorf("no slot after %v", last)
		}
	}
	if !next.IsZero() && !next.Equal(s.Due) {
		return slots, fmt.Errorf("the last run is before %v, and the next slot is %v", next, s.Due)
	}
	return slots, nil
}
