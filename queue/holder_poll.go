package queue

import (
	"context"
	"time"

	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/trouble"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// Polling for new jobs that no bell may have announced. One statement looks into many blocks,
// of all queues that are due and of all workers of a client. A queue is polled often after
// something was found in it, and then at growing intervals. Their limit depends on whether
// bells announce new jobs, and on how many blocks the worker has.

const (
	// lookCost limits the growth of the intervals for each block that a worker has, and
	// lookCostHeard where bells announce new jobs: so polling costs at most a fraction of a
	// processor, however many blocks there are.
	lookCost      = 125 * time.Microsecond
	lookCostHeard = 1500 * time.Microsecond

	// seldomLook is the longest interval between two looks into a block.
	seldomLook = 30 * time.Second

	// doubtsBells is how long a worker with a doorbell polls often after it has found an
	// unannounced job: programs that enqueue jobs need not ring.
	doubtsBells = 5 * time.Minute
)

// poll looks for new jobs until ctx ends.
func (h *holder) poll(ctx context.Context) {
	trouble := trouble.New(h.log, "looking for jobs")
	var waits waitingMark
	for {
		select {
		case <-ctx.Done():
			return
		case <-called(h, waits.as != ""):
			select { // the jobs it announces will have begun by then
			case <-ctx.Done():
				return
			case <-time.After(leastLook):
			}
		case <-time.After(inStep(h.nextLook())):
		}
		err := h.c.clock.sync(ctx, &h.db.Session, instant.Now())
		found := 0
		if err == nil {
			found, err = h.lookForNew(ctx, waits.as != "")
		}
		if err == nil {
			was := waits.as
			if _, err = waits.tend(ctx, h, found > 0); waits.as != was {
				h.lookSoon() // and now: to find jobs that were not announced before the mark was set
			}
		}
		trouble.Note(err)
	}
}

// called returns the channel that signals a notification while the worker waits.
func called(h *holder, waits bool) <-chan struct{} {
	if !waits {
		return nil
	}
	return h.called
}

// nextLook returns how long to wait before the next poll.
func (h *holder) nextLook() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	at := instant.Now()
	next := at.Add(seldomLook)
	for _, q := range h.queues {
		next = min(next, q.look)
	}
	return max(next.Sub(at), time.Millisecond)
}

// lookSoon makes all queues be polled at once, and then at growing intervals again.
func (h *holder) lookSoon() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, q := range h.queues {
		q.look, q.lookWait = 0, 0
	}
}

// pace returns how long to wait before the next poll of a queue, given the last wait. waits
// reports whether producers notify this worker, which has so many blocks. mu is held.
func (h *holder) pace(q *workQueue, blocks int, waits bool) time.Duration {
	least, most := q.set.PollMin, q.set.PollMax
	n := time.Duration(blocks)
	if q.stirs == 0 {
		most = max(most, n*lookCost)
	}
	switch {
	case h.hearing() && waits && h.bell == nil:
		least, most = max(least, leastLook), max(most, waitingLook, n*lookCostHeard)
	case h.bell != nil && h.hearing() && (h.unrung == 0 || since(h.unrung) > doubtsBells):
		most = max(most, waitingLook, n*lookCostHeard/3)
	case h.hearing():
		least, most = max(least, leastLook), max(most, leastLook)
	}
	if most = min(most, max(seldomLook, q.set.PollMax)); q.lookWait == 0 {
		return least
	}
	return min(most, max(least, q.lookWait*3/2))
}

// lookForNew rouses the blocks of due queues that have jobs above their cursors. It returns
// their number.
func (h *holder) lookForNew(ctx context.Context, waits bool) (found int, err error) {
	var rows []lookRow
	var back []*tenure
	h.mu.Lock()
	at, blocks := instant.Now(), 0
	now := h.now(at)
	for _, q := range h.queues {
		blocks += len(q.blocks)
	}
	byID := map[store.BlockID]*tenure{}
	for _, q := range h.queues {
		if at < q.look || len(rows) >= maxLooked {
			continue
		}
		q.lookWait = h.pace(q, blocks, waits)
		q.look = at.Add(q.lookWait)
		for _, b := range q.blocks {
			if b.Reads.Dirty || b.Serving || b.Leaving || !q.set.Active() {
				continue
			}
			row := lookRow{b.at(), b.Reads.Cursor()}
			if from, due := b.Reads.LookFrom(at, h.terms.Whole, now.Ago()); due && b.still() { // it finds late commits, if there are any
				row.after = from
				back = append(back, b)
			}
			rows, byID[row.at] = append(rows, row), b
		}
	}
	h.mu.Unlock()
	if len(rows) == 0 {
		return 0, nil
	}
	there, err := h.c.commons.looks.get(ctx, rows...)
	if err != nil {
		return 0, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for id, b := range byID {
		if !there[id] || b.Gone {
			continue
		}
		found++
		if b.q.lookWait = 0; !b.Reads.Dirty && !b.Serving {
			h.unrung = at
		}
		b.q.look = at
		h.rouse(b)
	}
	took := since(at)
	for _, b := range back {
		if !there[b.at()] && !b.Gone && b.still() {
			b.FoundEmpty(now, h.terms.Whole, took, instant.Now())
		}
	}
	return found, nil
}
