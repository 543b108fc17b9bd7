package main

import (
	"bufio"
	"bytes"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/dbcron/dbcron/dialect/dbtest/dbserver"
)

// TestMain makes this test binary behave as withservers when a test asks.
func TestMain(m *testing.M) {
	if os.Getenv("WITHSERVERS_TEST_CHILD") == "1" {
		main()
	}
	os.Exit(m.Run())
}

// withservers returns a command that runs the program. The environment names servers elsewhere, so
// that it starts none.
func withservers(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(
		os.Environ(), "WITHSERVERS_TEST_CHILD=1",
		"DBCRON_TEST_POSTGRES=postgres://elsewhere/", "DBCRON_TEST_MARIADB=mysql://mariadb.elsewhere/", "DBCRON_TEST_MYSQL=mysql://elsewhere/",
	)
	return cmd
}

func TestExitCodeAndOutput(t *testing.T) {
	for _, c := range []struct {
		script string
		code   int
		out    string
	}{
		{
			"echo $DBCRON_TEST_POSTGRES $DBCRON_TEST_MARIADB $DBCRON_TEST_MYSQL", 0,
			"postgres://elsewhere/ mysql://mariadb.elsewhere/ mysql://elsewhere/\n",
		},
		{"exit 7", 7, ""},
		{"kill -9 $$", 1, ""},
	} {
		cmd := withservers(t, "--", "sh", "-c", c.script)
		out, _ := cmd.Output()
		if got := cmd.ProcessState.ExitCode(); got != c.code {
			t.Errorf("%s: got exit code %d, want %d", c.script, got, c.code)
		}
		if string(out) != c.out {
			t.Errorf("%s: got %q, want %q", c.script, out, c.out)
		}
	}
}

func TestNoSuchCommand(t *testing.T) {
	cmd := withservers(t, "--", "/no/such/command")
	_ = cmd.Run()
	if got := cmd.ProcessState.ExitCode(); got != 127 {
		t.Errorf("got exit code %d, want 127", got)
	}
}

func TestSignalIsPassedOn(t *testing.T) {
	cmd := withservers(t, "--", "sh", "-c", `trap 'echo got it; exit 3' TERM; echo ready; while :; do sleep 0.05; done`)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	if !lines.Scan() || lines.Text() != "ready" {
		t.Fatalf("got %q, want ready", lines.Text())
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if !lines.Scan() || lines.Text() != "got it" {
		t.Errorf("got %q, want that the command gets the signal", lines.Text())
	}
	_ = cmd.Wait()
	if got := cmd.ProcessState.ExitCode(); got != 3 {
		t.Errorf("got exit code %d, want 3", got)
	}
}

// The output says that a server which is not installed is skipped.
func TestServersAreSet(t *testing.T) {
	cmd := withservers(t, "--", "env")
	cmd.Env = append(cmd.Env, "CI=")
	for _, e := range dbserver.Engines {
		cmd.Env = append(cmd.Env, e.Variable+"=")
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, &stderr)
	}
	for _, e := range dbserver.Engines {
		scheme := "mysql://"
		if e.Name == "postgres" {
			scheme = "postgres://"
		}
		if !strings.Contains("\n"+string(out), "\n"+e.Variable+"="+scheme) && !strings.Contains(stderr.String(), "are skipped") {
			t.Errorf("%s is not set to %s…: %s%s", e.Variable, scheme, out, &stderr)
		}
	}
}

// With SQLite alone, no server is started. An unknown name is refused instead of excluding every
// engine.
func TestEnginesAreLeftOut(t *testing.T) {
	for names, want := range map[string]int{"sqlite": 0, "oracle": 2} {
		cmd := withservers(t, "--", "env")
		cmd.Env = append(cmd.Env, "DBCRON_TEST_ENGINES="+names)
		for _, e := range dbserver.Engines {
			cmd.Env = append(cmd.Env, e.Variable+"=")
		}
		out, _ := cmd.Output() // the exit code is the result
		if got := cmd.ProcessState.ExitCode(); got != want {
			t.Errorf("%s: got exit code %d, want %d", names, got, want)
		}
		for _, e := range dbserver.Engines {
			if want == 0 && !strings.Contains(string(out), e.Variable+"=\n") {
				t.Errorf("%s: %s is set", names, e.Variable)
			}
		}
	}
}
