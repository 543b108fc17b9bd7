package store

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"time"

	"github.com/dbcron/dbcron/internal/address"
	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/plain"
	"github.com/dbcron/dbcron/internal/sqlrun"
)

// Settings are the settings of a queue. Package admin documents each.
type Settings struct {
	Name          string
	State         string
	Reason        string
	KeyRetry      string
	MaxAttempts   int
	MaxCrashes    int
	RetryDelay    time.Duration
	RetryMaxDelay time.Duration
	Timeout       time.Duration
	MaxPayload    int
	KeepDead      time.Duration
	KeepDeadMax   int
	KeepDone      time.Duration
	PollMin       time.Duration
	PollMax       time.Duration
	FIFO          bool
	Notify        string
	Blocks        int
}

// A Queue is a stored queue.
type Queue struct {
	Settings
	ID          int
	Ordered     bool            // it has ordering keys
	Generations []Generation    // of its blocks, in order
	At          instant.Instant // when it was read
}

// ReadQueue reads a queue with a statement such as [GetQueue]. It returns ErrNotFound if the
// queue does not exist, or has no blocks yet.
func ReadQueue(ctx context.Context, on *sqlrun.Session, stmt *sqlrun.Stmt, name string) (*Queue, error) {
	at := instant.Now()
	found, err := SelectQueues(ctx, on, stmt, sqlrun.Args{"name": name})
	if err != nil {
		return nil, err
	}
	if len(found) == 0 || found[0].Blocks == 0 {
		return nil, fmt.Errorf("%w: queue %q", ErrNotFound, name)
	}
	found[0].At = at
	return found[0], nil
}

func scanQueue(rows *sql.Rows) (*Queue, error) {
	q := Queue{Generations: make([]Generation, 1)}
	g := &q.Generations[0]
	var ordered, retry, most, timeout, keep, keepDone, pollMin, pollMax string
	err := rows.Scan(&q.ID, &q.Name, &q.State, &q.Reason, &ordered, &q.KeyRetry, &q.MaxAttempts, &q.MaxCrashes, &retry, &most,
		&timeout, &q.MaxPayload, &keep, &q.KeepDeadMax, &keepDone, &pollMin, &pollMax, &q.Notify,
		&g.Number, &g.First, &g.Blocks, &g.From, &g.FIFO)
	q.Blocks, q.FIFO = g.Blocks, g.FIFO
	g.From += ResizeAfter.Microseconds()
	q.Ordered = ordered == "yes" || q.FIFO
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
			*d.is, err = plain.ParseDuration(d.text)
		}
	}
	if q.KeepDead = -1; err == nil && keep != "forever" {
		q.KeepDead, err = plain.ParseDuration(keep)
	}
	if err != nil {
		err = fmt.Errorf("queue %q: %w", q.Name, err)
	}
	return &q, err
}

// SelectQueues reads queues with a statement that returns a row for each generation of their
// blocks.
func SelectQueues(ctx context.Context, db *sqlrun.Session, stmt *sqlrun.Stmt, args sqlrun.Args) (all []*Queue, err error) {
	rows, err := sqlrun.Select(ctx, db, stmt, args, scanQueue)
	for _, q := range rows {
		if n := len(all); n > 0 && all[n-1].ID == q.ID {
			q.Generations = append(all[n-1].Generations, q.Generations...)
			all[n-1] = q
			continue
		}
		all = append(all, q)
	}
	return all, err
}

// Defaults returns the settings of a new queue: the defaults of the table's columns.
func Defaults(name string) Settings {
	return Settings{
		Name: name, State: "active", KeyRetry: "hold", MaxAttempts: 10, MaxCrashes: 3, RetryDelay: 10 * time.Second, RetryMaxDelay: time.Hour,
		MaxPayload: DefaultMaxPayload, KeepDead: 90 * 24 * time.Hour, PollMin: 2 * time.Millisecond, PollMax: 250 * time.Millisecond,
	}
}

// Check returns an [InvalidError] about the first invalid setting.
func (q *Settings) Check() error {
	switch {
	case q.State != "active" && q.State != "paused" && q.State != "deleted":
		return Invalid("state", "%q is not active, paused or deleted", q.State)
	case q.KeyRetry != "hold" && q.KeyRetry != "pass":
		return Invalid("key_retry", "%q is not hold or pass", q.KeyRetry)
	case q.MaxAttempts < 1 || q.MaxAttempts > 1_000_000:
		return Invalid("max_attempts", "%d is not 1 to 1000000", q.MaxAttempts)
	case q.MaxCrashes < 1 || q.MaxCrashes > 1_000_000:
		return Invalid("max_crashes", "%d is not 1 to 1000000", q.MaxCrashes)
	case q.MaxPayload < 1 || q.MaxPayload > 1<<30:
		return Invalid("max_payload", "%d is not 1 byte to 1 GiB", q.MaxPayload)
	case len(q.Notify) > MaxNotify:
		return Invalid("notify", "it is longer than %d bytes", MaxNotify)
	}
	if _, err := address.ParseTargets(q.Notify); err != nil {
		return Invalid("notify", "%v", err)
	}
	return q.checkTimes()
}

// checkTimes checks the settings about time, and the limits on what is kept.
func (q *Settings) checkTimes() error {
	switch {
	case q.RetryDelay < 0 || q.RetryDelay > plain.LongestDuration:
		return Invalid("retry_delay", "%v is not 0 to 100 years", q.RetryDelay)
	case q.RetryMaxDelay < q.RetryDelay || q.RetryMaxDelay > plain.LongestDuration:
		return Invalid("retry_max_delay", "%v is not retry_delay (%v) to 100 years", q.RetryMaxDelay, q.RetryDelay)
	case q.Timeout < 0 || q.Timeout > plain.LongestDuration:
		return Invalid("timeout", "%v is not 0 to 100 years", q.Timeout)
	case q.KeepDead > plain.LongestDuration:
		return Invalid("keep_dead", "%v is longer than 100 years", q.KeepDead)
	case q.KeepDeadMax < 0 || q.KeepDeadMax > 1_000_000:
		return Invalid("keep_dead_max", "%d is not 0 to 1000000", q.KeepDeadMax)
	case q.KeepDone < 0 || q.KeepDone > plain.LongestDuration:
		return Invalid("keep_done", "%v is not 0 to 100 years", q.KeepDone)
	case q.PollMin < time.Millisecond || q.PollMin > time.Hour:
		return Invalid("poll_min", "%v is not 1ms to 1h", q.PollMin)
	case q.PollMax < q.PollMin || q.PollMax > time.Hour:
		return Invalid("poll_max", "%v is not poll_min (%v) to 1h", q.PollMax, q.PollMin)
	}
	return nil
}

// Args returns the arguments of [SetQueue].
func (q *Settings) Args(queue int) sqlrun.Args {
	keep := "forever"
	if q.KeepDead >= 0 {
		keep = plain.FormatDuration(q.KeepDead)
	}
	return sqlrun.Args{
		"queue": queue, "state": q.State, "reason": q.Reason, "key_retry": q.KeyRetry, "max_attempts": q.MaxAttempts, "max_crashes": q.MaxCrashes,
		"retry_delay": plain.FormatDuration(q.RetryDelay), "retry_max_delay": plain.FormatDuration(q.RetryMaxDelay),
		"timeout":     plain.FormatDuration(q.Timeout),
		"max_payload": q.MaxPayload, "keep_dead": keep, "keep_dead_max": q.KeepDeadMax, "keep_done": plain.FormatDuration(q.KeepDone),
		"poll_min": plain.FormatDuration(q.PollMin), "poll_max": plain.FormatDuration(q.PollMax), "notify": q.Notify,
	}
}

const (
	// DefaultQueue is the queue of jobs that name none and have no route.
	DefaultQueue = "default"

	// DefaultMaxPayload is the maximum size of a payload in a new queue, in bytes.
	DefaultMaxPayload = 1 << 20

	// MaxNotify is the maximum size of Queue.Notify in bytes.
	MaxNotify = 16_000
)

// SettingsAge is the maximum age of what a producer knows of a queue.
const SettingsAge = 2 * time.Second

// MakeQueue creates a queue with its blocks in a transaction; concurrent creators share the
// result.
func MakeQueue(ctx context.Context, tx *sqlrun.Session, name string, n int, fifo bool) error {
	return MakeQueues(ctx, tx, []string{name}, n, fifo)
}

// MakeQueues makes several in a transaction, each once.
func MakeQueues(ctx context.Context, tx *sqlrun.Session, names []string, n int, fifo bool) error {
	names = slices.Sorted(slices.Values(names))
	queues := make([]sqlrun.Args, len(names))
	for i, name := range names {
		if err := sqlrun.CheckName(name); err != nil { // a route may have been written by hand
			return Invalid("queue", "%v", err)
		}
		queues[i] = sqlrun.Args{"name": name}
	}
	if _, err := tx.Exec(ctx, CreateQueues, sqlrun.Args{"rows": queues}); err != nil {
		return err
	}
	bare, err := sqlrun.Select(ctx, tx, LockQueues, sqlrun.Args{"names": names}, func(rows *sql.Rows) (id int, err error) {
		var blocks int
		if err = rows.Scan(&id, &blocks); blocks > 0 {
			id = 0
		}
		return id, err
	})
	if err != nil {
		return err
	}
	bare = slices.DeleteFunc(bare, func(id int) bool { return id == 0 })
	return NewBlocks(ctx, tx, bare, 0, n, 1, fifo)
}
