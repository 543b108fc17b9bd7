package queue

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/queue/admin"
)

// The jobs of a queue or a limit whose row means nothing wait, those of others and other kinds do not, and what repairs the row
// sets each column that means nothing. checkup's TestOneRowHarmsNoOther has all tables and columns.
func TestWrongRowIsRepaired(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		c, a := client(t, db, Options{}), adminOf(client(t, db, Options{}))
		for _, name := range []string{"bad", "good"} {
			elsewhere(t, c, name, 2)
		}
		_, err := a.EditLimit(t.Context(), "good", "limited", func(l *admin.Limit) { l.Running, l.Rate, l.Per = 3, 100, time.Second })
		must(t, err)
		db.Do(t, `UPDATE {prefix}queue SET retry_delay = '99999999d', keep_dead = '99999999d', keep_done = '99999999d', timeout = 'none'
			WHERE name = 'bad'`, nil)
		db.Do(t, `UPDATE {prefix}queue_limit SET rate_per = '99999999d'`, nil)
		var done record
		w := worker(t, other(t, db), WorkerOptions{Queues: []string{"bad", "good"}})
		for _, kind := range []string{"free", "limited"} {
			handle(t, w, kind, func(_ context.Context, d *Delivery) error { done.add("%s %s", d.Queue, d.Kind); return nil })
		}
		start(t, w)
		enqueue(t, c, Job{Queue: "bad", Kind: "free"})
		enqueue(t, c, Job{Queue: "good", Kind: "limited"})
		enqueue(t, c, Job{Queue: "good", Kind: "free"})
		done.wants(t, "good free")

		q, err := a.Queue(t.Context(), "bad")
		must(t, err)
		if !strings.HasPrefix(q.Wrong, `retry_delay: "99999999d" is longer than 100 years`) ||
			q.KeepDead >= 0 || q.KeepDone < time.Hour || q.State != "active" {
			t.Errorf("got %+v", q)
		}
		for column, change := range map[string]func(*admin.Queue){
			"retry_delay": func(q *admin.Queue) { q.KeepDead, q.KeepDone, q.Timeout = time.Hour, 0, 0 },
			"timeout":     func(q *admin.Queue) { q.KeepDead, q.KeepDone, q.RetryDelay = time.Hour, 0, time.Second },
			"keep_dead":   func(q *admin.Queue) { q.KeepDone, q.RetryDelay, q.Timeout = 0, time.Second, 0 },
		} {
			_, err := a.Edit(t.Context(), "bad", change)
			if want(t, "without "+column, err, ErrInvalid); err != nil && !strings.Contains(err.Error(), column+": ") {
				t.Errorf("without %s: %v", column, err)
			}
		}
		limits, err := a.LimitsOf(t.Context(), "good")
		must(t, err)
		if l := limits[0]; !strings.HasPrefix(l.Wrong, `rate_per: "99999999d" is longer than 100 years`) || l.Running != 3 {
			t.Errorf("got %+v", l)
		}
		n, err := a.Next(t.Context(), "good")
		must(t, err)
		if n.Held != 1 || n.Hold.Limit.Wrong == "" {
			t.Errorf("the job that waits is held by %+v", n.Hold)
		}
		done.wants(t, "good free")

		_, err = a.EditLimit(t.Context(), "good", "limited", func(l *admin.Limit) { l.Rate, l.Per = 100, time.Minute })
		must(t, err)
		done.wants(t, "good free", "good limited")
		_, err = a.Edit(t.Context(), "bad", func(q *admin.Queue) {
			q.KeepDead, q.KeepDone, q.RetryDelay, q.Timeout = time.Hour, 0, time.Second, 0
		})
		must(t, err)
		done.wants(t, "good free", "good limited", "bad free")
		if q, err = a.Queue(t.Context(), "bad"); err != nil || q.Wrong != "" || q.RetryDelay != time.Second {
			t.Errorf("got %+v, %v", q, err)
		}
	})
}
