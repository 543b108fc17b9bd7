package queue

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/dbcron/dbcron/internal/duration"
	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/internal/targets"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// A Queue holds a queue's settings. They can be changed at any time: see [Client.Edit].
type Queue struct {
	Name   string
	State  string // active, paused or deleted
	Reason string // why it is paused

	// KeyRetry says what happens to the other jobs of a key while one waits for its retry: hold
	// (they wait too: strict order) or pass.
	KeyRetry string

	MaxAttempts int // failed attempts after which a job is dead
	// worker crashes after which a job is dead, if it ran alone in the last one; after four times as many in any case
	MaxCrashes    int
	RetryDelay    time.Duration // delay before the second attempt; doubles with each further one
	RetryMaxDelay time.Duration // between two attempts at the most
	Timeout       time.Duration // of an attempt; 0: none
	MaxPayload    int           // bytes
	KeepDead      time.Duration // how long dead jobs are kept; negative: always
	KeepDeadMax   int           // about how many dead jobs are kept, those enqueued last; 0: all
	KeepDone      time.Duration // how long done jobs are kept; 0: not at all
	PollMin       time.Duration // shortest poll interval, after jobs were found, where workers are not notified
	PollMax       time.Duration // longest poll interval

	// FIFO makes the queue run one job after the other, in the order in which they were enqueued,
	// on whichever worker: the next one begins when the previous one is done or dead, or, with
	// KeyRetry pass, has failed. Such a queue has one block. A change takes effect four seconds
	// later, for jobs enqueued from then on, and when the earlier jobs are done.
	FIFO bool

	// Notify says who is notified when it has dead letters or is behind, and when it recovers: mail addresses
	// and URLs with blanks or commas between; "none": nobody; empty: as the daemons say (dbcron serve --notify).
	Notify string

	Blocks int // how many blocks its jobs are divided into; see Client.Resize

	id          int
	ordered     bool
	generations []generation    // in their order
	at          instant.Instant // when it was read
}

func scanQueue(rows *sql.Rows) (*Queue, error) {
	q := Queue{generations: make([]generation, 1)}
	g := &q.generations[0]
	var ordered, retry, most, timeout, keep, keepDone, pollMin, pollMax string
	err := rows.Scan(&q.id, &q.Name, &q.State, &q.Reason, &ordered, &q.KeyRetry, &q.MaxAttempts, &q.MaxCrashes, &retry, &most,
		&timeout, &q.MaxPayload, &keep, &q.KeepDeadMax, &keepDone, &pollMin, &pollMax, &q.Notify,
		&g.number, &g.first, &g.blocks, &g.from, &g.fifo)
	q.Blocks, q.FIFO = g.blocks, g.fifo
	g.from += resizeAfter.Microseconds()
	q.ordered = ordered == "yes" || q.FIFO
	for _, d := range []struct {
		text string
		is   *time.Duration
	}{
		{retry, &q.RetryDelay},
		{most, &q.RetryMaxDelay},
		{timeout, &q.Timeout},
		{keepDone, &q.KeepDone},
		{pollMin, &q.PollMin},
		{pollMax, &q.PollMax},
	} {
		if err == nil {
			*d.is, err = duration.Parse(d.text)
		}
	}
	if q.KeepDead = -1; err == nil && keep != "forever" {
		q.KeepDead, err = duration.Parse(keep)
	}
	if err != nil {
		err = fmt.Errorf("queue %q: %w", q.Name, err)
	}
	return &q, err
}

// selectQueues reads queues by a statement that gives a row for each generation of
// their blocks.
func selectQueues(ctx context.Context, db *sqlrun.Session, stmt *sqlrun.Stmt, args sqlrun.Args) (all []*Queue, err error) {
	rows, err := sqlrun.Select(ctx, db, stmt, args, scanQueue)
	for _, q := range rows {
		if n := len(all); n > 0 && all[n-1].id == q.id {
			q.generations = append(all[n-1].generations, q.generations...)
			all[n-1] = q
			continue
		}
		all = append(all, q)
	}
	return all, err
}

// defaults are the settings of a new queue: those of the table's columns.
func defaults(name string) Queue {
	return Queue{
		Name: name, State: "active", KeyRetry: "hold", MaxAttempts: 10, MaxCrashes: 3, RetryDelay: 10 * time.Second, RetryMaxDelay: time.Hour,
		MaxPayload: defaultMaxPayload, KeepDead: 90 * 24 * time.Hour, PollMin: 2 * time.Millisecond, PollMax: 250 * time.Millisecond,
	}
}

// check reports what is wrong with settings.
func (q *Queue) check() error {
	switch {
	case q.State != "active" && q.State != "paused" && q.State != "deleted":
		return invalid("state", "%q is not active, paused or deleted", q.State)
	case q.KeyRetry != "hold" && q.KeyRetry != "pass":
		return invalid("key_retry", "%q is not hold or pass", q.KeyRetry)
	case q.MaxAttempts < 1 || q.MaxAttempts > 1_000_000:
		return invalid("max_attempts", "%d is not 1 to 1000000", q.MaxAttempts)
	case q.MaxCrashes < 1 || q.MaxCrashes > 1_000_000:
		return invalid("max_crashes", "%d is not 1 to 1000000", q.MaxCrashes)
	case q.MaxPayload < 1 || q.MaxPayload > 1<<30:
		return invalid("max_payload", "%d is not 1 byte to 1 GiB", q.MaxPayload)
	case len(q.Notify) > maxNotify:
		return invalid("notify", "it is longer than %d bytes", maxNotify)
	}
	if _, err := targets.Parse(q.Notify); err != nil {
		return invalid("notify", "%v", err)
	}
	return q.checkTimes()
}

// checkTimes reports what is wrong with the settings of time, and how much is kept for so long.
func (q *Queue) checkTimes() error {
	switch {
	case q.RetryDelay < 0 || q.RetryDelay > duration.Longest:
		return invalid("retry_delay", "%v is not 0 to 100 years", q.RetryDelay)
	case q.RetryMaxDelay < q.RetryDelay || q.RetryMaxDelay > duration.Longest:
		return invalid("retry_max_delay", "%v is not retry_delay (%v) to 100 years", q.RetryMaxDelay, q.RetryDelay)
	case q.Timeout < 0 || q.Timeout > duration.Longest:
		return invalid("timeout", "%v is not 0 to 100 years", q.Timeout)
	case q.KeepDead > duration.Longest:
		return invalid("keep_dead", "%v is longer than 100 years", q.KeepDead)
	case q.KeepDeadMax < 0 || q.KeepDeadMax > 1_000_000:
		return invalid("keep_dead_max", "%d is not 0 to 1000000", q.KeepDeadMax)
	case q.KeepDone < 0 || q.KeepDone > duration.Longest:
		return invalid("keep_done", "%v is not 0 to 100 years", q.KeepDone)
	case q.PollMin < time.Millisecond || q.PollMin > time.Hour:
		return invalid("poll_min", "%v is not 1ms to 1h", q.PollMin)
	case q.PollMax < q.PollMin || q.PollMax > time.Hour:
		return invalid("poll_max", "%v is not poll_min (%v) to 1h", q.PollMax, q.PollMin)
	}
	return nil
}

func (q *Queue) args() sqlrun.Args {
	keep := "forever"
	if q.KeepDead >= 0 {
		keep = duration.Format(q.KeepDead)
	}
	return sqlrun.Args{
		"queue": q.id, "state": q.State, "reason": q.Reason, "key_retry": q.KeyRetry, "max_attempts": q.MaxAttempts, "max_crashes": q.MaxCrashes,
		"retry_delay": duration.Format(q.RetryDelay), "retry_max_delay": duration.Format(q.RetryMaxDelay), "timeout": duration.Format(q.Timeout),
		"max_payload": q.MaxPayload, "keep_dead": keep, "keep_dead_max": q.KeepDeadMax, "keep_done": duration.Format(q.KeepDone),
		"poll_min": duration.Format(q.PollMin), "poll_max": duration.Format(q.PollMax), "notify": q.Notify,
	}
}

const (
	defaultMaxPayload = 1 << 20
	maxNotify         = 16_000 // bytes of Queue.Notify
)

// settingsAge is how old what a producer knows of a queue may be.
const settingsAge = 2 * time.Second

// queue returns a queue's settings, as they were a moment ago, and makes the queue
// if there is none.
func (c *Client) queue(ctx context.Context, name string) (*Queue, error) {
	return c.queueAt(ctx, name, instant.Now())
}

// queueAt is queue for those who know what the time is.
func (c *Client) queueAt(ctx context.Context, name string, at instant.Instant) (*Queue, error) {
	c.mu.Lock()
	q := c.queues[name]
	c.mu.Unlock()
	if q != nil && at.Sub(q.at) < settingsAge {
		return q, nil
	}
	q, err := c.read(ctx, name)
	if errors.Is(err, ErrNotFound) {
		if err = c.create(ctx, name, c.opt.Blocks, false); err == nil {
			q, err = c.read(ctx, name)
		}
	}
	return q, err
}

// read reads a queue's settings, and remembers them.
func (c *Client) read(ctx context.Context, name string) (*Queue, error) {
	q, err := c.readOn(ctx, &c.dbOf(ctx).Session, name)
	if err != nil {
		return nil, err
	}
	c.remember(q)
	return q, nil
}

// remember remembers settings. Of two that were read at the same time the later ones count.
func (c *Client) remember(q *Queue) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if was := c.queues[q.Name]; was == nil || was.at <= q.at {
		c.queues[q.Name] = q
	}
}

func (c *Client) readOn(ctx context.Context, on *sqlrun.Session, name string) (*Queue, error) {
	return c.readBy(ctx, on, store.GetQueue, name)
}

func (c *Client) readBy(ctx context.Context, on *sqlrun.Session, stmt *sqlrun.Stmt, name string) (*Queue, error) {
	at := instant.Now()
	found, err := selectQueues(ctx, on, stmt, sqlrun.Args{"name": name})
	if err != nil {
		return nil, err
	}
	if len(found) == 0 || found[0].Blocks == 0 {
		return nil, fmt.Errorf("%w: queue %q", ErrNotFound, name)
	}
	found[0].at = at
	return found[0], nil
}

// create makes a queue with its blocks, once, whoever else does so.
func (c *Client) create(ctx context.Context, name string, n int, fifo bool) error {
	return c.db.ShortTx(ctx, func(ctx context.Context, tx *sqlrun.Session) error { return createIn(ctx, tx, name, n, fifo) })
}

func createIn(ctx context.Context, tx *sqlrun.Session, name string, n int, fifo bool) error {
	if err := sqlrun.CheckName(name); err != nil { // a route may have been written by hand
		return invalid("queue", "%v", err)
	}
	if _, err := tx.Exec(ctx, store.CreateQueue, sqlrun.Args{"name": name}); err != nil {
		return err
	}
	var id, there int
	if err := tx.Get(ctx, store.LockQueue, sqlrun.Args{"name": name}, &id, &there); err != nil || there > 0 {
		return err
	}
	return store.NewBlocks(ctx, tx, id, 0, n, 1, fifo)
}

// Options adjusts a Client. The zero value is ready to use.
type Options struct {
	Node   string       // the readable part of this process's name in the tables; default: the host's name
	Blocks int          // of queues that it creates: how many workers can share one; default: 16
	Logger *slog.Logger // default: slog.Default()

	// Version is the program's version. Its workers' rows show up to 64 bytes of it; empty means
	// none.
	Version string

	// LeaseLost is called, with the reason, when a worker of the client has lost its lease: for
	// metrics. It should return at once.
	LeaseLost func(why string)

	// Doorbell is an address of this host, with a port or 0 for any, such as 10.0.0.7:0. Other
	// processes send to it when they enqueue jobs for this client's workers, and this client
	// sends to theirs. A message is one UDP datagram that names the queues to read. It is used
	// only where the database cannot notify, on MySQL and SQLite; empty means none, and workers
	// poll.
	Doorbell string
}
