package scheduler

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dbcron/dbcron/internal/duration"
)

// A Policy says what becomes of slots when not all goes as planned, and how
// long is kept what became of them. The zero value is the default policy.
type Policy struct {
	// Missed says what becomes of slots that have passed while no daemon could
	// run them: of several, "once" runs the newest, "all" runs all, oldest first
	// (at most the newest 100), and "skip" runs none. Default: once.
	Missed string

	// MissedWindow is how late a slot may still be run. Default: 1m with skip,
	// else any time.
	MissedWindow time.Duration

	// Overlap says what becomes of a slot that comes while the run before is
	// under way: "forbid" skips it, "allow" runs both at once, "queue" runs it
	// afterwards (at most 100 wait), and "replace" ends the run before and then
	// runs it. Default: forbid. All but allow never run two at a time.
	Overlap string

	// FirstRun says when a new schedule runs first: at its "next" slot, or
	// "now". Default: next.
	FirstRun string

	// MaxAttempts is how often a slot is tried whose work fails or takes too
	// long. Default: 1. Exit codes 126 and 127 are final: a command that is not
	// there will not be there in a minute. What a daemon's death cuts off is
	// tried again in any case: see Options.MaxCrashes.
	MaxAttempts int

	// The n-th retry comes after a random time of 50 to 100 % of RetryDelay ×
	// 2^(n-1), at most of RetryMaxDelay. Default: 10s and 1h.
	RetryDelay, RetryMaxDelay time.Duration

	// RetryPastNext lets retries go on when the next slot has come. Otherwise
	// that slot is the next attempt.
	RetryPastNext bool

	// Unrepeatable is for work that must not be begun twice. A run that its daemon
	// cannot see to its end, since it dies or is stopped, is lost then, for good: no
	// other daemon begins it again, and OnFailure is started. Failures are tried
	// again as MaxAttempts says.
	Unrepeatable bool

	Timeout   time.Duration // after which the work is ended, state timeout; default: none
	KillGrace time.Duration // from SIGTERM to SIGKILL; default: the daemon's

	// Jitter spreads what is due at the same time: a slot is run up to so much
	// later, never past the next slot, and always as much for a schedule's name
	// and slot. Default: none.
	Jitter time.Duration

	Starts, Ends time.Time // slots before and after these are none; default: no limits

	// MaxFailures is after how many slots in a row that failed the schedule is
	// given up: its state becomes failed. Default: never.
	MaxFailures int

	// KeepRuns and KeepFor limit the history: no more runs, and none that ended
	// longer ago. Default: 1000 and 30 days; negative: without limit.
	KeepRuns int
	KeepFor  time.Duration

	// OnSuccess and OnFailure name schedules that are started, for the same
	// slot, when a run of this one has ended well, or has failed for good.
	OnSuccess, OnFailure string

	// Notify says who is told when a slot has failed for good or was missed, when the schedule
	// is late or given up, and when it is well again: see Targets. Default: as the daemons
	// say; "none": nobody.
	Notify string
}

const (
	catchUpLimit = 100 // runs that may wait of one schedule
	skipWindow   = time.Minute

	defaultKeepRuns = 1000
	defaultKeepFor  = 30 * 24 * time.Hour
)

// filled returns the policy with the defaults filled in.
func (p Policy) filled() Policy {
	p.Missed = cmp.Or(p.Missed, "once")
	p.Overlap = cmp.Or(p.Overlap, "forbid")
	p.FirstRun = cmp.Or(p.FirstRun, "next")
	p.MaxAttempts = cmp.Or(p.MaxAttempts, 1)
	p.RetryDelay = cmp.Or(p.RetryDelay, 10*time.Second)
	p.RetryMaxDelay = cmp.Or(p.RetryMaxDelay, max(time.Hour, p.RetryDelay))
	p.KeepRuns = cmp.Or(p.KeepRuns, defaultKeepRuns)
	p.KeepFor = cmp.Or(p.KeepFor, defaultKeepFor)
	return p
}

// policyProblems tells what is wrong with a policy whose defaults are filled in.
func (p *Policy) policyProblems() (all problems) {
	all.word("missed", p.Missed, "skip", "once", "all")
	all.word("overlap", p.Overlap, "forbid", "allow", "queue", "replace")
	all.word("first_run", p.FirstRun, "next", "now")
	for _, d := range []struct {
		field string
		value time.Duration
	}{
		{"missed_window", p.MissedWindow},
		{"retry_delay", p.RetryDelay},
		{"retry_max_delay", p.RetryMaxDelay},
		{"timeout", p.Timeout},
		{"kill_grace", p.KillGrace},
		{"jitter", p.Jitter},
		{"keep_for", p.KeepFor},
	} {
		switch {
		case d.value < 0 && d.field != "keep_for":
			all.add(d.field, "%v is less than nothing", d.value)
		case d.value > duration.Longest:
			all.add(d.field, "%v is longer than 100 years", d.value)
		case d.value > 0 && d.value < time.Millisecond:
			all.add(d.field, "%v is less than a millisecond", d.value)
		}
	}
	for _, n := range []struct {
		field             string
		value, from, upTo int
	}{
		{"max_attempts", p.MaxAttempts, 1, 1000},
		{"max_failures", p.MaxFailures, 0, 1_000_000},
		{"keep_runs", p.KeepRuns, -1, 1_000_000},
	} {
		if n.value < n.from || n.value > n.upTo {
			all.add(n.field, "%d is not from %d to %d", n.value, n.from, n.upTo)
		}
	}
	if p.Missed == "all" && p.Overlap == "replace" {
		all.add("missed", "all runs every slot that was missed, and overlap replace ends all but the last; use once, or overlap queue")
	}
	if p.RetryMaxDelay < p.RetryDelay {
		all.add("retry_max_delay", "%v is less than the retry_delay of %v", p.RetryMaxDelay, p.RetryDelay)
	}
	if !p.Starts.IsZero() && !p.Ends.IsZero() && p.Ends.Before(p.Starts) {
		all.add("ends", "%s is before the start, %s", p.Ends.Format(time.RFC3339), p.Starts.Format(time.RFC3339))
	}
	for field, at := range map[string]time.Time{"starts": p.Starts, "ends": p.Ends} {
		if !at.IsZero() && (at.Year() < 1971 || at.Year() > 9998) {
			all.add(field, "%s is not in the years 1971 to 9998", at.Format(time.RFC3339))
		}
	}
	for field, name := range map[string]string{"on_success": p.OnSuccess, "on_failure": p.OnFailure} {
		if name != "" {
			if err := CheckName(name); err != nil {
				all.add(field, "%s", strings.TrimPrefix(err.Error(), ErrInvalid.Error()+": "))
			}
		}
	}
	if _, err := Targets(p.Notify); err != nil {
		all.add("notify", "%v", err)
	}
	slices.SortFunc(all, func(a, b Problem) int { return strings.Compare(a.Field, b.Field) })
	return all
}

// A Problem is one thing that is wrong with a schedule.
type Problem struct {
	Field string // as columns of the table and keys of schedule files are called
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
