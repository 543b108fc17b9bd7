package scheduler

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/trouble"
)

// lanes lists what this daemon may run: for each tag its commands, jobs and functions, as far as
// Options.Kinds allows.
//
// A lane is a stored column that the database computes, and the first column of the indexes of what is due.
// So a daemon reads no row that it must leave to others, as it would with a filter in the claim, and a tag
// that a person changes in SQL cannot be forgotten. An idle daemon costs three index probes for each lane.
func (s *Scheduler) lanes() []string {
	var lanes []string
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, tag := range s.opt.Tags {
		for _, kind := range s.opt.Kinds {
			switch kind {
			case Commands:
				lanes = append(lanes, (&Schedule{Tag: tag}).lane())
				if s.boots { // without them this lane is empty
					lanes = append(lanes, bootLane(tag, s.opt.BootID))
				}
			case Jobs:
				lanes = append(lanes, (&Schedule{Tag: tag, Kind: "job"}).lane())
			case Functions:
				for name := range s.handlers {
					lanes = append(lanes, (&Schedule{Tag: tag, Kind: "func", Command: name}).lane())
				}
			}
		}
	}
	slices.Sort(lanes)
	return slices.Compact(lanes) // a kind or a tag may be listed twice
}

// lane computes the column of that name as the table does.
func (s *Schedule) lane() string {
	switch s.Kind {
	case "func":
		return s.Tag + " func " + s.Command
	case "job":
		return s.Tag + " job"
	}
	return s.Tag
}

// ofJobs reports whether the schedules of a lane enqueue jobs. Those take none of the daemon's
// MaxRuns.
func ofJobs(lane string) bool {
	_, rest, _ := strings.Cut(lane, " ") // a tag contains no blank
	return rest == "job"
}

// A laneState is the state of a lane in this daemon.
type laneState struct {
	trouble *trouble.Trouble
	failing bool
	busy    bool            // it is being worked on in the background
	until   instant.Instant // it rests until then after an error
	took    time.Duration   // typical duration of its functions: see executors.go
}

// state returns a lane's state. The caller holds s.mu.
func (s *Scheduler) state(lane string) *laneState {
	state := s.states[lane]
	if state == nil {
		state = &laneState{trouble: trouble.New(s.opt.Logger.With("lane", lane), "claiming due work")}
		s.states[lane] = state
	}
	return state
}

// enterLane says whether to begin what is due in a lane, and marks the lane as busy until leaveLane is called. Otherwise it
// returns after how long to look again.
func (s *Scheduler) enterLane(l laneProbe) (begin bool, wait time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := s.state(l.lane)
	if state.busy { // who works on it wakes the daemon when he is done
		return false, s.opt.Poll
	}
	if state.until != 0 {
		if rest := state.until.Sub(instant.Now()); rest > 0 {
			return false, rest
		}
	}
	if !l.isDue() {
		state.failing = false
		return false, l.left(s.opt.Poll)
	}
	state.busy = true
	return true, 0
}

// leaveLane records how work in a lane went, and returns how long the lane rests. Other lanes go on. A lane in which
// nothing could be done rests shortly: another daemon has the rows, or their locks are about to be released.
func (s *Scheduler) leaveLane(lane string, done int, err error, stopped bool) (rest time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := s.state(lane)
	state.busy = false
	if stopped { // the error, if any, is that of the stop
		return s.opt.Poll
	}
	rest = state.trouble.Wait(err, 0)
	state.failing, state.until = err != nil, 0
	apart := ofJobs(lane)
	if err == nil && done == 0 && (apart || s.roomIn(lane) > 0) {
		rest = soon
	}
	if err != nil || apart && rest > 0 { // whoever works on a lane apart wakes the daemon
		state.until = instant.Now().Add(rest)
	}
	return cmp.Or(rest, s.opt.Poll)
}

// idle reports whether nothing runs, is being enqueued, or awaits a retry.
func (s *Scheduler) idle() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, state := range s.states {
		if state.busy || state.failing {
			return false
		}
	}
	return len(s.running) == 0
}
