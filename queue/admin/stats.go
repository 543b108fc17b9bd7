package admin

import (
	"cmp"
	"context"
	"database/sql"
	"slices"
	"time"

	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// A Stat counts the jobs of a queue in one state and of one kind.
type Stat struct {
	Queue  string
	State  State
	Kind   string
	Count  int
	More   bool      // there may be more than Count, and older jobs
	Oldest time.Time // when the oldest was enqueued
}

// Stats counts a queue's jobs by state and kind. It reads only the oldest jobs of each state,
// limit of them in all, spread over the queue's blocks; for ready jobs that many of each
// priority. If there are others, More is set for all kinds seen in that state, and kinds may be
// missing.
func (c *Client) Stats(ctx context.Context, queue string, limit int) (all []Stat, err error) {
	if limit < 1 || limit > 1_000_000 {
		return nil, store.Invalid("limit", "%d is not 1 to 1000000", limit)
	}
	q, err := c.read(ctx, cmpName(queue))
	if err != nil {
		return nil, err
	}
	for _, of := range []struct {
		state State
		stmt  *sqlrun.Stmt
	}{
		{StateReady, store.StatReady},
		{StateDelayed, store.StatDelayed},
		{StateRunning, store.StatRunning},
		{StateDead, store.StatDead},
		{StateDone, store.StatDone},
	} {
		stats, err := c.statsOf(ctx, q, of.state, of.stmt, limit)
		if err != nil {
			return nil, err
		}
		all = append(all, stats...)
	}
	return all, nil
}

// statsOf counts the jobs of a state by kind.
func (c *Client) statsOf(ctx context.Context, q *store.Queue, state State, stmt *sqlrun.Stmt, limit int) ([]Stat, error) {
	divided, err := c.places(ctx, q, state)
	if err != nil {
		return nil, err
	}
	each := (limit + len(divided) - 1) / max(1, len(divided))
	var parts []sqlrun.Args
	for _, d := range divided {
		for p := store.MostUrgent; p <= store.LeastUrgent; p++ {
			if p == store.MostUrgent || state == StateReady {
				parts = append(parts, sqlrun.Args{"at": len(parts), "divided": d, "priority": p})
			}
		}
	}
	stats, seen, more := map[string]*Stat{}, make([]int, len(parts)), false
	for some := range slices.Chunk(parts, sqlrun.UnionRows) {
		_, err := sqlrun.Select(ctx, &c.db.Session, stmt, sqlrun.Args{"queue": q.ID, "limit": each, "rows": some},
			func(rows *sql.Rows) (none struct{}, err error) {
				var at, n int
				var kind string
				var id int64
				if err := rows.Scan(&at, &kind, &n, &id); err != nil {
					return none, err
				}
				seen[at] += n
				more = more || seen[at] == each
				s := stats[kind]
				if s == nil {
					s = &Stat{Queue: q.Name, State: state, Kind: kind, Oldest: store.TimeOf(id)}
					stats[kind] = s
				}
				s.Count += n
				if at := store.TimeOf(id); at.Before(s.Oldest) {
					s.Oldest = at
				}
				return none, nil
			})
		if err != nil {
			return nil, err
		}
	}
	all := make([]Stat, 0, len(stats))
	for _, s := range stats {
		s.More = more
		all = append(all, *s)
	}
	slices.SortFunc(all, func(a, b Stat) int { return cmp.Compare(a.Kind, b.Kind) })
	return all, nil
}
