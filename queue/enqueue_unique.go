package queue

import (
	"cmp"
	"context"
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
func claimKeys(ctx context.Context, tx *sqlrun.Session, rows []jobRow) (fresh []jobRow, err error) {
	keys := make([]store.KeyRow, len(rows))
	for i := range rows {
		r := &rows[i]
		keys[i] = store.KeyRow{Queue: r.queue, Unique: r.Unique, For: r.UniqueFor, ID: r.id, Until: r.until}
		if r.Debounce > 0 {
			keys[i].Until = store.TimeOf(r.id).Add(r.Debounce).UnixMicro()
			keys[i].Replaces, keys[i].Key, keys[i].Of = true, r.Key, r.of
		}
	}
	if err := store.ClaimKeys(ctx, tx, keys); err != nil {
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
