package health

import (
	"context"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/queue/admin"
)

// AllQueues counts the jobs of all queues and finds their problems. minutes is the throughput of the last
// hour.
func AllQueues(ctx context.Context, db *dialect.DB, c *admin.Client, now time.Time) (
	depths []Depth, minutes []admin.Minute, wrong []Problem, err error,
) {
	queues, err := c.Queues(ctx, "", MostQueues)
	if err != nil {
		return nil, nil, nil, err
	}
	if depths, err = Depths(ctx, c, queues, CountTo, now); err != nil {
		return nil, nil, nil, err
	}
	if minutes, err = c.FinishedByMinute(ctx, time.Hour); err != nil {
		return nil, nil, nil, err
	}
	finished, err := c.Finished(ctx, 24*time.Hour)
	if err != nil {
		return nil, nil, nil, err
	}
	if wrong, err = OfQueues(ctx, db, c, depths, minutes, DeathsOf(finished), now); err != nil {
		return depths, minutes, wrong, err
	}
	idle, err := OfWorkers(ctx, c)
	return depths, minutes, append(wrong, idle...), err
}
