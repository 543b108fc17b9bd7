package queue

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/internal/instant"
)

// A Client enqueues jobs, makes workers and looks after queues. It is safe for
// concurrent use. A program needs one for a database.
type Client struct {
	db    *dialect.DB
	opt   Options
	clock clock
	out   sender
	bells bells

	mu     sync.Mutex
	queues map[string]*Queue
	routes *routes
}

// New returns a Client. It does not touch the database.
func New(db *dialect.DB, opt Options) (*Client, error) {
	if opt.Node == "" {
		opt.Node, _ = os.Hostname() // without one it is called queue
		opt.Node = cmp.Or(opt.Node, "queue")
	}
	opt.Blocks = cmp.Or(opt.Blocks, 16)
	if opt.Logger == nil {
		opt.Logger = slog.Default()
	}
	if err := dialect.CheckName(opt.Node); err != nil || len(opt.Node) > 100 {
		return nil, invalid("node", "use up to 100 bytes: %v", err)
	}
	if opt.Blocks < 1 || opt.Blocks > 1000 {
		return nil, invalid("blocks", "%d is not 1 to 1000", opt.Blocks)
	}
	if opt.Doorbell != "" {
		if err := checkDoorbell(opt.Doorbell); err != nil {
			return nil, err
		}
	}
	c := &Client{db: db, opt: opt, queues: map[string]*Queue{}}
	c.out.client = c
	c.bells.init(c)
	return c, nil
}

// Flush waits until the workers of other processes have been told of the jobs that
// were enqueued: for programs that end right after. They would find them in any case.
func (c *Client) Flush(ctx context.Context) error { return c.bells.flush(ctx) }

// Now returns the time by the database's clock, as it was read last and as much as has passed
// since. Before the client has done anything it is this host's.
func (c *Client) Now() time.Time { return time.UnixMicro(c.clock.now()).UTC() }

// nodeName is a name for a process that no other has, nor had.
func (c *Client) nodeName() string {
	return fmt.Sprintf("%s:%d:%s", c.opt.Node, os.Getpid(), strings.ToLower(rand.Text()[:10]))
}

// prepare checks jobs, and makes rows of them with ids in their order. What has to be
// read and written of their queues before is done in tx, if there is one.
func (c *Client) prepare(ctx context.Context, tx *dialect.Session, jobs []Job, rows []jobRow) error {
	for i := range jobs {
		if err := jobs[i].check(); err != nil {
			return ofMany(i, len(jobs), err)
		}
	}
	for {
		if err := c.address(ctx, tx, jobs, rows); err != nil {
			return err
		}
		c.name(rows)
		if !stale(rows) {
			return nil
		} // else something took very long
	}
}

// address finds the jobs' queues. It leaves the jobs as they are: routes may change before
// it is called again.
func (c *Client) address(ctx context.Context, tx *dialect.Session, jobs []Job, rows []jobRow) error {
	at := instant.Now()
	on := &c.db.Session
	if tx != nil {
		on = tx
	}
	if err := c.clock.sync(ctx, on, at); err != nil {
		return err
	}
	var q *Queue
	var r *routes
	for i := range jobs {
		j := &jobs[i]
		name := j.Queue
		if name == "" {
			if r == nil {
				var err error
				if r, err = c.routesAt(ctx, tx, at); err != nil {
					return err
				}
			}
			name = r.queue(j.Kind)
		}
		if q == nil || q.Name != name {
			if len(j.Payload) > defaultMaxPayload { // it makes no queue
				if _, err := c.readOn(ctx, on, name); errors.Is(err, ErrNotFound) {
					return ofMany(i, len(jobs), tooLarge(j, name, defaultMaxPayload))
				}
			}
			var err error
			if q, err = c.queueIn(ctx, tx, name, at); err != nil {
				return ofMany(i, len(jobs), err)
			}
		}
		if err := c.fits(ctx, tx, q, j); err != nil {
			return ofMany(i, len(jobs), err)
		}
		rows[i] = jobRow{Job: j, of: q, queue: q.id}
	}
	return nil
}

// fits tells whether a queue takes a job, and notes that it has keys before it has
// one.
func (c *Client) fits(ctx context.Context, tx *dialect.Session, q *Queue, j *Job) error {
	switch {
	case q.State == "deleted":
		return fmt.Errorf("%w: %q", ErrDeleted, q.Name)
	case len(j.Payload) > q.MaxPayload:
		return tooLarge(j, q.Name, q.MaxPayload)
	case j.Key != "" && !q.ordered && tx != nil:
		_, err := tx.Exec(ctx, setOrdered, dialect.Args{"queue": q.id})
		q.ordered = err == nil // it was read for this transaction alone
		return err
	case j.Key != "" && !q.ordered:
		if _, err := c.db.Exec(ctx, setOrdered, dialect.Args{"queue": q.id}); err != nil {
			return err
		}
		if _, err := c.read(ctx, q.Name); err != nil {
			return err
		}
	}
	return nil
}

func tooLarge(j *Job, queue string, limit int) error {
	return fmt.Errorf("%w: payload: it has %d bytes, and queue %q takes %d; store it elsewhere and enqueue its name, or raise max_payload",
		ErrTooLarge, len(j.Payload), queue, limit)
}

// name gives rows new ids, and with them their blocks and times.
func (c *Client) name(rows []jobRow) {
	first, now := c.clock.take(len(rows))
	for i := range rows {
		r := &rows[i]
		r.id = idAt(first + int64(i))
		r.divided = r.of.block(r.Key, r.id)
		switch {
		case r.Delay > 0:
			r.runAt = now + r.Delay.Microseconds()
		case !r.RunAt.IsZero() && r.RunAt.UnixMicro() > now:
			r.runAt = r.RunAt.UnixMicro()
		}
	}
}

// ofMany says which of several jobs an error is about.
func ofMany(i, n int, err error) error {
	if n == 1 {
		return err
	}
	return &JobError{i, n, err}
}
