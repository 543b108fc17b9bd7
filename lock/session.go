package lock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/sqlrun"
)

// ErrNoSessions means that session locks are not available: the engine has
// none, or it would grant them without protecting anything. The text says why.
var ErrNoSessions = sqlrun.ErrNoSessions

const (
	probeEvery = 150 * time.Millisecond

	// trust bounds the age of the last answered probe, counted from when it was
	// sent. After that the session counts as lost, since the server may have
	// ended it without this process being told.
	trust = 600 * time.Millisecond
)

// A Session is a lock held by a connection to the database. It is free the
// moment the server sees that connection end, so the next holder need not wait
// for a lease to expire. It has no fence, and a process that is cut off may
// notice its loss late. Use a Session for speed and a Lease for safety; an
// Elector uses both.
type Session struct {
	name   string
	ctx    context.Context
	cancel context.CancelCauseFunc
	done   chan struct{} // the prober is gone

	mu       sync.Mutex
	lock     *sqlrun.SessionLock
	probed   instant.Instant // before the last probe that was answered
	released bool
}

// TrySession takes the session lock called name, which is independent of the
// lease of that name. It returns an ErrHeld if another connection has it, and
// ErrNoSessions on SQLite, behind a connection pooler, on a standby and in a
// Galera cluster. The lock occupies a connection of the pool until it is
// released.
//
// TrySession checks the connection several times a second. When the last answer
// is 600ms old, the lock counts as lost.
func (l *Locker) TrySession(ctx context.Context, name string) (*Session, error) {
	if err := l.check(ctx, name); err != nil {
		return nil, err
	}
	asked := instant.Now()
	held, err := l.db.SessionLock(ctx, "lock "+name)
	if errors.Is(err, sqlrun.ErrSessionHeld) {
		return nil, fmt.Errorf("%w: session lock %s", ErrHeld, name)
	}
	if err != nil {
		return nil, fmt.Errorf("session lock %s: %w", name, err)
	}
	s := &Session{name: name, lock: held, probed: asked, done: make(chan struct{})}
	s.ctx, s.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	go s.probe()
	go s.watch()
	return s, nil
}

// Context returns a context that ends when the lock is released or its loss is
// noticed. Its cause is an ErrReleased or an ErrLost.
func (s *Session) Context() context.Context { return s.ctx }

// Check returns nil if the lock was held at the last check.
func (s *Session) Check() error { return context.Cause(s.ctx) }

// Release frees the lock. It returns an ErrLost if the lock had been lost, and
// an ErrReleased the second time.
func (s *Session) Release() error {
	s.mu.Lock()
	again := s.released
	s.released = true
	s.mu.Unlock()
	if again {
		return fmt.Errorf("%w: session lock %s", ErrReleased, s.name)
	}
	s.cancel(fmt.Errorf("%w: session lock %s", ErrReleased, s.name))
	if err := s.Check(); errors.Is(err, ErrLost) {
		return err // the prober closes the connection
	}
	<-s.done
	s.lock.Free()
	return nil
}

// probe checks the connection until the lock is lost or released. Nothing else
// uses the connection meanwhile.
func (s *Session) probe() {
	defer close(s.done)
	for {
		select {
		case <-s.ctx.Done():
			if errors.Is(s.Check(), ErrLost) {
				s.lock.Drop()
			}
			return
		case <-time.After(probeEvery):
		}
		sent := instant.Now()
		ctx, cancel := context.WithTimeout(context.Background(), trust)
		err := s.lock.Probe(ctx)
		cancel()
		if err != nil {
			s.lose(err)
			continue
		}
		s.mu.Lock()
		s.probed = sent
		s.mu.Unlock()
	}
}

// watch ends the context when the last answer is too old, even if the
// database's driver hangs.
func (s *Session) watch() {
	for {
		s.mu.Lock()
		left := s.probed.Add(trust).Sub(instant.Now())
		s.mu.Unlock()
		if left <= 0 {
			s.lose(fmt.Errorf("no answer for %v", trust))
			return
		}
		select {
		case <-s.ctx.Done():
			return
		case <-time.After(left):
		}
	}
}

// lose ends the context unless it has ended already.
func (s *Session) lose(why error) {
	s.cancel(fmt.Errorf("%w: session lock %s: %w", ErrLost, s.name, why))
}
