//go:build unix

package scheduler

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/sqlrun"
)

// addJob stores a schedule, due in an hour and each hour after unless it says
// otherwise.
func addJob(t *testing.T, db *dbtest.DB, s Schedule) {
	t.Helper()
	if s.Spec == "" {
		s.Spec = "@every 1h"
	}
	if err := Add(t.Context(), db.DB, s); err != nil {
		t.Fatal(err)
	}
}

// beginDue lets a daemon begin all that is due now.
func beginDue(t *testing.T, s *Scheduler) {
	t.Helper()
	for range 1000 {
		wait, err := s.step(t.Context(), context.Background())
		if err != nil {
			t.Fatal(err)
		}
		if wait > soon {
			return
		}
	}
	t.Fatal("there is always something due")
}

// work lets a daemon do all that is due now, and what follows at once.
func work(t *testing.T, s *Scheduler) {
	t.Helper()
	idle := 0
	for range 1000 {
		beginDue(t, s)
		// What has begun may have ended already, and something follow from it.
		if idle++; s.busy() > 0 {
			idle = 0
		}
		if idle == 3 {
			return
		}
		s.runs.Wait()
	}
	t.Fatal("there is always something that runs")
}

// cancelRun requests the end of a run, and lets the daemon check for that.
func cancelRun(t *testing.T, db *dbtest.DB, s *Scheduler, id int64, why string) Run {
	t.Helper()
	was, err := Cancel(t.Context(), db.DB, id, why)
	if err != nil {
		t.Fatal(err)
	}
	s.wakeAll() // as where there are notifications, or when a poll is over
	beginDue(t, s)
	return was
}

// only returns the run of a schedule that has one.
func only(t *testing.T, db *dbtest.DB, name string) Run {
	t.Helper()
	all := allRuns(t, db, name)
	if len(all) != 1 {
		t.Fatalf("%s has %d runs, want 1: %+v", name, len(all), all)
	}
	return all[0]
}

// A command of kind argv gets its words unchanged: no shell reads them.
func TestArgv(t *testing.T) {
	clockedMemory(t, func(t *testing.T, db *dbtest.DB) {
		words := []string{"", "a b", "$HOME", "`id`", "*", "'", `"`, `\`, "ü\n🕰", "-n", "{prefix}", ":id", "; exit 3", "%s%d"}
		addJob(t, db, Schedule{Name: "words", Kind: "argv", Command: Argv(append([]string{"printf", "%s|"}, words...)...)})
		addJob(t, db, Schedule{Name: "by hand", Kind: "argv", Command: `[ "/bin/echo", "\u00e9", "two  words" ]`})
		addJob(t, db, Schedule{Name: "exit", Kind: "argv", Command: Argv("sh", "-c", "exit $1", "sh", "9")})
		addJob(t, db, Schedule{Name: "missing", Kind: "argv", Command: Argv("/no/such/program"), Policy: Policy{MaxAttempts: 5}})
		db.Advance(t, time.Hour)
		work(t, daemon(t, db, Options{}))
		if r := only(t, db, "words"); r.State != "ok" || r.Output != strings.Join(words, "|")+"|" {
			t.Errorf("%+v", r)
		}
		if r := only(t, db, "by hand"); r.State != "ok" || r.Output != "é two  words\n" {
			t.Errorf("%+v", r)
		}
		if r := only(t, db, "exit"); r.State != "failed" || r.ExitCode != 9 {
			t.Errorf("%+v", r)
		}
		if r := only(t, db, "missing"); r.State != "failed" || r.ExitCode != 127 || !strings.Contains(r.Error, "not tried again") {
			t.Errorf("%+v", r)
		}
	})
}

// A schedule's directory stands before the daemon's, its variables before those
// of the daemon, and what tells the command about its run before all; SHELL
// names the shell of the kind shell.
func TestDirAndEnvironment(t *testing.T) {
	clockedMemory(t, func(t *testing.T, db *dbtest.DB) {
		daemons, own := t.TempDir(), t.TempDir()
		addJob(t, db, Schedule{Name: "dir", Command: "pwd"})
		addJob(t, db, Schedule{Name: "own dir", Command: "pwd", Dir: own})
		addJob(t, db, Schedule{Name: "no dir", Command: "pwd", Dir: "/no/such/dir"})
		addJob(t, db, Schedule{Name: "argv dir", Kind: "argv", Command: Argv("pwd"), Dir: own})
		addJob(t, db, Schedule{Name: "shell", Command: "echo hello", Env: map[string]string{"SHELL": "/bin/echo"}})
		addJob(t, db, Schedule{
			Name: "env", Kind: "argv", Command: Argv("env"),
			Env: map[string]string{"A": "of the schedule", "EMPTY": "", "LINES": "a\nb=c"},
		})
		db.Advance(t, time.Hour)
		work(t, daemon(t, db, Options{Dir: daemons, Env: []string{"PATH=/usr/bin:/bin", "A=of the daemon", "B=b"}}))
		for name, want := range map[string]string{"dir": daemons, "own dir": own, "argv dir": own, "shell": "-c echo hello"} {
			if r := only(t, db, name); r.State != "ok" || r.Output != want+"\n" {
				t.Errorf("%s: %s, %q, %s; want %q", name, r.State, r.Output, r.Error, want)
			}
		}
		if r := only(t, db, "no dir"); r.State != "failed" || !strings.Contains(r.Error, "/no/such/dir") {
			t.Errorf("%+v", r)
		}
		r := only(t, db, "env")
		for _, want := range []string{
			"A=of the schedule", "B=b", "EMPTY=", "LINES=a\nb=c", "PATH=/usr/bin:/bin",
			"DBCRON_SCHEDULE=env", "DBCRON_ATTEMPT=1", "DBCRON_DUE=2026-03-02T10:00:00Z", "DBCRON_FENCE=1",
		} {
			if !strings.Contains("\n"+r.Output, "\n"+want+"\n") {
				t.Errorf("%q is not in %q", want, r.Output)
			}
		}
		if strings.Contains(r.Output, "HOME=") || strings.Contains(r.Output, "TEST") {
			t.Errorf("the daemon's own environment leaks: %q", r.Output)
		}
	})
}

// DBCRON_FENCE rises with each attempt of a schedule, whoever begins it and why.
func TestTheFenceRises(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		addJob(t, db, Schedule{
			Name: "job", Command: "echo $DBCRON_FENCE $DBCRON_ATTEMPT; test $DBCRON_ATTEMPT = 2 || exit 1",
			Policy: Policy{MaxAttempts: 2, RetryDelay: time.Second},
		})
		db.Advance(t, time.Hour)
		work(t, daemon(t, db, Options{}))
		db.Advance(t, time.Second)
		work(t, daemon(t, db, Options{}))
		db.Advance(t, time.Hour)
		claimed(t, daemon(t, db, Options{}), 1) // it dies
		db.Advance(t, time.Minute)
		work(t, daemon(t, db, Options{}))
		db.Advance(t, time.Second)
		if _, err := Start(t.Context(), db.DB, "job"); err != nil {
			t.Fatal(err)
		}
		work(t, daemon(t, db, Options{}))
		var got []string
		for _, r := range allRuns(t, db, "job") {
			if r.State != "waiting" {
				got = append(got, r.State+" "+strings.TrimSpace(r.Output))
			}
		}
		if want := "failed 1 1, ok 2 2, lost , ok 4 2, failed 5 1"; strings.Join(got, ", ") != want {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

// A daemon of root runs a command as another user, with that user's HOME.
func TestUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can run a command as another user")
	}
	clockedMemory(t, func(t *testing.T, db *dbtest.DB) {
		const tell = `id -un; echo "$USER $LOGNAME $HOME"`
		addJob(t, db, Schedule{Name: "other", Command: tell, User: "nobody"})
		addJob(t, db, Schedule{Name: "argv", Kind: "argv", Command: Argv("id", "-un"), User: "nobody"})
		addJob(t, db, Schedule{Name: "home", Command: tell, User: "nobody", Env: map[string]string{"HOME": "/tmp"}})
		addJob(t, db, Schedule{Name: "unknown", Command: tell, User: "no-such-user"})
		addJob(t, db, Schedule{Name: "daemon's", Command: "id -un"})
		db.Advance(t, time.Hour)
		work(t, daemon(t, db, Options{}))
		loginHome := homeOf("nobody")["HOME"]
		for name, want := range map[string]string{
			"other": "nobody\nnobody nobody " + loginHome + "\n", "argv": "nobody\n",
			"home": "nobody\nnobody nobody /tmp\n", "daemon's": "root\n",
		} {
			if r := only(t, db, name); r.State != "ok" || r.Output != want {
				t.Errorf("%s: %s, %q, %s; want %q", name, r.State, r.Output, r.Error, want)
			}
		}
		if r := only(t, db, "unknown"); r.State != "failed" || !strings.Contains(r.Error, "no-such-user") || r.Output != "" {
			t.Errorf("%+v", r)
		}
	})
}

// A command starts in its schedule's directory, or else in the HOME that its schedule or its user has, as with cron. A home
// that is missing, or that the user cannot enter, is no reason not to run: the daemon's own may be root's.
func TestWhereCommandsStart(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can run a command as another user")
	}
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		closed, err := os.MkdirTemp("", "home") // 0700, as root's is
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.RemoveAll(closed) })
		in := func(dir string) map[string]string { return map[string]string{"HOME": dir} }
		want := map[string]string{}
		for _, c := range []struct {
			s    Schedule
			want string
		}{
			{Schedule{Name: "daemon's"}, closed},
			{Schedule{Name: "mail", User: "mail"}, homeOf("mail")["HOME"]},
			{Schedule{Name: "missing", User: "nobody"}, "/"}, // Debian's nobody has /nonexistent
			{Schedule{Name: "closed", User: "mail", Env: in(closed)}, "/"},
			{Schedule{Name: "HOME", Env: in("/usr")}, "/usr"},
			{Schedule{Name: "HOME of another", User: "mail", Env: in("/usr")}, "/usr"},
			{Schedule{Name: "relative", Env: in("usr")}, "/"},
			{Schedule{Name: "dir", Dir: "/etc", Env: in("/usr")}, "/etc"},
		} {
			c.s.Command = "pwd"
			addJob(t, db, c.s)
			want[c.s.Name] = c.want
		}
		db.Advance(t, time.Hour)
		work(t, daemon(t, db, Options{Dir: closed}))
		for name, want := range want {
			if r := only(t, db, name); r.State != "ok" || r.Output != want+"\n" {
				t.Errorf("%s: %s in %q, %s; want %s", name, r.State, r.Output, r.Error, want)
			}
		}
	})
}

// A run says that it has killed what its command left running, whatever the command's own result.
func TestCommandLeavesSomethingRunning(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		addJob(t, db, Schedule{Name: "ok", Command: "sleep 600 >/dev/null & exit 0"})
		addJob(t, db, Schedule{Name: "failed", Command: "sleep 600 >/dev/null & exit 3"})
		addJob(t, db, Schedule{Name: "nothing left", Command: "sleep 0.01 & exit 0"})
		db.Advance(t, time.Hour)
		work(t, daemon(t, db, Options{}))
		for name, want := range map[string]string{
			"ok": "ok: " + leftBehind, "failed": "failed: exit code 3; " + leftBehind, "nothing left": "ok: ",
		} {
			if r := only(t, db, name); r.State+": "+r.Error != want {
				t.Errorf("%s: got %s: %s, want %s", name, r.State, r.Error, want)
			}
		}
	})
}

// What a command leaves running is part of its run for as long as linger says.
func TestLinger(t *testing.T) {
	clockedMemory(t, func(t *testing.T, db *dbtest.DB) {
		addJob(t, db, Schedule{Name: "ends", Command: "(sleep 3; echo late) & echo early; exit 3", Policy: Policy{Linger: -1}})
		addJob(t, db, Schedule{Name: "killed", Command: "sleep 600 & exit 0", Policy: Policy{Linger: 2 * time.Second}})
		addJob(t, db, Schedule{Name: "stopped", Command: "sleep 600 & exit 0", Policy: Policy{Linger: -1, Timeout: 2 * time.Second}})
		db.Advance(t, time.Hour)
		work(t, daemon(t, db, Options{Lease: time.Hour}))
		for name, want := range map[string]string{
			"ends": "failed: exit code 3: early\nlate\n", "killed": "ok: " + leftBehind + ": ", "stopped": "timeout: it took longer than 2s: ",
		} {
			r := only(t, db, name)
			if got := r.State + ": " + r.Error + ": " + r.Output; got != want {
				t.Errorf("%s: got %q, want %q", name, got, want)
			}
		}
	})
}

// A command that takes longer than its timeout is ended with all that it has
// started: by TERM and, after the schedule's own grace, by KILL.
func TestACommandThatTakesTooLong(t *testing.T) {
	clockedMemory(t, func(t *testing.T, db *dbtest.DB) {
		addJob(t, db, Schedule{Name: "in time", Command: "echo done", Policy: Policy{Timeout: time.Hour}})
		// On a machine that is busy a command may not have begun when its time is up.
		timeout := time.Second
		for !takesTooLong(t, db, timeout) {
			if timeout *= 3; timeout > 2*time.Minute {
				t.Fatal("no command begins")
			}
		}
		if r := only(t, db, "in time"); r.State != "ok" || r.Output != "done\n" {
			t.Errorf("%+v", r)
		}
	})
}

// takesTooLong checks commands that run for longer than a timeout. It returns false if one
// of them had not begun by then.
func takesTooLong(t *testing.T, db *dbtest.DB, timeout time.Duration) bool {
	t.Helper()
	gentle, pidsOfGentle := sleeper(t, false)
	stubborn, pidsOfStubborn := sleeper(t, true)
	suffix := " of " + timeout.String()
	addJob(t, db, Schedule{Name: "gentle" + suffix, Command: "echo begun; " + gentle, Policy: Policy{Timeout: timeout}})
	addJob(t, db, Schedule{
		Name: "stubborn" + suffix, Command: "echo begun; " + stubborn,
		Policy: Policy{Timeout: timeout, KillGrace: 100 * time.Millisecond},
	})
	addJob(t, db, Schedule{
		Name: "last words" + suffix, Command: "trap 'echo ended; exit 0' TERM; echo begun; sleep 600 & wait",
		Policy: Policy{Timeout: timeout},
	})
	db.Advance(t, time.Hour)
	work(t, daemon(t, db, Options{KillGrace: time.Hour, Lease: time.Hour}))
	begun := true
	for _, name := range []string{"gentle", "stubborn", "last words"} {
		r := only(t, db, name+suffix)
		if r.State != "timeout" || !strings.Contains(r.Error, "longer than "+timeout.String()) || r.Finished.IsZero() || !r.Next.IsZero() {
			t.Errorf("%s: %+v", name, r)
		}
		begun = begun && strings.HasPrefix(r.Output, "begun\n")
	}
	if begun {
		wantGone(t, append(pidsOfGentle(), pidsOfStubborn()...))
	}
	return begun
}

// What a person has written into the table that cannot be run fails, with a
// reason, and does nothing.
func TestWorkThatIsNone(t *testing.T) {
	clockedMemory(t, func(t *testing.T, db *dbtest.DB) {
		for name, columns := range map[string]map[string]string{
			"argv":    {"kind": "argv", "command": "/bin/echo hello"},
			"no argv": {"kind": "argv", "command": "[]"},
			"http":    {"kind": "http", "command": "GET ftp://localhost/"},
			"dir":     {"dir": "here"},
			"user":    {"run_as": "a b"},
			"headers": {"kind": "http", "command": "GET http://127.0.0.1:1/", "headers": "[]"},
			"timeout": {"timeout": "99999999d"},
			"grace":   {"kill_grace": "99999999d"},
			"keep":    {"keep_for": "99999999d"},
			"dbcron":  {"env": `{"DBCRON_FENCE": "7"}`},
		} {
			db.Do(t, `INSERT INTO {prefix}schedule (name, spec, command, due_at, next_exec) VALUES (:name, '@every 1h', 'true', {now}, {now})`,
				sqlrun.Args{"name": name})
			for column, value := range columns {
				db.Do(t, `UPDATE {prefix}schedule SET `+column+` = :value WHERE name = :name`, sqlrun.Args{"value": value, "name": name})
			}
		}
		work(t, daemon(t, db, Options{}))
		list, err := List(t.Context(), db.DB, "", 100)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range list {
			if s.State != "failed" || s.Reason == "" {
				t.Errorf("%s is %s: %s", s.Name, s.State, s.Reason)
			}
		}
		if all := allRuns(t, db, ""); len(all) != 0 {
			t.Errorf("runs: %+v", all)
		}
	})
}
