package queue

import (
	"context"
	"errors"

	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// A loneTrial is the trial of a job whose worker died while the job was on trial. Nothing else
// begins in this worker until the job has ended or is trusted, and it begins only when everything
// else that runs is trusted. So if the worker then dies, the job is the cause. Its row says that
// it runs alone just before it begins, and no sooner: otherwise, a worker that another job
// crashes while this one waits would convict it.
//
// Other jobs are held back for at most twice provenAfter, and then have as long a time before the
// next job runs alone.
type loneTrial struct {
	d      *Delivery // nil: none
	since  instant.Instant
	marked bool // its row says that it runs alone
	began  bool
}

// holdBack makes a job, and others with it, wait until it may run alone. It has passed the
// limiters of its limits. mu is held.
func (w *Worker) holdBack(d *Delivery) {
	w.lone = loneTrial{d: d, since: instant.Now()}
	w.nudge()
}

// popLone returns the job that is to run alone when it may begin. mu is held.
func (w *Worker) popLone() *Delivery {
	t, at := &w.lone, instant.Now()
	if !t.marked || t.began || t.d.ctx.over || at >= w.lease.deadline || !w.choice.asking.takes(t.d.Kind) {
		return nil
	}
	t.began = true
	if t.d.over != 0 {
		t.d.over = t.d.over.Add(at.Sub(t.d.began))
	}
	t.d.began = at
	return t.d
}

// heedLone gives up a job that waits to run alone and no longer belongs to this worker. mu is
// held.
func (w *Worker) heedLone() {
	if d := w.lone.d; d != nil && !w.lone.began && d.ctx.over {
		w.end(d, d.ctx.cause, "")
	}
}

// solitary reports whether everything that runs here is trusted, or has run for long enough to
// be. mu is held.
func (w *Worker) solitary(at instant.Instant) bool {
	for _, unit := range w.slots {
		for _, d := range unit {
			from := d.began
			if h := w.handlerOf(d.Kind); h != nil && h.batch.Wait > 0 {
				from = max(from, w.lone.since) // it began to gather then, and to run at any time since
			}
			if at.Sub(from) < w.proven {
				return false
			}
		}
	}
	for d := range w.taken {
		if at.Sub(d.began) < w.proven {
			return false
		}
	}
	return true
}

// A finding is the new state for the row of a job on trial.
type finding struct {
	d     *Delivery
	state string
}

// findings lists the jobs of a queue on trial whose rows are to be changed, and keeps these
// rows where they are until that is done. mu is held.
func (w *Worker) findings(q *workQueue, at instant.Instant) (all []finding) {
	for _, d := range w.out {
		if d.b.q != q || d.trial == trusted || d.began == 0 || d.ended || d.moving || d.saving {
			continue
		}
		waits := w.lone.d == d && !w.lone.began
		switch {
		case waits && !w.lone.marked && !d.ctx.over && w.solitary(at):
			all = append(all, finding{d, rowAlone})
		case waits || at.Sub(d.began) < w.proven:
			continue
		case d.pinned: // its transaction may have locked the row
			w.acquit(d)
			continue
		default:
			all = append(all, finding{d, rowRunning})
		}
		d.saving = true
	}
	return all
}

// conductTrials records which jobs of a queue have run long enough to be trusted, and which one
// is about to run alone. A job's place on trial is free only after that is committed, and the
// lone job begins only then, so that a crash is counted correctly.
func (w *Worker) conductTrials(ctx context.Context, q *workQueue, name string) (err error) {
	w.mu.Lock()
	all := w.findings(q, instant.Now())
	w.mu.Unlock()
	for _, f := range all {
		n, e := w.db.Exec(ctx, store.SetTrial, sqlrun.Args{
			"queue": q.id, "divided": f.d.b.divided, "id": f.d.ID, "node": name,
			"state": f.state,
		})
		err = errors.Join(err, e)
		w.mu.Lock()
		w.found(f, n, e)
		w.mu.Unlock()
	}
	return err
}

// found records what came of writing a finding, which changed n rows. After an error it is
// tried again. A job whose row is gone was cancelled: it proves nothing any more, whether its
// handler heeds that or not. mu is held.
func (w *Worker) found(f finding, n int64, err error) {
	d := f.d
	d.saving = false
	switch {
	case err != nil:
	case f.state == rowRunning:
		w.acquit(d)
	case w.lone.d == d && n > 0:
		w.lone.marked = true
		w.work.Broadcast()
	}
	if e := d.ending; e != nil && !d.moving {
		d.ending = nil
		w.end(d, e.err, e.detail)
	}
}
