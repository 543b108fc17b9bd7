package scheduler

import (
	"context"
	"errors"
	"sync"
)

// Many schedules may be due at the same moment. With one claim after the other, the server
// would wait while the daemon decides, and the daemon while the server writes. So a claim that
// has locked as many schedules as it may starts the next claim in parallel, which skips locked
// rows.
const (
	claimsAtOnce = 2  // claims of one lane
	claimsInStep = 10 // after so many claims, other lanes have their turn
)

// A laneClaims is the claims of everything that is due in a lane.
type laneClaims struct {
	s            *Scheduler
	ctx, working context.Context
	lane         string
	atOnce       int

	group sync.WaitGroup
	mu    sync.Mutex
	now   int  // claims under way
	left  int  // claims that may still begin
	more  bool // another claim should begin when one of these ends
	done  int
	errs  []error
}

// claimLane claims what is due in a lane until a claim finds less than it may take, or until other
// lanes must have their turn. It returns the number of schedules handled.
func (s *Scheduler) claimLane(ctx, working context.Context, lane string) (done int, err error) {
	if !ofJobs(lane) { // a claim that may wait for a queue's locks
		s.finisher.hold()
		defer s.finisher.release()
	}
	h := &laneClaims{s: s, ctx: ctx, working: working, lane: lane, atOnce: s.claimsAtOnce(lane), left: claimsInStep}
	h.mu.Lock()
	h.begin()
	h.mu.Unlock()
	h.group.Wait()
	return h.done, errors.Join(h.errs...)
}

// claimsAtOnce returns how many claims of a lane may be under way. Claims that enqueue jobs
// wait for the queues' locks, which would be held by the same daemon.
func (s *Scheduler) claimsAtOnce(lane string) int {
	limit := s.db.MaxConns()
	if ofJobs(lane) || s.db.Dialect.SkipLocked == "" || limit > 0 && limit < 5 {
		return 1
	}
	return claimsAtOnce
}

// begin starts a claim, if there is room for more runs. The caller holds h.mu.
func (h *laneClaims) begin() {
	h.more = false
	if h.left == 0 || h.ctx.Err() != nil {
		return
	}
	limit := h.s.reserve(h.lane)
	if limit <= 0 {
		return
	}
	h.left--
	h.now++
	h.group.Go(func() { h.claim(limit) })
}

func (h *laneClaims) claim(limit int) {
	claimed, n, err := h.s.claimAndTell(h.ctx, h.lane, limit, sync.OnceFunc(h.filled))
	h.s.start(h.working, claimed)
	h.s.unreserve(h.lane, limit)
	if h.s.separable(h.ctx, err) {
		n, err = h.s.takeEach(h.ctx, h.working, h.lane, limit, h.s.claim)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.now--
	h.done += n
	h.errs = append(h.errs, err)
	switch {
	case err != nil:
		h.left = 0
	case h.more:
		h.begin()
	}
}

// filled is called when a claim has locked as many schedules as it may, so there may be more.
func (h *laneClaims) filled() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.now < h.atOnce {
		h.begin()
		return
	}
	h.more = true
}
