package health

import (
	"database/sql"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/queue/queuetest"
	"github.com/dbcron/dbcron/scheduler"
)

// wants checks that all of some problems are there, and no other: each as a part of what it
// says, with ! before those that are bad.
func wants(t *testing.T, all []Problem, err error, want ...string) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for i := range all {
		p := &all[i]
		text := p.What() + ": " + p.Why + "; " + p.Do
		if p.Bad {
			text = "!" + text
		}
		got = append(got, text)
	}
	ok := len(got) == len(want)
	for i := 0; ok && i < len(got); i++ {
		for _, part := range strings.Split(want[i], "…") {
			ok = ok && strings.Contains(got[i], part)
		}
	}
	if !ok {
		t.Errorf("got %d problems, want %d:\n%s\nwant\n%s", len(got), len(want), strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestSchedulesAndRuns(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		now, err := scheduler.Clock(t.Context(), db.DB)
		if err != nil {
			t.Fatal(err)
		}
		db.Do(t, `INSERT INTO {prefix}node (name, state, expire_at, tags) VALUES ('host:1:x', 'live', {now + 3600000000}, 'default')`, nil)
		for _, name := range []string{"late", "given up"} {
			db.Do(t, `INSERT INTO {prefix}schedule (name, spec, command, due_at, next_exec) VALUES (:name, '@every 1h', 'true', {now}, {now})`,
				sqlrun.Args{"name": name})
		}
		db.Do(t, `UPDATE {prefix}schedule SET state = 'failed', reason = 'no such zone' WHERE name = 'given up'`, nil)
		all, next, err := OfSchedules(t.Context(), db.DB, now, 5)
		wants(t, all, err, "!Schedule given up was given up: no such zone; …dbcron schedule resume 'given up'")
		if len(next) != 1 || next[0].Name != "late" {
			t.Errorf("next are %v", next)
		}
		all, next, err = OfSchedules(t.Context(), db.DB, now.Add(time.Hour), 5)
		wants(t, all, err, "!Schedule given up was given up",
			"!Schedule late is late: no daemon has claimed its slot…tag default…dbcron schedule explain late")
		if len(next) > 0 {
			t.Errorf("next are %v", next)
		}

		for i := range 2 { // two slots, also where the clock has milliseconds only
			db.Do(t, `INSERT INTO {prefix}run (schedule, due_at, attempt, state, started_at, finished_at, exec_by, exit_code, error)
				VALUES ('late', {now + :ago}, 1, 'failed', {now}, {now}, 'host:1:x', 3, 'exit code 3')`,
				sqlrun.Args{"ago": -i * 1_000_000})
		}
		all, err = OfRuns(t.Context(), db.DB, now)
		wants(t, all, err, "!A run of late failed: 2 times in a row; last: exit code 3; correct that (dbcron schedule edit late); then run it again: dbcron schedule run late")
		// What comes from a file is changed there, and a shell's exit codes speak for themselves.
		db.Do(t, `UPDATE {prefix}schedule SET source = 'crontab:/etc/tab' WHERE name = 'late'`, nil)
		db.Do(t, `UPDATE {prefix}run SET exit_code = 127, error = 'exit code 127' WHERE schedule = 'late'`, nil)
		all, err = OfRuns(t.Context(), db.DB, now)
		wants(t, all, err, "!A run of late failed: 2 times in a row; last: exit code 127: the command was not found; "+
			"correct that in crontab:/etc/tab, and import that; then run it again: dbcron schedule run late")
		db.Do(t, `UPDATE {prefix}schedule SET source = '' WHERE name = 'late'`, nil)
		for i, name := range []string{"late", "restarts", "upgraded"} {
			db.Do(t, `INSERT INTO {prefix}run (schedule, due_at, attempt, state, started_at, finished_at, next_exec, exec_by, stops, error)
				VALUES (:name, {now + :ago}, 3, 'retry', {now}, {now}, {now + 60000000}, 'host:1:x', :stops, 'handed back: the daemon was stopped 2s after')`,
				sqlrun.Args{"name": name, "ago": 10_000_000, "stops": 4 - i})
		}
		all, err = OfRuns(t.Context(), db.DB, now)
		wants(t, all, err, "The work of restarts may stop its daemon: handed back: …2s after; …dbcron schedule explain restarts",
			"!A run of late failed: 2 times in a row")
		explained, err := Explain(t.Context(), db.DB, "late", 3, false)
		if err != nil || len(explained.Open) != 1 || !strings.Contains(explained.Open[0].Text, "the daemon was stopped 2s after") {
			t.Errorf("%v, %+v", err, explained)
		}
		all, err = OfRuns(t.Context(), db.DB, now.Add(25*time.Hour))
		wants(t, all, err)

		for _, wrong := range []string{"", "it took longer than 1s; its work has not returned, and runs on"} {
			db.Do(t, `INSERT INTO {prefix}run (schedule, due_at, attempt, state, started_at, next_exec, exec_by, error)
				VALUES (:name, {now}, 1, 'running', {now}, {now + 60000000}, 'host:1:x', :error)`,
				sqlrun.Args{"name": "deaf" + wrong[:min(1, len(wrong))], "error": wrong})
		}
		all, err = OfRuns(t.Context(), db.DB, now.Add(25*time.Hour))
		wants(t, all, err, "!The work of deafi does not end: it took longer than 1s; …has not returned…dbcron schedule explain deafi")
	})
}

// A slot whose later attempt was ok, or that is tried again, did not fail; one whose last attempt failed did, once.
func TestSlotsNotAttempts(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		now, err := scheduler.Clock(t.Context(), db.DB)
		dbtest.Must(t, err)
		for name, states := range map[string][]string{
			"mended": {"failed", "ok"}, "taken over": {"lost", "ok"}, "goes on": {"timeout", "running"}, "in vain": {"failed", "timeout", "failed"},
		} {
			for i, state := range states {
				db.Do(t, `INSERT INTO {prefix}run (schedule, due_at, attempt, state, started_at, finished_at, exec_by, error)
					VALUES (:name, {time :due}, :attempt, :state, {now}, CASE WHEN :state = 'running' THEN NULL ELSE {now} END, 'host:1:x', '')`,
					sqlrun.Args{"name": name, "due": now.UnixMicro(), "attempt": i + 1, "state": state})
			}
		}
		all, err := OfRuns(t.Context(), db.DB, now)
		wants(t, all, err, "!A run of in vain failed: failed; correct that")

		// Who looks in the morning sees what failed in the night, also if it was ok since, which is not bad.
		for i, state := range []string{"failed", "failed", "ok"} {
			db.Do(t, `INSERT INTO {prefix}run (schedule, due_at, attempt, state, started_at, finished_at, exec_by, error)
				VALUES ('well again', {time :due}, 1, :state, {now}, {now}, 'host:1:x', '')`, sqlrun.Args{"due": now.UnixMicro() + int64(i)*1_000_000, "state": state})
		}
		all, err = OfRuns(t.Context(), db.DB, now)
		wants(t, all, err, "A run of well again failed: 2 times in the last day; last: failed; a later slot was ok; see what it printed: dbcron schedule output",
			"!A run of in vain failed: failed; correct that")
	})
}

// That no daemon is at work comes first. What follows from it is counted in one line, and lists that are cut say how many more there are.
func TestCausesFirst(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		now, err := scheduler.Clock(t.Context(), db.DB)
		dbtest.Must(t, err)
		all, _, err := OfSchedules(t.Context(), db.DB, now, 5)
		wants(t, all, err)
		add := func(name, state, reason string) {
			db.Do(t, `INSERT INTO {prefix}schedule (name, spec, command, due_at, next_exec, state, reason) VALUES (:name, '@every 1h', 'true', {now}, {now}, :state, :reason)`,
				sqlrun.Args{"name": name, "state": state, "reason": reason})
		}
		add("denied", "active", "permission denied")
		for i := range 14 {
			add(fmt.Sprint("s", i), "active", "")
		}
		for i := range 12 {
			add(fmt.Sprint("given up ", i), "failed", "no such zone")
			add(fmt.Sprint("paused ", i), "paused", "")
		}
		all, next, err := OfSchedules(t.Context(), db.DB, now, 5)
		if wants(t, all[:1], err, "!No daemon is at work: there are active schedules, which nobody runs; start one: dbcron serve"); len(next) != 5 {
			t.Errorf("next are %v", next)
		}
		now = now.Add(time.Hour)
		all, _, err = OfSchedules(t.Context(), db.DB, now, 5)
		if len(all) != 24 {
			t.Errorf("%d problems: %+v", len(all), all)
		}
		wants(t, []Problem{all[0], all[11], all[12]}, err, "!No daemon is at work: 14 schedules are late because of it; start one: dbcron serve",
			"!2 more schedules were given up: ; see all: dbcron schedule list --state failed", "!Schedule denied is late: daemons cannot claim it: permission denied")

		db.Do(t, `INSERT INTO {prefix}node (name, state, expire_at, tags) VALUES ('host:1:x', 'live', {now + 3600000000}, 'default')`, nil)
		all, _, err = OfSchedules(t.Context(), db.DB, now, 5)
		wants(t, all[21:22], err, "!5 more schedules are late: ; see all: dbcron schedule list")
		all, err = ofPaused(t.Context(), db.DB)
		wants(t, all[10:], err, "2 more schedules are paused: ; see all: dbcron schedule list --state paused")
		db.Do(t, `UPDATE {prefix}node SET drained_at = {now}`, nil)
		all, _, err = OfSchedules(t.Context(), db.DB, now, 5)
		wants(t, all[:1], err, "!Schedules need the tag default, and every daemon that has it is drained: 14 schedules are late because of it; …dbcron node undrain host:1")
	})
}

// A schedule whose every run is replaced by the next slot never completes, though no run fails. One that completes now and then,
// or is replaced only while it waits, is none of these.
func TestNoRunCompletes(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		for name, last := range map[string]string{"endless": "cancelled", "slow": "ok", "seldom": "", "waits": "cancelled"} {
			dbtest.Must(t, scheduler.Add(t.Context(), db.DB, scheduler.Schedule{
				Name: name, Spec: "@every 10s", Command: "sleep 11", Policy: scheduler.Policy{Overlap: "replace"},
			}))
			states := []string{"cancelled", "cancelled", "cancelled", last}
			if last == "" {
				states = states[:2]
			}
			for i, state := range states {
				why := ""
				if state == "cancelled" {
					why = scheduler.WhyReplaced
				}
				started := "{now}"
				if name == "waits" {
					started = "NULL"
				}
				db.Do(t, `INSERT INTO {prefix}run (schedule, due_at, attempt, state, started_at, finished_at, exec_by, error)
					VALUES (:name, {now + :ago}, 1, :state, `+started+`, {now}, 'host:1:x', :why)`,
					sqlrun.Args{"name": name, "ago": (i - 9) * 10_000_000, "state": state, "why": why})
			}
		}
		now, err := scheduler.Clock(t.Context(), db.DB)
		dbtest.Must(t, err)
		all, err := OfRuns(t.Context(), db.DB, now)
		wants(t, all, err, "!No run of endless completes: each of the last 4 runs was replaced by the next slot…dbcron schedule explain endless")
		for name, is := range map[string]bool{"endless": true, "slow": false, "seldom": false, "waits": false} {
			e, err := Explain(t.Context(), db.DB, name, 5, false)
			dbtest.Must(t, err)
			if got := strings.Contains(fmt.Sprint(e.Causes), "none of its last 4 runs has completed"); got != is {
				t.Errorf("%s is explained by %+v", name, e.Causes)
			}
		}
	})
}

func TestQueues(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		c := queuetest.Client(t, db.DB)
		for _, name := range []string{"mail", "it's paused"} {
			if _, err := c.Enqueue(t.Context(), queue.Job{Queue: name, Kind: "x"}); err != nil {
				t.Fatal(err)
			}
		}
		if err := adminOf(c).Pause(t.Context(), "it's paused", ""); err != nil {
			t.Fatal(err)
		}
		now, err := scheduler.Clock(t.Context(), db.DB)
		if err != nil {
			t.Fatal(err)
		}
		look := func(now time.Time, dead map[string]Deaths) ([]Problem, error) {
			queues, err := adminOf(c).Queues(t.Context(), "", MostQueues)
			if err != nil {
				return nil, err
			}
			depths, err := Depths(t.Context(), adminOf(c), queues, CountTo, now)
			if err != nil {
				return nil, err
			}
			return OfQueues(t.Context(), db.DB, adminOf(c), depths, nil, dead, now)
		}
		all, err := look(now, nil)
		wants(t, all, err, "Queue it's paused is paused: for 1 job that wait…dbcron queue resume 'it'\\''s paused'")
		for id := range 2 {
			db.Do(t, `INSERT INTO {prefix}job_dead (queue_id, divided, id, kind, attempt, error, detail, died_at)
				SELECT queue_id, 0, :id, 'k', 1, 'no', '', {now} FROM {prefix}queue WHERE name = 'mail'`, sqlrun.Args{"id": id + 1})
		}
		all, err = look(now.Add(time.Hour), map[string]Deaths{"mail": {Jobs: 5}}) // 3 were retried
		wants(t, all, err, "!No worker serves queue mail: 1 ready, the oldest for …none was done in the last ten minutes; start a worker",
			"2 jobs of queue mail died…dbcron job list --state dead --queue mail", "is paused")
		db.Do(t, `DELETE FROM {prefix}job_dead`, nil)
		all, err = look(now, map[string]Deaths{"mail": {Jobs: 5}})
		wants(t, all, err, "is paused")
		db.Do(t, `UPDATE {prefix}queue SET keep_dead_max = 1 WHERE name = 'mail'`, nil) // that they are gone means nothing then
		all, err = look(now, map[string]Deaths{"mail": {Jobs: 5}})
		wants(t, all, err, "5 jobs of queue mail died", "is paused")
		db.Do(t, `INSERT INTO {prefix}job_running (queue_id, divided, id, lock_by, kind, state, error)
			SELECT queue_id, 0, 7, 'me', 'k', 'stuck', 'it took too long' FROM {prefix}queue WHERE name = 'mail'`, nil)
		all, err = look(now, nil)
		wants(t, all, err, "!1 handler of queue mail does not return: …dbcron job list --state running --queue mail", "is paused")
		db.Do(t, `DELETE FROM {prefix}job_running`, nil)
		db.Do(t, `INSERT INTO {prefix}job_delayed (queue_id, divided, id, run_at, kind, stops, stopped_at, error)
			SELECT queue_id, 0, 7, {now + 60000000}, 'k', 3, {now}, 'handed back: its worker was stopped 2s after' FROM {prefix}queue WHERE name = 'mail'`, nil)
		db.Do(t, `INSERT INTO {prefix}job_delayed (queue_id, divided, id, run_at, kind, stops, stopped_at, error)
			SELECT queue_id, 0, 8, {now}, 'k', 2, {now}, '' FROM {prefix}queue WHERE name = 'it''s paused'`, nil)
		all, err = look(now, nil)
		wants(t, all, err, "A job of queue mail may stop its worker: handed back: …2s after; …dbcron job get 7", "is paused")
	})
}

// A tenant that holds up the others is named, with what helps; not in a queue that is fair, nor where nobody else waits.
func TestFlooded(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		c := queuetest.Client(t, db.DB)
		jobs := make([]queue.Job, 200)
		for i := range jobs {
			jobs[i] = queue.Job{Queue: "mail", Kind: "x", Tenant: "acme", Priority: 1 + i%2}
		}
		_, err := c.EnqueueMany(t.Context(), jobs)
		dbtest.Must(t, err)
		db.Do(t, `INSERT INTO {prefix}node (name, state, expire_at) VALUES ('me', 'live', {now + 3600000000})`, nil)
		db.Do(t, `UPDATE {prefix}queue_block SET state = 'LEASED', lock_by = 'me'`, nil)
		db.Do(t, `INSERT INTO {prefix}queue_worker (queue_id, node) SELECT queue_id, 'me' FROM {prefix}queue`, nil)
		now, err := scheduler.Clock(t.Context(), db.DB)
		dbtest.Must(t, err)
		look := func() ([]Problem, error) {
			queues, err := adminOf(c).Queues(t.Context(), "", MostQueues)
			dbtest.Must(t, err)
			depths, err := Depths(t.Context(), adminOf(c), queues, CountTo, now.Add(time.Hour))
			dbtest.Must(t, err)
			return OfQueues(t.Context(), db.DB, adminOf(c), depths, nil, nil, now.Add(time.Hour))
		}
		all, err := look()
		wants(t, all, err, "!Queue mail is behind: 200 ready…give it more workers")
		_, err = c.EnqueueMany(t.Context(), []queue.Job{{Queue: "mail", Kind: "x", Tenant: "small"}, {Queue: "mail", Kind: "x"}})
		dbtest.Must(t, err)
		all, err = look()
		wants(t, all, err, "!Queue mail is behind: 202 ready…200 of 202 jobs that are next are of the tenant acme…dbcron queue set mail --fair")
		_, err = adminOf(c).Edit(t.Context(), "mail", func(q *admin.Queue) { q.Fair = true })
		dbtest.Must(t, err)
		dbtest.Must(t, adminOf(c).SetShare(t.Context(), "mail", "acme", 5))
		all, err = look()
		wants(t, all, err, "!Queue mail is behind: 202 ready…give it more workers")
		tenants, err := adminOf(c).Tenants(t.Context(), "mail", 2)
		dbtest.Must(t, err)
		if len(tenants.Tenants) != 2 || tenants.Looked != 202 || tenants.More || tenants.Tenants[0].Name != "acme" ||
			tenants.Tenants[0].Ready != 200 || tenants.Tenants[0].Weight != 5 || tenants.Tenants[1].Ready != 1 || tenants.Tenants[1].Weight != 1 {
			t.Errorf("tenants are %+v", tenants)
		}
	})
}

func TestProcesses(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		now, err := scheduler.Clock(t.Context(), db.DB)
		if err != nil {
			t.Fatal(err)
		}
		db.Do(t, `INSERT INTO {prefix}node (name, state, expire_at) VALUES ('host:1:x', 'live', {time :until})`,
			sqlrun.Args{"until": now.Add(time.Hour).UnixMicro()})
		for _, part := range []string{"host:2:y", "host:2:z", "host:1:w"} { // a worker of the process that lives has begun anew
			db.Do(t, `INSERT INTO {prefix}node (name, state, expire_at) VALUES (:name, 'lost', {now})`, sqlrun.Args{"name": part})
		}
		all, live, err := OfProcesses(t.Context(), db.DB, now)
		wants(t, all, err, "Process host:2 was lost")
		if live != 1 {
			t.Errorf("%d live", live)
		}
	})
}

// A process that was lost is told with what nobody does since: others that live do not have its work because they live.
func TestWhoHasTheWorkOfTheLost(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		c := adminOf(queuetest.Client(t, db.DB))
		for _, name := range []string{"solo", "mail", "other"} {
			_, err := c.Edit(t.Context(), name, func(*admin.Queue) {})
			dbtest.Must(t, err)
		}
		node := func(name, does, tag, state string, until int64) {
			db.Do(t, `INSERT INTO {prefix}node (name, state, expire_at, tags) VALUES (:name, :state, {now + :until}, :tag)`,
				sqlrun.Args{"name": name, "state": state, "until": until, "tag": tag})
			for queue := range strings.SplitSeq(does, ",") {
				db.Do(t, `INSERT INTO {prefix}queue_worker (queue_id, node) SELECT queue_id, :node FROM {prefix}queue WHERE name = :queue`,
					sqlrun.Args{"node": name, "queue": queue})
			}
		}
		for _, test := range []struct {
			name, lost, tag string
			another         bool
			live, liveTag   string
			want            string
		}{
			{"its queue has nobody", "solo", "", true, "mail", "", "no worker serves queue solo since"},
			{"its queue has another", "solo", "", true, "solo,mail", "", "others have its work"},
			{"nobody is there", "solo", "", false, "", "", "no worker serves queue solo since"},
			{"it did nothing, and nobody is there", "", "", false, "", "", "its work waits for another one"},
			{"two queues", "mail,solo", "", true, "other", "", "no worker serves queues mail, solo since"},
			{"a tag", "", "batch", true, "", "default", "no daemon has the tag batch since"},
			{"a tag and a queue", "solo", "batch", true, "", "default", "no worker serves queue solo since, and no daemon has the tag batch since"},
			{"a tag that others have", "", "batch", true, "", "batch", "others have its work"},
		} {
			db.Do(t, `DELETE FROM {prefix}queue_worker`, nil)
			db.Do(t, `DELETE FROM {prefix}node`, nil)
			node("vm:1:a", test.lost, test.tag, "lost", -60_000_000)
			if test.another {
				node("vm:2:b", test.live, test.liveTag, "live", 3600_000_000)
			}
			now, err := scheduler.Clock(t.Context(), db.DB)
			dbtest.Must(t, err)
			all, _, err := OfProcesses(t.Context(), db.DB, now)
			if err != nil || len(all) != 1 || !strings.HasSuffix(all[0].Do, "; "+test.want) {
				t.Errorf("%s: %v, %+v; want %q", test.name, err, all, test.want)
			}
		}
	})
}

// What is printed as an argument is one for the shell, whatever is in it.
func TestArgument(t *testing.T) {
	for name, want := range map[string]string{
		"backup": "backup", "a/b_c-d.e:f@g": "a/b_c-d.e:f@g", "": "''", "a b": "'a b'", "-x": "'-x'", "$(rm)": "'$(rm)'", "it's": `'it'\''s'`,
	} {
		if got := argument(name); got != want {
			t.Errorf("%q: %s, want %s", name, got, want)
		}
	}
}

// adminOf returns what looks after the queues of a client's database.
func adminOf(c *queue.Client) *admin.Client {
	a, err := admin.New(c.DB(), admin.Options{})
	if err != nil {
		panic(err)
	}
	return a
}

// The view for people tells what Depth tells: delayed jobs that are due count as ready, and the oldest of all that
// are gives the age.
func TestDepthAndView(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		c := queuetest.Client(t, db.DB)
		jobs := func(name string, delays ...time.Duration) {
			for _, d := range delays {
				_, err := c.Enqueue(t.Context(), queue.Job{Queue: name, Kind: "x", Delay: d})
				dbtest.Must(t, err)
			}
		}
		jobs("due first", time.Minute, 2*time.Minute, 10*time.Hour)
		jobs("due", time.Minute)
		jobs("later", 10*time.Hour)
		jobs("ready first", 0, 50*time.Minute)
		// An hour passes: what was enqueued is older, and delayed jobs have less to wait.
		db.Do(t, `UPDATE {prefix}job SET id = id - 3600000000 * 4096 WHERE id > 0`, nil)
		db.Do(t, `UPDATE {prefix}job_delayed SET run_at = `+db.Dialect.Add("run_at", ":by")+` WHERE id > 0`, sqlrun.Args{"by": -time.Hour.Microseconds()})
		jobs("due first", 0)
		jobs("ready", 0)
		for _, name := range []string{"due first", "due", "later", "ready first", "ready"} {
			q, err := adminOf(c).Queue(t.Context(), name)
			dbtest.Must(t, err)
			var now int64
			var age sql.NullFloat64
			var ready, delayed int
			db.Scan(t, `SELECT {us {now}}, oldest_ready_seconds, ready_jobs, delayed_jobs FROM {prefix}v_queue WHERE name = :name`,
				sqlrun.Args{"name": name}, &now, &age, &ready, &delayed)
			d, err := DepthOf(t.Context(), adminOf(c), &q, CountTo, time.UnixMicro(now))
			dbtest.Must(t, err)
			if ready != d.Ready || delayed != d.Delayed {
				t.Errorf("%s: %d are ready and %d delayed; the view says %d and %d", name, d.Ready, d.Delayed, ready, delayed)
			}
			if age.Valid != (d.Ready > 0) || math.Abs(age.Float64-d.Age.Seconds()) > 0.01 {
				t.Errorf("%s: the oldest of %d has been ready for %v; the view says %v", name, d.Ready, d.Age, age)
			}
		}
	})
}
