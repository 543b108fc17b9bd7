package queue

import (
	"slices"
	"sync"

	"github.com/dbcron/dbcron/internal/instant"
)

// A service is the blocks that need a flusher.
type service struct {
	chores sync.Cond // wakes flushers that wait for blocks
	serve  []*tenure
	needs  bool // the last one was chosen because it was neediest
}

// rouse marks a block that may have new jobs. mu is held.
func (h *holder) rouse(b *tenure) {
	if b == nil {
		return
	}
	b.Reads.Rouse()
	h.enlist(b)
}

// enlist queues a block for a flusher, if there is something to do. mu is held.
func (h *holder) enlist(b *tenure) {
	if !b.stirred {
		h.stir(b)
	}
	if b.Serving || b.queued { // as for most jobs that end: asking for the time costs more
		return
	}
	at := instant.Now()
	if b.failures > 0 && at < b.retryAt || !b.wants(at) {
		return
	}
	b.queued = true
	h.serve = append(h.serve, b)
	h.chores.Signal()
}

// neediest removes and returns the block that a flusher serves next: alternately the first one,
// and the one with the fewest jobs left among those that have more to read, since the others will
// wait for it. mu is held.
func (h *holder) neediest() *tenure {
	at := 0
	if h.needs = !h.needs; h.needs {
		least := max(h.opt.Batch, h.reads.size) / 2
		for i, b := range h.serve {
			if b.Reads.Full && b.Count < least && b.readable() {
				at, least = i, b.Count
			}
		}
	}
	b := h.serve[at]
	if at == 0 {
		h.serve = h.serve[1:]
	} else {
		h.serve = slices.Delete(h.serve, at, at+1)
	}
	return b
}
