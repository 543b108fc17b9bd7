package queue

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/pace"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/admin"
)

var update = flag.Bool("update", false, "write the costs that were counted into docs/benchmarks.md")

// costly is how many jobs the costs are counted of.
const costly = 200

// changesOfJobs matches what a worker changes because of jobs. What it reads besides depends on the time.
const changesOfJobs = `\b(INSERT INTO|UPDATE|DELETE FROM) .*dbcron_(job|queue_permit|queue_tenant|queue_limit)`

// What each outcome of a job costs, in statements and round trips, is as docs/benchmarks.md says, and a batch of bad ones is a batch.
func TestCosts(t *testing.T) {
	t.Parallel()
	costs := dbtest.NewCosts(t, "../docs/benchmarks.md", "jobs", *update)
	for _, e := range enqueueCosts {
		costs.Row(e.what)
	}
	for _, e := range endCosts {
		costs.Row(e.what)
	}
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		metered, meter := db.Metered(t, ``)
		metered.Pool().SetMaxOpenConns(20)
		c := client(t, metered, Options{Blocks: 1})
		for i, e := range enqueueCosts {
			q := fmt.Sprint("e", i)
			_, err := adminOf(c).Edit(t.Context(), q, func(*admin.Queue) {})
			must(t, err)
			enqueueMany(t, c, []Job{{Queue: q, Kind: "first"}})
			costs.Spend(t, e.what, costly, meter, db.Engine, func() { e.do(t, c, meter, q) })
		}
		for i, e := range endCosts {
			e.spend(t, db, costs, fmt.Sprint("q", i))
		}
	}, (*testing.T).Parallel)
}

// plainJobs are the jobs of a call, and change makes each what it is.
func plainJobs(q string, change func(i int, j *Job)) []Job {
	jobs := make([]Job, costly)
	for i := range jobs {
		jobs[i] = Job{Queue: q, Kind: "x"}
		if change != nil {
			change(i, &jobs[i])
		}
	}
	return jobs
}

func withUnique(i int, j *Job) { j.Unique = fmt.Sprint("u", i) }

var enqueueCosts = []struct {
	what string
	do   func(t *testing.T, c *Client, m *dbtest.Meter, q string)
}{
	{"enqueued by EnqueueMany", func(t *testing.T, c *Client, _ *dbtest.Meter, q string) { enqueueMany(t, c, plainJobs(q, nil)) }},
	{"with ordering keys", func(t *testing.T, c *Client, _ *dbtest.Meter, q string) {
		enqueueMany(t, c, plainJobs(q, func(i int, j *Job) { j.Key = fmt.Sprint("k", i) }))
	}},
	{"with a delay", func(t *testing.T, c *Client, _ *dbtest.Meter, q string) {
		enqueueMany(t, c, plainJobs(q, func(_ int, j *Job) { j.Delay = time.Hour }))
	}},
	{"with unique keys", func(t *testing.T, c *Client, _ *dbtest.Meter, q string) { enqueueMany(t, c, plainJobs(q, withUnique)) }},
	{"with unique keys in use", func(t *testing.T, c *Client, m *dbtest.Meter, q string) {
		enqueueMany(t, c, plainJobs(q, withUnique))
		m.Reset()
		_, err := c.EnqueueMany(t.Context(), plainJobs(q, withUnique))
		must(t, err)
	}},
	{"in a group", func(t *testing.T, c *Client, _ *dbtest.Meter, q string) {
		_, _, err := c.EnqueueGroup(t.Context(), Group{}, plainJobs(q, nil)...)
		must(t, err)
	}},
	{"by Enqueue, one caller", func(t *testing.T, c *Client, _ *dbtest.Meter, q string) {
		for _, j := range plainJobs(q, nil) {
			enqueue(t, c, j)
		}
	}},
	{"by Enqueue, many callers", func(t *testing.T, c *Client, m *dbtest.Meter, q string) { enqueueAtOnce(t, c, m, plainJobs(q, nil)) }},
	{"by Enqueue with unique keys, many callers", func(t *testing.T, c *Client, m *dbtest.Meter, q string) {
		enqueueAtOnce(t, c, m, plainJobs(q, withUnique))
	}},
	{"by EnqueueTx, in a transaction of the caller's", func(t *testing.T, c *Client, _ *dbtest.Meter, q string) {
		for _, j := range plainJobs(q, nil) {
			tx, err := c.db.Pool().BeginTx(t.Context(), nil)
			must(t, err)
			_, wake, err := c.EnqueueTx(t.Context(), tx, j)
			must(t, err)
			must(t, tx.Commit())
			wake()
		}
	}},
}

// enqueueAtOnce has a caller for each job, and two more, whose statements wait until all have called.
func enqueueAtOnce(t *testing.T, c *Client, m *dbtest.Meter, jobs []Job) {
	t.Helper()
	enqueueWith(t, c, m, jobs, func() {})
}

// enqueueWith is enqueueAtOnce, beside what others starts.
func enqueueWith(t *testing.T, c *Client, m *dbtest.Meter, jobs []Job, others func()) {
	t.Helper()
	out := &c.out
	if jobs[0].Unique != "" {
		out = &c.keyed
	}
	var group sync.WaitGroup
	call := func(j Job) {
		group.Go(func() {
			if _, err := c.Enqueue(t.Context(), j); err != nil && !errors.Is(err, ErrUnknownOutcome) { // this process may stand still in a transaction
				t.Error(err)
			}
		})
	}
	var stalled atomic.Int32
	all := make(chan struct{})
	m.Stall(func(op string) {
		if op == "begin" || strings.Contains(op, "INSERT") { // not while settings are read anew, before the caller waits
			stalled.Add(1)
			<-all
		}
	})
	for i := range writers {
		j := jobs[0]
		if j.Unique != "" {
			j.Unique = fmt.Sprint("first ", jobs[0].Unique, i)
		}
		call(j)
		if i == 0 || dbtest.SeveralWriters(c.db.Dialect) { // otherwise the second one waits for the first
			eventually(t, "a writer writes", func() bool { return int(stalled.Load()) > i })
		}
	}
	others()
	for _, j := range jobs {
		call(j)
	}
	eventually(t, "all callers are here", func() bool {
		out.mu.Lock()
		defer out.mu.Unlock()
		return len(out.waiting) >= len(jobs)
	})
	m.Stall(nil)
	close(all)
	group.Wait()
}

// An endCost is the cost of jobs that end: all of them have begun when the first one does.
type endCost struct {
	what   string
	queue  func(*admin.Queue)
	job    func(i int, j *Job)
	handle func(ctx context.Context, d *Delivery) error
	left   string // of the table in which the jobs are then; "": in none
	limit  func(t *testing.T, a *admin.Client, q string)
	slow   time.Duration // when jobs are checked out; 0: not during the test
}

var (
	errCost    = errors.New("no")
	oneAtATime sync.Mutex
)

var endCosts = []endCost{
	{what: "done"},
	{what: "done, and kept", queue: func(q *admin.Queue) { q.KeepDone = time.Hour }},
	{what: "done, with unique keys", job: withUnique},
	{what: "done, with ordering keys", job: func(i int, j *Job) { j.Key = fmt.Sprint("k", i) }},
	{what: "done, delayed before", job: func(_ int, j *Job) { j.Delay = time.Millisecond }},
	{what: "done, in a group", job: func(_ int, j *Job) { j.Group = 1 }},
	{what: "failed, to be retried", handle: failing(errCost), left: "job_delayed", queue: func(q *admin.Queue) { q.RetryDelay = time.Hour }},
	{what: "failed, with unique keys", handle: failing(errCost), left: "job_delayed", job: withUnique, queue: func(q *admin.Queue) { q.RetryDelay = time.Hour }},
	{what: "dead", handle: failing(Bury(errCost)), left: "job_dead"},
	{what: "dead, with unique keys", handle: failing(Bury(errCost)), left: "job_dead", job: withUnique},
	{what: "dead, in a group", handle: failing(Bury(errCost)), left: "job_dead", job: func(_ int, j *Job) { j.Group = 1 }},
	{what: "discarded", handle: failing(Discard(errCost))},
	{what: "snoozed", handle: failing(Snooze(time.Hour)), left: "job_delayed"},
	{what: "checked out, and done", slow: time.Nanosecond, handle: func(ctx context.Context, d *Delivery) error {
		return inTime(ctx, d.isOut)
	}},
	{what: "with progress once, and done", handle: func(ctx context.Context, d *Delivery) error { return d.SetProgress(ctx, Progress{Percent: 50}) }},
	{what: "completed in a transaction of the handler's", handle: func(ctx context.Context, d *Delivery) error {
		oneAtATime.Lock() // on SQLite they would wait for each other
		defer oneAtATime.Unlock()
		tx, err := d.runner().c.db.Pool().BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback() //nolint:errcheck // after a commit it does nothing
		if err := d.CompleteTx(ctx, tx); err != nil {
			return err
		}
		return tx.Commit()
	}},
	{
		what: "done under a rate of their kind",
		limit: func(t *testing.T, a *admin.Client, q string) {
			t.Helper()
			_, err := a.EditLimit(t.Context(), q, "x", func(l *admin.Limit) { l.Rate, l.Per, l.Burst = costly, time.Second, costly })
			must(t, err)
		},
	},
	{
		what: "done under limits of 50 tenants", job: func(i int, j *Job) { j.Tenant = fmt.Sprint("t", i%50) },
		limit: func(t *testing.T, a *admin.Client, q string) {
			t.Helper()
			_, err := a.EditTenantLimit(t.Context(), q, admin.EachTenant, func(l *admin.Limit) { l.Running = costly / 50 })
			must(t, err)
		},
	},
}

func failing(err error) func(context.Context, *Delivery) error {
	return func(context.Context, *Delivery) error { return err }
}

// inTime waits until something is so.
func inTime(ctx context.Context, is func() bool) error {
	for range pace.Ticks(ctx, time.Millisecond) {
		if is() {
			return nil
		}
	}
	return ctx.Err()
}

func (e *endCost) spend(t *testing.T, db *dbtest.DB, costs *dbtest.Costs, q string) {
	t.Helper()
	c := client(t, db, Options{Blocks: 1})
	a := adminOf(c)
	_, err := a.Edit(t.Context(), q, func(s *admin.Queue) {
		if e.queue != nil {
			e.queue(s)
		}
	})
	must(t, err)
	if e.limit != nil {
		e.limit(t, a, q)
	}
	jobs := plainJobs(q, e.job)
	if jobs[0].Group != 0 {
		id, _, err := c.EnqueueGroup(t.Context(), Group{}, Job{Queue: "elsewhere", Kind: "x"})
		must(t, err)
		for i := range jobs {
			jobs[i].Group = id
		}
	}
	enqueueMany(t, c, jobs)
	metered, meter := db.Metered(t, changesOfJobs)
	w := worker(t, client(t, metered, Options{Blocks: 1}), WorkerOptions{Queues: []string{q}, Concurrency: costly, Batch: costly})
	w.slow = time.Hour
	if e.slow != 0 {
		w.slow = e.slow
	}
	var begun, end sync.WaitGroup
	var ending atomic.Bool
	begun.Add(costly)
	end.Add(costly)
	handle(t, w, "x", func(ctx context.Context, d *Delivery) (err error) {
		begun.Done()
		begun.Wait()
		if e.handle != nil {
			err = e.handle(ctx, d)
		}
		end.Done()
		end.Wait()
		ending.Store(true)
		return err
	})
	meter.Stall(func(string) { // the first end is not written before all have ended
		if ending.Load() {
			eventually(t, "all have ended", func() bool {
				w.mu.Lock()
				defer w.mu.Unlock()
				return !slices.ContainsFunc(w.slots, func(unit []*Delivery) bool { return unit != nil })
			})
		}
	})
	costs.Spend(t, e.what, costly, meter, db.Engine, func() {
		stop := start(t, w)
		in := ""
		if e.left != "" {
			in = fmt.Sprintf(`%d - (SELECT COUNT(*) FROM {prefix}%s WHERE queue_id = q.queue_id AND id > 0) + `, costly, e.left)
		}
		tables := ""
		for _, table := range []string{"job", "job_delayed", "job_running"} {
			if table != e.left {
				tables += fmt.Sprintf(` + (SELECT COUNT(*) FROM {prefix}%s WHERE queue_id = q.queue_id AND id > 0)`, table)
			}
		}
		eventually(t, e.what, func() bool {
			var n int
			db.Scan(t, `SELECT `+in+`0`+tables+` FROM {prefix}queue AS q WHERE q.name = :q`, sqlrun.Args{"q": q}, &n)
			return n == 0
		})
		stop()
	})
}
