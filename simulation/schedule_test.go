package simulation

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/scheduler"
)

// scheduleWork is a number of schedules of all policies, whose functions several daemons have, and which
// enqueue jobs. All of them end when the faults do.
type scheduleWork struct {
	given map[string]*simSchedule
	order []string
	lease time.Duration
}

// A simSchedule is a schedule, and when its function ran.
type simSchedule struct {
	scheduler.Schedule
	every   time.Duration
	runs    []*stretch
	open    int       // functions that run now
	stirred time.Time // when one last began or ended
}

// A stretch is the time in which a process ran a function.
type stretch struct {
	who      string
	id       int64
	due      time.Time
	fence    int64
	from, to time.Time
	err      error
	ended    bool // it has returned, and its process lived
}

func (s *scheduleWork) Claims() []string {
	return []string{
		"kill", "restart", "stop", "lose", "mute", "slow", "hangup", "down", "flap", "readonly", "clock", "a function is tried again",
		"a function fails", "a function's context ends", "a run is lost", "a run is handed back", "a slot is skipped", "a slot is missed",
		"a run is replaced", "a slot waits for its jitter", "a slot is later than it may be", "a history is cut", "the schema is of the next version", "a run is taken over whose function had just ended", "a run has waited for the one before", "a slot is tried on another daemon",
	}
}

func (s *scheduleWork) Begin(w *World) error {
	s.given = map[string]*simSchedule{}
	s.lease = time.Duration(w.Knob("lease", 3, 6, 30)) * time.Second
	ends := w.server.now().Add(time.Duration(w.minutes * float64(time.Minute)))
	for i := range w.Knob("schedules", 1, 3, 6, 12) {
		d := w.Dice("schedule", i)
		every := time.Duration(oneOf(d, 1, 2, 5, 10)) * time.Second
		one := &simSchedule{every: every, stirred: time.Now(), Schedule: scheduler.Schedule{ //nolint:forbidigo // virtual
			Name: fmt.Sprint("schedule", i), Spec: "@every " + every.String(), Kind: "func", Command: fmt.Sprint("schedule", i),
			Policy: scheduler.Policy{
				Missed: oneOf(d, "once", "all", "skip"), Overlap: oneOf(d, "forbid", "allow", "queue", "replace"),
				FirstRun: oneOf(d, "next", "now"), MaxAttempts: oneOf(d, 1, 1, 2, 5),
				RetryDelay: time.Second, RetryMaxDelay: 4 * time.Second, RetryPastNext: d.once(2), Ends: ends, KeepRuns: -1,
			},
		}}
		if d.once(4) {
			one.Kind, one.Command, one.Overlap, one.MaxAttempts = "job", "slot", "", 0
			one.Job = scheduler.JobOptions{Queue: "slots"}
		}
		if d.once(4) {
			one.MissedWindow = time.Duration(oneOf(d, 1, 3, 8)) * time.Second
		}
		if d.once(4) {
			one.Jitter = time.Duration(oneOf(d, 1, 5, 20)) * every / 5
		}
		if d.once(6) {
			one.KeepRuns = oneOf(d, 1, 3, 10)
		}
		if one.Overlap == "replace" && one.Missed == "all" {
			one.Missed = "once" // these two are refused together
		}
		if err := scheduler.Put(w.Free(), w.Operator, one.Schedule); err != nil {
			return err
		}
		s.given[one.Name] = one
		s.order = append(s.order, one.Name)
	}
	if _, err := queue.New(w.Operator, queue.Options{}); err != nil {
		return err
	}
	for i := range w.Knob("daemons", 1, 2, 3) {
		w.Start(fmt.Sprint("daemon-", i), s.serve)
	}
	return nil
}

// serve is a daemon's process.
func (s *scheduleWork) serve(p *Process) error {
	db, err := p.Open(oneOf(p.Dice, 4, 10))
	if err != nil {
		return err
	}
	daemon, err := scheduler.New(db, scheduler.Options{
		Node: p.Name, Lease: s.lease, Poll: oneOf(p.Dice, 200*time.Millisecond, time.Second), MaxRuns: oneOf(p.Dice, 2, 64),
		MaxCrashes: 100, Kinds: []string{scheduler.Functions, scheduler.Jobs}, Grace: oneOf(p.Dice, -1, time.Second, 30*time.Second), Logger: p.Log,
	})
	if err != nil {
		return err
	}
	for _, i := range p.Dice.Perm(len(s.order)) {
		name := s.order[i]
		one := s.given[name]
		err := daemon.Handle(name, func(ctx context.Context, run *scheduler.Running) error { return s.call(ctx, p, one, run) })
		if err != nil {
			return err
		}
	}
	return daemon.Run(p.ctx)
}

// call is a function's run.
func (s *scheduleWork) call(ctx context.Context, p *Process, one *simSchedule, run *scheduler.Running) error {
	if err := p.awake(context.Background(), nil); err != nil { // it stands still, or is dead
		return err
	}
	st := &stretch{who: p.who(), id: run.ID, due: run.Due, fence: run.Fence, from: time.Now()} //nolint:forbidigo // virtual
	p.Act(func() {
		for _, o := range one.runs {
			if o.due.Equal(run.Due) && o.who != st.who {
				p.w.Reached("a slot is tried on another daemon")
			}
		}
		if now := p.w.server.now(); run.Attempt == 1 && now.Before(run.Due) && !p.w.steppedLocked() {
			p.w.violate("early", about(one), "%s: run %d begins %v before its slot", one.Name, run.ID, run.Due.Sub(now))
		}
		one.runs = append(one.runs, st)
		one.stirred = st.from
		one.open++
		p.w.Done("functions")
		if run.Attempt > 1 {
			p.w.Reached("a function is tried again")
		}
	})
	p.Note("begins run %d of %s: %v, attempt %d, fence %d", run.ID, one.Name, run.Due.Format(time.TimeOnly), run.Attempt, run.Fence)
	d := p.w.Dice("run", one.Name, run.Due.Unix(), run.Attempt)
	took := d.about(one.every / 3)
	if d.once(8) {
		took = d.about(3 * one.every)
	}
	over := func() {
		p.w.mu.Lock()
		defer p.w.mu.Unlock()
		if st.to.IsZero() {
			st.to = time.Now() //nolint:forbidigo // virtual
		}
	}
	defer context.AfterFunc(ctx, over)() // a process that stands still does nothing after that
	if p.w.Over() {                      // what waits is worked off
		took = min(took, 100*time.Millisecond)
	}
	err := p.Sleep(ctx, took)
	if err == nil && d.once(6) && !p.w.Over() {
		err = errors.New("the function fails")
	}
	over()
	p.w.mu.Lock()
	st.err, st.ended = err, !p.isDead()
	one.stirred = time.Now() //nolint:forbidigo // virtual
	one.open--
	p.w.mu.Unlock()
	p.Act(func() {
		switch {
		case err != nil && ctx.Err() != nil:
			p.w.Reached("a function's context ends")
		case err != nil:
			p.w.Reached("a function fails")
		}
	})
	p.Note("ends run %d of %s: %v", run.ID, one.Name, err)
	return err
}

// noticeStarving looks for schedules of which no run begins any more, since each slot replaces the one before.
func (s *scheduleWork) noticeStarving(w *World) {
	quiet, now := w.Quiet(), w.server.now()
	for _, name := range s.order {
		one := s.given[name]
		patience := 3*one.every + s.lease + 10*time.Second
		if one.Overlap != "replace" || one.Kind != "func" || !now.Before(one.Ends) || quiet < patience || !w.Healthy("daemon", patience) {
			continue
		}
		w.mu.Lock()
		open, idle := one.open, time.Since(one.stirred)
		w.mu.Unlock()
		if open == 0 && idle > patience {
			w.Violate("starved", about(one), "%s has a slot every %v, a daemon is well, and no run of it has begun for %v", name, one.every, patience)
		}
	}
}

// Left says which schedules and runs have not ended.
func (s *scheduleWork) Left(w *World) string {
	var active, open int
	err := w.Operator.Pool().QueryRowContext(w.Free(), `SELECT (SELECT COUNT(*) FROM dbcron_schedule WHERE state = 'active'),
		(SELECT COUNT(*) FROM dbcron_run WHERE next_exec IS NOT NULL)`).Scan(&active, &open)
	if err != nil {
		return err.Error()
	}
	s.noticeStarving(w)
	var left []string
	if active > 0 {
		left = append(left, fmt.Sprint(active, " schedules have not ended"))
	}
	if open > 0 {
		left = append(left, fmt.Sprint(open, " runs have not ended"))
	}
	return strings.Join(left, "; ")
}
