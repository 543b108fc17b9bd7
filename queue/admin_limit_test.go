package queue

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/plain"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/queue/internal/limit"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// limitTo sets a limit of the default queue.
func limitTo(t *testing.T, c *Client, kind string, running int) {
	t.Helper()
	_, err := adminOf(c).EditLimit(t.Context(), defaultQueue, kind, func(l *admin.Limit) { l.Running = running })
	must(t, err)
}

// limitsOf returns the limiters of a worker's first queue.
func limitsOf(w *Worker) *limit.Queue {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.queues[0].limits
}

// A crowd counts how many are there at once.
type crowd struct{ dbtest.Crowd }

// pass is a handler that takes long enough for others to begin beside it.
func (c *crowd) pass(ctx context.Context, _ *Delivery) error {
	c.Enter()
	defer c.Leave()
	select {
	case <-ctx.Done():
	case <-time.After(3 * time.Millisecond):
	}
	return nil
}

// Limits are stored and returned, and invalid ones refused.
func TestEditLimit(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		set := func(queue, kind string, change func(l *admin.Limit)) error {
			_, err := adminOf(c).EditLimit(t.Context(), queue, kind, change)
			return err
		}
		one := func(l *admin.Limit) { l.Running = 1 }
		want(t, "nothing to limit", set("default", "", func(*admin.Limit) {}), ErrInvalid)
		if _, err := adminOf(c).Queue(t.Context(), "default"); !errors.Is(err, ErrNotFound) {
			t.Errorf("what is refused makes a queue: %v", err)
		}
		want(t, "a queue of dbcron's own", set("dbcron.none", "", one), ErrInvalid)
		must(t, set("made", "", one))
		must(t, adminOf(c).DeleteLimit(t.Context(), "made", ""))
		_, err := adminOf(c).Edit(t.Context(), "default", func(*admin.Queue) {})
		must(t, err)
		for _, bad := range []func(l *admin.Limit){
			func(*admin.Limit) {},
			func(l *admin.Limit) { l.Running = -1 },
			func(l *admin.Limit) { l.Running = 10_001 },
			func(l *admin.Limit) { l.Rate = -1 },
			func(l *admin.Limit) { l.Rate = 100_001 },
			func(l *admin.Limit) { l.Rate, l.Per = 1, 0 },
			func(l *admin.Limit) { l.Rate, l.Per = 1, 367*24*time.Hour },
			func(l *admin.Limit) { l.Rate, l.Burst = 1, 0 },
			func(l *admin.Limit) { l.Rate, l.Burst = 1, 100_001 },
		} {
			want(t, "a bad limit", set("default", "", bad), ErrInvalid)
		}
		want(t, "a bad kind", set("default", "x\n", one), ErrInvalid)
		want(t, "none to delete", adminOf(c).DeleteLimit(t.Context(), "default", ""), ErrNotFound)
		want(t, "no such queue", adminOf(c).DeleteLimit(t.Context(), "other", ""), ErrNotFound)

		must(t, set("default", "", one))
		must(t, set("default", "mail", func(l *admin.Limit) { l.Rate, l.Per, l.Burst = 100, time.Minute, 5 }))
		must(t, set("default", "mail", func(l *admin.Limit) { l.Running = 7 }))
		_, err = adminOf(c).Edit(t.Context(), "another", func(*admin.Queue) {})
		must(t, err)
		must(t, set("another", "Mail", one))
		_, err = adminOf(c).EditTenantLimit(t.Context(), "default", "x\n", one)
		want(t, "a bad tenant", err, ErrInvalid)
		for i, tenant := range []string{"acme", admin.EachTenant, "bcme"} {
			_, err = adminOf(c).EditTenantLimit(t.Context(), "default", tenant, func(l *admin.Limit) { l.Running = 10 })
			must(t, err)
			_, err = adminOf(c).EditTenantLimit(t.Context(), "default", tenant, func(l *admin.Limit) { l.Running += i })
			must(t, err)
		}
		must(t, adminOf(c).DeleteTenantLimit(t.Context(), "default", "bcme"))
		want(t, "no limit of the tenant", adminOf(c).DeleteTenantLimit(t.Context(), "default", "bcme"), ErrNotFound)
		all := []admin.Limit{
			{Queue: "another", Kind: "Mail", Running: 1, Per: time.Second, Burst: 1},
			{Queue: "default", Running: 1, Per: time.Second, Burst: 1},
			{Queue: "default", Tenant: "*", Running: 11, Per: time.Second, Burst: 1},
			{Queue: "default", Tenant: "acme", Running: 10, Per: time.Second, Burst: 1},
			{Queue: "default", Kind: "mail", Running: 7, Rate: 100, Per: time.Minute, Burst: 5},
		}
		page := func(queue, kind, tenant string, n int) (got []admin.Limit) {
			list, err := adminOf(c).Limits(t.Context(), admin.Limit{Queue: queue, Kind: kind, Tenant: tenant}, n)
			must(t, err)
			for _, l := range list {
				got = append(got, l.Limit)
			}
			return got
		}
		for i, want := range map[int][]admin.Limit{
			0: page("", "", "", 10), 1: page("another", "Mail", "", 10), 2: page("default", "", "", 10), 3: page("default", "", "*", 10),
			4: page("default", "", "acme", 10), 5: page("default", "mail", "", 10),
		} {
			if !slices.Equal(want, all[i:]) {
				t.Errorf("those after the first %d: %+v", i, want)
			}
		}
		if got := page("", "", "", 1); !slices.Equal(got, all[:1]) {
			t.Errorf("one: %+v", got)
		}
		for queue, want := range map[string][]admin.Limit{"default": all[1:], "another": all[:1], "none": nil} {
			list, err := adminOf(c).LimitsOf(t.Context(), queue)
			must(t, err)
			var got []admin.Limit
			for _, l := range list {
				got = append(got, l.Limit)
			}
			if !slices.Equal(got, want) {
				t.Errorf("those of %s: %+v", queue, got)
			}
		}
		must(t, adminOf(c).DeleteLimit(t.Context(), "default", "mail"))
		if got := page("", "", "", 10); !slices.Equal(got, all[:4]) {
			t.Errorf("without that of mail: %+v", got)
		}
	})
}

// Of a queue with a limit never more jobs run at a time, however many workers there are,
// and all of them come to their turn.
func TestRunningLimit(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{Blocks: 6})
		_, err := adminOf(c).Edit(t.Context(), defaultQueue, func(*admin.Queue) {})
		must(t, err)
		for _, most := range []int{1, 2, 5} {
			limitTo(t, c, "", most)
			var crowd crowd
			var stops []func()
			for range 3 {
				w := worker(t, other(t, db), WorkerOptions{Concurrency: 8})
				handle(t, w, "x", crowd.pass)
				must(t, w.HandleBatch("batch", BatchOptions{Max: 3}, func(ctx context.Context, batch []*Delivery) error {
					for range batch[1:] {
						crowd.Enter()
						defer crowd.Leave()
					}
					return crowd.pass(ctx, batch[0])
				}))
				stops = append(stops, start(t, w))
			}
			jobs := make([]Job, 120)
			for i := range jobs {
				jobs[i] = Job{Kind: []string{"x", "batch"}[i/60], Priority: i%2 + 1}
			}
			enqueueMany(t, c, jobs)
			empty(t, db)
			if _, got, all := crowd.Counts(); got > most || all != len(jobs) {
				t.Errorf("limit %d: %d at a time, %d in all", most, got, all)
			}
			for _, stop := range stops {
				stop()
			}
		}
	})
}

// The jobs of a kind that has reached its limit keep no others back, nor do those of a
// queue keep another queue back.
func TestKindLimit(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		for _, name := range []string{defaultQueue, "free"} {
			_, err := adminOf(c).Edit(t.Context(), name, func(*admin.Queue) {})
			must(t, err)
		}
		limitTo(t, c, "slow", 2)
		limitTo(t, c, "", 5)
		w := worker(t, other(t, db), WorkerOptions{Queues: []string{defaultQueue, "free"}, Batch: 10})
		var slow, quick, free crowd
		hold := make(chan struct{})
		handle(t, w, "slow", func(context.Context, *Delivery) error {
			slow.Enter()
			defer slow.Leave()
			<-hold
			return nil
		})
		handle(t, w, "quick", quick.pass)
		handle(t, w, "free", free.pass)
		var jobs []Job
		for range 100 {
			jobs = append(jobs, Job{Kind: "slow"})
		}
		for range 20 {
			jobs = append(jobs, Job{Kind: "quick"}, Job{Kind: "free", Queue: "free"})
		}
		enqueueMany(t, c, jobs)
		stop := start(t, w)
		defer stop()
		defer func() {
			select {
			case <-hold:
			default:
				close(hold)
			}
		}()
		eventually(t, "the others are done", func() bool {
			_, _, q := quick.Counts()
			_, _, f := free.Counts()
			return q == 20 && f == 20
		})
		eventually(t, "two slow ones run", func() bool { here, _, _ := slow.Counts(); return here == 2 })
		close(hold)
		empty(t, db)
		if _, most, all := slow.Counts(); most != 2 || all != 100 {
			t.Errorf("of slow ones %d at a time, %d in all", most, all)
		}
		if _, most, _ := quick.Counts(); most > 5 {
			t.Errorf("of quick ones %d at a time", most)
		}
	})
}

// A limit may be set, changed and deleted while jobs run. Those that run then count.
func TestLimitChanges(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		w := worker(t, other(t, db), WorkerOptions{Concurrency: 10})
		var crowd crowd
		next := make(chan struct{})
		handle(t, w, "x", func(context.Context, *Delivery) error {
			crowd.Enter()
			defer crowd.Leave()
			<-next
			return nil
		})
		enqueueMany(t, c, slices.Repeat([]Job{{Kind: "x"}}, 40))
		defer start(t, w)()
		defer close(next)
		run := func(n int) {
			t.Helper()
			eventually(t, fmt.Sprintf("%d run", n), func() bool { here, _, _ := crowd.Counts(); return here == n })
		}
		knows := func(running int) {
			t.Helper()
			eventually(t, "the worker knows its limit", func() bool {
				w.mu.Lock()
				defer w.mu.Unlock()
				g := w.queues[0].limits.Own()
				return g != nil && g.Limit().Running == running
			})
		}
		run(10)
		limitTo(t, c, "", 3)
		knows(3)
		for range 8 { // of those that ran already
			next <- struct{}{}
		}
		eventually(t, "one of those that wait has begun, and no more", func() bool {
			here, _, all := crowd.Counts()
			return here == 3 && all == 11
		})
		limitTo(t, c, "", 6)
		run(6)
		limitTo(t, c, "", 2)
		knows(2)
		for range 5 {
			next <- struct{}{}
		}
		run(2)
		must(t, adminOf(c).DeleteLimit(t.Context(), defaultQueue, ""))
		run(10)
	})
}

// What a worker had that has died is free when its lease has ended, and not before.
func TestPermitsOfTheDead(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		_, err := adminOf(c).Edit(t.Context(), defaultQueue, func(*admin.Queue) {})
		must(t, err)
		limitTo(t, c, "x", 1)
		lost, cut := severed(t, db)
		w1 := worker(t, lost, WorkerOptions{Grace: -1})
		began, ended := make(chan struct{}), make(chan instant.Instant, 1)
		handle(t, w1, "x", func(ctx context.Context, _ *Delivery) error {
			close(began)
			<-ctx.Done()
			ended <- instant.Now()
			return ctx.Err()
		})
		enqueue(t, c, Job{Kind: "x"})
		stop := start(t, w1)
		received(t, "the job has begun", began)
		w2 := worker(t, other(t, db), WorkerOptions{})
		again := make(chan instant.Instant, 2)
		handle(t, w2, "x", func(context.Context, *Delivery) error { again <- instant.Now(); return nil })
		defer start(t, w2)()
		enqueueMany(t, c, []Job{{Kind: "x"}, {Kind: "x"}})
		cut()
		lapse(t, db, w1, 500*time.Millisecond)
		first := received(t, "the first worker has noticed", ended)
		for range 3 {
			if second := received(t, "another goes on", again); second < first {
				t.Errorf("it began %v before the first had ended", first.Sub(second))
			}
		}
		stop()
		empty(t, db)
	})
}

// Whatever statement fails, before or after the server did it: a limit holds, and all
// jobs are done.
func TestLimitFaults(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		_, err := adminOf(c).Edit(t.Context(), defaultQueue, func(*admin.Queue) {})
		must(t, err)
		limitTo(t, c, "", 2)
		_, err = adminOf(c).EditLimit(t.Context(), defaultQueue, "x", func(l *admin.Limit) { l.Running, l.Rate, l.Burst = 1, 10_000, 100 })
		must(t, err)
		var crowd crowd
		for i := range 2 {
			var calls atomic.Int64
			broken := db.Broken(t, &dbtest.Fault{Random: func() (before, after bool) {
				n := calls.Add(1)
				return n%23 == int64(i), n%31 == int64(i)
			}})
			broken.Pool().SetMaxOpenConns(5)
			w := worker(t, client(t, broken, Options{}), WorkerOptions{})
			handle(t, w, "x", crowd.pass)
			handle(t, w, "y", crowd.pass)
			defer start(t, w)()
		}
		for i := range 60 {
			enqueue(t, c, Job{Kind: []string{"x", "y"}[i%2]})
		}
		empty(t, db)
		if _, most, _ := crowd.Counts(); most > 2 {
			t.Errorf("%d at a time", most)
		}
	})
}

// So many jobs begin in a time, over all workers, and not more.
func TestRate(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		_, err := adminOf(c).Edit(t.Context(), defaultQueue, func(*admin.Queue) {})
		must(t, err)
		_, err = adminOf(c).EditLimit(t.Context(), defaultQueue, "x", func(l *admin.Limit) { l.Rate, l.Per, l.Burst = 100, 2*time.Second, 10 })
		must(t, err)
		var x, y crowd
		jobs := slices.Repeat([]Job{{Kind: "x"}, {Kind: "y"}}, 60)
		enqueueMany(t, c, jobs)
		began := instant.Now()
		for range 2 {
			w := worker(t, other(t, db), WorkerOptions{})
			handle(t, w, "x", x.pass)
			handle(t, w, "y", y.pass)
			defer start(t, w)()
		}
		empty(t, db)
		took := instant.Now().Sub(began)
		if _, _, all := x.Counts(); all != 60 || took < 900*time.Millisecond { // 50 at 50 a second, less what comes a little late
			t.Errorf("%d jobs took %v", all, took)
		}
	})
}

// Jobs count for as many as they cost at the rate of the queue, of their kind, and of their tenant, in whichever worker; and those
// that cost little do not pass one that costs much.
func TestRateOfCosts(t *testing.T) {
	const of = theTenant
	for name, limited := range rates {
		t.Run(name, func(t *testing.T) {
			memory(t, func(t *testing.T, db *dbtest.DB) {
				c := client(t, db, Options{})
				edit(t, c, func(*admin.Queue) {})
				limited(t, c, func(l *admin.Limit) { l.Rate, l.Per, l.Burst = 50, time.Second, 10 })
				enqueueMany(t, c, slices.Repeat([]Job{{Kind: "x", Tenant: of, Cost: 7}}, 10))
				var all crowd
				began := instant.Now()
				for range 2 {
					w := worker(t, other(t, db), WorkerOptions{})
					handle(t, w, "x", all.pass)
					defer start(t, w)()
				}
				empty(t, db)
				// The last one begins when 63 have been paid for, of which a burst has paid 10, or a little more.
				if took := instant.Now().Sub(began); took < time.Second {
					t.Errorf("10 jobs that cost 7 each began within %v", took)
				}
			})
		})
		t.Run(name+" in order", func(t *testing.T) {
			memory(t, func(t *testing.T, db *dbtest.DB) {
				c := client(t, db, Options{})
				edit(t, c, func(*admin.Queue) {})
				limited(t, c, func(l *admin.Limit) { l.Rate, l.Per, l.Burst = 100, time.Second, 1 })
				cheap := slices.Repeat([]Job{{Kind: "x", Tenant: of}}, 20)
				enqueueMany(t, c, slices.Concat(cheap, []Job{{Kind: "x", Tenant: of, Cost: MaxCost}}))
				var costs []int
				w := worker(t, c, WorkerOptions{Concurrency: 1})
				handle(t, w, "x", func(_ context.Context, d *Delivery) error {
					costs = append(costs, max(1, d.Cost))
					if d.Cost > 1 {
						limited(t, c, func(l *admin.Limit) { l.Rate = 100_000 })
					}
					return nil
				})
				enqueueMany(t, c, cheap)
				stop := start(t, w)
				empty(t, db)
				stop()
				if at := slices.Index(costs, MaxCost); at != 20 {
					t.Errorf("the job that costs much began as number %d of %v", at, costs)
				}
			})
		})
	}
}

// rates are a rate of each form, for jobs of kind x and of a tenant.
var rates = map[string]func(t *testing.T, c *Client, change func(*admin.Limit)){
	"queue":       func(t *testing.T, c *Client, change func(*admin.Limit)) { limitOf(t, c, "", change) },
	"kind":        func(t *testing.T, c *Client, change func(*admin.Limit)) { limitOf(t, c, "x", change) },
	"tenant":      func(t *testing.T, c *Client, change func(*admin.Limit)) { limitTenant(t, c, theTenant, change) },
	"each tenant": func(t *testing.T, c *Client, change func(*admin.Limit)) { limitTenant(t, c, admin.EachTenant, change) },
}

const theTenant = "acme"

// A job that costs much begins when one of cost 1 might, and a job after it when the rate of today has made up for it, whatever has
// changed meanwhile. What is kept of a rate is until when it is used up, which was computed for
//   - a balance: of which some was given back since (by this worker for a job that costs more, or by another one);
//   - a rate: that was raised since;
//   - a clock: that was an hour or ten years ahead for a moment.
func TestRateOfToday(t *testing.T) {
	for name, limited := range rates {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, db *dbtest.DB) {
				c := client(t, db, Options{})
				edit(t, c, func(*admin.Queue) {})
				limited(t, c, func(l *admin.Limit) { l.Rate, l.Per, l.Burst = 1, time.Hour, 1 })
				w := worker(t, c, WorkerOptions{})
				handle(t, w, "x", func(context.Context, *Delivery) error { return nil })
				defer start(t, w)()
				dear := Job{Kind: "x", Tenant: theTenant, Cost: MaxCost}
				enqueueMany(t, c, []Job{dear})
				empty(t, db)
				enqueueMany(t, c, []Job{dear, dear})
				limited(t, c, func(l *admin.Limit) { l.Rate, l.Per, l.Burst = 1000, time.Second, 1 })
				empty(t, db)
				limited(t, c, func(l *admin.Limit) { l.Rate, l.Per, l.Burst = 1, time.Second, 1 })
				for _, ahead := range []time.Duration{time.Hour, 10 * 365 * 24 * time.Hour} {
					for _, table := range []string{"limit", "tenant"} {
						db.Do(t, `UPDATE {prefix}queue_`+table+` SET drawn_at = {now + :ahead}, drawn_ahead = 0`, sqlrun.Args{"ahead": ahead.Microseconds()})
					}
					enqueueMany(t, c, []Job{{Kind: "x", Tenant: theTenant}})
					empty(t, db)
				}
			})
		})
	}
}

func limitOf(t *testing.T, c *Client, kind string, change func(*admin.Limit)) {
	t.Helper()
	_, err := adminOf(c).EditLimit(t.Context(), defaultQueue, kind, change)
	must(t, err)
}

// Jobs that have waited for their permits begin no faster than the rate lets them, whichever
// limit the permits are of: nothing is drawn for them before.
func TestRateOfLatePermits(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		for _, kind := range []string{"x", ""} { // whose permits they are
			c := client(t, db, Options{})
			edit(t, c, func(*admin.Queue) {})
			_, err := adminOf(c).EditLimit(t.Context(), defaultQueue, "x", func(l *admin.Limit) { l.Rate, l.Per, l.Burst = 10, time.Second, 1 })
			must(t, err)
			_, err = adminOf(c).EditLimit(t.Context(), defaultQueue, kind, func(l *admin.Limit) { l.Running = 16 })
			must(t, err)
			var held, begun crowd
			hold := make(chan struct{})
			w1 := worker(t, other(t, db), WorkerOptions{Concurrency: 16})
			w1.slow = 10 * time.Millisecond // so that it is busy, and the other has the blocks
			handle(t, w1, "x", func(context.Context, *Delivery) error {
				held.Enter()
				defer held.Leave()
				<-hold
				return nil
			})
			enqueueMany(t, c, slices.Repeat([]Job{{Kind: "x"}}, 16))
			stop := start(t, w1)
			eventually(t, "one has all permits", func() bool { here, _, _ := held.Counts(); return here == 16 })
			enqueueMany(t, c, slices.Repeat([]Job{{Kind: "x"}}, 16))
			w2 := worker(t, other(t, db), WorkerOptions{})
			handle(t, w2, "x", begun.pass)
			stop2 := start(t, w2)
			waits := func() bool {
				l := limitsOf(w2).Of(kind)
				demand := limited{&w2.runner}.Demand(l)
				waiting := demand.Ready
				for _, n := range demand.Aside {
					waiting += n
				}
				_, refused := l.Unused()
				return waiting == 16 && refused > 12
			}
			eventually(t, "the other waits for permits", waits)
			if n, _ := limitsOf(w2).Of("x").Unused(); n > 0 {
				t.Errorf("it has drawn %d", n)
			}
			came := instant.Now()
			close(hold)
			empty(t, db)
			if took := since(came); took < 1200*time.Millisecond { // 16 at 10 a second, less the burst and what comes a little late
				t.Errorf("all jobs were done within %v", took)
			}
			stop()
			stop2()
			must(t, adminOf(c).DeleteLimit(t.Context(), defaultQueue, kind))
		}
	})
}

// What was drawn and is not used is put back, unless so much time has passed that it is
// there again anyway: by no order of draws and returns do more begin than the rate allows.
func TestPutBack(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		l := store.Limit{
			Rate: rapid.IntRange(1, 1000).Draw(r, "rate"), Burst: rapid.IntRange(1, 20).Draw(r, "burst"),
			Per: time.Duration(rapid.Int64Range(1, 10_000).Draw(r, "per")) * time.Millisecond,
		}
		most := max(l.Burst, l.Ahead())
		now, drawn := int64(1e15), int64(0)
		type had struct {
			tokens int
			after  int64
		}
		holders := make([]had, 3)
		var begun []int64
		for range rapid.IntRange(1, 60).Draw(r, "steps") {
			h := &holders[rapid.IntRange(0, 2).Draw(r, "who")]
			switch {
			case h.tokens == 0:
				got, until, _ := l.Draw(now, drawn, rapid.IntRange(1, 20).Draw(r, "want"), 1)
				if got > 0 {
					*h, drawn = had{got, until}, until
				}
			case rapid.Bool().Draw(r, "begins"):
				for range h.tokens {
					begun = append(begun, now)
				}
				h.tokens = 0
			default:
				drawn = l.PutBack(now, drawn, h.after, h.tokens)
				h.tokens = 0
			}
			now += rapid.Int64Range(0, 3*l.Cost(most)).Draw(r, "later")
			for i := range holders { // a worker keeps unused tokens for a moment only
				if holders[i].tokens > 0 && rapid.Bool().Draw(r, "puts back") {
					drawn = l.PutBack(now, drawn, holders[i].after, holders[i].tokens)
					holders[i].tokens = 0
				}
			}
		}
		// In total, jobs that were held up count once more.
		held := len(holders) * most
		if n := len(begun); n > 0 {
			if span := now - int64(1e15); n > most+held+1+int(span*int64(l.Rate)/l.Per.Microseconds()) {
				r.Fatalf("%d began in %dµs", n, span)
			}
		}
	})
}

// Of several who draw at once none gets what another one has.
func TestDrawTogether(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		q, err := c.queue(t.Context(), defaultQueue)
		must(t, err)
		for _, kind := range []string{"", "x"} {
			_, err = adminOf(c).EditLimit(t.Context(), defaultQueue, kind, func(l *admin.Limit) { l.Rate, l.Per, l.Burst = 1, time.Hour, 10 })
			must(t, err)
		}
		limiterFor := func(w *Worker) *limit.Limiter { return limit.Barrier(w.limits.Queue(q.ID, q.Name), "x") }
		w := worker(t, c, WorkerOptions{})
		own := limiterFor(w)
		first := &limit.Drawing{Limiter: own, Want: 3}
		if err := w.limits.Draw(t.Context(), first); err != nil || first.Got != 3 {
			t.Fatalf("%d of 3, %v", first.Got, err)
		}
		var total atomic.Int64
		var all sync.WaitGroup
		for range 4 {
			w := worker(t, other(t, db), WorkerOptions{})
			all.Go(func() {
				l := limiterFor(w)
				for range 8 {
					d := &limit.Drawing{Limiter: l, Want: 1}
					err := w.limits.Draw(context.Background(), d)
					if err != nil || d.Got == 0 && d.Again < 30*time.Minute || d.Got == 1 && d.Again != 0 {
						t.Errorf("got %d, again in %v, %v", d.Got, d.Again, err)
					}
					total.Add(int64(d.Got))
				}
			})
		}
		all.Wait()
		if n := total.Load(); n != 7 {
			t.Errorf("%d were drawn of the 7 that were left", n)
		}
		last := &limit.Drawing{Limiter: own, Want: 5, Back: 3}
		if err := w.limits.Draw(t.Context(), last); err != nil || last.Got != 3 {
			t.Errorf("%d of 3 that were given back, %v", last.Got, err)
		}
	})
}

// Who draws keeps that limit's row for itself until the end.
func TestDrawLocks(t *testing.T) {
	having(t, dbtest.SeveralWriters, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		_, err := adminOf(c).Edit(t.Context(), defaultQueue, func(*admin.Queue) {})
		must(t, err)
		limitTo(t, c, "j", 1)
		limitTo(t, c, "k", 1)
		must(t, db.Tx(t.Context(), func(ctx context.Context, tx *sqlrun.Session) error {
			_, err := sqlrun.Select(ctx, tx, store.LockLimit, sqlrun.Args{"queue": 1, "kind": "k"},
				func(*sql.Rows) (none struct{}, err error) { return none, nil })
			wantRows(t, db, "queue.lock-limit", "SELECT kind FROM {prefix}queue_limit ORDER BY kind {skip_locked}", "j")
			return err
		}))
	})
}

// Who may take a permit, and give it back: statement by statement.
func TestPermits(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		for _, node := range []string{"n1", "n2", "lost"} {
			_, err := db.Exec(t.Context(), store.JoinNode, sqlrun.Args{
				"node": node, "lease": time.Hour.Microseconds(),
				"under": "", "version": "", "drained": 0, "by": "",
			})
			must(t, err)
		}
		db.Do(t, `UPDATE {prefix}node SET state = 'lost' WHERE name = 'lost'`, nil)
		c := client(t, db, Options{})
		_, err := adminOf(c).Edit(t.Context(), defaultQueue, func(*admin.Queue) {})
		must(t, err)
		limitTo(t, c, "k", 2)
		limitTo(t, c, "j", 2)
		var rows []sqlrun.Args
		for _, queue := range []int{1, 2} {
			for _, kind := range []string{"j", "k"} {
				for slot := range 2 {
					rows = append(rows, sqlrun.Args{"queue": queue, "kind": kind, "slot": slot})
				}
			}
		}
		for range 2 {
			_, err = db.Exec(t.Context(), store.CreatePermits, sqlrun.Args{"rows": rows})
			must(t, err)
		}
		all := func() string {
			return fmt.Sprint(db.List(t, `SELECT queue_id, kind, slot, state, lock_by, fence FROM {prefix}queue_permit WHERE state <> 'FREE' OR fence <> 0 ORDER BY queue_id, kind, slot`, nil))
		}
		do := func(stmt *sqlrun.Stmt, node string, slot, fence int, n int64, after string) {
			t.Helper()
			args := sqlrun.Args{"queue": 1, "kind": "k", "slot": slot, "fence": fence, "node": node}
			if got, err := db.Exec(t.Context(), stmt, args); err != nil || got != n {
				t.Errorf("%s of %d by %s with %d: %d, %v", stmt.Name, slot, node, fence, got, err)
			}
			if got := all(); got != after {
				t.Errorf("%s of %d by %s with %d: %s, not %s", stmt.Name, slot, node, fence, got, after)
			}
		}
		do(store.TakePermit, "n1", 1, 1, 0, "[]")
		do(store.TakePermit, "n1", 1, 0, 1, "[1 k 1 LEASED n1 1]")
		do(store.TakePermit, "n2", 1, 1, 0, "[1 k 1 LEASED n1 1]")
		do(store.ReturnPermit, "n2", 1, 1, 0, "[1 k 1 LEASED n1 1]")
		do(store.ReturnPermit, "n1", 1, 0, 0, "[1 k 1 LEASED n1 1]")
		do(store.ReturnPermit, "n1", 1, 1, 1, "[1 k 1 FREE n1 1]")
		do(store.TakePermit, "lost", 1, 1, 1, "[1 k 1 LEASED lost 2]")
		do(store.TakePermit, "n2", 1, 2, 1, "[1 k 1 LEASED n2 3]")
		do(store.TakePermit, "n1", 0, 0, 1, "[1 k 0 LEASED n1 1 1 k 1 LEASED n2 3]")

		wait := sqlrun.Args{"queue": 1, "kind": "k", "node": "n1", "lasts": (50 * time.Second).Microseconds(), "soon": (10 * time.Second).Microseconds()}
		for i, want := range []int64{1, 0, 1} {
			if i == 2 { // the clock had been wrong
				db.Do(t, `UPDATE {prefix}queue_limit SET waiting_until = {now + 3600000000}`, nil)
				if infos, err := adminOf(c).Limits(t.Context(), admin.Limit{}, 10); err != nil || infos[1].Waiting {
					t.Errorf("it waits for an hour: %+v, %v", infos, err)
				}
			}
			if n, err := db.Exec(t.Context(), store.WaitForPermit, wait); err != nil || n != want {
				t.Errorf("waiting %d: %d, %v", i, n, err)
			}
		}
		if got := fmt.Sprint(db.List(t, `SELECT kind, waiting_by FROM {prefix}queue_limit ORDER BY kind`, nil)); got != "[j  k n1]" {
			t.Errorf("who waits: %s", got)
		}
		infos, err := adminOf(c).Limits(t.Context(), admin.Limit{}, 10)
		must(t, err)
		if len(infos) != 2 || infos[0].Permits != 0 || infos[0].Waiting || infos[1].Permits != 2 || !infos[1].Waiting {
			t.Errorf("limits: %+v", infos)
		}

		must(t, adminOf(c).DeleteLimit(t.Context(), defaultQueue, "k"))
		do(store.TakePermit, "lost", 0, 1, 0, "[1 k 0 LEASED n1 1 1 k 1 LEASED n2 3]")
		do(store.ReturnPermit, "n2", 1, 3, 1, "[1 k 0 LEASED n1 1 1 k 1 FREE n2 3]")
		_, err = db.Exec(t.Context(), store.SweepPermits, nil)
		must(t, err)
		if got := fmt.Sprint(db.List(t, `SELECT queue_id, kind, slot, state FROM {prefix}queue_permit ORDER BY queue_id, kind, slot`,
			nil)); got != "[1 j 0 FREE 1 j 1 FREE 1 k 0 LEASED]" {
			t.Errorf("after the sweep: %s", got)
		}
		db.Do(t, `UPDATE {prefix}node SET state = 'gone' WHERE name = 'n1'`, nil)
		_, err = db.Exec(t.Context(), store.SweepPermits, nil)
		must(t, err)
		if got := all(); got != "[]" {
			t.Errorf("after the sweep of those of the dead: %s", got)
		}
	})
}

// However workers draw, a rate and its burst are kept to, and used up. A job that counts for many begins when one might, once: others
// wait for the rest of it.
func TestDraw(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		l := store.Limit{
			Rate: rapid.IntRange(1, plain.MaxRate).Draw(r, "rate"), Burst: rapid.IntRange(1, 1000).Draw(r, "burst"),
			Per: time.Duration(rapid.Int64Range(1, 100_000).Draw(r, "per")) * time.Millisecond,
		}
		start := rapid.Int64Range(1e15, 2e15).Draw(r, "now")
		now, drawn, total := start, int64(0), int64(0)
		most, dearest := int64(max(l.Burst, l.Ahead())), int64(1)
		for range rapid.IntRange(1, 50).Draw(r, "draws") {
			want := rapid.IntRange(1, 2*plain.MaxRate).Draw(r, "want")
			least := rapid.IntRange(0, min(want, 1000)).Draw(r, "least")
			got, until, wait := l.Draw(now, drawn, want, least)
			if got < 0 || got > want || int64(got) > max(most, int64(least)) || got > 0 && got < least || until < drawn && drawn != 0 {
				r.Fatalf("drew %d of %d, until %d after %d", got, want, until, drawn)
			}
			total, drawn = total+int64(got), until
			// Times are whole µs, and one µs may hold several jobs.
			dearest = max(dearest, int64(least))
			if limit := most + dearest + (now-start+1)*int64(l.Rate)/l.Per.Microseconds(); total > limit {
				r.Fatalf("%d in %dµs, and not %d", total, now-start, limit)
			}
			if owed := l.Owed(now-rapid.Int64Range(0, 1e6).Draw(r, "waited for the lock"), until, l.AheadOf(now, until)); owed != until {
				r.Fatalf("it is used up until %d, and by its row until %d", until, owed)
			}
			if got == want {
				now += rapid.Int64Range(0, 1000).Draw(r, "busy")
				continue
			}
			if wait < 1 {
				r.Fatalf("drew %d of %d, and is to wait for %dµs", got, want, wait)
			}
			now += wait
			if got, _, _ := l.Draw(now, drawn, 1, 1); got != 1 {
				r.Fatalf("after %dµs there was none", wait)
			}
		}
	})
	l := store.Limit{Rate: 10, Per: time.Second, Burst: 1} // asked for a little late each time
	now, drawn, total := int64(1e15), int64(0), 0
	for now < 1e15+100e6 {
		got, until, wait := l.Draw(now, drawn, 5, 1)
		total, drawn, now = total+got, until, now+wait+30_000
	}
	if total < 990 || total > 1002 {
		t.Errorf("%d of 1000", total)
	}
}

// Jobs that wait for the rate of their kind, in a queue that has a limit of its own, go on after the queue was paused for so
// long that the worker has given back what it had.
func TestLimitsAfterAPause(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{Blocks: 1})
		_, err := adminOf(c).Edit(t.Context(), defaultQueue, func(*admin.Queue) {})
		must(t, err)
		limitTo(t, c, "", 1)
		_, err = adminOf(c).EditLimit(t.Context(), defaultQueue, "slowly", func(l *admin.Limit) { l.Rate, l.Per = 1, time.Second })
		must(t, err)
		w := worker(t, other(t, db), WorkerOptions{Concurrency: 1})
		handle(t, w, "slowly", func(context.Context, *Delivery) error { return nil })
		defer start(t, w)()
		for range 4 {
			enqueue(t, c, Job{Kind: "slowly"})
		}
		eventually(t, "one is done", func() bool { return db.List(t, `SELECT COUNT(*) FROM {prefix}job WHERE id > 0`, nil)[0] != "4" })
		must(t, adminOf(c).Pause(t.Context(), defaultQueue, ""))
		eventually(t, "no permit is leased", func() bool {
			return len(db.List(t, `SELECT slot FROM {prefix}queue_permit WHERE state = 'LEASED'`, nil)) == 0
		})
		must(t, adminOf(c).Resume(t.Context(), defaultQueue))
		empty(t, db)
	})
}
