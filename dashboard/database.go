package dashboard

import (
	"context"
	"fmt"
	"time"

	"github.com/dbcron/dbcron/internal/health"
	"github.com/dbcron/dbcron/internal/plain"
)

// checkedEvery is how often the database itself is checked while somebody looks. What the checks find changes
// seldom. Tags that no live daemon has are left to dbcron doctor, as that reads all schedules.
const checkedEvery = time.Minute

// wrongDatabase finds what dbcron doctor finds wrong with the database itself.
func (d *Dashboard) wrongDatabase(ctx context.Context, _ *request, data *overviewData) error {
	all, err := d.checks.get(ctx, d.checkDatabase)
	data.Problems = append(data.Problems, all...)
	return err
}

// checkDatabase makes the checks. A check that fails is a problem by itself, so that the page has the others.
func (d *Dashboard) checkDatabase(ctx context.Context) (all []problem, _ error) {
	ctx, cancel := context.WithTimeout(ctx, d.opt.Timeout)
	defer cancel()
	checks, _ := health.OfDatabase(ctx, d.db, "")
	failed := false
	for i := range checks {
		c := &checks[i]
		p := problem{Bad: c.Status == health.Failed, What: "Database: " + plain.Clean(c.Name), Why: plain.Cut(c.Detail, 300), Do: c.Advice}
		switch {
		case c.Status == health.OK, c.Err != nil && failed: // one error tells enough, as they often have one cause
			continue
		case c.Err != nil:
			failed = true
			_, p.Why = d.explain(fmt.Errorf("check of the database, %s: %w", c.Name, c.Err))
			p.What, p.Do = "Database: the check of "+plain.Clean(c.Name)+" failed", "see what the database answers: dbcron doctor"
		}
		all = append(all, p)
	}
	if more := len(all) - health.Most; more > 0 {
		all = append(all[:health.Most:health.Most], problem{
			What: "Database: " + plain.Plural(more, "more finding", "more findings"), Do: "see all of them: dbcron doctor",
		})
	}
	return all, nil
}
