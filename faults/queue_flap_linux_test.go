package faults

import (
	"net/url"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/queue/admin"
)

// TestQueueFlaps cuts the connections of worker processes again and again, for longer than their
// leases and two seconds after jobs have begun, alone and all of them at once. No process dies, so no
// job is a dead letter, and each job is done once that has the time.
//
// It runs only with -minutes: see "make faults".
func TestQueueFlaps(t *testing.T) {
	if *minutes == 0 {
		t.Skip("it takes minutes: make faults")
	}
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		if u, err := url.Parse(db.URL); err != nil || u.Host == "" {
			t.Skip("there is no network to this database")
		}
		cuts := 0
		for _, workers := range []int{1, 3} {
			w := newWorkshop(t, db)
			if _, err := adminOf(w.c).Edit(t.Context(), "work", func(*admin.Queue) {}); err != nil {
				t.Fatal(err)
			}
			var wires []*wire
			var all []*child
			for range workers {
				through := newWire(t, db.URL)
				wires = append(wires, through)
				all = append(all, start(t, "queue worker", part{URL: through.url, Name: "work", File: w.file, TTL: 8 * time.Second, Concurrency: 4}))
			}
			ids := w.enqueue(queue.Job{Kind: "four"}, queue.Job{Kind: "four", Key: "k"}, queue.Job{Kind: "four"})
			for n := range 6 {
				w.until("a job has begun", func() bool { return len(w.lines("start", ids[0])) > n || w.ended(ids...)() })
				_ = wait(t.Context(), 2*time.Second)
				for _, through := range wires {
					through.breaks(true)
				}
				cuts++
				_ = wait(t.Context(), 13*time.Second)
				for _, through := range wires {
					through.breaks(false)
				}
			}
			w.until("all have ended", w.ended(ids...))
			empty := func() bool {
				n, err := adminOf(w.c).Count(t.Context(), "work", 10)
				return err == nil && n.Ready+n.Delayed+n.Running == 0
			}
			w.until("nothing is left", empty)
			for _, dead := range db.List(t, `SELECT id, error FROM {prefix}job_dead`, nil) {
				t.Errorf("with %d workers: %s", workers, dead)
			}
			for _, c := range all {
				c.tell("stop")
				c.hear("stopped")
			}
		}
		figures(t, map[string]int{"cuts": cuts})
	}, (*testing.T).Parallel)
}
