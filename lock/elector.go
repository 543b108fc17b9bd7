package lock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dbcron/dbcron/internal/barrier"
	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/pace"
	"github.com/dbcron/dbcron/internal/sqlrun"
)

// An Election has the callbacks of an Elector. Only Lead is required.
type Election struct {
	// Lead is called when this process becomes the leader, and leads until its
	// context ends, which happens before another process can lead. The lease's
	// fence is the term: it rises with each leader. If Lead returns before its
	// context has ended, the leader resigns, and Run returns Lead's error. A
	// panic is an error.
	Lead func(ctx context.Context, lease *Lease) error

	// Follow is called once for each term in which this process sees another
	// lead.
	Follow func(leader *HeldError)
}

// An Elector takes part in the election of a leader. Of all processes that run
// an Elector of the same name, one leads at a time.
//
// Leadership is a lease. Where the engine has session locks, the leader also
// holds one of these. When it dies, the server frees the session lock at once,
// and the standby that gets it takes over the lease after 750ms, without waiting
// for its end. A leader that is alive steps down before that: when the server
// has ended its session, or when the last answer on it is 600ms old. Without
// session locks, or when a leader hangs with its connections open, a standby
// waits until the lease has expired. As with every lease, the leader's effects
// are safe in all cases only if they are fenced, by the term.
type Elector struct {
	l    *Locker
	name string
	e    Election

	followed  int64           // the last term for which Follow was called
	freeSince instant.Instant // since when nobody has led while another process held the session lock; 0: not so
	noSession bool            // there are no session locks, which has been logged
}

const (
	campaignEvery = 100 * time.Millisecond // between attempts to get the session lock
	usurpAfter    = 750 * time.Millisecond // longer than trust, after which the old leader has stepped down
)

// NewElector returns an Elector whose leadership is the lock called name.
func (l *Locker) NewElector(name string, e Election) (*Elector, error) {
	if err := l.check(context.Background(), name); err != nil {
		return nil, err
	}
	if e.Lead == nil {
		return nil, fmt.Errorf("%w: an election for %s without Lead", ErrInvalid, name)
	}
	return &Elector{l: l, name: name, e: e}, nil
}

// Leader returns the current leader's name and term, or ErrNotFound.
func (l *Locker) Leader(ctx context.Context, name string) (*HeldError, error) {
	rows, err := l.Get(ctx, name)
	if err != nil {
		return nil, err
	}
	if leader := heldBy(&rows[0]); leader != nil {
		return leader, nil
	}
	return nil, fmt.Errorf("%w: nobody leads %s", ErrNotFound, name)
}

// Run stands for election, leads when elected, and stands again when it loses
// leadership. When ctx ends it resigns, so that another can lead at once, and
// returns nil. It also returns when Lead does, with its error, and after an
// error that waiting cannot mend. While the database cannot be reached, it
// waits. Calls of Run must not overlap.
func (e *Elector) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		lease, session, err := e.campaign(ctx)
		if err != nil {
			return err
		}
		if lease == nil {
			return nil // ctx has ended
		}
		resigned, err := e.lead(ctx, lease, session)
		if resigned || err != nil {
			return err
		}
	}
	return nil
}

// campaign returns when this process is elected or ctx has ended. The session is
// nil if the process leads by its lease alone.
func (e *Elector) campaign(ctx context.Context) (*Lease, *Session, error) {
	var session *Session
	var begun instant.Instant // of the session
	elected := false
	defer func() {
		if session != nil && !elected {
			_ = session.Release()
		}
	}()
	for ctx.Err() == nil {
		if session != nil && session.Check() != nil {
			_ = session.Release()
			session = nil
		}
		if session == nil {
			var err error
			session, err = e.session(ctx)
			if err != nil {
				return nil, nil, err
			}
			begun = instant.Now()
		}
		lease, err := e.stand(ctx, session, begun)
		if lease != nil {
			elected = true
			return lease, session, nil
		}
		if err != nil {
			return nil, nil, err
		}
		wait := jittered(campaignEvery)
		if left := begun.Add(usurpAfter).Sub(instant.Now()); session != nil && left > 0 {
			wait = min(wait, left)
		}
		pace.Sleep(ctx, wait)
	}
	return nil, nil, nil
}

// session tries to get the session lock. It returns nil if another process has
// it or there are none.
func (e *Elector) session(ctx context.Context) (*Session, error) {
	s, err := e.l.TrySession(ctx, e.name)
	switch {
	case errors.Is(err, ErrHeld):
		e.noSession = false
		return nil, nil //nolint:nilnil // no session, which is no error
	case errors.Is(err, ErrNoSessions):
		if !e.noSession {
			e.noSession = true
			e.l.opt.Logger.Info("electing a leader by leases alone", "lock", e.name, "why", err)
		}
		return nil, nil //nolint:nilnil // the same
	case err != nil && (e.l.passing(err) || ctx.Err() != nil):
		e.l.opt.Logger.Warn("standing for election while the database cannot be reached", "lock", e.name, "err", err)
		return nil, nil //nolint:nilnil // the same
	}
	return s, err
}

// stand tries to become the leader, once.
func (e *Elector) stand(ctx context.Context, session *Session, begun instant.Instant) (*Lease, error) {
	lease, err := e.elect(ctx, session)
	var leader *HeldError
	if errors.As(err, &leader) {
		err = nil
		if e.followed != leader.Fence && e.e.Follow != nil {
			e.followed = leader.Fence
			barrier.Tell(e.l.opt.Logger, "Follow", func() { e.e.Follow(leader) })
		}
		if session != nil && leader.session && instant.Now().Sub(begun) >= usurpAfter && session.Check() == nil {
			lease, err = e.take(ctx, session, leader)
			if errors.Is(err, ErrHeld) {
				err = nil
			}
		}
	}
	if err != nil && (e.l.passing(err) || ctx.Err() != nil) {
		e.l.opt.Logger.Warn("standing for election while the database cannot be reached", "lock", e.name, "err", err)
		err = nil
	}
	return lease, err
}

// elect takes the lease if it is available to this process. A process without
// the session lock leaves a free lease to the one that has it, for one TTL. It
// does not wait for a leader whose lease has expired: that one hangs or is cut
// off, and the server may keep its session for hours.
func (e *Elector) elect(ctx context.Context, session *Session) (*Lease, error) {
	if session != nil || e.noSession {
		return e.take(ctx, session, nil)
	}
	rows, err := e.l.look(ctx, e.name)
	if err != nil {
		return nil, err
	}
	if len(rows) > 0 && rows[0].State != Free && rows[0].State != Expired {
		e.freeSince = 0
		if held := heldBy(&rows[0]); held != nil {
			return nil, held
		}
		return e.take(ctx, nil, nil) // as a contender, to learn what is wrong
	}
	now := instant.Now()
	if e.freeSince == 0 {
		e.freeSince = now
	}
	expired := len(rows) > 0 && rows[0].State == Expired
	if !expired && now.Sub(e.freeSince) < e.l.opt.TTL {
		return nil, nil //nolint:nilnil // not yet
	}
	return e.take(ctx, nil, nil)
}

// take tries to get the lease: as any contender, or from the given leader, whose
// session lock this process holds by now.
func (e *Elector) take(ctx context.Context, session *Session, from *HeldError) (*Lease, error) {
	return e.l.try(ctx, &seatOfLeader{single{e.l, e.name}, session, from}, outOfTurn)
}

// A seatOfLeader is a lock whose row records that its holder also has a session lock.
type seatOfLeader struct {
	single
	session *Session
	from    *HeldError
}

func (s *seatOfLeader) grant(ctx context.Context, args sqlrun.Args, alone bool) (slot int, fence int64, found bool, err error) {
	if s.session != nil {
		args["session"] = "held"
	}
	if s.from == nil {
		return s.single.grant(ctx, args, alone)
	}
	args["seen"], args["seen_fence"] = s.from.By, s.from.Fence
	fence, found, err = s.l.db.Next(ctx, usurp, args)
	if err == nil && !found { // it has become free meanwhile, or has another leader
		return s.single.grant(ctx, args, alone)
	}
	return 0, fence, found, err
}

// lead calls Lead. Leadership ends with the lease, with the session if there is
// one, and with ctx.
func (e *Elector) lead(ctx context.Context, lease *Lease, session *Session) (resigned bool, err error) {
	e.freeSince = 0
	work, stop := lease.Bind(ctx)
	defer stop()
	if session != nil {
		defer session.Release() //nolint:errcheck // the lease says how it ended
		defer context.AfterFunc(session.ctx, func() {
			lease.finish(fmt.Errorf("%w: leadership of %s: %w", ErrLost, e.name, context.Cause(session.ctx)))
		})()
	}
	defer func() {
		if lost := lease.Release(ctx); lost != nil && !errors.Is(lost, ErrReleased) {
			e.l.opt.Logger.Warn("no longer the leader", "lock", e.name, "term", lease.fence, "why", lost)
		}
	}()
	stack, err := barrier.Call(func() error { return e.e.Lead(work, lease) })
	if stack != "" {
		e.l.opt.Logger.Error("the leader has panicked", "lock", e.name, "term", lease.fence, "err", err, "stack", stack)
	}
	if work.Err() != nil {
		return false, nil // it was asked to end: whatever Lead returns is not an error
	}
	return true, err
}
