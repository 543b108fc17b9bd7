package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/dbcron/dbcron/internal/barrier"
)

// An Enqueuer enqueues jobs, and returns the outcome of each.
type Enqueuer func(ctx context.Context, jobs []Job) ([]Enqueued, error)

// An EnqueueMiddleware wraps the enqueueing of jobs: see [Client.Use].
type EnqueueMiddleware func(next Enqueuer) Enqueuer

// Use adds middleware around everything that enqueues jobs with this client: Enqueue, EnqueueMany
// and EnqueueTx, the jobs of groups, and the copies of publications, but not the callbacks of
// groups. The first is outermost. The jobs belong to the caller, so a middleware changes them by
// passing others on; it may enqueue more or fewer, and returns what its caller gets. When the
// client retries a transaction, the middleware is called again. If it panics, the call returns an
// error, though jobs may have been enqueued before that. Call Use before anything is enqueued.
func (c *Client) Use(m ...EnqueueMiddleware) { c.middleware = append(c.middleware, m...) }

// around runs do, which enqueues jobs, inside the middleware.
func (c *Client) around(ctx context.Context, jobs []Job, do Enqueuer) (all []Enqueued, err error) {
	if len(c.middleware) == 0 {
		return do(ctx, jobs)
	}
	_, bad := barrier.Do(func() {
		for _, m := range slices.Backward(c.middleware) {
			do = m(do)
		}
		all, err = do(ctx, jobs)
	})
	if bad != nil {
		return nil, fmt.Errorf("queue: a middleware failed: %w", bad)
	}
	return all, err
}

// aroundOne is around for one job. do enqueues the job itself, and many the jobs that a middleware
// passes on instead.
func (c *Client) aroundOne(ctx context.Context, job Job, do func(context.Context, Job) (Enqueued, error), many Enqueuer) (Enqueued, error) {
	all, err := c.around(ctx, []Job{job}, func(ctx context.Context, jobs []Job) ([]Enqueued, error) {
		if len(jobs) != 1 {
			return many(ctx, jobs)
		}
		one, err := do(ctx, jobs[0])
		if one == (Enqueued{}) {
			return nil, err
		}
		return []Enqueued{one}, err
	})
	if len(all) == 0 {
		if err == nil {
			err = errors.New("queue: a middleware has enqueued no job")
		}
		return Enqueued{}, err
	}
	return all[0], err
}
