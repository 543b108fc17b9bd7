package wireof

import (
	"strconv"
	"time"

	"github.com/dbcron/dbcron/internal/setting"
	"github.com/dbcron/dbcron/scheduler"
	"github.com/dbcron/dbcron/wire"
)

// Schedule returns all of a schedule, also what may be secret.
func Schedule(s *scheduler.Schedule) wire.Schedule {
	w := wire.Schedule{
		Name: s.Name, Source: s.Source, Spec: s.Spec, State: s.State, Reason: text(s.Reason), Failures: s.Failures,
		Kind: s.Kind, Command: s.Command, Stdin: s.Stdin, Env: s.Env, Headers: s.Headers,
	}
	setting.Show(scheduler.Settings(), s, s.Work(), &w)
	if s.State == "active" { // otherwise it will not run
		w.Next = wire.At(s.Due)
	}
	return w
}

// Run returns a run, with its output.
func Run(r *scheduler.Run) wire.Run {
	w := wire.Run{
		ID: wire.ID(r.ID), Schedule: r.Schedule, Due: wire.At(r.Due), To: wire.At(r.To), Slots: r.Slots, Attempt: r.Attempt, Cause: r.Cause,
		State: r.State, By: r.By, Fence: strconv.FormatInt(r.Fence, 10), Next: wire.At(r.Next), Started: wire.At(r.Started),
		Finished: wire.At(r.Finished), Error: text(r.Error), Cancel: text(r.Cancel), Output: text(r.Output),
	}
	if r.ExitCode >= 0 && !r.Finished.IsZero() {
		w.ExitCode = &r.ExitCode
	}
	if !r.Started.IsZero() && !r.Finished.IsZero() {
		w.Took = new(Seconds(r.Finished.Sub(r.Started)))
	}
	return w
}

// Instants returns times as instants.
func Instants(all []time.Time) []wire.Instant {
	return Each(all, func(t *time.Time) wire.Instant { return wire.At(*t) })
}

// ScheduleOf is the inverse of [Schedule], as far as it goes.
func ScheduleOf(w *wire.Schedule) scheduler.Schedule {
	s := scheduler.Schedule{
		Name: w.Name, Source: w.Source, Spec: w.Spec, State: w.State, Reason: w.Reason, Failures: w.Failures,
		Kind: w.Kind, Command: w.Command, Stdin: w.Stdin, Env: w.Env, Headers: w.Headers, Due: w.Next.Time,
	}
	_, _ = setting.Apply(scheduler.Settings(), &s, w) // which was made from these settings
	return s
}

// RunOf is the inverse of [Run].
func RunOf(w *wire.Run) scheduler.Run {
	r := scheduler.Run{
		Schedule: w.Schedule, Due: w.Due.Time, To: w.To.Time, Slots: w.Slots, Attempt: w.Attempt, Cause: w.Cause, State: w.State, By: w.By,
		Next: w.Next.Time, Started: w.Started.Time, Finished: w.Finished.Time, ExitCode: -1, Error: w.Error, Cancel: w.Cancel, Output: w.Output,
	}
	r.ID, _ = strconv.ParseInt(w.ID, 10, 64)
	r.Fence, _ = strconv.ParseInt(w.Fence, 10, 64)
	if w.ExitCode != nil {
		r.ExitCode = *w.ExitCode
	}
	return r
}
