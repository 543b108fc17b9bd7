package admin

import (
	"context"
	"database/sql"

	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// A Surplus is a queue with more workers than blocks: some of them are idle.
type Surplus struct {
	Queue           string
	Workers, Blocks int
}

// Surplus lists up to limit queues, ordered by name, that have more workers than blocks.
func (c *Client) Surplus(ctx context.Context, limit int) ([]Surplus, error) {
	return sqlrun.Select(ctx, &c.db.Session, store.SurplusWorkers, sqlrun.Args{"limit": limit}, func(rows *sql.Rows) (s Surplus, err error) {
		return s, rows.Scan(&s.Queue, &s.Workers, &s.Blocks)
	})
}
