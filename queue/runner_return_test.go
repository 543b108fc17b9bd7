package queue

import (
	"context"
	"errors"
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
	"github.com/dbcron/dbcron/queue/internal/block"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// A flapping is a worker whose process lives, and which the database stops hearing now and then.
type flapping struct {
	w     *Worker
	off   atomic.Bool
	begun chan int64    // the jobs that begin
	goOn  chan struct{} // closed when they may end
	deaf  atomic.Bool   // those that begin do not heed that they are lost
	stop  func()

	stalls atomic.Pointer[func(op string)] // before each round trip
}

func flap(t *testing.T, db *dbtest.DB, adjust ...func(w *Worker)) *flapping {
	t.Helper()
	f := &flapping{begun: make(chan int64, 100), goOn: make(chan struct{})}
	broken := db.Broken(t, &dbtest.Fault{Random: func() (bool, bool) { return f.off.Load(), false }, Stall: func(op string) {
		if stall := f.stalls.Load(); stall != nil {
			(*stall)(op)
		}
	}})
	broken.Pool().SetMaxOpenConns(5)
	f.w = worker(t, client(t, broken, Options{}), WorkerOptions{})
	f.w.slow = time.Millisecond
	for _, change := range adjust {
		change(f.w)
	}
	must(t, f.w.HandleOthers(func(ctx context.Context, d *Delivery) error {
		deaf := f.deaf.Load()
		f.begun <- d.ID
		select {
		case <-f.goOn:
			return nil
		case <-ctx.Done():
			if deaf {
				<-f.goOn
			}
			return ctx.Err()
		}
	}))
	f.stop = start(t, f.w)
	return f
}

// cut has the worker lose its lease, since the database does not hear it any more.
func (f *flapping) cut(t *testing.T, db *dbtest.DB) {
	t.Helper()
	f.off.Store(true)
	lapse(t, db, f.w, 0)
}

// A row of a checked out job: its state, and what it was charged with.
const chargesOf = `SELECT state, crashes, losses, CASE WHEN charged = '' THEN 'free' ELSE 'charged' END FROM {prefix}job_running`

func rowBecomes(t *testing.T, db *dbtest.DB, want string) {
	t.Helper()
	var got []string
	defer func() {
		if t.Failed() {
			t.Logf("the job is %q", got)
		}
	}()
	eventually(t, "the job is "+want, func() bool {
		got = db.List(t, chargesOf, nil)
		return slices.Equal(got, []string{want})
	})
}

// A process that lives buries no job by losing its lease, however often: neither one that it trusted,
// nor one that was on trial. The latter is trusted from then on if its handler has ended.
func TestFlaps(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		for _, state := range []string{rowRunning, rowSuspect, rowAlone} {
			survives(t, db, state, state == rowSuspect) // alone it would wait for the handler that is deaf
		}
	})
}

func survives(t *testing.T, db *dbtest.DB, state string, deaf bool) {
	t.Helper()
	edit(t, client(t, db, Options{}), func(q *admin.Queue) { q.MaxCrashes = 1 })
	f := flap(t, db)
	f.w.proven = longWait
	f.deaf.Store(deaf)
	id := enqueue(t, f.w.c, Job{Kind: "x"})
	is := rowRunning
	for n := range 2 {
		received(t, "the job begins", f.begun)
		rowBecomes(t, db, fmt.Sprintf("%s 0 %d free", is, n))
		if n == 0 {
			db.Do(t, `UPDATE {prefix}job_running SET state = :state`, sqlrun.Args{"state": state})
			if deaf {
				is = state
			}
		}
		f.cut(t, db)
		if !deaf {
			eventually(t, "it has ended", func() bool {
				f.w.mu.Lock()
				defer f.w.mu.Unlock()
				return len(f.w.past.proven) > 0
			})
		}
		f.off.Store(false)
	}
	received(t, "the job begins", f.begun)
	close(f.goOn)
	empty(t, db)
	if dead := db.List(t, `SELECT error FROM {prefix}job_dead WHERE id = :id`, sqlrun.Args{"id": id}); len(dead) > 0 {
		t.Errorf("it is dead: %q", dead)
	}
	f.stop()
}

// A process that lives takes back what another one has charged its job with, and a job that it ran
// for long enough is trusted, though that could not be written.
func TestChargeTakenBack(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		for _, proven := range []bool{false, true} {
			f := flap(t, db)
			f.w.proven = longWait
			f.deaf.Store(true)
			enqueue(t, f.w.c, Job{Kind: "x"})
			received(t, "the job begins", f.begun)
			rowBecomes(t, db, "running 0 0 free")
			if proven {
				f.w.mu.Lock()
				f.w.proven = 0
				f.w.mu.Unlock()
			}
			f.cut(t, db)
			other := flap(t, db)
			other.w.proven = longWait
			received(t, "the job begins in another worker", other.begun)
			rowBecomes(t, db, "suspect 1 0 charged")
			f.off.Store(false)
			rowBecomes(t, db, map[bool]string{false: "suspect 0 1 free", true: "running 0 1 free"}[proven])
			close(other.goOn)
			close(f.goOn)
			empty(t, db)
			f.stop()
			other.stop()
		}
	})
}

// The answer to a job's check-out may come after its worker has lost its lease. The row is then an orphan as any
// other, whether its handler still runs or not: the job begins again, and what ran for long enough is trusted.
func TestCheckedOutTooLate(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		for _, late := range []bool{false, true} { // the answer comes when the job has begun again
			f := flap(t, db, func(w *Worker) {
				w.slow = longWait
				w.c.db.Pool().SetMaxOpenConns(20) // some stand still
			})
			f.w.proven = longWait
			f.deaf.Store(true)
			id := enqueue(t, f.w.c, Job{Kind: "x"})
			received(t, "the job begins", f.begun)
			f.deaf.Store(false)
			goOn := make(chan struct{})
			release := sync.OnceFunc(func() { close(goOn) })
			defer release()
			lost := make(chan struct{})
			lose := sync.OnceFunc(func() { close(lost) })
			defer lose()
			d := checkOutStalled(t, f, id, goOn, lost)
			rowBecomes(t, db, "running 0 0 free")
			f.w.mu.Lock()
			f.w.proven = 0
			f.w.mu.Unlock()
			f.cut(t, db)
			lose()
			if late {
				f.off.Store(false)
				received(t, "the job begins again", f.begun)
			}
			release()
			eventually(t, "the answer has come", func() bool {
				f.w.mu.Lock()
				defer f.w.mu.Unlock()
				return d.state.Row != block.RowLeaving && !d.b.Serving
			})
			if !late {
				f.off.Store(false)
				received(t, "the job begins again", f.begun)
			}
			f.w.mu.Lock()
			out, row := f.w.out[d.at()], f.w.rows[d.at()]
			_, proven := f.w.past.proven[d.at()]
			f.w.mu.Unlock()
			if out == nil || out == d || row != out || !proven {
				t.Errorf("late %v: it has %p as out, and the row is that of %p; the lost one is %p, and proven: %v", late, out, row, d, proven)
			}
			close(f.goOn)
			empty(t, db)
			f.stop()
		}
	})
}

// checkOutStalled has a worker check a job out that it runs, in a round that reads more jobs. The round stands
// still when the former is committed, until goOn. Until the lease is lost nothing looks at rows of its own that it does not know.
func checkOutStalled(t *testing.T, f *flapping, id int64, goOn, lost <-chan struct{}) (d *Delivery) {
	t.Helper()
	var out atomic.Bool
	stall := func(op string) {
		switch {
		case strings.Contains(op, "job_running") && strings.Contains(op, "INSERT"):
			out.Store(true)
		case out.Load() && strings.Contains(op, "job_running") && strings.Contains(op, "SELECT r."):
			<-lost
		case out.Load() && strings.Contains(op, "payload_bin") && !strings.Contains(op, "job_running"): // no settings
			<-goOn
		}
	}
	f.stalls.Store(&stall)
	f.w.mu.Lock()
	defer f.w.mu.Unlock()
	for _, unit := range f.w.slots {
		if len(unit) > 0 && unit[0].ID == id {
			d = unit[0]
		}
	}
	d.b.Reads.Rouse()
	f.w.checkOut(d, d.Crashes)
	return d
}

// A process that has no blocks of a queue takes back what others are charged with for it all the same, and hands
// over what has its name and is unknown to it.
func TestReturnsWithoutBlocks(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		w := worker(t, client(t, db, Options{}), WorkerOptions{})
		handle(t, w, "x", func(context.Context, *Delivery) error { return nil })
		start(t, w)
		drainNode(t, db, w)
		w.mu.Lock()
		w.past.lost("host:1:before")
		w.mu.Unlock()
		ghost(t, db, "other", time.Hour)
		for id, row := range []string{"suspect', 'other', 1, 'before", "running', '" + nameOf(w) + "', 0, '"} {
			byHand(t, db, fmt.Sprintf(`INSERT INTO {prefix}job_running (queue_id, divided, id, kind, state, lock_by, crashes, charged)
				VALUES (1, 0, %d, 'x', '%s')`, 1+id, row))
		}
		eventually(t, "it says so", func() bool {
			return slices.Equal(db.List(t, chargesOf+` ORDER BY id`, nil), []string{"suspect 0 1 free", "handed 0 0 free"})
		})
	})
}

// A job whose charge was taken back while another worker had it, and which then fails, has none.
func TestChargeOfTheDelayed(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		edit(t, client(t, db, Options{}), func(q *admin.Queue) { q.RetryDelay, q.RetryMaxDelay = time.Hour, time.Hour })
		c := client(t, db, Options{})
		w := worker(t, c, WorkerOptions{})
		w.slow = time.Millisecond
		begun, goOn := make(chan bool, 1), make(chan bool)
		handle(t, w, "x", func(context.Context, *Delivery) error {
			begun <- true
			<-goOn
			return errors.New("no")
		})
		start(t, w)
		enqueue(t, c, Job{Kind: "x"})
		received(t, "the job begins", begun)
		rowBecomes(t, db, "running 0 0 free")
		db.Do(t, `UPDATE {prefix}job_running SET crashes = 7`, nil)
		close(goOn)
		eventually(t, "it is delayed", func() bool {
			return slices.Equal(db.List(t, `SELECT crashes FROM {prefix}job_delayed WHERE id > 0`, nil), []string{"7"})
		})
	})
}

// A job that would become a dead letter waits for whether the process that had it comes back.
func TestAppeal(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		edit(t, client(t, db, Options{}), func(q *admin.Queue) { q.MaxCrashes = 1 })
		f := flap(t, db)
		f.w.proven = longWait
		f.deaf.Store(true)
		id := enqueue(t, f.w.c, Job{Kind: "x"})
		received(t, "the job begins", f.begun)
		rowBecomes(t, db, "running 0 0 free")
		db.Do(t, `UPDATE {prefix}job_running SET state = 'alone'`, nil)
		f.cut(t, db)
		other := flap(t, db, func(w *Worker) { w.appeal = longWait }) // before it begins: it finds the job at once
		eventually(t, "another worker finds it", func() bool {
			other.w.mu.Lock()
			defer other.w.mu.Unlock()
			return len(other.w.queues[0].convicts) == 1
		})
		f.w.mu.Lock()
		f.w.proven = 0 // it may be the one that runs the job again, alone, beside the deaf handler
		f.w.mu.Unlock()
		f.off.Store(false)
		eventually(t, "somebody has it, and charges nobody", func() bool {
			// A slow machine may lose more leases.
			found := db.List(t, `SELECT crashes, CASE WHEN losses > 0 THEN 1 ELSE 0 END FROM {prefix}job_running`, nil)
			return slices.Equal(found, []string{"0 1"})
		})
		close(other.goOn)
		close(f.goOn)
		empty(t, db)
		if dead := db.List(t, `SELECT error FROM {prefix}job_dead WHERE id = :id`, sqlrun.Args{"id": id}); len(dead) > 0 {
			t.Errorf("it is dead: %q", dead)
		}
	})
}

// A job that was convicted and acquitted waits as long the next time.
func TestAppealOfEachLoss(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		w, b := idleWorker(t, db)
		w.appeal = longWait
		r := runningRow{id: 1, state: rowAlone, crashes: 100, lockBy: "first"}
		for _, node := range []string{"first", "second"} {
			if r.lockBy = node; !w.appeals(b.q, &r) {
				t.Errorf("after the loss of the %s worker it does not wait", node)
			}
			for of := range b.q.convicts {
				b.q.convicts[of] = instant.Now().Add(-2 * longWait)
			}
			if w.appeals(b.q, &r) {
				t.Errorf("after the loss of the %s worker it waits for ever", node)
			}
		}
	})
}

// A job whose workers lose their leases again and again is dead in the end, and its dead letter does
// not say that they died.
func TestMostLosses(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		edit(t, client(t, db, Options{}), func(q *admin.Queue) { q.MaxCrashes = 1 })
		f := flap(t, db)
		id := enqueue(t, f.w.c, Job{Kind: "x"})
		received(t, "the job begins", f.begun)
		rowBecomes(t, db, "running 0 0 free")
		db.Do(t, fmt.Sprintf(`UPDATE {prefix}job_running SET losses = %d`, maxLosses-1), nil)
		f.cut(t, db)
		f.off.Store(false)
		j := becomes(t, f.w.c, id, admin.StateDead)
		if want := fmt.Sprintf("lost its lease %d times", maxLosses); !strings.HasPrefix(j.Error, want) || j.Crashes != 0 {
			t.Errorf("it is %+v", j)
		}
	})
}

// Charges are taken back once, from the row that was seen, and only a job that waits for its trial is
// trusted by that.
func TestTakeBack(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		for i, state := range []string{"running", "suspect", "alone", "handed"} {
			for at, charged := range []string{"a b", "b"} {
				byHand(t, db, fmt.Sprintf(`INSERT INTO {prefix}job_running (queue_id, divided, id, kind, state, lock_by, crashes, charged)
					VALUES (1, 3, %d, 'x', '%s', 'you', 3, '%s')`, 10*at+i, state, charged))
			}
			for range 2 {
				for _, id := range []int{i, 10 + i} {
					must(t, orExec(db, store.TakeBack, sqlrun.Args{
						"queue": 1, "divided": 3, "id": id, "had": "a b", "charged": "b", "n": 1, "clears": i % 2,
					}))
				}
			}
		}
		wantRows(t, db, "jobs", `SELECT id, state, crashes, losses, charged FROM {prefix}job_running ORDER BY id`,
			"0 running 2 1 b", "1 running 2 1 b", "2 alone 2 1 b", "3 handed 2 1 b", "10 running 3 0 b", "11 suspect 3 0 b", "12 alone 3 0 b", "13 handed 3 0 b")
	})
}

// Charges are the random ends of names. A job has as many as fit, the last ones.
func TestCharges(t *testing.T) {
	charged := ""
	for i := range 100 {
		charged = charge(charged, fmt.Sprintf("host:12:%010d", i))
	}
	p := bygones{}
	p.lost("host:12:0000000099")
	p.lost("host:12:0000000001")
	n, others, _ := p.mine(store.JobID{}, charged)
	if len(charged) > maxCharges || n != 1 || others+" 0000000099" != charged {
		t.Errorf("%d of %q, others %q", n, charged, others)
	}
	for range 2 * maxPast {
		p.lost("a name of spaces")
	}
	if n, _, _ := p.mine(store.JobID{}, charge("", "a name of spaces")); n != 1 || len(p.charges) != maxPast {
		t.Errorf("%d of its own, it knows %d names", n, len(p.charges))
	}
	if got := charge("", strings.Repeat("x", 1000)); len(got) > maxCharges {
		t.Errorf("a charge of %d bytes", len(got))
	}
}

// A lease counts from when its renewal was asked for: the database may have renewed it then, though the answer comes later.
func TestALeaseCountsFromTheQuestion(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		w := worker(t, client(t, db, Options{}), WorkerOptions{Lease: time.Minute})
		w.lease.node = "host:1:x"
		asked := instant.Now().Add(-20 * time.Second)
		w.lease.renewed("host:1:x", asked)
		if want := asked.Add(usable(time.Minute)); w.lease.deadline != want {
			t.Errorf("it lasts for %v longer than what was asked for", w.lease.deadline.Sub(want))
		}
	})
}

// A lease that is granted late is none: its time has run while it was waited for. The worker ends it,
// and asks for another one.
func TestLateGrant(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		const lease = 2 * time.Second
		stalls := atomic.Bool{}
		stalls.Store(true)
		asked := instant.Instant(0)
		late := db.Broken(t, &dbtest.Fault{Text: "_node (name", Stall: func(string) {
			if stalls.CompareAndSwap(true, false) {
				asked = instant.Now()
				eventually(t, "more than half of the lease has passed", func() bool { return since(asked) > lease*5/8 })
			}
		}, Call: -1})
		c := client(t, late, Options{})
		w, err := c.Worker(WorkerOptions{Lease: lease})
		must(t, err)
		handle(t, w, "x", func(context.Context, *Delivery) error { return nil })
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		err = w.lease.enter(ctx)
		if err == nil || nameOf(w) != "" {
			t.Fatalf("it is %q, which was granted after %v: %v", nameOf(w), since(asked), err)
		}
		must(t, w.lease.enter(ctx))
		w.mu.Lock()
		left := w.lease.deadline.Sub(instant.Now())
		w.mu.Unlock()
		if live := db.List(t, `SELECT name FROM {prefix}node WHERE state = 'live'`, nil); left < lease/4 || !slices.Equal(live, []string{nameOf(w)}) {
			t.Errorf("%v are left, live are %q", left, live)
		}
	})
}
