package store

import (
	"context"
	"iter"
	"slices"

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
