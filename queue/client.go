package queue

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"
	"weak"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/internal/address"
	"github.com/dbcron/dbcron/internal/barrier"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/internal/trouble"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// A Client enqueues jobs and creates workers. It is safe for concurrent use. A program needs one for
// each database.
type Client struct {
	again   *trouble.Repeats // logs failures of claims
	db      *dialect.DB
	opt     Options
	clock   clock
	out     sender
	keyed   sender // of jobs with unique keys
	lone    lone
	bells   bells
	commons commons
	late    late
	salt    store.Salt

	attention  attention
	events     eventHub
	awaits     awaits
	middleware []EnqueueMiddleware

	mu       sync.Mutex
	queues   map[string]*store.Queue
	routes   *routes
	learning map[string]bool // settings that a goroutine is reading ahead for those who need them soon
}

// New returns a Client. It does not touch the database.
func New(db *dialect.DB, opt Options) (*Client, error) {
	if opt.Node == "" {
		opt.Node, _ = os.Hostname() // an empty name becomes "queue"
		opt.Node = cmp.Or(opt.Node, "queue")
	}
	opt.Blocks = cmp.Or(opt.Blocks, 16)
	opt.RetryFor = cmp.Or(opt.RetryFor, time.Minute)
	if opt.Logger == nil {
		opt.Logger = slog.Default()
	}
	opt.Logger = barrier.Logger(opt.Logger)
	if err := sqlrun.CheckName(opt.Node); err != nil || len(opt.Node) > 100 {
		return nil, invalid("node", "use up to 100 bytes: %v", err)
	}
	if opt.Blocks < 1 || opt.Blocks > 1000 {
		return nil, invalid("blocks", "%d is not 1 to 1000", opt.Blocks)
	}
	opt.Version = sqlrun.CutVersion(opt.Version)
	if opt.Doorbell != "" {
		if err := address.CheckDoorbell(opt.Doorbell); err != nil {
			return nil, invalid("doorbell", "%v", err)
		}
	}
	c := &Client{db: db, opt: opt, queues: map[string]*store.Queue{}, learning: map[string]bool{}}
	c.again = trouble.NewRepeats(opt.Logger)
	c.salt.Change()
	c.out.client = c
	c.keyed.client, c.keyed.unique = c, true
	c.bells.init(c)
	self := weak.Make(c)
	c.bells.hub.Listen(func(payload string) bool {
		c := self.Value()
		if c != nil && payload != "" {
			c.told(payload)
		}
		return c != nil
	})
	c.commons.init(c)
	c.awaits.init(c)
	return c, nil
}

// Flush waits until the workers of other processes have been notified of the enqueued jobs, for
// programs that end right after enqueueing. The workers would find the jobs in any case.
func (c *Client) Flush(ctx context.Context) error { return c.bells.flush(ctx) }

// DB returns the database that the client was created with.
func (c *Client) DB() *dialect.DB { return c.db }

// Now returns the time by the database's clock: the last reading plus the time elapsed since.
// Before the client has used the database it is the host's time.
func (c *Client) Now() time.Time { return time.UnixMicro(c.clock.now()).UTC() }

// nodeName returns a name that no process has or has had.
func (c *Client) nodeName() string {
	return fmt.Sprintf("%s:%d:%s", c.opt.Node, os.Getpid(), strings.ToLower(rand.Text()[:10]))
}

// ofMany says which of several jobs an error is about.
func ofMany(i, n int, err error) error {
	if n == 1 {
		return err
	}
	return &JobError{i, n, err}
}
