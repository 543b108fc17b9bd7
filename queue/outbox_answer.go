package queue

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/dbcron/dbcron/internal/barrier"
)

// What a handler returns is an error of the program's. Its methods are called here, in the handler's
// goroutine, inside the barrier and without the worker's mutex. From then on there is only an answer.

// An answer is a handler's error as it was read. Its methods call no code of the program's.
type answer struct {
	text string
	is   []error // the errors of ours that it is
	from error   // the handler's error, for subscribers; the answer itself if one of its methods has panicked
}

func (a *answer) Error() string { return a.text }

// Is reports whether the handler's error is one of ours.
func (a *answer) Is(target error) bool { return slices.Contains(a.is, target) }

// answerOf reads an error that a program has returned. stack says where one of its methods has panicked.
func answerOf(err error) (stack string, as error) {
	if err == nil {
		return "", nil
	}
	a := &answer{from: err}
	text, stack, bad := barrier.Text(err)
	a.text = text
	var odd error
	for _, ours := range []error{ErrTimeout, ErrStalled} {
		is, panicked := barrier.Is(err, ours)
		if is {
			a.is = append(a.is, ours)
		}
		odd = cmp.Or(odd, panicked)
	}
	_, _, panicked := barrier.Find[*answer](err) // there is none: all of it is looked at
	if odd = cmp.Or(odd, panicked); odd != nil && bad == nil {
		a.text = fmt.Sprintf("%s (%v)", text, odd)
	}
	if bad != nil || odd != nil {
		a.from = a
	}
	r, chosen, _ := barrier.Find[*result](err)
	if chosen {
		return stack, &result{a, r.what, r.after}
	}
	return stack, a
}

// asReturned returns the error that a subscriber gets: the handler's, where it can be used.
func asReturned(err error) error {
	switch e := err.(type) { //nolint:errorlint // these are made here
	case *answer:
		return e.from
	case *result:
		if a, ok := e.error.(*answer); ok { //nolint:errorlint // see above
			return a.from
		}
	case *explanation:
		return &explanation{e.cause, asReturned(e.error)}
	}
	return err
}

// An explanation is an error with what may have caused it: the attempt's timeout, or that it made no
// progress.
type explanation struct {
	cause error
	error
}

func (e *explanation) Error() string   { return e.cause.Error() + ": " + e.error.Error() }
func (e *explanation) Unwrap() []error { return []error{e.cause, e.error} }
