package store

import "github.com/dbcron/dbcron/internal/sqlrun"

// Sentinels. MariaDB passes over deleted rows without a look at where the range ends that was asked
// for. So a read at the end of a range walks over all that was deleted behind it, which is much while
// an old snapshot keeps it from being purged. A sentinel is a row that is no job, at which such a
// walk ends: in the table of ready jobs one before each priority but the first, and one behind the
// last; in that of delayed ones one that is due last of all.
//
// A sentinel has the id 0, and jobs have greater ones. So what reads on from an id does not see it,
// and any other statement says [notSentinel] of the rows that it reads.

const notSentinel = "id > 0"

var (
	// PlaceReadySentinels inserts sentinels of a block, in one transaction with PlaceDelayedSentinel. A
	// duplicate says that they are there. They do not skip it, for which MySQL requires the right to
	// UPDATE.
	PlaceReadySentinels = sqlrun.SQL("queue.place-sentinels", `
		INSERT INTO {prefix}job (queue_id, divided, priority, id, kind)
		VALUES (:queue, :divided, 2, 0, ''), (:queue, :divided, 3, 0, ''), (:queue, :divided, 4, 0, ''), (:queue, :divided, 5, 0, '')`)

	// PlaceDelayedSentinel inserts that of the delayed jobs of a block.
	PlaceDelayedSentinel = sqlrun.SQL("queue.place-delayed-sentinel", `
		INSERT INTO {prefix}job_delayed (queue_id, divided, id, run_at, kind) VALUES (:queue, :divided, 0, {time :never}, '')`)

	// RemoveReadySentinels removes those of a block. It and the next name the whole key, and so lock
	// nothing that a producer has written.
	RemoveReadySentinels = sqlrun.SQL("queue.remove-sentinels", `
		DELETE FROM {prefix}job WHERE queue_id = :queue AND divided = :divided AND priority IN (2, 3, 4, 5) AND id = 0 {only priority 4}`)

	// RemoveDelayedSentinel is for the one of the delayed jobs.
	RemoveDelayedSentinel = sqlrun.SQL("queue.remove-delayed-sentinel", `
		DELETE FROM {prefix}job_delayed WHERE queue_id = :queue AND divided = :divided AND id = 0 {only id 1}`)
)

// SentinelArgs are the arguments of these statements.
func SentinelArgs(queue, divided int) sqlrun.Args {
	const never = 253402300799000000 // µs: the last second of the year 9999
	return sqlrun.Args{"queue": queue, "divided": divided, "never": int64(never)}
}
