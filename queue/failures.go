package queue

import (
	"cmp"
	"context"
	"database/sql"
	"slices"
	"time"

	"github.com/dbcron/dbcron/dialect"
)

// A Failure is a job that is dead, or waits for its next attempt after one that failed.
type Failure struct {
	Queue, Kind string
	ID          int64
	State       State     // StateDead or StateDelayed
	At          time.Time // when it died, or is due
	Attempts    int       // made so far
	Error       string    // the beginning of why it failed last
}

const (
	failurePlaces  = 2000 // queues with dead jobs, and blocks with delayed ones, that are looked at
	failuresAtOnce = 100  // rows that are read of a queue at the least
	failureSteps   = 100  // statements that are sent at once
)

var (
	// failing finds where dead and delayed jobs are. It asks for the first by the key, which is one
	// look into an index, and not for the least, for which MySQL and MariaDB read all of a queue. The
	// order names all of an index: else MySQL sorts.
	failing = dialect.SQL("queue.failing", `
		SELECT * FROM (SELECT q.queue_id, q.name, -1 AS divided FROM {prefix}queue AS q
			WHERE (SELECT d.id FROM {prefix}job_dead AS d WHERE d.queue_id = q.queue_id ORDER BY d.queue_id, d.id LIMIT 1) IS NOT NULL LIMIT :limit) AS dead
		UNION ALL SELECT * FROM (SELECT b.queue_id, (SELECT q.name FROM {prefix}queue AS q WHERE q.queue_id = b.queue_id), b.divided FROM {prefix}queue_block AS b
			WHERE (SELECT j.id FROM {prefix}job_delayed AS j WHERE j.queue_id = b.queue_id AND j.divided = b.divided ORDER BY j.queue_id, j.divided, j.run_at, j.id LIMIT 1) IS NOT NULL LIMIT :limit) AS waiting`)

	newestDead = dialect.SQL("queue.newest-dead", `
		SELECT id, kind, {us died_at}, attempt, SUBSTR(error, 1, 500) FROM {prefix}job_dead
		WHERE queue_id = :queue AND id < :before ORDER BY id DESC LIMIT :limit`)

	// soonestFailed reads the first of those that are due next, and leaves out those that have
	// not been tried yet: of these there may be millions, and retries come soon.
	soonestFailed = dialect.SQL("queue.soonest-failed", `
		SELECT id, kind, at_us, attempt, SUBSTR(error, 1, 500) FROM (
			SELECT id, kind, {us run_at} AS at_us, attempt, error FROM {prefix}job_delayed
			WHERE queue_id = :queue AND divided = :divided ORDER BY run_at, id LIMIT :limit) AS soonest
		WHERE attempt > 0 AND error <> ''`)
)

// A failurePlace is a queue with dead jobs, or a block with delayed ones.
type failurePlace struct {
	queue, block int
	name         string
	before       int64 // the least id that was read of dead ones
	over         bool  // there are no more
}

// Failures returns the newest dead jobs of all queues, and of the delayed ones that come next
// those that have failed before: as many as limit, the last enqueued first. It reads no more
// than some times that many rows, whatever there is, and more tells that there may be others.
func (c *Client) Failures(ctx context.Context, limit int) (all []Failure, more bool, err error) {
	if limit < 1 || limit > 100_000 {
		return nil, false, invalid("limit", "%d is not 1 to 100000", limit)
	}
	places, err := dialect.Select(ctx, &c.db.Session, failing, dialect.Args{"limit": failurePlaces},
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
		var least int64 // the id of the last one that counts, of as many as the limit
		if len(all) >= limit {
			least = all[limit-1].ID
		}
		var steps []*dialect.Step
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
		all = slices.Compact(all) // a pipeline may have been sent twice
		more = more || len(all) > limit
		all = all[:min(len(all), limit)]
	}
	return all, more, nil
}

// step reads the next ones of a place.
func (p *failurePlace) step(limit int, all *[]Failure) *dialect.Step {
	s := &dialect.Step{Stmt: newestDead, Args: dialect.Args{"queue": p.queue, "limit": limit}}
	f := Failure{Queue: p.name, State: StateDead}
	if p.block >= 0 {
		s.Stmt, f.State, s.Args["divided"], p.over = soonestFailed, StateDelayed, p.block, true
	} else {
		s.Args["before"] = p.before
	}
	n := 0
	p.over = true // unless it returns as many as it may
	s.Scan = func(row *dialect.Row) error {
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
