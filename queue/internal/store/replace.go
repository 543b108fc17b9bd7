package store

import (
	"context"
	"database/sql"
	"maps"
	"slices"

	"github.com/dbcron/dbcron/internal/sqlrun"
)

// A job that replaces another one: it takes the unique key, and deletes the other one's row. The row of the key is locked first,
// as by a worker that checks a job out, which frees the key first. So either the worker finds no job, or this finds no key.

var (
	// LockedKeyHolders is KeyHolders for jobs that replace others.
	LockedKeyHolders = sqlrun.SQL("queue.locked-key-holders", keyHolders+" {locked}")

	// LockReplaced locks the delayed jobs that are in their blocks, by their ids and keys: another job may have the same id.
	LockReplaced = sqlrun.SQL("queue.lock-replaced", `
		SELECT j.divided, j.id FROM {records places: queue int, block int, job int, unique_key text}
		{join_by_key {prefix}job_delayed AS j} ON j.queue_id = record.queue AND j.divided = record.block AND j.id = record.job AND j.unique_key = record.unique_key
		ORDER BY j.id {locked}`)

	// WhereDelayed looks for jobs by their ids in all blocks, like LocateJob. It locks nothing: LockReplaced would lock, in each
	// block in which a job is not, the gap where it would be, so that nobody could insert there.
	WhereDelayed = sqlrun.SQL("queue.where-delayed", `
		SELECT b.divided, record.job FROM {records jobs: job int} JOIN {prefix}queue_block AS b ON b.queue_id = :queue
		WHERE (SELECT j.id FROM {prefix}job_delayed AS j WHERE j.queue_id = :queue AND j.divided = b.divided AND j.id = record.job) IS NOT NULL`)

	// UnservedQueues are those of some queues of which no worker begins jobs: they are paused, or nobody has a block. What a worker does
	// meanwhile makes no difference to what is right: see replace.
	UnservedQueues = sqlrun.SQL("queue.unserved-queues", `
		SELECT q.queue_id FROM {prefix}queue AS q WHERE {in q.queue_id :queues} AND (q.state = 'paused'
			OR NOT EXISTS (SELECT 1 FROM {prefix}queue_block AS b WHERE b.queue_id = q.queue_id AND b.state = 'LEASED'))`)

	// PassOnKeys gives locked keys to the jobs that have replaced their holders.
	PassOnKeys = sqlrun.PerDialect("queue.pass-on-keys", func(d *sqlrun.Dialect) string {
		return d.UpdateFrom("{prefix}job_unique", []string{"queue_id", "unique_key"}, "job = picked.taker, wait_until = {time picked.wait_us}",
			"{prefix}job_unique.job = picked.holder",
			`SELECT queue AS queue_id, unique_key, holder, job AS taker, wait_us FROM {records rows: queue int, unique_key text, holder int, job int, wait_us int}`)
	})
)

// A replacement is a job that takes the unique key of another one.
type replacement struct {
	by     *KeyRow
	holder int64
	until  int64 // up to when the other one may be replaced, in µs since 1970
}

// replace deletes the jobs that others replace, whose keys are locked. One whose turn has come, or that waits no more, stays as it
// is: a steady stream would otherwise replace each one that is due, and none would begin. Where none begins anyway, it is replaced: by one
// that is due as well.
func replace(ctx context.Context, tx *sqlrun.Session, all []replacement) error {
	if len(all) == 0 {
		return nil
	}
	rows, queues := make([]sqlrun.Args, len(all)), map[int]map[int64]*replacement{}
	late := map[int64]bool{} // queues of which a job's turn has come
	for i := range all {
		if r := &all[i]; r.until <= TimeOf(r.by.ID).UnixMicro() {
			late[int64(r.by.Queue)] = true
		}
	}
	unserved := map[int64]bool{}
	if len(late) > 0 {
		ids, err := sqlrun.Select(ctx, tx, UnservedQueues, sqlrun.Args{"queues": slices.Sorted(maps.Keys(late))}, ScanID)
		if err != nil {
			return err
		}
		for _, id := range ids {
			unserved[id] = true
		}
	}
	for i := range all {
		if r := &all[i]; r.until > TimeOf(r.by.ID).UnixMicro() || unserved[int64(r.by.Queue)] {
			if queues[r.by.Queue] == nil {
				queues[r.by.Queue] = map[int64]*replacement{}
			}
			queues[r.by.Queue][r.holder] = r
		}
	}
	for _, queue := range slices.Sorted(maps.Keys(queues)) {
		if err := removeReplaced(ctx, tx, queue, queues[queue]); err != nil {
			return err
		}
	}
	for i, r := range all {
		rows[i] = sqlrun.Args{"queue": r.by.Queue, "unique_key": r.by.Unique, "holder": r.holder, "job": r.by.ID, "wait_us": r.by.Until}
	}
	n, err := tx.Exec(ctx, PassOnKeys, sqlrun.Args{"rows": rows})
	return Short(err, n, len(rows))
}

// removeReplaced deletes those of a queue's jobs that wait, by id: first where each one is as a rule, and then wherever the others are,
// whose ordering key is another one, or which were moved by a resize. Those who replace them start no later than they would have.
func removeReplaced(ctx context.Context, tx *sqlrun.Session, queue int, left map[int64]*replacement) error {
	var places []sqlrun.Args
	place := func(divided int, id int64) {
		if r := left[id]; r != nil {
			places = append(places, sqlrun.Args{"queue": queue, "block": divided, "job": id, "unique_key": r.by.Unique})
		}
	}
	scan := func(each func(divided int, id int64)) func(*sql.Rows) (struct{}, error) {
		return func(rows *sql.Rows) (none struct{}, err error) {
			var divided int
			var id int64
			if err = rows.Scan(&divided, &id); err == nil {
				each(divided, id)
			}
			return none, err
		}
	}
	for _, id := range slices.Sorted(maps.Keys(left)) {
		place(left[id].by.Of.Block(left[id].by.Key, id), id)
	}
	for again := true; len(places) > 0; again = false {
		here := map[int][]int64{}
		_, err := sqlrun.Select(ctx, tx, LockReplaced, sqlrun.Args{"places": places}, scan(func(divided int, id int64) {
			here[divided] = append(here[divided], id)
		}))
		if err != nil {
			return err
		}
		for divided, ids := range here {
			n, err := tx.Exec(ctx, AckDelayed, JobArgs(queue, divided, 0, ids))
			if err := Short(err, n, len(ids)); err != nil {
				return err
			}
			for _, id := range ids {
				left[id].by.Until = left[id].until
				delete(left, id)
			}
		}
		if places = nil; again && len(left) > 0 {
			var jobs []sqlrun.Args
			for _, id := range slices.Sorted(maps.Keys(left)) {
				jobs = append(jobs, sqlrun.Args{"job": id})
			}
			if _, err := sqlrun.Select(ctx, tx, WhereDelayed, sqlrun.Args{"queue": queue, "jobs": jobs}, scan(place)); err != nil {
				return err
			}
		}
	}
	return nil
}
