package queue

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// A dock is a queue whose workers die at will. Payloads name its jobs; those whose names begin
// with "long" or "poison" run until they are told to end.
type dock struct {
	t  *testing.T
	db *dbtest.DB
	c  *Client
	r  record

	mu    sync.Mutex
	hung  map[string]*Delivery // what runs in the latest worker
	goOn  chan struct{}
	w     *Worker // the latest
	stop  func()
	die   func()
	tally int // deaths
}

func newDock(t *testing.T, db *dbtest.DB, change func(*admin.Queue)) *dock {
	t.Helper()
	d := &dock{t: t, db: db, c: client(t, db, Options{}), goOn: make(chan struct{})}
	edit(t, d.c, change)
	t.Cleanup(func() { close(d.goOn) })
	return d
}

// hire starts a worker in which no job is trusted of its own accord.
func (o *dock) hire(opt WorkerOptions, change func(*Worker)) {
	o.t.Helper()
	var off atomic.Bool
	broken := o.db.Broken(o.t, &dbtest.Fault{Random: func() (bool, bool) { return off.Load(), false }})
	broken.Pool().SetMaxOpenConns(5)
	opt.Grace = -1
	w := worker(o.t, client(o.t, broken, Options{}), opt)
	w.proven = longWait
	if change != nil {
		change(w)
	}
	must(o.t, w.HandleOthers(func(ctx context.Context, d *Delivery) error {
		name := string(d.Payload[1 : len(d.Payload)-1])
		done := ctx.Done()
		if name == "long and deaf" {
			done = nil
		}
		if !strings.HasPrefix(name, "long") && !strings.HasPrefix(name, "poison") {
			o.r.add("%s", name)
			return nil
		}
		o.mu.Lock()
		o.hung[name] = d
		o.mu.Unlock()
		select {
		case <-o.goOn:
			o.r.add("%s", name)
			return nil
		case <-done:
			return ctx.Err()
		}
	}))
	o.mu.Lock()
	o.w, o.hung = w, map[string]*Delivery{}
	o.mu.Unlock()
	stop := start(o.t, w)
	name := nameOf(w)
	o.stop = stop
	o.die = func() {
		off.Store(true)
		lapse(o.t, o.db, w, 0)
		// It could not end while cut off. So that it can, and hands over nothing that it
		// remembers, its rows get a name that no longer exists.
		must(o.t, orExec(o.db, store.ExpelNode, sqlrun.Args{"node": name}))
		for _, table := range []string{"queue_block", "job_running"} {
			o.db.Do(o.t, fmt.Sprintf(`UPDATE {prefix}%s SET lock_by = 'late' WHERE lock_by = :name`, table), sqlrun.Args{"name": name})
		}
		ended := make(chan bool)
		go func() { stop(); close(ended) }()
		eventually(o.t, "it is being stopped", func() bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.closing
		})
		off.Store(false)
		received(o.t, "it ends", ended)
	}
}

// kill has the latest worker vanish.
func (o *dock) kill() {
	o.t.Helper()
	o.tally++
	o.die()
}

// delivery is that of a job that runs in the latest worker.
func (o *dock) delivery(name string) *Delivery {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.hung[name]
}

// runs waits until jobs run in the latest worker.
func (o *dock) runs(names ...string) {
	o.t.Helper()
	for _, name := range names {
		eventually(o.t, name+" runs", func() bool { return o.delivery(name) != nil })
	}
}

// says waits for the state of a job's row.
func (o *dock) says(id int64, state string) {
	o.t.Helper()
	got := ""
	defer func() {
		if o.t.Failed() {
			o.t.Logf("job %d is %q", id, got)
		}
	}()
	eventually(o.t, fmt.Sprintf("the row of job %d says %s", id, state), func() bool {
		got = ""
		for _, line := range o.db.List(o.t, fmt.Sprintf(`SELECT state FROM {prefix}job_running WHERE id = %d`, id), nil) {
			got = line
		}
		return got == state
	})
}

// age has a job that runs in the latest worker have run for long.
func (o *dock) age(name string) {
	o.t.Helper()
	o.says(o.backdate(name).ID, rowRunning)
}

func (o *dock) backdate(name string) *Delivery {
	o.t.Helper()
	o.runs(name)
	d := o.delivery(name)
	o.w.mu.Lock()
	defer o.w.mu.Unlock()
	d.began = d.began.Add(-2 * o.w.proven)
	return d
}

func (o *dock) enqueue(name string) int64 {
	o.t.Helper()
	return enqueue(o.t, o.c, Job{Kind: "x", Payload: fmt.Appendf(nil, "%q", name)})
}

// A long job that is taken over keeps no others waiting that are under suspicion.
func TestLongSuspect(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		o := newDock(t, db, impatient)
		long := o.enqueue("long")
		o.hire(WorkerOptions{}, nil)
		o.says(long, rowRunning)
		o.kill()

		// Another worker reads 50 jobs, and dies while it does the first.
		reader, cut := severed(t, db)
		w := worker(t, reader, WorkerOptions{Concurrency: 1, Grace: -1, Queues: []string{"second"}})
		w.slow = time.Hour
		began := make(chan bool, 1)
		handle(t, w, "x", func(ctx context.Context, _ *Delivery) error {
			began <- true
			<-ctx.Done()
			return ctx.Err()
		})
		var jobs []Job
		for i := range 50 {
			jobs = append(jobs, Job{Queue: "second", Kind: "x", Payload: fmt.Appendf(nil, `"short %d"`, i)})
		}
		enqueueMany(t, o.c, jobs)
		start(t, w)
		received(t, "one begins", began)

		o.hire(WorkerOptions{Queues: []string{defaultQueue, "second"}}, nil)
		o.runs("long")
		cut()
		lapse(t, db, w, 0)
		eventually(t, "the short ones are done", func() bool { return o.r.count("short") == 50 })
		if o.delivery("long") == nil || o.r.count("long") > 0 {
			t.Error("the long one has ended")
		}
	})
}

// More long jobs than there are places for survivors begin, since one that has proven itself
// makes room for another.
func TestLongSuspects(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		o := newDock(t, db, impatient)
		var names []string
		many := WorkerOptions{Concurrency: 2 * doubtful}
		for i := range doubtful + 1 {
			names = append(names, fmt.Sprint("long ", i))
			o.enqueue(names[i])
		}
		o.hire(many, nil)
		eventually(t, "they are checked out", func() bool {
			return len(db.List(t, `SELECT id FROM {prefix}job_running`, nil)) == len(names)
		})
		o.kill()
		o.hire(many, nil)
		running := func() (running []string) {
			return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return o.delivery(name) == nil })
		}
		eventually(t, "as many begin as there are places", func() bool { return len(running()) == doubtful })
		o.age(running()[0])
		eventually(t, "the last one begins", func() bool { return len(running()) == len(names) })
	})
}

// A job that ends its worker at once is dead after MaxCrashes workers, and three of them take
// no long job with them that runs beside.
func TestPoisonBesideALongJob(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		o := newDock(t, db, impatient)
		long := o.enqueue("long")
		o.hire(WorkerOptions{}, nil)
		o.says(long, rowRunning)
		for i := range 3 {
			o.runs("long")
			name := fmt.Sprint("poison ", i)
			poison := o.enqueue(name)
			before := o.tally
			for dead := false; !dead; {
				eventually(t, name+" runs, or is dead", func() bool {
					if o.delivery("long") != nil && o.w.keepsWaiting(long) {
						o.age("long")
					}
					j, err := adminOf(o.c).Job(t.Context(), "", poison)
					must(t, err)
					dead = j.State == admin.StateDead
					return dead || o.delivery(name) != nil
				})
				if !dead {
					eventually(t, "the long one runs, or waits to run alone", func() bool {
						return o.delivery("long") != nil || o.w.triesAlone()
					})
					o.kill()
					o.hire(WorkerOptions{}, nil)
				}
			}
			if j := info(t, o.c, poison, admin.StateDead); o.tally-before != 3 || j.Crashes != 3 {
				t.Errorf("%s ended %d workers, and is %+v", name, o.tally-before, j)
			}
		}
		o.runs("long")
		if j := info(t, o.c, long, admin.StateRunning); j.Crashes < 3 { // at least one of each poison job
			t.Errorf("the long one is %+v", j)
		}
		o.age("long")
	})
}

// triesAlone reports whether a job runs alone, or waits for that.
func (w *Worker) triesAlone() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lone.d != nil || len(w.lone.docket) > 0
}

// keepsWaiting reports whether a job is on trial while another one waits for that.
func (w *Worker) keepsWaiting(id int64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for at, d := range w.out {
		if at.ID == id {
			return d.trial.why != trusted && (d.trial.why == accused || w.lone.called != 0)
		}
	}
	return false
}

// A job that ends its worker at once is dead after as many deaths as its queue says, and no
// sooner than after the third: the first two do not tell it from others.
func TestPoison(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		for most, deaths := range map[int]int{1: 3, 3: 3, 4: 4} {
			o := newDock(t, db, func(q *admin.Queue) { q.MaxCrashes = most })
			id := o.enqueue("poison")
			for range deaths {
				o.hire(WorkerOptions{}, func(w *Worker) { w.slow = time.Hour })
				o.runs("poison")
				o.kill()
			}
			o.hire(WorkerOptions{}, nil)
			if j := becomes(t, o.c, id, admin.StateDead); j.Crashes != deaths {
				t.Errorf("after %d deaths, where %d are allowed, it is %+v", deaths, most, j)
			}
			o.enqueue("other")
			eventually(t, "others are done", func() bool { return o.r.count("other") == 1 })
			o.stop()
		}
	})
}

// A job that ends its worker after it was trusted is dead after maxCrashes as many deaths.
func TestSlowPoison(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		const most = 2
		o := newDock(t, db, func(q *admin.Queue) { q.MaxCrashes = most })
		id := o.enqueue("poison")
		for range maxCrashes * most {
			o.hire(WorkerOptions{}, nil)
			o.age("poison")
			o.kill()
		}
		o.hire(WorkerOptions{}, nil)
		if j := becomes(t, o.c, id, admin.StateDead); j.Crashes != maxCrashes*most {
			t.Errorf("it is %+v", j)
		}
	})
}

// Jobs under suspicion that wait for a limit keep no others waiting.
func TestSuspectsAtALimit(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		o := newDock(t, db, impatient)
		_, err := adminOf(o.c).EditLimit(t.Context(), defaultQueue, "y", func(l *admin.Limit) { l.Rate, l.Per = 1, 24*time.Hour })
		must(t, err)
		o.hire(WorkerOptions{}, nil)
		o.enqueue("long")
		o.runs("long")
		o.kill()
		var limited []Job
		for range 4 * doubtful {
			limited = append(limited, Job{Kind: "y", Payload: []byte(`"limited"`)})
		}
		enqueueMany(t, o.c, limited)
		for i := range 10 {
			o.enqueue(fmt.Sprint("short ", i))
		}
		o.hire(WorkerOptions{}, nil)
		eventually(t, "what has no limit is done", func() bool { return o.r.count("short") == 10 })
	})
}

// While a job runs alone no other one begins beside it, and it does not begin beside others
// that are not trusted. Only a worker that dies while it does so makes it a dead letter.
func TestLoneTrial(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		o := newDock(t, db, func(q *admin.Queue) { q.MaxCrashes = 1 })
		long := o.enqueue("long")
		o.hire(WorkerOptions{}, nil)
		o.says(long, rowRunning)
		o.kill()
		o.hire(WorkerOptions{}, nil)
		o.runs("long")
		o.says(long, rowSuspect)

		// Its next worker runs another job already.
		dieFirst := o.die
		o.hire(WorkerOptions{Queues: []string{defaultQueue, "second"}}, nil)
		enqueue(t, o.c, Job{Queue: "second", Kind: "x", Payload: []byte(`"long beside"`)})
		o.runs("long beside")
		dieFirst()
		eventually(t, "it waits to run alone", func() bool {
			o.w.mu.Lock()
			defer o.w.mu.Unlock()
			return o.w.lone.holds && o.w.sharings > 0
		})
		o.says(long, rowSuspect)
		if o.delivery("long") != nil {
			t.Error("it runs beside another")
		}
		o.kill() // which proves nothing

		o.hire(WorkerOptions{}, nil)
		o.runs("long")
		o.says(long, rowAlone)
		o.enqueue("short")
		eventually(t, "another is read", func() bool {
			o.w.mu.Lock()
			defer o.w.mu.Unlock()
			n := 0
			for _, b := range o.w.queues[0].blocks {
				n += b.Count
			}
			return n == 1
		})
		if o.r.len() > 0 {
			t.Errorf("done beside it: %q", o.r.all())
		}
		o.age("long")
		o.r.wants(t, "short")
		o.kill() // which proves nothing of a job that was trusted

		o.hire(WorkerOptions{}, nil)
		o.age("long")
		o.kill() // which proves nothing either, but is the last
		o.hire(WorkerOptions{}, nil)
		if j := becomes(t, o.c, long, admin.StateDead); j.Crashes != maxCrashes {
			t.Errorf("it is %+v", j)
		}
	})
}

// A job that waits to run alone does not run if it is cancelled, and goes to another worker if
// its own is stopped: even if it was taken over already, since it has a limit.
func TestLoneTrialEnds(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		o := newDock(t, db, impatient)
		_, err := adminOf(o.c).EditLimit(t.Context(), defaultQueue, "x", func(l *admin.Limit) { l.Running = 100 })
		must(t, err)
		both := WorkerOptions{Queues: []string{defaultQueue, "second"}}
		waits := func() int64 {
			id := o.enqueue("long")
			o.hire(WorkerOptions{}, nil)
			o.runs("long")
			o.says(id, rowRunning)
			o.kill()
			o.hire(WorkerOptions{}, nil)
			o.runs("long")
			dieFirst := o.die
			o.hire(both, nil)
			enqueue(t, o.c, Job{Queue: "second", Kind: "x", Payload: []byte(`"poison"`)})
			o.runs("poison")
			dieFirst()
			eventually(t, "it waits to run alone", func() bool {
				o.w.mu.Lock()
				defer o.w.mu.Unlock()
				return o.w.lone.holds && len(o.w.lone.parked) > 0
			})
			return id
		}
		must(t, adminOf(o.c).Cancel(t.Context(), "", waits()))
		eventually(t, "nobody waits", func() bool {
			o.w.mu.Lock()
			defer o.w.mu.Unlock()
			return o.w.lone.d == nil && len(o.w.lone.parked) == 0 && len(o.w.out) == 1
		})
		o.enqueue("short")
		o.r.wants(t, "short")
		o.stop()

		id := waits()
		o.stop()
		o.says(id, rowHanded)
		o.hire(WorkerOptions{}, nil)
		o.runs("long")
		o.says(id, rowSuspect) // whoever hands it over may not have begun its trial
	})
}

// A handler that does not heed that its job was cancelled keeps no others waiting for longer
// than until the job would be trusted.
func TestLoneTrialOfTheDeaf(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		o := newDock(t, db, impatient)
		const name = "long and deaf"
		id := o.enqueue(name)
		for _, state := range []string{rowRunning, rowSuspect, rowAlone} {
			o.hire(WorkerOptions{}, nil)
			o.runs(name)
			o.says(id, state)
			if state != rowAlone {
				o.kill()
			}
		}
		must(t, adminOf(o.c).Cancel(t.Context(), "", id))
		o.enqueue("short")
		o.backdate(name)
		o.r.wants(t, "short")
	})
}

// A worker that removes jobs before they are done takes over what another one has left.
func TestAtMostOnceTakesOver(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		o := newDock(t, db, impatient)
		o.hire(WorkerOptions{AtMostOnce: true}, nil)
		eventually(t, "it has all blocks", func() bool { return slices.Equal(shares(t, o.c), []int{2}) })
		o.kill()
		for i := range 5 {
			o.enqueue(fmt.Sprint("short ", i))
		}
		o.hire(WorkerOptions{AtMostOnce: true}, nil)
		empty(t, db)
		eventually(t, "all are done", func() bool { return o.r.len() == 5 })
	})
}

// The row of a handed over job says so, whatever its worker finds out late, or hands over
// twice.
func TestTrialOfTheHanded(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		world(t, db)
		byHand(t, db, `INSERT INTO {prefix}job_running (queue_id, divided, id, kind, state, lock_by) VALUES
			(1, 2, 77, 'x', 'handed', 'me'), (1, 2, 78, 'x', 'suspect', 'me')`)
		for _, id := range []int{77, 78} {
			must(t, orExec(db, store.SetTrial, sqlrun.Args{"queue": 1, "divided": 2, "id": id, "node": "me", "state": rowAlone}))
		}
		wantRows(t, db, "jobs", `SELECT id, state FROM {prefix}job_running WHERE id IN (77, 78) ORDER BY id`, "77 handed", "78 alone")
	})
}
