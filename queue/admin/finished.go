package admin

import (
	"context"
	"database/sql"
	"time"

	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// A Finished counts the attempts at jobs of one queue and kind that ended in a period.
type Finished struct {
	Queue  string
	Kind   string
	Done   int           // including discarded ones
	Failed int           // to be retried
	Dead   int           // without a further attempt
	Wait   time.Duration // average time from when a job could begin until it did
	Took   time.Duration // on average
}

// Finished returns what workers have done in the last period, by queue and kind. It is current
// to a second or two, and begins at a whole minute. Counts are kept for 7 days. They are
// approximate: a killed worker takes the counts of its last second with it.
func (c *Client) Finished(ctx context.Context, last time.Duration) ([]Finished, error) {
	if last <= 0 || last > store.LongestCount {
		return nil, store.Invalid("last", "%v is not more than 0 and up to %v", last, store.LongestCount)
	}
	return sqlrun.Select(ctx, &c.db.Session, store.SumCounts, sqlrun.Args{"since": -last.Microseconds()},
		func(rows *sql.Rows) (f Finished, err error) {
			var wait, ran int64
			err = rows.Scan(&f.Queue, &f.Kind, &f.Done, &f.Failed, &f.Dead, &wait, &ran)
			if n := int64(f.Done + f.Failed + f.Dead); n > 0 {
				f.Wait, f.Took = time.Duration(wait/n)*time.Microsecond, time.Duration(ran/n)*time.Microsecond
			}
			return f, err
		})
}

// A Minute counts the attempts at jobs of a queue that ended in one minute.
type Minute struct {
	Begins             time.Time
	Queue              string
	Done, Failed, Dead int           // as in Finished
	Waited, Took       time.Duration // sums over all attempts: the time until they began, and then until they ended
	Late               int           // jobs found late, since their transactions took long: see docs/queue.md
}

// FinishedByMinute is [Client.Finished] by minute and queue, for programs that accumulate the
// numbers. A minute's numbers can still rise for a while after it is over.
func (c *Client) FinishedByMinute(ctx context.Context, last time.Duration) ([]Minute, error) {
	if last <= 0 || last > store.LongestCount {
		return nil, store.Invalid("last", "%v is not more than 0 and up to %v", last, store.LongestCount)
	}
	return sqlrun.Select(ctx, &c.db.Session, store.MinuteCounts, sqlrun.Args{"since": -last.Microseconds()},
		func(rows *sql.Rows) (m Minute, err error) {
			var at, waited, ran int64
			err = rows.Scan(&at, &m.Queue, &m.Done, &m.Failed, &m.Dead, &waited, &ran, &m.Late)
			m.Begins, m.Waited, m.Took = time.UnixMicro(at).UTC(), time.Duration(waited)*time.Microsecond, time.Duration(ran)*time.Microsecond
			return m, err
		})
}
