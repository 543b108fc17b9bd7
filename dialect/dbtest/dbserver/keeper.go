package dbserver

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// The keeper is this same program, run again under another name, as the
// server's parent. It reads orders from a pipe. When the pipe ends, because
// the process at the other end stopped the server, returned from main or was
// killed, the keeper stops the server and removes the data.
//
// It has a session of its own, so that Ctrl-C does not end it before the
// tests. If the keeper itself is killed, Linux ends the server
// (dieWithKeeper), and only the folder is left.
const keeperName = "dbcron-dbserver-keeper"

func init() {
	if len(os.Args) > 0 && os.Args[0] == keeperName {
		os.Exit(keep(os.Stdin, os.Stdout))
	}
}

const (
	doStart   = "start"
	doKill    = "kill"
	doRestart = "restart"
)

// An order goes to the keeper, and one answer comes back.
type order struct {
	Do      string
	Engine  string   `json:",omitempty"` // these are for doStart
	Bin     binaries `json:",omitzero"`
	Durable bool     `json:",omitempty"`
	Keep    bool     `json:",omitempty"`
}

type answer struct {
	Err string `json:",omitempty"`
	URL string `json:",omitempty"`
	Dir string `json:",omitempty"`
}

// keep carries out orders until in ends, and returns the exit code.
func keep(in io.Reader, out io.Writer) int {
	// The server dies with the thread that started it.
	runtime.LockOSThread()
	// The reader of out may be gone before the last answer.
	signal.Ignore(syscall.SIGPIPE, syscall.SIGINT, syscall.SIGHUP)
	ctx, end := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	orders := make(chan order)
	go func() {
		defer end()
		for dec := json.NewDecoder(in); ; {
			var o order
			if dec.Decode(&o) != nil {
				return
			}
			select {
			case orders <- o:
			case <-ctx.Done():
				return
			}
		}
	}()

	k := &keeper{}
	reply := func(err error) {
		a := answer{URL: k.url, Dir: k.dir}
		if err != nil {
			a.Err = err.Error()
		}
		_ = json.NewEncoder(out).Encode(a)
	}
	for {
		select {
		case o := <-orders:
			reply(k.obey(ctx, o))
		case <-ctx.Done():
			err := k.end()
			reply(err)
			if err != nil {
				return 1
			}
			return 0
		}
	}
}

// An engine describes the differences between the servers.
type engine struct {
	name  string
	users []string // users to run as instead of root, best first
	ready string   // in the log once the server answers
	zone  string   // TZ of its host, of which some of its own views tell the time; needs no tz database
	quit  syscall.Signal
	setUp func(ctx context.Context, k *keeper) error // makes the data folder
	args  func(k *keeper) []string
	url   func(k *keeper) string
}

var engines = map[string]*engine{"postgres": &postgres, "mariadb": &mariadb, "mysql": &mysqlEngine}

type keeper struct {
	engine   *engine
	bin      binaries
	durable  bool
	user     *account // nil: run as the current user
	dir      string
	password string
	port     int
	url      string // set once the server has answered

	server *exec.Cmd
	log    *logTail
	done   chan struct{} // closed when all processes of the server are gone
}

func (k *keeper) obey(ctx context.Context, o order) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	switch o.Do {
	case doStart:
		k.engine, k.bin, k.durable = engines[o.Engine], o.Bin, o.Durable
		return k.first(ctx, o.Keep)
	case doKill:
		return k.kill()
	case doRestart:
		if err := k.kill(); err != nil {
			return err
		}
		return k.start(ctx)
	}
	return fmt.Errorf("unknown order %q", o.Do)
}

// portTaken is in the log of all servers whose port another process has.
const portTaken = "Address already in use"

// first makes the folder and starts the server on a free port.
func (k *keeper) first(ctx context.Context, keep bool) (err error) {
	if k.user, err = runAs(k.engine.users); err != nil {
		return err
	}
	if k.dir, err = makeFolder("dbcron-"+k.engine.name+"-", k.user); err != nil {
		return err
	}
	k.password = rand.Text()
	if err := k.setUp(ctx); err != nil {
		return err
	}
	if keep {
		if err := k.keepCopy(ctx); err != nil {
			return err
		}
	}
	for range 10 {
		if k.port, err = FreePort(ctx); err != nil {
			return err
		}
		err = k.start(ctx)
		if err == nil {
			k.url = k.engine.url(k)
			return nil
		}
		if !strings.Contains(err.Error(), portTaken) { // by another process, meanwhile
			return err
		}
	}
	return err
}

// setUp makes what the server begins with, or copies what another one began with: see Server.Kept.
func (k *keeper) setUp(ctx context.Context) error {
	password := filepath.Join(k.dir, "password")
	kept := os.Getenv(KeptVariable(k.engine.name))
	if kept == "" {
		return errors.Join(k.engine.setUp(ctx, k), os.WriteFile(password, []byte(k.password+"\n"), 0o600))
	}
	if err := copyFiles(ctx, kept, k.dir); err != nil {
		return err
	}
	text, err := os.ReadFile(password)
	k.password = strings.TrimSpace(string(text))
	return err
}

const keptFolder = "kept"

// keepCopy copies what the server begins with, before it has begun.
func (k *keeper) keepCopy(ctx context.Context) error {
	kept, err := os.MkdirTemp(k.dir, keptFolder+"-")
	if err != nil {
		return err
	}
	if err := copyFiles(ctx, k.dir, kept); err != nil {
		return err
	}
	return os.Rename(kept, filepath.Join(k.dir, keptFolder))
}

// copyFiles copies a server's files to another folder, with their owners and rights.
func copyFiles(ctx context.Context, from, to string) error {
	files := []string{"-a"}
	for _, name := range []string{"data", "init.sql", "password"} {
		if file := filepath.Join(from, name); fileExists(file) {
			files = append(files, file)
		}
	}
	out, err := exec.CommandContext(ctx, "cp", append(files, to)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("cp: %w; its output:\n%s", err, lastBytes(out))
	}
	return nil
}

func fileExists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

// start starts the server and waits until it answers.
func (k *keeper) start(ctx context.Context) error {
	cmd := k.command(context.WithoutCancel(ctx), k.bin.Server, k.engine.args(k)...)
	k.log = &logTail{marker: []byte(k.engine.ready), ready: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = k.log, k.log
	if err := cmd.Start(); err != nil {
		return err
	}
	k.server, k.done = cmd, make(chan struct{})
	go func(done chan struct{}) {
		defer close(done)
		// Wait returns when the last process that holds the log has ended.
		_ = cmd.Wait()
	}(k.done)

	select {
	case <-k.log.ready:
		return nil
	case <-k.done:
		return fmt.Errorf("%s did not start: %v; its log:\n%s", k.engine.name, cmd.ProcessState, k.log)
	case <-ctx.Done():
		return errors.Join(fmt.Errorf("%s did not answer: %w; its log:\n%s", k.engine.name, ctx.Err(), k.log), k.kill())
	}
}

// run runs a program that helps to set up the server.
func (k *keeper) run(ctx context.Context, name string, args ...string) error {
	out, err := k.command(ctx, name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w; its output:\n%s", filepath.Base(name), err, lastBytes(out))
	}
	return nil
}

// command returns a command in the server's folder, as the server's user, with
// an environment that does not depend on the person who runs the tests.
func (k *keeper) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = k.dir
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH") + ":/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
		"HOME=" + k.dir, "TMPDIR=" + k.dir, "LC_ALL=C", "TZ=" + k.engine.zone,
	}
	cmd.SysProcAttr = serverProcess(k.user, k.engine.quit)
	cmd.Cancel = func() error { crash(cmd.Process.Pid); return nil }
	return cmd
}

// kill ends all processes of the server, if there are any.
func (k *keeper) kill() error {
	if k.server == nil {
		return nil
	}
	select {
	case <-k.done:
	default:
		crash(k.server.Process.Pid)
	}
	return k.gone(10 * time.Second)
}

// gone waits until all processes of the server have ended.
func (k *keeper) gone(limit time.Duration) error {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-k.done:
		return nil
	case <-timer.C:
		return fmt.Errorf("%s is still there after %s", k.engine.name, limit)
	}
}

// end stops the server and removes the folder.
func (k *keeper) end() error {
	if k.dir == "" {
		return nil
	}
	var err error
	if k.server != nil {
		// PostgreSQL frees its shared memory when asked to quit. A server that a test has frozen
		// does not react.
		_ = k.server.Process.Signal(k.engine.quit)
		if k.gone(3*time.Second) != nil {
			err = k.kill()
		}
	}
	return errors.Join(err, os.RemoveAll(k.dir))
}

// makeFolder makes a folder that belongs to user, in a place that user can
// reach.
func makeFolder(prefix string, user *account) (string, error) {
	parent := os.TempDir()
	if user != nil && !reachable(parent) {
		parent = "/var/tmp"
	}
	dir, err := os.MkdirTemp(parent, prefix)
	if err != nil || user == nil {
		return dir, err
	}
	return dir, os.Chown(dir, user.uid, user.gid)
}

// reachable reports whether every user may go to dir.
func reachable(dir string) bool {
	for {
		info, err := os.Stat(dir)
		if err != nil || info.Mode().Perm()&0o001 == 0 {
			return false
		}
		up := filepath.Dir(dir)
		if up == dir {
			return true
		}
		dir = up
	}
}

// A logTail remembers the last lines that a server wrote, and whether the
// marker was among the lines since the start.
type logTail struct {
	marker []byte

	mu    sync.Mutex
	ready chan struct{} // closed when the marker was seen
	seen  bool
	tail  []byte
}

const tailSize = 8 << 10

func (l *logTail) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tail = append(l.tail, p...)
	if !l.seen && bytes.Contains(l.tail, l.marker) {
		l.seen = true
		close(l.ready)
	}
	l.tail = lastBytes(l.tail)
	return len(p), nil
}

func (l *logTail) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.tail)
}

func lastBytes(b []byte) []byte { return b[max(0, len(b)-tailSize):] }
