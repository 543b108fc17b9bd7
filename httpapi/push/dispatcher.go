// Package push does jobs by sending them: to endpoints that answer HTTP, whatever they are
// written in.
//
// A queue that has an [Endpoint] is a worker's as any other. What the worker does with a job
// is a POST of its payload, and what the answer's status says becomes of the job. So all that
// holds for workers holds here: any number of dispatchers share the queues' blocks, a job is
// sent at least once, those of a key one after the other, and one that is slow has a lease of
// its own.
package push

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/trouble"
	"github.com/dbcron/dbcron/lock"
	"github.com/dbcron/dbcron/queue"
)

// lookEvery is how often it is looked what endpoints there are.
const lookEvery = time.Second

// standbyLock is the name of the lock of dispatchers of which one works at a time, and
// standbyTTL how long others wait for one that hangs.
const (
	standbyLock = "dbcron push"
	standbyTTL  = 5 * time.Second
)

// Options adjusts a Dispatcher. The zero value is ready to use.
type Options struct {
	Node     string        // as of [queue.Options]
	Doorbell string        // as of [queue.Options]
	Lease    time.Duration // of its workers, see [queue.WorkerOptions]; default: [queue.DefaultLease]
	Grace    time.Duration // for requests under way at the end; default: 30s; negative: none
	Hosts    *Hosts        // what may be sent to; default: the internet
	Version  string        // of the program, for the header User-Agent and the rows of its workers; default: devel
	Logger   *slog.Logger  // default: slog.Default
	LogDone  bool          // a line for each job that is done, of the level info; else: debug

	// Observe is called for each request when it has ended: with the origin that it went to,
	// the status of the answer, or 0 if there was no whole one, and how long it took. LeaseLost
	// is called when a worker has lost its lease: see [queue.Options]. Both are for figures,
	// and should return at once.
	Observe   func(origin string, status int, took time.Duration)
	LeaseLost func(why string)

	// Standby has it work only while no other does that has it, too. Without it all work at
	// the same time, and share the jobs.
	Standby bool
}

// A Dispatcher sends the jobs of all queues that have an endpoint.
type Dispatcher struct {
	opt       Options
	log       *slog.Logger
	endpoints *Endpoints
	queues    *queue.Client
	locks     *lock.Locker
	throttle  throttle
	reporter  reporter
	node      string            // this process
	under     string            // the lock under which it works
	wrong     map[string]string // endpoints that cannot be, and why

	ending  sync.WaitGroup // workers
	aborted context.Context
	abort   context.CancelFunc
}

// New returns a Dispatcher. It does not touch the database.
func New(db *dialect.DB, opt Options) (*Dispatcher, error) {
	opt.Version = cmp.Or(opt.Version, "devel")
	if opt.Logger == nil {
		opt.Logger = slog.Default()
	}
	if opt.Hosts == nil {
		opt.Hosts = &Hosts{public: true}
	}
	d := &Dispatcher{opt: opt, log: opt.Logger, endpoints: NewEndpoints(db), wrong: map[string]string{}, reporter: reporter{db: db}}
	node := opt.Node
	if node == "" {
		node, _ = os.Hostname()
	}
	d.node = fmt.Sprintf("%s:%d", node, os.Getpid())
	d.aborted, d.abort = context.WithCancel(context.Background())
	var err error
	if d.queues, err = queue.New(db, queue.Options{
		Node: opt.Node, Version: opt.Version, Logger: opt.Logger,
		Doorbell: opt.Doorbell, LeaseLost: opt.LeaseLost,
	}); err != nil {
		return nil, err
	}
	d.locks, err = lock.New(db, lock.Options{TTL: standbyTTL, Logger: opt.Logger})
	return d, err
}

// Abort breaks requests off that are under way: Run returns soon after its context has ended.
// Their jobs are sent again, and the attempts do not count.
func (d *Dispatcher) Abort() { d.abort() }

// Run sends jobs until ctx ends. Then it sends no more, and gives those under way their
// grace. It returns an error only if it could not begin: a database that cannot be reached is
// waited for.
func (d *Dispatcher) Run(ctx context.Context) error {
	ending := ctx
	defer func() {
		d.ending.Wait()
		d.reporter.last(ctx)
	}()
	if !d.opt.Standby {
		d.dispatch(ctx)
		return nil
	}
	e, err := d.locks.NewElector(standbyLock, lock.Election{
		Lead: func(ctx context.Context, lease *lock.Lease) error {
			d.log.Info("push: this daemon is the one that sends", "term", lease.Fence())
			d.under = standbyLock
			d.lead(ctx)
			if ending.Err() != nil {
				d.resign(ending)
			}
			return nil
		},
		Follow: func(leader *lock.HeldError) {
			d.log.Info("push: standing by", "for", leader.By, "term", leader.Fence)
		},
	})
	if err != nil {
		return err
	}
	return e.Run(ctx)
}

// lead works as the only one. What the one before has left is taken over at once.
func (d *Dispatcher) lead(ctx context.Context) {
	taking := trouble.New(d.log, "push: taking over")
	for {
		n, err := d.queues.TakeOver(ctx, d.under)
		taking.Note(err)
		if err == nil {
			if n > 0 {
				d.log.Warn("push: took over from a dispatcher that did not end as it should", "workers", n)
			}
			break
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(100 * time.Millisecond):
		}
	}
	d.dispatch(ctx)
}

// resign has what is under way go on when another begins to send. It is called with the lock
// held, and all the workers under it are this dispatcher's.
func (d *Dispatcher) resign(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if err := d.queues.KeepOnExit(ctx, d.under); err != nil {
		d.log.Warn("push: ending: what is under way may be sent again by another", "err", err)
	}
}

// A pusher is the worker of one queue.
type pusher struct {
	sender *sender
	cancel context.CancelFunc
	again  atomic.Int64 // when its worker may begin anew, which has ended; 0: it has not
}

// beginAgain is how long after its end a worker begins anew that could not go on.
const beginAgain = 10 * time.Second

// follows tells whether the worker does what an endpoint says, as it is now.
func (p *pusher) follows(e *Endpoint) bool {
	was, again := p.sender.endpoint.Load(), instant.Instant(p.again.Load())
	return e != nil && e.id == was.id && e.Concurrency == was.Concurrency && (again == 0 || instant.Now() < again)
}

// dispatch has a worker for each endpoint until ctx ends, each with its own connections,
// blocks and places: one that is slow, or changes, is nothing to the others. The workers end
// in the background.
func (d *Dispatcher) dispatch(ctx context.Context) {
	d.ending.Go(func() { d.reporter.run(ctx, trouble.New(d.log, "push: noting what endpoints answer")) })
	running := map[string]*pusher{}
	looking := trouble.New(d.log, "push: looking for endpoints")
	for {
		if err := d.follow(ctx, running); ctx.Err() == nil {
			looking.Note(err)
		}
		select {
		case <-ctx.Done():
			for _, p := range running {
				p.cancel()
			}
			return
		case <-time.After(lookEvery):
		}
	}
}

// follow begins and ends workers as the endpoints are now.
func (d *Dispatcher) follow(ctx context.Context, running map[string]*pusher) error {
	is, err := d.all(ctx)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(running)) {
		p, e := running[name], is[name]
		if !p.follows(e) {
			p.cancel()
			delete(running, name)
			continue
		}
		p.sender.endpoint.Store(e)
	}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(is)) {
		if running[name] != nil {
			continue
		}
		p, err := d.begin(ctx, is[name])
		if err != nil {
			errs = append(errs, fmt.Errorf("queue %s: %w", name, err))
			continue
		}
		running[name] = p
	}
	return errors.Join(errs...)
}

// all are the endpoints that can be.
func (d *Dispatcher) all(ctx context.Context) (map[string]*Endpoint, error) {
	const page = 1000
	all, after := map[string]*Endpoint{}, ""
	for {
		found, err := d.endpoints.List(ctx, after, page)
		if err != nil {
			return nil, err
		}
		for i := range found {
			e := &found[i]
			if after = e.Queue; d.fine(e) {
				all[e.Queue] = e
			}
		}
		if len(found) < page {
			return all, nil
		}
	}
}

// fine tells whether an endpoint can be: it may have been written by hand. Jobs wait until it
// is mended.
func (d *Dispatcher) fine(e *Endpoint) bool {
	err := e.check()
	if err == nil {
		delete(d.wrong, e.Queue)
		return true
	}
	if text := err.Error(); d.wrong[e.Queue] != text {
		d.wrong[e.Queue] = text
		d.log.Error("push: the queue's jobs are not sent: its endpoint is wrong", "queue", e.Queue, "err", err)
	}
	return false
}

// begin starts the worker of a queue.
func (d *Dispatcher) begin(ctx context.Context, e *Endpoint) (*pusher, error) {
	w, err := d.queues.Worker(queue.WorkerOptions{
		Queues: []string{e.Queue}, Concurrency: e.Concurrency, Lease: d.opt.Lease, Grace: d.opt.Grace, LeaderLock: d.under, Logger: d.log,
		Isolated: true, // what a job does, it does elsewhere
		LogDone:  queue.LogsDone(d.opt.LogDone, e.Queue),
	})
	if err != nil {
		return nil, err
	}
	inner, cancel := context.WithCancel(ctx)
	s := newSender(inner, d, e)
	if err := w.HandleOthers(s.handle); err != nil {
		cancel()
		return nil, err
	}
	p := &pusher{sender: s, cancel: cancel}
	d.log.Info("push: sending", "queue", e.Queue, "concurrency", e.Concurrency)
	d.ending.Go(func() {
		defer s.close()
		if err := w.Run(inner); err != nil {
			d.log.Error("push: the queue's jobs are not sent; it is tried again", "queue", e.Queue, "err", err)
		}
		p.again.Store(int64(instant.Now().Add(beginAgain)))
	})
	return p, nil
}
