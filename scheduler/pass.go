package scheduler

import (
	"context"
	"database/sql"

	"github.com/dbcron/dbcron/dialect"
)

// passOver records slots that do not run. Those that have a run already, because
// somebody has asked for it, are left out: so it may become several stretches.
func passOver(ctx context.Context, tx *dialect.Session, c *candidate, state string, m stretch) error {
	taken, err := attempts(ctx, tx, c.Name, m.from, m.to)
	if err != nil {
		return err
	}
	for _, part := range m.without(c.plan, taken) {
		if err := passOne(ctx, tx, c, state, part); err != nil {
			return err
		}
	}
	return nil
}

// passOne records one stretch: in the row of the slots just before it, if that
// tells the same.
func passOne(ctx context.Context, tx *dialect.Session, c *candidate, state string, m stretch) error {
	args := dialect.Args{
		"schedule": c.Name, "lane": c.lane, "state": state, "error": m.why,
		"from": m.from.UnixMicro(), "to": m.to.UnixMicro(), "slots": m.n, "keep": keepOf(&c.Schedule),
	}
	type row struct {
		id           int64
		state, error string
		to           int64
	}
	before, err := dialect.Select(ctx, tx, newest, args, func(rows *sql.Rows) (r row, err error) {
		return r, rows.Scan(&r.id, &r.state, &r.error, &r.to)
	})
	if err != nil {
		return err
	}
	if len(before) == 1 && before[0].state == state && before[0].error == m.why {
		if next, ok := c.plan.Next(instantOf(before[0].to)); ok && next.Equal(m.from) {
			args["id"] = before[0].id
			if n, err := tx.Exec(ctx, lengthen, args); err != nil || n == 1 {
				return err
			}
		}
	}
	_, err = tx.Exec(ctx, pass, args)
	return err
}
