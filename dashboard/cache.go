package dashboard

import (
	"context"
	"sync"
	"time"

	"github.com/dbcron/dbcron/internal/instant"
)

const (
	cachedFor   = 5 * time.Second // for which what was read is shown, unless the cache says otherwise
	cachedShare = 20              // times what reading it took, so that many queues are counted more seldom
	cacheTime   = time.Minute     // for reading
)

// A cache keeps what takes a while to read, for all who look at it. One reads at a time, and
// goes on when a visitor does not wait for it any longer: the next one finds it.
type cache[T any] struct {
	// every, if not 0, is how often it is read. What is older than that, but not twice as old, is shown while it
	// is read anew in the background.
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

// get returns what was read, or reads it.
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
	if c.reading == r && r.err == nil { // else it may be from before what was done since
		c.value = r.value
		c.until = now.Add(max(cachedFor, c.every, cachedShare*now.Sub(began)))
	}
	if c.reading == r {
		c.reading = nil
	}
	close(r.done)
}

// drop has the next visitor read anew, after something was done.
func (c *cache[T]) drop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.until, c.reading = 0, nil
}
