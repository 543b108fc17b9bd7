package scheduler

import (
	"math/rand/v2"
	"time"

	"github.com/dbcron/dbcron/internal/backoff"
	"github.com/dbcron/dbcron/internal/guardian"
)

// backoff returns how long to wait before the attempt that follows so many that
// failed. random is in [0, 1).
func (p *Policy) backoff(failures int, random float64) time.Duration {
	return backoff.Delay(p.RetryDelay, p.RetryMaxDelay, failures, random)
}

// final tells whether trying again cannot help: the command is not there, or
// must not be executed.
func final(kind string, r guardian.Result) bool {
	return (kind == "shell" || kind == "argv") && (r.ExitCode == 126 || r.ExitCode == 127)
}

// retryAfter decides whether a run that failed is tried again, and after what
// time. If not although the policy would allow it, why says so.
func (c *candidate) retryAfter(e *execution, r guardian.Result) (after time.Duration, again bool, why string) {
	switch {
	case e.failures+1 >= c.MaxAttempts:
		return 0, false, ""
	case final(c.Kind, r):
		return 0, false, "; not tried again: that would not help"
	case c.stopped() && !e.asked():
		return 0, false, "; not tried again: the schedule is " + c.State
	}
	after = c.backoff(e.failures+1, rand.Float64())
	if next := c.nextExec; !c.RetryPastNext && c.State == "active" && !c.Due.IsZero() && !next.IsZero() && c.now.Add(after).After(next) {
		return 0, false, "; not tried again: the next slot comes before"
	}
	return after, true, ""
}
