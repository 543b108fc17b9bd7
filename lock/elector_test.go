package lock

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/sqlrun"
)

func TestSession(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		a, b := locker(t, db, Options{}), locker(t, db, Options{})
		first, err := a.TrySession(t.Context(), "x")
		if db.Dialect.Session == nil {
			want(t, "without session locks", err, ErrNoSessions)
			return
		}
		must(t, err)
		_, err = b.TrySession(t.Context(), "x")
		want(t, "while it is held", err, ErrHeld)
		_, err = a.TrySession(t.Context(), "x")
		want(t, "by the same program", err, ErrHeld)
		for _, other := range []string{"X", "x'", "𝕏"} {
			s, err := b.TrySession(t.Context(), other)
			must(t, err)
			must(t, s.Release())
		}
		must(t, first.Check())
		must(t, first.Release())
		want(t, "twice", first.Release(), ErrReleased)
		want(t, "its context", ended(t, first.Context()), ErrReleased)
		second, err := b.TrySession(t.Context(), "x")
		must(t, err)
		cut(t, db)
		want(t, "cut off", ended(t, second.Context()), ErrLost)
		want(t, "release then", second.Release(), ErrLost)
		eventually(t, "it can be had again, through a new connection", func() bool {
			third, err := a.TrySession(t.Context(), "x")
			return err == nil && third.Release() == nil
		})
	})
}

// A session would take the only connection of a pool; an election does without.
func TestElectionOnOneConnection(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		small := dbtest.Open(t, db.URL, dialect.Options{MaxConns: 1})
		l := lockerOn(t, small, Options{})
		_, err := l.TrySession(t.Context(), "leader")
		want(t, "a session lock", err, ErrNoSessions)
		led := false
		e, err := l.NewElector("leader", Election{Lead: func(ctx context.Context, lease *Lease) error {
			led = true
			return lease.Extend(ctx)
		}})
		must(t, err)
		must(t, e.Run(t.Context()))
		if !led {
			t.Error("it has not led")
		}
	})
}

// cut ends all sessions with this database except its own.
func cut(t *testing.T, db *dbtest.DB) {
	t.Helper()
	if db.Dialect.Notify != nil {
		db.List(t, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
			WHERE datname = current_database() AND pid <> pg_backend_pid()`, nil)
		return
	}
	for _, id := range db.List(t, `SELECT id FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()`, nil) {
		_, err := db.Exec(t.Context(), sqlrun.Unlisted(`KILL `+id), nil)
		if err != nil && !strings.Contains(err.Error(), "1094") { // it has ended meanwhile
			t.Fatal(err)
		}
	}
}

// A candidate is an Elector in a goroutine, with what became of it.
type candidate struct {
	l      *Locker
	leads  atomic.Int64 // its term; 0: it does not lead
	lost   chan error
	follow atomic.Int64 // the term of the leader that it has seen
	resign context.CancelFunc
	done   chan error
}

func stands(t *testing.T, db *dbtest.DB, opt Options) *candidate {
	t.Helper()
	c := &candidate{l: locker(t, db, opt), lost: make(chan error, 10), done: make(chan error, 1)}
	e, err := c.l.NewElector("leader", Election{
		Lead: func(ctx context.Context, lease *Lease) error {
			c.leads.Store(lease.Fence())
			<-ctx.Done()
			c.leads.Store(0)
			c.lost <- context.Cause(ctx)
			return errors.New("not to be seen")
		},
		Follow: func(leader *HeldError) { c.follow.Store(leader.Fence) },
	})
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	c.resign = cancel
	go func() { c.done <- e.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-c.done; err != nil {
			t.Error(err)
		}
		c.done <- nil
	})
	return c
}

func TestElection(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		opt := Options{TTL: time.Hour, Heartbeat: time.Second}
		a := stands(t, db, opt)
		eventually(t, "a leads", func() bool { return a.leads.Load() == 1 })
		b := stands(t, db, opt)
		eventually(t, "b follows", func() bool { return b.follow.Load() == 1 })
		if leader, err := b.l.Leader(t.Context(), "leader"); err != nil || leader.Fence != 1 {
			t.Errorf("the leader is %v, %v", leader, err)
		}
		a.resign()
		eventually(t, "b leads when a resigns", func() bool { return b.leads.Load() == 2 })
		want(t, "a", result(t, a.lost), context.Canceled)
		if a.leads.Load() != 0 {
			t.Error("a leads as well")
		}
	})
}

// A leader whose session is cut, and which lives, ceases to lead before another
// begins. Its lease would have lasted for an hour.
func TestElectionAfterACutSession(t *testing.T) {
	having(t, sessions, func(t *testing.T, db *dbtest.DB) {
		opt := Options{TTL: time.Hour}
		var both atomic.Bool
		candidates := []*candidate{stands(t, db, opt), stands(t, db, opt), stands(t, db, opt)}
		leader := func() *candidate {
			var found *candidate
			term := int64(0)
			for _, c := range candidates {
				its := c.leads.Load()
				if its == 0 {
					continue
				}
				if found != nil && found.leads.Load() == term { // before and after
					both.Store(true)
				}
				found, term = c, its
			}
			return found
		}
		term := int64(0)
		for range 3 {
			eventually(t, "somebody leads, in a new term", func() bool { c := leader(); return c != nil && c.leads.Load() > term })
			now := leader()
			term = now.leads.Load()
			cut(t, db)
			want(t, "the old leader", result(t, now.lost), ErrLost)
		}
		if both.Load() {
			t.Error("two led at a time")
		}
	})
}

// Where the session lock of a leader is held on for ever, or there are none,
// its lease runs out.
func TestElectionAfterAHang(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		hung := locker(t, db, Options{TTL: 3 * time.Second})
		if db.Dialect.Session != nil {
			s, err := hung.TrySession(t.Context(), "leader")
			must(t, err)
			defer s.Release() //nolint:errcheck // it is only to be held
		}
		e, err := hung.NewElector("leader", Election{Lead: func(context.Context, *Lease) error { return nil }})
		must(t, err)
		lease, err := e.take(t.Context(), &Session{}, nil)
		granted(t, lease, err)
		c := stands(t, db, Options{TTL: time.Minute})
		eventually(t, "another leads", func() bool { return c.leads.Load() > lease.Fence() })
		want(t, "the one that hung", lease.Check(), ErrLost)
	})
}

// Whoever has got the session lock of a leader that leads by its lease alone
// waits for that lease.
func TestNoUsurpingOfALeaderWithoutASession(t *testing.T) {
	having(t, sessions, func(t *testing.T, db *dbtest.DB) {
		l := locker(t, db, Options{TTL: time.Hour})
		lease := l.mustTake(t, "leader")
		c := stands(t, db, Options{TTL: time.Minute})
		eventually(t, "it follows", func() bool { return c.follow.Load() == lease.Fence() })
		eventually(t, "it has the session lock", func() bool {
			s, err := l.TrySession(t.Context(), "leader")
			if err == nil {
				must(t, s.Release())
			}
			return errors.Is(err, ErrHeld)
		})
		e, err := l.NewElector("leader", Election{Lead: func(context.Context, *Lease) error { return nil }})
		must(t, err)
		_, err = e.take(t.Context(), &Session{}, &HeldError{By: lease.Owner(), Fence: lease.Fence()})
		want(t, "usurping it", err, ErrHeld)
		other := l.mustTake(t, "other") // for which nobody stands, who would usurp it
		db.Do(t, `UPDATE {prefix}lock SET session = 'held' WHERE name = 'other'`, nil)
		e, err = l.NewElector("other", Election{Lead: func(context.Context, *Lease) error { return nil }})
		must(t, err)
		for _, seen := range []HeldError{{By: "another", Fence: other.Fence()}, {By: other.Owner(), Fence: other.Fence() + 1}} {
			_, err = e.take(t.Context(), &Session{}, &seen)
			want(t, "usurping it from another than was seen", err, ErrHeld)
		}
		must(t, lease.Extend(t.Context()))
		must(t, lease.Release(t.Context()))
		eventually(t, "it leads", func() bool { return c.leads.Load() > lease.Fence() })
	})
}

// Who gets the session lock of a leader that has one waits until that leader has stepped down, however soon the lock came: the
// leader may live, and not know yet that the server has ended its session.
func TestAStandbyWaitsForTheLeaderToStepDown(t *testing.T) {
	having(t, sessions, func(t *testing.T, db *dbtest.DB) {
		a, b := locker(t, db, Options{}), locker(t, db, Options{})
		stand := func(l *Locker) *Elector {
			e, err := l.NewElector("leader", Election{Lead: func(context.Context, *Lease) error { return nil }})
			must(t, err)
			return e
		}
		leader, err := stand(a).take(t.Context(), &Session{}, nil) // whose session the server has ended
		granted(t, leader, err)
		session, err := b.TrySession(t.Context(), "leader")
		must(t, err)
		defer session.Release() //nolint:errcheck // it is only to be held
		e := stand(b)
		lease, err := e.stand(t.Context(), session, instant.Now().Add(time.Hour)) // on no machine a moment ago is longer ago
		if lease != nil || err != nil {
			t.Fatalf("it leads at once: %v, %v", lease, err)
		}
		lease, err = e.stand(t.Context(), session, instant.Now().Add(-trust))
		if lease != nil && usurpAfter <= trust || err != nil {
			t.Fatalf("it leads while the leader still relies on its session: %v, %v", lease, err)
		}
		if lease == nil {
			lease, err = e.stand(t.Context(), session, instant.Now().Add(-usurpAfter))
		}
		if granted(t, lease, err); lease.Fence() <= leader.Fence() {
			t.Errorf("term %d after %d", lease.Fence(), leader.Fence())
		}
		want(t, "the old leader", leader.Extend(t.Context()), ErrLost)
	})
}

func TestLeadReturns(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		l := locker(t, db, Options{})
		boom := errors.New("boom")
		for _, outcome := range []error{boom, nil} {
			e, err := l.NewElector("leader", Election{Lead: func(context.Context, *Lease) error { return outcome }})
			must(t, err)
			if err := e.Run(t.Context()); !errors.Is(err, outcome) {
				t.Errorf("Run returns %v", err)
			}
			if got := state(t, l, "leader"); got.State != Free {
				t.Errorf("then it is %s", got.State)
			}
		}
		_, err := l.NewElector("leader", Election{})
		want(t, "without Lead", err, ErrInvalid)
		_, err = l.Leader(t.Context(), "leader")
		want(t, "nobody leads", err, ErrNotFound)
	})
}

// The callbacks of an election may panic: Run returns Lead's panic as an error and somebody else can lead,
// and Follow's is logged. See the test of this name in package queue.
func TestUsersCodePanics(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		a, b := locker(t, db, Options{}), locker(t, db, Options{})
		e, err := a.NewElector("leader", Election{Lead: func(context.Context, *Lease) error { panic("oh, Lead") }})
		must(t, err)
		if err := e.Run(t.Context()); err == nil || err.Error() != "panic: oh, Lead" {
			t.Errorf("it ended with %v", err)
		}
		held, err := a.Acquire(t.Context(), "leader")
		must(t, err)
		led := make(chan struct{})
		e, err = b.NewElector("leader", Election{
			Lead:   func(context.Context, *Lease) error { close(led); return nil },
			Follow: func(*HeldError) { go held.Release(context.WithoutCancel(t.Context())); panic("oh, Follow") }, //nolint:errcheck // it is free in any case
		})
		must(t, err)
		must(t, e.Run(t.Context()))
		<-led
	})
}

// sessions is for having.
func sessions(d *sqlrun.Dialect) bool { return d.Session != nil }
