package queue

import (
	"context"
	"database/sql"

	"github.com/dbcron/dbcron/dialect"
)

// What some processes do, for people. The tables have a row for each block, and for each queue
// of each worker.
var (
	servedQueues = dialect.SQL("queue.served-queues", `
		SELECT node, COUNT(*) FROM {prefix}queue_worker WHERE node IN (:nodes) GROUP BY node ORDER BY node`)

	servedNames = dialect.SQL("queue.served-names", `
		SELECT w.node, q.name FROM {prefix}queue_worker AS w JOIN {prefix}queue AS q ON q.queue_id = w.queue_id
		WHERE w.node IN (:nodes) ORDER BY q.name, w.node LIMIT :limit`)

	leasedBlocks = dialect.SQL("queue.leased-blocks", `
		SELECT lock_by, COUNT(*) FROM {prefix}queue_block WHERE state = 'LEASED' AND lock_by IN (:nodes) GROUP BY lock_by ORDER BY lock_by`)
)

// mostServed is how many queues of processes Serving names.
const mostServed = 1000

// A Serving is what a process does for queues.
type Serving struct {
	Queues int      // of which it is a worker
	Names  []string // of some of them, in order
	Blocks int      // that it has leased
}

// Serving tells what processes do for queues. Those that do nothing are left out.
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
		stmt *dialect.Stmt
		args dialect.Args
		scan func(*sql.Rows) (row, error)
		note func(s *Serving, r row)
	}{
		{servedQueues, dialect.Args{"nodes": nodes}, count, func(s *Serving, r row) { s.Queues = r.n }},
		{servedNames, dialect.Args{"nodes": nodes, "limit": mostServed}, name, func(s *Serving, r row) { s.Names = append(s.Names, r.name) }},
		{leasedBlocks, dialect.Args{"nodes": nodes}, count, func(s *Serving, r row) { s.Blocks = r.n }},
	} {
		rows, err := dialect.Select(ctx, &c.db.Session, one.stmt, one.args, one.scan)
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
