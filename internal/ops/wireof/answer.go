package wireof

import (
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/dbcron/dbcron/internal/plain"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/wire"
)

const (
	longestError = 3000 // bytes of an error to keep
	longestTime  = 40   // of a time in a message
)

// Outcome returns the outcome that a program reports of a job, in the form in which a handler returns it. It stores the
// result of a job that belongs to a group.
func Outcome(a *wire.Answer, d *queue.Delivery) error {
	why := errors.New("its worker gave no reason")
	if a.Error != nil && *a.Error != "" {
		why = errors.New(tail(*a.Error))
	}
	switch {
	case a.Dead:
		return queue.Bury(why)
	case a.Discard:
		return queue.Discard(why)
	case a.RetryAfter != "":
		after, err := plain.ParseDuration(a.RetryAfter)
		if err != nil || after < 0 {
			return fmt.Errorf("retry_after %.*q is no duration: %w", longestTime, a.RetryAfter, why)
		}
		return queue.RetryAfter(after, why)
	case a.Error != nil:
		return why
	}
	if len(a.Result) > 0 {
		return d.SetResult(a.Result)
	}
	return nil
}

// tail returns the end of an error.
func tail(text string) string {
	if len(text) <= longestError {
		return text
	}
	start := len(text) - longestError
	for start < len(text) && !utf8.RuneStart(text[start]) {
		start++
	}
	return "… " + text[start:]
}
