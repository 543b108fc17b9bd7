package admin

import (
	"context"
	"database/sql"

	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// Stuck counts, by queue, the running jobs whose handlers have not returned though the jobs' timeouts have
// been over for ten seconds. Each takes a slot of its worker until its handler returns or its process ends.
// Queues without such jobs are left out.
func (c *Client) Stuck(ctx context.Context) (map[string]int, error) {
	return c.countByQueue(ctx, store.StuckJobs)
}

// Starved counts, by queue, the workers whose handlers have all waited for connections of their pool for ten
// seconds: each of them may hold one and need another. Queues without such workers are left out.
func (c *Client) Starved(ctx context.Context) (map[string]int, error) {
	return c.countByQueue(ctx, store.StarvedWorkers)
}

func (c *Client) countByQueue(ctx context.Context, stmt *sqlrun.Stmt) (map[string]int, error) {
	all := map[string]int{}
	_, err := sqlrun.Select(ctx, &c.db.Session, stmt, nil, func(rows *sql.Rows) (none struct{}, err error) {
		var name string
		var n int
		err = rows.Scan(&name, &n)
		all[name] = n
		return none, err
	})
	return all, err
}
