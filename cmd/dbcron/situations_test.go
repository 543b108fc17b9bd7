package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dashboard"
	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/httpapi"
	"github.com/dbcron/dbcron/internal/ops/health"
	"github.com/dbcron/dbcron/internal/sqlrun"
)

// A stage is a database in which a situation is prepared.
type stage struct {
	*testing.T
	db    *dbtest.DB
	url   string       // that commands get
	pages http.Handler // nil: nobody can see any
	at    time.Time    // when it was set
	id    int64        // of the run or the job that the situation is about
	user  string       // whom it connects as; "": the owner
	ends  func()       // ends it
	clock bool         // it is about the host's clock, of which a busy machine's answer is late otherwise
}

// open has the pages show what a URL leads to, and commands take that, too.
func (s *stage) open(url string) *dialect.DB {
	s.Helper()
	db := s.db.DB
	if s.url = url; url != s.db.URL {
		db = dbtest.Open(s.T, url, dialect.Options{}).DB
	}
	api, err := httpapi.New(db, httpapi.Options{})
	dbtest.Must(s.T, err)
	s.Cleanup(api.Close)
	s.pages, err = dashboard.New(db, api, dashboard.Options{Timeout: 5 * time.Minute})
	dbtest.Must(s.T, err)
	return db
}

// A situation is one in which work does not go on. The first line of doctor, of the overview and of explain is its cause, and doing what
// it says ends that.
type situation struct {
	name    string
	make    func(s *stage)
	found   string // by doctor and on the overview: parts of the first line, separated by …; empty: that is no finding
	explain string // the command line, without the id of a job
	why     string // parts of its first cause, and of what it says to do, or of its error
	use     string // with what the command begins that it says; empty: none is typed
	then    func(s *stage)
}

// daemon has a live daemon of the tag default.
func (s *stage) daemon() {
	s.Helper()
	s.db.Do(s.T, `INSERT INTO {prefix}node (name, state, expire_at, tags) VALUES ('host:1:x', 'live', {now + 3600000000}, 'default')`, nil)
}

// schedule adds a schedule, with slots every hour unless there is another spec.
func (s *stage) schedule(name string, more ...string) {
	s.Helper()
	if !strings.Contains(strings.Join(more, " "), "--spec") {
		more = append([]string{"--spec", "@every 1h"}, more...)
	}
	if !strings.Contains(strings.Join(more, " "), "--job") {
		more = append(more, "--sql", "SELECT 1")
	}
	dbcron(s.T, s.db, append([]string{"schedule", "add", name}, more...)...)
}

// plan sets by how many minutes the next slot of a schedule is over, or to come if they are negative.
func (s *stage) plan(name string, ago int) {
	s.Helper()
	s.db.Do(s.T, `UPDATE {prefix}schedule SET due_at = {now + :us}, next_exec = {now + :us} WHERE name = :name`,
		sqlrun.Args{"name": name, "us": -int64(ago) * 60_000_000})
}

// run writes a run of a schedule whose slot was some minutes ago, and returns its id. Open ones have their next time in next minutes.
func (s *stage) run(name string, ago, attempt int, state string, next int, reason, output string) int64 {
	s.Helper()
	open := `NULL`
	if next != 0 {
		open = `{now + :next}`
	}
	s.db.Do(s.T, `INSERT INTO {prefix}run (schedule, due_at, attempt, state, exec_by, started_at, finished_at, next_exec, claim, fence, error, output)
		VALUES (:name, {time :due}, :attempt, :state, 'host:1:x', {time :due}, CASE WHEN :state IN ('running', 'waiting') THEN NULL ELSE {time :due} END,
			`+open+`, CASE WHEN :state = 'running' THEN 'c' ELSE NULL END, 1, :error, :output)`,
		sqlrun.Args{
			"name": name, "due": s.at.Add(-time.Duration(ago) * time.Minute).UnixMicro(), "attempt": attempt, "state": state, "next": int64(next) * 60_000_000, "error": reason, "output": output,
		})
	s.db.Scan(s.T, `SELECT MAX(id) FROM {prefix}run`, nil, &s.id)
	return s.id
}

// job enqueues a job of the queue mail that has waited for two minutes.
func (s *stage) job() {
	s.Helper()
	const idBits = 12
	dbcron(s.T, s.db, "job", "enqueue", "x", "--queue", "mail")
	s.db.Do(s.T, `UPDATE {prefix}job SET id = id - :two WHERE id > 0`, sqlrun.Args{"two": int64(2*time.Minute/time.Microsecond) << idBits})
	s.db.Scan(s.T, `SELECT MAX(id) FROM {prefix}job`, nil, &s.id)
}

// worker has the queue mail have a worker, with all its blocks.
func (s *stage) worker() {
	s.Helper()
	s.db.Do(s.T, `INSERT INTO {prefix}node (name, state, expire_at) VALUES ('host:2:w', 'live', {now + 3600000000})`, nil)
	s.db.Do(s.T, `INSERT INTO {prefix}queue_worker (queue_id, node) SELECT queue_id, 'host:2:w' FROM {prefix}queue WHERE name = 'mail'`, nil)
	s.db.Do(s.T, `UPDATE {prefix}queue_block SET state = 'LEASED', lock_by = 'host:2:w'`, nil)
}

// role has commands and pages connect as a user of the engine, who may do what a daemon does, but for what a statement, which ends with
// its name, takes away.
func (s *stage) role(revoke string) {
	s.Helper()
	if s.db.Dialect.Holdings == nil {
		s.Skip("whoever can read the file may do everything")
	}
	name, asUser := restricted(s.T, s.db)
	for _, grant := range documentedGrants(s.T, s.db, health.DaemonRole, name) {
		s.db.Do(s.T, grant, nil)
	}
	if !s.db.Dialect.Schema {
		name += "@'%'"
	}
	if revoke != "" {
		s.db.Do(s.T, revoke+name, nil)
	}
	s.user = name
	s.bound(50) // MySQL counts no connections that began without a limit
	s.open(asUser)
}

// bound says how many connections the user may have.
func (s *stage) bound(n int) {
	s.Helper()
	alter := `ALTER USER %s WITH MAX_USER_CONNECTIONS %d`
	if s.db.Dialect.Schema {
		alter = `ALTER ROLE %s CONNECTION LIMIT %d`
	}
	s.db.Do(s.T, fmt.Sprintf(alter, s.user, n), nil)
}

// frozen has a daemon that is stopped, and whose lease is over.
func (s *stage) frozen() {
	s.Helper()
	if !s.db.Dialect.Schema {
		s.Skip("what happens when processes stand still, PostgreSQL shows")
	}
	c := exec.CommandContext(s.Context(), "dbcron", "serve", "--listen", "off", "--lease", "10m")
	c.Env = append(os.Environ(), "DBCRON_DATABASE_URL="+s.url)
	dbtest.Must(s.T, c.Start())
	s.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
	for live := 0; live == 0; s.db.Scan(s.T, `SELECT COUNT(*) FROM {prefix}node WHERE state = 'live' AND tags <> ''`, nil, &live) {
	}
	dbtest.Must(s.T, c.Process.Signal(syscall.SIGSTOP))
	var is syscall.WaitStatus
	_, err := syscall.Wait4(c.Process.Pid, &is, syscall.WUNTRACED, nil)
	dbtest.Must(s.T, err)
	s.db.Do(s.T, `UPDATE {prefix}node SET expire_at = {now + -60000000}`, nil)
}

// ended returns what becomes of the situation by a statement.
func ended(statement string) func(s *stage) {
	return func(s *stage) { s.db.Do(s.T, statement, nil) }
}

var situations = []situation{
	{
		"no daemon",
		func(s *stage) { s.schedule("nightly"); s.plan("nightly", 10) },
		"No daemon is at work…1 schedule is late because of it…start one: dbcron serve",
		"schedule explain nightly", "no daemon is at work…start one: dbcron serve", "serve", nil,
	},
	{
		"a dead daemon's run",
		func(s *stage) {
			s.schedule("nightly")
			s.plan("nightly", -50)
			s.run("nightly", 10, 1, "running", -5, "", "")
		},
		"No daemon is at work…start one: dbcron serve",
		"schedule explain nightly", "no daemon is at work…start one: dbcron serve", "serve", nil,
	},
	{
		"no daemon with the tag",
		func(s *stage) { s.daemon(); s.schedule("nightly", "--tag", "gpu"); s.plan("nightly", 10) },
		"Schedules need the tag gpu, and no live daemon has it…1 schedule is late because of it…dbcron serve --tag gpu",
		"schedule explain nightly", "no live daemon has the tag gpu…dbcron serve --tag gpu", "serve --tag", nil,
	},
	{
		"drained daemon",
		func(s *stage) {
			s.daemon()
			s.schedule("nightly")
			s.plan("nightly", 10)
			s.db.Do(s.T, `UPDATE {prefix}node SET drained_at = {now}`, nil)
		},
		"Schedules need the tag default, and every daemon that has it is drained…1 schedule is late because of it…dbcron node undrain host:1",
		"schedule explain nightly", "every daemon that has the tag default is drained…dbcron node undrain host:1", "node undrain", nil,
	},
	{
		"busy daemon",
		func(s *stage) {
			s.daemon()
			s.schedule("nightly")
			s.schedule("long")
			s.plan("long", -50)
			s.plan("nightly", 10)
			s.run("long", 20, 1, "running", 1, "", "")
		},
		"Schedule nightly is late: no daemon has claimed its slot…dbcron schedule explain nightly",
		"schedule explain nightly", "no daemon has claimed it; these run such schedules now: host:1:x…(--max-runs)", "", nil,
	},
	{
		"paused schedule",
		func(s *stage) {
			s.daemon()
			s.schedule("nightly")
			dbcron(s.T, s.db, "schedule", "pause", "nightly", "--reason", "the disk is full")
		},
		"Schedule nightly is paused…the disk is full…dbcron schedule resume nightly",
		"schedule explain nightly", "it is paused, by …: the disk is full…dbcron schedule resume nightly", "schedule resume", nil,
	},
	{
		"schedule that was given up",
		func(s *stage) {
			s.daemon()
			s.schedule("nightly")
			s.db.Do(s.T, `UPDATE {prefix}schedule SET state = 'failed', reason = 'no such zone: Mars', next_exec = NULL`, nil)
		},
		"Schedule nightly was given up…no such zone: Mars…dbcron schedule resume nightly",
		"schedule explain nightly", "it was given up: no such zone: Mars…dbcron schedule resume nightly", "schedule resume", nil,
	},
	{
		"claim that fails",
		func(s *stage) {
			s.daemon()
			s.schedule("nightly")
			s.plan("nightly", 10)
			s.db.Do(s.T, `UPDATE {prefix}schedule SET reason = 'permission denied', next_exec = {now + 30000000}`, nil)
		},
		"Schedule nightly is late: daemons cannot claim it: permission denied…dbcron schedule explain nightly",
		"schedule explain nightly", "daemons cannot claim it: permission denied…dbcron doctor", "",
		ended(`UPDATE {prefix}schedule SET reason = '', due_at = {now + 3600000000}, next_exec = {now + 3600000000}`),
	},
	{
		"run under way",
		func(s *stage) {
			s.daemon()
			s.schedule("nightly")
			s.plan("nightly", -50)
			run := s.run("nightly", 300, 1, "running", 1, "", "")
			s.run("nightly", 240, 1, "skipped", 0, "the run before was still under way", "")
			s.db.Do(s.T, `UPDATE {prefix}run SET slots = 4, due_to = {now} WHERE state = 'skipped'`, nil)
			s.id = run
		},
		"Slots of nightly are skipped…4 slots were, since run ID is still under way on host:1:x…dbcron schedule cancel ID",
		"schedule explain nightly", "it runs now, since …on host:1:x: run ID; 4 slots were skipped meanwhile…dbcron schedule cancel ID", "schedule cancel",
		ended(`UPDATE {prefix}run SET state = 'cancelled', next_exec = NULL, claim = NULL, finished_at = {now} WHERE cancel IS NOT NULL`),
	},
	{
		"command that is not found",
		func(s *stage) {
			s.daemon()
			s.schedule("nightly")
			s.plan("nightly", -50)
			s.run("nightly", 70, 1, "ok", 0, "", "")
			s.run("nightly", 10, 1, "failed", 0, "exit code 127", "begins\nsh: 1: bakcup: not found\n")
		},
		"A run of nightly failed…exit code 127: sh: 1: bakcup: not found…dbcron schedule output ID",
		"schedule explain nightly", "its last run failed: exit code 127: sh: 1: bakcup: not found…dbcron schedule output ID", "schedule output",
		func(s *stage) { s.run("nightly", 0, 1, "ok", 0, "", "") },
	},
	{
		"retry",
		func(s *stage) {
			s.daemon()
			s.schedule("nightly", "--max-attempts", "3")
			s.plan("nightly", -50)
			s.run("nightly", 10, 1, "failed", 0, "exit code 1", "no route to host\n")
			s.run("nightly", 10, 2, "waiting", 40, "", "")
		},
		"",
		"schedule explain nightly", "it is tried again at …, after attempt 1: failed: exit code 1…dbcron schedule cancel ID", "schedule cancel", nil,
	},
	{
		"schedule that follows one that fails",
		func(s *stage) {
			s.daemon()
			s.schedule("report", "--spec", "@manual")
			s.schedule("fetch", "--on-success", "report")
			s.plan("fetch", -50)
			s.run("fetch", 10, 1, "failed", 0, "exit code 3", "")
		},
		"A run of fetch failed…exit code 3…dbcron schedule run fetch",
		"schedule explain report", "it runs when fetch succeeds, whose last run, …, was failed: exit code 3…dbcron schedule explain fetch", "schedule explain fetch",
		func(s *stage) { s.run("fetch", 0, 1, "ok", 0, "", "") },
	},
	{
		"slot far away, in a zone",
		func(s *stage) {
			s.daemon()
			s.schedule("leap", "--spec", "0 0 29 2 *", "--time-zone", "Asia/Tokyo")
			s.db.Do(s.T, `UPDATE {prefix}schedule SET due_at = {time :due}, next_exec = {time :due}`,
				sqlrun.Args{"due": time.Date(2048, 2, 28, 15, 0, 0, 0, time.UTC).UnixMicro()})
		},
		"",
		"schedule explain leap", "nothing is wrong: it waits for its next slot…2048-02-28T15:00:00", "", nil,
	},
	{
		"its job without a worker",
		func(s *stage) {
			s.daemon()
			s.schedule("digest", "--spec", "@manual", "--job", "x", "--job-queue", "mail")
			s.job()
			job := s.id
			s.run("digest", 2, 1, "ok", 0, "", fmt.Sprintf("job %d in queue mail\n", job))
			s.id = job
			s.db.Do(s.T, `UPDATE {prefix}run SET lane = 'default job'`, nil)
		},
		"No worker serves queue mail…1 ready…start a worker for it",
		"schedule explain digest", "its last job, ID in queue mail, has not been done: no worker serves its queue…start a worker for it", "", (*stage).worker,
	},
	{
		"only worker killed",
		func(s *stage) {
			s.job()
			s.worker()
			s.db.Do(s.T, `UPDATE {prefix}node SET expire_at = {now + -60000000}`, nil)
			for _, args := range [][]string{{"queue", "list"}, {"queue", "show", "mail"}} {
				if out := dbcron(s.T, s.db, args...); !strings.Contains(out, "host:2 was lost 1m") {
					s.Errorf("%s does not say that the worker was lost:\n%s", args, out)
				}
			}
		},
		"No worker serves queue mail: host:2 was lost 1m…ago; 1 ready…start a worker for it",
		"job explain", "no worker serves its queue: host:2 was lost 1m…ago…start a worker for it", "",
		ended(`UPDATE {prefix}node SET expire_at = {now + 3600000000}`),
	},
	{
		"drained worker",
		func(s *stage) {
			s.job()
			s.worker()
			s.db.Do(s.T, `UPDATE {prefix}node SET drained_at = {now}, drained_by = 'ada'`, nil)
		},
		"Queue mail is behind: all workers of its queue are drained, as ada wants; 1 ready…dbcron node undrain host:2",
		"job explain", "all workers of its queue are drained, as ada wants…dbcron node undrain host:2", "node undrain", nil,
	},
	{
		"block without a holder",
		func(s *stage) {
			s.job()
			s.worker()
			s.db.Do(s.T, `UPDATE {prefix}queue_block SET state = 'FREE', lock_by = ''`, nil)
		},
		"Queue mail is behind: no worker has its block, …dbcron queue show mail",
		"job explain", "no worker has its block, …dbcron queue show mail", "queue show",
		ended(`UPDATE {prefix}queue_block SET state = 'LEASED', lock_by = 'host:2:w'`),
	},
	{
		"endpoint that pushes back",
		func(s *stage) {
			s.job()
			s.worker()
			s.db.Do(s.T, `INSERT INTO {prefix}endpoint_answers (queue_id, answers) SELECT queue_id, :said FROM {prefix}queue WHERE name = 'mail'`,
				sqlrun.Args{"said": fmt.Sprintf(`[{"at": %d, "status": 503, "error": "HTTP 503", "by": "host:2:w", "failures": 4, "until": %d}]`,
					s.now().UnixMicro(), s.now().Add(time.Hour).UnixMicro())})
		},
		"Queue mail is behind: its endpoint holds it up: 4 failures in a row; …HTTP 503; 1 ready…dbcron endpoint show mail",
		"job explain", "its endpoint holds it up: 4 failures in a row; …HTTP 503…dbcron endpoint show mail", "",
		ended(`DELETE FROM {prefix}endpoint_answers`),
	},
	{
		"handlers without connections",
		func(s *stage) { s.job(); s.worker(); s.db.Do(s.T, `UPDATE {prefix}queue_worker SET busy = 3`, nil) },
		"Queue mail is behind: it waits for a slot of its worker…wait for connections…1 ready…make the pool larger",
		"job explain", "it waits for a slot of its worker. The handlers of 1 worker of queue mail wait for connections…make the pool larger", "",
		ended(`UPDATE {prefix}queue_worker SET busy = 0`),
	},
	{
		"paused queue",
		func(s *stage) {
			s.job()
			s.worker()
			dbcron(s.T, s.db, "queue", "pause", "mail", "--reason", "the relay is down")
		},
		"Queue mail is paused…the relay is down…dbcron queue resume mail",
		"job explain", "its queue is paused, by …: the relay is down…dbcron queue resume mail", "queue resume", nil,
	},
	{
		"rate",
		func(s *stage) {
			s.job()
			s.worker()
			dbcron(s.T, s.db, "limit", "set", "mail", "--rate", "1/h")
			s.db.Do(s.T, `UPDATE {prefix}queue_limit SET drawn_at = {now}`, nil)
		},
		"Jobs of queue mail are held up…it is at the limit of its queue: 1/h; the next one begins at …dbcron limit set mail --rate",
		"job explain", "it is at the limit of its queue: 1/h; the next one begins at …dbcron limit set mail --rate RATE", "",
		func(s *stage) { dbcron(s.T, s.db, "limit", "set", "mail", "--rate", "100/s") },
	},
	{
		"notification that cannot be delivered",
		func(s *stage) {
			s.daemon()
			s.job()
			s.db.Do(s.T, `DELETE FROM {prefix}job`, nil)
			s.db.Do(s.T, `UPDATE {prefix}queue SET name = 'dbcron.notify' WHERE name = 'mail'`, nil)
			s.db.Do(s.T, `INSERT INTO {prefix}job_delayed (queue_id, divided, id, run_at, attempt, error, kind, payload)
				SELECT queue_id, 0, :id, {now + 3600000000}, 2, 'connection refused', 'mail', :payload FROM {prefix}queue`,
				sqlrun.Args{"id": s.id, "payload": `{"target": "ops@example.org"}`})
		},
		"Notifications to ops@example.org cannot be delivered…connection refused…dbcron job retry ID",
		"job explain", "it waits for its retry at …, after attempt 2 failed: connection refused…dbcron job retry ID", "job retry",
		ended(`DELETE FROM {prefix}job_delayed`),
	},
	{
		"clock that went back",
		func(s *stage) {
			s.clock = true
			s.daemon()
			s.schedule("nightly", "--spec", "0 3 * * *")
			dbcron(s.T, s.db, "lock", "run", "report", "--ttl", "10s", "--", "true")
			s.db.Do(s.T, `UPDATE {prefix}schedule SET update_time = {now + 3500000000}, due_at = {now + 3600000000}, next_exec = {now + 3600000000}`, nil)
			s.db.Do(s.T, `UPDATE {prefix}lock SET state = 'LOCK', released_at = NULL, update_time = {now + 3500000000}, expire_at = {now + 3510000000}`, nil)
			if out := dbcron(s.T, s.db, "schedule", "explain", "nightly"); strings.Contains(out, "nothing is wrong") {
				s.Errorf("explain says that nothing is wrong:\n%s", out)
			}
			for _, command := range [][]string{{"lock", "list"}, {"lock", "release", "report"}} {
				if said := saying(s.T, s.db, command...); !strings.Contains(said, "the database's clock went back by 58m") {
					s.Errorf("%s says %s", command, said)
				}
			}
		},
		"The database's clock went back by 58m …s or more: …locks that nobody has renewed since: report…dbcron lock release report --force",
		"schedule explain nightly", "the database's clock went back by 58m …s or more after its next slot was planned, so it waits until …dbcron schedule run nightly", "",
		func(s *stage) {
			s.db.Do(s.T, `UPDATE {prefix}schedule SET update_time = {now}`, nil)
			s.db.Do(s.T, `UPDATE {prefix}lock SET update_time = {now}`, nil)
		},
	},
	{
		"clock that went back after a retry was written",
		func(s *stage) {
			s.clock = true
			s.job()
			s.worker()
			s.db.Do(s.T, `DELETE FROM {prefix}job`, nil)
			s.db.Do(s.T, `INSERT INTO {prefix}job_delayed (queue_id, divided, id, run_at, attempt, error, kind, payload)
				SELECT queue_id, 0, :id, {now + 3600000000}, 2, 'connection refused', 'x', :payload FROM {prefix}queue`, sqlrun.Args{"id": s.id, "payload": "{}"})
			s.db.Do(s.T, `UPDATE {prefix}queue_block SET lock_at = {now + 3500000000}`, nil)
			if out := dbcron(s.T, s.db, "job", "explain", strconv.FormatInt(s.id, 10)); !strings.Contains(out, "the database's clock went back by 58m") {
				s.Errorf("explain does not name the clock:\n%s", out)
			}
		},
		"The database's clock went back by 58m …s or more: slots, retries and leases of that time last",
		"job explain", "it waits for its retry at …, after attempt 2 failed: connection refused…dbcron job retry ID", "",
		func(s *stage) {
			s.db.Do(s.T, `UPDATE {prefix}queue_block SET lock_at = {now}`, nil)
			s.db.Do(s.T, `DELETE FROM {prefix}job_delayed`, nil)
		},
	},
	{
		"clock that went back after a worker died",
		func(s *stage) {
			s.clock = true
			s.job()
			s.worker()
			s.db.Do(s.T, `UPDATE {prefix}queue_block SET lock_at = {now + 3500000000}`, nil)
			s.db.Do(s.T, `UPDATE {prefix}node SET expire_at = {now + 3508000000}`, nil)
		},
		"The database's clock went back by 58m …s or more: slots, retries and leases of that time last",
		"job explain", "the database's clock went back by 58m …s or more, and its worker, host:2…, has not been heard of since: nobody takes its block over before …dbcron doctor", "",
		ended(`UPDATE {prefix}queue_block SET lock_at = {now}`),
	},
	{
		"schema that is behind",
		func(s *stage) {
			s.schedule("nightly")
			dbcron(s.T, s.db, "migrate", "to", "101", "--yes")
		},
		"the tables are at version 101, and this dbcron needs version 102…dbcron migrate up",
		"schedule explain nightly", "dbcron migrate up…at version 101, and version 102 is needed", "migrate up", nil,
	},
	{
		"schema that is ahead",
		func(s *stage) {
			s.schedule("nightly")
			s.db.Do(s.T, `INSERT INTO {prefix}migration (version_id, is_applied) SELECT 199, is_applied FROM {prefix}migration WHERE version_id = 101`, nil)
		},
		"the tables are at version 199, and this dbcron knows up to version 102…use a dbcron that knows version 199",
		"schedule explain nightly", "it is at version 199, and this program knows up to 102; use a dbcron that knows version 199", "",
		ended(`DELETE FROM {prefix}migration WHERE version_id = 199`),
	},
	{
		"right that is missing",
		func(s *stage) {
			s.daemon()
			s.schedule("nightly")
			s.role("REVOKE SELECT ON {prefix}run FROM ")
		},
		"it lacks SELECT on …run…GRANT SELECT ON …run TO ",
		"schedule explain nightly", "denied…dbcron doctor", "",
		func(s *stage) {
			grant := regexp.MustCompile(`GRANT [^;]*`).FindString(s.doctor())
			s.db.Do(s.T, grant, nil)
		},
	},
	{
		"pool of one connection",
		func(s *stage) {
			s.daemon()
			s.schedule("nightly")
			s.role("")
			c, err := s.open(s.url).Pool().Conn(s.Context())
			dbtest.Must(s.T, err)
			s.Cleanup(func() { _ = c.Close() })
			s.bound(1)
			s.pages = nil
		},
		"all connections that this user, the database or the server may have are taken…allow more",
		"schedule explain nightly", "all connections that this user, the database or the server may have are taken", "",
		func(s *stage) { s.bound(20) },
	},
	{
		"clock of the host",
		func(s *stage) {
			s.daemon()
			s.schedule("nightly")
			s.clock = true
			right := health.HostNow
			health.HostNow = func() time.Time { return right().Add(-time.Hour) }
			s.ends = func() { health.HostNow = right }
			s.Cleanup(s.ends)
		},
		"the database's is …ahead of this host's…runs start by the database's clock: let NTP set both",
		"schedule explain nightly", "nothing is wrong: it waits for its next slot", "",
		func(s *stage) { s.ends(); s.clock = false },
	},
	{
		"February 30",
		func(s *stage) {
			s.schedule("nightly")
			s.plan("nightly", 10)
			s.db.Do(s.T, `UPDATE {prefix}schedule SET spec = '0 0 30 2 *'`, nil) // no command accepts it
			dbcron(s.T, s.db, "serve", "--once")
			s.daemon()
		},
		"Schedule nightly was given up…it never fires: no day matches 30 2 *…dbcron schedule edit nightly --spec…dbcron schedule resume nightly",
		"schedule explain nightly", "it was given up…it never fires: no day matches 30 2 *…dbcron schedule edit nightly --spec", "",
		func(s *stage) {
			dbcron(s.T, s.db, "schedule", "edit", "nightly", "--spec", "0 0 28 2 *")
			dbcron(s.T, s.db, "schedule", "resume", "nightly")
		},
	},
	{
		"workers of other kinds",
		func(s *stage) {
			s.job()
			s.worker()
			s.db.Do(s.T, `UPDATE {prefix}queue_worker SET kinds = '["y"]'`, nil)
		},
		"Jobs of queue mail wait that none of its workers does…1 job of kind x…dbcron job cancel --queue mail --kind x",
		"job explain", "none of the workers of its queue, 1, does the kind x…start a worker that does this kind…dbcron job cancel --queue mail --kind x", "job cancel", nil,
	},
	{
		"frozen daemon",
		func(s *stage) {
			s.schedule("nightly")
			s.plan("nightly", -50)
			s.frozen()
			s.plan("nightly", 10)
		},
		"No daemon is at work…1 schedule is late because of it…start one: dbcron serve",
		"schedule explain nightly", "no daemon is at work…start one: dbcron serve", "serve", nil,
	},
}

func (s *stage) now() time.Time {
	var us int64
	s.db.Scan(s.T, `SELECT {us {now}}`, nil, &us)
	return time.UnixMicro(us)
}

// types a command line, and returns what it prints, whatever its exit code is. wrong is its error, unless there is not what it was about.
func (s *stage) types(ctx context.Context, args ...string) (printed, wrong string) {
	var out, errs bytes.Buffer
	p := &program{in: strings.NewReader(""), out: &out, err: &errs, signals: &signals{}, environ: []string{"DBCRON_DATABASE_URL=" + s.url, "DBCRON_CONNECT_TIMEOUT=1s"}}
	switch code := run(ctx, p, args); {
	case code == exitFailure:
		return out.String(), errs.String()
	case code > exitFailure && code != exitNotFound:
		s.Errorf("%s: exit code %d: %s", strings.Join(args, " "), code, &errs)
	}
	return out.String(), ""
}

// doctor returns its first line, if that is a finding, with what to do.
func (s *stage) doctor() string {
	s.Helper()
	var rows []struct {
		Status, Detail string
		Do             string `json:"what_to_do"`
	}
	printed, _ := s.types(s.Context(), "doctor", "-o", "json")
	dbtest.Must(s.T, json.Unmarshal([]byte(printed), &rows))
	for i := range rows {
		if text := rows[i].Detail; rows[i].Status == "ok" {
			break
		} else if s.clock || !strings.Contains(text, "this host's (asked in") {
			return text + "; " + rows[i].Do
		}
	}
	return ""
}

var (
	aProblem = regexp.MustCompile(`(?s)<li class="(?:bad|warn)">(<span class="what">.*?)</li>`)
	tags     = regexp.MustCompile(`<[^>]*>`)
)

// page returns a page of the dashboard.
func (s *stage) page(path string) string {
	s.Helper()
	w := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(s.Context(), http.MethodGet, "http://127.0.0.1/"+path, nil)
	r.RemoteAddr = "127.0.0.1:1"
	s.pages.ServeHTTP(w, r)
	if w.Code != http.StatusOK {
		s.Fatalf("the page %s answers %d: %s", path, w.Code, w.Body)
	}
	return w.Body.String()
}

// overview returns its first finding.
func (s *stage) overview() string {
	s.Helper()
	if s.pages == nil {
		return ""
	}
	for _, found := range aProblem.FindAllStringSubmatch(s.page(""), -1) {
		text := html.UnescapeString(tags.ReplaceAllString(strings.NewReplacer("<small>", "; ", `<span class="why">`, ": ").Replace(found[1]), ""))
		if s.clock || !strings.Contains(text, "Database: clock") {
			return text
		}
	}
	return ""
}

// explains returns the first cause, with what to do.
func (s *stage) explains(is *situation) string {
	s.Helper()
	line := is.explain
	if strings.HasPrefix(line, "job") {
		line += fmt.Sprint(" ", s.id)
	}
	var e struct {
		Causes []struct {
			Why, Until string
			Do         string `json:"what_to_do"`
		}
	}
	text, wrong := s.types(s.Context(), append(strings.Fields(line), "-o", "json")...)
	if text == "" { // what it was about has gone, or cannot be read
		return wrong
	}
	dbtest.Must(s.T, json.Unmarshal([]byte(text), &e))
	if len(e.Causes) == 0 {
		s.Fatalf("no cause: %s", text)
	}
	return e.Causes[0].Why + "; " + e.Causes[0].Do + "; " + e.Causes[0].Until
}

// tells reports whether a text has all parts of another one, in order.
func (s *stage) tells(text, parts string) bool {
	for part := range strings.SplitSeq(strings.ReplaceAll(parts, "ID", fmt.Sprint(s.id)), "…") {
		_, after, ok := strings.Cut(text, part)
		if !ok {
			return false
		}
		text = after
	}
	return true
}

// What a crontab's comment says of a line stands on the page of its schedule, as text.
func TestDescriptionOnPage(t *testing.T) {
	dbtest.Memory.Each(t, func(t *testing.T, db *dbtest.DB) {
		s := &stage{T: t, db: db}
		s.open(db.URL)
		file := filepath.Join(t.TempDir(), "crontab")
		text := "# name: backup\n# Backs up <b>the shop</b>,\n# before the report.\n30 3 * * * backup\n\n# name: report\n40 3 * * * report\n"
		dbtest.Must(t, os.WriteFile(file, []byte(text), 0o600))
		dbcron(t, db, "schedule", "import", "--crontab", file)
		if page := s.page("schedule?name=backup"); !strings.Contains(page, "<p>Backs up &lt;b&gt;the shop&lt;/b&gt;, before the report.</p>") {
			t.Errorf("the page of a schedule with a description is %s", page)
		}
		if page := s.page("schedule?name=report"); strings.Contains(page, "Backs up") || strings.Contains(page, "<p></p>") {
			t.Errorf("the page of a schedule without a description is %s", page)
		}
	})
}

// TestSituations prepares situations and looks at what is said first of each. It types the command that is said literally.
func TestSituations(t *testing.T) {
	for i := range situations {
		is := &situations[i]
		t.Run(strings.ReplaceAll(is.name, " ", "-"), func(t *testing.T) {
			dbtest.Each(t, func(t *testing.T, db *dbtest.DB) { is.test(t, db) })
		})
	}
}

func (is *situation) test(t *testing.T, db *dbtest.DB) {
	s := &stage{T: t, db: db}
	s.open(db.URL)
	s.at = s.now()
	is.make(s)
	said := map[string]string{"doctor": s.doctor(), "the overview": s.overview(), "explain": s.explains(is)}
	for who, text := range said {
		want := is.found
		if who == "explain" {
			want = is.why
		}
		if who == "the overview" && s.pages == nil {
			continue
		}
		if want == "" && text != "" || !s.tells(text, want) {
			t.Errorf("%s says %q\nwant %q", who, text, want)
		}
	}
	if t.Failed() || is.use == "" && is.then == nil {
		return
	}
	stop := is.does(s, said["explain"])
	defer stop()
	for again := true; again && t.Context().Err() == nil; { // until the daemon, if there is one, has worked
		waits := strings.HasPrefix(is.why, "nothing is wrong") // as it does afterwards
		again = !waits && s.tells(s.explains(is), is.why) || is.found != "" && s.tells(s.doctor(), is.found)
		if again && !strings.HasPrefix(is.use, "serve") {
			t.Errorf("doctor still says %q\nand explain %q", s.doctor(), s.explains(is))
			return
		}
	}
	if s.open(s.url); is.found != "" && s.tells(s.overview(), is.found) { // without what it has counted
		t.Errorf("the overview still says %q", s.overview())
	}
}

// does types the command that a text names, and does what else it says. stop ends the daemon, if that is the command.
func (is *situation) does(s *stage, text string) (stop func()) {
	stop = func() {}
	if is.use != "" {
		_, line, ok := strings.Cut(text, "dbcron "+is.use)
		if !ok {
			s.Fatalf("%q does not say dbcron %s", text, is.use)
		}
		end := strings.IndexAny(line+";", ";.,()")
		args := strings.Fields(is.use + line[:end])
		if strings.Contains(line[:end], "--kind ") { // which asks before
			args = append(args, "--yes")
		}
		if args[0] != "serve" {
			if _, wrong := s.types(s.Context(), args...); wrong != "" {
				s.Errorf("%s: %s", strings.Join(args, " "), wrong)
			}
		} else {
			ctx, cancel := context.WithCancel(s.Context())
			done := make(chan struct{})
			go func() {
				defer close(done)
				_, _ = s.types(ctx, append(args, "--listen", "off")...)
			}()
			stop = func() { cancel(); <-done }
		}
	}
	if is.then != nil {
		is.then(s)
	}
	return stop
}
