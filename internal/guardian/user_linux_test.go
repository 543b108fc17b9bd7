package guardian

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dbcron/dbcron/internal/instant"
)

const nobody = "nobody"

func needsRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can run a command as another user")
	}
}

// as returns a script to run as the named user.
func as(name, script string, args ...string) Command {
	c := sh(script, args...)
	c.User = name
	return c
}

// id asks the passwd database independently of the tested code.
func id(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "id", args...).Output()
	if err != nil {
		t.Skipf("id %s: %v", args, err)
	}
	return strings.TrimSpace(string(out))
}

func credentialOfNobody(t *testing.T) *syscall.Credential {
	t.Helper()
	c, err := credentialOf(nobody)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// publicDir returns a folder that everybody can access, unlike t.TempDir.
func publicDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "guardian")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestUser(t *testing.T) {
	needsRoot(t)
	for _, name := range []string{nobody, id(t, "-u", nobody), "postgres"} { // postgres is in two groups
		t.Run(name, func(t *testing.T) {
			want := id(t, "-u", name) + "\n" + id(t, "-g", name) + "\n" + id(t, "-G", name)
			r := run(t, as(name, "id -u; id -g; id -G"))
			if fields(r.Output) != fields(want) || r.Err != nil {
				t.Errorf("got %q and %v, want %q", r.Output, r.Err, want)
			}
		})
	}
}

// fields returns the numbers in a text, with the groups sorted.
func fields(text string) string {
	f := strings.Fields(text)
	slices.Sort(f[min(2, len(f)):])
	return strings.Join(f, " ")
}

func TestUserIsUnknown(t *testing.T) {
	for _, name := range []string{"no-such-user", "4294901760", "4294967296", "-1", "+0", "0x0", " root", "nobody:nogroup"} {
		p := start(t, as(name, "id"), time.Minute)
		p.Extend(instant.Now().Add(time.Hour))
		p.Stop()
		r := wait(t, p)
		if r.Cause != NotStarted || r.ExitCode != 126 || r.Err == nil || !strings.Contains(r.Err.Error(), "unknown user") {
			t.Errorf("%q: got %+v", name, r)
		}
	}
	if _, err := Start(as("no-such-user", "id"), instant.Now()); !errors.Is(err, ErrPast) {
		t.Errorf("got %v, want ErrPast", err)
	}
}

// called returns the result of a script whose caller runs as another user.
func called(t *testing.T, caller *syscall.Credential, name, script string) printed {
	t.Helper()
	t.Setenv("GUARDIAN_TEST_USER", name)
	var out io.Reader
	startCaller(t, script, time.Minute, func(c *exec.Cmd) {
		c.SysProcAttr = &syscall.SysProcAttr{Credential: caller}
		out, _ = c.StdoutPipe()
	})
	var r printed
	if err := json.NewDecoder(out).Decode(&r); err != nil {
		t.Fatal(err)
	}
	return r
}

func TestUserHasNoneOfTheCallersGroups(t *testing.T) {
	needsRoot(t)
	r := called(t, &syscall.Credential{Groups: []uint32{0, 4711}}, nobody, "id -G")
	if want := id(t, "-G", nobody) + "\n"; r.Output != want {
		t.Errorf("got %+v, want %q", r, want)
	}
}

func TestOnlyRootNamesAnotherUser(t *testing.T) {
	needsRoot(t)
	caller := credentialOfNobody(t)
	uid := strconv.Itoa(int(caller.Uid))
	for _, name := range []string{"root", "0"} {
		if r := called(t, caller, name, "id"); r.Cause != NotStarted || !strings.Contains(r.Err, "only root") {
			t.Errorf("%s: got %+v", name, r)
		}
	}
	for _, name := range []string{nobody, uid, ""} {
		if r := called(t, caller, name, "id -u"); r.Cause != Exited || r.Output != uid+"\n" {
			t.Errorf("%q: got %+v", name, r)
		}
	}
}

func TestUserOpensItsFiles(t *testing.T) {
	needsRoot(t)
	c := as(nobody, `cat /dev/stdin; echo out > /dev/stdout; echo err > /dev/stderr`)
	for _, input := range []string{"", "in\n"} {
		c.Input = input
		if r := run(t, c); r.Output != input+"out\nerr\n" || r.ExitCode != 0 {
			t.Errorf("got %+v", r)
		}
	}
}

func TestUserEntersItsDirectory(t *testing.T) {
	needsRoot(t)
	public, here := publicDir(t), func() string { dir, _ := os.Getwd(); return dir }()
	relative, err := filepath.Rel(here, public)
	if err != nil {
		t.Fatal(err)
	}
	own, roots := public+"/own", public+"/roots"
	if err := errors.Join(
		os.Mkdir(own, 0o700), os.Chown(own, int(credentialOfNobody(t).Uid), -1),
		os.Mkdir(roots, 0o700), os.Mkdir(roots+"/below", 0o700), os.Chmod(roots+"/below", 0o777),
		os.WriteFile(public+"/script", []byte("#!/bin/sh\npwd\n"), 0o600), os.Chmod(public+"/script", 0o755),
		os.WriteFile(public+"/private", []byte("#!/bin/sh\npwd\n"), 0o700),
	); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, dir, argv, output, err string }{
		{"its own", own, "pwd", own, ""},
		{"relative", relative, "./script", public, ""},
		{"the caller's", "", "pwd", here, ""},
		{"not there", public + "/none", "pwd", "", "no such file"},
		{"root's", roots, "pwd", "", "/pwd as user nobody in " + roots + ": permission denied"},
		{"below root's", roots + "/below", "pwd", "", "permission denied"},
		{"root's program", public, "./private", "", "./private as user nobody in " + public + ": permission denied"},
		{"root's program, from the caller's", "", public + "/private", "", "in the caller's directory: permission denied"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := run(t, Command{Argv: []string{c.argv}, Env: []string{testPath}, Dir: c.dir, User: nobody})
			if c.err == "" && (r.Output != c.output+"\n" || r.Err != nil) {
				t.Errorf("got %+v, want %q", r, c.output)
			}
			if c.err != "" && (r.Cause != NotStarted || r.ExitCode != 126 || r.Err == nil || !strings.Contains(r.Err.Error(), c.err)) {
				t.Errorf("got %+v, want an error that says %q", r, c.err)
			}
		})
	}
}

func TestUsersCommandIsEnded(t *testing.T) {
	needsRoot(t)
	t.Parallel()
	const script = `trap '' TERM; setsid sleep 60 & echo $! > "$1/child"; echo $$ > "$1/ready"; kill -KILL $PPID; while :; do sleep 0.1; done`
	for _, c := range []struct {
		name string
		end  func(*Process)
		want Cause
	}{
		{"by Kill", (*Process).Kill, Killed},
		{"by Stop", (*Process).Stop, Stopped},
		{"by the deadline", func(*Process) {}, Deadline},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := publicDir(t)
			cmd := as(nobody, script, dir)
			cmd.Grace = 300 * time.Millisecond
			life := time.Minute
			if c.want == Deadline {
				life = 4 * time.Second
			}
			p := start(t, cmd, life)
			child, pid := pidIn(t, dir+"/child"), pidIn(t, dir+"/ready")
			c.end(p)
			if r := wait(t, p); r.Cause != c.want || r.Signal != syscall.SIGKILL || r.Err != nil {
				t.Errorf("got %+v", r)
			}
			gone(t, pid, child)
		})
	}
}

func TestUsersCommandDiesWithItsGuardian(t *testing.T) {
	needsRoot(t)
	dir := publicDir(t)
	t.Setenv("GUARDIAN_TEST_USER", nobody)
	caller := startCaller(t, fmt.Sprintf(`echo $PPID > %[1]s/guardian; echo $$ > %[1]s/ready; exec sleep 60`, dir), time.Hour)
	guardian, pid := pidIn(t, dir+"/guardian"), pidIn(t, dir+"/ready")
	if err := caller.Process.Signal(unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(guardian, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	gone(t, pid) // the kernel kills it: the guardian sets the parent-death signal after changing the user
}

// A command starts in its home as cron's do: where the user cannot enter that, as root's own home, or where there is
// none, it starts in /. Other directories must be there.
func TestUserStartsAtHome(t *testing.T) {
	needsRoot(t)
	closed, open := publicDir(t), publicDir(t)
	if err := os.Chmod(closed, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		dir  string
		home bool
		want string // "" if it does not start
	}{
		{open, true, open + "\n"},
		{open, false, open + "\n"},
		{closed, true, "/\n"},
		{closed, false, ""},
		{closed + "/none", true, "/\n"},
		{closed + "/none", false, ""},
		{"/", true, "/\n"},
	} {
		command := as(nobody, "pwd")
		command.Dir, command.Home = c.dir, c.home
		r := run(t, command)
		if started := r.Cause == Exited; started != (c.want != "") || r.Output != c.want {
			t.Errorf("in %s, home %v: got %+v, want %q", c.dir, c.home, r, c.want)
		}
	}
}
