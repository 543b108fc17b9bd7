package queue

import (
	"context"
	"sync"
	"time"

	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// Where the database notifies, a transaction of a caller's that enqueues jobs tells the workers,
// so that nobody else has to after its commit. Only one transaction at a time can commit that has
// a notification, which halves what many insert side by side. So it sends one only if the worker
// that has the job's block waits: if it has said so, in its row of node, because nothing came for a
// while. A worker that has not said so looks often instead.
//
// The mark is read by the statement that inserts, unless the client has asked a moment ago whether
// any worker waits, and none did: so a busy one pays nothing for it. A worker looks once more when
// it has set its mark, and then at growing intervals. So only a job is not told whose statement was
// sent before the mark was set, or within that moment, and whose commit came after the look: the
// next one finds it.

const (

	// waitsAfter is how long nothing comes before a worker says that it waits.
	waitsAfter = 100 * time.Millisecond

	// leastLook is how often a worker looks at the most that hears notifications and does not wait,
	// and waitingLook how often one that waits does.
	leastLook   = 20 * time.Millisecond
	waitingLook = time.Second

	// attentionAge is how old what a client knows of waiting workers may be.
	attentionAge = 100 * time.Millisecond
)

// attention is what a client knows of workers that wait.
type attention struct {
	mu     sync.Mutex
	at     instant.Instant // when it was asked; 0: never
	some   bool            // one waited then
	may    bool            // and might be notified
	asking bool
}

// someWait reports whether a worker may wait. What it does not know a goroutine finds out, for those
// who come next: a caller's transaction may have the last connection of the pool.
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

// A waitingMark is how a worker waits that hears notifications. It belongs to the goroutine that polls.
type waitingMark struct {
	as    string          // the node under which it has said that it waits; empty: it has not
	begun int             // how many jobs had begun when that last changed
	since instant.Instant // when that was
}

// tend says that the worker waits when nothing came for a while, and that it does not when
// something did. found is whether the last look has found something. It reports whether the worker
// should look again at once.
func (p *waitingMark) tend(ctx context.Context, w *Worker, found bool) (again bool, err error) {
	w.mu.Lock()
	name, begun, hears := w.node, w.begun, w.hears != 0
	found = found || len(w.runnable) > 0 // what is ready has no place yet
	w.mu.Unlock()
	if w.db.Dialect.Listen == nil || !hears || name == "" {
		return false, nil
	}
	if found || begun != p.begun || p.since == 0 {
		p.begun, p.since = begun, instant.Now()
	}
	waits := since(p.since) >= waitsAfter
	if waits == (p.as == name) {
		return false, nil
	}
	at := map[bool]string{true: store.WaitsAt}[waits]
	if _, err := w.db.Exec(ctx, store.PutBell, sqlrun.Args{"node": name, "at": at, "key": ""}); err != nil {
		return false, err
	}
	if p.as = ""; waits {
		p.as = name
	}
	return waits, nil
}
