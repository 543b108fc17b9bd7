package faults

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/queue"
)

// A session at the SQL prompt takes a job for a second, completes it in a transaction and leaves that open. A worker
// that shares its queue, and another queue, notices within the usual seconds that the other worker of that one was
// killed, and does its job.
func TestDeathBesideAStranger(t *testing.T) {
	long(t)
	t.Parallel()
	dbtest.Routines.Each(t, func(t *testing.T, db *dbtest.DB) {
		const lease, usual = 2 * time.Second, 15 * time.Second
		w := newWorkshop(t, db)
		at := part{URL: db.URL, Name: "work", File: w.file, TTL: lease, Concurrency: 4}
		second := start(t, "queue worker", at)
		ids := w.enqueue(queue.Job{Kind: "long"}, queue.Job{Kind: "long", Key: "k"})
		w.until("the second worker does its jobs", func() bool { return len(w.lines("start", ids[0]))+len(w.lines("start", ids[1])) == 2 })
		finish := completesAndWaits(t, w, "s")
		at.Name = "work s"
		first := start(t, "queue worker", at)
		_ = wait(t.Context(), 2*lease) // the stranger's lease has ended by now
		killed := instant.Now()
		second.kill()
		w.until("the first worker does them", func() bool { return len(w.lines("start", ids[0]))+len(w.lines("start", ids[1])) == 4 })
		took := instant.Now().Sub(killed)
		t.Logf("it was noticed after %v", took)
		if took > usual {
			t.Errorf("it took %v, beside a stranger's transaction", took)
		}
		finish()
		for _, id := range ids {
			if err := adminOf(w.c).Cancel(t.Context(), "work", id); err != nil {
				t.Error(err)
			}
		}
		w.until("nothing is left", func() bool { return len(db.List(t, `SELECT id FROM {prefix}job_running`, nil)) == 0 })
		if dead := db.List(t, `SELECT id, error FROM {prefix}job_dead`, nil); len(dead) > 0 {
			t.Errorf("dead: %q", dead)
		}
		first.tell("stop")
		first.hear("stopped")
	}, (*testing.T).Parallel)
}

// completesAndWaits takes a job of a queue at the SQL prompt, completes it, and leaves the transaction open. finish
// commits it.
func completesAndWaits(t *testing.T, w *workshop, queueName string) (finish func()) {
	t.Helper()
	db := w.db
	conn, err := db.Pool().Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	ctx := context.WithoutCancel(t.Context())
	do := func(text string, to ...any) {
		t.Helper()
		var err error
		if len(to) > 0 {
			err = conn.QueryRowContext(ctx, text).Scan(to...)
		} else {
			_, err = conn.ExecContext(ctx, text)
		}
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			t.Fatalf("%s: %v", text, err)
		}
	}
	p, v, isPostgres := db.Prefix(), db.Name(), db.Dialect.Name == "postgres" // variables belong to no database
	do(map[string]string{                                                     // who sits at it may think
		"postgres": "SET idle_in_transaction_session_timeout = 0",
		"mariadb":  "SET SESSION idle_transaction_timeout = 0",
		"mysql":    "SET SESSION wait_timeout = 600",
	}[db.Engine])
	for range 10 {
		if _, err := w.c.Enqueue(t.Context(), queue.Job{Queue: queueName, Kind: "plain"}); err != nil {
			t.Fatal(err)
		}
		var done bool
		if isPostgres {
			var job int64
			var token string
			do("SELECT job, token FROM "+p+"take('"+queueName+"', '1 second')", &job, &token)
			do("BEGIN")
			do(fmt.Sprintf("SELECT %scomplete(%d, '%s')", p, job, token), &done)
		} else {
			do("CALL " + p + "take('" + queueName + "', 1, NULL)")
			do("BEGIN")
			do("CALL " + p + "complete(@" + v + "job, @" + v + "token, NULL, @done)")
			do("SELECT COALESCE(@done, 0)", &done)
		}
		if done {
			return func() { do("COMMIT") }
		}
		do("ROLLBACK") // the machine was slower than the lease
	}
	t.Fatal("no job could be completed at the prompt within a second")
	return nil
}
