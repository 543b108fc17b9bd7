package guardian

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dbcron/dbcron/internal/instant"
)

// alone makes sure that no guardian rests, and that none does afterwards.
func alone(t *testing.T) {
	t.Helper()
	Dismiss()
	t.Cleanup(Dismiss)
}

// guardianOf runs a command, and returns its result and its guardian's number.
func guardianOf(t *testing.T, c Command) (Result, int) {
	t.Helper()
	p := start(t, c, time.Minute)
	return wait(t, p), p.process.Pid
}

func TestAGuardianGuardsAnother(t *testing.T) {
	alone(t)
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	first := sh(`echo "$SECRET"; cat; pwd; exit 3`)
	first.Env, first.Dir, first.Input = append(first.Env, "SECRET=hunter2"), dir, "in\n"
	r, guardian := guardianOf(t, first)
	if r.Output != "hunter2\nin\n"+dir+"\n" || r.ExitCode != 3 {
		t.Errorf("got %+v", r)
	}
	if title, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", guardian)); err != nil || strings.TrimRight(string(title), "\x00") != "dbcron-guardian" {
		t.Errorf("of one that rests ps shows %q, %v", title, err)
	}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	second := sh(`tr '\0' '|' < /proc/$PPID/cmdline; echo; cat; pwd; env | grep -c SECRET; ls /proc/$PPID/fd | wc -l`)
	second.Name = "another"
	r, again := guardianOf(t, second)
	if again != guardian {
		t.Error("the second command has a guardian of its own")
	}
	title, rest, _ := strings.Cut(r.Output, "\n")
	if strings.TrimRight(title, "|") != "dbcron-guardian|another" {
		t.Errorf("ps shows %q", title)
	}
	if !strings.HasPrefix(rest, here+"\n0\n") || r.ExitCode != 0 {
		t.Errorf("got %+v", r)
	}
	before := strings.TrimPrefix(rest, here+"\n0\n") // the number of its files
	for range 5 {
		guardianOf(t, Command{Argv: []string{"/none"}, Env: []string{testPath}})
		guardianOf(t, Command{Argv: []string{"/etc/passwd"}, Env: []string{testPath}, Input: "in"})
		if r, again = guardianOf(t, sh(`ls /proc/$PPID/fd | wc -l`)); again != guardian {
			t.Fatal("a command that did not start took its guardian with it")
		}
	}
	files := func() string {
		r, again = guardianOf(t, sh(`ls /proc/$PPID/fd | wc -l`))
		return r.Output
	}
	for range 100 { // what the last commands have left is closed by goroutines
		if again == guardian && files() == before {
			return
		}
	}
	t.Errorf("the guardian %d had %q files, and %d has %q", guardian, before, again, r.Output)
}

func TestAGuardianThatHadToActIsNotUsedAgain(t *testing.T) {
	for _, c := range []struct {
		name, script string
		end          func(p *Process)
	}{
		{"stopped", "exec sleep 60", (*Process).Stop},
		{"killed", "exec sleep 60", (*Process).Kill},
		{"told to end", "exec sleep 60", func(p *Process) { _ = p.process.Signal(syscall.SIGTERM) }},
		{"left something", "sleep 60 &", func(*Process) {}},
	} {
		t.Run(c.name, func(t *testing.T) {
			alone(t)
			p := start(t, sh(c.script), time.Minute)
			eventually(t, "the start", func() bool {
				p.mu.Lock()
				defer p.mu.Unlock()
				return p.group != 0
			})
			c.end(p)
			wait(t, p)
			if r, guardian := guardianOf(t, sh("exit 4")); guardian == p.process.Pid || r.ExitCode != 4 {
				t.Errorf("guardians %d and %d: %+v", p.process.Pid, guardian, r)
			}
		})
	}
}

func TestLateOrdersAreNotTheNextCommands(t *testing.T) {
	alone(t)
	var before []*Process
	for i := range 50 {
		p := start(t, sh(`exit "$1"`, strconv.Itoa(i)), time.Minute)
		for _, old := range before { // while this one runs, and as it begins
			old.Kill()
			old.Stop()
			old.Pass(syscall.SIGUSR1)
			old.Extend(instant.Now().Add(time.Hour))
		}
		for over := false; !over; { // also while it ends
			p.Extend(instant.Now().Add(time.Hour))
			select {
			case <-p.Done():
				over = true
			default:
			}
		}
		if r := wait(t, p); r.Cause != Exited || r.ExitCode != i {
			t.Fatalf("%d: got %+v", i, r)
		}
		if i > 0 && p.process.Pid != before[0].process.Pid {
			t.Fatal("another guardian")
		}
		before = append(before, p)
	}
}

func TestAGuardianThatDiedAtRestIsNotUsed(t *testing.T) {
	alone(t)
	_, guardian := guardianOf(t, sh("exit"))
	if err := syscall.Kill(guardian, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	resting.Lock()
	k := resting.keepers[0]
	resting.Unlock()
	eventually(t, "its death", func() bool { return !k.alive() })
	if r, another := guardianOf(t, sh("exit 5")); r.ExitCode != 5 || another == guardian {
		t.Errorf("got %+v", r)
	}
}

func TestAnotherDirectoryIsAnotherGuardian(t *testing.T) {
	alone(t)
	_, guardian := guardianOf(t, sh("exit"))
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	if r, another := guardianOf(t, sh("pwd")); r.Output != dir+"\n" || another == guardian {
		t.Errorf("got %+v", r)
	}
}

func TestDismiss(t *testing.T) {
	alone(t)
	guardianOf(t, sh("exit"))
	Dismiss()
	if left := family(os.Getpid()); len(left) != 0 {
		t.Errorf("processes are left: %v", left)
	}
}

func TestAGuardianRestsForAWhile(t *testing.T) {
	alone(t)
	_, guardian := guardianOf(t, sh("exit"))
	gone(t, guardian)
}

func TestARestingGuardianEndsWithItsCaller(t *testing.T) {
	dir := t.TempDir()
	caller := startCaller(t, fmt.Sprintf(`echo $PPID > %s/guardian`, dir), time.Hour)
	pid := pidIn(t, dir+"/guardian")
	_ = caller.Process.Kill() // it may have ended by itself
	gone(t, pid)
}
