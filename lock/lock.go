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
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/internal/barrier"
	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/pace"
	"github.com/dbcron/dbcron/internal/sqlrun"
)

// Options adjusts the leases of a Locker. The zero value is ready to use.
type Options struct {
	// Owner is the readable part of the holder's name; a random part is added
	// for each acquisition. Default: host:pid. At most 100 bytes.
	Owner string

	TTL    time.Duration // lifetime of a lease that is not renewed; default: 30s, at least 500ms
	Margin time.Duration // the context ends this long before the lease; default: TTL/10; from TTL/50 to TTL/2

	// Heartbeat is the interval between renewals in the background; default: a
	// third of TTL. If it is negative, only Extend renews the lease.
	Heartbeat time.Duration

	Stall   time.Duration // the lease is lost after this time without a call of Progress; default: no limit
	MaxHold time.Duration // the lease is lost after this time in any case; default: no limit
	MinHold time.Duration // a lock released before this time stays taken until then; at most a year

	// Acquire and Do give up after Tries × Every, with an ErrHeld. By default they
	// wait until their context ends. Every alone sets the polling interval, which
	// matters little where the database can notify. Default: adapted.
	Tries int
	Every time.Duration

	Meta   string       // the holder's description of itself, at most 10 000 bytes; visible to others, so no secrets
	Logger *slog.Logger // reports failed renewals; default: slog.Default
}

const (
	minTTL = 500 * time.Millisecond
	year   = 365 * 24 * time.Hour
)

// filled returns the options with the defaults filled in, or what is wrong.
func (o Options) filled() (Options, error) {
	if o.Owner == "" {
		host, err := os.Hostname()
		if err != nil {
			host = "localhost"
		}
		o.Owner = fmt.Sprintf("%s:%d", host, os.Getpid())
	}
	o.TTL = cmp.Or(o.TTL, 30*time.Second)
	o.Margin = cmp.Or(o.Margin, o.TTL/10)
	o.Heartbeat = cmp.Or(o.Heartbeat, o.TTL/3)
	if o.Tries > 0 {
		o.Every = cmp.Or(o.Every, time.Second)
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	o.Logger = barrier.Logger(o.Logger)
	if wrong := cmp.Or(o.wrongTexts(), o.wrongLease(), o.wrongWait()); wrong != "" {
		return o, fmt.Errorf("%w: %s", ErrInvalid, wrong)
	}
	return o, nil
}

// wrongTexts says what is wrong with the texts of filled options, or "".
func (o *Options) wrongTexts() string {
	switch {
	case len(o.Owner) > 100:
		return "Owner is longer than 100 bytes"
	case !plain(o.Owner):
		return "Owner is not plain text"
	case len(o.Meta) > 10_000 || !utf8.ValidString(o.Meta) || strings.ContainsRune(o.Meta, 0):
		return "Meta must be UTF-8 without NUL, of 10 000 bytes at the most"
	}
	return ""
}

// wrongLease says what is wrong with how long leases last, or "".
func (o *Options) wrongLease() string {
	switch {
	case o.TTL < minTTL:
		return fmt.Sprintf("a TTL of %v could not be renewed in time; use %v or more", o.TTL, minTTL)
	case o.TTL > year || o.MinHold > year:
		return "TTL and MinHold are a year at the most"
	case o.Margin < o.TTL/50 || o.Margin > o.TTL/2:
		return fmt.Sprintf("Margin is %v; it must be from a fiftieth of TTL to half of it", o.Margin)
	case o.Heartbeat > (o.TTL-o.Margin)*2/3:
		return fmt.Sprintf("a Heartbeat of %v leaves no time for a second try before a lease of %v ends", o.Heartbeat, o.TTL)
	case o.Heartbeat >= 0 && o.Heartbeat < 50*time.Millisecond:
		return "a Heartbeat of less than 50ms would only load the database"
	case o.Stall < 0 || o.MaxHold < 0 || o.MinHold < 0:
		return "Stall, MaxHold and MinHold cannot be negative"
	}
	return ""
}

// wrongWait says what is wrong with how long to wait, or "".
func (o *Options) wrongWait() string {
	switch {
	case o.Tries < 0 || o.Every < 0:
		return "Tries and Every cannot be negative"
	case o.Tries > 1_000_000 || o.Tries > 0 && o.Every > year/time.Duration(o.Tries):
		return "Tries × Every is a year at the most, and Tries a million"
	case o.Every > 0 && o.Every < time.Millisecond:
		return "Every is 1ms at least"
	}
	return ""
}

func plain(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
}

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
	rows, err := s.l.peek(ctx, s.name)
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
