package bench

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/scheduler"
)

// A poll's queries as one would write them by hand: three statements, and the same in one round
// trip.
var rawProbes = []*sqlrun.Stmt{
	sqlrun.Unlisted(`SELECT MIN(next_exec) FROM {prefix}schedule WHERE state = 'active' AND lane = :lane AND next_exec >= {time :since}`),
	sqlrun.Unlisted(`SELECT MIN(next_exec) FROM {prefix}run WHERE lane = :lane AND next_exec >= {time :since}`),
	sqlrun.Unlisted(`SELECT MAX(id) FROM (SELECT id FROM {prefix}schedule WHERE state = 'active' AND lane = :lane AND next_exec IS NULL LIMIT 1) AS unplanned`),
	sqlrun.Unlisted(`SELECT (SELECT MIN(next_exec) FROM {prefix}schedule WHERE state = 'active' AND lane = :lane AND next_exec >= {time :since}),
		(SELECT MIN(next_exec) FROM {prefix}run WHERE lane = :lane AND next_exec >= {time :since}),
		(SELECT id FROM {prefix}schedule WHERE state = 'active' AND lane = :lane AND next_exec IS NULL LIMIT 1)`),
}

// statement returns one of the library's statements.
func statement(t *testing.T, name string) *sqlrun.Stmt {
	t.Helper()
	for _, s := range sqlrun.Statements() {
		if s.Name == name {
			return s
		}
	}
	t.Fatalf("there is no statement %s", name)
	return nil
}

// A poller asks in one way whether anything is due.
type poller struct {
	name  string
	stmts []*sqlrun.Stmt
	args  func(since int64) sqlrun.Args
}

func pollers(t *testing.T) []poller {
	t.Helper()
	plain := func(since int64) sqlrun.Args { return sqlrun.Args{"lane": lane, "since": since} }
	return []poller{
		{"scheduler.probe", []*sqlrun.Stmt{statement(t, "scheduler.probe")}, func(since int64) sqlrun.Args {
			return sqlrun.Args{"rows": []sqlrun.Args{{"lane": lane}}, "since": since}
		}},
		{"raw, three statements", rawProbes[:3], plain},
		{"raw, one statement", rawProbes[3:], plain},
	}
}

// ask polls once and fails if anything is due.
func (p poller) ask(t *testing.T, b *bed, since int64) {
	t.Helper()
	for _, stmt := range p.stmts {
		lines, err := sqlrun.Select(t.Context(), &b.Session, stmt, p.args(since), func(rows *sql.Rows) (n int, err error) {
			columns, err := rows.Columns()
			if err != nil {
				return 0, err
			}
			var values [5]any
			var dest [5]any
			for i := range columns {
				dest[i] = &values[i]
			}
			return len(columns), rows.Scan(dest[:len(columns)]...)
		})
		if err != nil || len(lines) != 1 {
			t.Fatalf("%s: %d rows, %v", p.name, len(lines), err)
		}
	}
}

// each returns the median time of a poll over a span.
func (p poller) each(t *testing.T, b *bed, since int64, span time.Duration) time.Duration {
	t.Helper()
	var took []time.Duration
	for over := time.Now().Add(span); len(took) < 3 || time.Now().Before(over); {
		begun := time.Now()
		p.ask(t, b, since)
		took = append(took, time.Since(begun))
	}
	slices.Sort(took)
	return took[len(took)/2]
}

// TestSchedulerIdle prints what a poll costs when nothing is due. It compares the library's
// statement with raw ones on the same table in the same run, for each size of the table; then, after
// churn, with the floor that the scheduler uses and without one. Targets on PostgreSQL: twice the
// raw probes, and the same time for the smallest and the largest table. Finally it prints what idle
// daemons ask.
func TestSchedulerIdle(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, first *dbtest.DB) {
		var medians []time.Duration
		for _, n := range schedules {
			t.Run(fmt.Sprint(n), func(t *testing.T) {
				b := newBed(t, fresh(t, first.Engine), n)
				medians = append(medians, idle(t, b, "before"))
				floor := b.churn(t, *churn) - time.Minute.Microseconds()
				for _, since := range []struct {
					name string
					at   int64
				}{{"floor", floor}, {"no floor", 0}} {
					begun := time.Now()
					pollers(t)[0].ask(t, b, since.at)
					t.Logf("%-8s %7d schedules, after %d claims, %s: the first poll %.0f µs", b.Dialect.Name, n, *churn,
						since.name, micros(time.Since(begun)))
					compareIdle(t, b, since.at, "after, "+since.name)
				}
				daemonsIdle(t, b)
			})
		}
		if len(medians) == len(schedules) && len(medians) > 1 {
			t.Logf("%-8s polls take %.2f of the time at %d that they take at %d", first.Dialect.Name,
				float64(medians[len(medians)-1])/float64(medians[0]), schedules.last(), schedules[0])
		}
	})
}

func micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }

func idle(t *testing.T, b *bed, when string) time.Duration {
	t.Helper()
	return compareIdle(t, b, b.clock(t)-time.Minute.Microseconds(), when)
}

// compareIdle polls in all ways, one after the other and back again, and returns the library's time.
func compareIdle(t *testing.T, b *bed, since int64, when string) time.Duration {
	t.Helper()
	ways := pollers(t)
	for _, w := range ways { // warm up connections, prepared statements
		w.each(t, b, since, *span/50)
	}
	rounds := make([][]time.Duration, len(ways))
	for range 2 {
		for i := range ways {
			rounds[i] = append(rounds[i], ways[i].each(t, b, since, *span/12))
		}
		for i := range slices.Backward(ways) {
			rounds[i] = append(rounds[i], ways[i].each(t, b, since, *span/12))
		}
	}
	line := fmt.Sprintf("%-8s %7d schedules, %s:", b.Dialect.Name, b.rows, when)
	var least [3]time.Duration
	for i, w := range ways {
		slices.Sort(rounds[i])
		least[i] = rounds[i][len(rounds[i])/2]
		line += fmt.Sprintf(" %s %.0f µs (%.0f/s),", w.name, micros(least[i]), 1/least[i].Seconds())
	}
	t.Logf("%s ratios %.2f and %.2f", line, float64(least[0])/float64(least[1]), float64(least[0])/float64(least[2]))
	return least[0]
}

// daemonsIdle counts what daemons send to the server while nothing is due.
func daemonsIdle(t *testing.T, b *bed) {
	t.Helper()
	for _, n := range fleets {
		var trips atomic.Int64
		counted := b.Broken(t, &dbtest.Fault{Random: func() (broken, after bool) { trips.Add(1); return false, false }})
		ctx, cancel := context.WithCancel(t.Context())
		f := &fleet{cancel: cancel}
		t.Cleanup(f.stop)
		for range n {
			f.run(t, ctx, counted.DB, scheduler.Options{Kinds: []string{scheduler.Functions}})
		}
		pause(t, 500*time.Millisecond)
		trips.Store(0)
		before := b.cpu(t)
		begun := time.Now()
		pause(t, *span)
		asked, took := trips.Load(), time.Since(begun)
		u := b.cpu(t).since(before, 1)
		f.stop()
		t.Logf("%-8s %7d schedules, %d idle daemons: %.1f round trips/s; CPU of client and server %.1f + %.1f ms/s", b.Dialect.Name, b.rows, n,
			perSecond(asked, took), 1e3*u.client.Seconds()/took.Seconds(), 1e3*u.server.Seconds()/took.Seconds())
		if f.count() > 0 {
			t.Errorf("%d functions were called", f.count())
		}
	}
}
