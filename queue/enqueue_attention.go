package queue

import (
	"context"
	"sync"
	"time"

	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// attentionAge is how old a client's knowledge of waiting workers may be: see holder_waiting.go.
const attentionAge = 100 * time.Millisecond

// attention is a client's knowledge of waiting workers.
type attention struct {
	mu     sync.Mutex
	at     instant.Instant // when it was read; 0: never
	some   bool            // a worker waited then
	may    bool            // and might be notified
	asking bool
}

// someWait reports whether a worker may wait. If the client does not know, a goroutine finds out
// for later callers: a caller's transaction may have the last connection of the pool.
func (c *Client) someWait() bool {
	a := &c.attention
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.at != 0 && since(a.at) < attentionAge {
		return a.some && a.may
	}
	if !a.asking {
		a.asking = true
		go c.askWhoWaits()
	}
	return a.may
}

func (c *Client) askWhoWaits() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	at, n, may := instant.Now(), 0, 0
	err := c.db.Get(ctx, store.AnyWaits, nil, &n, &may)
	a := &c.attention
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asking = false
	if err == nil {
		a.at, a.some, a.may = at, n > 0, may == 1
	}
}
