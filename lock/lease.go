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
	"github.com/dbcron/dbcron/internal/pace"
	"github.com/dbcron/dbcron/internal/sqlrun"
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

// holdKey is the context key of the leases from which a context derives.
type holdKey struct{}

type hold struct {
	lease *Lease
	outer *hold
}

func (le *Lease) grantArgs(as turn) sqlrun.Args {
	inTurn := 0
	if as.inTurn {
		inTurn = 1
	}
	return sqlrun.Args{
		"name": le.name, "owner": le.owner, "ttl": le.opt.TTL.Microseconds(), "meta": le.opt.Meta,
		"session": "", "me": as.me, "inturn": inTurn,
	}
}

func (le *Lease) args() sqlrun.Args {
	return sqlrun.Args{"name": le.name, "slot": le.slot, "owner": le.owner, "fence": le.fence}
}

// begin starts the timers of a lease that was granted to a request sent at the
// given moment, unless its deadline has passed.
func (le *Lease) begin(sent instant.Mark) error {
	le.sent, le.begun, le.progressed = sent, sent.At, sent.At
	le.mu.Lock()
	wait, end := le.verdict()
	if end == nil {
		le.watcher = time.AfterFunc(wait, le.watch)
		if le.opt.Heartbeat > 0 {
			// Its time has run since the request: after a late answer it is renewed at once.
			le.keeper = time.AfterFunc(max(0, sent.At.Add(le.opt.Heartbeat).Sub(instant.Now())), le.keep)
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

// Slot returns the number of the pool's slot, from 1 on, or 0 for a lock.
func (le *Lease) Slot() int { return le.slot }

// Owner returns the holder's name as the table has it.
func (le *Lease) Owner() string { return le.owner }

// Fence returns a number greater than that of every earlier lease of this lock,
// or of this slot of a pool. Pass it along with each effect of the work, so that
// the receiver can refuse any number below the highest it has seen. For
// transactions in the same database see Guard.
func (le *Lease) Fence() int64 { return le.fence }

// Context returns a context that ends when the lease is released, or lost, and
// then before anybody else can have the lock. Its cause is an ErrReleased or an
// ErrLost. It has the values of the context passed to the acquisition, but
// outlives that context.
func (le *Lease) Context() context.Context { return le.ctx }

// Bind returns a context that ends when ctx or the lease does, whichever is
// first, with the cause of that one. Call stop when the work is done.
func (le *Lease) Bind(ctx context.Context) (work context.Context, stop context.CancelFunc) {
	outer, _ := ctx.Value(holdKey{}).(*hold)
	work, cancel := context.WithCancelCause(context.WithValue(ctx, holdKey{}, &hold{le, outer}))
	unhook := context.AfterFunc(le.ctx, func() { cancel(context.Cause(le.ctx)) })
	return work, func() {
		unhook()
		cancel(context.Canceled)
	}
}

// Left returns the time until the lease's context ends unless the lease is
// renewed, or zero if it has ended.
func (le *Lease) Left() time.Duration {
	le.mu.Lock()
	defer le.mu.Unlock()
	if le.end != nil {
		return 0
	}
	return max(0, le.deadline().Sub(instant.Now()))
}

// Check returns nil while the lease is held, and otherwise the reason why it is
// not. It reads this host's clock and sends no query, so it costs next to
// nothing. Call it right before an effect that cannot be fenced.
func (le *Lease) Check() error {
	le.mu.Lock()
	_, end := le.verdict()
	le.mu.Unlock()
	if end != nil {
		le.finish(end)
	}
	return end
}

// Progress reports that the work makes progress, for leases with Options.Stall.
func (le *Lease) Progress() {
	le.mu.Lock()
	defer le.mu.Unlock()
	le.progressed = instant.Now()
}

// Extend renews the lease for its full TTL. It returns an ErrLost or an
// ErrReleased if the lease is over. Any other error, such as that of a cut
// connection, leaves the lease's deadline as it was.
func (le *Lease) Extend(ctx context.Context) error {
	if err := le.Check(); err != nil {
		return err
	}
	sent := instant.MarkNow(le.ctx)
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

// SetMeta changes the holder's description of itself, which others can see. It
// returns an ErrLost or an ErrReleased if the lease is over.
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

// Guard returns nil only if the lease is current and no later holder has
// guarded a transaction. tx is a *sql.Tx or another handle inside a transaction
// on the same database. Call Guard first in the transaction, before the reads
// that its writes depend on. Commit only if it returns nil; roll back after
// ErrLost.
//
// Guarded transactions of one lock, or of one slot of a pool, run one after the
// other, in the order of their fences. They do not block the lock's own row: the
// lease can be renewed, and can end, while its transaction goes on. If it ends,
// the next holder's guarded transaction waits until this one has ended, and
// sees its writes.
//
// At REPEATABLE READ and above, PostgreSQL reports a conflict between two
// guarded transactions as a serialization failure (40001): run the transaction
// again.
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
		// This read comes second, so that its snapshot is taken after the wait.
		if err := s.Get(ctx, current, le.args(), &held); err != nil {
			return fmt.Errorf("guard by lock %s: %w", le.name, err)
		}
	}
	if held == 0 {
		return le.lose()
	}
	return nil
}

// Release frees the lock, or leaves it taken until Options.MinHold is over. It
// returns an ErrLost if the lease had been lost: the work may have overlapped
// with the next holder's. A second Release returns an ErrReleased.
//
// Release also works after ctx has ended: then it takes at most five seconds
// more. While the database cannot be reached, it retries until ctx ends or the
// lease has expired.
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

// free repeats the release until it is answered.
func (le *Lease) free(ctx context.Context, left time.Duration, keeping bool) (freed bool, err error) {
	expiry := instant.Now().Add(left)
	repeated := false
	for wait := 20 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		freed, err = le.freeOnce(ctx, keeping)
		if err == nil && !freed && (repeated || instant.Now() >= expiry) {
			// An earlier request, whose answer was lost, has freed the lock, or the
			// lease has expired after the work was over, unless somebody ended it
			// by force.
			freed, err = le.notForced(ctx)
		}
		if err == nil || errors.Is(err, errUnclear) || instant.Now().Add(wait) >= expiry {
			return freed, err // after other errors, the lease expires
		}
		repeated = true
		if !pace.Sleep(ctx, wait) {
			return false, errors.Join(context.Cause(ctx), err)
		}
	}
}

// occupies reports whether this process's waiters need not ask for the lock: it
// is held, or its release is under way, which will wake them.
func (le *Lease) occupies() bool {
	le.mu.Lock()
	released := le.released
	le.mu.Unlock()
	return released || le.Check() == nil
}

// errUnclear is an ErrLost, since the caller must assume the worse.
var errUnclear = fmt.Errorf("%w, or released: the answer was lost, and a later lease was ended by force", ErrLost)

// notForced reports whether the lease ended without force.
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
		freed, next, err = le.l.releasing(ctx, args)
	}
	if err == nil {
		le.l.freed(le, next)
	}
	return freed, err
}

// lingering returns a context that outlives ctx until grace has passed since
// this call.
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
