package queue

import (
	"context"
	"slices"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/internal/instant"
)

// Jobs of a queue that keeps them are copied to the table of those that are done by the
// transaction that deletes them, so they are in one of the two. Other queues know nothing
// of it.

// outcomes of jobs that are kept.
const (
	outcomeDone      = "done"
	outcomeDiscarded = "discarded"
)

var (
	// keepReady and its like copy jobs whose rows are locked, and which are deleted next:
	// nobody else ends them in between.
	keepReady   = dialect.SQL("queue.keep-ready", moveTo("job_done", "job", true))
	keepDelayed = dialect.SQL("queue.keep-delayed", moveTo("job_done", "job_delayed", false))
	keepRunning = dialect.SQL("queue.keep-running", moveTo("job_done", "job_running", false))

	listDone = dialect.SQL("queue.list-done", `
		SELECT id, priority, `+bareBody+`, attempt, crashes, {us ended_at}, error, NULL, percent, message, divided, worker, {us started_at}, outcome FROM {prefix}job_done
		WHERE queue_id = :queue AND id > :after ORDER BY id, divided LIMIT :limit`)

	countDone = dialect.SQL("queue.count-done", `
		SELECT COUNT(*), 0 FROM (SELECT id FROM {prefix}job_done WHERE queue_id = :queue LIMIT :limit) AS counted`)

	statDone = dialect.SQL("queue.stat-done", statIn("job_done", ""))

	// lockDone locks those of some jobs that are there; purgeDone removes them.
	lockDone  = dialect.SQL("queue.lock-done", lockIn("job_done", ""))
	purgeDone = dialect.SQL("queue.purge-done", `DELETE FROM {prefix}job_done WHERE `+these+` {only id :n}`)

	// outdatedDone finds jobs that were kept for as long as was said when they were done.
	outdatedDone = dialect.SQL("queue.outdated-done", `
		SELECT queue_id, divided, id FROM {prefix}job_done WHERE purge_at <= {now} ORDER BY purge_at LIMIT :limit {skip_locked}`)
)

var keepStatements = map[table]*dialect.Stmt{tableReady: keepReady, tableDelayed: keepDelayed, tableRunning: keepRunning}

// keepDone keeps those of some jobs of a block that are here: in a table, locked, and about
// to be deleted by this transaction.
func keepDone(ctx context.Context, tx *dialect.Session, b *block, from table, list []*Delivery, here []int64,
	node string, keep time.Duration,
) error {
	if len(here) == 0 {
		return nil
	}
	now, rows := instant.Now(), make([]dialect.Args, 0, len(here))
	for _, d := range list {
		if _, ok := slices.BinarySearch(here, d.ID); !ok {
			continue
		}
		row := dialect.Args{
			"queue": b.q.id, "block": b.divided, "job": d.ID, "urgency": d.Priority, "tries": d.Attempt, "died": d.Crashes,
			"why": "", "more": outcomeDone, "later": 0, "holds": nil,
		}
		if d.dropped {
			row["more"], row["why"] = outcomeDiscarded, d.reason
		}
		if d.began != 0 { // else it is about to begin, at most once
			row["later"] = d.began.Sub(now).Microseconds()
		}
		rows = append(rows, row)
	}
	n, err := execParts(ctx, tx, keepStatements[from], dialect.Args{"node": node, "keep": keep.Microseconds()}, rows)
	return orShort(err, n, len(here))
}
