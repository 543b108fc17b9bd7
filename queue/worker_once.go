package queue

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/internal/trouble"
	"github.com/dbcron/dbcron/queue/internal/rig"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// RunOnce processes the jobs that can begin, and returns when none is left in its queues: no job
// is ready or due, except for those that wait for another job of their key that runs elsewhere or
// waits for its retry, those of queues that are not active, and those of kinds that the worker
// does not handle together with the jobs that wait for them by key. It waits for other workers to
// begin or finish their jobs, and takes the jobs over if those workers die. Jobs that arrive
// later, or are due later, are left to the next call. When ctx ends it stops as [Worker.Run] does.
func (w *Worker) RunOnce(ctx context.Context) error {
	if task := rig.Of(ctx); task != nil {
		return w.perform(ctx, task)
	}
	ctx, stop := context.WithCancel(ctx)
	var waiting sync.WaitGroup
	defer waiting.Wait()
	defer stop()
	waiting.Go(func() {
		defer stop()
		w.untilQuiet(ctx)
	})
	return w.Run(ctx)
}

// quietEvery is the interval between checks for remaining jobs.
const quietEvery = 50 * time.Millisecond

// untilQuiet waits until nothing is left, and then stops starting jobs.
func (w *Worker) untilQuiet(ctx context.Context) {
	select {
	case <-w.joined:
	case <-ctx.Done():
		return
	}
	trouble := trouble.New(w.log, "checking for remaining jobs")
	tick := time.NewTicker(quietEvery)
	defer tick.Stop()
	for {
		w.mu.Lock()
		engaged := w.engaged() // jobs that it is about to enqueue are not visible yet
		w.mu.Unlock()
		left, err := w.left(ctx)
		if ctx.Err() == nil {
			trouble.Note(err)
		}
		if err == nil && !left && !engaged && w.closeIdle() {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// closeIdle stops starting jobs, unless something is under way here.
func (w *Worker) closeIdle() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.lease.node == "" || w.engaged() {
		return false
	}
	w.closing = true
	return true
}

// engaged reports whether jobs run here, or something is being read or written. mu is held.
func (w *Worker) engaged() bool {
	for h := range w.everyHandler() {
		if len(h.gathered) > 0 {
			return true
		}
	}
	for _, q := range w.queues {
		for _, b := range q.blocks {
			if b.Serving || b.Active > 0 || len(b.Acks) > 0 || len(b.Moves) > 0 || w.opt.AtMostOnce && b.Known() > 0 {
				return true
			}
		}
	}
	for _, d := range w.out {
		if d.began != 0 || w.choice.knows(d.Kind) {
			return true
		}
	}
	return w.ends.busy || len(w.ends.groups) > 0
}

// left reports whether the tables have a job that could begin, here or elsewhere.
func (w *Worker) left(ctx context.Context) (bool, error) {
	w.mu.Lock()
	queues, name := slices.DeleteFunc(slices.Clone(w.queues), func(q *workQueue) bool { return !q.set.Active() }), w.lease.node
	var kinds []string // of the kinds that it handles
	ask := make([]*sqlrun.Stmt, len(queues))
	picks := w.choice.selective
	if picks {
		kinds = w.choice.handled.List()
	}
	for i, q := range queues {
		ask[i] = store.PendingOf(q.set.FIFO, picks)
	}
	w.mu.Unlock()
	if picks && len(kinds) == 0 {
		return false, nil
	}
	for i, q := range queues {
		var block int
		err := w.db.Get(ctx, ask[i], sqlrun.Args{"queue": q.id, "kinds": kinds}, &block)
		if err == nil || !errors.Is(err, sql.ErrNoRows) {
			return true, err
		}
		running, err := w.c.readRunning(ctx, []int{q.id}, runningPage)
		// A job that is here, or whose worker has ended, so that somebody will continue it.
		if err != nil || slices.ContainsFunc(running, func(r runningRow) bool {
			return (!picks || slices.Contains(kinds, r.kind)) && (r.lockBy == name || r.state == rowHanded || !r.live || !r.inTime)
		}) {
			return true, err
		}
	}
	return false, nil
}
