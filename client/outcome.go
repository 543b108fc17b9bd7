package client

import (
	"cmp"
	"errors"
	"time"

	"github.com/dbcron/dbcron/internal/barrier"
)

// ErrLost is the cause with which a handler's context ends when its job no longer belongs to this
// client.
var ErrLost = errors.New("client: the job no longer belongs to this worker")

// maxText limits the error texts that are sent, in characters.
const maxText = 4000

// An outcome is a handler's error that says what happens to the job.
type outcome struct {
	err           error
	after         time.Duration
	dead, discard bool
}

func (o *outcome) Error() string { return o.err.Error() }

// text returns the error's text, cut to maxText.
func (o *outcome) text() string {
	if r := []rune(o.Error()); len(r) > maxText {
		return string(r[:maxText-1]) + "…"
	}
	return cmp.Or(o.Error(), "failed")
}

func (o *outcome) Unwrap() error { return o.err }

// RetryAfter returns a handler's error after which the job is retried, but not before d has passed.
func RetryAfter(d time.Duration, err error) error { return &outcome{err: filled(err), after: d} }

// Bury returns a handler's error after which the job is not retried, but kept as a dead letter.
func Bury(err error) error { return &outcome{err: filled(err), dead: true} }

// Discard returns a handler's error after which the job is deleted.
func Discard(err error) error { return &outcome{err: filled(err), discard: true} }

func filled(err error) error {
	if err == nil {
		return errors.New("failed")
	}
	return err
}

// outcomeOf returns what a handler's error says about the job. It reads the error: the outcome calls no
// code of the program's.
func outcomeOf(err error) *outcome {
	text, _, _ := barrier.Text(err)
	o, ok, _ := barrier.Find[*outcome](err)
	if !ok {
		o = &outcome{}
	}
	return &outcome{errors.New(text), o.after, o.dead, o.discard}
}
