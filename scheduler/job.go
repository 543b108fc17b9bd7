package scheduler

import (
	"cmp"
	"encoding/json"
	"strings"
	"time"

	"github.com/dbcron/dbcron/internal/jobfield"
	"github.com/dbcron/dbcron/queue"
)

// JobOptions says how a schedule of kind job enqueues its job. The job's kind is the schedule's
// Command. Its payload is the schedule's Stdin, which must be JSON and is passed on byte for byte,
// or a Slot if Stdin is empty.
//
// The job is enqueued in the transaction that claims the slot, which also ends the run. So each
// slot that runs yields exactly one job, whatever crashes, unless its unique key is in use. The queue decides how long the job may
// take and how often it is retried; the schedule's policies for overlap, timeout and attempts do
// not apply to it.
type JobOptions struct {
	Queue       string        // created if missing; default: the route of the job's kind (see SetRoute of queue/admin)
	Key         string        // jobs with the same key run in order; default: none
	Priority    int           // queue.Urgent to queue.Idle; default: queue.Normal
	MaxAttempts int           // failed attempts before the job is dead; 0: the queue's setting
	Timeout     time.Duration // of an attempt; 0: the queue's setting

	// Unique keeps slots from enqueueing while a job of the queue has the same unique key: it
	// waits, is delayed or runs. Such a slot's run is skipped, and its error names that job.
	// UniqueFor is how long the job keeps the key at least, and UniqueUntil is queue.UntilEnd (the
	// default) or queue.UntilBegin: see queue.Job.
	Unique      string
	UniqueFor   time.Duration
	UniqueUntil string

	Tenant string // whose job it is, where its queue is fair; default: nobody's
	Cost   int    // for how many jobs it counts at rates of limits, and in the turns of tenants; default: 1
}

// causeOutput is the number of trailing bytes of the causing run's output that a job's payload
// contains.
const causeOutput = 8 << 10

// A Slot is the payload of a job whose schedule sets none.
type Slot struct {
	Schedule string    `json:"schedule"`
	Due      time.Time `json:"due"` // UTC
	RunID    int64     `json:"run_id,string"`
	Cause    *Cause    `json:"cause,omitempty"` // the run that started it through OnSuccess or OnFailure
}

// PeriodicJob returns a schedule that enqueues job at each slot of spec, for [Add] or [Put]:
//
//	err := scheduler.Put(ctx, db, scheduler.PeriodicJob("digest", "0 7 * * 1", digest.Job(Digest{To: "all"})))
//
// The job has the same payload for each slot, or the [Slot] if it has none. If it has a unique key,
// slots are skipped while another job has that. A schedule cannot give jobs a delay, a group, an
// endpoint, or a payload that is not JSON: Add and Put refuse such a job with ErrInvalid.
func PeriodicJob(name, spec string, job queue.Job) Schedule {
	return Schedule{
		Name: name, Spec: spec, Kind: "job", Command: job.Kind, Stdin: string(job.Payload),
		Job: JobOptions{
			Queue: job.Queue, Key: job.Key, Priority: job.Priority, MaxAttempts: job.MaxAttempts, Timeout: job.Timeout,
			Unique: job.Unique, UniqueFor: job.UniqueFor, UniqueUntil: job.UniqueUntil, Tenant: job.Tenant, Cost: job.Cost,
		},
		bad: unfit(job),
	}
}

// unfit says why a schedule cannot enqueue a job; "" means that it can.
func unfit(job queue.Job) string {
	if err := job.Check(); err != nil {
		return strings.TrimPrefix(err.Error(), queue.ErrInvalid.Error()+": ")
	}
	for _, field := range []struct {
		name string
		set  bool
	}{
		{"delay", job.Delay != 0 || !job.RunAt.IsZero()},
		{"group", job.Group != 0},
		{"endpoint", job.Endpoint != ""},
		{"trace", job.Trace != ""},
		{"binary payload", job.Binary},
	} {
		if field.set {
			return "a schedule gives its jobs no " + field.name
		}
	}
	return ""
}

// filled returns the options with the defaults filled in.
func (o JobOptions) filled() JobOptions {
	o.Priority = cmp.Or(o.Priority, queue.Normal)
	o.UniqueUntil = cmp.Or(o.UniqueUntil, queue.UntilEnd)
	return o
}

// job returns the job that the schedule enqueues, without the payload of a slot.
func (s *Schedule) job() queue.Job {
	return queue.Job{
		Queue: s.Job.Queue, Kind: s.Command, Key: s.Job.Key, Payload: []byte(s.Stdin), Priority: s.Job.Priority,
		MaxAttempts: s.Job.MaxAttempts, Timeout: s.Job.Timeout, Unique: s.Job.Unique, UniqueFor: s.Job.UniqueFor,
		UniqueUntil: s.Job.UniqueUntil, Tenant: s.Job.Tenant, Cost: s.Job.Cost,
	}
}

// jobOf returns the job of a run; by is the run that started it, or nil.
func jobOf(r *run, by *Cause) queue.Job {
	j := r.what.job()
	if len(j.Payload) == 0 {
		if by != nil && len(by.Output) > causeOutput { // queues limit the payload
			by.Output = strings.ToValidUTF8(by.Output[len(by.Output)-causeOutput:], "")
		}
		j.Payload, _ = json.Marshal(Slot{r.schedule, r.due.UTC(), r.id, by}) // years are from 1971 to 9999
	}
	j.Trace = r.trace.Parent
	return j
}

// jobProblems lists what is wrong with a schedule's job. It checks each part separately, so that
// it reports every problem.
func (s *Schedule) jobProblems() (all problems) {
	if s.Kind != "job" {
		if s.Job.filled() != (JobOptions{}).filled() {
			all.add("job", "queue, key and the like are for jobs, not for the kind %s", s.Kind)
		}
		return all
	}
	if s.bad != "" {
		all.add("job", "%s", s.bad)
	}
	if s.MaxAttempts > 1 {
		all.add("max_attempts", "is not for jobs, which their queue tries again; say it of the job (job_max_attempts)")
	}
	if s.Timeout != 0 {
		all.add("timeout", "is not for jobs, which their queue ends; say it of the job (job_timeout)")
	}
	j := s.job()
	if err := jobfield.CheckTarget(j.Queue); err != nil {
		all.add("job_queue", "%v", err)
	}
	for _, part := range []struct {
		field string
		only  queue.Job
	}{
		{"job_queue", queue.Job{Queue: j.Queue}},
		{"job_key", queue.Job{Key: j.Key}},
		{"job_priority", queue.Job{Priority: j.Priority}},
		{"job_max_attempts", queue.Job{MaxAttempts: j.MaxAttempts}},
		{"job_timeout", queue.Job{Timeout: j.Timeout}},
		{"job_unique", queue.Job{Unique: j.Unique}},
		{"job_tenant", queue.Job{Tenant: j.Tenant}},
		{"job_cost", queue.Job{Cost: j.Cost}},
		{"job_unique_for", queue.Job{Unique: strings.Repeat("u", min(1, len(j.Unique))), UniqueFor: j.UniqueFor}},
		{"job_unique_until", queue.Job{Unique: strings.Repeat("u", min(1, len(j.Unique))), UniqueUntil: j.UniqueUntil}},
	} {
		part.only.Kind = "any"
		all.refused(part.field, part.only.Check())
	}
	var read json.RawMessage // numbers may be larger than any type
	if err := json.Unmarshal(j.Payload, &read); len(j.Payload) > 0 && err != nil {
		all.add("stdin", "is not JSON: %v", err)
	} else {
		all.refused("stdin", queue.Job{Kind: "any", Payload: j.Payload}.Check())
	}
	return all
}

// refused adds the reason why queues refuse such a job. It drops the queue's field name, since
// schedules use another one.
func (all *problems) refused(field string, err error) {
	if err == nil {
		return
	}
	_, text, _ := strings.Cut(strings.TrimPrefix(err.Error(), queue.ErrInvalid.Error()+": "), ": ")
	all.add(field, "%s", text)
}
