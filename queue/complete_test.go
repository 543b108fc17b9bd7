package queue

import (
	"context"
	"fmt"
	"testing"

	"github.com/dbcron/dbcron/dialect/dbtest"
)

// A job may take long before it is completed in its transaction, also where that
// transaction keeps all others from writing: nobody waits for the other then.
func TestCompleteTxOfASlowJob(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		for _, key := range []string{"", "k"} {
			for _, commits := range []bool{true, false} {
				name := fmt.Sprintf("effects_%s_%v", key, commits)
				db.Do(t, "CREATE TABLE "+name+" (job BIGINT NOT NULL)", nil)
				c := client(t, db, Options{})
				edit(t, c, impatient)
				w := worker(t, c, WorkerOptions{Lease: longWait})
				w.slow = 1
				var r record
				handle(t, w, "x", func(ctx context.Context, d *Delivery) error {
					tx := db.Begin(t, nil)
					defer tx.Rollback() //nolint:errcheck // after a commit it does nothing
					r.add("attempt %d", d.Attempt)
					if _, err := tx.ExecContext(ctx, fmt.Sprintf("INSERT INTO %s VALUES (%d)", name, d.ID)); err != nil {
						return err
					}
					eventually(t, "it is to be checked out", func() bool {
						w.mu.Lock()
						defer w.mu.Unlock()
						return d.moving || d.from == tableRunning
					})
					if err := d.CompleteTx(ctx, tx); err != nil {
						t.Logf("completing: %v", err)
						return err
					}
					if !commits && d.Attempt == 1 {
						return errTest
					}
					return tx.Commit()
				})
				handle(t, w, "next", func(context.Context, *Delivery) error { r.add("next"); return nil })
				stop := start(t, w)
				enqueue(t, c, Job{Kind: "x", Key: key})
				enqueue(t, c, Job{Kind: "next", Key: "k"})
				want := map[bool]int{true: 2, false: 3}[commits]
				eventually(t, fmt.Sprint("there are records: ", want), func() bool { return r.len() >= want })
				empty(t, db)
				stop()
				var effects int
				if db.Scan(t, "SELECT COUNT(*) FROM "+name, nil, &effects); effects != 1 || r.len() != want || key != "" && r.all()[want-1] != "next" {
					t.Errorf("key %q, %v: %d effects; %q", key, commits, effects, r.all())
				}
			}
		}
	})
}

// A worker AtMostOnce that is stopped does what it has removed, and nothing more.
func TestAtMostOnceStopped(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		var jobs []Job
		for i := range 100 {
			jobs = append(jobs, Job{Kind: "x", Key: []string{"", "k"}[i%2]})
		}
		ids := enqueueMany(t, c, jobs)
		var r record
		began, goOn := make(chan bool, len(jobs)), make(chan bool)
		w := worker(t, c, WorkerOptions{AtMostOnce: true, Concurrency: 1, Batch: 10, Grace: longWait})
		handle(t, w, "x", func(_ context.Context, d *Delivery) error {
			r.add("%d", d.ID)
			began <- true
			<-goOn
			return nil
		})
		stop := start(t, w)
		received(t, "one begins", began)
		stopped := make(chan bool)
		go func() { stop(); close(stopped) }()
		eventually(t, "it is being stopped", func() bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.closing
		})
		close(goOn)
		received(t, "it ends", stopped)
		if n := rowsOf(t, db); n+r.len() != len(jobs) || n == 0 {
			t.Errorf("%d jobs were done, and %d are left", r.len(), n)
		}
		crew(t, db, 1, WorkerOptions{AtMostOnce: true}, func(_ context.Context, d *Delivery) error { r.add("%d", d.ID); return nil })
		empty(t, db)
		eventually(t, "all are done", func() bool { return r.len() >= len(jobs) })
		for _, id := range ids {
			if n := r.count(fmt.Sprint(id)); n != 1 {
				t.Errorf("job %d was done %d times", id, n)
			}
		}
	})
}
