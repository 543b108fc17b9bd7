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

// A Failure is a dead job, or one that waits for its next attempt after a failure.
type Failure struct {
	Queue, Kind string
	ID          int64
	State       State     // StateDead or StateDelayed
	At          time.Time // when it died, or is due
	Attempts    int       // so far
	Error       string    // the beginning of its last error
}

const (
	failurePlaces  = 2000 // maximum number of queues with dead jobs, and of blocks with delayed ones
	failuresAtOnce = 100  // minimum number of rows to read of a queue
	failureSteps   = 100  // statements per pipeline
)

// A failurePlace is a queue with dead jobs, or a block with delayed ones.
type failurePlace struct {
	queue, block int
	name         string
	before       int64 // least id read so far, of dead jobs
	over         bool  // there are no more
}

// Failures returns the newest dead jobs of all queues, and those of the next delayed jobs that
// have failed before: up to limit, the last enqueued first. The number of rows that it reads is
// bounded by a multiple of limit; more reports that there may be others.
func (c *Client) Failures(ctx context.Context, limit int) (all []Failure, more bool, err error) {
	if limit < 1 || limit > 100_000 {
		return nil, false, store.Invalid("limit", "%d is not 1 to 100000", limit)
	}
	places, err := sqlrun.Select(ctx, &c.db.Session, store.Failing, sqlrun.Args{"limit": failurePlaces},
		func(rows *sql.Rows) (p failurePlace, err error) {
			p.before = 1<<63 - 1
			return p, rows.Scan(&p.queue, &p.name, &p.block)
		})
	if err != nil || len(places) == 0 {
		return nil, false, err
	}
	blocks := 0
	for i := range places {
		blocks += min(1, places[i].block+1)
	}
	perQueue, perBlock := max(failuresAtOnce, limit/max(1, len(places)-blocks)+1), max(failuresAtOnce/4, limit/2/max(1, blocks)+1)
	for reading := true; reading; {
		reading = false
		var least int64 // once limit jobs are found: the id of the last of them
		if len(all) >= limit {
			least = all[limit-1].ID
		}
		var steps []*sqlrun.Step
		for i := range places {
			p := &places[i]
			if p.over || p.before <= least {
				continue
			}
			n := perQueue
			if p.block >= 0 {
				n = perBlock
			}
			steps, reading = append(steps, p.step(n, &all)), true
			if len(steps) == failureSteps || i == len(places)-1 {
				if err := c.db.Pipeline(ctx, steps...); err != nil {
					return nil, false, err
				}
				steps = nil
			}
		}
		if err := c.db.Pipeline(ctx, steps...); err != nil {
			return nil, false, err
		}
		slices.SortStableFunc(all, func(a, b Failure) int {
			return cmp.Or(cmp.Compare(b.ID, a.ID), cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.State, b.State), cmp.Compare(a.Kind, b.Kind))
		})
		all = slices.Compact(all) // a pipeline may have been run twice
		more = more || len(all) > limit
		all = all[:min(len(all), limit)]
	}
	return all, more, nil
}

// step returns the statement that reads the next jobs of a place.
func (p *failurePlace) step(limit int, all *[]Failure) *sqlrun.Step {
	s := &sqlrun.Step{Stmt: store.NewestDead, Args: sqlrun.Args{"queue": p.queue, "limit": limit}}
	f := Failure{Queue: p.name, State: StateDead}
	if p.block >= 0 {
		s.Stmt, f.State, s.Args["divided"], p.over = store.SoonestFailed, StateDelayed, p.block, true
	} else {
		s.Args["before"] = p.before
	}
	n := 0
	p.over = true // unless the result is full
	s.Scan = func(row *sqlrun.Row) error {
		f := f
		f.ID, f.Kind, f.At, f.Attempts, f.Error = row.Int(0), string(row.Bytes(1)), time.UnixMicro(row.Int(2)).UTC(),
			int(row.Int(3)), string(row.Bytes(4))
		*all = append(*all, f)
		if n++; n >= limit && p.block < 0 {
			p.over = false
		}
		p.before = min(p.before, f.ID)
		return nil
	}
	return s
}
