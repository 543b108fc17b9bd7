package store

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/dbcron/dbcron/internal/sqlrun"
)

// Moves from one table to another. The rows of :rows are locked in the table that they leave.
var (
	DelayReady   = sqlrun.SQL("queue.delay-ready", moveTo("job_delayed", "job", true))
	DelayRunning = sqlrun.SQL("queue.delay-running", moveTo("job_delayed", "job_running", false))

	// Redelay delays jobs that are delayed already.
	Redelay = sqlrun.PerDialect("queue.redelay", func(d *sqlrun.Dialect) string {
		return d.UpdateFrom("{prefix}job_delayed", []string{"queue_id", "divided", "id"},
			`run_at = {now + picked.later}, attempt = picked.tries, crashes = picked.died, error = picked.why, hold_key = picked.holds,
				errors = `+errorsWith("picked.failed", "errors")+`, stops = picked.halts, stopped_at = CASE WHEN picked.halts > 0 THEN {now} END`, "",
			`SELECT {int :queue} AS queue_id, {int :divided} AS divided, job AS id, later, tries, died, why, failed, holds, halts
			FROM {records rows: job int, tries int, died int, why text, failed text, later int, holds text, halts int}`)
	})

	// LockLater and DivideAnew move jobs that are not due soon to other blocks, which may be in
	// another queue. LockLater does not say IS NULL: MySQL would use hold_key's index to find
	// the many jobs without one, lock them all and sort them. It hides the condition on the id
	// from MySQL, too, which would look that up by the key. It leaves locked rows to a later round.
	LockLater = sqlrun.SQL("queue.lock-later", `
		SELECT id, job_key, kind FROM {prefix}job_delayed
		WHERE queue_id = :queue AND divided = :divided AND run_at > {now + :soon} AND (`+notSentinel+`) IS TRUE AND (hold_key > '') IS NOT TRUE
		ORDER BY run_at, id LIMIT :limit {skip_locked}`)

	DivideAnew = sqlrun.SQL("queue.divide-anew", `
		INSERT INTO {prefix}job_delayed (queue_id, divided, id, priority, `+BodyColumns+`, `+progressColumns+`, attempt, crashes, error, errors, run_at, hold_key, stops, stopped_at)
		SELECT {int :to}, record.target, j.id, j.priority, `+bodyOfJ+`, `+progressOfJ+`, j.attempt, j.crashes, j.error, j.errors, j.run_at, j.hold_key, j.stops, j.stopped_at
		FROM {records rows: queue int, block int, job int, target int}
		{join_by_key {prefix}job_delayed AS j} ON j.queue_id = record.queue AND j.divided = record.block AND j.id = record.job`)

	BuryReady   = sqlrun.SQL("queue.bury-ready", moveTo("job_dead", "job", true))
	BuryDelayed = sqlrun.SQL("queue.bury-delayed", moveTo("job_dead", "job_delayed", false))
	BuryRunning = sqlrun.SQL("queue.bury-running", moveTo("job_dead", "job_running", false))

	CheckOutReady   = sqlrun.SQL("queue.check-out-ready", moveTo("job_running", "job", true))
	CheckOutDelayed = sqlrun.SQL("queue.check-out-delayed", moveTo("job_running", "job_delayed", false))
)

// moveTo copies locked rows of one table into another. The key of ready jobs has a priority.
// The records also have the queue and block, so that no column of the table is constant before
// a record is known: engines would read the block once for each record.
func moveTo(to, from string, ready bool) string {
	key := "j.queue_id = record.queue AND j.divided = record.block AND j.id = record.job"
	columns := "queue_id, divided, id, priority, " + BodyColumns + ", attempt, crashes, error, errors"
	died, records := "record.died", "queue int, block int, job int, priority int, tries int, died int, why text, failed text, more text, later int, holds text"
	if from == "job_running" {
		died = "j.crashes" // a process that lives may have taken its charge back
	}
	had := "j.errors"
	if ready {
		had = "NULL"
	}
	values := "j.queue_id, j.divided, j.id, j.priority, " + bodyOfJ + ", record.tries, " + died + ", record.why, " +
		errorsWith("record.failed", had)
	if ready {
		key += " AND j.priority = record.priority"
	} else {
		columns, values = columns+", "+progressColumns, values+", "+progressOfJ
	}
	switch to {
	case "job_delayed":
		columns += ", run_at, hold_key, stops, stopped_at"
		values += ", {now + record.later}, record.holds, record.halts, CASE WHEN record.halts > 0 THEN {now} END"
		records += ", halts int"
	case "job_running":
		columns += ", state, lock_by, fence, started_at, charged"
		values += ", record.more, :node, {int :fence}, {now + record.later}, record.charge"
		records += ", charge text"
	case "job_dead":
		columns += ", detail, died_at, purge_at"
		values += ", record.more, {now}, CASE WHEN {int :keep} < 0 THEN NULL ELSE {now + :keep} END"
	case "job_done":
		columns += ", outcome, result, worker, started_at, ended_at, purge_at"
		values += ", record.more, record.made, :node, {now + record.later}, {now}, {now + :keep}"
		records += ", made text"
	}
	return `INSERT INTO {prefix}` + to + ` (` + columns + `)
		SELECT ` + values + `
		FROM {records rows: ` + records + `}
		{join_by_key {prefix}` + from + ` AS j} ON ` + key
}

const (
	longestErrors = 4000 // of all errors of a job, in characters
	longestError  = 500  // of each of them
)

// errorsWith returns an expression: the errors of a job's attempts, with that of one more in front, unless that is NULL. It needs no
// read, and the oldest fall off its end.
func errorsWith(one, had string) string {
	return fmt.Sprintf(`CASE WHEN %s IS NULL THEN %s ELSE SUBSTR(CONCAT({us {now}}, ' ', %[1]s, COALESCE(%[2]s, '')), 1, %d) END`, one, had, longestErrors)
}

// An AttemptError is why an attempt at a job failed.
type AttemptError struct {
	At      int64 // when that was written
	Attempt int
	Error   string // the beginning of it
}

// FailedAttempt returns what errorsWith puts in front: an error, and what else is to be said, if it is not empty. Lines after
// the first one begin with a tab.
func FailedAttempt(attempt int, err, more string) string {
	err = sqlrun.CleanText(err, longestError)
	if more != "" {
		err += "\n" + more
	}
	return fmt.Sprintf("%d %s\n", attempt, strings.ReplaceAll(err, "\n", "\n\t"))
}

// parseErrors returns the errors of a job's attempts, the newest first. The last one may have been cut, and is left
// out if its beginning is missing.
func parseErrors(column string) (all []AttemptError) {
	for line := range strings.Lines(column) {
		line, whole := strings.CutSuffix(line, "\n")
		if more, ok := strings.CutPrefix(line, "\t"); ok && len(all) > 0 {
			all[len(all)-1].Error += "\n" + more
			continue
		}
		at, rest, _ := strings.Cut(line, " ")
		attempt, err, spaced := strings.Cut(rest, " ")
		us, bad := strconv.ParseInt(at, 10, 64)
		n, worse := strconv.Atoi(attempt)
		if !spaced && !whole || bad != nil || worse != nil {
			continue
		}
		all = append(all, AttemptError{us, n, err})
	}
	return all
}
