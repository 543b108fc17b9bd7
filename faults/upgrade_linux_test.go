package faults

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/dialect/mysql"
	"github.com/dbcron/dbcron/internal/sqlrun"
)

// The commit that counts as version 0.1.0, and its schema version.
const (
	released       = "0522805ab1e65a92c1993a973b6f8f7a89e96465"
	releasedSchema = "13"
)

var buildReleased = sync.OnceValues(func() (string, error) {
	source, binary := filepath.Join(buildFolder, "released"), filepath.Join(buildFolder, "v0.1.0", "dbcron")
	script := `mkdir -p "$1" && git archive ` + released +
		` | tar -x -C "$1" && cd "$1" && go build -buildvcs=false -ldflags "-X main.version=v0.1.0" -o "$2" ./cmd/dbcron`
	c := exec.CommandContext(context.Background(), "sh", "-c", script, "sh", source, binary)
	c.Dir = ".."
	if out, err := c.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build v0.1.0: %w\n%s", err, out)
	}
	return binary, nil
})

// old builds the release. A clone without its history, or none at all, has nothing to build from.
func old(t *testing.T) string {
	t.Helper()
	if err := exec.CommandContext(t.Context(), "git", "cat-file", "-e", released+"^{tree}").Run(); err != nil {
		t.Skipf("the source of v0.1.0 is not in this clone (git fetch --unshallow): %v", err)
	}
	binary, err := buildReleased()
	if err != nil {
		t.Fatal(err)
	}
	return binary
}

// An upgrade as in docs/upgrading.md: a new daemon migrates beside running daemons and workers of
// the release, and then replaces them. No slot and no job is lost or done twice. The test also goes
// back to the release.
func TestUpgradeFromTheRelease(t *testing.T) {
	dbtest.OnlyLong(t, "it builds two versions and upgrades on each engine")
	t.Parallel()
	before, now := old(t), build(t)
	dbtest.EachEmpty(t, func(t *testing.T, db *dbtest.DB) {
		if _, err := db.Pool().ExecContext(t.Context(), "SELECT SHA1('')"); err != nil && db.Dialect.Name == mysql.Dialect.Name {
			t.Skipf("v0.1.0 cannot lock on this MySQL: %v", err)
		}
		u := &migration{rig: &rig{
			t: t, db: db, dir: t.TempDir(), mark: "FAULTS_MARK=" + t.Name(),
			lease: 30 * time.Second, poll: 200 * time.Millisecond, grace: 20 * time.Second,
		}, old: before, now: now}
		u.play()
	}, (*testing.T).Parallel)
}

type migration struct {
	*rig
	old, now  string
	newWorker *exec.Cmd
	jobs      int
}

// run runs a command of a program and returns its output and exit code.
func (u *migration) run(binary string, args ...string) (string, int) {
	u.t.Helper()
	c := exec.CommandContext(u.t.Context(), binary, args...)
	c.Env = u.environment()
	out, err := c.CombinedOutput()
	if c.ProcessState == nil {
		u.t.Fatal(err)
	}
	return string(out), c.ProcessState.ExitCode()
}

func (u *migration) environment() []string {
	return []string{"PATH=" + os.Getenv("PATH"), "HOME=" + u.dir, "DBCRON_DATABASE_URL=" + u.db.URL}
}

func (u *migration) must(binary string, args ...string) string {
	u.t.Helper()
	out, code := u.run(binary, args...)
	if code != 0 {
		u.t.Fatalf("%s %s: exit code %d: %s", filepath.Base(filepath.Dir(binary)), strings.Join(args, " "), code, out)
	}
	return out
}

// worker starts a worker that appends each job's id to a file.
func (u *migration) worker(binary string) *exec.Cmd {
	u.t.Helper()
	c := exec.CommandContext(context.Background(), binary, "worker", "exec", "--queue", "mail", "--log-format", "json",
		"--", "sh", "-c", `echo "$DBCRON_JOB_ID" >>"$HOME/done"`)
	c.Env = u.environment()
	var log logbook
	c.Stderr = &log
	if err := c.Start(); err != nil {
		u.t.Fatal(err)
	}
	u.t.Cleanup(func() {
		_ = c.Process.Signal(syscall.SIGTERM)
		_ = c.Wait()
		if u.t.Failed() {
			u.t.Log(log.String())
		}
	})
	return c
}

// end stops a worker as an operator does.
func (u *migration) end(worker *exec.Cmd) {
	u.t.Helper()
	if err := errors.Join(worker.Process.Signal(syscall.SIGTERM), worker.Wait()); err != nil {
		u.t.Errorf("a worker: %v", err)
	}
}

func (u *migration) enqueue(binary string, n int) {
	u.t.Helper()
	for range n {
		u.must(binary, "job", "enqueue", "welcome", strconv.Itoa(u.jobs), "--queue", "mail")
		u.jobs++
	}
}

// has waits until the daemons with a name prefix have ended n runs after the run since.
func (u *migration) has(daemon string, n int, since int64) {
	u.t.Helper()
	u.eventually(fmt.Sprintf("%d runs of %s", n, daemon), 2*time.Minute, func() bool {
		var got int
		u.db.Scan(u.t, `SELECT COUNT(*) FROM {prefix}run WHERE id > :since AND state = 'ok' AND exec_by LIKE :daemon`,
			sqlrun.Args{"since": since, "daemon": daemon + "%"}, &got)
		return got >= n
	})
}

func (u *migration) lastRun() (id int64) {
	u.db.Scan(u.t, `SELECT COALESCE(MAX(id), 0) FROM {prefix}run`, nil, &id)
	return id
}

func (u *migration) allDone() {
	u.t.Helper()
	u.eventually("all jobs are done", 2*time.Minute, func() bool {
		return len(u.ids()) >= u.jobs && len(u.db.List(u.t, `SELECT id FROM {prefix}job WHERE id > 0`, nil)) == 0
	})
}

func (u *migration) ids() []string {
	text, err := os.ReadFile(filepath.Join(u.dir, "done"))
	if err != nil && !os.IsNotExist(err) {
		u.t.Fatal(err)
	}
	return strings.Fields(string(text))
}

func (u *migration) play() {
	u.must(u.old, "migrate", "up")
	for _, tag := range []string{"old", "new", "default"} {
		// A machine that stalls for a second may cause two runs at once; forbid would then skip a slot.
		u.must(u.old, "schedule", "add", "beat-"+tag, "--expr", "@every 1s", "--overlap", "allow", "--tag", tag, "--", "true")
	}
	both := []string{"--listen", "off", "--poll", u.poll.String(), "--tag", "default", "--tag"}
	first := u.serve(u.old, "old", append(both, "old")...)
	oldWorker := u.worker(u.old)
	u.enqueue(u.old, 3)
	u.has("old", 1, 0)
	u.allDone()

	// The new daemon migrates when it starts. Those of the release continue.
	second := u.serve(u.now, "new", append(both, "new")...)
	u.has("new", 1, 0)
	at := u.lastRun()
	u.has("old", 2, at)
	u.enqueue(u.now, 3)
	u.allDone()
	u.newWorker = u.worker(u.now)
	u.enqueue(u.now, 10)
	u.allDone()

	// A command of the release leaves newer tables alone.
	if out, code := u.run(u.old, "migrate", "up"); code != 1 || !strings.Contains(out, "newer than this dbcron") {
		u.t.Errorf("migrate up of the release: exit code %d: %s", code, out)
	}
	if d := u.serve(u.old, "refused", both[:2]...); true {
		<-d.done
		if code := d.cmd.ProcessState.ExitCode(); code != 1 || !strings.Contains(d.log.String(), "newer than this dbcron") {
			u.t.Errorf("a daemon of the release starts on newer tables: exit code %d: %s", code, &d.log)
		}
	}

	first.stop()
	u.end(oldWorker)
	u.enqueue(u.now, 5)
	u.allDone()
	u.must(u.now, "doctor", "--work=false")
	second.stop()
	u.account()
	u.back()
}

// account checks that each job and each slot was done once, and well.
func (u *migration) account() {
	u.t.Helper()
	ids := u.ids()
	slices.Sort(ids)
	if n := len(slices.Compact(slices.Clone(ids))); n != len(ids) || n != u.jobs {
		u.t.Errorf("%d jobs were done %d times: %q", n, len(ids), ids)
	}
	if dead := u.db.List(u.t, `SELECT id, error FROM {prefix}job_dead`, nil); len(dead) > 0 {
		u.t.Errorf("dead: %q", dead)
	}
	if bad := u.db.List(u.t, `SELECT schedule, state, attempt, error, exec_by FROM {prefix}run
		WHERE state NOT IN ('ok', 'missed', 'waiting') OR attempt > 1`, nil); len(bad) > 0 {
		u.t.Errorf("runs: %q", bad)
	}
	if twice := u.db.List(u.t, `SELECT schedule, due_at FROM {prefix}run WHERE state = 'ok' GROUP BY schedule, due_at HAVING COUNT(*) > 1`, nil); len(twice) > 0 {
		u.t.Errorf("slots that ran twice: %q", twice)
	}
}

// back goes the way back: the new program takes its tables down, and the release starts again.
func (u *migration) back() {
	u.t.Helper()
	if out, code := u.run(u.now, "migrate", "to", releasedSchema, "--yes"); code != 4 {
		u.t.Errorf("down while a worker goes on: exit code %d: %s", code, out)
	}
	u.end(u.newWorker)
	u.must(u.now, "migrate", "to", releasedSchema, "--yes")
	at := u.lastRun()
	d := u.serve(u.old, "again", "--listen", "off", "--poll", u.poll.String(), "--tag", "old")
	u.has("again", 1, at)
	d.stop()
}
