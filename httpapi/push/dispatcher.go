// Package push does jobs by sending them to HTTP endpoints, written in any language.
//
// A queue with an [Endpoint] has workers like any other. The worker does a job by a POST of its payload,
// and the status of the answer decides the job's outcome. So the guarantees for workers apply: any number
// of dispatchers share a queue's blocks, a job is sent at least once, jobs with the same key are sent one
// at a time, and a slow job has a lease of its own.
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
	"github.com/dbcron/dbcron/internal/barrier"
	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/pace"
	"github.com/dbcron/dbcron/internal/trouble"
	"github.com/dbcron/dbcron/lock"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/queue/admin"
)

// lookEvery is the interval at which the endpoints are read.
const lookEvery = time.Second

// standbyLock is the lock of dispatchers of which one works at a time. standbyTTL is how long the
// others wait for one that hangs.
const (
	standbyLock = "dbcron push"
	standbyTTL  = 5 * time.Second
)

// Options configures a Dispatcher. The zero value is ready to use.
type Options struct {
	Node     string        // see [queue.Options]
	Doorbell string        // see [queue.Options]
	Lease    time.Duration // of its workers: see [queue.WorkerOptions]; default: [queue.DefaultLease]
	Grace    time.Duration // for running requests at the end; default: 30s; negative: none
	Hosts    *Hosts        // hosts that may be sent to; default: the internet
	Version  string        // version of the program, for User-Agent and the workers' rows; default: devel
	Logger   *slog.Logger  // default: slog.Default
	LogDone  bool          // log completed jobs at level info instead of debug

	// Observe is called after each request, with the origin it went to, the status of the answer, or
	// 0 without a complete one, and the duration. LeaseLost is called when a worker has lost its
	// lease: see [queue.Options]. Both feed metrics and should return quickly.
	Observe   func(origin string, status int, took time.Duration)
	LeaseLost func(why string)

	// Standby makes the dispatcher work only while no other dispatcher with Standby does. Without
	// it, all dispatchers work at the same time and share the jobs.
	Standby bool
}

// A Dispatcher sends the jobs of all queues that have an endpoint.
type Dispatcher struct {
	opt       Options
	log       *slog.Logger
	endpoints *Endpoints
	queues    *queue.Client
	admin     *admin.Client
	locks     *lock.Locker
	throttle  throttle
	reporter  reporter
	node      string            // this process
	under     string            // the lock that it holds
	wrong     map[string]string // invalid endpoints, and why

	ending  sync.WaitGroup // workers
	aborted context.Context
	abort   context.CancelFunc
}

// New returns a Dispatcher. It does not access the database.
func New(db *dialect.DB, opt Options) (*Dispatcher, error) {
	opt.Version = cmp.Or(opt.Version, "devel")
	if opt.Logger == nil {
		opt.Logger = slog.Default()
	}
	opt.Logger = barrier.Logger(opt.Logger)
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
	if d.admin, err = admin.New(db, admin.Options{}); err != nil {
		return nil, err
	}
	d.locks, err = lock.New(db, lock.Options{TTL: standbyTTL, Logger: opt.Logger})
	return d, err
}

// Abort cancels running requests; Run returns soon after its context has ended. Their jobs are sent
// again, and the cancelled attempts do not count.
func (d *Dispatcher) Abort() { d.abort() }

// Run sends jobs until ctx ends. Then it sends no more and gives running requests their grace. It returns
// an error only if it could not begin. If the database is unreachable, it waits.
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

// lead works as the only dispatcher. It takes over at once what its predecessor left.
func (d *Dispatcher) lead(ctx context.Context) {
	taking := trouble.New(d.log, "push: taking over")
	for {
		n, err := d.admin.TakeOver(ctx, d.under)
		taking.Note(err)
		if err == nil {
			if n > 0 {
				d.log.Warn("push: took over from a dispatcher that did not end as it should", "workers", n)
			}
			break
		}
		if !pace.Sleep(ctx, 100*time.Millisecond) {
			return
		}
	}
	d.dispatch(ctx)
}

// resign lets running requests finish while another dispatcher begins. The caller holds the lock, and all
// workers under it belong to this dispatcher.
func (d *Dispatcher) resign(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if err := d.admin.KeepOnExit(ctx, d.under); err != nil {
		d.log.Warn("push: ending: what is under way may be sent again by another", "err", err)
	}
}

// A pusher is the worker of one queue.
type pusher struct {
	sender *sender
	cancel context.CancelFunc
	again  atomic.Int64 // when to restart its failed worker; 0: it has not failed
}

// beginAgain is the delay before a failed worker is restarted.
const beginAgain = 10 * time.Second

// follows reports whether the worker runs with the endpoint's current settings.
func (p *pusher) follows(e *Endpoint) bool {
	was, again := p.sender.endpoint.Load(), instant.Instant(p.again.Load())
	return e != nil && e.id == was.id && e.Concurrency == was.Concurrency && e.Batch == was.Batch && (again == 0 || instant.Now() < again)
}

// dispatch keeps a worker for each endpoint until ctx ends. Each has its own connections, blocks and
// slots, so that one endpoint that is slow or changes does not affect the others. Workers end in the
// background.
func (d *Dispatcher) dispatch(ctx context.Context) {
	d.ending.Go(func() { d.reporter.run(ctx, trouble.New(d.log, "push: noting what endpoints answer")) })
	running := map[string]*pusher{}
	looking := trouble.New(d.log, "push: looking for endpoints")
	for {
		if err := d.follow(ctx, running); ctx.Err() == nil {
			looking.Note(err)
		}
		if !pace.Sleep(ctx, lookEvery) {
			for _, p := range running {
				p.cancel()
			}
			return
		}
	}
}

// follow starts and stops workers to match the current endpoints.
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

// all returns the valid endpoints.
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

// fine reports whether an endpoint is valid: it may have been written by hand. Jobs wait until it is
// corrected.
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

// usualReads is the number of jobs of a block that its worker reads at once, unless a request
// has more.
const usualReads = 100

// begin starts the worker of a queue.
func (d *Dispatcher) begin(ctx context.Context, e *Endpoint) (*pusher, error) {
	opt := queue.WorkerOptions{
		Batch:  max(usualReads, e.Batch),
		Queues: []string{e.Queue}, Concurrency: e.Concurrency, Lease: d.opt.Lease, Grace: d.opt.Grace, LeaderLock: d.under, Logger: d.log,
		Isolated: true, // a handler has no effects in this process
	}
	if d.opt.LogDone {
		opt.LogDone = map[string]slog.Level{e.Queue: slog.LevelInfo}
	}
	w, err := d.queues.Worker(opt)
	if err != nil {
		return nil, err
	}
	inner, cancel := context.WithCancel(ctx)
	s := newSender(inner, d, e)
	if e.Batch > 1 {
		err = w.HandleOtherBatches(queue.BatchOptions{Max: e.Batch}, s.handleBatch)
	} else {
		err = w.HandleOthers(s.handle)
	}
	if err != nil {
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
