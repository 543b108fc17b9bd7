package scheduler

import (
	"context"
	"errors"
	"sync"
)

// Many schedules may be due at the same moment. Claims one after the other would let the server wait
// while the daemon decides, and the daemon while the server writes. So a claim that has locked as many
// schedules as it may begins the next claim beside it, which skips what is locked.
const (
	claimsAtOnce = 2  // of one lane
	claimsInStep = 10 // then it is other lanes' turn
)

// A herd is what is due in a lane, while this daemon claims it.
type herd struct {
	s            *Scheduler
	ctx, working context.Context
	lane         string
	atOnce       int

	group sync.WaitGroup
	mu    sync.Mutex
	now   int  // claims that are under way
	left  int  // claims that may still begin
	more  bool // another claim should begin when one of these ends
	done  int
	errs  []error
}

// claimHerd claims what is due in a lane until a claim finds less than it may take, or until other
// lanes must have their turn. It returns the number of schedules handled.
func (s *Scheduler) claimHerd(ctx, working context.Context, lane string) (done int, err error) {
	if !ofJobs(lane) { // which may wait for a queue's locks
		s.finisher.hold()
		defer s.finisher.release()
	}
	h := &herd{s: s, ctx: ctx, working: working, lane: lane, atOnce: s.claimsAtOnce(lane), left: claimsInStep}
	h.mu.Lock()
	h.begin()
	h.mu.Unlock()
	h.group.Wait()
	return h.done, errors.Join(h.errs...)
}

// claimsAtOnce is how many claims of a lane may be under way. Claims of jobs wait for the queues'
// locks, which the same daemon would hold.
func (s *Scheduler) claimsAtOnce(lane string) int {
	limit := s.db.MaxConns()
	if ofJobs(lane) || s.db.Dialect.SkipLocked == "" || limit > 0 && limit < 5 {
		return 1
	}
	return claimsAtOnce
}

// begin begins a claim, if there is room for more runs. The caller holds h.mu.
func (h *herd) begin() {
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

func (h *herd) claim(limit int) {
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

// filled is called when a claim has locked as many schedules as it may take, so that there may be
// more.
func (h *herd) filled() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.now < h.atOnce {
		h.begin()
		return
	}
	h.more = true
}
