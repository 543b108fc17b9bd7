package admin

import (
	"errors"

	"github.com/dbcron/dbcron/queue/internal/store"
)

// Errors that are those of package queue by the same names.
var (
	// ErrInvalid means that a setting or an argument is invalid. The error's text names the
	// field and the problem; it is a [github.com/dbcron/dbcron/queue.InvalidError]. Nothing was
	// written.
	ErrInvalid = store.ErrInvalid

	// ErrNotFound means that there is no such queue, job, limit or route.
	ErrNotFound = store.ErrNotFound

	// ErrDeleted means that a queue is marked as deleted and accepts no jobs.
	ErrDeleted = store.ErrDeleted

	// ErrState means that a job's state does not allow the operation: only a dead job, or one
	// that is done and kept, can be deleted, and a ready or running job cannot be retried.
	ErrState = store.ErrState
)

var (
	// ErrAmbiguous means that several jobs have the id, and the call does not say which is
	// meant.
	ErrAmbiguous = errors.New("queue: several jobs have this id")

	// ErrInUse means that a queue cannot be deleted because it has jobs, or because a route
	// leads to it.
	ErrInUse = errors.New("queue: the queue is in use")
)
