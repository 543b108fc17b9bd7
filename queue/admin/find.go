package admin

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/internal/store"
)

var findStatements = map[State]*sqlrun.Stmt{
	StateReady: store.FindReady, StateDelayed: store.FindDelayed,
	StateRunning: store.FindRunning, StateDead: store.FindDead, StateDone: store.FindDone,
}

// find returns all jobs of some queues that have an id. It searches again if one has moved
// since it was located.
func (c *Client) find(ctx context.Context, first, last int, id int64) (all []Job, err error) {
	for range 10 {
		spots, err := store.Locate(ctx, c.db, first, last, id)
		if err != nil {
			return nil, err
		}
		all = nil
		moved := false
		for _, s := range spots {
			found, err := c.at(ctx, s, id)
			if err != nil {
				return nil, err
			}
			all = append(all, found...)
			moved = moved || len(found) == 0
		}
		switch {
		case !moved && len(all) == 0:
			return c.findUnreadable(ctx, first, last, id)
		case !moved:
			return all, nil
		}
	}
	return nil, fmt.Errorf("%w: job %d keeps changing its state; try again", ErrNotFound, id)
}

// at returns the jobs at a spot. All dead or done jobs of a queue share one.
func (c *Client) at(ctx context.Context, s store.Spot, id int64) (all []Job, err error) {
	stmt := findStatements[State(s.State)]
	rows := store.NewReader(stmt)
	err = c.db.Pipeline(ctx, &sqlrun.Step{
		Stmt: stmt, Args: sqlrun.Args{"queue": s.Queue, "divided": s.Divided, "priority": s.Priority, "id": id},
		Scan: func(row *sqlrun.Row) error {
			all = append(all, jobOf(rows.Read(row), s.Name, State(s.State)))
			return nil
		},
	})
	return all, err
}

// Job returns a job, whatever its state, or [ErrNotFound]: then it is done and no longer kept, was
// removed, or never existed. It returns [ErrAmbiguous] if the queue has several jobs with this id.
func (c *Client) Job(ctx context.Context, queue string, id int64) (Job, error) {
	q, err := c.read(ctx, cmpName(queue))
	if err != nil {
		return Job{}, err
	}
	all, err := c.find(ctx, q.ID, q.ID, id)
	if err == nil && len(all) == 0 {
		err = fmt.Errorf("%w: job %d in queue %q", ErrNotFound, id, q.Name)
	}
	i, err := theOne(all, err)
	return c.withRefusal(ctx, i, err)
}

// Find returns the job with an id, in whatever queue. It returns [ErrNotFound] if there is none, as
// [Client.Job] does, and ErrAmbiguous if there are several, because two processes may have drawn
// the same id.
func (c *Client) Find(ctx context.Context, id int64) (Job, error) {
	all, err := c.find(ctx, 0, math.MaxInt32, id)
	if err == nil && len(all) == 0 {
		err = fmt.Errorf("%w: job %d in any queue", ErrNotFound, id)
	}
	i, err := theOne(all, err)
	return c.withRefusal(ctx, i, err)
}

// theOne returns the only job found, or an error that names all of them.
func theOne(all []Job, err error) (Job, error) {
	if err != nil || len(all) == 1 {
		return append(all, Job{})[0], err
	}
	names := make([]string, len(all))
	for i, j := range all {
		names[i] = fmt.Sprintf("%s in queue %q, block %d, of kind %q", j.State, j.Queue, j.Block, j.Kind)
		if j.Key != "" {
			names[i] += fmt.Sprintf(" and key %q", j.Key)
		}
	}
	slices.Sort(names)
	return Job{}, fmt.Errorf("%w: job %d is %s; name its queue, or select it by kind or key", ErrAmbiguous,
		all[0].ID, strings.Join(names, ", and "))
}
