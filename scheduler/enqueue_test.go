package scheduler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/queue/admin"
)

// addEnqueuing stores a schedule that enqueues a job of the kind welcome.
func addEnqueuing(t *testing.T, db *dbtest.DB, name, spec string, more ...func(*Schedule)) {
	t.Helper()
	s := Schedule{Name: name, Spec: spec, Kind: "job", Command: "welcome"}
	for _, f := range more {
		f(&s)
	}
	if err := Add(t.Context(), db.DB, s); err != nil {
		t.Fatal(err)
	}
}

// claimJobs claims everything due or waiting in the lane of jobs. Nothing is left to execute.
func claimJobs(t *testing.T, s *Scheduler) {
	t.Helper()
	for {
		taken, done, err := s.takeOver(t.Context(), "default job", batch)
		if err != nil {
			t.Fatal(err)
		}
		runs, moved, err := s.claim(t.Context(), "default job", batch)
		if err != nil {
			t.Fatal(err)
		}
		if len(taken)+len(runs) > 0 {
			t.Fatalf("these are to be executed: %v %v", taken, runs)
		}
		if done+moved == 0 {
			return
		}
	}
}

// jobsOf accounts for jobs and runs: each run that is ok names one job that is there,
// and there are no others. It returns the payloads by the schedule's name, in the order
// of the runs.
func jobsOf(t *testing.T, db *dbtest.DB) map[string][]string {
	t.Helper()
	there := map[string]string{}
	for _, line := range db.List(t, `SELECT j.id, q.name, j.payload FROM {prefix}job AS j JOIN {prefix}queue AS q ON q.queue_id = j.queue_id`, nil) {
		id, rest, _ := strings.Cut(line, " ")
		name, payload, _ := strings.Cut(rest, " ")
		there[fmt.Sprintf("job %s in queue %s\n", id, name)] = payload
	}
	payloads := map[string][]string{}
	for _, r := range allRuns(t, db, "") {
		payload, found := there[r.Output]
		if found != (r.State == "ok") {
			t.Errorf("a run is %s, and says %q; there is such a job: %t", r.State, r.Output, found)
		}
		if found {
			payloads[r.Schedule] = append(payloads[r.Schedule], payload)
			delete(there, r.Output)
		}
	}
	for text := range there {
		t.Errorf("there is a %q without a run", text)
	}
	return payloads
}

func TestEnqueue(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		addEnqueuing(t, db, "all", "@every 1h", func(s *Schedule) {
			s.Stdin = `{"user":  "Zoë", "n": 1.0}`
			s.Job = JobOptions{Queue: "mail", Key: "k", Priority: queue.Low, MaxAttempts: 7, Timeout: 90 * time.Second}
		})
		addEnqueuing(t, db, "none", "@every 1h")
		db.Advance(t, time.Hour)
		claimJobs(t, daemon(t, db, Options{}))
		payloads := jobsOf(t, db)
		if got := payloads["all"]; !slices.Equal(got, []string{`{"user":  "Zoë", "n": 1.0}`}) {
			t.Errorf("payloads %q", got)
		}
		var slot Slot
		if err := json.Unmarshal([]byte(payloads["none"][0]), &slot); err != nil {
			t.Fatal(err)
		}
		r := allRuns(t, db, "none")[0]
		if slot != (Slot{"none", r.Due, r.ID, nil}) || !strings.Contains(payloads["none"][0], `"due":"`+r.Due.Format(time.RFC3339)) {
			t.Errorf("payload %s, and the run is %+v", payloads["none"][0], r)
		}
		if r.State != "ok" || !r.Due.Equal(at(time.Hour)) || r.Attempt != 1 || r.Cause != "slot" || r.ExitCode != -1 ||
			r.Started.IsZero() || r.Finished.IsZero() || !r.Next.IsZero() {
			t.Errorf("run %+v", r)
		}
		got := db.List(t, `SELECT q.name, kind, job_key, priority, j.max_attempts, j.timeout FROM {prefix}job AS j
			JOIN {prefix}queue AS q ON q.queue_id = j.queue_id ORDER BY q.name DESC`, nil)
		if len(got) != 2 || got[0] != "mail welcome k 3 7 90000000" || !strings.HasPrefix(got[1], "default welcome ") {
			t.Errorf("jobs %q", got)
		}
		s := stored(t, db, "all")
		if s.Job.Queue != "mail" || s.Job.Timeout != 90*time.Second || !s.Due.Equal(at(2*time.Hour)) || s.State != "active" {
			t.Errorf("stored %+v", s)
		}
	})
}

// A schedule that names no queue has its jobs go where the route of their kind says.
func TestEnqueueRoutes(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		c, err := queue.New(db.DB, queue.Options{})
		if err == nil {
			_, err = adminOf(c).Edit(t.Context(), "mail", func(*admin.Queue) {})
		}
		if err == nil {
			err = adminOf(c).SetRoute(t.Context(), "welcome", "mail")
		}
		if err != nil {
			t.Fatal(err)
		}
		addEnqueuing(t, db, "routed", "@every 1h")
		addEnqueuing(t, db, "named", "@every 1h", func(s *Schedule) { s.Job.Queue = "default" })
		db.Advance(t, time.Hour)
		claimJobs(t, daemon(t, db, Options{}))
		got := db.List(t, `SELECT r.schedule, q.name FROM {prefix}run AS r JOIN {prefix}queue AS q ON r.output LIKE CONCAT('job % in queue ', q.name, '%') ORDER BY 1`, nil)
		if !slices.Equal(got, []string{"named default", "routed mail"}) {
			t.Errorf("runs %q", got)
		}
	})
}

// claimAtOnce lets a daemon on each connection claim jobs until it finds none.
func claimAtOnce(t *testing.T, all []*dbtest.DB, limit int) {
	t.Helper()
	var wg sync.WaitGroup
	for _, db := range all {
		s := daemon(t, db, Options{})
		wg.Go(func() {
			for {
				runs, moved, err := s.claim(t.Context(), "default job", limit)
				if db.Dialect.Retryable(err) { // the others were always faster
					continue
				}
				if err != nil || len(runs) > 0 {
					t.Error(runs, err)
				}
				if moved == 0 {
					return
				}
			}
		})
	}
	wg.Wait()
}

// Daemons that claim at once enqueue one job for each slot.
func TestEnqueueOnce(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		const schedules, hours = 30, 5
		for i := range schedules {
			addEnqueuing(t, db, fmt.Sprintf("s%02d", i), "@every 1h", func(s *Schedule) { s.Job.Queue = fmt.Sprintf("q%d", i%3) })
		}
		others := []*dbtest.DB{db, again(t, db), again(t, db), again(t, db)}
		for range hours {
			db.Advance(t, time.Hour)
			claimAtOnce(t, others, 7)
			claimJobs(t, daemon(t, db, Options{})) // what one held locked, the others passed over
		}
		payloads := jobsOf(t, db)
		for name, of := range payloads {
			slices.Sort(of)
			if of = slices.Compact(of); len(of) != hours {
				t.Errorf("%s: %q", name, of)
			}
		}
		if len(payloads) != schedules {
			t.Errorf("%d schedules have enqueued", len(payloads))
		}
	})
}

// Many schedules that are due at the same moment.
func TestEnqueueHerd(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		addMany(t, db, 1000, "@every 1h", at(time.Hour))
		db.Do(t, `UPDATE {prefix}schedule SET kind = 'job', command = 'welcome'`, nil)
		db.Advance(t, time.Hour)
		claimAtOnce(t, []*dbtest.DB{db, again(t, db)}, batch)
		claimJobs(t, daemon(t, db, Options{}))
		if payloads := jobsOf(t, db); len(payloads) != 1000 {
			t.Errorf("%d schedules have enqueued", len(payloads))
		}
	})
}

// skippedBy returns the expected run of a slot whose unique key is in use.
func skippedBy(t *testing.T, db *dbtest.DB, schedule string, of Run) {
	t.Helper()
	which := strings.TrimSuffix(of.Output, "\n")
	for _, r := range allRuns(t, db, schedule) {
		if r.State == "skipped" && (r.Error != whyTaken+which || r.Output != "" || r.Finished.IsZero() || !r.Next.IsZero()) {
			t.Errorf("it is to be skipped by %s, and is %+v", which, r)
		}
	}
}

// While the last job waits or runs, slots of a unique job enqueue nothing, and say so. Once it
// is done, the next slot enqueues again, whichever daemon has the slot.
func TestEnqueueUnique(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		addEnqueuing(t, db, "one", "@every 1s", func(s *Schedule) {
			s.Job.Queue, s.Job.Unique, s.OnSuccess, s.OnFailure = "mail", "u", "follows", "follows"
		})
		addEnqueuing(t, db, "follows", "@manual")
		daemons := []*Scheduler{daemon(t, db, Options{}), daemon(t, again(t, db), Options{})}
		step := func(by *Scheduler) {
			db.Advance(t, time.Second)
			claimJobs(t, by)
		}
		for i := range 3 {
			step(daemons[i%2])
		}
		want := []string{"1 1 ok", "2 1 skipped to 2: 1", "3 1 skipped to 3: 1"}
		wantRows(t, db, "one", want...)
		first := allRuns(t, db, "one")[0]

		c, err := queue.New(db.DB, queue.Options{})
		if err != nil {
			t.Fatal(err)
		}
		w, err := c.Worker(queue.WorkerOptions{Queues: []string{"mail"}})
		if err != nil {
			t.Fatal(err)
		}
		running, goOn, over := make(chan struct{}), make(chan struct{}), make(chan error, 1)
		if err := w.Handle("welcome", func(context.Context, *queue.Delivery) error {
			close(running)
			<-goOn
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		go func() { over <- w.RunOnce(t.Context()) }()
		select {
		case <-running:
		case err := <-over:
			t.Fatalf("the job has not begun: %v", err)
		}
		step(daemons[1])
		close(goOn)
		if err := <-over; err != nil {
			t.Fatal(err)
		}
		want = append(want, "4 1 skipped to 4: 1")
		wantRows(t, db, "one", want...)
		skippedBy(t, db, "one", first)

		step(daemons[0])
		step(daemons[1])
		wantRows(t, db, "one", append(want, "5 1 ok", "6 1 skipped to 6: 1")...)
		if n := len(allRuns(t, db, "follows")); n != 2 {
			t.Errorf("%d runs follow, want one for each that has enqueued", n)
		}
	})
}

// A key that lasts keeps slots from enqueueing although its job has ended.
func TestEnqueueUniqueFor(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		addEnqueuing(t, db, "one", "@every 1m", func(s *Schedule) {
			s.Job.Queue, s.Job.Unique, s.Job.UniqueFor = "mail", "u", 90*time.Second
		})
		s := daemon(t, db, Options{})
		for i := range 3 {
			db.Advance(t, time.Minute)
			claimJobs(t, s)
			if i == 0 {
				endJobs(t, db)
			}
		}
		wantRows(t, db, "one", "60 1 ok", "120 1 skipped to 120: 1", "180 1 ok")
	})
}

// endJobs cancels all jobs that are ready in the queue mail.
func endJobs(t *testing.T, db *dbtest.DB) {
	t.Helper()
	c, err := queue.New(db.DB, queue.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range db.List(t, `SELECT id FROM {prefix}job`, nil) {
		id, err := strconv.ParseInt(text, 10, 64)
		if err == nil {
			err = adminOf(c).Cancel(t.Context(), "mail", id)
		}
		if err != nil {
			t.Error(err)
		}
	}
}

// Of schedules with one unique key that several daemons claim at once, one enqueues, and the
// others name its job.
func TestEnqueueUniqueAtOnce(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		const schedules, hours = 20, 3
		for i := range schedules {
			addEnqueuing(t, db, fmt.Sprintf("s%02d", i), "@every 1h", func(s *Schedule) { s.Job.Queue, s.Job.Unique = "mail", "u" })
		}
		daemons := []*dbtest.DB{db, again(t, db), again(t, db), again(t, db)}
		for hour := range hours {
			db.Advance(t, time.Hour)
			claimAtOnce(t, daemons, 3)
			claimJobs(t, daemon(t, db, Options{})) // what one held locked, the others passed over
			var ok, skipped []Run
			for _, r := range allRuns(t, db, "") {
				switch {
				case !r.Due.Equal(at(time.Duration(hour+1) * time.Hour)):
				case r.State == "ok":
					ok = append(ok, r)
				case r.State == "skipped":
					skipped = append(skipped, r)
				}
			}
			if len(ok) != 1 || len(skipped) != schedules-1 {
				t.Fatalf("%d slots enqueued and %d were skipped", len(ok), len(skipped))
			}
			for _, r := range skipped {
				if r.Error+"\n" != whyTaken+ok[0].Output {
					t.Errorf("%q, and the job is %q", r.Error, ok[0].Output)
				}
			}
			if jobs := db.List(t, `SELECT id FROM {prefix}job`, nil); len(jobs) != 1 {
				t.Errorf("jobs %q", jobs)
			}
			endJobs(t, db)
		}
	})
}

// Slots that were missed become jobs as the policy says, in their order, and overlap
// is nothing that a job could do.
func TestEnqueueMissed(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		for _, missed := range []string{"all", "once", "skip"} {
			for _, overlap := range []string{"forbid", "queue", "allow"} {
				addEnqueuing(t, db, missed+" "+overlap, "@every 1h", func(s *Schedule) { s.Missed, s.Overlap = missed, overlap })
			}
		}
		db.Advance(t, 5*time.Hour+10*time.Minute)
		claimJobs(t, daemon(t, db, Options{}))
		payloads := jobsOf(t, db)
		for _, overlap := range []string{"forbid", "queue", "allow"} {
			var due []string
			for _, text := range payloads["all "+overlap] {
				var slot Slot
				if err := json.Unmarshal([]byte(text), &slot); err != nil {
					t.Error(err)
				}
				due = append(due, seconds(slot.Due))
			}
			if !slices.Equal(due, []string{"3600", "7200", "10800", "14400", "18000"}) {
				t.Errorf("all, %s: %q", overlap, due)
			}
			wantRows(t, db, "once "+overlap, "3600 1 missed to 14400: 4", "18000 1 ok")
			wantRows(t, db, "skip "+overlap, "3600 1 missed to 18000: 5")
		}
	})
}

// Whatever is cut, no slot has two jobs, no run is ok without its job, and no job lacks a run.
// Afterwards a healthy daemon creates what is missing.
func TestFaultsInEnqueue(t *testing.T) {
	clockedDialects(t, func(t *testing.T, db *dbtest.DB) {
		var firsts map[string]time.Time
		prepare := func() {
			for _, table := range []string{"job", "queue_block", "queue"} {
				db.Do(t, `DELETE FROM {prefix}`+table, nil)
			}
			for _, name := range []string{"a", "b", "keyed"} {
				addEnqueuing(t, db, name, "@every 1h", func(s *Schedule) {
					s.Missed, s.OnSuccess = "all", "follows"
					s.Job.Queue = "new-" + name
					if name == "keyed" {
						s.Job.Key = "k"
					}
				})
			}
			addEnqueuing(t, db, "follows", "@manual")
			firsts = firstSlots(t, db)
			delete(firsts, "follows")
			db.Advance(t, 150*time.Minute)
		}
		faults(t, db, prepare, func(broken *dbtest.DB, what string) {
			s := daemon(t, broken, Options{})
			for _, take := range []func() error{
				func() error { _, _, err := s.claim(t.Context(), "default job", batch); return err },
				func() error { _, _, err := s.takeOver(t.Context(), "default job", batch); return err }, // those that follow
			} {
				if err := take(); err != nil && !errors.Is(err, dbtest.ErrBroken) {
					t.Error(err)
				}
				jobsOf(t, db)
			}
			db.Advance(t, 20*time.Minute) // to no further slot
			eventually(t, what+": all is enqueued", func() bool {
				claimJobs(t, daemon(t, db, Options{}))
				return len(jobsOf(t, db)["follows"]) == 2
			})
			payloads := jobsOf(t, db)
			for name, first := range firsts {
				want := []string{seconds(first) + " 1 ok", seconds(first.Add(time.Hour)) + " 1 ok"}
				if wantRows(t, db, name, want...); len(payloads[name]) != 2 {
					t.Errorf("%s: %s has the jobs %q", what, name, payloads[name])
				}
			}
		})
	})
}

// A job refused by its queue fails its run with the reason. Other schedules do not notice, and
// this one continues.
func TestEnqueueRefused(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		db.Do(t, `INSERT INTO {prefix}queue (name, state, max_payload) VALUES ('gone', 'deleted', 100), ('small', 'active', 5)`, nil)
		addEnqueuing(t, db, "alarm", "@manual")
		for _, name := range []string{"fine", "gone", "small", "new"} {
			addEnqueuing(t, db, name, "@every 1h", func(s *Schedule) { s.Stdin, s.Job.Queue, s.OnFailure = `"123456"`, name, "alarm" })
		}
		addEnqueuing(t, db, "twice", "@every 1h", func(s *Schedule) { s.Job.Queue, s.MaxFailures = "gone", 2 })
		for range 2 {
			db.Advance(t, time.Hour)
			claimJobs(t, daemon(t, db, Options{}))
		}
		for name, why := range map[string]string{
			"gone": `the queue is deleted: "gone"`, "small": `it has 8 bytes, and queue "small" takes 5`, "twice": `the queue is deleted: "gone"`,
		} {
			wantRows(t, db, name, "3600 1 failed", "7200 1 failed")
			for _, r := range allRuns(t, db, name) {
				if !strings.Contains(r.Error, why) || r.Output != "" {
					t.Errorf("%s: error %q", name, r.Error)
				}
			}
		}
		payloads := jobsOf(t, db)
		if len(payloads["fine"]) != 2 || len(payloads["new"]) != 2 || len(payloads["alarm"]) != 2 {
			t.Errorf("jobs %q", payloads)
		}
		if s := stored(t, db, "gone"); s.State != "active" || !s.Due.Equal(at(3*time.Hour)) {
			t.Errorf("it does not go on: %+v", s)
		}
		if s := stored(t, db, "twice"); s.State != "failed" || s.Reason != "2 slots in a row have failed" {
			t.Errorf("it is not given up: %+v", s)
		}
		db.Do(t, `UPDATE {prefix}queue SET state = 'active'`, nil)
		db.Advance(t, time.Hour)
		claimJobs(t, daemon(t, db, Options{}))
		wantRows(t, db, "gone", "3600 1 failed", "7200 1 failed", "10800 1 ok")
	})
}

// Run by hand, backfilled, and as the next of a chain.
func TestEnqueueAsked(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		addEnqueuing(t, db, "job", "@every 1h")
		db.Advance(t, 3*time.Hour)
		s := daemon(t, db, Options{})
		claimJobs(t, s)
		for range 2 { // under forbid
			if _, err := Start(t.Context(), db.DB, "job"); err != nil {
				t.Fatal(err)
			}
		}
		if err := Pause(t.Context(), db.DB, "job", "for a while"); err != nil {
			t.Fatal(err)
		}
		claimJobs(t, s)
		if n := len(jobsOf(t, db)["job"]); n != 3 {
			t.Errorf("%d jobs, want one of a slot and two by hand", n)
		}
		b, err := Backfill(t.Context(), db.DB, "job", at(-4*time.Hour), at(-time.Hour), false)
		if err != nil || len(b.Slots) != 4 {
			t.Fatal(b, err)
		}
		claimJobs(t, s)
		if n := len(jobsOf(t, db)["job"]); n != 7 {
			t.Errorf("%d jobs, want four more", n)
		}
	})
}

// A run that waits makes what its schedule says when its turn comes: a job, or work
// for the daemon.
func TestEnqueueOrElse(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		add(t, db, "becomes a job", "@manual")
		addEnqueuing(t, db, "becomes a command", "@manual")
		for _, name := range []string{"becomes a job", "becomes a command"} {
			if _, err := Start(t.Context(), db.DB, name); err != nil {
				t.Fatal(err)
			}
			s := stored(t, db, name)
			s.Kind = map[string]string{"shell": "job", "job": "shell"}[s.Kind]
			if err := Edit(t.Context(), db.DB, s); err != nil {
				t.Fatal(err)
			}
		}
		s := daemon(t, db, Options{})
		claimJobs(t, s)
		if payloads := jobsOf(t, db); len(payloads["becomes a job"]) != 1 || len(payloads) != 1 {
			t.Errorf("jobs %q", payloads)
		}
		if held := takenOver(t, s, 10); len(held) != 1 || held[0].schedule != "becomes a command" {
			t.Errorf("taken over: %v", held)
		}
	})
}

// Jobs need no place of those that commands have, nor a second connection.
func TestEnqueueNeedsNoPlace(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		for i := range 3 {
			addEnqueuing(t, db, fmt.Sprint(i), "@every 1h", func(s *Schedule) { s.Job.Queue, s.Job.Key = fmt.Sprint("new", i), "k" })
		}
		add(t, db, "command", "@every 1h")
		db.Advance(t, time.Hour)
		one := again(t, db)
		s := daemon(t, one, Options{MaxRuns: 1})
		claimed(t, s, 1)
		db.Advance(t, time.Hour)
		one.Pool().SetMaxOpenConns(1)
		if _, err := s.step(t.Context(), t.Context()); err != nil {
			t.Fatal(err)
		}
		s.apart.Wait()
		if payloads := jobsOf(t, db); len(payloads) != 3 {
			t.Errorf("jobs %q", payloads)
		}
		wantRows(t, db, "command", "3600 1 running")
		functions := daemon(t, db, Options{Kinds: []string{Functions}})
		if lanes := functions.lanes(); len(lanes) > 0 {
			t.Errorf("a program that runs functions only has the lanes %q", lanes)
		}
	})
}

func TestParts(t *testing.T) {
	all := make([]enqueuedRun, 2500)
	all[1200].job.Payload = make([]byte, partBytes)
	all[1201].job.Payload = make([]byte, partBytes+1)
	var sizes []int
	for part := range parts(all) {
		sizes = append(sizes, len(part))
	}
	if want := []int{1000, 201, 1, 1000, 298}; !slices.Equal(sizes, want) {
		t.Errorf("parts of %v, want %v", sizes, want)
	}
}

// A row that a person inserts needs no more than the kind and the command.
func TestEnqueueByHand(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		byHand(t, db, map[string]string{"name": "'good'", "spec": "'@every 1h'", "kind": "'job'"})
		byHand(t, db, map[string]string{"name": "'bad'", "spec": "'@every 1h'", "kind": "'job'", "stdin": "'no JSON'"})
		s := daemon(t, db, Options{})
		if n, err := s.planNew(t.Context(), "default job"); n != 2 || err != nil {
			t.Fatal(n, err)
		}
		if bad := stored(t, db, "bad"); bad.State != "failed" || !strings.Contains(bad.Reason, "stdin: is not JSON") {
			t.Errorf("%+v", bad)
		}
		db.Advance(t, time.Hour)
		claimJobs(t, s)
		if payloads := jobsOf(t, db); len(payloads["good"]) != 1 {
			t.Errorf("jobs %q", payloads)
		}
	})
}

// adminOf returns an admin client for a client's database.
func adminOf(c *queue.Client) *admin.Client {
	a, err := admin.New(c.DB(), admin.Options{})
	if err != nil {
		panic(err)
	}
	return a
}
