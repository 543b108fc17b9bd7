package bench

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/scheduler"
)

var stallRates = numbers{600, 4_000}

// Lengths of the phases of a stall, in seconds.
const (
	stallWarm   = 5  // until the daemon has got going
	stallBefore = 5  // what it does then
	stallLocked = 3  // the table is locked
	stallAfter  = 30 // what it does then
)

var addEverySecond = sqlrun.Unlisted(`
	INSERT INTO {prefix}schedule (name, spec, kind, command, due_at, next_exec)
	SELECT CONCAT('s', i), '@every 1s', 'func', 'noop', {time ({int :from} + i * {int :step})}, {time ({int :from} + i * {int :step})}
	FROM ` + numbered + ` WHERE i < {int :end}`)

// TestSchedulerStall prints what share of the slots runs before and after the table of schedules is
// locked for three seconds, on one daemon, with the default policies, and how long it takes until
// all run again. Each schedule is due every second. A daemon that falls behind has the slots to
// record that it has missed; where that costs more than running them, it never catches up.
func TestSchedulerStall(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		for i, n := range stallRates {
			b := &bed{db, n}
			if i > 0 {
				b = &bed{fresh(t, db.Engine), n}
			}
			t.Run(fmt.Sprint(n), func(t *testing.T) { t.Logf("%-8s %v", cmp.Or(db.Engine, db.Dialect.Name), afterStall(t, b)) })
		}
	})
}

func afterStall(t *testing.T, b *bed) string {
	t.Helper()
	from := b.clock(t) + 1e6
	for first := 0; first < b.rows; first += 10_000 {
		b.change(t, addEverySecond, sqlrun.Args{"first": first, "end": b.rows, "from": from, "step": 1_000_000 / b.rows})
	}
	f := launch(t, b, 1, scheduler.Options{Kinds: []string{scheduler.Functions}})
	pause(t, (1+stallWarm+stallBefore)*time.Second)
	unlock := b.lock(t, "schedule")
	pause(t, stallLocked*time.Second)
	unlock()
	end := int((b.clock(t)-from)/1e6) + 1 // the first whole second of slots after the lock
	before := b.cpu(t)
	ranUntil := f.count()
	pause(t, stallAfter*time.Second)
	cost := b.cpu(t).since(before, f.count()-ranUntil)
	f.stop()

	ran := make([]int, end+stallAfter+10)
	b.each(t, `SELECT FLOOR(({us due_at} - {int :from}) / 1000000), COUNT(*) FROM {prefix}run WHERE state = 'ok' GROUP BY 1`,
		sqlrun.Args{"from": from}, func(second, count int) {
			if second >= 0 && second < len(ran) {
				ran[second] = count
			}
		})
	share := func(from, seconds int) string {
		sum := 0
		for _, n := range ran[from : from+seconds] {
			sum += n
		}
		return fmt.Sprintf("%.0f/s (%.0f %%)", float64(sum)/float64(seconds), 100*float64(sum)/float64(seconds*b.rows))
	}
	back := stallAfter - 2
	for back > 0 && ran[end+back-1] >= b.rows*98/100 {
		back--
	}
	when := fmt.Sprintf("all of a second's slots after %d s", back)
	if back == stallAfter-2 {
		when = "never all of a second's slots again"
	}
	return fmt.Sprintf("%d a second: before %s; after the stall %s in 10 s, then %s, then %s; %s; %v each",
		b.rows, share(stallWarm, stallBefore), share(end, 10), share(end+10, 10), share(end+20, 8), when, cost)
}

// lock locks a table, and returns what unlocks it.
func (b *bed) lock(t *testing.T, table string) (unlock func()) {
	t.Helper()
	c, err := b.Pool().Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	lock, release := "BEGIN EXCLUSIVE", "ROLLBACK"
	switch b.Dialect.Name {
	case "postgres":
		lock = "BEGIN; LOCK TABLE " + b.Prefix() + table + " IN ACCESS EXCLUSIVE MODE"
	case "mysql":
		lock, release = "LOCK TABLES "+b.Prefix()+table+" WRITE", "UNLOCK TABLES"
	}
	do := func(text string) {
		for part := range strings.SplitSeq(text, "; ") {
			if _, err := c.ExecContext(context.WithoutCancel(t.Context()), part); err != nil {
				t.Fatal(part, err)
			}
		}
	}
	do(lock)
	return func() { do(release); _ = c.Close() }
}

// each calls f for the rows of a query of two numbers.
func (b *bed) each(t *testing.T, text string, args sqlrun.Args, f func(x, y int)) {
	t.Helper()
	_, err := sqlrun.Select(t.Context(), &b.Session, sqlrun.Unlisted(text), args, func(rows *sql.Rows) (none struct{}, err error) {
		var x, y float64
		err = rows.Scan(&x, &y)
		f(int(x), int(y))
		return none, err
	})
	if err != nil {
		t.Fatal(err)
	}
}
