// Package joblines reads the outcomes that programs in any language report of several jobs at once: the
// commands of worker exec --batch, and endpoints. Each gets its jobs as [wire.Delivery].
package joblines

import (
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/dbcron/dbcron/internal/duration"
	"github.com/dbcron/dbcron/queue"
)

// An Answer is an outcome reported by a program: an answer that has only the job's id means
// done.
type Answer struct {
	ID         string          `json:"id"`
	Error      *string         `json:"error"`
	RetryAfter string          `json:"retry_after"`
	Dead       bool            `json:"dead"`
	Discard    bool            `json:"discard"`
	Result     json.RawMessage `json:"result"`
}

const (
	longestError = 3000 // bytes of an error to keep
	longestTime  = 40   // of a time in a message
)

// Outcome returns the outcome in the form in which a handler returns it. It stores the result
// of a job that belongs to a group.
func (a *Answer) Outcome(d *queue.Delivery) error {
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
		after, err := duration.Parse(a.RetryAfter)
		if err != nil || after < 0 {
			return fmt.Errorf("retry_after %.*q is no duration: %w", longestTime, a.RetryAfter, why)
		}
		return queue.RetryAfter(after, why)
	case a.Error != nil:
		return why
	}
	if len(a.Result) > 0 && d.Group != 0 {
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
