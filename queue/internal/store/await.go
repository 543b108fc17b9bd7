package store

import (
	"bytes"
	"context"
	"slices"

	"github.com/dbcron/dbcron/internal/sqlrun"
)

// Statements of those who wait for jobs. They lock nothing and decide nothing: what they find has been committed.
var (
	// AwaitedDone and AwaitedDead return those of some jobs of a queue that have ended, and how.
	AwaitedDone = sqlrun.SQL("queue.awaited-done", awaitedIn("job_done", "outcome", "result"))
	AwaitedDead = sqlrun.SQL("queue.awaited-dead", awaitedIn("job_dead", "'dead'", "NULL"))

	// AwaitedThere returns those of some jobs of a queue that are in the tables of jobs that have not ended. Its parts are scalar
	// subqueries for the reason given at [LocateJob], and it is one statement for the same reason: a job that moves
	// meanwhile is in one of the tables.
	AwaitedThere = sqlrun.SQL("queue.awaited-there", `
		SELECT record.job FROM {records rows: queue int, job int}
		{join_by_key {prefix}queue_block AS b} ON b.queue_id = record.queue
		WHERE `+thereIn("job", " AND j.priority = 1")+`
			OR `+thereIn("job", " AND j.priority = 2")+`
			OR `+thereIn("job", " AND j.priority = 3")+`
			OR `+thereIn("job", " AND j.priority = 4")+`
			OR `+thereIn("job_delayed", "")+`
			OR `+thereIn("job_running", ""))
)

func awaitedIn(table, outcome, result string) string {
	return `
		SELECT id, kind, ` + outcome + `, error, ` + result + ` FROM {prefix}` + table + `
		WHERE queue_id = :queue AND {in id :ids} AND id BETWEEN :least AND :most`
}

func thereIn(table, key string) string {
	return `(SELECT j.id FROM {prefix}` + table + ` AS j WHERE j.queue_id = :queue AND j.divided = b.divided` + key +
		` AND j.id = record.job) IS NOT NULL`
}

// An Awaited is a job that has ended.
type Awaited struct {
	ID      int64
	Kind    string
	Outcome string // OutcomeDone and so on, or dead
	Error   string
	Result  []byte // nil: none
}

// EndedOf returns those of some jobs of a queue that have ended and are kept.
func EndedOf(ctx context.Context, db *sqlrun.DB, queue int, ids []int64) (all []Awaited, err error) {
	for part := range slices.Chunk(ids, Chunk) {
		args := JobArgs(queue, 0, 0, part)
		scan := func(row *sqlrun.Row) error {
			a := Awaited{ID: row.Int(0), Kind: text(row, 1), Outcome: text(row, 2), Error: text(row, 3)}
			if !row.Null(4) {
				a.Result = bytes.Clone(row.Bytes(4))
			}
			all = append(all, a)
			return nil
		}
		err := db.Pipeline(ctx, &sqlrun.Step{Stmt: AwaitedDone, Args: args, Scan: scan}, &sqlrun.Step{Stmt: AwaitedDead, Args: args, Scan: scan})
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

// StillThere returns those of some jobs of a queue that have not ended.
func StillThere(ctx context.Context, on *sqlrun.Session, queue int, ids []int64) (there map[int64]bool, err error) {
	there = map[int64]bool{}
	for part := range slices.Chunk(ids, Chunk) {
		rows := make([]sqlrun.Args, len(part))
		for i, id := range part {
			rows[i] = sqlrun.Args{"queue": queue, "job": id}
		}
		some, err := sqlrun.Select(ctx, on, AwaitedThere, sqlrun.Args{"queue": queue, "rows": rows}, ScanID)
		if err != nil {
			return nil, err
		}
		for _, id := range some {
			there[id] = true
		}
	}
	return there, nil
}

// A Spot is the location of a job when it was seen.
type Spot struct {
	State             string // ready, delayed, running, dead or done
	Queue             int
	Name              string // of the queue
	Divided, Priority int
}

// Locate returns the locations of an id in some queues.
func Locate(ctx context.Context, db *sqlrun.DB, first, last int, id int64) (all []Spot, err error) {
	err = db.Pipeline(ctx, &sqlrun.Step{
		Stmt: LocateJob, Args: sqlrun.Args{"first": first, "last": last, "id": id},
		Scan: func(row *sqlrun.Row) error {
			all = append(all, Spot{string(row.Bytes(0)), int(row.Int(1)), string(row.Bytes(2)), int(row.Int(3)), int(row.Int(4))})
			return nil
		},
	})
	return all, err
}
