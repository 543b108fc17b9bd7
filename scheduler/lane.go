package scheduler

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/trouble"
)

// lanes lists what this daemon may run: for each tag its commands, jobs and functions, as far as
// Options.Kinds allows.
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

// resting reports whether a lane is being worked on, and otherwise how long it still rests.
func (s *Scheduler) resting(lane string) (busy bool, rest time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := s.state(lane)
	if state.until == 0 {
		return state.busy, 0
	}
	return state.busy, max(0, state.until.Sub(instant.Now()))
}

// fared records how work in a lane went, and returns how long the lane rests. Other lanes go on.
func (s *Scheduler) fared(lane string, err error) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := s.state(lane)
	rest := state.trouble.Wait(err, 0)
	state.failing, state.until = err != nil, 0
	if rest > 0 {
		state.until = instant.Now().Add(rest)
	}
	return rest
}

// clearErrors forgets a lane's errors when nothing is due in it.
func (s *Scheduler) clearErrors(lane string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state(lane).failing = false
}

// stepApart runs stepIn in the background for a lane of jobs: enqueueing may wait for locks on
// queues. It takes none of the daemon's MaxRuns.
func (s *Scheduler) stepApart(ctx, working context.Context, l lookout) {
	s.mu.Lock()
	s.state(l.lane).busy = true
	s.mu.Unlock()
	s.apart.Go(func() {
		_, rest := s.stepIn(ctx, working, l)
		s.mu.Lock()
		state := s.state(l.lane)
		state.busy = false
		if rest == soon {
			state.until = instant.Now().Add(rest)
		}
		s.mu.Unlock()
		s.wake()
	})
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
