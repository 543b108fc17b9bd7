package scheduler

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/trouble"
)

// lanes lists what this daemon may run: under each tag the commands, the jobs, and
// its functions, as far as its kinds allow.
func (s *Scheduler) lanes() []string {
	var lanes []string
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, tag := range s.opt.Tags {
		for _, kind := range s.opt.Kinds {
			switch kind {
			case Commands:
				lanes = append(lanes, (&Schedule{Tag: tag}).lane())
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

// A laneState is how a lane fares in this daemon.
type laneState struct {
	trouble *trouble.Trouble
	failing bool
	busy    bool            // it is being worked on, apart from the others
	until   instant.Instant // it rests until then
}

// state returns a lane's state. The caller holds s.mu.
func (s *Scheduler) state(lane string) *laneState {
	state := s.states[lane]
	if state == nil {
		state = &laneState{trouble: trouble.New(s.opt.Logger.With("lane", lane), "claiming what is due")}
		s.states[lane] = state
	}
	return state
}

// resting tells whether a lane is being worked on, or else how long it rests yet.
func (s *Scheduler) resting(lane string) (busy bool, rest time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := s.state(lane)
	if state.until == 0 {
		return state.busy, 0
	}
	return state.busy, max(0, state.until.Sub(instant.Now()))
}

// fared notes how work in a lane went, and returns how long the lane rests then. Others go
// on meanwhile.
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

// settle notes that nothing is due in a lane: what failed there is no more to be done.
func (s *Scheduler) settle(lane string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state(lane).failing = false
}

// stepApart is stepIn in the background, for a lane of jobs: to enqueue, it may have to wait
// for locks that others hold on their queues. It takes no place of what is executed.
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

// idle tells whether nothing runs, is being enqueued, or is to be tried again.
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
