package queue

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/dialect/postgres"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/queue/internal/store"
	"github.com/dbcron/dbcron/sqlschema"
)

// byRows are the statements whose queue comes from rows and not from a constant: they open
// all partitions, and read one. Package sqlschema has the reason.
var byRows = map[*sqlrun.Stmt]bool{
	store.LockJobs: true, store.LockDelayed: true, store.LockReplaced: true, store.LockRunning: true, store.LockOut: true, store.LockDead: true, store.LockDone: true,
	store.DelayReady: true, store.DelayRunning: true, store.BuryReady: true, store.BuryDelayed: true, store.BuryRunning: true, store.CheckOutReady: true, store.CheckOutDelayed: true,
	store.KeepReady: true, store.KeepDelayed: true, store.KeepRunning: true, store.DivideAnew: true, store.PassReady: true, store.ReviveDead: true, store.HastenDelayed: true, store.Redelay: true,
	store.LookFor: true, store.NextDelayed: true, store.HoldingBlocks: true,
}

// ofAllQueues are the statements that are about jobs of any queue, for administration.
var ofAllQueues = map[*sqlrun.Stmt]bool{
	store.LocateJob: true, store.AdvanceDelayed: true, store.OutdatedDead: true, store.OutdatedDone: true, store.PendingBlock: true, store.PendingFIFO: true, store.PendingKinds: true, store.PendingFIFOKinds: true, store.Failing: true,
	store.StuckJobs: true, store.SuspiciousJobs: true, store.LockPaused: true, store.Unreadable: true,
}

// Tables of jobs can be kept in partitions by queue. Whatever workers do of their own accord opens one
// partition, or is known not to.
func TestPartitionsByQueue(t *testing.T) {
	t.Parallel()
	dbtest.One(t, postgres.Dialect, func(t *testing.T, db *dbtest.DB) {
		must(t, sqlschema.Migrate(t.Context(), db.DB))
		for _, table := range []string{"job", "job_delayed", "job_running", "job_dead", "job_done"} {
			db.Do(t, `ALTER TABLE {prefix}`+table+` RENAME TO old_`+table, nil)
			db.Do(t, `CREATE TABLE {prefix}`+table+` (LIKE old_`+table+` INCLUDING ALL) PARTITION BY HASH (queue_id)`, nil)
			for i := range 4 {
				db.Do(t, fmt.Sprintf(`CREATE TABLE part_%s_%d PARTITION OF {prefix}%[1]s FOR VALUES WITH (MODULUS 4, REMAINDER %[2]d)`, table, i), nil)
			}
		}
		conn, err := db.Pool().Conn(t.Context())
		must(t, err)
		defer conn.Close()
		opened := regexp.MustCompile(` on (part_\w+_\d)`)
		for _, stmt := range sqlrun.Statements() {
			text := stmt.Text(db.Dialect)
			if !strings.HasPrefix(stmt.Name, "queue.") || strings.Contains(text, "VALUES (") || ofAllQueues[stmt] {
				continue
			}
			parts := map[string]map[string]bool{}
			for _, found := range opened.FindAllStringSubmatch(planText(db.Plan(t, conn, stmt, planArgs(stmt, 3))), -1) {
				table := found[1][:len(found[1])-2]
				if parts[table] == nil {
					parts[table] = map[string]bool{}
				}
				parts[table][found[1]] = true
			}
			several := false
			for table, of := range parts {
				if several = several || len(of) > 1; len(of) > 1 && !byRows[stmt] {
					t.Errorf("%s opens %d partitions of %s", stmt.Name, len(of), table)
				}
			}
			if byRows[stmt] && !several {
				t.Errorf("%s opens one partition of each table", stmt.Name)
			}
		}
		livesIn(t, db)
	})
}

// livesIn has jobs of two queues done, tried again, put off, buried and revived.
func livesIn(t *testing.T, db *dbtest.DB) {
	t.Helper()
	c := client(t, db, Options{Blocks: 2})
	names := []string{"first", "second"}
	var r record
	w := worker(t, c, WorkerOptions{Queues: names})
	handle(t, w, "good", func(_ context.Context, d *Delivery) error { r.add("%s %s", d.Queue, d.Kind); return nil })
	handle(t, w, "bad", func(_ context.Context, d *Delivery) error {
		if r.add("%s bad %d", d.Queue, d.Attempt); d.Attempt < 3 {
			return errTest
		}
		return nil
	})
	for _, name := range names {
		_, err := adminOf(c).Edit(t.Context(), name, func(q *admin.Queue) { impatient(q); q.MaxAttempts, q.KeepDone = 2, time.Hour })
		must(t, err)
		enqueueMany(t, c, []Job{
			{Queue: name, Kind: "good", Key: "k"},
			{Queue: name, Kind: "bad", Key: "k"},
			{Queue: name, Kind: "good", Delay: time.Millisecond},
		})
	}
	start(t, w)
	for _, name := range names {
		eventually(t, "the others are done", func() bool { return r.count(name+" good") == 2 })
		eventually(t, "one is dead", func() bool {
			counts, err := adminOf(c).Count(t.Context(), name, 10)
			return err == nil && counts.Dead == 1
		})
		_, err := adminOf(c).Bulk(t.Context(), admin.BulkRetry, admin.Filter{Queue: name}, admin.BulkOptions{})
		must(t, err)
		eventually(t, "it has begun anew", func() bool { return r.count(name+" bad 1") == 2 })
	}
}
