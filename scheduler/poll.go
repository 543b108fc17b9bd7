package scheduler

import (
	"cmp"
	"context"
	"database/sql"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/internal/trouble"
)

// poll claims and starts what is due until ctx ends.
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
		idle := s.busy() == 0 // what ends during the look may have started something
		wait, err := s.step(ctx, working)
		if err == nil && wait > soon && idle && s.busy() == 0 {
			trouble.Wait(s.purgeAll(ctx, outdated, nil), 0) // there may be no daemon that does
			return
		}
		s.rest(ctx, trouble.Wait(err, wait))
	}
}

// rest waits, or until there may be something to do.
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

// wake lets the daemon look for what is due.
func (s *Scheduler) wake() {
	select {
	case s.bell <- struct{}{}:
	default:
	}
}

// listen wakes the daemon when somebody has changed something, where there are
// notifications, until ctx ends. Polling finds it as well, later.
func (s *Scheduler) listen(ctx context.Context) {
	limit := s.db.Pool().Stats().MaxOpenConnections
	if s.db.Dialect.Notify == nil || limit > 0 && limit < 4 {
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

// wakeAll lets the daemon look through everything.
func (s *Scheduler) wakeAll() {
	s.mu.Lock()
	s.sinceAt = time.Time{}
	s.mu.Unlock()
	s.wake()
}

// lanes lists what this daemon may run: its tags, and its functions under each
// tag.
func (s *Scheduler) lanes() []string {
	var lanes []string
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, tag := range s.opt.Tags {
		if !s.opt.FunctionsOnly {
			lanes = append(lanes, tag, (&Schedule{Tag: tag, Kind: "job"}).lane())
		}
		for name := range s.handlers {
			lanes = append(lanes, (&Schedule{Tag: tag, Kind: "func", Command: name}).lane())
		}
	}
	slices.Sort(lanes)
	return lanes
}

// lane is the column of that name, as the table computes it.
func (s *Schedule) lane() string {
	switch s.Kind {
	case "func":
		return s.Tag + " func " + s.Command
	case "job":
		return s.Tag + " job"
	}
	return s.Tag
}

// ofJobs tells whether the schedules of a lane enqueue jobs, which takes no place of
// those that a daemon has for what it executes.
func ofJobs(lane string) bool {
	_, rest, _ := strings.Cut(lane, " ") // a tag has no blank
	return rest == "job"
}

// soon is when to look again for what somebody else holds locked.
const soon = 20 * time.Millisecond

// Looks through an index begin at a floor: entries that lie before it belong to
// rows that have moved on, and engines that have not cleaned up would have to
// walk over all of them, each time. Rows are written with times from now on, so
// that a row may appear before what was found to be the first, but not before
// now less what a transaction takes. What a person writes into the past is found
// once a minute, when all is looked through.
const (
	floorSlack = time.Minute
	floorAge   = time.Minute
)

func (s *Scheduler) floor() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.since
}

// look decides whether to look through everything.
func (s *Scheduler) look() {
	now := time.Now() //nolint:forbidigo // how long ago the last such look was
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sinceAt.IsZero() || now.Sub(s.sinceAt) > floorAge {
		s.since, s.sinceAt = 0, now
	}
}

// asks tells whether it is time to ask which runs somebody wants to end: once
// per poll, or when somebody has told of a change.
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

// seen raises the floor: there is nothing before these times.
func (s *Scheduler) seen(now, first int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.since = max(s.since, min(now-floorSlack.Microseconds(), first))
}

// A lookout is what a probe found in a lane.
type lookout struct {
	lane            string
	now             int64
	schedules, runs sql.NullInt64 // when the first may be claimed
	unplanned       int64
}

// first is when there is something to do in the lane.
func (l *lookout) first() int64 {
	first := int64(math.MaxInt64)
	for _, at := range []sql.NullInt64{l.schedules, l.runs} {
		if at.Valid {
			first = min(first, at.Int64)
		}
	}
	return first
}

// probe looks into all lanes.
func (s *Scheduler) probe(ctx context.Context, lanes []string) ([]lookout, error) {
	rows := make([]dialect.Args, len(lanes))
	for i, lane := range lanes {
		rows[i] = dialect.Args{"lane": lane}
	}
	return dialect.Select(ctx, &s.db.Session, probe, dialect.Args{"rows": rows, "since": s.floor()}, func(rows *sql.Rows) (l lookout, err error) {
		return l, rows.Scan(&l.lane, &l.now, &l.schedules, &l.runs, &l.unplanned)
	})
}

// step does what there is to do now, and tells how long there is nothing to do.
func (s *Scheduler) step(ctx, working context.Context) (time.Duration, error) {
	if s.asks() {
		if err := s.cancelRequests(ctx); err != nil {
			return 0, err
		}
	}
	lanes := s.lanes()
	full := s.room() <= 0
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
	done, jobs, held, next := 0, 0, false, int64(math.MaxInt64)
	var now int64
	var failed error
	slices.SortFunc(found, func(a, b lookout) int { return cmp.Compare(a.first(), b.first()) }) // no lane starves
	for _, l := range found {
		now = l.now
		n, err := s.stepIn(ctx, working, l)
		switch {
		case err != nil && !ofJobs(l.lane):
			return 0, err
		case err != nil:
			failed = err // which may be of the queue alone: what else is due goes on
		case ofJobs(l.lane):
			jobs += n
		}
		done += n
		held = held || l.unplanned > 0 && n == 0
		next = min(next, l.first())
	}
	if !full { // else what comes first was not looked for
		s.seen(now, next)
	}
	switch {
	case failed != nil:
		return 0, failed
	case jobs > 0 || done > 0 && s.room() > 0:
		return 0, nil
	case full || done > 0:
		return s.opt.Poll, nil
	case held || next <= now:
		return soon, nil // it is in the hands of another daemon, or will be free in a moment
	}
	return min(s.opt.Poll, time.Duration(min(next-now, s.opt.Poll.Microseconds())+500)*time.Microsecond), nil
}

// stepIn does what there is to do in one lane, and returns how much it was.
func (s *Scheduler) stepIn(ctx, working context.Context, l lookout) (done int, err error) {
	if l.unplanned > 0 {
		if done, err = s.planNew(ctx, l.lane); err != nil {
			return done, err
		}
	}
	for _, due := range []struct {
		at   sql.NullInt64
		take func(context.Context, string, int) ([]run, int, error)
	}{{l.runs, s.takeOver}, {l.schedules, s.claim}} {
		limit := s.share()
		if ofJobs(l.lane) {
			limit = batch
		}
		if !due.at.Valid || due.at.Int64 > l.now || limit <= 0 {
			continue
		}
		claimed, n, err := due.take(ctx, l.lane, limit)
		s.start(working, claimed)
		done += n
		if err != nil {
			return done, err
		}
	}
	return done, nil
}

// room is how many more runs this daemon may execute.
func (s *Scheduler) room() int { return s.opt.MaxRuns - s.busy() }

// share is how much to take at once: not all that there is room for, so that
// what comes due at the same moment is spread over the daemons.
func (s *Scheduler) share() int {
	room := s.room()
	return min(batch, max(room/4, min(room, 8)))
}
