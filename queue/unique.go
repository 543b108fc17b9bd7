package queue

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"iter"
	"slices"
	"time"

	"github.com/dbcron/dbcron/dialect"
)

// Jobs with a unique key have a row in a table of the keys that are in use. It is
// written with the job, and removed, or marked as not needed any more, by the
// transaction that removes the job.

// longestUnique is how long a unique key can be kept in use.
const longestUnique = 366 * 24 * time.Hour

var (
	// takeKeys takes the keys that are not in use. A key that another transaction is
	// taking is waited for.
	takeKeys = dialect.PerDialect("queue.take-keys", func(d *dialect.Dialect) string {
		return insertInto(d, "job_unique", "queue_id=queue int, unique_key=once text, job=job int, free_at={time until_us} int") +
			" {ignore_duplicate job}"
	})

	// keyHolders tells whose keys are, by job: an id that is fresh to this transaction
	// says that it has taken the key itself. It locks them, so that it sees what is
	// committed and not what was when the transaction began.
	keyHolders = dialect.SQL("queue.key-holders", `
		SELECT record.at, u.job, CASE WHEN u.pending = 'no' AND u.free_at <= {now} THEN 1 ELSE 0 END
		FROM {records rows: at int, queue int, once text}
		{join_by_key {prefix}job_unique AS u} ON u.queue_id = record.queue AND u.unique_key = record.once {share_locked}`)

	// takeOverKey takes a key whose time is over from a job that has ended: one of
	// several who want it finds the job that it saw.
	takeOverKey = dialect.SQL("queue.take-over-key", `
		UPDATE {prefix}job_unique SET job = :job, pending = 'yes', free_at = {time :until_us}
		WHERE queue_id = :queue AND unique_key = :once AND job = :holder AND pending = 'no' AND free_at <= {now}`)

	// freeKeys frees the keys of jobs that have ended, and parting marks those that stay
	// in use for a while. A key is never another job's: it has the job's id. Nor is it another
	// key of another job with this id: it is named.
	freeKeys = dialect.SQL("queue.free-keys", `
		DELETE FROM {prefix}job_unique WHERE `+theirKeys+` AND (free_at IS NULL OR free_at <= {now}) {only job :n}`)
	parting = dialect.SQL("queue.parting-keys", `
		UPDATE {prefix}job_unique SET pending = 'no' WHERE `+theirKeys+` {only job :n}`)

	// keepKeys takes the keys of jobs that come back into use again. It is run with the
	// keys' rows locked: nobody takes or removes them in between, and whoever looks afterwards
	// finds them pending.
	keepKeys = dialect.SQL("queue.keep-keys", `
		UPDATE {prefix}job_unique SET pending = 'yes' WHERE `+theirKeys+` {only job :n}`)

	// oldKeys finds keys whose jobs have ended and whose time is over.
	oldKeys = dialect.SQL("queue.old-keys", `
		SELECT queue_id, 0, job FROM {prefix}job_unique WHERE pending = 'no' AND free_at <= {now} ORDER BY free_at LIMIT :limit {skip_locked}`)
	purgeKeys = dialect.SQL("queue.purge-keys", `
		DELETE FROM {prefix}job_unique WHERE queue_id = :queue AND {in job :ids} AND pending = 'no' AND free_at <= {now} {only job :n}`)
)

// theirKeys are the unique keys of some jobs.
const theirKeys = `queue_id = :queue AND {in job :ids} AND unique_key IN (SELECT once FROM {records keys: once text})`

// uniques are jobs of a queue and the unique keys that they have.
type uniques struct {
	ids  []int64
	keys []dialect.Args
}

func (u *uniques) add(id int64, unique string) {
	if unique != "" {
		u.ids, u.keys = append(u.ids, id), append(u.keys, dialect.Args{"once": unique})
	}
}

// args are arguments of the statements about their keys, for some at a time.
func (u *uniques) args(queue int) iter.Seq[dialect.Args] {
	return func(yield func(dialect.Args) bool) {
		for from := 0; from < len(u.ids); from += chunk {
			to := min(from+chunk, len(u.ids))
			args := listArgs(queue, 0, 0, slices.Clone(u.ids[from:to]))
			args["keys"] = u.keys[from:to]
			if !yield(args) {
				return
			}
		}
	}
}

// An Enqueued tells what has become of a job that was to be enqueued.
type Enqueued struct {
	ID      int64
	Queue   string // it was named, or is as the route of the kind says
	Existed bool   // another job has its unique key: ID is of that one, and nothing was enqueued
}

// enqueued tells what has become of rows.
func enqueued(rows []jobRow) []Enqueued {
	all := make([]Enqueued, len(rows))
	for i := range rows {
		all[i] = Enqueued{ID: cmp.Or(rows[i].holder, rows[i].id), Queue: rows[i].of.Name, Existed: rows[i].holder != 0}
	}
	return all
}

// claimKeys takes the unique keys of rows in a transaction, and returns the rows that
// are to be enqueued. The others say who has their keys.
func claimKeys(ctx context.Context, tx *dialect.Session, rows []jobRow) (fresh []jobRow, err error) {
	type key struct {
		queue int
		once  string
	}
	first := map[key]*jobRow{} // of several rows of a key
	var all []dialect.Args
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
		row := dialect.Args{"at": i, "queue": r.queue, "once": r.Unique, "job": r.id, "until_us": nil}
		if r.UniqueFor > 0 {
			row["until_us"] = TimeOf(r.id).Add(r.UniqueFor).UnixMicro()
		}
		all = append(all, row)
	}
	slices.SortFunc(all, func(a, b dialect.Args) int { // so that nobody waits for another in a circle
		return cmp.Or(cmp.Compare(a["queue"].(int), b["queue"].(int)), cmp.Compare(a["once"].(string), b["once"].(string)))
	})
	for part := range slices.Chunk(all, chunk) {
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
func claimPart(ctx context.Context, tx *dialect.Session, rows []jobRow, part []dialect.Args) error {
	for range 100 {
		if _, err := tx.Exec(ctx, takeKeys, dialect.Args{"rows": part}); err != nil {
			return err
		}
		known, over := map[int]int64{}, map[int]bool{}
		_, err := dialect.Select(ctx, tx, keyHolders, dialect.Args{"rows": part}, func(found *sql.Rows) (none struct{}, err error) {
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
		var again []dialect.Args
		for _, row := range part {
			at := row["at"].(int)
			switch holder, ok := known[at]; {
			case ok && holder == rows[at].id:
				continue
			case ok && !over[at]:
				rows[at].holder = holder
				continue
			case ok:
				args := dialect.Args{"holder": holder, "queue": row["queue"], "once": row["once"], "job": row["job"], "until_us": row["until_us"]}
				if n, err := tx.Exec(ctx, takeOverKey, args); err != nil || n > 0 {
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

// reclaimKeys takes the unique keys of jobs again that have ended, and are to come back.
// It returns those that have none, or have got theirs; the others say who has theirs.
func reclaimKeys(ctx context.Context, tx *dialect.Session, queue int, rows []jobRow) (back []jobRow, err error) {
	if back, err = claimKeys(ctx, tx, rows); err != nil {
		return nil, err
	}
	var theirs uniques
	for i := range back {
		theirs.add(back[i].id, back[i].Unique)
	}
	for args := range theirs.args(queue) {
		if _, err = tx.Exec(ctx, keepKeys, args); err != nil {
			return nil, err
		}
	}
	return back, nil
}

// freeUnique frees the unique keys that jobs have which this transaction has ended.
func freeUnique(ctx context.Context, tx *dialect.Session, queue int, theirs *uniques) error {
	for args := range theirs.args(queue) {
		if _, err := tx.Exec(ctx, freeKeys, args); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, parting, args); err != nil {
			return err
		}
	}
	return nil
}
