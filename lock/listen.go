package lock

import (
	"context"
	"errors"
	"time"

	"github.com/dbcron/dbcron/internal/pace"
	"github.com/dbcron/dbcron/internal/sqlrun"
)

// An ear listens for notifications to this process, on one connection for all
// lines, while there are waiters and for linger after that. waiting.mu guards it.
type ear struct {
	users int
	stop  context.CancelFunc // nil: it is not listening
	hears bool               // its own test notification has arrived
	rest  *time.Timer        // stops it when it has had no users for linger; nil: it has had some all the time
}

// linger is how long an ear goes on without waiters.
const linger = 500 * time.Millisecond

// hear makes the process listen, and reports whether it does so by now. It does
// not take a connection from a small pool.
func (c *contender) hear() bool {
	w := c.l.waiting
	if limit := w.db.Pool().Stats().MaxOpenConnections; w.db.Dialect.Listen == nil || limit > 0 && limit < 4 {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !c.hearing {
		c.hearing = true
		w.ear.use()
	}
	if w.ear.stop == nil {
		ctx, cancel := context.WithCancel(context.Background())
		w.ear.stop = cancel
		go w.listen(ctx)
	}
	return w.ear.hears
}

// use has an ear go on listening until unhear. waiting.mu is held.
func (e *ear) use() {
	e.users++
	if e.rest != nil {
		e.rest.Stop()
	}
}

func (w *waiting) unhear() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ear.users--
	switch {
	case w.ear.users > 0:
	case w.ear.rest != nil:
		w.ear.rest.Reset(linger)
	default:
		w.ear.rest = time.AfterFunc(linger, func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			if w.ear.users == 0 && w.ear.stop != nil {
				w.ear.stop()
			}
		})
	}
}

// listen rings the bells of the lines that notifications name. It notifies
// itself first: through a pooler nothing would arrive.
func (w *waiting) listen(ctx context.Context) {
	ready := func() {
		go func() {
			ctx, cancel := context.WithTimeout(ctx, patience)
			defer cancel()
			_ = w.tell(ctx, w.me, "") // if it does not arrive, hears stays false
		}()
	}
	err := w.db.Listen(ctx, channel+w.me, ready, func(name string) {
		if name != "" {
			w.ring(name)
			return
		}
		w.mu.Lock()
		w.ear.hears = true
		w.mu.Unlock()
	})
	w.mu.Lock()
	w.ear.hears = false
	w.mu.Unlock()
	if ctx.Err() == nil && err != nil { // waiters poll meanwhile
		pace.Sleep(ctx, patience)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ear.stop()
	w.ear.stop = nil
	for _, ln := range w.lines {
		ln.ring()
	}
}

// enqueue puts this process into the queue of a lock that is held, or left to another process, and
// returns the lock's row. It returns nil if the process has not joined.
func (l *Locker) enqueue(ctx context.Context, name string) (*Info, error) {
	args := sqlrun.Args{"name": name, "me": l.me, "patience": (3 * patience).Microseconds()}
	rows, err := sqlrun.Select(ctx, &l.db.Session, enqueue, args, scanQueued)
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	return &rows[0], nil
}

// tell sends a notification to a process.
func (w *waiting) tell(ctx context.Context, process, name string) error {
	_, err := w.db.Exec(ctx, tell, sqlrun.Args{"channel": channel + process, "payload": name})
	return err
}

// notifying runs a statement made by returningNext and notifies the next waiter. found reports
// whether the statement has updated a row, and next is the process that was notified.
func (l *Locker) notifying(ctx context.Context, stmt *sqlrun.Stmt, args sqlrun.Args) (found bool, next string, err error) {
	if l.db.Dialect.Notify == nil {
		n, err := l.db.Exec(ctx, stmt, args)
		return n > 0, "", err
	}
	err = l.db.Get(ctx, stmt, args, &next)
	if noRows(err) {
		return false, "", nil
	}
	if err != nil || next == "" {
		return err == nil, "", err
	}
	return true, l.notify(ctx, next, args["name"].(string)), nil
}

// notify tells the next waiter that a lock has become free. It returns the process that was notified, or "".
func (l *Locker) notify(ctx context.Context, next, name string) string {
	if next == "" {
		return ""
	}
	// The lock is free, so the waiter must be told even if ctx has ended.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	if err := l.tell(ctx, next, name); err != nil {
		l.opt.Logger.Debug("notifying the next waiter of a lock failed; it will poll", "lock", name, "err", err)
		return ""
	}
	return next
}

// releasing is notifying for a release, together with others that are under way.
func (l *Locker) releasing(ctx context.Context, args sqlrun.Args) (found bool, next string, err error) {
	w := &wish{args: args, shared: sharing{release: true, ttl: l.opt.TTL.Microseconds() / 2}}
	done, err := l.crowd.ask(ctx, w)
	defer done()
	switch {
	case errors.Is(err, errAlone), err == nil && !w.found: // the statement for one tells why
		return l.notifying(ctx, release, args)
	case err != nil:
		return false, "", err
	}
	return true, l.notify(ctx, w.next, args["name"].(string)), nil
}
