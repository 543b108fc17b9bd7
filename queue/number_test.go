package queue

import (
	"context"
	"testing"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/sqlrun"
)

// A number of a queue that a person has written, however great, keeps nobody from making queues, and their jobs are done;
// also once it is gone, since MySQL, MariaDB and SQLite go on from the greatest number that there ever was.
//
// The class is a number that the database gives, beside one that a person gives. Of the tables with such numbers, schedules
// and runs have 64 bits, which nobody uses up by writing a number of 32; ids of jobs are ours.
func TestGreatestNumberOfAQueue(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		elsewhere(t, client(t, db, Options{}), "first", 1)
		for _, number := range []string{"2147483646", "2147483647", "99999999999"} {
			written := sqlrun.Unlisted(`INSERT INTO {prefix}queue (queue_id, name) VALUES (` + number + `, 'written')`)
			if _, err := db.Exec(t.Context(), written, nil); err != nil && !db.Dialect.Refused(err) {
				t.Error(err)
			}
			for _, made := range []string{number + "a", number + "b", number + "c"} {
				if made == number+"c" {
					db.Do(t, `DELETE FROM {prefix}queue WHERE name = 'written'`, nil)
				}
				c := other(t, db)
				enqueue(t, c, Job{Queue: made, Kind: "x"})
				var done record
				w := worker(t, c, WorkerOptions{Queues: []string{made}})
				handle(t, w, "x", func(context.Context, *Delivery) error { done.add("done"); return nil })
				start(t, w)
				done.wants(t, "done")
			}
		}
	})
}
