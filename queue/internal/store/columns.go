package store

import (
	"strings"

	"github.com/dbcron/dbcron/dialect"
)

// BodyColumns is what a job is, wherever it stands.
const BodyColumns = `kind, job_key, payload, payload_bin, max_attempts, timeout, trace, unique_key, group_id, endpoint`

// BareBody is body without the payload.
var BareBody = strings.Replace(BodyColumns, "payload, payload_bin", "NULL AS payload, NULL AS payload_bin", 1)

// BodyEnd is the number of the column after id, priority and body.
const BodyEnd = 12

// ProgressColumns is what its handler has stored of a job, in all tables but that of ready jobs.
const ProgressColumns = `snapshot, percent, message`

// bodyOfJ and progressOfJ are these of a table that is called j.
var (
	bodyOfJ     = "j." + strings.ReplaceAll(BodyColumns, ", ", ", j.")
	progressOfJ = "j." + strings.ReplaceAll(ProgressColumns, ", ", ", j.")
)

// What is inserted: column=what kind, where what is a field of the rows.
const (
	commonFields = "queue_id=queue int, divided=block int, priority=urgency int, id=job int, kind=name text, job_key=line text, payload=words json"
	rareFields   = ", payload_bin=bytes bytes, max_attempts=tries int, timeout=lasts int, trace=trace_of text, unique_key=once text, group_id=crew int, endpoint=place text"
)

// insertInto writes jobs: from arrays where there are such, which need one text for
// any number, else from a list of tuples.
func insertInto(d *dialect.Dialect, table, fields string) string {
	var columns, values, tuple, records []string
	for field := range strings.SplitSeq(fields, ", ") {
		column, what, _ := strings.Cut(field, "=")
		at := strings.LastIndex(what, " ")
		value, kind := what[:at], what[at+1:]
		name := strings.TrimSuffix(strings.TrimPrefix(value, "{time "), "}")
		columns = append(columns, column)
		tuple = append(tuple, strings.Replace(value, name, ":"+name, 1))
		switch kind {
		case "json":
			value, kind = "CAST("+value+" AS JSON)", "text"
		case "bytes":
			value, kind = "CAST("+value+" AS BYTEA)", "text"
		}
		values, records = append(values, value), append(records, name+" "+kind)
	}
	into := `INSERT INTO {prefix}` + table + ` (` + strings.Join(columns, ", ") + `) `
	if d.ArrayRows {
		return into + `SELECT ` + strings.Join(values, ", ") + ` FROM {records rows: ` + strings.Join(records, ", ") + `}`
	}
	return into + `VALUES {values rows: (` + strings.Join(tuple, ", ") + `)}`
}
