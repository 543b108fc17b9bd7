package scheduler

import (
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/guardian"
	"github.com/dbcron/dbcron/internal/plain"
)

// The n-th retry comes after 50 to 100 % of the delay, doubled n-1 times, but
// not more than the plain.LongestDuration.
func TestBackoff(t *testing.T) {
	p := &Policy{RetryDelay: 10 * time.Second, RetryMaxDelay: time.Hour}
	for failures, want := range map[int]time.Duration{
		1: 10e9, 2: 20e9, 3: 40e9, 9: 2560e9, 10: time.Hour,
		40: time.Hour, 64: time.Hour, 1000: time.Hour,
	} {
		for random, part := range map[float64]float64{0: 0.5, 0.5: 0.75, 0.9999999999: 1} {
			if got := p.backoff(failures, random); got.Round(time.Millisecond) != time.Duration(part*float64(want)) {
				t.Errorf("after %d failures, random %v: %v, want %v of %v", failures, random, got, part, want)
			}
		}
	}
	for range 10 {
		rapid.Check(t, func(r *rapid.T) {
			unit := rapid.SampledFrom([]time.Duration{time.Millisecond, time.Second, time.Hour}).Draw(r, "unit")
			p := &Policy{RetryDelay: unit * time.Duration(rapid.Int64Range(1, 1000).Draw(r, "delay"))}
			p.RetryMaxDelay = p.RetryDelay + time.Duration(rapid.Int64Range(0, int64(1000*time.Hour)).Draw(r, "more"))
			wantBackoff(r, p, rapid.IntRange(1, 1000).Draw(r, "failures"), rapid.Float64Range(0, 0.999999).Draw(r, "random"))
		})
	}
}

func wantBackoff(t interface{ Errorf(string, ...any) }, p *Policy, failures int, random float64) {
	want := new(big.Int).Lsh(big.NewInt(int64(p.RetryDelay)), uint(failures-1))
	if want.Cmp(big.NewInt(int64(p.RetryMaxDelay))) > 0 {
		want.SetInt64(int64(p.RetryMaxDelay))
	}
	full := time.Duration(want.Int64())
	if got := p.backoff(failures, random); got < full/2 || got > full {
		t.Errorf("%v, at most %v, after %d failures: %v, want %v to %v", p.RetryDelay, p.RetryMaxDelay, failures, got, full/2, full)
	}
}

// Doublings that overflow are the plain.LongestDuration delay, not a short one.
func TestBackoffOverflow(t *testing.T) {
	for _, p := range []Policy{
		{RetryDelay: 1<<50 + 1<<20, RetryMaxDelay: plain.LongestDuration}, // 13 days
		{RetryDelay: 1<<60 + 1<<40, RetryMaxDelay: plain.LongestDuration},
	} {
		for _, failures := range []int{2, 5, 16, 64} {
			wantBackoff(t, &p, failures, 0)
		}
	}
}

func TestFinal(t *testing.T) {
	for kind, want := range map[string]bool{"shell": true, "argv": true, "http": false, "sql": false, "func": false} {
		for code := -1; code < 256; code++ {
			if got := final(kind, guardian.Result{ExitCode: code}); got != (want && (code == 126 || code == 127)) {
				t.Errorf("%s, %d: final is %t", kind, code, got)
			}
		}
	}
}

// waitsFor returns when the run of the job that waits may begin.
func waitsFor(t *testing.T, db *dbtest.DB) time.Time {
	t.Helper()
	var next time.Time
	for _, r := range allRuns(t, db, "job") {
		if r.State == "waiting" {
			if !next.IsZero() {
				t.Errorf("several runs wait: %q", rows(t, db, "job"))
			}
			next = r.Next
		}
	}
	if next.IsZero() {
		t.Fatalf("no run waits: %q", rows(t, db, "job"))
	}
	return next
}

func nowOf(t *testing.T, db *dbtest.DB) time.Time {
	t.Helper()
	now, err := Clock(t.Context(), db.DB)
	if err != nil {
		t.Fatal(err)
	}
	return now
}

// A slot that fails is tried again, after a growing time, up to max_attempts;
// each attempt is a run of its own, with a larger fence.
func TestRetries(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		addWith(t, db, "job", "@every 1h", Policy{MaxAttempts: 4, RetryDelay: time.Minute, RetryMaxDelay: 3 * time.Minute, MaxFailures: 2})
		s, other := daemon(t, db, Options{}), daemon(t, db, Options{})
		db.Advance(t, time.Hour)
		var begun []*execution
		e := one(t, claimed(t, s, 1))
		for i, delay := range []time.Duration{time.Minute, 2 * time.Minute, 3 * time.Minute} {
			begun = append(begun, e)
			if i == 1 { // too long is a failure like another
				e.stopFor(stop{timedOut, "it took longer than 1m"}, false)
				ended(t, s, e, guardian.Result{Cause: guardian.Killed, ExitCode: 137, Err: guardian.ErrLost})
			} else {
				finished(t, s, e, 3)
			}
			after := waitsFor(t, db).Sub(nowOf(t, db))
			if after < delay/2 || after > delay {
				t.Errorf("retry %d comes after %v, want %v to %v", i+1, after, delay/2, delay)
			}
			db.Advance(t, after-time.Millisecond)
			none(t, takenOver(t, other, 10))
			db.Advance(t, time.Millisecond)
			e = one(t, takenOver(t, other, 10))
			if e.attempt != i+2 || e.failures != i+1 || e.crashes != 0 || e.cause != "slot" || e.what.Command != "true" {
				t.Errorf("retry %d is %+v", i+1, e.run)
			}
		}
		wantRows(t, db, "job", "3600 1 failed", "3600 2 timeout", "3600 3 failed", "3600 4 running")
		if n := stored(t, db, "job").Failures; n != 0 {
			t.Errorf("%d slots have failed, and the only one is being tried", n)
		}
		wantFences(t, append(begun, e)...)
		finished(t, other, e, 1)
		none(t, takenOver(t, s, 10))
		wantErrors(t, db, "job", "exit code 3", "it took longer than 1m", "exit code 3", "exit code 1")
		if job := stored(t, db, "job"); job.Failures != 1 || job.State != "active" {
			t.Errorf("after a slot that failed: %d have, state %s", job.Failures, job.State)
		}
		// A success ends it.
		db.Advance(t, at(2*time.Hour).Sub(nowOf(t, db)))
		finished(t, s, one(t, claimed(t, s, 1)), 1)
		db.Advance(t, waitsFor(t, db).Sub(nowOf(t, db)))
		finished(t, s, one(t, takenOver(t, s, 1)), 0)
		wantRows(t, db, "job", "3600 1 failed", "3600 2 timeout", "3600 3 failed", "3600 4 failed", "7200 1 failed", "7200 2 ok")
		if job := stored(t, db, "job"); job.Failures != 0 || job.State != "active" {
			t.Errorf("after a success: %d have failed, state %s", job.Failures, job.State)
		}
	})
}

// Retries that cannot help are not made: for 126 and 127, for a schedule that is no longer
// active, after the next slot; and the run says so.
func TestNoRetries(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		policy := Policy{MaxAttempts: 3, RetryDelay: time.Minute}
		codes := map[string]int{"126": 126, "127": 127, "deleted": 1, "late": 1, "ok": 0, "past": 1, "paused": 1}
		for name := range codes {
			p := policy
			p.RetryPastNext = name == "past"
			addWith(t, db, name, "@every 1h", p)
		}
		s := daemon(t, db, Options{Lease: 2 * time.Hour})
		db.Advance(t, time.Hour)
		held := claimed(t, s, 10)
		if err := Pause(t.Context(), db.DB, "paused", ""); err != nil {
			t.Fatal(err)
		}
		if err := Delete(t.Context(), db.DB, "deleted"); err != nil {
			t.Fatal(err)
		}
		db.Advance(t, time.Hour-20*time.Second)
		for _, e := range held {
			finished(t, s, e, codes[e.schedule])
		}
		none(t, takenOver(t, s, 10))
		for name, want := range map[string]string{
			"126": "126; not tried again: that would not help", "127": "127; not tried again: that would not help",
			"deleted": "1", "late": "1; not tried again: the next slot comes before", "paused": "1; not tried again: the schedule is paused",
		} {
			wantRows(t, db, name, "3600 1 failed")
			wantErrors(t, db, name, "exit code "+want)
		}
		wantRows(t, db, "ok", "3600 1 ok")
		wantRows(t, db, "past", "3600 1 failed", "3600 2 waiting")
		wantErrors(t, db, "past", "exit code 1", "")
		// With retry_past_next the slot that comes meanwhile is the one that waits or is skipped.
		db.Advance(t, 70*time.Second)
		finished(t, s, one(t, takenOver(t, s, 10)), 0)
		wantRows(t, db, "past", "3600 1 failed", "3600 2 ok")
	})
}

// A retry that waits is cancelled when its schedule is paused meanwhile, and
// made after all if it was resumed, or somebody had asked for the run.
func TestRetriesOfAPausedSchedule(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		for _, name := range []string{"asked", "dies", "paused", "resumed"} {
			addWith(t, db, name, "@every 1h", Policy{MaxAttempts: 3, RetryDelay: time.Minute, OnFailure: "not yet"})
		}
		addWith(t, db, "not yet", "@manual", Policy{})
		s := daemon(t, db, Options{})
		db.Advance(t, 10*time.Minute)
		if err := Pause(t.Context(), db.DB, "asked", ""); err != nil {
			t.Fatal(err)
		}
		if _, err := Start(t.Context(), db.DB, "asked"); err != nil {
			t.Fatal(err)
		}
		e := one(t, takenOver(t, s, 10))
		if e.cause != "hand" || !e.due.Equal(at(10*time.Minute)) {
			t.Errorf("started %+v", e.run)
		}
		finished(t, s, e, 1)
		db.Advance(t, time.Minute)
		finished(t, s, one(t, takenOver(t, s, 10)), 0)
		wantRows(t, db, "asked", "600 1 failed", "600 2 ok")

		db.Advance(t, 49*time.Minute)
		for _, e := range claimed(t, s, 10) {
			if e.schedule != "dies" {
				finished(t, s, e, 1)
			}
		}
		for _, name := range []string{"dies", "paused", "resumed"} {
			if err := Pause(t.Context(), db.DB, name, ""); err != nil {
				t.Fatal(err)
			}
		}
		if err := Resume(t.Context(), db.DB, "resumed"); err != nil {
			t.Fatal(err)
		}
		db.Advance(t, time.Minute)
		settle(t, s)
		wantRows(t, db, "paused", "3600 1 failed", "3600 2 cancelled")
		wantRows(t, db, "resumed", "3600 1 failed", "3600 2 ok")
		wantRows(t, db, "dies", "3600 1 lost")
		wantRows(t, db, "not yet") // none has failed for good
	})
}

// Crashes and failures are counted apart: a lost attempt is no failure, and a
// failed one no crash.
func TestCrashesAndFailures(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		addWith(t, db, "job", "@every 1h", Policy{MaxAttempts: 3, RetryDelay: time.Second})
		s := daemon(t, db, Options{MaxCrashes: 3})
		db.Advance(t, time.Hour)
		e := one(t, claimed(t, s, 1))
		fail := func(want string) {
			t.Helper()
			finished(t, s, e, 1)
			db.Advance(t, 2*time.Second)
			if want == "" {
				none(t, takenOver(t, s, 10))
				return
			}
			e = one(t, takenOver(t, s, 10))
			if got := fmt.Sprint(e.attempt, e.failures, e.crashes); got != want {
				t.Errorf("attempt, failures, crashes %s, want %s", got, want)
			}
		}
		crash := func(want string) {
			t.Helper()
			db.Advance(t, 30*time.Second)
			if want == "" {
				none(t, takenOver(t, s, 10))
				return
			}
			e = one(t, takenOver(t, s, 10))
			if got := fmt.Sprint(e.attempt, e.failures, e.crashes); got != want {
				t.Errorf("attempt, failures, crashes %s, want %s", got, want)
			}
		}
		crash("2 0 1")
		fail("3 1 1")
		crash("4 1 2")
		handedBack(t, s, e)
		e = one(t, takenOver(t, s, 10))
		fail("6 2 2")
		fail("")
		wantRows(t, db, "job", "3600 1 lost", "3600 2 failed", "3600 3 lost", "3600 4 retry", "3600 5 failed", "3600 6 failed")
		db.Advance(t, at(2*time.Hour).Sub(nowOf(t, db)))
		e = one(t, claimed(t, s, 1))
		crash("2 0 1")
		fail("3 1 1")
		crash("4 1 2")
		crash("") // the third, and no retry though one failure is left
		none(t, claimed(t, s, 1))
		last := allRuns(t, db, "job")[9]
		if last.State != "failed" || !strings.Contains(last.Error, "2 daemons") {
			t.Errorf("after three crashes: %+v", last)
		}
	})
}

// A retry waits for its time even if the run that it waits behind ends before.
func TestARetryIsNotReleasedEarly(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		addWith(t, db, "job", "@every 1h", Policy{MaxAttempts: 2, RetryDelay: 10 * time.Minute, Overlap: "queue"})
		s := daemon(t, db, Options{Lease: time.Hour})
		db.Advance(t, 2*time.Hour) // 3600 was missed
		finished(t, s, one(t, claimed(t, s, 1)), 1)
		due := waitsFor(t, db)
		if _, err := Backfill(t.Context(), db.DB, "job", at(time.Hour), at(time.Hour), false); err != nil {
			t.Fatal(err)
		}
		e := one(t, takenOver(t, s, 10)) // before it in the line, and due
		if e.cause != "backfill" || !e.due.Equal(at(time.Hour)) {
			t.Errorf("began %+v", e.run)
		}
		finished(t, s, e, 0)
		none(t, takenOver(t, s, 10))
		if next := waitsFor(t, db); !next.Equal(due) {
			t.Errorf("the retry was moved from %v to %v", due, next)
		}
		db.Advance(t, due.Sub(nowOf(t, db)))
		finished(t, s, one(t, takenOver(t, s, 10)), 0)
		wantRows(t, db, "job", "3600 1 missed to 3600: 1", "3600 2 ok", "7200 1 failed", "7200 2 ok")
	})
}

// A schedule whose slots fail in a row is given up, and says why; a success in
// between, or a person, begins anew.
func TestMaxFailures(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		addWith(t, db, "crash", "@every 1m", Policy{MaxFailures: 1})
		addWith(t, db, "never", "@every 1m", Policy{})
		addWith(t, db, "queue", "@every 1m", Policy{MaxFailures: 2, Overlap: "queue"})
		addWith(t, db, "three", "@every 1m", Policy{MaxFailures: 3})
		s := daemon(t, db, Options{MaxCrashes: 1})
		for round, code := range []int{1, 1, 0, 1, 1} {
			db.Advance(t, time.Minute)
			for _, e := range claimed(t, s, 10) {
				switch {
				case e.schedule == "queue": // let it wait
				case e.schedule != "crash":
					finished(t, s, e, code)
				}
			}
			if err := renewAll(t, s); err != nil {
				t.Fatal(err)
			}
			want := []int{1, 2, 0, 1, 2}[round]
			if three := stored(t, db, "three"); three.Failures != want || three.State != "active" {
				t.Errorf("round %d: %d slots have failed, state %s, want %d", round, three.Failures, three.State, want)
			}
			for _, e := range takenOver(t, s, 10) {
				finished(t, s, e, 1)
			}
		}
		db.Advance(t, time.Minute)
		held := claimed(t, s, 10)
		for _, e := range held {
			switch e.schedule {
			case "three":
				e.stopFor(stop{timedOut, "too long"}, false)
				ended(t, s, e, guardian.Result{Cause: guardian.Killed, ExitCode: 137})
			case "never":
				finished(t, s, e, 1)
			}
		}
		for name, want := range map[string]string{
			"crash": "failed 1 1 slots in a row have failed", "never": "active 0 ",
			"queue": "failed 2 2 slots in a row have failed", "three": "failed 3 3 slots in a row have failed",
		} {
			job := stored(t, db, name)
			if got := fmt.Sprint(job.State, " ", job.Failures, " ", job.Reason); got != want {
				t.Errorf("%s: %s, want %s", name, got, want)
			}
		}
		n := len(rows(t, db, "three"))
		db.Advance(t, 5*time.Minute)
		settle(t, s)
		if got := rows(t, db, "three"); len(got) != n {
			t.Errorf("a schedule that was given up has run: %q", got)
		}
		for _, r := range allRuns(t, db, "queue") {
			if r.State == "waiting" || r.State == "running" {
				t.Errorf("of a schedule that was given up: %+v", r)
			}
		}
		if err := Resume(t.Context(), db.DB, "three"); err != nil {
			t.Fatal(err)
		}
		settle(t, s)
		db.Advance(t, time.Minute)
		for _, e := range claimed(t, s, 10) {
			finished(t, s, e, 1)
		}
		if three := stored(t, db, "three"); three.State != "active" || three.Failures != 1 || three.Reason != "" {
			t.Errorf("resumed, and failed once: %s, %d, %q", three.State, three.Failures, three.Reason)
		}
	})
}

// With overlap allow, also a run that began before another one failed resets the
// count when it ends well.
func TestASuccessAlwaysResetsTheFailures(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		addWith(t, db, "job", "@every 1m", Policy{MaxFailures: 2, Overlap: "allow"})
		s := daemon(t, db, Options{Lease: time.Hour})
		var held []*execution
		for range 3 {
			db.Advance(t, time.Minute)
			held = append(held, one(t, claimed(t, s, 1)))
		}
		finished(t, s, held[0], 1)
		finished(t, s, held[1], 0)
		finished(t, s, held[2], 1)
		if job := stored(t, db, "job"); job.Failures != 1 || job.State != "active" {
			t.Errorf("failed, ok, failed: %d in a row, state %s", job.Failures, job.State)
		}
	})
}
