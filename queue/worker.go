package queue

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/internal/trouble"
	"github.com/dbcron/dbcron/queue/internal/block"
	"github.com/dbcron/dbcron/queue/internal/limit"
	"github.com/dbcron/dbcron/queue/internal/share"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// A Worker processes the jobs of some queues, which it shares with any number of other processes.
// It is safe for concurrent use.
type Worker struct {
	core

	holder
	// Each subject has a struct, with the methods that need no more than its fields. The mutex
	// of core guards them all.
	outbox
	runner
	lifetime
	sweeper sweeper
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
		holder: holder{
			wakeups: wakeups{tick: make(chan struct{}, 1), called: make(chan struct{}, 1)},
			terms: block.Terms{
				Batch: opt.Batch, AtMostOnce: opt.AtMostOnce, Whole: wholeEvery, Room: block.Room{Size: opt.ReadAhead, Readers: opt.Connections},
			},
			reads: reads, rotate: share.Rotation, patience: patience,
		},
		runner: runner{
			slow: slow, proven: provenAfter, appeal: appealFor,
			returns: returnGrace, starves: starvedAfter, miscounted: miscounted,
			handlerSlots: handlerSlots{taken: map[*Delivery]bool{}},
			trialPlaces:  trialPlaces{places: doubtful, lone: newLoneTrials()},
			kindHandlers: kindHandlers{handlers: map[string]*kindHandler{}, kinds: kindNames{}},
		},
		outbox: outbox{
			out: map[store.JobID]*Delivery{}, rows: map[store.JobID]*Delivery{}, remnants: map[*tenure]bool{},
			tally: tally{turn: newTurn(), counts: map[countKey]*count{}},
			ends:  concluder{turn: newTurn(), groups: map[int64]bool{}, wake: make(chan struct{}, 1), died: make(chan struct{}, 1)},
			book: refusalBook{
				turn: newTurn(), all: map[store.JobID]*refusal{}, stuck: map[*tenure]map[int64]*refusal{},
				gone: map[store.JobID]string{}, wake: make(chan struct{}, 1),
			},
		},
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
	box.core, box.life, box.h, box.runs = &w.core, &w.lifetime, &w.holder, &w.runner
	w.tally.core, w.ends.core = &w.core, &w.core
	w.book.core, w.book.lease = &w.core, &w.lease
	l := &w.lease
	l.core, l.wakes, l.lost, l.resumed = &w.core, &w.wakeups, w.lose, w.work.Broadcast
	l.entered = func() {
		w.tellRounds()
		w.limits.Wake()
	}
	h := &w.holder
	h.core, h.life, h.occupants = &w.core, &w.lifetime, &w.runner
	run := &w.runner
	run.core, run.lifetime, run.holder, run.outbox = &w.core, &w.lifetime, h, box
	w.limits = limit.NewKeeper(limited{&w.runner}, w.log, newTurn().take)
	w.choice.core = &w.core
	w.flush = flusher{core: &w.core, names: w.kinds, choice: &w.choice}
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
