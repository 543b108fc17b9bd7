package queue

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/dbcron/dbcron/dialect"
)

// Enqueue enqueues a job and returns its id. When it returns without an error the
// job is committed: nothing loses it. Calls from many goroutines share statements:
// while one is under way, the jobs that come meanwhile gather for the next, so one
// alone waits for nobody, and many cost little each.
//
// If ctx ends before the job was sent, it is not enqueued. An error that is an
// [ErrUnknownOutcome] leaves open whether it was. A job with a unique key or a
// group is sent by itself, in a transaction of a few statements.
func (c *Client) Enqueue(ctx context.Context, job Job) (Enqueued, error) {
	if err := ctx.Err(); err != nil {
		return Enqueued{}, err
	}
	if job.tied() {
		all, err := c.EnqueueMany(ctx, []Job{job})
		if err != nil {
			return Enqueued{}, err
		}
		return all[0], nil
	}
	one := &sending{jobs: [1]Job{job}, done: make(chan struct{})}
	if err := c.prepare(ctx, nil, one.jobs[:], one.rows[:]); err != nil {
		return Enqueued{}, err
	}
	name := one.rows[0].of.Name // before others write the row
	id, err := c.out.send(ctx, one)
	return Enqueued{ID: id, Queue: name}, err
}

// chunk is how many jobs one statement inserts at the most.
const chunk = 1000

// EnqueueMany enqueues jobs, all or none but for those whose unique keys are in use, and
// tells what has become of each. Those of one ordering key are in the order of the slice.
// It is much cheaper than Enqueue for each.
func (c *Client) EnqueueMany(ctx context.Context, jobs []Job) (all []Enqueued, err error) {
	if len(jobs) == 0 || ctx.Err() != nil {
		return nil, ctx.Err()
	}
	rows := make([]jobRow, len(jobs))
	if err := c.prepare(ctx, nil, slices.Clone(jobs), rows); err != nil {
		return nil, err
	}
	for tries := 0; ; tries++ {
		err = c.write(ctx, rows)
		if err == nil || !c.db.Dialect.Duplicate(err) || tries == 3 {
			break
		}
		c.name(rows) // all of them: part of it would turn a key's order round
	}
	if err != nil {
		return nil, uncertain(c.db.Dialect, err)
	}
	c.bells.ring(rows)
	return enqueued(rows), nil
}

// EnqueueTx enqueues jobs in a transaction of the caller's, on the same database:
// they are there if and when it commits. tx is a *sql.Tx, a *sql.Conn, or a pgx.Tx
// made fit by [dialect.Pgx]. Call wake after the commit, so that workers notice at
// once.
//
// A deadlock or another error of a statement is the caller's to deal with, by
// running the whole transaction again. Jobs of one key that two transactions enqueue
// at once are in no order, and of two with the same unique key the second waits for the
// first one's end. See the package's documentation for long transactions.
func (c *Client) EnqueueTx(ctx context.Context, tx dialect.Execer, jobs ...Job) (all []Enqueued, wake func(), err error) {
	if len(jobs) == 0 {
		return nil, func() {}, nil
	}
	on := c.db.On(tx)
	return c.enqueueIn(ctx, on, c.beside(on), jobs)
}

// beside is where to do what a transaction of a caller's need not see: nil for a
// connection of its own. Where there is one writer, it is this transaction: nothing can be
// written beside it.
func (c *Client) beside(on *dialect.Session) *dialect.Session {
	if c.db.Dialect.SkipLocked != "" {
		return nil
	}
	return on
}

// EnqueueIn is [Client.EnqueueTx] for a short transaction of [dialect.DB.Tx]: all that
// it takes is done there, also that a queue is made. So it takes no second connection,
// for which a pool that is used up would let it wait for itself. An [ErrInvalid] or
// [ErrDeleted] says that nothing was enqueued, and the transaction can go on.
func (c *Client) EnqueueIn(ctx context.Context, tx *dialect.Session, jobs ...Job) (all []Enqueued, wake func(), err error) {
	if len(jobs) == 0 {
		return nil, func() {}, nil
	}
	return c.enqueueIn(ctx, tx, tx, jobs)
}

// enqueueIn inserts jobs on a session. What has to be read and written of their queues
// before is done on alone, or beside the transaction if that is nil.
func (c *Client) enqueueIn(ctx context.Context, on, alone *dialect.Session, jobs []Job) (all []Enqueued, wake func(), err error) {
	rows := make([]jobRow, len(jobs))
	if err := c.prepare(ctx, alone, slices.Clone(jobs), rows); err != nil {
		return nil, nil, err
	}
	if err := insertAll(ctx, on, rows); err != nil {
		return nil, nil, err
	}
	return enqueued(rows), func() { c.bells.ring(rows) }, nil
}

// write inserts rows, all or none.
func (c *Client) write(ctx context.Context, rows []jobRow) error {
	ready, delayed := split(rows)
	if anyTied(rows) {
		return c.db.Tx(ctx, func(ctx context.Context, tx *dialect.Session) error { return insertAll(ctx, tx, rows) })
	}
	if len(delayed) == 0 && len(ready) <= chunk {
		_, err := c.db.Exec(ctx, insertOf(ready), dialect.Args{"rows": jobRows(ready)})
		return err
	}
	if len(delayed) == 0 && c.db.CanCopy() {
		return c.db.Copy(ctx, "job", jobColumns, copyRows(ready))
	}
	return c.db.Tx(ctx, func(ctx context.Context, tx *dialect.Session) error { return insertAll(ctx, tx, rows) })
}

// insertOf is the statement that inserts ready jobs.
func insertOf(rows []jobRow) *dialect.Stmt {
	for i := range rows {
		if r := &rows[i]; r.Binary || r.MaxAttempts != 0 || r.Timeout != 0 || r.Trace != "" || r.Unique != "" || r.Group != 0 || r.callbackOf != 0 || r.Endpoint != "" {
			return insertJobs
		}
	}
	return insertPlain
}

// insertAll inserts rows in a transaction, but for those whose unique keys are in use.
func insertAll(ctx context.Context, tx *dialect.Session, rows []jobRow) error {
	if anyTied(rows) {
		err := enter(ctx, tx, rows)
		if err == nil {
			rows, err = claimKeys(ctx, tx, rows)
		}
		if err == nil {
			err = addTo(ctx, tx, rows)
		}
		if err != nil {
			return err
		}
	}
	ready, delayed := split(rows)
	for len(ready) > 0 {
		n := min(chunk, len(ready))
		if _, err := tx.Exec(ctx, insertOf(ready[:n]), dialect.Args{"rows": jobRows(ready[:n])}); err != nil {
			return err
		}
		ready = ready[n:]
	}
	for len(delayed) > 0 {
		n := min(chunk, len(delayed))
		if _, err := tx.Exec(ctx, insertDelayed, dialect.Args{"rows": jobRows(delayed[:n])}); err != nil {
			return err
		}
		delayed = delayed[n:]
	}
	return nil
}

// split tells ready jobs from delayed ones. Most often all are ready.
func split(rows []jobRow) (ready, delayed []jobRow) {
	for i := range rows {
		if rows[i].runAt != 0 {
			delayed = append(delayed, rows[i])
		}
	}
	if len(delayed) == 0 {
		return rows, nil
	}
	for i := range rows {
		if rows[i].runAt == 0 {
			ready = append(ready, rows[i])
		}
	}
	return ready, delayed
}

// uncertain marks errors after which the commit may have happened or not.
func uncertain(d *dialect.Dialect, err error) error {
	if d.Uncertain(err) {
		return fmt.Errorf("%w: %w", ErrUnknownOutcome, err)
	}
	return err
}

// A sender writes the jobs of many callers with few statements.
type sender struct {
	client *Client

	mu      sync.Mutex
	waiting []*sending
	writers int
}

// writers is how many statements are under way at once: while one waits for the
// disk, the next is read by the server.
const writers = 2

// sendTime is how long the jobs of several callers may take to be written,
// whatever the contexts of the callers say.
const sendTime = time.Minute

type sending struct {
	jobs  [1]Job
	rows  [1]jobRow
	taken bool
	err   error
	done  chan struct{}
}

// send writes one job with those of others.
func (s *sender) send(ctx context.Context, one *sending) (int64, error) {
	s.mu.Lock()
	s.waiting = append(s.waiting, one)
	if s.writers < writers {
		s.writers++
		go s.write()
	}
	s.mu.Unlock()
	select {
	case <-one.done:
		return one.rows[0].id, one.err
	case <-ctx.Done():
	}
	s.mu.Lock()
	taken := one.taken
	if !taken {
		s.drop(one)
	}
	s.mu.Unlock()
	if taken {
		select {
		case <-one.done:
			return one.rows[0].id, one.err
		default:
		}
		return one.rows[0].id, fmt.Errorf("%w: %w", ErrUnknownOutcome, ctx.Err())
	}
	return 0, ctx.Err()
}

// drop takes a job back that has not been sent. mu is held.
func (s *sender) drop(one *sending) {
	for i, other := range s.waiting {
		if other == one {
			s.waiting = append(s.waiting[:i:i], s.waiting[i+1:]...)
			return
		}
	}
}

func (s *sender) write() {
	for {
		s.mu.Lock()
		n := min(chunk, len(s.waiting))
		part := s.waiting[:n:n]
		s.waiting = s.waiting[n:]
		for _, one := range part {
			one.taken = true
		}
		if n == 0 {
			s.writers--
		}
		s.mu.Unlock()
		if n == 0 {
			return
		}
		s.writePart(part)
		for _, one := range part {
			close(one.done)
		}
	}
}

// writePart writes jobs at once. If the database refuses that, it halves them,
// until each caller gets its own error only.
func (s *sender) writePart(part []*sending) {
	ctx, cancel := context.WithTimeout(context.Background(), sendTime)
	defer cancel()
	c := s.client
	rows := make([]jobRow, len(part))
	for i, one := range part {
		rows[i] = one.rows[0]
	}
	err := c.write(ctx, rows)
	switch {
	case err == nil:
		c.bells.ring(rows)
		return
	case c.db.Dialect.Duplicate(err) && len(part) == 1:
		c.name(rows)
		part[0].rows[0] = rows[0]
		err = c.write(ctx, rows)
		if err == nil {
			c.bells.ring(rows)
			return
		}
	case len(part) > 1 && !c.db.Dialect.Uncertain(err):
		half := len(part) / 2
		s.writePart(part[:half])
		s.writePart(part[half:])
		return
	}
	err = uncertain(c.db.Dialect, err)
	for _, one := range part {
		one.err = err
	}
}
