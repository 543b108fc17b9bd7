package store

import (
	"strings"

	"github.com/dbcron/dbcron/internal/sqlrun"
)

// The inserted columns: column=kind field, where field belongs to the rows.
var (
	plainFields = keyFields + bodyText(func(c bodyColumn) string {
		if c.how != always {
			return ""
		}
		return c.name + "=" + c.record
	})
	allFields = keyFields + bodyText(func(c bodyColumn) string { return c.name + "=" + c.record })
)

const keyFields = "queue_id=queue int, divided=block int, priority=priority int, id=job int, "

// insertInto returns an INSERT of rows: from arrays on engines that have them, which need one
// text for any number of rows, else from a list of tuples.
func insertInto(d *sqlrun.Dialect, table, fields string) string {
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

// Jobs are rows of an INSERT.
type Jobs []Job

// Len returns the number of rows.
func (r Jobs) Len() int { return len(r) }

// Value returns a field of a row.
func (r Jobs) Value(i int, field string) (any, bool) {
	if n, ok := r.Int(i, field); ok {
		return int(n), true
	}
	if field == "run_us" {
		return r[i].RunAt, true
	}
	value, ok := fields[field]
	if !ok {
		return nil, false
	}
	return value(&r[i]), true
}

// Int is a faster Value for the numbers that each job has.
func (r Jobs) Int(i int, field string) (int64, bool) {
	switch j := &r[i]; field {
	case "queue":
		return int64(j.Queue), true
	case "block":
		return int64(j.Divided), true
	case "priority":
		return int64(j.Priority), true
	case "job":
		return j.ID, true
	}
	return 0, false
}

// Plain reports whether no job uses a rare column.
func (r Jobs) Plain() bool {
	for i := range r {
		for _, c := range body {
			if c.how != always && c.value(&r[i]) != nil {
				return false
			}
		}
	}
	return true
}

// Insertion returns the statement that inserts jobs, which are all ready or all delayed.
func Insertion(rows Jobs) *sqlrun.Stmt {
	switch {
	case rows[0].RunAt != 0:
		return InsertDelayed
	case rows.Plain():
		return InsertPlain
	}
	return InsertJobs
}

// TellingInsertion is Insertion for a caller's transaction: ready jobs notify workers.
func TellingInsertion(rows Jobs) *sqlrun.Stmt {
	switch of := Insertion(rows); of {
	case InsertJobs:
		return InsertJobsTold
	case InsertPlain:
		return InsertPlainTold
	default:
		return of
	}
}

// fields has the functions that return the fields of rows, by name.
var fields = func() map[string]func(*Job) any {
	all := map[string]func(*Job) any{}
	for _, c := range body {
		name, _, _ := strings.Cut(c.record, " ")
		all[name] = c.value
	}
	return all
}()

// A copying presents jobs for a bulk load.
type copying struct {
	Jobs
	columns []bodyColumn
}

// Copied returns the columns and rows for a bulk load of jobs. Plain jobs have few columns.
// Tied jobs are not copied.
func (r Jobs) Copied() (names []string, rows sqlrun.CopyRows) {
	most := rare
	if r.Plain() {
		most = always
	}
	names, all := []string{"queue_id", "divided", "priority", "id"}, copying{Jobs: r}
	for _, c := range body {
		if c.how <= most {
			names, all.columns = append(names, c.name), append(all.columns, c)
		}
	}
	return names, all
}

// Values appends the values of a row: marked as JSON or bytes, and numbers in the sizes of
// their columns.
func (r copying) Values(i int, to []any) []any {
	j := &r.Jobs[i]
	to = append(to, int32(j.Queue), int32(j.Divided), int16(j.Priority), j.ID)
	for _, c := range r.columns {
		if c.name == "payload" && !j.Binary && len(j.Payload) > 0 {
			to = append(to, sqlrun.JSON(j.Payload)) // a string would be copied
			continue
		}
		value := c.value(j)
		if n, ok := value.(int); ok {
			value = int32(n)
		}
		to = append(to, value)
	}
	return to
}

// orNull returns nil for a zero value.
func orNull[T comparable](v T) any {
	var zero T
	if v == zero {
		return nil
	}
	return v
}
