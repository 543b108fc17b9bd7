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
	mostHeld = 200                   // wishes of a statement
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

	gone bool // its caller has left; crowd.mu guards it
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
	if c.db.Dialect.Returning == nil { // it would take a transaction of several statements, which costs more than it saves
		return func() {}, errAlone
	}
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

// leave withdraws a wish. If it is under way already, send gives up what it gets.
func (c *crowd) leave(w *wish) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w.gone = true
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
			if w.found && !w.shared.release && c.left(w) {
				go c.abandon(w)
			}
		}
	}
}

func (c *crowd) left(w *wish) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return w.gone
}

// abandon frees a lock that was taken for a caller who had left: the statement may have waited for a connection for longer than the
// caller looked. If that fails, the lock expires.
func (c *crowd) abandon(w *wish) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(w.shared.ttl)*time.Microsecond)
	defer cancel()
	_, _ = c.db.Exec(ctx, abandon, w.args)
}

// grant takes the locks that are free.
func (c *crowd) grant(ctx context.Context, part []*wish) error {
	rows := make([]sqlrun.Args, len(part))
	for i, w := range part {
		rows[i] = sqlrun.Args{"name": w.args["name"], "owner": w.args["owner"]}
	}
	s := part[0].shared
	args := sqlrun.Args{"rows": rows, "ttl": s.ttl, "meta": s.meta, "session": s.session, "me": s.me, "inturn": s.inTurn}
	return c.run(ctx, part, takeMany, args, func(found *sql.Rows, owner *string) (w wish, err error) {
		err = found.Scan(owner, &w.fence)
		return w, err
	})
}

// release releases locks.
func (c *crowd) release(ctx context.Context, part []*wish) error {
	rows := make([]sqlrun.Args, len(part))
	for i, w := range part {
		rows[i] = w.args
	}
	return c.run(ctx, part, releaseMany, sqlrun.Args{"rows": rows}, func(found *sql.Rows, owner *string) (w wish, err error) {
		err = found.Scan(owner, &w.next)
		return w, err
	})
}

// run runs a statement that returns what it has done for whom.
func (c *crowd) run(
	ctx context.Context, part []*wish, stmt *sqlrun.Stmt, args sqlrun.Args, scan func(found *sql.Rows, owner *string) (wish, error),
) error {
	of := map[string]*wish{}
	for _, w := range part {
		of[w.args["owner"].(string)] = w
	}
	once := func(ctx context.Context, on *sqlrun.Session) error {
		for _, w := range part { // it may be run again
			w.found = false
		}
		_, err := sqlrun.Select(ctx, on, stmt, args, func(found *sql.Rows) (row struct{}, err error) {
			var owner string
			done, err := scan(found, &owner)
			if w := of[owner]; err == nil && w != nil {
				w.found, w.fence, w.next = true, done.fence, done.next
			}
			return row, err
		})
		return err
	}
	if c.db.Dialect.SkipLocked == "" { // one writer at a time, which a transaction waits to be
		return c.db.ShortTx(ctx, once)
	}
	return once(ctx, &c.db.Session)
}
