package scheduler

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/internal/trouble"
)

// poll claims and starts what is due, until ctx ends.
func (s *Scheduler) poll(ctx, working context.Context) {
	trouble := trouble.New(s.opt.Logger, "looking for what is due")
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
	trouble := trouble.New(s.opt.Logger, "looking for what is due")
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
		select {
		case <-ctx.Done():
		case <-time.After(s.opt.Poll):
		}
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

// Searches of an index begin at a floor. Entries before it belong to rows that have moved on; until
// the engine has cleaned them up, each search would walk over all of them. Rows are written with
// times from now on. So a row may appear before the first one found, but not before now minus the
// duration of a transaction. A row that a person writes into the past is found once a minute, when
// a search begins without a floor.
const (
	floorSlack = time.Minute
	floorAge   = time.Minute
)

func (s *Scheduler) floor() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.since
}

// look decides whether to search without a floor.
func (s *Scheduler) look() {
	now := time.Now() //nolint:forbidigo // how long ago the last such look was
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sinceAt.IsZero() || now.Sub(s.sinceAt) > floorAge {
		s.since, s.sinceAt = 0, now
	}
}

// asks reports whether to check for cancellation requests: once per poll, or after an announced
// change.
func (s *Scheduler) asks() bool {
	now := time.Now() //nolint:forbidigo // how long ago it was asked
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Sub(s.askedAt) < s.opt.Poll && !s.sinceAt.IsZero() {
		return false
	}
	s.askedAt = now
	return true
}

// seen raises the floor: nothing is due before these times.
func (s *Scheduler) seen(now, first int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.since = max(s.since, min(now-floorSlack.Microseconds(), first))
}

// A lookout is the result of probing a lane.
type lookout struct {
	lane            string
	now             int64
	schedules, runs sql.NullInt64 // when the first of each may be claimed
	unplanned       int64
	drained         bool // this daemon must claim nothing
}

// first returns when there is something to do in the lane.
func (l *lookout) first() int64 {
	first := int64(math.MaxInt64)
	for _, at := range []sql.NullInt64{l.schedules, l.runs} {
		if at.Valid {
			first = min(first, at.Int64)
		}
	}
	return first
}

// isDue reports whether there is something to do in the lane now.
func (l *lookout) isDue() bool { return l.unplanned > 0 || l.first() <= l.now }

// left returns the time until there is something to do, most at the longest.
func (l *lookout) left(most time.Duration) time.Duration {
	return min(most, time.Duration(min(l.first()-l.now, most.Microseconds())+500)*time.Microsecond)
}

// probe probes all lanes.
func (s *Scheduler) probe(ctx context.Context, lanes []string) ([]lookout, error) {
	rows := make([]sqlrun.Args, len(lanes))
	for i, lane := range lanes {
		rows[i] = sqlrun.Args{"lane": lane}
	}
	return sqlrun.Select(ctx, &s.db.Session, probe, sqlrun.Args{"rows": rows, "since": s.floor(), "node": s.owner},
		func(rows *sql.Rows) (l lookout, err error) {
			return l, rows.Scan(&l.lane, &l.now, &l.schedules, &l.runs, &l.unplanned, &l.drained)
		})
}

// step does what there is to do now, and returns how long to wait before the next step. Lanes are
// independent: one that fails or waits for locks delays no other.
func (s *Scheduler) step(ctx, working context.Context) (time.Duration, error) {
	if s.asks() {
		s.asking.Note(s.cancelRequests(ctx))
		if err := s.unplanChanged(ctx); err != nil {
			return 0, err
		}
	}
	if !s.booted {
		if err := s.lookAtBoot(ctx, true); err != nil {
			return 0, err
		}
		s.booted = true
	}
	lanes := s.lanes()
	full := s.freePlaces() == 0
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
	if s.noteDrained(found) {
		return s.opt.Poll, nil
	}
	done, wait := 0, s.opt.Poll
	now, next := int64(0), int64(math.MaxInt64)
	slices.SortFunc(found, func(a, b lookout) int { return cmp.Compare(a.first(), b.first()) }) // so that no lane starves
	for _, l := range found {
		now, next = l.now, min(next, l.first())
		busy, rest := s.resting(l.lane)
		switch {
		case busy: // it wakes the daemon when it is done
		case rest > 0:
			wait = min(wait, rest)
		case !l.isDue():
			s.settle(l.lane)
			wait = min(wait, l.left(s.opt.Poll))
		case ofJobs(l.lane):
			s.stepApart(ctx, working, l)
		default:
			n, rest := s.stepIn(ctx, working, l)
			done += n
			wait = min(wait, rest)
		}
	}
	if !full { // otherwise the first due time is not known
		s.seen(now, next)
	}
	if done > 0 && s.freePlaces() > 0 {
		return 0, nil
	}
	return wait, nil
}

// noteDrained reports whether this daemon is drained, and logs each change.
func (s *Scheduler) noteDrained(found []lookout) bool {
	drained := len(found) > 0 && found[0].drained
	if drained != s.drained {
		s.drained = drained
		if drained {
			s.opt.Logger.Info("drained: this daemon begins no more runs, and ends those that it has begun", "node", s.owner, "running", s.busy())
		} else {
			s.opt.Logger.Info("not drained any more: this daemon begins runs again", "node", s.owner)
		}
	}
	return drained
}

// stepIn does what there is to do in one lane. It returns the number of rows handled, and how long
// the lane rests if it cannot go on.
func (s *Scheduler) stepIn(ctx, working context.Context, l lookout) (done int, rest time.Duration) {
	done, err := s.doLane(ctx, working, l)
	if ctx.Err() != nil {
		return done, s.opt.Poll
	}
	rest = s.fared(l.lane, err)
	if err == nil && done == 0 && (ofJobs(l.lane) || s.room(l.lane) > 0) {
		rest = soon // another daemon has it, or its lock is about to be released
	}
	return done, cmp.Or(rest, s.opt.Poll)
}

// doLane plans new rows of a lane and takes those that are due. It tries each part even if another
// one fails.
func (s *Scheduler) doLane(ctx, working context.Context, l lookout) (done int, err error) {
	var errs []error
	if l.unplanned > 0 {
		n, err := s.planNew(ctx, l.lane)
		done, errs = done+n, append(errs, err)
	}
	for _, due := range []struct {
		at   sql.NullInt64
		take taking
	}{{l.runs, s.takeOver}, {l.schedules, s.claim}} {
		limit := s.share(l.lane)
		if ofJobs(l.lane) {
			limit = batch
		}
		if !due.at.Valid || due.at.Int64 > l.now || limit <= 0 {
			continue
		}
		claimed, n, err := due.take(ctx, l.lane, limit)
		s.start(working, claimed)
		if s.separable(ctx, err) {
			n, err = s.takeEach(ctx, working, l.lane, limit, due.take)
		}
		done, errs = done+n, append(errs, err)
	}
	return done, errors.Join(errs...)
}
