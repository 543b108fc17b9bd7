package admin

import (
	"context"
	"database/sql"
	"time"

	"github.com/dbcron/dbcron/internal/pace"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// A Suspicious is a job that may be the reason why its workers are stopped.
type Suspicious struct {
	Queue string
	ID    int64
	Error string    // what became of it
	At    time.Time // when it was last handed back
}

// Suspicious returns up to limit jobs of all queues that their workers have handed back in the last time, three
// or more times in a row, since they were stopped within a minute after the job's begin. The latest is first.
func (c *Client) Suspicious(ctx context.Context, last time.Duration, limit int) ([]Suspicious, error) {
	args := sqlrun.Args{"since": -last.Microseconds(), "stops": pace.Suspicious, "limit": limit}
	return sqlrun.Select(ctx, &c.db.Session, store.SuspiciousJobs, args, func(rows *sql.Rows) (s Suspicious, err error) {
		var at int64
		err = rows.Scan(&s.Queue, &s.ID, &s.Error, &at)
		s.At = time.UnixMicro(at).UTC()
		return s, err
	})
}
