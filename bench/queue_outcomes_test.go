package bench

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/queue/admin"
)

// An outcome is one of the ways in which jobs can come, or end.
type outcome struct {
	what    string
	callers int // who call Enqueue for each job; 0: EnqueueMany
	queue   func(*admin.Queue)
	job     func(i int, j *queue.Job)
	handle  func(ctx context.Context, d *queue.Delivery) error // nil: the jobs only come
	later   bool                                               // they wait for their time then
	limits  func(ctx context.Context, a *admin.Client, q string) error
}

func unique(i int, j *queue.Job)    { j.Unique = fmt.Sprint("u", i) }
func keyed(i int, j *queue.Job)     { j.Key = fmt.Sprint("k", i) }
func ofTenants(i int, j *queue.Job) { j.Tenant = fmt.Sprint("t", i%50) }
func retryLater(q *admin.Queue)     { q.RetryDelay = time.Hour }
func toGroup(_ int, j *queue.Job)   { j.Group = -1 }
func as(err error) func(context.Context, *queue.Delivery) error {
	return func(context.Context, *queue.Delivery) error { return err }
}

var errOutcome = errors.New("no")

// The first of the outcomes in which jobs come, alone or by 32 callers, and of those in which they end, is the floor of the others.
var outcomes = []outcome{
	{what: "come by EnqueueMany"},
	{what: "come with ordering keys", job: keyed},
	{what: "come with a delay", job: func(_ int, j *queue.Job) { j.Delay = time.Hour }},
	{what: "come with unique keys", job: unique},
	{what: "come in a group", job: toGroup},
	{what: "come by 32 callers", callers: 32},
	{what: "come by 32 callers with unique keys", callers: 32, job: unique},
	{what: "come by 1 caller", callers: 1},
	{what: "done", handle: as(nil)},
	{what: "done, and kept", handle: as(nil), queue: func(q *admin.Queue) { q.KeepDone = time.Hour }},
	{what: "done, with unique keys", handle: as(nil), job: unique},
	{what: "done, with ordering keys", handle: as(nil), job: keyed},
	{what: "done, delayed before", handle: as(nil), job: func(_ int, j *queue.Job) { j.Delay = time.Millisecond }},
	{what: "done, in a group", handle: as(nil), job: toGroup},
	{what: "failed, to be retried", handle: as(errOutcome), queue: retryLater, later: true},
	{what: "failed, with unique keys", handle: as(errOutcome), queue: retryLater, job: unique, later: true},
	{what: "dead", handle: as(queue.Bury(errOutcome))},
	{what: "dead, with unique keys", handle: as(queue.Bury(errOutcome)), job: unique},
	{what: "discarded", handle: as(queue.Discard(errOutcome))},
	{what: "snoozed", handle: as(queue.Snooze(time.Hour)), later: true},
	{what: "with progress once, and done", handle: func(ctx context.Context, d *queue.Delivery) error {
		return d.SetProgress(ctx, queue.Progress{Percent: 50})
	}},
	{what: "done under limits of 50 tenants", handle: as(nil), job: ofTenants, limits: func(ctx context.Context, a *admin.Client, q string) error {
		_, err := a.EditTenantLimit(ctx, q, admin.EachTenant, func(l *admin.Limit) { l.Running = 100 })
		return err
	}},
}

// TestQueueOutcomes prints what each outcome of a job costs, as rows of a table: the processor time of client and server, what these are of the floor's,
// and the bytes of log. Statements and round trips are counted by TestCosts of package queue.
func TestQueueOutcomes(t *testing.T) {
	queues(t, func(t *testing.T, b *bed) {
		floors := map[string]time.Duration{}
		for i := range outcomes {
			o := &outcomes[i]
			n := *jobs
			if o.callers > 0 {
				n = max(1, n/10)
			}
			u, wal := o.measure(t, b, fmt.Sprint("q", i), n)
			floor := fmt.Sprint(o.callers, o.handle != nil)
			if floors[floor] == 0 && (o.callers != 1) {
				floors[floor] = u.client + u.server
			}
			ratio := "–"
			if of := floors[floor]; of > 0 {
				ratio = fmt.Sprintf("%.1f", float64(u.client+u.server)/float64(of))
			}
			t.Logf("%-8s | %s | %.1f + %.1f | %s | %.0f |", b.Dialect.Name, o.what, us(u.client), us(u.server), ratio, wal)
		}
	})
}

func us(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// measure returns what each of n jobs costs to come, or to end.
func (o *outcome) measure(t *testing.T, b *bed, q string, n int) (u usage, wal float64) {
	t.Helper()
	c := client(t, b)
	a, err := admin.New(c.DB(), admin.Options{})
	if err == nil {
		_, err = a.Edit(t.Context(), q, func(s *admin.Queue) {
			if o.queue != nil {
				o.queue(s)
			}
		})
	}
	if err == nil && o.limits != nil {
		err = o.limits(t.Context(), a, q)
	}
	if err != nil {
		t.Fatal(err)
	}
	all := o.made(t, c, q, n)
	log, before := b.written(t), b.cpu(t)
	o.come(t, c, all)
	if o.handle != nil {
		b.Analyze(t, "job", "job_unique")
		log, before = b.written(t), b.cpu(t)
		o.end(t, b, q, n)
	}
	u = b.cpu(t).since(before, int64(n))
	return u, float64(b.written(t)-log) / float64(n)
}

// made returns the jobs.
func (o *outcome) made(t *testing.T, c *queue.Client, q string, n int) []queue.Job {
	t.Helper()
	all := make([]queue.Job, n)
	var group int64
	for i := range all {
		all[i] = job(i)
		all[i].Queue = q
		if o.job != nil {
			o.job(i, &all[i])
		}
		if all[i].Group != 0 {
			if group == 0 {
				var err error
				if group, _, err = c.EnqueueGroup(t.Context(), queue.Group{}, queue.Job{Queue: "elsewhere", Kind: "noop"}); err != nil {
					t.Fatal(err)
				}
			}
			all[i].Group = group
		}
	}
	return all
}

// come enqueues the jobs.
func (o *outcome) come(t *testing.T, c *queue.Client, all []queue.Job) {
	t.Helper()
	if o.callers > 0 {
		share(t, len(all), o.callers, func(ctx context.Context, n int) error {
			_, err := c.Enqueue(ctx, all[n-1])
			return err
		})
		return
	}
	for first := 0; first < len(all); first += 1000 {
		if _, err := c.EnqueueMany(t.Context(), all[first:min(first+1000, len(all))]); err != nil {
			t.Fatal(err)
		}
	}
}

// end has one worker do the jobs.
func (o *outcome) end(t *testing.T, b *bed, q string, n int) {
	t.Helper()
	c, err := queue.New(open(t, b.URL, 10), queue.Options{Logger: slog.New(slog.DiscardHandler)}) // dead letters are warnings
	var w *queue.Worker
	if err == nil {
		w, err = c.Worker(queue.WorkerOptions{Queues: []string{q}})
	}
	if err == nil {
		err = w.Handle("noop", o.handle)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer running(t, w)()
	delayed := `(SELECT COUNT(*) FROM {prefix}job_delayed AS j WHERE j.queue_id = q.queue_id AND j.id > 0)`
	if o.later {
		delayed = fmt.Sprintf(`%d - `, n) + delayed
	}
	for since, left := time.Now(), -1; left != 0; pause(t, 20*time.Millisecond) {
		var there int
		b.Scan(t, `SELECT CASE WHEN EXISTS (SELECT 1 FROM {prefix}job AS j WHERE j.queue_id = q.queue_id AND j.id > 0) THEN 1 ELSE 0 END
			FROM {prefix}queue AS q WHERE q.name = :q`, sqlrun.Args{"q": q}, &there)
		if there == 0 {
			b.Scan(t, `SELECT `+delayed+` + (SELECT COUNT(*) FROM {prefix}job_running AS j WHERE j.queue_id = q.queue_id)
				FROM {prefix}queue AS q WHERE q.name = :q`, sqlrun.Args{"q": q}, &left)
		}
		if time.Since(since) > 5*time.Minute {
			t.Fatalf("%s: %d are left", o.what, left)
		}
	}
}
