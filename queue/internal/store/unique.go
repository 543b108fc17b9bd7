package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
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

	// SeenKeyHolders is KeyHolders for a transaction that sees what is committed, and must not wait: it locks nothing.
	SeenKeyHolders = sqlrun.SQL("queue.seen-key-holders", keyHolders)

	// TryKeys fails at once if another transaction holds one of the keys, or has taken it and not committed.
	TryKeys = sqlrun.PerDialect("queue.try-keys", func(d *sqlrun.Dialect) string { return keyHolders + " " + d.LockedNow })

	// TakeOverKeys takes expired keys from jobs that have ended. It compares the jobs that the taker saw, so one of several takers
	// wins: whose job the holder is then.
	TakeOverKeys = sqlrun.PerDialect("queue.take-over-keys", func(d *sqlrun.Dialect) string {
		return d.UpdateFrom("{prefix}job_unique", []string{"queue_id", "unique_key"},
			"job = picked.taker, pending = 'yes', free_at = {time picked.until_us}, wait_until = {time picked.wait_us}",
			"{prefix}job_unique.job = picked.holder AND {prefix}job_unique.pending = 'no' AND {prefix}job_unique.free_at <= {now}",
			`SELECT queue AS queue_id, unique_key, holder, job AS taker, until_us, wait_us
			FROM {records rows: queue int, unique_key text, holder int, job int, until_us int, wait_us int}`)
	})

	// FreeKeys frees the keys of jobs that have ended, and PartingKeys marks those that stay in
	// use for a while. It compares the job's id, so it never frees a key of another job; and
	// the key, so it never frees one of another job with the same id.
	FreeKeys = sqlrun.SQL("queue.free-keys", `
		DELETE FROM {prefix}job_unique WHERE `+theirKeys+` AND (free_at IS NULL OR free_at <= {now}) {only unique_key :n}`)
	PartingKeys = sqlrun.SQL("queue.parting-keys", `
		UPDATE {prefix}job_unique SET pending = 'no' WHERE `+theirKeys+` {only unique_key :n}`)

	// KeepKeys puts the keys of jobs that come back into use again. It runs with the keys' rows
	// locked: nobody takes or removes them in between, and later readers find them pending.
	KeepKeys = sqlrun.SQL("queue.keep-keys", `
		UPDATE {prefix}job_unique SET pending = 'yes' WHERE `+theirKeys+` {only unique_key :n}`)

	// OldKeys finds expired keys whose jobs have ended, and locks them for PassKeys.
	OldKeys = sqlrun.SQL("queue.old-keys", `
		SELECT queue_id, 0, job, unique_key FROM {prefix}job_unique WHERE pending = 'no' AND free_at <= {now} ORDER BY free_at LIMIT :limit {skip_locked}`)
)

const keyHolders = `
		SELECT record.at, u.job, CASE WHEN u.pending = 'no' AND u.free_at <= {now} THEN 1 ELSE 0 END, COALESCE({us u.wait_until}, 0)
		FROM {records rows: at int, queue int, unique_key text}
		{join_by_key {prefix}job_unique AS u} ON u.queue_id = record.queue AND u.unique_key = record.unique_key`

// theirKeys matches the unique keys of some jobs. It looks each key up, whatever the statistics say: no other index has its columns, and a
// list for the first column of an index is always looked up in it.
const theirKeys = `queue_id = :queue AND {in unique_key text :uniques} AND {in job :ids}`

// UntilBegin is the UniqueUntil of a [Job] that has its unique key up to the beginning of its first attempt.
const UntilBegin = "begin"

// Uniques collects jobs of a queue and their unique keys.
type Uniques struct {
	IDs  []int64
	keys []string
}

// Add adds the key of a job, if it has one.
func (u *Uniques) Add(id int64, unique string) {
	if unique != "" {
		u.IDs, u.keys = append(u.IDs, id), append(u.keys, unique)
	}
}

// Args iterates over the arguments of the statements about these keys, some keys at a time.
func (u *Uniques) Args(queue int) iter.Seq[sqlrun.Args] {
	return func(yield func(sqlrun.Args) bool) {
		for from := 0; from < len(u.IDs); from += Chunk {
			to := min(from+Chunk, len(u.IDs))
			args := JobArgs(queue, 0, 0, slices.Clone(u.IDs[from:to]))
			args["uniques"] = u.keys[from:to]
			if !yield(args) {
				return
			}
		}
	}
}

// FreeUnique frees the unique keys of jobs that this transaction has ended, or begins.
func FreeUnique(ctx context.Context, tx *sqlrun.Session, queue int, theirs *Uniques) error {
	for args := range theirs.Args(queue) {
		n, err := tx.Exec(ctx, FreeKeys, args)
		if err == nil && n < int64(args["n"].(int)) { // some stay in use, or are not theirs
			_, err = tx.Exec(ctx, PartingKeys, args)
		}
		if err != nil {
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
	over   int64 // the job that has ended, from which it takes the key over
}

// keyRows are rows of the statements that take keys.
type keyRows []*KeyRow

// Len returns the number of rows.
func (k keyRows) Len() int { return len(k) }

// Int returns a number of a row.
func (k keyRows) Int(at int, column string) (int64, bool) {
	r := k[at]
	switch {
	case column == "at":
		return int64(at), true
	case column == "queue":
		return int64(r.Queue), true
	case column == "job":
		return r.ID, true
	case column == "holder":
		return r.over, true
	case column == "until_us" && r.For > 0:
		return TimeOf(r.ID).Add(r.For).UnixMicro(), true
	case column == "wait_us" && r.Until > 0:
		return r.Until, true
	}
	return 0, false
}

// Value returns a field of a row.
func (k keyRows) Value(at int, column string) (any, bool) {
	if n, ok := k.Int(at, column); ok {
		return n, true
	}
	switch column {
	case "unique_key":
		return k[at].Unique, true
	case "until_us", "wait_us":
		return nil, true
	}
	return nil, false
}

// A keyName is a unique key of a queue.
type keyName struct {
	queue  int
	unique string
}

// ErrKeysHeld means that another transaction holds a key, or has taken it and not committed.
var ErrKeysHeld = errors.New("another transaction holds a unique key")

// ClaimKeys takes the unique keys of jobs in a transaction, and records the holders of those
// that it does not get. Of several jobs with a key the first gets it, or, if it may be replaced and others replace it,
// the last of them.
func ClaimKeys(ctx context.Context, tx *sqlrun.Session, rows []KeyRow) error {
	return claimKeys(ctx, tx, rows, false)
}

// ClaimFreeKeys is ClaimKeys for many callers, whose jobs replace none, in a transaction of a [sqlrun.DB.Hasty]: it does not wait for
// another transaction that holds one of the keys. It returns an ErrKeysHeld then, or an error of the statement that did not wait.
func ClaimFreeKeys(ctx context.Context, tx *sqlrun.Session, rows []KeyRow) error {
	return claimKeys(ctx, tx, rows, true)
}

func claimKeys(ctx context.Context, tx *sqlrun.Session, rows []KeyRow, hasty bool) error {
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
	var plain, replacing []*KeyRow
	for _, i := range owners {
		if r := &rows[i]; r.Replaces {
			replacing = append(replacing, r)
		} else {
			plain = append(plain, r)
		}
	}
	seen := KeyHolders
	if hasty {
		seen = SeenKeyHolders
	}
	for _, kind := range []struct {
		all     []*KeyRow
		holders *sqlrun.Stmt
	}{{plain, seen}, {replacing, LockedKeyHolders}} {
		slices.SortFunc(kind.all, func(a, b *KeyRow) int { // in one order, so that transactions cannot deadlock
			return cmp.Or(cmp.Compare(a.Unique, b.Unique), cmp.Compare(a.Queue, b.Queue))
		})
		for part := range slices.Chunk(kind.all, Chunk) {
			claimPart := claimPart
			if hasty && tx.Dialect.LockedNow != "" {
				claimPart = claimUnheld
			}
			if err := claimPart(ctx, tx, part, kind.holders); err != nil {
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

// claimUnheld is claimPart, once it has seen that no other transaction holds one of the keys. One that takes a key between the two may
// be waited for, though not for long.
func claimUnheld(ctx context.Context, tx *sqlrun.Session, part []*KeyRow, holders *sqlrun.Stmt) error {
	found, err := holdersOf(ctx, tx, holders, part)
	if err != nil {
		return err
	}
	var unheld []*KeyRow
	for at, row := range part {
		if k, is := found[at]; is && !k.free {
			row.Holder = k.job
		} else {
			unheld = append(unheld, row)
		}
	}
	if part = unheld; len(part) == 0 {
		return nil
	}
	if _, err := holdersOf(ctx, tx, TryKeys, part); err != nil {
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	err = claimPart(bounded, tx, part, holders)
	if err != nil && bounded.Err() != nil && ctx.Err() == nil {
		err = fmt.Errorf("%w: %w", ErrKeysHeld, err)
	}
	return err
}

// A keyHolder is the job that has a key.
type keyHolder struct {
	job   int64
	free  bool  // it has ended, and its time is over
	until int64 // up to when it may be replaced, in µs since 1970; 0: it may not
}

// holdersOf returns the holders of keys, by the places of their rows.
func holdersOf(ctx context.Context, tx *sqlrun.Session, stmt *sqlrun.Stmt, part []*KeyRow) (map[int]keyHolder, error) {
	known := make(map[int]keyHolder, len(part))
	_, err := sqlrun.Select(ctx, tx, stmt, sqlrun.Args{"rows": keyRows(part)}, func(found *sql.Rows) (none struct{}, err error) {
		var at int
		var k keyHolder
		err = found.Scan(&at, &k.job, &k.free, &k.until)
		known[at] = k
		return none, err
	})
	return known, err
}

// claimPart takes keys, and records the holders of those that it does not get. It looks again who has a key that was freed between two
// of its statements, or that it has taken over. holders is the statement that returns these, and locks their keys.
func claimPart(ctx context.Context, tx *sqlrun.Session, part []*KeyRow, holders *sqlrun.Stmt) error {
	var replaced []replacement
	for range 100 {
		n, err := tx.Exec(ctx, TakeKeys, sqlrun.Args{"rows": keyRows(part)})
		if err != nil {
			return err
		}
		if n == int64(len(part)) && !tx.Dialect.CountsIgnored { // it has taken all of them
			return replace(ctx, tx, replaced)
		}
		known, err := holdersOf(ctx, tx, holders, part)
		if err != nil {
			return err
		}
		var again, over []*KeyRow
		for at, row := range part {
			switch k, ok := known[at]; {
			case ok && k.job == row.ID:
				continue
			case ok && !k.free && row.Replaces && k.until > 0:
				replaced = append(replaced, replacement{row, k.job, k.until})
				continue
			case ok && !k.free:
				row.Holder = k.job
				continue
			case ok:
				row.over = k.job
				over = append(over, row)
			}
			again = append(again, row)
		}
		if len(over) > 0 {
			if _, err := tx.Exec(ctx, TakeOverKeys, sqlrun.Args{"rows": keyRows(over)}); err != nil {
				return err
			}
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
