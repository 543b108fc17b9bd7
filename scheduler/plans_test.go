package scheduler

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/dialect/postgres"
	"github.com/dbcron/dbcron/internal/sqlrun"
)

// How engines say that they read a whole table, or a whole index. An index of running runs only
// is small.
var (
	scansTable = regexp.MustCompile(`Seq Scan on \S*_(schedule|run|notice)\b|SCAN \S*_(schedule|run|notice)\b|Filter: .*next_exec.*<=`)
	scansSmall = regexp.MustCompile(`SCAN \S*_run USING (COVERING )?INDEX \S*run_next\b`)
)

// wrong reports whether a line of a plan is bad. Engines that estimate rows do not consider
// that a LIMIT ends a read, if nothing has to be sorted.
func wrong(l dbtest.PlanLine, limited bool) bool {
	for _, text := range l {
		if scansTable.MatchString(text) && !scansSmall.MatchString(text) {
			return true
		}
	}
	kind, ok := l["type"]
	if table := l["table"]; !ok || !strings.HasSuffix(table, "schedule") && !strings.HasSuffix(table, "run") {
		return false
	}
	if l["select_type"] == "INSERT" { // MySQL lists the table that it only writes to
		return false
	}
	sorted := strings.Contains(l["Extra"], "filesort") || strings.Contains(l["Extra"], "temporary")
	rows, err := strconv.Atoi(l["rows"])
	many := err == nil && rows > 20*batch
	return kind == "ALL" || kind == "index" || many && (sorted || !limited)
}

// hot lists the statements that daemons execute again and again, with
// arguments for the tables of grow.
func hot(ids []int64, names []string) map[*sqlrun.Stmt]sqlrun.Args {
	moves, outcomes := make([]sqlrun.Args, len(ids)), make([]sqlrun.Args, len(ids))
	for i, id := range ids {
		moves[i] = sqlrun.Args{"id": id, "due": at(0).UnixMicro(), "upcoming": at(0).UnixMicro(), "begun": 1}
		outcomes[i] = sqlrun.Args{"id": id, "claim": "nobody's", "outcome": "ok", "why": "", "said": "", "exit_status": 0, "keep": -1}
	}
	fences, counts, lost := make([]sqlrun.Args, len(ids)), make([]sqlrun.Args, len(ids)), make(loseRows, len(ids))
	for i, id := range ids {
		fences[i], counts[i] = sqlrun.Args{"id": id, "fence": 1}, sqlrun.Args{"id": id, "counted": 1}
		lost[i] = loseRow{id, "lost", "", false, 1}
	}
	passed, noted := make(passRows, len(ids)), make(noteRows, len(ids))
	for i, id := range ids {
		passed[i] = passRow{id, &candidate{Schedule: Schedule{Name: names[i]}}, "missed", slotRange{at(0), at(0), 1, ""}}
		noted[i] = noteRow{who: names[i]}
	}
	lanes := []sqlrun.Args{{"lane": "default"}, {"lane": "default func x"}}
	lane := func(limit int) sqlrun.Args {
		return sqlrun.Args{"lane": "default", "since": int64(0), "limit": limit}
	}
	return map[*sqlrun.Stmt]sqlrun.Args{
		probe:       {"rows": lanes, "since": int64(0), "node": "web-1:7:x"},
		due:         lane(len(ids)),
		unplanned:   {"lane": "default", "limit": len(ids), "but": []int64{0}},
		stay:        {"node": "nobody", "lease": 1},
		leave:       {"node": "nobody"},
		departed:    {"since": -1, "limit": 10},
		forgetNodes: {"since": -1, "names": names},
		expired:     lane(len(ids)),
		lockNamed:   {"names": names},
		lockOne:     {"name": names[0]},
		existing:    {"names": names},
		open:        {"names": names, "rows": nameRows(names)},
		begun:       {"claim": "nobody's", "names": names},
		move:        {"rows": moves},
		plan:        {"rows": notedMoves(moves)},
		unplan:      {"limit": 100},
		putOff:      {"id": ids[0], "after": 1, "reason": ""},
		putOffRun:   {"id": ids[0], "after": 1, "reason": ""},
		disable:     {"id": ids[0], "state": "failed", "reason": "", "begun": 0},
		failed:      {"rows": counts},
		count:       {"rows": fences},
		resume:      {"rows": fences, "owner": "nobody", "claim": "c", "lease": 1},
		postpone:    {"ids": ids, "after": 1},
		release:     {"ids": ids},
		unreleased:  {"ids": ids},
		newest:      {"rows": nameRows(names)},
		lengthen:    {"rows": passed},
		free:        {"ids": ids},
		seen:        {"ids": ids},
		renewed:     {"ids": ids, "owner": "nobody", "lease": 1},
		leased:      {"ids": ids, "owner": "nobody", "lease": 1},
		noteAgain:   {"rows": noted},
		lose:        {"rows": lost},
		renew:       {"ids": ids, "owner": "nobody", "lease": 1},
		finish:      {"rows": outcomes},
		handBack:    {"id": ids[0], "claim": "nobody's", "left": "retry", "error": "", "output": "", "stops": 0, "after": 0},
		carryStops:  {"ids": ids, "stops": 1, "claim": "nobody's"},
		pausing:     {"lane": "default", "since": -1, "limit": len(ids)},
		acquit:      {"ids": ids},
		forget:      {"claim": "nobody's", "names": names},
		publish:     {"id": ids[0], "claim": "nobody's", "output": "", "error": ""},
		unwanted:    {"ids": ids},
		dismiss:     {"ids": ids, "why": ""},
		outdated:    {"limit": len(ids)},
		surplus:     {"schedule": names[0], "newer": 10, "limit": len(ids)},
		purge:       {"ids": ids},
		chain:       {"name": names[0], "due": at(0).UnixMicro(), "by": 1},
		history:     {"schedule": names[0], "limit": 10},
		getRun:      {"id": ids[0]},
		showRun:     {"id": ids[0]},
		runsAfter:   {"after": int64(1) << 40, "limit": 10},
		runsWithIDs: {"ids": ids},
		settingsOf:  {"ids": ids},
		lastRun:     {},
		relane:      {"schedule": names[0], "old": "default", "lane": "x"},
		runOf:       {"schedule": names[0], "due": at(0).UnixMicro()},
		causedBy:    {"schedule": names[0], "due": at(0).UnixMicro()},
		attemptsAt:  {"names": names, "from": at(0).UnixMicro(), "to": at(0).UnixMicro()},
		get:         {"name": names[0]},
		list:        {"after": names[0], "limit": 10},

		nextLane:     {"after": ""},
		upcoming:     {"lane": "default", "limit": 10, "never": never.UnixMicro()},
		executing:    {"lane": "default", "limit": 10, "never": never.UnixMicro()},
		inState:      {"state": "failed", "limit": 10},
		weighInState: {"state": "failed", "limit": 10},
		runFloor:     {"before": int64(1) << 40, "depth": 100},
		recentRuns: {
			"before": int64(1) << 40, "floor": int64(1) << 39, "states": RunStates, "limit": 10,
			"schedule": "", "since": int64(0), "until": never.UnixMicro(),
		},
		shortHistory: {"schedule": names[0], "limit": 10},
		ofSource:     {"source": "no such file"},
		pause:        {"name": "no such name", "reason": ""},
		unpause:      {"name": "no such name"},
		remove:       {"name": "no such name"},
	}
}

// grow fills the tables: schedules that are due in an hour, and a long history
// of some of them.
func grow(t *testing.T, db *dbtest.DB) {
	t.Helper()
	var now int64
	if err := db.Get(t.Context(), readClock, nil, &now); err != nil {
		t.Fatal(err)
	}
	size := 64_000
	if db.Dialect.SkipLocked == "" {
		size = 4000 // embedded: this process does all the work
	}
	addMany(t, db, 1000, "@every 1h", instantOf(now+3600_000_000))
	for n := 1000; n < size; n *= 2 {
		db.Do(t, `INSERT INTO {prefix}schedule (name, spec, command, due_at, next_exec)
			SELECT CONCAT(name, CAST(:more AS CHAR(8))), spec, command, due_at, next_exec FROM {prefix}schedule`, sqlrun.Args{"more": fmt.Sprintf("-%d", n)})
	}
	db.Do(t, `INSERT INTO {prefix}notice (subject, name, problem, detail, target, run_id, times, begun_at, last_at)
		SELECT 'schedule', name, 'missed', '', '', 0, 1, {now}, {now} FROM {prefix}schedule`, nil)
	db.Do(t, `INSERT INTO {prefix}run (schedule, due_at, attempt, state, started_at, finished_at)
		SELECT name, due_at, 1, 'ok', due_at, due_at FROM {prefix}schedule ORDER BY id LIMIT 1000`, nil)
	for n := 1000; n < size; n *= 2 {
		db.Do(t, `INSERT INTO {prefix}run (schedule, due_at, attempt, state, started_at, finished_at)
			SELECT schedule, due_at, attempt + :more, state, started_at, finished_at FROM {prefix}run`, sqlrun.Args{"more": n})
	}
}

// alone are the statements that are not run in transactions of their own.
var alone = map[*sqlrun.Stmt]bool{
	probe: true, handBack: true, forget: true, publish: true, history: true,
	list: true, get: true, showRun: true, remove: true, nextLane: true, upcoming: true, inState: true, executing: true,
	runFloor: true, recentRuns: true, shortHistory: true,
}

// some returns n ids and names of schedules.
func some(n int) (ids []int64, names []string) {
	for i := range n {
		ids, names = append(ids, int64(100*i+1)), append(names, fmt.Sprintf("s%05d", 10*i))
	}
	return ids, names
}

// No statement that a daemon executes again and again reads a whole table: with
// and without statistics, whether anything is due, running and expired or not.
func TestPlans(t *testing.T) {
	t.Parallel()
	dbtest.Anew(t, func(t *testing.T, db *dbtest.DB) {
		c := db.Conn(t)
		check := func(when string) {
			t.Helper()
			statements, claiming := hot(some(batch)), hot(some(claimBatch))
			for _, stmt := range []*sqlrun.Stmt{due, open, move, begun} {
				statements[stmt] = claiming[stmt]
			}
			for _, stmt := range sqlrun.Statements() {
				if stmt.Name == "sqlschema.live-nodes" { // of a package that has no such tables
					statements[stmt] = nil
				}
			}
			for stmt, args := range statements {
				plan := db.Plan(t, c, stmt, args)
				// read in order until it ends
				limited := stmt == probe || stmt == list || stmt == weigh || stmt == history || stmt == surplus || stmt == shortHistory ||
					stmt == nextLane || stmt == upcoming || stmt == executing || stmt == runFloor || stmt == recentRuns
				for _, line := range plan {
					if (stmt == putOff || stmt == putOffRun) && strings.Contains(fmt.Sprint(plan), "Index Cond: (id =") {
						continue // it filters one row
					}
					if wrong(line, limited) {
						t.Errorf("%s, %s: %.300s", stmt.Name, when, fmt.Sprint(line))
					}
				}
				if stmt == open && !regexp.MustCompile("run_(open|next)").MatchString(fmt.Sprint(plan)) {
					t.Errorf("%s, %s: reads the whole history of schedules: %.300s", stmt.Name, when, fmt.Sprint(plan))
				}
			}
		}
		grow(t, db)
		check("nothing due, no statistics")
		db.Analyze(t, "schedule", "run")
		check("nothing due, with statistics")
		db.Do(t, `UPDATE {prefix}schedule SET due_at = {time :due}, next_exec = {time :due} WHERE id % 100 = 0`,
			sqlrun.Args{"due": at(0).UnixMicro()})
		db.Do(t, `UPDATE {prefix}schedule SET next_exec = NULL WHERE id % 100 = 1`, nil)
		db.Do(t, `UPDATE {prefix}run SET state = 'running', claim = 'c', exec_by = 'o', next_exec = {time :due} WHERE id % 100 = 2`,
			sqlrun.Args{"due": at(0).UnixMicro()})
		check("some due, old statistics")
		db.Analyze(t, "schedule", "run")
		check("some due, with statistics")
	}, (*testing.T).Parallel)
}

// A plan that was made for an empty table must do for a full one: it reads neither the whole table nor one of its indexes.
func TestPlansOfAnEmptyTable(t *testing.T) {
	t.Parallel()
	countsScans := func(d *sqlrun.Dialect) bool { return d.Name == postgres.Dialect.Name }
	dbtest.With(countsScans).Anew(t, func(t *testing.T, db *dbtest.DB) {
		const scans = `SELECT SUM(seq_scan), SUM(idx_tup_fetch) FROM pg_stat_xact_user_tables WHERE relname LIKE '%dbcron_schedule' OR relname LIKE '%dbcron_run'`
		c, err := db.Pool().Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		var before, after, fetchedBefore, fetched int64
		ids, names := some(batch)
		execute := func(stmt *sqlrun.Stmt, args sqlrun.Args) {
			tx, err := c.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer tx.Rollback() //nolint:errcheck // nothing is to stay
			if !alone[stmt] {
				if _, err := tx.ExecContext(t.Context(), db.Dialect.OnBegin); err != nil {
					t.Fatal(err)
				}
			}
			if err := tx.QueryRowContext(t.Context(), scans).Scan(&before, &fetchedBefore); err != nil {
				t.Fatal(err)
			}
			if _, err := sqlrun.Select(t.Context(), db.On(tx), stmt, args, dbtest.ScanPlan); err != nil {
				t.Fatal(err)
			}
			if err := tx.QueryRowContext(t.Context(), scans).Scan(&after, &fetched); err != nil {
				t.Fatal(err)
			}
		}
		for range 10 { // more often than an engine needs to settle on a plan
			for stmt, args := range hot(ids, names) {
				execute(stmt, args)
			}
		}
		grow(t, db)
		check := func(when string) {
			for stmt, args := range hot(ids, names) {
				if execute(stmt, args); after > before {
					t.Errorf("%s, %s: reads the whole table", stmt.Name, when)
				}
				if n := fetched - fetchedBefore; n > 20*batch {
					t.Errorf("%s, %s: fetches %d rows by indexes", stmt.Name, when, n)
				}
			}
		}
		check("no statistics")
		db.Analyze(t, "schedule", "run")
		check("with statistics")
	}, (*testing.T).Parallel)
}

// notedMoves are moves as plan takes them.
func notedMoves(moves []sqlrun.Args) (all []sqlrun.Args) {
	for _, m := range moves {
		all = append(all, sqlrun.Args{"id": m["id"], "due": m["due"], "upcoming": m["upcoming"], "noted": "x"})
	}
	return all
}
