package lock

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/dbcron/dbcron/internal/sqlrun"
)

// A Ticket is a lock held by whoever has its token, for programs that do not talk to the
// database themselves. Nothing renews it in the background, and no process remembers it: the
// lock's row alone decides, so any process can renew or release it.
type Ticket struct {
	Name  string
	Token string // secret: it renews and releases the lock
	By    string // the holder's name as the table has it
	Fence int64  // as Lease.Fence
	Until time.Time
	Left  time.Duration // from the answer to Until
}

// TicketOptions adjusts TakeTicket. The zero value is ready to use.
type TicketOptions struct {
	Owner string        // the readable part of the holder's name; default: the Locker's
	TTL   time.Duration // default: the Locker's
	Wait  time.Duration // for a lock that is held; default: do not wait
	Meta  string        // see Options.Meta

	// Key makes the request idempotent: if a ticket with the same key and owner holds the lock,
	// that ticket is renewed and returned. A key is therefore as secret as a token, and each
	// holder needs a new one. Default: requests cannot be repeated.
	Key string
}

// TakeTicket takes the lock called name, as [Locker.Acquire] does, and returns a ticket for
// it. It returns a *HeldError if the lock is held for longer than TicketOptions.Wait.
//
// If the answer is lost, the lock is free again after the TTL at the latest.
func (l *Locker) TakeTicket(ctx context.Context, name string, opt TicketOptions) (*Ticket, error) {
	o := l.opt
	if opt.TTL != 0 {
		o.TTL, o.Margin = opt.TTL, 0
	}
	if opt.Owner != "" {
		o.Owner = opt.Owner
	}
	o.Meta, o.Heartbeat, o.Tries, o.Every = opt.Meta, -1, 0, 0
	o.Stall, o.MaxHold, o.MinHold = 0, 0, 0
	with, err := l.With(o)
	if err == nil && opt.Wait < 0 {
		err = fmt.Errorf("%w: Wait is negative", ErrInvalid)
	}
	if err != nil {
		return nil, err
	}
	id := newTicketID(name, o.Owner, opt.Key)
	s := &ticketSeat{single: single{with, name}, id: &id, repeatable: opt.Key != ""}
	if err := with.take(ctx, s, opt.Wait); err != nil {
		return nil, err
	}
	t, err := l.ticket(ctx, name, &id)
	if err != nil && !s.repeatable { // nobody has the token or can ask for it again
		with.abandon(name, id.by())
	}
	return t, err
}

// take takes a seat for a ticket and notes its fence. It discards the Lease, whose timers a
// ticket does not need.
func (l *Locker) take(ctx context.Context, s *ticketSeat, wait time.Duration) error {
	var le *Lease
	err := l.check(ctx, s.name)
	switch {
	case err != nil:
	case wait > 0:
		le, err = l.takeWithin(ctx, s, wait)
	default:
		le, err = l.try(ctx, s, outOfTurn)
	}
	if errors.Is(err, errRepeated) {
		err = l.extendTicket(ctx, s.name, s.id, l.opt.TTL)
	}
	if le != nil {
		s.id.fence = le.fence
		le.mu.Lock()
		le.released = true // not in the table
		le.mu.Unlock()
		le.finish(ErrReleased)
	}
	return err
}

// takeWithin waits in the queue for a seat. The waiters ahead may wait for the very ticket that
// this request, sent before, has already got. Its turn would then not come, so takeWithin looks
// for that ticket before and after the wait.
func (l *Locker) takeWithin(ctx context.Context, s *ticketSeat, wait time.Duration) (*Lease, error) {
	if s.hasIt(ctx) {
		return nil, errRepeated
	}
	le, err := l.acquireWithin(ctx, s, wait)
	if errors.Is(err, ErrHeld) && s.hasIt(ctx) {
		err = errRepeated
	}
	return le, err
}

// RenewTicket renews a ticket's lock for ttl from now on, and never shortens it. A ttl of 0 is
// the Locker's TTL. It returns ErrLost if the ticket does not hold the lock any more, and
// ErrInvalid for a malformed token.
func (l *Locker) RenewTicket(ctx context.Context, name, token string, ttl time.Duration) (*Ticket, error) {
	if ttl == 0 {
		ttl = l.opt.TTL
	}
	if ttl < minTTL || ttl > year {
		return nil, fmt.Errorf("%w: a TTL of %v is not from %v to a year", ErrInvalid, ttl, minTTL)
	}
	id, err := l.readTicket(name, token)
	if err == nil {
		err = l.extendTicket(ctx, name, &id, ttl)
	}
	if err != nil {
		return nil, err
	}
	return l.ticket(ctx, name, &id)
}

func (l *Locker) extendTicket(ctx context.Context, name string, id *ticketID, ttl time.Duration) error {
	args := id.args(name)
	args["ttl"] = ttl.Microseconds()
	n, err := l.db.Exec(ctx, extend, args)
	if err == nil && n == 0 {
		err = lostTicket(name)
	}
	return err
}

// ReleaseTicket frees a ticket's lock. It returns ErrLost if the lock was not the ticket's
// any more, and nil again for one that was released by the same token before.
func (l *Locker) ReleaseTicket(ctx context.Context, name, token string) error {
	id, err := l.readTicket(name, token)
	if err != nil {
		return err
	}
	freed, _, err := l.releasing(ctx, id.args(name))
	if freed {
		l.ring(name)
	}
	if err != nil || freed {
		return err
	}
	rows, err := l.peek(ctx, name)
	if err != nil {
		return err
	}
	if len(rows) == 1 && rows[0].By == id.by() && rows[0].Fence == id.fence && rows[0].State == Free {
		var forcedFence int64
		if err := l.db.Get(ctx, forced, id.args(name), &forcedFence); err != nil && !noRows(err) {
			return err
		}
		if forcedFence != id.fence {
			return nil // the answer before was lost
		}
	}
	return lostTicket(name)
}

func lostTicket(name string) error {
	return fmt.Errorf("%w: %s: it expired, or was released, or somebody else has it", ErrLost, name)
}

// ticket returns the ticket as the lock's row has it.
func (l *Locker) ticket(ctx context.Context, name string, id *ticketID) (*Ticket, error) {
	rows, err := l.peek(ctx, name)
	if err != nil {
		return nil, err
	}
	if len(rows) != 1 || rows[0].By != id.by() || rows[0].Fence != id.fence || rows[0].State != Held {
		return nil, lostTicket(name)
	}
	return &Ticket{Name: name, Token: id.String(), By: id.by(), Fence: id.fence, Until: rows[0].Until, Left: rows[0].Left}, nil
}

// A ticketSeat is a lock as a seat whose holder's name derives from a ticket's token.
type ticketSeat struct {
	single
	id         *ticketID
	repeatable bool
}

// errRepeated means that the ticket of this very request holds the lock.
var errRepeated = errors.New("lock: held by the same ticket")

func (s *ticketSeat) grant(ctx context.Context, args sqlrun.Args, alone bool) (slot int, fence int64, found bool, err error) {
	args["owner"] = s.id.by()
	slot, fence, found, err = s.single.grant(ctx, args, alone || s.repeatable) // with others its name must be new
	if err != nil && s.l.unknown(err) && !s.repeatable {                       // otherwise a repeated request may already have it
		s.l.abandon(s.name, s.id.by())
	}
	return slot, fence, found, err
}

func (s *ticketSeat) holder(ctx context.Context) (*HeldError, error) {
	held, err := s.single.holder(ctx)
	if held != nil && held.By == s.id.by() && !held.kept {
		s.id.fence = held.Fence
		return nil, errRepeated
	}
	return held, err
}

// hasIt reports whether a repeated request is known to have the lock.
func (s *ticketSeat) hasIt(ctx context.Context) bool {
	if !s.repeatable {
		return false
	}
	_, err := s.holder(ctx)
	return errors.Is(err, errRepeated)
}

// A ticketID is the content of a token: it identifies the holder. The table has only a hash of
// the secret, so that reading the table is not enough to release the lock.
type ticketID struct {
	fence         int64
	secret, owner string
}

func newTicketID(name, owner, key string) ticketID {
	secret := strings.ToLower(rand.Text())
	if key != "" {
		secret = hashed("ticket", name, key)
	}
	return ticketID{secret: secret, owner: owner}
}

// hashed returns 128 bits of a hash of texts. Only the last text may contain a NUL.
func hashed(texts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(texts, "\x00")))
	return strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:16]))
}

// by returns the holder's name, with parts of at most 100, 1 and 26 bytes.
func (id *ticketID) by() string { return id.owner + ":" + hashed("holder", id.secret) }

func (id *ticketID) args(name string) sqlrun.Args {
	return sqlrun.Args{"name": name, "slot": 0, "owner": id.by(), "fence": id.fence}
}

// String returns the token.
func (id *ticketID) String() string {
	return fmt.Sprintf("%d.%s.%s", id.fence, id.secret, base64.RawURLEncoding.EncodeToString([]byte(id.owner)))
}

// readTicket parses a token.
func (l *Locker) readTicket(name, token string) (id ticketID, err error) {
	if err := l.check(context.Background(), name); err != nil {
		return id, err
	}
	parts := strings.Split(token, ".")
	if len(parts) == 3 {
		id.secret = parts[1]
		var owner []byte
		if id.fence, err = strconv.ParseInt(parts[0], 10, 64); err == nil {
			owner, err = base64.RawURLEncoding.DecodeString(parts[2])
			id.owner = string(owner)
		}
	}
	if err != nil || len(parts) != 3 || id.String() != token || len(id.owner) > 100 || !plain(id.owner) {
		return id, fmt.Errorf("%w: the token is none of a lock", ErrInvalid)
	}
	return id, nil
}
