// Package rig gives package queuetest access to internals of package queue, which sets these functions when
// it is initialized. What only tests need is thus not exported to all users of queues.
package rig

import (
	"context"
	"time"
)

// An Outcome is the result of an attempt at a job.
type Outcome struct {
	Delivery  any    // *queue.Delivery
	Verdict   string // done, failed, retry, snoozed, discarded or dead
	Err       error
	After     time.Duration // before the next attempt, if the handler has set it
	Stack     string        // of a panic
	Completed bool          // the handler has called CompleteTx
}

var (
	// Attempt runs the handlers of a *queue.Worker on jobs, a []queue.Job, in the caller's goroutine
	// and without a database.
	Attempt func(ctx context.Context, worker, jobs any, number int) ([]Outcome, error)

	// Drain does the ready and due jobs of a *queue.Worker's queues in the caller's goroutine, until
	// there are none or done returns false.
	Drain func(ctx context.Context, worker any, done func([]Outcome) bool) error

	// Advance makes the delayed jobs of a *queue.Client's database due earlier by a duration, and
	// returns their number.
	Advance func(ctx context.Context, client any, by time.Duration) (int64, error)
)
