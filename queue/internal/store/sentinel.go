package store

import "github.com/dbcron/dbcron/internal/sqlrun"

// Sentinels. MariaDB skips deleted rows without checking whether they are past the end of the
// requested range. So a read at the end of a range walks over everything deleted behind it,
// which is a lot while an old snapshot prevents purging. A sentinel is a row that is no job, at
// which such a walk ends. The table of ready jobs has one before each priority but the first,
// and one behind the last; the table of delayed jobs has one that is due last of all.
//
// A sentinel has the id 0; jobs have greater ids. So reads that continue after an id do not see
// it, and all other statements exclude it with [notSentinel].

const notSentinel = "id > 0"

var (
	// PlaceReadySentinels inserts the sentinels of a block, in one transaction with
	// PlaceDelayedSentinel. A duplicate means that they exist. It does not skip duplicates, for
	// which MySQL requires the right to UPDATE.
	PlaceReadySentinels = sqlrun.SQL("queue.place-sentinels", `
		INSERT INTO {prefix}job (queue_id, divided, priority, id, kind)
		VALUES (:queue, :divided, 2, 0, ''), (:queue, :divided, 3, 0, ''), (:queue, :divided, 4, 0, ''), (:queue, :divided, 5, 0, '')`)

	// PlaceDelayedSentinel inserts the sentinel of a block's delayed jobs.
	PlaceDelayedSentinel = sqlrun.SQL("queue.place-delayed-sentinel", `
		INSERT INTO {prefix}job_delayed (queue_id, divided, id, run_at, kind) VALUES (:queue, :divided, 0, {time :never}, '')`)

	// RemoveReadySentinels removes those of a block. Like the next statement it names the whole
	// key, so it locks nothing that a producer has written.
	RemoveReadySentinels = sqlrun.SQL("queue.remove-sentinels", `
		DELETE FROM {prefix}job WHERE queue_id = :queue AND divided = :divided AND priority IN (2, 3, 4, 5) AND id = 0 {only priority 4}`)

	// RemoveDelayedSentinel removes that of a block's delayed jobs.
	RemoveDelayedSentinel = sqlrun.SQL("queue.remove-delayed-sentinel", `
		DELETE FROM {prefix}job_delayed WHERE queue_id = :queue AND divided = :divided AND id = 0 {only id 1}`)
)

// SentinelArgs returns the arguments of these statements.
func SentinelArgs(queue, divided int) sqlrun.Args {
	const never = 253402300799000000 // µs since 1970: the last second of the year 9999
	return sqlrun.Args{"queue": queue, "divided": divided, "never": int64(never)}
}
