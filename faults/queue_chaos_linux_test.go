package faults

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/dialect/sqlite"
	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/sqlschema"
)

var (
	queueJobs = flag.Int("jobs", 5_000, "how many jobs the test of queues enqueues on each engine")
	queueSpan = flag.Duration("jobs-span", 6*time.Second, "within what time")
)

// sent holds the jobs that were certainly enqueued, and the ids of each key in order.
type sent struct {
	ids  map[int64]string // kinds by id
	keys map[string][]int64
}

// produce enqueues jobs of all kinds, those of one key one after the other. It continues while the
// database does not answer. It records only the jobs that certainly exist.
func produce(t *testing.T, c *queue.Client, name string, n int) sent {
	t.Helper()
	s := sent{ids: map[int64]string{}, keys: map[string][]int64{}}
	begun := instant.Now()
	for len(s.ids) < n {
		ahead := time.Duration(float64(*queueSpan)*float64(len(s.ids))/float64(n)) - instant.Now().Sub(begun)
		_ = wait(t.Context(), max(0, ahead)) // other calls notice the test's end
		batch := make([]queue.Job, 1+rand.IntN(200))
		for i := range batch {
			j := queue.Job{Queue: name, Kind: "plain"}
			switch at := rand.IntN(1000); {
			case at < 200:
				j.Key = fmt.Sprintf("key-%d", rand.IntN(100))
			case at < 230:
				j.Kind = "flaky"
			case at < 250:
				j.Kind, j.Key = "flaky", fmt.Sprintf("key-%d", rand.IntN(100))
			case at < 290:
				j.Kind = "tx"
			case at < 310:
				j.Delay = time.Duration(rand.IntN(1000)) * time.Millisecond
			case rand.IntN(max(n, 4000)) < 24: // not in proportion to n: slow jobs take their time
				j.Kind, j.Key = "slow", []string{"", fmt.Sprintf("key-%d", rand.IntN(100))}[rand.IntN(2)]
			}
			batch[i] = j
		}
		ids, err := c.EnqueueMany(t.Context(), batch)
		if err != nil { // they exist or not: they do not count
			if errors.Is(err, queue.ErrInvalid) || wait(t.Context(), 20*time.Millisecond) != nil {
				t.Errorf("enqueue: %v", err)
				return s
			}
			continue
		}
		for i := range ids {
			id := ids[i].ID
			s.ids[id] = batch[i].Kind
			if key := batch[i].Key; key != "" {
				s.keys[key] = append(s.keys[key], id)
			}
		}
	}
	return s
}

// TestQueueChaos runs jobs of all kinds on workers that it kills and stops. On servers it kills the
// database, too. Each job is done, those of one key in order, and the effects of a transaction
// exist once.
func TestQueueChaos(t *testing.T) {
	t.Parallel()
	for _, s := range killed() {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			db, server := s.migrated(t)
			queueChaos(t, db, func() {
				if err := server.Kill(); err != nil {
					t.Fatal(err)
				}
				restart(t, server)
			})
		})
	}
	t.Run("sqlite", func(t *testing.T) {
		if len(killed()) > 0 {
			dbtest.OnlyLong(t, "one engine shows what chaos does to workers")
		}
		t.Parallel()
		dbtest.One(t, sqlite.Dialect, func(t *testing.T, db *dbtest.DB) {
			if err := sqlschema.Migrate(t.Context(), db.DB); err != nil {
				t.Fatal(err)
			}
			queueChaos(t, db, nil)
		})
	})
}

func queueChaos(t *testing.T, db *dbtest.DB, crash func()) {
	const lease = 3 * time.Second
	db.Do(t, "CREATE TABLE effects (job BIGINT NOT NULL)", nil)
	c, err := queue.New(db.DB, queue.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := adminOf(c).Edit(t.Context(), "chaos", func(q *admin.Queue) { q.RetryDelay, q.MaxCrashes = 100*time.Millisecond, 1000 }); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "diary")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	begin := func() *child {
		return start(t, "queue worker", part{URL: db.URL, Name: "chaos", File: file, TTL: lease, Concurrency: 8})
	}
	workers := []*child{begin(), begin(), begin()}
	stopped := map[*child]instant.Instant{}
	produced := make(chan sent, 1)
	ctx, cancel := context.WithTimeout(t.Context(), *queueSpan+5*time.Minute)
	defer cancel()
	go func() { produced <- produce(t, c, "chaos", *queueJobs) }()

	var all sent
	begun := instant.Now()
	kills, stops, crashes := 0, 0, 0
	tick := time.NewTicker(1500 * time.Millisecond)
	defer tick.Stop()
	for over := false; !over; {
		select {
		case all = <-produced:
			over = true
		case <-ctx.Done():
			t.Fatal("producing took too long")
		case <-tick.C:
		}
		for w, at := range stopped {
			if instant.Now().Sub(at) > 2*lease {
				w.signal(syscall.SIGCONT)
				delete(stopped, w)
			}
		}
		switch at := rand.IntN(len(workers)); {
		case stopped[workers[at]] != 0:
		case rand.IntN(3) > 0:
			workers[at].kill()
			workers[at] = begin()
			kills++
		case len(stopped) == 0:
			workers[at].signal(syscall.SIGSTOP)
			stopped[workers[at]] = instant.Now()
			stops++
		}
		if crash != nil && crashes < 2 && rand.IntN(5) == 0 {
			crash()
			crashes++
		}
	}
	for w := range stopped {
		w.signal(syscall.SIGCONT)
	}
	t.Logf("%d jobs were enqueued within %v", len(all.ids), instant.Now().Sub(begun).Round(time.Second))
	empty := func() bool {
		n, err := adminOf(c).Count(ctx, "chaos", 10)
		return err == nil && n.Ready+n.Delayed+n.Running == 0
	}
	for !empty() {
		if wait(ctx, 50*time.Millisecond) != nil {
			n, _ := adminOf(c).Count(t.Context(), "chaos", 10_000)
			for _, table := range []string{"node", "queue_worker", "queue_block"} {
				for _, row := range db.List(t, "SELECT * FROM {prefix}"+table, nil) {
					t.Log(table, row)
				}
			}
			for _, row := range db.List(t, "SELECT divided, id, kind, COALESCE(job_key, '-'), state, lock_by, attempt, crashes FROM {prefix}job_running", nil) {
				t.Log("running", row)
			}
			t.Fatalf("jobs are left: %+v", n)
		}
	}
	for _, w := range workers {
		w.tell("stop")
		w.hear("stopped")
	}
	checkDiary(t, db, file, all)
	figures(t, map[string]int{"kills": kills, "stops": stops, "kills of the server": crashes, "jobs": len(all.ids)})
	t.Logf("%s: %d jobs, %d kills, %d stops, %d crashes of the database, %v", db.Dialect.Name, len(all.ids),
		kills, stops, crashes, instant.Now().Sub(begun).Round(time.Second))
}

// checkDiary checks the workers' diary against the queue's promises.
func checkDiary(t *testing.T, db *dbtest.DB, file string, all sent) {
	t.Helper()
	lines, err := readDiary(file)
	if err != nil {
		t.Fatal(err)
	}
	ended := map[int64]int{}
	place := map[int64]int{} // position among its key's jobs
	for _, ids := range all.keys {
		for i, id := range ids {
			place[id] = i
		}
	}
	early := 0
	for _, l := range lines {
		if l.what == "end" {
			ended[l.id]++
			continue
		}
		if ids := all.keys[l.key]; l.what == "start" && len(ids) > 0 {
			at, ok := place[l.id]
			if ok && at > 0 && ended[ids[at-1]] == 0 && early < 10 {
				early++
				t.Errorf("key %s: job %d (%s, attempt %d, process %d) began before job %d had ended", l.key, l.id, l.kind, l.attempt, l.pid, ids[at-1])
			}
		}
	}
	lost, again := 0, 0
	for id, kind := range all.ids {
		switch {
		case ended[id] == 0 && kind == "tx": // its end may be missing: the process died after the commit
		case ended[id] == 0:
			lost++
			if lost < 10 {
				t.Errorf("job %d (%s) was not done", id, kind)
			}
		case ended[id] > 1:
			again++
		}
	}
	effects := map[string]int{}
	for _, line := range db.List(t, "SELECT job, COUNT(*) FROM effects GROUP BY job", nil) {
		job, n, _ := strings.Cut(line, " ")
		effects[job]++
		if n != "1" {
			t.Errorf("the effect of job %s exists %s times", job, n)
		}
	}
	want := 0
	for id, kind := range all.ids {
		if kind == "tx" {
			want++
			if effects[fmt.Sprint(id)] != 1 {
				t.Errorf("the effect of job %d does not exist", id)
			}
		}
	}
	dead := db.List(t, "SELECT kind, attempt, crashes, error FROM {prefix}job_dead", nil)
	if len(dead) > 0 {
		t.Errorf("dead letters: %v", dead[:min(5, len(dead))])
	}
	attempts := slices.DeleteFunc(lines, func(l line) bool { return l.what != "start" })
	t.Logf("%d jobs lost, %d done more than once, %d effects of %d, %d out of order, %d starts", lost, again,
		len(effects), want, early, len(attempts))
}
