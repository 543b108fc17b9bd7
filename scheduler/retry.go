package scheduler

import (
	"math/rand/v2"
	"time"

	"github.com/dbcron/dbcron/internal/guardian"
	"github.com/dbcron/dbcron/internal/pace"
)

// backoff returns the delay before the next attempt after the given number of failures. random is
// in [0, 1).
func (p *Policy) backoff(failures int, random float64) time.Duration {
	return pace.Delay(p.RetryDelay, p.RetryMaxDelay, failures, random)
}

// final reports whether a retry cannot help, because the command is missing or not executable.
func final(kind string, r guardian.Result) bool {
	return (kind == "shell" || kind == "argv") && (r.ExitCode == 126 || r.ExitCode == 127)
}

// retryAfter decides whether a failed run is retried and after what delay. If it is not although
// the policy allows another attempt, why gives the reason.
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
