package faults

import (
	"context"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/dialect/engines"
	"github.com/dbcron/dbcron/internal/instant"
)

// A serverProgram is a cluster's program that this test started. It ends with the test.
type serverProgram struct {
	t    *testing.T
	name string
	cmd  *exec.Cmd
	log  string // path of a file
	done chan struct{}
}

// launch starts a program of a cluster in a folder that belongs to its user.
func launch(t *testing.T, owner, dir, name string, env []string, args ...string) *serverProgram {
	t.Helper()
	p := &serverProgram{
		t: t, name: filepath.Base(dir) + " " + filepath.Base(name),
		log: filepath.Join(dir, filepath.Base(name)+".log"), done: make(chan struct{}),
	}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	p.cmd = exec.CommandContext(context.WithoutCancel(t.Context()), name, args...)
	p.cmd.Dir, p.cmd.Env = dir, environment(dir, env)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.SysProcAttr = asUser(t, owner)
	p.cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	started := make(chan error)
	go func() {
		// The kernel sends Pdeathsig when the thread that started the process ends.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			_ = p.cmd.Wait() // the test decides how it ends
		}
		close(p.done)
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.crash()
		if text, err := os.ReadFile(p.log); err == nil && t.Failed() {
			t.Logf("%s: %s", p.name, last(string(text), 3000))
		}
	})
	return p
}

// says waits until its log has a text.
func (p *serverProgram) says(what string) {
	p.t.Helper()
	for begun := instant.Now(); ; {
		text, err := os.ReadFile(p.log)
		if err == nil && strings.Contains(string(text), what) {
			return
		}
		if instant.Now().Sub(begun) > patience || wait(p.t.Context(), 200*time.Millisecond) != nil {
			p.t.Fatalf("%s does not say %q: %v", p.name, what, err)
		}
	}
}

func environment(dir string, more []string) []string {
	return append([]string{
		"PATH=" + os.Getenv("PATH") + ":/usr/bin:/bin:/usr/sbin:/sbin", "HOME=" + dir,
		"TMPDIR=" + dir, "LC_ALL=C", "TZ=JST-9",
	}, more...)
}

// crash kills a program and its children at once.
func (p *serverProgram) crash() {
	p.t.Helper()
	_ = p.cmd.Process.Signal(syscall.SIGSTOP) // it must not fork while its children are listed
	for _, child := range children(p.cmd.Process.Pid) {
		_ = syscall.Kill(child, syscall.SIGKILL)
	}
	_ = p.cmd.Process.Kill()
	<-p.done
}

// helper runs a program to its end as the owner of a folder.
func helper(t *testing.T, owner, dir, name string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir, cmd.Env, cmd.SysProcAttr = dir, environment(dir, nil), asUser(t, owner)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", filepath.Base(name), err, last(string(out), 3000))
	}
}

// serverUser returns the user for servers when the test runs as root, which they refuse; otherwise
// "".
func serverUser(t *testing.T, names ...string) string {
	t.Helper()
	if os.Geteuid() != 0 {
		return ""
	}
	for _, name := range append(names, "nobody") {
		if _, err := user.Lookup(name); err == nil {
			return name
		}
	}
	t.Fatalf("there is none of the users %v", names)
	return ""
}

func asUser(t *testing.T, name string) *syscall.SysProcAttr {
	t.Helper()
	if name == "" {
		return &syscall.SysProcAttr{}
	}
	uid, gid := ids(t, name)
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
}

func ids(t *testing.T, name string) (uid, gid int) {
	t.Helper()
	u, err := user.Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	uid, _ = strconv.Atoi(u.Uid)
	gid, _ = strconv.Atoi(u.Gid)
	return uid, gid
}

// serverFolder makes a folder for a server.
func serverFolder(t *testing.T, owner, name string) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "dbcron-failover-"+name+"-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if owner != "" {
		uid, gid := ids(t, owner)
		if err := os.Chown(dir, uid, gid); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// writeAs writes a file that belongs to a server's user.
func writeAs(t *testing.T, owner, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if owner != "" {
		uid, gid := ids(t, owner)
		if err := os.Chown(name, uid, gid); err != nil {
			t.Fatal(err)
		}
	}
}

// installed finds a program in PATH or in folders that match patterns, the newest first.
func installed(t *testing.T, name, what string, patterns ...string) string {
	t.Helper()
	var found []string
	for _, pattern := range patterns {
		more, _ := filepath.Glob(filepath.Join(pattern, name)) // fails only for a bad pattern
		slices.Reverse(more)
		found = append(found, more...)
	}
	if path, err := exec.LookPath(name); err == nil {
		found = append(found, path)
	}
	if len(found) == 0 {
		t.Fatalf("there is no %s: run tools/test-deps failover, or install %s", name, what)
	}
	return found[0]
}

// versionOf returns the version number that a program prints.
func versionOf(t *testing.T, program string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), program, "--version").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, word := range strings.Fields(string(out)) {
		if len(word) > 2 && word[0] >= '0' && word[0] <= '9' {
			number, _, _ := strings.Cut(word, "-")
			return number
		}
	}
	return ""
}

// reached connects to a server of a cluster as soon as it answers.
func reached(t *testing.T, url string) *dbtest.DB {
	t.Helper()
	for begun := instant.Now(); ; {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		db, err := engines.Connect(ctx, url, dialect.Options{MaxConns: 2}) // Connect itself does not query
		cancel()
		if err == nil {
			t.Cleanup(func() { _ = db.Close() })
			return &dbtest.DB{DB: db, URL: url}
		}
		if instant.Now().Sub(begun) > patience || wait(t.Context(), 100*time.Millisecond) != nil {
			t.Fatalf("%s does not answer: %v", url, err)
		}
	}
}

// becomes waits until a query of one row returns want.
func becomes(t *testing.T, db *dbtest.DB, query, want string) {
	t.Helper()
	var got string
	var err error
	for begun := instant.Now(); ; {
		if err = db.Pool().QueryRowContext(t.Context(), query).Scan(&got); err == nil && got == want {
			return
		}
		if instant.Now().Sub(begun) > patience || wait(t.Context(), 100*time.Millisecond) != nil {
			t.Fatalf("%s: %q, %v; want %q", query, got, err, want)
		}
	}
}
