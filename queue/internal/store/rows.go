package store

import (
	"database/sql"
	"errors"
	"slices"

	"github.com/dbcron/dbcron/internal/sqlrun"
)

// Short returns an error if a statement did not reach all of its rows, which are locked.
func Short(err error, n int64, want int) error {
	if err == nil && n != int64(want) {
		err = ErrShort
	}
	return err
}

// JobArgs returns the arguments of statements about some jobs of a block; ready jobs must be of
// one priority.
func JobArgs(queue, divided, priority int, ids []int64) sqlrun.Args {
	slices.Sort(ids)
	return sqlrun.Args{
		"queue": queue, "divided": divided, "priority": priority, "ids": ids, "n": len(ids),
		"least": ids[0], "most": ids[len(ids)-1], "places": Places{queue, divided, priority, ids},
	}
}

// Places is the same jobs as records.
type Places struct {
	Queue, Divided, Priority int
	IDs                      []int64
}

// Len returns the number of jobs.
func (p Places) Len() int { return len(p.IDs) }

// Value returns a field of one of them.
func (p Places) Value(row int, column string) (any, bool) {
	switch column {
	case "queue":
		return p.Queue, true
	case "block":
		return p.Divided, true
	case "priority":
		return p.Priority, true
	case "job":
		return p.IDs[row], true
	}
	return nil, false
}

// ErrShort means that a statement did not reach all of its rows, although they are locked: a
// trigger may protect some.
var ErrShort = errors.New("not all locked jobs were reached")

// these matches some jobs of a block, by the key of their table.
const these = `queue_id = :queue AND divided = :divided AND {in id :ids} AND id BETWEEN :least AND :most`

// lockIn locks rows of a table that has blocks.
func lockIn(table, more string) string {
	return `SELECT j.id FROM {records places: queue int, block int, priority int, job int}
		{join_by_key {prefix}` + table + ` AS j} ON j.queue_id = record.queue AND j.divided = record.block AND j.id = record.job` + more + `
		ORDER BY j.id {locked}`
}

// ScanID reads an id.
func ScanID(rows *sql.Rows) (id int64, err error) { return id, rows.Scan(&id) }

// SkipRow is for queries whose rows do not matter.
func SkipRow(rows *sql.Rows) (none struct{}, err error) {
	var text sql.NullString
	return none, rows.Scan(&text)
}
