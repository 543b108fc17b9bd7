package admin

import (
	"cmp"
	"context"
	"database/sql"

	"github.com/dbcron/dbcron/internal/jobfield"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// A Subscription says that a queue gets a copy of each job that is published to a topic: see
// [github.com/dbcron/dbcron/queue.Client.Subscribe].
type Subscription struct {
	Topic string
	Queue string

	// Wrong says what is wrong with its row, if somebody has written one that means nothing: the column and the problem. Nothing is
	// enqueued for it.
	Wrong string
}

// Subscriptions lists subscriptions, ordered by topic and queue, after a given one and up to
// limit.
func (c *Client) Subscriptions(ctx context.Context, after Subscription, limit int) ([]Subscription, error) {
	if limit < 1 || limit > 10_000 {
		return nil, store.Invalid("limit", "%d is not 1 to 10000", limit)
	}
	args := sqlrun.Args{"topic": after.Topic, "subscriber": after.Queue, "limit": limit}
	return sqlrun.Select(ctx, &c.db.Session, store.ListSubscriptions, args, func(rows *sql.Rows) (s Subscription, err error) {
		var row sqlrun.Reading
		err = rows.Scan(row.Into("topic", &s.Topic), row.Into("queue", &s.Queue))
		if err := sqlrun.CheckName(s.Topic); err != nil {
			row.Note("topic", err.Error())
		}
		if err := cmp.Or(sqlrun.CheckName(s.Queue), jobfield.CheckTarget(s.Queue)); err != nil {
			row.Note("queue", err.Error())
		}
		s.Wrong = row.Wrong
		return s, err
	})
}
