// Package rig is how package queuetest gives a worker a [Task]. What only tests need is thus not
// exported to all users of queues.
package rig

import (
	"context"
	"time"
)

// A Task is what a worker does in its RunOnce instead of working on its own, in the caller's
// goroutine: it attempts the jobs, which are in no table, or drains its queues if there are none.
type Task struct {
	Jobs   any // a []queue.Job
	Number int // of the attempt

	// Done gets the outcomes of each attempt. A drain ends when it returns false.
	Done func([]Outcome) bool
}

// An Outcome is the result of an attempt at a job.
type Outcome struct {
	Delivery  any    // *queue.Delivery
	Verdict   string // done, failed, retry, snoozed, discarded or dead
	Err       error
	After     time.Duration // before the next attempt, if the handler has set it
	Stack     string        // of a panic
	Completed bool          // the handler has called CompleteTx
}

type key struct{}

// With returns a context that has a task, or none if it is nil.
func With(ctx context.Context, task *Task) context.Context {
	return context.WithValue(ctx, key{}, task)
}

// Of returns the task of a context, or nil.
func Of(ctx context.Context) *Task {
	task, _ := ctx.Value(key{}).(*Task)
	return task
}
