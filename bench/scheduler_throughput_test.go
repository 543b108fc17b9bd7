package bench

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/scheduler"
)

// A floor is the least SQL that claims due schedules in batches of 100 and writes a run and its end
// for each, as one would write it by hand for one program. It has no lanes, policies or fences. Each
// claim is a transaction, and the end of each batch is another one at the same time.
type floor struct {
	name                       string
	pick, insert, move, finish *sqlrun.Stmt
}

var floors = []floor{
	{
		"raw, narrow tables",
		sqlrun.Unlisted(`SELECT id, name FROM raw_schedule WHERE next_exec <= {now} ORDER BY next_exec LIMIT 100 {skip_locked}`),
		sqlrun.Unlisted(`INSERT INTO raw_run (schedule, due_at, state, exec_by, expire_at)
			SELECT id, next_exec, 'running', :owner, {now + :lease} FROM raw_schedule WHERE id IN (:ids)`),
		sqlrun.Unlisted(`UPDATE raw_schedule SET next_exec = {now + :later} WHERE id IN (:ids)`),
		sqlrun.Unlisted(`UPDATE raw_run SET state = 'ok', finished_at = {now} WHERE schedule IN (:ids) AND state = 'running'`),
	},
	{
		"raw, same tables",
		sqlrun.Unlisted(`SELECT id, name FROM {prefix}schedule WHERE state = 'active' AND lane = :lane AND next_exec <= {now}
			ORDER BY next_exec LIMIT 100 {skip_locked}`),
		sqlrun.Unlisted(`INSERT INTO {prefix}run (schedule, lane, due_at, attempt, state, exec_by, claim, next_exec, started_at)
			SELECT name, lane, due_at, 1, 'running', :owner, :claim, {now + :lease}, {now} FROM {prefix}schedule WHERE id IN (:ids)`),
		sqlrun.Unlisted(`UPDATE {prefix}schedule SET due_at = {now + :later}, next_exec = {now + :later}, fence = fence + 1, update_time = {now}
			WHERE id IN (:ids)`),
		sqlrun.Unlisted(`UPDATE {prefix}run SET state = 'ok', finished_at = {now}, next_exec = NULL, claim = NULL, purge_at = {now + :keep}
			WHERE schedule IN (:names) AND claim = :claim AND next_exec > {time 0} AND next_exec < {time 253402300799000000}`),
	},
}

func rawTables(t *testing.T, b *bed) {
	instant := instants[b.Dialect.Name]
	b.Do(t, `CREATE TABLE raw_schedule (id BIGINT NOT NULL PRIMARY KEY, name VARCHAR(200) NOT NULL, next_exec `+instant+` NOT NULL)`, nil)
	b.Do(t, `CREATE INDEX raw_next ON raw_schedule (next_exec)`, nil)
	b.Do(t, `CREATE TABLE raw_run (schedule BIGINT NOT NULL, due_at `+instant+` NOT NULL, state VARCHAR(8) NOT NULL,
		exec_by VARCHAR(128) NOT NULL, expire_at `+instant+`, finished_at `+instant+`, PRIMARY KEY (schedule, due_at))`, nil)
	b.Do(t, `INSERT INTO raw_schedule (id, name, next_exec) SELECT id, name, next_exec FROM {prefix}schedule`, nil)
	// A history tells planners that a schedule has few runs.
	b.Do(t, `INSERT INTO raw_run (schedule, due_at, state, exec_by) SELECT id, {time 0}, 'ok', '' FROM raw_schedule`, nil)
	if b.Dialect.Name == "postgres" {
		b.Do(t, `ALTER TABLE raw_schedule SET (autovacuum_enabled = false)`, nil)
		b.Do(t, `ALTER TABLE raw_run SET (autovacuum_enabled = false)`, nil)
		b.Do(t, `VACUUM ANALYZE raw_schedule`, nil)
		b.Do(t, `VACUUM ANALYZE raw_run`, nil)
	}
}

var rawOverdue = sqlrun.Unlisted(`
	UPDATE raw_schedule SET next_exec = {time ({int :from} + id * 7919 % {int :width})} WHERE id >= :first AND id < :end AND next_exec > {now}`)

// overdueAll makes everything overdue in both tables.
func overdueAll(t *testing.T, b *bed) {
	t.Helper()
	b.overdue(t)
	from := b.clock(t) - behind.Microseconds()
	b.some(t, "raw_schedule", func(first, end int64) bool {
		b.change(t, rawOverdue, sqlrun.Args{"first": first, "end": end, "from": from, "width": width.Microseconds()})
		return true
	})
}

type picked struct {
	ids   []int64
	names []string
	claim string
}

// claim runs a claimer's transaction. It returns errOver when nothing is due.
func (f *floor) claim(ctx context.Context, db *dialect.DB) (p picked, err error) {
	tx, err := db.Pool().BeginTx(ctx, &sql.TxOptions{Isolation: db.Dialect.Isolation})
	if err != nil {
		return p, err
	}
	defer tx.Rollback() //nolint:errcheck // after a commit it does nothing
	on, args := db.On(tx), sqlrun.Args{
		"lane": lane, "owner": "host:4711:abcdefgh", "claim": rand.Text(), "lease": int64(30e6), "later": later.Microseconds(),
	}
	if _, err = sqlrun.Select(ctx, on, f.pick, args, func(rows *sql.Rows) (none struct{}, err error) {
		var id int64
		var name string
		err = rows.Scan(&id, &name)
		p.ids, p.names = append(p.ids, id), append(p.names, name)
		return none, err
	}); err != nil {
		return p, err
	}
	if len(p.ids) == 0 {
		return p, errOver
	}
	p.claim = args["claim"].(string)
	args["ids"] = p.ids
	for _, stmt := range []*sqlrun.Stmt{f.insert, f.move} {
		n, err := on.Exec(ctx, stmt, args)
		if err == nil && n != int64(len(p.ids)) {
			err = fmt.Errorf("%d of %d rows", n, len(p.ids))
		}
		if err != nil {
			return p, err
		}
	}
	return p, tx.Commit()
}

func (f *floor) end(ctx context.Context, db *dialect.DB, p picked) error {
	n, err := db.On(db.Pool()).Exec(ctx, f.finish, sqlrun.Args{
		"ids": p.ids, "names": p.names, "claim": p.claim, "keep": (30 * 24 * time.Hour).Microseconds(),
	})
	if err == nil && n != int64(len(p.ids)) {
		err = fmt.Errorf("finished %d of %d rows", n, len(p.ids))
	}
	return err
}

// custom returns the URL of sessions that do not keep plans made for an empty table.
func custom(b *bed) string {
	if b.Dialect.Name != "postgres" {
		return b.URL
	}
	return b.URL + "&plan_cache_mode=force_custom_plan"
}

// measure runs n claimers, each with its own finisher, for the span or until nothing is due. It
// returns fires a second and what each costs.
func (f *floor) measure(t *testing.T, b *bed, n int, span time.Duration) (fires float64, cost usage) {
	t.Helper()
	before := b.cpu(t)
	ctx := t.Context() // never cancelled: claims under way finish and count
	var over atomic.Bool
	defer time.AfterFunc(span, func() { over.Store(true) }).Stop()
	var total atomic.Int64
	var group sync.WaitGroup
	begun := time.Now()
	for range n {
		db := open(t, custom(b), 2)
		claimed := make(chan picked, 3)
		group.Go(func() {
			defer close(claimed)
			for !over.Load() {
				var p picked
				err := again(ctx, db.Dialect, func() (err error) { p, err = f.claim(ctx, db); return err })
				if err != nil {
					if !errors.Is(err, errOver) {
						t.Errorf("%s: %v", f.name, err)
					}
					return
				}
				claimed <- p
			}
		})
		group.Go(func() {
			for p := range claimed {
				if err := again(ctx, db.Dialect, func() error { return f.end(ctx, db, p) }); err != nil {
					t.Errorf("%s: %v", f.name, err)
				}
				total.Add(int64(len(p.ids)))
			}
		})
	}
	group.Wait()
	took := time.Since(begun)
	return perSecond(total.Load(), took), b.cpu(t).since(before, total.Load())
}

// TestSchedulerThroughput prints how many schedules a second are claimed and completed when all are
// overdue, with a function that does nothing, and the same for the floors in the same run. Target:
// 10 000/s on PostgreSQL. To see where Go's time goes:
//
//	-run TestSchedulerThroughput/postgres -schedules 100000 -daemons 1 -cpuprofile cpu.out
func TestSchedulerThroughput(t *testing.T) {
	beds(t, schedules.last(), func(t *testing.T, b *bed) {
		rawTables(t, b)
		for _, when := range []string{"before", "after"} {
			if when == "after" {
				b.churn(t, *churn)
			}
			for _, n := range fleets {
				t.Run(fmt.Sprintf("%s/%d", when, n), func(t *testing.T) {
					overdueAll(t, b)
					claims, fires, shares, cost := throughput(t, b, n)
					t.Logf("%-8s %7d overdue, %s %d claims, %d daemons: %6.0f claims/s, %6.0f fires/s (%s), %v",
						b.Dialect.Name, b.rows, when, *churn, n, claims, fires, shares, cost)
					for i := range floors {
						if *compare {
							raw, rawCost := floors[i].measure(t, b, n, *span)
							t.Logf("%-8s %s: %6.0f fires/s, %v; ratio %.2f", b.Dialect.Name, floors[i].name, raw, rawCost, fires/raw)
						}
					}
				})
			}
		}
	})
}

// throughput lets n daemons work for the span, or until nothing is due.
func throughput(t *testing.T, b *bed, n int) (claims, fires float64, shares string, cost usage) {
	t.Helper()
	newest, due := b.newest(t), b.due(t)
	before := b.cpu(t)
	f := launch(t, b, n, scheduler.Options{Kinds: []string{scheduler.Functions}})
	f.until(t, due, *span)
	f.stop()
	cost = b.cpu(t).since(before, f.count())
	r := b.tally(t, newest, f)
	if left := b.due(t); due-left != r.runs {
		t.Errorf("%d schedules were moved on, for %d runs", due-left, r.runs)
	}
	return perSecond(r.runs, r.claiming), perSecond(r.runs, r.doing), f.shares(), cost
}
