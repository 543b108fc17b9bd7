package lock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/dbcron/dbcron/dialect"
)

// ErrNoSessions means that session locks are not to be had: the engine has
// none, or they would be granted and protect nothing. The text says why.
var ErrNoSessions = dialect.ErrNoSessions

const (
	probeEvery = 200 * time.Millisecond
	probeLimit = 2 * time.Second // an answer that takes longer is none
)

// A Session is a lock that a connection to the database holds: it is free the
// moment the server sees that connection end, so the next one need not wait for
// a lease to run out. It has no fence, and a process that is cut off may not
// know for a while that it has lost it: it is good for being fast, and a Lease
// for being safe. An Elector uses both.
type Session struct {
	name   string
	ctx    context.Context
	cancel context.CancelCauseFunc
	done   chan struct{} // the prober is gone

	mu       sync.Mutex
	lock     *dialect.SessionLock
	released bool
}

// TrySession takes the session lock called name, which has nothing to do with
// the lease of that name. It returns an error that is ErrHeld if another has it,
// and ErrNoSessions on SQLite, behind a connection pooler, on a standby and in a
// Galera cluster. It keeps a connection of the pool until it is released.
//
// The connection is asked five times a second whether it still has the lock.
func (l *Locker) TrySession(ctx context.Context, name string) (*Session, error) {
	if err := l.check(ctx, name); err != nil {
		return nil, err
	}
	held, err := l.db.SessionLock(ctx, "lock "+name)
	if errors.Is(err, dialect.ErrSessionHeld) {
		return nil, fmt.Errorf("%w: session lock %s", ErrHeld, name)
	}
	if err != nil {
		return nil, fmt.Errorf("session lock %s: %w", name, err)
	}
	s := &Session{name: name, lock: held, done: make(chan struct{})}
	s.ctx, s.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	go s.probe()
	return s, nil
}

// Context returns a context that ends when the lock is seen to be lost, or is
// released. Its cause is an ErrLost or ErrReleased.
func (s *Session) Context() context.Context { return s.ctx }

// Check returns nil if the lock was held at the last look.
func (s *Session) Check() error { return context.Cause(s.ctx) }

// Release frees the lock. It returns ErrLost if it had been lost, and
// ErrReleased the second time.
func (s *Session) Release() error {
	s.mu.Lock()
	again := s.released
	s.released = true
	s.mu.Unlock()
	if again {
		return fmt.Errorf("%w: session lock %s", ErrReleased, s.name)
	}
	s.cancel(fmt.Errorf("%w: session lock %s", ErrReleased, s.name))
	<-s.done
	if err := s.Check(); errors.Is(err, ErrLost) {
		return err
	}
	s.lock.Free()
	return nil
}

// probe asks until the lock is lost or released. It alone uses the connection
// meanwhile.
func (s *Session) probe() {
	defer close(s.done)
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-time.After(probeEvery):
		}
		ctx, cancel := context.WithTimeout(context.Background(), probeLimit)
		err := s.lock.Probe(ctx)
		cancel()
		if err != nil {
			s.cancel(fmt.Errorf("%w: session lock %s: %w", ErrLost, s.name, err))
			if errors.Is(s.Check(), ErrLost) { // and not released meanwhile
				s.lock.Drop()
			}
			return
		}
	}
}
