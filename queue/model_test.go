package queue

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/queue/admin"
)

// A modelJob is what a job of the model should do, as its payload tells its handlers, and what
// the model knows about it.
type modelJob struct {
	Fails int           // attempts that fail, before one that does not
	Lasts time.Duration // of each
	Tx    bool          // it completes in a transaction that has an effect

	key       string
	id        int64
	starts    int
	ended     int  // attempts that did not fail
	failed    int  // the number of the last attempt that was seen to fail
	cancelled bool // it was tried to
}

const modelAttempts = 4

// dies reports whether the job ends as a dead letter.
func (j *modelJob) dies() bool { return j.Fails >= modelAttempts }

// over reports whether the next job of its key may start.
func (j *modelJob) over() bool {
	return j.cancelled || j.ended > 0 || j.dies() && j.failed >= modelAttempts
}

// A model is a queue with workers that come and go and whose connections break, and
// what must have been in spite of that. It is guarded by its record's mu.
type model struct {
	record
	begun instant.Instant
	t     *testing.T
	db    *dbtest.DB
	c     *Client
	from  []*Client   // produce, in turns
	off   atomic.Bool // connections hold from now on
	jobs  map[int64]*modelJob
	lines map[string][]*modelJob // of keys, in their order
	early int
}

func (m *model) add(format string, args ...any) {
	m.record.add("%v "+format, append([]any{since(m.begun).Round(time.Millisecond)}, args...)...)
}

// start records the start of a job, which must follow those before it in its sequence.
func (m *model) start(d *Delivery) *modelJob {
	m.add("%d starts, attempt %d", d.ID, d.Attempt)
	m.mu.Lock()
	defer m.mu.Unlock()
	j := m.jobs[d.ID]
	if j == nil { // its enqueueing has not returned yet, or not with success
		return nil
	}
	j.starts++
	for _, before := range m.lines[d.Key] {
		// A worker that was stalled until after its lease may only now come here.
		if before.Tx && before.ended > 0 && before.id > d.ID && d.Left() > 0 && m.early < 10 {
			m.early++
			m.t.Errorf("job %d of key %s starts after the effect of job %d", d.ID, d.Key, before.id)
		}
		if before.id < d.ID && !before.over() && m.early < 10 {
			m.early++
			m.t.Errorf("job %d of key %s starts, and job %d is not over: %+v", d.ID, d.Key, before.id, before)
		}
	}
	return j
}

func (m *model) note(d *Delivery, j *modelJob, change func(*modelJob), what string) {
	m.add("%d %s, attempt %d", d.ID, what, d.Attempt)
	m.mu.Lock()
	defer m.mu.Unlock()
	if j != nil {
		change(j)
	}
}

func (m *model) handler(db *dialect.DB) Handler {
	return func(ctx context.Context, d *Delivery) error {
		var todo modelJob
		if err := d.Decode(&todo); err != nil {
			return err
		}
		j := m.start(d)
		select {
		case <-ctx.Done():
			m.note(d, j, func(*modelJob) {}, "is cut off")
			return context.Cause(ctx)
		case <-time.After(todo.Lasts):
		}
		if d.Attempt <= todo.Fails {
			m.note(d, j, func(j *modelJob) { j.failed = d.Attempt }, "fails")
			return errors.New("as it was told")
		}
		if todo.Tx {
			if err := m.effect(ctx, db, d); err != nil {
				// It may or may not be committed. If it is, its key continues.
				m.note(d, j, func(j *modelJob) { j.cancelled = true }, "is in doubt: "+err.Error())
				return RetryAfter(time.Millisecond, err)
			}
		}
		m.note(d, j, func(j *modelJob) { j.ended++ }, "ends")
		return nil
	}
}

// effect must happen once.
func (m *model) effect(ctx context.Context, db *dialect.DB, d *Delivery) error {
	tx, err := db.Pool().BeginTx(ctx, &sql.TxOptions{Isolation: db.Dialect.Isolation})
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // after a commit it does nothing
	if _, err := tx.ExecContext(ctx, fmt.Sprintf("INSERT INTO effects (job) VALUES (%d)", d.ID)); err != nil {
		return err
	}
	if err := d.CompleteTx(ctx, tx); err != nil {
		return err
	}
	return tx.Commit()
}

// A modelWorker has connections that break, and can be cut off altogether.
type modelWorker struct {
	*Worker
	cut  atomic.Bool
	stop func()
}

func (m *model) worker() *modelWorker {
	mw := &modelWorker{}
	broken := m.db.Broken(m.t, &dbtest.Fault{Random: func() (bool, bool) {
		if m.off.Load() {
			return false, false
		}
		return mw.cut.Load() || rand.IntN(40) == 0, rand.IntN(2) == 0
	}})
	broken.Pool().SetMaxOpenConns(5)
	mw.Worker = worker(m.t, client(m.t, broken, Options{}),
		WorkerOptions{Lease: 1500 * time.Millisecond, Concurrency: 4, Batch: 10, Grace: 100 * time.Millisecond})
	mw.slow = 20 * time.Millisecond
	handle(m.t, mw.Worker, "x", m.handler(broken.DB))
	mw.stop = start(m.t, mw.Worker)
	return mw
}

// produce enqueues n jobs, a few at a time, beside the workers.
func (m *model) produce(n int) {
	tick := time.NewTicker(*modelSpan * 10 / time.Duration(n))
	defer tick.Stop()
	for made := 0; made < n && m.t.Context().Err() == nil; <-tick.C {
		batch := make([]Job, 1+rand.IntN(20))
		told := make([]*modelJob, len(batch))
		for i := range batch {
			j := &modelJob{}
			batch[i] = Job{Kind: "x"}
			if rand.IntN(3) > 0 {
				j.key = fmt.Sprint("key-", rand.IntN(8))
				batch[i].Key = j.key
			} else {
				batch[i].Priority = rand.IntN(Idle + 1)
				batch[i].Delay = time.Duration(rand.IntN(2)*rand.IntN(200)) * time.Millisecond
			}
			switch rand.IntN(12) {
			case 0, 1:
				j.Fails = 1 + rand.IntN(modelAttempts)
			case 2:
				j.Lasts = time.Duration(rand.IntN(60)) * time.Millisecond
			case 3:
				j.Tx = true
			}
			payload, err := json.Marshal(j)
			if err != nil {
				m.t.Errorf("%+v: %v", j, err)
				return
			}
			batch[i].Payload, told[i] = payload, j
		}
		m.mu.Lock()
		all, err := m.from[rand.IntN(len(m.from))].EnqueueMany(m.t.Context(), batch)
		ids := idsOfAll(all)
		for i, id := range ids {
			told[i].id = id
			m.jobs[id] = told[i]
			if key := told[i].key; key != "" {
				m.lines[key] = append(m.lines[key], told[i])
			}
		}
		m.mu.Unlock()
		if made += len(ids); err != nil {
			m.t.Errorf("enqueue: %v", err)
			return
		}
	}
}

// disturb does something that workers must get over.
func (m *model) disturb(crew []*modelWorker) error {
	i := rand.IntN(len(crew))
	switch rand.IntN(6) {
	case 0, 1:
		m.add("worker %d is stopped", i)
		crew[i].stop()
		m.add("worker %d begins anew", i)
		crew[i] = m.worker()
	case 2, 3:
		cut := !crew[i].cut.Load()
		m.add("worker %d is cut off: %v", i, cut)
		crew[i].cut.Store(cut)
	case 4:
		n := 2 + rand.IntN(4)
		m.add("resize to %d", n)
		return adminOf(m.c).Resize(m.t.Context(), defaultQueue, n)
	case 5:
		m.mu.Lock()
		defer m.mu.Unlock()
		for id, j := range m.jobs { // any
			err := adminOf(m.c).Cancel(m.t.Context(), "", id)
			if err == nil {
				j.cancelled = true
				go m.add("%d is cancelled", id) // mu is held
				return nil
			}
			if !errors.Is(err, ErrNotFound) && !errors.Is(err, ErrState) {
				return err
			}
		}
	}
	return nil
}

// check compares what happened with what should have.
func (m *model) check(keep bool) {
	done := map[string]bool{}
	for _, id := range m.db.List(m.t, `SELECT id FROM {prefix}job_done`, nil) {
		done[id] = true
	}
	dead := map[string]bool{}
	for _, id := range m.db.List(m.t, `SELECT id FROM {prefix}job_dead`, nil) {
		dead[id] = true
	}
	effects := map[string]int{}
	for _, id := range m.db.List(m.t, `SELECT job FROM effects`, nil) {
		effects[id]++
	}
	again := 0
	for id, j := range m.jobs {
		text := fmt.Sprint(id)
		if done[text] != (keep && !j.dies()) && !j.cancelled {
			m.t.Errorf("it is kept: %v: %+v", done[text], j)
		}
		switch {
		case j.cancelled && !j.Tx:
		case j.Tx && (effects[text] > 1 || effects[text] == 0 && !j.cancelled):
			m.t.Errorf("the effect of %+v exists %d times", j, effects[text])
		case j.Tx:
		case j.dies() != dead[text] || j.dies() == (j.ended > 0):
			m.t.Errorf("among the dead ones: %v: %+v", dead[text], j)
		}
		if j.ended > 1 {
			again++
		}
	}
	m.t.Logf("%d jobs, %d done more than once, %d dead, %d effects", len(m.jobs), again, len(dead), len(effects))
}

var (
	modelJobs = flag.Int("model-jobs", 500, "how many jobs the model has")
	modelSpan = flag.Duration("model-span", 6*time.Second, "within what time")
)

// Whatever becomes of workers and connections, jobs are done, those of a key in their
// order, and effects happen once.
func TestModel(t *testing.T) { testModel(t, each, false) }

// The same in a queue that keeps done jobs: each job is kept, unless it is dead.
func TestModelOfTheKept(t *testing.T) { testModel(t, locks, true) }

func testModel(t *testing.T, run func(*testing.T, func(*testing.T, *dbtest.DB)), keep bool) {
	t.Helper()
	run(t, func(t *testing.T, db *dbtest.DB) {
		m := &model{
			begun: instant.Now(), t: t, db: db, c: client(t, db, Options{Blocks: 3}), jobs: map[int64]*modelJob{},
			lines: map[string][]*modelJob{},
		}
		db.Do(t, "CREATE TABLE effects (job BIGINT NOT NULL)", nil)
		edit(t, m.c, func(q *admin.Queue) {
			impatient(q)
			q.MaxAttempts, q.MaxCrashes = modelAttempts, 1000
			if keep {
				keeps(q)
			}
		})
		enqueue(t, m.c, Job{Kind: "x", Key: "first"}) // a queue with keys from the beginning
		m.from = []*Client{m.c, other(t, db), other(t, db)}
		agree(t, db, m.from[0], m.from[1:]...)
		crew := []*modelWorker{m.worker(), m.worker(), m.worker()}
		produced, over := make(chan bool), time.After(*modelSpan)
		go func() {
			defer close(produced)
			n := *modelJobs
			if db.Dialect.SkipLocked == "" {
				n /= 4 // embedded: workers wait for each other
			}
			if keep {
				n /= 2 // which writes more
			}
			m.produce(n)
		}()
		tick := time.NewTicker(300 * time.Millisecond)
		defer tick.Stop()
		for going := true; going; {
			select {
			case <-over:
				going = false
			case <-tick.C:
				if err := m.disturb(crew); err != nil {
					t.Error(err)
				}
			}
		}
		received(t, "all are enqueued", produced)
		m.off.Store(true)
		for _, w := range crew {
			w.cut.Store(false)
		}
		defer func() {
			if t.Failed() {
				t.Log(strings.Join(m.all(), "\n"))
			}
		}()
		empty(t, db)
		for _, w := range crew {
			w.stop()
		}
		m.check(keep)
	})
}
