package faults

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/queue/admin"
)

// A workshop is a queue with its worker processes and their diary.
type workshop struct {
	t    *testing.T
	db   *dbtest.DB
	c    *queue.Client
	file string
}

func newWorkshop(t *testing.T, db *dbtest.DB) *workshop {
	t.Helper()
	c, err := queue.New(db.DB, queue.Options{})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "diary")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return &workshop{t, db, c, file}
}

func (w *workshop) begin() *child {
	w.t.Helper()
	return start(w.t, "queue worker", part{URL: w.db.URL, Name: "work", File: w.file, TTL: 5 * time.Second})
}

func (w *workshop) enqueue(jobs ...queue.Job) (ids []int64) {
	w.t.Helper()
	for i := range jobs {
		jobs[i].Queue = "work"
	}
	all, err := w.c.EnqueueMany(w.t.Context(), jobs)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, e := range all {
		ids = append(ids, e.ID)
	}
	return ids
}

// lines returns the diary's lines of one kind about a job.
func (w *workshop) lines(what string, id int64) []line {
	w.t.Helper()
	all, err := readDiary(w.file)
	if err != nil {
		w.t.Fatal(err)
	}
	return slices.DeleteFunc(all, func(l line) bool { return l.what != what || l.id != id })
}

// until waits until ok returns true.
func (w *workshop) until(what string, ok func() bool) {
	w.t.Helper()
	for begun := instant.Now(); !ok(); {
		if wait(w.t.Context(), 50*time.Millisecond) != nil || instant.Now().Sub(begun) > patience {
			w.t.Fatalf("waited in vain: %s", what)
		}
	}
}

func (w *workshop) ended(ids ...int64) func() bool {
	return func() bool {
		return !slices.ContainsFunc(ids, func(id int64) bool { return len(w.lines("end", id)) == 0 })
	}
}

func plain(n int) []queue.Job {
	jobs := make([]queue.Job, n)
	for i := range jobs {
		jobs[i] = queue.Job{Kind: "plain", Priority: queue.Urgent + i%4}
	}
	return jobs
}

// A job that kills its process is dead after as many processes as its queue allows, and takes no
// other job with it.
func TestQueuePoison(t *testing.T) {
	dbtest.Processes.Each(t, func(t *testing.T, db *dbtest.DB) {
		w := newWorkshop(t, db)
		others := w.enqueue(plain(40)...)
		poison := w.enqueue(queue.Job{Kind: "poison"})[0]
		others = append(others, w.enqueue(plain(40)...)...)
		dead := func() bool {
			job, err := adminOf(w.c).Job(t.Context(), "work", poison)
			return err == nil && job.State == admin.StateDead
		}
		deaths := 0
		for worker := w.begin(); ; {
			select {
			case <-worker.done:
				deaths++
				worker = w.begin()
				continue
			default:
			}
			if dead() || deaths > 10 {
				break
			}
			_ = wait(t.Context(), 20*time.Millisecond)
		}
		w.until("all other jobs have ended", w.ended(others...))
		job, err := adminOf(w.c).Job(t.Context(), "work", poison)
		if starts := len(w.lines("start", poison)); err != nil || starts != 3 || deaths != 3 || job.Crashes != 3 {
			t.Errorf("the job began %d times, ended %d processes, and is %+v, %v", starts, deaths, job, err)
		}
		if dead := db.List(t, `SELECT id FROM {prefix}job_dead`, nil); len(dead) != 1 {
			t.Errorf("dead: %v", dead)
		}
	}, (*testing.T).Parallel)
}

// A long job keeps its key and nothing else: the rest of its block goes to others. When its process
// dies, another one runs it again before the other jobs of its key.
func TestQueueLongJob(t *testing.T) {
	dbtest.Processes.Each(t, func(t *testing.T, db *dbtest.DB) {
		w := newWorkshop(t, db)
		first := w.begin()
		long := w.enqueue(queue.Job{Kind: "long", Key: "k"})[0]
		running := func() bool {
			job, err := adminOf(w.c).Job(t.Context(), "work", long)
			return err == nil && job.State == admin.StateRunning
		}
		w.until("the long job is checked out", running)
		next := w.enqueue(queue.Job{Kind: "plain", Key: "k"})[0]
		others := w.enqueue(plain(60)...)
		second := w.begin()
		w.until("all other jobs have ended", w.ended(others...))
		if !running() || len(w.lines("start", next)) > 0 {
			t.Error("the next job of the key has begun")
		}
		first.kill()
		w.until("the long job begins again", func() bool { return len(w.lines("start", long)) == 2 })
		if again := w.lines("start", long)[1]; again.pid != second.cmd.Process.Pid || len(w.lines("start", next)) > 0 {
			t.Errorf("it began in process %d, or the next one of its key did", again.pid)
		}
		if err := adminOf(w.c).Cancel(t.Context(), "work", long); err != nil {
			t.Error(err)
		}
		w.until("the next job of the key has ended", w.ended(next))
		if lost := w.lines("lost", long); len(lost) != 1 {
			t.Errorf("the context of the cancelled job ended %d times", len(lost))
		}
	}, (*testing.T).Parallel)
}

// The test kills processes that share a FIFO queue, and starts others. Jobs begin in the order in
// which they were enqueued. Jobs that a killed process had started, or finished a moment before,
// begin again. Nothing begins before everything ahead of it has ended.
func TestQueueFIFO(t *testing.T) {
	dbtest.Processes.Each(t, func(t *testing.T, db *dbtest.DB) {
		w := newWorkshop(t, db)
		if _, err := adminOf(w.c).Edit(t.Context(), "work", func(q *admin.Queue) {
			q.FIFO, q.RetryDelay, q.RetryMaxDelay = true, time.Millisecond, time.Millisecond
		}); err != nil {
			t.Fatal(err)
		}
		jobs := make([]queue.Job, 60)
		for i := range jobs {
			jobs[i] = queue.Job{Kind: []string{"plain", "brief", "flaky"}[i%3]}
		}
		ids := w.enqueue(jobs...)
		workers := []*child{w.begin(), w.begin()}
		for _, at := range []int{10, 25, 40} {
			w.until("some have ended", w.ended(ids[at]))
			for i, worker := range workers { // one of them leases the block
				worker.kill()
				workers[i] = w.begin()
			}
		}
		w.until("all have ended", w.ended(ids...))
		all, err := readDiary(w.file)
		if err != nil {
			t.Fatal(err)
		}
		ended := map[int64]bool{}
		for _, l := range all {
			at := slices.Index(ids, l.id)
			if l.what == "end" {
				ended[l.id] = true
			}
			if l.what == "start" && at > 0 && !ended[ids[at-1]] {
				t.Errorf("job %d begins, and the one before it has not ended", at)
			}
		}
		left := func() bool { return len(db.List(t, `SELECT id FROM {prefix}job WHERE id > 0`, nil)) == 0 }
		w.until("nothing is left", left)
	}, (*testing.T).Parallel)
}

// A worker that was stopped for longer than its lease starts no job that others have taken over
// meanwhile, and the contexts of its running jobs end.
func TestQueueStopped(t *testing.T) {
	dbtest.Locks.Each(t, func(t *testing.T, db *dbtest.DB) {
		w := newWorkshop(t, db)
		first := w.begin()
		slow := w.enqueue(queue.Job{Kind: "slow"})[0]
		w.until("the slow job has begun", func() bool { return len(w.lines("start", slow)) == 1 })
		others := w.enqueue(plain(80)...) // the first worker reads them but does not start them: it runs one job at a time
		w.until("the first worker has read them", func() bool { return first.reads() })
		w.until("the first worker is stopped, and keeps nobody from writing", func() bool {
			first.signal(syscall.SIGSTOP)
			free := w.writable()
			if !free {
				first.signal(syscall.SIGCONT)
			}
			return free
		})
		second := w.begin()
		w.until("all jobs have ended", w.ended(append(others, slow)...))
		begun := map[int64]bool{}
		all, err := readDiary(w.file)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range all {
			begun[l.id] = true
		}
		first.signal(syscall.SIGCONT)
		w.until("the stopped worker has noticed", func() bool { return len(w.lines("lost", slow)) == 1 || len(w.lines("end", slow)) == 2 })
		after := w.enqueue(plain(20)...)
		w.until("later jobs have ended", w.ended(after...))
		later, err := readDiary(w.file)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range later[len(all):] {
			if l.what == "start" && begun[l.id] {
				t.Errorf("job %d was begun again by process %d: %s", l.id, l.pid, fmt.Sprint(first.cmd.Process.Pid, second.cmd.Process.Pid))
			}
		}
	}, (*testing.T).Parallel)
}

// writable reports whether the database accepts writes. Where there is one writer, it does not if
// a stopped process is that writer.
func (w *workshop) writable() bool {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Second)
	defer cancel()
	_, err := w.db.Exec(ctx, sqlrun.Unlisted(`UPDATE {prefix}queue SET reason = reason WHERE name = 'work'`), nil)
	if err != nil && !w.db.Dialect.Retryable(err) && !errors.Is(err, context.DeadlineExceeded) {
		w.t.Fatal(err)
	}
	return err == nil
}

// reads waits long enough for a worker to read what was enqueued.
func (c *child) reads() bool {
	_ = wait(c.t.Context(), 200*time.Millisecond)
	return true
}
