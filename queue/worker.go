package queue

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/internal/trouble"
	"github.com/dbcron/dbcron/queue/internal/block"
	"github.com/dbcron/dbcron/queue/internal/limit"
	"github.com/dbcron/dbcron/queue/internal/share"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// WorkerOptions adjusts a Worker. The zero value is ready to use.
//
// A worker reserves connections of the client's pool, so that handlers which hold all others in
// transactions do not keep it from renewing its lease, or from reading and writing jobs: one for
// its lease, and Connections plus one for the rest. The workers on a pool share them, and take at
// most half of the pool. The smallest pool that suffices has 3 connections, except on SQLite,
// where a writing transaction makes all others wait in any case.
type WorkerOptions struct {
	Queues      []string      // default: default
	Concurrency int           // maximum number of jobs that run at a time; default: 16
	Batch       int           // how many jobs of a block are read at once; default: 100 to 1000, by how fast the worker is, and 100 if AtMostOnce
	Lease       time.Duration // other workers take its jobs after this time without a renewal; default: DefaultLease
	Grace       time.Duration // how long running jobs may continue after it is stopped; default: 30s; negative: not at all
	Connections int           // number of connections for reading and writing jobs; default: 2

	// ReadAhead limits the bytes of payloads of jobs that were read and have not begun, across
	// all its blocks; default: 64 MiB. A job whose payload does not fit waits without it, and the
	// payload is read when the job's turn has come. Running jobs come on top: Concurrency
	// payloads, whole batches, and what a Receiver has handed out. With AtMostOnce it is no hard
	// limit: the rows are gone, so payloads are kept, and the worker only reads fewer jobs at
	// once.
	ReadAhead int

	// AckEach commits the end of each job before its slot goes to another job, and before the
	// next job of its key begins: a crash then repeats at most Concurrency jobs, and none after a
	// later one of its key. Otherwise the ends of many jobs share a statement, and a crash
	// repeats what ended since the last one was sent: a few milliseconds of work.
	AckEach bool

	// AtMostOnce removes jobs before they run: a crash loses those that were read and not
	// finished, up to Batch of each block, and repeats none. So does a stop that takes longer
	// than Grace. Failed jobs are not retried.
	AtMostOnce bool

	// Isolated says that no job can crash the process. Then jobs that a dead worker has left are
	// done again at once, however many there are and however often it happens, and none of them
	// becomes a dead letter for it. Otherwise they are put on trial: a few run at a time until
	// they are trusted, after five seconds, and those whose workers died again then run alone.
	Isolated bool

	// BuryUnknown makes jobs of kinds without a handler in this worker dead letters. Otherwise
	// they stay where they are, for workers that have one, or until there is one.
	BuryUnknown bool

	// EndStuck makes Run end with [ErrStuck] when each of the Concurrency slots has been taken, for this long, by a handler that
	// does not return though its job's timeout is over. Jobs that have not begun are handed back, and the stuck ones have failed
	// once, with their timeouts. The program has to end then, since the handlers run on: its supervisor starts it again. Zero means
	// never.
	EndStuck time.Duration

	// LeaderLock is the name of a lock that the process holds, and that only one process can hold
	// at a time: see TakeOver of package admin. Empty means none.
	LeaderLock string

	Logger *slog.Logger // default: the client's

	// LogDone is the level, by queue, at which each done job is logged; debug for queues that it
	// lacks. Failed jobs are logged as info, and dead ones as warnings.
	LogDone map[string]slog.Level
}

// A Worker processes the jobs of some queues, which it shares with any number of other processes.
// It is safe for concurrent use.
type Worker struct {
	core

	slow       time.Duration // after this time a job is checked out
	proven     time.Duration // after this time it is trusted: see worker_suspect.go
	appeal     time.Duration // how long a job waits before it is dead for deaths: see worker_return.go
	rotate     time.Duration // how long it may have one block more than others
	patience   time.Duration // how long jobs wait for older ones: see worker_order.go
	returns    time.Duration // how long a handler may take to return: see worker_stuck.go
	starves    time.Duration // how long handlers may wait for connections: see worker_starved.go
	miscounted func(was, is int)

	// Each subject has a struct, with the methods that need no more than its fields. The mutex
	// of core guards them all.
	lease nodeLease
	wakeups
	handlerSlots
	trialPlaces
	outbox
	starved starvation
	limits  *limit.Keeper
	kindHandlers
	lifetime
	choice kindChoice
	rounds
	flush   flusher
	sweeper sweeper

	reads   batchSize
	terms   block.Terms // of its blocks
	unasked func() bool // reports whether nobody has asked its Receiver for jobs recently; nil: it has none
	steps   int         // number of steps of the database's clock that its blocks have accounted for
}

// A core is what all parts of a worker share.
type core struct {
	c   *Client
	opt WorkerOptions
	log *slog.Logger // may be used with and without mu: see worker_log.go

	lines *lateHandler     // of log
	again *trouble.Repeats // logs failures

	db     *dialect.DB // the workers' own connections while it runs: see reserve
	leases *dialect.DB // likewise, for its lease
	own    *reserve    // nil: it has none

	exact bool // check for each job whether its row existed
	alone bool // it does everything itself, one thing after the other

	// mu guards everything in the parts except channels, and the worker's queues and blocks.
	mu     quietMutex
	queues []*workQueue
	base   context.Context // parent of the jobs' contexts
}

// A kindChoice says which kinds the worker handles, and which ones others are known to handle:
// see worker_kinds.go.
type kindChoice struct {
	*core
	selective bool                       // it does not handle all kinds
	handled   *share.KindSet             // the kinds that it handles, if it picks
	wanted    *share.KindSet             // the kinds wanted now; nil: all
	unknown   map[kindOf]instant.Instant // kinds that nobody handles: since when, or -1 once logged
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
	hopeless chan struct{} // closed when all slots are stuck: see worker_stuck.go
	halt     stopping
}

// A workQueue is one of a worker's queues.
type workQueue struct {
	w      *Worker
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

	othersKinds    *limit.Limiter   // holds jobs of kinds that only others handle; see worker_kinds.go
	unhandledKinds *limit.Limiter   // holds jobs of kinds that nobody handles
	unnamedKinds   *limit.Limiter   // holds jobs of kinds that no caller of the Receiver has named
	others         []*share.KindSet // the kinds that the other workers handle

	heap      block.Heap[*tenure] // blocks with ready jobs, the oldest first: see worker_order.go
	listed    bool                // it is in the worker's list of queues with such blocks
	joining   bool                // it does not have its share of the blocks yet
	known     bool                // no block is about to be read
	waits     bool                // jobs wait for a block that is about to be read
	waitsFrom instant.Instant     // since when they wait; 0: they do not
}

// Worker returns a Worker. Register handlers, then call Run.
func (c *Client) Worker(opt WorkerOptions) (*Worker, error) {
	if len(opt.Queues) == 0 {
		opt.Queues = []string{defaultQueue}
	}
	opt.Concurrency = cmp.Or(opt.Concurrency, 16)
	reads := batchSize{adapts: opt.Batch == 0 && !opt.AtMostOnce}
	opt.Batch = cmp.Or(opt.Batch, leastBatch)
	opt.Lease = cmp.Or(opt.Lease, DefaultLease)
	opt.Grace = cmp.Or(opt.Grace, 30*time.Second)
	opt.Connections = cmp.Or(opt.Connections, 2)
	opt.ReadAhead = cmp.Or(opt.ReadAhead, defaultReadAhead)
	if opt.Logger == nil {
		opt.Logger = c.opt.Logger
	}
	switch {
	case opt.Concurrency < 1:
		return nil, invalid("concurrency", "%d is less than 1", opt.Concurrency)
	case opt.Batch < 1 || opt.Batch > 10_000:
		return nil, invalid("batch", "%d is not 1 to 10000", opt.Batch)
	case opt.Lease < time.Second:
		return nil, invalid("lease", "%v is shorter than 1s, and could not be renewed in time", opt.Lease)
	case opt.Connections < 1:
		return nil, invalid("connections", "%d is less than 1", opt.Connections)
	case opt.EndStuck < 0:
		return nil, invalid("end stuck", "%v is negative", opt.EndStuck)
	case opt.ReadAhead < 1:
		return nil, invalid("read ahead", "%d bytes are not at least 1", opt.ReadAhead)
	}
	for _, name := range opt.Queues {
		if err := sqlrun.CheckName(name); err != nil {
			return nil, invalid("queue", "%v", err)
		}
	}
	w := &Worker{
		core: core{c: c, db: c.db, leases: c.db, opt: opt},
		terms: block.Terms{
			Batch: opt.Batch, AtMostOnce: opt.AtMostOnce, Whole: wholeEvery, Room: block.Room{Size: opt.ReadAhead, Readers: opt.Connections},
		},
		reads: reads, slow: slow, proven: provenAfter, appeal: appealFor, rotate: share.Rotation,
		patience: patience, returns: returnGrace, starves: starvedAfter, miscounted: miscounted,
		wakeups:      wakeups{tick: make(chan struct{}, 1), called: make(chan struct{}, 1)},
		handlerSlots: handlerSlots{taken: map[*Delivery]bool{}},
		outbox: outbox{
			out: map[store.JobID]*Delivery{}, rows: map[store.JobID]*Delivery{}, remnants: map[*tenure]bool{},
			tally: tally{turn: newTurn(), counts: map[countKey]*count{}},
			ends:  concluder{turn: newTurn(), groups: map[int64]bool{}, wake: make(chan struct{}, 1), died: make(chan struct{}, 1)},
			book:  refusalBook{turn: newTurn(), all: map[store.JobID]*refusal{}, gone: map[store.JobID]string{}, wake: make(chan struct{}, 1)},
		},
		trialPlaces:  trialPlaces{places: doubtful, lone: newLoneTrials()},
		kindHandlers: kindHandlers{handlers: map[string]*kindHandler{}, kinds: map[string]string{}},
		lifetime: lifetime{
			joined: make(chan struct{}), ended: make(chan struct{}), shared: make(chan struct{}), stopping: make(chan struct{}),
			hopeless: make(chan struct{}),
		},
	}
	w.log, w.lines = w.mu.logger(opt.Logger)
	w.again = trouble.NewRepeats(w.log)
	w.assemble()
	return w, nil
}

// assemble connects the parts of a worker.
func (w *Worker) assemble() {
	w.work.L, w.chores.L = &w.mu, &w.mu
	box := &w.outbox
	box.core, box.life = &w.core, &w.lifetime
	w.tally.core, w.ends.core = &w.core, &w.core
	w.book.core, w.book.lease = &w.core, &w.lease
	l := &w.lease
	l.core, l.wakes, l.lost, l.resumed = &w.core, &w.wakeups, w.lose, w.work.Broadcast
	l.entered = func() {
		w.tellRounds()
		w.limits.Wake()
	}
	w.limits = limit.NewKeeper(limited{w}, w.log, newTurn().take)
	w.choice.core = &w.core
	w.flush = flusher{core: &w.core, known: &w.kindHandlers, choice: &w.choice}
	w.sweeper = sweeper{core: &w.core, life: &w.lifetime}
}

// Run processes jobs until ctx ends. Then it starts no more jobs, hands over the blocks in which
// nothing runs, gives running jobs their grace, cancels those that continue after it, and hands
// those over, too. It then returns nil. It returns an error only if it could not begin, or [ErrStuck];
// while the database cannot be reached, it waits.
func (w *Worker) Run(ctx context.Context) error {
	return w.run(ctx, w.opt.Concurrency)
}

// seat gives a worker its handlers' slots, and as many places for trials; 0 means that a Receiver hands
// out its jobs. mu is held.
func (w *Worker) seat(handlers int) {
	w.slots = make([][]*Delivery, handlers)
	if handlers > 0 {
		w.places = min(handlers, doubtful)
	}
}

func (w *Worker) run(ctx context.Context, handlers int) error {
	w.mu.Lock()
	if w.started {
		w.mu.Unlock()
		return fmt.Errorf("%w: a worker runs once", ErrClosed)
	}
	w.started = true
	base, cancelJobs := context.WithCancelCause(context.WithoutCancel(ctx))
	w.base = base
	w.seat(handlers)
	w.pick()
	w.mu.Unlock()
	defer cancelJobs(nil)

	release, err := w.reserve()
	if err != nil {
		return err
	}
	defer release()
	// What has begun is finished and written even after ctx has ended.
	working, stop := context.WithCancel(w.onOwn(context.WithoutCancel(ctx)))
	defer stop()
	if w.bell = w.hang(ctx); w.bell != nil {
		defer w.bell.conn.Close()
	}
	if err := w.begin(w.onOwn(ctx)); err != nil {
		return err
	}
	w.c.bells.add(w)
	defer w.c.bells.remove(w)
	var helpers sync.WaitGroup
	if w.bell != nil {
		helpers.Go(func() { w.answer(working, w.bell) })
	}
	for _, help := range []func(context.Context){
		w.lease.keep, w.share, w.watch, w.watchPool, w.listen, w.poll, w.ends.conclude,
		w.tally.addUp, w.limits.Keep, w.sweeper.sweepOften, w.book.keepBook,
	} {
		helpers.Go(func() { help(working) })
	}
	for range w.opt.Connections {
		helpers.Go(func() { w.flushBlocks(working) })
	}
	for i := range handlers {
		w.group.Go(func() { w.handleJobs(i) })
	}
	close(w.joined)
	select {
	case <-ctx.Done():
	case <-w.hopeless:
		err = ErrStuck
	}
	w.drain(working)
	w.limits.ReturnTokens(working)
	w.ends.concludeLast(working)
	w.tally.addLast(working)
	w.book.closeBook(working)
	stop()
	w.mu.Lock()
	w.stopped = true
	w.chores.Broadcast()
	w.work.Broadcast()
	w.mu.Unlock()
	helpers.Wait()
	w.again.Flush()
	close(w.ended)
	return err
}

// rouse marks a block that may have new jobs. mu is held.
func (box *outbox) rouse(b *tenure) {
	if b == nil {
		return
	}
	b.Reads.Rouse()
	box.enlist(b)
}

// enlist queues a block for a flusher, if there is something to do. mu is held.
func (box *outbox) enlist(b *tenure) {
	if !b.stirred {
		b.q.w.stir(b)
	}
	if b.Serving || b.queued { // as for most jobs that end: asking for the time costs more
		return
	}
	at := instant.Now()
	if b.failures > 0 && at < b.retryAt || !b.wants(at) {
		return
	}
	b.queued = true
	box.serve = append(box.serve, b)
	box.chores.Signal()
}

// offer adds a block to those with ready jobs, if it has any, and wakes as many handlers as it
// has jobs. mu is held.
func (slots *handlerSlots) offer(b *tenure, jobs int) {
	if b.Startable() {
		b.q.list(b)
	}
	for range min(jobs, slots.idle) {
		slots.work.Signal()
	}
}
