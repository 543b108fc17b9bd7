package lock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/dbcron/dbcron/internal/sqlrun"
)

// A State is the current state of a lock or of a pool's slot.
type State string

// The states. The table has fewer, since there a lease ends by time and not by
// an event: FREE, LOCK or EXTEND, POOL, CLOSED.
const (
	Free    State = "free"
	Held    State = "held"
	Expired State = "expired" // the holder neither renewed nor released it
	Kept    State = "kept"    // released, but taken until the minimum hold is over
	Head    State = "pool"    // represents a pool, whose slots follow
	Closed  State = "closed"  // a slot that the pool no longer uses
)

// Info is the row of a lock or a slot. Times are the database's, and zero for
// what has not happened.
type Info struct {
	Name      string
	Slot      int // 0: a lock, or the head of a pool
	State     State
	By        string // the current or last holder
	Since     time.Time
	Until     time.Time
	Released  time.Time
	Left      time.Duration // from the answer to Until; 0 if it is past
	Fence     int64
	Extends   int64 // renewals by this holder
	Takeovers int64 // acquisitions after an expired lease
	Meta      string
	ForcedBy  string // who last released it by force, followed by when and why
	Forced    time.Time
	ForcedWhy string
	Changed   time.Time

	// Ahead is how far Changed is in the future: since then the database's clock has gone back by as much, at the least. A lease that was
	// not renewed since lasts for as much longer than its holder has said, until somebody else wants the lock. 0: nothing says that the
	// clock has gone back.
	Ahead time.Duration

	// Wrong says what is wrong with its row, if somebody has written one that means nothing: the column and the problem.
	Wrong string

	session string
}

// backSlack is how much later than the present a row may have been written without the clock having gone back: servers of a cluster may
// differ by less.
const backSlack = 2 * time.Second

// settleAfter is how far in the future a row was written whose lease is ended in time: see settled.
const settleAfter = time.Minute

// Get reads one lock, or a pool with its slots. It returns ErrNotFound if nobody
// has ever used it.
func (l *Locker) Get(ctx context.Context, name string) ([]Info, error) {
	if err := l.check(context.Background(), name); err != nil {
		return nil, err
	}
	rows, err := l.peek(ctx, name)
	if err == nil && len(rows) == 0 {
		err = fmt.Errorf("%w: %s", ErrNotFound, name)
	}
	return rows, err
}

// List reads up to limit locks and slots after the given one, ordered by the
// bytes of their names and by slot.
func (l *Locker) List(ctx context.Context, after string, slot, limit int) ([]Info, error) {
	return sqlrun.Select(ctx, &l.db.Session, list, sqlrun.Args{"after": after, "slot": slot, "limit": limit}, scanInfo)
}

func (l *Locker) peek(ctx context.Context, name string) ([]Info, error) {
	return sqlrun.Select(ctx, &l.db.Session, peek, sqlrun.Args{"name": name}, scanInfo)
}

// look is peek for who wants the lock. It ends in time what outlasts its lease because the database's clock went back.
func (l *Locker) look(ctx context.Context, name string) ([]Info, error) {
	rows, err := l.peek(ctx, name)
	if err != nil || !slices.ContainsFunc(rows, func(i Info) bool { return i.Ahead > settleAfter && heldBy(&i) != nil }) {
		return rows, err
	}
	if _, err := l.db.Exec(ctx, settle, sqlrun.Args{"name": name}); err != nil {
		return nil, err
	}
	return l.peek(ctx, name)
}

func scanInfo(rows *sql.Rows) (Info, error) { return scanInfoAnd(rows) }

// scanQueued reads what enqueue returns: a row and the setting that it has made.
func scanQueued(rows *sql.Rows) (Info, error) { return scanInfoAnd(rows, new(string)) }

func scanInfoAnd(rows *sql.Rows, more ...any) (i Info, err error) {
	var state string
	var since, until, released, forced, changed, now int64
	var row sqlrun.Reading
	err = rows.Scan(append([]any{
		row.Into("name", &i.Name), row.Into("slot", &i.Slot), row.Into("state", &state), row.Into("lock_by", &i.By),
		row.Instant("lock_at", &since),
		row.Instant("expire_at", &until), row.Instant("released_at", &released), row.Into("fence", &i.Fence), row.Into("extends", &i.Extends),
		row.Into("takeovers", &i.Takeovers), row.Into("meta", &i.Meta), row.Into("session", &i.session), row.Into("forced_by", &i.ForcedBy),
		row.Instant("forced_at", &forced), row.Into("forced_why", &i.ForcedWhy), row.Instant("update_time", &changed), &now,
	}, more...)...)
	if !slices.Contains([]string{"POOL", "CLOSED", "FREE", "LOCK", "EXTEND"}, state) {
		row.Note("state", fmt.Sprintf("%.40q is none of FREE, LOCK, EXTEND, POOL, CLOSED", state))
	}
	i.Wrong = row.Wrong
	i.Since, i.Until, i.Released = instantOf(since), instantOf(until), instantOf(released)
	i.Forced, i.Changed = instantOf(forced), instantOf(changed)
	i.Left = max(0, time.Duration(until-now)*time.Microsecond)
	if ahead := time.Duration(changed-now) * time.Microsecond; ahead > backSlack {
		i.Ahead = ahead
	}
	switch {
	case state == "POOL":
		i.State = Head
	case state == "CLOSED":
		i.State = Closed
	case state == "FREE", released != 0 && until <= now:
		i.State = Free
	case until <= now:
		i.State = Expired
	case released != 0:
		i.State = Kept
	default:
		i.State = Held
	}
	return i, err
}

func instantOf(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(us).UTC()
}

// heldBy returns the holder, or nil if the lock can be taken.
func heldBy(i *Info) *HeldError {
	if i.State != Held && i.State != Kept {
		return nil
	}
	return &HeldError{
		Name: i.Name, By: i.By, Since: i.Since, Until: i.Until, Left: i.Left, Fence: i.Fence, Meta: i.Meta,
		session: i.session != "", kept: i.State == Kept,
	}
}

// ForceRelease frees a lock, or a slot of a pool, whoever holds it. It records
// who did so, when and why, and returns the row as it was before. The holder
// learns of it at its next renewal and works on until then, while others may
// begin: make sure that it is dead or stopped. Its fenced work is refused at
// once.
//
// ForceRelease returns ErrNotFound if there is no such lock. If nobody holds the
// lock, nothing changes, and the returned State is not Held, Kept or Expired.
func (l *Locker) ForceRelease(ctx context.Context, name string, slot int, by, why string) (Info, error) {
	switch {
	case by == "" || len(by) > 128 || !plain(by):
		return Info{}, fmt.Errorf("%w: who releases %s by force must be said, in 128 bytes of plain text at the most", ErrInvalid, name)
	case why == "" || len(why) > 1000 || !utf8.ValidString(why) || strings.ContainsRune(why, 0):
		return Info{}, fmt.Errorf("%w: why %s is released by force must be said, in 1000 bytes of UTF-8 at the most", ErrInvalid, name)
	}
	for {
		rows, err := l.Get(ctx, name)
		if err != nil {
			return Info{}, err
		}
		was, err := pick(rows, slot)
		if err != nil || was.State != Held && was.State != Kept && was.State != Expired {
			return was, err
		}
		found, _, err := l.notifying(ctx, force, sqlrun.Args{
			"name": name, "slot": slot, "owner": was.By, "fence": was.Fence, "by": by, "why": why + " (it was " + was.By + ")",
		})
		if err != nil {
			return was, err
		}
		if found {
			l.ring(name)
			return was, nil
		} // released or taken by another meanwhile: look again
	}
}

func pick(rows []Info, slot int) (Info, error) {
	for _, i := range rows {
		if i.Slot == slot {
			if i.State == Head {
				return i, fmt.Errorf("%w: %s has slots; say which", ErrPool, i.Name)
			}
			return i, nil
		}
	}
	return Info{}, fmt.Errorf("%w: %s has no slot %d", ErrNotFound, rows[0].Name, slot)
}

// Purge deletes locks, but not pools, that have been free and unused for longer
// than the given time, which is at least a minute, and returns their number. If
// such a name is used again, its fence goes on rising. Programs that generate
// names need Purge from time to time; locks with fixed names can stay forever.
func (l *Locker) Purge(ctx context.Context, unused time.Duration) (int, error) {
	const batch = 500
	if unused < time.Minute {
		return 0, fmt.Errorf("%w: purging locks unused for %v; a minute at least", ErrInvalid, unused)
	}
	purged, after := 0, ""
	for {
		n, gone := 0, 0
		last := after
		err := l.db.ShortTx(ctx, func(ctx context.Context, tx *sqlrun.Session) error {
			n, gone = 0, 0
			// As in createRows, the lock on the floor comes first, so that the two
			// cannot deadlock.
			if _, err := tx.Exec(ctx, raise, sqlrun.Args{"fence": 0}); err != nil {
				return err
			}
			var names []string
			var highest int64
			_, err := sqlrun.Select(ctx, tx, idle, sqlrun.Args{"after": after, "ago": -unused.Microseconds(), "limit": batch},
				func(rows *sql.Rows) (struct{}, error) {
					var name string
					var fence int64
					err := rows.Scan(&name, &fence)
					names, highest = append(names, name), max(highest, fence)
					return struct{}{}, err
				})
			if err != nil || len(names) == 0 {
				return err
			}
			n, last = len(names), names[len(names)-1]
			if names, err = withoutGuards(ctx, tx, names); err != nil || len(names) == 0 {
				return err
			}
			if _, err := tx.Exec(ctx, raise, sqlrun.Args{"fence": highest}); err != nil {
				return err
			}
			gone = len(names)
			if _, err := tx.Exec(ctx, purge, sqlrun.Args{"names": names}); err != nil {
				return err
			}
			_, err = tx.Exec(ctx, purgeFence, sqlrun.Args{"names": names})
			return err
		})
		purged += gone
		if err != nil || n < batch {
			return purged, err
		}
		after = last
	}
}

// withoutGuards locks the rows that guard the transactions of locks, and leaves out locks with a transaction that goes
// on. It may do so for long after its lease, and meanwhile nobody could make a new lock: this transaction holds the floor.
func withoutGuards(ctx context.Context, tx *sqlrun.Session, names []string) ([]string, error) {
	var of [2][]string
	for i, stmt := range []*sqlrun.Stmt{freeFences, fences} {
		var err error
		of[i], err = sqlrun.Select(ctx, tx, stmt, sqlrun.Args{"names": names}, func(rows *sql.Rows) (name string, err error) {
			return name, rows.Scan(&name)
		})
		if err != nil || len(of[0]) == len(names) {
			return names, err
		}
	}
	return slices.DeleteFunc(names, func(name string) bool {
		return slices.Contains(of[1], name) && !slices.Contains(of[0], name)
	}), nil
}

func noRows(err error) bool { return errors.Is(err, sql.ErrNoRows) }
