package faults

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/queue/admin"
)

var queueGroups = flag.Int("groups", 100, "how many groups the test of groups makes on each engine")

// The test keeps killing the workers of many groups. Each group's callback is enqueued exactly
// once: it inserts a row in the transaction that completes its job.
func TestGroupsOfTheKilled(t *testing.T) {
	t.Parallel()
	dbtest.Processes.Each(t, func(t *testing.T, db *dbtest.DB) {
		db.Do(t, "CREATE TABLE effects (job BIGINT NOT NULL)", nil)
		w := newWorkshop(t, db)
		if _, err := adminOf(w.c).Edit(t.Context(), "work", func(q *admin.Queue) { q.MaxCrashes = 1000 }); err != nil { // the jobs are not at fault
			t.Fatal(err)
		}
		workers := []*child{w.begin(), w.begin(), w.begin()}
		made := make(chan error, 1)
		go func() {
			for range *queueGroups {
				jobs := make([]queue.Job, 1+rand.IntN(4))
				for i := range jobs {
					jobs[i] = queue.Job{Queue: "work", Kind: []string{"grouped", "grouped", "flaky"}[rand.IntN(3)]}
				}
				g := queue.Group{Callback: &queue.Job{Queue: "work", Kind: "callback"}}
				if _, _, err := w.c.EnqueueGroup(t.Context(), g, jobs...); err != nil {
					made <- err
					return
				}
			}
			made <- nil
		}()
		kills, looks := 0, 0
		ended := func() (n int) {
			db.Scan(t, "SELECT COUNT(DISTINCT job) FROM effects", nil, &n)
			return n
		}
		for goal := 0; goal < *queueGroups; { // however long that takes
			goal = min(goal+500, *queueGroups)
			w.until(fmt.Sprintf("%d groups have ended", goal), func() bool {
				if looks++; looks%15 > 0 { // the processes need time to start
					return ended() >= goal
				}
				i := rand.IntN(len(workers))
				workers[i].kill()
				kills++
				workers[i] = w.begin()
				return false
			})
		}
		if err := <-made; err != nil {
			t.Fatal(err)
		}
		w.until("no job is left", func() bool {
			n, err := adminOf(w.c).Count(t.Context(), "work", 10)
			return err == nil && n.Ready+n.Delayed+n.Running == 0
		})
		var all, open, dead int
		db.Scan(t, `SELECT (SELECT COUNT(*) FROM effects), (SELECT COUNT(*) FROM {prefix}job_group WHERE state <> 'done'), (SELECT COUNT(*) FROM {prefix}job_dead)`, nil, &all, &open, &dead)
		t.Logf("%d groups, %d callbacks, %d workers killed", *queueGroups, all, kills)
		figures(t, map[string]int{"kills": kills, "groups": *queueGroups})
		if all != *queueGroups || ended() != all || open != 0 || dead != 0 {
			t.Errorf("%d callbacks of %d groups, %d of them have not ended, %d jobs are dead", all, ended(), open, dead)
		}
	}, (*testing.T).Parallel)
}

// The example adds up the counts of its jobs, in several processes.
func TestReport(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	report := buildExample(t, "report")
	for name, text := range map[string]string{"a": "one two three", "b": "four\nfive", "c": ""} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		said := make(chan string, 2)
		for range 2 {
			go func() {
				cmd := exec.CommandContext(t.Context(), report, filepath.Join(dir, "a"), filepath.Join(dir, "b"), filepath.Join(dir, "c"))
				cmd.Env = append(os.Environ(), "DBCRON_DATABASE_URL="+db.URL)
				out, err := cmd.CombinedOutput()
				if err != nil {
					t.Errorf("%v: %s", err, out)
				}
				said <- string(out)
			}()
		}
		if all := <-said + <-said; strings.Count(all, ": 5 words in 3 texts\n") != 2 {
			t.Errorf("they say %q", all)
		}
	}, (*testing.T).Parallel)
}

// adminOf returns an admin client for a client's database.
func adminOf(c *queue.Client) *admin.Client {
	a, err := admin.New(c.DB(), admin.Options{})
	if err != nil {
		panic(err)
	}
	return a
}
