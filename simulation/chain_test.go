package simulation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dbcron/dbcron/internal/guardian"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/scheduler"
)

// chainWork is schedules that start one another or that run when a host has started, and an operator who starts,
// cancels and pauses them, runs past slots, and drains daemons.
type chainWork struct {
	scheduleWork
	boots     boots
	poll      time.Duration
	notice    time.Duration        // how long a cancellation, a pause or a drain may go unnoticed
	started   map[int64]string     // runs that were started by hand, and of what
	cancelled map[int64]time.Time  // runs, and since when they are
	paused    map[string]time.Time // schedules, and since when everybody knows
	drained   map[*Process]time.Time
	filled    map[time.Time]bool // slots that somebody was told will run
	filling   bool               // somebody got no answer
	bodies    []*body
}

// A body is a function that runs.
type body struct {
	p   *Process
	ctx context.Context
	id  int64
	of  string
}

const (
	chainFirst  = "first"  // has slots
	chainGood   = "good"   // after first, if that has succeeded
	chainBad    = "bad"    // if it has failed for good
	chainLast   = "last"   // a job, after good and after bad
	chainHand   = "hand"   // is started by hand
	chainPast   = "past"   // has slots before the world's beginning
	chainFrail  = "frail"  // must not begin twice
	chainBoot   = "boot"   // when a host has started, and fails at first
	chainDeadly = "deadly" // stops its daemon
)

func (c *chainWork) Claims() []string {
	return []string{
		"kill", "restart", "stop", "lose", "mute", "slow", "hangup", "deaf", "news is lost while a listener reconnects", "news goes down a dead path", "written, and the answer lost", "a chain goes on after a success",
		"a chain goes on after a failure", "a run is started by hand", "a run by hand is refused", "a running run is cancelled", "a schedule is paused",
		"a daemon is drained", "a host starts anew", "a host's start had its run already", "a run of a host's start is tried again", "a run pauses that stops its daemons", "past slots run", "a run that must not begin twice is lost", "a run has timed out", "a schedule is given up",
	}
}

func (c *chainWork) Begin(w *World) error {
	c.given, c.started, c.cancelled = map[string]*simSchedule{}, map[int64]string{}, map[int64]time.Time{}
	c.boots = boots{}
	c.paused, c.drained, c.filled = map[string]time.Time{}, map[*Process]time.Time{}, map[time.Time]bool{}
	c.poll = time.Duration(w.Knob("poll.ms", 1000, 1000, 200, 3000)) * time.Millisecond
	c.notice = 4*time.Second + c.poll
	c.lease = time.Duration(w.Knob("lease", 3, 6, 30)) * time.Second
	ends := w.server.now().Add(time.Duration(w.minutes * float64(time.Minute)))
	d := w.Dice("schedules")
	names := []string{chainLast, chainGood, chainBad, chainFirst, chainHand, chainPast, chainFrail, chainBoot}
	if w.Knob("deadly", 0, 0, 1) == 1 && w.minutes > 0.4 { // it has a slot every 20 seconds
		names = append(names, chainDeadly)
	}
	for _, name := range names {
		one := &simSchedule{every: 2 * time.Second, Schedule: scheduler.Schedule{
			Name: name, Spec: "@manual", Kind: "func", Command: name, Policy: scheduler.Policy{
				Overlap: oneOf(d, "queue", "allow"), MaxAttempts: oneOf(d, 1, 2, 3), RetryDelay: time.Second, RetryMaxDelay: 3 * time.Second,
				RetryPastNext: true, KeepRuns: -1, Timeout: oneOf(d, 0, 2*time.Second),
			},
		}}
		switch name {
		case chainFirst:
			one.every = time.Duration(oneOf(d, 2, 3, 5)) * time.Second
			one.Spec, one.OnSuccess, one.OnFailure, one.Ends = "@every "+one.every.String(), chainGood, chainBad, ends
			one.Overlap, one.Missed = oneOf(d, "queue", "allow", "forbid", "replace"), "once"
		case chainGood, chainBad:
			one.OnSuccess, one.OnFailure = chainLast, chainLast
		case chainLast:
			one.Kind, one.Command, one.Overlap, one.MaxAttempts, one.Timeout = "job", "slot", "", 0, 0
			one.Job = scheduler.JobOptions{Queue: "slots"}
		case chainHand:
			one.Overlap = oneOf(d, "queue", "forbid", "replace")
			one.MaxFailures = oneOf(d, 0, 2)
		case chainPast:
			one.Spec, one.MaxAttempts = "*/10 * * * *", 5
		case chainFrail:
			one.every = 2 * time.Second
			one.Spec, one.Ends, one.Unrepeatable, one.Overlap = "@every 2s", ends, true, "forbid"
		case chainDeadly:
			one.every = 20 * time.Second
			one.Spec, one.Ends, one.Timeout, one.MaxAttempts, one.Overlap = "@every 20s", ends, 0, 1, "forbid"
		case chainBoot: // a command: see runCommand
			one.Spec, one.Kind, one.Command, one.Timeout, one.MaxAttempts = "@reboot", "shell", "fails 1", 0, 3
		}
		if err := scheduler.Put(w.Free(), w.Operator, one.Schedule); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		c.given[name] = one
		c.order = append(c.order, name)
	}
	if _, err := queue.New(w.Operator, queue.Options{}); err != nil {
		return err
	}
	for i := range w.Knob("daemons", 1, 2, 3) {
		w.Start(fmt.Sprint("daemon-", i), c.serve)
	}
	w.StartOnce("operator-1", c.operate)
	return nil
}

// serve is a daemon's process.
func (c *chainWork) serve(p *Process) error {
	db, err := p.Open(oneOf(p.Dice, 4, 10))
	if err != nil {
		return err
	}
	daemon, err := scheduler.New(db, scheduler.Options{
		Node: p.Name, Lease: c.lease, Poll: c.poll, MaxRuns: oneOf(p.Dice, 2, 64), MaxCrashes: 100,
		Kinds: []string{scheduler.Functions, scheduler.Jobs, scheduler.Commands}, BootID: c.boots.of(p),
		Grace: oneOf(p.Dice, -1, time.Second, 30*time.Second), Logger: p.Log,
	})
	if err != nil {
		return err
	}
	for _, name := range c.order {
		one := c.given[name]
		if one.Kind != "func" {
			continue
		}
		err := daemon.Handle(name, func(ctx context.Context, run *scheduler.Running) error {
			b := &body{p, ctx, run.ID, name}
			p.Act(func() { c.begins(b, run) })
			defer func() {
				p.w.mu.Lock()
				defer p.w.mu.Unlock()
				c.bodies = slices.DeleteFunc(c.bodies, func(o *body) bool { return o == b })
			}()
			if name == chainDeadly && !p.w.Over() {
				p.Note("run %d of %s : its daemon is told to stop by it", run.ID, name)
				p.stop()
			}
			err := c.call(ctx, p, one, run)
			if err != nil && ctx.Err() != nil {
				return err
			}
			if name == chainHand && p.w.Dice("hand", run.ID).once(2) {
				err = errors.New("it fails")
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return daemon.Run(p.ctx)
}

// begins looks whether a function may begin. The world's mutex is held.
func (c *chainWork) begins(b *body, run *scheduler.Running) {
	c.bodies = append(c.bodies, b)
	p := b.p
	known := func(at time.Time, is bool) bool {
		return is && time.Since(at) > c.notice && p.sound(at) && !p.w.steppedLocked()
	}
	if at, is := c.drained[p]; known(at, is) {
		p.w.violate("drained", []string{b.of + " ", b.of + ":"}, "run %d of %s begins on %s, drained %v ago", run.ID, b.of, p.who(), time.Since(at))
	}
	if at, is := c.cancelled[run.ID]; is && time.Since(at) > c.notice && p.sound(at) {
		p.w.violate("cancelled", []string{b.of + " ", b.of + ":"}, "run %d of %s begins on %s, %v after it was cancelled", run.ID, b.of, p.who(), time.Since(at))
	}
	if at, is := c.paused[b.of]; run.Attempt == 1 && known(at, is) {
		p.w.violate("paused", []string{b.of + " ", b.of + ":"}, "run %d of %s begins, which was paused %v ago", run.ID, b.of, time.Since(at))
	}
	if run.Attempt > 1 && b.of == chainFirst {
		p.w.Reached("a function is tried again")
	}
}

// operate does what an operator does, until the last fault has ended.
func (c *chainWork) operate(p *Process) error {
	db, err := p.Open(2)
	if err != nil {
		return err
	}
	for { // whatever was paused or drained, by one who has died, too
		clear := func() (err error) {
			if s, err := scheduler.Get(p.ctx, db, chainHand); err == nil && s.State == "failed" {
				p.Act(func() { p.w.Reached("a schedule is given up") })
			}
			for _, name := range []string{chainFirst, chainHand} {
				err = errors.Join(err, scheduler.Resume(p.ctx, db, name))
			}
			for i := range p.w.knobs["daemons"] {
				if _, e := scheduler.Undrain(p.ctx, db, fmt.Sprint("daemon-", i)); !errors.Is(e, scheduler.ErrNoNode) {
					err = errors.Join(err, e)
				}
			}
			return err
		}
		p.Act(func() { c.drained, c.paused = map[*Process]time.Time{}, map[string]time.Time{} })
		for err := clear(); err != nil; err = clear() {
			p.Note("resumes: %v", err)
			if err := p.Sleep(p.ctx, time.Second); err != nil {
				return err
			}
		}
		if p.w.Over() {
			return nil
		}
		if err := p.Sleep(p.ctx, p.Dice.about(time.Second)); err != nil {
			return err
		}
		switch p.Dice.IntN(6) {
		case 0:
			err := scheduler.Pause(p.ctx, db, chainFirst, "for a while")
			p.Note("pauses %s : %v", chainFirst, err)
			p.Act(func() {
				if err == nil {
					p.w.Reached("a schedule is paused")
					c.paused[chainFirst] = time.Now() //nolint:forbidigo // virtual
				}
			})
			_ = p.Sleep(p.ctx, p.Dice.between(time.Second, 12*time.Second))
		case 1:
			c.drain(p)
		case 2:
			c.fill(p)
		case 3:
			c.cancel(p)
		default:
			r, err := scheduler.Start(p.ctx, db, chainHand)
			p.Note("starts %s : %d, %v", chainHand, r.ID, err)
			p.Act(func() {
				switch {
				case err == nil:
					c.started[r.ID] = chainHand
					p.w.Reached("a run is started by hand")
				case errors.Is(err, scheduler.ErrBusy):
					p.w.Reached("a run by hand is refused")
				}
			})
		}
	}
}

// drain drains a daemon for a while.
func (c *chainWork) drain(p *Process) {
	name := fmt.Sprint("daemon-", p.Dice.IntN(p.w.knobs["daemons"]))
	var now *Process
	p.Act(func() {
		for _, h := range p.w.hosts {
			if h.name == name {
				now = h.now
			}
		}
	})
	nodes, err := scheduler.Drain(p.ctx, p.w.Operator, name, "the operator")
	p.Note("drains %s: %d nodes, %v", name, len(nodes), err)
	p.Act(func() {
		if err == nil && len(nodes) == 1 && now != nil { // it may be that of an earlier life
			p.w.Reached("a daemon is drained")
			if time.Since(now.began) > 5*time.Second {
				c.drained[now] = time.Now() //nolint:forbidigo // virtual
			}
		}
	})
	_ = p.Sleep(p.ctx, p.Dice.between(time.Second, 12*time.Second))
}

// fill runs past slots.
func (c *chainWork) fill(p *Process) {
	begin := time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC).Add(time.Duration(p.Dice.IntN(40)) * 10 * time.Minute)
	p.Act(func() { c.filling = true })
	b, err := scheduler.Backfill(p.ctx, p.w.Operator, chainPast, begin, begin.Add(time.Duration(p.Dice.IntN(5))*10*time.Minute), false)
	p.Note("runs the past of %s : %d slots, %v", chainPast, len(b.Slots), err)
	p.Act(func() {
		c.filling = false
		for _, slot := range b.Slots {
			p.w.Reached("past slots run")
			c.filled[slot.UTC()] = true
		}
	})
}

// cancel cancels a run that is at work.
func (c *chainWork) cancel(p *Process) {
	var id int64
	p.Act(func() {
		if len(c.bodies) > 0 {
			id = c.bodies[p.Dice.IntN(len(c.bodies))].id
		}
	})
	if id == 0 {
		return
	}
	r, err := scheduler.Cancel(p.ctx, p.w.Operator, id, "the operator")
	p.Note("cancels run %d of %s : it was %s, %v", id, r.Schedule, r.State, err)
	p.Act(func() {
		if err == nil {
			c.cancelled[id] = time.Now() //nolint:forbidigo // virtual
			if r.State == "running" {
				p.w.Reached("a running run is cancelled")
			}
		}
	})
}

// Left says what has not ended, and looks for functions that go on although they were cancelled.
func (c *chainWork) Left(w *World) string {
	w.mu.Lock()
	for _, b := range c.bodies {
		if at, is := c.cancelled[b.id]; is && time.Since(at) > c.notice && b.ctx.Err() == nil && b.p.sound(at) {
			w.violate("deaf", []string{b.of + " ", b.of + ":"}, "run %d of %s goes on on %s, %v after it was cancelled", b.id, b.of, b.p.who(), time.Since(at))
		}
	}
	c.boots.look(w)
	w.mu.Unlock()
	if err := c.boots.forget(w); err != nil {
		return err.Error()
	}
	var active, open int
	err := w.Operator.Pool().QueryRowContext(w.Free(), `SELECT (SELECT COUNT(*) FROM dbcron_schedule WHERE state = 'active' AND name IN ('first', 'frail')),
		(SELECT COUNT(*) FROM dbcron_run WHERE next_exec IS NOT NULL)`).Scan(&active, &open)
	if err != nil {
		return err.Error()
	}
	left := leftPrograms(w)
	if active > 0 {
		left = append(left, fmt.Sprint(active, " schedules have not ended"))
	}
	if open > 0 {
		left = append(left, fmt.Sprint(open, " runs have not ended"))
	}
	return strings.Join(left, "; ")
}

// Check accounts for runs, and for what they have started.
func (c *chainWork) Check(w *World) error {
	byDue := map[string]map[time.Time][]scheduler.Run{}
	all := map[int64]scheduler.Run{}
	for _, name := range c.order {
		one := c.given[name]
		runs, err := scheduler.History(w.Free(), w.Operator, name, 1_000_000)
		if err != nil {
			return err
		}
		slices.SortFunc(runs, func(a, b scheduler.Run) int { return a.Due.Compare(b.Due)*1000 + a.Attempt - b.Attempt })
		byDue[name] = map[time.Time][]scheduler.Run{}
		for _, r := range runs {
			w.mu.Lock()
			w.done["runs "+r.State]++
			w.mu.Unlock()
			all[r.ID] = r
			byDue[name][r.Due.UTC()] = append(byDue[name][r.Due.UTC()], r)
		}
		if name == chainDeadly {
			c.checkStops(w, runs)
		}
		if one.Kind == "func" {
			c.checkFunctions(w, one, runs)
			c.checkOverlap(w, one)
		}
		for due, some := range byDue[name] {
			c.checkAttempts(w, one, due, some)
		}
	}
	if err := c.boots.check(w); err != nil {
		return err
	}
	c.checkStarts(w, byDue, chainGood, chainFirst, "ok")
	c.checkStarts(w, byDue, chainBad, chainFirst, "failed", "timeout")
	for id, name := range c.started {
		if r := all[id]; r.ID == 0 || r.State == "waiting" || r.State == "running" {
			w.Violate("lost", about(c.given[name]), "run %d of %s was started by hand, and is %q", id, name, r.State)
		}
	}
	for due := range c.filled {
		if some := byDue[chainPast][due]; len(some) == 0 {
			w.Violate("no outcome", about(c.given[chainPast]), "the past slot %v was to run, and has no run", due)
		}
	}
	for due, some := range byDue[chainFrail] {
		begun := 0
		for _, st := range c.given[chainFrail].runs {
			if st.due.Equal(due) {
				begun++
			}
		}
		for _, r := range some {
			if r.State == "lost" {
				w.count("a run that must not begin twice is lost")
				if r.Attempt != len(some) {
					w.Violate("doubled", about(c.given[chainFrail]), "slot %v was lost at attempt %d, and has %d", due, r.Attempt, len(some))
				}
			}
		}
	}
	s, err := scheduler.Get(w.Free(), w.Operator, chainHand)
	if err == nil && s.State == "failed" {
		w.count("a schedule is given up")
	}
	return err
}

// checkStops looks whether a run pauses that has stopped its daemon three times in a row: for two minutes, or until a
// daemon is stopped without it, a minute later at the earliest.
func (c *chainWork) checkStops(w *World, runs []scheduler.Run) {
	begun := map[int64]*stretch{}
	for _, st := range c.given[chainDeadly].runs {
		begun[st.id] = st
	}
	var last *stretch
	stops := 0
	for i, r := range runs {
		st := begun[r.ID]
		if i > 0 && !r.Due.Equal(runs[i-1].Due) {
			stops = 0
		}
		if stops >= 3 && st != nil && !w.Stepped() {
			w.count("a run pauses that stops its daemons")
			if pause := st.from.Sub(last.to); pause < 59*time.Second {
				w.Violate("stops", about(c.given[chainDeadly]), "attempt %d at slot %v begins %v after the one before, and %d daemons in a row were stopped by it",
					r.Attempt, r.Due, pause, stops)
			}
		}
		if r.State != "retry" || st == nil {
			stops = 0
			continue
		}
		stops, last = stops+1, st
	}
}

// checkAttempts looks at the attempts at a slot: the last one has ended, and the others were followed. Whoever runs
// the past again runs what is not ok.
func (c *chainWork) checkAttempts(w *World, one *simSchedule, due time.Time, some []scheduler.Run) {
	for i, r := range some {
		last := i == len(some)-1
		switch r.State {
		case "timeout":
			w.count("a run has timed out")
		case "waiting", "running":
			w.Violate("no outcome", about(one), "%s: attempt %d at slot %v is %s", one.Name, r.Attempt, due, r.State)
		}
		switch {
		case last && r.State == "lost" && one.Name == chainFirst && strings.HasPrefix(r.Error, "killed: "):
			// Its daemon has said so before others saw that the schedule, which the operator pauses, is paused.
		case last && (r.State == "retry" || r.State == "lost" && !one.Unrepeatable && !strings.HasSuffix(r.Error, "the schedule is paused, so it is not tried again")):
			w.Violate("no outcome", about(one), "%s: the last attempt at slot %v is %s", one.Name, due, r.State)
		case !last && (r.State == "ok" || r.Cause != "backfill" && slices.Contains([]string{"skipped", "missed", "cancelled"}, r.State)) && some[i+1].Cause == r.Cause:
			w.Violate("two outcomes", about(one), "%s: attempt %d at slot %v is %s, and attempt %d %s", one.Name, r.Attempt, due, r.State, some[i+1].Attempt, some[i+1].State)
		case !last && r.Attempt == some[i+1].Attempt:
			w.Violate("two outcomes", about(one), "%s: slot %v has attempt %d twice", one.Name, due, r.Attempt)
		}
	}
}

// checkStarts looks whether each slot of a schedule that ended in one of some states has started another one,
// and nothing else has.
func (c *chainWork) checkStarts(w *World, byDue map[string]map[time.Time][]scheduler.Run, started, by string, states ...string) {
	for due, some := range byDue[by] {
		last := some[len(some)-1]
		n := 0
		for _, r := range byDue[started][due] {
			if r.Cause == "chain" && r.Attempt == 1 {
				n++
			}
		}
		want := 0
		if slices.Contains(states, last.State) {
			want = 1
			w.count(map[bool]string{true: "a chain goes on after a success", false: "a chain goes on after a failure"}[states[0] == "ok"])
		}
		if n != want {
			w.Violate("chain", append(about(c.given[by]), about(c.given[started])...), "%s: slot %v is %s, and has started %s %d times", by, due, last.State, started, n)
		}
	}
}

// runCommand is what commands do in virtual time: "fails N" fails up to the Nth attempt.
func runCommand(c guardian.Command) guardian.Result {
	attempt, until := 0, 0
	for _, set := range c.Env {
		_, _ = fmt.Sscanf(set, "DBCRON_ATTEMPT=%d", &attempt)
	}
	_, _ = fmt.Sscanf(c.Argv[len(c.Argv)-1], "fails %d", &until)
	if attempt <= until {
		return guardian.Result{Cause: guardian.Exited, ExitCode: 1}
	}
	return guardian.Result{Cause: guardian.Exited}
}
