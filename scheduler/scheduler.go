// Package scheduler runs commands on time, from a table that any number of daemons share.
//
// A schedule is a row of the table schedule: a cron spec, a time zone, and a command. When a slot
// is due, one daemon claims it: one transaction advances the schedule to its next slot and inserts
// a row into the table run. A unique key, not the daemons, ensures that there is one run for each
// schedule, slot and attempt. All times are the database's, so the hosts' clocks need not agree.
//
// A run has a lease, which its daemon renews while the command runs. When the daemon dies, the
// lease expires, and another daemon records the run as lost and begins the next attempt. If a daemon
// is killed, stopped or cut off, its command is killed before the lease can end: see
// internal/guardian. So each slot runs at least once, and never twice at a time as long as the host
// runs the guardian.
//
// A schedule's Policy says what happens to slots that passed while no daemon ran, and to slots that
// are due while the previous run is under way. By default the newest of the former runs, and the
// latter are skipped. In any case the table run records what happened to each slot.
//
// The work is a command, an HTTP request, an SQL statement, or a Go function: see Schedule and
// Scheduler.Handle. Or it is a job of a queue, which the transaction that claims the slot enqueues:
// exactly one job for each slot, whatever crashes.
//
// All functions are safe for concurrent use by any number of processes.
package scheduler

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"os"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/internal/barrier"
	"github.com/dbcron/dbcron/internal/guardian"
	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/pace"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/internal/trouble"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/sqlschema"
)

// Options configures a Scheduler. The zero value is ready to use.
type Options struct {
	// Node is the readable part of the name under which runs are recorded; the process's number and a
	// random part are appended. Default: the host's name. At most 100 bytes.
	Node string

	// Version is the program's version, up to 64 bytes, recorded in the daemon's row. Default: none.
	Version string

	Lease      time.Duration // time after a daemon's death until its runs are taken over; default: 30s, at least 3s
	Poll       time.Duration // how long a change of the tables may go unnoticed; default: 1s
	MaxRuns    int           // runs that this daemon executes at a time; default: 64. It claims more runs of functions that end at once
	MaxCrashes int           // attempts at a slot that may be lost; default: 3

	// Tags selects the schedules that this daemon runs, by their Tag. Default: default.
	Tags []string

	// Kinds selects the kinds of schedules that this daemon runs; it leaves others to other
	// daemons. They are [Functions] (those that it handles), [Jobs] (which it enqueues), and
	// [Commands] (shell, argv, http and sql). Default: all. A program that lists only Functions
	// and Jobs runs no command that somebody writes into the table.
	Kinds []string

	Grace     time.Duration // time for running commands to finish after ctx ends; default: 30s, negative: none
	KillGrace time.Duration // from SIGTERM to SIGKILL; default: 5s
	MaxOutput int           // bytes of a command's output to keep; default: 64 KiB

	Env    []string     // environment of every command, to which its schedule adds; default: PATH=/usr/bin:/bin
	Dir    string       // working directory of commands; default: /
	Logger *slog.Logger // default: slog.Default

	// BootID identifies the host's present start, for schedules with the spec @reboot: each runs once
	// per BootID. Default: the kernel's, on Linux and macOS; elsewhere none, and no @reboot runs.
	BootID string

	// Echo logs each line that a command writes, as it comes, with the schedule's name: at most 8 KiB of it in one piece, and
	// nothing of empty ones. Lines may hold secrets.
	Echo bool

	// Ended is called when a run of this daemon has ended, with its recorded state and its
	// duration. It feeds metrics and should return quickly. Default: none.
	Ended func(state string, took time.Duration)

	// Trace is called when a run begins on this daemon: see [Trace]. It should return quickly.
	// Default: none, and each run starts a trace of its own.
	Trace func(TracedRun) Trace

	// Doorbell notifies workers of the jobs that schedules enqueue: see [queue.Options].
	Doorbell string
}

// The kinds of schedules in [Options.Kinds].
const (
	Functions = "func"    // Go functions: see [Scheduler.Handle]
	Jobs      = "job"     // jobs of queues, one for each slot: see [PeriodicJob]
	Commands  = "command" // commands, requests and statements: shell, argv, http, sql
)

// A Scheduler is one of the daemons that run what is due in a database. Its methods are safe for
// concurrent use.
type Scheduler struct {
	db    *dialect.DB
	opt   Options
	owner string // the node's name plus a random part

	mu       sync.Mutex
	running  map[int64]*execution // by run id, until the outcome is recorded
	ahead    int                  // of these, the runs that were claimed ahead: see executors.go
	reserved int                  // runs that claims under way may add: see reserve
	handlers map[string]Func
	since    int64     // µs at which searches begin: see floor
	sinceAt  time.Time // the last search without a floor
	askedAt  time.Time // the last check for cancellation requests
	unnoted  noteRows  // see noteLater
	turns    []turn    // see releaseRest

	states  map[string]*laneState // by lane
	apart   sync.WaitGroup        // lanes worked on in the background
	asking  *trouble.Trouble
	booting *trouble.Trouble

	executors chan struct{} // one for each run that is being executed
	jobs      *queue.Client
	finisher  finisher
	surplus   chan trimming
	chance    func() float64  // random, in [0, 1)
	boots     bool            // a schedule has @reboot; under mu
	booted    bool            // the check after the host's start was made; used by the poller only
	bootHeld  instant.Instant // since when others have locked one of its schedules; 0: they have not
	clockAt   int64           // the latest time that the database's clock has shown since it went back last, in µs; used by the poller only
	drained   bool            // as last seen: it claims nothing; used by the poller only
	stopping  stopping
	aborted   chan struct{}
	bell      chan struct{} // there may be something to do
	left      chan struct{} // there are turns
	runs      sync.WaitGroup
	abort     sync.Once

	requestTimeout time.Duration // of schedules without a timeout; requestTimeout, unless a test is in haste
}

// batch is the number of rows that one statement renews, ends or deletes at most.
const batch = 100

// claimBatch is the number of schedules that one claim takes at most. PostgreSQL takes as long to plan
// the statements of a claim as to write 20 to 30 rows, so this is larger than batch. Runs that enqueue a
// job end in the claim, which also waits for locks of queues: those claims take a batch at most.
const claimBatch = 250

// Check returns what is wrong with the options, if anything. New checks them too; Check is for
// programs that want to know before they connect.
func (o Options) Check() error {
	_, err := o.filled()
	return err
}

// filled returns the options with the defaults filled in.
func (o Options) filled() (Options, error) {
	if o.Node == "" {
		o.Node, _ = os.Hostname()
		o.Node = cmp.Or(o.Node, "scheduler")
	}
	o.Version = sqlrun.CutVersion(o.Version)
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
	o.BootID = cmp.Or(o.BootID, bootID())
	if o.Env == nil {
		o.Env = []string{"PATH=/usr/bin:/bin"}
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	o.Logger = barrier.Logger(o.Logger)
	switch {
	case len(o.Node) > 100:
		return o, errors.New("scheduler: the node's name is longer than 100 bytes")
	case !utf8.ValidString(o.Node) || strings.ContainsFunc(o.Node, unicode.IsControl):
		return o, errors.New("scheduler: the node's name is not plain text")
	case len(o.BootID) > 64 || sqlrun.CheckName(cmp.Or(o.BootID, "none")) != nil || strings.Contains(o.BootID, " "):
		return o, errors.New("scheduler: the id of the host's start is not up to 64 bytes of plain text without blanks")
	case o.Lease < 3*time.Second:
		return o, errors.New("scheduler: a lease shorter than 3s could not be renewed in time")
	case o.Poll < 10*time.Millisecond:
		return o, errors.New("scheduler: polling more often than every 10ms would only load the database")
	case o.MaxRuns < 1 || o.MaxCrashes < 1:
		return o, errors.New("scheduler: there must be at least one run at a time, and one attempt")
	}
	for _, kind := range o.Kinds {
		if kind != Functions && kind != Jobs && kind != Commands {
			return o, fmt.Errorf("scheduler: %q is not a kind of schedules to run; use %s, %s, %s", kind, Functions, Jobs, Commands)
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

// New returns a Scheduler. It does not access the database.
func New(db *dialect.DB, opt Options) (*Scheduler, error) {
	opt, err := opt.filled()
	if err != nil {
		return nil, err
	}
	jobs, err := queue.New(db, queue.Options{Node: "scheduler", Logger: opt.Logger, Doorbell: opt.Doorbell})
	if err != nil {
		return nil, err
	}
	s := &Scheduler{
		db: db, opt: opt, jobs: jobs, owner: fmt.Sprintf("%s:%d:%s", opt.Node, os.Getpid(), strings.ToLower(rand.Text()[:8])),
		states: map[string]*laneState{}, asking: trouble.New(opt.Logger, "checking for cancelled runs"),
		booting: trouble.New(opt.Logger, "looking for schedules with @reboot"),
		running: map[int64]*execution{}, executors: make(chan struct{}, opt.MaxRuns), handlers: map[string]Func{},
		surplus: make(chan trimming, 100), chance: mathrand.Float64,
		aborted: make(chan struct{}), bell: make(chan struct{}, 1), left: make(chan struct{}, 1),
		requestTimeout: requestTimeout,
	}
	s.finisher.end = s.endTogether
	return s, nil
}

// Run executes what is due until ctx ends. Then it claims no more, gives running commands their
// Grace to end, stops those that do not, hands their runs back to the other daemons, and returns
// nil. It returns an error only if the tables are not those that this program needs. If the
// database is unreachable, it waits.
func (s *Scheduler) Run(ctx context.Context) error { return s.run(ctx, s.poll) }

// RunOnce executes what is due and what follows from it at once, and returns when all of it has
// ended. It is for host cron and timers. Work that is due later, such as a retry, is left to the
// next call. When ctx ends it stops as Run does.
func (s *Scheduler) RunOnce(ctx context.Context) error { return s.run(ctx, s.pollOnce) }

func (s *Scheduler) run(ctx context.Context, poll func(ctx, working context.Context)) error {
	if err := s.check(ctx); err != nil || ctx.Err() != nil {
		return err
	}
	// Finish and record runs that have begun, even after ctx has ended.
	working, stop := context.WithCancel(context.WithoutCancel(ctx))
	var helpers sync.WaitGroup
	for _, help := range []func(context.Context){s.keep, s.show, s.releaseRest, s.upkeep, s.listen, s.attend} {
		helpers.Go(func() { help(working) })
	}
	unwatch := context.AfterFunc(ctx, s.stopping.begin)
	poll(ctx, working)
	unwatch()
	s.apart.Wait()
	if ctx.Err() != nil {
		s.acquitPaused(working)
	}
	if n := s.busy(); n > 0 {
		s.opt.Logger.Info("stopping", "running", n, "grace", max(0, s.opt.Grace))
	}
	s.drain(stop)
	stop()
	helpers.Wait()
	s.flush(ctx)
	guardian.Dismiss()
	return nil
}

// check waits for the database and checks that the tables are those that this program needs.
func (s *Scheduler) check(ctx context.Context) error {
	trouble := trouble.New(s.opt.Logger, "checking the tables")
	for ctx.Err() == nil {
		err := sqlschema.Check(ctx, s.db)
		if err == nil {
			return nil
		}
		for _, wrong := range []error{sqlschema.ErrNewer, sqlschema.ErrOutdated, sqlschema.ErrTooOld, sqlschema.ErrMismatch} {
			if errors.Is(err, wrong) {
				return err
			}
		}
		pace.Sleep(ctx, trouble.Wait(err, 0))
	}
	return nil
}

// Node returns the name under which this daemon's runs are recorded.
func (s *Scheduler) Node() string { return s.owner }

// Abort ends all running commands at once and hands their runs back. Cancel Run's ctx first; Run
// then returns soon.
func (s *Scheduler) Abort() { s.abort.Do(func() { close(s.aborted) }) }

func (s *Scheduler) busy() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.running)
}

// drain gives the running commands their grace, then ends them. stop gives up on recording outcomes
// in a database that does not answer.
func (s *Scheduler) drain(stop context.CancelFunc) {
	ended := make(chan struct{})
	go func() { s.runs.Wait(); close(ended) }()
	select {
	case <-ended:
		return
	case <-s.aborted:
		s.findSuspects()
		s.each((*execution).kill)
	case <-time.After(max(0, s.opt.Grace)):
		s.findSuspects()
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

// longestGrace is the longest time that a running command may take from SIGTERM to SIGKILL.
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
