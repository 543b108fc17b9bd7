// Package admin is for operating queues and their jobs: list, find and count jobs; retry,
// cancel and delete them one by one or in bulk; and change settings, limits and routes.
// Programs that enqueue and process jobs need only package queue.
//
// A [Client] needs no worker and no [github.com/dbcron/dbcron/queue.Client]: it changes the
// tables, and notifies workers. Workers of this process that share its [dialect.DB] hear of
// changes at once; others by a notification where the engine has them, or by their doorbells,
// or else by polling: within three seconds for settings and limits. Producers apply new
// settings and routes within two seconds.
package admin

import (
	"cmp"
	"context"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/internal/bell"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// A Client operates queues. It is safe for concurrent use.
type Client struct {
	db  *dialect.DB
	hub *bell.Hub
	opt Options
}

// Options adjusts a Client. The zero value is ready to use.
type Options struct {
	Blocks int // for queues that [Client.Edit] creates: how many workers can share one; default: 16
}

// New returns a Client. It does not touch the database.
func New(db *dialect.DB, opt Options) (*Client, error) {
	opt.Blocks = cmp.Or(opt.Blocks, 16)
	if opt.Blocks < 1 || opt.Blocks > 1000 {
		return nil, store.Invalid("blocks", "%d is not 1 to 1000", opt.Blocks)
	}
	return &Client{db: db, hub: bell.Of(db), opt: opt}, nil
}

// share tells workers that settings have changed.
func (c *Client) share(ctx context.Context) {
	c.hub.Change()
	c.hub.Tell(ctx, c.db, map[int]string{0: bell.Share})
}

// ring tells workers that jobs in some blocks of a queue can begin.
func (c *Client) ring(ctx context.Context, queue int, blocks map[int]bool) {
	c.hub.Tell(ctx, c.db, map[int]string{queue: bell.Blocks(queue, blocks)})
}

// read reads a queue.
func (c *Client) read(ctx context.Context, name string) (*store.Queue, error) {
	return c.readOn(ctx, &c.db.Session, name)
}

func (c *Client) readOn(ctx context.Context, on *sqlrun.Session, name string) (*store.Queue, error) {
	return store.ReadQueue(ctx, on, store.GetQueue, name)
}

func (c *Client) blocks(ctx context.Context, queue int) ([]store.BlockRow, error) {
	return store.Blocks(ctx, &c.db.Session, queue)
}

// cmpName returns the queue that a name means.
func cmpName(queue string) string { return cmp.Or(queue, store.DefaultQueue) }
