package dashboard

import (
	"context"
	"fmt"
	"time"

	"github.com/dbcron/dbcron/internal/ops/health"
	"github.com/dbcron/dbcron/internal/plain"
)

// checkedEvery is the interval between checks of the database while somebody has a page open;
// their results change seldom. Tags without a live daemon are left to dbcron doctor, since
// finding them requires reading all schedules.
const checkedEvery = time.Minute

// wrongDatabase reports the problems of the database itself that dbcron doctor would find.
func (d *Dashboard) wrongDatabase(ctx context.Context, _ *request, data *overviewData) error {
	all, err := d.checks.get(ctx, d.checkDatabase)
	data.Problems = append(data.Problems, all...)
	return err
}

// checkDatabase runs the checks. A failed check is a problem of its own, so that the page still
// shows the others.
func (d *Dashboard) checkDatabase(ctx context.Context) (all []problem, _ error) {
	ctx, cancel := context.WithTimeout(ctx, d.opt.Timeout)
	defer cancel()
	checks, _ := health.OfDatabase(ctx, d.db, "")
	failed := false
	for i := range checks {
		c := &checks[i]
		p := problem{Bad: c.Status == health.Failed, What: "Database: " + plain.Clean(c.Name), Why: plain.Cut(c.Detail, 300), Do: c.Advice, ID: c.ID()}
		switch {
		case c.Status == health.OK, c.Err != nil && failed: // later errors often have the same cause
			continue
		case c.Err != nil:
			failed = true
			_, p.Why = d.explain(fmt.Errorf("check of the database, %s: %w", c.Name, c.Err))
			p.What, p.Do = "Database: the check of "+plain.Clean(c.Name)+" failed", "for the database's answer, run dbcron doctor"
		}
		all = append(all, p)
	}
	if more := len(all) - health.Most; more > 0 {
		all = append(all[:health.Most:health.Most], problem{
			What: "Database: " + plain.Plural(more, "more finding", "more findings"), Do: "for all of them, run dbcron doctor",
		})
	}
	return all, nil
}
