package admin

import (
	"context"
	"database/sql"
	"slices"
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

	LastDead time.Time // the minute of the last one without a further attempt; zero: there was none
}

// Finished returns what workers have done in the last period, by queue and kind. It is current
// to a second or two, and begins at a whole minute. Counts are kept for 7 days. They are
// approximate: a killed worker takes the counts of its last second with it.
func (c *Client) Finished(ctx context.Context, last time.Duration) ([]Finished, error) {
	if last <= 0 || last > store.LongestCount {
		return nil, store.Invalid("last", "%v is not more than 0 and up to %v", last, store.LongestCount)
	}
	return finished(ctx, &c.db.Session, last, countsPage)
}

// countsPage is how many rows a statement returns or reads of the counts. Some engines refuse results of more than 10,000.
const countsPage = 5000

func finished(ctx context.Context, on *sqlrun.Session, last time.Duration, limit int) (all []Finished, err error) {
	args := sqlrun.Args{"since": -last.Microseconds(), "name": "", "after": "", "limit": limit}
	for {
		part, err := sqlrun.Select(ctx, on, store.SumCounts, args, func(rows *sql.Rows) (f Finished, err error) {
			var wait, ran, dead int64
			err = rows.Scan(&f.Queue, &f.Kind, &f.Done, &f.Failed, &f.Dead, &wait, &ran, &dead)
			if f.Dead > 0 {
				f.LastDead = time.UnixMicro(dead).UTC()
			}
			if n := int64(f.Done + f.Failed + f.Dead); n > 0 {
				f.Wait, f.Took = time.Duration(wait/n)*time.Microsecond, time.Duration(ran/n)*time.Microsecond
			}
			return f, err
		})
		if all = append(all, part...); err != nil || len(part) < limit {
			return all, err
		}
		args["name"], args["after"] = part[limit-1].Queue, part[limit-1].Kind
	}
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
	return byMinute(ctx, &c.db.Session, last, countsPage)
}

// byMinute reads the minutes of about so many rows at a time.
func byMinute(ctx context.Context, on *sqlrun.Session, last time.Duration, page int) (all []Minute, err error) {
	args := sqlrun.Args{"since": -last.Microseconds(), "ahead": store.LongestCount.Microseconds(), "after": int64(0), "page": page}
	for {
		read := 0
		part, err := sqlrun.Select(ctx, on, store.MinuteCounts, args, func(rows *sql.Rows) (m Minute, err error) {
			var at, waited, ran int64
			var n int
			var queue sql.NullString
			err = rows.Scan(&at, &queue, &m.Done, &m.Failed, &m.Dead, &waited, &ran, &m.Late, &n)
			m.Begins, m.Waited, m.Took = time.UnixMicro(at).UTC(), time.Duration(waited)*time.Microsecond, time.Duration(ran)*time.Microsecond
			m.Queue, args["after"] = queue.String, at
			read += n
			return m, err
		})
		all = append(all, slices.DeleteFunc(part, func(m Minute) bool { return m.Queue == "" })...)
		if err != nil || read <= page {
			return all, err
		}
	}
}
