//go:build unix

package guardian

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// shows waits for a snapshot with the given text.
func shows(t *testing.T, p *Process, text string) (snapshots int) {
	t.Helper()
	eventually(t, fmt.Sprintf("output %q", text), func() bool {
		got, n := p.Output()
		snapshots = n
		return got == text
	})
	select {
	case <-p.Done():
		t.Errorf("the command is over: %+v", p.Wait())
	default:
	}
	return snapshots
}

func TestOutputOfARunningCommand(t *testing.T) {
	t.Parallel()
	theirs, ours, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	defer ours.Close()
	c := sh(`echo one; read x; echo two >&2; read x; echo three`)
	c.Stdin = theirs
	p := start(t, c, time.Minute)
	for i, text := range []string{"one\n", "one\ntwo\n"} {
		if n := shows(t, p, text); n != i+1 {
			t.Errorf("%d snapshots, want one for each news", n)
		}
		p.mu.Lock()
		group := p.group
		p.mu.Unlock()
		if group == 0 {
			t.Error("the command's number is forgotten")
		}
		if _, err := ours.WriteString("go on\n"); err != nil {
			t.Fatal(err)
		}
	}
	if r := wait(t, p); r.Output != "one\ntwo\nthree\n" || r.Cause != Exited || r.Err != nil {
		t.Errorf("got %+v", r)
	}
}

func TestOutputOfARunningCommandIsCutAndClean(t *testing.T) {
	t.Parallel()
	c := sh(`printf '123\303\251€€\000'; head -c 1000000 /dev/zero; printf 'a\377€9\303'; exec sleep 60`)
	c.MaxOutput = 20
	p := start(t, c, time.Minute)
	const want = "123é€\n[… 1000005 bytes left out …]\n\uFFFD€9\uFFFD" // ten bytes and what fits in ten
	shows(t, p, want)
	p.Kill()
	if r := wait(t, p); r.Output != want || r.Omitted != 1000005 || r.Cause != Killed {
		t.Errorf("got %+v", r)
	}
}

func TestSilentCommandShowsNothing(t *testing.T) {
	t.Parallel()
	p := start(t, sh("exec sleep 2.5"), time.Minute)
	wait(t, p)
	if text, n := p.Output(); text != "" || n != 0 {
		t.Errorf("got %d snapshots, the last %q", n, text)
	}
}

func TestCallerIsStoppedWhileTheOutputFloods(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	script := fmt.Sprintf(`trap '' TERM; echo $$ > %s/ready; echo first; while head -c 1000000 /dev/zero; do sleep 0.1; done`, dir)
	var out io.Reader
	caller := startCaller(t, script, 3*time.Second, func(c *exec.Cmd) { out, _ = c.StdoutPipe() })
	pid := pidIn(t, dir+"/ready")
	if err := caller.Process.Signal(unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	gone(t, pid) // a snapshot has filled the pipe by then
	isStopped(t, caller)
	if err := caller.Process.Signal(unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	var r printed
	if err := json.NewDecoder(out).Decode(&r); err != nil {
		t.Fatal(err)
	}
	whole := len(r.Output) >= 64<<10 && strings.HasPrefix(r.Output, "first\n\uFFFD") && strings.HasSuffix(r.Output, "\uFFFD")
	if r.Cause != Deadline || !whole || !strings.Contains(r.Output, " bytes left out …]\n") {
		t.Errorf("got %q, %s, and %d bytes: %.20q", r.Cause, r.Err, len(r.Output), r.Output)
	}
}
