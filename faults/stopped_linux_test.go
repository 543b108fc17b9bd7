package faults

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/scheduler"
)

func init() { roles["functions"] = playFunctions }

// playFunctions runs schedules of kind func, and notes their begins.
func playFunctions(ctx context.Context, a *actor) error {
	file, err := os.OpenFile(a.File, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	s, err := scheduler.New(a.db, scheduler.Options{
		Lease: a.TTL, Kinds: []string{scheduler.Functions}, MaxRuns: a.Concurrency, Grace: time.Second, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	err = s.Handle("note", func(ctx context.Context, run *scheduler.Running) error {
		beginning{"run", run.Schedule, run.Due.Format(time.RFC3339), run.ID, os.Getpid()}.write(file)
		return wait(ctx, 100*time.Millisecond)
	})
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		for order := range a.orders {
			if order == "stop" {
				stop()
			}
		}
	}()
	say("stopped", s.Run(ctx))
	return nil
}

// A beginning is a line of a file in which all processes note what they begin.
type beginning struct {
	what, name, due string // run: of a schedule, and its slot; exec: of a job's command; lock: of its holder; mark: of the test
	id              int64  // of the run or job
	pid             int    // of the process whose lease it is, if that is known
}

func (b beginning) write(file *os.File) {
	if _, err := fmt.Fprintf(file, "%s %s %s %d %d\n", b.what, b.name, b.due, b.id, b.pid); err != nil {
		panic(err)
	}
}

// noteBegin is the line of a shell that does so. The process is the parent of the command's guardian.
func noteBegin(file, what, name, due, id string) string {
	return fmt.Sprintf(`echo "%s %s %s %s $(sed -n 's/^PPid:[[:space:]]*//p' /proc/$PPID/status)" >> %s`, what, name, due, id, file)
}

func readBegins(t *testing.T, name string) (all []beginning) {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for row := range strings.Lines(string(text)) {
		var b beginning
		if n, err := fmt.Sscan(row, &b.what, &b.name, &b.due, &b.id, &b.pid); n < 4 { // a guardian that has just ended has no parent
			t.Fatalf("%q: %v", row, err)
		}
		all = append(all, b)
	}
	return all
}

// A shift is one process of each kind of work.
type shift struct {
	daemon, exec, lock *daemon
	functions, jobs    *child
}

func (s *shift) processes() []*os.Process {
	return []*os.Process{s.daemon.cmd.Process, s.exec.cmd.Process, s.lock.cmd.Process, s.functions.cmd.Process, s.jobs.cmd.Process}
}

func (s *shift) has(pid int) bool {
	return slices.ContainsFunc(s.processes(), func(p *os.Process) bool { return p.Pid == pid })
}

// A stay is a test whose processes are stopped for longer than their leases.
type stay struct {
	*rig
	w     *workshop
	file  string // of begins
	notes *os.File

	stopped int64 // when the first shift was stopped, by the database's clock, in µs
}

const stayLease = 3 * time.Second

func (s *stay) begins(n int) *shift {
	s.t.Helper()
	name := func(what string) string { return fmt.Sprint(what, "-", n) }
	url, lease := s.db.URL, stayLease.String()
	return &shift{
		daemon: s.serve(s.binary, name("web"), "--poll", "200ms", "--max-runs", "6", "--only", "schedules"),
		exec: s.run(s.binary, name("exec"), "worker", "exec", "--queue", "shell", "--lease", lease, "--concurrency", "3", "--grace", "1s", "--",
			"sh", "-c", noteBegin(s.file, "exec", "-", "-", "$DBCRON_JOB_ID")+"; sleep 0.2"),
		lock: s.run(s.binary, name("lock"), "lock", "run", "one", "--ttl", lease, "--kill-grace", "100ms", "--",
			"sh", "-c", "while :; do "+noteBegin(s.file, "lock", "-", "-", "0")+"; sleep 0.1; done"),
		functions: start(s.t, "functions", part{URL: url, File: s.file, TTL: stayLease, Concurrency: 4}),
		jobs:      start(s.t, "queue worker", part{URL: url, Name: "work", File: s.w.file, TTL: stayLease, Concurrency: 2}),
	}
}

// signal sends a signal to all of a shift. The one with the lock ends when it has lost it, which several short stops may bring about.
func (s *stay) signal(to *shift, sig syscall.Signal) {
	s.t.Helper()
	for _, p := range to.processes() {
		if err := p.Signal(sig); err != nil && (p != to.lock.cmd.Process || !errors.Is(err, os.ErrProcessDone)) {
			s.t.Error(err)
		}
	}
}

// Processes of each kind of work (commands, functions and requests of schedules, handlers of jobs, commands of worker
// exec and lock run) are stopped together for much longer than their leases, with more work than they can do; others
// take over. When they go on they begin nothing that others have taken over, nothing that must not be repeated has
// begun twice, and what completes jobs in its transaction has happened once.
func TestStoppedForLongerThanTheLease(t *testing.T) {
	long(t)
	t.Parallel()
	binary := build(t)
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		dir := t.TempDir()
		s := &stay{rig: &rig{t: t, db: db, binary: binary, dir: dir, lease: stayLease, grace: time.Second}, w: newWorkshop(t, db), file: filepath.Join(dir, "begins")}
		var err error
		if s.notes, err = os.OpenFile(s.file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600); err != nil {
			t.Fatal(err)
		}
		defer s.notes.Close()
		s.addWork()
		late := s.begins(1)
		begun := func(what string, n int, by *shift) func() bool {
			return func() bool {
				all := slices.DeleteFunc(readBegins(t, s.file), func(b beginning) bool { return b.what != what || b.pid != 0 && !by.has(b.pid) })
				return len(all) >= n
			}
		}
		for _, what := range []string{"run", "request", "exec", "lock"} {
			s.w.until(what+" begins", begun(what, 5, late))
		}
		s.w.until("jobs begin", func() bool { return s.jobsBegun(late) >= 5 })
		s.w.until("all are stopped, and keep nobody from writing", func() bool {
			s.signal(late, syscall.SIGSTOP)
			free := s.w.writable()
			if !free {
				s.signal(late, syscall.SIGCONT)
			}
			return free
		})
		db.Scan(t, `SELECT {us {now}}`, nil, &s.stopped)
		others := s.begins(2)
		_ = wait(t.Context(), 2*stayLease)
		for _, what := range []string{"run", "exec", "lock"} {
			s.w.until(what+" begins elsewhere", begun(what, 5, others))
		}
		s.w.until("jobs begin elsewhere", func() bool { return s.jobsBegun(others) >= 5 })
		jobsBefore, err := readDiary(s.w.file)
		if err != nil {
			t.Fatal(err)
		}
		beginning{what: "mark", name: "-", due: "-"}.write(s.notes)
		s.signal(late, syscall.SIGCONT)
		s.w.until("all jobs are done", func() bool {
			return len(db.List(t, `SELECT id FROM {prefix}job WHERE id > 0 UNION ALL SELECT id FROM {prefix}job_running
				UNION ALL SELECT id FROM {prefix}job_delayed WHERE id > 0`, nil)) == 0
		})
		_ = wait(t.Context(), 2*time.Second)
		s.end(late, others)
		s.judgeRuns()
		s.judgeJobs(late, others, jobsBefore)
		s.judgeLock(late, others)
	}, (*testing.T).Parallel)
}

// addWork adds schedules, and jobs, more than the processes can do.
func (s *stay) addWork() {
	s.t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		name, _ := strconv.Unquote(r.Header.Get("Dbcron-Schedule"))
		id, _ := strconv.ParseInt(r.Header.Get("Dbcron-Run-Id"), 10, 64)
		beginning{"request", name, r.Header.Get("Dbcron-Due"), id, 0}.write(s.notes)
		_ = wait(r.Context(), 300*time.Millisecond)
	}))
	s.t.Cleanup(server.Close)
	command := noteBegin(s.file, "run", "$DBCRON_SCHEDULE", "$DBCRON_DUE", "$DBCRON_RUN_ID") + "; sleep 0.3"
	for i := range 60 {
		job := scheduler.Schedule{Name: fmt.Sprintf("function-%d", i), Spec: "@every 1s", Kind: "func", Command: "note"}
		switch {
		case i < 10:
			job.Name, job.Kind, job.Command = fmt.Sprintf("command-%d", i), "shell", command
		case i < 20:
			job.Name, job.Kind, job.Command = fmt.Sprintf("request-%d", i), "http", "POST "+server.URL
		}
		job.Policy = scheduler.Policy{Unrepeatable: i%2 == 1, Overlap: "queue"}
		if err := scheduler.Add(s.t.Context(), s.db.DB, job); err != nil {
			s.t.Fatal(err)
		}
	}
	s.db.Do(s.t, "CREATE TABLE effects (job BIGINT NOT NULL)", nil)
	jobs := make([]queue.Job, 300)
	for i := range jobs {
		jobs[i] = queue.Job{Kind: "brief"}
		if i%10 < 2 {
			jobs[i].Kind = []string{"tx", "slow"}[i%10]
		}
	}
	s.w.enqueue(jobs...)
	for i := range jobs {
		jobs[i] = queue.Job{Queue: "shell", Kind: "x"}
	}
	if _, err := s.w.c.EnqueueMany(s.t.Context(), jobs); err != nil {
		s.t.Fatal(err)
	}
}

// jobsBegun returns how many jobs a shift's handlers have begun.
func (s *stay) jobsBegun(by *shift) (n int) {
	s.t.Helper()
	all, err := readDiary(s.w.file)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, l := range all {
		if l.what == "start" && by.has(l.pid) {
			n++
		}
	}
	return n
}

// end stops all processes.
func (s *stay) end(shifts ...*shift) {
	s.t.Helper()
	for _, all := range shifts {
		all.daemon.stop()
		all.exec.stop()
		all.functions.tell("stop")
		all.functions.hear("stopped")
		all.jobs.tell("stop")
		all.jobs.hear("stopped")
		if !all.lock.ended() {
			all.lock.signal(syscall.SIGTERM)
			<-all.lock.done
		}
	}
}

// judgeRuns checks the begins of runs against their rows. A run that somebody has claimed later and lost proves nothing: on a busy machine
// a lease may end in any process.
func (s *stay) judgeRuns() {
	s.t.Helper()
	state := map[int64]string{}
	for _, row := range s.db.List(s.t, `SELECT id, CASE WHEN started_at <= {time :stopped} THEN state ELSE 'claimed later' END FROM {prefix}run`,
		sqlrun.Args{"stopped": s.stopped}) {
		id, of, _ := strings.Cut(row, " ")
		n, _ := strconv.ParseInt(id, 10, 64)
		state[n] = of
	}
	marked, byRun, bySlot, kinds, lost, sent := false, map[int64]int{}, map[string]int{}, map[string]int{}, 0, 0
	for _, b := range readBegins(s.t, s.file) {
		switch b.what {
		case "mark":
			marked = true
		case "run", "request":
			kind, number, _ := strings.Cut(b.name, "-")
			kinds[kind]++
			if byRun[b.id]++; byRun[b.id] > 1 {
				s.t.Errorf("run %d of %s has begun %d times", b.id, b.name, byRun[b.id])
			}
			if odd, _ := strconv.Atoi(number); odd%2 == 1 {
				if bySlot[b.name+b.due]++; bySlot[b.name+b.due] > 1 {
					s.t.Errorf("the slot %s of %s, which must not be repeated, has begun %d times", b.due, b.name, bySlot[b.name+b.due])
				}
			}
			switch {
			case state[b.id] == "lost" && marked && b.what == "request" && sent == 0:
				sent++ // it may have been on its way when its daemon was stopped
			case state[b.id] == "lost" && marked:
				s.t.Errorf("run %d of %s was lost, and has begun after that", b.id, b.name)
			case state[b.id] == "lost":
				lost++
			}
		}
	}
	s.t.Logf("%v begins; %d runs were lost after their begin", kinds, lost)
	if lost == 0 {
		s.t.Error("nothing was lost: the test has shown nothing")
	}
}

// lostLease reports whether a process has lost a lease of its workers: then it has entered again, under another name. On a busy machine that
// may happen to any, and what it had begun is anybody's.
func (s *stay) lostLease(of *os.Process) bool {
	names := s.db.List(s.t, "SELECT name FROM {prefix}node WHERE name LIKE :like", sqlrun.Args{"like": fmt.Sprintf("%%:%d:%%", of.Pid)})
	if len(names) > 1 {
		s.t.Logf("the machine is busy: %q", names)
	}
	return len(names) > 1
}

// judgeJobs checks that those who were stopped have begun no job again that others had begun.
func (s *stay) judgeJobs(late, others *shift, before []line) {
	s.t.Helper()
	after, err := readDiary(s.w.file)
	if err != nil {
		s.t.Fatal(err)
	}
	taken := map[int64]bool{}
	for _, l := range before {
		taken[l.id] = taken[l.id] || others.has(l.pid)
	}
	jobsLost, execLost := s.lostLease(others.jobs.cmd.Process), s.lostLease(others.exec.cmd.Process)
	for _, l := range after[len(before):] {
		if l.what == "start" && late.has(l.pid) && taken[l.id] && !jobsLost {
			s.t.Errorf("job %d was begun again by the process that had been stopped", l.id)
		}
	}
	for _, row := range s.db.List(s.t, "SELECT job, COUNT(*) FROM effects GROUP BY job HAVING COUNT(*) > 1", nil) {
		s.t.Errorf("the effect of a job happened several times: %s", row)
	}
	if n := len(s.db.List(s.t, "SELECT job FROM effects", nil)); n != 30 {
		s.t.Errorf("%d effects, want 30", n)
	}
	marked := false
	clear(taken)
	for _, b := range readBegins(s.t, s.file) {
		switch {
		case b.what == "mark":
			marked = true
		case b.what != "exec":
		case others.has(b.pid):
			taken[b.id] = true
		case marked && late.has(b.pid) && taken[b.id] && !execLost:
			s.t.Errorf("the command of job %d was begun again by the worker that had been stopped", b.id)
		}
	}
}

// judgeLock checks that the lock had one holder at a time.
func (s *stay) judgeLock(late, others *shift) {
	s.t.Helper()
	next := false
	for _, b := range readBegins(s.t, s.file) {
		if b.what != "lock" {
			continue
		}
		next = next || others.has(b.pid)
		if next && !others.has(b.pid) {
			s.t.Errorf("process %d still holds the lock while the next one has it; the first one was %d", b.pid, late.lock.cmd.Process.Pid)
			return
		}
	}
}
