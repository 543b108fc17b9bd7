package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// A pty is a terminal whose keys a test presses, and whose screen it reads.
type pty struct {
	master, slave *os.File
	before        *unix.Termios

	mu   sync.Mutex
	sent bytes.Buffer
}

func newPTY(t *testing.T, width, height uint16) *pty {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { master.Close() })
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { slave.Close() })
	p := &pty{master: master, slave: slave}
	p.resize(t, width, height)
	if p.before, err = unix.IoctlGetTermios(int(slave.Fd()), unix.TCGETS); err != nil {
		t.Fatal(err)
	}
	go func() {
		buffer := make([]byte, 4096)
		for {
			n, err := master.Read(buffer)
			p.mu.Lock()
			p.sent.Write(buffer[:n])
			p.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	return p
}

func (p *pty) resize(t *testing.T, width, height uint16) {
	t.Helper()
	if err := unix.IoctlSetWinsize(int(p.master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: height, Col: width}); err != nil {
		t.Fatal(err)
	}
}

// press presses keys once the screen shows what; earlier output is forgotten.
func (p *pty) press(t *testing.T, is, keys string) {
	t.Helper()
	p.waitFor(t, is)
	p.mu.Lock()
	p.sent.Reset()
	p.mu.Unlock()
	if _, err := p.master.WriteString(keys); err != nil {
		t.Fatal(err)
	}
}

func (p *pty) waitFor(t *testing.T, is string) {
	t.Helper()
	waitFor(t, func() bool { return strings.Contains(p.text(), is) },
		func() string { return fmt.Sprintf("the screen does not show %q, but %q", is, p.text()) })
}

func (p *pty) text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sent.String()
}

// topOn runs dbcron top in a terminal, on a database with a queue and a schedule.
func topOn(t *testing.T, p *pty, bin string, env ...string) *exec.Cmd {
	t.Helper()
	environment := append(os.Environ(), "DBCRON_DATABASE_URL=sqlite://"+filepath.Join(t.TempDir(), "db"), "GORACE=atexit_sleep_ms=0")
	for _, args := range [][]string{
		{"migrate", "up"},
		{"schedule", "add", "nightly", "--spec", "@yearly", "--", "true"},
		{"queue", "set", "mail"},
		{"job", "enqueue", "welcome", "{}", "--queue", "mail"},
	} {
		c := exec.CommandContext(t.Context(), bin, args...)
		c.Env = environment
		if said, err := c.CombinedOutput(); err != nil {
			t.Fatalf("dbcron %s: %v\n%s", strings.Join(args, " "), err, said)
		}
	}
	c := exec.CommandContext(t.Context(), bin, "top", "--interval", "500ms")
	c.Env = slices.Concat(environment, env)
	c.Stdin, c.Stdout, c.Stderr = p.slave, p.slave, p.slave
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	return c
}

// ends waits for the end of dbcron top, after which the terminal is as it was.
func (p *pty) ends(t *testing.T, c *exec.Cmd) {
	t.Helper()
	if err := c.Wait(); err != nil {
		t.Errorf("it ended with %v", err)
	}
	p.waitFor(t, "\x1b[0m\x1b[?25h\x1b[?1049l")
	after, err := unix.IoctlGetTermios(int(p.slave.Fd()), unix.TCGETS)
	if err != nil || *after != *p.before {
		t.Errorf("the terminal is %+v, and was %+v: %v", after, p.before, err)
	}
}

// Keys lead from the overview into a queue and back; lines fit the terminal, also when that
// becomes another.
func TestTop(t *testing.T) {
	t.Parallel()
	bin := filepath.Join(programAlone(t), "dbcron")
	p := newPTY(t, 80, 24)
	c := topOn(t, p, bin)
	p.press(t, "WHAT IS WRONG", "2")
	p.press(t, "Queues at", "\x1b[B\r")
	p.press(t, "Queue mail at", "")
	p.press(t, "welcome", "\x1b[D")
	p.press(t, "Queues at", "3")
	p.press(t, "nightly", "/nothing like it\r")
	p.press(t, "\x1b[H\x1b[1mdbcron top: Schedules", "\x1b")
	p.press(t, "nightly", "1")
	p.press(t, "WHAT IS WRONG", "")
	p.resize(t, 30, 5)
	p.press(t, "1 overview  2 queues  3 sched…\x1b[K", "")
	p.waitFor(t, "3 sched…\x1b[K")
	frames := strings.Split(p.text(), "\x1b[H")
	for _, line := range strings.Split(frames[1], "\r\n") {
		plain := strings.NewReplacer("\x1b[K", "", "\x1b[1m", "", "\x1b[7m", "", "\x1b[0m", "", "\x1b[31m", "",
			"\x1b[32m", "", "\x1b[33m", "").Replace(line)
		if n := len([]rune(plain)); n > 30 {
			t.Errorf("%q has %d columns", plain, n)
		}
	}
	if n := strings.Count(frames[1], "\r\n"); n != 4 {
		t.Errorf("a screen of 5 lines has %d", n+1)
	}
	p.press(t, "", "q")
	p.ends(t, c)
}

// However it ends, the terminal is as before; and without colors there are none.
func TestTopLeavesTheTerminal(t *testing.T) {
	t.Parallel()
	bin := filepath.Join(programAlone(t), "dbcron")
	for name, end := range map[string]func(p *pty, c *exec.Cmd) error{
		"Ctrl-C":  func(p *pty, _ *exec.Cmd) error { _, err := p.master.WriteString("\x03"); return err },
		"SIGINT":  func(_ *pty, c *exec.Cmd) error { return c.Process.Signal(syscall.SIGINT) },
		"SIGTERM": func(_ *pty, c *exec.Cmd) error { return c.Process.Signal(syscall.SIGTERM) },
	} {
		t.Run(name, func(t *testing.T) {
			p := newPTY(t, 80, 24)
			c := topOn(t, p, bin, "NO_COLOR=1")
			p.waitFor(t, "WHAT IS WRONG")
			if strings.Contains(p.text(), "\x1b[1m") || strings.Contains(p.text(), "\x1b[7m") {
				t.Errorf("there are colors: %q", p.text())
			}
			if err := end(p, c); err != nil {
				t.Fatal(err)
			}
			p.ends(t, c)
		})
	}
}
