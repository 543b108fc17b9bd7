package store

import (
	"errors"
	"fmt"
)

// Errors that both queue and queue/admin return, so that a program need not know which package
// an error comes from.
var (
	ErrInvalid  = errors.New("queue: invalid")
	ErrNotFound = errors.New("queue: not found")
	ErrDeleted  = errors.New("queue: the queue is deleted")
	ErrState    = errors.New("queue: the job's state does not allow that")
)

// An InvalidError is an [ErrInvalid] that names the invalid field.
type InvalidError struct {
	Field   string // the column's name
	Problem string // what is wrong
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
