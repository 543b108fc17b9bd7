package health

import (
	"fmt"
	"testing"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/queue/queuetest"
	"github.com/dbcron/dbcron/scheduler"
)

// Notifications that cannot be delivered are told by their targets, once each. Otherwise their queue is nobody's: it is not behind, and
// has not too many workers.
func TestNotificationsThatFail(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		c := queuetest.Client(t, db.DB)
		enqueue := func(target string) int64 {
			t.Helper()
			e, err := c.Enqueue(t.Context(), queue.Job{Queue: notifications, Kind: "notify", Payload: fmt.Appendf(nil, `{"target": %q}`, target)})
			dbtest.Must(t, err)
			return e.ID
		}
		look := func() []Problem {
			t.Helper()
			now, err := scheduler.Clock(t.Context(), db.DB)
			dbtest.Must(t, err)
			now = now.Add(behindAfter)
			q, err := adminOf(c).Queue(t.Context(), notifications)
			dbtest.Must(t, err)
			depths, err := Depths(t.Context(), adminOf(c), []admin.Queue{q}, CountTo, now)
			dbtest.Must(t, err)
			all, err := OfQueues(t.Context(), db.DB, adminOf(c), depths, nil, map[string]Deaths{notifications: {Jobs: 1}}, now)
			dbtest.Must(t, err)
			more, err := OfWorkers(t.Context(), adminOf(c))
			dbtest.Must(t, err)
			return append(all, more...)
		}
		enqueue("mailto:new@example.org")
		for i := range 3 {
			db.Do(t, `INSERT INTO {prefix}node (name, state, expire_at) VALUES (:name, 'live', {now + 3600000000})`, sqlrun.Args{"name": fmt.Sprint("d", i)})
			db.Do(t, `INSERT INTO {prefix}queue_worker (queue_id, node) SELECT queue_id, :name FROM {prefix}queue`, sqlrun.Args{"name": fmt.Sprint("d", i)})
		}
		wants(t, look(), nil)
		for _, table := range []string{"job_delayed", "job_dead"} {
			for range 2 {
				id := enqueue("mailto:ops@" + table)
				columns, values := "attempt, error, kind, payload", "3, 'dial tcp: no such host', kind, payload"
				if table == "job_delayed" {
					columns, values = columns+", run_at", values+", {now + 600000000}"
				}
				db.Do(t, `INSERT INTO {prefix}`+table+` (queue_id, divided, id, `+columns+`) SELECT queue_id, divided, id, `+values+`
					FROM {prefix}job WHERE id = :id`, sqlrun.Args{"id": id})
				db.Do(t, `DELETE FROM {prefix}job WHERE id = :id`, sqlrun.Args{"id": id})
			}
		}
		wants(t, look(), nil,
			"!Notifications to mailto:ops@job_delayed cannot be delivered: tried 3 times; the last error: dial tcp: no such host; …notify test; …dbcron job retry ",
			"!Notifications to mailto:ops@job_dead cannot be delivered: tried 3 times; the last error: dial tcp: no such host; …dbcron job retry ")
		for _, state := range []admin.State{admin.StateDead, admin.StateDelayed} {
			_, err := adminOf(c).Bulk(t.Context(), admin.BulkRetry, admin.Filter{Queue: notifications, State: state}, admin.BulkOptions{})
			dbtest.Must(t, err)
		}
		db.Do(t, `DELETE FROM {prefix}job_delayed`, nil) // they are sent
		wants(t, look(), nil)
	})
}
