package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"iter"
	"slices"
	"time"

	"github.com/dbcron/dbcron/internal/sqlrun"
)

// Unique keys.
var (
	// TakeKeys takes the keys that are not in use. A key that another transaction is
	// taking is waited for.
	TakeKeys = sqlrun.PerDialect("queue.take-keys", func(d *sqlrun.Dialect) string {
		return insertInto(d, "job_unique", "queue_id=queue int, unique_key=once text, job=job int, free_at={time until_us} int") +
			" {ignore_duplicate job}"
	})

	// KeyHolders tells whose keys are, by job: an id that is fresh to this transaction
	// says that it has taken the key itself. It locks them, so that it sees what is
	// committed and not what was when the transaction began.
	KeyHolders = sqlrun.SQL("queue.key-holders", `
		SELECT record.at, u.job, CASE WHEN u.pending = 'no' AND u.free_at <= {now} THEN 1 ELSE 0 END
		FROM {records rows: at int, queue int, once text}
		{join_by_key {prefix}job_unique AS u} ON u.queue_id = record.queue AND u.unique_key = record.once {share_locked}`)

	// TakeOverKey takes a key whose time is over from a job that has ended: one of
	// several who want it finds the job that it saw.
	TakeOverKey = sqlrun.SQL("queue.take-over-key", `
		UPDATE {prefix}job_unique SET job = :job, pending = 'yes', free_at = {time :until_us}
		WHERE queue_id = :queue AND unique_key = :once AND job = :holder AND pending = 'no' AND free_at <= {now}`)

	// FreeKeys frees the keys of jobs that have ended, and parting marks those that stay
	// in use for a while. A key is never another job's: it has the job's id. Nor is it another
	// key of another job with this id: it is named.
	FreeKeys = sqlrun.SQL("queue.free-keys", `
		DELETE FROM {prefix}job_unique WHERE `+theirKeys+` AND (free_at IS NULL OR free_at <= {now}) {only job :n}`)
	PartingKeys = sqlrun.SQL("queue.parting-keys", `
		UPDATE {prefix}job_unique SET pending = 'no' WHERE `+theirKeys+` {only job :n}`)

	// KeepKeys takes the keys of jobs that come back into use again. It is run with the
	// keys' rows locked: nobody takes or removes them in between, and whoever looks afterwards
	// finds them pending.
	KeepKeys = sqlrun.SQL("queue.keep-keys", `
		UPDATE {prefix}job_unique SET pending = 'yes' WHERE `+theirKeys+` {only job :n}`)

	// OldKeys finds keys whose jobs have ended and whose time is over.
	OldKeys = sqlrun.SQL("queue.old-keys", `
		SELECT queue_id, 0, job FROM {prefix}job_unique WHERE pending = 'no' AND free_at <= {now} ORDER BY free_at LIMIT :limit {skip_locked}`)
	PurgeKeys = sqlrun.SQL("queue.purge-keys", `
		DELETE FROM {prefix}job_unique WHERE queue_id = :queue AND {in job :ids} AND pending = 'no' AND free_at <= {now} {only job :n}`)
)

// theirKeys are the unique keys of some jobs.
const theirKeys = `queue_id = :queue AND {in job :ids} AND unique_key IN (SELECT once FROM {records keys: once text})`

// Uniques are jobs of a queue and the unique keys that they have.
type Uniques struct {
	IDs  []int64
	keys []sqlrun.Args
}

// Add adds the key of a job, if it has one.
func (u *Uniques) Add(id int64, unique string) {
	if unique != "" {
		u.IDs, u.keys = append(u.IDs, id), append(u.keys, sqlrun.Args{"once": unique})
	}
}

// Args are arguments of the statements about their keys, for some at a time.
func (u *Uniques) Args(queue int) iter.Seq[sqlrun.Args] {
	return func(yield func(sqlrun.Args) bool) {
		for from := 0; from < len(u.IDs); from += Chunk {
			to := min(from+Chunk, len(u.IDs))
			args := JobArgs(queue, 0, 0, slices.Clone(u.IDs[from:to]))
			args["keys"] = u.keys[from:to]
			if !yield(args) {
				return
			}
		}
	}
}

// freeUnique frees the unique keys that jobs have which this transaction has ended.
func freeUnique(ctx context.Context, tx *sqlrun.Session, queue int, theirs *Uniques) error {
	for args := range theirs.Args(queue) {
		if _, err := tx.Exec(ctx, FreeKeys, args); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, PartingKeys, args); err != nil {
			return err
		}
	}
	return nil
}

// A KeyRow is a job that wants its unique key.
type KeyRow struct {
	Queue  int
	Unique string        // empty: it has none
	For    time.Duration // how long after it was enqueued the key stays in use; 0: until it ends
	ID     int64

	Holder int64 // the job that has its key; 0: none, or itself
}

// ClaimKeys takes the unique keys of jobs in a transaction, and notes who has those that it does
// not get.
func ClaimKeys(ctx context.Context, tx *sqlrun.Session, rows []KeyRow) error {
	type key struct {
		queue int
		once  string
	}
	first := map[key]*KeyRow{} // of several rows of a key
	var all []sqlrun.Args
	for i := range rows {
		r := &rows[i]
		r.Holder = 0
		if r.Unique == "" {
			continue
		}
		if f := first[key{r.Queue, r.Unique}]; f != nil {
			continue
		}
		first[key{r.Queue, r.Unique}] = r
		row := sqlrun.Args{"at": i, "queue": r.Queue, "once": r.Unique, "job": r.ID, "until_us": nil}
		if r.For > 0 {
			row["until_us"] = TimeOf(r.ID).Add(r.For).UnixMicro()
		}
		all = append(all, row)
	}
	slices.SortFunc(all, func(a, b sqlrun.Args) int { // so that nobody waits for another in a circle
		return cmp.Or(cmp.Compare(a["queue"].(int), b["queue"].(int)), cmp.Compare(a["once"].(string), b["once"].(string)))
	})
	for part := range slices.Chunk(all, Chunk) {
		if err := claimPart(ctx, tx, rows, part); err != nil {
			return err
		}
	}
	for i := range rows {
		r := &rows[i]
		if f := first[key{r.Queue, r.Unique}]; r.Unique != "" && f != r {
			r.Holder = cmp.Or(f.Holder, f.ID)
		}
	}
	return nil
}

// claimPart takes keys, and notes who has those that it does not get. One that is freed
// between two of its statements is tried again.
func claimPart(ctx context.Context, tx *sqlrun.Session, rows []KeyRow, part []sqlrun.Args) error {
	for range 100 {
		if _, err := tx.Exec(ctx, TakeKeys, sqlrun.Args{"rows": part}); err != nil {
			return err
		}
		known, over := map[int]int64{}, map[int]bool{}
		_, err := sqlrun.Select(ctx, tx, KeyHolders, sqlrun.Args{"rows": part}, func(found *sql.Rows) (none struct{}, err error) {
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
			case ok && holder == rows[at].ID:
				continue
			case ok && !over[at]:
				rows[at].Holder = holder
				continue
			case ok:
				args := sqlrun.Args{"holder": holder, "queue": row["queue"], "once": row["once"], "job": row["job"], "until_us": row["until_us"]}
				if n, err := tx.Exec(ctx, TakeOverKey, args); err != nil || n > 0 {
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
	return errors.New("unique keys change hands all the time; try again")
}

// ReclaimKeys takes the unique keys of jobs of a queue again that have ended, and are to come back.
func ReclaimKeys(ctx context.Context, tx *sqlrun.Session, queue int, rows []KeyRow) error {
	if err := ClaimKeys(ctx, tx, rows); err != nil {
		return err
	}
	var theirs Uniques
	for i := range rows {
		if rows[i].Holder == 0 {
			theirs.Add(rows[i].ID, rows[i].Unique)
		}
	}
	for args := range theirs.Args(queue) {
		if _, err := tx.Exec(ctx, KeepKeys, args); err != nil {
			return err
		}
	}
	return nil
}
