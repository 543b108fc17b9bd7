package queue

import (
	"bytes"
	"context"
	"testing"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/dialect/postgres"
	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/sqlschema"
)

// However a program connects, a job's bytes and its progress are what was given, wherever they are read:
// fetched as ready and as delayed, shown while it runs, and of a dead letter.
//
// dialect's TestValuesComeBackAsTheyWere has all types and calls; here are the places where bytes come
// out.
func TestBytesComeBackAsTheyWere(t *testing.T) {
	t.Parallel()
	dbtest.One(t, postgres.Dialect, func(t *testing.T, db *dbtest.DB) {
		must(t, sqlschema.Migrate(t.Context(), db.DB))
		payload, state := []byte{0, 1, 255}, []byte(`\x00`+"\xff\x00")
		db.EachWay(t, func(t *testing.T, db *dbtest.DB) {
			c := client(t, db, Options{Blocks: 1})
			edit(t, c, func(q *admin.Queue) { impatient(q); q.MaxAttempts = 2 })
			w := worker(t, c, WorkerOptions{})
			same := func(where string, got, want []byte) {
				t.Helper()
				if !bytes.Equal(got, want) {
					t.Errorf("%s: %q instead of %q", where, got, want)
				}
			}
			shown := func(where string, id int64) {
				t.Helper()
				i, err := adminOf(c).Job(t.Context(), "", id)
				must(t, err)
				if !i.Binary {
					t.Errorf("%s: it is taken for JSON", where)
				}
				same(where, i.Payload, payload)
				same(where+": progress", i.Progress.State, state)
			}
			handle(t, w, "x", func(ctx context.Context, d *Delivery) error {
				same("delivered", d.Payload, payload)
				if d.Attempt == 1 {
					must(t, d.SetProgress(ctx, Progress{State: state}))
				}
				same("progress", d.Progress().State, state)
				shown("running", d.ID)
				return errTest
			})
			start(t, w)
			id := enqueue(t, c, Job{Kind: "x", Payload: payload, Binary: true})
			becomes(t, c, id, admin.StateDead)
			shown("dead", id)
			must(t, adminOf(c).Delete(t.Context(), "", id))
		}, "exec", "simple_protocol") // in which all values come as text
	})
}
