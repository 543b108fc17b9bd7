package scheduler

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// A Policy says what happens to slots that cannot run as planned, and how long the history keeps
// their runs. The zero value is the default policy.
type Policy struct {
	// Missed says what happens to slots that passed while no daemon could run
	// them: "once" runs the newest, "all" runs all of them, oldest first (at
	// most the newest 100), and "skip" runs none. Default: once.
	Missed string

	// MissedWindow is how late a slot may still be taken up. It may then wait for the run before it.
	// Default: 1m with skip, otherwise without limit.
	MissedWindow time.Duration

	// Overlap says what happens to a slot that is due while the previous run is
	// under way: "forbid" skips it, "allow" runs both at once, "queue" runs it
	// afterwards (at most 100 wait), and "replace" ends the previous run and then
	// runs it. Default: forbid. Only allow ever runs two at a time.
	Overlap string

	// FirstRun says when a new schedule runs first: at its "next" slot, or
	// "now". Default: next.
	FirstRun string

	// MaxAttempts is how often a slot is attempted if its work fails or times out.
	// Default: 1. Exit codes 126 and 127 are not retried: a missing command will
	// still be missing a minute later. Attempts cut off by a daemon's death are
	// retried regardless, up to Options.MaxCrashes.
	MaxAttempts int

	// RetryDelay and RetryMaxDelay set the backoff. The n-th retry follows after a
	// random 50 to 100 % of RetryDelay × 2^(n-1), or of RetryMaxDelay if that is
	// less. Default: 10s and 1h.
	RetryDelay, RetryMaxDelay time.Duration

	// RetryPastNext lets retries continue after the next slot is due. Otherwise
	// the next slot replaces them.
	RetryPastNext bool

	// Unrepeatable is for work that must not begin twice. If its daemon dies or stops before the
	// run has ended, the run is lost for good: no other daemon begins it again, and OnFailure is
	// started. Failures are retried as MaxAttempts says.
	Unrepeatable bool

	Timeout time.Duration // limit of an attempt, which then ends as timeout; default: none

	// Stall is how long a command may go without output before it is ended, with the state
	// timeout. It is then retried as after a timeout. Default: no limit; at least a second.
	Stall time.Duration

	KillGrace time.Duration // from SIGTERM to SIGKILL; default: the daemon's

	// Linger is how long what a command leaves in the background may run on, before it is killed. The run lasts as long, with its
	// lease, its timeout and its place before the next slot, and ends with the command's exit code. Default: 1s; negative: until
	// all of it has ended.
	Linger time.Duration

	// Jitter spreads runs that are due at the same time. Each slot is delayed by up to
	// this much, but never past the next slot. The delay depends only on the schedule's
	// name and the slot. Default: none.
	Jitter time.Duration

	Starts, Ends time.Time // no slots lie before and after these; default: no limits

	// MaxFailures is the number of consecutive failed slots after which the schedule's
	// state becomes failed and it stops running. Default: never.
	MaxFailures int

	// KeepRuns and KeepFor limit the history by the number of runs, of which all attempts at the oldest
	// slot stay, and by the time since they ended. Default: 1000 and 30 days; negative: no limit.
	KeepRuns int
	KeepFor  time.Duration

	// OnSuccess and OnFailure name schedules that are started, for the same slot, when a run
	// of this one has succeeded or has failed for good.
	OnSuccess, OnFailure string

	// Notify says who is notified when a slot has failed for good or was missed, when the schedule
	// is late or has been stopped after failures, and when it recovers: see Targets. Default: the
	// daemons' setting; "none": nobody.
	Notify string
}

const (
	catchUpLimit = 100 // runs of a schedule that may wait
	skipWindow   = time.Minute
)

// usual has the defaults.
var usual = Schedule{}.filled()

// policyProblems lists what is wrong with settings whose defaults are filled in: with each of them, and with some together.
func (s *Schedule) policyProblems() (all problems) {
	for i := range settings {
		set := &settings[i]
		switch {
		case set.Name == "dst" || set.Only == jobs: // see cronspec, and jobProblems
		case !set.Has(s.Work()) && set.Only != "":
			if !set.Ordinary(s) {
				all.add(set.Name, "is for %s, not for the kind %s", set.Only, s.Kind)
			}
		default:
			if text := set.Problem(s); text != "" {
				all.add(set.Name, "%s", text)
			}
		}
	}
	p := &s.Policy
	if p.Missed == "all" && p.Overlap == "replace" {
		all.add("missed", "all runs every slot that was missed, and overlap replace ends all but the last; use once, or overlap queue")
	}
	if p.RetryMaxDelay < p.RetryDelay {
		all.add("retry_max_delay", "%v is less than the retry_delay of %v", p.RetryMaxDelay, p.RetryDelay)
	}
	if !p.Starts.IsZero() && !p.Ends.IsZero() && p.Ends.Before(p.Starts) {
		all.add("ends", "%s is before the start, %s", p.Ends.Format(time.RFC3339), p.Starts.Format(time.RFC3339))
	}
	for field, name := range map[string]string{"on_success": p.OnSuccess, "on_failure": p.OnFailure} {
		if name != "" {
			if err := CheckName(name); err != nil {
				all.add(field, "%s", strings.TrimPrefix(err.Error(), ErrInvalid.Error()+": "))
			}
		}
	}
	slices.SortFunc(all, func(a, b Problem) int { return strings.Compare(a.Field, b.Field) })
	return all
}

// A Problem is one thing that is wrong with a schedule.
type Problem struct {
	Field string // the name of the column, which is also the key in schedule files
	Text  string // what is wrong, and what to do
}

type problems []Problem

func (all *problems) add(field, format string, args ...any) {
	*all = append(*all, Problem{field, fmt.Sprintf(format, args...)})
}

func (all *problems) word(field, value string, known ...string) {
	if !slices.Contains(known, value) {
		all.add(field, "%q is not known; use %s", value, strings.Join(known, ", "))
	}
}
