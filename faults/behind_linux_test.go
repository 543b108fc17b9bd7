package faults

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/scheduler"
)

// long skips a situation that takes too long for make test.
func long(t *testing.T) {
	t.Helper()
	if *minutes == 0 && !dbtest.Long() {
		t.Skip("make faults: it takes minutes")
	}
}

// A daemon with as many schedules as it can do is shut out of the table of schedules for three
// seconds. It catches up, though it has all that it missed to record; and each slot has one outcome.
func TestStallUnderFullLoad(t *testing.T) {
	long(t)
	const schedules, window = 2000, 10 * time.Second
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		for i := range schedules {
			job := scheduler.Schedule{Name: fmt.Sprintf("s%04d", i), Spec: "@every 1s", Kind: "func", Command: "noop"}
			if err := scheduler.Add(t.Context(), db.DB, job); err != nil {
				t.Fatal(err)
			}
		}
		s, err := scheduler.New(db.Another(t, dialect.Options{}).DB, scheduler.Options{
			Kinds: []string{scheduler.Functions}, MaxRuns: 64, Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		var ran atomic.Int64
		if err := s.Handle("noop", func(context.Context, *scheduler.Running) error { ran.Add(1); return nil }); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		var group sync.WaitGroup
		group.Go(func() {
			if err := s.Run(ctx); err != nil {
				t.Error(err)
			}
		})
		defer group.Wait()
		defer stop()
		// during returns how many runs a window has.
		during := func(span time.Duration) int64 {
			before := ran.Load()
			select {
			case <-t.Context().Done():
			case <-time.After(span):
			}
			return ran.Load() - before
		}
		during(window / 2)
		before := during(window)
		unlock := lockSchedules(t, db)
		during(3 * time.Second)
		unlock()
		after := during(window)
		for tries := 0; after < before/2 && tries < 12; tries++ {
			after = during(window)
		}
		if after < before/2 {
			t.Errorf("%d runs in %v, and after a stall of 3 s never more than half: %d", before, window, after)
		}
		t.Logf("%d runs in %v, and after the stall %d", before, window, after)
		stop()
		group.Wait()
		bad := db.List(t, `SELECT schedule, SUM(slots), {us MIN(due_at)}, {us MAX(COALESCE(due_to, due_at))} FROM {prefix}run
			WHERE state NOT IN ('retry', 'lost') GROUP BY schedule HAVING SUM(slots) <> ({us MAX(COALESCE(due_to, due_at))} - {us MIN(due_at)}) / 1000000 + 1`, sqlrun.Args{})
		if len(bad) > 0 {
			t.Errorf("slots of %d schedules have no outcome, or two: %q …", len(bad), bad[0])
		}
	})
}

// lockSchedules locks the table of schedules, and returns what unlocks it.
func lockSchedules(t *testing.T, db *dbtest.DB) (unlock func()) {
	t.Helper()
	c, err := db.Pool().Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	lock, release := []string{"BEGIN EXCLUSIVE"}, "ROLLBACK"
	switch db.Dialect.Name {
	case "postgres":
		lock = []string{"BEGIN", "LOCK TABLE " + db.Prefix() + "schedule IN ACCESS EXCLUSIVE MODE"}
	case "mysql":
		lock, release = []string{"LOCK TABLES " + db.Prefix() + "schedule WRITE"}, "UNLOCK TABLES"
	}
	do := func(on *sql.Conn, text string) {
		if _, err := on.ExecContext(context.WithoutCancel(t.Context()), text); err != nil {
			t.Error(text, err)
		}
	}
	for _, text := range lock {
		do(c, text)
	}
	return func() { do(c, release); _ = c.Close() }
}

// A command that takes nearly as long as the interval of its schedule, with overlap replace, while
// its daemon is stopped now and then for longer than that: it runs again after each pause.
func TestReplaceAtItsInterval(t *testing.T) {
	long(t)
	const schedules, pauses = 8, 8
	binary := build(t)
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		dir := t.TempDir()
		r := &rig{
			t: t, db: db, binary: binary, dir: dir, mark: "FAULTS_MARK=" + dir,
			lease: 30 * time.Second, poll: time.Second, grace: 10 * time.Second,
		}
		for i := range schedules {
			job := scheduler.Schedule{
				Name: fmt.Sprint("job", i), Spec: "@every 1s", Command: "sleep 0.9", Env: map[string]string{"FAULTS_MARK": dir},
				Policy: scheduler.Policy{Overlap: "replace"},
			}
			if err := scheduler.Add(t.Context(), db.DB, job); err != nil {
				t.Fatal(err)
			}
		}
		d := r.serve(binary, "web-1", "--poll", r.poll.String())
		for range pauses {
			<-time.After(3 * time.Second)
			d.signal(syscall.SIGSTOP)
			<-time.After(1300 * time.Millisecond)
			d.signal(syscall.SIGCONT)
		}
		var last int64
		db.Scan(t, `SELECT {us {now}}`, nil, &last)
		r.eventually("a slot of each schedule begins after the last pause", 2*time.Minute, func() bool {
			var begun int
			db.Scan(t, `SELECT COUNT(DISTINCT schedule) FROM {prefix}run WHERE started_at > {time :last}`, sqlrun.Args{"last": last}, &begun)
			return begun == schedules
		})
		d.stop()
		longest := longestUnbegun(t, db)
		t.Logf("at most %d slots in a row were replaced before they began", longest)
		if longest > 15 {
			t.Errorf("%d slots in a row were replaced before they began", longest)
		}
	})
}

// longestUnbegun returns how many slots in a row of one schedule were cancelled before they began.
func longestUnbegun(t *testing.T, db *dbtest.DB) (longest int) {
	t.Helper()
	all, err := scheduler.History(t.Context(), db.DB, "", 100_000)
	if err != nil {
		t.Fatal(err)
	}
	row := map[string]int{}
	for _, r := range all { // newest first
		if r.State == "cancelled" && r.Started.IsZero() {
			row[r.Schedule]++
			longest = max(longest, row[r.Schedule])
			continue
		}
		row[r.Schedule] = 0
	}
	return longest
}
