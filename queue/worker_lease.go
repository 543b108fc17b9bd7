package queue

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/dbcron/dbcron/internal/barrier"
	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/pace"
	"github.com/dbcron/dbcron/internal/sqlconn"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/internal/trouble"
	"github.com/dbcron/dbcron/queue/internal/block"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// errHandedOver is the cause of the end of a job's context when its worker is being stopped.
var errHandedOver = errors.New("queue: the worker is being stopped")

// A nodeLease is the worker's name in the tables and the lease for everything that it holds. It says
// when the lease was lost and the worker's work has to be given up; when it goes on although it was
// nearly over, with mu held; and when the worker has another name.
type nodeLease struct {
	*core
	wakes   *wakeups
	lost    func(why string)
	resumed func()
	entered func()

	drained  *string // who has drained it: see worker_share.go; nil: nobody
	over     bool    // it has left, and does not rejoin
	node     string
	last     string   // its name before the loss of its lease
	ended    []string // its names that are over, and whose end is not written
	past     bygones
	deadline instant.Instant // end of everything leased, at least
	surely   safety          // the same, for those who begin jobs
}

// A safety tells without the mutex, by the cheapest clock, whether the deadline is far enough away to begin a
// job. That clock may stand still while the host is suspended, so it does not replace the deadline, which was
// looked at when the job was taken out of its block. The zero value is over.
type safety struct{ nanos atomic.Int64 }

var zeroSafety = time.Now() //nolint:forbidigo // only compared with itself

func (s *safety) set(until instant.Instant) {
	s.nanos.Store(int64(time.Since(zeroSafety) + until.Sub(instant.Now())))
}

func (s *safety) over() bool { return int64(time.Since(zeroSafety)) >= s.nanos.Load() }

// lasts records until when the lease lasts; 0: it has ended. mu is held.
func (l *nodeLease) lasts(until instant.Instant) {
	l.deadline = until
	l.surely.set(until)
}

// wakeups tell a worker to look after its blocks.
type wakeups struct {
	sharings int             // number of rounds in which it has taken its share of the blocks
	hears    instant.Instant // last notification heard; 0: none
	called   chan struct{}   // signals a notification
	tick     chan struct{}   // signals to look after the blocks now
	bell     *doorbell       // nil: it has none
}

// begin waits for the database, reads the settings of the queues, creates missing ones, and
// registers the worker.
func (w *Worker) begin(ctx context.Context) error {
	trouble := trouble.New(w.log, "registering the worker")
	for {
		err := w.tryBegin(ctx)
		if err == nil || w.db.Dialect.Missing(err) || errors.Is(err, ErrInvalid) {
			return err
		}
		if !pace.Sleep(ctx, time.Duration(100<<min(trouble.Note(err), 5))*time.Millisecond) {
			return nil
		}
	}
}

func (w *Worker) tryBegin(ctx context.Context) error {
	if err := w.c.clock.sync(ctx, &w.db.Session, instant.Now()); err != nil {
		return err
	}
	var queues []*workQueue
	names := map[int]string{}
	sets, err := w.c.queuesNamed(ctx, w.opt.Queues)
	if err != nil {
		return err
	}
	for _, name := range w.opt.Queues {
		set := sets[name]
		if names[set.ID] != "" {
			continue // it was given twice
		}
		q := &workQueue{
			w: w, id: set.ID, name: set.Name, set: set, blocks: map[int]*tenure{}, joining: true, limits: w.limits.Queue(set.ID, set.Name),
		}
		queues, names[q.id] = append(queues, q), q.name
	}
	limits, err := limitsByQueue(ctx, &w.db.Session, names)
	if err != nil {
		return err
	}
	for _, q := range queues {
		w.meetLimits(q, limits[q.id]) // before the first job
	}
	if err := w.fill(ctx); err != nil {
		return err
	}
	if err := w.lease.enter(ctx); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.queues = queues
	return nil
}

// errLate is the error of a lease that was granted so late that it may be over soon: it is none.
var errLate = errors.New("the database granted the lease too late")

// enter registers the worker under a new name. What it leases from then on belongs to it for as
// long as it renews its lease in time. It ends its previous name first, which tells others that it
// lives: see worker_return.go. If the database keeps it waiting, the time of the new lease runs
// meanwhile, so it tries again.
func (l *nodeLease) enter(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, l.patience())
	defer cancel()
	if err := l.leavePast(ctx); err != nil {
		return err
	}
	name, before := l.c.nodeName(), instant.Now()
	defer func() {
		if err != nil {
			l.leaves(name)
		}
	}()
	if _, err := l.leases.Exec(ctx, store.JoinNode, l.joining(name)); err != nil {
		return err
	}
	if l.wakes.bell != nil {
		if _, err := l.db.Exec(ctx, store.PutBell,
			sqlrun.Args{"node": name, "at": l.wakes.bell.at, "key": hex.EncodeToString(l.wakes.bell.key)}); err != nil {
			return err
		}
	}
	if took := since(before); took >= l.opt.Lease/2 {
		return fmt.Errorf("%w: after %v of %v", errLate, took.Round(time.Millisecond), l.opt.Lease)
	}
	l.mu.Lock()
	over := l.over
	if !over {
		l.node = name
		l.lasts(l.until(before))
	}
	l.mu.Unlock()
	if over { // it was stopped meanwhile, and has left under its previous name
		_, err := l.db.Exec(ctx, store.LeaveNode, sqlrun.Args{"node": name})
		return err
	}
	return nil
}

// leaves notes a name that is over. mu is not held.
func (l *nodeLease) leaves(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = append(l.ended, name)
}

// leavePast writes that its past names are over.
func (l *nodeLease) leavePast(ctx context.Context) error {
	l.mu.Lock()
	names := slices.Clone(l.ended)
	l.mu.Unlock()
	for _, name := range names {
		if _, err := l.leases.Exec(ctx, store.LeaveNode, sqlrun.Args{"node": name}); err != nil {
			return err
		}
		l.mu.Lock()
		l.ended = slices.DeleteFunc(l.ended, func(o string) bool { return o == name })
		l.mu.Unlock()
	}
	return nil
}

// patience is how long to wait for an answer about the lease: on another connection there may be
// one in time.
func (l *nodeLease) patience() time.Duration { return max(l.opt.Lease/2, time.Second) }

func (l *nodeLease) joining(name string) sqlrun.Args {
	args := sqlrun.Args{
		"node": name, "lease": l.opt.Lease.Microseconds(), "under": l.opt.LeaderLock, "version": l.c.opt.Version, "drained": 0, "by": "",
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.drained != nil {
		args["drained"], args["by"] = 1, *l.drained
	}
	return args
}

// until returns the end of a lease that was requested at an instant, minus a margin for
// noticing its loss.
func (l *nodeLease) until(asked instant.Instant) instant.Instant {
	return asked.Add(usable(l.opt.Lease))
}

// usable returns the part of a lease on which a worker relies.
func usable(lease time.Duration) time.Duration { return lease - lease/10 }

// DefaultLease is the lease of a worker whose options do not set one. Other workers take over a
// killed worker's blocks within ten seconds, and a process that is paused for five seconds loses
// nothing.
const DefaultLease = 8 * time.Second

// renewals is how many times a lease is renewed within its length: a process that is paused for
// three quarters of a lease does not lose it, nor does one whose renewals fail for that long.
const renewals = 8

// keep renews the lease of this process.
func (l *nodeLease) keep(ctx context.Context) {
	trouble := trouble.New(l.log, "renewing the lease")
	again := min(l.opt.Lease/20, 500*time.Millisecond) // after an error
	wait := l.opt.Lease / renewals
	for {
		if !pace.Sleep(ctx, inStep(min(wait, time.Second))) { // timers sleep while the host is suspended
			return
		}
		l.mu.Lock()
		name, left, over := l.node, l.deadline.Sub(instant.Now()), l.over
		l.mu.Unlock()
		if over {
			return
		}
		if name == "" {
			wait = l.reenter(ctx, trouble)
			continue
		}
		if wait = left - usable(l.opt.Lease) + l.opt.Lease/renewals; wait > 0 && left > 0 {
			continue // not yet
		}
		wait = again
		before := instant.Now()
		goes, err := l.renew(ctx, name)
		trouble.Note(err)
		switch {
		case err != nil:
			if left <= 0 {
				l.lost("it could not be renewed in time")
			}
		case !goes:
			l.lost("the lease had ended")
			wait = 0
		default:
			l.renewed(name, before)
			wait = max(0, l.opt.Lease/renewals-since(before)) // less if the answer came late
		}
	}
}

// renew renews the lease, and reports whether it continues.
func (l *nodeLease) renew(ctx context.Context, name string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, l.patience())
	defer cancel()
	mine := renewal{name, l.opt.Lease}
	all, err := l.c.commons.renews.get(context.WithValue(ctx, ownDB{}, l.leases), mine)
	goes, told := all[mine]
	if err == nil && !told {
		err = errNodeHeld
	}
	return goes, err
}

// renewed records a renewal. What waited because the lease was nearly over continues.
func (l *nodeLease) renewed(name string, asked instant.Instant) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.node != name {
		return
	}
	if instant.Now() >= l.deadline {
		l.resumed()
	}
	l.lasts(l.until(asked))
}

// reenter registers the worker again after it has lost its lease.
func (l *nodeLease) reenter(ctx context.Context, failing *trouble.Trouble) time.Duration {
	err := l.enter(ctx)
	failing.Note(err)
	if err != nil {
		return min(l.opt.Lease/20, 500*time.Millisecond)
	}
	l.entered()
	return l.opt.Lease / renewals
}

// lose gives up everything that this process held: others may have it by now. A worker that leaves has
// given up everything already: a renewal that was under way then finds no lease, which is no loss.
func (w *Worker) lose(why string) {
	if !w.forfeit(why) || w.c.opt.LeaseLost == nil {
		return
	}
	barrier.Tell(w.log, "LeaseLost", func() { w.c.opt.LeaseLost(why) })
}

// forfeit is lose without calling the program. It reports whether there was a lease.
func (w *Worker) forfeit(why string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.lease.node == "" || w.lease.over {
		return false
	}
	w.log.Warn("the lease was lost; running jobs are cancelled, and done again by others", "node", w.lease.node, "reason", why)
	w.lease.past.lost(w.lease.node)
	w.lease.ended = append(w.lease.ended, w.lease.node)
	w.lease.node, w.lease.last = "", w.lease.node
	w.lease.lasts(0)
	cause := fmt.Errorf("%w: %s", ErrLost, why)
	for _, q := range w.queues {
		for _, b := range q.blocks {
			w.drop(b, cause)
		}
	}
	for id, d := range w.out {
		delete(w.out, id)
		w.bereave(d, cause)
	}
	w.heedLone()
	w.adjourn(instant.Now())
	clear(w.rows)
	w.limits.Lose()
	w.work.Broadcast() // handlers that have a job and wait for the lease: see stillMine
	return true
}

// bereave ends a checked out job whose row has a name of this worker that is over. What ran for long enough did
// not end the process. mu is held.
func (w *Worker) bereave(d *Delivery, cause error) {
	d.ctx.end(cause)
	if w.lone.d == d && !w.lone.began {
		return // see heedLone
	}
	if d.began != 0 && since(d.began) >= w.proven {
		w.lease.past.clear(d)
	}
	w.acquit(d)
}

// forgo gives up a checked-out job that has not started. mu is held.
func (w *Worker) forgo(d *Delivery) {
	d.state.Phase = block.PhaseEnded
	w.disregard(d)
	w.acquit(d)
}

// drop forgets a block that no longer belongs to this worker. mu is held.
func (w *Worker) drop(b *tenure, cause error) {
	if b.Gone {
		return
	}
	b.Gone = true
	delete(b.q.blocks, b.divided)
	w.forsake(b)
	for j := range b.Unstarted() { // checked out and not started: whoever finds the row begins it
		if j.From == tableRunning {
			w.forgo(deliveryOf(j))
		}
	}
	for j := range b.AllSeen() {
		if j.From == tableRunning || j.HasEnded() {
			continue
		}
		d := deliveryOf(j)
		d.ctx.end(cause)
		if j.Phase == block.PhaseRead && j.Row == block.RowFree {
			w.acquit(d)
		}
	}
	moves := b.Moves
	b.Moves = nil
	w.undone(movesOf(moves)) // which keeps those of jobs with rows of their own
	b.Drop()
	b.q.recheck()
	w.enlistGone(b)
}

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

// A worker that ends tries for at most maxLeaving to record that, and for maxUnheard if the
// database does not answer.
const (
	maxLeaving = 30 * time.Second
	maxUnheard = 5 * time.Second
)

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
