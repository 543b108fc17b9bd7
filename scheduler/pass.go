package scheduler

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/dbcron/dbcron/internal/sqlrun"
)

// passOver records slots that do not run. It leaves out those that have a run already because
// somebody requested one, so the stretch may become several.
func passOver(ctx context.Context, tx *sqlrun.Session, c *candidate, state string, m stretch) error {
	taken, err := attempts(ctx, tx, c.Name, m.from, m.to)
	if err != nil {
		return err
	}
	parts := m.without(c.plan, taken)
	for _, part := range parts {
		if err := passOne(ctx, tx, c, state, part); err != nil {
			return err
		}
	}
	if state != "missed" || len(parts) == 0 {
		return nil
	}
	return note(ctx, tx, &c.Schedule, mishap{problem: state, detail: missedText(parts), due: parts[len(parts)-1].to})
}

// passOne records one stretch. It extends the row of the preceding slots if that has the same
// state and reason.
func passOne(ctx context.Context, tx *sqlrun.Session, c *candidate, state string, m stretch) error {
	args := sqlrun.Args{
		"schedule": c.Name, "lane": c.lane, "state": state, "error": m.why,
		"from": m.from.UnixMicro(), "to": m.to.UnixMicro(), "slots": m.n, "keep": keepOf(&c.Schedule),
	}
	type row struct {
		id           int64
		state, error string
		to           int64
	}
	before, err := sqlrun.Select(ctx, tx, newest, args, func(rows *sql.Rows) (r row, err error) {
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

// missedText says how many slots were missed, and why.
func missedText(parts []stretch) string {
	var n int64
	for _, part := range parts {
		n += part.n
	}
	if n == 1 {
		return "the slot of " + parts[0].from.Format(time.RFC3339) + " was missed: " + parts[0].why
	}
	return fmt.Sprintf("%d slots from %s to %s were missed: %s", n, parts[0].from.Format(time.RFC3339),
		parts[len(parts)-1].to.Format(time.RFC3339), parts[0].why)
}
