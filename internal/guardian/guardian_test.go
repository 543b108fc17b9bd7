//go:build unix

package guardian

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/dbcron/dbcron/internal/instant"
)

func TestMain(m *testing.M) {
	if script := os.Getenv("GUARDIAN_TEST_CALLER"); script != "" {
		callerMain(script)
	}
	goleak.VerifyTestMain(m)
}

const (
	patience = 30 * time.Second // bounds what must happen even on a slow machine
	testPath = "PATH=/usr/local/bin:/usr/bin:/bin"
)

func sh(script string, args ...string) Command {
	return Command{
		Name: "test", Argv: append([]string{"sh", "-c", script, "sh"}, args...),
		Env: []string{testPath}, Grace: 5 * time.Second,
	}
}

func start(t *testing.T, c Command, life time.Duration) *Process {
	t.Helper()
	p, err := Start(c, instant.Now().Add(life))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Kill()
		p.Wait()
	})
	return p
}

func wait(t *testing.T, p *Process) Result {
	t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-p.Done():
	case <-timer.C:
		t.Fatal("the command does not end")
	}
	return p.Wait()
}

func run(t *testing.T, c Command) Result {
	t.Helper()
	return wait(t, start(t, c, time.Minute))
}

// eventually waits until condition returns true.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for limit := instant.Now().Add(patience); !condition(); <-tick.C {
		if instant.Now() > limit {
			t.Fatal("never happened: ", what)
		}
	}
}

// pidIn waits until a command has written a pid and a newline to the file.
func pidIn(t *testing.T, file string) int {
	t.Helper()
	var pid int
	eventually(t, "a pid in "+file, func() bool {
		b, _ := os.ReadFile(file)
		line, whole := strings.CutSuffix(string(b), "\n")
		var err error
		pid, err = strconv.Atoi(line)
		return whole && err == nil
	})
	return pid
}

// alive reports whether the process runs. A dead one may count as alive until init reaps it.
func alive(pid int) bool {
	if unix.Kill(pid, 0) != nil {
		return false
	}
	out, err := exec.CommandContext(context.Background(), "ps", "-o", "stat=", "-p", strconv.Itoa(pid)).Output()
	return err == nil && !strings.HasPrefix(string(out), "Z")
}

func gone(t *testing.T, pids ...int) {
	t.Helper()
	for _, pid := range pids {
		eventually(t, fmt.Sprintf("the end of process %d", pid), func() bool { return !alive(pid) })
	}
}

func TestExitCodeIsTheShells(t *testing.T) {
	dir := t.TempDir()
	file := func(name, content string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	argv := func(args ...string) Command { return Command{Argv: args, Env: []string{testPath}} }
	in := func(c Command, dir string) Command { c.Dir = dir; return c }
	plain := file("plain", "#!/bin/sh\n", 0o644)
	for _, c := range []struct {
		name   string
		cmd    Command
		code   int
		signal syscall.Signal
		err    string
	}{
		{"ok", argv("true"), 0, 0, ""},
		{"own", sh("exit 3"), 3, 0, ""},
		{"own 255", sh("exit 255"), 255, 0, ""},
		{"signal", sh("kill -USR1 $$"), 128 + 10, syscall.SIGUSR1, ""},
		{"not in PATH", argv("no-such-command"), 127, 0, "no-such-command: command not found"},
		{"not there", argv("/no/such/command"), 127, 0, "/no/such/command: no such file"},
		{"below a file", argv(plain + "/x"), 127, 0, "not a directory"},
		{"not executable", argv(plain), 126, 0, "permission denied"},
		{"a folder", argv(dir), 126, 0, "is a directory"},
		{"no interpreter", argv(file("lost", "#!/no/such/shell\n", 0o755)), 126, 0, "interpreter is not found"},
		{"no format", argv(file("text", "hello\n", 0o755)), 126, 0, "exec format error"},
		{"no folder", in(argv("true"), dir+"/none"), 126, 0, "chdir " + dir + "/none"},
		{"relative to Dir", in(argv("./ok"), filepath.Dir(file("ok", "#!/bin/sh\nexit 7\n", 0o755))), 7, 0, ""},
		{"default PATH", Command{Argv: []string{"true"}}, 0, 0, ""},
		{"only its own PATH", Command{Argv: []string{"true"}, Env: []string{"PATH=/none"}}, 127, 0, "not found in /none"},
		{"arguments too long", argv("true", strings.Repeat("x", 4<<20)), 126, 0, "too long"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := run(t, c.cmd)
			if r.ExitCode != c.code || r.Signal != c.signal {
				t.Errorf("got exit code %d and signal %d, want %d and %d", r.ExitCode, r.Signal, c.code, c.signal)
			}
			want := Exited
			if c.err != "" {
				want = NotStarted
			}
			if r.Cause != want || (r.Err == nil) != (c.err == "") {
				t.Errorf("got cause %q and error %v", r.Cause, r.Err)
			}
			if r.Err != nil && !strings.Contains(r.Err.Error(), c.err) {
				t.Errorf("got %q, want it to say %q", r.Err, c.err)
			}
		})
	}
}

func TestStartRefuses(t *testing.T) {
	for name, c := range map[string]Command{
		"no command":     {},
		"empty command":  {Argv: []string{""}},
		"NUL":            {Argv: []string{"true", "a\x00b"}},
		"NUL in env":     {Argv: []string{"true"}, Env: []string{"A=\x00"}},
		"NUL in dir":     {Argv: []string{"true"}, Dir: "/\x00"},
		"NUL in user":    {Argv: []string{"true"}, User: "root\x00"},
		"input and file": {Argv: []string{"true"}, Input: "x", Stdin: os.Stdin},
	} {
		if _, err := Start(c, instant.Now().Add(time.Minute)); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, err := Start(sh("true"), instant.Now()); !errors.Is(err, ErrPast) {
		t.Errorf("got %v, want ErrPast", err)
	}
}

func TestEnvironmentAndArgumentsAreWhatIsGiven(t *testing.T) {
	t.Setenv("GUARDIAN_TEST_SECRET", "inherited")
	env := []string{"B=2", "A=1 \xff\n€", "EMPTY=", testPath}
	r := run(t, Command{Argv: []string{"env", "-0"}, Env: env, Name: "a\x00b\nc"})
	want := strings.ToValidUTF8(strings.Join(env, "\uFFFD"), "\uFFFD") + "\uFFFD"
	if r.Output != want {
		t.Errorf("got %q, want %q", r.Output, want)
	}
	r = run(t, sh(`for a; do printf %s "$a" | od -An -tx1; done`, "\xff\x01", "é", ""))
	if got := strings.Join(strings.Fields(r.Output), " "); got != "ff 01 c3 a9" {
		t.Errorf("got bytes %q", got)
	}
	if r := run(t, Command{Argv: []string{"env"}}); r.Output != "" {
		t.Errorf("got %q, want an empty environment", r.Output)
	}
}

func TestSignalsAreAtTheirDefaults(t *testing.T) {
	r := run(t, sh("trap"))
	if r.Output != "" {
		t.Errorf("got %q, want no signal to be ignored", r.Output)
	}
	for _, sig := range []string{"HUP", "INT", "QUIT", "PIPE", "TERM", "USR2"} {
		if r := run(t, sh("kill -"+sig+" $$; exit 0")); r.Signal == 0 {
			t.Errorf("SIG%s did not end the command", sig)
		}
	}
}

func TestInput(t *testing.T) {
	long := strings.Repeat("0123456789abcde\n", 1<<16) // 1 MiB: more than a pipe holds
	for _, c := range []struct{ name, script, in, want string }{
		{"none", "cat; echo end", "", "end\n"},
		{"short", "cat", "a\x00b", "a\uFFFDb"},
		{"long", "wc -c", long, "1048576\n"},
		{"not read", "echo done", long, "done\n"},
		{"closed", "exec <&-; echo done", long, "done\n"},
		{"partly read", "head -c 5; echo; echo done", long, "01234\ndone\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cmd := sh(c.script)
			cmd.Input = c.in
			r := run(t, cmd)
			if strings.TrimLeft(r.Output, " ") != c.want || r.ExitCode != 0 || r.Err != nil {
				t.Errorf("got %q, exit code %d, %v", r.Output, r.ExitCode, r.Err)
			}
		})
	}
}

func TestOutputIsInterleavedAndClean(t *testing.T) {
	r := run(t, sh(`echo a; echo b >&2; echo c; printf 'x\000y\377z\303' >&2`))
	if want := "a\nb\nc\nx\uFFFDy\uFFFDz\uFFFD"; r.Output != want {
		t.Errorf("got %q, want %q", r.Output, want)
	}
}

func TestFilesArePassedThrough(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	c := sh("cat; echo captured >&2")
	c.Stdout = w
	if c.Stdin, err = os.CreateTemp(t.TempDir(), ""); err != nil {
		t.Fatal(err)
	}
	defer c.Stdin.Close()
	if _, err := c.Stdin.WriteString("hello\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Stdin.Seek(0, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	p := start(t, c, time.Minute)
	w.Close()
	got, err := io.ReadAll(r) // ends with the command: the guardian must not keep the pipe open
	if string(got) != "hello\n" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	if out := wait(t, p).Output; out != "captured\n" {
		t.Errorf("got %q", out)
	}
}

func TestStop(t *testing.T) {
	t.Run("the command obeys", func(t *testing.T) {
		ready := filepath.Join(t.TempDir(), "ready")
		p := start(t, sh(`trap 'echo bye; exit 4' TERM; echo $$ > "$1"; while :; do sleep 0.05; done`, ready), time.Minute)
		pidIn(t, ready)
		p.Stop()
		p.Stop()
		if r := wait(t, p); r.Cause != Stopped || r.ExitCode != 4 || !strings.HasSuffix(r.Output, "bye\n") || r.Err != nil {
			t.Errorf("got %+v", r)
		}
	})
	t.Run("the command is stopped", func(t *testing.T) {
		ready := filepath.Join(t.TempDir(), "ready")
		p := start(t, sh(`echo $$ > "$1"; kill -STOP $$; sleep 60`, ready), time.Minute)
		pid := pidIn(t, ready)
		begin := instant.Now()
		p.Stop()
		if r := wait(t, p); r.Signal != syscall.SIGTERM || instant.Now().Sub(begin) > patience {
			t.Errorf("got %+v after %v", r, instant.Now().Sub(begin))
		}
		gone(t, pid)
	})
	t.Run("the command ignores it", func(t *testing.T) { onTime(t, stopsTheStubborn) })
	t.Run("SIGTERM to the guardian", func(t *testing.T) {
		ready := filepath.Join(t.TempDir(), "ready")
		p := start(t, sh(`echo $$ > "$1"; exec sleep 60`, ready), time.Minute)
		pidIn(t, ready)
		for _, sig := range []syscall.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGPIPE, syscall.SIGTERM} {
			_ = p.process.Signal(sig)
		}
		if r := wait(t, p); r.Cause != Stopped || r.Signal != syscall.SIGTERM {
			t.Errorf("got %+v", r)
		}
	})
	t.Run("at once", func(t *testing.T) {
		p := start(t, sh("sleep 60"), time.Minute)
		p.Stop()
		if r := wait(t, p); r.Cause != Stopped && r.Cause != NotStarted {
			t.Errorf("got %+v", r)
		}
	})
}

// stopsTheStubborn stops a command that ignores SIGTERM.
func stopsTheStubborn(t *testing.T) (late string) {
	t.Helper()
	ready := filepath.Join(t.TempDir(), "ready")
	c := sh(`trap '' TERM; echo $$ > "$1"; while :; do sleep 0.05; done`, ready)
	c.Grace = 300 * time.Millisecond
	p := start(t, c, time.Minute)
	pid := pidIn(t, ready)
	begin := instant.Now()
	p.Stop()
	r := wait(t, p)
	if r.Cause != Stopped || r.Signal != syscall.SIGKILL || r.ExitCode != 137 {
		t.Errorf("got %+v", r)
	}
	took := instant.Now().Sub(begin)
	if took < c.Grace {
		t.Errorf("killed after %v, with a grace of %v", took, c.Grace)
	}
	if p.forced != "" {
		late = fmt.Sprintf("killed after %v by the caller (%q)", took, p.forced)
	}
	gone(t, pid)
	return late
}

func TestKill(t *testing.T) { onTime(t, killsAtOnce) }

// onTime tries up to ten times whether the guardian acts before its caller would. On a slow machine
// it may be late, but not always.
func onTime(t *testing.T, try func(t *testing.T) (late string)) {
	t.Helper()
	late := "not tried"
	for tries := 0; late != "" && tries < 10; tries++ {
		late = try(t)
	}
	if late != "" {
		t.Error(late)
	}
}

func killsAtOnce(t *testing.T) (late string) {
	t.Helper()
	ready := filepath.Join(t.TempDir(), "ready")
	c := sh(`trap '' TERM; echo $$ > "$1"; echo said; while :; do sleep 0.05; done`, ready)
	c.Grace = 2 * patience
	p := start(t, c, 3*patience)
	pid := pidIn(t, ready)
	begin := instant.Now()
	p.Stop()
	p.Kill()
	r := wait(t, p)
	if r.Cause != Killed || r.Signal != syscall.SIGKILL || r.Output != "said\n" {
		t.Errorf("got %+v", r)
	}
	took := instant.Now().Sub(begin)
	if took > patience {
		t.Errorf("took %v: it waited for the grace", took)
	}
	if p.forced != "" {
		late = fmt.Sprintf("took %v: it waited for the caller to act (%q)", took, p.forced)
	}
	gone(t, pid)
	p.Kill() // later calls do no harm
	p.Stop()
	p.Extend(instant.Now().Add(time.Hour))
	return late
}

func TestDeadlineEndsTheCommand(t *testing.T) {
	for _, c := range []struct {
		name, script string
		signal       syscall.Signal
	}{
		{"by SIGTERM", `echo $$ > "$1"; exec sleep 60`, syscall.SIGTERM},
		{"by SIGKILL", `trap '' TERM; echo $$ > "$1"; while :; do sleep 0.05; done`, syscall.SIGKILL},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			const life = 2 * time.Second
			onTime(t, func(t *testing.T) (late string) {
				t.Helper()
				ready := filepath.Join(t.TempDir(), "ready")
				p := start(t, sh(c.script, ready), life)
				pid := pidIn(t, ready)
				r := wait(t, p)
				if alive(pid) {
					t.Error("the command lives on")
				}
				if r.Cause != Deadline || r.Signal != c.signal || r.Err != nil || r.Took < life/4 {
					t.Errorf("got %+v", r)
				}
				if r.Took > life { // by the guardian's measurement
					late = fmt.Sprintf("ended after %v, want less than %v", r.Took, life)
				}
				return late
			})
		})
	}
}

func TestExtendKeepsTheCommandAlive(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	begin := instant.Now()
	const life = 2 * time.Second
	p := start(t, sh(`read x < "$1"; echo "$x"`, fifo), life)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for instant.Now().Sub(begin) < life+time.Second {
		p.Extend(instant.Now().Add(life))
		<-tick.C
	}
	p.Extend(instant.Now().Add(time.Minute))
	p.Extend(begin) // changes nothing
	for instant.Now().Sub(begin) < 2*life+1500*time.Millisecond {
		<-tick.C
	}
	select {
	case <-p.Done():
		t.Fatalf("ended in spite of Extend: %+v", p.Wait())
	default:
	}
	if err := os.WriteFile(fifo, []byte("still here\n"), 0); err != nil {
		t.Fatal(err)
	}
	if r := wait(t, p); r.Output != "still here\n" || r.Cause != Exited || r.Took < 2*life {
		t.Errorf("got %+v", r)
	}
}

func TestDeadlinePassesBeforeTheStart(t *testing.T) {
	mark := filepath.Join(t.TempDir(), "mark")
	Dismiss()
	p, err := Start(sh(`echo > "$1"`, mark), instant.Now().Add(time.Millisecond)) // a new guardian takes longer
	for errors.Is(err, ErrPast) {
		p, err = Start(sh(`echo > "$1"`, mark), instant.Now().Add(time.Millisecond))
	}
	if err != nil {
		t.Fatal(err)
	}
	r := wait(t, p)
	if r.Cause != NotStarted || !errors.Is(r.Err, ErrPast) {
		t.Errorf("got %+v, want ErrPast", r)
	}
	if _, err := os.Stat(mark); err == nil {
		t.Error("the command has run")
	}
}

func TestWhatIsLeftBehindIsKilled(t *testing.T) {
	ready := filepath.Join(t.TempDir(), "ready")
	begin := instant.Now()
	r := run(t, sh(`trap '' TERM; sleep 60 & echo $! > "$1"; echo main; exit 5`, ready))
	if r.Cause != Exited || r.ExitCode != 5 || r.Output != "main\n" || !r.LeftBehind || r.Err != nil {
		t.Errorf("got %+v", r)
	}
	if took := instant.Now().Sub(begin); took > patience || r.Took > patience {
		t.Errorf("took %v, of which the command %v", took, r.Took)
	}
	gone(t, pidIn(t, ready))
}

func TestWhatIsLeftBehindMayFinish(t *testing.T) {
	r := run(t, sh(`(sleep 0.2; echo late) & echo early`))
	if r.Output != "early\nlate\n" || r.LeftBehind {
		t.Errorf("got %+v", r)
	}
}

// With Linger, what is left in the background runs on, and is still the command's: its output is read, and whatever ends a command
// ends it, with SIGTERM first. Otherwise the result comes when it has ended, with the exit code of the command.
func TestLinger(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(p *Process, file string) error
		want Cause
		last string // what it writes then
	}{
		"itself": {func(_ *Process, file string) error { return os.WriteFile(file, nil, 0o600) }, Exited, "late\n"},
		"stop":   {func(p *Process, _ string) error { p.Stop(); return nil }, Stopped, "term\n"},
		"kill":   {func(p *Process, _ string) error { p.Kill(); return nil }, Killed, "beat\n"},
		"caller": {func(p *Process, _ string) error { return p.orders.Close() }, orphaned, "term\n"},
		"lease":  {nil, Deadline, "term\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, life := t.TempDir(), time.Minute
			if c.end == nil {
				life = 5 * time.Second
			}
			command := sh(`sh -c 'trap "echo term; exit" TERM; while [ ! -e "$1/end" ]; do echo beat; sleep 0.1; done; echo late' sh "$1" &
				echo $! > "$1/back"; echo $$ > "$1/main"; exit 3`, dir)
			command.Linger = -1
			p := start(t, command, life)
			main, back := pidIn(t, dir+"/main"), pidIn(t, dir+"/back")
			gone(t, main)
			if c.end != nil {
				_, before := p.Output()
				eventually(t, "three seconds with news", func() bool { _, n := p.Output(); return n >= before+3 }) // longer than usual
				if err := c.end(p, dir+"/end"); err != nil {
					t.Fatal(err)
				}
			}
			r := wait(t, p)
			if r.Cause != c.want || r.ExitCode != 3 || !strings.Contains(r.Output, c.last) || r.LeftBehind || r.Err != nil {
				t.Errorf("got %+v", r)
			}
			gone(t, back)
		})
	}
	t.Run("over", func(t *testing.T) {
		t.Parallel()
		command := sh(`sleep 60 & exit 3`)
		command.Linger = linger + time.Millisecond
		if r := run(t, command); r.Cause != Exited || r.ExitCode != 3 || !r.LeftBehind {
			t.Errorf("got %+v", r)
		}
	})
}

func TestGuardianIsKilled(t *testing.T) {
	dir := t.TempDir()
	p := start(t, sh(`sleep 60 & echo $! > "$1"; echo $$ > "$2"; wait`, dir+"/child", dir+"/ready"), time.Minute)
	child, pid := pidIn(t, dir+"/child"), pidIn(t, dir+"/ready")
	if err := p.process.Kill(); err != nil {
		t.Fatal(err)
	}
	r := wait(t, p)
	if r.Cause != Lost || r.ExitCode != -1 || !errors.Is(r.Err, ErrLost) || !strings.Contains(r.Err.Error(), "killed") {
		t.Errorf("got %+v", r)
	}
	gone(t, pid, child)
}

func TestGuardianIsStopped(t *testing.T) {
	ready := filepath.Join(t.TempDir(), "ready")
	deadline := instant.Now().Add(4 * time.Second)
	p, err := Start(sh(`echo $$ > "$1"; echo said; exec sleep 60`, ready), deadline)
	if err != nil {
		t.Fatal(err)
	}
	pid := pidIn(t, ready)
	if err := p.process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	begin := instant.Now()
	for range 20_000 { // far more than the pipe can hold
		p.Extend(deadline)
	}
	if took := instant.Now().Sub(begin); took > patience {
		t.Errorf("Extend blocked: %v", took)
	}
	r := wait(t, p) // the caller ends the command then
	if r.Cause != Deadline || r.Output != "said\n" {
		t.Errorf("got %+v", r)
	}
	if took := instant.Now().Sub(deadline); took > patience {
		t.Errorf("the end came %v after the deadline", took)
	}
	gone(t, pid)
}

func TestKillOfAStoppedGuardiansCommand(t *testing.T) {
	ready := filepath.Join(t.TempDir(), "ready")
	p := start(t, sh(`echo $$ > "$1"; exec sleep 60`, ready), time.Minute)
	pid := pidIn(t, ready)
	if err := p.process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	p.Kill()
	if r := wait(t, p); r.Cause != Killed {
		t.Errorf("got %+v", r)
	}
	gone(t, pid)
}

func TestExtendDoesNotBlockOnAFullPipe(t *testing.T) {
	c := sh("sleep 60")
	c.Input = strings.Repeat("x", 8<<20) // the order that carries the spec fills the pipe by itself
	p := start(t, c, time.Minute)
	_ = p.process.Signal(syscall.SIGSTOP)
	begin := instant.Now()
	for range 10_000 {
		p.Extend(instant.Now().Add(time.Minute))
	}
	if took := instant.Now().Sub(begin); took > patience {
		t.Errorf("Extend blocked: %v", took)
	}
	_ = p.process.Signal(syscall.SIGCONT)
	p.Kill()
	wait(t, p)
}

// callerMain is a caller in a process of its own. It runs the script, never extends the deadline,
// and prints the result.
func callerMain(script string) {
	life, err := time.ParseDuration(os.Getenv("GUARDIAN_TEST_LIFE"))
	if err != nil {
		panic(err)
	}
	c := sh(script)
	c.User = os.Getenv("GUARDIAN_TEST_USER")
	c.Grace = 300 * time.Millisecond
	p, err := Start(c, instant.Now().Add(life))
	if err != nil {
		panic(err)
	}
	r := p.Wait()
	if err := json.NewEncoder(os.Stdout).Encode(printed{r.Cause, r.Output, fmt.Sprint(r.Err)}); err != nil {
		panic(err)
	}
	os.Exit(0)
}

// printed is a result as a caller prints it.
type printed struct {
	Cause       Cause
	Output, Err string
}

func startCaller(t *testing.T, script string, life time.Duration, change ...func(*exec.Cmd)) *exec.Cmd {
	t.Helper()
	self, err := program()
	if err != nil {
		t.Fatal(err)
	}
	caller := exec.CommandContext(t.Context(), self)
	caller.Env = append(os.Environ(), "GUARDIAN_TEST_CALLER="+script, "GUARDIAN_TEST_LIFE="+life.String())
	caller.Stderr = os.Stderr
	for _, f := range change {
		f(caller)
	}
	if err := caller.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = caller.Process.Kill()
		_ = caller.Wait()
	})
	return caller
}

func TestCallerIsKilled(t *testing.T) {
	dir := t.TempDir()
	script := fmt.Sprintf(`trap '' TERM; sleep 60 & echo $! > %[1]s/child; echo $$ > %[1]s/ready; wait`, dir)
	caller := startCaller(t, script, time.Hour)
	child, pid := pidIn(t, dir+"/child"), pidIn(t, dir+"/ready")
	if err := caller.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	gone(t, pid, child)
}

func TestCallerIsStopped(t *testing.T) {
	dir := t.TempDir()
	script := fmt.Sprintf(`trap '' TERM; sleep 60 & echo $! > %[1]s/child; echo $$ > %[1]s/ready; wait`, dir)
	begin := instant.Now()
	const life = 3 * time.Second
	caller := startCaller(t, script, life)
	child, pid := pidIn(t, dir+"/child"), pidIn(t, dir+"/ready")
	if err := caller.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	started := instant.Now() // after Start's own reading of the clock
	gone(t, pid, child)
	if took := instant.Now().Sub(started); took > life+patience/3 { // allows a slow machine some time to notice
		t.Errorf("%v passed, which is past the deadline", took)
	}
	if took := instant.Now().Sub(begin); took < life/2 {
		t.Errorf("only %v passed", took)
	}
	isStopped(t, caller)
}

func isStopped(t *testing.T, caller *exec.Cmd) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), "ps", "-o", "stat=", "-p", strconv.Itoa(caller.Process.Pid)).Output(); err != nil ||
		out[0] != 'T' {
		t.Errorf("the caller is not stopped: %q, %v", out, err)
	}
}

func TestManyAtOnce(t *testing.T) {
	var all sync.WaitGroup
	for i := range 50 {
		all.Go(func() {
			c := sh(`cat; echo " $1"; exit "$1"`, strconv.Itoa(i))
			c.Input = "in"
			p, err := Start(c, instant.Now().Add(time.Minute))
			if err != nil {
				t.Error(err)
				return
			}
			r := p.Wait()
			if want := fmt.Sprintf("in %d\n", i); r.ExitCode != i || r.Output != want || r.Err != nil {
				t.Errorf("%d: got %+v", i, r)
			}
		})
	}
	all.Wait()
	Dismiss()
	if pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil); err != unix.ECHILD {
		t.Errorf("a child is left: %d, %v", pid, err)
	}
}

func BenchmarkGuarded(b *testing.B) {
	defer Dismiss() // reaps the guardian, so that its processor time counts
	for b.Loop() {
		p, err := Start(Command{Argv: []string{"/bin/true"}}, instant.Now().Add(time.Minute))
		if err != nil {
			b.Fatal(err)
		}
		p.Wait()
	}
}

func BenchmarkPlain(b *testing.B) {
	for b.Loop() {
		if err := exec.CommandContext(b.Context(), "/bin/true").Run(); err != nil {
			b.Fatal(err)
		}
	}
}
