package bench

import (
	"context"
	"database/sql"
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dbcron/dbcron/queue"
)

var (
	delayed = flag.Int("delayed", 1_000_000, "delayed jobs, a hundred thousand of which are due in each second, for TestQueueDelayed")
	ahead   = flag.Duration("ahead", 25*time.Second, "how long it takes at the most to enqueue them")
)

// delayedOurs enqueues jobs that are due later.
type delayedOurs struct {
	*ours
	first time.Time // due time of the first one
}

func (o *delayedOurs) due(n int) time.Time {
	return o.first.Add(time.Duration(n) * 10 * time.Microsecond)
}

func (o *delayedOurs) many(ctx context.Context, first, n int) error {
	batch := make([]queue.Job, n)
	for i := range batch {
		batch[i] = job(first + i)
		batch[i].RunAt = o.due(first + i)
	}
	_, err := o.c.EnqueueMany(ctx, batch)
	return err
}

func (o *delayedOurs) wipe(t *testing.T) {
	t.Helper()
	o.truncate(t, "{prefix}job_delayed")
}

func (o *delayedOurs) analyze(t *testing.T) {
	t.Helper()
	o.Analyze(t, "job_delayed")
}

// TestQueueDelayed prints how many delayed jobs a second one worker does when all are due: for the
// first third of them, for the last third, and as a ratio to jobs that were never delayed.
func TestQueueDelayed(t *testing.T) {
	queues(t, func(t *testing.T, b *bed) {
		ready := drain(t, drained(t, b, 1000), *delayed)
		p := &delayedOurs{drained(t, b, 1000), time.Now().Add(*ahead)} //nolint:forbidigo // one host has both clocks
		load(t, p, *delayed)
		if time.Now().After(p.first) { //nolint:forbidigo // the same
			t.Fatalf("it took longer than %v to enqueue %d jobs", *ahead, *delayed)
		}
		pause(t, time.Until(p.due(*delayed))+time.Second)
		seen := newStarts(*delayed)
		stop := p.work(t, seen.note)
		finish(t, p, seen, *delayed)
		took := time.Since(seen.at[0])
		stop()
		seen.check(t, p, *delayed)
		p.wipe(t)
		third := *delayed / 3
		rate := perSecond(int64(*delayed), took)
		t.Logf("%-8s %d delayed jobs that are due: %.0f jobs/s, %.0f of the first third, %.0f of the last; %.2f of %.0f that were ready",
			b.Dialect.Name, *delayed, rate, perSecond(int64(third), seen.at[third].Sub(seen.at[0])),
			perSecond(int64(third), seen.at[len(seen.at)-1].Sub(seen.at[len(seen.at)-third])), rate/ready, ready)
		if *compare && b.Dialect.Name != "postgres" {
			rawQueue(t, b)
			rawDelayed(t, b)
			ready := leaseFloor(t, b, *delayed, 1000)
			floor := delayedFloor(t, b, *delayed, 1000)
			t.Logf("%-8s by hand: %.0f delayed jobs/s, %.2f of %.0f that were ready; dbcron is %.2f of the former",
				b.Dialect.Name, floor, floor/ready, ready, rate/floor)
		}
	})
}

// rawDelayed creates raw_delayed, a copy of the table of delayed jobs.
func rawDelayed(t *testing.T, b *bed) {
	t.Helper()
	if b.Dialect.Name == "mysql" {
		b.Do(t, `CREATE TABLE raw_delayed LIKE {prefix}job_delayed`, nil)
		return
	}
	for _, text := range b.List(t, `SELECT sql FROM sqlite_master WHERE tbl_name = '`+b.Prefix()+`job_delayed' AND sql IS NOT NULL ORDER BY type DESC`, nil) {
		b.Do(t, strings.ReplaceAll(text, b.Prefix()+"job_delayed", "raw_delayed"), nil)
	}
}

// rawDue is when a row of raw_delayed is due.
var rawDue = map[string]string{
	"mysql":  `TIMESTAMPADD(MICROSECOND, id * 10, '2026-01-01')`,
	"sqlite": `strftime('%Y-%m-%d %H:%M:%f', 1767225600 + id / 100000.0, 'unixepoch')`,
}

// rawDueRead reads the next rows behind a place in the order in which they are due.
var rawDueRead = map[string]string{
	"mysql": `SELECT id, kind, payload, run_at FROM raw_delayed IGNORE INDEX (PRIMARY) WHERE queue_id = 1 AND divided = ?
		AND (run_at = ? AND id > ? OR run_at > ? AND run_at <= UTC_TIMESTAMP(6)) ORDER BY run_at, id LIMIT ?`,
	"sqlite": `SELECT id, kind, payload, run_at FROM raw_delayed WHERE queue_id = 1 AND divided = ?
		AND (run_at, id) > (?, ?) AND run_at >= ? AND run_at <= strftime('%Y-%m-%d %H:%M:%f', 'now') ORDER BY run_at, id LIMIT ?`,
}

// delayedFloor is leaseFloor for delayed jobs that are all due: the holder of a block reads it in the
// order in which they are due, and deletes finished jobs by their key before the next read.
func delayedFloor(t *testing.T, b *bed, n, size int) float64 {
	t.Helper()
	fillRaw(t, b, "raw_job", n)
	b.Do(t, `INSERT INTO raw_delayed (queue_id, divided, id, run_at, kind, payload)
		SELECT queue_id, divided, id, `+rawDue[b.Dialect.Name]+`, kind, payload FROM raw_job`, nil)
	b.truncate(t, "raw_job")
	return rawDrain(t, b, "raw_delayed", n, func(ctx context.Context, l *link, i int) (total int64, err error) {
		for block := i; block < rawBlocks; block += rawConns {
			var last []int64
			at, read := "2000-01-01 00:00:00.000", true
			for read || len(last) > 0 {
				var ids []int64
				if err = again(ctx, l.d, func() (err error) {
					ids, at, err = l.turnDelayed(ctx, block, last, at, size)
					return err
				}); err != nil {
					return total, err
				}
				last, read = ids, len(ids) == size
				total += int64(len(ids))
			}
		}
		return total, nil
	})
}

// turnDelayed is turn for delayed jobs.
func (l *link) turnDelayed(ctx context.Context, divided int, last []int64, at string, n int) (ids []int64, to string, err error) {
	after := int64(0)
	if len(last) > 0 {
		after = last[len(last)-1]
		done, err := l.db.ExecContext(ctx, `DELETE FROM raw_delayed WHERE queue_id = 1 AND divided = ? AND id IN (`+listed(last)+
			`) AND id BETWEEN ? AND ?`, divided, slices.Min(last), slices.Max(last))
		if err != nil {
			return nil, at, err
		}
		if deleted, err := done.RowsAffected(); err != nil || deleted != int64(len(last)) {
			return nil, at, fmt.Errorf("deleted %d rows of %d: %w", deleted, len(last), err)
		}
	}
	rows, err := l.db.QueryContext(ctx, rawDueRead[l.d.Name], divided, at, after, at, n)
	if err != nil {
		return nil, at, err
	}
	defer rows.Close()
	for rows.Next() {
		var id int64
		var kind string
		var body sql.RawBytes
		if err := rows.Scan(&id, &kind, &body, &at); err != nil {
			return nil, at, err
		}
		rawHandler(id, kind, body)
		ids = append(ids, id)
	}
	return ids, at, rows.Err()
}
