package scheduler

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/sqlrun"
)

// A mutant is a statement that lacks a guard, and the test that finds that out.
type mutant struct {
	stmt         *sqlrun.Stmt
	old, changed string
	test         string // to run
}

const (
	onSQLite   = "/sqlite"
	onPostgres = "/postgres"
)

var mutants = []mutant{
	{due, "state = 'active' AND ", "", "TestGuards" + onSQLite + "/due"},
	{due, "lane = :lane AND ", "", "TestGuards" + onSQLite + "/due"},
	{due, "AND next_exec <= {now}", "", "TestClaim" + onSQLite},
	{due, "{skip_locked}", "", "TestClaimDoesNotWait" + onPostgres},
	{unplanned, "state = 'active' AND ", "", "TestRowsByHandArePlanned" + onSQLite},
	{unplan, "stale = 1 AND ", "", "TestAChangedSpecIsPlannedAnew" + onSQLite},
	{unplan, "state = 'active' AND ", "", "TestAChangedSpecIsPlannedAnew" + onSQLite},
	{unplan, " AND due_at > {now}", "", "TestAChangedSpecIsPlannedAnew" + onSQLite},
	{unplanAhead, "due_at = {time {us due_at} + 1000}, ", "", "TestAnIntervalPlannedAnewMeetsNoOlderRuns" + onSQLite},
	{unplanAhead, "LOWER(spec) LIKE '@every %' AND ", "", "TestTheClockGoesBack" + onSQLite},
	{unplanAhead, "update_time > {now + :slack} AND ", "", "TestTheClockGoesBack" + onSQLite},
	{unplanAhead, "{now + :slack}", "{now}", "TestTheClockGoesBack" + onSQLite},
	{unplanAhead, " AND due_at > {now}", "", "TestTheClockGoesBack" + onSQLite},
	{plan, ", planned = picked.noted", "", "TestAChangedSpecIsPlannedAnew" + onSQLite},
	{unplanned, "AND next_exec IS NULL", "", "TestGuards" + onSQLite + "/unplanned"},
	{lockNamed, "{skip_locked}", "", "TestGuards" + onPostgres + "/locks"},
	{lockOne, "{locked}", "", "TestGuards" + onPostgres + "/lock"},
	{expired, "lane = :lane AND ", "", "TestGuards" + onSQLite + "/expired"},
	{expired, "AND next_exec <= {now}", "", "TestTakeover" + onSQLite},
	{expired, "{skip_locked}", "", "TestClaimDoesNotWait" + onPostgres},
	{open, unended, "1 = 1", "TestMissedSlots" + onSQLite},
	{move, "fence = fence + picked.begun, ", "", "TestRetries" + onSQLite},
	{count, "fence = picked.new_fence", "fence = fence", "TestQueue" + onSQLite},
	{putOff, "id = :id AND ", "", "TestGuards" + onSQLite + "/putoff"},
	{putOff, " AND state = 'active'", "", "TestGuards" + onSQLite + "/putoff"},
	{putOff, " AND next_exec <= {now}", "", "TestGuards" + onSQLite + "/putoff"},
	{putOffRun, "id = :id AND ", "", "TestGuards" + onSQLite + "/putoff"},
	{putOffRun, " AND next_exec <= {now}", "", "TestGuards" + onSQLite + "/putoff"},
	{putOffRun, "CASE WHEN state = 'waiting' THEN :reason ELSE error END", ":reason", "TestGuards" + onSQLite + "/putoff"},
	{departed, "expire_at < {now + :since}", "1 = 1", "TestGuards" + onSQLite + "/departed"},
	{departed, "{now + :since}", "{now}", "TestGuards" + onSQLite + "/departed"},
	{departed, "NOT EXISTS (SELECT 1 FROM {prefix}queue_worker AS w WHERE w.node = name)", "1 = 1", "TestGuards" + onSQLite + "/departed"},
	{departed, " WHERE w.node = name", "", "TestGuards" + onSQLite + "/departed"},
	{forgetNodes, " AND expire_at < {now + :since}", "", "TestGuards" + onSQLite + "/departed"},
	{forgetNodes, "name IN (:names) AND ", "", "TestGuards" + onSQLite + "/departed"},
	{disable, " AND state = 'active'", "", "TestGuards" + onSQLite + "/disable"},
	{bootSchedules, "lane = :lane AND ", "", "TestRebootOncePerStart" + onSQLite},
	{bootSeen, " WHERE boot = :boot", "", "TestRebootOfAHostThatIsGone" + onSQLite},
	{bootNoted, " WHERE boot = :boot", "", "TestRebootOncePerStart" + onSQLite},
	{bootHad, "boot = :boot AND ", "", "TestRebootOncePerStart" + onSQLite},
	{bootHad, " AND schedule = :schedule", "", "TestRebootOncePerStart" + onSQLite},
	{goneLanes, "WHERE b.seen_at < {now + :ago}", "", "TestRebootOfAHostThatIsGone" + onSQLite},
	{forgetBoots, " WHERE seen_at < {now + :ago}", "", "TestRebootOfAHostThatIsGone" + onSQLite},
	{relane, "AND lane = :old ", "", "TestRebootStaysOnItsHost" + onSQLite},
	{begin, "{ignore_duplicate attempt}", "", "TestASlotThatHasARunIsLeftAlone" + onSQLite},
	{wait, "{ignore_duplicate attempt}", "", "TestGuards" + onSQLite + "/wait"},
	{chain, "{ignore_duplicate attempt}", "", "TestGuards" + onSQLite + "/chain"},
	{resume, "state = 'waiting'", "", "TestGuards" + onSQLite + "/resume"},
	{postpone, " AND state = 'waiting'", "", "TestGuards" + onSQLite + "/postpone"},
	{release, " AND state = 'waiting'", "", "TestGuards" + onSQLite + "/release"},
	{release, " AND failures = 0", "", "TestARetryIsNotReleasedEarly" + onSQLite},
	{begun, "claim = :claim AND ", "", "TestAllow" + onSQLite},
	{newest, "n.due_at DESC", "n.due_at", "TestGuards" + onSQLite + "/newest"},
	{lengthen, "state = picked.outcome", "1 = 1", "TestGuards" + onSQLite + "/lengthen"},
	{lose, "state IN ('waiting', 'running', 'retry')", "1 = 1", "TestGuards" + onSQLite + "/lose"},
	{renew, " AND exec_by = :owner", "", "TestGuards" + onSQLite + "/renew"},
	{renew, " AND state = 'running'", "", "TestGuards" + onSQLite + "/renew"},
	{renew, " AND next_exec > {now}", "", "TestRenew" + onSQLite},
	{finish, "claim = picked.token AND ", "", "TestGuards" + onSQLite + "/finish"},
	{finish, " AND state = 'running'", "", "TestGuards" + onSQLite + "/finish"},
	{handBack, " AND claim = :claim", "", "TestGuards" + onSQLite + "/handback"},
	{handBack, " AND state = 'running'", "", "TestGuards" + onSQLite + "/handback"},
	{pausing, " AND finished_at <= {now + :since}", "", "TestPauseAfterStops" + onSQLite},
	{acquit, " AND state = 'retry'", "", "TestGuards" + onSQLite + "/acquit"},
	{carryStops, " AND claim = :claim", "", "TestGuards" + onSQLite + "/carry"},
	{carryStops, " AND state = 'running'", "", "TestGuards" + onSQLite + "/carry"},
	{forget, "claim = :claim AND ", "", "TestGuards" + onSQLite + "/forget"},
	{forget, "state = 'running' AND ", "", "TestGuards" + onSQLite + "/forget"},
	{publish, " AND claim = :claim", "", "TestGuards" + onSQLite + "/publish"},
	{publish, " AND state = 'running'", "", "TestGuards" + onSQLite + "/publish"},
	{unwanted, " AND cancel IS NOT NULL", "", "TestReplaceRetries" + onSQLite},
	{dismiss, " AND state IN ('running', 'retry')", "", "TestGuards" + onSQLite + "/dismiss"},
	{purge, " AND next_exec IS NULL", "", "TestGuards" + onSQLite + "/purge"},
	{surplus, " AND next_exec IS NULL", "", "TestGuards" + onSQLite + "/surplus"},
	{surplus, "AND due_at < (", "AND due_at <= (", "TestGuards" + onSQLite + "/surplus"},
	{outdated, "purge_at <= {now}", "purge_at IS NOT NULL", "TestGuards" + onSQLite + "/surplus"},
	{pause, " AND state = 'active'", "", "TestGuards" + onSQLite + "/pause"},
	{unpause, " AND state <> 'active'", "", "TestGuards" + onSQLite + "/pause"},
	{update, " AND COALESCE(source, '') = COALESCE(:source, '')", "", "TestGuards" + onSQLite + "/replan"},
	{replan, " AND COALESCE(source, '') = COALESCE(:source, '')", "", "TestGuards" + onSQLite + "/replan"},
	{removeOfSource, " AND source = :source", "", "TestGuards" + onSQLite + "/replan"},
	{replan, " AND COALESCE({us due_at}, 0) = :seen", "", "TestGuards" + onSQLite + "/replan"},
}

// forProgram are the mutants for dbtest.
func forProgram() (all []dbtest.Mutant) {
	for _, m := range mutants {
		all = append(all, dbtest.Mutant{Stmt: m.stmt, Old: m.old, Changed: m.changed, Test: m.test})
	}
	return all
}

// Each guard that a statement has is there because something breaks without it.
func TestMutants(t *testing.T) { dbtest.TestMutants(t, forProgram()) }

// putRun inserts a run as a person would, with an SQL value for each column, and
// returns its id.
func putRun(t *testing.T, db *dbtest.DB, columns map[string]string) (id int64) {
	t.Helper()
	names, values := "attempt", "1"
	for name, value := range columns {
		names, values = names+", "+name, values+", "+value
	}
	db.Do(t, `INSERT INTO {prefix}run (`+names+`) VALUES (`+values+`)`, nil)
	db.Scan(t, `SELECT MAX(id) FROM {prefix}run`, nil, &id)
	return id
}

// states are the states of runs; the first three have not ended.
var states = []string{"waiting", "running", "retry", "ok", "failed", "timeout", "lost", "cancelled", "skipped", "missed"}

// Each statement changes, and finds, what its WHERE says, and nothing else.
func TestGuards(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		// A run in each state, of the daemon me, with a token, also where there is none mostly.
		byState := func(t *testing.T, more map[string]string) map[string]int64 {
			ids := map[string]int64{}
			for i, state := range states {
				columns := map[string]string{
					"schedule": "'job'", "state": "'" + state + "'", "claim": "'token'", "exec_by": "'me'",
					"due_at": fmt.Sprintf("{now + %d000000}", i), "next_exec": "NULL",
				}
				if i < 3 {
					columns["next_exec"] = "{now + 1000000}"
				}
				maps.Copy(columns, more)
				ids[state] = putRun(t, db, columns)
			}
			return ids
		}
		picture := func(t *testing.T) map[string]string {
			all := map[string]string{}
			for _, line := range db.List(t, `SELECT id, state, COALESCE({us next_exec}, 0), error, output, COALESCE(cancel, ''), slots, stops FROM {prefix}run`, nil) {
				id, rest, _ := strings.Cut(line, " ")
				all[id] = rest
			}
			return all
		}
		// changes tells the states of the runs that f changes.
		changes := func(t *testing.T, ids map[string]int64, f func()) string {
			before := picture(t)
			f()
			after, changed := picture(t), []string{}
			for _, state := range states {
				if id := fmt.Sprint(ids[state]); before[id] != after[id] {
					changed = append(changed, state)
				}
			}
			return strings.Join(changed, " ")
		}
		want := func(t *testing.T, what, got, want string) {
			t.Helper()
			if got != want {
				t.Errorf("%s: %q, want %q", what, got, want)
			}
		}
		run := func(t *testing.T, stmt *sqlrun.Stmt, args sqlrun.Args) int64 {
			t.Helper()
			n, err := db.Exec(t.Context(), stmt, args)
			if err != nil {
				t.Fatal(stmt.Name, err)
			}
			return n
		}
		allOf := func(ids map[string]int64) []int64 { return slices.Sorted(maps.Values(ids)) }
		s := daemon(t, db, Options{})
		s.owner = "me"
		for _, test := range []struct {
			name string
			f    func(*testing.T)
		}{
			{"putoff", func(t *testing.T) {
				for name, more := range map[string][2]string{
					"due": {"next_exec", "{now}"}, "another": {"next_exec", "{now}"},
					"paused": {"state", "'paused'"}, "later": {"next_exec", "{now + 1000000}"},
				} {
					columns := map[string]string{"name": "'" + name + "'", "spec": "'@every 1m'", "due_at": "{now}", "next_exec": "{now}"}
					columns[more[0]] = more[1]
					byHand(t, db, columns)
				}
				for name, n := range map[string]int64{"due": 1, "paused": 0, "later": 0} {
					if got := run(t, putOff, sqlrun.Args{"id": stored(t, db, name).ID, "after": 60_000_000, "reason": "why"}); got != n {
						t.Errorf("%s: %d rows", name, got)
					}
				}
				due := byState(t, map[string]string{"next_exec": "{now}"})
				putOffAll := func(ids map[string]int64) func() {
					return func() {
						for _, state := range states[:2] {
							run(t, putOffRun, sqlrun.Args{"id": ids[state], "after": 60_000_000, "reason": "why"})
						}
					}
				}
				want(t, "runs that are due", changes(t, due, putOffAll(due)), "waiting running")
				got := db.List(t, `SELECT state FROM {prefix}run WHERE error = 'why'`, nil)
				want(t, "with the reason", strings.Join(got, " "), "waiting")
				db.Do(t, `DELETE FROM {prefix}run`, nil)
				later := byState(t, nil)
				want(t, "runs that somebody has claimed", changes(t, later, putOffAll(later)), "")
			}},
			{"departed", func(t *testing.T) {
				db.Do(t, `INSERT INTO {prefix}queue (name) VALUES ('default')`, nil)
				for name, us := range map[string]int64{"dead": -3_000_000, "dead worker": -3_000_000, "dead of late": -1_000_000, "me": 1_000_000} {
					db.Do(t, `INSERT INTO {prefix}node (name, state, expire_at) VALUES (:name, 'live', {now + :us})`, sqlrun.Args{"name": name, "us": us})
				}
				db.Do(t, `INSERT INTO {prefix}queue_worker (queue_id, node) SELECT queue_id, 'dead worker' FROM {prefix}queue`, nil)
				gone, err := sqlrun.Select(t.Context(), &db.Session, departed, sqlrun.Args{"since": -2_000_000, "limit": batch}, scanText)
				must(t, err)
				want(t, "gone are", strings.Join(gone, ", "), "dead")
				run(t, forgetNodes, sqlrun.Args{"since": -2_000_000, "names": []string{"dead", "dead of late", "me"}})
				got := db.List(t, `SELECT name FROM {prefix}node ORDER BY name`, nil)
				want(t, "there are", strings.Join(got, ", "), "dead of late, dead worker, me")
			}},
			{"due", func(t *testing.T) {
				for name, more := range map[string][2]string{
					"due": {"state", "'active'"}, "paused": {"state", "'paused'"},
					"tagged": {"tag", "'other'"},
				} {
					byHand(t, db, map[string]string{
						"name": "'" + name + "'", "spec": "'@every 1m'", "due_at": "{now}",
						"next_exec": "{now}", more[0]: more[1],
					})
				}
				if e := one(t, claimed(t, s, 10)); e.schedule != "due" {
					t.Errorf("claimed %s", e.schedule)
				}
			}},
			{"unplanned", func(t *testing.T) {
				byHand(t, db, map[string]string{"name": "'new'", "spec": "'@every 1m'"})
				byHand(t, db, map[string]string{
					"name": "'planned'", "spec": "'@every 1m'", "due_at": "{now + 1000000}",
					"next_exec": "{now + 1000000}",
				})
				if n, err := s.planNew(t.Context(), "default"); n != 1 || err != nil {
					t.Errorf("planned %d, %v", n, err)
				}
			}},
			{"locks", func(t *testing.T) {
				add(t, db, "job", "@manual")
				putRun(t, db, map[string]string{"schedule": "'job'", "due_at": "{now}", "state": "'waiting'", "next_exec": "{now}"})
				free := lockRow(t, db, `UPDATE {prefix}schedule SET command = 'false' WHERE name = 'job'`)
				ctx, cancel := context.WithTimeout(t.Context(), unblocked())
				defer cancel()
				runs, _, err := s.takeOver(ctx, "default", 10)
				if err != nil {
					t.Fatal(err)
				}
				none(t, hold(s, runs))
				free()
				if e := one(t, takenOver(t, s, 10)); e.what.Command != "false" {
					t.Error("begun with the old command")
				}
			}},
			{"lock", func(t *testing.T) {
				add(t, db, "job", "@manual")
				free := lockRow(t, db, `UPDATE {prefix}schedule SET command = 'false' WHERE name = 'job'`)
				ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
				defer cancel()
				if r, err := Start(ctx, db.DB, "job"); err == nil {
					t.Errorf("started %+v beside a transaction that has the schedule", r)
				}
				free()
			}},
			{"expired", func(t *testing.T) {
				add(t, db, "job", "@manual")
				putRun(t, db, map[string]string{"schedule": "'job'", "due_at": "{now}", "state": "'waiting'", "next_exec": "{now}", "lane": "'other'"})
				none(t, takenOver(t, s, 10))
			}},
			{"disable", func(t *testing.T) {
				add(t, db, "job", "@manual")
				if err := Pause(t.Context(), db.DB, "job", "because"); err != nil {
					t.Fatal(err)
				}
				run(t, disable, sqlrun.Args{"id": stored(t, db, "job").ID, "state": "failed", "reason": "", "begun": 0})
				want(t, "a paused schedule", stored(t, db, "job").State, "paused")
			}},
			{"wait", func(t *testing.T) {
				addWith(t, db, "job", "@every 1m", Policy{Missed: "all"})
				putRun(t, db, map[string]string{"schedule": "'job'", "due_at": "{now + 120000000}", "state": "'ok'"})
				db.Advance(t, 3*time.Minute)
				claimed(t, s, 1)
				states := []string{}
				for _, r := range allRuns(t, db, "job") {
					states = append(states, r.State)
				}
				want(t, "three slots", strings.Join(states, " "), "running ok waiting")
			}},
			{"chain", func(t *testing.T) {
				add(t, db, "job", "@manual")
				for range 2 {
					run(t, chain, sqlrun.Args{"name": "job", "due": at(0).UnixMicro(), "by": 0})
				}
				wantRows(t, db, "job", "0 1 waiting")
			}},
			{"resume", func(t *testing.T) {
				ids := byState(t, nil)
				var rows []sqlrun.Args
				for _, id := range allOf(ids) {
					rows = append(rows, sqlrun.Args{"id": id, "fence": 7})
				}
				want(t, "begun", changes(t, ids, func() {
					run(t, resume, sqlrun.Args{"rows": rows, "owner": "me", "claim": "new", "lease": int64(30e6)})
				}), "waiting")
			}},
			{"postpone", func(t *testing.T) {
				ids := byState(t, nil)
				want(t, "later", changes(t, ids, func() { run(t, postpone, sqlrun.Args{"ids": allOf(ids), "after": int64(5e6)}) }), "waiting")
			}},
			{"release", func(t *testing.T) {
				ids := byState(t, nil)
				want(t, "now", changes(t, ids, func() {
					run(t, release, sqlrun.Args{"ids": allOf(ids)})
				}), "waiting")
			}},
			{"newest", func(t *testing.T) {
				putRun(t, db, map[string]string{"schedule": "'job'", "due_at": "{now}", "state": "'missed'", "error": "'first'"})
				putRun(t, db, map[string]string{"schedule": "'job'", "due_at": "{now + 60000000}", "state": "'missed'", "error": "'second'"})
				var name, text string
				err := db.Get(t.Context(), newest, sqlrun.Args{"rows": nameRows{"job"}}, &name, &text)
				if got := tailIn(text); err != nil || got == nil || got.why != "second" {
					t.Errorf("the newest is %+v, %v", got, err)
				}
			}},
			{"lengthen", func(t *testing.T) {
				ids := byState(t, nil)
				want(t, "lengthened", changes(t, ids, func() {
					var rows passRows
					for _, id := range allOf(ids) {
						rows = append(rows, passRow{id, &candidate{}, "missed", slotRange{to: nowOf(t, db), n: 3}})
					}
					run(t, lengthen, sqlrun.Args{"rows": rows})
				}), "missed")
			}},
			{"lose", func(t *testing.T) {
				ids := byState(t, nil)
				want(t, "lost", changes(t, ids, func() {
					var rows loseRows
					for _, id := range allOf(ids) {
						rows = append(rows, loseRow{id, "cancelled", "why", true, 1})
					}
					run(t, lose, sqlrun.Args{"rows": rows})
				}), "waiting running retry")
			}},
			{"renew", func(t *testing.T) {
				ids := byState(t, nil)
				renewAll := func() { run(t, renew, sqlrun.Args{"ids": allOf(ids), "owner": "me", "lease": int64(30e6)}) }
				want(t, "renewed", changes(t, ids, renewAll), "running")
				db.Do(t, `UPDATE {prefix}run SET exec_by = 'you', next_exec = {now + 1000} WHERE state = 'running'`, nil)
				want(t, "of another daemon", changes(t, ids, renewAll), "")
			}},
			{"finish", func(t *testing.T) {
				ids := byState(t, nil)
				finishAll := func() {
					var rows []sqlrun.Args
					for _, id := range allOf(ids) {
						rows = append(rows, sqlrun.Args{"id": id, "claim": "token", "outcome": "ok", "why": "done", "said": "", "exit": 0, "keep": 1})
					}
					run(t, finish, sqlrun.Args{"rows": rows})
				}
				db.Do(t, `UPDATE {prefix}run SET claim = 'other' WHERE state = 'running'`, nil)
				want(t, "of another claim", changes(t, ids, finishAll), "")
				db.Do(t, `UPDATE {prefix}run SET claim = 'token' WHERE state = 'running'`, nil)
				want(t, "finished", changes(t, ids, finishAll), "running")
			}},
			{"handback", func(t *testing.T) { wantOfClaim(t, db, byState(t, nil), changes, handBack) }},
			{"carry", func(t *testing.T) { wantOfClaim(t, db, byState(t, nil), changes, carryStops) }},
			{"acquit", func(t *testing.T) {
				ids := byState(t, map[string]string{"stops": "3", "next_exec": "{now + 60000000}", "finished_at": "{now}"})
				want(t, "acquitted", changes(t, ids, func() { run(t, acquit, sqlrun.Args{"ids": allOf(ids)}) }), "retry")
			}},
			{"publish", func(t *testing.T) { wantOfClaim(t, db, byState(t, nil), changes, publish) }},
			{"forget", func(t *testing.T) {
				ids := byState(t, nil)
				forgetAll := func() { run(t, forget, sqlrun.Args{"claim": "token", "names": []string{"job"}}) }
				db.Do(t, `UPDATE {prefix}run SET claim = 'other' WHERE state = 'running'`, nil)
				want(t, "of another claim", changes(t, ids, forgetAll), "")
				db.Do(t, `UPDATE {prefix}run SET claim = 'token' WHERE state = 'running'`, nil)
				want(t, "forgotten", changes(t, ids, forgetAll), "running")
			}},
			{"dismiss", func(t *testing.T) {
				ids := byState(t, nil)
				want(t, "asked to end", changes(t, ids, func() { run(t, dismiss, sqlrun.Args{"ids": allOf(ids), "why": "why"}) }), "running retry")
			}},
			{"purge", func(t *testing.T) {
				ids := byState(t, map[string]string{"purge_at": "{now}"})
				if n := run(t, purge, sqlrun.Args{"ids": allOf(ids)}); n != 7 {
					t.Errorf("%d rows were removed, want the 7 that have ended", n)
				}
			}},
			{"surplus", func(t *testing.T) {
				byState(t, map[string]string{"purge_at": "{now + 1000000}"})
				for stmt, n := range map[*sqlrun.Stmt]int{surplus: 4, outdated: 0} { // of 10 the newest 3 stay, and those that have not ended
					ids, err := sqlrun.Select(t.Context(), &db.Session, stmt, sqlrun.Args{"schedule": "job", "newer": 2, "limit": 100},
						func(rows *sql.Rows) (id int64, err error) {
							return id, rows.Scan(&id)
						})
					if err != nil || len(ids) != n {
						t.Errorf("%s: %d rows, %v, want %d", stmt.Name, len(ids), err, n)
					}
				}
			}},
			{"pause", func(t *testing.T) {
				add(t, db, "job", "@every 1m")
				due := stored(t, db, "job").Due
				db.Advance(t, time.Second)
				if err := Resume(t.Context(), db.DB, "job"); err != nil {
					t.Fatal(err)
				}
				if n, err := s.planNew(t.Context(), "default"); n != 0 || err != nil || !stored(t, db, "job").Due.Equal(due) {
					t.Errorf("an active schedule was resumed, and planned anew: %d, %v", n, err)
				}
				db.Do(t, `UPDATE {prefix}schedule SET state = 'failed', reason = 'why'`, nil)
				if err := Pause(t.Context(), db.DB, "job", "because"); err != nil {
					t.Fatal(err)
				}
				want(t, "a schedule that has failed, and is paused", stored(t, db, "job").Reason, "why")
			}},
			{"replan", func(t *testing.T) {
				imported(t, db, "file", entry("job", "@every 1m", "true"))
				job := stored(t, db, "job")
				args, err := job.args(nowOf(t, db))
				if err != nil {
					t.Fatal(err)
				}
				args["id"], args["source"], args["seen"] = job.ID, "file", job.Due.UnixMicro()
				args["ids"] = []int64{job.ID}
				for _, c := range []struct {
					stmt  *sqlrun.Stmt
					name  string
					value any
				}{
					{update, "source", "other"},
					{replan, "source", "other"},
					{replan, "seen", job.Due.UnixMicro() - 1},
					{removeOfSource, "source", "other"},
				} {
					other := maps.Clone(args)
					other[c.name] = c.value
					if n := run(t, c.stmt, other); n != 0 {
						t.Errorf("%s with another %s: %d rows", c.stmt.Name, c.name, n)
					}
				}
				for _, stmt := range []*sqlrun.Stmt{update, replan, removeOfSource} {
					if n := run(t, stmt, args); n != 1 {
						t.Errorf("%s: %d rows", stmt.Name, n)
					}
				}
			}},
		} {
			if (test.name == "locks" || test.name == "lock") && !dbtest.SeveralWriters(db.Dialect) {
				continue
			}
			t.Run(test.name, func(t *testing.T) {
				db.Do(t, `DELETE FROM {prefix}schedule`, nil)
				db.Do(t, `DELETE FROM {prefix}run`, nil)
				test.f(t)
			})
		}
	})
}

// wantOfClaim checks a statement that is for running runs of a claim.
func wantOfClaim(t *testing.T, db *dbtest.DB, ids map[string]int64, changes func(*testing.T, map[string]int64, func()) string,
	stmt *sqlrun.Stmt,
) {
	t.Helper()
	for _, c := range [][2]string{{"other", ""}, {"token", "running"}} {
		claim, want := c[0], c[1]
		got := changes(t, ids, func() {
			for _, id := range ids {
				args := sqlrun.Args{"id": id, "ids": []int64{id}, "claim": claim, "left": "retry", "error": "why", "output": "text", "stops": 7, "after": 0}
				if _, err := db.Exec(t.Context(), stmt, args); err != nil {
					t.Fatal(err)
				}
			}
		})
		if got != want {
			t.Errorf("%s, by the claim %s: %q, want %q", stmt.Name, claim, got, want)
		}
	}
}
