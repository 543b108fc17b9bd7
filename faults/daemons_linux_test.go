package faults

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
)

var minutes = flag.Int("minutes", 0, "how long each test of daemons takes; 0: as long as CI has time for")

func build(t *testing.T) string { t.Helper(); return buildAs(t, "devel") }

// buildAs builds the program with a version, once for all tests.
func buildAs(t *testing.T, version string) string {
	t.Helper()
	build, _ := builds.LoadOrStore(version, sync.OnceValues(func() (string, error) {
		file := filepath.Join(buildFolder, version, "dbcron")
		return file, buildInto(file, "../cmd/dbcron", " -X main.version="+version)
	}))
	file, err := build.(func() (string, error))()
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// buildExample builds a program of the examples for a test.
func buildExample(t *testing.T, name string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if err := buildInto(file, "../examples/"+name, ""); err != nil {
		t.Fatal(err)
	}
	return file
}

// buildInto builds a program, without what debuggers need, which takes a third of the time.
func buildInto(file, of, ldflags string) error {
	out, err := exec.CommandContext(context.Background(), "go", "build", "-ldflags=-s -w"+ldflags, "-o", file, of).CombinedOutput()
	if err != nil {
		return fmt.Errorf("go build: %w\n%s", err, out)
	}
	return nil
}

var (
	builds      sync.Map // of functions, by version
	buildFolder string   // TestMain makes and removes it
)

// A rig is what the daemons of a test share.
type rig struct {
	t      *testing.T
	db     *dbtest.DB
	binary string
	dir    string
	mark   string // environment variable of all commands and of the processes they start
	lease  time.Duration
	poll   time.Duration
	grace  time.Duration
}

// A daemon is a running dbcron serve.
type daemon struct {
	rig  *rig
	node string
	cmd  *exec.Cmd
	log  logbook
	done chan struct{}

	guardians []int // its guardians when it was last signalled
}

// A logbook is a daemon's log so far.
type logbook struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logbook) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logbook) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (r *rig) start(node, crontab string, tags []string) *daemon {
	r.t.Helper()
	args := []string{"--crontab", crontab, "--poll", r.poll.String()}
	for _, tag := range tags {
		args = append(args, "--tag", tag)
	}
	return r.serve(r.binary, node, args...)
}

// serve starts a daemon of the given program.
func (r *rig) serve(binary, node string, args ...string) *daemon {
	r.t.Helper()
	return r.run(binary, node, append([]string{
		"serve", "--node", node, "--log-format", "json", "--lease", r.lease.String(), "--grace", r.grace.String(),
	}, args...)...)
}

// run starts a process of the given program that runs until it is told to end.
func (r *rig) run(binary, node string, args ...string) *daemon {
	r.t.Helper()
	d := &daemon{rig: r, node: node, done: make(chan struct{})}
	d.cmd = exec.CommandContext(context.Background(), binary, args...)
	d.cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + r.dir, "DBCRON_DATABASE_URL=" + r.db.URL}
	d.cmd.Stderr = &d.log
	if err := d.cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	go func() { _ = d.cmd.Wait(); close(d.done) }()
	r.t.Cleanup(func() { _ = d.cmd.Process.Kill(); <-d.done })
	return d
}

// ended reports whether a daemon has ended.
func (d *daemon) ended() bool {
	select {
	case <-d.done:
		return true
	default:
		return false
	}
}

func (d *daemon) signal(sig os.Signal) {
	d.rig.t.Helper()
	d.guardians = children(d.cmd.Process.Pid)
	if err := d.cmd.Process.Signal(sig); err != nil {
		d.rig.t.Errorf("%s: %v: %v", d.node, sig, err)
	}
}

// freed waits until a killed or stopped daemon has no command left, and fails the test if that
// takes longer than within.
func (d *daemon) freed(when string, within time.Duration) {
	d.rig.t.Helper()
	d.rig.eventually("no command of "+d.node+" is left "+when, within, func() bool {
		return len(descendants(append(children(d.cmd.Process.Pid), d.guardians...), d.rig.mark)) == 0
	})
}

func (r *rig) eventually(what string, within time.Duration, ok func() bool) {
	r.t.Helper()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	ctx, cancel := context.WithTimeout(r.t.Context(), within)
	defer cancel()
	for !ok() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			r.t.Errorf("not within %v: %s", within, what)
			return
		}
	}
}

// stop ends a daemon as an operator does and expects a clean exit.
func (d *daemon) stop() {
	d.rig.t.Helper()
	d.signal(syscall.SIGTERM)
	select {
	case <-d.done:
	case <-time.After(d.rig.grace + 20*time.Second):
		d.rig.t.Errorf("%s did not end after SIGTERM", d.node)
		_ = d.cmd.Process.Kill()
		<-d.done
	}
	if code := d.cmd.ProcessState.ExitCode(); code != 0 {
		d.rig.t.Errorf("%s: exit code %d", d.node, code)
	}
}

// report prints what an ended daemon logged besides its runs and the ends of chains.
func (d *daemon) report() {
	var text strings.Builder
	for line := range strings.Lines(d.log.String()) {
		if !strings.Contains(line, `"msg":"run"`) && !strings.Contains(line, "a schedule was not started by another") {
			fmt.Fprintf(&text, "%s: %s\n", d.node, strings.TrimSpace(line))
		}
	}
	d.rig.t.Log(text.String())
}
