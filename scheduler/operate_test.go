//go:build unix

package scheduler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/sqlrun"
)

func startedByHand(t *testing.T, db *dbtest.DB, name string) Run {
	t.Helper()
	r, err := Start(t.Context(), db.DB, name)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func paused(t *testing.T, db *dbtest.DB, name string) {
	t.Helper()
	if err := Pause(t.Context(), db.DB, name, "for a test"); err != nil {
		t.Fatal(err)
	}
}

func resumed(t *testing.T, db *dbtest.DB, name string) {
	t.Helper()
	if err := Resume(t.Context(), db.DB, name); err != nil {
		t.Fatal(err)
	}
}

// Start runs a schedule now, whatever its state and its slots, and changes neither.
func TestStart(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		add(t, db, "active", "@every 1h")
		add(t, db, "manual", "@manual")
		add(t, db, "paused", "@every 1h")
		add(t, db, "failed", "@every 1h")
		add(t, db, "ended", "@every 1h")
		paused(t, db, "paused")
		db.Do(t, `UPDATE {prefix}schedule SET state = name WHERE name IN ('failed', 'ended')`, nil)
		db.Advance(t, 90*time.Second)
		names := []string{"active", "ended", "failed", "manual", "paused"}
		for _, name := range names {
			before := stored(t, db, name)
			r := startedByHand(t, db, name)
			if r.Schedule != name || !r.Due.Equal(at(90*time.Second)) || r.Attempt != 1 || r.Cause != "hand" || r.State != "waiting" {
				t.Errorf("%s: %+v", name, r)
			}
			if after := stored(t, db, name); after.State != before.State || !after.Due.Equal(before.Due) {
				t.Errorf("%s was %+v, and is %+v", name, before, after)
			}
		}
		work(t, daemon(t, db, Options{}))
		for _, name := range names {
			if r := only(t, db, name); r.State != "ok" || r.Cause != "hand" || r.Output != name+"\n" || !r.Due.Equal(at(90*time.Second)) {
				t.Errorf("%s: %+v", name, r)
			}
		}
		if _, err := Start(t.Context(), db.DB, "unknown"); !errors.Is(err, ErrNotFound) {
			t.Errorf("unknown: %v, want ErrNotFound", err)
		}
		db.Advance(t, time.Hour)
		work(t, daemon(t, db, Options{}))
		wantRows(t, db, "active", "90 1 ok", "3600 1 ok")
		wantRows(t, db, "paused", "90 1 ok")
	})
}

// The run that Start returns can be cancelled.
func TestStartTellsTheRun(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		add(t, db, "job", "@manual")
		r := startedByHand(t, db, "job")
		if _, err := Cancel(t.Context(), db.DB, r.ID, ""); err != nil {
			t.Errorf("run %d: %v", r.ID, err)
		}
	})
}

// If a run is under way, one that is started waits for its end or, under the
// policy forbid, Start returns ErrBusy.
func TestStartBesideARun(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		policies := []string{"allow", "forbid", "queue", "replace"}
		for _, overlap := range policies {
			addJob(t, db, Schedule{Name: overlap, Command: "true", Policy: Policy{Overlap: overlap}})
		}
		db.Advance(t, time.Hour)
		s := daemon(t, db, Options{})
		held := claimed(t, s, 10)
		db.Advance(t, time.Second)
		for _, overlap := range policies {
			if _, err := Start(t.Context(), db.DB, overlap); (overlap == "forbid") != errors.Is(err, ErrBusy) || overlap != "forbid" && err != nil {
				t.Errorf("%s: %v", overlap, err)
			}
		}
		work(t, daemon(t, db, Options{}))
		wantRows(t, db, "", "allow 3600 1 running", "allow 3601 1 ok", "forbid 3600 1 running",
			"queue 3600 1 running", "queue 3601 1 waiting", "replace 3600 1 running", "replace 3601 1 waiting")
		if _, err := Start(t.Context(), db.DB, "forbid"); !errors.Is(err, ErrBusy) {
			t.Errorf("a second time: %v, want ErrBusy", err)
		}
		for _, e := range held {
			finished(t, s, e, 0)
		}
		work(t, daemon(t, db, Options{})) // at once: it is not waited for
		wantRows(t, db, "", "allow 3600 1 ok", "allow 3601 1 ok", "forbid 3600 1 ok",
			"queue 3600 1 ok", "queue 3601 1 ok", "replace 3600 1 ok", "replace 3601 1 ok")
		startedByHand(t, db, "forbid")
		if _, err := Start(t.Context(), db.DB, "forbid"); !errors.Is(err, ErrBusy) {
			t.Errorf("while one waits: %v, want ErrBusy", err)
		}
	})
}

// Two that are started in the same moment are two runs.
func TestStartTwiceInAMoment(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		addJob(t, db, Schedule{Name: "job", Spec: "@manual", Command: "true", Policy: Policy{Overlap: "allow"}})
		startedByHand(t, db, "job")
		other, second := again(t, db), make(chan Run, 1)
		go func() {
			r, err := Start(t.Context(), other.DB, "job")
			if err != nil {
				t.Error(err)
			}
			second <- r
		}()
		var r Run
		eventually(t, "a second run", func() bool { // the clock stands
			db.Advance(t, time.Second)
			select {
			case r = <-second:
				return true
			default:
				return false
			}
		})
		if all := allRuns(t, db, "job"); len(all) != 2 || !all[1].Due.Equal(r.Due) {
			t.Errorf("%d runs, and the second was said to be at %v: %+v", len(all), r.Due, all)
		}
	})
}

// Many at once, by the real clock: each is a run, or under forbid one is.
func TestStartRace(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		const many = 8
		for _, overlap := range []string{"queue", "forbid"} {
			addJob(t, db, Schedule{Name: overlap, Spec: "@manual", Command: "true", Policy: Policy{Overlap: overlap}})
			var each sync.WaitGroup
			errs := make(chan error, many)
			for range many {
				each.Go(func() { _, err := Start(t.Context(), db.DB, overlap); errs <- err })
			}
			each.Wait()
			started, busy := 0, 0
			for range many {
				switch err := <-errs; {
				case err == nil:
					started++
				case errors.Is(err, ErrBusy):
					busy++
				default:
					t.Error(err)
				}
			}
			want := many
			if overlap == "forbid" {
				want = 1
			}
			if n := len(allRuns(t, db, overlap)); started != want || started+busy != many || n != started {
				t.Errorf("%s: %d started, %d busy, %d runs", overlap, started, busy, n)
			}
		}
		s := daemon(t, db, Options{})
		work(t, s)
		for _, r := range allRuns(t, db, "") {
			if r.State != "ok" {
				t.Errorf("%+v", r)
			}
		}
	})
}

// Cancel ends a run that waits at once, one that runs through its daemon, and one
// whose daemon has died when its lease ends; it is not tried again.
func TestCancel(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		cancel := func(id int64, why string) Run {
			t.Helper()
			r, err := Cancel(t.Context(), db.DB, id, why)
			if err != nil {
				t.Error(err)
			}
			return r
		}
		command, pids := sleeper(t, false)
		addJob(t, db, Schedule{Name: "runs", Command: command, Policy: Policy{MaxAttempts: 3, OnFailure: "runs"}})
		addJob(t, db, Schedule{Name: "dead", Spec: "@every 2h", Command: "true"})
		add(t, db, "waits", "@manual")

		startedByHand(t, db, "waits")
		if was := cancel(only(t, db, "waits").ID, "changed my mind"); was.State != "waiting" || was.Schedule != "waits" {
			t.Errorf("it was %+v", was)
		}
		if r := only(t, db, "waits"); r.State != "cancelled" || r.Error != "changed my mind" || r.Finished.IsZero() || !r.Next.IsZero() {
			t.Errorf("%+v", r)
		}

		db.Advance(t, time.Hour)
		s := daemon(t, db, Options{})
		beginDue(t, s)
		eventually(t, "the command runs", func() bool { return len(pids()) == 2 })
		if was := cancel(only(t, db, "runs").ID, ""); was.State != "running" {
			t.Errorf("it was %+v", was)
		}
		if r := only(t, db, "runs"); r.State != "running" || r.Cancel != "cancelled by hand" {
			t.Errorf("%+v", r)
		}
		work(t, daemon(t, db, Options{})) // another daemon leaves it alone
		if r := only(t, db, "runs"); r.State != "running" {
			t.Errorf("%+v", r)
		}
		s.wakeAll()
		work(t, s)
		wantGone(t, pids())
		r := only(t, db, "runs")
		if r.State != "cancelled" || r.Error != "cancelled by hand" || r.Cancel != "" {
			t.Errorf("%+v", r)
		}
		if was, err := Cancel(t.Context(), db.DB, r.ID, "again"); !errors.Is(err, ErrNotRunning) || was.State != "cancelled" {
			t.Errorf("one that has ended: %+v, %v, want ErrNotRunning", was, err)
		}
		if got := only(t, db, "runs"); got.Error != "cancelled by hand" || got.Cancel != "" {
			t.Errorf("%+v", got)
		}
		if _, err := Cancel(t.Context(), db.DB, 123456789, ""); !errors.Is(err, ErrNoRun) {
			t.Errorf("unknown: %v, want ErrNoRun", err)
		}
		if _, err := Cancel(t.Context(), db.DB, r.ID, strings.Repeat("x", 201)); !errors.Is(err, ErrInvalid) {
			t.Errorf("a long reason: %v, want ErrInvalid", err)
		}

		paused(t, db, "runs")
		db.Advance(t, time.Hour)
		claimed(t, daemon(t, db, Options{}), 1)
		cancel(only(t, db, "dead").ID, strings.Repeat("ü\x00", 66))
		work(t, s)
		if r := only(t, db, "dead"); r.State != "running" {
			t.Errorf("within its lease: %+v", r)
		}
		db.Advance(t, 30*time.Second)
		work(t, s)
		if r := only(t, db, "dead"); r.State != "cancelled" || r.Error != strings.Repeat("ü\uFFFD", 66) {
			t.Errorf("%+v", r)
		}
	})
}

// A run that was handed back is cancelled when the next daemon sees it, and a
// retry that waits at once.
func TestCancelBetweenAttempts(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		addJob(t, db, Schedule{Name: "back", Command: "true"})
		addJob(t, db, Schedule{Name: "retry", Command: "false", Policy: Policy{MaxAttempts: 3, RetryDelay: time.Minute}})
		db.Advance(t, time.Hour)
		s := daemon(t, db, Options{})
		for _, e := range claimed(t, s, 10) {
			if e.schedule == "retry" {
				finished(t, s, e, 1)
				continue
			}
			n, err := db.Exec(t.Context(), handBack, sqlrun.Args{"id": e.id, "claim": e.claim, "left": "retry", "error": "", "output": "", "stops": 0, "after": 0})
			if n != 1 || err != nil {
				t.Fatal(n, err)
			}
		}
		for _, r := range allRuns(t, db, "") {
			_, err := Cancel(t.Context(), db.DB, r.ID, "enough")
			if r.State == "failed" && !errors.Is(err, ErrNotRunning) || r.State != "failed" && err != nil {
				t.Errorf("%s, %s: %v", r.Schedule, r.State, err)
			}
		}
		db.Advance(t, time.Minute)
		work(t, daemon(t, db, Options{}))
		wantRows(t, db, "", "back 3600 1 cancelled", "retry 3600 1 failed", "retry 3600 2 cancelled")
	})
}

// Slots that come while a schedule is paused are recorded as skipped when it is resumed, and it
// continues with the next slot. Runs under way continue, and waiting ones are cancelled when
// their turn comes.
func TestPauseAndResume(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		for name, spec := range map[string]string{"cron": "0 * * * *", "interval": "@every 1h"} {
			add(t, db, name, spec)
		}
		add(t, db, "by sql", "0 * * * *")
		addJob(t, db, Schedule{Name: "busy", Command: "true", Policy: Policy{Overlap: "queue", MaxAttempts: 2}})
		db.Advance(t, time.Hour)
		s := daemon(t, db, Options{})
		for _, e := range claimed(t, s, 10) {
			if e.schedule != "busy" {
				finished(t, s, e, 0)
				continue
			}
			db.Advance(t, time.Minute)
			startedByHand(t, db, "busy")
			db.Do(t, `UPDATE {prefix}run SET cause = 'slot' WHERE cause = 'hand'`, nil) // one that is not asked for
			paused(t, db, "busy")
			finished(t, s, e, 0)
		}
		work(t, s)
		wantRows(t, db, "busy", "3600 1 ok", "3660 1 cancelled")
		for _, name := range []string{"cron", "interval"} {
			paused(t, db, name)
			if got := stored(t, db, name); got.State != "paused" || got.Reason != "for a test" {
				t.Errorf("%+v", got)
			}
			if err := Pause(t.Context(), db.DB, name, "again"); err != nil || stored(t, db, name).Reason != "for a test" {
				t.Errorf("a second time: %v, %s", err, stored(t, db, name).Reason)
			}
		}
		db.Do(t, `UPDATE {prefix}schedule SET state = 'paused' WHERE name = 'by sql'`, nil)
		db.Advance(t, 2*time.Hour+30*time.Minute) // 3:31
		work(t, s)
		for _, name := range []string{"cron", "interval"} {
			wantRows(t, db, name, "3600 1 ok")
			resumed(t, db, name)
			resumed(t, db, name)
		}
		db.Do(t, `UPDATE {prefix}schedule SET state = 'active', next_exec = NULL WHERE name = 'by sql'`, nil)
		work(t, s)
		for _, name := range []string{"cron", "interval", "by sql"} {
			wantRows(t, db, name, "3600 1 ok", "7200 1 skipped to 10800: 2")
			if got := stored(t, db, name); got.State != "active" || got.Reason != "" || name != "interval" && !got.Due.Equal(at(4*time.Hour)) {
				t.Errorf("%s: %+v", name, got)
			}
		}
		db.Advance(t, time.Hour)
		work(t, s)
		for _, name := range []string{"cron", "by sql"} {
			wantRows(t, db, name, "3600 1 ok", "7200 1 skipped to 10800: 2", "14400 1 ok")
		}
		for _, f := range []func() error{
			func() error { return Pause(t.Context(), db.DB, "unknown", "") },
			func() error { return Resume(t.Context(), db.DB, "unknown") },
		} {
			if err := f(); !errors.Is(err, ErrNotFound) {
				t.Errorf("%v, want ErrNotFound", err)
			}
		}
	})
}

// Pausing and resuming between two slots loses no slot, and moves none: the
// distance from slot to slot stays exact.
func TestAPauseBetweenSlots(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		add(t, db, "cron", "0 * * * *")
		add(t, db, "interval", "@every 1h")
		db.Advance(t, 10*time.Minute)
		s := daemon(t, db, Options{})
		for _, name := range []string{"cron", "interval"} {
			paused(t, db, name)
			resumed(t, db, name)
			work(t, s)
			if due := stored(t, db, name).Due; !due.Equal(at(time.Hour)) {
				t.Errorf("%s is due at %v, want %v", name, due, at(time.Hour))
			}
		}
		db.Advance(t, 50*time.Minute)
		work(t, s)
		wantRows(t, db, "", "cron 3600 1 ok", "interval 3600 1 ok")
	})
}

// A schedule that has failed too often continues when it is resumed, and its failures are
// counted from zero.
func TestResumeAfterFailures(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		addJob(t, db, Schedule{Name: "job", Command: "false", Policy: Policy{MaxFailures: 2}})
		s := daemon(t, db, Options{})
		for range 4 {
			db.Advance(t, time.Hour)
			work(t, s)
		}
		wantRows(t, db, "job", "3600 1 failed", "7200 1 failed")
		if got := stored(t, db, "job"); got.State != "failed" || got.Failures != 2 || !strings.Contains(got.Reason, "2 slots in a row") {
			t.Errorf("%+v", got)
		}
		resumed(t, db, "job")
		work(t, s)
		wantRows(t, db, "job", "3600 1 failed", "7200 1 failed", "10800 1 skipped to 14400: 2")
		if got := stored(t, db, "job"); got.State != "active" || got.Failures != 0 || got.Reason != "" {
			t.Errorf("%+v", got)
		}
		for range 3 {
			db.Advance(t, time.Hour)
			work(t, s)
		}
		if got := stored(t, db, "job"); len(rows(t, db, "job")) != 5 || got.State != "failed" {
			t.Errorf("%+v, runs %q", got, rows(t, db, "job"))
		}
		// One that cannot be run fails again, and its reason is there.
		db.Do(t, `UPDATE {prefix}schedule SET timeout = '99999999d'`, nil)
		resumed(t, db, "job")
		work(t, s)
		if got := stored(t, db, "job"); got.State != "failed" || !strings.Contains(got.Reason, "99999999d") {
			t.Errorf("%+v", got)
		}
	})
}

func backfill(t *testing.T, db *dbtest.DB, name string, from, to time.Duration, dry bool) (slots []string, left int) {
	t.Helper()
	b, err := Backfill(t.Context(), db.DB, name, at(from), at(to), dry)
	if err != nil {
		t.Fatal(err)
	}
	for _, slot := range b.Slots {
		slots = append(slots, seconds(slot))
	}
	return slots, b.Left
}

// Backfill runs the slots of a window that have no run which is ok or has not
// ended: oldest first, one after another, and each once.
func TestBackfill(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		add(t, db, "cron", "0 * * * *")
		add(t, db, "interval", "@every 1h")
		s := daemon(t, db, Options{})
		db.Advance(t, time.Hour)
		work(t, s) // ok
		db.Advance(t, 4*time.Hour)
		work(t, s) // three are missed, and one is ok
		db.Advance(t, time.Hour)
		for _, e := range claimed(t, s, 10) {
			finished(t, s, e, 1) // failed
		}
		db.Advance(t, time.Hour)
		held := claimed(t, s, 10) // under way
		db.Advance(t, 30*time.Minute)
		for _, name := range []string{"cron", "interval"} {
			before := rows(t, db, name)
			slots, left := backfill(t, db, name, 0, 7*time.Hour, true)
			want := []string{"7200", "10800", "14400", "21600"}
			if name == "cron" {
				want = append([]string{"0"}, want...) // before it was made
			}
			if name == "interval" && len(slots) > 0 && slots[0] == "0" {
				want = append([]string{"0"}, want...) // so it is counted back
			}
			if !slices.Equal(slots, want) || left != 3 {
				t.Errorf("%s: would run %q and leave %d, want %q and 3", name, slots, left, want)
			}
			if after := rows(t, db, name); !slices.Equal(before, after) {
				t.Errorf("%s: a dry run has made %q", name, after)
			}
			slots, left = backfill(t, db, name, 90*time.Minute, 7*time.Hour, false)
			if want := []string{"7200", "10800", "14400", "21600"}; !slices.Equal(slots, want) || left != 2 {
				t.Errorf("%s: runs %q and leaves %d, want %q and 2", name, slots, left, want)
			}
			if slots, left := backfill(t, db, name, 90*time.Minute, 7*time.Hour, false); len(slots) != 0 || left != 6 {
				t.Errorf("%s: a second time runs %q and leaves %d", name, slots, left)
			}
		}
		for _, e := range held {
			finished(t, s, e, 0)
		}
		work(t, s)
		for _, name := range []string{"cron", "interval"} {
			wantRows(t, db, name, "3600 1 ok", "7200 1 missed to 14400: 3", "7200 2 ok", "10800 1 ok", "14400 1 ok",
				"18000 1 ok", "21600 1 failed", "21600 2 ok", "25200 1 ok")
			var fences []int64
			for _, r := range allRuns(t, db, name) {
				if r.Cause == "backfill" {
					fences = append(fences, r.Fence)
				}
			}
			if len(fences) != 4 || !slices.IsSorted(fences) {
				t.Errorf("%s: not oldest first: fences %v", name, fences)
			}
		}
		if slots, left := backfill(t, db, "cron", time.Hour, 7*time.Hour, false); len(slots) != 0 || left != 7 {
			t.Errorf("when all has run: %q, %d left", slots, left)
		}
	})
}

// Backfilled runs are made while a schedule is paused, and at once under allow;
// never two at a time otherwise.
func TestBackfillOverlap(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		for _, overlap := range []string{"allow", "forbid", "queue", "replace"} {
			addJob(t, db, Schedule{Name: overlap, Command: "true", Policy: Policy{Overlap: overlap}})
			paused(t, db, overlap)
		}
		db.Advance(t, 4*time.Hour)
		for _, overlap := range []string{"allow", "forbid", "queue", "replace"} {
			for _, from := range []time.Duration{3 * time.Hour, time.Hour} { // asked for in the wrong order
				if slots, _ := backfill(t, db, overlap, from, from+time.Hour, false); len(slots) != 2 {
					t.Errorf("%s: slots %q", overlap, slots)
				}
				db.Advance(t, time.Second)
			}
		}
		s := daemon(t, db, Options{})
		rounds := 0
		for ; rounds < 20; rounds++ {
			held := takenOver(t, s, batch)
			if len(held) == 0 {
				held = takenOver(t, s, batch) // others were looked at first, and released this one
			}
			if len(held) == 0 {
				break
			}
			begun := map[string]int{}
			for _, e := range held {
				begun[e.schedule]++
			}
			if begun["forbid"] > 1 || begun["queue"] > 1 || begun["replace"] > 1 || rounds == 0 && begun["allow"] != 4 {
				t.Errorf("round %d: at a time %v", rounds, begun)
			}
			for _, e := range held {
				finished(t, s, e, 0)
			}
		}
		for _, overlap := range []string{"allow", "forbid", "queue", "replace"} {
			wantRows(t, db, overlap, "3600 1 ok", "7200 1 ok", "10800 1 ok", "14400 1 ok")
			for i, r := range allRuns(t, db, overlap) {
				if overlap != "allow" && r.Fence != int64(i+1) {
					t.Errorf("%s: slot %s was run as number %d, want %d", overlap, seconds(r.Due), r.Fence, i+1)
				}
			}
		}
	})
}

// What no slots are is not run: before the start of a schedule and after its end.
func TestBackfillWithinLimits(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		addJob(t, db, Schedule{
			Name: "job", Spec: "0 * * * *", Command: "true", Policy: Policy{Starts: at(2 * time.Hour), Ends: at(4 * time.Hour)},
		})
		db.Advance(t, 6*time.Hour)
		slots, _ := backfill(t, db, "job", 0, 6*time.Hour, true)
		if want := []string{"7200", "10800", "14400"}; !slices.Equal(slots, want) {
			t.Errorf("would run %q, want %q", slots, want)
		}
	})
}

func TestBackfillRefuses(t *testing.T) {
	clockedMemory(t, func(t *testing.T, db *dbtest.DB) {
		add(t, db, "job", "@every 1s")
		add(t, db, "manual", "@manual")
		db.Advance(t, 10*time.Hour)
		for what, window := range map[string][2]time.Duration{
			"backwards": {2 * time.Hour, time.Hour}, "in the future": {9 * time.Hour, 11 * time.Hour}, "too large": {0, 10 * time.Hour},
		} {
			if b, err := Backfill(t.Context(), db.DB, "job", at(window[0]), at(window[1]), false); !errors.Is(err, ErrInvalid) || len(b.Slots) > 0 {
				t.Errorf("%s: %d slots, %v, want ErrInvalid", what, len(b.Slots), err)
			}
		}
		if _, err := Backfill(t.Context(), db.DB, "unknown", at(0), at(0), true); !errors.Is(err, ErrNotFound) {
			t.Errorf("unknown: %v, want ErrNotFound", err)
		}
		if slots, left := backfill(t, db, "manual", 0, time.Hour, false); len(slots) != 0 || left != 0 {
			t.Errorf("one without slots: %q, %d", slots, left)
		}
		if slots, _ := backfill(t, db, "job", 2*time.Second, 2*time.Second, true); !slices.Equal(slots, []string{"2"}) {
			t.Errorf("a window of one moment, both ends included: %q", slots)
		}
		if all := allRuns(t, db, ""); len(all) != 0 {
			t.Errorf("%d runs", len(all))
		}
	})
}

// The daemons continue with other runs while a backfill is under way.
func TestManyBackfilledRuns(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		addJob(t, db, Schedule{Name: "many", Spec: "@every 1s", Kind: "func", Command: "many", Policy: Policy{KeepRuns: -1}})
		paused(t, db, "many")
		db.Advance(t, 30*time.Second)
		if slots, _ := backfill(t, db, "many", time.Second, 12*time.Second, false); len(slots) != 12 {
			t.Fatalf("%d slots", len(slots))
		}
		s := daemon(t, db, Options{})
		last := int64(0)
		handle(t, s, "many", func(_ context.Context, run *Running) error { // one after another, so no lock
			if run.Due.UnixMicro() < last {
				return fmt.Errorf("%v comes after a later one", run.Due)
			}
			last = run.Due.UnixMicro()
			return nil
		})
		if err := s.RunOnce(t.Context()); err != nil {
			t.Fatal(err)
		}
		ok := 0
		for _, r := range allRuns(t, db, "many") {
			if r.State == "ok" {
				ok++
			}
		}
		if ok != 12 {
			t.Errorf("%d runs are ok", ok)
		}
	})
}
