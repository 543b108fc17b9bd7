//go:build unix

package scheduler

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/dialect/dbtest/dbserver"
	"github.com/dbcron/dbcron/internal/guardian"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/sqlschema"
)

// alive reports whether a process runs. One that has ended and was not reaped does not.
func alive(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if errors.Is(err, os.ErrNotExist) {
		_, err = os.Stat("/proc/self/stat")
		return err != nil // without /proc the signal has told
	}
	return err != nil || !bytes.Contains(stat[bytes.LastIndexByte(stat, ')'):], []byte(" Z "))
}

// sleeper is a command that writes the numbers of its processes to a file: its
// own and that of a grandchild that has left the group. Then it sleeps, and
// leaves TERM unheard if stubborn.
func sleeper(t *testing.T, stubborn bool) (command string, pids func() []int) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "pids")
	trap := ""
	if stubborn {
		trap = "trap '' TERM; "
	}
	command = trap + "sleep 600 & echo $! $$ >" + file + ".new; mv " + file + ".new " + file + "; wait; sleep 600"
	pids = func() (found []int) {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil
		}
		for _, word := range strings.Fields(string(text)) {
			pid, err := strconv.Atoi(word)
			if err != nil {
				t.Fatal(err)
			}
			found = append(found, pid)
		}
		return found
	}
	t.Cleanup(func() {
		for _, pid := range pids() {
			if alive(pid) {
				t.Errorf("process %d is still there", pid)
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
	})
	return command, pids
}

func wantGone(t *testing.T, pids []int) {
	t.Helper()
	for _, pid := range pids {
		eventually(t, "a process is gone", func() bool { return !alive(pid) })
	}
}

// started lets a daemon start what is due, and waits until a command runs.
func started(t *testing.T, s *Scheduler, pids func() []int) []int {
	t.Helper()
	if _, err := s.step(t.Context(), context.Background()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the command runs", func() bool { return len(pids()) == 2 })
	return pids()
}

// A daemon that finds a run lost kills its command and writes nothing.
func TestALostRunIsKilled(t *testing.T) {
	clockedMemory(t, func(t *testing.T, db *dbtest.DB) {
		command, pids := sleeper(t, true)
		addCommand(t, db, "job", "@every 1h", command)
		db.Advance(t, time.Hour)
		old := daemon(t, db, Options{Lease: time.Hour}) // not its end kills the command
		running := started(t, old, pids)
		if err := renewAll(t, old); err != nil || !alive(running[0]) {
			t.Fatalf("after a renewal: alive %t, %v", alive(running[0]), err)
		}
		db.Advance(t, time.Hour)
		other := daemon(t, db, Options{})
		taken := takenOver(t, other, 10)
		if err := renewAll(t, old); err != nil {
			t.Fatal(err)
		}
		wantGone(t, running)
		old.runs.Wait()
		wantRows(t, db, "job", "3600 1 lost", "3600 2 running")
		if r := allRuns(t, db, "job")[0]; !strings.Contains(r.Error, "lease") || r.ExitCode != -1 || r.Output != "" {
			t.Errorf("the lost run is %+v", r)
		}
		finished(t, other, taken[0], 0)
		wantRows(t, db, "job", "3600 1 lost", "3600 2 ok")
	})
}

// When ctx ends, commands get their grace, then TERM, then KILL, and their runs
// are handed back to the other daemons.
func TestGracefulStop(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		for _, c := range []struct {
			name     string
			stubborn bool
			opt      Options
			abort    bool
		}{
			{"grace", false, Options{Grace: 200 * time.Millisecond}, false},
			{"no grace", false, Options{Grace: -1}, false},
			{"stubborn", true, Options{Grace: -1, KillGrace: 200 * time.Millisecond}, false},
			{"abort", true, Options{Grace: time.Hour, KillGrace: time.Hour}, true},
		} {
			command, pids := sleeper(t, c.stubborn)
			addCommand(t, db, c.name, "@yearly", command)
			db.Do(t, `UPDATE {prefix}schedule SET due_at = {now}, next_exec = {now} WHERE name = :name`, sqlrun.Args{"name": c.name})
			s := daemon(t, db, c.opt)
			stop := running(t, s)
			eventually(t, "the command runs", func() bool { return len(pids()) == 2 })
			if c.abort {
				s.Abort()
				s.Abort()
			}
			stop()
			wantGone(t, pids())
			got := allRuns(t, db, c.name)
			if len(got) != 1 || got[0].State != "retry" || got[0].Error == "" || got[0].ExitCode != -1 {
				t.Errorf("%s: %+v, want one run, handed back", c.name, got)
			}
			next := takenOver(t, daemon(t, db, Options{}), 10)
			if len(next) != 1 || next[0].schedule != c.name || next[0].attempt != 2 {
				t.Errorf("%s: the next daemon takes %d runs, want attempt 2", c.name, len(next))
			}
			db.Do(t, `DELETE FROM {prefix}run`, nil)
		}
	})
}

// A command that ends within its grace is recorded with its own outcome.
func TestCommandsEndWithinTheirGrace(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		dir := t.TempDir()
		addCommand(t, db, "job", "@every 1s", "touch "+dir+"/begun; until test -e "+dir+"/end; do sleep 0.02; done; echo done")
		s := daemon(t, db, Options{})
		stop := running(t, s)
		eventually(t, "the command runs", func() bool { _, err := os.Stat(dir + "/begun"); return err == nil })
		ended := make(chan struct{})
		go func() { stop(); close(ended) }()
		if err := os.WriteFile(dir+"/end", nil, 0o600); err != nil {
			t.Error(err)
		}
		<-ended
		got := slices.DeleteFunc(allRuns(t, db, "job"), func(r Run) bool { return r.State == "missed" }) // the daemon began late
		if len(got) == 0 || got[0].State != "ok" || got[0].Output != "done\n" {
			t.Errorf("%+v", got)
		}
		for _, r := range got {
			if r.State != "ok" && r.State != "skipped" {
				t.Errorf("%+v", r)
			}
		}
	})
}

// What commands do and say is recorded on every engine.
func TestCommands(t *testing.T) {
	clockedMemory(t, func(t *testing.T, db *dbtest.DB) {
		dir := t.TempDir()
		cases := map[string]struct {
			s     Schedule
			state string
			code  int // -2: any
			err   string
			check func(output string) bool
		}{
			"exit":  {Schedule{Command: "echo out; echo err >&2; exit 7"}, "failed", 7, "exit code 7", is("out\nerr\n")},
			"input": {Schedule{Command: "cat", Stdin: "one\nzwö\n"}, "ok", 0, "", is("one\nzwö\n")},
			"env": {
				Schedule{Command: `echo "$A|$PATH|$DBCRON_DUE|$HOME"`, Env: map[string]string{"A": "x y"}},
				"ok", 0, "", is("x y|/usr/bin:/bin|2026-03-02T10:00:00Z|\n"),
			},
			"shell":      {Schedule{Command: "echo hello", Env: map[string]string{"SHELL": "/bin/echo"}}, "ok", 0, "", is("-c echo hello\n")},
			"dir":        {Schedule{Command: "pwd"}, "ok", 0, "", is(dir + "\n")},
			"not found":  {Schedule{Command: "no-such-command-anywhere"}, "failed", 127, "exit code 127", nil},
			"no shell":   {Schedule{Command: "true", Env: map[string]string{"SHELL": "/no/such/shell"}}, "failed", 127, "shell", nil},
			"long shell": {Schedule{Command: "true", Env: map[string]string{"SHELL": "/" + strings.Repeat("x", 100_000)}}, "failed", -2, "", nil},
			"signal":     {Schedule{Command: "kill -9 $$"}, "failed", 137, "signal 9", nil},
			"binary":     {Schedule{Command: `printf 'a\000b\377c\360\237'`}, "ok", 0, "", is("a\uFFFDb\uFFFDc\uFFFD\uFFFD")},
			"text":       {Schedule{Command: "cat", Stdin: "🕰 'quoted' \\ {prefix} :id $1 ?"}, "ok", 0, "", is("🕰 'quoted' \\ {prefix} :id $1 ?")},
			"much": {Schedule{Command: "echo begin; head -c 100000000 /dev/zero | tr '\\0' x; echo end"}, "ok", 0, "", func(o string) bool {
				return len(o) < 70_000 && strings.HasPrefix(o, "begin\nxxx") && strings.HasSuffix(o, "xxxend\n") &&
					strings.Contains(o, "bytes left out")
			}},
			"much binary": {
				Schedule{Command: "head -c 1000000 /dev/urandom"},
				"ok", 0, "",
				func(o string) bool { return len(o) < 70_000 && utf8.ValidString(o) },
			},
			"pipe held": {Schedule{Command: "sleep 600 & echo left"}, "ok", 0, "", is("left\n")},
		}
		for name, c := range cases {
			s := c.s
			s.Name, s.Spec = name, "@every 1h"
			if err := Add(t.Context(), db.DB, s); err != nil {
				t.Fatal(err)
			}
		}
		db.Advance(t, time.Hour)
		s := daemon(t, db, Options{Dir: dir})
		if _, err := s.step(t.Context(), context.Background()); err != nil {
			t.Fatal(err)
		}
		eventually(t, "all outcomes are recorded", func() bool { return s.busy() == 0 })
		for name, c := range cases {
			got := allRuns(t, db, name)
			if len(got) != 1 {
				t.Errorf("%s: %d runs", name, len(got))
				continue
			}
			r := got[0]
			if r.State != c.state || c.code != -2 && r.ExitCode != c.code || !strings.Contains(r.Error, c.err) || len(r.Error) > 5000 ||
				c.check != nil && !c.check(r.Output) {
				t.Errorf("%s: state %s, exit code %d, error %.200q, output %.200q (%d bytes)", name, r.State, r.ExitCode,
					r.Error, r.Output, len(r.Output))
			}
		}
	})
}

func is(want string) func(string) bool { return func(got string) bool { return got == want } }

// A daemon that is killed leaves no command behind, and when its lease has
// ended, another daemon runs the slot again.
func TestDeath(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		command, pids := sleeper(t, false)
		addCommand(t, db, "job", "@yearly", command)
		db.Do(t, `UPDATE {prefix}schedule SET due_at = {now}, next_exec = {now}`, nil)
		exe, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		child := exec.CommandContext(t.Context(), exe)
		child.Env = append(os.Environ(), childURL+"="+db.URL)
		child.Stderr = os.Stderr
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the command runs", func() bool { return len(pids()) == 2 })
		if err := child.Process.Kill(); err != nil {
			t.Error(err)
		}
		_ = child.Wait() // it was killed
		wantGone(t, pids())
		db.Do(t, `UPDATE {prefix}schedule SET command = 'echo again'`, nil)
		stop := running(t, daemon(t, db, Options{}))
		eventually(t, "the second attempt", func() bool { return len(allRuns(t, db, "job")) == 2 })
		stop()
		got := allRuns(t, db, "job")
		if !strings.HasPrefix(got[0].By, "child:") || got[0].State != "lost" || got[0].Attempt != 1 {
			t.Errorf("the first run is %+v", got[0])
		}
		if got[1].State != "ok" || got[1].Attempt != 2 || got[1].Output != "again\n" || !got[1].Due.Equal(got[0].Due) {
			t.Errorf("the second run is %+v", got[1])
		}
		if got[0].Finished.Sub(got[0].Started) < childLease {
			t.Error("it was taken over within its lease")
		}
	})
}

// The database's server crashes and comes back while a run executes: the run is recorded once,
// and the daemon continues.
func TestTheServerGoesAndComesBack(t *testing.T) {
	for _, e := range dbserver.Engines {
		t.Run(e.Name, func(t *testing.T) {
			t.Parallel()
			server, err := e.Start(t.Context(), dbserver.Options{Durable: true})
			if err != nil {
				dbtest.Missing(t, err)
			}
			t.Cleanup(func() { _ = server.Stop() })
			db := dbtest.Open(t, server.URL(), dialect.Options{})
			if err := sqlschema.Migrate(t.Context(), db.DB); err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			addCommand(t, db, "job", "@every 1s", "echo x >>"+dir+"/$DBCRON_RUN_ID; until test -e "+dir+"/end; do sleep 0.02; done")
			stop := running(t, daemon(t, db, Options{}))
			eventually(t, "a run", func() bool { found, _ := filepath.Glob(dir + "/*"); return len(found) > 0 })
			if err := server.Kill(); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(dir+"/end", nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := server.Restart(t.Context()); err != nil {
				t.Fatal(err)
			}
			eventually(t, "two runs that are ok", func() bool {
				ok := 0
				all, err := History(t.Context(), db.DB, "job", 1000)
				for _, r := range all {
					if r.State == "ok" {
						ok++
					}
				}
				return err == nil && ok >= 2
			})
			stop()
			all := allRuns(t, db, "job")
			states := account(t, all, []life{{"job", all[0].Due, stored(t, db, "job").Due, time.Second}})
			if all[0].State != "ok" || all[0].Attempt != 1 || states["failed"]+states["lost"]+states["running"] > 0 {
				t.Errorf("the run that was under way is %+v; all: %v", all[0], states)
			}
		})
	}
}

// What the daemon gives a command comes after the schedule's own settings, and
// these after the daemon's options.
func TestEnvironment(t *testing.T) {
	s, err := New(nil, Options{Env: []string{"A=option", "B=option", "PATH=/bin"}})
	if err != nil {
		t.Fatal(err)
	}
	e := newExecution(run{
		id: 7, schedule: "job", attempt: 2, due: at(0), fence: 5,
		what: &Schedule{Env: map[string]string{"B": "schedule", "DBCRON_ATTEMPT": "9"}},
	})
	want := "A=option B=schedule DBCRON_ATTEMPT=2 DBCRON_DUE=2026-03-02T09:00:00Z DBCRON_FENCE=5 DBCRON_RUN_ID=7 DBCRON_SCHEDULE=job PATH=/bin"
	if got := strings.Join(s.environment(e), " "); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

// An output's text is for the history; logs show how long it is.
func TestOutputIsNotLogged(t *testing.T) {
	clockedMemory(t, func(t *testing.T, db *dbtest.DB) {
		var log bytes.Buffer
		addCommand(t, db, "job", "@every 1h", "echo secret-$((40+2))")
		db.Advance(t, time.Hour)
		s := daemon(t, db, Options{Logger: textLogger(&log)})
		for _, e := range claimed(t, s, 1) {
			ended(t, s, e, guardian.Result{Cause: guardian.Exited, Output: "secret-42"})
		}
		if got := log.String(); strings.Contains(got, "secret-42") || !strings.Contains(got, `output="9 bytes"`) ||
			!strings.Contains(got, "state=ok") {
			t.Errorf("logged %q", got)
		}
	})
}
