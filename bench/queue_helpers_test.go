package bench

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/queue/admin"
)

var (
	jobs    = flag.Int("jobs", 200_000, "jobs that are ready before workers start")
	backlog = flag.Int("backlog", 1_000_000, "jobs that are ready before workers start, for TestQueueBacklog")
	held    = flag.Duration("held", 20*time.Second, "how long an old snapshot is held open, for TestQueueSnapshot")
)

// stalled is the time without a job after which a measurement gives up.
const stalled = 30 * time.Second

// payload returns the payload of job n: a hundred bytes of JSON.
func payload(n int) []byte {
	return fmt.Appendf(nil, `{"order":%d,"customer":"customer-%d","address":"12 High Street, Springfield","paid":true}`,
		n+10_000_000, n%1000+1000)
}

// A peer is a queue to compare, in one database.
type peer interface {
	String() string
	one(ctx context.Context, n int) (id int64, err error)                    // enqueues job n by itself
	many(ctx context.Context, first, n int) error                            // enqueues n jobs at once
	work(t *testing.T, do func(ctx context.Context, id int64)) (stop func()) // does jobs, through a pool of its own
	left(t *testing.T) int64                                                 // counts unfinished jobs
	empty(ctx context.Context) (bool, error)                                 // reports cheaply whether all are done
	wipe(t *testing.T)                                                       // empties the tables
	analyze(t *testing.T)                                                    // gathers statistics
	explain(t *testing.T)                                                    // logs hints at why it has stalled
}

// ours is package queue as a peer.
type ours struct {
	*bed
	c   *queue.Client
	opt queue.WorkerOptions
	as  string // its name in the output
}

func newOurs(t *testing.T, b *bed, as string, opt queue.WorkerOptions) *ours {
	t.Helper()
	return &ours{b, client(t, b), opt, as}
}

// client returns the client of another process.
func client(t *testing.T, b *bed) *queue.Client {
	t.Helper()
	return clientWith(t, b, queue.Options{})
}

func clientWith(t *testing.T, b *bed, opt queue.Options) *queue.Client {
	t.Helper()
	opt.Logger = strict(t)
	c, err := queue.New(open(t, b.URL, 10), opt)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (o *ours) String() string { return o.as }

func job(n int) queue.Job { return queue.Job{Kind: "noop", Payload: payload(n)} }

func (o *ours) one(ctx context.Context, n int) (int64, error) {
	e, err := o.c.Enqueue(ctx, job(n))
	return e.ID, err
}

func (o *ours) many(ctx context.Context, first, n int) error {
	batch := make([]queue.Job, n)
	for i := range batch {
		batch[i] = job(first + i)
	}
	_, err := o.c.EnqueueMany(ctx, batch)
	return err
}

func (o *ours) work(t *testing.T, do func(ctx context.Context, id int64)) (stop func()) {
	t.Helper()
	return o.workWith(t, client(t, o.bed), do)
}

func (o *ours) workWith(t *testing.T, c *queue.Client, do func(ctx context.Context, id int64)) (stop func()) {
	t.Helper()
	w, err := c.Worker(o.opt)
	if err == nil {
		err = w.Handle("noop", func(ctx context.Context, d *queue.Delivery) error {
			do(ctx, d.ID)
			return nil
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	return running(t, w)
}

// running runs a worker until stop, which waits for its end.
func running(t *testing.T, w *queue.Worker) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	group.Go(func() {
		if err := w.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	stop = func() { cancel(); group.Wait() }
	t.Cleanup(stop)
	return stop
}

func (o *ours) left(t *testing.T) (n int64) {
	t.Helper()
	o.Scan(t, `SELECT (SELECT COUNT(*) FROM {prefix}job WHERE id > 0) + (SELECT COUNT(*) FROM {prefix}job_delayed WHERE id > 0)
		+ (SELECT COUNT(*) FROM {prefix}job_running) + (SELECT COUNT(*) FROM {prefix}job_dead)`, nil, &n)
	return n
}

var oursEmpty = sqlrun.Unlisted(`SELECT CASE WHEN EXISTS (SELECT 1 FROM {prefix}job WHERE id > 0) OR EXISTS (SELECT 1 FROM {prefix}job_delayed WHERE id > 0)
	OR EXISTS (SELECT 1 FROM {prefix}job_running) THEN 0 ELSE 1 END`)

func (o *ours) empty(ctx context.Context) (over bool, err error) {
	err = o.Get(ctx, oursEmpty, nil, &over)
	return over, err
}

func (o *ours) wipe(t *testing.T) {
	t.Helper()
	o.truncate(t, "{prefix}job")
}

func (o *ours) analyze(t *testing.T) {
	t.Helper()
	o.Analyze(t, "job")
}

func (o *ours) explain(t *testing.T) {
	t.Helper()
	for _, line := range o.List(t, `SELECT b.divided, b.state, b.fence, b.lock_by, n.state, (SELECT COUNT(*) FROM {prefix}job AS j WHERE j.queue_id = b.queue_id AND j.divided = b.divided)
		FROM {prefix}queue_block AS b LEFT JOIN {prefix}node AS n ON n.name = b.lock_by ORDER BY b.divided`, nil) {
		t.Logf("block, state, fence, worker, its state, jobs: %s", line)
	}
}

// truncate empties a table as if it were new.
func (b *bed) truncate(t *testing.T, table string) {
	t.Helper()
	if b.Dialect.Name == "sqlite" {
		b.Do(t, `DELETE FROM `+table, nil)
		return
	}
	b.Do(t, `TRUNCATE TABLE `+table, nil)
}

// queues runs f on each engine.
func queues(t *testing.T, f func(t *testing.T, b *bed)) {
	t.Helper()
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) { f(t, &bed{DB: db}) })
}

// strict returns a logger that fails the test for each warning.
func strict(t *testing.T) *slog.Logger {
	return slog.New(slog.NewTextHandler(complaints{t}, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

type complaints struct{ t *testing.T }

func (c complaints) Write(line []byte) (int, error) {
	c.t.Errorf("logged: %s", line)
	return len(line), nil
}

// starts records which jobs were started, in order, and when.
type starts struct {
	mu    sync.Mutex
	ids   []int64
	at    []time.Time
	count atomic.Int64
}

func newStarts(n int) *starts {
	return &starts{ids: make([]int64, 0, n), at: make([]time.Time, 0, n)}
}

func (s *starts) note(_ context.Context, id int64) {
	at := time.Now()
	s.mu.Lock()
	s.ids, s.at = append(s.ids, id), append(s.at, at)
	s.mu.Unlock()
	s.count.Add(1)
}

// check fails the test unless each of n jobs was done once. Nothing may run any more.
func (s *starts) check(t *testing.T, p peer, n int) {
	t.Helper()
	ids := slices.Clone(s.ids)
	slices.Sort(ids)
	if once := len(slices.Compact(ids)); len(s.ids) != n || once != n {
		t.Errorf("%v: %d jobs were started %d times: want each of %d, once", p, once, len(s.ids), n)
	}
	if left := p.left(t); left != 0 {
		t.Errorf("%v: %d jobs are left", p, left)
	}
}

// load enqueues n jobs.
func load(t *testing.T, p peer, n int) {
	t.Helper()
	const part = 10_000
	for first := 0; first < n; first += part {
		if err := p.many(t.Context(), first, min(part, n-first)); err != nil {
			t.Fatalf("%v: %v", p, err)
		}
	}
	p.analyze(t)
}

// finish waits until n jobs have started and all are done.
func finish(t *testing.T, p peer, seen *starts, n int) {
	t.Helper()
	last, since := int64(-1), time.Now()
	for over := false; !over; {
		count := seen.count.Load()
		if count != last {
			last, since = count, time.Now()
		}
		if time.Since(since) > stalled {
			p.explain(t)
			t.Fatalf("%v: for %v no job was started; %d of %d were, and %d are left", p, stalled, count, n, p.left(t))
		}
		if count < int64(n) {
			pause(t, 2*time.Millisecond)
			continue
		}
		var err error
		if over, err = p.empty(t.Context()); err != nil {
			t.Fatalf("%v: %v", p, err)
		}
	}
}

// drain enqueues n jobs, lets one worker do them, and returns the number per second, from the first
// start to the last end in the table.
func drain(t *testing.T, p peer, n int) float64 {
	t.Helper()
	load(t, p, n)
	seen := newStarts(n)
	stop := p.work(t, seen.note)
	finish(t, p, seen, n)
	took := time.Since(seen.at[0])
	stop()
	seen.check(t, p, n)
	p.wipe(t)
	return perSecond(int64(n), took)
}

// A figure is the result of one of several ways.
type figure struct {
	name  string
	value float64
}

// report prints figures, each with the first one's ratio to it.
func report(t *testing.T, b *bed, what string, figures []figure) {
	t.Helper()
	for i, f := range figures {
		ratio := ""
		if i > 0 && f.value > 0 {
			ratio = fmt.Sprintf("; %s is %.2f of it", figures[0].name, figures[0].value/f.value)
		}
		t.Logf("%-8s %s: %-34s %8.0f jobs/s%s", b.Dialect.Name, what, f.name, f.value, ratio)
	}
}

// A contestant enqueues in one of several ways.
type contestant struct {
	name string
	do   func(ctx context.Context, n int) error // enqueues from job n on
	rows func(t *testing.T) int64               // counts the jobs in its table
	wipe func(t *testing.T)
}

// contest lets goroutines enqueue in each way, one way after the other and back again. A call
// enqueues per jobs.
func contest(t *testing.T, b *bed, workers, per int, all []contestant) []figure {
	t.Helper()
	figures := make([]figure, len(all))
	round := func(i int, part time.Duration) float64 {
		var next, good atomic.Int64
		rate := pairs(t, b.DB.DB, workers, part, func(ctx context.Context, _ int) error {
			err := all[i].do(ctx, int(next.Add(int64(per))))
			if err == nil {
				good.Add(int64(per))
			}
			return err
		})
		if rows := all[i].rows(t); rows != good.Load() {
			t.Errorf("%s: %d rows after %d jobs were enqueued", all[i].name, rows, good.Load())
		}
		all[i].wipe(t)
		return rate * float64(per)
	}
	for i := range all { // warm up connections, prepared statements, plans
		figures[i].name = all[i].name
		round(i, *span/20)
	}
	for i := range all {
		figures[i].value += round(i, *span/2) / 2
	}
	for i := range slices.Backward(all) {
		figures[i].value += round(i, *span/2) / 2
	}
	return figures
}

func contestantOf(p peer, do func(ctx context.Context, n int) error) contestant {
	return contestant{p.String(), do, p.left, p.wipe}
}

// adminOf returns an admin client for a client's database.
func adminOf(c *queue.Client) *admin.Client {
	a, err := admin.New(c.DB(), admin.Options{})
	if err != nil {
		panic(err)
	}
	return a
}
