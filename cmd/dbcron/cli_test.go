package main

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/dbcron/dbcron/dialect/dbtest"
)

var updateGolden = flag.Bool("update", false, "rewrite what the command lines print in testdata/cli")

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"dbcron": main})
}

// TestCLI runs the command lines of testdata/cli, each file on each engine,
// with an empty database.
func TestCLI(t *testing.T) {
	scripts, err := filepath.Glob(filepath.Join(root(t), "testdata", "cli", "*.txtar"))
	if err != nil || len(scripts) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, script := range scripts {
		t.Run(filepath.Base(script), func(t *testing.T) {
			dbtest.EachEmpty(t, func(t *testing.T, db *dbtest.DB) {
				testscript.Run(t, testscript.Params{
					Files:               []string{script},
					UpdateScripts:       *updateGolden,
					RequireExplicitExec: true,
					Setup: func(env *testscript.Env) error {
						env.Setenv("DBCRON_DATABASE_URL", db.URL)
						env.Setenv("HOME", env.WorkDir)
						env.Setenv("TZ", "UTC")
						env.Setenv("GORACE", "atexit_sleep_ms=0") // else each command lasts a second longer
						return nil
					},
					Cmds: map[string]func(*testscript.TestScript, bool, []string){
						"exits": exits, "eventually": eventually, "signal": signalTo,
					},
				})
			})
		})
	}
}

func root(t *testing.T) string {
	dir, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// exits CODE COMMAND… runs a command and checks its exit code, and that it says
// at least one line on stderr if the code is not 0.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND…")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	var exit *exec.ExitError
	if err := ts.Exec(args[1], args[2:]...); errors.As(err, &exit) {
		got = exit.ExitCode()
	} else if err != nil {
		ts.Fatalf("%v", err)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
	if want != 0 && strings.TrimSpace(ts.ReadFile("stderr")) == "" {
		ts.Fatalf("exit code %d, and not a word on stderr", got)
	}
}

// eventually PATTERN COMMAND… runs a command again and again until its output
// matches, for half a minute at the most.
func eventually(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: eventually PATTERN COMMAND…")
	}
	pattern := regexp.MustCompile("(?m)" + args[0])
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	timeout := time.After(30 * time.Second)
	for {
		err := ts.Exec(args[1], args[2:]...)
		if err == nil && pattern.MatchString(ts.ReadFile("stdout")) {
			return
		}
		select {
		case <-tick.C:
		case <-timeout:
			ts.Fatalf("%q did not come, but\n%s", args[0], ts.ReadFile("stdout"))
		}
	}
}

// signalTo NAME WORD sends a signal to the background command that has the word
// among its arguments.
func signalTo(ts *testscript.TestScript, neg bool, args []string) {
	signals := map[string]os.Signal{"TERM": syscall.SIGTERM, "HUP": syscall.SIGHUP, "INT": syscall.SIGINT}
	if neg || len(args) != 2 || signals[args[0]] == nil {
		ts.Fatalf("usage: signal TERM|HUP|INT WORD")
	}
	for _, cmd := range ts.BackgroundCmds() {
		if slices.Contains(cmd.Args, args[1]) {
			ts.Check(cmd.Process.Signal(signals[args[0]]))
			return
		}
	}
	ts.Fatalf("no background command has %s among its arguments", args[1])
}

// TestHelp sees to it that every command explains itself.
func TestHelp(t *testing.T) {
	p := &program{out: &bytes.Buffer{}, err: &bytes.Buffer{}}
	visit := func(words []string) {
		var out bytes.Buffer
		p := &program{in: strings.NewReader(""), out: &out, err: &out}
		if code := run(t.Context(), p, append(words, "--help")); code != 0 {
			t.Errorf("%v --help: exit code %d", words, code)
		}
		if !strings.Contains(out.String(), "Usage:") {
			t.Errorf("%v --help says %q", words, out.String())
		}
	}
	for _, c := range p.root().Commands() {
		visit([]string{c.Name()})
		for _, sub := range c.Commands() {
			visit([]string{c.Name(), sub.Name()})
		}
	}
}

func TestPasswordsAreNotShown(t *testing.T) {
	for _, args := range [][]string{
		{"doctor", "--url", "postgres://me:hunter2@127.0.0.1:1/x", "--connect-timeout", "1ms"},
		{"schedule", "list", "--url", "postgres://me:hunter2@127.0.0.1:1/x", "--connect-timeout", "1ms"},
		{"schedule", "list", "--url", "mysql://me:hunter2@127.0.0.1:1/x", "--connect-timeout", "1ms"},
		{"schedule", "list", "--url", "mysql://me:hunter2@127.0.0.1:1", "--connect-timeout", "1ms"},
		{"schedule", "list", "--url", "mysql://me:hunter2%zz@127.0.0.1:1/x", "--connect-timeout", "1ms"},
		{"schedule", "list", "--url", "oracle://me:hunter2@127.0.0.1:1/x"},
		{"migrate", "sql", "--url", "oracle://me:hunter2@127.0.0.1:1/x"},
	} {
		var out bytes.Buffer
		p := &program{in: strings.NewReader(""), out: &out, err: &out}
		if code := run(t.Context(), p, args); code == 0 {
			t.Errorf("%v: exit code 0", args)
		}
		if strings.Contains(out.String(), "hunter2") {
			t.Errorf("%v shows the password: %s", args, out.String())
		}
		if out.Len() == 0 {
			t.Errorf("%v says nothing", args)
		}
	}
}

func TestShellLine(t *testing.T) {
	for _, words := range [][]string{{"printf", "%s|", "a b", "it's", "$HOME", "`x`", ""}} {
		out, err := exec.CommandContext(t.Context(), "/bin/sh", "-c", shellLine(words)).Output()
		if err != nil {
			t.Fatal(err)
		}
		if want := "a b|it's|$HOME|`x`||"; string(out) != want {
			t.Errorf("got %q, want %q", out, want)
		}
	}
	if got := shellLine([]string{"a | b"}); got != "a | b" {
		t.Errorf("one word became %q", got)
	}
}

func TestHostZone(t *testing.T) {
	t.Setenv("TZ", "Asia/Tokyo")
	if got := hostZone(); got != "Asia/Tokyo" {
		t.Errorf("got %s", got)
	}
	if err := os.Unsetenv("TZ"); err != nil {
		t.Fatal(err)
	}
	if got := hostZone(); got == "" || got == "Local" {
		t.Errorf("got %q", got)
	}
}
