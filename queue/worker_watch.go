package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/internal/trouble"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// ErrTimeout is the cause of the end of a job's context when the job exceeds its timeout.
var ErrTimeout = errors.New("queue: the job took longer than it may")

// ErrStalled is the cause of the end of a job's context when the job has made no progress for the
// Stall of its kind's RetryPolicy.
var ErrStalled = errors.New("queue: the job made no progress")

// watchEvery is the interval between checks of running jobs; one timer serves all.
const watchEvery = 50 * time.Millisecond

// watch ends jobs whose timeout is over, checks out jobs that run long, and notices when the
// lease has ended without a renewal.
func (w *Worker) watch(ctx context.Context) {
	ticker := time.NewTicker(watchEvery)
	defer ticker.Stop()
	audited := instant.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		w.mu.Lock()
		at := instant.Now()
		late := w.node != "" && at >= w.deadline
		for _, unit := range w.slots {
			for _, d := range unit {
				w.look(d, at)
			}
		}
		for d := range w.taken {
			w.look(d, at)
			w.giveUpLost(d)
		}
		w.adapt(at)
		w.heedSteps()
		w.heedLone()
		for _, q := range w.queues {
			q.recheck()
			for _, b := range q.blocks {
				w.enlist(b) // what is read again now and then, and what has failed
			}
		}
		for b := range w.remnants {
			w.enlist(b)
		}
		if at.Sub(audited) >= auditEvery {
			audited = at
			w.audit()
		}
		w.mu.Unlock()
		if late {
			w.lose("it could not be renewed in time")
		}
	}
}

// heedSteps schedules a read of all blocks after the database's clock was set: earlier ids and
// times cannot be compared with later ones. mu is held.
func (w *Worker) heedSteps() {
	n := w.c.clock.stepped()
	if n == w.steps {
		return
	}
	w.steps = n
	w.log.Warn("the database's clock was set; all blocks are read again")
	for _, q := range w.queues {
		for _, b := range q.blocks {
			b.reads.Distrust()
			b.dues.Anew()
		}
	}
}

// look checks a running job. mu is held.
func (w *Worker) look(d *Delivery, at instant.Instant) {
	if d.over != 0 && at >= d.over && !d.ctx.over {
		cause := fmt.Errorf("%w: %v", ErrTimeout, d.over.Sub(d.began))
		d.ctx.end(cause)
		if w.taken[d] { // nobody will return from it
			delete(w.taken, d)
			w.end(d, cause, "")
		}
	}
	if stall := w.stallOf(d); stall > 0 && !d.ctx.over && d.began != 0 && at.Sub(max(d.began, d.lively)) >= stall {
		d.ctx.end(fmt.Errorf("%w for %v", ErrStalled, stall))
	}
	if d.pinned {
		return
	}
	if at.Sub(d.began) >= w.slow && d.from != tableRunning && !d.moving && !d.ended && !d.b.gone && !w.opt.AtMostOnce && d.b.mayLeave(d, at) {
		w.checkOut(d, d.Crashes)
	}
}

// stallOf returns how long a job may make no progress; 0 means any time. mu is held.
func (w *Worker) stallOf(d *Delivery) time.Duration {
	if h := w.handlerOf(d.Kind); h != nil {
		return h.retry.Stall
	}
	return 0
}

// listen receives notifications of new jobs from other processes, where the database sends them.
// One worker of a process listens for all of them, with one connection.
func (w *Worker) listen(ctx context.Context) {
	if w.db.Dialect.Listen == nil {
		return
	}
	if w.own == nil || cap(w.own.ears) == 0 {
		return // a pool that is small is not deprived of a connection
	}
	go w.c.bells.ping(ctx) // if another one listens already, so that this one knows it
	select {
	case w.c.bells.ears <- struct{}{}:
		defer func() { <-w.c.bells.ears }()
	case <-ctx.Done():
		return
	}
	select {
	case w.own.ears <- struct{}{}:
		defer func() { <-w.own.ears }()
	case <-ctx.Done():
		return
	}
	for ctx.Err() == nil {
		ready := func() {
			go func() { w.c.bells.ping(ctx) }() // behind a pooler nothing would be heard
		}
		err := w.c.db.Listen(ctx, w.c.bells.channel(), ready, func(payload string) {
			w.c.bells.notified(payload)
		})
		if err != nil && errors.Is(err, errors.ErrUnsupported) {
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

// poll reads all blocks for new jobs: rarely if notifications announce them, else as the queue's
// settings say, and sooner after there were some.
func (w *Worker) poll(ctx context.Context) {
	trouble := trouble.New(w.log, "looking for jobs")
	wait := time.Duration(0)
	var waits waitingMark
	for {
		wait = w.pace(wait, waits.as != "")
		select {
		case <-ctx.Done():
			return
		case <-called(w, waits.as != ""):
			wait = 0 // what it is about will have begun by then
			select {
			case <-ctx.Done():
				return
			case <-time.After(leastLook):
			}
		case <-time.After(wait):
		}
		err := w.c.clock.sync(ctx, &w.db.Session, instant.Now())
		found := 0
		if err == nil {
			found, err = w.lookForNew(ctx)
		}
		if err == nil {
			var again bool
			if again, err = waits.tend(ctx, w, found > 0); again {
				_, err = w.lookForNew(ctx)
			}
		}
		trouble.Note(err)
		if found > 0 {
			wait = 0
		}
	}
}

// called is signalled when a waiting worker is notified.
func called(w *Worker, waits bool) <-chan struct{} {
	if !waits {
		return nil
	}
	return w.called
}

// pace returns the time until the next poll, given the last one; waits is whether producers
// notify this worker.
func (w *Worker) pace(last time.Duration, waits bool) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	least, most := time.Hour, time.Hour
	for _, q := range w.queues {
		least, most = min(least, q.set.PollMin), min(most, q.set.PollMax)
	}
	if w.db.Dialect.Listen != nil && w.hears != 0 {
		least = max(least, leastLook)
		if most = max(most, least); waits {
			most = max(most, waitingLook)
		}
	}
	if last == 0 {
		return least
	}
	return min(most, last*3/2)
}

// lookForNew wakes the blocks that have jobs above their cursors, and returns their number.
func (w *Worker) lookForNew(ctx context.Context) (found int, err error) {
	var rows []sqlrun.Args
	w.mu.Lock()
	for _, q := range w.queues {
		for _, b := range q.blocks {
			if b.reads.Dirty || b.serving || b.leaving || q.set.State != "active" {
				continue
			}
			after := b.reads.Cursor()
			rows = append(rows, sqlrun.Args{
				"queue": q.id, "block": b.divided, "after1": after[1], "after2": after[2], "after3": after[3], "after4": after[4],
			})
		}
	}
	w.mu.Unlock()
	for _, part := range byQueueID(rows) {
		n, e := w.lookIn(ctx, part)
		found, err = found+n, errors.Join(err, e)
	}
	return found, err
}

// lookIn is lookForNew for blocks of one queue.
func (w *Worker) lookIn(ctx context.Context, rows []sqlrun.Args) (found int, err error) {
	id := rows[0]["queue"].(int)
	if w.db.Dialect.SkipLocked == "" { // deleted rows cost readers nothing, so this is cheap
		if some, err := sqlrun.Select(ctx, &w.db.Session, store.LookForAny, sqlrun.Args{"queue": id},
			store.ScanID); err != nil || len(some) == 0 {
			return 0, err
		}
	}
	// In a pipeline, for the sake of its plans.
	err = w.db.Pipeline(ctx, &sqlrun.Step{
		Stmt: store.LookFor, Args: sqlrun.Args{"rows": rows, "queue": id},
		Scan: func(row *sqlrun.Row) error {
			found++
			w.ring(id, int(row.Int(0)))
			return nil
		},
	})
	return found, err
}

// byQueueID divides rows by their queue. Those of one are together.
func byQueueID(rows []sqlrun.Args) (parts [][]sqlrun.Args) {
	for start := 0; start < len(rows); {
		end := start + 1
		for end < len(rows) && rows[end]["queue"] == rows[start]["queue"] {
			end++
		}
		parts = append(parts, rows[start:end])
		start = end
	}
	return parts
}
