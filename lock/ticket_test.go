package lock

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
)

// A ticket keeps others out until it is released or expires, whichever process renews and
// releases it.
func TestTicket(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		l, other := locker(t, db, Options{}), locker(t, db, Options{})
		opt := TicketOptions{Owner: "worker 7", TTL: time.Minute, Meta: "nightly"}
		first, err := l.TakeTicket(t.Context(), "x", opt)
		must(t, err)
		if first.Left != time.Minute || !first.Until.Equal(dbtest.Start.Add(time.Minute)) || !strings.HasPrefix(first.By, "worker 7:") {
			t.Errorf("got %+v", first)
		}
		if is := state(t, l, "x"); is.State != Held || is.By != first.By || is.Meta != "nightly" ||
			strings.Contains(first.Token, is.By) || strings.Contains(is.By, strings.Split(first.Token, ".")[1]) {
			t.Errorf("got %+v", is)
		}
		_, err = other.TakeTicket(t.Context(), "x", TicketOptions{})
		var held *HeldError
		if !errors.As(err, &held) || held.By != first.By || held.Left != time.Minute {
			t.Errorf("got %v", err)
		}
		_, err = other.TryAcquire(t.Context(), "x")
		want(t, "a lease beside it", err, ErrHeld)

		db.Advance(t, 30*time.Second)
		renewed, err := other.RenewTicket(t.Context(), "x", first.Token, time.Minute)
		must(t, err)
		if renewed.Fence != first.Fence || renewed.Left != time.Minute || renewed.Token != first.Token {
			t.Errorf("got %+v", renewed)
		}
		if renewed, err = other.RenewTicket(t.Context(), "x", first.Token, time.Second); err != nil || renewed.Left != time.Minute {
			t.Errorf("made shorter: %+v, %v", renewed, err)
		}
		db.Advance(t, time.Minute)
		_, err = l.RenewTicket(t.Context(), "x", first.Token, 0)
		want(t, "after its end", err, ErrLost)
		second, err := l.TakeTicket(t.Context(), "x", opt)
		must(t, err)
		if second.Fence <= first.Fence || second.Token == first.Token {
			t.Errorf("got %+v after %+v", second, first)
		}
		want(t, "release of the first", l.ReleaseTicket(t.Context(), "x", first.Token), ErrLost)
		must(t, other.ReleaseTicket(t.Context(), "x", second.Token))
		must(t, l.ReleaseTicket(t.Context(), "x", second.Token)) // an answer may have been lost
		_, err = l.RenewTicket(t.Context(), "x", second.Token, 0)
		want(t, "renewal after release", err, ErrLost)
		must(t, l.mustTake(t, "x").Release(t.Context()))
		want(t, "release when another has had it", l.ReleaseTicket(t.Context(), "x", second.Token), ErrLost)
	})
}

// Only a token that is right in all of its parts renews or releases.
func TestTicketOfAnother(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		l := locker(t, db, Options{})
		mine, err := l.TakeTicket(t.Context(), "x", TicketOptions{Owner: "me"})
		must(t, err)
		elsewhere, err := l.TakeTicket(t.Context(), "y", TicketOptions{Owner: "me"})
		must(t, err)
		parts := strings.Split(mine.Token, ".")
		for what, token := range map[string]string{
			"another secret": strings.Join([]string{parts[0], strings.Split(elsewhere.Token, ".")[1], parts[2]}, "."),
			"another fence":  strings.Join([]string{"77", parts[1], parts[2]}, "."),
			"another owner":  strings.Join([]string{parts[0], parts[1], "eW91"}, "."),
			"another lock's": elsewhere.Token,
		} {
			_, err := l.RenewTicket(t.Context(), "x", token, 0)
			want(t, what+": renew", err, ErrLost)
			want(t, what+": release", l.ReleaseTicket(t.Context(), "x", token), ErrLost)
		}
		for _, token := range []string{"", "x", "1.2", "1.2.3.4", "01." + parts[1] + "." + parts[2], parts[0] + "." + parts[1] + ".%", "1.a.Cg"} {
			want(t, token, l.ReleaseTicket(t.Context(), "x", token), ErrInvalid)
		}
		is := state(t, l, "x")
		if is.State != Held || is.Extends != 0 {
			t.Errorf("got %+v", is)
		}
		_, err = l.ForceRelease(t.Context(), "x", 0, "operator", "it hangs")
		must(t, err)
		want(t, "after force", l.ReleaseTicket(t.Context(), "x", mine.Token), ErrLost)
	})
}

// A request that is sent again with its key gets the ticket that it has got already, and
// nobody else does.
func TestTicketAgain(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		l, other := locker(t, db, Options{Owner: "a"}), locker(t, db, Options{Owner: "a"})
		opt := TicketOptions{Key: "request 1", TTL: time.Minute}
		first, err := l.TakeTicket(t.Context(), "x", opt)
		must(t, err)
		db.Advance(t, 10*time.Second)
		for _, opt.Wait = range []time.Duration{0, time.Hour} {
			again, err := other.TakeTicket(t.Context(), "x", opt)
			must(t, err)
			if again.Token != first.Token || again.Fence != first.Fence || again.Left != time.Minute {
				t.Errorf("got %+v, before %+v", again, first)
			}
		}
		opt = TicketOptions{Key: "request 2", TTL: time.Minute}
		_, err = other.TakeTicket(t.Context(), "x", opt)
		want(t, "another request", err, ErrHeld)
		must(t, other.ReleaseTicket(t.Context(), "x", first.Token))
		opt.Key = "request 1"
		later, err := l.TakeTicket(t.Context(), "x", opt)
		must(t, err)
		if later.Fence <= first.Fence {
			t.Errorf("got %+v after %+v", later, first)
		}
		want(t, "release of the first", l.ReleaseTicket(t.Context(), "x", first.Token), ErrLost)
		_, err = l.RenewTicket(t.Context(), "x", first.Token, 0)
		want(t, "renewal of the first", err, ErrLost)
	})
}

// A request that is sent again does not wait behind those who wait for its own ticket.
func TestTicketAgainWhileOthersWait(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		l := locker(t, db, Options{})
		opt := TicketOptions{Key: "request 1"}
		first, err := l.TakeTicket(t.Context(), "x", opt)
		must(t, err)
		ln, turn := l.join("x") // has the turn, has looked, and does not give the turn away
		defer l.leave("x", ln, turn)
		l.mu.Lock()
		ln.held = &HeldError{Name: "x", By: first.By, Fence: first.Fence}
		l.mu.Unlock()
		opt.Wait = 20 * time.Millisecond
		again, err := l.TakeTicket(t.Context(), "x", opt)
		must(t, err)
		if again.Token != first.Token {
			t.Errorf("got %+v, before %+v", again, first)
		}
		opt.Key = "request 2"
		_, err = l.TakeTicket(t.Context(), "x", opt)
		want(t, "another request", err, ErrHeld)
	})
}

// A waiter gets the lock when it is released, by whomever.
func TestTicketWaits(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		l, other := locker(t, db, Options{}), locker(t, db, Options{})
		first, err := l.TakeTicket(t.Context(), "x", TicketOptions{})
		must(t, err)
		_, err = other.TakeTicket(t.Context(), "x", TicketOptions{Wait: 20 * time.Millisecond})
		var held *HeldError
		if !errors.As(err, &held) || held.By != first.By {
			t.Errorf("got %v", err)
		}
		type result struct {
			ticket *Ticket
			err    error
		}
		var all sync.WaitGroup
		got := make(chan result, 4)
		for i := range 4 {
			all.Go(func() {
				ticket, err := []*Locker{l, other}[i%2].TakeTicket(t.Context(), "x", TicketOptions{Wait: longWait})
				if err == nil {
					err = l.ReleaseTicket(t.Context(), "x", ticket.Token)
				}
				got <- result{ticket, err}
			})
		}
		must(t, other.ReleaseTicket(t.Context(), "x", first.Token))
		all.Wait()
		close(got)
		fences := map[int64]bool{}
		for r := range got {
			must(t, r.err)
			fences[r.ticket.Fence] = true
		}
		if len(fences) != 4 {
			t.Errorf("the fences are %v", fences)
		}
	})
}

// A ticket that its holder is never told of does not keep the lock, whichever round trip has
// gone wrong.
func TestTicketFaults(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		rival := locker(t, db, Options{})
		for _, after := range []bool{false, true} {
			for call := 1; ; call++ {
				fault := &dbtest.Fault{Call: call, After: after}
				l := lockerOn(t, db.Broken(t, fault), Options{})
				ticket, err := l.TakeTicket(t.Context(), "x", TicketOptions{})
				if err == nil {
					must(t, rival.ReleaseTicket(t.Context(), "x", ticket.Token))
				}
				l.leftovers.Wait()
				le, err := rival.TryAcquire(t.Context(), "x")
				if err != nil {
					t.Fatalf("call %d (after: %v): %v", call, after, err)
				}
				must(t, le.Release(t.Context()))
				if !fault.Reached() {
					break
				}
			}
		}
	})
}

// What cannot be is refused, and writes nothing.
func TestTicketRefuses(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		l := locker(t, db, Options{})
		for what, opt := range map[string]TicketOptions{
			"ttl": {TTL: time.Millisecond}, "owner": {Owner: strings.Repeat("x", 101)}, "meta": {Meta: "\x00"},
			"wait": {Wait: -1}, "long": {TTL: 1 << 62},
		} {
			_, err := l.TakeTicket(t.Context(), "x", opt)
			want(t, what, err, ErrInvalid)
		}
		_, err := l.TakeTicket(t.Context(), " x", TicketOptions{})
		want(t, "name", err, ErrInvalid)
		_, err = l.RenewTicket(t.Context(), "x", "1.a.YQ", time.Millisecond)
		want(t, "renewal", err, ErrInvalid)
		_, err = l.Get(t.Context(), "x")
		want(t, "get", err, ErrNotFound)
		must(t, l.mustPool(t, "pool", 2).mustTake(t).Release(t.Context()))
		_, err = l.TakeTicket(t.Context(), "pool", TicketOptions{})
		want(t, "a pool", err, ErrPool)
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = l.TakeTicket(ended, "y", TicketOptions{Wait: time.Hour})
		want(t, "an end", err, context.Canceled)
	})
}
