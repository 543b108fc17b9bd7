package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/dialect/engines"
	"github.com/dbcron/dbcron/internal/ops/notify/smtptest"
	"github.com/dbcron/dbcron/internal/sqlrun"
)

var updateGolden = flag.Bool("update", false, "rewrite what the command lines print in testdata/cli")

func TestMain(m *testing.M) {
	testscript.Main(cleaning{m}, map[string]func(){"dbcron": main, "psql": psql})
}

// cleaning removes what the tests have built.
type cleaning struct{ *testing.M }

func (m cleaning) Run() int {
	defer func() { _ = os.RemoveAll(aloneFolder) }()
	return m.M.Run()
}

// aboutEngines are the files of testdata/cli about what differs between engines, and severalProcesses
// those in which processes work side by side, and which run on SQLite and on an engine that locks
// rows. The others, about what commands print and refuse, run on SQLite: everywhere.txtar has each
// command once.
var (
	aboutEngines     = []string{everywhere, backup, "lock-lost.txtar", "lock-wait.txtar", "migrate.txtar"}
	severalProcesses = []string{"lock-list.txtar", "node.txtar", "notify.txtar", "run.txtar", "serve.txtar", "worker.txtar"}
)

const (
	everywhere = "everywhere.txtar"
	backup     = "backup.txtar"
)

// TestCLI runs the command lines of testdata/cli with an empty database.
func TestCLI(t *testing.T) {
	scripts, err := filepath.Glob(filepath.Join(root(t), "testdata", "cli", "*.txtar"))
	if err != nil || len(scripts) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	if signal.Ignored(syscall.SIGHUP) { // under nohup; the scripts would inherit it
		hup := make(chan os.Signal, 1)
		signal.Notify(hup, syscall.SIGHUP)
		t.Cleanup(func() { signal.Stop(hup) })
	}
	bin := programAlone(t)
	for _, script := range scripts {
		t.Run(filepath.Base(script), func(t *testing.T) {
			beside := func(t *testing.T) {
				if !*updateGolden { // which the engines write one after the other
					t.Parallel()
				}
			}
			beside(t)
			eachEmpty := dbtest.Memory.EachEmpty
			switch name := filepath.Base(script); {
			case slices.Contains(aboutEngines, name):
				eachEmpty = dbtest.EachEmpty
			case slices.Contains(severalProcesses, name):
				eachEmpty = dbtest.Locks.EachEmpty
			}
			eachEmpty(t, func(t *testing.T, db *dbtest.DB) {
				if filepath.Base(script) == backup {
					runScript(t, script, bin, backupTools(t, db))
					return
				}
				runScript(t, script, bin, map[string]string{"DBCRON_DATABASE_URL": db.URL})
			}, beside)
		})
	}
}

// backupTools are the variables of the script about backups: the database, and for MySQL and MariaDB what writes a dump and what reads it.
// Each needs its own: MariaDB's mysqldump writes generated columns, which MySQL refuses.
func backupTools(t *testing.T, db *dbtest.DB) map[string]string {
	t.Helper()
	variables := map[string]string{"DBCRON_DATABASE_URL": db.URL, "DUMP": "mariadb-dump", "CLIENT": "mariadb"}
	if db.Engine != "mysql" {
		return variables
	}
	const unpacked = "/var/cache/dbcron-tests/mysql-client/bin" // by tools/test-deps
	variables["DUMP"], variables["CLIENT"] = filepath.Join(unpacked, "mysqldump"), filepath.Join(unpacked, "mysql")
	if _, err := os.Stat(variables["DUMP"]); err == nil {
		return variables
	}
	out, err := exec.CommandContext(t.Context(), "mysqldump", "--version").CombinedOutput()
	if err != nil || strings.Contains(string(out), "MariaDB") {
		t.Skipf("there is no mysqldump of MySQL, which tools/test-deps unpacks: %s", out)
	}
	variables["DUMP"], variables["CLIENT"] = "mysqldump", "mysql"
	return variables
}

// programAlone builds dbcron, once, without the race detector, which dominates the run time of short
// commands: the packages' own tests look for races. It returns the folder.
func programAlone(t *testing.T) string {
	t.Helper()
	folder, err := builtAlone()
	if err != nil {
		t.Fatal(err)
	}
	return folder
}

var (
	aloneFolder string
	builtAlone  = sync.OnceValues(func() (folder string, err error) {
		if aloneFolder, err = os.MkdirTemp("", "dbcron-alone-"); err != nil {
			return "", err
		}
		return aloneFolder, buildInto(filepath.Join(aloneFolder, "dbcron"), ".")
	})
)

// buildInto builds a program, without what debuggers need, which takes a third of the time.
func buildInto(file, of string) error {
	out, err := exec.CommandContext(context.Background(), "go", "build", "-ldflags=-s -w", "-o", file, of).CombinedOutput()
	if err != nil {
		return fmt.Errorf("go build: %w\n%s", err, out)
	}
	return nil
}

// runScript runs a script with the program in a folder, and variables.
func runScript(t *testing.T, script, bin string, variables map[string]string) {
	t.Helper()
	testscript.Run(t, scriptParams(t, script, bin, variables))
}

func scriptParams(t *testing.T, script, bin string, variables map[string]string) testscript.Params {
	t.Helper()
	return testscript.Params{
		Files:               []string{script},
		UpdateScripts:       *updateGolden,
		RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			for name, value := range variables {
				env.Setenv(name, value)
			}
			env.Setenv("HOME", env.WorkDir)
			env.Setenv("TZ", "UTC")
			env.Setenv("PORT", dbtest.FreePort(t))
			env.Setenv("ADMIN", dbtest.FreePort(t))
			env.Setenv("WORKER", dbtest.FreePort(t))
			env.Setenv("EXAMPLES", filepath.Join(root(t), "examples"))
			env.Setenv("PATH", bin+string(filepath.ListSeparator)+env.Getenv("PATH"))
			env.Setenv("GORACE", "atexit_sleep_ms=0") // else each command lasts a second longer
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": exits, "passes": passes, "eventually": eventually, "signal": signalTo, "mailserver": mailServer,
			"logged": logged, "certificate": certificate,
		},
	}
}

func root(t *testing.T) string {
	dir, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// psql URL -c STATEMENT is that much of the real one, for any engine.
func psql() {
	n, err := func() (int64, error) {
		if len(os.Args) != 4 || os.Args[2] != "-c" {
			return 0, errors.New("usage: psql URL -c STATEMENT")
		}
		ctx := context.Background()
		db, err := engines.Open(ctx, os.Args[1], dialect.Options{})
		if err != nil {
			return 0, err
		}
		defer db.Close()
		return db.Exec(ctx, sqlrun.Unlisted(os.Args[3]), nil)
	}()
	if err != nil {
		fmt.Fprintln(os.Stderr, "psql:", err)
		os.Exit(1)
	}
	fmt.Println(strings.Fields(os.Args[3])[0], n)
}

// exits CODE COMMAND… runs a command and checks its exit code, and that it says
// at least one line on stderr if the code is not 0.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND…")
	}
	if code := exitCode(ts, args); code != 0 && strings.TrimSpace(ts.ReadFile("stderr")) == "" {
		ts.Fatalf("exit code %d, and not a word on stderr", code)
	}
}

// passes CODE COMMAND… is exits for a code that is passed on from another
// command: dbcron says nothing of its own.
func passes(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: passes CODE COMMAND…")
	}
	if exitCode(ts, args); strings.Contains(ts.ReadFile("stderr"), "dbcron:") {
		ts.Fatalf("dbcron says something about it")
	}
}

// exitCode runs CODE COMMAND… and checks the exit code, which it returns.
func exitCode(ts *testscript.TestScript, args []string) int {
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
	return got
}

// eventually PATTERN COMMAND… repeats a command until its output matches, for at most five
// minutes.
func eventually(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: eventually PATTERN COMMAND…")
	}
	pattern := regexp.MustCompile("(?m)" + args[0])
	timeout := time.After(5 * time.Minute)
	for {
		began := time.Now() //nolint:forbidigo // a duration: how long the command took
		err := ts.Exec(args[1], args[2:]...)
		if err == nil && pattern.MatchString(ts.ReadFile("stdout")) {
			return
		}
		select {
		case <-time.After(max(100*time.Millisecond, 2*time.Since(began))): // what it waits for needs the processor, too
		case <-timeout:
			ts.Fatalf("%q did not come, but\n%s", args[0], ts.ReadFile("stdout"))
		}
	}
}

// signalTo NAME WORD sends a signal to the background command that has the word
// among its arguments.
func signalTo(ts *testscript.TestScript, neg bool, args []string) {
	signals := map[string]os.Signal{"TERM": syscall.SIGTERM, "HUP": syscall.SIGHUP, "INT": syscall.SIGINT, "KILL": syscall.SIGKILL}
	if neg || len(args) != 2 || signals[args[0]] == nil {
		ts.Fatalf("usage: signal TERM|HUP|INT|KILL WORD")
	}
	for _, cmd := range ts.BackgroundCmds() {
		if slices.Contains(cmd.Args, args[1]) {
			if err := cmd.Process.Signal(signals[args[0]]); !errors.Is(err, os.ErrProcessDone) {
				ts.Check(err)
			}
			return
		}
	}
	ts.Fatalf("no background command has %s among its arguments", args[1])
}

// mailServer FOLDER starts a mail server, whose URL is $MAIL, and stores the mails in the
// folder: files 1, 2 and so on.
func mailServer(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: mailserver FOLDER")
	}
	folder := ts.MkAbs(args[0])
	ts.Check(os.MkdirAll(folder, 0o755))
	n := 0
	s, err := smtptest.Start(smtptest.Options{Taken: func(l smtptest.Letter) {
		_, subject, body, err := l.Read()
		n++
		text := fmt.Sprintf("To: %s\nSubject: %s\n\n%s", l.To, subject, body)
		if err = errors.Join(err, os.WriteFile(filepath.Join(folder, strconv.Itoa(n)), []byte(text), 0o600)); err != nil {
			ts.Logf("%v", err)
		}
	}})
	ts.Check(err)
	ts.Defer(s.Close)
	ts.Setenv("MAIL", s.URL())
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
	for _, c := range p.root(nil).Commands() {
		visit([]string{c.Name()})
		for _, sub := range c.Commands() {
			visit([]string{c.Name(), sub.Name()})
		}
	}
}

// TestUsage runs command lines that are refused before a database is opened: here
// there is none.
func TestUsage(t *testing.T) {
	for _, c := range []struct{ line, want string }{
		{"schedule add  -- true", "needs --spec"},
		{"schedule add x --spec @daily", "there is nothing to run; give a command after --, or --http, --sql, --func or --job"},
		{"schedule add x --spec @daily -- ", "there is no command"},
		{"schedule add x y --spec @daily -- true", "one name goes before --"},
		{"schedule add x --spec @daily --env novalue -- true", `--env: "novalue" is not NAME=VALUE`},
		{"schedule add x --spec @daily --header novalue --http https://example.org/", `--header: "novalue" is not 'Name: value'`},
		{"schedule add x --spec @daily --http ftp://example.org/", "--http: "},
		{
			"schedule add x --spec @daily --sql x --http https://example.org/ --timeout 5",
			"only one of a command after --, --http, --sql, --func and --job",
		},
		{
			"schedule add x --spec @daily --time-zone Europe/Berlin --ends 2027-03-28T02:30 -- true",
			"--ends: the clocks of Europe/Berlin show 2027-03-28 02:30:00 never",
		},
		{"schedule add x --spec @daily --ends 2027-03-28 -- true", "has no time of day"},
		{"schedule add x --spec @daily --body x -- true", "--body: is for requests"},
		{"schedule edit x", "nothing to change"},
		{"schedule edit x --connect-timeout 1s", "nothing to change"},
		{"schedule edit x --first-run now", "unknown flag"},
		{"schedule next x --time-zone UTC", "--time-zone is for a spec"},
		{"schedule next x -n 0", "-n 0"},
		{"schedule history -n 0", "-n 0"},
		{"schedule explain x -n 0", `--count: "0"`},
		{"schedule show x -o yaml", "yaml"},
		{"schedule output first", "it is not an id"},
		{"schedule cancel 0", "it is not an id, which is a number from 1"},
		{"schedule backfill x --from 2025-01-01", "needs --to, such as"},
		{"schedule apply", "needs -f"},
		{"schedule apply -f -", "need --source"},
		{"schedule import", "needs --crontab"},
		{"schedule import --crontab /dev/null --time-zone Mars", "--time-zone"},
		{"schedule export -o xml", "use yaml or crontab"},
		{"schedule export --skip", "--skip is for crontabs"},
		{"scheudle list", `unknown command "scheudle" for "dbcron"; did you mean schedule?`},
		{"queue lsit", `unknown command "lsit" for "dbcron queue"; did you mean list?`},
		{"queue frobnicate", `unknown command "frobnicate" for "dbcron queue"`},
		{"job list --sate dead", "unknown flag: --sate; did you mean --state?"},
		{"serve --max_run 3", "did you mean --max-runs?"},
		{"worker exec true", "the command goes after --"},
		{"worker exec --lease 10ms -- true", "--lease"},
		{"serve --check", "--check needs --crontab or --schedules"},
		{"serve --schedules -", "cannot be standard input"},
		{"serve --log-format loud", "loud"},
		{"serve --lease 1s", "lease"},
		{"serve --poll 1us", "polling"},
		{"serve --max-runs -1", "--max-runs"},
		{"serve --max-crashes 0", "--max-crashes"},
		{"serve --doorbell 0.0.0.0:0", "they must be able to reach it"},
		{"serve --tag a,b", "is not a tag"},
	} {
		var out, errs bytes.Buffer
		p := &program{
			in: strings.NewReader(""), out: &out, err: &errs,
			environ: []string{"DBCRON_DATABASE_URL=postgres://nobody@127.0.0.1:1/none"},
		}
		if code := run(t.Context(), p, strings.Split(c.line, " ")); code != exitUsage {
			t.Errorf("%s: exit code %d", c.line, code)
		}
		if out.Len() > 0 || !strings.Contains(errs.String(), c.want) {
			t.Errorf("%s: prints %q and says %q, want %q", c.line, &out, &errs, c.want)
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
	if got := shellLine([]string{"/bin/ls", "-l", "a | b"}); got != "/bin/ls -l 'a | b'" {
		t.Errorf("got %s", got)
	}
}

func TestHostZone(t *testing.T) {
	for zone, want := range map[string]string{
		"Asia/Tokyo": "Asia/Tokyo", ":Asia/Tokyo": "Asia/Tokyo", "/usr/share/zoneinfo/posix/Asia/Tokyo": "Asia/Tokyo",
		"": "UTC", "UTC0": "UTC", "Etc/UTC": "UTC", "EST5EDT": "EST5EDT",
		"CET-1CEST": "", "Mars/Base": "", "/srv/zone": "",
	} {
		t.Setenv("TZ", zone)
		if got, unnamed := hostZone(); got != want || (unnamed != "") != (want == "") {
			t.Errorf("TZ=%s: got %q, %q, want %q", zone, got, unnamed, want)
		}
	}
	if err := os.Unsetenv("TZ"); err != nil {
		t.Fatal(err)
	}
	if got, unnamed := hostZone(); got == "Local" || (got == "") == (unnamed == "") {
		t.Errorf("got %q, %q", got, unnamed)
	}
}
