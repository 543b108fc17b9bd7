package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/sqlschema"
)

// abroad makes a database of another engine, which has a queue named to.
func abroad(t *testing.T, db *dbtest.DB) (*dbtest.DB, *Client) {
	t.Helper()
	engine := map[string]string{"postgres": "mysql", "mysql": "sqlite", "mariadb": "postgres", "sqlite": "mariadb"}[db.Engine]
	there := dbtest.Fresh(t, engine)
	must(t, sqlschema.Migrate(t.Context(), there.DB))
	c := client(t, there, Options{})
	must(t, c.create(t.Context(), "to", 3))
	return there, c
}

// Jobs in another database are what they were, but for their ids: nobody can tell from what a job has that it came from elsewhere.
func TestMoveTo(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{Blocks: 2})
		there, to := abroad(t, db)
		at := time.Now().Add(24 * time.Hour).UTC().Truncate(time.Millisecond) //nolint:forbidigo // any time that is far
		w := worker(t, other(t, db), WorkerOptions{Concurrency: 1})
		handle(t, w, "fails", func(context.Context, *Delivery) error { return errors.New("no such host") })
		handle(t, w, "dies", func(ctx context.Context, d *Delivery) error {
			must(t, d.SetProgress(ctx, Progress{State: []byte(`{"at": 7}`), Percent: 50, Message: "half"}))
			return Bury(errors.New("no such user"))
		})
		enqueueMany(t, c, []Job{{Kind: "fails", Key: "k", Payload: []byte("0")}, {Kind: "dies", Payload: []byte(`"x"`), Tenant: "acme", Cost: 5}})
		must(t, w.RunOnce(t.Context()))
		enqueueMany(t, c, []Job{
			{Kind: "order", Key: "k", Payload: []byte("1")},
			{Kind: "order", Key: "k", Payload: []byte("2"), Priority: Urgent},
			{
				Kind: "full", Priority: Low, Payload: []byte(`{"a":  1}`), MaxAttempts: 3, Timeout: time.Minute, Tenant: "acme", Cost: 9,
				Trace: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", Endpoint: "https://worker.example.org/?a=b",
			},
			{Kind: "binary", Payload: []byte("\xff\x00"), Binary: true, Priority: Idle},
			{Kind: "later", RunAt: at, Unique: "u"},
			{Kind: "once", Unique: "v", UniqueFor: time.Hour},
			{Kind: "begins", Unique: "w", UniqueUntil: UntilBegin},
		})
		_, _, err := c.EnqueueGroup(t.Context(), Group{}, Job{Kind: "grouped"})
		must(t, err)
		wanted := jobsIn(t, c, "")
		if len(wanted) != 10 {
			t.Fatalf("there are %d jobs: %v", len(wanted), wanted)
		}
		_, err = c.MoveTo(t.Context(), "", to, "to", MoveOptions{})
		want(t, "a queue that is active", err, ErrState)
		must(t, adminOf(c).Pause(t.Context(), defaultQueue, ""))
		_, err = c.MoveTo(t.Context(), "", to, "none", MoveOptions{})
		want(t, "no such queue", err, ErrNotFound)
		elsewhere(t, c, "here", 1)
		_, err = c.MoveTo(t.Context(), "", other(t, db), "here", MoveOptions{})
		want(t, "the same database", err, ErrInvalid)
		for _, dry := range []bool{true, false} {
			got, err := c.MoveTo(t.Context(), "", to, "to", MoveOptions{DryRun: dry})
			if must(t, err); got != (Moved{Jobs: 9, Grouped: 1}) {
				t.Errorf("dry run %v: %+v", dry, got)
			}
		}
		grouped := func(text string) bool { return strings.Contains(text, "grouped") }
		if left := jobsIn(t, c, ""); len(left) != 1 || !grouped(left[0]) {
			t.Errorf("here is left %q", left)
		}
		wanted = slices.DeleteFunc(wanted, grouped)
		if got := jobsIn(t, to, "to"); !slices.Equal(got, wanted) {
			t.Errorf("there is\n%s\nnot\n%s", strings.Join(got, "\n"), strings.Join(wanted, "\n"))
		}
		wantRows(t, there, "unique keys, and no mark", `SELECT unique_key, pending, CASE WHEN free_at > {now} THEN 1 ELSE 0 END
			FROM {prefix}job_unique ORDER BY unique_key`, "u yes 0", "v yes 1", "w yes 0")
		wantRows(t, db, "keys here", `SELECT unique_key FROM {prefix}job_unique`)

		var done record // the key is done in its order, and what waited for its retry is first
		work := func() {
			t.Helper()
			w := worker(t, to, WorkerOptions{Queues: []string{"to"}, Concurrency: 1})
			for _, kind := range []string{"fails", "order", "full", "binary", "once", "begins"} {
				handle(t, w, kind, func(_ context.Context, d *Delivery) error {
					if d.Key != "" {
						done.add("%s %s %d", d.Kind, d.Payload, d.Attempt)
					}
					return nil
				})
			}
			must(t, w.RunOnce(t.Context()))
		}
		work()
		if done.len() != 0 {
			t.Errorf("done before the retry were %q", done.all())
		}
		there.Do(t, `UPDATE {prefix}job_delayed SET run_at = {now} WHERE hold_key IS NOT NULL`, nil)
		work()
		if got := done.all(); !slices.Equal(got, []string{"fails 0 2", "order 2 1", "order 1 1"}) && !slices.Equal(got, []string{"fails 0 2", "order 1 1", "order 2 1"}) {
			t.Errorf("done were %q", got)
		}
	})
}

// jobsIn describes the jobs of a queue, but for their ids, blocks and times.
func jobsIn(t *testing.T, c *Client, queue string) (all []string) {
	t.Helper()
	for _, state := range []admin.State{admin.StateReady, admin.StateDelayed, admin.StateDead} {
		jobs, _, err := adminOf(c).Jobs(t.Context(), admin.Filter{Queue: queue, State: state, Limit: 10_000})
		must(t, err)
		for _, j := range jobs {
			j, err := adminOf(c).Job(t.Context(), queue, j.ID)
			must(t, err)
			at := ""
			if j.Kind == "later" || j.State == admin.StateDead {
				at = j.At.UTC().Round(time.Millisecond).String() // SQLite has no more
			}
			j.ID, j.Queue, j.Block, j.Enqueued, j.At = 0, "", 0, time.Time{}, time.Time{}
			all = append(all, fmt.Sprintf("%+v %s", j, at))
		}
	}
	slices.Sort(all)
	return all
}

// Wherever a move breaks off, on this side or on that one, and whether or not the server did its last work: another one does the rest,
// no job is there twice, and none is in neither database. What is one step of both databases is two, so each pair of steps has a gap.
func TestMoveToBroken(t *testing.T) {
	dbtest.EachClock(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{Blocks: 1})
		there, to := abroad(t, db)
		must(t, c.create(t.Context(), defaultQueue, 1))
		must(t, adminOf(c).Pause(t.Context(), defaultQueue, ""))
		count := func(d *dbtest.DB) string {
			return strings.Join(d.List(t, `SELECT (SELECT COUNT(*) FROM {prefix}job WHERE kind <> ''), (SELECT COUNT(*) FROM {prefix}job_delayed WHERE kind <> ''),
				(SELECT COUNT(*) FROM {prefix}job_dead), (SELECT COUNT(*) FROM {prefix}job_unique)`, nil), "")
		}
		for _, side := range []string{"here", "there"} {
			for call := 1; ; call++ {
				hit := false
				for _, after := range []bool{false, true} {
					c := client(t, db, Options{}) // whose clock is the database's, which stands still
					enqueueMany(t, c, []Job{{Kind: "dead"}})
					db.Do(t, `UPDATE {prefix}job SET unique_key = NULL`, nil)
					die(t, db)
					enqueueMany(t, c, []Job{{Kind: "x", Unique: "a"}, {Kind: "x"}, {Kind: "x", Delay: time.Hour}})
					fault := &dbtest.Fault{Call: call, After: after}
					from, dest := c, to
					if side == "here" {
						from = client(t, db.Broken(t, fault), Options{})
					} else {
						dest = client(t, there.Broken(t, fault), Options{})
					}
					_, err := from.MoveTo(t.Context(), "", dest, "to", MoveOptions{})
					hit = hit || err != nil
					db.Advance(t, time.Minute) // what has died is over
					if err != nil {
						_, err = c.MoveTo(t.Context(), "", to, "to", MoveOptions{})
					}
					must(t, err)
					if n, m := count(db), count(there); n != "0 0 0 0" || !strings.HasPrefix(m, "2 1 1 ") {
						t.Fatalf("%s, call %d broken (%v): %s are here, and %s there", side, call, after, n, m)
					}
					for _, table := range []string{"job", "job_delayed", "job_dead", "job_unique"} {
						there.Do(t, `DELETE FROM {prefix}`+table, nil)
					}
				}
				if !hit {
					break
				}
			}
		}
	})
}

// A unique key that is in use there keeps its job here, and the later jobs of its ordering key.
func TestMoveToTaken(t *testing.T) {
	dbtest.Memory.Each(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{Blocks: 1})
		_, to := abroad(t, db)
		enqueueMany(t, to, []Job{{Kind: "x", Queue: "to", Unique: "u"}})
		enqueueMany(t, c, []Job{{Kind: "x", Key: "k"}, {Kind: "x", Key: "k", Unique: "u"}, {Kind: "x", Key: "k"}, {Kind: "x"}})
		must(t, adminOf(c).Pause(t.Context(), defaultQueue, ""))
		for _, wanted := range []Moved{{Jobs: 2, Taken: 1, Behind: 1}, {Taken: 1, Behind: 1}} {
			got, err := c.MoveTo(t.Context(), "", to, "to", MoveOptions{})
			if must(t, err); got != wanted {
				t.Errorf("moved %+v, not %+v", got, wanted)
			}
		}
	})
}
