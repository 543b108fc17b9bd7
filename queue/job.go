package queue

import (
	"bytes"
	"cmp"
	"encoding/json"
	"time"
	"unicode/utf8"

	"github.com/dbcron/dbcron/internal/address"
	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/jobfield"
	"github.com/dbcron/dbcron/internal/plain"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// Priorities of a job. Within a block, more urgent jobs are read first.
const (
	Urgent = 1
	Normal = 2 // the default
	Low    = 3
	Idle   = 4
)

// Until when a job has its unique key: see UniqueUntil of [Job].
const (
	UntilEnd   = "end"
	UntilBegin = store.UntilBegin
)

// A Job is a unit of work to be done later.
type Job struct {
	Queue   string // default: by the route of its kind, see SetRoute of package admin, or else default
	Kind    string // selects the handler
	Payload []byte // the arguments: JSON, kept byte for byte
	Binary  bool   // Payload is arbitrary bytes, not JSON; an empty one is neither

	// Key orders jobs: those of one queue and key are done one after the other, in the order in
	// which they were enqueued. A job with an empty key waits for no other.
	Key string

	// Unique keeps other jobs of the queue with the same key from being enqueued; [Enqueued] then
	// names the existing job. The key is free again when the job has ended, done or dead, and
	// with UniqueFor not before that time after it was enqueued, at most a year. So enqueueing
	// again is harmless when the outcome of the first try is unknown.
	Unique    string
	UniqueFor time.Duration

	// UniqueUntil is until when the job has its unique key: UntilEnd, the default, or UntilBegin, up to the beginning of
	// its first attempt. Then another job of the key can be enqueued while this one runs, so that no change is missed that
	// comes after this one has looked; if both have the same Key, it begins when this one has ended. A job that fails, or
	// is retried when it is dead, does not take its key again.
	UniqueUntil string

	// Debounce has the job replace the one that waits with its unique key, so that of several changes the newest is done,
	// once, when there was none for Delay, or at the latest after Debounce: a second after the last
	// keystroke, and every ten seconds while somebody types. The replaced job is gone, with its id. One that has begun, or
	// that waits since Debounce, stays, and this one is enqueued beside it. It needs Unique and a Delay of up to
	// Debounce, at most a year, and implies UntilBegin. A key that a job without Debounce has is in use.
	Debounce time.Duration

	// Tenant is whose job it is, such as a customer: in a queue that is fair the tenants that have jobs have equal
	// turns, whatever the number of their jobs. Jobs without one belong to one more. It is a name of its own beside
	// Key: in a fair queue, jobs of one key are to be of one tenant.
	Tenant string

	// Cost is for how many jobs this one counts at the rates of limits, and in the turns of tenants: from 1, the default, to
	// [MaxCost]. It begins when one job might, and the next one when the rate has made up for all of its cost. How many jobs run at
	// a time does not depend on their costs.
	Cost int

	// Group is the id of the group to which the job belongs: see [Client.NewGroup].
	Group int64

	Priority    int           // Urgent to Idle; the same for all jobs of a key
	Delay       time.Duration // the job starts no sooner than this from now
	RunAt       time.Time     // or no sooner than this, by the database's clock
	MaxAttempts int           // failed attempts after which it is dead; 0: the queue's setting
	Timeout     time.Duration // of an attempt, up to the queue's MaxTimeout; 0: the queue's setting
	Trace       string        // a W3C traceparent, passed on to the handler; other texts are refused

	// Endpoint is the URL to which the job is sent, in a queue whose jobs are sent by HTTP; if it
	// is empty, the queue's. Workers of other queues find it in the [Delivery].
	Endpoint string

	err        error // why the payload could not be encoded
	callbackOf int64 // the group whose callback it is
}

// MaxCost is the greatest Cost of a [Job].
const MaxCost = store.MaxCost

// defaultQueue is the queue of jobs that name none and have no route.
const defaultQueue = store.DefaultQueue

// latest is the latest time to which a job can be delayed: what all engines can store.
var latest = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

// Check returns an [ErrInvalid] for a job that no queue would accept. It does not use the
// database.
func (j Job) Check() error { return j.check() }

// check sets the job's defaults, or returns an ErrInvalid.
func (j *Job) check() error {
	j.Priority, j.Binary = j.priority(), j.binary()
	return j.valid()
}

func (j *Job) priority() int { return cmp.Or(j.Priority, Normal) }
func (j *Job) binary() bool  { return j.Binary && len(j.Payload) > 0 }

// valid is check, and leaves the job as it is.
func (j *Job) valid() error {
	if j.err != nil {
		return j.err
	}
	return cmp.Or(j.checkNames(), j.checkTimes(), j.checkDebounce(), j.checkRest(), j.checkPayload())
}

// checkNames checks the texts chosen by users.
func (j *Job) checkNames() error {
	for _, name := range []struct{ field, is string }{
		{"queue", j.Queue}, {"kind", j.Kind}, {"key", j.Key}, {"unique", j.Unique}, {"tenant", j.Tenant},
	} {
		if name.field != "kind" && name.is == "" {
			continue
		}
		if len(name.is) > 2000 {
			return invalid(name.field, "it has %d bytes; a name has up to 200 characters", len(name.is))
		}
		if err := sqlrun.CheckName(name.is); err != nil {
			return invalid(name.field, "%v", err)
		}
	}
	return nil
}

// checkTimes checks the start time and the durations.
func (j *Job) checkTimes() error {
	switch {
	case j.Delay < 0:
		return invalid("delay", "%v is negative", j.Delay)
	case j.Delay > plain.LongestDuration:
		return invalid("delay", "%v is longer than 100 years", j.Delay)
	case j.Delay > 0 && !j.RunAt.IsZero():
		return invalid("delay", "there is a time to run at as well; give one of them")
	case !j.RunAt.IsZero() && j.RunAt.After(latest):
		return invalid("run_at", "%s is after the year 9998", j.RunAt.UTC().Format(time.RFC3339))
	case j.UniqueFor < 0 || j.UniqueFor > longestUnique:
		return invalid("unique_for", "%v is not 0 to %v", j.UniqueFor, longestUnique)
	case j.UniqueFor > 0 && j.Unique == "":
		return invalid("unique_for", "there is no unique key that it is about")
	case j.UniqueUntil != "" && j.UniqueUntil != UntilEnd && j.UniqueUntil != UntilBegin:
		return invalid("unique_until", "%q is none of %s, %s", plain.Cut(j.UniqueUntil, 100), UntilEnd, UntilBegin)
	case j.UniqueUntil == UntilBegin && j.Unique == "":
		return invalid("unique_until", "there is no unique key that it is about")
	case j.Timeout < 0 || j.Timeout > plain.LongestDuration:
		return invalid("timeout", "%v is not 0 to 100 years", j.Timeout)
	}
	return nil
}

// checkDebounce checks what belongs to a Debounce.
func (j *Job) checkDebounce() error {
	switch {
	case j.Debounce == 0:
	case j.Debounce < 0 || j.Debounce > longestUnique:
		return invalid("debounce", "%v is not 0 to %v", j.Debounce, longestUnique)
	case j.Unique == "":
		return invalid("debounce", "there is no unique key that says which job it replaces")
	case j.Delay == 0:
		return invalid("debounce", "there is no delay that says how long nothing may have changed")
	case j.Delay > j.Debounce:
		return invalid("debounce", "%v is shorter than the delay, %v: it is the longest wait", j.Debounce, j.Delay)
	case j.UniqueFor > 0:
		return invalid("debounce", "the job has its key until it begins, and not for a time; leave unique_for out")
	case j.UniqueUntil == UntilEnd:
		return invalid("debounce", "the job has its key until it begins, and not until its end; leave unique_until out")
	case j.Group != 0:
		return invalid("debounce", "the job is of a group, which would wait for it when it was replaced")
	}
	return nil
}

// checkRest checks everything but names, times and the payload.
func (j *Job) checkRest() error {
	switch {
	case j.Priority != 0 && (j.Priority < Urgent || j.Priority > Idle):
		return invalid("priority", "%d is not 1 (urgent) to 4 (idle)", j.Priority)
	case j.Cost < 0 || j.Cost > MaxCost:
		return invalid("cost", "%d is not 1 to %d", j.Cost, MaxCost)
	case j.Group < 0:
		return invalid("group", "%d is not the id of a group", j.Group)
	case j.MaxAttempts < 0 || j.MaxAttempts > 1_000_000:
		return invalid("max_attempts", "%d is not 0 to 1000000", j.MaxAttempts)
	case j.Trace != "" && !jobfield.ValidTrace(j.Trace):
		return invalid("trace", "%q is not a W3C traceparent, such as 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
			plain.Cut(j.Trace, 100))
	case j.Endpoint != "" && address.CheckEndpoint(j.Endpoint) != nil:
		return invalid("endpoint", "%v", address.CheckEndpoint(j.Endpoint))
	}
	return nil
}

// checkPayload checks that a payload that is not binary is JSON.
func (j *Job) checkPayload() error {
	switch {
	case j.binary():
	case len(j.Payload) > 0 && !utf8.Valid(j.Payload):
		return invalid("payload", "it is not UTF-8; set Binary for what is not JSON")
	case len(j.Payload) > 0 && !json.Valid(j.Payload):
		return invalid("payload", "it is not JSON; set Binary for what is not")
	case tooDeep(j.Payload):
		return invalid("payload", "it is nested more than %d levels deep, which not all databases can read", deepest)
	}
	return nil
}

// deepest is the maximum nesting of JSON: SQLite reads no deeper.
const deepest = 1000

// tooDeep reports whether valid JSON is nested too deeply.
func tooDeep(text []byte) bool {
	if bytes.Count(text, []byte("["))+bytes.Count(text, []byte("{")) <= deepest {
		return false
	}
	depth, quoted := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '[' || c == '{':
			if depth++; depth > deepest {
				return true
			}
		case c == ']' || c == '}':
			depth--
		}
	}
	return false
}

// A jobRow is a job to be written.
type jobRow struct {
	*Job
	of             *store.Queue
	queue, divided int
	id             int64
	runAt          int64 // µs since 1970; 0: it is ready
	holder         int64 // the existing job with its unique key, for which this one is not written; 0: none
	until          int64 // of a job that is moved: up to when another may replace it, µs since 1970; 0: none may

	drawn instant.Instant // when the id was drawn
	after int             // number of late commits that it follows: see late; 0: none
}

// stored converts jobs to rows of an INSERT.
func stored(jobs []jobRow) store.Jobs {
	all := make(store.Jobs, len(jobs))
	for i := range jobs {
		jobs[i].store(&all[i])
	}
	return all
}

// store sets what the table has of a job.
func (r *jobRow) store(to *store.Job) {
	*to = store.Job{
		Queue: r.queue, Divided: r.divided, ID: r.id, RunAt: r.runAt, Priority: r.priority(), Kind: r.Kind, Key: r.Key,
		Payload: r.Payload, Binary: r.binary(), MaxAttempts: r.MaxAttempts, Timeout: r.Timeout, Trace: r.Trace, Unique: r.Unique, UniqueUntil: r.uniqueUntil(),
		Group: r.Group, Callback: r.callbackOf, Endpoint: r.Endpoint, Tenant: r.Tenant, Cost: r.cost(),
	}
}

// cost returns the job's cost as it is stored: 0 for 1, which nearly all have.
func (j *Job) cost() int {
	if j.Cost == 1 {
		return 0
	}
	return j.Cost
}

// uniqueUntil returns until when the job has its unique key, as it is stored.
func (j *Job) uniqueUntil() string {
	switch {
	case j.Debounce > 0:
		return UntilBegin
	case j.UniqueUntil == UntilEnd:
		return ""
	}
	return j.UniqueUntil
}

// orNull returns nil for a zero value.
func orNull[T comparable](v T) any {
	var zero T
	if v == zero {
		return nil
	}
	return v
}
