package guardian

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestDaemonizedDescendantsAreKilled(t *testing.T) {
	// It starts as a daemon does: two forks away, in its own session, with its own output, ignoring
	// SIGTERM.
	const daemon = `(setsid sh -c 'trap "" TERM; echo $$ > "$1/daemon"; while :; do sleep 0.1; done' sh "$1" > /dev/null 2>&1 &) & `
	for _, c := range []struct {
		name, script string
		end          func(*Process)
		want         Cause
	}{
		{"after the end", daemon + `wait; while ! [ -s "$1/daemon" ]; do sleep 0.01; done; echo $$ > "$1/ready"`, nil, Exited},
		{"by Kill", daemon + `echo $$ > "$1/ready"; sleep 60`, (*Process).Kill, Killed},
		{"by Stop", daemon + `echo $$ > "$1/ready"; sleep 60`, (*Process).Stop, Stopped},
		{"by the deadline", daemon + `echo $$ > "$1/ready"; sleep 60`, func(p *Process) {}, Deadline},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			cmd := sh(c.script, dir)
			cmd.Grace = 500 * time.Millisecond
			life := time.Minute
			if c.want == Deadline {
				life = 4 * time.Second
			}
			p := start(t, cmd, life)
			pid := pidIn(t, dir+"/daemon")
			pidIn(t, dir+"/ready")
			if c.end != nil {
				c.end(p)
			}
			r := wait(t, p)
			if alive(pid) { // at once: the result says that all are gone
				t.Error("the daemon lives on")
			}
			if r.Cause != c.want || r.Err != nil || r.LeftBehind != (c.want == Exited) {
				t.Errorf("got %+v", r)
			}
		})
	}
}

func TestDaemonizedDescendantsDieWithTheCaller(t *testing.T) {
	dir := t.TempDir()
	script := fmt.Sprintf(`setsid sh -c 'echo $$ > %[1]s/daemon; exec sleep 60' & echo $$ > %[1]s/ready; wait`, dir)
	caller := startCaller(t, script, time.Hour)
	daemon, pid := pidIn(t, dir+"/daemon"), pidIn(t, dir+"/ready")
	if err := caller.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	gone(t, pid, daemon)
}

func TestGuardianIsKilledWhileTheCallerIsStopped(t *testing.T) {
	dir := t.TempDir()
	caller := startCaller(t, fmt.Sprintf(`echo $PPID > %[1]s/guardian; echo $$ > %[1]s/ready; while :; do sleep 0.1; done`, dir), time.Hour)
	guardian, pid := pidIn(t, dir+"/guardian"), pidIn(t, dir+"/ready")
	if err := caller.Process.Signal(unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(guardian, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	gone(t, pid) // only the kernel is left to kill it
}

func TestFleeingDescendantsAreCaught(t *testing.T) {
	dir := t.TempDir()
	script := dir + "/flee.sh"
	if err := os.WriteFile(script, []byte("echo $$ >> $1\nsleep 0.01\nsetsid sh $0 $1 &\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := start(t, sh(`sh "$1/flee.sh" "$1/pids"; sleep 60`, dir), time.Minute)
	eventually(t, "a few generations", func() bool {
		pids, _ := os.ReadFile(dir + "/pids")
		return bytes.Count(pids, []byte("\n")) > 10
	})
	p.Kill()
	if r := wait(t, p); r.Cause != Killed || r.Err != nil {
		t.Errorf("got %+v", r)
	}
	names, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if b, _ := os.ReadFile(name); bytes.Contains(b, []byte(script)) {
			t.Errorf("%s lives on", name)
		}
	}
}

func TestHugeOutputTakesLittleMemory(t *testing.T) {
	dir := t.TempDir()
	fifo := filepath.Join(dir, "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	c := sh(`echo first; head -c 1073741824 /dev/zero; echo last; : > "$1"`, fifo)
	c.MaxOutput = 200_000
	p := start(t, c, time.Minute)
	done := make(chan struct{})
	go func() { // waits until the command has written everything
		defer close(done)
		_, _ = os.ReadFile(fifo)
	}()
	peak := 0
	eventually(t, "the end of the output", func() bool {
		peak = max(peak, residentPeak(p.process.Pid))
		select {
		case <-done:
			return true
		default:
			return false
		}
	})
	r := wait(t, p)
	if !strings.HasPrefix(r.Output, "first\n\uFFFD") || !strings.HasSuffix(r.Output, "\uFFFDlast\n") || len(r.Output) > 200_100 {
		t.Errorf("got %d bytes: %.20q", len(r.Output), r.Output)
	}
	if r.Omitted < 1<<30-200_000 || r.Omitted > 1<<30+11 {
		t.Errorf("%d bytes left out", r.Omitted)
	}
	t.Logf("the guardian's peak was %d kB", peak)
	if peak == 0 || peak > 150_000 { // the race detector takes most of it
		t.Errorf("the guardian's peak was %d kB", peak)
	}
}

// residentPeak returns a process's peak resident size in kB, or 0.
func residentPeak(pid int) int {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	_, rest, _ := strings.Cut(string(b), "VmHWM:")
	value, _, _ := strings.Cut(rest, "kB")
	kb, _ := strconv.Atoi(strings.TrimSpace(value))
	return kb
}

func TestPsShowsNoSecret(t *testing.T) {
	t.Setenv("GUARDIAN_TEST_SECRET", "hunter2")
	ready := filepath.Join(t.TempDir(), "ready")
	c := sh(`echo $$ > "$1"; exec sleep 60`, ready, "hunter2")
	c.Name, c.Input, c.Env = "nightly", "hunter2", append(c.Env, "PGPASSWORD=hunter2")
	p := start(t, c, time.Minute)
	pid := pidIn(t, ready)
	if group, err := unix.Getpgid(pid); group != pid || err != nil {
		t.Errorf("got process group %d, %v, want one of the command's own", group, err)
	}
	if session, err := unix.Getsid(pid); session != p.process.Pid || err != nil {
		t.Errorf("got session %d, %v, want the guardian's", session, err)
	}
	read := func(name string) string {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", p.process.Pid, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	if got := strings.TrimRight(read("cmdline"), "\x00"); got != "dbcron-guardian\x00nightly" {
		t.Errorf("got command line %q", got)
	}
	if got := read("comm"); got != "dbcron-guardian\n" {
		t.Errorf("got name %q", got)
	}
	if got := read("environ"); strings.Trim(got, "\x00") != "" {
		t.Errorf("got environment %q", got)
	}
}

func TestDescriptors(t *testing.T) {
	// Careless parents leave descriptors like this one, without close-on-exec.
	leak, err := unix.Dup(1)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(leak)
	r := run(t, sh(`i=0; while [ $i -lt 500 ]; do [ -e /proc/$$/fd/$i ] && echo $i; i=$((i+1)); done`))
	if r.Output != "0\n1\n2\n" {
		t.Errorf("the command has descriptors %q, want 0, 1 and 2", r.Output)
	}

	t.Logf("the leak is %d", leak)
	Dismiss()
	before := descriptors(t)
	for range 10 {
		run(t, sh("cat; exit 1"))
		run(t, Command{Argv: []string{"/none"}})
	}
	Dismiss()
	if after := descriptors(t); !bytes.Equal(before, after) {
		t.Errorf("had descriptors %s, now %s", before, after)
	}
	if left := family(os.Getpid()); len(left) != 0 {
		t.Errorf("processes are left: %v", left)
	}
}

func descriptors(t *testing.T) []byte {
	t.Helper()
	var out bytes.Buffer
	names, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		target, _ := os.Readlink("/proc/self/fd/" + name.Name())
		if !strings.HasSuffix(target, "/fd") { // the directory being read
			fmt.Fprintf(&out, "%s=%s ", name.Name(), target)
		}
	}
	return out.Bytes()
}

func TestUpgradedProgram(t *testing.T) {
	if self, err := program(); err != nil || self != "/proc/self/exe" {
		t.Errorf("got %q, %v: a new program in the old one's place would be started", self, err)
	}
}
