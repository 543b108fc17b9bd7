package faults

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/sqlrun"
)

// A stranger's child: a program of another user, as behind sudo, whom a process without rights cannot kill.
type setuid struct {
	*rig
	nobody  *syscall.Credential
	program string // a copy of setpriv that belongs to root and is setuid
}

// newSetuid skips the test if it does not run as root, or the folder of temporary files is mounted with nosuid.
func newSetuid(t *testing.T, db *dbtest.DB, binary string) *setuid {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can make a setuid program of another user")
	}
	setpriv, err := exec.LookPath("setpriv")
	if err != nil {
		t.Skip("there is no setpriv (util-linux)")
	}
	who, err := user.Lookup("nobody")
	if err != nil {
		t.Skip(err)
	}
	uid, _ := strconv.ParseUint(who.Uid, 10, 32)
	gid, _ := strconv.ParseUint(who.Gid, 10, 32)
	dir, err := os.MkdirTemp("", "dbcron-setuid-") // t.TempDir is below a folder that others may not enter
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	s := &setuid{
		rig:    &rig{t: t, db: db, dir: dir, lease: 6 * time.Second, poll: 100 * time.Millisecond, grace: time.Second},
		nobody: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, program: filepath.Join(dir, "other"),
	}
	s.binary = filepath.Join(dir, "dbcron")
	copyFile(t, binary, s.binary)
	copyFile(t, setpriv, s.program)
	for name, mode := range map[string]os.FileMode{dir: 0o777, s.binary: 0o755, s.program: 0o755 | os.ModeSetuid} {
		if err := os.Chmod(name, mode); err != nil {
			t.Fatal(err)
		}
	}
	out, err := s.as(s.program, "--reuid=0", "id", "-u").CombinedOutput()
	if strings.TrimSpace(string(out)) != "0" || err != nil {
		t.Skipf("setuid has no effect in %s: %s, %v", dir, out, err)
	}
	return s
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	text, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, text, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// as makes a process of nobody.
func (s *setuid) as(name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(context.Background(), name, args...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + s.dir, "DBCRON_DATABASE_URL=" + s.db.URL}
	cmd.Dir, cmd.SysProcAttr = s.dir, &syscall.SysProcAttr{Credential: s.nobody}
	return cmd
}

// begin starts a process of nobody, which is killed at the end of the test.
func (s *setuid) begin(log io.Writer, args ...string) (ended <-chan struct{}) {
	s.t.Helper()
	cmd, over := s.as(s.binary, args...), make(chan struct{})
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	go func() { _ = cmd.Wait(); close(over) }()
	s.t.Cleanup(func() { _ = cmd.Process.Kill(); <-over })
	return over
}

// tell runs a command, and returns what it prints, whatever its exit code.
func (s *setuid) tell(args ...string) string {
	out, _ := s.as(s.binary, args...).CombinedOutput()
	return string(out)
}

// do runs a command that must succeed.
func (s *setuid) do(args ...string) {
	s.t.Helper()
	if out, err := s.as(s.binary, args...).CombinedOutput(); err != nil {
		s.t.Fatalf("%v: %v\n%s", args, err, out)
	}
}

// command is a line for a shell that nobody can kill: it writes its pid into a file of a name of its own, and lives for a minute.
func (s *setuid) command(name string) string {
	return fmt.Sprintf(`exec %s --reuid=0 sh -c 'trap "" TERM; echo $$ > %s/%s.$$; exec sleep 60'`, s.program, s.dir, name)
}

// children returns the pids of those of that name, all there have been.
func (s *setuid) children(name string) (pids []int) {
	files, _ := filepath.Glob(filepath.Join(s.dir, name+".[0-9]*"))
	for _, file := range files {
		pid, _ := strconv.Atoi(strings.TrimPrefix(filepath.Ext(file), "."))
		pids = append(pids, pid)
	}
	return pids
}

func (s *setuid) endChildren(name string) {
	s.t.Helper()
	for _, pid := range s.children(name) {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

// What nobody may kill is not over when somebody has tried to: its run, its job and its lock are kept until it has ended,
// everybody is told which processes they are, and nothing begins beside it. The class: an end that was asked for is taken
// for an end that has happened. It holds for all that is kept for work of our own: runs of schedules (their lease, their
// place, their next slot: functions are in TestFunctionsThatDoNotReturn of package scheduler), locks of lock run, jobs of
// worker exec, messages of notify commands. Handlers of jobs are in TestStuckHandler of package queue. What is not ours to
// see ends with its request: SQL statements and HTTP requests whose context has ended.
func TestSetuidChildren(t *testing.T) {
	t.Parallel()
	binary := build(t)
	dbtest.Processes.Each(t, func(t *testing.T, db *dbtest.DB) {
		s := newSetuid(t, db, binary)
		defer s.endChildren("*")
		eventually := func(what string, ok func() bool) {
			t.Helper()
			if s.eventually(what, time.Minute, ok); t.Failed() {
				t.FailNow()
			}
		}
		var log, lockLog, execLog logbook
		defer func() {
			if t.Failed() {
				t.Logf("serve:\n%s\nlock run:\n%s\nworker exec:\n%s", log.String(), lockLog.String(), execLog.String())
			}
		}()
		s.do("migrate", "up")
		for name, more := range map[string][]string{
			"late": {"--timeout", "1s"},
			"left": nil,
		} {
			command := s.command(name)
			if name == "left" { // it ends by itself, and leaves one behind
				command = "(" + command + ") > /dev/null 2>&1 & sleep 1"
			}
			s.do(append([]string{"schedule", "add", name, "--spec", "@every 2s", "--kill-grace", "1s"}, append(more, "--", command)...)...)
		}
		s.begin(&log, "serve", "--lease", "6s", "--poll", "100ms", "--grace", "1s", "--node", "vm")
		lock := s.begin(&lockLog, "lock", "run", "only", "--kill-grace", "100ms", "--max-hold", "1h", "-c", s.command("locked"))
		s.do("queue", "set", "shell", "--timeout", "1s")
		s.do("job", "enqueue", "x", "--queue", "shell")
		s.begin(&execLog, "worker", "exec", "--queue", "shell", "--lease", "6s", "--kill-grace", "100ms", "--", "sh", "-c", s.command("job"))

		for _, name := range []string{"late", "left"} {
			eventually("the run of "+name+" stays open, and names the process", func() bool {
				open := db.List(t, `SELECT error FROM {prefix}run WHERE schedule = :name AND state = 'running'`, sqlrun.Args{"name": name})
				pids := s.children(name)
				return len(open) == 1 && len(pids) == 1 && strings.Contains(open[0], fmt.Sprintf("SIGKILL does not end process %d", pids[0]))
			})
		}
		eventually("slots were skipped", func() bool {
			return len(db.List(t, `SELECT id FROM {prefix}run WHERE state = 'skipped' AND schedule = 'late'`, nil)) > 0
		})
		for _, ask := range [][]string{{"doctor"}, {"schedule", "explain", "late"}, {"schedule", "explain", "left"}} {
			said := s.tell(ask...)
			if !strings.Contains(said, "SIGKILL does not end process") || !strings.Contains(said, "end its processes on vm as root") {
				t.Errorf("%v says\n%s", ask, said)
			}
		}
		for _, name := range []string{"late", "left"} {
			if pids := s.children(name); len(pids) != 1 {
				t.Errorf("%d of %s have begun, beside each other: %v", len(pids), name, pids)
			}
		}

		eventually("lock run has begun", func() bool { return len(s.children("locked")) == 1 })
		s.endLockRun()
		eventually("lock run says which process it waits for", func() bool {
			return strings.Contains(lockLog.String(), "does not end process")
		})
		if held := s.tell("lock", "run", "only", "-n", "--", "true"); !strings.Contains(held, "held") {
			t.Errorf("another has the lock beside it: %s", held)
		}
		eventually("worker exec says so", func() bool {
			return strings.Contains(execLog.String(), "cannot be killed") && len(s.children("job")) == 1
		})
		if n := len(db.List(t, "SELECT id FROM {prefix}job_running", nil)); n != 1 {
			t.Errorf("%d jobs run", n)
		}

		s.endChildren("*")
		select {
		case <-lock:
		case <-time.After(time.Minute):
			t.Error("lock run does not end")
		}
		if free := s.tell("lock", "run", "only", "-n", "--", "echo", "free"); !strings.Contains(free, "free") {
			t.Errorf("the lock is not free: %s", free)
		}
		eventually("the runs have ended, and slots begin again", func() bool {
			defer s.endChildren("*")
			return len(db.List(t, `SELECT id FROM {prefix}run WHERE state = 'timeout' AND schedule = 'late'`, nil)) > 0 &&
				len(s.children("late")) > 1 && len(s.children("left")) > 1 && len(s.children("job")) > 1
		})
	})
}

// endLockRun sends SIGTERM to the process of lock run.
func (s *setuid) endLockRun() {
	s.t.Helper()
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range lines {
		words, err := os.ReadFile(file)
		if err != nil || !bytes.HasPrefix(words, []byte(s.binary+"\x00lock\x00run\x00")) {
			continue
		}
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		_ = syscall.Kill(pid, syscall.SIGTERM)
	}
}
