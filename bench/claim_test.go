package bench

import (
	"context"
	"crypto/rand"
	"database/sql"
	"flag"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/sqlrun"
)

var (
	rows = flag.Int("rows", 1_000_000, "schedules in the table, all of them due")
	span = flag.Duration("span", 5*time.Second, "how long each way is measured")
)

// Two ways to claim a batch of due schedules and move them to their next slot.
//
//	lock   SELECT … FOR UPDATE SKIP LOCKED; UPDATE to the next slot
//	mark   UPDATE … SET claim = token; read what has the token (RETURNING where
//	       there is one); UPDATE to the next slot, which clears the token
//
// Both insert the runs in the same transaction, so the test leaves that out.
var ways = []struct {
	name  string
	claim func(ctx context.Context, tx *sqlrun.Session) (int, error)
}{{"lock", lockWay}, {"mark", markWay}}

var (
	lockDue = sqlrun.SQL("bench.lock-due", `
		SELECT id, {us due_at} FROM {prefix}schedule
		WHERE state = 'active' AND lane = 'default' AND next_exec <= {now} ORDER BY next_exec LIMIT :limit {skip_locked}`)
	move = sqlrun.PerDialect("bench.move", func(d *sqlrun.Dialect) string {
		return d.UpdateFrom("{prefix}schedule", []string{"id"}, `due_at = picked.new_due, next_exec = picked.new_due`, "",
			`{union rows: SELECT {int :id} AS id, {time :due} AS new_due}`)
	})
	moveMarked = sqlrun.PerDialect("bench.move-marked", func(d *sqlrun.Dialect) string {
		return d.UpdateFrom("{prefix}schedule", []string{"id"}, `due_at = picked.new_due, next_exec = picked.new_due, claim = NULL`, "",
			`{union rows: SELECT {int :id} AS id, {time :due} AS new_due}`)
	})
	mark = sqlrun.PerDialect("bench.mark", func(d *sqlrun.Dialect) string {
		s := d.UpdateFrom("{prefix}schedule", []string{"id"}, `claim = :token`, "", `
			SELECT id FROM {prefix}schedule WHERE state = 'active' AND lane = 'default' AND next_exec <= {now}
			ORDER BY next_exec LIMIT :limit {skip_locked}`)
		if returning(d) {
			s += " RETURNING {prefix}schedule.id, {us due_at}"
		}
		return s
	})
	marked = sqlrun.SQL("bench.marked", `SELECT id, {us due_at} FROM {prefix}schedule WHERE claim = :token`)
)

func returning(d *sqlrun.Dialect) bool { return d.Name != "mysql" }

func lockWay(ctx context.Context, tx *sqlrun.Session) (int, error) {
	found, err := sqlrun.Select(ctx, tx, lockDue, sqlrun.Args{"limit": 100}, scan)
	return advance(ctx, tx, move, found, err)
}

func markWay(ctx context.Context, tx *sqlrun.Session) (int, error) {
	args := sqlrun.Args{"limit": 100, "token": rand.Text()}
	stmt := mark
	if !returning(tx.Dialect) {
		if _, err := tx.Exec(ctx, mark, args); err != nil {
			return 0, err
		}
		stmt = marked
	}
	found, err := sqlrun.Select(ctx, tx, stmt, args, scan)
	return advance(ctx, tx, moveMarked, found, err)
}

func scan(rows *sql.Rows) (sqlrun.Args, error) {
	var id, due int64
	err := rows.Scan(&id, &due)
	return sqlrun.Args{"id": id, "due": due + 1e15}, err
}

func advance(ctx context.Context, tx *sqlrun.Session, stmt *sqlrun.Stmt, found []sqlrun.Args, err error) (int, error) {
	if err != nil || len(found) == 0 {
		return 0, err
	}
	_, err = tx.Exec(ctx, stmt, sqlrun.Args{"rows": found})
	return len(found), err
}

// TestClaim prints claims per second of both ways, one after the other and back again, with one
// daemon and with four.
func TestClaim(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		db.Do(t, `ALTER TABLE {prefix}schedule ADD COLUMN claim VARCHAR(32)`, nil)
		db.Do(t, `CREATE INDEX x_claim ON {prefix}schedule (claim)`, nil)
		fill(t, db)
		for _, workers := range []int{1, 4} {
			for _, i := range []int{0, 1, 1, 0} {
				db.Do(t, `UPDATE {prefix}schedule SET next_exec = {time :us}, due_at = {time :us}`,
					sqlrun.Args{"us": int64(1_700_000_000_000_000)})
				if db.Dialect.Schema {
					db.Do(t, `VACUUM ANALYZE {prefix}schedule`, nil)
				}
				t.Logf("%d daemons, %s: %.0f claims/s", workers, ways[i].name, measure(t, db, workers, ways[i].claim))
			}
		}
	})
}

func fill(t *testing.T, db *dbtest.DB) {
	insert := sqlrun.Unlisted(`INSERT INTO {prefix}schedule (name, spec, command, due_at, next_exec)
		VALUES {values rows: (:name, '* * * * *', 'true', {now}, {now})}`)
	for at := 0; at < *rows; at += 1000 {
		var part []sqlrun.Args
		for i := range 1000 {
			part = append(part, sqlrun.Args{"name": fmt.Sprintf("s%d", at+i)})
		}
		if _, err := db.Exec(t.Context(), insert, sqlrun.Args{"rows": part}); err != nil {
			t.Fatal(err)
		}
	}
}

func measure(t *testing.T, db *dbtest.DB, workers int, claim func(context.Context, *sqlrun.Session) (int, error)) float64 {
	ctx, cancel := context.WithTimeout(t.Context(), *span)
	defer cancel()
	var total atomic.Int64
	var group sync.WaitGroup
	begun := time.Now()
	for range workers {
		group.Go(func() {
			for ctx.Err() == nil {
				n := 0
				err := db.Tx(ctx, func(ctx context.Context, tx *sqlrun.Session) (err error) {
					n, err = claim(ctx, tx)
					return err
				})
				if err == nil {
					total.Add(int64(n))
				} else if ctx.Err() == nil {
					t.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
	return float64(total.Load()) / time.Since(begun).Seconds()
}
