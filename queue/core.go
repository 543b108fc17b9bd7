package queue

import (
	"context"
	"log/slog"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/trouble"
	"github.com/dbcron/dbcron/queue/internal/limit"
)

// A core is what all parts of a worker share.
type core struct {
	c   *Client
	opt WorkerOptions
	log *slog.Logger // may be used with and without mu: see log.go

	lines *lateHandler     // of log
	again *trouble.Repeats // logs failures

	db     *dialect.DB // the workers' own connections while it runs: see reserve
	leases *dialect.DB // likewise, for its lease
	own    *reserve    // nil: it has none

	exact bool // check for each job whether its row existed
	alone bool // it does everything itself, one thing after the other

	limits  *limit.Keeper
	unasked func() bool // reports whether nobody has asked its Receiver for jobs recently; nil: it has none

	// mu guards everything in the parts except channels, and the worker's queues and blocks.
	mu     quietMutex
	queues []*workQueue
	base   context.Context // parent of the jobs' contexts
}

// A lifetime is the worker's progress from its start to its end.
type lifetime struct {
	started  bool
	closing  bool          // nothing more is started
	stopped  bool          // handlers and flushers end
	shared   chan struct{} // closed when no more blocks are taken
	stopping chan struct{} // closed when the worker is being stopped
	joined   chan struct{} // closed when the others know of it
	ended    chan struct{} // closed when nothing more is written
	hopeless chan struct{} // closed when all slots are stuck: see runner_stuck.go
	halt     stopping
}

// A stopping is why and when jobs are handed back. mu is held for all of it.
type stopping struct {
	at       instant.Instant // when the worker was told to stop; 0: it was not
	suspects int             // the jobs that had begun soon before, and were under way when the grace was over; 0: not counted
}
