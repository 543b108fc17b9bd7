package queue

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/queue/internal/bell"
)

// A job that another process enqueues begins at once, where workers would look in an
// hour: a bell is rung, in whatever way the engine has.
func TestDoorbell(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		far := client(t, dbtest.Open(t, db.URL, dialect.Options{MaxConns: 5}), Options{Doorbell: "127.0.0.1:0"})
		edit(t, far, func(q *admin.Queue) { q.PollMin, q.PollMax = time.Hour, time.Hour })
		w := worker(t, client(t, dbtest.Open(t, db.URL, dialect.Options{MaxConns: 5}), Options{Doorbell: "127.0.0.1:0"}), WorkerOptions{})
		did := make(chan int64, 100)
		handle(t, w, "x", func(_ context.Context, d *Delivery) error { did <- d.ID; return nil })
		stop := start(t, w)
		if far.bells.rings() {
			eventually(t, "its bell is known", func() bool {
				return len(known(t, far)) == 1
			})
		}
		for range 5 {
			eventually(t, "it has looked at all blocks, and waits", func() bool {
				w.mu.Lock()
				defer w.mu.Unlock()
				for _, b := range w.queues[0].blocks {
					if b.Reads.Dirty || b.Serving || b.queued || b.Dues.Ripe {
						return false
					}
					b.Reads.Looked = instant.Now().Add(time.Hour) // it does not look by itself
					b.Reads.Whole = b.Reads.Looked
				}
				return len(w.queues[0].blocks) == 2 && w.idle == 16
			})
			id := enqueue(t, far, Job{Kind: "x"})
			if got := received(t, "it begins", did); got != id {
				t.Errorf("%d has begun, not %d", got, id)
			}
		}
		must(t, far.Flush(t.Context()))
		stop()
		if _, err := far.Enqueue(t.Context(), Job{Kind: "x"}); err != nil { // with nobody there
			t.Error(err)
		}
		must(t, far.Flush(t.Context()))
	})
}

// Others are notified at once while jobs are few, even if several come at once, and later the
// more come.
func TestPace(t *testing.T) {
	for _, test := range []struct {
		jobs  int
		every time.Duration
		want  time.Duration
	}{
		{1, time.Second, 0},
		{2, 2 * time.Millisecond, 0},
		{3, time.Millisecond, onePace},
		{30, time.Millisecond, maxPace},
		{1000, 5 * time.Millisecond, maxPace},
	} {
		f, at := flow{}, instant.Now()
		for range 1000 {
			at = at.Add(test.every)
			f.jobs += test.jobs
			f.measure(at)
		}
		if got := f.pace().Round(time.Microsecond); got != test.want {
			t.Errorf("%d jobs every %v: %v, not %v", test.jobs, test.every, got, test.want)
		}
		at = at.Add(time.Second)
		f.jobs = 5
		if f.measure(at); f.pace() != 0 {
			t.Errorf("%d jobs every %v, then 5 after a second: %v", test.jobs, test.every, f.pace())
		}
	}
}

// known lists the doorbells that a client knows of.
func known(t *testing.T, c *Client) []string {
	t.Helper()
	peers, err := c.bells.others.Peers(t.Context(), c.db)
	must(t, err)
	return peers
}

// A process that knows no doorbell at a queue looks for one when it has a job there, however
// recent its knowledge is; and when a doorbell that it rings is gone.
func TestBellsLearned(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		if db.Dialect.Notify != nil {
			return
		}
		far := client(t, db, Options{Doorbell: "127.0.0.1:0"})
		q, err := far.queue(t.Context(), defaultQueue)
		must(t, err)
		ring := func() []string {
			// refused where none is any more
			_ = far.bells.others.Ring(t.Context(), far.db, map[int]string{q.ID: fmt.Sprintf("%d:;", q.ID)})
			far.bells.others.Age(instant.Now().Add(time.Hour), -2*time.Hour) // what it knows is new
			return known(t, far)
		}
		if len(ring()) != 0 {
			t.Fatal("there is a bell before there is a worker")
		}
		work := func() (*Worker, func()) {
			w := worker(t, client(t, db, Options{Doorbell: "127.0.0.1:0"}), WorkerOptions{})
			handle(t, w, "x", func(context.Context, *Delivery) error { return nil })
			return w, start(t, w)
		}
		for range 2 { // a worker, and one that came after it had ended
			w, stop := work()
			eventually(t, "its bell is known", func() bool {
				peers := ring()
				return len(peers) == 1 && peers[0] == w.bell.at
			})
			stop()
		}
	})
}

// Nobody rings who does not have the key, and nothing that is sent there does harm.
func TestDoorbellOfStrangers(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		w := worker(t, client(t, db, Options{Doorbell: "127.0.0.1:0"}), WorkerOptions{})
		if db.Dialect.Notify != nil {
			if d := w.hang(t.Context()); d != nil {
				t.Error("there is a bell where there are notifications")
			}
			return
		}
		hung := w.hang(t.Context())
		if hung == nil {
			t.Fatal("there is no bell")
		}
		defer hung.conn.Close()
		must(t, w.tryBegin(t.Context()))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); w.answer(ctx, hung) }()
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "udp", hung.at)
		must(t, err)
		defer conn.Close()
		for _, packet := range [][]byte{
			nil,
			{1},
			[]byte(strings.Repeat("x", 16)), []byte(strings.Repeat("x", 2000)), bell.Sign([]byte("another key"), "share"),
			append(bell.Sign(hung.key, "share"), '!'), bell.Sign(hung.key, "share")[1:], bell.Sign(hung.key, "")[:15],
			bell.Sign(hung.key, "1:;-5:7,x;:;99999999999999999999:1;"), // signed, and nonsense
		} {
			_, err := conn.Write(packet)
			must(t, err)
		}
		_, err = conn.Write(bell.Sign(hung.key, "share"))
		must(t, err)
		received(t, "the bell", w.tick)
		select {
		case <-w.tick:
			t.Error("it was rung twice")
		default:
		}
		cancel()
		received(t, "the end", ended)
	})
}

// Who rings waits no longer than it may for another one, which waits for the database.
func TestRingingInTurn(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		one := dbtest.Open(t, db.URL, dialect.Options{MaxConns: 1})
		held, err := one.Pool().Conn(t.Context())
		must(t, err)
		var r bell.Ringer
		slow, stop := context.WithCancel(t.Context())
		ended := make(chan error, 2)
		go func() { ended <- r.Ring(slow, one.DB, map[int]string{0: bell.Ping}) }()
		eventually(t, "it waits for a connection", func() bool { return one.Pool().Stats().WaitCount > 0 })
		over, cancel := context.WithCancel(t.Context())
		cancel()
		go func() { ended <- r.Ring(over, one.DB, map[int]string{0: bell.Ping}) }()
		if err := received(t, "the end of the second one", ended); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if slow.Err() != nil {
			t.Error("it has waited for the first one")
		}
		stop()
		if err := received(t, "the end of the first one", ended); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		must(t, held.Close())
	})
}

// An address that others could not reach is refused; one that is taken is done without.
func TestBadDoorbells(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		for _, bad := range []string{"x", ":0", "0.0.0.0:0", "[::]:1", "127.0.0.1", "localhost:0", "224.0.0.1:5", "127.0.0.1:70000"} {
			if _, err := New(db.DB, Options{Doorbell: bad}); !errors.Is(err, ErrInvalid) {
				t.Errorf("%s: %v", bad, err)
			}
		}
		taken, err := (&net.ListenConfig{}).ListenPacket(t.Context(), "udp", "127.0.0.1:0")
		must(t, err)
		defer taken.Close()
		c := client(t, db, Options{Doorbell: taken.LocalAddr().String()})
		w := worker(t, c, WorkerOptions{})
		handle(t, w, "x", func(context.Context, *Delivery) error { return nil })
		stop := start(t, w)
		enqueue(t, c, Job{Kind: "x"})
		empty(t, db)
		stop()
	})
}
