package faults

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/scheduler"
)

const (
	supervisorConf = "../packaging/supervisord/dbcron.conf"
	systemdUnit    = "../packaging/systemd/dbcron.service"
)

// afterGrace is what docs/operations.md adds to --grace: the time in which stopped commands end and
// their runs are recorded.
const afterGrace = 10 * time.Second

// A daemon runs under Debian's supervisord with the conf file that users get. While a command runs,
// the test makes it read its crontab again, restarts it, kills it and stops it. Only paths and the
// user differ from the file's own text.
func TestSupervisedBySupervisord(t *testing.T) {
	t.Parallel()
	programs := map[string]string{}
	for _, name := range []string{"supervisord", "supervisorctl"} {
		programs[name] = tool(t, name, "supervisor")
	}
	binary := build(t)
	givesTime(t, binary)
	dbtest.Processes.Each(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel() // it mostly waits for startsecs
		s := &supervised{
			t: t, db: db, dir: t.TempDir(), programs: programs,
			mark: "FAULTS_MARK=" + filepath.Base(t.TempDir()) + t.Name(),
		}
		s.write("crontab", s.crontab("before"))
		s.write("url", db.URL+"\n")
		s.write("dbcron.conf", s.conf(binary))
		s.start()
		at := s.runs()
		s.reloads()
		at = s.restarts(at)
		at = s.crashes(at)
		s.stops(at)
	})
}

// tool finds a program. If it is missing, the test is skipped, or fails with CI=true.
func tool(t *testing.T, name, debian string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err == nil {
		return path
	}
	if os.Getenv("CI") == "true" {
		t.Fatalf("%v (tools/test-deps installs it)", err)
	}
	t.Skipf("%v; on Debian: apt-get install --no-install-recommends %s", err, debian)
	return ""
}

// A supervised is a supervisord with one daemon.
type supervised struct {
	t        *testing.T
	db       *dbtest.DB
	dir      string
	mark     string // in the environment of supervisord and its descendants
	programs map[string]string

	pid     int             // supervisord's own
	answers strings.Builder // everything supervisorctl printed
}

func (s *supervised) file(name string) string { return filepath.Join(s.dir, name) }

func (s *supervised) write(name, text string) {
	s.t.Helper()
	if err := os.WriteFile(s.file(name), []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

func (s *supervised) read(name string) string {
	text, err := os.ReadFile(s.file(name))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		s.t.Fatal(err)
	}
	return string(text)
}

// crontab returns a crontab with a schedule whose command runs only while a file called hold
// exists: it writes down its run and continues until that file is removed. The other schedule is
// there to be replaced.
func (s *supervised) crontab(other string) string {
	name, value, _ := strings.Cut(s.mark, "=")
	return fmt.Sprintf(`%s=%s
DIR=%s
# name: job
@every 1s  test -e $DIR/hold || exit 0; echo $DBCRON_DUE $DBCRON_ATTEMPT >$DIR/held; while test -e $DIR/hold; do sleep 0.05; done; test . -ef $HOME && echo $LOGNAME ended well in $HOME
# name: %s
@every 1s  true
`, name, value, s.dir, other)
}

// conf returns the conf file that users get, with this test's paths.
func (s *supervised) conf(binary string) string {
	s.t.Helper()
	me, err := user.Current()
	if err != nil {
		s.t.Fatal(err)
	}
	text, err := os.ReadFile(supervisorConf)
	if err != nil {
		s.t.Fatal(err)
	}
	return replace(s.t, string(text), [][2]string{
		{"command=/usr/local/bin/dbcron serve ", "command=" + binary + " serve "},
		{"--crontab /etc/dbcron/crontab ", "--crontab " + s.file("crontab") + " "},
		{"user=dbcron\n", "user=" + me.Username + "\n"},
		{`HOME="/home/dbcron"`, `HOME="` + s.dir + `"`},
		{`DBCRON_DATABASE_URL_FILE="/etc/dbcron/url"`, `DBCRON_DATABASE_URL_FILE="` + s.file("url") + `"`},
		{"stdout_logfile=/var/log/dbcron.log\n", "stdout_logfile=" + s.file("dbcron.log") + "\n"},
	})
}

// replace fails the test unless each text to be replaced occurs exactly once: otherwise the file
// would not be the expected one.
func replace(t *testing.T, text string, pairs [][2]string) string {
	t.Helper()
	for _, p := range pairs {
		if n := strings.Count(text, p[0]); n != 1 {
			t.Fatalf("%q is there %d times, want once:\n%s", p[0], n, text)
		}
		text = strings.Replace(text, p[0], p[1], 1)
	}
	return text
}

// start starts a supervisord that keeps everything in its folder.
func (s *supervised) start() {
	t := s.t
	t.Helper()
	s.write("supervisord.conf", replace(t, `[unix_http_server]
file=DIR/socket
[rpcinterface:supervisor]
supervisor.rpcinterface_factory = supervisor.rpcinterface:make_main_rpcinterface
[supervisorctl]
serverurl=unix://SOCKET
[supervisord]
logfile=LOG
pidfile=PID
[include]
files=CONF
`, [][2]string{
		{"DIR/socket", s.file("socket")},
		{"SOCKET", s.file("socket")},
		{"LOG", s.file("supervisord.log")},
		{"PID", s.file("supervisord.pid")},
		{"CONF", s.file("dbcron.conf")},
	}))
	// Not the test's context: it ends before the cleanup, and kills.
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), s.programs["supervisord"], "--nodaemon",
		"--configuration", s.file("supervisord.conf"))
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), s.mark}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s.pid = cmd.Process.Pid
	done := make(chan struct{})
	go func() { _ = cmd.Wait(); close(done) }()
	t.Cleanup(func() {
		_ = os.Remove(s.file("hold"))
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-done:
		case <-time.After(patience):
			t.Error("supervisord does not end")
			_ = cmd.Process.Kill()
			<-done
		}
		for _, pid := range processes(s.mark) {
			t.Errorf("process %d is left", pid)
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		if t.Failed() {
			log := strings.Join(slices.DeleteFunc(strings.SplitAfter(s.read("dbcron.log"), "\n"), func(line string) bool {
				return strings.Contains(line, `"state":"ok"`)
			}), "")
			t.Logf("supervisord: %s\nsupervisorctl: %s\ndbcron: %s", out.String(), s.answers.String(), log)
		}
	})
}

// until waits until ok returns true, and fails the test if that never happens.
func (s *supervised) until(what string, ok func() bool) {
	s.t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for limit := time.After(patience); !ok(); {
		select {
		case <-tick.C:
		case <-limit:
			s.t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// logged waits until a log contains a text n times.
func (s *supervised) logged(file, text string, n int) {
	s.t.Helper()
	s.until(fmt.Sprintf("%s says %q %d times", file, text, n), func() bool { return strings.Count(s.read(file), text) >= n })
}

// ctl runs supervisorctl in the background and delivers its answer.
func (s *supervised) ctl(args ...string) <-chan string {
	s.t.Helper()
	answer := make(chan string, 1)
	cmd := exec.CommandContext(s.t.Context(), s.programs["supervisorctl"],
		append([]string{"--configuration", s.file("supervisord.conf")}, args...)...)
	go func() {
		out, err := cmd.CombinedOutput()
		if err != nil {
			out = fmt.Appendf(out, "(%v)", err)
		}
		answer <- strings.TrimSpace(string(out))
	}()
	return answer
}

// answer waits for supervisorctl's answer and fails the test unless it matches pattern.
func (s *supervised) answer(from <-chan string, pattern string) {
	s.t.Helper()
	select {
	case got := <-from:
		fmt.Fprintln(&s.answers, got)
		if !regexp.MustCompile(pattern).MatchString(got) {
			s.t.Fatalf("supervisorctl says %q, want %s", got, pattern)
		}
	case <-time.After(patience):
		s.t.Fatalf("supervisorctl says nothing, want %s", pattern)
	}
}

// running waits until supervisord reports the daemon as running for the nth time, and returns its
// process.
func (s *supervised) running(n int) int {
	s.t.Helper()
	s.logged("supervisord.log", "dbcron entered RUNNING state", n)
	spawned := regexp.MustCompile(`spawned: 'dbcron' with pid (\d+)`).FindAllStringSubmatch(s.read("supervisord.log"), -1)
	if len(spawned) != n {
		s.t.Fatalf("the daemon was started %d times, want %d", len(spawned), n)
	}
	pid, err := strconv.Atoi(spawned[n-1][1])
	if err != nil || parent(pid) != s.pid {
		s.t.Fatalf("%v: this is not a process of supervisord", spawned[n-1])
	}
	return pid
}

// A slot is a run's due time and attempt as its command sees them.
type slot struct {
	due     string
	attempt int
}

// hold keeps a command running until release.
func (s *supervised) hold() slot {
	s.t.Helper()
	_ = os.Remove(s.file("held"))
	s.write("hold", "")
	return s.held(1)
}

// held waits for a running command at the given attempt.
func (s *supervised) held(attempt int) (at slot) {
	s.t.Helper()
	s.until(fmt.Sprintf("a command runs, attempt %d", attempt), func() bool {
		n, _ := fmt.Sscan(s.read("held"), &at.due, &at.attempt) // the file may be half written
		return n == 2 && at.attempt == attempt
	})
	return at
}

func (s *supervised) release() {
	s.t.Helper()
	if err := os.Remove(s.file("hold")); err != nil {
		s.t.Fatal(err)
	}
}

// recorded waits until a run has a state, and fails the test if its state is neither that one nor
// running.
func (s *supervised) recorded(at slot, state string) (found scheduler.Run) {
	s.t.Helper()
	s.until(fmt.Sprintf("%v is %s", at, state), func() bool {
		runs, err := scheduler.History(s.t.Context(), s.db.DB, "job", 1000)
		if err != nil {
			s.t.Fatal(err)
		}
		i := slices.IndexFunc(runs, func(r scheduler.Run) bool {
			return r.Due.Format(time.RFC3339) == at.due && r.Attempt == at.attempt
		})
		if i < 0 {
			return false
		}
		found = runs[i]
		if found.State != state && found.State != "running" {
			s.t.Fatalf("%v is %s (%s), want %s", at, found.State, found.Error, state)
		}
		return found.State == state
	})
	return found
}

// runs expects the daemon to run a command, and leaves the command running.
func (s *supervised) runs() slot {
	s.t.Helper()
	at := s.hold()
	daemon := s.running(1)
	s.answer(s.ctl("status"), fmt.Sprintf(`^dbcron +RUNNING +pid %d, uptime [0-9:]+$`, daemon))
	s.keepsSecrets(append(family(daemon), processOf(s.pid)))
	return at
}

// reloads makes the daemon import its crontab again.
func (s *supervised) reloads() {
	s.t.Helper()
	s.write("crontab", s.crontab("after"))
	s.answer(s.ctl("signal", "HUP", "dbcron"), `^dbcron: signalled$`)
	s.until("the new crontab is imported", func() bool {
		schedules, err := scheduler.List(s.t.Context(), s.db.DB, "", 10)
		if err != nil {
			s.t.Fatal(err)
		}
		names := make([]string, len(schedules))
		for i, schedule := range schedules {
			names[i] = schedule.Name
		}
		slices.Sort(names)
		return slices.Equal(names, []string{"after", "job"})
	})
}

// restarts replaces the daemon whose command runs, and leaves a command of the new one running.
func (s *supervised) restarts(at slot) slot {
	s.t.Helper()
	answer := s.ends(at, 1, "restart", "dbcron")
	at = s.hold()
	s.answer(answer, `^dbcron: stopped\ndbcron: started$`)
	s.running(2)
	return at
}

// crashes kills the daemon whose command runs. Nothing of it is left. The next daemon makes the
// run's second attempt, which is left running.
func (s *supervised) crashes(first slot) slot {
	s.t.Helper()
	daemon := s.running(2)
	killed := family(daemon)
	if len(killed) < 3 {
		s.t.Fatalf("daemon, guardian and command are only %v", killed)
	}
	if err := syscall.Kill(daemon, syscall.SIGKILL); err != nil {
		s.t.Fatal(err)
	}
	s.until("nothing is left of the killed daemon", func() bool { return !slices.ContainsFunc(killed, process.alive) })
	// As if the lease's half minute were over.
	n := s.db.Do(s.t, `UPDATE {prefix}run SET next_exec = {now} WHERE schedule = 'job' AND state = 'running'`, nil)
	if n != 1 {
		s.t.Fatalf("the killed daemon has left %d runs, want one", n)
	}
	second := s.held(2)
	if second.due != first.due {
		s.t.Errorf("attempt 2 is of the slot %s, want %s", second.due, first.due)
	}
	s.recorded(first, "lost")
	s.logged("supervisord.log", "exited: dbcron (terminated by SIGKILL; not expected)", 1)
	return second
}

// stops stops the daemon whose command runs, for good.
func (s *supervised) stops(at slot) {
	s.t.Helper()
	s.answer(s.ends(at, 2, "stop", "dbcron"), `^dbcron: stopped$`)
	if left := processes(s.mark); !slices.Equal(left, []int{s.pid}) {
		s.t.Errorf("processes %v are there, want only supervisord, %d", left, s.pid)
	}
	// The killed daemon may have left another run, whose lease continues.
	var running int
	s.db.Scan(s.t, `SELECT COUNT(*) FROM {prefix}run WHERE state = 'running' AND exec_by = :by`,
		sqlrun.Args{"by": s.recorded(at, "ok").By}, &running)
	if running > 0 {
		s.t.Errorf("%d runs of the stopped daemon are running", running)
	}
	s.keepsSecrets(nil)
}

// ends gives the nth order that ends the daemon. It releases the command once the daemon has
// noticed, and both must end well.
func (s *supervised) ends(at slot, nth int, order ...string) <-chan string {
	s.t.Helper()
	answer := s.ctl(order...)
	s.logged("dbcron.log", `"msg":"stopping"`, nth)
	s.release()
	run := s.recorded(at, "ok")
	if want := "dbcron ended well in " + s.dir; !strings.Contains(run.Output, want) {
		s.t.Errorf("the command's output is %q, want %q", run.Output, want)
	}
	if host, err := os.Hostname(); err != nil || !strings.HasPrefix(run.By, host+":") {
		s.t.Errorf("the run is recorded by %q, want the host's name, %s %v", run.By, host, err)
	}
	s.logged("supervisord.log", "stopped: dbcron (exit status 0)", nth)
	return answer
}

// keepsSecrets looks for the database's URL and its password where others could see them: in
// arguments of processes, in the environment of the daemon and its descendants, in logs, and in
// supervisorctl's answers.
func (s *supervised) keepsSecrets(family []process) {
	s.t.Helper()
	places := map[string]string{"supervisorctl": s.answers.String()}
	arguments, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range arguments {
		text, _ := os.ReadFile(file) // it may have ended
		places[file] = string(text)
	}
	for _, p := range family {
		file := fmt.Sprintf("/proc/%d/environ", p.pid)
		text, _ := os.ReadFile(file)
		places[file] = string(text)
	}
	logs, _ := filepath.Glob(s.file("*.log"))
	if len(logs) != 2 {
		s.t.Fatalf("the logs are %v, want two", logs)
	}
	for _, file := range logs {
		places[file] = s.read(filepath.Base(file))
	}
	u, err := url.Parse(s.db.URL)
	if err != nil {
		s.t.Fatal(err)
	}
	secret := s.db.URL
	if password, ok := u.User.Password(); ok {
		secret = password
	}
	for place, text := range places {
		if strings.Contains(text, s.db.URL) {
			s.t.Errorf("%s has the URL", place)
		} else if strings.Contains(text, secret) && !strings.HasSuffix(place, "/cmdline") {
			s.t.Errorf("%s has the password", place)
		}
	}
}

// A process is identified by its number and its start, since numbers are reused.
type process struct {
	pid   int
	start string
}

// processOf returns the zero process if there is none, or only a zombie.
func processOf(pid int) process {
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	words := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(words) < 20 || words[0] == "Z" {
		return process{}
	}
	return process{pid, words[19]}
}

func (p process) alive() bool { return p != process{} && processOf(p.pid) == p }

// family lists a process and all its descendants.
func family(pid int) []process {
	var all []process
	if p := processOf(pid); p.alive() {
		all = append(all, p)
	}
	for _, child := range children(pid) {
		all = append(all, family(child)...)
	}
	return all
}

// givesTime expects both kinds of conf files to allow a stopping daemon its full time.
func givesTime(t *testing.T, binary string) {
	t.Helper()
	help, err := exec.CommandContext(t.Context(), binary, "serve", "--help").Output()
	if err != nil {
		t.Fatal(err)
	}
	for file, limit := range map[string]string{supervisorConf: "stopwaitsecs", systemdUnit: "TimeoutStopSec"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		given, err := time.ParseDuration(setting(text, `(?m)^`+limit+`=(\d+)$`) + "s")
		if err != nil {
			t.Fatalf("%s: %s: %v", file, limit, err)
		}
		grace, err := time.ParseDuration(cmp.Or(setting(text, `(?m)^[^;#].* --grace[= ](\S+)`),
			setting(help, `--grace duration .*\(default (.+)\)`)))
		if err != nil {
			t.Fatalf("%s: --grace: %v", file, err)
		}
		if given <= grace+afterGrace {
			t.Errorf("%s: %s is %v, want more than %v, which is --grace, and %v", file, limit, given, grace, afterGrace)
		}
	}
}

// setting returns what a pattern captures, or "".
func setting(text []byte, pattern string) string {
	if found := regexp.MustCompile(pattern).FindSubmatch(text); found != nil {
		return string(found[1])
	}
	return ""
}

// The unit is valid, as it is and with the settings that it suggests.
func TestSupervisedBySystemd(t *testing.T) {
	analyze := tool(t, "systemd-analyze", "systemd")
	text, err := os.ReadFile(systemdUnit)
	if err != nil {
		t.Fatal(err)
	}
	// systemd-analyze checks that the program exists.
	asIs := replace(t, string(text), [][2]string{{"/usr/local/bin/dbcron ", "/bin/sh "}})
	suggested := regexp.MustCompile(`(?m)^#([A-Z]\w+=)`).ReplaceAllString(asIs, "$1")
	if suggested == asIs {
		t.Error("the unit suggests nothing")
	}
	for _, unit := range []string{asIs, suggested} {
		file := filepath.Join(t.TempDir(), filepath.Base(systemdUnit))
		if err := os.WriteFile(file, []byte(unit), 0o600); err != nil {
			t.Fatal(err)
		}
		// Unknown settings cause only warnings.
		out, err := exec.CommandContext(t.Context(), analyze, "verify", "--man=no", "--recursive-errors=no", file).CombinedOutput()
		if err != nil || len(out) > 0 {
			t.Errorf("systemd-analyze: %v\n%s\n%s", err, out, unit)
		}
	}
}
