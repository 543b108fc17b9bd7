// Package rig is a side door from package queuetest into package queue, which sets
// these functions when it is initialised: what only tests need is not exported to all
// who use queues.
package rig

import (
	"context"
	"time"
)

// An Outcome is what has become of an attempt at a job.
type Outcome struct {
	Delivery  any    // *queue.Delivery
	Verdict   string // done, failed, retry, snoozed, discarded or dead
	Err       error
	After     time.Duration // before the next attempt, if the handler has said so
	Stack     string        // of a panic
	Completed bool          // the handler has called CompleteTx
}

var (
	// Attempt has the handlers of a *queue.Worker try jobs, a []queue.Job, in the
	// caller's goroutine and without a database.
	Attempt func(ctx context.Context, worker, jobs any, number int) ([]Outcome, error)

	// Drain does what is ready or due in the queues of a *queue.Worker, in the
	// caller's goroutine, until nothing is or done returns false.
	Drain func(ctx context.Context, worker any, done func([]Outcome) bool) error

	// Advance lets the delayed jobs of a *queue.Client's database become due so much
	// earlier, and tells how many there are.
	Advance func(ctx context.Context, client any, by time.Duration) (int64, error)
)
