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
	all := map[string]int{}
	_, err := sqlrun.Select(ctx, &c.db.Session, store.StuckJobs, nil, func(rows *sql.Rows) (none struct{}, err error) {
		var name string
		var n int
		err = rows.Scan(&name, &n)
		all[name] = n
		return none, err
	})
	return all, err
}
