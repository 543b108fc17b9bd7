package client

import (
	"cmp"
	"errors"
	"fmt"
	"time"
)

// ErrLost is the cause with which a handler's context ends when its job is not this
// client's any more.
var ErrLost = errors.New("client: the job is somebody else's now")

// mostText is how many characters of an error are sent.
const mostText = 4000

// An outcome is a failure that says what is to become of the job.
type outcome struct {
	err           error
	after         time.Duration
	dead, discard bool
}

func (o *outcome) Error() string { return o.err.Error() }

// text is what is told of it, no longer than people read.
func (o *outcome) text() string {
	if r := []rune(o.Error()); len(r) > mostText {
		return string(r[:mostText-1]) + "…"
	}
	return cmp.Or(o.Error(), "failed")
}

func (o *outcome) Unwrap() error { return o.err }

// RetryAfter is an error of a handler whose job is tried again, not before so long from now.
func RetryAfter(d time.Duration, err error) error { return &outcome{err: filled(err), after: d} }

// Dead is an error of a handler whose job is not tried again, and is kept with the dead.
func Dead(err error) error { return &outcome{err: filled(err), dead: true} }

// Discard is an error of a handler whose job is not tried again, and leaves no trace.
func Discard(err error) error { return &outcome{err: filled(err), discard: true} }

func filled(err error) error {
	if err == nil {
		return errors.New("failed")
	}
	return err
}

// outcomeOf is what an error of a handler says.
func outcomeOf(err error) *outcome {
	var o *outcome
	if errors.As(err, &o) {
		return &outcome{err, o.after, o.dead, o.discard}
	}
	return &outcome{err: err}
}

// guarded calls a handler. A panic is a failure.
func guarded[T any](handle func() (T, error)) (result T, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return handle()
}
