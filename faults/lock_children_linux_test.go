package faults

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/dialect/engines"
	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/lock"
)

// The lock tests run this program again as the processes that hold locks. Such a child prints a
// line for each event, reads orders, and ends when its standard input does.

// patience bounds what must happen even on a slow machine.
const patience = 3 * time.Minute

const roleVariable = "FAULTS_LOCK_ROLE"

var roles = map[string]func(context.Context, *actor) error{
	"holder":    playHolder,
	"writer":    playWriter,
	"marker":    playMarker,
	"candidate": playCandidate,
}

func TestMain(m *testing.M) {
	if play := roles[os.Getenv(roleVariable)]; play != nil {
		if err := act(context.Background(), play); err != nil {
			say("error", err)
		}
		os.Exit(0)
	}
	flag.Parse()
	// The parallel tests mostly wait for leases to run out.
	if err := flag.Set("test.parallel", "6"); err != nil {
		panic(err)
	}
	var err error
	if buildFolder, err = os.MkdirTemp("", "dbcron-faults-"); err != nil {
		panic(err)
	}
	code := m.Run()
	_ = os.RemoveAll(buildFolder)
	os.Exit(code)
}

// A part is what a child is told when it starts.
type part struct {
	URL, Name, File        string
	TTL, Margin, Heartbeat time.Duration
	Span                   time.Duration // of the soak
	Concurrency            int
	MaxConns               int  // of its pool; 0: the default
	Stepping               bool // uses the clock that the test steps: see steppingClock
}

func (p part) options() lock.Options {
	return lock.Options{TTL: p.TTL, Margin: p.Margin, Heartbeat: p.Heartbeat}
}

// An actor is a child as seen from inside.
type actor struct {
	part
	db     *dialect.DB
	locker *lock.Locker
	orders chan string
}

func act(ctx context.Context, play func(context.Context, *actor) error) error {
	a := &actor{orders: make(chan string, 10)}
	go func() {
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
			a.orders <- in.Text()
		}
		os.Exit(0)
	}()
	err := json.Unmarshal([]byte(os.Args[1]), &a.part)
	if err != nil {
		return err
	}
	if a.db, err = engines.Open(ctx, a.URL, dialect.Options{MaxConns: a.MaxConns}); err != nil {
		return err
	}
	if a.Stepping {
		a.db = a.db.WithNow(steppingClock(a.db.Dialect))
	}
	if a.locker, err = lock.New(a.db, a.options()); err != nil {
		return err
	}
	say("ready")
	return play(ctx, a)
}

// say prints a line for the test. One call is one write, so lines of several goroutines do not mix.
func say(words ...any) {
	fmt.Print(strings.ReplaceAll(strings.TrimSuffix(fmt.Sprintln(words...), "\n"), "\n", "; ") + "\n")
}

// sayEnd reports how a lease ended that this process did not release.
func sayEnd(cause error, words ...any) {
	switch {
	case errors.Is(cause, lock.ErrReleased):
	case errors.Is(cause, lock.ErrLost):
		say(append(append([]any{"lost"}, words...), cause)...)
	default:
		say("error", "the lease ended, and it is not ErrLost:", cause)
	}
}

// stopHere stops this process with SIGSTOP at a point that the test chose. It signals this thread:
// otherwise the thread would run on while another handled the signal.
func stopHere() error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	say("stopping")
	return unix.Tgkill(os.Getpid(), unix.Gettid(), unix.SIGSTOP)
}

// A child is a process playing a role, as the test sees it.
type child struct {
	t      *testing.T
	name   string
	cmd    *exec.Cmd
	orders io.Writer
	log    strings.Builder // complete when done is closed
	done   chan struct{}

	mu   sync.Mutex
	said map[string]chan words // by the line's first word
}

// start starts a child and returns once it is connected to the database.
func start(t *testing.T, role string, p part) *child {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	args, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	// Not the test's context: it ends before the cleanup, which kills the child.
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), exe, string(args))
	cmd.Env = append(os.Environ(), roleVariable+"="+role, "GORACE=atexit_sleep_ms=0")
	c := &child{t: t, cmd: cmd, done: make(chan struct{}), said: map[string]chan words{}}
	cmd.Stderr = &c.log
	if c.orders, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c.name = fmt.Sprintf("%s %d", role, cmd.Process.Pid)
	go c.listen(out)
	t.Cleanup(func() {
		c.kill()
		select {
		case wrong := <-c.saying("error"):
			t.Errorf("%s: %s", c.name, strings.Join(wrong, " "))
		default:
		}
		if log := c.log.String(); strings.Contains(log, "DATA RACE") {
			t.Errorf("%s: %s", c.name, log)
		} else if t.Failed() && log != "" {
			t.Logf("%s: %s", c.name, log)
		}
	})
	c.hear("ready")
	return c
}

func (c *child) listen(out io.Reader) {
	for in := bufio.NewScanner(out); in.Scan(); {
		line := words(strings.Fields(in.Text()))
		if len(line) > 0 {
			c.saying(line[0]) <- line[1:]
		}
	}
	_ = c.cmd.Wait() // the test decides how it ends
	close(c.done)
}

// saying returns the channel of lines that begin with a word.
func (c *child) saying(word string) chan words {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.said[word] == nil {
		c.said[word] = make(chan words, 10_000)
	}
	return c.said[word]
}

// kill kills a child with SIGKILL and waits until it is gone.
func (c *child) kill() {
	_ = c.cmd.Process.Kill() // it may have ended
	<-c.done
}

func (c *child) signal(sig os.Signal) {
	c.t.Helper()
	if err := c.cmd.Process.Signal(sig); err != nil {
		c.t.Fatalf("%s: %v: %v", c.name, sig, err)
	}
}

// stands waits until all threads of a stopped process stand still. A thread that still runs could
// take a lock.
func (c *child) stands() {
	c.t.Helper()
	for still := false; !still; {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", c.cmd.Process.Pid))
		if err != nil {
			c.t.Fatal(err)
		}
		still = true
		for _, file := range threads {
			text, err := os.ReadFile(file)
			if _, state, found := strings.Cut(string(text), ") "); err == nil && found && state[0] != 'T' {
				still = false
			}
		}
		if !still && wait(c.t.Context(), time.Millisecond) != nil {
			return
		}
	}
}

func (c *child) tell(order string) {
	c.t.Helper()
	if _, err := io.WriteString(c.orders, order+"\n"); err != nil {
		c.t.Fatalf("%s: %v", c.name, err)
	}
}

// hear waits for the next line that begins with a word and returns the rest.
func (c *child) hear(word string) words {
	c.t.Helper()
	said, _ := c.hearWithin(word, patience)
	return said
}

// hearWithin is hear with a limit, which must be less than patience.
func (c *child) hearWithin(word string, limit time.Duration) (said words, ok bool) {
	c.t.Helper()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case said = <-c.saying(word):
		return said, true
	case wrong := <-c.saying("error"):
		c.t.Fatalf("%s: error: %s", c.name, strings.Join(wrong, " "))
	case <-c.done:
		select {
		case said = <-c.saying(word):
			return said, true
		default:
			c.t.Fatalf("%s has ended (%v) without saying %q", c.name, c.cmd.ProcessState, word)
		}
	case <-timer.C:
		if limit >= patience {
			c.t.Fatalf("%s has not said %q within %v", c.name, word, limit)
		}
	}
	return nil, false
}

// anyOf waits until one of the children prints a line that begins with the word. It returns nil
// after limit, which must be less than patience.
func anyOf(t *testing.T, word string, limit time.Duration, among ...*child) (*child, words) {
	t.Helper()
	for begun := instant.Now(); instant.Now().Sub(begun) < limit; {
		for _, c := range among {
			if said, ok := c.hearWithin(word, 2*time.Millisecond); ok {
				return c, said
			}
		}
	}
	if limit >= patience {
		t.Fatalf("nobody has said %q within %v", word, limit)
	}
	return nil, nil
}

// words are a line's words after the first.
type words []string

func (w words) number(t *testing.T, i int) int64 {
	t.Helper()
	var n int64
	if i >= len(w) {
		t.Fatalf("%q has no number in place %d", w, i)
	}
	if _, err := fmt.Sscan(w[i], &n); err != nil {
		t.Fatalf("%q: %v", w, err)
	}
	return n
}

// A row is a lock's row, with its instants in µs.
type row struct{ fence, at, expiry, takeovers int64 }

func readRow(t *testing.T, db *dbtest.DB, name string) (r row) {
	t.Helper()
	db.Scan(t, `SELECT fence, {us lock_at}, {us expire_at}, takeovers FROM {prefix}lock WHERE name = :name`,
		sqlrun.Args{"name": name}, &r.fence, &r.at, &r.expiry, &r.takeovers)
	return r
}

// takenOver fails the test unless the lock was taken after the lease in the dead holder's row had
// expired.
func takenOver(t *testing.T, from, by row) {
	t.Helper()
	if by.fence <= from.fence {
		t.Errorf("fence %d comes after %d, want it to rise", by.fence, from.fence)
	}
	if by.at < from.expiry {
		t.Errorf("the lock was taken %d µs before the dead holder's lease ended", from.expiry-by.at)
	}
	if by.takeovers != from.takeovers+1 {
		t.Errorf("%d takeovers are counted after %d, want one more", by.takeovers, from.takeovers)
	}
}
