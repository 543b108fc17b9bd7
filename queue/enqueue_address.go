package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/plain"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// A source provides the queues' settings and routes: from the client's memory, or else from the
// pool or a transaction.
//
// In a transaction nothing waits for another connection: a caller that holds all of a pool's
// connections would wait for itself. Settings read in a transaction are not remembered, since it
// may be rolled back or see an old snapshot. For a caller's transaction, a goroutine that nobody
// waits for therefore reads them for later callers. This package's own transactions read everything
// themselves.
type source struct {
	c       *Client
	tx      *sqlrun.Session // the transaction; nil: use the pool
	foreign bool            // tx is the caller's, and may last
	at      instant.Instant
	keyed   map[int]bool // queues that are known to have keys by now
}

// callers returns the source for a caller's transaction, own that for one of this package.
func (c *Client) callers(tx dialect.Execer) *source {
	return &source{c: c, tx: c.db.On(tx), foreign: true, at: instant.Now()}
}

func (c *Client) own(tx *sqlrun.Session) *source { return &source{c: c, tx: tx, at: instant.Now()} }

// address finds the jobs' queues. It does not change the jobs: routes may change before it is
// called again.
func (s *source) address(ctx context.Context, jobs []Job, rows []jobRow) error {
	var q *store.Queue
	var r *routes
	known := map[string]*store.Queue{} // however often jobs of different queues take turns, each is read once
	for i := range jobs {
		j := &jobs[i]
		name := j.Queue
		if name == "" {
			if r == nil {
				var err error
				if r, err = s.routes(ctx); err != nil {
					return err
				}
			}
			if name = r.queue(j.Kind); sqlrun.CheckName(name) != nil { // it was written by hand
				return ofMany(i, len(jobs), invalid("queue", "the route of kind %q leads to the queue %q: %v; correct it: dbcron route set",
					j.Kind, name, sqlrun.CheckName(name)))
			}
		}
		if q == nil || q.Name != name {
			if q = known[name]; q == nil {
				var err error
				if q, err = s.queue(ctx, name, j); err != nil {
					return ofMany(i, len(jobs), err)
				}
				known[name] = q
			}
		}
		if err := s.fits(ctx, q, j); err != nil {
			return ofMany(i, len(jobs), err)
		}
		rows[i] = jobRow{Job: j, of: q, queue: q.ID}
	}
	return nil
}

// on returns the session to read on.
func (s *source) on(ctx context.Context) *sqlrun.Session {
	if s.tx != nil {
		return s.tx
	}
	return &s.c.dbOf(ctx).Session
}

// routes returns routes that are recent enough.
func (s *source) routes(ctx context.Context) (*routes, error) {
	s.c.mu.Lock()
	r := s.c.routes
	s.c.mu.Unlock()
	if s.foreign && (r == nil || s.aging(r.at)) {
		s.c.learn("")
	}
	if s.remembers() && r != nil && s.fresh(r.at) {
		return r, nil
	}
	return s.c.readRoutes(ctx, s.tx)
}

// remembers reports whether the client's memory may be used.
func (s *source) remembers() bool { return s.tx == nil || s.foreign }

func (s *source) fresh(at instant.Instant) bool { return s.c.knows(s.at, at) }

// aging reports whether what was read at an instant should be read again soon.
func (s *source) aging(at instant.Instant) bool { return s.at.Sub(at) > store.SettingsAge/2 }

// queue returns the settings of a job's queue, and creates the queue if there is none.
func (s *source) queue(ctx context.Context, name string, j *Job) (*store.Queue, error) {
	s.c.mu.Lock()
	q := s.c.queues[name]
	s.c.mu.Unlock()
	if s.foreign && (q == nil || s.aging(q.At)) {
		s.c.learn(name)
	}
	if s.remembers() && q != nil && s.fresh(q.At) {
		return q, nil
	}
	q, err := s.c.readOn(ctx, s.on(ctx), name)
	switch {
	case errors.Is(err, ErrNotFound):
		fresh := store.Defaults(name)
		if err := j.within(&fresh); err != nil { // a job that is refused creates no queue
			return nil, err
		}
		return s.create(ctx, name)
	case err == nil && s.tx == nil:
		s.c.remember(q)
	}
	return q, err
}

// create creates a queue: outside of the transaction if possible, else in it.
func (s *source) create(ctx context.Context, name string) (q *store.Queue, err error) {
	if s.tx == nil {
		if err := s.c.create(ctx, name, s.c.opt.Blocks); err != nil {
			return nil, err
		}
		return s.c.read(ctx, name)
	}
	done, err := s.beside(ctx, func(ctx context.Context, tx *sqlrun.Session) error {
		if err := store.MakeQueue(ctx, tx, name, s.c.opt.Blocks, false); err != nil {
			return err
		}
		q, err = s.c.readOn(ctx, tx, name)
		return err
	})
	if done || err != nil {
		return q, err
	}
	if err := store.MakeQueue(ctx, s.tx, name, s.c.opt.Blocks, false); err != nil {
		return nil, err
	}
	return store.ReadQueue(ctx, s.tx, store.GetQueueNow, name)
}

// besideWait bounds the wait for a connection that is not strictly needed. besideTime bounds its
// use: somebody else's transaction may hold a lock.
const (
	besideWait = 100 * time.Millisecond
	besideTime = 2 * time.Second
)

// beside does a queue's one-time setup outside of the caller's transaction, if a connection is
// free; inside it, others would have to wait for its end. It returns false if the setup has to be
// done in the transaction.
func (s *source) beside(ctx context.Context, do func(context.Context, *sqlrun.Session) error) (bool, error) {
	if !s.foreign || s.c.db.Dialect.SkipLocked == "" { // SQLite: nothing can be written beside the one writer
		return false, nil
	}
	bounded, cancel := context.WithTimeout(ctx, besideTime)
	defer cancel()
	err := s.c.db.FreeTx(bounded, besideWait, do)
	if err != nil && ctx.Err() == nil && (bounded.Err() != nil || s.c.db.Dialect.Unavailable(err) || s.c.db.Dialect.Retryable(err)) {
		return false, nil
	}
	return err == nil, err
}

// fits returns an error if a queue does not accept a job. Before the first job with a key it
// records that the queue has keys.
func (s *source) fits(ctx context.Context, q *store.Queue, j *Job) error {
	switch {
	case q.State == "deleted":
		return fmt.Errorf("%w: %q", ErrDeleted, q.Name)
	case j.within(&q.Settings) != nil:
		return j.within(&q.Settings)
	case q.FIFO && j.Priority != 0 && j.Priority != Normal:
		return invalid("priority", "queue %q is FIFO: its jobs have no priority, and go in the order in which they are enqueued", q.Name)
	case j.Key != "" && !q.Ordered:
		return s.order(ctx, q)
	}
	return nil
}

// within returns an error if a job exceeds what a queue takes. A callback was accepted with its group: its timeout is cut.
func (j *Job) within(q *store.Settings) error {
	longest := q.LongestTimeout()
	switch {
	case len(j.Payload) > q.MaxPayload:
		return fmt.Errorf("%w: payload: it has %d bytes, and queue %q takes %d; store it elsewhere and enqueue its name, or raise max_payload",
			ErrTooLarge, len(j.Payload), q.Name, q.MaxPayload)
	case longest > 0 && j.Timeout > longest && j.callbackOf == 0:
		return invalid("timeout", "%s is longer than queue %q takes, %s; leave it out for the timeout of the queue, or raise max_timeout",
			plain.FormatDuration(j.Timeout), q.Name, plain.FormatDuration(longest))
	}
	return nil
}

// order records that a queue has keys. Readers of jobs see that before the first job with a key, or
// together with it.
func (s *source) order(ctx context.Context, q *store.Queue) error {
	if s.keyed[q.ID] {
		return nil
	}
	if s.keyed == nil {
		s.keyed = map[int]bool{}
	}
	args := sqlrun.Args{"queue": q.ID}
	if s.tx == nil {
		_, err := s.c.dbOf(ctx).Exec(ctx, store.SetOrdered, args)
		if err == nil {
			_, err = s.c.read(ctx, q.Name)
		}
		s.keyed[q.ID] = err == nil
		return err
	}
	// The transaction may have recorded it itself: doing so outside would wait for it.
	now, err := s.c.readOn(ctx, s.tx, q.Name)
	if err != nil && !errors.Is(err, ErrNotFound) { // the queue was created after the snapshot
		return err
	}
	if err != nil || !now.Ordered {
		mark := func(ctx context.Context, tx *sqlrun.Session) error {
			_, err := tx.Exec(ctx, store.SetOrdered, args)
			return err
		}
		done, err := s.beside(ctx, mark)
		if err == nil && !done {
			err = mark(ctx, s.tx)
		}
		if err != nil {
			return err
		}
	}
	s.keyed[q.ID] = true
	return nil
}

// learn reads a queue's settings, or the routes, for callers that need them soon and could only
// read them in a transaction.
func (c *Client) learn(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.learning[name] {
		return
	}
	c.learning[name] = true
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), store.SettingsAge)
		defer cancel()
		if name == "" {
			_, _ = c.readRoutes(ctx, nil) // on failure, whoever needs them reads them
		} else {
			_, _ = c.read(ctx, name)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.learning, name)
	}()
}
