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
	"github.com/dbcron/dbcron/queue/internal/board"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// WorkerOptions adjusts a Worker. The zero value is ready to use.
//
// A worker keeps connections of the client's pool to itself, so that handlers that hold all
// others in transactions do not keep it from renewing its lease, and from reading and writing
// jobs: one for its lease, and Connections and one more for the rest. The workers that run on a
// pool share them, and take half of the pool at the most. A pool of 3 is the smallest that will
// do, but on SQLite, where a transaction that writes keeps all others waiting in any case.
type WorkerOptions struct {
	Queues      []string      // default: default
	Concurrency int           // how many jobs it does at a time; default: 16
	Batch       int           // how many jobs of a block it reads at once; default: 100
	Lease       time.Duration // after so long without a word from it others take its jobs; default: DefaultLease
	Grace       time.Duration // how long running jobs may go on when it is stopped; default: 30s; negative: none
	Connections int           // how many connections it reads and writes jobs with; default: 2

	// ReadAhead is how many bytes the payloads may have of jobs that it has read and that have
	// not begun, over all of its blocks; default: 64 MiB. A job whose payload does not fit
	// waits without it, and its payload is read when its turn has come. What runs comes on
	// top: Concurrency payloads, whole batches, and what a Receiver has handed out. With
	// AtMostOnce it is no bound: rows are gone, so payloads are kept, and the worker only
	// reads fewer of them at once.
	ReadAhead int

	// AckEach commits each job's end before its place goes to another job, and before the
	// next job of its key begins: a crash then repeats no more jobs than Concurrency, and
	// none after a later one of its key. Otherwise the ends of many jobs share a statement,
	// and a crash repeats what ended since the last one was sent: a few milliseconds.
	AckEach bool

	// AtMostOnce removes jobs before they are done: a crash loses those that were
	// read and not finished, up to Batch of each block, and repeats none. So does a
	// stop that takes longer than Grace. Failed ones are not tried again.
	AtMostOnce bool

	// Isolated says that no job can end the process. Then jobs that a worker has left that
	// died are done again at once, however many they are and however often it happens, and
	// none of them becomes a dead letter for it. Otherwise they are put on trial: a few run at a
	// time until they are trusted, after five seconds, and those whose workers died then run
	// alone.
	Isolated bool

	// BuryUnknown makes jobs dead letters that have a kind for which the worker has no handler.
	// Otherwise they stay where they are: for workers that have one, or until there is one.
	BuryUnknown bool

	// LeaderLock is the name of a lock that the process has, and that only one can have at a time:
	// see [Client.TakeOver]. Empty: none.
	LeaderLock string

	Logger *slog.Logger // default: the client's

	// LogDone is the level at which a line is logged for each job of a queue that is
	// done. Queues that it does not have: debug. Failed jobs are logged as info, and dead
	// ones as warnings.
	LogDone map[string]slog.Level
}

// A Handler does a job. What it returns is the job's outcome: nil, an error, or
// what [RetryAfter], [Snooze], [Discard] and [Bury] make. ctx ends when the job's
// time is over, when the job is not this worker's any more, and when the worker has
// been stopped and its grace is over; its cause says which.
type Handler func(ctx context.Context, d *Delivery) error

// A kindHandler is what does the jobs of a kind.
type kindHandler struct {
	one   Handler
	many  BatchHandler
	batch BatchOptions
	retry RetryPolicy

	gathered []*gathering // batches that wait for more
	full     int          // how many of them need not wait
}

// A RetryPolicy overrides the queue's for a kind. Zero fields leave the queue's.
type RetryPolicy struct {
	MaxAttempts int           // failed attempts after which a job is dead
	Delay       time.Duration // before the second attempt; doubles with each further one
	MaxDelay    time.Duration // between two attempts at the most
	Timeout     time.Duration // of an attempt, unless the job has one of its own

	// Stall is how long an attempt may make no progress: its context then ends with [ErrStalled],
	// and what the handler returns after that counts as a failure, so that the job is tried again.
	// Each call of [Delivery.SetProgress] or [Checkpoint] is progress. Zero: any time.
	Stall time.Duration

	// Backoff, if it is set, says how long to wait after a failed attempt (from 1) that ended
	// with err, instead of Delay and MaxDelay. It may be called by several goroutines. It is
	// not called where the handler has said what becomes of the job: see [RetryAfter].
	Backoff func(attempt int, err error) time.Duration
}

// A Worker does the jobs of some queues: any number of processes may, and share
// them. It is safe for concurrent use.
type Worker struct {
	c   *Client
	opt WorkerOptions
	log *slog.Logger

	again *trouble.Repeats // logs what has failed

	db     *dialect.DB // on connections of the workers' own while it runs: see reserve
	leases *dialect.DB // likewise, for its lease
	own    *reserve    // nil: it has none

	slow       time.Duration // after so long a job is checked out
	proven     time.Duration // and after so long it is trusted: see worker_suspect.go
	rotate     time.Duration // for so long it may have a block more than others
	whole      time.Duration // how often each block is read from its beginning
	patience   time.Duration // for so long jobs wait for older ones: see worker_order.go
	miscounted func(was, is int)

	// mu guards all that follows, but for channels, and the workers' queues and blocks. There is a
	// struct for each subject, with the methods that need no more than that.
	mu sync.Mutex
	nodeLease
	handlerSlots
	trialPlaces
	outbox
	limiting
	kindHandlers
	lifetime
	kindChoice

	exact   bool // it is asked of each job whether its row was there
	alone   bool // it does all itself, one thing after the other
	queues  []*workQueue
	held    int             // bytes of payloads that were read ahead
	unasked func() bool     // nobody has asked its Receiver for jobs of late; nil: it has none
	steps   int             // how often the database's clock was set, as far as its blocks know
	base    context.Context // of jobs
}

// The kindHandlers are what does the jobs, by kind. They do not change once the worker runs.
type kindHandlers struct {
	handlers   map[string]*kindHandler
	others     *kindHandler // for kinds that have none; nil: see BuryUnknown
	middleware []Middleware
	kinds      map[string]string // names, each once
}

// A kindChoice is which kinds the worker does, and knows that others do: see worker_kinds.go.
type kindChoice struct {
	picks    bool     // it does not do all kinds
	does     *kindSet // those that it does, if it picks
	gates    bool     // its Receiver has been asked for some kinds only
	asking   *kindSet // those that are wanted now; nil: all
	kindSets kindSets
	unknown  map[kindOf]instant.Instant // kinds that nobody does: since when, or -1: it was logged
}

// A lifetime is how far a worker has come, from its start to its end.
type lifetime struct {
	started  bool
	closing  bool          // nothing is started any more
	stopped  bool          // handlers and flushers end
	shared   chan struct{} // closed when no blocks are taken any more
	stopping chan struct{} // closed when the worker is being stopped
	joined   chan struct{} // closed when it is known to the others
	ended    chan struct{} // closed when nothing is written any more
}

// A workQueue is one of a worker's queues.
type workQueue struct {
	w        *Worker
	id       int // these two never change
	name     string
	set      *Queue
	blocks   map[int]*block
	long     int                  // how often in a row all places were found taken by long jobs
	busy     bool                 // as the others are told
	surplus  bool                 // as was logged: it has more workers than blocks
	strange  map[store.JobID]bool // running jobs that are this worker's, and that it does not know of
	vacant   map[int]vacancy      // blocks that were free at the last look
	limiters map[string]*limiter  // by kind; nil while there were no limits

	elsewhere *limiter   // of the kinds that others do and this worker does not; see worker_kinds.go
	nowhere   *limiter   // of those that nobody does
	rest      *limiter   // of those that no asker of a Receiver has named
	others    []*kindSet // what the others do

	heap      board.Heap[*block] // that have ready jobs, the oldest first: see worker_order.go
	listed    bool               // in the worker's list of queues that have such
	joining   bool               // it has not had its share of the blocks yet
	known     bool               // no block is about to be read
	waits     bool               // jobs wait for a block that is
	waitsFrom instant.Instant    // since when; 0: they do not
}

// Worker returns a Worker. Give it handlers, then Run it.
func (c *Client) Worker(opt WorkerOptions) (*Worker, error) {
	if len(opt.Queues) == 0 {
		opt.Queues = []string{defaultQueue}
	}
	opt.Concurrency = cmp.Or(opt.Concurrency, 16)
	opt.Batch = cmp.Or(opt.Batch, 100)
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
	case opt.ReadAhead < 1:
		return nil, invalid("read ahead", "%d bytes are not at least 1", opt.ReadAhead)
	}
	for _, name := range opt.Queues {
		if err := sqlrun.CheckName(name); err != nil {
			return nil, invalid("queue", "%v", err)
		}
	}
	w := &Worker{
		c: c, db: c.db, leases: c.db, opt: opt, log: opt.Logger, again: trouble.NewRepeats(opt.Logger),
		slow: slow, proven: provenAfter, rotate: rotation,
		whole: wholeEvery, patience: patience, miscounted: miscounted,
		nodeLease:    nodeLease{tick: make(chan struct{}, 1), called: make(chan struct{}, 1)},
		handlerSlots: handlerSlots{taken: map[*Delivery]bool{}},
		outbox: outbox{
			out: map[store.JobID]*Delivery{}, rows: map[store.JobID]*Delivery{}, remnants: map[*block]bool{}, counts: map[countKey]*count{},
			ends: concluder{groups: map[int64]bool{}, wake: make(chan struct{}, 1), died: make(chan struct{}, 1)},
			book: refusalBook{all: map[store.JobID]*refusal{}, gone: map[store.JobID]string{}, wake: make(chan struct{}, 1)},
		},
		limiting:     limiting{keeper: make(chan struct{}, 1)},
		kindHandlers: kindHandlers{handlers: map[string]*kindHandler{}, kinds: map[string]string{}},
		lifetime: lifetime{
			joined: make(chan struct{}), ended: make(chan struct{}), shared: make(chan struct{}), stopping: make(chan struct{}),
		},
	}
	w.work.L, w.chores.L = &w.mu, &w.mu
	return w, nil
}

// Handle sets what does the jobs of a kind. It returns an error if there is a
// handler already, or if the worker runs.
func (w *Worker) Handle(kind string, h Handler) error { return w.HandleWith(kind, RetryPolicy{}, h) }

// HandleWith is Handle with a retry policy of the kind's own.
func (w *Worker) HandleWith(kind string, p RetryPolicy, h Handler) error {
	return w.handle(kind, &kindHandler{one: w.wrapped(h), retry: p})
}

// HandleOthers sets what does the jobs of all kinds that have no handler of their
// own: without it the worker leaves them alone (see [WorkerOptions].BuryUnknown). It returns an
// error as Handle does.
func (w *Worker) HandleOthers(h Handler) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.handleOthers(&kindHandler{one: w.wrapped(h)})
}

// handleOthers sets what does the other kinds. mu is held.
func (w *Worker) handleOthers(h *kindHandler) error {
	switch {
	case w.started:
		return invalid("kind", "the other kinds: the worker runs already")
	case w.others != nil:
		return invalid("kind", "the other kinds have a handler already")
	}
	w.others = h
	return nil
}

// handlerOf is what does the jobs of a kind; nil if nothing does.
func (known *kindHandlers) handlerOf(kind string) *kindHandler {
	if h := known.handlers[kind]; h != nil {
		return h
	}
	return known.others
}

func (w *Worker) handle(kind string, h *kindHandler) error {
	if err := sqlrun.CheckName(kind); err != nil {
		return invalid("kind", "%v", err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.started:
		return invalid("kind", "%q: the worker runs already", kind)
	case w.handlers[kind] != nil:
		return invalid("kind", "%q has a handler already", kind)
	}
	w.handlers[kind], w.kinds[kind] = h, kind
	return nil
}

// Run does jobs until ctx ends. Then it starts no more, hands the blocks over in
// which nothing runs, gives running jobs their grace, cancels those that go on, and
// hands them over, too. It returns nil then, and an error only if it could not begin:
// a database that cannot be reached is waited for.
func (w *Worker) Run(ctx context.Context) error {
	return w.run(ctx, w.opt.Concurrency)
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
	w.slots = make([][]*Delivery, handlers)
	w.pick()
	w.mu.Unlock()
	defer cancelJobs(nil)

	release, err := w.reserve()
	if err != nil {
		return err
	}
	defer release()
	// What has begun is finished and written after ctx has ended.
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
		w.keep, w.share, w.watch, w.listen, w.poll, w.conclude,
		w.addUp, w.keepLimiters, w.sweepOften, w.keepBook,
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
	<-ctx.Done()
	w.drain(working)
	w.returnTokens(working)
	w.concludeLast(working)
	w.addLast(working)
	w.closeBook(working)
	stop()
	w.mu.Lock()
	w.stopped = true
	w.chores.Broadcast()
	w.work.Broadcast()
	w.mu.Unlock()
	helpers.Wait()
	w.again.Flush()
	close(w.ended)
	return nil
}

// ring tells that there may be something new in a block.
func (w *Worker) ring(queue, divided int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, q := range w.queues {
		if q.id == queue {
			w.rouse(q.blocks[divided])
		}
	}
}

func (w *Worker) ringAll(queue int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, q := range w.queues {
		if q.id == queue {
			for _, b := range q.blocks {
				w.rouse(b)
			}
		}
	}
}

func (w *Worker) ringRows(rows []jobRow) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, q := range w.queues {
		for i := range rows {
			r := &rows[i]
			if r.queue != q.id {
				continue
			}
			b := q.blocks[r.divided]
			if b != nil && r.runAt != 0 {
				w.setDue(b, r.runAt)
				continue
			}
			w.rouse(b)
		}
	}
}

// rouse marks a block that there may be something new in. mu is held.
func (box *outbox) rouse(b *block) {
	if b == nil {
		return
	}
	b.dirty, b.rung, b.told = true, true, true
	box.enlist(b)
}

// enlist lets a flusher look after a block, if there is something to do. mu is held.
func (box *outbox) enlist(b *block) {
	if b.serving || b.queued { // as with most jobs that end: to ask for the time costs more
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

// offer puts a block among those with ready jobs, if it has some, and wakes as many
// handlers as there are jobs for. mu is held.
func (slots *handlerSlots) offer(b *block, jobs int) {
	if b.startable() {
		b.q.list(b)
	}
	for range min(jobs, slots.idle) {
		slots.work.Signal()
	}
}
