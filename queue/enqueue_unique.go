package queue

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"slices"
	"time"

	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// Jobs with a unique key have a row in a table of the keys that are in use. It is
// written with the job, and removed, or marked as not needed any more, by the
// transaction that removes the job.

// longestUnique is how long a unique key can be kept in use.
const longestUnique = 366 * 24 * time.Hour

// An Enqueued is the outcome of enqueueing a job.
type Enqueued struct {
	ID      int64
	Queue   string // the named queue, or that of the kind's route
	Existed bool   // another job has its unique key: ID is that job's, and nothing was enqueued
}

// enqueued reports what has become of rows.
func enqueued(rows []jobRow) []Enqueued {
	all := make([]Enqueued, len(rows))
	for i := range rows {
		all[i] = Enqueued{ID: cmp.Or(rows[i].holder, rows[i].id), Queue: rows[i].of.Name, Existed: rows[i].holder != 0}
	}
	return all
}

// claimKeys takes the unique keys of rows in a transaction, and returns the rows that
// are to be enqueued. The others say who has their keys.
func claimKeys(ctx context.Context, tx *sqlrun.Session, rows []jobRow) (fresh []jobRow, err error) {
	type key struct {
		queue int
		once  string
	}
	first := map[key]*jobRow{} // of several rows of a key
	var all []sqlrun.Args
	for i := range rows {
		r := &rows[i]
		r.holder = 0
		if r.Unique == "" {
			continue
		}
		if f := first[key{r.queue, r.Unique}]; f != nil {
			continue
		}
		first[key{r.queue, r.Unique}] = r
		row := sqlrun.Args{"at": i, "queue": r.queue, "once": r.Unique, "job": r.id, "until_us": nil}
		if r.UniqueFor > 0 {
			row["until_us"] = store.TimeOf(r.id).Add(r.UniqueFor).UnixMicro()
		}
		all = append(all, row)
	}
	slices.SortFunc(all, func(a, b sqlrun.Args) int { // so that nobody waits for another in a circle
		return cmp.Or(cmp.Compare(a["queue"].(int), b["queue"].(int)), cmp.Compare(a["once"].(string), b["once"].(string)))
	})
	for part := range slices.Chunk(all, store.Chunk) {
		if err := claimPart(ctx, tx, rows, part); err != nil {
			return nil, err
		}
	}
	for i := range rows {
		r := &rows[i]
		if f := first[key{r.queue, r.Unique}]; r.Unique != "" && f != r {
			r.holder = cmp.Or(f.holder, f.id)
		}
		if r.holder == 0 {
			fresh = append(fresh, *r)
		}
	}
	return fresh, nil
}

// claimPart takes keys, and notes who has those that it does not get. One that is freed
// between two of its statements is tried again.
func claimPart(ctx context.Context, tx *sqlrun.Session, rows []jobRow, part []sqlrun.Args) error {
	for range 100 {
		if _, err := tx.Exec(ctx, store.TakeKeys, sqlrun.Args{"rows": part}); err != nil {
			return err
		}
		known, over := map[int]int64{}, map[int]bool{}
		_, err := sqlrun.Select(ctx, tx, store.KeyHolders, sqlrun.Args{"rows": part}, func(found *sql.Rows) (none struct{}, err error) {
			var at int
			var job int64
			var free bool
			err = found.Scan(&at, &job, &free)
			known[at], over[at] = job, free
			return none, err
		})
		if err != nil {
			return err
		}
		var again []sqlrun.Args
		for _, row := range part {
			at := row["at"].(int)
			switch holder, ok := known[at]; {
			case ok && holder == rows[at].id:
				continue
			case ok && !over[at]:
				rows[at].holder = holder
				continue
			case ok:
				args := sqlrun.Args{"holder": holder, "queue": row["queue"], "once": row["once"], "job": row["job"], "until_us": row["until_us"]}
				if n, err := tx.Exec(ctx, store.TakeOverKey, args); err != nil || n > 0 {
					if err != nil {
						return err
					}
					continue
				}
			}
			again = append(again, row)
		}
		if part = again; len(part) == 0 {
			return nil
		}
	}
	return errors.New("unique keys keep changing hands; try again")
}

// reclaimKeys takes the unique keys of jobs again that have ended, and are to come back.
// It returns those that have none, or have got theirs; the others say who has theirs.
func reclaimKeys(ctx context.Context, tx *sqlrun.Session, queue int, rows []jobRow) (back []jobRow, err error) {
	if back, err = claimKeys(ctx, tx, rows); err != nil {
		return nil, err
	}
	var theirs store.Uniques
	for i := range back {
		theirs.Add(back[i].id, back[i].Unique)
	}
	for args := range theirs.Args(queue) {
		if _, err = tx.Exec(ctx, store.KeepKeys, args); err != nil {
			return nil, err
		}
	}
	return back, nil
}
