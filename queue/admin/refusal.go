package admin

import (
	"context"
	"database/sql"
	"time"

	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// A Refusal says that the database refuses to record a job's outcome, for a reason specific to
// the job, and that a worker keeps trying: see [github.com/dbcron/dbcron/queue.ErrRefused].
type Refusal struct {
	Queue  string
	Block  int
	Job    int64
	Kind   string
	What   string    // the refused step: done, discarded, retry, dead, check-out, claim or forward
	Error  string    // the database's
	Worker string    // that has the job
	Tries  int       // up to a minute ago
	Since  time.Time // time of the first refusal
	Last   time.Time // when it was last recorded, once a minute
}

func scanRefusal(rows *sql.Rows) (r Refusal, err error) {
	var first, last int64
	err = rows.Scan(&r.Queue, &r.Block, &r.Job, &r.Kind, &r.What, &r.Error, &r.Worker, &r.Tries, &first, &last)
	r.Since, r.Last = time.UnixMicro(first).UTC(), time.UnixMicro(last).UTC()
	return r, err
}

// Refusals lists the jobs of a queue whose outcome the database refuses to record, up to limit.
func (c *Client) Refusals(ctx context.Context, queue string, limit int) ([]Refusal, error) {
	return sqlrun.Select(ctx, &c.db.Session, store.ListRefused, sqlrun.Args{"name": cmpName(queue), "limit": limit}, scanRefusal)
}

// AllRefusals is [Client.Refusals] for all queues.
func (c *Client) AllRefusals(ctx context.Context, limit int) ([]Refusal, error) {
	return sqlrun.Select(ctx, &c.db.Session, store.ListAllRefused, sqlrun.Args{"limit": limit}, scanRefusal)
}

// withRefusal adds the refusal of a job, if any. A user without the right to read refusals sees
// the job without it.
func (c *Client) withRefusal(ctx context.Context, i Job, err error) (Job, error) {
	if err != nil || i.State == StateDead || i.State == StateDone {
		return i, err
	}
	args := sqlrun.Args{"name": i.Queue, "divided": i.Block, "id": i.ID}
	all, err := sqlrun.Select(ctx, &c.db.Session, store.GetRefused, args, scanRefusal)
	switch {
	case err != nil && (c.db.Dialect.Denied(err) || c.db.Dialect.Missing(err)):
		err = nil
	case len(all) > 0:
		i.Refused = &all[0]
	}
	return i, err
}
