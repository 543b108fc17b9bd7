// Package joblines is the format in which programs in any language receive several jobs at once
// and report their outcomes: the commands of worker exec --batch, and endpoints. The fields are
// those of claims over HTTP.
package joblines

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"unicode/utf8"

	"github.com/dbcron/dbcron/internal/duration"
	"github.com/dbcron/dbcron/queue"
)

// A Job is a job as sent to a program.
type Job struct {
	ID            string          `json:"id"`
	Queue         string          `json:"queue"`
	Kind          string          `json:"kind"`
	Key           string          `json:"key,omitempty"`
	Payload       json.RawMessage `json:"payload,omitempty"`
	PayloadBase64 []byte          `json:"payload_base64,omitempty"`
	Attempt       int             `json:"attempt"`
	MaxAttempts   int             `json:"max_attempts"`
	Group         string          `json:"group,omitempty"`
	CallbackOf    string          `json:"callback_of,omitempty"`
	Trace         string          `json:"trace,omitempty"`
}

// Of returns the Job for a delivery.
func Of(d *queue.Delivery) Job {
	j := Job{
		ID: strconv.FormatInt(d.ID, 10), Queue: d.Queue, Kind: d.Kind, Key: d.Key, Attempt: d.Attempt, MaxAttempts: d.Attempts(),
		Group: idOrNone(d.Group), CallbackOf: idOrNone(d.Callback), Trace: d.Trace,
	}
	if d.Binary || !json.Valid(d.Payload) { // written by hand
		j.PayloadBase64 = d.Payload
	} else {
		j.Payload = d.Payload
	}
	return j
}

func idOrNone(id int64) string {
	if id == 0 {
		return ""
	}
	return strconv.FormatInt(id, 10)
}

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
