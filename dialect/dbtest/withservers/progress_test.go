package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// do appends the event of a test of package lock.
func do(t *testing.T, file, action, test string, elapsed float64) {
	t.Helper()
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	//nolint:forbidigo // in a bubble
	e := event{Time: time.Now(), Action: action, Package: "github.com/dbcron/dbcron/lock", Test: test, Elapsed: elapsed}
	if err := json.NewEncoder(f).Encode(e); err != nil {
		t.Fatal(err)
	}
}

// The line says what runs, not what waits for its turn, and names a test by its subtests.
func TestLineOfProgress(t *testing.T) {
	file := filepath.Join(t.TempDir(), "events.json")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		done := make(chan struct{})
		p := newProgress(file)
		ended := make(chan struct{})
		go func() { p.every(done, &out); close(ended) }()

		time.Sleep(interval + time.Second) //nolint:forbidigo // in a bubble
		do(t, file, "start", "", 0)
		do(t, file, "run", "TestRenew", 0)
		do(t, file, "run", "TestRenew/mysql", 0)
		do(t, file, "pause", "TestRenew/mysql", 0)
		do(t, file, "run", "TestRenew/sqlite", 0)
		do(t, file, "output", "TestRenew/sqlite", 0)
		do(t, file, "run", "TestFence", 0)
		do(t, file, "fail", "TestFence", 3)
		do(t, file, "run", "TestWait", 0)
		do(t, file, "pass", "TestWait", 12.5)
		time.Sleep(interval) //nolint:forbidigo // in a bubble
		close(done)
		<-ended

		const want = "== 20s: 0 passed, 0 failed, 0 skipped; compiling\n== 40s: 1 passed, 1 failed, 0 skipped; running: lock TestRenew/sqlite 19s\n"
		if out.String() != want {
			t.Errorf("got %q, want %q", &out, want)
		}
		out.Reset()
		p.slowest(&out)
		if want := "\n=== Slowest\n  12.5 s  lock TestWait\n   3.0 s  lock TestFence\n"; out.String() != want {
			t.Errorf("got %q, want %q", &out, want)
		}
	})
}

// A run that is ended from outside says what ran and what had failed.
func TestSignalTellsWhatRan(t *testing.T) {
	dir := t.TempDir()
	events := filepath.Join(dir, "events.json")
	do(t, events, "run", "TestFence", 0)
	do(t, events, "fail", "TestFence", 3)
	do(t, events, "run", "TestWait/mysql", 0)
	cmd := withservers(t, "--", "sh", "-c", `trap 'exit 3' TERM; cat `+events+` >$GOTESTSUM_JSONFILE; echo ready; while :; do sleep 0.05; done`)
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	said, _ := io.ReadAll(stderr) // until the program ends
	_ = cmd.Wait()
	if got := cmd.ProcessState.ExitCode(); got != 3 {
		t.Errorf("got exit code %d, want 3", got)
	}
	for _, want := range []string{"0 passed, 1 failed", "running: lock TestWait/mysql", "== failed: lock TestFence\n"} {
		if !strings.Contains(string(said), want) {
			t.Errorf("got %q, want %q in it", said, want)
		}
	}
}
