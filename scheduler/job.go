package scheduler

import (
	"cmp"
	"encoding/json"
	"strings"
	"time"

	"github.com/dbcron/dbcron/queue"
)

// JobOptions say how a schedule of the kind job enqueues its job, whose kind is the
// schedule's Command, and whose payload its Stdin: JSON, byte for byte. Without one
// the payload is the Slot.
//
// The job is enqueued in the transaction that claims the slot, which also ends the
// run: so there is one job for each slot that runs, whatever crashes. How long the
// job takes and how often it is tried are the queue's concern: the policies of
// overlap, timeout and attempts have nothing to do with it.
type JobOptions struct {
	Queue       string        // which is made if there is none; default: as the route of its kind says: see queue.Client.SetRoute
	Key         string        // jobs of one key are done in order; default: it waits for nobody
	Priority    int           // queue.Urgent to queue.Idle; default: queue.Normal
	MaxAttempts int           // after so many failed ones it is dead; 0: the queue says
	Timeout     time.Duration // of an attempt; 0: the queue says
}

// causeOutput is how many bytes of the output of the run that started it a job's payload has: the
// last.
const causeOutput = 8 << 10

// A Slot is the payload of a job whose schedule gives none.
type Slot struct {
	Schedule string    `json:"schedule"`
	Due      time.Time `json:"due"` // UTC
	RunID    int64     `json:"run_id"`
	Cause    *Cause    `json:"cause,omitempty"` // the run that started it, by OnSuccess or OnFailure
}

// PeriodicJob returns a schedule that enqueues job at each slot of spec, for [Add] or [Put]:
//
//	err := scheduler.Put(ctx, db, scheduler.PeriodicJob("digest", "0 7 * * 1", digest.Job(Digest{To: "all"})))
//
// The job has the same payload for each slot. One without a payload gets the [Slot]. A
// schedule cannot give jobs a unique key, a delay, a group, an endpoint, or a payload that
// is not JSON: Add and Put refuse such a job with ErrInvalid.
func PeriodicJob(name, spec string, job queue.Job) Schedule {
	return Schedule{
		Name: name, Spec: spec, Kind: "job", Command: job.Kind, Stdin: string(job.Payload),
		Job: JobOptions{Queue: job.Queue, Key: job.Key, Priority: job.Priority, MaxAttempts: job.MaxAttempts, Timeout: job.Timeout},
		bad: unfit(job),
	}
}

// unfit says why a schedule cannot enqueue a job; "": it can.
func unfit(job queue.Job) string {
	if err := job.Check(); err != nil {
		return strings.TrimPrefix(err.Error(), queue.ErrInvalid.Error()+": ")
	}
	for _, field := range []struct {
		name string
		set  bool
	}{
		{"unique key", job.Unique != ""},
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
	return o
}

// job is what the schedule enqueues, but for the payload of a slot.
func (s *Schedule) job() queue.Job {
	return queue.Job{
		Queue: s.Job.Queue, Kind: s.Command, Key: s.Job.Key, Payload: []byte(s.Stdin), Priority: s.Job.Priority,
		MaxAttempts: s.Job.MaxAttempts, Timeout: s.Job.Timeout,
	}
}

// jobOf is the job of a run that was started by another one, or by none.
func jobOf(r *run, by *Cause) queue.Job {
	j := r.what.job()
	if len(j.Payload) == 0 {
		if by != nil && len(by.Output) > causeOutput { // queues refuse payloads that are too long
			by.Output = strings.ToValidUTF8(by.Output[len(by.Output)-causeOutput:], "")
		}
		j.Payload, _ = json.Marshal(Slot{r.schedule, r.due.UTC(), r.id, by}) // years are from 1971 to 9999
	}
	j.Trace = r.trace.Parent
	return j
}

// jobProblems tells what is wrong with what a schedule says of a job. Each part is
// looked at for itself, so that all is told.
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
	for _, part := range []struct {
		field string
		only  queue.Job
	}{
		{"job_queue", queue.Job{Queue: j.Queue}},
		{"job_key", queue.Job{Key: j.Key}},
		{"job_priority", queue.Job{Priority: j.Priority}},
		{"job_max_attempts", queue.Job{MaxAttempts: j.MaxAttempts}},
		{"job_timeout", queue.Job{Timeout: j.Timeout}},
	} {
		part.only.Kind = "any"
		all.refused(part.field, part.only.Check())
	}
	var read any
	if err := json.Unmarshal(j.Payload, &read); len(j.Payload) > 0 && err != nil {
		all.add("stdin", "is not JSON: %v", err)
	} else {
		all.refused("stdin", queue.Job{Kind: "any", Payload: j.Payload}.Check())
	}
	return all
}

// refused adds why a queue takes no such job, without the field, which has another
// name there.
func (all *problems) refused(field string, err error) {
	if err == nil {
		return
	}
	_, text, _ := strings.Cut(strings.TrimPrefix(err.Error(), queue.ErrInvalid.Error()+": "), ": ")
	all.add(field, "%s", text)
}
