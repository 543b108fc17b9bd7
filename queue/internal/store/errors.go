package store

import (
	"errors"
	"fmt"
)

// Errors that packages queue and queue/admin return, so that a program need not know which of
// them has said so.
var (
	ErrInvalid  = errors.New("queue: invalid")
	ErrNotFound = errors.New("queue: not found")
	ErrDeleted  = errors.New("queue: the queue is deleted")
	ErrState    = errors.New("queue: the job's state does not allow that")
)

// An InvalidError is an [ErrInvalid] that tells which field it is about.
type InvalidError struct {
	Field   string // as columns are called
	Problem string // what is wrong with it
}

func (e *InvalidError) Error() string {
	return fmt.Sprintf("%v: %s: %s", ErrInvalid, e.Field, e.Problem)
}

// Unwrap returns ErrInvalid.
func (e *InvalidError) Unwrap() error { return ErrInvalid }

// Invalid returns an [InvalidError] about a field.
func Invalid(field, format string, args ...any) error {
	return &InvalidError{field, fmt.Sprintf(format, args...)}
}
