package health

import (
	"context"
	"slices"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/queue/admin"
)

// All returns what is wrong with the work, the worst first, and causes before what follows from them. It leaves out what this user may
// not read.
func All(ctx context.Context, db *dialect.DB, c *admin.Client, now time.Time) (all []Problem, err error) {
	for _, look := range []func() ([]Problem, error){
		func() ([]Problem, error) { return OfClock(ctx, db, now) },
		func() ([]Problem, error) {
			wrong, _, err := OfSchedules(ctx, db, now, 0)
			return wrong, err
		},
		func() ([]Problem, error) { return OfRuns(ctx, db, now) },
		func() ([]Problem, error) {
			wrong, _, err := OfFiles(ctx, db)
			return wrong, err
		},
		func() ([]Problem, error) { return OfRows(ctx, db, c) },
		func() ([]Problem, error) {
			_, _, wrong, err := AllQueues(ctx, db, c, now)
			return wrong, err
		},
		func() ([]Problem, error) {
			wrong, _, err := OfEndpoints(ctx, db, now)
			return wrong, err
		},
		func() ([]Problem, error) {
			wrong, _, err := OfProcesses(ctx, db, now)
			return wrong, err
		},
	} {
		wrong, err := look()
		if err != nil && !db.Dialect.Denied(err) {
			return nil, err
		}
		all = append(all, wrong...)
	}
	slices.SortStableFunc(all, func(a, b Problem) int {
		switch {
		case a.Bad == b.Bad:
			return 0
		case a.Bad:
			return -1
		}
		return 1
	})
	return all, nil
}
