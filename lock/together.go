package lock

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/internal/sqlrun"
)

// A crowd takes and releases the locks of many goroutines with few statements. As long as few of them ask at a time, each sends
// a statement of its own at once. Those who ask while these are under way share the next one.
//
// Nobody waits for another one's row: a shared statement passes over rows that others have locked, and whoever sends a statement
// of its own, which may have to wait for its row, counts as under way for a moment only.
type crowd struct {
	db *dialect.DB

	mu      sync.Mutex
	waiting []*wish
	senders int
}

const (
	senders  = 2                     // statements under way: while one waits for the disk, the server reads the next
	moment   = 20 * time.Millisecond // for which a statement of a caller's own counts as under way
	mostHeld = 200                   // wishes of a statement; its LIMIT
)

// A wish is what one caller asks for.
type wish struct {
	shared  sharing
	args    sqlrun.Args // of the statement for one
	granted chan struct{}

	// Once granted is closed:
	found bool   // it was fulfilled; otherwise the row is locked, or in another state, or there is none
	fence int64  // of a lock that was taken
	next  string // who is to be notified of a lock that was released
	err   error
}

// sharing is what wishes of one statement have in common.
type sharing struct {
	release           bool
	ttl               int64 // in µs
	meta, session, me string
	inTurn            int
}

// errAlone means that the caller is to send a statement of its own.
var errAlone = errors.New("lock: to be asked for alone")

// ask fulfills a wish together with those of others. It returns an errAlone if the caller is to ask by itself; done is to be called
// after that. Other errors are those of the statement, or of ctx: then it may have taken effect.
func (c *crowd) ask(ctx context.Context, w *wish) (done func(), err error) {
	c.mu.Lock()
	if c.senders < senders {
		c.senders++
		c.mu.Unlock()
		next := sync.OnceFunc(c.next)
		late := time.AfterFunc(moment, next)
		return func() { late.Stop(); next() }, errAlone
	}
	w.granted = make(chan struct{})
	c.waiting = append(c.waiting, w)
	c.mu.Unlock()
	select {
	case <-w.granted:
		return func() {}, w.err
	case <-ctx.Done():
		c.leave(w)
		return func() {}, context.Cause(ctx)
	}
}

// leave withdraws a wish, if it has not been sent.
func (c *crowd) leave(w *wish) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting = slices.DeleteFunc(c.waiting, func(other *wish) bool { return other == w })
}

// next passes a sender's place on to those who wait.
func (c *crowd) next() {
	if part := c.take(); part != nil {
		go c.send(part)
	}
}

// take takes the wishes for the next statement, of which no two name the same lock. nil: there are none, and there is one sender less.
func (c *crowd) take() (part []*wish) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.waiting) == 0 {
		c.senders--
		return nil
	}
	names := map[any]bool{}
	left := c.waiting[:0:0]
	for _, w := range c.waiting {
		if w.shared == c.waiting[0].shared && !names[w.args["name"]] && len(part) < mostHeld {
			names[w.args["name"]] = true
			part = append(part, w)
		} else {
			left = append(left, w)
		}
	}
	c.waiting = left
	return part
}

// send sends statements until nobody waits.
func (c *crowd) send(part []*wish) {
	for ; part != nil; part = c.take() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(part[0].shared.ttl)*time.Microsecond*2/3)
		fulfill := c.grant
		if part[0].shared.release {
			fulfill = c.release
		}
		err := fulfill(ctx, part)
		cancel()
		if err != nil && !unknown(c.db, err) {
			err = errAlone // nothing has happened, and each gets an answer of its own
		}
		for _, w := range part {
			w.err, w.found = err, w.found && err == nil
			close(w.granted)
		}
	}
}

// run runs statements that decide together, in a transaction where it takes more than one.
func (c *crowd) run(ctx context.Context, f func(ctx context.Context, s *sqlrun.Session) error) error {
	if d := c.db.Dialect; d.Returning != nil && d.SkipLocked != "" {
		return f(ctx, &c.db.Session)
	}
	return c.db.ShortTx(ctx, f)
}

// none forgets what a transaction that was rolled back has found.
func none(part []*wish) {
	for _, w := range part {
		w.found = false
	}
}

// grant takes the locks that are free. Where an UPDATE returns nothing, their holders' names, which are new, tell which ones it has
// taken.
func (c *crowd) grant(ctx context.Context, part []*wish) error {
	of, rows, owners := map[string]*wish{}, make([]sqlrun.Args, len(part)), make([]string, len(part))
	for i, w := range part {
		owners[i] = w.args["owner"].(string)
		of[owners[i]] = w
		rows[i] = sqlrun.Args{"name": w.args["name"], "owner": w.args["owner"]}
	}
	s := part[0].shared
	args := sqlrun.Args{"rows": rows, "ttl": s.ttl, "meta": s.meta, "session": s.session, "me": s.me, "inturn": s.inTurn}
	return c.run(ctx, func(ctx context.Context, on *sqlrun.Session) error {
		none(part)
		read := takeMany
		if on.Dialect.Returning == nil {
			if n, err := on.Exec(ctx, takeMany, args); err != nil || n == 0 {
				return err
			}
			read = takenBy
		}
		_, err := sqlrun.Select(ctx, on, read, args, func(found *sql.Rows) (row struct{}, err error) {
			var owner string
			var fence int64
			if err = found.Scan(&owner, &fence); err == nil && of[owner] != nil {
				of[owner].found, of[owner].fence = true, fence
			}
			return row, err
		})
		return err
	})
}

// errNotAll has a transaction rolled back that has not released all of the locks, since it does not know which.
var errNotAll = errors.New("lock: not all of them")

// release releases locks. Where an UPDATE returns nothing, it releases all of them or none.
func (c *crowd) release(ctx context.Context, part []*wish) error {
	of, rows := map[string]*wish{}, make([]sqlrun.Args, len(part))
	for i, w := range part {
		of[w.args["owner"].(string)] = w
		rows[i] = w.args
	}
	args := sqlrun.Args{"rows": rows}
	return c.run(ctx, func(ctx context.Context, on *sqlrun.Session) error {
		none(part)
		if on.Dialect.Returning == nil {
			n, err := on.Exec(ctx, releaseMany, args)
			if err == nil && n != int64(len(part)) {
				err = errNotAll
			}
			for _, w := range part {
				w.found = err == nil
			}
			return err
		}
		_, err := sqlrun.Select(ctx, on, releaseMany, args, func(found *sql.Rows) (row struct{}, err error) {
			var owner, next string
			if err = found.Scan(&owner, &next); err == nil && of[owner] != nil {
				of[owner].found, of[owner].next = true, next
			}
			return row, err
		})
		return err
	})
}
