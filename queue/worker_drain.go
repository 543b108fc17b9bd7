package queue

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/pace"
	"github.com/dbcron/dbcron/internal/sqlconn"
	"github.com/dbcron/dbcron/queue/internal/block"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// drain ends the worker's work: see Run.
func (w *Worker) drain(ctx context.Context) {
	w.mu.Lock()
	told := !w.closing && (len(w.taken) > 0 || w.unasked == nil || !w.unasked()) // else nobody has stopped it that does jobs
	w.closing, w.halt.at = true, instant.Now()
	w.work.Broadcast()
	w.ungather()
	for _, q := range w.queues {
		for _, b := range q.blocks {
			w.leave(b)
			w.tryFinally(b)
		}
	}
	for b := range w.remnants {
		w.tryFinally(b)
	}
	w.mu.Unlock()
	close(w.stopping)
	w.handOverAll(ctx)
	over := make(chan struct{})
	go func() { w.group.Wait(); close(over) }()
	grace := time.After(max(0, w.opt.Grace))
	select {
	case <-w.hopeless: // there is nobody to wait for
		grace = time.After(0)
	default:
	}
	if told {
		w.acquitPaused(ctx)
	}
	every := time.NewTicker(20 * time.Millisecond)
	defer every.Stop()
	last := instant.Instant(0) // when to give up on it; 0: wait for it
	for waiting := true; waiting; {
		select {
		case <-over:
			over = nil
		case <-grace:
			grace = nil
			w.cancelAll()
			last = instant.Now().Add(2 * time.Second)
		case <-w.tick:
		case <-every.C:
		}
		w.handOverAll(ctx)
		w.mu.Lock()
		waiting = over != nil || w.sharing() || w.unwritten()
		w.mu.Unlock()
		if last != 0 && instant.Now() >= last {
			break
		}
	}
	w.abandon(ctx)
}

// ungather gives up batches that wait for more jobs, and a job that is to run alone: other
// workers run them. mu is held.
func (w *Worker) ungather() {
	if d := w.lone.d; d != nil && !w.lone.began {
		d.ctx.end(errHandedOver)
		w.heedLone()
	}
	w.adjourn(instant.Now())
	if w.opt.AtMostOnce {
		return // their rows are gone, so they run now
	}
	for h := range w.everyHandler() {
		for _, g := range h.gathered {
			for _, d := range g.jobs {
				w.giveUp(d)
			}
		}
		h.gathered, h.full = nil, 0
	}
	w.gathers = 0
}

// giveUp gives up a job that has begun and is not done. mu is held.
func (w *Worker) giveUp(d *Delivery) {
	if d.hasEnded() {
		return
	}
	d.b.Disengage(&d.state)
	d.state.Phase = block.PhaseEnded
	w.exitLimits(d)
	if d.state.From == tableRunning {
		delete(w.out, d.at())
		w.toHand = append(w.toHand, d)
	}
}

// sharing reports whether blocks may still be taken.
func (life *lifetime) sharing() bool {
	select {
	case <-life.shared:
		return false
	default:
		return true
	}
}

// unwritten reports whether outcomes are still to be written, or blocks to be handed over. mu is
// held.
func (w *Worker) unwritten() bool {
	if w.lease.node == "" {
		return false
	}
	for _, q := range w.queues {
		if len(q.blocks) > 0 {
			return true
		}
	}
	return len(w.rows) > 0
}

// cancelAll cancels the jobs that still run when the grace is over.
func (w *Worker) cancelAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.findSuspects()
	n := 0
	for d := range w.underWay() {
		if d.stuck != nil { // this attempt has failed: the next one is another
			w.end(d, d.stuck, "")
		}
		d.ctx.end(errHandedOver)
		n++
	}
	if n > 0 {
		w.log.Warn("the grace is over; jobs that still run are cancelled", "jobs", n)
	}
}

// abandon leaves the remaining work to other workers, and ends the worker.
func (w *Worker) abandon(ctx context.Context) {
	w.mu.Lock()
	w.lease.over = true // it does not rejoin
	node := cmp.Or(w.lease.node, w.lease.last)
	late := w.lateMoves()
	hand := map[*tenure][]int64{}
	for _, d := range w.out {
		hand[d.b] = append(hand[d.b], d.ID)
	}
	for _, d := range w.toHand {
		hand[d.b] = append(hand[d.b], d.ID)
	}
	for _, d := range w.out { // and those who wait for what cannot be written
		w.settled(d, ErrUnknownOutcome)
	}
	w.mu.Unlock()
	var steps []func(context.Context) error
	for b, moves := range late {
		steps = append(steps, func(ctx context.Context) error { return w.handLate(ctx, b, node, moves) })
	}
	for b, ids := range hand {
		args := store.JobArgs(b.q.id, b.divided, 0, ids)
		args["node"] = node
		steps = append(steps, func(ctx context.Context) error {
			_, err := w.db.Exec(ctx, store.HandLast, args)
			return err
		})
	}
	w.lease.leaves(node)
	steps = append(steps, w.lease.leavePast)
	if err := w.lease.insist(ctx, steps); err != nil {
		w.log.Warn("leaving failed; others take over when the lease has ended", "err", err)
	}
	w.c.bells.announce(ctx)
}

// insist runs the last steps of a worker, each until it succeeds, because what a worker has not
// handed over is blocked until its lease ends. It waits for a slow database, but not long for one
// that cannot be reached.
func (l *nodeLease) insist(ctx context.Context, steps []func(context.Context) error) (err error) {
	began := instant.Now()
	ctx, cancel := context.WithTimeout(ctx, min(max(l.opt.Lease, maxUnheard), maxLeaving))
	defer cancel()
	for _, step := range steps {
		for {
			if err = step(ctx); err == nil || ctx.Err() != nil {
				break
			}
			if since(began) > maxUnheard && (l.db.Dialect.Unavailable(err) || errors.Is(err, sqlconn.ErrCut)) {
				return err
			}
			pace.Sleep(ctx, 50*time.Millisecond)
		}
	}
	return err
}
