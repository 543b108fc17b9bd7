package scheduler

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/dbcron/dbcron/internal/guardian"
	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/plain"
)

// An activity is work in progress: a guarded process, or a task inside this one.
type activity interface {
	Extend(deadline instant.Instant)
	Stop() // asks it to end; it is killed after its grace
	Kill()
	Output() (text string, snapshot int)
	Wait() guardian.Result // returns when it has ended, and also when it should have and has not: see goesOn
	Done() <-chan struct{} // closed when it has ended
	Survivors() []int      // its processes that cannot be killed
}

// goesOn reports whether a result is of work that has not ended, though it should have.
func goesOn(r guardian.Result) bool {
	return errors.Is(r.Err, errUnfinished) || errors.Is(r.Err, guardian.ErrSurvivors)
}

// An execution is a run that this daemon has started.
type execution struct {
	run
	by       *Cause // the run that started it; nil: none
	mu       sync.Mutex
	activity activity
	stopped  stop // why this daemon ended it
	lost     bool // the row belongs to another daemon: write nothing
	recorded bool // the outcome was written together with the work
	shown    int  // the last snapshot of the output that was published
	until    instant.Instant
	looked   instant.Instant // when the lease was looked at before the work began
	begun    instant.Instant // when its work began; 0: it has not
	halted   chan struct{}   // closed when it is stopped
	left     chan struct{}   // closed when this daemon waits for it no longer
	unheard  string          // why its work should have ended by now, while it has not; "": it has, or is in time
	ahead    bool            // it was claimed ahead: see executors.go
}

func newExecution(r run) *execution {
	return &execution{run: r, until: r.deadline, halted: make(chan struct{}), left: make(chan struct{})}
}

// A stop is a reason why the daemon ends work.
type stop struct {
	cause stopCause
	why   string
}

type stopCause int

const (
	notStopped stopCause = iota
	drained              // the daemon stops: the run is handed back
	timedOut
	cancelled
	abandoned // the lease was lost, or the function did not return
)

// stopFor ends the work, gracefully or at once. The first reason wins.
func (e *execution) stopFor(s stop, kill bool) {
	e.mu.Lock()
	if e.stopped.cause == notStopped {
		e.stopped = s
		close(e.halted)
	}
	if s.cause == drained || s.cause == abandoned {
		e.leave()
	}
	work := e.activity
	e.mu.Unlock()
	switch {
	case work == nil: // attach will stop it
	case kill:
		work.Kill()
	default:
		work.Stop()
	}
}

// leave ends the wait for work that does not return. mu is held.
func (e *execution) leave() {
	select {
	case <-e.left:
	default:
		close(e.left)
	}
}

// end asks the work to stop and kills it after its grace; kill does so at once.
func (e *execution) end()  { e.stopFor(stop{cause: drained}, false) }
func (e *execution) kill() { e.stopFor(stop{cause: drained}, true) }

// attach registers work that has started, or stops it if a stop came in the meantime.
func (e *execution) attach(work activity) {
	e.mu.Lock()
	e.activity, e.begun = work, e.looked
	stopped, deadline := e.stopped.cause != notStopped, e.until
	e.mu.Unlock()
	work.Extend(deadline)
	if stopped {
		work.Kill()
	}
}

// extend moves the deadline of the work.
func (e *execution) extend(deadline instant.Instant) {
	e.mu.Lock()
	e.until = max(e.until, deadline)
	work := e.activity
	e.mu.Unlock()
	if work != nil {
		work.Extend(deadline)
	}
}

// lose gives up a run that another daemon has taken over.
func (e *execution) lose() {
	e.mu.Lock()
	e.lost = true
	e.mu.Unlock()
	e.stopFor(stop{cause: abandoned}, true)
}

func (e *execution) isLost() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.lost
}

func (e *execution) isRecorded() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.recorded
}

func (e *execution) why() stop {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.stopped
}

// start executes runs, each in its own goroutine.
func (s *Scheduler) start(working context.Context, runs []run) {
	for _, r := range runs {
		r.trace = s.traceOf(&r)
		e := newExecution(r)
		s.enter(e)
		s.runs.Go(func() {
			s.record(working, e, s.executeWhenFree(e))
			s.leave(e)
			s.wake()
		})
	}
}

// execute does the work and waits until it ends.
func (s *Scheduler) execute(e *execution) guardian.Result {
	work, err := s.begin(e)
	if err != nil {
		return guardian.Result{Cause: guardian.NotStarted, ExitCode: -1, Err: err}
	}
	if t := e.what.Timeout; t > 0 {
		timer := time.AfterFunc(t, func() {
			e.stopFor(stop{timedOut, "it took longer than " + plain.FormatDuration(t)}, false)
		})
		defer timer.Stop()
	}
	e.attach(work)
	if e.what.Stall > 0 {
		ended := make(chan struct{})
		defer close(ended)
		go e.watchProgress(work, e.what.Stall, ended)
	}
	r := work.Wait()
	if goesOn(r) {
		return s.outlast(e, work, r)
	}
	return r
}

// outlast waits for work that ignores that its time is over, or that it was cancelled: a function that does not
// return, or processes that this daemon may not kill. It cannot be ended from here, and while it goes on, its
// run does: it keeps its place and its lease, and the next slot and the next attempt wait for it, as they
// would if it were in time. The run says so. The wait ends with the work, with the lease, or with the daemon.
func (s *Scheduler) outlast(e *execution, work activity, r guardian.Result) guardian.Result {
	why := e.why()
	switch {
	case why.cause == drained || why.cause == abandoned:
		return r
	case why.cause != notStopped:
	case r.Cause == guardian.Deadline:
		why.why = "its lease could not be renewed in time"
	case r.Cause == guardian.Exited:
		why.why = "its command has ended"
	default:
		why.why = "it was told to end" // by a signal to its guardian
	}
	e.mu.Lock()
	e.unheard, e.shown = why.why, -1
	e.mu.Unlock()
	said := []any{"schedule", e.schedule, "id", e.id, "due", e.due, "attempt", e.attempt, "why", why.why + runsOn(work)}
	s.opt.Logger.Warn("work does not end though it was told to: its place is taken, and its schedule waits, until it does", said...)
	select {
	case <-work.Done():
		end := work.Wait()
		s.opt.Logger.Info("work that did not end has ended", "schedule", e.schedule, "id", e.id, "took", end.Took)
		if end.Cause = r.Cause; r.Cause != guardian.Exited {
			end.Err = nil // what it says of its end is not why
		}
		return end
	case <-e.left:
		return r
	}
}

// runsOn says what of the work goes on.
func runsOn(work activity) string {
	pids := work.Survivors()
	if len(pids) == 0 {
		return "; its work has not returned, and runs on"
	}
	return fmt.Sprintf("; it runs on, since SIGKILL does not end %s", plain.Pids(pids))
}

// watchProgress ends work whose output stands still, until it has ended.
func (e *execution) watchProgress(work activity, limit time.Duration, ended <-chan struct{}) {
	every := min(time.Second, limit/4)
	tick := time.NewTicker(every)
	defer tick.Stop()
	var watch instant.Watch[int]
	_, snapshot := work.Output()
	watch.Begin(instant.Now(), snapshot)
	for {
		select {
		case <-ended:
			return
		case <-tick.C:
			if _, snapshot := work.Output(); watch.Over(instant.Now(), every, limit, snapshot, false) {
				e.stopFor(stop{timedOut, "stalled: no output for " + plain.FormatDuration(limit)}, false)
				return
			}
		}
	}
}

// begin starts the work of a schedule. Work of every kind begins here, and none begins without a lease.
func (s *Scheduler) begin(e *execution) (activity, error) {
	s.findCause(e)
	until, err := e.lease()
	if err != nil {
		return nil, err
	}
	switch e.what.Kind {
	case "http":
		return s.request(e, until)
	case "sql":
		return s.statement(e, until), nil
	case "func":
		return s.call(e, until)
	}
	return s.command(e, until)
}

// errStoppedBefore is the result of a run that was stopped before it began.
var errStoppedBefore = errors.New("stopped before it was begun")

// lease returns when the lease ends, as last renewed. It returns an error if the run must not begin: this
// process may have been paused since the claim, and the run may be another daemon's by now.
func (e *execution) lease() (until instant.Instant, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.stopped.cause != notStopped {
		return 0, errStoppedBefore
	}
	if e.looked = instant.Now(); e.looked >= e.until {
		return 0, guardian.ErrPast
	}
	return e.until, nil
}

// command starts a process under a guardian.
func (s *Scheduler) command(e *execution, until instant.Instant) (activity, error) {
	env := s.environment(e)
	argv := []string{value(env, "SHELL", "/bin/sh"), "-c", e.what.Command}
	if e.what.Kind == "argv" {
		var err error
		if argv, err = parseArgv(e.what.Command); err != nil {
			return nil, err
		}
	}
	dir, home := s.directory(e)
	grace := s.opt.KillGrace
	if e.what.KillGrace > 0 {
		grace = e.what.KillGrace
	}
	var line func(string)
	if s.opt.Echo {
		log := s.opt.Logger.With("schedule", e.schedule, "id", e.id, "attempt", e.attempt)
		line = func(text string) { log.Info("output", "line", text) }
	}
	return guardian.Start(guardian.Command{
		Name: e.schedule, Argv: argv, Env: env, User: e.what.User,
		Dir: dir, Home: home, Input: e.input(), Grace: grace, Linger: e.what.Linger, MaxOutput: s.opt.MaxOutput,
		Line: line,
	}, until)
}

// directory returns where a command starts: in its own directory, or else in the home that its environment or its user
// has, as with cron, or else where this daemon's commands start.
func (s *Scheduler) directory(e *execution) (dir string, isHome bool) {
	if e.what.Dir != "" {
		return e.what.Dir, false
	}
	if dir := cmp.Or(e.what.Env["HOME"], homeOf(e.what.User)["HOME"]); dir != "" {
		if !filepath.IsAbs(dir) {
			dir = "/"
		}
		return dir, true
	}
	return s.opt.Dir, false
}

// environment returns a command's environment: the daemon's settings, the schedule's, and the
// variables that describe the run.
func (s *Scheduler) environment(e *execution) []string {
	set := map[string]string{}
	for _, pair := range s.opt.Env {
		name, value, _ := strings.Cut(pair, "=")
		set[name] = value
	}
	if e.what.User != "" {
		maps.Copy(set, homeOf(e.what.User))
	}
	if e.trace.Parent != "" {
		set["TRACEPARENT"] = e.trace.Parent
	}
	maps.Copy(set, e.what.Env)
	maps.Copy(set, map[string]string{
		"DBCRON_SCHEDULE": e.schedule,
		"DBCRON_RUN_ID":   strconv.FormatInt(e.id, 10),
		"DBCRON_DUE":      e.due.Format(time.RFC3339),
		"DBCRON_ATTEMPT":  strconv.Itoa(e.attempt),
		"DBCRON_FENCE":    strconv.FormatInt(e.fence, 10),
	})
	if e.by != nil {
		maps.Copy(set, e.by.variables())
	}
	env := make([]string, 0, len(set))
	for _, name := range slices.Sorted(maps.Keys(set)) {
		env = append(env, name+"="+set[name])
	}
	return env
}

func value(env []string, name, otherwise string) string {
	for _, pair := range env {
		if v, ok := strings.CutPrefix(pair, name+"="); ok && v != "" {
			return v
		}
	}
	return otherwise
}

// Output is the output of a run as passed to a log handler. It may hold secrets: only a handler
// for people should print part of it.
type Output string

// String returns the size only, for handlers that do not know the type.
func (o Output) String() string { return fmt.Sprintf("%d bytes", len(o)) }

// MarshalText is String for handlers that encode values.
func (o Output) MarshalText() ([]byte, error) { return []byte(o.String()), nil }
