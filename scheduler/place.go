package scheduler

import (
	"errors"
	"time"

	"github.com/dbcron/dbcron/internal/guardian"
)

// A daemon has MaxRuns places, and each run needs one while it is executed. Functions that end
// at once use a place many times while one claim is committed. So a daemon claims ahead: as many
// of a lane's runs as its free places are expected to execute within [turnover], judged by how
// long the functions of the lane have taken. Commands, and functions that take longer, are
// claimed for free places only.
//
// The judgement may be wrong: a function that has always taken 10 µs may wait for a server now.
// A run that has waited for a place for [patience] is handed back, so that another daemon can
// have it, and the lane is taken for a slow one.
const (
	turnover = 20 * time.Millisecond
	patience = time.Second

	aheadLimit = 10 * batch // runs that a daemon has, executed or not, while it claims ahead
)

// errNoPlace is why a run was handed back that this daemon had claimed ahead.
var errNoPlace = errors.New("no place was free in this daemon")

// enter takes in a run that was claimed here, and leave takes it out when it is recorded.
func (s *Scheduler) enter(e *execution) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running[e.id] = e
	if e.ahead = s.state(e.what.lane()).quick(); e.ahead {
		s.ahead++
	}
}

func (s *Scheduler) leave(e *execution) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.running, e.id)
	if e.ahead {
		s.ahead--
	}
}

// takePlace waits for a place. It returns an error if none becomes free in time, or if the run
// is stopped first. Who got a place must leave it.
func (s *Scheduler) takePlace(e *execution) error {
	select {
	case s.places <- struct{}{}:
		return nil
	default:
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case s.places <- struct{}{}:
		return nil
	case <-e.halted:
		return errors.New("stopped before it was begun")
	case <-timer.C:
		return errNoPlace
	}
}

func (s *Scheduler) leavePlace() { <-s.places }

// executeInPlace executes a run when there is a place for it.
func (s *Scheduler) executeInPlace(e *execution) guardian.Result {
	lane := e.what.lane()
	if err := s.takePlace(e); err != nil {
		s.noteTook(lane, turnover)
		return guardian.Result{Cause: guardian.NotStarted, ExitCode: -1, Err: err}
	}
	defer s.leavePlace()
	r := s.execute(e)
	if e.what.Kind == "func" {
		s.noteTook(lane, r.Took)
	}
	return r
}

// noteTook takes in how long a function of a lane took. A longer time counts at once, shorter
// ones little by little.
func (s *Scheduler) noteTook(lane string, took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := s.state(lane)
	state.took = max(took, 1, state.took-(state.took-took)/8)
}

// quick reports whether a lane's runs may be claimed ahead. The caller holds s.mu.
func (l *laneState) quick() bool { return l.took > 0 && l.took < turnover } // commands have no time

// room is how many runs of a lane this daemon may claim now, beside the claims that are under way.
func (s *Scheduler) room(lane string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.roomIn(lane)
}

// roomIn is room for callers that hold s.mu.
func (s *Scheduler) roomIn(lane string) int {
	free := s.freePlaces()
	if state := s.state(lane); state.quick() {
		turns := int(min(turnover/state.took, aheadLimit))
		return min(free*turns, max(aheadLimit, s.opt.MaxRuns)-s.ahead) - s.reserved
	}
	return min(free, s.opt.MaxRuns-(len(s.running)-s.ahead)) - s.reserved
}

// freePlaces is how many more runs could be executed at this moment.
func (s *Scheduler) freePlaces() int { return cap(s.places) - len(s.places) }

// reserve returns how much of a lane to claim at once: not all that there is room for, so that what
// comes due at the same moment is spread over the daemons. It counts as taken until unreserve. Runs
// that enqueue a job take no room.
func (s *Scheduler) reserve(lane string) int {
	if ofJobs(lane) {
		return batch
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	room := s.roomIn(lane)
	limit := min(batch, max(room/4, min(room, 8)))
	s.reserved += max(0, limit)
	return limit
}

// unreserve gives back what reserve has reserved, when the runs that were claimed are there.
func (s *Scheduler) unreserve(lane string, limit int) {
	if ofJobs(lane) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reserved -= limit
}
