package queue

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// aboutSentinels are the statements that are to see them.
var aboutSentinels = []*sqlrun.Stmt{
	store.PlaceReadySentinels, store.PlaceDelayedSentinel, store.RemoveReadySentinels, store.RemoveDelayedSentinel,
}

// No statement takes a sentinel for a job: each answers, and changes, as if there were none.
func TestSentinels(t *testing.T) {
	dbtest.SkipGated(t, "migrations leave views out there")
	each(t, func(t *testing.T, db *dbtest.DB) {
		ofJobs := regexp.MustCompile(`\{prefix\}job(_delayed)?\b|dbcron_job(_delayed)?\b`)
		var asked []*sqlrun.Stmt
		for _, stmt := range sqlrun.Statements() {
			if strings.HasPrefix(stmt.Name, "queue.") && ofJobs.MatchString(stmt.Text(db.Dialect)) &&
				!slices.Contains(aboutSentinels, stmt) && (dbtest.Mutated == nil || dbtest.Mutated == stmt) {
				asked = append(asked, stmt)
			}
		}
		for _, jobs := range []bool{true, false} {
			world(t, db)
			if !jobs {
				byHand(t, db, "DELETE FROM {prefix}job", "DELETE FROM {prefix}job_delayed", "DELETE FROM {prefix}job_running", "DELETE FROM {prefix}job_dead")
			}
			without := map[*sqlrun.Stmt]string{}
			for _, stmt := range asked {
				without[stmt] = effect(t, db, stmt)
			}
			before := views(t, db)
			for _, divided := range []int{3, 4, 5} {
				placeSentinels(t, db, divided)
			}
			for _, stmt := range asked {
				if got := effect(t, db, stmt); got != without[stmt] {
					t.Errorf("%s sees sentinels (other jobs: %t):\ngot  %s\nwant %s", stmt.Name, jobs, got, without[stmt])
				}
			}
			if got := views(t, db); !slices.Equal(got, before) {
				t.Errorf("the views show sentinels (other jobs: %t):\ngot  %q\nwant %q", jobs, got, before)
			}
		}
	})
}

// views are the views for people, with sentinels and a SQL prompt.
func views(t *testing.T, db *dbtest.DB) []string {
	t.Helper()
	if !db.Dialect.PassesEnds {
		return nil
	}
	return slices.Concat(db.List(t, `SELECT state, id, kind FROM {prefix}v_job ORDER BY id`, nil),
		db.List(t, `SELECT name, ready_jobs, delayed_jobs, oldest_ready_seconds IS NULL, oldest_ready_seconds > 100 FROM {prefix}v_queue`, nil))
}

func placeSentinels(t *testing.T, db *dbtest.DB, divided int) {
	t.Helper()
	for _, stmt := range []*sqlrun.Stmt{store.PlaceReadySentinels, store.PlaceDelayedSentinel} {
		_, err := db.Exec(t.Context(), stmt, store.SentinelArgs(1, divided))
		must(t, err)
	}
}

// effect returns the result of a statement, or how many rows it would change; it does not
// change them.
func effect(t *testing.T, db *dbtest.DB, stmt *sqlrun.Stmt) (got string) {
	t.Helper()
	args, undo := sentinelArgs(stmt), errors.New("undo")
	err := db.Tx(t.Context(), func(ctx context.Context, tx *sqlrun.Session) error {
		if word := strings.ToUpper(strings.Fields(stmt.Text(db.Dialect))[0]); word != "SELECT" && word != "WITH" {
			n, err := tx.Exec(ctx, stmt, args)
			got = fmt.Sprint(n, " rows changed, ", err != nil)
			return undo
		}
		rows, err := sqlrun.Select(ctx, tx, stmt, args, anyRow)
		got = fmt.Sprint(rows, err)
		return undo
	})
	if !errors.Is(err, undo) {
		t.Fatalf("%s: %v", stmt.Name, err)
	}
	return regexp.MustCompile(`\b\d{16}\b`).ReplaceAllString(got, "now")
}

func anyRow(rows *sql.Rows) (string, error) {
	columns, err := rows.Columns()
	if err != nil {
		return "", fmt.Errorf("columns: %w", err)
	}
	values, dest := make([]sql.NullString, len(columns)), make([]any, len(columns))
	for i := range values {
		dest[i] = &values[i]
	}
	err = rows.Scan(dest...)
	return fmt.Sprint(values), err
}

// sentinelArgs makes statements consider all rows. No argument is the id of a sentinel, except
// when looking for a job.
func sentinelArgs(stmt *sqlrun.Stmt) sqlrun.Args {
	args := planArgs(stmt, 3)
	for _, name := range []string{"after", "after1", "after2", "after3", "after4", "since", "first"} {
		if _, ok := args[name].(string); !ok {
			args[name] = int64(0)
		}
	}
	args["queue"], args["divided"], args["priority"], args["last"] = 1, 3, 2, 9
	args["soon"], args["kinds"], args["limit"] = 0, []string{"x", ""}, 1
	if stmt == store.LocateJob {
		args["id"], args["last"] = int64(0), 9
	}
	if stmt == store.OtherKinds {
		args["kinds"] = []string{"k"}
	}
	for i, row := range args["rows"].([]sqlrun.Args) {
		row["divided"], row["block"], row["queue"] = 3+i, 3+i, 1
		row["priority"] = 2 + i
		row["after1"], row["after2"], row["after3"], row["after4"], row["since"] = int64(0), int64(0), int64(0), int64(0), int64(0)
		row["above"], row["below"] = 2, 6
	}
	return args
}

// Nobody names a sentinel: as a job, after an id that no job has, or among many.
func TestSentinelsAreNoJobs(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		world(t, db)
		placeSentinels(t, db, 3)
		c := client(t, db, Options{})
		_, err := adminOf(c).Job(t.Context(), "q", 0)
		want(t, "as a job", err, ErrNotFound)
		for state, n := range map[admin.State]int{admin.StateReady: 3, admin.StateDelayed: 4} {
			jobs, _, err := adminOf(c).Jobs(t.Context(), admin.Filter{Queue: "q", State: state, After: -1})
			must(t, err)
			done, err := adminOf(c).Bulk(t.Context(), admin.BulkCancel, admin.Filter{Queue: "q", State: state, After: -1}, admin.BulkOptions{DryRun: true})
			must(t, err)
			if len(jobs) != n || done.Done != n {
				t.Errorf("%s: %d are listed and %d would be cancelled, of %d", state, len(jobs), done.Done, n)
			}
		}
	})
}

// The sentinels of one block are removed with nothing beside them.
func TestSentinelsAlone(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		world(t, db)
		for _, divided := range []int{3, 5} {
			placeSentinels(t, db, divided)
		}
		byHand(t, db, `INSERT INTO {prefix}job (queue_id, divided, priority, id, kind) VALUES (2, 3, 2, 0, '')`,
			`INSERT INTO {prefix}job_delayed (queue_id, divided, id, run_at, kind) VALUES (2, 3, 0, {now}, '')`)
		for _, stmt := range []*sqlrun.Stmt{store.RemoveReadySentinels, store.RemoveDelayedSentinel} {
			_, err := db.Exec(t.Context(), stmt, store.SentinelArgs(1, 3))
			must(t, err)
		}
		wantRows(t, db, "ready", `SELECT queue_id, divided, priority, id FROM {prefix}job ORDER BY queue_id, divided, priority, id`,
			"1 3 2 7", "1 3 2 8", "1 3 2 9", "1 5 2 0", "1 5 3 0", "1 5 4 0", "1 5 5 0", "2 3 2 0")
		wantRows(t, db, "delayed", `SELECT queue_id, divided, id FROM {prefix}job_delayed ORDER BY queue_id, divided, id`,
			"1 3 17", "1 3 18", "1 3 19", "1 3 20", "1 5 0", "2 3 0")
	})
}

// A worker that has done many jobs of a block places its sentinels, where the engine needs them. They go
// with their block.
func TestSentinelsOfBlock(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{Blocks: 1})
		var done atomic.Int64
		w := worker(t, c, WorkerOptions{})
		handle(t, w, "x", func(context.Context, *Delivery) error { done.Add(1); return nil })
		jobs := make([]Job, sentinelsAfter)
		for i := range jobs {
			jobs[i] = Job{Kind: "x"}
		}
		enqueueMany(t, c, jobs)
		start(t, w)
		is := func(want string) bool {
			return slices.Equal([]string{want}, db.List(t, `SELECT (SELECT COUNT(*) FROM {prefix}job WHERE id <= 0), (SELECT COUNT(*) FROM {prefix}job_delayed WHERE id <= 0)`, nil))
		}
		want := "0 0"
		if db.Dialect.PassesEnds {
			want = "4 1"
		}
		eventually(t, "sentinels are where they are needed", func() bool {
			enqueueMany(t, c, []Job{{Kind: "x"}}) // after which it is looked whether they are
			return done.Load() > sentinelsAfter && is(want)
		})
		must(t, adminOf(c).Resize(t.Context(), defaultQueue, 2))
		byHand(t, db, `UPDATE {prefix}queue_block SET insert_time = {now + -3600000000}`)
		eventually(t, "the first block is gone", func() bool {
			return slices.Equal([]string{"1", "2"}, db.List(t, `SELECT divided FROM {prefix}queue_block ORDER BY divided`, nil))
		})
		if !is("0 0") {
			t.Error("sentinels are left where no block is")
		}
	})
}
