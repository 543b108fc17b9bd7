package queue

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/plain"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/admin"
)

// widest has each field that a producer sets at its longest or greatest. Only the prompt of SQL takes
// fewer.
func widest() Job {
	long := strings.Repeat("\U0001F41E", 200)
	return Job{
		Kind: long, Key: long, Payload: []byte(`{"a":  "` + long + `\u0001", "n": -9223372036854775808}`),
		MaxAttempts: 1_000_000, Timeout: plain.LongestDuration,
		Trace:    "00-" + strings.Repeat("f", 32) + "-" + strings.Repeat("f", 16) + "-ff",
		Endpoint: longestURL(), Tenant: long, Cost: MaxCost, Priority: Idle,
	}
}

func longestURL() string {
	u := url.URL{Scheme: "https", Host: "worker.example.org", Path: "/"}
	return u.String() + strings.Repeat("a", 1000-len(u.String()))
}

// narrowest has each field that a producer sets at its least that is not its default.
func narrowest() Job {
	return Job{
		Kind: "k", Key: "!", Payload: []byte{0}, Binary: true, MaxAttempts: 1, Timeout: time.Microsecond,
		Trace:    "00-" + strings.Repeat("0", 31) + "1-" + strings.Repeat("0", 15) + "1-00",
		Endpoint: "http://a", Tenant: "t", Cost: 2, Priority: Urgent,
	}
}

// says is what a producer has written of a job, as one text.
func says(i *admin.Job) string {
	return fmt.Sprintf("%q %q %v %q unique %q %q group %d priority %d attempts %d %v %q tenant %q cost %d %q",
		i.Kind, i.Payload, i.Binary, i.Key, i.Unique, i.UniqueUntil, i.Group,
		i.Priority, i.MaxAttempts, i.Timeout, i.Trace, i.Tenant, i.Cost, i.Endpoint)
}

// wrote is what says must say of a job.
func wrote(j Job) string {
	return says(&admin.Job{
		Kind: j.Kind, Payload: j.Payload, Binary: j.Binary, Key: j.Key, Unique: j.Unique, UniqueUntil: j.UniqueUntil, Group: j.Group,
		Priority: j.priority(), MaxAttempts: j.MaxAttempts, Timeout: j.Timeout,
		Trace: j.Trace, Tenant: j.Tenant, Cost: j.Cost, Endpoint: j.Endpoint,
	})
}

// What producers write of a job is what is read of it, whichever statement writes it: an INSERT of one row or of some, a
// bulk load, the delayed ones', a transaction's, those of jobs with unique keys and groups. A bulk load once wrote four bytes
// into a column of two, and so no 200 jobs with costs could be enqueued together.
//
// The class is a column whose type is written in several places. TestTypesOfColumns of the store holds the only other
// place, the migrations, to it; TestEveryColumnEverywhere goes on through the tables, and TestColumnsBothWays of httpapi through
// the API.
func TestEveryColumnByEveryWay(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		edit(t, c, func(q *admin.Queue) { q.MaxTimeout = 0 })
		must(t, adminOf(c).Pause(t.Context(), defaultQueue, ""))
		group, err := c.NewGroup(t.Context(), Group{})
		must(t, err)
		copies := func(n int, j Job) (all []Job) {
			for range n {
				all = append(all, j)
			}
			return all
		}
		many := func(t *testing.T, jobs []Job) []int64 { return enqueueMany(t, c, jobs) }
		for way, of := range map[string]struct {
			jobs  int
			with  func(j *Job)
			write func(t *testing.T, jobs []Job) []int64
		}{
			"one":     {1, nil, func(t *testing.T, jobs []Job) []int64 { return []int64{enqueue(t, c, jobs[0])} }},
			"some":    {3, nil, many},
			"a load":  {copyFrom, nil, many},
			"delayed": {2, func(j *Job) { j.RunAt = latest }, many},
			"together": {8, nil, func(t *testing.T, jobs []Job) []int64 {
				ids := make([]int64, len(jobs))
				var all sync.WaitGroup
				for i := range jobs {
					all.Go(func() { ids[i] = enqueue(t, c, jobs[i]) })
				}
				all.Wait()
				return ids
			}},
			"in a transaction": {2, nil, func(t *testing.T, jobs []Job) (ids []int64) {
				tx, err := db.DB.Pool().BeginTx(t.Context(), nil)
				must(t, err)
				got, wake, err := c.EnqueueTx(t.Context(), tx, jobs...)
				must(t, err)
				must(t, tx.Commit())
				wake()
				return idsOfAll(got)
			}},
			"of a group":        {copyFrom, func(j *Job) { j.Group = group }, many},
			"with a unique key": {1, func(j *Job) { j.Unique, j.UniqueUntil = j.Key, UntilBegin }, many},
		} {
			for name, j := range map[string]Job{"widest": widest(), "narrowest": narrowest(), "plain": {Kind: "k"}} {
				if of.with != nil {
					of.with(&j)
				}
				if j.Unique == "" && j.UniqueUntil != "" {
					j.Unique = "plain"
				}
				state := admin.StateReady
				if !j.RunAt.IsZero() {
					state = admin.StateDelayed
				}
				for _, id := range of.write(t, copies(of.jobs, j)) {
					i := info(t, c, id, state)
					if got, want := says(&i), wrote(j); got != want {
						t.Fatalf("%s, %s:\ngot  %s\nwant %s", way, name, got, want)
					}
				}
			}
		}
	})
}

// A job keeps all that its producer wrote, in each of the tables of jobs, with the longest that its handler and its
// failures add: ready, delayed, running, dead, done, and in another queue.
func TestEveryColumnEverywhere(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		edit(t, c, func(q *admin.Queue) { impatient(q); keeps(q); q.MaxTimeout = 0 })
		elsewhere(t, c, "to", 3)
		group, err := c.NewGroup(t.Context(), Group{})
		must(t, err)
		jobs := map[int64]Job{}
		for _, j := range []Job{widest(), narrowest()} {
			j.Unique, j.Group, j.Timeout = j.Key, group, plain.LongestDuration
			jobs[enqueue(t, c, j)] = j
		}
		long := strings.Repeat("\U0001F41E", 20_000)
		check := func(id int64, i admin.Job) {
			t.Helper()
			if got, want := says(&i), wrote(jobs[id]); got != want {
				t.Errorf("%s:\ngot  %s\nwant %s", i.State, got, want)
			}
		}
		w := worker(t, other(t, db), WorkerOptions{})
		for _, j := range jobs {
			handle(t, w, j.Kind, func(ctx context.Context, d *Delivery) error {
				check(d.ID, info(t, c, d.ID, admin.StateReady))
				must(t, d.SetProgress(ctx, Progress{State: []byte(long), Percent: 100, Message: strings.Repeat("\U0001F41E", 100)}))
				i := info(t, c, d.ID, admin.StateRunning)
				check(d.ID, i)
				if string(i.Progress.State) != long || i.Progress.Percent != 100 {
					t.Errorf("got the progress %d %d", len(i.Progress.State), i.Progress.Percent)
				}
				return Snooze(plain.LongestDuration)
			})
		}
		stop := start(t, w)
		for id := range jobs {
			check(id, becomes(t, c, id, admin.StateDelayed))
		}
		stop()
		for id := range jobs { // as far as numbers of attempts go
			db.Do(t, `UPDATE {prefix}job_delayed SET attempt = 2147483640 WHERE id = :id`, sqlrun.Args{"id": id})
		}
		must(t, adminOf(c).Pause(t.Context(), "to", ""))
		_, err = adminOf(c).Edit(t.Context(), "to", func(q *admin.Queue) { keeps(q); q.MaxTimeout = 0 })
		must(t, err)
		moveAll(t, c, MoveOptions{}, Moved{Jobs: 2})
		for id := range jobs {
			i, err := adminOf(c).Job(t.Context(), "to", id)
			must(t, err)
			check(id, i)
			must(t, adminOf(c).Retry(t.Context(), "to", id))
		}
		must(t, adminOf(c).Resume(t.Context(), "to"))
		w = worker(t, other(t, db), WorkerOptions{Queues: []string{"to"}})
		for _, j := range jobs {
			handle(t, w, j.Kind, func(ctx context.Context, d *Delivery) error {
				if d.Attempt < 2147483640 {
					return nil
				}
				return Bury(fmt.Errorf("%w: %s", errTest, long))
			})
		}
		start(t, w)
		comes := func(id int64, state admin.State) (i admin.Job) {
			eventually(t, fmt.Sprintf("job %d is %s", id, state), func() bool {
				i, _ = adminOf(c).Job(t.Context(), "to", id)
				return i.State == state
			})
			check(id, i)
			return i
		}
		for id := range jobs {
			if i := comes(id, admin.StateDead); i.Attempts < 2147483640 || !strings.Contains(i.Error, long[:400]) {
				t.Errorf("got %d, %.100q", i.Attempts, i.Error)
			}
			must(t, adminOf(c).Retry(t.Context(), "to", id))
			comes(id, admin.StateDone)
		}
	})
}
