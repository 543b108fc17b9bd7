package queue

import (
	"time"

	"github.com/dbcron/dbcron/internal/instant"
)

// A runner does the jobs of the blocks that the holder has, in slots: it begins them, puts on trial what may have ended a process,
// gives slow jobs rows of their own, and takes over those of others. What has ended goes to the outbox. The mutex of core guards it.
type runner struct {
	*core
	*lifetime
	*holder
	*outbox
	handlerSlots
	trialPlaces
	kindHandlers
	starved starvation
	past    bygones

	slow       time.Duration // after this time a job is checked out
	proven     time.Duration // after this time it is trusted: see runner_suspect.go
	appeal     time.Duration // how long a job waits before it is dead for deaths: see runner_return.go
	returns    time.Duration // how long a handler may take to return: see runner_stuck.go
	starves    time.Duration // how long handlers may wait for connections: see runner_starved.go
	miscounted func(was, is int)
}

// A starvation is what a worker knows of handlers that wait for connections.
type starvation struct {
	begun, taken int             // jobs that had begun, and slots that were taken
	since        instant.Instant // when these changed, or a connection was free
	is           bool
	warned       instant.Instant
}
