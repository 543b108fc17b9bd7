package scheduler

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/pace"
	"github.com/dbcron/dbcron/internal/trouble"
)

// poll claims and starts what is due, until ctx ends.
func (s *Scheduler) poll(ctx, working context.Context) {
	trouble := trouble.New(s.opt.Logger, "polling for due work")
	for ctx.Err() == nil {
		wait, err := s.step(ctx, working)
		if ctx.Err() != nil {
			return
		}
		s.rest(ctx, trouble.Wait(err, wait))
	}
}

// pollOnce is poll until nothing is due and nothing runs.
func (s *Scheduler) pollOnce(ctx, working context.Context) {
	trouble := trouble.New(s.opt.Logger, "polling for due work")
	for ctx.Err() == nil {
		idle := s.idle() // read before the step: a run that ends during it may have started another
		wait, err := s.step(ctx, working)
		if err == nil && wait > soon && idle && s.idle() {
			trouble.Wait(s.purgeAll(ctx, outdated, nil), 0) // there may be no daemon that purges
			return
		}
		s.rest(ctx, trouble.Wait(err, wait))
	}
}

// rest waits for a while, or until there may be something to do.
func (s *Scheduler) rest(ctx context.Context, wait time.Duration) {
	if wait <= 0 {
		return
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-s.bell:
	case <-timer.C:
	}
}

// wake makes the daemon check for due work.
func (s *Scheduler) wake() {
	select {
	case s.bell <- struct{}{}:
	default:
	}
}

// listen wakes the daemon when somebody announces a change, on engines with notifications, until
// ctx ends. Polling finds the change too, but later.
func (s *Scheduler) listen(ctx context.Context) {
	// A worker on the same pool uses up to half of it and may listen, too. pgxpool has four
	// connections by default: leave one to claim with.
	limit := s.db.MaxConns()
	if s.db.Dialect.Listen == nil || limit > 0 && limit < 5 {
		return
	}
	for ctx.Err() == nil {
		_ = s.db.Listen(ctx, channel(s.db), s.wakeAll, func(string) { s.wakeAll() })
		pace.Sleep(ctx, s.opt.Poll)
	}
}

// wakeAll makes the daemon search everything, from the beginning of the indexes.
func (s *Scheduler) wakeAll() {
	s.mu.Lock()
	s.sinceAt = time.Time{}
	s.mu.Unlock()
	s.wake()
}

// soon is the delay before work that another daemon has locked is checked again.
const soon = 20 * time.Millisecond

// step does what there is to do now, and returns how long to wait before the next step. Lanes are
// independent: one that fails or waits for locks delays no other.
func (s *Scheduler) step(ctx, working context.Context) (time.Duration, error) {
	if err := s.prepare(ctx); err != nil {
		return 0, err
	}
	lanes := s.lanes()
	full := s.freeExecutors() == 0
	if full {
		lanes = slices.DeleteFunc(lanes, func(lane string) bool { return !ofJobs(lane) })
	}
	if len(lanes) == 0 {
		return s.opt.Poll, nil // or until a run ends
	}
	s.look()
	found, err := s.probe(ctx, lanes)
	if err != nil {
		return 0, err
	}
	if len(found) < len(lanes) {
		return 0, fmt.Errorf("a look at %d lanes returned %d rows: something hides rows from this session, such as a limit of rows", len(lanes), len(found))
	}
	if moved, err := s.noteClock(ctx, found[0].now); err != nil || moved {
		return 0, err
	}
	if s.noteDrained(found) {
		return s.opt.Poll, nil
	}
	slices.SortFunc(found, func(a, b laneProbe) int { return cmp.Compare(a.first(), b.first()) }) // so that no lane starves
	done, wait := 0, s.opt.Poll
	for _, l := range found {
		n, rest := s.visit(ctx, working, l)
		done += n
		wait = min(wait, rest)
	}
	if !full { // otherwise the first due time is not known
		s.seen(found[0].now, found[0].first())
	}
	if done > 0 && s.freeExecutors() > 0 {
		return 0, nil
	}
	return wait, nil
}

// prepare does what precedes the probe of the lanes.
func (s *Scheduler) prepare(ctx context.Context) error {
	if s.asks() {
		s.asking.Note(s.cancelRequests(ctx))
		if err := s.unplanChanged(ctx); err != nil {
			return err
		}
	}
	if s.booted {
		return nil
	}
	err := s.lookAtBoot(ctx, true)
	s.booted = err == nil
	if errors.Is(err, errHeld) { // the others go on
		s.noteBootHeld(err)
		return nil
	}
	if s.booted {
		s.booting.Note(nil)
	}
	return err
}

// bootPatience is how long a schedule with @reboot may be locked by others until that is logged. The daemons of a host that
// start together lock it one after the other, for milliseconds, and all but the first find that it has been begun.
const bootPatience = 5 * time.Second

func (s *Scheduler) noteBootHeld(err error) {
	at := instant.Now()
	if s.bootHeld == 0 {
		s.bootHeld = at
	}
	if at.Sub(s.bootHeld) >= bootPatience {
		s.booting.Note(err)
	}
}

// visit does what there is to do in one lane now. It returns the number of rows handled, and the time until there may
// be something to do. Lanes of jobs are worked on apart: enqueueing may wait for locks on queues.
func (s *Scheduler) visit(ctx, working context.Context, l laneProbe) (done int, wait time.Duration) {
	begin, wait := s.enterLane(l)
	if !begin {
		return 0, wait
	}
	serve := func() (int, time.Duration) {
		done, err := s.serve(ctx, working, l)
		return done, s.leaveLane(l.lane, done, err, ctx.Err() != nil)
	}
	if !ofJobs(l.lane) {
		return serve()
	}
	s.apart.Go(func() {
		serve()
		s.wake()
	})
	return 0, s.opt.Poll
}

// serve plans new rows of a lane and takes those that are due. It tries each part even if another one fails. It returns
// the number of rows handled.
func (s *Scheduler) serve(ctx, working context.Context, l laneProbe) (done int, err error) {
	var errs []error
	note := func(n int, err error) { done, errs = done+n, append(errs, err) }
	if l.unplanned > 0 {
		note(s.planNew(ctx, l.lane))
	}
	if l.hasCome(l.runs) {
		note(s.take(ctx, working, l.lane, s.takeOver))
	}
	if l.hasCome(l.schedules) {
		note(s.claimLane(ctx, working, l.lane))
	}
	return done, errors.Join(errs...)
}

// take takes what is due in a lane, once, and starts it.
func (s *Scheduler) take(ctx, working context.Context, lane string, take takeFunc) (done int, err error) {
	limit := s.reserve(lane)
	if limit <= 0 {
		return 0, nil
	}
	claimed, done, err := take(ctx, lane, min(limit, batch))
	s.start(working, claimed)
	s.unreserve(lane, limit)
	if s.separable(ctx, err) {
		return s.takeEach(ctx, working, lane, limit, take)
	}
	return done, err
}
