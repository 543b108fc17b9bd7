package queue

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/instant"
)

// A job that another process enqueues begins at once, where workers would look in an
// hour: a bell is rung, in whatever way the engine has.
func TestDoorbell(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		far := client(t, dbtest.Open(t, db.URL, dialect.Options{MaxConns: 5}), Options{Doorbell: "127.0.0.1:0"})
		edit(t, far, func(q *Queue) { q.PollMin, q.PollMax = time.Hour, time.Hour })
		w := worker(t, client(t, dbtest.Open(t, db.URL, dialect.Options{MaxConns: 5}), Options{Doorbell: "127.0.0.1:0"}), WorkerOptions{})
		did := make(chan int64, 100)
		handle(t, w, "x", func(_ context.Context, d *Delivery) error { did <- d.ID; return nil })
		stop := start(t, w)
		if far.bells.rings() {
			eventually(t, "its bell is known", func() bool {
				peers, err := far.bells.others.known(t.Context(), far.db)
				must(t, err)
				return len(peers) == 1
			})
		}
		for range 5 {
			eventually(t, "it has looked at all blocks, and waits", func() bool {
				w.mu.Lock()
				defer w.mu.Unlock()
				for _, b := range w.queues[0].blocks {
					if b.dirty || b.serving || b.queued || b.ripe {
						return false
					}
					b.looked = instant.Now().Add(time.Hour) // it does not look by itself
					b.whole = b.looked
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

// Nobody rings who does not have the key, and nothing that is sent there does harm.
func TestDoorbellOfStrangers(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		w := worker(t, client(t, db, Options{Doorbell: "127.0.0.1:0"}), WorkerOptions{})
		if db.Dialect.Notify != nil {
			if d := w.hang(t.Context()); d != nil {
				t.Error("there is a bell where there are notifications")
			}
			return
		}
		bell := w.hang(t.Context())
		if bell == nil {
			t.Fatal("there is no bell")
		}
		defer bell.conn.Close()
		must(t, w.tryBegin(t.Context()))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); w.answer(ctx, bell) }()
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "udp", bell.at)
		must(t, err)
		defer conn.Close()
		for _, packet := range [][]byte{
			nil,
			{1},
			[]byte(strings.Repeat("x", 16)), []byte(strings.Repeat("x", 2000)), sign([]byte("another key"), "share"),
			append(sign(bell.key, "share"), '!'), sign(bell.key, "share")[1:], sign(bell.key, "")[:15],
			sign(bell.key, "1:;-5:7,x;:;99999999999999999999:1;"), // signed, and nonsense
		} {
			_, err := conn.Write(packet)
			must(t, err)
		}
		_, err = conn.Write(sign(bell.key, "share"))
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

// An address that others could not reach is refused; one that is taken is done without.
func TestBadDoorbells(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
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
