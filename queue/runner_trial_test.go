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
	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/admin"
)

// orphaned leaves jobs in a state that a worker has begun and died with: some for which nobody waits, the heads of
// some keys, and the head of a FIFO queue, in this order. It returns their names.
func orphaned(t *testing.T, db *dbtest.DB, state string) (rest, heads, line []string) {
	t.Helper()
	o := newDock(t, db, impatient)
	_, err := adminOf(o.c).Edit(t.Context(), "line", fifo)
	must(t, err)
	job := func(queue, key, name string) Job {
		return Job{Queue: queue, Kind: "x", Key: key, Payload: fmt.Appendf(nil, "%q", name)}
	}
	var jobs []Job
	for i := range 12 {
		rest = append(rest, fmt.Sprint("long rest ", i))
		jobs = append(jobs, job("", "", rest[i]))
	}
	for i := range 5 {
		heads = append(heads, fmt.Sprint("long head ", i))
		jobs = append(jobs, job("", heads[i], heads[i]), job("", heads[i], "behind"))
	}
	line = []string{"long line"}
	jobs = append(jobs, job("line", "", line[0]), job("line", "", "behind"))
	enqueueMany(t, o.c, jobs)
	o.hire(WorkerOptions{Queues: []string{defaultQueue, "line"}, Concurrency: 64}, func(w *Worker) { w.slow = time.Millisecond })
	eventually(t, "all that can have begun", func() bool {
		return len(db.List(t, `SELECT id FROM {prefix}job_running`, nil)) == len(rest)+len(heads)+len(line)
	})
	o.kill()
	db.Do(t, `UPDATE {prefix}job_running SET state = :state`, sqlrun.Args{"state": state})
	return rest, heads, line
}

// inRanks reports whether the first records are the named jobs, rank by rank.
func inRanks(got []string, ranks ...[]string) bool {
	for _, names := range ranks {
		if len(got) < len(names) || !slices.Equal(slices.Sorted(slices.Values(got[:len(names)])), slices.Sorted(slices.Values(names))) {
			return false
		}
		got = got[len(names):]
	}
	return true
}

// Jobs that a dead worker has left are tried one after the other: first the head of a FIFO queue, then the heads of
// keys, and then those for which nobody waits. Those that run alone need no round in between.
func TestHeadsAreTriedFirst(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		for _, state := range []string{rowRunning, rowSuspect} {
			rest, heads, line := orphaned(t, db, state)
			var stalls atomic.Bool
			goOn := make(chan bool)
			stalled := db.Broken(t, &dbtest.Fault{Call: -1, Stall: func(op string) {
				if stalls.Load() && strings.Contains(op, "job_running AS r LEFT JOIN") {
					<-goOn
				}
			}})
			stalled.Pool().SetMaxOpenConns(20)
			w := worker(t, client(t, stalled, Options{}), WorkerOptions{Queues: []string{defaultQueue, "line"}, Concurrency: 1})
			w.proven = longWait
			var r record
			handle(t, w, "x", func(_ context.Context, d *Delivery) error {
				r.add("%s", strings.Trim(string(d.Payload), `"`))
				return nil
			})
			if state == rowSuspect {
				w.lone.recess = instant.Now().Add(time.Hour)
			}
			stop := start(t, w)
			if state == rowSuspect {
				eventually(t, "all wait for their trials", func() bool {
					w.mu.Lock()
					defer w.mu.Unlock()
					return len(w.lone.docket) == len(rest)+len(heads)+len(line)
				})
				stalls.Store(true)
				w.mu.Lock()
				w.lone.recess = 0
				signal(w.lone.wake)
				w.mu.Unlock()
			}
			eventually(t, "all have begun", func() bool { return r.count("long") == len(rest)+len(heads)+len(line) })
			stalls.Store(false)
			close(goOn)
			if got := slices.DeleteFunc(r.all(), func(name string) bool { return name == "behind" }); !inRanks(got, line, heads, rest) {
				t.Errorf("%s: they began in the order %q", state, got)
			}
			empty(t, db)
			stop()
		}
	})
}

// A place that becomes free while a round hands places out goes to the first that found none, and not to the one
// that is looked at just then.
func TestAFreedPlaceGoesToTheFirst(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		rest, heads, line := orphaned(t, db, rowRunning)
		ids := db.List(t, `SELECT id FROM {prefix}job_running WHERE job_key LIKE 'long head%' ORDER BY divided, id`, nil)
		db.Do(t, `UPDATE {prefix}job_running SET crashes = 1000 WHERE id = :id`, sqlrun.Args{"id": ids[len(ids)-1]})
		begun, ended := make(chan bool), make(chan bool)
		var adoptions atomic.Int32
		stalled := db.Broken(t, &dbtest.Fault{Call: -1, Stall: func(op string) {
			if strings.Contains(op, "crashes = crashes + ") && adoptions.Add(1) == 2 { // of the dead letter, the last of the heads
				<-begun
				<-ended
			}
		}})
		stalled.Pool().SetMaxOpenConns(20)
		w := worker(t, client(t, stalled, Options{}), WorkerOptions{Queues: []string{defaultQueue, "line"}, Concurrency: 1})
		w.proven = longWait
		var r record
		handle(t, w, "x", func(_ context.Context, d *Delivery) error {
			name := strings.Trim(string(d.Payload), `"`)
			r.add("%s", name)
			if name == line[0] {
				close(begun)
			}
			return nil
		})
		stop := start(t, w)
		<-begun
		eventually(t, "its trial is over", func() bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.onTrial[survivor] == 1 // the dead letter
		})
		close(ended)
		eventually(t, "all but the dead letter have begun", func() bool { return r.count("long") == len(rest)+len(heads)+len(line)-1 })
		got := slices.DeleteFunc(r.all(), func(name string) bool { return name == "behind" })
		if !slices.Equal(got[:1], line) || slices.ContainsFunc(got[1:len(heads)], func(name string) bool { return !slices.Contains(heads, name) }) {
			t.Errorf("they began in the order %q", got)
		}
		stop()
	})
}

// The trial of a job lasts until its end is written: otherwise another one that ends the worker would convict it, too. If its
// end is refused, the others are tried nevertheless.
func TestATrialLastsUntilItsEndIsWritten(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		for _, refused := range []bool{false, true} {
			rest, heads, line := orphaned(t, db, rowSuspect)
			allow := func() {}
			if refused {
				allow = refuse(t, db, "DELETE", "job_running")
			}
			w := worker(t, client(t, db, Options{}), WorkerOptions{Queues: []string{defaultQueue, "line"}, Concurrency: 1})
			w.proven = map[bool]time.Duration{false: longWait, true: 50 * time.Millisecond}[refused]
			var r record
			handle(t, w, "x", func(_ context.Context, d *Delivery) error {
				if name := strings.Trim(string(d.Payload), `"`); name != "behind" {
					alone := db.List(t, `SELECT id FROM {prefix}job_running WHERE state = :alone`, sqlrun.Args{"alone": rowAlone})
					if !refused && !slices.Equal(alone, []string{fmt.Sprint(d.ID)}) {
						t.Errorf("while %d runs alone, that is said of %q", d.ID, alone)
					}
					r.add("%s", name)
				}
				return nil
			})
			stop := start(t, w)
			eventually(t, "all have begun", func() bool { return r.len() >= len(rest)+len(heads)+len(line) })
			allow()
			empty(t, db)
			stop()
		}
	})
}

// Of the jobs that a dead worker had read, and may have begun, those are checked out first for which others wait, and
// no more at a time than the worker can run.
func TestOnlyWhatRunsIsSuspected(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		const slots = 2
		edit(t, client(t, db, Options{Blocks: 1}), impatient)
		o := newDock(t, db, impatient)
		names := []string{}
		for i := range 20 {
			names = append(names, fmt.Sprint("long rest ", i))
		}
		for i := range slots {
			names = append(names, fmt.Sprint("long head ", i))
		}
		var jobs []Job
		for _, name := range names {
			key := ""
			if strings.Contains(name, "head") {
				key = name
			}
			jobs = append(jobs, Job{Kind: "x", Key: key, Payload: fmt.Appendf(nil, "%q", name)})
		}
		enqueueMany(t, o.c, jobs)
		few := WorkerOptions{Concurrency: slots}
		o.hire(few, func(w *Worker) { w.slow = time.Hour })
		o.runs(names[:slots]...)
		o.kill()
		o.hire(few, nil)
		o.runs(names[20:]...)
		if got := db.List(t, `SELECT job_key, state FROM {prefix}job_running ORDER BY id`, nil); len(got) != slots {
			t.Errorf("checked out are %q", got)
		}
	})
}

// A session of lone trials ends when it has lasted for long, and what it held back begins before the next one.
func TestTrialsLeaveRoom(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		o := newDock(t, db, impatient)
		o.enqueue("long 0")
		o.enqueue("long 1")
		for _, state := range []string{rowRunning, rowSuspect} {
			o.hire(WorkerOptions{}, nil)
			o.runs("long 0", "long 1")
			eventually(t, "their rows say so", func() bool {
				all := db.List(t, `SELECT state FROM {prefix}job_running`, nil)
				return slices.Equal(all, []string{state, state})
			})
			o.kill()
		}
		o.hire(WorkerOptions{}, nil)
		eventually(t, "one of them runs", func() bool { return o.delivery("long 0") != nil || o.delivery("long 1") != nil })
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
		first, second := "long 0", "long 1"
		if o.delivery(first) == nil {
			first, second = second, first
		}
		if o.delivery(second) != nil || o.r.len() > 0 {
			t.Errorf("beside it runs the other, or was done: %q", o.r.all())
		}
		o.w.mu.Lock()
		for _, at := range []*instant.Instant{&o.w.lone.first, &o.w.lone.costs} {
			*at = at.Add(-2 * o.w.proven)
		}
		o.w.mu.Unlock()
		o.age(first)
		o.r.wants(t, "short")
		o.w.mu.Lock()
		recess := o.w.lone.recess.Sub(instant.Now())
		o.w.mu.Unlock()
		if o.delivery(second) != nil || recess < o.w.proven {
			t.Errorf("the next session begins in %v, or has begun", recess)
		}
		o.w.mu.Lock()
		o.w.lone.recess = 0
		signal(o.w.lone.wake)
		o.w.mu.Unlock()
		o.runs(second)
	})
}

// A worker in which a job only waits for its lone trial, and that dies, charges it with nothing.
func TestWaitingForATrialIsNoGuilt(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		o := newDock(t, db, func(q *admin.Queue) { q.MaxCrashes = 1 })
		long := o.enqueue("long")
		for _, state := range []string{rowRunning, rowSuspect} {
			o.hire(WorkerOptions{}, nil)
			o.runs("long")
			o.says(long, state)
			o.kill()
		}
		for range 2 * maxCrashes {
			o.hire(WorkerOptions{}, func(w *Worker) { w.lone.recess = instant.Now().Add(time.Hour) })
			eventually(t, "it waits", func() bool {
				o.w.mu.Lock()
				defer o.w.mu.Unlock()
				return len(o.w.lone.docket) == 1
			})
			o.kill()
		}
		if got := db.List(t, `SELECT state, crashes FROM {prefix}job_running`, nil); !slices.Equal(got, []string{"suspect 1"}) {
			t.Errorf("it is %q", got)
		}
		o.hire(WorkerOptions{}, nil)
		o.runs("long")
		o.says(long, rowAlone)
	})
}

// Jobs that are to run alone, and wait for the limit of their tenant, are tried one right after the other: neither does each wait for
// all that runs, nor for the turn of its tenant among all others. It is the same for the limit of a kind.
func TestTrialsOfALimitedTenant(t *testing.T) {
	for name, limit := range map[string]func(t *testing.T, c *Client){
		"tenant": func(t *testing.T, c *Client) {
			limitTenant(t, c, admin.EachTenant, func(l *admin.Limit) { l.Running = 2 })
		},
		"kind": func(t *testing.T, c *Client) { limitTo(t, c, "x", 2) },
	} {
		t.Run(name, func(t *testing.T) {
			locks(t, func(t *testing.T, db *dbtest.DB) {
				const suspects, tenants = 30, 100
				o := newDock(t, db, func(q *admin.Queue) { impatient(q); q.Fair = true })
				enqueueMany(t, o.c, slices.Repeat([]Job{{Kind: "x", Tenant: "suspected", Payload: []byte(`"long"`)}}, suspects))
				o.hire(WorkerOptions{Concurrency: suspects}, func(w *Worker) { w.slow = time.Millisecond })
				eventually(t, "all have begun", func() bool { return len(db.List(t, `SELECT id FROM {prefix}job_running`, nil)) == suspects })
				o.kill()
				// Not of a block of the next worker until that works, and knows the limit.
				db.Do(t, `UPDATE {prefix}job_running SET state = :state, divided = divided + 1000`, sqlrun.Args{"state": rowSuspect})
				limit(t, o.c)
				c := other(t, db)
				w := worker(t, c, WorkerOptions{Concurrency: 4})
				w.proven = longWait
				var mu sync.Mutex
				tried, others, times, apart := 0, 0, 0, true // how often a suspected one began after others
				more := make(chan struct{}, 1000)            // others have done a part of what they have to do
				must(t, w.HandleOthers(func(_ context.Context, d *Delivery) error {
					mu.Lock()
					defer mu.Unlock()
					if d.Tenant == "suspected" {
						if tried++; apart {
							times++
						}
						apart = false
						return nil
					}
					apart = true
					if others++; others%(10*tenants) == 0 {
						more <- struct{}{}
					}
					return nil
				}))
				stop := start(t, w)
				eventually(t, "it knows the limit", func() bool {
					w.mu.Lock()
					defer w.mu.Unlock()
					return len(w.queues) > 0 && w.queues[0].limits.Limited() && w.sharings > 1
				})
				var load []Job
				for i := range 40 * tenants {
					load = append(load, Job{Kind: "y", Tenant: fmt.Sprint(i % tenants)})
				}
				count := func(n *int) int {
					mu.Lock()
					defer mu.Unlock()
					return *n
				}
				feeding, fed := make(chan struct{}), make(chan struct{})
				go func() {
					defer close(fed)
					for {
						select {
						case <-feeding:
							return
						case <-more:
							_, err := o.c.EnqueueMany(t.Context(), load[:10*tenants])
							must(t, err)
						}
					}
				}()
				enqueueMany(t, o.c, load)
				eventually(t, "others run", func() bool { return count(&others) > 0 })
				db.Do(t, `UPDATE {prefix}job_running SET divided = divided - 1000 WHERE divided >= 1000`, nil)
				eventually(t, "all were tried", func() bool { return count(&tried) == suspects })
				close(feeding)
				<-fed
				stop()
				if n := count(&times); n > suspects/2 {
					t.Errorf("the %d jobs were tried in %d parts, with others in between", suspects, n)
				}
			})
		})
	}
}
