package admin

import (
	"errors"

	"github.com/dbcron/dbcron/queue/internal/store"
)

// Errors that are those of package queue by the same names.
var (
	// ErrInvalid means that a setting or an argument cannot be: the error's text says what is
	// wrong with which field, and it is a [github.com/dbcron/dbcron/queue.InvalidError]. Nothing
	// was written.
	ErrInvalid = store.ErrInvalid

	// ErrNotFound means that there is no such queue, job, limit or route.
	ErrNotFound = store.ErrNotFound

	// ErrDeleted means that a queue is marked as deleted, and takes no jobs.
	ErrDeleted = store.ErrDeleted

	// ErrState means that a job's state does not allow what was asked: only a dead job
	// can be deleted, or one that is done and kept, and one that is ready or runs cannot be
	// retried.
	ErrState = store.ErrState
)

var (
	// ErrAmbiguous means that several jobs have an id, and which was meant is not clear.
	ErrAmbiguous = errors.New("queue: several jobs have this id")

	// ErrInUse means that a queue cannot be deleted, since it has jobs or a route leads
	// to it.
	ErrInUse = errors.New("queue: the queue is in use")
)
