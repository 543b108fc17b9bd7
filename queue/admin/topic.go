package admin

import (
	"context"
	"database/sql"

	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// A Subscription says that a queue gets a copy of each job that is published to a topic: see
// [github.com/dbcron/dbcron/queue.Client.Subscribe].
type Subscription struct {
	Topic string
	Queue string
}

// Subscriptions lists subscriptions, ordered by topic and queue, after a given one and up to
// limit.
func (c *Client) Subscriptions(ctx context.Context, after Subscription, limit int) ([]Subscription, error) {
	if limit < 1 || limit > 10_000 {
		return nil, store.Invalid("limit", "%d is not 1 to 10000", limit)
	}
	args := sqlrun.Args{"topic": after.Topic, "subscriber": after.Queue, "limit": limit}
	return sqlrun.Select(ctx, &c.db.Session, store.ListSubscriptions, args, func(rows *sql.Rows) (s Subscription, err error) {
		return s, rows.Scan(&s.Topic, &s.Queue)
	})
}
