// Package trouble logs lasting errors: when one begins, at intervals while it lasts, and when it ends. One
// line per attempt would fill the log, and a single line at the start would be missed.
package trouble

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/dbcron/dbcron/internal/instant"
)

// Every is the interval at which a lasting error is logged again.
const Every = time.Minute

// A Trouble tracks one operation that is tried repeatedly. It is not safe for concurrent use.
type Trouble struct {
	log  *slog.Logger
	what string

	failed      int // consecutive failed attempts
	began, told instant.Instant
	now         func() instant.Instant
}

// New returns a Trouble for the operation that what names, such as "renewing leases".
func New(log *slog.Logger, what string) *Trouble {
	return &Trouble{log: log, what: what, now: instant.Now}
}

// Note records the result of an attempt, and returns the number of consecutive failures. The end of a
// context counts neither as success nor as failure.
func (t *Trouble) Note(err error) int {
	switch {
	case err == nil && t.failed > 0:
		t.log.Info(t.what+": works again", "failed", t.failed, "for", t.now().Sub(t.began).Round(time.Millisecond))
		t.failed = 0
		forget(t)
	case err != nil && !errors.Is(err, context.Canceled):
		t.fail(err)
	}
	return t.failed
}

func (t *Trouble) fail(err error) {
	at := t.now()
	if t.failed++; t.failed == 1 {
		t.began = at
	}
	remember(t, at, err)
	switch {
	case t.failed == 1:
		t.log.Warn(t.what+" failed; will go on trying", "err", err)
	case at.Sub(t.told) >= Every:
		t.log.Warn(t.what+" still fails; will go on trying", "err", err, "failed", t.failed, "for", at.Sub(t.began).Round(time.Second))
	default:
		return
	}
	t.told = at
}

// Wait is Note for work that pauses between attempts. It returns the pause: normally, or 0.2 s to 3.2 s
// after failures.
func (t *Trouble) Wait(err error, normally time.Duration) time.Duration {
	if failed := t.Note(err); err != nil {
		return time.Duration(100<<min(max(failed, 1), 5)) * time.Millisecond
	}
	return normally
}
