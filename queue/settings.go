package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// queue returns a queue's settings, at most a moment old, and creates the queue if there is none.
func (c *Client) queue(ctx context.Context, name string) (*store.Queue, error) {
	return c.queueAt(ctx, name, instant.Now())
}

// queueAt is queue for callers that know the current instant.
func (c *Client) queueAt(ctx context.Context, name string, at instant.Instant) (*store.Queue, error) {
	c.mu.Lock()
	q := c.queues[name]
	c.mu.Unlock()
	if q != nil && c.knows(at, q.At) {
		return q, nil
	}
	q, err := c.read(ctx, name)
	if errors.Is(err, ErrNotFound) {
		if err = c.create(ctx, name, c.opt.Blocks); err == nil {
			q, err = c.read(ctx, name)
		}
	}
	return q, err
}

// queuesNamed reads the settings of some queues, and makes those that there are not.
func (c *Client) queuesNamed(ctx context.Context, names []string) (map[string]*store.Queue, error) {
	found := map[string]*store.Queue{}
	read := func(names []string) (lacking []string, err error) {
		at := instant.Now()
		for part := range slices.Chunk(names, maxSurveyed) {
			some, err := store.SelectQueues(ctx, &c.dbOf(ctx).Session, store.GetNamed, sqlrun.Args{"names": part})
			if err != nil {
				return nil, err
			}
			for _, q := range some {
				if q.At = at; q.Blocks > 0 {
					found[q.Name] = q
					c.remember(q)
				}
			}
			for _, name := range part {
				if found[name] == nil {
					lacking = append(lacking, name)
				}
			}
		}
		return lacking, nil
	}
	lacking, err := read(names)
	if err != nil || len(lacking) == 0 {
		return found, err
	}
	for part := range slices.Chunk(lacking, maxMade) {
		err := c.db.ShortTx(ctx, func(ctx context.Context, tx *sqlrun.Session) error {
			return store.MakeQueues(ctx, tx, part, c.opt.Blocks, false)
		})
		if err != nil {
			return nil, err
		}
	}
	if lacking, err = read(lacking); err == nil && len(lacking) > 0 {
		err = fmt.Errorf("%w: queue %q", ErrNotFound, lacking[0])
	}
	return found, err
}

// maxMade is how many queues a transaction makes.
const maxMade = 100

// knows reports whether what was read at one instant is still usable at another: it is recent, and
// nobody in this process has changed it.
func (c *Client) knows(at, read instant.Instant) bool {
	return at.Sub(read) < store.SettingsAge && c.bells.hub.Knows(read)
}

// read reads a queue's settings, and remembers them.
func (c *Client) read(ctx context.Context, name string) (*store.Queue, error) {
	q, err := c.readOn(ctx, &c.dbOf(ctx).Session, name)
	if err != nil {
		return nil, err
	}
	c.remember(q)
	return q, nil
}

// remember stores settings in memory. Of two concurrent reads, the later one counts.
func (c *Client) remember(q *store.Queue) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if was := c.queues[q.Name]; was == nil || was.At <= q.At {
		c.queues[q.Name] = q
	}
}

func (c *Client) readOn(ctx context.Context, on *sqlrun.Session, name string) (*store.Queue, error) {
	return store.ReadQueue(ctx, on, store.GetQueue, name)
}

func (c *Client) blocks(ctx context.Context, queue int) ([]store.BlockRow, error) {
	return store.Blocks(ctx, &c.dbOf(ctx).Session, queue)
}

// cmpName returns the queue that a name means.
func cmpName(queue string) string { return cmp.Or(queue, store.DefaultQueue) }

// create creates a queue with its blocks; concurrent creators share the result.
func (c *Client) create(ctx context.Context, name string, n int) error {
	return c.dbOf(ctx).ShortTx(ctx, func(ctx context.Context, tx *sqlrun.Session) error { return store.MakeQueue(ctx, tx, name, n, false) })
}

// Options adjusts a Client. The zero value is ready to use.
type Options struct {
	Node string // the readable part of this process's name in the tables; default: the host's name
	// RetryFor is how long a call of Enqueue, EnqueueMany and their like is retried while the database cannot be reached, or takes no
	// writes, and nothing has been enqueued, if its context has no deadline; default: a minute. With a deadline it is
	// retried until then. Negative: not at all, with a deadline or without.
	RetryFor time.Duration

	Blocks int          // of queues that it creates: how many workers can share one; default: 16
	Logger *slog.Logger // default: slog.Default()

	// Version is the program's version. Its workers' rows show up to 64 bytes of it; empty means
	// none.
	Version string

	// LeaseLost is called, with the reason, when a worker of the client has lost its lease: for
	// metrics. It should return at once.
	LeaseLost func(why string)

	// Doorbell is an address of this host, with a port or 0 for any, such as 10.0.0.7:0. Other
	// processes send to it when they enqueue jobs for this client's workers, and this client
	// sends to theirs. A message is one UDP datagram that names the queues to read. It is used
	// only where the database cannot notify, on MySQL and SQLite; empty means none, and workers
	// poll.
	Doorbell string
}

// routes is a snapshot of all routes, which choose the queue of jobs that name none. Like the settings of queues, a
// producer's routes are at most two seconds old, so they cost its jobs nothing.
type routes struct {
	of map[string]string
	at instant.Instant
}

func (r *routes) queue(kind string) string { return store.RouteOf(r.of, kind) }

// readRoutes reads all routes. It remembers them, except in a transaction, which may be rolled
// back. Of two concurrent reads, the later one counts.
func (c *Client) readRoutes(ctx context.Context, tx *sqlrun.Session) (*routes, error) {
	at := instant.Now()
	all, err := store.RoutesByKind(ctx, cmp.Or(tx, &c.dbOf(ctx).Session))
	if err != nil {
		return nil, err
	}
	r := &routes{of: all, at: at}
	if tx != nil {
		return r, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.routes == nil || c.routes.at <= r.at {
		c.routes = r
	}
	return r, nil
}
