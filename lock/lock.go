// Package lock lets one process at a time, or N of them, do a piece of work:
// leases in a table of the database that the processes share anyway.
//
// # What is promised
//
// A lock is a row with an expiry time. Whoever takes it has a [Lease], which is
// renewed in the background. When its holder dies, the time runs out, and the
// next one gets the lock.
//
//   - At any moment of the database's clock at most one lease of a lock is
//     valid, and at most N of a pool of N slots. The clocks of the hosts take
//     no part, nor do their time zones. Each holder's own TTL counts, so
//     processes with different ones can share a lock.
//   - [Lease.Fence] rises with each acquisition of a lock and never falls.
//   - The context of a lease ends before the lease can, by [Options].Margin,
//     with a cause that is an [ErrLost]. It is measured from before the request
//     was sent, on a clock that goes on while the host is suspended.
//   - A lease is renewed only if it is the caller's by owner and fence and has
//     not expired. One that was lost stays lost.
//   - [Lease.Release] frees the lock if it is still the caller's, and says
//     ErrLost if it had been lost.
//   - When an answer is lost, nothing is assumed: an acquisition that may have
//     happened is released, a renewal counts as not made, a release is repeated
//     until the lease has ended.
//   - A try that is refused writes nothing.
//
// # What is not
//
// That the lease is valid when the work's effect takes place. A process can be
// stopped for longer than its lease lasts between any two instructions; a
// context that ends is noticed when it wakes up, not before. So two kinds of
// work have to be told apart:
//
//   - Fenced work is safe always. [Lease.Guard], called first in a transaction,
//     lets it pass only if no later holder's transaction has passed, and puts
//     those of one lock in the order of their fences. Other stores can do the
//     same with the number that Fence returns: refuse one that is lower than
//     the highest seen.
//   - Unfenced work (an e-mail, a file, a command) does not overlap with the
//     next holder's as long as it ends within Margin after its context does,
//     the process and its host are scheduled, and the database keeps what it
//     has committed and its clock is not set forward by more than a lease.
//
// A failover to a standby that has not received the last commits can lose a
// lock's row like any other.
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
	"github.com/dbcron/dbcron/internal/instant"
)

// Options adjusts the leases of a Locker. The zero value is ready to use.
type Options struct {
	// Owner is the readable part of the holder's name; a random part is added
	// for each acquisition. Default: host:pid. At most 100 bytes.
	Owner string

	TTL    time.Duration // how long a lease lasts if it is not renewed; default: 30s, at least 500ms
	Margin time.Duration // how long before that its context ends; default: a tenth of TTL; a fiftieth to half of it

	// Heartbeat is how often a lease is renewed in the background; default: a
	// third of TTL. Negative: never, only by Extend.
	Heartbeat time.Duration

	Stall   time.Duration // a lease is lost if its holder makes no Progress for so long; default: it need not
	MaxHold time.Duration // a lease is lost when it has been held for so long; default: never
	MinHold time.Duration // a lock that is released earlier stays taken until then; at most a year

	// Acquire and Do give up after Tries × Every, with an ErrHeld. Default: they
	// wait until their context ends. Every alone is how often they look; where
	// the database can notify, they rarely need to. Default: adapted.
	Tries int
	Every time.Duration

	Meta   string       // what holders say about themselves, at most 10 000 bytes; shown to others, so no place for secrets
	Logger *slog.Logger // for renewals that fail; default: slog.Default
}

const minTTL = 500 * time.Millisecond

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
	wrong := ""
	switch {
	case len(o.Owner) > 100:
		wrong = "Owner is longer than 100 bytes"
	case !plain(o.Owner):
		wrong = "Owner is not plain text"
	case o.TTL < minTTL:
		wrong = fmt.Sprintf("a TTL of %v could not be renewed in time; use %v or more", o.TTL, minTTL)
	case o.TTL > 365*24*time.Hour || o.MinHold > 365*24*time.Hour:
		wrong = "TTL and MinHold are a year at the most"
	case o.Margin < o.TTL/50 || o.Margin > o.TTL/2:
		wrong = fmt.Sprintf("Margin is %v; it must be from a fiftieth of TTL to half of it", o.Margin)
	case o.Heartbeat > (o.TTL-o.Margin)*2/3:
		wrong = fmt.Sprintf("a Heartbeat of %v leaves no time for a second try before a lease of %v ends", o.Heartbeat, o.TTL)
	case o.Heartbeat >= 0 && o.Heartbeat < 50*time.Millisecond:
		wrong = "a Heartbeat of less than 50ms would only load the database"
	case o.Stall < 0 || o.MaxHold < 0 || o.MinHold < 0 || o.Tries < 0 || o.Every < 0:
		wrong = "Stall, MaxHold, MinHold, Tries and Every cannot be negative"
	case o.Tries > 1_000_000 || o.Every > 365*24*time.Hour/1_000_000 && o.Tries > 0 && o.Every > 365*24*time.Hour/time.Duration(o.Tries):
		wrong = "Tries × Every is a year at the most, and Tries a million"
	case o.Every > 0 && o.Every < time.Millisecond:
		wrong = "Every is 1ms at least"
	case len(o.Meta) > 10_000 || !utf8.ValidString(o.Meta) || strings.ContainsRune(o.Meta, 0):
		wrong = "Meta must be UTF-8 without NUL, of 10 000 bytes at the most"
	}
	if wrong != "" {
		return o, fmt.Errorf("%w: %s", ErrInvalid, wrong)
	}
	return o, nil
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

// New returns a Locker. It does not touch the database. One for each program is
// best: those who wait through the same one form a line, and load the database
// like one.
func New(db *dialect.DB, opt Options) (*Locker, error) {
	opt, err := opt.filled()
	if err == nil && db == nil {
		err = fmt.Errorf("%w: there is no database; look at the error of dialect.Open or Wrap", ErrInvalid)
	}
	if err != nil {
		return nil, err
	}
	return &Locker{db: db, opt: opt, waiting: newWaiting(db)}, nil
}

// With returns a Locker with other options, for a lock that needs others. The
// two wait in the same lines.
func (l *Locker) With(opt Options) (*Locker, error) {
	opt, err := opt.filled()
	if err != nil {
		return nil, err
	}
	return &Locker{db: l.db, opt: opt, waiting: l.waiting}, nil
}

// TryAcquire takes the lock called name if it is free. If not, it returns a
// *HeldError, which is an ErrHeld, without waiting. Names are 1 to 200
// characters of UTF-8, compared by bytes.
//
// The lease lives on after ctx has ended; ctx bounds the request alone.
func (l *Locker) TryAcquire(ctx context.Context, name string) (*Lease, error) {
	s := &single{l, name}
	if err := l.check(ctx, name); err != nil {
		return nil, err
	}
	return l.try(ctx, s)
}

// Acquire takes the lock called name, and waits for it if it is held: until ctx
// ends, or as long as Options.Tries allows. Then it returns an error that is an
// ErrHeld, and the context's cause if that has ended. While the database cannot
// be reached it waits as well.
//
// Those who wait in one process get the lock in the order in which they came.
// So do processes on PostgreSQL, roughly; elsewhere by chance.
func (l *Locker) Acquire(ctx context.Context, name string) (*Lease, error) {
	return l.acquire(ctx, &single{l, name})
}

// Do acquires the lock called name, runs f, and releases the lock, also if f
// panics. The context of f ends when ctx does or the lease, whichever is first;
// context.Cause tells.
//
// It returns the error of f, joined with ErrLost if the lease was lost before f
// returned: somebody else may have begun then. Within f, a Do of the same name
// with a context that comes from f's returns ErrHeldByCaller at once.
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

// check refuses what is wrong before the database is asked.
func (l *Locker) check(ctx context.Context, name string) error {
	if err := dialect.CheckName(name); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	for h, _ := ctx.Value(holdKey{}).(*hold); h != nil; h = h.outer {
		if h.lease.name == name && h.lease.l.same(l.waiting) && h.lease.Check() == nil {
			return fmt.Errorf("%w: %s: release it first, or pass a context that does not come from its holder", ErrHeldByCaller, name)
		}
	}
	return nil
}

// A seat is what can be taken: a lock, or a slot of a pool.
type seat interface {
	key() string
	// grant makes one attempt with the arguments given. Not granted: found is
	// false, and no error.
	grant(ctx context.Context, args dialect.Args) (slot int, fence int64, found bool, err error)
	// holder says who is in the way, or nil if nobody is (any more). It makes
	// the rows if there are none.
	holder(ctx context.Context) (*HeldError, error)
}

// A single is a lock as a seat.
type single struct {
	l    *Locker
	name string
}

func (s *single) key() string { return s.name }

func (s *single) grant(ctx context.Context, args dialect.Args) (slot int, fence int64, found bool, err error) {
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

// try makes one attempt, repeated only while the reason to refuse is gone by
// the time one looks at it.
//
// It may be that somebody has the row of a free slot locked for a while, which
// is passed over: then it soon says that others have it.
func (l *Locker) try(ctx context.Context, s seat) (*Lease, error) {
	for round := 0; ; round++ {
		lease, err := l.attempt(ctx, s)
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
		if _, isPool := s.(*Pool); !isPool || round < 2 {
			continue
		}
		if round > 25 {
			return nil, &HeldError{Name: s.key()}
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(jittered(time.Millisecond << min(round, 6))):
		}
	}
}

// attempt asks for a lease once; nil means that it was refused. A lease whose
// grant may have happened, or came when it was over, is given up.
func (l *Locker) attempt(ctx context.Context, s seat) (*Lease, error) {
	le := newLease(ctx, l, s.key())
	bounded, cancel := context.WithTimeout(ctx, l.opt.TTL*2/3)
	defer cancel()
	sent := instant.MarkNow()
	slot, fence, found, err := s.grant(bounded, le.grantArgs())
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

// unknown tells whether an error leaves open if the statement took effect.
func (l *Locker) unknown(err error) bool {
	return l.db.Dialect.Unreachable(err) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// passing tells whether an error is worth waiting for its end: no answer, a
// lock on the row or the file that somebody holds for long, or a grant that came
// too late.
func (l *Locker) passing(err error) bool {
	return l.unknown(err) || l.db.Dialect.Retryable(err) || errors.Is(err, ErrLost)
}

// abandon frees what an acquisition may have got whose answer was lost: now if
// it can, or else in the background while the lease lasts. A request that the
// server has yet to deal with is looked for once more; what it may still get
// after that runs out by itself.
func (l *Locker) abandon(name, owner string) {
	end := instant.Now().Add(l.opt.TTL)
	free := func() (freed bool, err error) {
		ctx, cancel := context.WithTimeout(context.Background(), min(time.Second, l.opt.TTL/2))
		defer cancel()
		n, err := l.db.Exec(ctx, abandon, dialect.Args{"name": name, "owner": owner})
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

// create makes the rows of a lock that nobody has used before.
func (l *Locker) create(ctx context.Context, name, state string) error {
	return l.db.ShortTx(ctx, func(ctx context.Context, tx *dialect.Session) error {
		return createRows(ctx, tx, dialect.Args{"name": name, "slot": 0, "state": state})
	})
}

// createRows makes rows whose fence is not below any that such a row has had.
func createRows(ctx context.Context, tx *dialect.Session, rows ...dialect.Args) error {
	var fence int64
	if err := tx.Get(ctx, floor, nil, &fence); err != nil {
		return err
	}
	for _, row := range rows {
		row["fence"] = fence
	}
	if _, err := tx.Exec(ctx, create, dialect.Args{"rows": rows}); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, createFence, dialect.Args{"rows": rows})
	return err
}

// newOwner makes a name that no other acquisition has.
func (l *Locker) newOwner() string { return l.opt.Owner + ":" + strings.ToLower(rand.Text()[:16]) }
