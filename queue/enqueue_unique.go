package queue

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// Jobs with a unique key have a row in a table of keys in use. It is written with the job. The
// transaction that removes the job removes the row, too, or marks it as no longer needed.

// longestUnique is the maximum of Job.UniqueFor and Job.Debounce.
const longestUnique = 366 * 24 * time.Hour

// An Enqueued is the outcome of enqueueing a job.
type Enqueued struct {
	ID      int64
	Queue   string // the queue named by the job, or that of its kind's route
	Existed bool   // another job has its unique key: ID is that job's, and nothing was enqueued
}

// errHeldKey has a caller write its job in a transaction of its own.
var errHeldKey = errors.New("another transaction holds the unique key of a job")

// A lone has the unique keys of jobs that callers write by themselves. As long as one of them waits for another transaction, jobs of
// its key are not written with others, which would have to be tried twice.
type lone struct {
	mu   sync.Mutex
	keys map[uniqueKey]int // how many callers
}

type uniqueKey struct {
	queue  int
	unique string
}

func (l *lone) has(key uniqueKey) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.keys[key] > 0
}

// add changes the number of callers with a key.
func (l *lone) add(key uniqueKey, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.keys == nil {
		l.keys = map[uniqueKey]int{}
	}
	if l.keys[key] += n; l.keys[key] == 0 {
		delete(l.keys, key)
	}
}

// enqueueUnique enqueues a job with a unique key together with others, or alone if another transaction holds its key, or one of theirs.
func (c *Client) enqueueUnique(ctx context.Context, one *sending) (Enqueued, error) {
	job, name := one.jobs[0], one.rows[0].of.Name // before a writer sets the row's fields
	key := uniqueKey{one.rows[0].queue, job.Unique}
	if !c.lone.has(key) {
		switch id, err := c.keyed.send(ctx, one); {
		case err == nil:
			return enqueued(one.rows[:])[0], nil
		case id != 0:
			return Enqueued{ID: id, Queue: name}, err
		case !errors.Is(err, errHeldKey):
			return Enqueued{}, err
		}
	}
	c.lone.add(key, 1)
	defer c.lone.add(key, -1)
	return c.enqueueAlone(ctx, job)
}

// enqueued returns the outcomes of rows.
func enqueued(rows []jobRow) []Enqueued {
	all := make([]Enqueued, len(rows))
	for i := range rows {
		all[i] = Enqueued{ID: cmp.Or(rows[i].holder, rows[i].id), Queue: rows[i].of.Name, Existed: rows[i].holder != 0}
	}
	return all
}

// claimKeys takes the unique keys of rows in a transaction, and returns the rows to enqueue. The
// others record who holds their keys.
//
// claim is [store.ClaimKeys] or one of its kind.
func claimKeys(
	ctx context.Context, tx *sqlrun.Session, rows []jobRow, claim func(context.Context, *sqlrun.Session, []store.KeyRow) error,
) (fresh []jobRow, err error) {
	keys := make([]store.KeyRow, len(rows))
	for i := range rows {
		r := &rows[i]
		keys[i] = store.KeyRow{Queue: r.queue, Unique: r.Unique, For: r.UniqueFor, ID: r.id, Until: r.until}
		if r.Debounce > 0 {
			keys[i].Until = store.TimeOf(r.id).Add(r.Debounce).UnixMicro()
			keys[i].Replaces, keys[i].Key, keys[i].Of = true, r.Key, r.of
		}
	}
	if err := claim(ctx, tx, keys); err != nil {
		return nil, err
	}
	for i := range rows {
		if rows[i].holder = keys[i].Holder; rows[i].holder == 0 {
			if rows[i].Debounce > 0 {
				rows[i].runAt = min(rows[i].runAt, keys[i].Until)
			}
			fresh = append(fresh, rows[i])
		}
	}
	return fresh, nil
}
