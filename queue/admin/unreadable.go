package admin

import (
	"context"
	"database/sql"
	"fmt"
	"math"

	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// An Unreadable is a place of jobs that no worker can ever read: somebody has written their rows by hand.
type Unreadable struct {
	State           State  // ready or delayed
	Queue           string // empty: there is no queue of this number
	Number          int    // of the queue
	Block, Priority int
	Job             int64  // the id of its first job
	Wrong           string // column: problem
}

// Unreadable lists up to limit places of jobs that no worker can ever read. Of several between two places that can be read it
// lists the first.
func (c *Client) Unreadable(ctx context.Context, limit int) ([]Unreadable, error) {
	return c.unreadable(ctx, 0, math.MaxInt32, limit)
}

func (c *Client) unreadable(ctx context.Context, first, last, limit int) ([]Unreadable, error) {
	args := sqlrun.Args{"first": first, "last": last, "limit": limit}
	return sqlrun.Select(ctx, &c.db.Session, store.Unreadable, args, func(rows *sql.Rows) (u Unreadable, err error) {
		var name sql.NullString
		err = rows.Scan(&u.State, &u.Number, &name, &u.Block, &u.Priority, &u.Job)
		switch u.Queue = name.String; {
		case u.Queue == "":
			u.Wrong = fmt.Sprintf("queue_id: there is no queue %d", u.Number)
		case u.oddPriority():
			u.Wrong = fmt.Sprintf("priority: %d is not 1 to 4", u.Priority)
		default:
			u.Wrong = fmt.Sprintf("divided: the queue has no block %d", u.Block)
		}
		return u, err
	})
}

// oddPriority reports whether the priority keeps workers from reading the place, whatever its block.
func (u *Unreadable) oddPriority() bool {
	return u.State == StateReady && (u.Priority < store.MostUrgent || u.Priority > store.LeastUrgent)
}

// findUnreadable returns the jobs with an id in places of some queues that no worker can read.
func (c *Client) findUnreadable(ctx context.Context, first, last int, id int64) (all []Job, err error) {
	places, err := c.unreadable(ctx, first, last, maxServed)
	for i := range places {
		u := &places[i]
		priorities := []int{u.Priority}
		if u.State == StateReady && !u.oddPriority() {
			priorities = []int{1, 2, 3, 4}
		}
		for _, p := range priorities {
			found, err := c.at(ctx, store.Spot{State: string(u.State), Queue: u.Number, Name: u.Queue, Divided: u.Block, Priority: p}, id)
			if err != nil {
				return nil, err
			}
			for k := range found {
				found[k].Unreadable = u.Wrong
			}
			all = append(all, found...)
		}
	}
	return all, err
}
