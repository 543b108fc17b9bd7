// Package lock lets one process at a time, or N of them, do a piece of work. It
// keeps leases in a table of the database that the processes already share.
//
// # Guarantees
//
// A lock is a row with an expiry time. Acquiring it returns a [Lease], which is
// renewed in the background. If the holder dies, the lease expires and the next
// waiter gets the lock.
//
//   - At any moment of the database's clock at most one lease of a lock is
//     valid, and at most N leases of a pool of N slots. The hosts' clocks and
//     time zones do not matter. Each lease has its holder's TTL, so processes
//     with different TTLs can share a lock.
//   - [Lease.Fence] rises with each acquisition of a lock and never falls.
//   - The context of a lease ends [Options].Margin before the lease can expire,
//     with a cause that is an [ErrLost]. Its deadline counts from before the
//     request was sent, on a clock that also runs while the host is suspended.
//   - A renewal succeeds only if owner and fence match and the lease has not
//     expired. A lost lease stays lost.
//   - [Lease.Release] frees the lock if the caller still holds it, and returns
//     ErrLost otherwise.
//   - A lost answer is never taken for success: an acquisition that may have
//     happened is released, a renewal counts as failed, and a release is
//     repeated until the lease has ended.
//   - A refused attempt writes nothing.
//
// # Limits
//
// No lease can promise that it is still valid when the work takes effect. A
// process can be stopped between any two instructions for longer than its lease
// lasts, and it notices that its context has ended only after it continues.
// Therefore distinguish two kinds of work:
//
//   - Fenced work is always safe. [Lease.Guard], called first in a transaction,
//     refuses the transaction if a later holder's has passed, and orders the
//     transactions of one lock by their fences. Other stores can do the same
//     with the number that Fence returns: refuse any number below the highest
//     seen so far.
//   - Unfenced work (an e-mail, a file, a command) does not overlap with the
//     next holder's as long as it ends within Margin after its context does,
//     its process and host keep running, the database keeps what it has
//     committed, and nobody sets the database's clock forward by more than a
//     lease.
//
// Like any other row, a lock's row can be lost in a failover to a standby that
// has not received the last commits.
package lock

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/pace"
	"github.com/dbcron/dbcron/internal/sqlrun"
)

// A Locker takes locks in one database. It is safe for concurrent use.
type Locker struct {
	db  *dialect.DB
	opt Options
	*waiting
}

// New returns a Locker. It does not touch the database. Use one per program:
// waiters of the same Locker form a queue, of which only the first asks the
// database.
func New(db *dialect.DB, opt Options) (*Locker, error) {
	opt, err := opt.filled()
	if err == nil && db == nil {
		err = fmt.Errorf("%w: there is no database; look at the error of sqlrun.Open or Wrap", ErrInvalid)
	}
	if err != nil {
		return nil, err
	}
	return &Locker{db: db, opt: opt, waiting: newWaiting(db)}, nil
}

// With returns a Locker with other options that shares the queues of waiters
// with l.
func (l *Locker) With(opt Options) (*Locker, error) {
	opt, err := opt.filled()
	if err != nil {
		return nil, err
	}
	return &Locker{db: l.db, opt: opt, waiting: l.waiting}, nil
}

// TryAcquire takes the lock called name if it is free. Otherwise it returns a
// *HeldError, which is an ErrHeld, without waiting. Names have 1 to 200
// characters of UTF-8 and are compared by bytes.
//
// The lease outlives ctx, which bounds only the request.
func (l *Locker) TryAcquire(ctx context.Context, name string) (*Lease, error) {
	s := &single{l, name}
	if err := l.check(ctx, name); err != nil {
		return nil, err
	}
	return l.try(ctx, s, outOfTurn)
}

// Acquire takes the lock called name. If it is held, Acquire waits until ctx
// ends, or for as long as Options.Tries allows, and then returns an ErrHeld,
// joined with the context's cause if ctx has ended. It also waits while the
// database cannot be reached.
//
// Waiters of one process get the lock first come, first served. On PostgreSQL
// processes keep their places in a queue, too: nobody who waits is passed over by
// one who came later, unless it does not come within 50 ms when it is its turn.
// TryAcquire does not wait, and takes a lock that is free. On other engines the
// order of processes is random.
func (l *Locker) Acquire(ctx context.Context, name string) (*Lease, error) {
	return l.acquire(ctx, &single{l, name})
}

// Do acquires the lock called name, runs f, and releases the lock, even if f
// panics: the panic goes on in the caller. The context of f ends when ctx or the lease does, whichever is first;
// context.Cause tells which.
//
// Do returns the error of f, joined with ErrLost if the lease was lost before f
// returned: another holder may have begun by then. Within f, a Do of the same
// name with a context derived from f's returns ErrHeldByCaller at once.
func (l *Locker) Do(ctx context.Context, name string, f func(ctx context.Context, lease *Lease) error) error {
	return l.do(ctx, &single{l, name}, f)
}

func (l *Locker) do(ctx context.Context, s seat, f func(context.Context, *Lease) error) (err error) {
	lease, err := l.acquire(ctx, s)
	if err != nil {
		return err
	}
	defer func() {
		if lost := lease.Release(ctx); !errors.Is(lost, ErrReleased) {
			err = errors.Join(err, lost)
		}
	}()
	work, stop := lease.Bind(ctx)
	defer stop()
	return f(work, lease)
}

// check refuses invalid names and nested acquisitions before any query.
func (l *Locker) check(ctx context.Context, name string) error {
	if err := sqlrun.CheckName(name); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	for h, _ := ctx.Value(holdKey{}).(*hold); h != nil; h = h.outer {
		if h.lease.name == name && h.lease.l.same(l.waiting) && h.lease.Check() == nil {
			return fmt.Errorf("%w: %s: release it first, or pass a context that does not come from its holder", ErrHeldByCaller, name)
		}
	}
	return nil
}

// A turn says how somebody who asks for a lock regards the queue in its row.
type turn struct {
	me     string // who asks, for the queue; "": somebody who does not wait
	inTurn bool   // only if nobody else is before it there
	alone  bool   // with a statement that waits for the row
}

// outOfTurn is the turn of those who do not wait.
var outOfTurn turn

// errNotYet means that a lock is free, and left to somebody else in its queue.
var errNotYet = errors.New("lock: it is another waiter's turn")

// A seat can be taken: a lock, or a slot of a pool.
type seat interface {
	key() string
	// grant makes one attempt with the given arguments. A refusal is no error:
	// found is false. Unless it is alone it may be refused since another
	// transaction has locked the row for a moment.
	grant(ctx context.Context, args sqlrun.Args, alone bool) (slot int, fence int64, found bool, err error)
	// holder returns the current holder, or nil if the seat is free by now. It
	// creates the rows if there are none.
	holder(ctx context.Context) (*HeldError, error)
}

// A single is a lock as a seat.
type single struct {
	l    *Locker
	name string
}

func (s *single) key() string { return s.name }

func (s *single) grant(ctx context.Context, args sqlrun.Args, alone bool) (slot int, fence int64, found bool, err error) {
	if !alone {
		w := &wish{args: args, shared: sharing{
			ttl: args["ttl"].(int64), meta: args["meta"].(string), session: args["session"].(string),
			me: args["me"].(string), inTurn: args["inturn"].(int),
		}}
		done, err := s.l.crowd.ask(ctx, w)
		defer done()
		switch {
		case err == nil:
			return 0, w.fence, w.found, nil
		case !errors.Is(err, errAlone):
			return 0, 0, false, err
		}
	}
	fence, found, err = s.l.db.Next(ctx, take, args)
	return 0, fence, found, err
}

func (s *single) holder(ctx context.Context) (*HeldError, error) {
	rows, err := s.l.look(ctx, s.name)
	if err != nil {
		return nil, err
	}
	if len(rows) == 0 {
		return nil, s.l.create(ctx, s.name, "FREE")
	}
	if rows[0].State == Head {
		return nil, fmt.Errorf("%w: %s is a pool; take one of its slots", ErrPool, s.name)
	}
	return heldBy(&rows[0]), nil
}

// try makes one attempt, and repeats it only if it was refused and the seat
// turns out to be free.
//
// In turn, a lock that is free and was refused is an errNotYet.
//
// A transaction may keep the row of a free slot locked, so that grant skips it
// each time. After 25 rounds try reports the pool as held.
func (l *Locker) try(ctx context.Context, s seat, as turn) (*Lease, error) {
	for round := 0; ; round++ {
		lease, err := l.attempt(ctx, s, as)
		if lease != nil || err != nil {
			return lease, err
		}
		held, err := s.holder(ctx)
		if err != nil {
			return nil, err
		}
		if held != nil {
			return nil, held
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if as.inTurn {
			return nil, errNotYet
		}
		as.alone = true
		if _, isPool := s.(*Pool); !isPool || round < 2 {
			continue
		}
		if round > 25 {
			return nil, &HeldError{Name: s.key()}
		}
		if !pace.Sleep(ctx, jittered(time.Millisecond<<min(round, 6))) {
			return nil, context.Cause(ctx)
		}
	}
}

// attempt asks for a lease once and returns nil if it is refused. It abandons a
// lease that may have been granted, or whose grant arrived after its deadline.
func (l *Locker) attempt(ctx context.Context, s seat, as turn) (*Lease, error) {
	le := newLease(ctx, l, s.key())
	bounded, cancel := context.WithTimeout(ctx, l.opt.TTL*2/3)
	defer cancel()
	sent := instant.MarkNow(ctx)
	slot, fence, found, err := s.grant(bounded, le.grantArgs(as), as.alone)
	if err != nil {
		if l.unknown(err) {
			l.abandon(le.name, le.owner)
		}
		return nil, fmt.Errorf("lock %s: %w", le.name, err)
	}
	if !found {
		return nil, nil //nolint:nilnil // refused, which is no error
	}
	return l.begin(le, sent, slot, fence)
}

func (l *Locker) begin(le *Lease, sent instant.Mark, slot int, fence int64) (*Lease, error) {
	le.slot, le.fence = slot, fence
	if err := le.begin(sent); err != nil {
		l.abandon(le.name, le.owner)
		return nil, fmt.Errorf("%w: the answer came after the lease was over", err)
	}
	return le, nil
}

// unknown reports whether the statement may have taken effect despite err.
func (l *Locker) unknown(err error) bool { return unknown(l.db, err) }

func unknown(db *dialect.DB, err error) bool {
	return db.Dialect.Unreachable(err) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// passing reports whether err is temporary: no answer, a lock on the row or the
// file that is held for long, or a grant that came too late.
func (l *Locker) passing(err error) bool {
	return l.unknown(err) || l.db.Dialect.Retryable(err) || errors.Is(err, ErrLost)
}

// abandon frees what an acquisition with a lost answer may have got: now if
// possible, otherwise in the background while the lease lasts. It looks once
// more for a request that the server had not processed yet. Whatever is granted
// after that expires by itself.
func (l *Locker) abandon(name, owner string) {
	end := instant.Now().Add(l.opt.TTL)
	free := func() (freed bool, err error) {
		ctx, cancel := context.WithTimeout(context.Background(), min(time.Second, l.opt.TTL/2))
		defer cancel()
		n, err := l.db.Exec(ctx, abandon, sqlrun.Args{"name": name, "owner": owner})
		if n > 0 {
			l.ring(name)
		}
		return n > 0, err
	}
	freed, err := free()
	if freed {
		return
	}
	l.leftovers.Go(func() {
		for wait := 100 * time.Millisecond; instant.Now() < end; wait = min(2*wait, time.Second) {
			answered := err == nil
			<-time.After(wait)
			if freed, err = free(); freed || answered && err == nil {
				return
			}
		}
	})
}

// create inserts the rows of a lock that nobody has used before.
func (l *Locker) create(ctx context.Context, name, state string) error {
	return l.db.ShortTx(ctx, func(ctx context.Context, tx *sqlrun.Session) error {
		return createRows(ctx, tx, sqlrun.Args{"name": name, "slot": 0, "state": state})
	})
}

// createRows inserts rows whose fences are not below that of any purged row.
func createRows(ctx context.Context, tx *sqlrun.Session, rows ...sqlrun.Args) error {
	var fence int64
	if err := tx.Get(ctx, floor, nil, &fence); err != nil {
		return err
	}
	for _, row := range rows {
		row["fence"] = fence
	}
	if _, err := tx.Exec(ctx, create, sqlrun.Args{"rows": rows}); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, createFence, sqlrun.Args{"rows": rows})
	return err
}

// newOwner returns a name unique to one acquisition.
func (l *Locker) newOwner() string { return l.opt.Owner + ":" + strings.ToLower(rand.Text()[:16]) }
