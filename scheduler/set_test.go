package scheduler

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/queue"
)

// Set creates a schedule or changes it, and leaves its other settings alone. If it refuses, it
// has changed nothing.
func TestSet(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		set := func(name string, change func(s *Schedule)) (Schedule, bool, error) {
			return Set(t.Context(), db.DB, name, func(s *Schedule, _ bool) error {
				change(s)
				return nil
			})
		}
		s, isNew, err := set("a", func(s *Schedule) { s.Spec, s.Command, s.Stdin, s.MaxAttempts = "@daily", "true", "in", 3 })
		if err != nil || !isNew || s.Due.IsZero() || s.ID == 0 {
			t.Fatalf("got %+v, %v, %v", s, isNew, err)
		}
		paused(t, db, "a")
		s, isNew, err = set("a", func(s *Schedule) { s.Spec, s.Name, s.State = "@hourly", "other", "active" })
		if err != nil || isNew || s.Name != "a" || s.Spec != "@hourly" || s.Stdin != "in" || s.MaxAttempts != 3 || s.State != "paused" {
			t.Errorf("got %+v, %v, %v", s, isNew, err)
		}
		for _, name := range []string{"a", "b"} {
			if _, _, err := set(name, func(s *Schedule) { s.Spec, s.Command = "x", "true" }); !errors.Is(err, ErrInvalid) {
				t.Errorf("got %v", err)
			}
			mine := errors.New("mine")
			if _, _, err := Set(t.Context(), db.DB, name, func(*Schedule, bool) error { return mine }); !errors.Is(err, mine) {
				t.Errorf("got %v", err)
			}
		}
		if _, err := Import(t.Context(), db.DB, "file:/x", []Schedule{{Name: "managed", Key: "k", Spec: "@daily", Command: "true"}},
			ImportOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, _, err := set("managed", func(s *Schedule) { s.Command = "false" }); !errors.Is(err, ErrManaged) {
			t.Errorf("got %v", err)
		}
		all, err := List(t.Context(), db.DB, "", 10)
		if err != nil || len(all) != 2 || all[0].Spec != "@hourly" || all[1].Command != "true" {
			t.Errorf("there are %+v, %v", all, err)
		}
	})
}

// Put makes a schedule, changes it, and changes nothing where nothing is new, although all
// processes of a program put theirs when they start.
func TestPut(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		var processes sync.WaitGroup
		for range 4 {
			processes.Go(func() {
				if err := Put(t.Context(), db.DB, Schedule{
					Name: "a", Spec: "@every 1h", Command: "true",
					Policy: Policy{FirstRun: "now"},
				}); err != nil {
					t.Error(err)
				}
			})
		}
		processes.Wait()
		first := stored(t, db, "a")
		paused(t, db, "a")
		if err := Put(t.Context(), db.DB, Schedule{Name: "a", Spec: "@every 1h", Command: "false"}); err != nil {
			t.Fatal(err)
		}
		if got := stored(t, db, "a"); got.ID != first.ID || got.Command != "false" || got.State != "paused" {
			t.Errorf("got %+v", got)
		}
		if err := Put(t.Context(), db.DB, Schedule{Name: "a", Spec: "never", Command: "false"}); !errors.Is(err, ErrInvalid) {
			t.Errorf("got %v", err)
		}
	})
}

// A periodic job has the payload of a typed job. What a schedule cannot give a job is refused,
// and no schedule is made.
func TestPeriodicJob(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		digest := queue.Kind[map[string]int]{Name: "digest", Queue: "mail"}
		job := digest.Job(map[string]int{"user": 42})
		job.Key, job.Priority, job.MaxAttempts, job.Timeout = "k", queue.Low, 3, time.Minute
		job.Unique, job.UniqueFor, job.UniqueUntil = "u", time.Hour, queue.UntilBegin
		if err := Put(t.Context(), db.DB, PeriodicJob("digest", "@every 1h", job)); err != nil {
			t.Fatal(err)
		}
		db.Advance(t, time.Hour)
		claimJobs(t, daemon(t, db, Options{Kinds: []string{Jobs}}))
		if payloads := jobsOf(t, db)["digest"]; len(payloads) != 1 || payloads[0] != `{"user":42}` {
			t.Errorf("payloads %q", payloads)
		}
		if got := stored(t, db, "digest").Job; got != (JobOptions{
			Queue: "mail", Key: "k", Priority: queue.Low,
			MaxAttempts: 3, Timeout: time.Minute, Unique: "u", UniqueFor: time.Hour, UniqueUntil: queue.UntilBegin,
		}) {
			t.Errorf("got %+v", got)
		}
		unfit := queue.Kind[chan int]{Name: "unfit"}
		for want, j := range map[string]queue.Job{
			"no unique key": {Kind: "k", UniqueFor: time.Hour}, "no delay": {Kind: "k", Delay: time.Second}, "no group": {Kind: "k", Group: 1},
			"no endpoint": {Kind: "k", Endpoint: "https://example.org/"}, "no binary": {Kind: "k", Payload: []byte{1}, Binary: true},
			"unsupported type": unfit.Job(nil), "not JSON": {Kind: "k", Payload: []byte("{")},
			"no trace": {Kind: "k", Trace: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
		} {
			err := Put(t.Context(), db.DB, PeriodicJob("bad", "@daily", j))
			if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: got %v", want, err)
			}
		}
		if _, err := Get(t.Context(), db.DB, "bad"); !errors.Is(err, ErrNotFound) {
			t.Errorf("got %v", err)
		}
	})
}
