// Package scheduler runs commands on time, from a table that any number of
// daemons share.
//
// A schedule is a row of the table schedule: a cron spec, a time zone, and a
// command. When a slot comes, one daemon claims it: in one transaction the
// schedule moves to its next slot, and a row of the table run says who runs
// this one. That there is one run for each schedule, slot and attempt is
// enforced by a unique key, not by the daemons. All times are the database's,
// so the clocks of the hosts need not agree.
//
// A run has a lease, which its daemon renews while the command runs. When the
// daemon dies, the lease runs out, another daemon records the run as lost and
// begins the next attempt. The command of a daemon that was killed, stopped or
// cut off is killed before its lease can end: see internal/guardian. So a slot
// is run at least once, and not twice at a time while hosts and guardians are
// scheduled.
//
// What becomes of slots that passed while no daemon ran, and of those that come
// while the run before is under way, a schedule's Policy says. By default the
// newest of the former is run, and the latter are skipped; in any case the table
// run says of each slot what has become of it.
//
// What is run is a command, an HTTP request, an SQL statement, or a function of
// this program: see Schedule and Scheduler.Handle. Or a job of a queue is enqueued,
// in the transaction that claims the slot: one job for each slot, whatever crashes.
package scheduler

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/internal/duration"
	"github.com/dbcron/dbcron/internal/trouble"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/sqlschema"
)

// Options adjusts a Scheduler. The zero value is ready to use.
type Options struct {
	// Node is the readable part of the name under which runs are recorded; a
	// random part is added. Default: "scheduler". At most 100 characters.
	Node string

	// Version is the program's, of which the daemon's row says 64 bytes; empty: none.
	Version string

	Lease      time.Duration // how long a dead daemon's run stays its own; default: 30s, at least 3s
	Poll       time.Duration // the longest that a change of the tables may go unseen; default: 1s
	MaxRuns    int           // that this daemon executes at a time; default: 64
	MaxCrashes int           // attempts at a slot that may be lost; default: 3

	// Tags of the schedules that this daemon runs. Default: default.
	Tags []string

	// Kinds of schedules that this scheduler runs; it leaves the others to other daemons.
	// They are [Functions] (those that it handles), [Jobs] (which it enqueues), and [Commands]
	// (shell, argv, http and sql). Default: all. A program that lists only Functions and Jobs
	// runs no command that somebody writes into the table.
	Kinds []string

	Grace     time.Duration // that running commands get when ctx ends; default: 30s, negative: none
	KillGrace time.Duration // from SIGTERM to SIGKILL; default: 5s
	MaxOutput int           // bytes of a command's output that are kept; default: 64 KiB

	Env    []string     // every command's environment, to which its schedule adds; default: PATH=/usr/bin:/bin
	Dir    string       // where commands start; default: /
	Logger *slog.Logger // default: slog.Default

	// Ended is called when a run that this daemon has executed has ended, with the state in
	// which it was recorded and how long it took: for figures. It should return at once.
	Ended func(state string, took time.Duration)

	// Trace is called when a run begins here, for those who trace it; nil: nobody does, and
	// each run has a trace of its own. It should return at once. See also [Trace].
	Trace func(TracedRun) Trace

	// Doorbell has it tell workers of the jobs that schedules enqueue: see [queue.Options].
	Doorbell string
}

// Kinds of schedules, for [Options.Kinds].
const (
	Functions = "func"    // of Go: see [Scheduler.Handle]
	Jobs      = "job"     // enqueued for each slot: see [PeriodicJob]
	Commands  = "command" // commands, requests and statements: shell, argv, http, sql
)

// A Scheduler is one of the daemons that run what is due in a database.
type Scheduler struct {
	db    *dialect.DB
	opt   Options
	owner string // the node's name, and a random part

	mu       sync.Mutex
	running  map[int64]*execution // by the run's id; until its outcome is recorded
	handlers map[string]Func
	since    int64     // the µs from which on looks begin: see floor
	sinceAt  time.Time // when all was last looked through
	askedAt  time.Time // when it was last asked which runs are to end

	states map[string]*laneState // by lane
	apart  sync.WaitGroup        // lanes that are worked on in the background
	asking *trouble.Trouble

	jobs     *queue.Client
	finisher finisher
	surplus  chan trimming
	chance   func() float64 // from 0 to 1
	drained  bool           // as was seen last: it claims nothing; of the poller alone
	aborted  chan struct{}
	bell     chan struct{} // there may be something to do
	runs     sync.WaitGroup
	abort    sync.Once
}

// batch is how many rows one statement claims or renews at the most.
const batch = 100

// Check returns what is wrong with the options, if anything: for programs that
// want to know before they connect. New checks them too.
func (o Options) Check() error {
	_, err := o.filled()
	return err
}

// filled returns the options with the defaults filled in.
func (o Options) filled() (Options, error) {
	o.Node = cmp.Or(o.Node, "scheduler")
	o.Version = dialect.CutVersion(o.Version)
	o.Lease = cmp.Or(o.Lease, 30*time.Second)
	o.Poll = cmp.Or(o.Poll, time.Second)
	o.MaxRuns = cmp.Or(o.MaxRuns, 64)
	o.MaxCrashes = cmp.Or(o.MaxCrashes, 3)
	if len(o.Tags) == 0 {
		o.Tags = []string{"default"}
	}
	if len(o.Kinds) == 0 {
		o.Kinds = []string{Functions, Jobs, Commands}
	}
	o.Grace = cmp.Or(o.Grace, 30*time.Second)
	o.KillGrace = cmp.Or(o.KillGrace, 5*time.Second)
	o.Dir = cmp.Or(o.Dir, "/")
	if o.Env == nil {
		o.Env = []string{"PATH=/usr/bin:/bin"}
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	switch {
	case len(o.Node) > 100:
		return o, errors.New("the node's name is longer than 100 bytes")
	case !utf8.ValidString(o.Node) || strings.ContainsFunc(o.Node, unicode.IsControl):
		return o, errors.New("the node's name is not plain text")
	case o.Lease < 3*time.Second:
		return o, errors.New("a lease shorter than 3s could not be renewed in time")
	case o.Poll < 10*time.Millisecond:
		return o, errors.New("polling more often than every 10ms would only load the database")
	case o.MaxRuns < 1 || o.MaxCrashes < 1:
		return o, errors.New("there must be at least one run at a time, and one attempt")
	}
	for _, kind := range o.Kinds {
		if kind != Functions && kind != Jobs && kind != Commands {
			return o, fmt.Errorf("%q is no kind of schedules to run; use %s, %s, %s", kind, Functions, Jobs, Commands)
		}
	}
	for _, tag := range o.Tags {
		s := Schedule{Tag: tag}.filled()
		if err := s.tagProblem(); err != nil {
			return o, err
		}
	}
	return o, nil
}

// New returns a Scheduler. It does not touch the database.
func New(db *dialect.DB, opt Options) (*Scheduler, error) {
	opt, err := opt.filled()
	if err != nil {
		return nil, err
	}
	jobs, err := queue.New(db, queue.Options{Node: "scheduler", Logger: opt.Logger, Doorbell: opt.Doorbell})
	if err != nil {
		return nil, err
	}
	return &Scheduler{
		db: db, opt: opt, jobs: jobs, owner: opt.Node + ":" + strings.ToLower(rand.Text()[:8]),
		states: map[string]*laneState{}, asking: trouble.New(opt.Logger, "asking which runs are to end"),
		running: map[int64]*execution{}, handlers: map[string]Func{},
		surplus: make(chan trimming, 100), chance: mathrand.Float64,
		aborted: make(chan struct{}), bell: make(chan struct{}, 1),
	}, nil
}

// Run executes what is due until ctx ends. Then it claims no more, gives
// running commands their grace to end, ends those that do not, hands their runs
// back to the other daemons, and returns nil. It returns an error only if the
// tables are not those that this program needs. A database that cannot be
// reached is waited for.
func (s *Scheduler) Run(ctx context.Context) error { return s.run(ctx, s.poll) }

// RunOnce executes what is due, and what follows from that at once, and returns
// when all of it has ended: for host cron and timers. What is due later, such as
// a retry, is left to the next call. When ctx ends it stops as Run does.
func (s *Scheduler) RunOnce(ctx context.Context) error { return s.run(ctx, s.pollOnce) }

func (s *Scheduler) run(ctx context.Context, poll func(ctx, working context.Context)) error {
	if err := s.check(ctx); err != nil || ctx.Err() != nil {
		return err
	}
	// What has begun is finished and recorded after ctx has ended.
	working, stop := context.WithCancel(context.WithoutCancel(ctx))
	var helpers sync.WaitGroup
	for _, help := range []func(context.Context){s.keep, s.show, s.upkeep, s.listen, s.attend} {
		helpers.Go(func() { help(working) })
	}
	poll(ctx, working)
	s.apart.Wait()
	if n := s.busy(); n > 0 {
		s.opt.Logger.Info("stopping", "running", n, "grace", cmp.Or(duration.Format(s.opt.Grace), "none"))
	}
	s.drain(stop)
	stop()
	helpers.Wait()
	s.flush(ctx)
	return nil
}

// check waits for the database, and tells whether the tables are those that
// this program needs.
func (s *Scheduler) check(ctx context.Context) error {
	trouble := trouble.New(s.opt.Logger, "looking at the tables")
	for ctx.Err() == nil {
		err := sqlschema.Check(ctx, s.db)
		if err == nil || errors.Is(err, sqlschema.ErrNewer) || errors.Is(err, sqlschema.ErrOutdated) {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(trouble.Wait(err, 0)):
		}
	}
	return nil
}

// Owner returns the name under which this daemon's runs are recorded.
func (s *Scheduler) Owner() string { return s.owner }

// Abort ends all running commands at once and hands their runs back. Run, whose
// ctx should have ended, then returns soon.
func (s *Scheduler) Abort() { s.abort.Do(func() { close(s.aborted) }) }

func (s *Scheduler) busy() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.running)
}

// drain waits for the running commands as long as their grace, then ends them.
// stop gives up on recording outcomes in a database that does not answer.
func (s *Scheduler) drain(stop context.CancelFunc) {
	ended := make(chan struct{})
	go func() { s.runs.Wait(); close(ended) }()
	select {
	case <-ended:
		return
	case <-s.aborted:
		s.each((*execution).kill)
	case <-time.After(max(0, s.opt.Grace)):
		s.each((*execution).end)
		select {
		case <-ended:
			return
		case <-s.aborted:
			s.each((*execution).kill)
		case <-time.After(s.longestGrace() + time.Second):
		}
	}
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		stop()
		<-ended
	}
}

// longestGrace is how long what runs may take from SIGTERM to SIGKILL.
func (s *Scheduler) longestGrace() time.Duration {
	longest := s.opt.KillGrace
	s.each(func(e *execution) { longest = max(longest, e.what.KillGrace) })
	return longest
}

func (s *Scheduler) each(f func(*execution)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.running {
		f(e)
	}
}
