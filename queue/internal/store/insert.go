package store

import (
	"fmt"
	"slices"
	"strings"

	"github.com/dbcron/dbcron/internal/sqlrun"
)

// The inserted columns: column=field type, where field belongs to the rows. The type of a column is
// written here and in columns.go, and nowhere else: INSERTs and bulk loads follow it.
var (
	plainFields = keyFields + bodyText(func(c bodyColumn) string {
		if c.how != always {
			return ""
		}
		return c.name + "=" + c.record
	})
	allFields = keyFields + bodyText(func(c bodyColumn) string { return c.name + "=" + c.record })
)

const keyFields = "queue_id=queue integer, divided=block integer, priority=priority smallint, id=job bigint, "

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
		case "smallint", "integer", "bigint":
			kind = "int"
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
func (r Jobs) Int(i int, field string) (int64, bool) { return r[i].key(field) }

// key returns a field of keyFields.
func (j *Job) key(field string) (int64, bool) {
	switch field {
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
		if !r[i].plain() {
			return false
		}
	}
	return true
}

func (j *Job) plain() bool {
	for i := range body {
		if body[i].how != always && body[i].value(j) != nil {
			return false
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
	n       int
	load    func(i int, j *Job)
	job     Job // the row being written
	columns []copied
}

// A copied is a column of a bulk load.
type copied struct {
	name, kind string
	number     func(j *Job) int64 // of numbers that each job has: any would cost more than everything else
	value      func(j *Job) any
}

// copiedKey and copiedBody are the columns of all jobs, from the texts that INSERTs are made of.
var (
	copiedKey = func() (all []copied) {
		for field := range strings.SplitSeq(strings.TrimSuffix(keyFields, ", "), ", ") {
			column, what, _ := strings.Cut(field, "=")
			name, kind, _ := strings.Cut(what, " ")
			all = append(all, copied{name: column, kind: kind, number: func(j *Job) int64 {
				n, _ := j.key(name)
				return n
			}})
		}
		return all
	}()
	copiedBody = func() (all []copied) {
		for _, c := range body {
			_, kind, _ := strings.Cut(c.record, " ")
			all = append(all, copied{name: c.name, kind: kind, value: c.value})
		}
		return all
	}()
)

// Copied returns the columns and rows for a bulk load of n jobs, which load sets one at a time: a
// second list of them would cost more than writing them. Plain jobs have few columns. Tied jobs are
// not copied.
func Copied(n int, load func(i int, j *Job)) (names []string, rows sqlrun.CopyRows) {
	all, most := &copying{n: n, load: load, columns: slices.Clone(copiedKey)}, always
	for i := range n {
		if load(i, &all.job); !all.job.plain() {
			most = rare
			break
		}
	}
	for i, c := range body {
		if c.how <= most {
			all.columns = append(all.columns, copiedBody[i])
		}
	}
	for i := range all.columns {
		names = append(names, all.columns[i].name)
	}
	return names, all
}

// Len returns the number of rows.
func (r *copying) Len() int { return r.n }

// Copy writes the values of a row, numbers in the sizes of their columns.
func (r *copying) Copy(i int, to sqlrun.CopyWriter) {
	j := &r.job
	r.load(i, j)
	for i := range r.columns {
		switch c := &r.columns[i]; {
		case c.number != nil:
			copyNumber(to, c.kind, c.number(j))
		case c.name == "kind":
			to.Text(j.Kind)
		case c.name == "payload" && !j.Binary && len(j.Payload) > 0: // as a string it would be copied
			to.Bytes(j.Payload)
		default:
			copyValue(to, c.kind, c.value(j))
		}
	}
}

func copyValue(to sqlrun.CopyWriter, kind string, value any) {
	switch v := value.(type) {
	case nil:
		to.Null()
	case int:
		copyNumber(to, kind, int64(v))
	case int64:
		copyNumber(to, kind, v)
	case string:
		to.Text(v)
	case sqlrun.Bytes:
		to.Bytes(v)
	default:
		panic(fmt.Sprintf("a %T cannot be copied", value))
	}
}

// copyNumber writes a number in the size of its column.
func copyNumber(to sqlrun.CopyWriter, kind string, n int64) {
	switch kind {
	case "smallint":
		to.Int16(int16(n))
	case "integer":
		to.Int32(int32(n))
	default:
		to.Int64(n)
	}
}

// orNull returns nil for a zero value.
func orNull[T comparable](v T) any {
	var zero T
	if v == zero {
		return nil
	}
	return v
}
