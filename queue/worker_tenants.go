package queue

import (
	"context"
	"errors"

	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/queue/internal/block"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// What happens to the jobs of a block when its holder gives it up, and what the worker does with the jobs of others in each round.

// checkOutAll checks out the jobs that run in a block. mu is held.
func (w *Worker) checkOutAll(b *tenure, at instant.Instant) {
	for j := range b.AllSeen() {
		if d := deliveryOf(j); j.InPlace() && !w.opt.AtMostOnce && b.mayLeave(d, at) {
			w.checkOut(d, d.Crashes)
		}
	}
}

// moveOut ends what an idle block still has here, and returns the checked out jobs that have not started. mu is held.
func (w *Worker) moveOut(b *tenure) (unstarted []int64) {
	w.forsake(b)
	for j := range b.Unstarted() {
		if j.From == tableRunning {
			w.forgo(deliveryOf(j))
			unstarted = append(unstarted, j.ID)
		}
	}
	return unstarted
}

// wake makes handlers look for jobs. mu is held.
func (w *Worker) wake() { w.work.Broadcast() }

func (w *Worker) areBusy() (long, starved bool) { return w.findBusy(), w.starved.is }

func (w *Worker) begunAndReady() (begun int, ready bool) { return w.begun, len(w.runnable) > 0 }

func (w *Worker) isOut(id store.JobID) bool { return w.out[id] != nil }

func (w *Worker) queuesOut() map[*workQueue]bool {
	mine := map[*workQueue]bool{}
	for _, d := range w.out {
		mine[d.b.q] = true
	}
	return mine
}

func (w *Worker) shed(j *block.Job) {
	d := deliveryOf(j)
	d.Payload, d.saved = nil, nil
}

func (w *Worker) died() { signal(w.ends.died) }

// lookAround finds checked out jobs of the blocks in some queues whose workers have ended, and takes them over.
func (w *Worker) lookAround(due []*workQueue) look {
	g := w.takeSnapshot(due)
	return func(ctx context.Context, shared []*workQueue, s *view, name string) (failed error) {
		var found orphanSearch
		for _, q := range shared {
			failed = errors.Join(failed, w.noteTrusted(ctx, q, name), w.noteStuck(ctx, q, name), w.findOrphans(ctx, q, s, g, name, &found))
		}
		return errors.Join(failed, w.adoptAll(ctx, &found, name), w.trust(ctx, found.cleared, name))
	}
}
