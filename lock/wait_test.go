package lock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/sqlrun"
)

// waits starts an Acquire and returns when it stands in line.
func (l *Locker) waits(t *testing.T, ctx context.Context, name string) <-chan error {
	t.Helper()
	l.mu.Lock()
	before := 0
	if ln := l.lines[name]; ln != nil {
		before = len(ln.queue)
	}
	l.mu.Unlock()
	done := make(chan error, 1)
	go func() {
		le, err := l.Acquire(ctx, name)
		if err == nil {
			err = le.Release(context.WithoutCancel(ctx))
		}
		done <- err
	}()
	eventually(t, "it stands in line", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		ln := l.lines[name]
		return ln != nil && len(ln.queue) > before && (before > 0 || ln.held != nil || ln.local != nil)
	})
	return done
}

func TestAcquireWaitsForTheRelease(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		for what, l := range map[string]*Locker{"another process": locker(t, db, Options{}), "this process": nil} {
			holder := locker(t, db, Options{})
			if l == nil {
				l = holder
			}
			le, err := holder.Acquire(t.Context(), what)
			must(t, err)
			done := l.waits(t, t.Context(), what)
			must(t, le.Release(t.Context()))
			must(t, result(t, done))
		}
	})
}

// It waits for a lease to run out, and not longer.
func TestAcquireWaitsForTheEnd(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		dead := locker(t, db, Options{TTL: 3 * time.Second})
		first := dead.mustTake(t, "x")
		own, err := dead.Acquire(t.Context(), "own")
		must(t, err)
		second, err := locker(t, db, Options{}).Acquire(t.Context(), "x")
		must(t, err)
		want(t, "the dead one, by then", first.Check(), ErrLost)
		// One that is lost, and never released, leaves no trace in its process.
		want(t, "another", ended(t, own.Context()), ErrLost)
		eventually(t, "its line is forgotten", func() bool {
			dead.mu.Lock()
			defer dead.mu.Unlock()
			return len(dead.lines) == 0
		})
		if got := state(t, dead, "x"); got.Takeovers != 1 || got.Fence != second.Fence() {
			t.Errorf("got %+v", got)
		}
		must(t, second.Release(t.Context()))
	})
}

func TestAcquireEndsWithItsContext(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		holder, l := locker(t, db, Options{}), locker(t, db, Options{})
		le := holder.mustTake(t, "x")
		boom := errors.New("boom")
		ctx, cancel := context.WithCancelCause(t.Context())
		first := l.waits(t, ctx, "x")
		second := l.waits(t, ctx, "x") // behind the other
		cancel(boom)
		for _, done := range []<-chan error{first, second} {
			err := result(t, done)
			want(t, "the cause", err, boom)
			want(t, "the reason", err, ErrHeld)
			var held *HeldError
			if !errors.As(err, &held) || held.By != le.Owner() {
				t.Errorf("got %v", err)
			}
		}
		must(t, le.Release(t.Context()))
		l.mu.Lock()
		if n := len(l.lines); n != 0 {
			t.Errorf("%d lines are left", n)
		}
		l.mu.Unlock()
		if got := db.List(t, `SELECT name FROM {prefix}lock WHERE state <> 'FREE'`, nil); len(got) != 0 {
			t.Errorf("held are %v", got)
		}
	})
}

func TestTries(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		le := locker(t, db, Options{}).mustTake(t, "x")
		l := locker(t, db, Options{Tries: 3, Every: 20 * time.Millisecond})
		err := l.Do(t.Context(), "x", func(context.Context, *Lease) error { return nil })
		var held *HeldError
		if !errors.As(err, &held) || held.By != le.Owner() || held.Until.IsZero() || held.Since.IsZero() {
			t.Errorf("got %v", err)
		}
		if errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the way it gave up shows: %v", err)
		}
	})
}

// Those of one process get it in the order in which they came, and each other
// process has its turn, too.
func TestFirstComeFirstServed(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		holder, l := locker(t, db, Options{}), locker(t, db, Options{})
		le := holder.mustTake(t, "x")
		var mu sync.Mutex
		var order []int
		var group sync.WaitGroup
		for i := range 10 {
			group.Go(func() {
				must(t, l.Do(t.Context(), "x", func(context.Context, *Lease) error {
					mu.Lock()
					defer mu.Unlock()
					order = append(order, i)
					return nil
				}))
			})
			eventually(t, "it stands in line", func() bool {
				l.mu.Lock()
				defer l.mu.Unlock()
				return l.lines["x"] != nil && len(l.lines["x"].queue) == i+1
			})
		}
		must(t, le.Release(t.Context()))
		group.Wait()
		if !slices.IsSorted(order) {
			t.Errorf("served in the order %v", order)
		}
	})
}

// Two processes that never pause both get the lock again and again.
func TestNobodyStarves(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		ctx, cancel := context.WithTimeout(t.Context(), longWait)
		defer cancel()
		var group sync.WaitGroup
		for range 3 {
			l := locker(t, db, Options{})
			for range 2 {
				group.Go(func() {
					for range 25 {
						if err := l.Do(ctx, "x", func(context.Context, *Lease) error { return nil }); err != nil {
							t.Error(err)
							return
						}
					}
				})
			}
		}
		group.Wait()
	})
}

// The queue of a row, where the database can notify.
func TestQueue(t *testing.T) {
	having(t, dbtest.Notifications, func(t *testing.T, db *dbtest.DB) {
		queue := func() string {
			return strings.Join(db.List(t, `SELECT array_to_string(waiters, ' ') FROM {prefix}lock WHERE name = 'x'`, nil), " ")
		}
		inLine := func(ls ...*Locker) func() bool {
			return func() bool {
				var me []string
				for _, l := range ls {
					me = append(me, l.me)
				}
				return queue() == strings.Join(me, " ")
			}
		}
		holder, a, b, c := locker(t, db, Options{}), locker(t, db, Options{}), locker(t, db, Options{}), locker(t, db, Options{})
		le := holder.mustTake(t, "x")
		if queue() != "" {
			t.Errorf("nobody waits, and the queue is %s", queue())
		}
		first := a.waits(t, t.Context(), "x")
		eventually(t, "a waits", inLine(a))
		ctx, cancel := context.WithCancel(t.Context())
		second := b.waits(t, ctx, "x")
		eventually(t, "b waits", inLine(a, b))
		third := c.waits(t, t.Context(), "x")
		eventually(t, "c waits", inLine(a, b, c))
		cancel()
		want(t, "b gives up", result(t, second), context.Canceled)
		if !inLine(a, c)() {
			t.Errorf("then the queue is %s", queue())
		}
		must(t, le.Release(t.Context()))
		must(t, result(t, first))
		must(t, result(t, third))
	})
}

// Whoever was told of a release and gives up at that moment passes it on.
func TestQueuePassesOn(t *testing.T) {
	having(t, dbtest.Notifications, func(t *testing.T, db *dbtest.DB) {
		l := locker(t, db, Options{})
		le := l.mustTake(t, "x")
		for _, who := range []string{"first", "second"} {
			n, err := l.db.Exec(t.Context(), enqueue, sqlrun.Args{"name": "x", "me": who, "patience": int64(60e6)})
			if n != 1 || err != nil {
				t.Fatalf("%d, %v", n, err)
			}
		}
		_, next, err := l.notifying(t.Context(), release, le.args())
		if next != "first" || err != nil {
			t.Fatalf("told was %q, %v", next, err)
		}
		_, next, err = l.notifying(t.Context(), dequeue, sqlrun.Args{"name": "x", "me": "first"})
		if next != "second" || err != nil {
			t.Errorf("then %q, %v", next, err)
		}
		join := func(who string) int64 {
			n, err := l.db.Exec(t.Context(), enqueue, sqlrun.Args{"name": "x", "me": who, "patience": int64(60e6)})
			must(t, err)
			return n
		}
		if join("second") != 0 {
			t.Error("the lock is free, and the one that was told goes on waiting")
		}
		if join("third") != 1 {
			t.Error("the lock is left to another, and nobody can queue up behind that one")
		}
		passOver := func(what, me, want string) {
			t.Helper()
			passed, next, err := l.notifying(t.Context(), passOver, sqlrun.Args{"name": "x", "me": me})
			if passed != (want != "") || next != want || err != nil {
				t.Errorf("%s: passed over %v, and told is %q, %v", what, passed, next, err)
			}
		}
		left := func(since time.Duration) { // to the one who was told
			t.Helper()
			db.Do(t, `UPDATE {prefix}lock SET update_time = {now + :us}`, sqlrun.Args{"us": since.Microseconds()})
		}
		left(time.Hour) // a busy machine may take longer than anybody has
		passOver("at once", "third", "")
		left(-time.Second)
		passOver("itself", "second", "")
		passOver("after a second", "third", "third")
		left(time.Hour)
		passOver("at once", "fourth", "")
		// Who takes it without having waited takes nobody's place.
		again := l.mustTake(t, "x")
		if _, next, _ := l.notifying(t.Context(), release, again.args()); next != "third" {
			t.Errorf("%q is told", next)
		}
	})
}

// A waiter that looks at a lock that is free, though nobody has told it, does not take it before those who came
// earlier: not while these are about to come, and neither after a holder's death nor after a lost notification. Those
// who do not come are passed over, in order.
func TestWaitersKeepTheirPlaces(t *testing.T) {
	t.Parallel()
	dbtest.Notifications.EachClock(t, func(t *testing.T, db *dbtest.DB) {
		for _, how := range []string{"state = 'FREE', released_at = {now}, update_time = {now}", "expire_at = {now}"} {
			holder := locker(t, db, Options{})
			holder.mustTake(t, "x")
			var names []string
			var seats [3]contender
			leave := func(c *contender) {
				c.stop()
				c.l.leave("x", c.line, c.line.queue[0])
			}
			for i := range seats {
				l := locker(t, db, Options{})
				c := &seats[i]
				*c = contender{l: l, seat: &single{l, "x"}}
				c.line, _ = l.join("x")
				eventually(t, "it listens", c.hear)
				if lease, _, err := c.ask(t.Context(), true); lease != nil || err != nil || !c.queued {
					t.Fatalf("%d: %v, %v, queued %v", i, lease, err, c.queued)
				}
				names = append(names, l.me)
			}
			first, second, third := &seats[0], &seats[1], &seats[2]
			queue := func(what string, want ...string) {
				t.Helper()
				if got := db.List(t, `SELECT array_to_string(waiters, ' ') FROM {prefix}lock`, nil); got[0] != strings.Join(want, " ") {
					t.Errorf("%s: in the queue are %q, want %q", what, got, want)
				}
			}
			ask := func(what string, c *contender, gets bool) (wait time.Duration) {
				t.Helper()
				lease, wait, err := c.ask(t.Context(), true)
				if (lease != nil) != gets || err != nil {
					t.Fatalf("%s, after %s: %v, waits %v, %v", what, how, lease, wait, err)
				}
				if lease != nil {
					defer lease.finish(ErrReleased)
				}
				return wait
			}
			db.Advance(t, time.Second)
			db.Do(t, `UPDATE {prefix}lock SET `+how, nil) // and nobody is told
			ask("the third", third, false)
			ask("the second", second, false)
			late := locker(t, db, Options{})
			if _, err := late.try(t.Context(), &single{late, "x"}, turn{me: late.me, inTurn: true}); !errors.Is(err, errNotYet) {
				t.Errorf("one who comes now: %v", err)
			}
			queue("while the first one is about to come", names...)
			ask("the first", first, true)
			queue("it has come", names[1:]...)

			db.Do(t, `UPDATE {prefix}lock SET `+how, nil)
			db.Advance(t, time.Second)
			if wait := ask("the third", third, false); wait > 0 {
				t.Errorf("after it has passed over the second, it waits for %v", wait)
			}
			queue("the second one did not come", names[2])
			ask("the third", third, true)
			queue("all have come")
			leave(first)
			leave(second)
			leave(third)
			db.Do(t, `DELETE FROM {prefix}lock`, nil)
		}
	}, (*testing.T).Parallel)
}

// Whoever waits knows when the lease that it sees expires, and asks at that moment, although a poll or a lost notification would
// come later: in a queue of the row, behind one that was left the lock, and where it polls.
func TestWaitersAskAtTheEnd(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		locker(t, db, Options{TTL: time.Minute}).mustTake(t, "x")
		l := locker(t, db, Options{})
		c := contender{l: l, seat: &single{l, "x"}}
		c.line, _ = l.join("x")
		defer l.leave("x", c.line, c.line.queue[0])
		defer c.stop()
		if dbtest.Notifications(db.Dialect) {
			eventually(t, "it listens", c.hear)
		}
		const left = time.Millisecond
		db.Advance(t, time.Minute-left)
		for range 20 { // some of the waits are short by chance
			lease, wait, err := c.ask(t.Context(), true)
			if lease != nil || err != nil || wait > left+2*pollFirst {
				t.Fatalf("%v before the end it got %v, %v, and waits for %v", left, lease, err, wait)
			}
			if !c.queued {
				continue
			}
			if wait := c.follow(t.Context()); wait > left+2*pollFirst {
				t.Fatalf("%v before the end it waits behind another one for %v", left, wait)
			}
		}
	})
}

// A process listens only if that leaves connections of its pool to others.
func TestListensWithAConnectionToSpare(t *testing.T) {
	having(t, dbtest.Notifications, func(t *testing.T, db *dbtest.DB) {
		for _, size := range []int{1, 3, 4} {
			l := lockerOn(t, dbtest.Open(t, db.URL, dialect.Options{MaxConns: size}), Options{})
			c := contender{l: l}
			c.hear()
			if listens := l.ear.stop != nil; listens != (size >= 4) {
				t.Errorf("with a pool of %d connections it listens: %v", size, listens)
			}
			if size >= 4 {
				eventually(t, "it listens", c.hear)
				l.unhear()
				l.ear.stop()
			}
		}
	})
}

// A process that has left the lock to another one joins the queue behind it without asking for the
// lock first.
func TestLeaverQueuesUpAtOnce(t *testing.T) {
	having(t, dbtest.Notifications, func(t *testing.T, db *dbtest.DB) {
		other := locker(t, db, Options{})
		var mu sync.Mutex
		var watching bool
		var sent []string
		var taken *Lease
		l := lockerOn(t, db.Broken(t, &dbtest.Fault{Stall: func(op string) {
			mu.Lock()
			defer mu.Unlock()
			switch {
			case !watching:
			case strings.Contains(op, "SET state = 'FREE'"):
				sent = append(sent, "release")
			case strings.Contains(op, "pg_notify"):
				sent = append(sent, "tell")
			default:
				if taken == nil { // the notified process comes before the next statement
					var err error
					if taken, err = other.try(t.Context(), &single{other, "x"}, turn{me: other.me, inTurn: true}); err != nil {
						t.Error(err)
					}
				}
				sent = append(sent, op)
			}
		}}), Options{})
		listener := contender{l: l}
		eventually(t, "it listens", listener.hear)
		defer l.unhear()
		le, err := l.Acquire(t.Context(), "x")
		must(t, err)
		if row, err := other.enqueue(t.Context(), "x"); err != nil || row == nil || row.By != le.Owner() {
			t.Fatalf("queued behind %+v, %v", row, err)
		}
		done := l.waits(t, t.Context(), "x")
		mu.Lock()
		watching = true
		mu.Unlock()
		must(t, le.Release(t.Context()))
		eventually(t, "it waits in the queue", func() bool {
			return slices.Equal(db.List(t, `SELECT array_to_string(waiters, ' ') FROM {prefix}lock`, nil), []string{l.me})
		})
		mu.Lock()
		watching = false
		if len(sent) != 3 || sent[0] != "release" || sent[1] != "tell" || !strings.Contains(sent[2], "array_append") {
			t.Errorf("it sent %q", sent)
		}
		mu.Unlock()
		must(t, taken.Release(t.Context()))
		must(t, result(t, done))
	})
}

// A process that is told of a release and does not come holds up nobody for long.
func TestLeaverTakesWhatIsNotFetched(t *testing.T) {
	having(t, dbtest.Notifications, func(t *testing.T, db *dbtest.DB) {
		dead, l := locker(t, db, Options{}), locker(t, db, Options{})
		listener := contender{l: l}
		eventually(t, "it listens", listener.hear)
		defer l.unhear()
		le, err := l.Acquire(t.Context(), "x")
		must(t, err)
		if row, err := dead.enqueue(t.Context(), "x"); err != nil || row == nil {
			t.Fatalf("%+v, %v", row, err)
		}
		done := l.waits(t, t.Context(), "x")
		must(t, le.Release(t.Context()))
		must(t, result(t, done))
		if waiters := db.List(t, `SELECT array_to_string(waiters, ' ') FROM {prefix}lock`, nil); waiters[0] != "" {
			t.Errorf("in the queue remains %s", waiters)
		}
	})
}

// Those who wait hold no connection: more of them than the pool has do not keep
// the holder from releasing.
func TestMoreWaitersThanConnections(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		for _, size := range []int{1, 2, 5} {
			small := dbtest.Open(t, db.URL, dialect.Options{MaxConns: size})
			l := lockerOn(t, small, Options{})
			var group sync.WaitGroup
			for i := range 30 {
				group.Go(func() {
					if err := l.Do(t.Context(), fmt.Sprint("x", i%3), func(context.Context, *Lease) error { return nil }); err != nil {
						t.Error(err)
					}
				})
			}
			group.Wait()
		}
	})
}

// A process that takes locks again and again listens all the time, and not anew each time.
func TestAnEarLingers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var stops atomic.Int32
		w := &waiting{}
		w.ear.stop = func() { stops.Add(1) }
		use := func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.ear.use()
		}
		for range 20 {
			use()
			w.unhear()
			<-time.After(linger / 5)
		}
		if n := stops.Load(); n > 0 {
			t.Errorf("it stopped %d times while it was in use every now and then", n)
		}
		<-time.After(linger)
		if n := stops.Load(); n != 1 {
			t.Errorf("it stopped %d times once it was not used any more, want 1", n)
		}
	})
}
