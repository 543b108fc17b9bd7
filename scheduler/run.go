package scheduler

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/internal/guardian"
)

// An execution is a run whose command this daemon has started.
type execution struct {
	run
	process atomic.Pointer[guardian.Process]
	lost    atomic.Bool // the row is somebody else's: nothing is to be written
	stopped atomic.Bool // by us: the run is handed back
}

// end asks the command to stop, and kills it after its grace.
func (e *execution) end() { e.stop((*guardian.Process).Stop) }

// kill ends the command at once.
func (e *execution) kill() { e.stop((*guardian.Process).Kill) }

func (e *execution) stop(how func(*guardian.Process)) {
	e.stopped.Store(true)
	if p := e.process.Load(); p != nil {
		how(p)
	}
}

// start executes runs in goroutines of their own.
func (s *Scheduler) start(working context.Context, runs []run) {
	for _, r := range runs {
		e := &execution{run: r}
		s.mu.Lock()
		s.running[r.id] = e
		s.mu.Unlock()
		s.runs.Go(func() {
			s.record(working, e, s.execute(e))
			s.mu.Lock()
			delete(s.running, r.id)
			s.mu.Unlock()
			select {
			case s.freed <- struct{}{}:
			default:
			}
		})
	}
}

// execute runs the command and waits for its end.
func (s *Scheduler) execute(e *execution) guardian.Result {
	env := s.environment(&e.run)
	p, err := guardian.Start(guardian.Command{
		Name: e.schedule, Argv: []string{value(env, "SHELL", "/bin/sh"), "-c", e.command.command}, Env: env,
		Dir: s.opt.Dir, Input: e.command.stdin, Grace: s.opt.KillGrace, MaxOutput: s.opt.MaxOutput,
	}, e.deadline)
	if err != nil {
		return guardian.Result{Cause: guardian.NotStarted, ExitCode: -1, Err: err}
	}
	e.process.Store(p)
	if e.stopped.Load() { // meanwhile
		p.Kill()
	}
	return p.Wait()
}

// environment is what the daemon gives every command, with what the schedule
// sets, and what tells the command about its run.
func (s *Scheduler) environment(r *run) []string {
	set := map[string]string{}
	for _, pair := range s.opt.Env {
		name, value, _ := strings.Cut(pair, "=")
		set[name] = value
	}
	maps.Copy(set, r.command.env)
	maps.Copy(set, map[string]string{
		"DBCRON_SCHEDULE": r.schedule,
		"DBCRON_RUN_ID":   strconv.FormatInt(r.id, 10),
		"DBCRON_DUE":      r.due.Format(time.RFC3339),
		"DBCRON_ATTEMPT":  strconv.Itoa(r.attempt),
	})
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

// record writes what became of a run. It tries until the database takes it,
// and meanwhile the run is renewed, so that nobody does the work again.
func (s *Scheduler) record(working context.Context, e *execution, r guardian.Result) {
	if len(r.Survivors) > 0 {
		s.opt.Logger.Error("processes could not be killed", "schedule", e.schedule, "pids", r.Survivors)
	}
	state, why, back := outcome(e, r)
	stmt := finish
	if back {
		stmt = handBack
	}
	args := dialect.Args{
		"id": e.id, "claim": e.claim, "state": state, "left": "running",
		"error": why, "output": r.Output, "exit_code": exitCode(r),
	}
	if state == "retry" {
		args["left"] = "retry"
	}
	trouble := trouble{log: s.opt.Logger, what: "recording a run"}
	for !e.lost.Load() {
		n, err := s.db.Exec(working, stmt, args)
		if err == nil {
			e.lost.Store(n == 0)
			break
		}
		select {
		case <-working.Done():
			s.opt.Logger.Error("a run's outcome was not recorded", "schedule", e.schedule, "due", e.due, "state", state, "err", err)
			return
		case <-time.After(trouble.wait(err, 0)):
		}
	}
	if e.lost.Load() {
		state, why = "lost", "the lease had ended; another daemon has the run"
	}
	s.opt.Logger.Info("run", "schedule", e.schedule, "state", state, "due", e.due, "attempt", e.attempt,
		"id", e.id, "took", r.Took, "exit_code", r.ExitCode, "error", why, "output", Output(r.Output))
}

// outcome says what a result makes of a run, and whether another daemon should
// take it over: retry, if it was handed back; lost, like that of a daemon that
// died, if the command may have been the reason.
func outcome(e *execution, r guardian.Result) (state, why string, back bool) {
	switch r.Cause {
	case guardian.Exited:
		switch {
		case r.ExitCode == 0:
			return "ok", "", false
		case r.Signal != 0:
			return "failed", fmt.Sprintf("ended by signal %d (%s)", r.Signal, r.Signal), false
		}
		return "failed", fmt.Sprintf("exit code %d", r.ExitCode), false
	case guardian.NotStarted:
		if e.stopped.Load() {
			return "retry", "handed back: the daemon was stopped", true
		}
		if errors.Is(r.Err, guardian.ErrPast) {
			return "retry", "handed back: the lease had ended before the command was started", true
		}
		return "failed", reason(r.Err), false
	case guardian.Deadline:
		return "lost", "killed: the lease could not be renewed in time", true
	case guardian.Stopped, guardian.Killed:
		if !e.stopped.Load() { // somebody wants this command to end, not to begin again
			return "cancelled", "stopped by a signal to its guardian", false
		}
		return "retry", "handed back: the daemon was stopped", true
	default:
		return "lost", "killed: " + reason(r.Err), true
	}
}

func exitCode(r guardian.Result) any {
	if r.ExitCode < 0 {
		return nil
	}
	return r.ExitCode
}

// Output is the output of a run as a log handler gets it: a handler for people
// shows some of it, and others should not, since it may hold secrets.
type Output string

// String is what handlers show that do not know the type.
func (o Output) String() string { return fmt.Sprintf("%d bytes", len(o)) }

// MarshalText is String for handlers that encode.
func (o Output) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// keep renews the leases of all that runs, until ctx ends.
func (s *Scheduler) keep(ctx context.Context) {
	trouble := trouble{log: s.opt.Logger, what: "renewing leases"}
	for {
		wait := trouble.wait(s.renew(ctx), s.opt.Lease/3)
		select {
		case <-ctx.Done():
			return
		case <-time.After(min(wait, s.opt.Lease/3)):
		}
	}
}

// renew extends the leases of all runs in one statement. Only if that did not
// reach all of them does it ask for each, to find those that are lost.
func (s *Scheduler) renew(ctx context.Context) error {
	var held []*execution
	s.each(func(e *execution) {
		if !e.lost.Load() {
			held = append(held, e)
		}
	})
	for part := range slices.Chunk(held, batch) {
		all, err := s.renewed(ctx, part)
		if err != nil {
			return err
		}
		if all {
			continue
		}
		for i := range part {
			if _, err := s.renewed(ctx, part[i:i+1]); err != nil {
				return err
			}
		}
	}
	return nil
}

// renewed renews some leases and tells whether it was all of them. A single one
// that it does not reach is lost, and its command is killed.
func (s *Scheduler) renewed(ctx context.Context, part []*execution) (bool, error) {
	ids := make([]int64, len(part))
	for i, e := range part {
		ids[i] = e.id
	}
	ctx, cancel := context.WithTimeout(ctx, s.opt.Lease/3)
	defer cancel()
	deadline := s.deadline()
	n, err := s.db.Exec(ctx, renew, dialect.Args{"ids": ids, "owner": s.owner, "lease": s.opt.Lease.Microseconds()})
	if err != nil {
		return false, err
	}
	if n == int64(len(part)) {
		for _, e := range part {
			if p := e.process.Load(); p != nil {
				p.Extend(deadline)
			}
		}
		return true, nil
	}
	if len(part) == 1 && s.executing(part[0]) {
		part[0].lost.Store(true)
		part[0].kill()
	}
	return false, nil
}

// executing tells whether a run's outcome has yet to be recorded: a run that
// was recorded while its lease was being renewed is not lost.
func (s *Scheduler) executing(e *execution) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.running[e.id] == e
}
