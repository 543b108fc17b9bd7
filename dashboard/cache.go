package dashboard

import (
	"context"
	"sync"
	"time"

	"github.com/dbcron/dbcron/internal/instant"
)

const (
	cachedFor   = 5 * time.Second // how long a result is shown, unless the cache says otherwise
	cachedShare = 20              // or this multiple of the time that reading took, so that many queues are counted less often
	cacheTime   = time.Minute     // limit for reading
)

// A cache holds a result that takes a while to read, for all visitors. One visitor's request
// reads at a time. Reading continues even if that visitor leaves, and the next one gets the
// result.
type cache[T any] struct {
	// every, if not 0, is the interval between readings. An older result, up to twice that age,
	// is shown while a new one is read in the background.
	every time.Duration

	mu      sync.Mutex
	value   T
	until   instant.Instant
	reading *reading[T]
}

type reading[T any] struct {
	done  chan struct{}
	value T
	err   error
}

// get returns the result, and reads it if necessary.
func (c *cache[T]) get(ctx context.Context, read func(context.Context) (T, error)) (none T, err error) {
	c.mu.Lock()
	if c.until != 0 && instant.Now().Sub(c.until) < 0 {
		defer c.mu.Unlock()
		return c.value, nil
	}
	now := c.reading
	if now == nil {
		now = &reading[T]{done: make(chan struct{})}
		c.reading = now
		go c.read(context.WithoutCancel(ctx), now, read)
	}
	if c.until != 0 && instant.Now().Sub(c.until) < c.every {
		defer c.mu.Unlock()
		return c.value, nil
	}
	c.mu.Unlock()
	select {
	case <-now.done:
		return now.value, now.err
	case <-ctx.Done():
		return none, ctx.Err()
	}
}

func (c *cache[T]) read(ctx context.Context, r *reading[T], read func(context.Context) (T, error)) {
	ctx, cancel := context.WithTimeout(ctx, cacheTime)
	defer cancel()
	began := instant.Now()
	r.value, r.err = read(ctx)
	now := instant.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reading == r && r.err == nil { // otherwise it may predate the last action
		c.value = r.value
		c.until = now.Add(max(cachedFor, c.every, cachedShare*now.Sub(began)))
	}
	if c.reading == r {
		c.reading = nil
	}
	close(r.done)
}

// drop discards the result after an action, so that the next visitor reads a new one.
func (c *cache[T]) drop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.until, c.reading = 0, nil
}
