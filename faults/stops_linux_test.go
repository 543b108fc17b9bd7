package faults

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/pace"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/scheduler"
)

// stopsParent are the lines of a command that stops the process to which its guardian belongs, and then waits.
const stopsParent = `kill -TERM "$(sed -n 's/^PPid:[[:space:]]*//p' /proc/$PPID/status)"; exec sleep 600`

// supervise starts a process again whenever it has ended, as a supervisor does, until ok returns true. It
// returns how many it has started, and the last one.
func (r *rig) supervise(what string, begin func(n int) *daemon, ok func() bool) (n int, last *daemon) {
	r.t.Helper()
	r.eventually(what, patience, func() bool {
		if ok() {
			return true
		}
		if last == nil || last.ended() {
			n++
			last = begin(n)
		}
		return false
	})
	return n, last
}

// linesOf counts the lines of a file that begin with a word.
func linesOf(t *testing.T, name, word string) (n int) {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if first, _, _ := strings.Cut(strings.TrimSpace(line), " "); first == word {
			n++
		}
	}
	return n
}

// A schedule's command stops its daemon, which is started again each time. It fails at its fifth begin, and the
// daemon that is started then goes on. Its pauses are cut short here.
func TestWorkThatStopsItsDaemon(t *testing.T) {
	long(t)
	t.Parallel()
	binary := build(t)
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		dir := t.TempDir()
		begun := filepath.Join(dir, "begun")
		r := &rig{
			t: t, db: db, binary: binary, dir: dir, mark: "FAULTS_MARK=" + dir,
			lease: 30 * time.Second, poll: 200 * time.Millisecond, grace: 500 * time.Millisecond,
		}
		for _, s := range []scheduler.Schedule{
			{Name: "culprit", Spec: "@every 24h", Command: "echo culprit >> " + begun + "; " + stopsParent, Policy: scheduler.Policy{FirstRun: "now", MaxAttempts: 3}},
			{Name: "other", Spec: "@every 1s", Command: "echo other >> " + begun},
		} {
			s.Env = map[string]string{"FAULTS_MARK": dir}
			if err := scheduler.Add(t.Context(), db.DB, s); err != nil {
				t.Fatal(err)
			}
		}
		pauses := int64(0)
		begin := func(n int) *daemon {
			return r.serve(binary, fmt.Sprint("web-", n), "--poll", r.poll.String(), "--only", "schedules")
		}
		newest := func() scheduler.Run {
			runs, err := scheduler.History(t.Context(), db.DB, "culprit", 1)
			if err != nil || len(runs) == 0 {
				return scheduler.Run{}
			}
			return runs[0]
		}
		n, last := r.supervise("the culprit has failed", begin, func() bool {
			pauses += db.Do(t, `UPDATE {prefix}run SET next_exec = {now} WHERE schedule = 'culprit' AND state = 'retry' AND next_exec > {now + 60000000}`, nil)
			return newest().State == "failed"
		})
		run := newest()
		if n != pace.Most || linesOf(t, begun, "culprit") != pace.Most || pauses != pace.Most-pace.Suspicious {
			t.Errorf("%d daemons, %d begins, %d pauses", n, linesOf(t, begun, "culprit"), pauses)
		}
		if !strings.Contains(run.Error, "it seems to stop its daemon") {
			t.Errorf("it failed with: %s", run.Error)
		}
		<-last.done
		others, after := linesOf(t, begun, "other"), begin(0)
		r.eventually("other work goes on", patience, func() bool { return linesOf(t, begun, "other") >= others+3 })
		after.stop()
		if n := linesOf(t, begun, "culprit"); n != pace.Most {
			t.Errorf("the culprit has begun %d times", n)
		}
	}, (*testing.T).Parallel)
}

// A job's command stops its dbcron worker exec, which is started again each time, with and without a grace. It is
// dead at its fifth begin; then the next job of its key begins, and others were done meanwhile. Its pauses are cut
// short here.
func TestWorkThatStopsItsWorker(t *testing.T) {
	long(t)
	t.Parallel()
	binary := build(t)
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		for _, grace := range []string{"none", "1500ms"} { // within its first second, or checked out
			w := newWorkshop(t, db)
			dir := t.TempDir()
			begun := filepath.Join(dir, "begun")
			r := &rig{t: t, db: db, binary: binary, dir: dir}
			culprit := w.enqueue(queue.Job{Kind: "culprit", Key: "k"}, queue.Job{Kind: "behind", Key: "k"})[0]
			pauses := int64(0)
			script := "echo $DBCRON_KIND >> " + begun + "; [ $DBCRON_KIND != culprit ] || { " + stopsParent + "; }"
			begin := func(n int) *daemon {
				w.enqueue(queue.Job{Kind: "other"})
				return r.run(binary, fmt.Sprint("worker-", n), "worker", "exec", "--queue", "work", "--concurrency", "4",
					"--grace", grace, "--kill-grace", "500ms", "--", "sh", "-c", script)
			}
			var job admin.Job
			n, last := r.supervise("the next job of the key has begun", begin, func() bool {
				pauses += db.Do(t, `UPDATE {prefix}job_delayed SET run_at = {now} WHERE id = :id AND run_at > {now + 60000000}`,
					sqlrun.Args{"id": culprit})
				job, _ = adminOf(w.c).Job(t.Context(), "work", culprit)
				return linesOf(t, begun, "behind") > 0
			})
			if job.State != admin.StateDead || !strings.Contains(job.Error, "it seems to stop its worker") || job.Attempts != 1 {
				t.Errorf("with a grace of %s: %+v", grace, job)
			}
			// On a busy machine another job may have begun as late as the culprit: then one stop more is needed.
			begins := linesOf(t, begun, "culprit")
			if begins < pace.Most || begins > pace.MostAny || n != begins+1 || pauses != int64(begins)-pace.Suspicious {
				t.Errorf("with a grace of %s: %d workers, %d begins, %d pauses", grace, n, linesOf(t, begun, "culprit"), pauses)
			}
			empty := func() bool {
				n, err := adminOf(w.c).Count(t.Context(), "work", 10)
				return err == nil && n.Ready+n.Delayed+n.Running == 0
			}
			w.until("nothing is left", empty)
			r.grace = time.Second
			last.stop()
		}
	}, (*testing.T).Parallel)
}
