package queue

import (
	"context"
	"time"

	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/queue/internal/block"
	"github.com/dbcron/dbcron/queue/internal/limit"
	"github.com/dbcron/dbcron/queue/internal/share"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// A holder holds blocks: it has the worker's lease, takes its share of the blocks of its queues, gives up what is another
// worker's, and notices what there is to read in them. What is done with their jobs is its occupants' business. The mutex of core
// guards it.
type holder struct {
	*core
	life      *lifetime
	occupants occupants

	lease nodeLease
	wakeups
	rounds
	service
	choice   kindChoice
	terms    block.Terms // of its blocks
	reads    batchSize
	patience time.Duration // how long jobs wait for older ones: see holder_order.go
	steps    int           // number of steps of the database's clock that its blocks have accounted for
	rotate   time.Duration // how long it may have one block more than others
}

// An adopter takes over, at the end of a round, the checked out jobs whose workers have ended, as the round has found them.
type adopter func(ctx context.Context, shared []*workQueue, s *view, name string) error

// Occupants are the jobs of a holder's blocks, as the holder sees them. mu is held in the methods of the first group only.
type occupants interface {
	offer(b *tenure, jobs int)                 // so many more jobs of a block may begin
	isOut(id store.JobID) bool                 // a job is checked out
	queuesOut() map[*workQueue]bool            // the queues that have such jobs
	parkAtLimit(j *block.Job)                  // a job that was about to begin waits at a limit
	shed(j *block.Job)                         // a job that waits is to have no payload in memory
	checkOutAll(b *tenure, at instant.Instant) // a block is to be handed over as soon as nothing is under way in it
	suspectMore()                              // a block is not handed over after all, or was read
	moveOut(b *tenure) (unstarted []int64)     // a block is handed over, with these checked out jobs that have not begun
	drop(b *tenure, cause error)               // a block was taken away
	died()                                     // another process has died
	wake()                                     // jobs that waited for others to be read may begin
	tellClosing()                              // a block has nothing to do: the worker may be about to end
	areBusy() (long, starved bool)             // whether all slots are taken by long jobs, or wait for connections
	begunAndReady() (begun int, ready bool)    // how many jobs have begun, and whether some are ready

	meetLimits(q *workQueue, limits []store.LimitRow) // a queue has these limits
	tryAlone(ctx context.Context)                     // runs jobs alone that may have ended a process, until ctx ends
	orphansOf(due []*workQueue) adopter               // a round begins

	// forward moves delayed jobs of the worker's blocks of an old generation to where they would be enqueued now.
	forward(ctx context.Context, q *workQueue, to store.Generation, old []store.BlockRow) error
}

// A workQueue is one of a worker's queues.
type workQueue struct {
	h      *holder
	id     int // these two never change
	name   string
	set    *store.Queue
	blocks map[int]*tenure
	cadence
	busy     bool                           // as announced to the others
	surplus  bool                           // as logged: it has more workers than blocks
	convicts map[conviction]instant.Instant // since when a job that would be a dead letter waits
	orphans  map[store.JobID]bool           // orphans: running jobs in this worker's name without a Delivery
	vacant   share.Vacancies                // blocks that were free at the last check
	limits   *limit.Queue                   // its limiters
	turns    *block.Turns                   // of its tenants; nil: it is not fair

	othersKinds    *limit.Limiter   // holds jobs of kinds that only others handle; see holder_kinds.go
	unhandledKinds *limit.Limiter   // holds jobs of kinds that nobody handles
	unnamedKinds   *limit.Limiter   // holds jobs of kinds that no caller of the Receiver has named
	others         []*share.KindSet // the kinds that the other workers handle

	heap      block.Heap[*tenure] // blocks with ready jobs, the oldest first: see holder_order.go
	listed    bool                // it is in the worker's list of queues with such blocks
	joining   bool                // it does not have its share of the blocks yet
	known     bool                // no block is about to be read
	waits     bool                // jobs wait for a block that is about to be read
	waitsFrom instant.Instant     // since when they wait; 0: they do not
}

// A batchSize is the number of jobs of a block to read at once.
type batchSize struct {
	adapts bool
	size   int             // if more than opt.Batch
	begun  int             // jobs begun when it was last chosen
	at     instant.Instant // when it was last chosen
	fast   instant.Instant // when the worker was last fast enough for it
}

// A conviction is of a job, for the loss of a worker. That worker may take it back, and the next one has its own time.
type conviction struct {
	job  store.JobID
	node string
}
