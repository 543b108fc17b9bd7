package store

import (
	"cmp"
	"strconv"
	"strings"

	"github.com/dbcron/dbcron/internal/sqlrun"
)

// Jobs that arrive from another database. They are written as they were there: with what their attempts have left. Their ids are new.
var (
	ArriveDelayed = sqlrun.PerDialect("queue.arrive-delayed", func(d *sqlrun.Dialect) string {
		return insertInto(d, "job_delayed", allFields+arrivedFields+", stops=halts int, hold_key=holds text, run_at={time run_us} int")
	})
	ArriveDead = sqlrun.PerDialect("queue.arrive-dead", func(d *sqlrun.Dialect) string {
		return insertInto(d, "job_dead", allFields+arrivedFields+", detail=more text, died_at={time died_us} int, purge_at={time purge_us} int")
	})
)

const arrivedFields = ", attempt=had int, crashes=died int, error=why text, errors=whys text, snapshot=saved bytes, percent=share int, message=said text"

// Arrivals are rows of these statements.
type Arrivals struct {
	Jobs
	Line  string // what a job without a key holds up
	Purge int64  // when dead jobs are removed, µs since 1970; 0: never
}

// Value returns a field of a row.
func (a Arrivals) Value(i int, field string) (any, bool) {
	j := &a.Jobs[i]
	switch field {
	case "had":
		return j.Attempt, true
	case "died":
		return j.Crashes, true
	case "halts":
		return j.Stops, true
	case "why":
		return j.Error, true
	case "whys":
		return orNull(joinErrors(j.Errors)), true
	case "more":
		return j.Detail, true
	case "died_us":
		return j.Died, true
	case "purge_us":
		return orNull(a.Purge), true
	case "holds":
		if !j.Holds {
			return nil, true
		}
		return cmp.Or(j.Key, a.Line), true
	case "saved":
		if j.Progress == nil || j.Progress.State == nil {
			return nil, true
		}
		return sqlrun.Bytes(j.Progress.State), true
	case "share", "said":
		switch {
		case j.Progress == nil:
			return nil, true
		case field == "share":
			return orNull(j.Progress.Percent), true
		}
		return orNull(j.Progress.Message), true
	}
	return a.Jobs.Value(i, field)
}

// joinErrors is the opposite of parseErrors.
func joinErrors(all []AttemptError) string {
	var text strings.Builder
	for _, e := range all {
		text.WriteString(strconv.FormatInt(e.At, 10) + " " + FailedAttempt(e.Attempt, e.Error, ""))
	}
	return text.String()
}
