package scheduler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dbcron/dbcron/internal/guardian"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue"
)

// An enqueuedRun is a run that ended in the transaction in which it began: its job was enqueued, was
// left out because its unique key is in use, or was refused.
type enqueuedRun struct {
	run
	job     queue.Job
	outcome outcome
	said    string
}

// enqueueAll enqueues the jobs of the runs that a claim has begun, ends those runs, and returns
// the others. It comes last in the claim's transaction: ids of jobs are times and should be
// committed soon.
func (s *Scheduler) enqueueAll(ctx context.Context, tx *sqlrun.Session, b *claims, all []run) (others []run, err error) {
	for _, r := range all {
		if r.what.Kind != "job" {
			others = append(others, r)
			continue
		}
		r.trace = s.traceOf(&r)
		by, err := causeOf(ctx, tx, &r)
		if err != nil {
			return nil, err
		}
		b.made = append(b.made, enqueuedRun{run: r, job: jobOf(&r, by)})
	}
	// Group jobs by queue: each change of queue costs a query for its settings.
	slices.SortStableFunc(b.made, func(a, b enqueuedRun) int { return strings.Compare(a.job.Queue, b.job.Queue) })
	for part := range parts(b.made) {
		if err := s.enqueuePart(ctx, tx, b, part); err != nil {
			return nil, err
		}
	}
	var then sequel
	for i := range b.made {
		m := &b.made[i]
		c := b.what[m.schedule]
		if m.outcome.state == "skipped" || m.outcome.state == "ok" && c.OnSuccess == "" && c.Failures == 0 {
			continue
		}
		if err := s.entail(ctx, tx, c, &m.run, m.outcome, &then, &b.left); err != nil {
			return nil, err
		}
	}
	return others, then.write(ctx, tx, &b.left)
}

// Limits of one statement: its jobs, and the bytes of their payloads unless it has one job
// only. Servers refuse statements that are too long.
const (
	partJobs  = 1000
	partBytes = 4 << 20
)

// parts splits jobs into batches that one statement can insert.
func parts(all []enqueuedRun) func(yield func([]enqueuedRun) bool) {
	return func(yield func([]enqueuedRun) bool) {
		for from := 0; from < len(all); {
			to, bytes := from+1, len(all[from].job.Payload)
			for ; to < len(all) && to-from < partJobs; to++ {
				if bytes += len(all[to].job.Payload); bytes > partBytes {
					break
				}
			}
			if !yield(all[from:to]) {
				return
			}
			from = to
		}
	}
}

// enqueuePart enqueues a batch of jobs and ends their runs. If a queue refuses one of them, it
// enqueues them one by one, so that only the run of that job fails.
func (s *Scheduler) enqueuePart(ctx context.Context, tx *sqlrun.Session, b *claims, part []enqueuedRun) error {
	err := s.enqueue(ctx, tx, b, part)
	if refused(err) && len(part) > 1 {
		for i := range part {
			if err = s.enqueue(ctx, tx, b, part[i:i+1]); err != nil && !refused(err) {
				break
			}
		}
	}
	if err != nil && !refused(err) {
		return err
	}
	rows := make(finishRows, len(part))
	for i := range part {
		rows[i] = rowOf(&part[i].run, part[i].outcome, guardian.Result{ExitCode: -1, Output: part[i].said})
	}
	n, err := tx.Exec(ctx, finish, sqlrun.Args{"rows": rows})
	if err == nil && n != int64(len(part)) {
		err = fmt.Errorf("%d of %d runs that enqueue a job were ended", n, len(part))
	}
	return err
}

// refused reports whether a queue refused a job. In that case nothing was written, and the
// transaction can go on.
func refused(err error) bool {
	return errors.Is(err, queue.ErrInvalid) || errors.Is(err, queue.ErrDeleted)
}

// enqueue enqueues all of the jobs or none, and records the outcome of each. The queue decides who
// gets a unique key, by a row that this transaction holds until its end: of daemons and other
// producers that want it at once, one gets it.
func (s *Scheduler) enqueue(ctx context.Context, tx *sqlrun.Session, b *claims, part []enqueuedRun) error {
	jobs := make([]queue.Job, len(part))
	for i := range part {
		jobs[i] = part[i].job
	}
	all, wake, err := s.jobs.EnqueueIn(ctx, tx, jobs...)
	if err == nil {
		b.wakes = append(b.wakes, wake)
	}
	for i := range part {
		m := &part[i]
		if err != nil {
			m.outcome = outcome{state: "failed", why: reason(err.Error())}
			continue
		}
		which := fmt.Sprintf("job %d in queue %s", all[i].ID, all[i].Queue)
		if all[i].Existed {
			m.outcome, m.said = outcome{state: "skipped", why: whyTaken + which}, ""
			continue
		}
		m.outcome, m.said = outcome{state: "ok"}, which+"\n"
	}
	return err
}

// tell follows the commit of a claim: it keeps what could not be recorded, wakes the workers of the enqueued jobs and logs their
// runs like those of other kinds.
func (s *Scheduler) tell(b *claims) {
	s.doLater(b.left)
	for _, wake := range b.wakes {
		wake()
	}
	for i := range b.made {
		m := &b.made[i]
		s.opt.Logger.Info("run", "schedule", m.schedule, "state", m.outcome.state, "due", m.due, "attempt", m.attempt,
			"id", m.id, "error", m.outcome.why, "output", Output(m.said))
		s.endTrace(&m.trace, m.outcome.state, m.outcome.why)
		s.trim(&m.run)
	}
}

// flush waits until workers have been notified of all jobs. Otherwise they would find the last
// jobs of an exiting program only by polling.
func (s *Scheduler) flush(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_ = s.jobs.Flush(ctx) // on failure, workers find the jobs by polling
	if err := s.noteRest(ctx); err != nil {
		s.opt.Logger.Warn("problems of schedules were not recorded", "err", err)
	}
}
