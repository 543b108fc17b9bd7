package store

import (
	"bytes"
	"strings"
	"time"

	"github.com/dbcron/dbcron/internal/sqlrun"
)

// A Job is a row of one of the tables of jobs. Fields that the table lacks, or the statement
// does not read, are zero.
type Job struct {
	ID          int64
	Queue       int // written by all inserts, and read by some statements
	Divided     int
	Priority    int
	Kind        string
	Key         string
	Payload     []byte
	Binary      bool // Payload is not JSON
	MaxAttempts int
	Timeout     time.Duration
	Trace       string
	Unique      string
	UniqueUntil string // begin: until its first attempt begins; "": until it has ended
	Group       int64  // the group that waits for it
	Callback    int64  // the group whose callback it is
	Endpoint    string
	Tenant      string
	Cost        int // 0: 1

	RunAt   int64 // µs since 1970, like the other times; when writing, 0 means ready
	Started int64
	Died    int64
	Ended   int64

	Attempt  int
	Crashes  int
	Stops    int  // of its workers, of a delayed job
	Holds    bool // its key waits for its retry
	Error    string
	Errors   []AttemptError // of its attempts, the newest first
	Progress *Progress      // nil: none is stored
	Worker   string
	Detail   string
	Outcome  string
	Result   []byte // of a job that is done; nil: none

	// Bare means that a [Reader] left out the payload and the progress state; Lacks is their
	// size in bytes.
	Bare  bool
	Lacks int
}

// Progress is what a job's handler has stored about the job.
type Progress struct {
	State   []byte
	Percent int
	Message string
}

// A column is a column of the tables of jobs: its name, and how to read it.
type column struct {
	name string
	read func(r *Reader, row *sqlrun.Row, at int)
}

// A bodyColumn is a column that all tables of jobs have and producers write.
type bodyColumn struct {
	column
	record string // name of its field in the rows of an INSERT, and its type: see keyFields
	how    written
	value  func(j *Job) any // nil means NULL
}

// A written says which statements write a column.
type written uint8

const (
	always written = iota // all of them
	rare                  // those for jobs that are not plain
	tied                  // like rare, and another table refers to it: such jobs are not copied
)

// body is the description of a job, in whichever table. A new column is a line here, a field of
// [Job], and one in each engine's migrations.
var body = []bodyColumn{
	{
		column{"kind", func(r *Reader, row *sqlrun.Row, at int) { r.job.Kind = r.kind(row.Bytes(at)) }},
		"name text", always, func(j *Job) any { return j.Kind },
	},
	{
		column{"job_key", func(r *Reader, row *sqlrun.Row, at int) { r.job.Key = text(row, at) }},
		"job_key text", always, func(j *Job) any { return orNull(j.Key) },
	},
	{
		column{"payload", func(r *Reader, row *sqlrun.Row, at int) {
			r.payload = row.Bytes(at)
		}},
		"payload json", always, func(j *Job) any {
			if j.Binary || len(j.Payload) == 0 {
				return nil
			}
			return string(j.Payload)
		},
	},
	{
		column{"payload_bin", func(r *Reader, row *sqlrun.Row, at int) {
			if r.job.Binary = !row.Null(at); r.job.Binary {
				r.payload = row.Bytes(at)
			}
		}},
		"bytes bytes", rare, func(j *Job) any {
			if !j.Binary {
				return nil
			}
			return sqlrun.Bytes(j.Payload)
		},
	},
	{
		column{"max_attempts", func(r *Reader, row *sqlrun.Row, at int) { r.job.MaxAttempts = int(row.Int(at)) }},
		"tries integer", rare, func(j *Job) any { return orNull(j.MaxAttempts) },
	},
	{
		column{"timeout", func(r *Reader, row *sqlrun.Row, at int) {
			r.job.Timeout = time.Duration(row.Int(at)) * time.Microsecond
		}},
		"lasts bigint", rare, func(j *Job) any { return orNull(j.Timeout.Microseconds()) },
	},
	{
		column{"trace", func(r *Reader, row *sqlrun.Row, at int) { r.job.Trace = text(row, at) }},
		"trace_of text", rare, func(j *Job) any { return orNull(j.Trace) },
	},
	{
		column{"unique_key", func(r *Reader, row *sqlrun.Row, at int) { r.job.Unique = text(row, at) }},
		"unique_key text", tied, func(j *Job) any { return orNull(j.Unique) },
	},
	{
		column{"unique_until", func(r *Reader, row *sqlrun.Row, at int) { r.job.UniqueUntil = text(row, at) }},
		"unique_until text", rare, func(j *Job) any { return orNull(j.UniqueUntil) },
	},
	{
		column{"group_id", func(r *Reader, row *sqlrun.Row, at int) {
			r.job.Group, r.job.Callback = max(0, row.Int(at)), max(0, -row.Int(at))
		}},
		"group_id bigint", tied, func(j *Job) any { return orNull(j.Group - j.Callback) },
	},
	{
		column{"endpoint", func(r *Reader, row *sqlrun.Row, at int) { r.job.Endpoint = text(row, at) }},
		"endpoint text", rare, func(j *Job) any { return orNull(j.Endpoint) },
	},
	{
		column{"tenant", func(r *Reader, row *sqlrun.Row, at int) { r.job.Tenant = text(row, at) }},
		"tenant text", rare, func(j *Job) any { return orNull(j.Tenant) },
	},
	{
		column{"cost", func(r *Reader, row *sqlrun.Row, at int) { r.job.Cost = int(row.Int(at)) }},
		"cost smallint", rare, func(j *Job) any { return orNull(j.Cost) },
	},
}

// others are the further columns read of jobs.
var others = []column{
	{"id", func(r *Reader, row *sqlrun.Row, at int) { r.job.ID = row.Int(at) }},
	{"priority", func(r *Reader, row *sqlrun.Row, at int) { r.job.Priority = int(row.Int(at)) }},
	{"divided", func(r *Reader, row *sqlrun.Row, at int) { r.job.Divided = int(row.Int(at)) }},
	{"attempt", func(r *Reader, row *sqlrun.Row, at int) { r.job.Attempt = int(row.Int(at)) }},
	{"crashes", func(r *Reader, row *sqlrun.Row, at int) { r.job.Crashes = int(row.Int(at)) }},
	{"stops", func(r *Reader, row *sqlrun.Row, at int) { r.job.Stops = int(row.Int(at)) }},
	{"run_at", func(r *Reader, row *sqlrun.Row, at int) { r.job.RunAt = row.Int(at) }},
	{"started_at", func(r *Reader, row *sqlrun.Row, at int) { r.job.Started = row.Int(at) }},
	{"died_at", func(r *Reader, row *sqlrun.Row, at int) { r.job.Died = row.Int(at) }},
	{"ended_at", func(r *Reader, row *sqlrun.Row, at int) { r.job.Ended = row.Int(at) }},
	{"hold_key", func(r *Reader, row *sqlrun.Row, at int) { r.job.Holds = !row.Null(at) }},
	{"error", func(r *Reader, row *sqlrun.Row, at int) { r.job.Error = text(row, at) }},
	{"errors", func(r *Reader, row *sqlrun.Row, at int) { r.job.Errors = parseErrors(text(row, at)) }},
	{"snapshot", func(r *Reader, row *sqlrun.Row, at int) {
		if !row.Null(at) {
			r.progress()
			r.state = row.Bytes(at)
		}
	}},
	{"percent", func(r *Reader, row *sqlrun.Row, at int) {
		if !row.Null(at) {
			r.progress().Percent = int(row.Int(at))
		}
	}},
	{"message", func(r *Reader, row *sqlrun.Row, at int) {
		if !row.Null(at) {
			r.progress().Message = text(row, at)
		}
	}},
	{"lock_by", func(r *Reader, row *sqlrun.Row, at int) { r.job.Worker = text(row, at) }},
	{"worker", func(r *Reader, row *sqlrun.Row, at int) { r.job.Worker = text(row, at) }},
	{"detail", func(r *Reader, row *sqlrun.Row, at int) { r.job.Detail = text(row, at) }},
	{"result", func(r *Reader, row *sqlrun.Row, at int) {
		if !row.Null(at) {
			r.job.Result = bytes.Clone(row.Bytes(at))
		}
	}},
	{"outcome", func(r *Reader, row *sqlrun.Row, at int) { r.job.Outcome = text(row, at) }},
}

// A Reader reads jobs from the rows of a statement, by column name. Set its fields before
// reading the first row.
type Reader struct {
	Kind func(name []byte) string      // returns a shared string for a kind; nil: copy it
	Keep func(id int64, size int) bool // decides whether to keep a payload and state of this size; nil: always
	Text func(b []byte) []byte         // stores bytes of a row; nil: copies them

	columns        []column
	job            Job
	payload, state []byte // of the current row
}

// columnsOf has the columns of each statement that reads jobs.
var columnsOf = map[*sqlrun.Stmt][]column{}

// reading registers a statement that reads jobs, with its columns.
func reading(columns string, stmt *sqlrun.Stmt) *sqlrun.Stmt {
	columnsOf[stmt] = parse(columns)
	return stmt
}

// NewReader returns a reader for the rows of a statement.
func NewReader(stmt *sqlrun.Stmt) *Reader { return &Reader{columns: columnsOf[stmt]} }

// Read reads a row. The job belongs to the reader, and is valid until the next call.
func (r *Reader) Read(row *sqlrun.Row) *Job {
	r.job, r.payload, r.state = Job{}, nil, nil
	for at := range r.columns {
		if read := r.columns[at].read; read != nil {
			read(r, row, at)
		}
	}
	if n := len(r.payload) + len(r.state); r.Keep != nil && !r.Keep(r.job.ID, n) {
		r.job.Bare, r.job.Lacks, r.job.Progress = true, n, nil
		return &r.job
	}
	if r.Text != nil {
		r.job.Payload = r.Text(r.payload)
	} else {
		r.job.Payload = bytes.Clone(r.payload)
	}
	if r.job.Progress != nil {
		r.job.Progress.State = bytes.Clone(r.state)
	}
	return &r.job
}

// Job returns the last job read. It is valid until the next call of Read.
func (r *Reader) Job() *Job { return &r.job }

func (r *Reader) kind(name []byte) string {
	if r.Kind != nil {
		return r.Kind(name)
	}
	return string(name)
}

func (r *Reader) progress() *Progress {
	if r.job.Progress == nil {
		r.job.Progress = &Progress{}
	}
	return r.job.Progress
}

// text returns a column that may be NULL.
func text(row *sqlrun.Row, at int) string {
	if row.Null(at) {
		return ""
	}
	return string(row.Bytes(at))
}

// parse returns the columns of a SELECT's list. An expression is named by what follows AS, or
// else by the column in it; NULL has no name.
func parse(list string) (all []column) {
	known := map[string]column{}
	for _, c := range body {
		known[c.name] = c.column
	}
	for _, c := range others {
		known[c.name] = c
	}
	depth, from := 0, 0
	for i := 0; i <= len(list); i++ {
		switch {
		case i == len(list) || list[i] == ',' && depth == 0:
			name := nameOf(list[from:i])
			all = append(all, column{name, known[name].read})
			from = i + 1
		case list[i] == '(' || list[i] == '{':
			depth++
		case list[i] == ')' || list[i] == '}':
			depth--
		}
	}
	return all
}

// nameOf returns the name of an expression in a SELECT.
func nameOf(expression string) (name string) {
	if _, after, ok := strings.Cut(expression, " AS "); ok {
		return after
	}
	for word := range strings.FieldsFuncSeq(expression, func(r rune) bool { return r != '_' && (r < 'a' || r > 'z') }) {
		name = word
	}
	return name
}

// BodyColumns lists the columns that all tables of jobs have and producers write.
var BodyColumns = bodyText(func(c bodyColumn) string { return c.name })

// bareBody is BodyColumns without the payload.
var bareBody = strings.Replace(BodyColumns, "payload, payload_bin", "NULL AS payload, NULL AS payload_bin", 1)

// progressColumns lists the columns with what a handler has stored about its job. The table of
// ready jobs lacks them.
const progressColumns = `snapshot, percent, message`

// bodyOfJ and progressOfJ are these lists for a table with the alias j.
var (
	bodyOfJ     = "j." + strings.ReplaceAll(BodyColumns, ", ", ", j.")
	progressOfJ = "j." + strings.ReplaceAll(progressColumns, ", ", ", j.")
)

func bodyText(of func(bodyColumn) string) string {
	var all []string
	for _, c := range body {
		if text := of(c); text != "" {
			all = append(all, text)
		}
	}
	return strings.Join(all, ", ")
}

// The most and least urgent priorities, and the default.
const (
	MostUrgent  = 1
	Normal      = 2
	LeastUrgent = 4
)

// PriorityOf returns a job's priority, or the default if an invalid one was written by hand.
func PriorityOf(j *Job) int {
	if j.Priority < MostUrgent || j.Priority > LeastUrgent {
		return Normal
	}
	return j.Priority
}
