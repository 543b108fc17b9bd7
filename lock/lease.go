package lock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/internal/instant"
)

// A Lease is a lock, or a slot of a pool, that is held. It is safe for
// concurrent use.
type Lease struct {
	l     *Locker
	opt   Options
	name  string
	slot  int
	owner string
	fence int64

	ctx    context.Context
	cancel context.CancelCauseFunc
	done   chan struct{} // closed when released or lost

	mu         sync.Mutex
	watcher    *time.Timer // start watch and keep: most leases are over before
	keeper     *time.Timer
	begun      instant.Instant
	sent       instant.Mark // before the request that gave the lease its present end
	progressed instant.Instant
	end        error // why it is over; nil while it is held
	released   bool
}

// newLease returns a lease that has yet to be granted.
func newLease(ctx context.Context, l *Locker, name string) *Lease {
	le := &Lease{l: l, opt: l.opt, name: name, owner: l.newOwner(), done: make(chan struct{})}
	outer, _ := ctx.Value(holdKey{}).(*hold)
	values := context.WithValue(context.WithoutCancel(ctx), holdKey{}, &hold{le, outer})
	le.ctx, le.cancel = context.WithCancelCause(values)
	return le
}

// holdKey finds in a context the leases that it comes from.
type holdKey struct{}

type hold struct {
	lease *Lease
	outer *hold
}

func (le *Lease) grantArgs() dialect.Args {
	return dialect.Args{
		"name": le.name, "owner": le.owner, "ttl": le.opt.TTL.Microseconds(), "meta": le.opt.Meta,
		"session": "", "me": le.l.me,
	}
}

func (le *Lease) args() dialect.Args {
	return dialect.Args{"name": le.name, "slot": le.slot, "owner": le.owner, "fence": le.fence}
}

// begin starts the keepers of a lease that was granted to a request sent at the
// moment given, unless its time is over already.
func (le *Lease) begin(sent instant.Mark) error {
	le.sent, le.begun, le.progressed = sent, sent.At, sent.At
	le.mu.Lock()
	wait, end := le.verdict()
	if end == nil {
		le.watcher = time.AfterFunc(wait, le.watch)
		if le.opt.Heartbeat > 0 {
			le.keeper = time.AfterFunc(le.opt.Heartbeat, le.keep)
		}
	}
	le.mu.Unlock()
	if end != nil {
		le.finish(end)
	}
	return end
}

// Name returns the lock's name.
func (le *Lease) Name() string { return le.name }

// Slot returns which slot of a pool it is, from 1 on; 0 for a lock.
func (le *Lease) Slot() int { return le.slot }

// Owner returns the holder's name as it stands in the table.
func (le *Lease) Owner() string { return le.owner }

// Fence returns a number that is greater than that of every earlier lease of
// this lock, or of this slot of a pool. Pass it along with each effect of the
// work, so that its receiver can refuse one that is lower than the highest it
// has seen; for transactions in the same database see Guard.
func (le *Lease) Fence() int64 { return le.fence }

// Context returns a context that ends when the lease is lost, before anybody
// else can have it, or when it is released. Its cause is an ErrLost or
// ErrReleased. It has the values of the context that the lease was acquired
// with, and lives longer than that.
func (le *Lease) Context() context.Context { return le.ctx }

// Bind returns a context that ends when ctx does or the lease, whichever is
// first, with that one's cause. Call stop when the work is done.
func (le *Lease) Bind(ctx context.Context) (work context.Context, stop context.CancelFunc) {
	outer, _ := ctx.Value(holdKey{}).(*hold)
	work, cancel := context.WithCancelCause(context.WithValue(ctx, holdKey{}, &hold{le, outer}))
	unhook := context.AfterFunc(le.ctx, func() { cancel(context.Cause(le.ctx)) })
	return work, func() {
		unhook()
		cancel(context.Canceled)
	}
}

// Left returns how long the lease's context still lasts if it is not renewed.
// It is zero when it is over.
func (le *Lease) Left() time.Duration {
	le.mu.Lock()
	defer le.mu.Unlock()
	if le.end != nil {
		return 0
	}
	return max(0, le.deadline().Sub(instant.Now()))
}

// Check returns nil if the lease is held, and why not otherwise. It looks at
// this host's clock and asks nobody, so it costs nothing; call it right before
// an effect that cannot be fenced.
func (le *Lease) Check() error {
	le.mu.Lock()
	_, end := le.verdict()
	le.mu.Unlock()
	if end != nil {
		le.finish(end)
	}
	return end
}

// Progress says that the work goes on, for leases with Options.Stall.
func (le *Lease) Progress() {
	le.mu.Lock()
	defer le.mu.Unlock()
	le.progressed = instant.Now()
}

// Extend gives the lease its full time again. It returns ErrLost if it had been
// lost, and then the lease is over, or ErrReleased. After another error, such as
// a cut connection, the lease has the time that it had.
func (le *Lease) Extend(ctx context.Context) error {
	if err := le.Check(); err != nil {
		return err
	}
	sent := instant.MarkNow()
	args := le.args()
	args["ttl"] = le.opt.TTL.Microseconds()
	n, err := le.l.db.Exec(ctx, extend, args)
	if err != nil {
		return fmt.Errorf("extend lock %s: %w", le.name, err)
	}
	if n == 0 {
		return le.lose()
	}
	le.mu.Lock()
	defer le.mu.Unlock()
	if le.end == nil && sent.At > le.sent.At {
		le.sent = sent
	}
	return le.end
}

// SetMeta changes what the holder says about itself, for others to see. It
// returns ErrLost or ErrReleased if the lease is over.
func (le *Lease) SetMeta(ctx context.Context, meta string) error {
	if len(meta) > 10_000 || !utf8.ValidString(meta) || strings.ContainsRune(meta, 0) {
		return fmt.Errorf("%w: meta must be UTF-8 without NUL, of 10 000 bytes at the most", ErrInvalid)
	}
	if err := le.Check(); err != nil {
		return err
	}
	args := le.args()
	args["meta"] = meta
	n, err := le.l.db.Exec(ctx, describe, args)
	if err == nil && n == 0 {
		err = le.lose()
	}
	return err
}

// Guard lets a transaction of the caller's pass only if no holder after this
// one has had one pass, and if the lease is current. tx is a *sql.Tx, or
// another handle inside a transaction on the same database. Call it first in
// the transaction, before the reads that its writes depend on, and commit only
// if it returns nil; after ErrLost roll back.
//
// Transactions that pass for one lock, or one slot of a pool, come one after the
// other, in the order of their fences. The lock itself is not locked by them: a
// lease can be renewed, and can end, while its transaction goes on. If it ends,
// and the next holder's guarded transaction comes, that one waits for the end
// of this one, and sees what it has done.
//
// At REPEATABLE READ and above, PostgreSQL reports a conflict between two of
// them as a serialization failure (40001): run the transaction again.
func (le *Lease) Guard(ctx context.Context, tx dialect.Execer) error {
	if _, isPool := tx.(*sql.DB); isPool || tx == nil {
		return fmt.Errorf("%w: Guard by lock %s outside of a transaction protects nothing", ErrInvalid, le.name)
	}
	if err := le.Check(); err != nil {
		return err
	}
	s := le.l.db.On(tx)
	n, err := s.Exec(ctx, guard, le.args())
	if err != nil {
		return fmt.Errorf("guard by lock %s: %w", le.name, err)
	}
	var held int
	if n > 0 {
		// Second, so that a snapshot that this makes is one after the wait.
		if err := s.Get(ctx, current, le.args(), &held); err != nil {
			return fmt.Errorf("guard by lock %s: %w", le.name, err)
		}
	}
	if held == 0 {
		return le.lose()
	}
	return nil
}

// Release frees the lock, or keeps it until its minimum hold is over. It returns
// ErrLost if the lease had been lost: the work was not alone then, or may not
// have been. A second Release returns ErrReleased.
//
// It works as well when ctx has ended: then it takes five seconds more at the
// most. While the database cannot be reached, it tries until ctx ends or the
// lease has run out.
func (le *Lease) Release(ctx context.Context) error {
	le.mu.Lock()
	if le.released {
		le.mu.Unlock()
		return fmt.Errorf("%w: %s", ErrReleased, le.name)
	}
	_, lost := le.verdict()
	le.released = true
	left := le.sent.At.Add(le.opt.TTL).Sub(instant.Now())
	kept := le.begun.Add(le.opt.MinHold).Sub(instant.Now())
	le.mu.Unlock()
	le.finish(fmt.Errorf("%w: %s", ErrReleased, le.name))

	ctx, stop := lingering(ctx, 5*time.Second)
	defer stop()
	freed, err := le.free(ctx, left, kept > 0)
	if err != nil {
		le.l.freed(le, "") // as far as anybody here can tell
	}
	switch {
	case lost != nil:
		return lost
	case err != nil:
		return fmt.Errorf("release lock %s: %w", le.name, err)
	case !freed:
		return fmt.Errorf("%w: %s: it expired, or somebody else has released or taken it", ErrLost, le.name)
	}
	return nil
}

// free sends the release until it is answered.
func (le *Lease) free(ctx context.Context, left time.Duration, keeping bool) (freed bool, err error) {
	expiry := instant.Now().Add(left)
	repeated := false
	for wait := 20 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		freed, err = le.freeOnce(ctx, keeping)
		if err == nil && !freed && (repeated || instant.Now() >= expiry) {
			// An earlier request has freed it, whose answer was lost, or it has run out
			// since the work was over: unless somebody has ended it by force.
			freed, err = le.notForced(ctx)
		}
		if err == nil || errors.Is(err, errUnclear) || instant.Now().Add(wait) >= expiry {
			return freed, err // other errors: it runs out
		}
		repeated = true
		select {
		case <-ctx.Done():
			return false, errors.Join(context.Cause(ctx), err)
		case <-time.After(wait):
		}
	}
}

// occupies tells whether those of this process who wait for the lock need not
// ask for it: it is held, or its release is under way, after which they are told.
func (le *Lease) occupies() bool {
	le.mu.Lock()
	released := le.released
	le.mu.Unlock()
	return released || le.Check() == nil
}

// errUnclear is an ErrLost, to be on the safe side.
var errUnclear = fmt.Errorf("%w, or released: the answer was lost, and a later lease was ended by force", ErrLost)

// notForced tells whether the lease was not ended by force.
func (le *Lease) notForced(ctx context.Context) (bool, error) {
	var last int64
	err := le.l.db.Get(ctx, forced, le.args(), &last)
	if err == nil && last > le.fence {
		err = errUnclear
	}
	return err == nil && last < le.fence, err
}

func (le *Lease) freeOnce(ctx context.Context, keeping bool) (freed bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, le.opt.TTL/3)
	defer cancel()
	args, next := le.args(), ""
	if keeping {
		args["min"] = le.opt.MinHold.Microseconds()
		var n int64
		n, err = le.l.db.Exec(ctx, keep, args)
		freed = n > 0
	} else {
		freed, next, err = le.l.notifying(ctx, release, args)
	}
	if err == nil {
		le.l.freed(le, next)
	}
	return freed, err
}

// lingering returns a context that goes on after ctx has ended, until it is
// grace old.
func lingering(ctx context.Context, grace time.Duration) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	from := instant.Now()
	unhook := context.AfterFunc(ctx, func() {
		time.AfterFunc(grace-instant.Now().Sub(from), cancel)
	})
	return longer, func() {
		unhook()
		cancel()
	}
}
