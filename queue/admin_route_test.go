package queue

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// wantQueue fails the test unless jobs are enqueued in a queue, however they are.
func wantQueue(t *testing.T, db *dbtest.DB, c *Client, job Job, name string) {
	t.Helper()
	check := func(how string, all []Enqueued, err error) {
		t.Helper()
		must(t, err)
		for _, e := range all {
			if e.Queue != name {
				t.Errorf("%s: a job of kind %s goes to %s, not %s", how, job.Kind, e.Queue, name)
			}
			_, err := adminOf(c).Job(t.Context(), name, e.ID)
			want(t, how+": it is there", err, nil)
		}
	}
	e, err := c.Enqueue(t.Context(), job)
	check("one", []Enqueued{e}, err)
	all, err := c.EnqueueMany(t.Context(), []Job{job, job})
	check("many", all, err)
	tx := db.Begin(t, nil)
	all, _, err = c.EnqueueTx(t.Context(), tx, job)
	must(t, errors.Join(err, tx.Commit()))
	check("in a transaction", all, err)
	err = db.Tx(t.Context(), func(ctx context.Context, tx *sqlrun.Session) (err error) {
		all, _, err = c.EnqueueIn(ctx, tx, job)
		return err
	})
	check("in one of dialect.DB", all, err)
}

// A job that names no queue goes where the route of its kind says, else where that of the
// other kinds does, else to the queue default.
func TestRoutes(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		wantQueue(t, db, c, Job{Kind: "mail"}, defaultQueue)
		must(t, adminOf(c).SetRoute(t.Context(), "mail", "made")) // as each of a queue's settings does
		_, err := adminOf(c).Queue(t.Context(), "made")
		must(t, err)
		must(t, adminOf(c).DeleteRoute(t.Context(), "mail"))
		for _, name := range []string{"a", "b", "gone"} {
			_, err := adminOf(c).Edit(t.Context(), name, func(*admin.Queue) {})
			must(t, err)
		}
		_, err = adminOf(c).Edit(t.Context(), "gone", func(q *admin.Queue) { q.State = "deleted" })
		must(t, err)
		want(t, "a deleted queue", adminOf(c).SetRoute(t.Context(), "mail", "gone"), ErrDeleted)
		for _, bad := range [][2]string{{"", "a"}, {"mail", ""}, {"mail ", "a"}, {"mail", "a\n"}} {
			want(t, bad[0]+" to "+bad[1], adminOf(c).SetRoute(t.Context(), bad[0], bad[1]), ErrInvalid)
		}
		must(t, adminOf(c).SetRoute(t.Context(), "mail", "a"))
		must(t, adminOf(c).SetRoute(t.Context(), "mail", "a"))
		wantQueue(t, db, c, Job{Kind: "mail"}, "a")
		wantQueue(t, db, c, Job{Kind: "Mail"}, defaultQueue)
		wantQueue(t, db, c, Job{Kind: "mail", Queue: "b"}, "b")
		must(t, adminOf(c).SetRoute(t.Context(), admin.OtherKinds, "b"))
		wantQueue(t, db, c, Job{Kind: "mail"}, "a")
		wantQueue(t, db, c, Job{Kind: "Mail"}, "b")
		wantQueue(t, db, c, Job{Kind: "Mail", Queue: defaultQueue}, defaultQueue)
		must(t, adminOf(c).SetRoute(t.Context(), "mail", "b"))
		wantQueue(t, db, c, Job{Kind: "mail"}, "b")
		for after, want := range map[string][]admin.Route{"": {{Kind: "*", Queue: "b"}, {Kind: "mail", Queue: "b"}}, "*": {{Kind: "mail", Queue: "b"}}, "mail": nil} {
			if got, err := adminOf(c).Routes(t.Context(), after, 2); err != nil || !slices.Equal(got, want) {
				t.Errorf("routes after %q: %v, %v", after, got, err)
			}
		}
		must(t, adminOf(c).DeleteRoute(t.Context(), admin.OtherKinds))
		wantQueue(t, db, c, Job{Kind: "Mail"}, defaultQueue)
		want(t, "deleting it again", adminOf(c).DeleteRoute(t.Context(), admin.OtherKinds), ErrNotFound)
		wantQueue(t, db, c, Job{Kind: "mail"}, "b")
		all, err := c.EnqueueMany(t.Context(), []Job{{Kind: "mail"}, {Kind: "x"}, {Kind: "mail", Queue: "a"}, {Kind: "mail"}})
		must(t, err)
		if got := []string{all[0].Queue, all[1].Queue, all[2].Queue, all[3].Queue}; !slices.Equal(got, []string{"b", "default", "a", "b"}) {
			t.Errorf("of many kinds: %v", got)
		}
		_, err = adminOf(c).Edit(t.Context(), "b", func(q *admin.Queue) { q.State = "deleted" })
		must(t, err)
		_, err = c.Enqueue(t.Context(), Job{Kind: "mail"})
		want(t, "its queue was deleted", err, ErrDeleted)
	})
}

// Other processes follow a route that changes, and the end of one.
func TestRoutesOfOthers(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		c, far := client(t, db, Options{}), other(t, db)
		_, err := adminOf(c).Edit(t.Context(), "a", func(*admin.Queue) {})
		must(t, err)
		goes := func(name string) func() bool {
			return func() bool {
				e, err := far.Enqueue(t.Context(), Job{Kind: "x"})
				must(t, err)
				return e.Queue == name
			}
		}
		eventually(t, "as before", goes(defaultQueue))
		must(t, adminOf(c).SetRoute(t.Context(), "x", "a"))
		eventually(t, "it follows", goes("a"))
		must(t, adminOf(c).DeleteRoute(t.Context(), "x"))
		eventually(t, "it follows the end", goes(defaultQueue))
	})
}

// Of several who set a route at once the last one counts, and none fails.
func TestRoutesAtOnce(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		var all []*Client
		for range 4 {
			all = append(all, other(t, db))
		}
		for _, name := range []string{"a", "b"} {
			_, err := adminOf(all[0]).Edit(t.Context(), name, func(*admin.Queue) {})
			must(t, err)
		}
		for range 5 {
			var group sync.WaitGroup
			for i, c := range all {
				group.Go(func() { want(t, "setting it", adminOf(c).SetRoute(t.Context(), "x", []string{"a", "b"}[i%2]), nil) })
			}
			group.Wait()
			want(t, "deleting it", adminOf(all[1]).DeleteRoute(t.Context(), "x"), nil)
		}
	})
}

// In a transaction routes are read there, and not remembered: it takes no second
// connection, and may be rolled back.
func TestRoutesInATransaction(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, dbtest.Open(t, db.URL, dialect.Options{MaxConns: 1}), Options{})
		var all []Enqueued
		err := c.db.Tx(t.Context(), func(ctx context.Context, tx *sqlrun.Session) (err error) {
			if _, err := tx.Exec(ctx, store.InsertRoute, sqlrun.Args{"kind": "x", "name": "new"}); err != nil {
				return err
			}
			if all, _, err = c.EnqueueIn(ctx, tx, Job{Kind: "x"}); err == nil {
				err = errTest
			}
			return err
		})
		want(t, "rolling back", err, errTest)
		if len(all) != 1 || all[0].Queue != "new" {
			t.Errorf("in the transaction it goes to %v", all)
		}
		e, err := c.Enqueue(t.Context(), Job{Kind: "x"})
		if err != nil || e.Queue != defaultQueue {
			t.Errorf("after it: %+v, %v", e, err)
		}
		// A route that was written by hand makes no queue with a name that cannot be.
		db.Do(t, `INSERT INTO {prefix}route (kind, queue) VALUES ('y', ' y')`, nil)
		for _, c := range []*Client{other(t, db), client(t, db, Options{})} {
			_, err = c.Enqueue(t.Context(), Job{Kind: "y"})
			want(t, "a name with a blank", err, ErrInvalid)
			err = c.db.Tx(t.Context(), func(ctx context.Context, tx *sqlrun.Session) error {
				_, _, err := c.EnqueueIn(ctx, tx, Job{Kind: "y"})
				return err
			})
			want(t, "a name with a blank, in a transaction", err, ErrInvalid)
		}
	})
}

// dbcron_enqueue follows routes as well.
func TestPromptRoutes(t *testing.T) {
	atPrompt(t, func(t *testing.T, db *dbtest.DB, p *prompt) {
		c := client(t, db, Options{})
		is := func(queue, kind any, name string) {
			t.Helper()
			id := p.must(t, call{queue: queue, kind: kind})
			_, err := adminOf(c).Job(t.Context(), name, id)
			want(t, "it is in "+name, err, nil)
		}
		is(nil, "x", defaultQueue)
		for _, name := range []string{"a", "b"} {
			_, err := adminOf(c).Edit(t.Context(), name, func(*admin.Queue) {})
			must(t, err)
		}
		must(t, adminOf(c).SetRoute(t.Context(), "x", "a"))
		is(nil, "x", "a")
		is("", "x", "a")
		is("b", "x", "b")
		is(nil, "X", defaultQueue)
		must(t, adminOf(c).SetRoute(t.Context(), admin.OtherKinds, "b"))
		is(nil, "X", "b")
		is(nil, "x", "a")
	})
}

// Whatever breaks, a route is set or it is not, and can be set again.
func TestRoutesFaults(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		elsewhere(t, c, "a", 1)
		for call := 1; ; call++ {
			hit := false
			for _, after := range []bool{false, true} {
				fault := &dbtest.Fault{Call: call, After: after}
				err := adminOf(client(t, db.Broken(t, fault), Options{})).SetRoute(t.Context(), "x", "a")
				hit = hit || fault.Reached()
				name, err2 := adminOf(c).Route(t.Context(), "x")
				if must(t, err2); err == nil && name != "a" {
					t.Errorf("it was set, and leads to %s", name)
				}
				must(t, adminOf(c).SetRoute(t.Context(), "x", "a"))
				must(t, adminOf(c).DeleteRoute(t.Context(), "x"))
			}
			if !hit {
				break
			}
		}
	})
}
