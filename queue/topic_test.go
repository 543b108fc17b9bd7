package queue

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/admin"
)

// Each queue that has subscribed gets a copy, and the copies' outcomes can be read.
func TestPublish(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		p, err := c.Publish(t.Context(), "news", Job{Kind: "x"})
		must(t, err)
		if p.ID != 0 || len(p.Queues) != 0 || rowsOf(t, db) != 0 {
			t.Errorf("without subscribers: %+v", p)
		}
		for range 2 {
			for _, queue := range []string{"a", "b", ""} {
				must(t, c.Subscribe(t.Context(), "news", queue))
			}
		}
		must(t, c.Subscribe(t.Context(), "Alpha", "z"))
		must(t, c.Subscribe(t.Context(), "News", "c"))
		must(t, c.Subscribe(t.Context(), "news", "gone"))
		db.Do(t, `UPDATE {prefix}queue SET state = 'deleted' WHERE name = 'gone'`, nil)
		want(t, "a deleted queue", c.Subscribe(t.Context(), "news", "gone"), ErrDeleted)
		p, err = c.Publish(t.Context(), "news", Job{Kind: "x", Payload: []byte(`{"n":  1}`), Key: "k"})
		must(t, err)
		if !slices.Equal(p.Queues, []string{"a", "b", "default"}) || len(p.Copies) != 3 || counts(t, c, p.ID) != "sealed 3 0 0 0" {
			t.Errorf("got %+v, %s", p, counts(t, c, p.ID))
		}
		for i, queue := range p.Queues {
			j, err := adminOf(c).Job(t.Context(), queue, p.Copies[i].ID)
			if err != nil || j.Group != p.ID || string(j.Payload) != `{"n":  1}` || j.Key != "k" {
				t.Errorf("in %s: %+v, %v", queue, j, err)
			}
		}
		w := worker(t, other(t, db), WorkerOptions{Queues: []string{"a", "b"}})
		handle(t, w, "x", func(_ context.Context, d *Delivery) error {
			if d.Queue == "b" {
				return Bury(errTest)
			}
			return nil
		})
		must(t, w.RunOnce(t.Context()))
		if got := counts(t, c, p.ID); got != "sealed 1 1 1 0" {
			t.Errorf("two are done: %s", got)
		}
		must(t, adminOf(c).Cancel(t.Context(), "", p.Copies[2].ID))
		if got := counts(t, c, p.ID); got != "done 0 1 1 1" {
			t.Errorf("all have ended: %s", got)
		}
		must(t, c.Unsubscribe(t.Context(), "news", "b"))
		want(t, "again", c.Unsubscribe(t.Context(), "news", "b"), ErrNotFound)
		all, err := adminOf(c).Subscriptions(t.Context(), admin.Subscription{Topic: "News", Queue: "c"}, 2)
		must(t, err)
		if !slices.Equal(all, []admin.Subscription{{Topic: "news", Queue: "a"}, {Topic: "news", Queue: "default"}}) {
			t.Errorf("got %v", all)
		}
		for _, commits := range []bool{false, true} {
			var p Published
			err := db.Tx(t.Context(), func(ctx context.Context, tx *sqlrun.Session) (err error) {
				if p, _, err = c.PublishTx(ctx, tx.Execer(), "news", Job{Kind: "x"}); err == nil && !commits {
					err = errTest
				}
				return err
			})
			if _, found := c.Group(t.Context(), p.ID); commits != (err == nil) || commits != (found == nil) || len(p.Copies) != 2 {
				t.Errorf("commits: %v: %v, %v, %+v", commits, err, found, p)
			}
		}
	})
}

// What cannot be published, or subscribed to, is refused.
func TestBadTopics(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		want(t, "topic", c.Subscribe(t.Context(), "", "q"), ErrInvalid)
		want(t, "topic", c.Subscribe(t.Context(), "a\n", "q"), ErrInvalid)
		want(t, "queue", c.Subscribe(t.Context(), "a", "q\n"), ErrInvalid)
		must(t, c.Subscribe(t.Context(), "a", "q"))
		for _, bad := range []struct {
			topic string
			job   Job
		}{
			{"", Job{Kind: "x"}},
			{"a", Job{}},
			{"nobody", Job{}},
			{"a", Job{Kind: "x", Queue: "q"}},
			{"a", Job{Kind: "x", Group: 7}},
			{"a", Job{Kind: "x", Payload: []byte("{")}},
		} {
			_, err := c.Publish(t.Context(), bad.topic, bad.job)
			want(t, fmt.Sprintf("%+v", bad), err, ErrInvalid)
		}
		_, err := adminOf(c).Subscriptions(t.Context(), admin.Subscription{}, 0)
		want(t, "limit", err, ErrInvalid)
		if n := rowsOf(t, db); n != 0 {
			t.Errorf("%d jobs", n)
		}
	})
}

// Wherever a publisher's connection breaks, all copies are there or none.
func TestPublishFaults(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		queues := []string{"a", "b", "c"}
		for _, queue := range queues {
			must(t, c.Subscribe(t.Context(), "t", queue))
		}
		for call := 1; ; call++ {
			hit := false
			for _, after := range []bool{false, true} {
				broken := db.Broken(t, &dbtest.Fault{Call: call, After: after})
				broken.Pool().SetMaxOpenConns(2)
				_, err := client(t, broken, Options{}).Publish(t.Context(), "t", Job{Kind: "x"})
				hit = hit || err != nil
			}
			counts := db.List(t, `SELECT COUNT(*) FROM {prefix}job_member GROUP BY group_id`, nil)
			if slices.ContainsFunc(counts, func(n string) bool { return n != "3" }) || rowsOf(t, db) != 3*len(counts) {
				t.Fatalf("call %d: %d jobs of publications with %v", call, rowsOf(t, db), counts)
			}
			if !hit {
				break
			}
		}
	})
}

// While queues subscribe and end that, each publication has as many copies as it says.
func TestPublishUnderWay(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{Blocks: 1})
		var group sync.WaitGroup
		for i := range 2 {
			from, queue := other(t, db), fmt.Sprint("q", i)
			group.Go(func() {
				for range 20 {
					if err := from.Subscribe(t.Context(), "t", queue); err != nil {
						t.Error(err)
					}
					if err := from.Unsubscribe(t.Context(), "t", queue); err != nil {
						t.Error(err)
					}
				}
			})
		}
		for range 2 {
			from := other(t, db)
			group.Go(func() {
				for range 30 {
					p, err := from.Publish(t.Context(), "t", Job{Kind: "x"})
					if err != nil {
						t.Error(err)
						continue
					}
					for i, queue := range p.Queues {
						if _, err := adminOf(c).Job(t.Context(), queue, p.Copies[i].ID); err != nil {
							t.Errorf("copy in %s: %v", queue, err)
						}
					}
				}
			})
		}
		group.Wait()
	})
}

// Whoever ends a subscription ends that one.
func TestTopicStatements(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		for _, topic := range []string{"s", "t"} {
			must(t, c.Subscribe(t.Context(), topic, "a"))
			must(t, c.Subscribe(t.Context(), topic, "b"))
		}
		must(t, c.Unsubscribe(t.Context(), "t", "a"))
		wantRows(t, db, "subscriptions", `SELECT topic, queue FROM {prefix}topic_queue ORDER BY topic, queue`, "s a", "s b", "t b")
	})
}
