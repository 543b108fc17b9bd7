package queue

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/dialect/postgres"
	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/sqlrun"
)

// A trigger enqueues the rows of a table in their order, and a worker processes them: even
// among jobs of the same keys enqueued from Go.
func TestPromptInATrigger(t *testing.T) {
	dbtest.SkipBare(t, "its transactions would have to be run again")
	atPrompt(t, func(t *testing.T, db *dbtest.DB, p *prompt) {
		db.Do(t, `CREATE TABLE orders (number INT NOT NULL, customer VARCHAR(20) NOT NULL)`, nil)
		if db.Dialect.Name == postgres.Dialect.Name {
			db.Do(t, `CREATE FUNCTION order_placed() RETURNS trigger LANGUAGE plpgsql AS '
				BEGIN
					PERFORM {prefix}enqueue(''orders'', ''placed'', json_build_object(''number'', NEW.number), NEW.customer);
					RETURN NEW;
				END'`, nil)
			db.Do(t, `CREATE TRIGGER placed AFTER INSERT ON orders FOR EACH ROW EXECUTE FUNCTION order_placed()`, nil)
		} else {
			db.Do(t, `CREATE TRIGGER placed AFTER INSERT ON orders FOR EACH ROW
				CALL {prefix}enqueue_within('orders', 'placed', JSON_OBJECT('number', NEW.number), NEW.customer,
					NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, @dbcron_id)`, nil)
		}
		c := client(t, db, Options{})
		w := worker(t, c, WorkerOptions{Queues: []string{"orders"}})
		var done record
		handle(t, w, "placed", func(_ context.Context, d *Delivery) error {
			var order struct{ Number int }
			err := json.Unmarshal(d.Payload, &order)
			done.add("%s %03d", d.Key, order.Number)
			return err
		})
		start(t, w)
		const n = 200
		for i := 0; i < n; i += 4 { // four to a statement, every other one by Go
			passed(t, db, c)
			if i%8 == 0 {
				p.do(t, `INSERT INTO orders VALUES (:i, 'a'), (:i + 1, 'b'), (:i + 2, 'a'), (:i + 3, 'b')`, sqlrun.Args{"i": i})
				continue
			}
			for k := range 4 {
				enqueue(t, c, Job{Queue: "orders", Kind: "placed", Key: string(rune('a' + k%2)), Payload: fmt.Appendf(nil, `{"number": %d}`, i+k)})
			}
		}
		eventually(t, "all are done", func() bool { return done.len() >= n })
		byKey := done.all()
		slices.SortStableFunc(byKey, func(a, b string) int { return cmp.Compare(a[:1], b[:1]) })
		if len(byKey) != n || !slices.IsSorted(byKey) {
			t.Errorf("%d were done: %q", len(byKey), byKey)
		}
	})
}

// A statement that waited for another transaction enqueues after it, although it began
// before.
func TestPromptAfterWaiting(t *testing.T) {
	dbtest.SkipBare(t, "its transactions would have to be run again")
	atPrompt(t, func(t *testing.T, db *dbtest.DB, first *prompt) {
		db.Do(t, `CREATE TABLE awaited_order (number INT NOT NULL PRIMARY KEY, changes INT NOT NULL)`, nil)
		db.Do(t, `INSERT INTO awaited_order VALUES (1, 0)`, nil)
		if db.Dialect.Name == postgres.Dialect.Name {
			db.Do(t, `CREATE FUNCTION changed() RETURNS trigger LANGUAGE plpgsql AS '
				BEGIN
					PERFORM {prefix}enqueue(''q'', ''changed'', to_json(NEW.changes), ''1'');
					RETURN NEW;
				END'`, nil)
			db.Do(t, `CREATE TRIGGER changed AFTER UPDATE ON awaited_order FOR EACH ROW EXECUTE FUNCTION changed()`, nil)
		} else {
			db.Do(t, `CREATE TRIGGER changed AFTER UPDATE ON awaited_order FOR EACH ROW
				CALL {prefix}enqueue('q', 'changed', NEW.changes, '1', NULL, @id)`, nil)
		}
		second := newPrompt(t, db)
		change := `UPDATE awaited_order SET changes = changes + 1 WHERE number = 1`
		first.do(t, "START TRANSACTION", nil)
		var n int
		must(t, first.on.Get(t.Context(), sqlrun.Unlisted(`SELECT changes FROM awaited_order WHERE number = 1 FOR UPDATE`), nil, &n))
		ended := make(chan error, 1)
		go func() {
			_, err := second.on.Exec(t.Context(), sqlrun.Unlisted(change), nil)
			ended <- err
		}()
		eventually(t, "the second waits", func() bool { return waitsForOrder(t, db) })
		first.do(t, change, nil)
		first.do(t, "COMMIT", nil)
		must(t, received(t, "the second to go on", ended))
		if got := db.List(t, `SELECT payload FROM {prefix}job ORDER BY id`, nil); !slices.Equal(got, []string{"1", "2"}) {
			t.Errorf("got %q", got)
		}
	})
}

// waitsForOrder reports whether a session waits for a row of awaited_order.
func waitsForOrder(t *testing.T, db *dbtest.DB) bool {
	t.Helper()
	if db.Dialect.Name == postgres.Dialect.Name {
		var n int
		db.Scan(t, `SELECT COUNT(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`, nil, &n)
		return n > 0
	}
	// Not by information_schema.innodb_trx: what that shows is not made anew for those
	// who look more often than every 0.1 s.
	var schema, kind, name, status string
	db.Scan(t, `SELECT DATABASE()`, nil, &schema)
	must(t, db.Pool().QueryRowContext(t.Context(), `SHOW ENGINE INNODB STATUS`).Scan(&kind, &name, &status))
	for _, waiting := range strings.Split(status, "FOR THIS LOCK TO BE GRANTED")[1:] {
		lock, _, _ := strings.Cut(waiting, "trx id")
		if strings.Contains(lock, "`"+schema+"`.`awaited_order`") {
			return true
		}
	}
	return false
}

// passed waits until the clock of the server and the one that a client has of it, which
// differ by little, are past what both show now: jobs that are enqueued after it have
// greater ids than those that were enqueued before it.
func passed(t *testing.T, db *dbtest.DB, c *Client) {
	t.Helper()
	must(t, c.clock.sync(t.Context(), &db.Session, instant.Now()))
	clocks := func() (earlier, later int64) {
		var server int64
		db.Scan(t, `SELECT {us {now}}`, nil, &server)
		ours := c.clock.now()
		return min(server, ours), max(server, ours)
	}
	_, latest := clocks()
	eventually(t, "the clocks have gone on", func() bool {
		now, _ := clocks()
		return now > latest
	})
}

func TestViews(t *testing.T) {
	dbtest.SkipGated(t, "migrations leave views out there")
	each(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		ready := enqueue(t, c, Job{Queue: "q", Kind: "k", Key: "x", Priority: Low})
		enqueue(t, c, Job{Queue: "q", Kind: "k", Priority: Urgent})
		delayed := enqueue(t, c, Job{Queue: "q", Kind: "later", Delay: time.Hour})
		enqueue(t, c, Job{Queue: "other", Kind: "k"})
		db.Do(t, `INSERT INTO {prefix}job_running (queue_id, divided, id, attempt, lock_by, started_at, kind, error) SELECT queue_id, 1, 11, 3, 'host:1:x', {now}, 'slow', 'was' FROM {prefix}queue WHERE name = 'q'`, nil)
		db.Do(t, `INSERT INTO {prefix}job_dead (queue_id, divided, id, attempt, died_at, kind, error, detail) SELECT queue_id, 0, 12, 10, {now}, 'bad', 'why', '' FROM {prefix}queue WHERE name = 'q'`, nil)

		got := db.List(t, `SELECT state, kind, COALESCE(job_key, '-'), priority, attempt, COALESCE(worker, '-'), error,
			CASE WHEN run_at IS NULL THEN 0 ELSE 1 END + CASE WHEN since IS NULL THEN 0 ELSE 2 END
			FROM {prefix}v_job WHERE queue = 'q' AND kind <> 'k' ORDER BY kind`, nil)
		if want := []string{
			"dead bad - 2 10 - why 2", "delayed later - 2 0 -  1",
			"running slow - 2 3 host:1:x was 2",
		}; !slices.Equal(got, want) {
			t.Errorf("got %q", got)
		}
		for _, id := range []int64{ready, delayed} {
			i, err := adminOf(c).Job(t.Context(), "q", id)
			must(t, err)
			got := db.List(t, `SELECT state, priority, block, COALESCE(job_key, '') FROM {prefix}v_job WHERE queue = 'q' AND id = :id`,
				sqlrun.Args{"id": id})
			if want := []string{fmt.Sprint(i.State, " ", i.Priority, " ", i.Block, " ", i.Key)}; !slices.Equal(got, want) {
				t.Errorf("got %q, want %q", got, want)
			}
			var enqueued int64
			db.Scan(t, `SELECT {us enqueued_at} FROM {prefix}v_job WHERE id = :id`, sqlrun.Args{"id": id}, &enqueued)
			if off := time.UnixMicro(enqueued).Sub(i.Enqueued); off.Abs() > time.Millisecond { // what SQLite stores
				t.Errorf("it is off by %v", off)
			}
		}

		start(t, worker(t, c, WorkerOptions{Queues: []string{"idle"}}))
		eventually(t, "a worker is counted", func() bool {
			return db.List(t, `SELECT workers FROM {prefix}v_queue WHERE name = 'idle'`, nil)[0] == "1"
		})
		got = db.List(t, `SELECT name, state, ready_jobs, delayed_jobs, running_jobs, dead_jobs, blocks, workers FROM {prefix}v_queue ORDER BY name`, nil)
		if want := []string{"idle active 0 0 0 0 2 1", "other active 1 0 0 0 2 0", "q active 2 1 1 1 2 0"}; !slices.Equal(got, want) {
			t.Errorf("got %q", got)
		}
		var age float64
		db.Scan(t, `SELECT oldest_ready_seconds FROM {prefix}v_queue WHERE name = 'q'`, nil, &age)
		if age < -1 || age > longWait.Seconds() {
			t.Errorf("the oldest job has been ready for %v s", age)
		}
		if none := db.List(t, `SELECT oldest_ready_seconds FROM {prefix}v_queue WHERE name = 'idle'`, nil); none[0] != "NULL" {
			t.Errorf("where there is none: %v", none)
		}
	})
}
