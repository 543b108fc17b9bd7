package lock

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/sqlrun"
)

// The waiters of this process for a lock form a line, and only the first in line
// asks the database. It need not even do that while this process holds the lock.
// Otherwise, where the database can notify, it puts the process into the queue
// of the lock's row and sleeps until it is notified, until the lease that it saw
// ends, or for patience. Elsewhere it polls.

const (
	pollFirst = 10 * time.Millisecond // doubled while the same lease is seen
	pollMost  = 250 * time.Millisecond
	patience  = time.Second // how long to rely on a notification

	// A process that has just released a lock and notified another one joins the
	// row's queue. If it cannot, it does not ask for the lock during courtesy, so
	// that the notified process can take it. A process that waits while the
	// lock is free looks after leftFor whether the first one has come, and passes it over.
	courtesy = 5 * time.Millisecond
	leftFor  = 50 * time.Millisecond // passOver has the same

	// Where there are no notifications, a process that has passed the lock around
	// among its own waiters for stint pauses for gap, so that one that polls finds
	// the lock free.
	stint = 100 * time.Millisecond
	gap   = 20 * time.Millisecond
)

// waiting has the lines, which all Lockers of a database share.
type waiting struct {
	db    *dialect.DB
	crowd *crowd
	me    string // names this process in queues

	mu    sync.Mutex
	lines map[string]*line
	ear   ear

	leftovers sync.WaitGroup // clean-up after lost answers; only tests wait for it
}

func newWaiting(db *dialect.DB) *waiting {
	return &waiting{db: db, crowd: &crowd{db: db}, me: strings.ToLower(rand.Text()[:12]), lines: map[string]*line{}}
}

func (w *waiting) same(other *waiting) bool {
	return w.db.Pool() == other.db.Pool() && w.db.Prefix() == other.db.Prefix()
}

// A line has the goroutines of this process that wait for one name. waiting.mu
// guards its fields.
type line struct {
	queue []chan struct{} // in order of arrival; closing a channel makes its waiter the first
	bell  chan struct{}   // wakes the first waiter; holds one ring

	held  *HeldError // as last seen
	local *Lease     // the lease, if this process holds it
	since instant.Instant
	freed instant.Instant
	rest  instant.Instant // until then the lock is left to other processes
	left  bool            // this process has just left the lock to another, which it has notified
}

// join appends the caller to the line of a name. first is closed when the caller
// is the first.
func (w *waiting) join(name string) (ln *line, first chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	ln, first = w.lines[name], make(chan struct{})
	if ln == nil {
		ln = &line{bell: make(chan struct{}, 1)}
		w.lines[name] = ln
	}
	ln.queue = append(ln.queue, first)
	if len(ln.queue) == 1 {
		close(first)
	}
	return ln, first
}

// leave removes the caller from the line.
func (w *waiting) leave(name string, ln *line, mine chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	at := slices.Index(ln.queue, mine)
	ln.queue = slices.Delete(ln.queue, at, at+1)
	if at == 0 && len(ln.queue) > 0 {
		close(ln.queue[0])
	}
	w.tidy(name, ln)
}

// tidy deletes a line without waiters and without a lease. waiting.mu is held.
func (w *waiting) tidy(name string, ln *line) {
	if len(ln.queue) == 0 && ln.local == nil && w.lines[name] == ln {
		delete(w.lines, name)
	}
}

// acquire waits for a seat.
func (l *Locker) acquire(ctx context.Context, s seat) (*Lease, error) {
	return l.acquireWithin(ctx, s, time.Duration(l.opt.Tries)*l.opt.Every)
}

// acquireWithin waits for a seat, for at most span unless that is 0.
func (l *Locker) acquireWithin(ctx context.Context, s seat, span time.Duration) (*Lease, error) {
	if err := l.check(ctx, s.key()); err != nil {
		return nil, err
	}
	var until instant.Instant
	var limit <-chan time.Time
	if span > 0 { // a deadline of ctx would cut off the last try
		until, limit = instant.Now().Add(span), time.After(span)
	}
	ln, first := l.join(s.key())
	defer l.leave(s.key(), ln, first)
	c := contender{l: l, seat: s, line: ln, until: until}
	select {
	case <-first:
	case <-ctx.Done():
		return nil, c.refusal(ctx)
	case <-limit:
		return nil, c.refusal(ctx)
	}
	defer c.stop()
	return c.run(ctx)
}

// A contender is the first waiter of a line.
type contender struct {
	l    *Locker
	seat seat
	line *line

	until   instant.Instant // when to give up; 0: never
	poll    time.Duration
	fence   int64
	trouble error // the last attempt's error if the database cannot be reached
	queued  bool  // this process is in the row's queue
	follows bool  // and when it looked last, the lock was left to the first one there
	missed  bool  // the row's queue was full
	hearing bool  // this process listens, or begins to
}

func (c *contender) run(ctx context.Context) (*Lease, error) {
	told := true // at first, the lock may be free
	for {
		rest, left := c.l.rest(c.line)
		wait := time.Duration(0)
		if left && !c.queued || c.follows && !told {
			wait = c.follow(ctx)
		}
		switch {
		case wait > 0:
			told = c.sleep(ctx, wait)
		case rest > 0:
			told = c.sleep(ctx, rest) || told
		default:
			lease, wait, err := c.ask(ctx, told)
			if lease != nil || err != nil {
				return lease, err
			}
			told = c.sleep(ctx, wait)
		}
		if ctx.Err() != nil || c.until > 0 && instant.Now() >= c.until {
			return nil, c.refusal(ctx)
		}
	}
}

// refusal is the error of a wait that ended without a lease: who holds the lock,
// and why the wait ended.
func (c *contender) refusal(ctx context.Context) error {
	c.l.mu.Lock()
	held, local := c.line.held, c.line.local
	c.l.mu.Unlock()
	if held == nil && local != nil {
		held = &HeldError{Name: local.name, By: local.owner, Fence: local.fence, Left: local.Left(), Meta: local.opt.Meta}
	}
	if held == nil && ctx.Err() == nil && c.trouble == nil {
		held, c.trouble = c.seat.holder(ctx) // only this process has held it
	}
	why := errors.Join(c.trouble, context.Cause(ctx))
	switch {
	case held == nil && why == nil:
		return fmt.Errorf("%w: %s", ErrHeld, c.seat.key())
	case held == nil:
		return fmt.Errorf("lock %s: %w", c.seat.key(), why)
	case why == nil:
		return held
	}
	return errors.Join(held, why)
}

// ask tries to get the lease if it may be free, and returns how long to wait
// before the next attempt.
func (c *contender) ask(ctx context.Context, told bool) (*Lease, time.Duration, error) {
	if !told && !c.queued {
		held, err := c.seat.holder(ctx)
		if err != nil || held != nil {
			return c.refused(ctx, held, err)
		}
	}
	lease, err := c.l.try(ctx, c.seat, turn{me: c.l.me, inTurn: !c.missed && c.queues()})
	if err == nil {
		c.queued = false // the statement has removed it from the queue
		c.l.took(c.seat, c.line, lease)
		return lease, 0, nil
	}
	if errors.Is(err, errNotYet) {
		c.follows = true
		return nil, c.follow(ctx), nil
	}
	var held *HeldError
	if errors.As(err, &held) {
		err = nil
	}
	return c.refused(ctx, held, err)
}

// follow joins the row's queue without asking for the lock, because this process has
// just left it to another one, or looks again whether that one has come: if it has not for leftFor, it is
// passed over, and the next one is told. It returns
// how long to wait for a notification, or 0 if the lock may be free.
func (c *contender) follow(ctx context.Context) time.Duration {
	again := c.follows
	c.follows = false
	if c.missed || !c.queues() {
		return 0
	}
	if again {
		args := sqlrun.Args{"name": c.seat.key(), "me": c.l.me}
		passed, next, err := c.l.notifying(ctx, passOver, args)
		if err != nil || passed && (next == "" || next == c.l.me) {
			return 0
		}
	}
	select {
	case <-c.line.bell: // of the release, or of a notification: the statement sees what it was about
	default:
	}
	row, err := c.l.enqueue(ctx, c.seat.key())
	if err != nil || row == nil {
		c.missed = true
		return 0
	}
	held, wait := c.join(row)
	if held != nil {
		wait = min(wait, held.Left+jittered(pollFirst)) // as in refused
	} else {
		held = &HeldError{Name: c.seat.key()} // by the notified process, or soon
	}
	c.l.mu.Lock()
	defer c.l.mu.Unlock()
	c.line.held, c.line.rest = held, 0 // from here on, the queue keeps the order
	return wait
}

// queues reports whether this process can wait in the row's queue.
func (c *contender) queues() bool {
	_, isPool := c.seat.(*Pool)
	return !isPool && c.l.opt.Every == 0 && c.hear()
}

// join notes that this process is in the queue of a row. It returns the holder, if
// there is one, and how long to rely on a notification.
func (c *contender) join(row *Info) (held *HeldError, wait time.Duration) {
	held = heldBy(row)
	c.queued, c.missed, c.follows = true, false, held == nil
	if held == nil {
		return nil, jittered(leftFor)
	}
	return held, jittered(patience)
}

// refused returns how long to wait after the given answer.
func (c *contender) refused(ctx context.Context, held *HeldError, err error) (*Lease, time.Duration, error) {
	if ctx.Err() != nil {
		return nil, 0, nil
	}
	if err != nil {
		if !c.l.passing(err) {
			return nil, 0, err
		}
		if c.trouble == nil {
			c.l.opt.Logger.Warn("waiting for a lock while the database does not answer", "lock", c.seat.key(), "err", err)
		}
		c.trouble, c.queued = err, false
		return nil, jittered(pollMost), nil
	}
	c.trouble = nil
	c.l.mu.Lock()
	c.line.held = held
	c.l.mu.Unlock()
	wait := c.pollAfter(held)
	if c.queues() {
		row, err := c.l.enqueue(ctx, c.seat.key())
		c.queued = false
		switch {
		case row != nil:
			_, wait = c.join(row)
		case err == nil && !c.missed: // the lock is free by now, or the queue is full
			wait, c.missed = 0, true
		}
	}
	// Wake when the lease ends, with jitter, so that not all waiters ask at once.
	return nil, min(wait, held.Left+jittered(pollFirst)), nil
}

// pollAfter returns the time until the next poll where nothing notifies.
func (c *contender) pollAfter(held *HeldError) time.Duration {
	if c.l.opt.Every > 0 {
		return jittered(c.l.opt.Every)
	}
	if held.Fence != c.fence {
		c.fence, c.poll = held.Fence, pollFirst
	} else {
		c.poll = min(2*c.poll, pollMost)
	}
	return jittered(c.poll)
}

// sleep waits, and reports whether the bell has rung.
func (c *contender) sleep(ctx context.Context, wait time.Duration) (told bool) {
	if c.until > 0 {
		wait = min(wait, c.until.Sub(instant.Now()))
	}
	if wait <= 0 {
		return true
	}
	select {
	case <-c.line.bell:
		return true
	case <-ctx.Done():
		return false
	case <-time.After(min(wait, longSleep)):
		return false
	}
}

// stop leaves the row's queue, and passes on a notification that this process may
// have received.
func (c *contender) stop() {
	if c.queued {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		// If this fails, the next waiter looks by itself after patience.
		_, _, _ = c.l.notifying(ctx, dequeue, sqlrun.Args{"name": c.seat.key(), "me": c.l.me})
	}
	if c.hearing {
		c.l.unhear()
	}
}

// jittered returns d on average, so that waiters do not all ask at once.
func jittered(d time.Duration) time.Duration { return d/2 + mathrand.N(max(d, 1)) }

// rest returns how long the first in line must not ask, because this process
// holds the lock or leaves it to others. It reports once that a notified process is
// about to take the lock.
func (w *waiting) rest(ln *line) (rest time.Duration, left bool) {
	w.mu.Lock()
	local := ln.local
	w.mu.Unlock()
	if local != nil && local.occupies() {
		return longSleep, false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	left, ln.left = ln.left, false
	return ln.rest.Sub(instant.Now()), left
}

// took records that this process has the lock.
func (w *waiting) took(s seat, ln *line, le *Lease) {
	if _, isLock := s.(*single); !isLock {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if now := instant.Now(); now.Sub(ln.freed) > gap {
		ln.since = now
	}
	ln.local, ln.held = le, nil
}

// freed records that a lease of this process has been released, and which process,
// if any, was notified.
func (w *waiting) freed(le *Lease, next string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	ln := w.lines[le.name]
	if ln == nil {
		return
	}
	now := instant.Now()
	if ln.local == le {
		ln.local, ln.freed = nil, now
	}
	switch {
	case next != "" && next != w.me:
		ln.rest, ln.left = now.Add(courtesy), true
	case w.db.Dialect.Notify == nil && now.Sub(ln.since) > stint:
		ln.rest = now.Add(gap)
	}
	ln.ring()
	if len(ln.queue) == 0 { // kept for a while, in case the lock is taken again at once
		time.AfterFunc(2*gap, func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.tidy(le.name, ln)
		})
	}
}

// lost records that a lease of this process is over without having been released.
func (w *waiting) lost(le *Lease) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if ln := w.lines[le.name]; ln != nil && ln.local == le {
		ln.local = nil
		ln.ring()
		w.tidy(le.name, ln)
	}
}

// ring wakes the first in line for a name.
func (w *waiting) ring(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if ln := w.lines[name]; ln != nil {
		ln.ring()
	}
}

func (ln *line) ring() {
	select {
	case ln.bell <- struct{}{}:
	default: // it rings already
	}
}
