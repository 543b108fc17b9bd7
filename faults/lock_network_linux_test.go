package faults

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/lock"
)

// A wire forwards connections to a server. Each direction can be frozen: nothing passes any more,
// and neither end sees the connection close.
type wire struct {
	url              string // of the server, through the wire
	server           string
	toServer, toHere sync.RWMutex // locked while frozen

	listener net.Listener
	work     sync.WaitGroup
	mu       sync.Mutex
	ends     []net.Conn
	cut      bool
}

func newWire(t *testing.T, rawURL string) *wire {
	t.Helper()
	u, err := url.Parse(rawURL)
	if err != nil {
		t.Fatal(err)
	}
	w := wireAt(t, "127.0.0.1:0", u.Host)
	u.Host = w.listener.Addr().String()
	w.url = u.String()
	return w
}

// wireAt leads from an address to that of a server.
func wireAt(t *testing.T, here, server string) *wire {
	t.Helper()
	w := &wire{server: server}
	var err error
	if w.listener, err = new(net.ListenConfig).Listen(t.Context(), "tcp4", here); err != nil {
		t.Fatal(err)
	}
	w.work.Go(w.accept)
	t.Cleanup(w.close)
	return w
}

func (w *wire) accept() {
	for {
		near, err := w.listener.Accept()
		if err != nil {
			return
		}
		far, err := new(net.Dialer).DialContext(context.Background(), "tcp4", w.server)
		if err != nil {
			near.Close()
			continue
		}
		w.mu.Lock()
		w.ends = append(w.ends, near, far)
		if w.cut {
			near.Close()
			far.Close()
		}
		w.mu.Unlock()
		w.work.Go(func() { forward(far, near, &w.toServer) })
		w.work.Go(func() { forward(near, far, &w.toHere) })
	}
}

func forward(to, from net.Conn, open *sync.RWMutex) {
	defer to.Close()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		open.RLock()
		_, lost := to.Write(buf[:n])
		open.RUnlock()
		if err != nil || lost != nil {
			return
		}
	}
}

// breaks ends all connections, and those that are made until it is called with false.
func (w *wire) breaks(broken bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cut = broken; broken {
		for _, c := range w.ends {
			c.Close()
		}
		w.ends = nil
	}
}

// close ends all connections. Neither direction may still be frozen.
func (w *wire) close() {
	w.listener.Close()
	w.mu.Lock()
	w.cut = true
	for _, c := range w.ends {
		c.Close()
	}
	w.mu.Unlock()
	w.work.Wait()
}

// A holder's network freezes. Its context ends before a rival gets the lock: both read one clock,
// that of this host.
func TestLockNetworkFrozen(t *testing.T) {
	t.Parallel()
	dbtest.Network.Each(t, func(t *testing.T, db *dbtest.DB) {
		for _, way := range []struct {
			name   string
			frozen func(*wire) []*sync.RWMutex
		}{
			{"both ways", func(w *wire) []*sync.RWMutex { return []*sync.RWMutex{&w.toServer, &w.toHere} }},
			{"requests", func(w *wire) []*sync.RWMutex { return []*sync.RWMutex{&w.toServer} }},
			{"answers", func(w *wire) []*sync.RWMutex { return []*sync.RWMutex{&w.toHere} }},
		} {
			t.Run(way.name, func(t *testing.T) {
				t.Parallel()
				w := newWire(t, db.URL)
				p := part{URL: db.URL, Name: "frozen " + way.name, TTL: 2 * time.Second, Margin: 500 * time.Millisecond}
				behind := p
				behind.URL = w.url
				holder, rival := start(t, "holder", behind), start(t, "holder", p)
				holder.tell("acquire")
				fence := holder.hear("granted").number(t, 0)
				holder.tell("extend")
				holder.hear("extended")
				rival.tell("acquire")
				for _, direction := range way.frozen(w) {
					direction.Lock()
					defer direction.Unlock()
				}
				lost := holder.hear("lost").number(t, 0)
				granted := rival.hear("granted")
				if at := granted.number(t, 1); at <= lost {
					t.Errorf("the rival was granted the lock %v before the holder's context ended", time.Duration(lost-at))
				} else {
					t.Logf("the holder's context ended %v before the rival was granted the lock", time.Duration(at-lost))
				}
				if next := granted.number(t, 0); next <= fence {
					t.Errorf("fence %d comes after %d", next, fence)
				}
			})
		}
	})
}

// An answer or a request is lost at each round trip of a lock's life in turn. Whatever was lost,
// the next holder gets the lock at the latest when the lease has expired, and never while the first
// one relies on it.
func TestLockAnswersLost(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		opt := lock.Options{TTL: 2 * time.Second, Margin: 600 * time.Millisecond, Heartbeat: -1, Logger: slog.New(slog.DiscardHandler)}
		rivals, err := lock.New(db.DB, opt)
		if err != nil {
			t.Fatal(err)
		}
		for _, after := range []bool{false, true} {
			for call, reached := 1, true; reached; call++ {
				fault := &dbtest.Fault{Call: call, After: after}
				l, err := lock.New(db.Broken(t, fault).DB, opt)
				if err != nil {
					t.Fatal(err)
				}
				name := fmt.Sprintf("answer %d %v", call, after)
				if err := brokenLife(t, l, rivals, name); err != nil {
					t.Errorf("call %d is broken, after the work: %v: %v", call, after, err)
				}
				reached = fault.Reached()
				if !reached && call < 4 {
					t.Errorf("a lock's life takes %d round trips: the test shows nothing", call)
				}
			}
		}
	})
}

// brokenLife takes a lock twice. In between, a rival waits from the moment at which the first
// holder may have the lock.
func brokenLife(t *testing.T, l, rivals *lock.Locker, name string) error {
	ctx := t.Context()
	first, err := l.TryAcquire(ctx, name)
	if err != nil && !errors.Is(err, dbtest.ErrBroken) {
		return err
	}
	granted := make(chan error, 1)
	go func() {
		rival, err := rivals.Acquire(ctx, name)
		if err != nil {
			granted <- err
			return
		}
		if first != nil {
			if end := first.Check(); end == nil {
				err = fmt.Errorf("the rival has the lock, and the first has it, too")
			}
			if rival.Fence() <= first.Fence() {
				err = errors.Join(err, fmt.Errorf("fence %d comes after %d", rival.Fence(), first.Fence()))
			}
		}
		granted <- errors.Join(err, rival.Release(ctx))
	}()
	if first != nil {
		if err := first.Extend(ctx); err != nil && !errors.Is(err, dbtest.ErrBroken) {
			return err
		}
		if err := first.Release(ctx); err != nil {
			return err
		}
	}
	if err := <-granted; err != nil {
		return err
	}
	last, err := l.Acquire(ctx, name) // the fault is over
	if err != nil {
		return err
	}
	rows, err := rivals.Get(ctx, name)
	if err == nil && rows[0].Fence != last.Fence() {
		err = fmt.Errorf("the row has fence %d, and the last holder %d", rows[0].Fence, last.Fence())
	}
	return errors.Join(err, last.Release(ctx))
}
