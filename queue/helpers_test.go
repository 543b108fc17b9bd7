package queue

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/queue/internal/bell"
)

func TestMain(m *testing.M) {
	flag.Parse()
	// Mostly the database is waited for. Rapid's files of failures would be committed
	// by mistake; it prints the seed.
	for name, value := range map[string]string{"rapid.nofailfile": "true", "test.parallel": "6"} {
		if f := flag.Lookup(name); f.Value.String() == f.DefValue {
			_ = f.Value.Set(value)
		}
	}
	dbtest.MutantsMain(m, forProgram())
	miscounted = func(was, is int) { panic(fmt.Sprintf("a block counts %d jobs that could start, and has %d", was, is)) }
	code := m.Run()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// longWait is for what must happen, on a slow machine.
const longWait = 5 * time.Minute

// each is dbtest.Each, beside the other tests: most of the time is spent waiting.
func each(t *testing.T, f func(t *testing.T, db *dbtest.DB)) {
	t.Helper()
	t.Parallel()
	dbtest.Each(t, f, (*testing.T).Parallel)
}

// memory is each on the engines for what happens in memory: see dbtest.Memory.
func memory(t *testing.T, f func(t *testing.T, db *dbtest.DB)) {
	t.Helper()
	t.Parallel()
	dbtest.Memory.Each(t, f, (*testing.T).Parallel)
}

// locks is each on the engines for what needs writers side by side: see dbtest.Locks.
func locks(t *testing.T, f func(t *testing.T, db *dbtest.DB)) {
	t.Helper()
	t.Parallel()
	dbtest.Locks.Each(t, f, (*testing.T).Parallel)
}

// having is each on the engines that have something: see dbtest.With.
func having(t *testing.T, has dbtest.With, f func(t *testing.T, db *dbtest.DB)) {
	t.Helper()
	t.Parallel()
	has.Each(t, f, (*testing.T).Parallel)
}

// cuts is how the connection breaks at a round trip: before the server has done the work, or after it. Where
// the program does the same on SQLite, the other engines are spared the harmless way.
func cuts(db *dbtest.DB) []bool {
	if dbtest.SeveralWriters(db.Dialect) && !dbtest.Long() {
		return []bool{true}
	}
	return []bool{false, true}
}

// client returns a client, with few blocks unless opt says otherwise.
func client(t *testing.T, db *dbtest.DB, opt Options) *Client {
	t.Helper()
	opt.Blocks = cmp.Or(opt.Blocks, 2)
	opt.Logger = cmp.Or(opt.Logger, quiet())
	c, err := New(db.DB, opt)
	must(t, err)
	return c
}

// other returns a client as another process would have it: on connections of its
// own.
func other(t *testing.T, db *dbtest.DB) *Client {
	t.Helper()
	return client(t, db.Another(t, dialect.Options{MaxConns: 5}), Options{})
}

// agree has clients count on the same reading of the database's clock, for long: ids of
// theirs that are made one after the other rise.
func agree(t *testing.T, db *dbtest.DB, first *Client, others ...*Client) {
	t.Helper()
	must(t, first.clock.sync(t.Context(), &db.Session, instant.Now()))
	first.clock.mu.Lock()
	first.clock.at = first.clock.at.Add(time.Hour)
	ahead, at := first.clock.ahead, first.clock.at
	first.clock.mu.Unlock()
	for _, c := range others {
		c.clock.mu.Lock()
		c.clock.ahead, c.clock.at = ahead, at
		c.clock.mu.Unlock()
	}
}

// severed is other, with a function that cuts it off from the database for good.
func severed(t *testing.T, db *dbtest.DB) (c *Client, cut func()) {
	t.Helper()
	var off atomic.Bool
	broken := db.Broken(t, &dbtest.Fault{Random: func() (bool, bool) { return off.Load(), false }})
	broken.Pool().SetMaxOpenConns(5)
	return client(t, broken, Options{}), func() { off.Store(true) }
}

// worker returns a worker that does not run yet, with a short grace. Unless opt says otherwise,
// it does not lose its lease on any machine, however slow.
func worker(t *testing.T, c *Client, opt WorkerOptions) *Worker {
	t.Helper()
	opt.Grace = cmp.Or(opt.Grace, 2*time.Second)
	opt.Lease = cmp.Or(opt.Lease, longWait)
	w, err := c.Worker(opt)
	must(t, err)
	w.appeal = 0
	return w
}

// start runs a worker, and returns a function that stops it and waits for its end.
func start(t *testing.T, w *Worker) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("the worker ended with %v", err)
			}
		case <-time.After(2 * longWait):
			t.Error("the worker does not end")
		}
	})
	t.Cleanup(stop)
	select {
	case <-w.joined:
	case <-time.After(longWait):
		t.Fatal("the worker does not begin")
	}
	return stop
}

// knowsPause waits until a worker knows that its queue is paused.
func knowsPause(t *testing.T, w *Worker) {
	t.Helper()
	eventually(t, "the worker knows that it is paused", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.queues[0].set.State == "paused"
	})
}

// A record has what handlers have noted, in order.
type record struct {
	mu    sync.Mutex
	lines []string
}

func (r *record) add(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, fmt.Sprintf(format, args...))
}

func (r *record) all() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.lines)
}

func (r *record) len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.lines)
}

// count returns how many lines begin with a text.
func (r *record) count(prefix string) int {
	n := 0
	for _, line := range r.all() {
		if strings.HasPrefix(line, prefix) {
			n++
		}
	}
	return n
}

// wants waits for a number of lines, and compares them.
func (r *record) wants(t *testing.T, want ...string) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d records", len(want)), func() bool { return r.len() >= len(want) })
	if got := r.all(); !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// handle sets a handler.
func handle(t *testing.T, w *Worker, kind string, h Handler) {
	t.Helper()
	must(t, w.Handle(kind, h))
}

// enqueue enqueues a job that must be taken.
func enqueue(t *testing.T, c *Client, job Job) int64 {
	t.Helper()
	e, err := c.Enqueue(t.Context(), job)
	must(t, err)
	return e.ID
}

func enqueueMany(t *testing.T, c *Client, jobs []Job) []int64 {
	t.Helper()
	all, err := c.EnqueueMany(t.Context(), jobs)
	must(t, err)
	ids := idsOfAll(all)
	if len(ids) != len(jobs) || !slices.IsSorted(ids) {
		t.Fatalf("%d jobs, and ids %v", len(jobs), ids)
	}
	return ids
}

func idsOfAll(all []Enqueued) (ids []int64) {
	for _, e := range all {
		ids = append(ids, e.ID)
	}
	return ids
}

// edit changes the settings of the default queue.
func edit(t *testing.T, c *Client, change func(*admin.Queue)) {
	t.Helper()
	_, err := adminOf(c).Edit(t.Context(), defaultQueue, change)
	must(t, err)
}

// impatient has failed jobs tried again soon.
func impatient(q *admin.Queue) { q.RetryDelay, q.RetryMaxDelay = time.Millisecond, 5*time.Millisecond }

// info returns a job that must be there, in a state.
func info(t *testing.T, c *Client, id int64, state admin.State) admin.Job {
	t.Helper()
	i, err := adminOf(c).Job(t.Context(), "", id)
	must(t, err)
	if i.State != state {
		t.Errorf("job %d is %s, not %s: %+v", id, i.State, state, i)
	}
	return i
}

// becomes waits for a job's state.
func becomes(t *testing.T, c *Client, id int64, state admin.State) (i admin.Job) {
	t.Helper()
	eventually(t, fmt.Sprintf("job %d is %s", id, state), func() bool {
		var err error
		if i, err = adminOf(c).Job(t.Context(), "", id); !errors.Is(err, ErrNotFound) {
			must(t, err)
		}
		return i.State == state
	})
	return i
}

// empty waits until no job is left but dead ones.
func empty(t *testing.T, db *dbtest.DB) {
	t.Helper()
	defer func() {
		if t.Failed() {
			t.Log(left(t, db.DB))
		}
	}()
	eventually(t, "no job is left", func() bool { return rowsOf(t, db) == 0 })
}

// left lists some of the jobs that are left, for messages.
func left(t *testing.T, db *dialect.DB) []string {
	t.Helper()
	return (&dbtest.DB{DB: db}).List(t, `
		SELECT 'ready', divided, id, job_key, kind, '', '' FROM {prefix}job
		UNION ALL SELECT 'delayed', divided, id, job_key, kind, hold_key, CONCAT(attempt, ' ', error) FROM {prefix}job_delayed
		UNION ALL SELECT 'running', divided, id, job_key, kind, lock_by, CONCAT(state, ' ', attempt, ' ', crashes) FROM {prefix}job_running
		LIMIT 20`, nil)
}

// rowsOf counts the jobs in all states but dead. Sentinels are no jobs.
func rowsOf(t *testing.T, db *dbtest.DB) (n int) {
	t.Helper()
	db.Scan(t, `SELECT (SELECT COUNT(*) FROM {prefix}job WHERE id > 0) + (SELECT COUNT(*) FROM {prefix}job_delayed WHERE id > 0) + (SELECT COUNT(*) FROM {prefix}job_running)`, nil, &n)
	return n
}

// want fails the test unless err is target, or nil if that is nil.
func want(t *testing.T, what string, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Errorf("%s: got %v, want %v", what, err, target)
	}
}

var must, eventually, quiet = dbtest.Must, dbtest.Eventually, dbtest.Quiet

// received waits for a value from a goroutine.
func received[T any](t *testing.T, what string, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(longWait):
		t.Fatalf("waited in vain: %s", what)
	}
	return v
}

// lapse has the lease of a worker that was cut off end after a while, instead of when it
// would: for the worker at once, since it is to notice before the others do.
func lapse(t *testing.T, db *dbtest.DB, w *Worker, after time.Duration) {
	t.Helper()
	name := nameOf(w)
	eventually(t, "it notices that its lease is over", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.lease.node == name {
			w.lease.deadline = instant.Now()
		}
		return w.lease.node != name
	})
	// One that was not cut off may have given the name back already.
	db.Do(t, `UPDATE {prefix}node SET expire_at = {now + :us} WHERE name = :name AND state = 'live'`,
		sqlrun.Args{"us": after.Microseconds(), "name": name})
}

// nameOf is the name under which others know a worker.
func nameOf(w *Worker) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lease.node
}

// adminOf returns an admin client for a client's database.
func adminOf(c *Client) *admin.Client {
	a, err := admin.New(c.db, admin.Options{Blocks: c.opt.Blocks})
	if err != nil {
		panic(err)
	}
	return a
}

func countsOf(ready, delayed, running, dead, limit int) admin.Counts {
	return admin.Counts{Ready: ready, Delayed: delayed, Running: running, Dead: dead, Limit: limit}
}

// runnerOf returns who runs the jobs of a block.
func runnerOf(b *tenure) *runner { return b.q.h.occupants.(*runner) }

// bareWorker returns a worker without a database, whose parts know each other.
func bareWorker(opt WorkerOptions) *Worker {
	c := &Client{}
	c.bells.hub = &bell.Hub{}
	w := &Worker{core: core{c: c, opt: opt}}
	w.log, w.lines = w.mu.logger(slog.Default())
	w.assemble()
	return w
}
