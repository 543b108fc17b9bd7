package admin

import (
	"context"
	"database/sql"
	"time"

	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// maxServed is how many queues of processes Serving names.
const maxServed = 1000

// Serving describes what a process does for queues.
type Serving struct {
	Queues int      // number of queues of which it is a worker
	Names  []string // names of some of them, in order
	Blocks int      // number of leased blocks
}

// Serving returns, for each of the given processes, what it does for queues. Processes that do
// nothing are left out.
func (c *Client) Serving(ctx context.Context, nodes []string) (map[string]Serving, error) {
	all := map[string]Serving{}
	if len(nodes) == 0 {
		return all, nil
	}
	type row struct {
		node, name string
		n          int
	}
	count := func(rows *sql.Rows) (r row, err error) { return r, rows.Scan(&r.node, &r.n) }
	name := func(rows *sql.Rows) (r row, err error) { return r, rows.Scan(&r.node, &r.name) }
	for _, one := range []struct {
		stmt *sqlrun.Stmt
		args sqlrun.Args
		scan func(*sql.Rows) (row, error)
		note func(s *Serving, r row)
	}{
		{store.ServedQueues, sqlrun.Args{"nodes": nodes}, count, func(s *Serving, r row) { s.Queues = r.n }},
		{store.ServedNames, sqlrun.Args{"nodes": nodes, "limit": maxServed}, name, func(s *Serving, r row) { s.Names = append(s.Names, r.name) }},
		{store.LeasedBlocks, sqlrun.Args{"nodes": nodes}, count, func(s *Serving, r row) { s.Blocks = r.n }},
	} {
		rows, err := sqlrun.Select(ctx, &c.db.Session, one.stmt, one.args, one.scan)
		if err != nil {
			return nil, err
		}
		for _, r := range rows {
			s := all[r.node]
			one.note(&s, r)
			all[r.node] = s
		}
	}
	return all, nil
}

// A LostWorker is a worker that did not shut down, of a queue that nobody serves since.
type LostWorker struct {
	Queue, Node string
	At          time.Time // when its lease ended, or would have
}

// Lost lists up to 1000 lost workers of queues that no live worker serves, the newest first.
func (c *Client) Lost(ctx context.Context) ([]LostWorker, error) {
	args := sqlrun.Args{"limit": maxServed}
	return sqlrun.Select(ctx, &c.db.Session, store.LostWorkers, args, func(rows *sql.Rows) (w LostWorker, err error) {
		var at int64
		err = rows.Scan(&w.Queue, &w.Node, &at)
		w.At = time.UnixMicro(at).UTC()
		return w, err
	})
}
