package queue

import (
	"context"
	"slices"
	"time"

	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// If a queue keeps done jobs, the transaction that deletes a job copies it to the table of done
// jobs, so it is always in exactly one of the two. Other queues do not use that table.

var keepStatements = map[table]*sqlrun.Stmt{tableReady: store.KeepReady, tableDelayed: store.KeepDelayed, tableRunning: store.KeepRunning}

// keepDone copies those of some jobs of a block that are in a table, locked, and about to be
// deleted by this transaction.
func keepDone(ctx context.Context, tx *sqlrun.Session, by blockLease, from table, list []*Delivery, here []int64,
	keep time.Duration,
) error {
	if len(here) == 0 {
		return nil
	}
	now, rows := instant.Now(), make([]sqlrun.Args, 0, len(here))
	for _, d := range list {
		if _, ok := slices.BinarySearch(here, d.ID); !ok {
			continue
		}
		row := sqlrun.Args{
			"queue": by.Queue, "block": by.Divided, "job": d.ID, "priority": d.Priority, "tries": d.Attempt, "died": d.Crashes,
			"why": "", "more": store.OutcomeDone, "later": 0, "holds": nil,
		}
		if d.discarded() {
			row["more"], row["why"] = store.OutcomeDiscarded, d.reason
		}
		if d.began != 0 { // otherwise it is about to begin, at most once
			row["later"] = d.began.Sub(now).Microseconds()
		}
		rows = append(rows, row)
	}
	n, err := store.ExecParts(ctx, tx, keepStatements[from], sqlrun.Args{"node": by.node, "keep": keep.Microseconds()}, rows)
	return store.Short(err, n, len(here))
}
