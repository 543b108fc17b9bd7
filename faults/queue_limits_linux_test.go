package faults

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/queue/admin"
)

// A queue with a limit never runs more jobs at once than that, across processes that are killed and
// started all the time. All jobs are done: the permits of dead processes are free when their leases
// have expired, and not before.
func TestLimitOfTheKilled(t *testing.T) {
	t.Parallel()
	dbtest.Processes.Each(t, func(t *testing.T, db *dbtest.DB) {
		const most, kills = 3, 4
		w := newWorkshop(t, db)
		if _, err := adminOf(w.c).Edit(t.Context(), "work", func(q *admin.Queue) { q.MaxCrashes = 1000 }); err != nil { // the jobs are not at fault
			t.Fatal(err)
		}
		if _, err := adminOf(w.c).EditLimit(t.Context(), "work", "", func(l *admin.Limit) { l.Running = most }); err != nil {
			t.Fatal(err)
		}
		begin := func() *child {
			return start(t, "queue worker", part{URL: db.URL, Name: "work", File: w.file, TTL: 5 * time.Second, Concurrency: 4})
		}
		workers := []*child{begin(), begin(), begin()}
		var ids []int64
		for i := range kills {
			ids = append(ids, w.enqueue(slices.Repeat([]queue.Job{{Kind: "brief"}}, 60)...)...)
			n := len(ids) - 30
			w.until("half of them have ended", func() bool { return countEnded(t, w) >= n })
			one := &workers[i%len(workers)]
			w.kill(*one)
			*one = begin()
		}
		w.until("all have ended", w.ended(ids...))
		lines, err := readDiary(w.file)
		if err != nil {
			t.Fatal(err)
		}
		if n := maxAtOnce(lines); n > most {
			t.Errorf("%d ran at a time", n)
		}
		figures(t, map[string]int{"kills": kills, "jobs": len(ids)})
	}, (*testing.T).Parallel)
}

var rateJobs = flag.Int("rate-jobs", 200, "how many jobs the test of rates has done on each engine, at 100 a second")

// Over three processes, a queue with a rate never starts more jobs than the rate allows, and hardly
// fewer on a machine that keeps up.
func TestRateOfProcesses(t *testing.T) {
	t.Parallel()
	dbtest.Processes.Each(t, func(t *testing.T, db *dbtest.DB) {
		w := newWorkshop(t, db)
		if _, err := adminOf(w.c).Edit(t.Context(), "work", func(*admin.Queue) {}); err != nil {
			t.Fatal(err)
		}
		if _, err := adminOf(w.c).EditLimit(t.Context(), "work", "plain", func(l *admin.Limit) { l.Rate = 100 }); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			w.begin()
		}
		w.until("all processes have blocks", func() bool {
			return len(db.List(t, `SELECT DISTINCT lock_by FROM {prefix}queue_block WHERE state = 'LEASED'`, nil)) == 3
		})
		begun := instant.Now()
		w.enqueue(plain(*rateJobs)...)
		w.until("all have ended", func() bool { return countEnded(t, w) == *rateJobs })
		took := instant.Now().Sub(begun).Seconds()
		t.Logf("%d jobs in %.2f s: %.1f a second", *rateJobs, took, float64(*rateJobs)/took)
		if most := 100*took + 12; float64(*rateJobs) > most { // a burst of 10, and a few that are a little late
			t.Errorf("more than %.0f", most)
		}
	}, (*testing.T).Parallel)
}

func countEnded(t *testing.T, w *workshop) (n int) {
	t.Helper()
	lines, err := readDiary(w.file)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range lines {
		if l.what == "end" {
			n++
		}
	}
	return n
}

// kill kills a process and records it once the process can do nothing more.
func (w *workshop) kill(c *child) {
	w.t.Helper()
	if err := c.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		w.t.Fatal(err)
	}
	file, err := os.OpenFile(w.file, os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		w.t.Fatal(err)
	}
	defer file.Close()
	if _, err := fmt.Fprintf(file, "killed 0 - - 0 %d\n", c.cmd.Process.Pid); err != nil {
		w.t.Fatal(err)
	}
	c.kill()
}

// maxAtOnce returns the maximum of jobs running at once by a diary. A lost job does not count: its
// process was late, and its context had ended.
func maxAtOnce(lines []line) (most int) {
	type run struct {
		id  int64
		pid int
	}
	lost := map[run]bool{}
	for _, l := range lines {
		if l.what == "lost" {
			lost[run{l.id, l.pid}] = true
		}
	}
	running := map[run]bool{}
	for _, l := range lines {
		r := run{l.id, l.pid}
		switch {
		case l.what == "killed":
			for r := range running {
				if r.pid == l.pid {
					delete(running, r)
				}
			}
		case l.what == "start" && !lost[r]:
			running[r] = true
		default:
			delete(running, r)
		}
		most = max(most, len(running))
	}
	return most
}
