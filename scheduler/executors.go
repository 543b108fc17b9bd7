package scheduler

import (
	"errors"
	"time"

	"github.com/dbcron/dbcron/internal/guardian"
)

// A daemon executes up to MaxRuns runs at a time. Functions that end at once free their
// executor many times while one claim is committed. So a daemon claims ahead: as many of a
// lane's runs as its free executors are expected to finish within [turnover], judged by how
// long the lane's functions have taken. Commands, and functions that take longer, are claimed
// for free executors only.
//
// The estimate may be wrong: a function that has always taken 10 µs may now wait for a server.
// A run that has waited for an executor for [patience] is handed back, so that another daemon
// can take it, and the lane then counts as slow.
const (
	turnover = 20 * time.Millisecond
	patience = time.Second

	aheadLimit = 10 * claimBatch // maximum number of runs, executed or not, of a daemon that claims ahead
)

// errNoExecutor is the reason for handing back a run that was claimed ahead.
var errNoExecutor = errors.New("no executor was free in this daemon")

// enter adds a run that was claimed here; leave removes it when its outcome is recorded.
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

// acquireExecutor waits for an executor. It returns an error if none becomes free in time, or if the
// run is stopped first. A caller that got one must release it.
func (s *Scheduler) acquireExecutor(e *execution) error {
	select {
	case s.executors <- struct{}{}:
		return nil
	default:
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case s.executors <- struct{}{}:
		return nil
	case <-e.halted:
		return errStoppedBefore
	case <-timer.C:
		return errNoExecutor
	}
}

func (s *Scheduler) leavePlace() { <-s.executors }

// executeWhenFree executes a run as soon as an executor is free.
func (s *Scheduler) executeWhenFree(e *execution) guardian.Result {
	lane := e.what.lane()
	if err := s.acquireExecutor(e); err != nil {
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

// noteTook updates the expected duration of a lane's functions. A longer duration counts at
// once, shorter ones gradually.
func (s *Scheduler) noteTook(lane string, took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := s.state(lane)
	state.took = max(took, 1, state.took-(state.took-took)/8)
}

// quick reports whether a lane's runs may be claimed ahead. The caller holds s.mu.
func (l *laneState) quick() bool { return l.took > 0 && l.took < turnover } // zero: commands have no estimate

// room returns how many runs of a lane this daemon may claim now, in addition to the claims
// under way.
func (s *Scheduler) room(lane string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.roomIn(lane)
}

// roomIn is room for callers that hold s.mu.
func (s *Scheduler) roomIn(lane string) int {
	free := s.freeExecutors()
	if state := s.state(lane); state.quick() {
		rounds := int(min(turnover/state.took, aheadLimit))
		return min(free*rounds, max(aheadLimit, s.opt.MaxRuns)-s.ahead) - s.reserved
	}
	return min(free, s.opt.MaxRuns-(len(s.running)-s.ahead)) - s.reserved
}

// freeExecutors returns how many more runs could be executed right now.
func (s *Scheduler) freeExecutors() int { return cap(s.executors) - len(s.executors) }

// reserve returns how many runs of a lane to claim at once: less than there is room for, so
// that runs due at the same moment spread over the daemons. They count as taken until
// unreserve. Runs that enqueue a job take no room.
func (s *Scheduler) reserve(lane string) int {
	if ofJobs(lane) {
		return batch
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	room := s.roomIn(lane)
	limit := min(claimBatch, max(room/4, min(room, 8)))
	s.reserved += max(0, limit)
	return limit
}

// unreserve returns what reserve has reserved, once the claimed runs have been added.
func (s *Scheduler) unreserve(lane string, limit int) {
	if ofJobs(lane) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reserved -= limit
}
