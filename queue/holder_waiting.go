package queue

import (
	"context"
	"time"

	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// Where the database notifies, a caller's transaction that enqueues jobs notifies the workers
// itself, so nobody has to after its commit. PostgreSQL commits transactions with notifications
// one at a time, which halves the throughput of concurrent inserts. So the transaction notifies
// only if the worker with the job's block is waiting: if it has set a mark in its row of node,
// because no job has come for a while. A worker without the mark polls often instead.
//
// The inserting statement reads the mark, unless the client has checked a moment ago whether any
// worker waits, and none did: so a busy client pays nothing for it. After setting its mark a
// worker polls once more, and then at growing intervals. A job is missed by the notification only
// if its statement was sent before the mark was set, or within that moment, and its commit came
// after the poll: the next poll finds it.

const (
	// waitsAfter is how long a worker gets no job before it marks itself as waiting.
	waitsAfter = 100 * time.Millisecond

	// leastLook is the shortest poll interval of a worker that hears notifications and does not
	// wait; waitingLook is that of a waiting one, if it has few blocks.
	leastLook   = 20 * time.Millisecond
	waitingLook = time.Second
)

// A waitingMark is the state of waiting of a worker that hears notifications. It belongs to the
// polling goroutine.
type waitingMark struct {
	as    string          // the node under which it has set its mark; empty: it has not
	begun int             // number of jobs begun at the last change
	since instant.Instant // when that was
}

// tend sets the worker's mark when no job has come for a while, and removes it when one has.
// found is whether the last poll found jobs. It reports whether the worker should poll again at
// once.
func (p *waitingMark) tend(ctx context.Context, h *holder, found bool) (again bool, err error) {
	h.mu.Lock()
	name, hears, many := h.lease.node, h.hearing(), h.manyBlocks()
	begun, ready := h.occupants.begunAndReady()
	found = found || ready // and has no slot yet
	h.mu.Unlock()
	if h.db.Dialect.Listen == nil || !hears || name == "" {
		return false, nil
	}
	if found || begun != p.begun || p.since == 0 {
		p.begun, p.since = begun, instant.Now()
	}
	waits := many || since(p.since) >= waitsAfter
	if waits == (p.as == name) {
		return false, nil
	}
	at := map[bool]string{true: store.WaitsAt}[waits]
	n, err := h.db.Exec(ctx, store.PutBell, sqlrun.Args{"node": name, "at": at, "key": ""})
	if err != nil || n == 0 { // another transaction holds the row, or the lease was lost
		return false, err
	}
	if p.as = ""; waits {
		p.as = name
	}
	return waits, nil
}

// manyBlocks reports whether a worker has too many blocks to poll them as often as is necessary
// without notifications: such a worker is always marked as waiting. mu is held.
func (h *holder) manyBlocks() bool {
	n := 0
	for _, q := range h.queues {
		n += len(q.blocks)
	}
	return n >= maxLooked
}
