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
	// TakeKeys takes the keys that are not in use. It waits for another transaction that is
	// taking one.
	TakeKeys = sqlrun.PerDialect("queue.take-keys", func(d *sqlrun.Dialect) string {
		return insertInto(d, "job_unique", "queue_id=queue int, unique_key=unique_key text, job=job int, free_at={time until_us} int, wait_until={time wait_us} int") +
			" {ignore_duplicate job}"
	})

	// KeyHolders returns the holders of keys, by job. A transaction that finds an id of its own
	// has taken the key itself, since these ids are new. It locks the keys, so that it sees
	// what is committed, and not the transaction's snapshot.
	KeyHolders = sqlrun.SQL("queue.key-holders", keyHolders+" {share_locked}")

	// TakeOverKey takes an expired key from a job that has ended. It compares the job that the
	// taker saw, so one of several takers wins.
	TakeOverKey = sqlrun.SQL("queue.take-over-key", `
		UPDATE {prefix}job_unique SET job = :job, pending = 'yes', free_at = {time :until_us}, wait_until = {time :wait_us}
		WHERE queue_id = :queue AND unique_key = :unique_key AND job = :holder AND pending = 'no' AND free_at <= {now}`)

	// FreeKeys frees the keys of jobs that have ended, and PartingKeys marks those that stay in
	// use for a while. It compares the job's id, so it never frees a key of another job; and
	// the key, so it never frees one of another job with the same id.
	FreeKeys = sqlrun.SQL("queue.free-keys", `
		DELETE FROM {prefix}job_unique WHERE `+theirKeys+` AND (free_at IS NULL OR free_at <= {now}) {only job :n}`)
	PartingKeys = sqlrun.SQL("queue.parting-keys", `
		UPDATE {prefix}job_unique SET pending = 'no' WHERE `+theirKeys+` {only job :n}`)

	// KeepKeys puts the keys of jobs that come back into use again. It runs with the keys' rows
	// locked: nobody takes or removes them in between, and later readers find them pending.
	KeepKeys = sqlrun.SQL("queue.keep-keys", `
		UPDATE {prefix}job_unique SET pending = 'yes' WHERE `+theirKeys+` {only job :n}`)

	// OldKeys finds expired keys whose jobs have ended.
	OldKeys = sqlrun.SQL("queue.old-keys", `
		SELECT queue_id, 0, job FROM {prefix}job_unique WHERE pending = 'no' AND free_at <= {now} ORDER BY free_at LIMIT :limit {skip_locked}`)
	PurgeKeys = sqlrun.SQL("queue.purge-keys", `
		DELETE FROM {prefix}job_unique WHERE queue_id = :queue AND {in job :ids} AND pending = 'no' AND free_at <= {now} {only job :n}`)
)

const keyHolders = `
		SELECT record.at, u.job, CASE WHEN u.pending = 'no' AND u.free_at <= {now} THEN 1 ELSE 0 END, COALESCE({us u.wait_until}, 0)
		FROM {records rows: at int, queue int, unique_key text}
		{join_by_key {prefix}job_unique AS u} ON u.queue_id = record.queue AND u.unique_key = record.unique_key`

// theirKeys matches the unique keys of some jobs.
const theirKeys = `queue_id = :queue AND {in job :ids} AND unique_key IN (SELECT unique_key FROM {records keys: unique_key text})`

// UntilBegin is the UniqueUntil of a [Job] that has its unique key up to the beginning of its first attempt.
const UntilBegin = "begin"

// Uniques collects jobs of a queue and their unique keys.
type Uniques struct {
	IDs  []int64
	keys []sqlrun.Args
}

// Add adds the key of a job, if it has one.
func (u *Uniques) Add(id int64, unique string) {
	if unique != "" {
		u.IDs, u.keys = append(u.IDs, id), append(u.keys, sqlrun.Args{"unique_key": unique})
	}
}

// Args iterates over the arguments of the statements about these keys, some keys at a time.
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

// FreeUnique frees the unique keys of jobs that this transaction has ended, or begins.
func FreeUnique(ctx context.Context, tx *sqlrun.Session, queue int, theirs *Uniques) error {
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
	Unique string        // empty: it has no key
	For    time.Duration // how long the key stays in use after enqueueing; 0: until the job ends
	ID     int64

	// Until is up to when a later job may replace this one while it waits, in µs since 1970; 0: none may. Then it
	// has its key until it begins.
	Until int64

	// Replaces says that the job replaces the one that has its key, if that may be replaced. Then Key and Of say where
	// the other one is most likely; and if its turn has come, Until is changed to that of the other one.
	Replaces bool
	Key      string
	Of       *Queue

	Holder int64 // the other job that holds the key; 0: none
}

// A keyName is a unique key of a queue.
type keyName struct {
	queue  int
	unique string
}

// ClaimKeys takes the unique keys of jobs in a transaction, and records the holders of those
// that it does not get. Of several jobs with a key the first gets it, or, if it may be replaced and others replace it,
// the last of them.
func ClaimKeys(ctx context.Context, tx *sqlrun.Session, rows []KeyRow) error {
	owners := map[keyName]int{}
	for i := range rows {
		r := &rows[i]
		if r.Holder = 0; r.Unique == "" {
			continue
		}
		if of, is := owners[keyName{r.Queue, r.Unique}]; !is || rows[of].Until > 0 && r.Replaces {
			owners[keyName{r.Queue, r.Unique}] = i
		}
	}
	var plain, replacing []sqlrun.Args
	for _, i := range owners {
		r := &rows[i]
		row := sqlrun.Args{"at": i, "queue": r.Queue, "unique_key": r.Unique, "job": r.ID, "until_us": nil, "wait_us": nil}
		if r.For > 0 {
			row["until_us"] = TimeOf(r.ID).Add(r.For).UnixMicro()
		}
		if r.Until > 0 {
			row["wait_us"] = r.Until
		}
		if r.Replaces {
			replacing = append(replacing, row)
		} else {
			plain = append(plain, row)
		}
	}
	for _, kind := range []struct {
		all     []sqlrun.Args
		holders *sqlrun.Stmt
	}{{plain, KeyHolders}, {replacing, LockedKeyHolders}} {
		slices.SortFunc(kind.all, func(a, b sqlrun.Args) int { // in one order, so that transactions cannot deadlock
			return cmp.Or(cmp.Compare(a["queue"].(int), b["queue"].(int)), cmp.Compare(a["unique_key"].(string), b["unique_key"].(string)))
		})
		for part := range slices.Chunk(kind.all, Chunk) {
			if err := claimPart(ctx, tx, rows, part, kind.holders); err != nil {
				return err
			}
		}
	}
	for i := range rows {
		r := &rows[i]
		if of, is := owners[keyName{r.Queue, r.Unique}]; is && of != i {
			r.Holder = cmp.Or(rows[of].Holder, rows[of].ID)
		}
	}
	return nil
}

// claimPart takes keys, and records the holders of those that it does not get. It retries a key
// that is freed between two of its statements. holders is the statement that returns these, and locks their keys.
func claimPart(ctx context.Context, tx *sqlrun.Session, rows []KeyRow, part []sqlrun.Args, holders *sqlrun.Stmt) error {
	var replaced []replacement
	for range 100 {
		if _, err := tx.Exec(ctx, TakeKeys, sqlrun.Args{"rows": part}); err != nil {
			return err
		}
		known, over, until := map[int]int64{}, map[int]bool{}, map[int]int64{}
		_, err := sqlrun.Select(ctx, tx, holders, sqlrun.Args{"rows": part}, func(found *sql.Rows) (none struct{}, err error) {
			var at int
			var job, wait int64
			var free bool
			err = found.Scan(&at, &job, &free, &wait)
			known[at], over[at], until[at] = job, free, wait
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
			case ok && !over[at] && rows[at].Replaces && until[at] > 0:
				replaced = append(replaced, replacement{&rows[at], holder, until[at]})
				continue
			case ok && !over[at]:
				rows[at].Holder = holder
				continue
			case ok:
				args := sqlrun.Args{
					"holder": holder, "queue": row["queue"], "unique_key": row["unique_key"], "job": row["job"], "until_us": row["until_us"],
					"wait_us": row["wait_us"],
				}
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
			return replace(ctx, tx, replaced)
		}
	}
	return errors.New("unique keys change hands all the time; try again")
}

// ReclaimKeys takes the unique keys again of jobs of a queue that have ended and are to come
// back.
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
