package faults

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/ops/health"
	"github.com/dbcron/dbcron/internal/ops/notify"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/scheduler"
)

func init() { roles["clock daemon"] = playClockDaemon }

// playClockDaemon runs schedules and notifies, as a daemon does, until it is killed.
func playClockDaemon(ctx context.Context, a *actor) error {
	s, err := scheduler.New(a.db, scheduler.Options{Kinds: []string{scheduler.Functions}, Poll: 100 * time.Millisecond})
	if err != nil {
		return err
	}
	if err := s.Handle("tick", func(context.Context, *scheduler.Running) error { say("ran"); return nil }); err != nil {
		return err
	}
	n, err := notify.New(a.db, notify.Options{Targets: []string{"command:true"}})
	if err != nil {
		return err
	}
	go n.Run(ctx)
	return s.Run(ctx)
}

// The server's clock is an hour ahead, as after a boot, and is set right. An interval goes on, a holder that lives keeps its lock, that of
// one that was killed comes free when its lease is over, the clock is a finding, and people are notified.
//
// The class: a time that was written for a clock that was wrong. The decision is docs/adr/0074-a-lease-that-outlasts-its-length.md. All of them,
// with what happens after that clock, and the test:
//
//   - lock, expire_at and minimum hold: settled; counted from the release (TestALeaseOutlastsNoClockThatWentBack).
//   - lock, waiting_until: each process that joins writes it anew; a dead first waiter keeps its turn until then, from those who wait in turn.
//   - schedule, next_exec: an interval is planned anew (TestAnIntervalPlannedAnewMeetsNoOlderRuns); times of day wait, and are named.
//   - run to be retried: waits, and schedule explain shows until when; schedule cancel, then schedule run, ends that (TestSituations).
//   - lease of a run, worker or daemon: its process renews it to a new end; that of a dead one lasts, and is named (TestSituations).
//   - job, run_at: waits, and is named; job retry ends that (TestSituations). Debounce: anew with the key's next job (TestDebounce).
//   - unique key, free_at: lasts as long; other callers may have asked for longer.
//   - rate, drawn_at: nobody owes more than a burst and the greatest cost at the rate of now.
//   - limit, waiting_until: more than a minute ahead counts as past (TestPermits).
//   - endpoint's pause: 30 days at most. Token, expires_at and old_until: meant as they are.
//   - notification, sent_at and hour_at: what is ahead counts as long ago (TestTheClockIsSetBack).
//   - history, purge_at: kept for longer; holds no work. What is in memory runs by the process's monotonic clock.
func TestTheClockGoesBack(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		db.Do(t, "CREATE TABLE test_offset (us BIGINT NOT NULL)", nil)
		db.Do(t, "INSERT INTO test_offset (us) VALUES (:us)", sqlrun.Args{"us": time.Hour.Microseconds()})
		db.DB = db.WithNow(steppingClock(db.Dialect))
		for name, spec := range map[string]string{"tick": "@every 1s", "yearly": "0 0 1 1 *"} {
			if err := scheduler.Add(t.Context(), db.DB, scheduler.Schedule{Name: name, Spec: spec, Kind: "func", Command: "tick"}); err != nil {
				t.Fatal(err)
			}
		}
		daemon := start(t, "clock daemon", part{URL: db.URL, TTL: 30 * time.Second, Stepping: true})
		lasting := part{URL: db.URL, TTL: 6 * time.Second, Stepping: true, Name: "dead"}
		dead, rival := start(t, "holder", lasting), start(t, "holder", lasting)
		lasting.Name = "alive"
		alive := start(t, "holder", lasting)
		for _, holder := range []*child{dead, alive} {
			holder.tell("acquire")
			holder.hear("granted")
		}
		for range 3 {
			daemon.hear("ran")
		}
		dead.kill()
		db.Do(t, "UPDATE test_offset SET us = 0", nil)
		back := db.List(t, `SELECT COUNT(*) FROM {prefix}run WHERE due_at < {now}`, nil)[0]

		for range 4 { // one may be under way
			daemon.hear("ran")
		}
		if n := db.List(t, `SELECT COUNT(*) FROM {prefix}run WHERE due_at < {now}`, nil)[0]; n == back {
			t.Errorf("%s slots of the present have run, as before", n)
		}
		now, err := scheduler.Clock(t.Context(), db.DB)
		if err != nil {
			t.Fatal(err)
		}
		found, err := health.OfClock(t.Context(), db.DB, now)
		if err != nil || len(found) != 1 || !strings.Contains(found[0].What(), "clock went back by 59m") || !strings.Contains(found[0].Why, "dead") {
			t.Errorf("found: %+v, %v", found, err)
		}
		rival.tell("acquire")
		rival.hear("granted")
		if r := readRow(t, db, "alive"); r.expiry > now.Add(patience).UnixMicro() {
			t.Errorf("the lease of the living holder ends at %v", time.UnixMicro(r.expiry))
		}
		alive.tell("extend")
		alive.hear("extended")
		r := &rig{t: t, db: db}
		r.eventually("people are notified", patience, func() bool {
			return len(db.List(t, `SELECT name FROM {prefix}notice WHERE subject = 'clock' AND told_at IS NOT NULL`, nil)) == 1
		})
	})
}
