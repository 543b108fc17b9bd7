package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// A sender writes the jobs of many callers with few statements. A writer sends a job once it has a
// connection and has taken the job. Until then the caller can leave, and nothing was enqueued.
//
// Jobs with unique keys have a sender of their own, which writes them in a transaction. That does not wait for another one that holds
// a key, or has taken it and not committed: the callers then write their jobs themselves, so that only those of that key wait.
type sender struct {
	client *Client
	unique bool

	mu      sync.Mutex
	waiting []*sending
	writers int
	crowd   bool  // the last jobs that were taken out of the line were several, or others were being written
	last    error // why the database could not be reached; nil: it could be
}

// writers is the number of concurrent statements: while one waits for the disk, the server reads
// the next.
const writers = 2

// sendTime bounds the time to write the jobs of several callers, whatever their contexts say.
const sendTime = time.Minute

type sending struct {
	jobs    [1]Job
	rows    [1]jobRow
	bounded bool            // the caller's context has a deadline
	failed  instant.Instant // first failure to reach the database for it; 0: none
	sent    bool            // the id is final: the job has it in the database, if it gets there
	gone    bool            // the caller has left, and will not learn of another id
	err     error
	done    chan struct{}
}

// send writes one job together with those of others. It returns the id even if the outcome is
// unknown, and 0 if nothing was sent.
//
// A caller that meets nobody writes its job itself, which is sooner than in another goroutine. Those that come meanwhile do not
// join: its context may end its statement. Callers that have met will meet again, since they are told at once: a writer takes all of
// their jobs.
func (s *sender) send(ctx context.Context, one *sending) (int64, error) {
	s.mu.Lock()
	alone := s.writers == 0 && !s.crowd
	if !alone {
		s.waiting = append(s.waiting, one)
	}
	if s.writers < writers {
		s.writers++
		if !alone {
			go s.write()
		}
	}
	s.mu.Unlock()
	if alone {
		s.writeAlone(ctx, one)
	}
	select {
	case <-one.done:
		return one.outcome()
	case <-ctx.Done():
		return s.abandon(one, ctx.Err())
	}
}

// abandon releases a caller whose context has ended. A job that was not sent yet will not be.
func (s *sender) abandon(one *sending, why error) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-one.done:
		return one.outcome()
	default:
	}
	one.gone = true
	if one.sent {
		s.client.late.mark(one.rows[:])
		return one.rows[0].id, fmt.Errorf("%w: %w", ErrUnknownOutcome, why)
	}
	s.waiting = slices.DeleteFunc(s.waiting, func(other *sending) bool { return other == one })
	if s.last != nil {
		return 0, notSent(fmt.Errorf("%w: %w", why, s.last))
	}
	return 0, why
}

func (one *sending) outcome() (int64, error) {
	if one.err != nil && !errors.Is(one.err, ErrUnknownOutcome) {
		return 0, one.err
	}
	return one.rows[0].id, one.err
}

// write writes waiting jobs until there are none.
func (s *sender) write() {
	for failures := 0; s.more(); {
		part, rows, err := s.attempt(context.Background(), nil)
		s.finish(part, rows, err)
		if failures++; !s.client.db.Dialect.Unsent(err) {
			failures = 0
			continue
		}
		<-time.After(pauseAfter(failures))
	}
}

// writeAlone writes the job of a caller who met no writer. A new writer takes what came meanwhile.
func (s *sender) writeAlone(ctx context.Context, one *sending) {
	part := []*sending{one}
	_, rows, err := s.attempt(ctx, part)
	switch {
	case err == nil:
		s.finish(part, rows, nil)
	case ctx.Err() == nil:
		go func() { // trying again may last longer than the caller waits
			s.finish(part, rows, err)
			s.write()
		}()
		return
	}
	if s.more() {
		go s.write()
	}
}

// more reports whether anything waits. If not, this writer has ended.
func (s *sender) more() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.waiting) > 0 {
		return true
	}
	s.writers--
	return false
}

// take takes the jobs for the next statement, which are all ready or all delayed, or for the next transaction.
func (s *sender) take() []*sending {
	now := s.client.clock.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	n := store.PartOf(s.waiting, s.client.db.Roomy(), func(one **sending) int { return (*one).rows[0].weight() })
	for i := 0; i < n && !s.unique; i++ {
		if s.waiting[i].jobs[0].waits(now) != s.waiting[0].jobs[0].waits(now) {
			n = i
			break
		}
	}
	part := s.waiting[:n:n]
	s.waiting, s.last, s.crowd = s.waiting[n:], nil, n > 1 || s.writers > 1
	return part
}

// requeue makes jobs wait again that were not sent, except for those whose callers have left or
// have waited long enough.
func (s *sender) requeue(part []*sending, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at, all := instant.Now(), slices.Concat(part, s.waiting)
	s.waiting, s.last = nil, err
	for _, one := range all {
		one.sent = false
		if one.failed == 0 {
			one.failed = at
		}
		switch {
		case one.gone:
		case s.client.opt.gaveUp(one.bounded, at.Sub(one.failed)):
			one.err = notSent(err)
			close(one.done)
		default:
			s.waiting = append(s.waiting, one)
		}
	}
}

// attempt writes jobs with one statement, or in one transaction: those of part, or else those that wait once there is a
// connection. It returns the jobs that it took, and the rows that were sent.
func (s *sender) attempt(ctx context.Context, part []*sending) (taken []*sending, rows []jobRow, err error) {
	ctx, cancel := context.WithTimeout(ctx, sendTime)
	defer cancel()
	c := s.client
	ctx, end := c.spared(ctx)
	defer end()
	run := c.dbOf(ctx).WithConn
	if s.unique {
		run = c.dbOf(ctx).Hasty().ShortTx
	}
	err = run(ctx, func(ctx context.Context, on *sqlrun.Session) error {
		if part == nil {
			part = s.take()
		}
		rows = make([]jobRow, len(part))
		for i, one := range part {
			rows[i] = one.rows[0] // only this goroutine writes it
		}
		if err := c.ready(ctx, on, rows); err != nil || len(rows) == 0 {
			return err
		}
		c.number(rows)
		if rows = s.seal(part, rows); len(rows) == 0 {
			return nil
		}
		if s.unique {
			return s.insertUnique(ctx, on, part, rows)
		}
		return c.insert(ctx, on, rows)
	})
	return part, rows, err
}

// insertUnique takes keys and inserts the jobs that get theirs. It tells the others' callers who has them.
func (s *sender) insertUnique(ctx context.Context, tx *sqlrun.Session, part []*sending, rows []jobRow) error {
	fresh, err := claimKeys(ctx, tx, rows, store.ClaimFreeKeys)
	if err != nil {
		return err
	}
	holders := map[int64]int64{}
	for i := range rows {
		holders[rows[i].id] = rows[i].holder
	}
	s.mu.Lock()
	for _, one := range part {
		one.rows[0].holder = holders[one.rows[0].id]
	}
	s.mu.Unlock()
	return s.client.insertRows(ctx, tx, fresh, store.Insertion)
}

// held reports whether jobs could not be written together since another transaction holds one of their keys.
func (s *sender) held(err error) bool {
	timeout := s.client.db.Dialect.LockTimeout
	return s.unique && err != nil && (errors.Is(err, store.ErrKeysHeld) || timeout != nil && timeout(err))
}

// seal tells callers the ids with which their jobs are sent. It leaves out callers who have gone:
// they would look for other ids, or for none.
func (s *sender) seal(part []*sending, rows []jobRow) []jobRow {
	s.mu.Lock()
	defer s.mu.Unlock()
	still := rows[:0]
	var drawn instant.Instant
	if len(rows) > 0 {
		drawn = rows[0].drawn
	}
	for i, one := range part {
		if one.gone {
			continue
		}
		one.rows[0], one.sent = rows[i], true
		still = append(still, rows[i])
	}
	if len(still) > 0 {
		still[0].drawn = drawn
	}
	return still
}

// finish tells callers the outcome of their jobs. If the database has refused several, it retries
// them in halves, until each caller gets only its own error.
func (s *sender) finish(part []*sending, rows []jobRow, err error) {
	c := s.client
	for tries := 0; err != nil && c.taken(err) && tries < 3; tries++ {
		_, rows, err = s.attempt(context.Background(), part) // with new ids
	}
	switch d := c.db.Dialect; {
	case err == nil:
		c.late.note(rows)
		c.bells.ring(rows)
	case d.Unsent(err):
		s.requeue(part, err)
		return
	case part == nil: // there was no connection
		part = s.take()
	case s.held(err):
		for _, one := range part {
			one.err = errHeldKey
			close(one.done)
		}
		return
	case len(part) > 1 && !d.Uncertain(err):
		for _, half := range [][]*sending{part[:len(part)/2], part[len(part)/2:]} {
			_, rows, err := s.attempt(context.Background(), half)
			s.finish(half, rows, err)
		}
		return
	default:
		c.late.mark(rows)
	}
	err = uncertain(c.db.Dialect, err)
	for _, one := range part {
		one.err = err
		close(one.done)
	}
}
