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
)

// Who waits for a lock stands in a line with the others of this process; the
// first in line alone asks the database. While the lock is held by this process
// it need not even do that. Otherwise, where the database can notify, it puts
// the process into the queue of the lock's row and sleeps until it is told,
// until the lease that it saw ends, or for patience. Elsewhere it polls.

const (
	pollFirst = 10 * time.Millisecond // doubled while the same lease is seen
	pollMost  = 250 * time.Millisecond
	patience  = time.Second // how long to rely on being told

	// Whoever has just released a lock leaves it to the process that was told
	// for as long as that takes to come. Where nobody is told, a process that has
	// passed the lock around among its own for stint leaves it to the others for
	// long enough that one that polls finds it.
	courtesy = 5 * time.Millisecond
	stint    = 100 * time.Millisecond
	gap      = 20 * time.Millisecond
)

// waiting is what the Lockers of a database share: the lines.
type waiting struct {
	db *dialect.DB
	me string // names this process in queues

	mu    sync.Mutex
	lines map[string]*line
	ear   ear

	leftovers sync.WaitGroup // what is done after an answer was lost; nobody waits for it but tests
}

func newWaiting(db *dialect.DB) *waiting {
	return &waiting{db: db, me: strings.ToLower(rand.Text()[:12]), lines: map[string]*line{}}
}

func (w *waiting) same(other *waiting) bool {
	return w.db.Pool() == other.db.Pool() && w.db.Prefix() == other.db.Prefix()
}

// A line is the goroutines of this process that want one name. Its fields are
// guarded by waiting.mu.
type line struct {
	queue []chan struct{} // in the order in which they came; the first has its turn when its channel is closed
	bell  chan struct{}   // heard by whoever has the turn; holds one ring

	held  *HeldError // as last seen
	local *Lease     // of this process, if one has it
	since instant.Instant
	freed instant.Instant
	rest  instant.Instant // until then the lock is left to other processes
}

// join puts the caller into the line of a name. turn is closed when it is the
// first.
func (w *waiting) join(name string) (ln *line, turn chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	ln, turn = w.lines[name], make(chan struct{})
	if ln == nil {
		ln = &line{bell: make(chan struct{}, 1)}
		w.lines[name] = ln
	}
	ln.queue = append(ln.queue, turn)
	if len(ln.queue) == 1 {
		close(turn)
	}
	return ln, turn
}

// leave takes the caller out of the line, wherever it stands.
func (w *waiting) leave(name string, ln *line, turn chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	at := slices.Index(ln.queue, turn)
	ln.queue = slices.Delete(ln.queue, at, at+1)
	if at == 0 && len(ln.queue) > 0 {
		close(ln.queue[0])
	}
	w.tidy(name, ln)
}

// tidy forgets a line that nobody needs, now or when its rest is over.
// waiting.mu is held.
func (w *waiting) tidy(name string, ln *line) {
	if len(ln.queue) == 0 && ln.local == nil && w.lines[name] == ln {
		delete(w.lines, name)
	}
}

// acquire waits for a seat.
func (l *Locker) acquire(ctx context.Context, s seat) (*Lease, error) {
	return l.acquireWithin(ctx, s, time.Duration(l.opt.Tries)*l.opt.Every)
}

// acquireWithin waits for a seat, for span at the most unless that is 0.
func (l *Locker) acquireWithin(ctx context.Context, s seat, span time.Duration) (*Lease, error) {
	if err := l.check(ctx, s.key()); err != nil {
		return nil, err
	}
	var until instant.Instant
	var limit <-chan time.Time
	if span > 0 { // not by ctx, which would cut off the last try
		until, limit = instant.Now().Add(span), time.After(span)
	}
	ln, turn := l.join(s.key())
	defer l.leave(s.key(), ln, turn)
	c := contender{l: l, seat: s, line: ln, until: until}
	select {
	case <-turn:
	case <-ctx.Done():
		return nil, c.refusal(ctx)
	case <-limit:
		return nil, c.refusal(ctx)
	}
	defer c.stop()
	return c.run(ctx)
}

// A contender is whoever has the turn of a line.
type contender struct {
	l    *Locker
	seat seat
	line *line

	until   instant.Instant // when it gives up; 0: never
	poll    time.Duration
	fence   int64
	trouble error // of the last attempt: the database cannot be reached
	queued  bool  // in the row's queue
	missed  bool  // the row had no place for it
	hearing bool  // this process listens, or begins to
}

func (c *contender) run(ctx context.Context) (*Lease, error) {
	told := true // the first time nothing is known
	for {
		if rest := c.l.rest(c.line); rest > 0 {
			told = c.sleep(ctx, rest) || told
		} else {
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

// refusal is what a wait returns that has ended without a lease: who has the
// lock, and why else it ended.
func (c *contender) refusal(ctx context.Context) error {
	c.l.mu.Lock()
	held, local := c.line.held, c.line.local
	c.l.mu.Unlock()
	if held == nil && local != nil {
		held = &HeldError{Name: local.name, By: local.owner, Fence: local.fence, Left: local.Left(), Meta: local.opt.Meta}
	}
	if held == nil && ctx.Err() == nil && c.trouble == nil {
		held, c.trouble = c.seat.holder(ctx) // all the time it was others of this process
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

// ask tries to get the lease, or looks whether that makes sense, and tells how
// long to wait until the next time.
func (c *contender) ask(ctx context.Context, told bool) (*Lease, time.Duration, error) {
	if !told && !c.queued {
		held, err := c.seat.holder(ctx)
		if err != nil || held != nil {
			return c.refused(ctx, held, err)
		}
	}
	lease, err := c.l.try(ctx, c.seat)
	if err == nil {
		c.queued = false // taking has seen to it
		c.l.took(c.seat, c.line, lease)
		return lease, 0, nil
	}
	var held *HeldError
	if errors.As(err, &held) {
		err = nil
	}
	return c.refused(ctx, held, err)
}

// refused tells how long to wait after the answer that was given.
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
	if _, isPool := c.seat.(*Pool); !isPool && c.l.opt.Every == 0 && c.hear() {
		queued, err := c.l.enqueue(ctx, c.seat.key())
		c.queued = err == nil && queued
		switch {
		case c.queued:
			wait, c.missed = jittered(patience), false
		case err == nil && !c.missed: // it has come free meanwhile, or the queue is full
			wait, c.missed = 0, true
		}
	}
	// Not before its end, but then at once; and not all at once.
	return nil, min(wait, held.Left+jittered(pollFirst)), nil
}

// pollAfter is how long to wait where nobody tells.
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

// sleep waits, and tells whether the bell has rung.
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

// stop leaves the row's queue, and has the next one told if this one was.
func (c *contender) stop() {
	if c.queued {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		// If this fails, the next one finds out when its patience ends.
		_, _, _ = c.l.notifying(ctx, dequeue, dialect.Args{"name": c.seat.key(), "me": c.l.me})
	}
	if c.hearing {
		c.l.unhear()
	}
}

// jittered is d on average, so that those who wait do not all ask at once.
func jittered(d time.Duration) time.Duration { return d/2 + mathrand.N(max(d, 1)) }

// rest tells how long the first in line has to wait without asking: this
// process has the lock, or leaves it to others.
func (w *waiting) rest(ln *line) time.Duration {
	w.mu.Lock()
	local, rest := ln.local, ln.rest
	w.mu.Unlock()
	if local != nil && local.occupies() {
		return longSleep
	}
	return rest.Sub(instant.Now())
}

// took notes that this process has the lock.
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

// freed notes that a lease of this process has been released, and that next was
// told of it, if anybody.
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
		ln.rest = now.Add(courtesy)
	case w.db.Dialect.Notify == nil && now.Sub(ln.since) > stint:
		ln.rest = now.Add(gap)
	}
	ln.ring()
	if len(ln.queue) == 0 { // remembered, for one who takes it again at once
		time.AfterFunc(2*gap, func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.tidy(le.name, ln)
		})
	}
}

// lost notes that a lease of this process is over, and was not released.
func (w *waiting) lost(le *Lease) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if ln := w.lines[le.name]; ln != nil && ln.local == le {
		ln.local = nil
		ln.ring()
		w.tidy(le.name, ln)
	}
}

// ring wakes whoever is the first in line for a name.
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
