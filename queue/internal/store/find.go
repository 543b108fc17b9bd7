package store

import (
	"cmp"
	"strings"

	"github.com/dbcron/dbcron/internal/sqlrun"
)

// LocateJob returns the tables and blocks of some queues that have an id. It looks each id up
// by the key of the table. The block cannot be computed, since it may depend on the job's
// ordering key, which only the row has. LocateJob is one statement with a fixed text: so there
// is one plan for any number of blocks, and it sees all tables at one moment, in which a job
// that moves meanwhile is in one of them. Its parts are scalar subqueries, since an engine can
// only run those by the key, whereas it may read all of a table that it joins.
var LocateJob = sqlrun.SQL("queue.locate", strings.Join([]string{
	locateIn("ready", "job", "1"), locateIn("ready", "job", "2"), locateIn("ready", "job", "3"), locateIn("ready", "job", "4"),
	locateIn("delayed", "job_delayed", ""), locateIn("running", "job_running", ""), locateEnded("dead"), locateEnded("done"),
}, "\nUNION ALL "))

func locateIn(state, table, priority string) string {
	key := ""
	if priority != "" {
		key = " AND j.priority = " + priority
	}
	return `SELECT '` + state + `', b.queue_id, (SELECT q.name FROM {prefix}queue AS q WHERE q.queue_id = b.queue_id), b.divided, ` +
		cmp.Or(priority, "0") + `
	FROM {prefix}queue_block AS b WHERE b.queue_id >= :first AND b.queue_id <= :last
		AND (SELECT j.id FROM {prefix}` + table + ` AS j WHERE j.queue_id = b.queue_id AND j.divided = b.divided` + key + ` AND j.id = :id AND j.` + notSentinel + `) IS NOT NULL`
}

// locateEnded is the part for dead or done jobs, whose blocks may be gone.
func locateEnded(state string) string {
	return `SELECT '` + state + `', b.queue_id, b.name, 0, 0
	FROM {prefix}queue AS b WHERE b.queue_id >= :first AND b.queue_id <= :last
		AND (SELECT COUNT(*) FROM {prefix}job_` + state + ` AS j WHERE j.queue_id = b.queue_id AND j.id = :id) > 0`
}

// FindReady and the next ones read a job from the table in which it is.
var (
	FindReady = reading(readyColumns+`, divided`, sqlrun.SQL("queue.find-ready", `
		SELECT `+readyColumns+`, divided FROM {prefix}job WHERE queue_id = :queue AND divided = :divided AND priority = :priority AND id = :id`))

	FindDelayed = findIn("queue.find-delayed", "job_delayed", "run_at", "", "AND divided = :divided")
	FindRunning = findIn("queue.find-running", "job_running", "started_at", ", lock_by", "AND divided = :divided")
	FindDead    = findIn("queue.find-dead", "job_dead", "died_at", ", detail", "")
	FindDone    = findIn("queue.find-done", "job_done", "ended_at", ", worker, {us started_at}, outcome, result", "")
)

func findIn(name, table, at, more, key string) *sqlrun.Stmt {
	columns := readyColumns + `, attempt, crashes, COALESCE({us ` + at + `}, 0), error, errors, ` + progressColumns + `, divided` + more
	return reading(columns, sqlrun.SQL(name, `SELECT `+columns+`
		FROM {prefix}`+table+` WHERE queue_id = :queue `+key+` AND id = :id`))
}
