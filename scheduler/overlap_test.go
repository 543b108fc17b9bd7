package scheduler

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/guardian"
	"github.com/dbcron/dbcron/internal/sqlrun"
)

// addWith stores a schedule with a policy.
func addWith(t *testing.T, db *dbtest.DB, name, spec string, p Policy) {
	t.Helper()
	if err := Add(t.Context(), db.DB, Schedule{Name: name, Spec: spec, Command: "true", Policy: p}); err != nil {
		t.Fatal(err)
	}
}

// one returns the only run of several, and fails if there is not just one.
func one(t *testing.T, held []*execution) *execution {
	t.Helper()
	if len(held) != 1 {
		t.Fatalf("%d runs have begun, want 1", len(held))
	}
	return held[0]
}

// none fails if a run has begun.
func none(t *testing.T, held []*execution) {
	t.Helper()
	if len(held) > 0 {
		t.Fatalf("%d runs have begun, want none: %+v", len(held), held[0].run)
	}
}

// handedBack stands for a daemon that is stopped.
func handedBack(t *testing.T, s *Scheduler, e *execution) {
	t.Helper()
	e.stopFor(stop{cause: drained}, true)
	ended(t, s, e, guardian.Result{Cause: guardian.Stopped, ExitCode: 143})
}

// obeyed stands for a daemon that was asked to end runs: it returns those that it was asked to
// end, and has ended.
func obeyed(t *testing.T, s *Scheduler) (ids []int64) {
	t.Helper()
	if err := s.cancelRequests(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, e := range s.held() {
		if e.why().cause == cancelled {
			ended(t, s, e, guardian.Result{Cause: guardian.Stopped, ExitCode: 143})
			ids = append(ids, e.id)
		}
	}
	return ids
}

// wantFences fails unless the fences of a schedule's runs grow in the order in
// which they began, which the test gives.
func wantFences(t *testing.T, begun ...*execution) {
	t.Helper()
	for i, e := range begun {
		if i > 0 && e.fence <= begun[i-1].fence || e.fence < 1 {
			t.Errorf("attempt %d at %s has fence %d, and the one before %d", e.attempt, seconds(e.due), e.fence, begun[max(0, i-1)].fence)
		}
	}
}

// forbid passes over slots while anything of the schedule has not ended: what
// runs, what waits for its retry, and what somebody has asked for.
func TestForbid(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		addWith(t, db, "job", "@every 1m", Policy{MaxAttempts: 3, RetryDelay: 90 * time.Second, RetryPastNext: true})
		s, other := daemon(t, db, Options{Lease: time.Hour}), daemon(t, db, Options{Lease: time.Hour})
		db.Advance(t, time.Minute)
		finished(t, s, one(t, claimed(t, s, 1)), 1)
		db.Advance(t, time.Minute)
		none(t, claimed(t, other, 1)) // a retry waits
		wantRows(t, db, "job", "60 1 failed", "60 2 waiting", "120 1 skipped to 120: 1")
		db.Advance(t, time.Minute)
		none(t, claimed(t, other, 1))
		finished(t, other, one(t, takenOver(t, other, 10)), 0)
		db.Advance(t, 10*time.Second)
		if _, err := Start(t.Context(), db.DB, "job"); err != nil {
			t.Fatal(err)
		}
		db.Advance(t, 50*time.Second)
		none(t, claimed(t, s, 1))
		hand := one(t, takenOver(t, s, 10))
		if _, err := Start(t.Context(), db.DB, "job"); err == nil {
			t.Error("Start beside a run, and the policy is forbid")
		}
		finished(t, s, hand, 0)
		db.Advance(t, time.Minute)
		finished(t, s, one(t, claimed(t, s, 1)), 0)
		wantRows(t, db, "job", "60 1 failed", "60 2 ok", "120 1 skipped to 180: 2", "190 1 ok", "240 1 skipped to 240: 1", "300 1 ok")
		wantFences(t, hand)
	})
}

// allow begins every slot at its time, whatever runs; also those that were
// missed all begin at once.
func TestAllow(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		addWith(t, db, "job", "@every 1m", Policy{Overlap: "allow", Missed: "all"})
		s, other := daemon(t, db, Options{Lease: time.Hour}), daemon(t, db, Options{Lease: time.Hour})
		var held []*execution
		for range 3 {
			db.Advance(t, time.Minute)
			held = append(held, one(t, claimed(t, s, 1)))
		}
		db.Advance(t, 4*time.Minute)
		held = append(held, one(t, claimed(t, s, 1)))
		late := takenOver(t, other, 10)
		if len(late) != 3 {
			t.Errorf("%d of 3 missed slots have begun beside the first", len(late))
		}
		wantRows(t, db, "job", "60 1 running", "120 1 running", "180 1 running", "240 1 running", "300 1 running",
			"360 1 running", "420 1 running")
		held = append(held, late...)
		wantFences(t, held...)
		finished(t, s, held[1], 0)
		handedBack(t, s, held[0])
		again := one(t, takenOver(t, other, 10))
		wantFences(t, append(held, again)...)
		finished(t, other, again, 1)
		wantRows(t, db, "job", "60 1 retry", "60 2 failed", "120 1 ok", "180 1 running", "240 1 running",
			"300 1 running", "360 1 running", "420 1 running")
	})
}

// queue lets slots wait and begin in their order, one after another, the next
// as soon as the one before has ended, whichever daemon looks.
func TestQueue(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		addWith(t, db, "job", "@every 1m", Policy{Overlap: "queue"})
		s, other := daemon(t, db, Options{Lease: time.Hour}), daemon(t, db, Options{Lease: time.Hour})
		db.Advance(t, time.Minute)
		running := one(t, claimed(t, s, 1))
		for range 3 {
			db.Advance(t, time.Minute)
			none(t, claimed(t, other, 1))
			none(t, takenOver(t, other, 10)) // it is looked at, and waits on
			none(t, takenOver(t, s, 10))
		}
		wantRows(t, db, "job", "60 1 running", "120 1 waiting", "180 1 waiting", "240 1 waiting")
		begun := []*execution{running}
		daemons := []*Scheduler{s, other, s, other}
		for i := range 3 {
			finished(t, daemons[i], running, 0)
			running = one(t, takenOver(t, daemons[i+1], 10)) // at once
			if want := at(time.Duration(i+2) * time.Minute); !running.due.Equal(want) || running.attempt != 1 {
				t.Errorf("then began %v, attempt %d, want %v", running.due, running.attempt, want)
			}
			none(t, takenOver(t, daemons[i], 10))
			begun = append(begun, running)
		}
		finished(t, other, running, 0)
		wantFences(t, begun...)
		wantRows(t, db, "job", "60 1 ok", "120 1 ok", "180 1 ok", "240 1 ok")
		// What was missed was missed, though a run was under way: it need not have waited.
		db.Advance(t, time.Minute)
		claimed(t, s, 1)
		db.Advance(t, 3*time.Minute)
		none(t, claimed(t, s, 1))
		if got := rows(t, db, "job")[4:]; !slices.Equal(got, []string{"300 1 running", "360 1 missed to 420: 2", "480 1 waiting"}) {
			t.Errorf("a daemon was away while a run was under way: %q", got)
		}
		if r := allRuns(t, db, "job")[1]; r.By != other.Node() || !r.Started.Equal(at(4*time.Minute)) || r.Fence != begun[1].fence {
			t.Errorf("a run that waited: %+v", r)
		}
	})
}

// The line is kept when its head is lost, handed back, or tried again; and what
// somebody asks for takes its place in it by its slot.
func TestQueueIsKept(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		addWith(t, db, "job", "@every 1m", Policy{Overlap: "queue", MaxAttempts: 2, RetryDelay: 20 * time.Second, RetryPastNext: true})
		s, other := daemon(t, db, Options{}), daemon(t, db, Options{})
		db.Advance(t, 3*time.Minute)
		begun := []*execution{one(t, claimed(t, s, 1))} // 180; 60 and 120 were missed
		wantRows(t, db, "job", "60 1 missed to 120: 2", "180 1 running")
		next := func(s *Scheduler, due time.Duration, attempt int) *execution {
			t.Helper()
			e := one(t, takenOver(t, s, 10))
			if !e.due.Equal(at(due)) || e.attempt != attempt {
				t.Fatalf("then began %s, attempt %d, want %v, attempt %d", seconds(e.due), e.attempt, due, attempt)
			}
			begun = append(begun, e)
			none(t, takenOver(t, s, 10))
			none(t, takenOver(t, other, 10))
			return e
		}
		keep := func(s *Scheduler) {
			t.Helper()
			if err := renewAll(t, s); err != nil {
				t.Fatal(err)
			}
		}
		// Handed back.
		handedBack(t, s, begun[0])
		e := next(other, 3*time.Minute, 2)
		for range 3 {
			db.Advance(t, 20*time.Second)
			keep(other)
		}
		none(t, claimed(t, s, 1)) // 240 waits
		// Run now, and a missed slot again: between and before them.
		db.Advance(t, 5*time.Second)
		started, err := Start(t.Context(), db.DB, "job")
		if err != nil || started.State != "waiting" || !started.Due.Equal(at(245*time.Second)) {
			t.Fatal(started, err)
		}
		if b, err := Backfill(t.Context(), db.DB, "job", at(2*time.Minute), at(4*time.Minute), false); err != nil ||
			len(b.Slots) != 1 || b.Left != 2 {
			t.Fatal(b, err)
		}
		none(t, takenOver(t, s, 10))
		wantRows(t, db, "job", "60 1 missed to 120: 2", "120 1 waiting", "180 1 retry", "180 2 running", "240 1 waiting", "245 1 waiting")
		finished(t, other, e, 0)
		next(s, 2*time.Minute, 1)
		// Its daemon dies, and the next attempt is still before all others.
		db.Advance(t, 30*time.Second)
		e = next(other, 2*time.Minute, 2)
		// It fails, and all wait until it has been tried again, also 300.
		finished(t, other, e, 1)
		none(t, takenOver(t, s, 10))
		db.Advance(t, 9*time.Second)
		none(t, takenOver(t, s, 10))
		db.Advance(t, 16*time.Second)
		none(t, claimed(t, s, 1))
		e = next(s, 2*time.Minute, 3)
		finished(t, s, e, 0)
		finished(t, other, next(other, 4*time.Minute, 1), 0)
		finished(t, other, next(other, 245*time.Second, 1), 0)
		finished(t, s, next(s, 5*time.Minute, 1), 0)
		wantFences(t, begun...)
		wantRows(t, db, "job", "60 1 missed to 120: 2", "120 1 lost", "120 2 failed", "120 3 ok", "180 1 retry",
			"180 2 ok", "240 1 ok", "245 1 ok", "300 1 ok")
	})
}

// Runs that wait are cancelled when their turn comes and the schedule is paused
// or gone; those that somebody has asked for are made all the same.
func TestQueueOfAScheduleThatIsNotActive(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		names := []string{"deleted", "edited", "paused", "resumed"}
		for _, name := range names {
			addWith(t, db, name, "@every 1m", Policy{Overlap: "queue"})
		}
		s := daemon(t, db, Options{Lease: time.Hour})
		db.Advance(t, time.Minute)
		held := claimed(t, s, 10)
		for range 2 {
			db.Advance(t, time.Minute)
			none(t, claimed(t, s, 10))
		}
		db.Advance(t, time.Second)
		for _, name := range names {
			if _, err := Start(t.Context(), db.DB, name); err != nil {
				t.Fatal(err)
			}
		}
		for name, change := range map[string]func() error{
			"deleted": func() error { return Delete(t.Context(), db.DB, "deleted") },
			"paused":  func() error { return Pause(t.Context(), db.DB, "paused", "for a while") },
			"resumed": func() error { return Pause(t.Context(), db.DB, "resumed", "for a moment") },
			"edited": func() error {
				job := stored(t, db, "edited")
				job.Overlap = "allow"
				return Edit(t.Context(), db.DB, job)
			},
		} {
			if err := change(); err != nil {
				t.Error(name, err)
			}
		}
		if err := Resume(t.Context(), db.DB, "resumed"); err != nil {
			t.Error(err)
		}
		db.Advance(t, time.Second)
		for _, e := range held {
			finished(t, s, e, 0)
		}
		for range 3 {
			db.Advance(t, 15*time.Second) // up to a minute: before a further slot
			settle(t, s)
		}
		db.Do(t, `UPDATE {prefix}run SET next_exec = {now} WHERE state = 'waiting'`, nil)
		settle(t, s)
		wantRows(t, db, "deleted", "60 1 ok", "120 1 cancelled", "180 1 cancelled", "181 1 cancelled")
		wantRows(t, db, "edited", "60 1 ok", "120 1 ok", "180 1 ok", "181 1 ok")
		wantRows(t, db, "paused", "60 1 ok", "120 1 cancelled", "180 1 cancelled", "181 1 ok")
		wantRows(t, db, "resumed", "60 1 ok", "120 1 ok", "180 1 ok", "181 1 ok")
		wantErrors(t, db, "paused", "", "the schedule is paused", "the schedule is paused", "")
	})
}

// No more than 100 runs of a schedule wait; what comes then is skipped, and
// what waits is run, in order.
func TestQueueIsFull(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		addWith(t, db, "job", "@every 1m", Policy{Overlap: "queue", Missed: "all"})
		s := daemon(t, db, Options{Lease: 24 * time.Hour})
		db.Advance(t, 80*time.Minute)
		first := one(t, claimed(t, s, 1))
		db.Advance(t, 40*time.Minute)
		none(t, claimed(t, s, 1))
		db.Advance(t, time.Minute)
		none(t, claimed(t, s, 1))
		states := map[string]int64{}
		for _, r := range allRuns(t, db, "job") {
			states[r.State] += r.Slots
		}
		if states["waiting"] != 100 || states["running"] != 1 || states["skipped"] != 20 {
			t.Errorf("%v: want 100 that wait, and the others skipped", states)
		}
		all := allRuns(t, db, "job")
		last := all[len(all)-1]
		if last.State != "skipped" || !last.To.Equal(at(121*time.Minute)) || last.Error != whyFull {
			t.Errorf("the last are %+v", last)
		}
		before := first
		finished(t, s, first, 0)
		for range 5 {
			e := one(t, takenOver(t, s, catchUpLimit)) // all have looked once: they are due at once, and the first of the line begins
			if !e.due.Equal(before.due.Add(time.Minute)) || e.fence != before.fence+1 {
				t.Fatalf("after %s, fence %d, began %s, fence %d", seconds(before.due), before.fence, seconds(e.due), e.fence)
			}
			finished(t, s, e, 0)
			before = e
		}
	})
}

// replace ends the run before: what waits at once, and what runs when its daemon
// has looked; and then the new slot runs. Never two at a time.
func TestReplace(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		addWith(t, db, "job", "@every 1m", Policy{Overlap: "replace"})
		s, other := daemon(t, db, Options{Lease: time.Hour}), daemon(t, db, Options{Lease: time.Hour})
		db.Advance(t, time.Minute)
		first := one(t, claimed(t, s, 1))
		for range 2 { // the second before the daemon has ended the first
			db.Advance(t, time.Minute)
			none(t, claimed(t, other, 1))
			none(t, takenOver(t, other, 10))
		}
		wantRows(t, db, "job", "60 1 running", "120 1 cancelled", "180 1 waiting")
		if got := obeyed(t, s); !slices.Equal(got, []int64{first.id}) {
			t.Fatalf("ended %v, want the first run", got)
		}
		third := one(t, takenOver(t, other, 10)) // at once
		wantRows(t, db, "job", "60 1 cancelled", "120 1 cancelled", "180 1 running")
		wantErrors(t, db, "job", WhyReplaced, WhyReplaced, "")
		wantFences(t, first, third)
		if got := obeyed(t, other); len(got) > 0 {
			t.Error("the new run was ended too")
		}
		// One that ends well in that moment is ok; one that its daemon hands back
		// or loses is not begun again.
		db.Advance(t, time.Minute)
		none(t, claimed(t, s, 1))
		finished(t, other, third, 0)
		fourth := one(t, takenOver(t, s, 10))
		db.Advance(t, time.Minute)
		none(t, claimed(t, other, 1))
		handedBack(t, s, fourth)
		fifth := takenOver(t, other, 10)
		fifth = append(fifth, takenOver(t, other, 10)...)
		if e := one(t, fifth); !e.due.Equal(at(5 * time.Minute)) {
			t.Errorf("then began %s", seconds(e.due))
		}
		db.Advance(t, time.Minute)
		none(t, claimed(t, other, 1))
		db.Advance(t, 59*time.Minute+30*time.Second)
		sixth := takenOver(t, s, 10)
		sixth = append(sixth, takenOver(t, s, 10)...)
		if e := one(t, sixth); !e.due.Equal(at(6*time.Minute)) || e.attempt != 1 {
			t.Errorf("then began %s, attempt %d", seconds(e.due), e.attempt)
		}
		wantRows(t, db, "job", "60 1 cancelled", "120 1 cancelled", "180 1 ok", "240 1 cancelled", "300 1 cancelled", "360 1 running")
		finished(t, other, fifth[0], 0) // too late
		finished(t, s, sixth[0], 0)
		wantRows(t, db, "job", "60 1 cancelled", "120 1 cancelled", "180 1 ok", "240 1 cancelled", "300 1 cancelled", "360 1 ok")
	})
}

// What waits for its retry is replaced as well, and what somebody starts waits.
func TestReplaceRetries(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		addWith(t, db, "job", "@every 1m", Policy{Overlap: "replace", MaxAttempts: 5, RetryDelay: 2 * time.Minute, RetryPastNext: true})
		s := daemon(t, db, Options{Lease: time.Hour})
		db.Advance(t, time.Minute)
		finished(t, s, one(t, claimed(t, s, 1)), 1)
		wantRows(t, db, "job", "60 1 failed", "60 2 waiting")
		db.Advance(t, time.Minute)
		second := one(t, claimed(t, s, 1)) // nobody runs who would release it
		wantRows(t, db, "job", "60 1 failed", "60 2 cancelled", "120 1 running")
		db.Advance(t, 5*time.Second)
		if _, err := Start(t.Context(), db.DB, "job"); err != nil {
			t.Fatal(err)
		}
		none(t, takenOver(t, s, 10))
		if got := obeyed(t, s); len(got) > 0 {
			t.Error("a run that somebody starts has replaced another")
		}
		finished(t, s, second, 0)
		finished(t, s, one(t, takenOver(t, s, 10)), 0)
		wantRows(t, db, "job", "60 1 failed", "60 2 cancelled", "120 1 ok", "125 1 ok")
	})
}

// A slot that replaces only runs that nobody executes begins at once: nobody is left who would
// release it when he ends. A slot that waited for its next check instead would be replaced in turn
// by a slot that comes sooner than that, and so on for ever.
//
// The class: what waits is released by an event that has happened already. So whoever takes a run
// out of the line either begins what he puts in its place, or releases the next: see
// TestCancelReleasesTheNext.
func TestReplaceOfWhatOnlyWaits(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		addWith(t, db, "job", "@every 1s", Policy{Overlap: "replace"})
		s := daemon(t, db, Options{Lease: time.Hour})
		db.Advance(t, time.Second)
		first := one(t, claimed(t, s, 1))
		db.Advance(t, time.Second)
		none(t, claimed(t, s, 1))
		if got := obeyed(t, s); !slices.Equal(got, []int64{first.id}) {
			t.Fatalf("ended %v, want the first run", got)
		}
		db.Advance(t, time.Second) // a pause: the next slot comes before the released one was taken
		third := one(t, claimed(t, s, 1))
		wantRows(t, db, "job", "1 1 cancelled", "2 1 cancelled", "3 1 running")
		none(t, takenOver(t, s, 10))
		// Nor does anybody execute what was handed back.
		handedBack(t, s, third)
		db.Advance(t, time.Second)
		fourth := one(t, claimed(t, s, 1))
		none(t, takenOver(t, s, 10))
		wantRows(t, db, "job", "1 1 cancelled", "2 1 cancelled", "3 1 cancelled", "4 1 running")
		wantFences(t, first, third, fourth)
		finished(t, s, fourth, 0)
		wantRows(t, db, "job", "1 1 cancelled", "2 1 cancelled", "3 1 cancelled", "4 1 ok")
	})
}

// A slot that replaces a long line does not count as one too many behind it.
func TestReplaceOfALongLine(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		addWith(t, db, "job", "@every 1m", Policy{Overlap: "replace", Missed: "skip", MissedWindow: time.Second})
		s := daemon(t, db, Options{Lease: 24 * time.Hour})
		db.Advance(t, (catchUpLimit+20)*time.Minute+30*time.Second)
		none(t, claimed(t, s, 1))
		b, err := Backfill(t.Context(), db.DB, "job", at(time.Minute), at((catchUpLimit+10)*time.Minute), false)
		if err != nil || len(b.Slots) != catchUpLimit+10 {
			t.Fatal(len(b.Slots), err)
		}
		first := one(t, takenOver(t, s, catchUpLimit+10)) // they are due at once, and the first of the line begins
		db.Advance(t, 30*time.Second)
		none(t, claimed(t, s, 1))
		if got := obeyed(t, s); !slices.Equal(got, []int64{first.id}) {
			t.Fatalf("ended %v, want the first run", got)
		}
		if e := one(t, takenOver(t, s, 10)); !e.due.Equal(at((catchUpLimit + 21) * time.Minute)) {
			t.Errorf("then began %s", seconds(e.due))
		}
	})
}

// Who cancels a run that waits releases the next, as all do who end one.
func TestCancelReleasesTheNext(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		addWith(t, db, "job", "@every 1m", Policy{Overlap: "queue", MaxAttempts: 2, RetryDelay: 8 * time.Hour, RetryPastNext: true})
		s := daemon(t, db, Options{Lease: time.Hour})
		db.Advance(t, time.Minute)
		finished(t, s, one(t, claimed(t, s, 1)), 1)
		db.Advance(t, time.Minute)
		none(t, claimed(t, s, 1))
		db.Advance(t, 10*time.Second)
		none(t, takenOver(t, s, 10)) // behind the retry
		wantRows(t, db, "job", "60 1 failed", "60 2 waiting", "120 1 waiting")
		if _, err := Cancel(t.Context(), db.DB, allRuns(t, db, "job")[1].ID, ""); err != nil {
			t.Fatal(err)
		}
		if e := one(t, takenOver(t, s, 10)); !e.due.Equal(at(2 * time.Minute)) {
			t.Errorf("then began %s", seconds(e.due))
		}
		wantRows(t, db, "job", "60 1 failed", "60 2 cancelled", "120 1 running")
	})
}

// Two that are started in the same moment have slots of their own.
func TestStartTwiceInOneMoment(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		addWith(t, db, "job", "@manual", Policy{Overlap: "queue"})
		if _, err := Start(t.Context(), db.DB, "job"); err != nil {
			t.Fatal(err)
		}
		if r, err := Start(t.Context(), db.DB, "job"); err != nil || !r.Due.Equal(at(time.Millisecond)) {
			t.Errorf("started %+v, %v; there are %q", r, err, rows(t, db, "job"))
		}
	})
}

// A run that was handed back is about to begin again: it has not ended, and
// Backfill leaves it.
func TestBackfillOfARunThatIsHandedBack(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		add(t, db, "job", "@every 1m")
		s := daemon(t, db, Options{})
		db.Advance(t, time.Minute)
		handedBack(t, s, one(t, claimed(t, s, 1)))
		b, err := Backfill(t.Context(), db.DB, "job", at(time.Minute), at(time.Minute), false)
		if err != nil || len(b.Slots) != 0 || b.Left != 1 {
			t.Errorf("backfills %v, leaves %d, %v: the run has not ended", b.Slots, b.Left, err)
		}
	})
}

// Daemons race for what waits: runs of a schedule begin in the order of their
// slots, never two at a time; all are run though nobody's clock moves, so none is forgotten, not
// even one whose row another daemon has locked at that moment; and fences grow.
func TestRaceForTheLine(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		const schedules, slots = 4, 5
		for i := range schedules {
			addWith(t, db, fmt.Sprint("job", i), "@every 1m", Policy{Overlap: "queue", Missed: "all", MaxAttempts: 1})
		}
		db.Advance(t, slots*time.Minute)
		var mu sync.Mutex
		last := map[string]*execution{} // that has begun
		var running [schedules]atomic.Int32
		var done atomic.Int32
		begin := func(e *execution) {
			mu.Lock()
			defer mu.Unlock()
			if n := running[e.schedule[3]-'0'].Add(1); n > 1 {
				t.Errorf("%s: %d run at a time", e.schedule, n)
			}
			if before := last[e.schedule]; before != nil &&
				(e.due.Before(before.due) || e.due.Equal(before.due) && e.attempt <= before.attempt || e.fence <= before.fence) {
				t.Errorf("%s: %s attempt %d fence %d began after %s attempt %d fence %d", e.schedule,
					seconds(e.due), e.attempt, e.fence, seconds(before.due), before.attempt, before.fence)
			}
			last[e.schedule] = e
		}
		var each sync.WaitGroup
		ctx, stop := context.WithCancel(t.Context())
		var releasing sync.WaitGroup
		defer releasing.Wait()
		defer stop()
		for range 2 {
			s := daemon(t, again(t, db), Options{})
			releasing.Go(func() { s.releaseRest(ctx) })
			each.Go(func() {
				for tries := 0; done.Load() < schedules*slots && tries < 2000 && !t.Failed(); tries++ {
					runs, _, err := s.takeOver(t.Context(), "default", 3)
					if err != nil {
						t.Error(err)
						return
					}
					more, _, err := s.claim(t.Context(), "default", 2)
					if err != nil {
						t.Error(err)
						return
					}
					held := hold(s, append(runs, more...))
					for _, e := range held {
						begin(e)
					}
					for i, e := range held {
						running[e.schedule[3]-'0'].Add(-1) // before anybody can know that it has ended
						if (int(e.id)+i)%5 == 0 && e.attempt == 1 {
							handedBack(t, s, e)
							continue
						}
						finished(t, s, e, i%2)
						done.Add(1)
					}
				}
			})
		}
		each.Wait()
		if n := done.Load(); n != schedules*slots {
			t.Errorf("%d of %d runs have ended: %v", n, schedules*slots,
				db.List(t, `SELECT schedule, {us due_at}, attempt, state, {us next_exec} FROM {prefix}run WHERE next_exec IS NOT NULL ORDER BY 1, 2, 3`, sqlrun.Args{}))
		}
	})
}
