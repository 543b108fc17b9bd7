package scheduler

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/guardian"
)

// When a run has ended well, or has failed for good, the schedule that follows
// is started once, for the same slot.
func TestChain(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		follow := Policy{OnSuccess: "well", OnFailure: "badly", MaxAttempts: 2, RetryDelay: time.Second}
		for _, name := range []string{"bad", "cancelled", "crash", "good", "late", "retried"} {
			addWith(t, db, name, "@every 1m", follow)
		}
		addWith(t, db, "well", "@manual", Policy{Overlap: "allow"})
		addWith(t, db, "badly", "@manual", Policy{Overlap: "allow"})
		s := daemon(t, db, Options{MaxCrashes: 2})
		result := map[string]guardian.Result{
			"bad": {Cause: guardian.Exited, ExitCode: 1}, "good": {Cause: guardian.Exited}, "late": {Cause: guardian.Killed, ExitCode: 137},
			"retried": {Cause: guardian.Exited, ExitCode: 1}, "cancelled": {Cause: guardian.Stopped, ExitCode: 143},
		}
		db.Advance(t, time.Minute)
		held := claimed(t, s, 10)
		for range 3 {
			for _, e := range held {
				switch e.schedule {
				case "crash":
					continue
				case "late":
					e.stopFor(stop{timedOut, "too long"}, false)
				}
				ended(t, s, e, result[e.schedule])
			}
			result["retried"] = guardian.Result{Cause: guardian.Exited}
			started := strings.Join(slices.Concat(rows(t, db, "well"), rows(t, db, "badly")), ", ")
			if len(held) == 6 && started != "60 1 waiting" { // by good
				t.Errorf("after the first attempts: %s", started)
			}
			db.Advance(t, 2*time.Second)
			held = slices.DeleteFunc(takenOver(t, s, 10), func(e *execution) bool {
				if e.cause == "chain" {
					finished(t, s, e, 0)
				}
				return e.cause == "chain"
			})
		}
		// One slot starts each once, though several schedules lead to it.
		wantRows(t, db, "well", "60 1 ok")
		wantRows(t, db, "badly", "60 1 ok")
		wantRows(t, db, "retried", "60 1 failed", "60 2 ok")
		wantRows(t, db, "cancelled", "60 1 cancelled")
		if r := allRuns(t, db, "well")[0]; r.Cause != "chain" || r.Fence != 1 {
			t.Errorf("started %+v", r)
		}
		// What daemons die of has failed for good, when they do no more.
		db.Do(t, `DELETE FROM {prefix}run WHERE schedule = 'badly'`, nil)
		db.Advance(t, 30*time.Second)
		takenOver(t, s, 10)
		wantRows(t, db, "badly")
		db.Advance(t, 30*time.Second)
		none(t, slices.DeleteFunc(takenOver(t, s, 10), func(e *execution) bool { return e.schedule != "crash" }))
		wantRows(t, db, "crash", "60 1 lost", "60 2 failed")
		wantRows(t, db, "badly", "60 1 waiting")
	})
}

// A chain that leads back to its start ends there; one to nowhere does no harm; one to a paused
// schedule is recorded; and the next schedule runs after what is under way.
func TestChainsEnd(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		for name, next := range map[string]string{
			"a": "b", "b": "c", "c": "a", "nowhere": "no such", "self": "self",
			"to busy": "busy", "to paused": "paused",
		} {
			addWith(t, db, name, map[bool]string{true: "@manual", false: "@every 1m"}[name == "b" || name == "c"], Policy{OnSuccess: next})
		}
		addWith(t, db, "paused", "@manual", Policy{})
		addWith(t, db, "busy", "@every 50s", Policy{})
		if err := Pause(t.Context(), db.DB, "paused", ""); err != nil {
			t.Fatal(err)
		}
		s := daemon(t, db, Options{Lease: time.Hour})
		db.Advance(t, 50*time.Second)
		busy := one(t, claimed(t, s, 10))
		for range 2 {
			db.Advance(t, at(time.Minute).Sub(nowOf(t, db)))
			settleBut(t, s, "busy")
		}
		for _, name := range []string{"a", "b", "c", "nowhere", "self", "to busy", "to paused"} {
			wantRows(t, db, name, "60 1 ok")
		}
		wantRows(t, db, "paused", "60 1 cancelled")
		wantRows(t, db, "busy", "50 1 running", "60 1 waiting")
		finished(t, s, busy, 0)
		db.Advance(t, 10*time.Second)
		settle(t, s)
		wantRows(t, db, "busy", "50 1 ok", "60 1 ok")
		// A second round, by hand: for its own slot.
		db.Advance(t, 10*time.Second)
		if _, err := Start(t.Context(), db.DB, "b"); err != nil {
			t.Fatal(err)
		}
		settle(t, s)
		for _, name := range []string{"a", "b", "c"} {
			wantRows(t, db, name, "60 1 ok", "80 1 ok")
		}
		for name, cause := range map[string]string{"a": "chain", "b": "hand", "c": "chain"} {
			if r := allRuns(t, db, name)[1]; r.Cause != cause {
				t.Errorf("%s was started by %s", name, r.Cause)
			}
		}
	})
}

// settleBut is settle while one schedule has a run under way.
func settleBut(t *testing.T, s *Scheduler, name string) {
	t.Helper()
	for range 8 {
		for _, e := range append(takenOver(t, s, 100), claimed(t, s, 100)...) {
			if e.schedule != name {
				finished(t, s, e, 0)
			}
		}
	}
}

// A slot that both a chain and the schedule's own times name is run once.
func TestChainToASlot(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		addWith(t, db, "first", "* * * * *", Policy{OnSuccess: "then"})
		addWith(t, db, "then", "* * * * *", Policy{Jitter: time.Second})
		s := daemon(t, db, Options{})
		for range 3 {
			db.Advance(t, time.Minute)
			settle(t, s) // the chain is first
			db.Advance(t, time.Second)
			settle(t, s)
			db.Advance(t, -time.Second)
		}
		wantRows(t, db, "then", "60 1 ok", "120 1 ok", "180 1 ok")
		if due := stored(t, db, "then").Due; !due.Equal(at(4 * time.Minute)) {
			t.Errorf("the next slot is %s", seconds(due))
		}
	})
}

// However the connection is cut while an outcome is recorded: the outcome, the
// retry, the count of failures and what follows are written once, or the next
// daemon does it.
func TestFaultsInConclude(t *testing.T) {
	clockedDialects(t, func(t *testing.T, db *dbtest.DB) {
		var s *Scheduler
		var held []*execution
		var name string
		what := map[string]map[string]string{
			"bad":     {"on_failure": "'after'", "max_failures": "4", "failures": "3"},
			"line":    {"overlap": "'queue'", "on_success": "'after'", "max_failures": "5", "failures": "3"},
			"retries": {"max_attempts": "2", "retry_delay": "'1m'", "on_failure": "'after'"},
		}
		prepare := func() {
			columns := map[string]string{"spec": "'@every 10m'", "due_at": "{now}", "next_exec": "{now}", "name": "'" + name + "'"}
			maps.Copy(columns, what[name])
			byHand(t, db, columns)
			byHand(t, db, map[string]string{"name": "'after'", "spec": "'@manual'"})
			s = daemon(t, db, Options{Lease: 30 * time.Minute})
			held = claimed(t, s, 10)
			if name == "line" {
				db.Advance(t, 10*time.Minute)
				none(t, claimed(t, s, 10))
			}
		}
		for name = range what {
			faults(t, db, prepare, func(broken *dbtest.DB, fault string) {
				e, r := one(t, held), guardian.Result{Cause: guardian.Exited, ExitCode: map[string]int{"bad": 1, "retries": 1}[name]}
				s.db = broken.DB
				if _, err := s.writeOutcome(t.Context(), e, outcomeOf(e, r), r, false); err != nil { // record tries again, later
					_, err = s.writeOutcome(t.Context(), e, outcomeOf(e, r), r, false)
					if err != nil {
						t.Error(err)
					}
				}
				s.db = db.DB
				want := map[string]string{
					"bad":     "bad failed, after waiting; 4 failed",
					"line":    "line ok, line waiting, after waiting; 0 active",
					"retries": "retries failed, retries waiting; 0 active",
				}[name]
				var got []string
				for _, r := range append(allRuns(t, db, name), allRuns(t, db, "after")...) {
					got = append(got, r.Schedule+" "+r.State)
				}
				job := stored(t, db, name)
				if text := fmt.Sprintf("%s; %d %s", strings.Join(got, ", "), job.Failures, job.State); text != want {
					t.Errorf("%s: %s: %s, want %s", name, fault, text, want)
				}
				if name == "line" {
					takenOver(t, s, 10) // it was released
					wantNoneWaits(t, db, name)
				}
			})
		}
	})
}

// However the connection is cut while runs that wait are begun, lost ones end,
// and what follows from that is written: it is done once, and no run is
// forgotten.
func TestFaultsInTheLine(t *testing.T) {
	clockedDialects(t, func(t *testing.T, db *dbtest.DB) {
		var base time.Duration
		prepare := func() {
			base = nowOf(t, db).Sub(at(0))
			byHand(t, db, map[string]string{
				"name": "'line'", "spec": "'@every 1h'", "due_at": "{now + 3600000000}", "next_exec": "{now + 3600000000}",
				"overlap": "'queue'", "on_failure": "'after'", "max_failures": "9", "fence": "1",
			})
			byHand(t, db, map[string]string{"name": "'after'", "spec": "'@manual'", "next_exec": "{now + 3600000000}", "tag": "'others'"})
			db.Do(t, `INSERT INTO {prefix}run (schedule, due_at, attempt, state, fence, exec_by, claim, next_exec) VALUES
				('line', {now}, 1, 'running', 1, 'dead', 'token', {now}), ('line', {now + 1000000}, 1, 'waiting', 0, '', NULL, {now})`, nil)
		}
		faults(t, db, prepare, func(broken *dbtest.DB, what string) {
			s := daemon(t, broken, Options{MaxCrashes: 1})
			runs, _, err := s.takeOver(t.Context(), "default", 10)
			if err != nil && !errors.Is(err, dbtest.ErrBroken) {
				t.Error(err)
			}
			s.db = db.DB
			for _, e := range hold(s, runs) {
				finished(t, s, e, 0)
			}
			db.Advance(t, 31*time.Second)
			s = daemon(t, db, Options{MaxCrashes: 1})
			eventually(t, "all runs have ended", func() bool { // a connection that was cut may hold locks for a moment
				for _, e := range takenOver(t, s, 10) {
					finished(t, s, e, 0)
				}
				return len(db.List(t, `SELECT id FROM {prefix}run WHERE schedule = 'line' AND next_exec IS NOT NULL`, nil)) == 0
			})
			for name, want := range map[string]string{"line": "0 failed, 1 ok", "after": "0 waiting"} {
				var got []string
				fence := int64(0)
				for _, r := range allRuns(t, db, name) {
					if r.State != "retry" { // the answer to a claim was lost
						got = append(got, seconds(r.Due.Add(-base))+" "+r.State)
					}
					if name == "line" && r.Fence <= fence {
						t.Errorf("%s: %s: fence %d after %d", what, name, r.Fence, fence)
					}
					fence = r.Fence
				}
				if text := strings.Join(got, ", "); text != want {
					t.Errorf("%s: %s: %s, want %s", what, name, text, want)
				}
			}
			if n := stored(t, db, "line").Failures; n != 0 {
				t.Errorf("%s: %d failures after successes", what, n)
			}
		})
	})
}

func wantNoneWaits(t *testing.T, db *dbtest.DB, name string) {
	t.Helper()
	for _, r := range allRuns(t, db, name) {
		if r.State == "waiting" {
			t.Errorf("a run waits on: %+v", r)
		}
	}
}

// Daemons that record ends at once start what follows once.
func TestChainRace(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		const n = 12
		for i := range n {
			addWith(t, db, fmt.Sprint("job", i), "@every 1m", Policy{OnSuccess: "then"})
		}
		addWith(t, db, "then", "@manual", Policy{})
		db.Advance(t, time.Minute)
		var each sync.WaitGroup
		for range 3 {
			s := daemon(t, again(t, db), Options{})
			held := claimed(t, s, n/3)
			each.Go(func() {
				for _, e := range held {
					finished(t, s, e, 0)
					none := takenOver(t, s, 1)
					for _, e := range none {
						finished(t, s, e, 0)
					}
				}
			})
		}
		each.Wait()
		settle(t, daemon(t, db, Options{}))
		wantRows(t, db, "then", "60 1 ok")
		states := map[string]int{}
		for _, r := range allRuns(t, db, "") {
			states[r.State]++
		}
		if states["ok"] != n+1 || len(states) != 1 {
			t.Errorf("%v", states)
		}
	})
}
