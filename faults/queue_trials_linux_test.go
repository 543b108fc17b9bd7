package faults

import (
	"fmt"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/queue/admin"
)

// TestQueueHeadsAfterDeaths kills worker processes that do jobs in batches, one every three seconds. All of
// the jobs that ran are on trial then, and some of them have to run alone, though none of them is the cause. When
// the killing is over, the FIFO queue and each key go on before what nobody waits for has been tried.
//
// It runs only with -minutes: see "make faults".
func TestQueueHeadsAfterDeaths(t *testing.T) {
	if *minutes == 0 {
		t.Skip("it takes minutes: make faults")
	}
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		const keys, kills = 12, 7
		w := newWorkshop(t, db)
		for _, name := range []string{"work", "line"} {
			if _, err := adminOf(w.c).Edit(t.Context(), name, func(q *admin.Queue) { q.FIFO, q.MaxCrashes = name == "line", 1000 }); err != nil {
				t.Fatal(err)
			}
		}
		var jobs []queue.Job
		for i := range 100 {
			for key := range keys {
				jobs = append(jobs, queue.Job{Queue: "work", Kind: "bulk", Key: fmt.Sprint("key", key)})
			}
			for range 20 {
				jobs = append(jobs, queue.Job{Queue: "work", Kind: "bulk"})
			}
			if i < 40 {
				jobs = append(jobs, queue.Job{Queue: "line", Kind: "bulk", Key: "line"})
			}
		}
		if _, err := w.c.EnqueueMany(t.Context(), jobs); err != nil {
			t.Fatal(err)
		}
		begin := func() *child {
			return start(t, "queue worker", part{URL: db.URL, Name: "work line", File: w.file, TTL: 4 * time.Second, Concurrency: 4})
		}
		workers := []*child{begin(), begin(), begin()}
		for n := range kills {
			_ = wait(t.Context(), 3*time.Second)
			workers[n%len(workers)].kill()
			workers[n%len(workers)] = begin()
		}
		over := instant.Now()
		accused := db.List(t, `SELECT state, COUNT(*), COUNT(job_key) FROM {prefix}job_running WHERE crashes > 0 GROUP BY state`, nil)
		ends := func() map[string]int { // of each key, since the last kill was noticed
			all, err := readDiary(w.file)
			if err != nil {
				t.Fatal(err)
			}
			n := map[string]int{}
			for _, l := range all {
				if l.what == "end" {
					n[l.key]++
				}
			}
			return n
		}
		before := ends()
		w.until("each key and the FIFO queue have moved on", func() bool {
			now, moved := ends(), 0
			for key, n := range now {
				if key != "" && (n > before[key]+1 || n == 100) {
					moved++
				}
			}
			return moved == keys+1
		})
		t.Logf("charged with deaths: %q; each key has moved on %v after the last one", accused, instant.Now().Sub(over).Round(time.Second))
		w.until("nothing that was charged is left", func() bool {
			return len(db.List(t, `SELECT id FROM {prefix}job_running WHERE crashes > 0`, nil)) == 0
		})
		t.Logf("no job is on trial %v after it", instant.Now().Sub(over).Round(time.Second))
		if dead := db.List(t, `SELECT id, error FROM {prefix}job_dead`, nil); len(dead) > 0 {
			t.Errorf("dead letters: %q", dead)
		}
		for _, c := range workers {
			c.tell("stop")
			c.hear("stopped")
		}
	})
}
