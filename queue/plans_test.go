package queue

import (
	"cmp"
	"context"
	"database/sql"
	"flag"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/internal/store"
)

var planRows = flag.Int("plan-rows", 0, "how many ready jobs TestPlans makes; 0: some thousands")

// bigTables may be large. All others are small, and may be read as a whole.
var bigTables = []string{"job", "job_delayed", "job_dead", "job_done", "job_unique"}

// keyColumns are the keys of the big tables, for engines that tell how many bytes of
// a key they use instead of which columns.
var keyColumns = map[string]map[string][]keyColumn{
	"job": {"PRIMARY": {{"queue_id", 4}, {"divided", 4}, {"priority", 2}, {"id", 8}}},
	"job_delayed": {
		"PRIMARY":          {{"queue_id", 4}, {"divided", 4}, {"id", 8}},
		"job_delayed_due":  {{"queue_id", 4}, {"divided", 4}, {"run_at", 8}, {"id", 8}},
		"job_delayed_hold": {{"queue_id", 4}, {"divided", 4}, {"hold_key", 803}},
	},
	"job_dead":   {"PRIMARY": {{"queue_id", 4}, {"id", 8}, {"divided", 4}}, "job_dead_purge": {{"purge_at", 9}}},
	"job_done":   {"PRIMARY": {{"queue_id", 4}, {"id", 8}, {"divided", 4}}, "job_done_purge": {{"purge_at", 8}}},
	"job_unique": {"PRIMARY": {{"unique_key", 802}, {"queue_id", 4}}, "job_unique_free": {{"free_at", 9}, {"unique_key", 802}, {"queue_id", 4}}},
}

type keyColumn struct {
	name  string
	bytes int
}

// asked are statements that people wait for, who may wait for a block to be read, or
// for a table. And servers are not asked store.LookForAny. Workers that end by themselves ask
// pending when they have nothing else to do, and tests have few jobs to advance.
var asked = map[*sqlrun.Stmt]bool{
	store.ListDelayed: true, store.StandDelayed: true, store.ListDead: true, store.CountReady: true, store.CountDelayed: true, store.CountRunning: true,
	store.CountDead: true, store.LookForAny: true,
	store.PendingBlock: true, store.PendingFIFO: true, store.PendingKinds: true, store.PendingFIFOKinds: true, store.OtherKinds: true, store.AdvanceDelayed: true, store.StatReady: true, store.StatDelayed: true, store.StatRunning: true,
	store.StatDead: true, store.StatDone: true, store.ListDone: true, store.CountDone: true,
	store.QueueUses: true, store.Unreadable: true,
}

// settled are statements that are run in transactions of their own, where no plans
// are kept.
var settled = map[*sqlrun.Stmt]bool{
	store.DelayReady: true, store.DelayRunning: true, store.Redelay: true, store.BuryReady: true, store.BuryDelayed: true, store.BuryRunning: true,
	store.CheckOutReady: true, store.CheckOutDelayed: true, store.LockPaused: true, store.LockJobs: true, store.LockDelayed: true, store.LockRunning: true, store.PresentDead: true,
	store.OutdatedDead: true, store.SurplusDead: true, store.PurgeDead: true, store.LockDead: true, store.LockOut: true, store.ReviveDead: true, store.HastenDelayed: true,
	store.LockQueue: true, store.SetQueue: true, store.QueueUses: true, store.MarkDeleted: true, store.StillMine: true,
	store.LockLater: true, store.DivideAnew: true, store.PassReady: true,
	store.KeepReady: true, store.KeepDelayed: true, store.KeepRunning: true, store.LockDone: true, store.OutdatedDone: true, store.PurgeDone: true,
	store.AttemptsDelayed: true, store.ClaimHolds: true, store.ClaimedReady: true, store.ClaimedDelayed: true, store.ClaimedRunning: true, store.LockReplaced: true, store.WhereDelayed: true,
	store.FreeKeys: true, store.PartingKeys: true, store.PassKeys: true, store.KeepKeys: true, store.KeysUntil: true, store.OldKeys: true,
	store.KeyHolders: true, store.LockedKeyHolders: true, store.SeenKeyHolders: true, store.TryKeys: true, store.TakeOverKeys: true, store.PassOnKeys: true,
}

// sound are those of them whose plans do not depend on statistics.
var sound = map[*sqlrun.Stmt]bool{
	store.FreeKeys: true, store.PartingKeys: true, store.PassKeys: true, store.KeepKeys: true, store.KeysUntil: true,
}

// piped are statements that run in pipelines, in which PostgreSQL has to use an index even if
// the statistics say that the table is empty.
var piped = map[*sqlrun.Stmt]bool{
	store.AckReady: true, store.AckDelayed: true, store.AckRunning: true, store.FetchReady: true, store.FetchAgain: true, store.FetchDelayed: true, store.LookAhead: true, store.FetchTenants: true,
	store.NextReady: true, store.NextDue: true, store.HoldersOfKeys: true, store.HolderInLine: true,
	store.PresentReady: true, store.PresentDelayed: true, store.GetRunning: true,
	store.LoadReady: true, store.LoadDelayed: true, store.LoadRunning: true,
	store.LookFor: true, store.NextDelayed: true, store.HoldingBlocks: true, store.StrayBlocks: true,
	store.LocateJob: true, store.AwaitedDone: true, store.AwaitedDead: true, store.FindReady: true, store.FindDelayed: true, store.FindRunning: true, store.FindDead: true, store.ListReady: true,
	store.ListDelayed: true, store.ListRunning: true, store.ListDead: true,
	store.StandReady: true, store.StandDelayed: true, store.StandRunning: true, store.FindDone: true, store.ListDone: true,
	store.ContentReady: true, store.ContentDelayed: true, store.ContentRunning: true, store.ContentDead: true, store.ContentDone: true,
}

// A scan is a plan's access to a table that may be large.
type scan struct {
	table  string
	cond   string // the columns looked up in a key; "" if it reads everything
	filter string // the condition checked for each row
}

var (
	scanText = regexp.MustCompile(`^(?:SCAN|SEARCH|.*Scan.* on) (\w+)(?:.*USING [^(]*(\(.*\))?)?`)
	condText = regexp.MustCompile(`^(?:Index|Recheck) Cond: (.*)`)
	sorts    = regexp.MustCompile(`Sort Key|B-TREE FOR ORDER BY|filesort`)
	byID     = regexp.MustCompile(`\bid ?=`)
	tight    = regexp.MustCompile(`\bid ?=|queue_id ?=.*\b(id|run_at|hold_key)\)?(::text)? ?[=<>]|\b(purge|free)_at ?<|\bunique_key\)?(::text)? ?=`)
	keyed    = regexp.MustCompile(`\b(queue_id|divided|priority|run_at|purge_at)\b`)
)

// scans reads a plan, which is text or a table.
func scans(text string, plan []dbtest.PlanLine) (all []scan) {
	names := map[string]string{}
	for _, table := range bigTables {
		names["dbcron_"+table] = table
		if alias := regexp.MustCompile(`dbcron_` + table + ` AS (\w+)`).FindStringSubmatch(text); alias != nil {
			names[alias[1]] = table
		}
	}
	at := -1
	for _, line := range plan {
		if _, ok := line["type"]; ok {
			if table := names[line["table"]]; table != "" && line["select_type"] != "INSERT" {
				all = append(all, columnScan(text, table, line))
			}
			continue
		}
		words := strings.TrimLeft(line["QUERY PLAN"]+line["detail"], " ->")
		if found := scanText.FindStringSubmatch(words); found != nil && !strings.HasPrefix(words, "Bitmap Index") {
			at = -1
			if table := names[found[1]]; table != "" {
				at = len(all)
				all = append(all, scan{table: table, cond: found[2]})
			}
		}
		if at < 0 {
			continue
		}
		if found := condText.FindStringSubmatch(words); found != nil {
			all[at].cond += found[1]
		} else if filter, ok := strings.CutPrefix(words, "Filter: "); ok {
			all[at].filter = filter
		}
	}
	return all
}

// columnScan is a scan of which an engine tells in columns.
func columnScan(text, table string, line dbtest.PlanLine) scan {
	s := scan{table: table}
	if line["type"] == "ALL" || line["type"] == "index" {
		return s
	}
	length, _ := strconv.Atoi(line["key_len"])
	columns := keyColumns[table][strings.TrimPrefix(line["key"], "dbcron_")]
	for i, c := range columns {
		if length -= c.bytes; length < 0 {
			break
		}
		last := i == len(columns)-1 || length < columns[i+1].bytes
		if last && line["type"] == "range" && !regexp.MustCompile(`\bid (IN \(|= )`).MatchString(text) {
			s.cond += c.name + " > "
		} else {
			s.cond += c.name + " = "
		}
	}
	return s
}

// A size has the number of rows of a table, of a queue in it, and of a block of that.
type size struct{ all, queue, block int }

func sizes(t *testing.T, db *dbtest.DB) map[string]size {
	t.Helper()
	all := map[string]size{}
	for _, table := range bigTables {
		var s size
		block := "divided"
		if table == "job_unique" { // which has no blocks
			block = "2"
		}
		db.Scan(t, `SELECT COUNT(*), COALESCE(SUM(CASE WHEN queue_id = 1 THEN 1 ELSE 0 END), 0), COALESCE(SUM(CASE WHEN queue_id = 1 AND `+block+` = 2 THEN 1 ELSE 0 END), 0)
			FROM {prefix}`+table, nil, &s.all, &s.queue, &s.block)
		all[table] = s
	}
	return all
}

// reads tells how many rows a scan reads, roughly: 0 if those that the statement is about.
func (s size) reads(c scan, inOrder bool) int {
	switch {
	case tight.MatchString(c.cond) && (byID.MatchString(c.cond) || !keyed.MatchString(c.filter)):
		return 0
	case inOrder && c.cond != "" && !keyed.MatchString(c.filter):
		return 0 // until the LIMIT ends it
	case regexp.MustCompile(`queue_id ?=.*divided ?=`).MatchString(c.cond):
		return s.block
	case regexp.MustCompile(`queue_id ?=`).MatchString(c.cond):
		return s.queue
	}
	return s.all
}

// wrong says what is bad about a plan of a statement with n rows; "" if nothing is.
func wrong(stmt *sqlrun.Stmt, d *sqlrun.Dialect, plan []dbtest.PlanLine, n int, tables map[string]size) string {
	text := stmt.Text(d)
	sorted, limited := sorts.MatchString(fmt.Sprint(plan)), strings.Contains(text, "LIMIT") && !strings.Contains(text, "NOT EXISTS")
	most := 100 + 20*n
	if limited && !strings.Contains(text, "DELETE") {
		most = 1000
	}
	for _, s := range scans(text, plan) {
		if tables[s.table].all < 2000 {
			continue // it is small yet
		}
		reads := tables[s.table].reads(s, limited && !sorted)
		if reads == 0 && sorted && limited && !byID.MatchString(s.cond) {
			reads = tables[s.table].block
		}
		if stmt == store.HeldKeys && strings.Contains(fmt.Sprint(plan), "job_delayed_hold") {
			continue // where this has no others
		}
		if stmt == store.OldKeys && strings.Contains(fmt.Sprint(plan), "job_unique_free") {
			continue // expired ones, which are removed next
		}
		if (stmt == store.LockPaused || stmt == store.SuspiciousJobs) && s.table == "job_delayed" && strings.Contains(fmt.Sprint(plan), "job_delayed_stopped") {
			continue // likewise
		}
		if reads > most && !asked[stmt] {
			return fmt.Sprintf("reads %d rows of %s", reads, s.table)
		}
	}
	return ""
}

// planArgs has a value for each argument of every statement. n is the length of lists.
func planArgs(stmt *sqlrun.Stmt, n int) sqlrun.Args {
	ids, rows, uniques := make([]int64, n), make([]sqlrun.Args, n), make([]string, n)
	for i := range rows {
		ids[i], uniques[i] = int64(100*i+3), fmt.Sprint("u", 100*i+3)
		rows[i] = sqlrun.Args{
			"queue": 1, "divided": i % planBlocks, "generation": 1, "priority": 1 + i%Idle, "since": int64(1),
			"after1": int64(1), "after2": int64(1), "after3": int64(1), "after4": int64(1),
			"block": i % planBlocks, "job": -ids[i], "name": "kind", "job_key": nil, "payload": "{}",
			"bytes": nil, "above": i % planBlocks, "below": i%planBlocks + 2, "target": 99,
			"tries": 1, "lasts": nil, "trace_of": nil, "endpoint": nil, "tenant": nil, "cost": nil, "unique_until": nil, "run_us": int64(1), "died": 0, "charge": "", "later": 1,
			"why": "", "more": "", "holds": nil, "halts": 1, "at": i, "unique_key": "k", "until_us": nil, "wait_us": nil, "holder": 1,
			"slot": 0, "since_us": 1, "done": 1, "failed": 1, "dead": 1, "waited": 1, "ran": 1, "group_id": ids[i], "seen": 1, "held": 1, "heir": "", "became": "done", "made": nil,
		}
	}
	var after any = ids[0]
	if stmt == store.ListQueues || stmt == store.ListRoutes || stmt == store.ListLimits || stmt == store.ListShares || stmt == store.HeldKeys || stmt == store.SumCounts {
		after = "a"
	}
	return sqlrun.Args{
		"rows": rows, "keys": rows, "uniques": uniques, "tenants": rows, "places": rows, "gaps": rows, "ids": ids, "n": n, "least": ids[0],
		"most": ids[n-1], "id": ids[0], "limit": 100, "after": after, "since": int64(1), "soon": 1,
		"queue": 1, "queues": []int64{1}, "to": 1, "kind": "k", "divided": 2, "priority": 2, "first": 1, "last": 2, "generation": 1,
		"after1": ids[0], "after2": ids[0], "after3": ids[0], "after4": ids[0],
		"name": "a", "under": "u", "version": "v", "drained": 0, "node": "n1",
		"names": []string{"a", "b"}, "nodes": []string{"n1", "n2"}, "recent": 0, "from": "n2", "was": "running",
		"had": "", "charged": "x", "died": 1, "lost": 0, "clears": 0,
		"ahead": 1, "page": 100, "lease": 1, "busy": 0, "fence": 1, "batch": 1, "left": 0, "keep": 1,
		"state": "active", "reason": "", "key_retry": "hold", "fair": "no", "max_attempts": 1, "max_crashes": 1, "retry_delay": "", "retry_max_delay": "",
		"timeout": "", "max_timeout": "", "origin_share": 1, "max_payload": 1, "keep_dead": "", "keep_dead_max": 1, "keep_done": "", "poll_min": "",
		"poll_max": "", "notify": "", "longest": 1, "channel": "c", "payload": "p", "unique_key": "k", "job": int64(1), "holder": int64(2),
		"until_us": int64(1), "wait_us": nil, "by": 1, "jobs": rows,
		"snapshot": nil, "percent": nil, "message": nil, "attempt": 1, "group": int64(1), "callback": nil,
		"error": "", "stops": 3, "topic": "t", "subscriber": "q",
		"running": 1, "rate": 1, "per": "1s", "burst": 1, "slot": 0, "lasts": 1, "drawn": int64(1), "at": "127.0.0.1:1",
		"kinds": []string{"k", "l"}, "does": nil, "key": "k", "what": "done", "tries": 1, "before": ids[0],
		"tenant": "t", "weight": 1, "upto": ids[n-1],
	}
}

// planBlocks is the number of blocks of the queues.
const planBlocks = 16

// planQueues makes three queues, the first of which has most of the jobs.
func planQueues(t *testing.T, db *dbtest.DB) {
	t.Helper()
	c := client(t, db, Options{Blocks: planBlocks})
	var rows []sqlrun.Args
	for i := range 1024 {
		q, err := c.queue(t.Context(), "q"+[]string{"0", "0", "0", "0", "12"[i/5%2 : i/5%2+1]}[i%5])
		must(t, err)
		priority := []int{Normal, Urgent, Normal, Normal, Normal, Low, Idle, Normal, Normal, Normal}[i/planBlocks%10]
		rows = append(rows, sqlrun.Args{
			"queue": q.ID, "block": i % planBlocks, "priority": priority, "job": i + 1, "name": "kind", "job_key": fmt.Sprintf("k%d", i),
			"payload": `{"about": "this and that"}`, "bytes": nil, "tries": nil, "lasts": nil, "trace_of": nil,
			"endpoint": nil, "cost": nil, "tenant": nil, "unique_key": nil, "unique_until": nil, "group_id": nil, "run_us": nil,
		})
	}
	_, err := db.Exec(t.Context(), store.InsertJobs, sqlrun.Args{"rows": rows})
	must(t, err)
}

// planMore makes more of the jobs that planQueues has made, and fills the other tables
// from them. One in seven of the delayed ones is due.
func planMore(t *testing.T, db *dbtest.DB, size int) {
	t.Helper()
	for n := 1024; n < size; n *= 2 {
		db.Do(t, `INSERT INTO {prefix}job (queue_id, divided, priority, id, kind, job_key, payload)
			SELECT queue_id, divided, priority, id + :more, kind, job_key, payload FROM {prefix}job`, sqlrun.Args{"more": n})
	}
	for _, table := range []string{"job_delayed", "job_running", "job_dead", "job_done", "job_unique"} {
		db.Do(t, "DELETE FROM {prefix}"+table, nil)
	}
	const columns = `queue_id, divided, id, priority, kind, job_key, payload`
	db.Do(t, `INSERT INTO {prefix}job_delayed (`+columns+`, run_at, hold_key)
		SELECT `+columns+`, {now + CASE WHEN id % 7 = 1 THEN -1000000 ELSE 3600000000 + id * 1000 END}, CASE WHEN id % 49 = 1 THEN job_key END
		FROM {prefix}job WHERE id % 3 = 1`, nil)
	db.Do(t, `INSERT INTO {prefix}job_running (`+columns+`, lock_by, started_at) SELECT `+columns+
		`, 'n1', {now} FROM {prefix}job WHERE id <= 512`, nil)
	db.Do(t, `INSERT INTO {prefix}job_dead (`+columns+`, purge_at)
		SELECT `+columns+`, {now + CASE WHEN id % 101 = 1 THEN -1000000 ELSE 3600000000 + id * 1000 END} FROM {prefix}job WHERE id % 11 < 3`, nil)
	db.Do(t, `INSERT INTO {prefix}job_done (`+columns+`, attempt, crashes, outcome, error, worker, started_at, ended_at, purge_at)
		SELECT `+columns+`, 1, 0, 'done', '', 'n1', {now}, {now}, {now + CASE WHEN id % 101 = 1 THEN -1000000 ELSE 3600000000 + id * 1000 END}
		FROM {prefix}job WHERE id % 11 > 7`, nil)
	db.Do(t, `INSERT INTO {prefix}job_unique (queue_id, unique_key, job, pending, free_at)
		SELECT queue_id, CONCAT('u', id), id, CASE WHEN id % 101 = 1 THEN 'no' ELSE 'yes' END, CASE WHEN id % 101 = 1 THEN {now + -1000000} END FROM {prefix}job`, nil)
}

// freeze keeps the engine from gathering statistics by itself, in its own words.
func freeze(t *testing.T, db *dbtest.DB) {
	t.Helper()
	for _, table := range bigTables {
		for _, how := range []string{"SET (autovacuum_enabled = off)", "STATS_AUTO_RECALC = 0"} {
			_, _ = db.Exec(t.Context(), sqlrun.Unlisted("ALTER TABLE {prefix}"+table+" "+how), nil)
		}
	}
}

// A keeper asks for plans that the server has made once, for any values, and keeps.
type keeper struct {
	*sql.Conn
	kept map[string]string
}

func (k keeper) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	name := k.kept[query]
	if name == "" {
		name = fmt.Sprintf("kept%d", len(k.kept))
		if _, err := k.ExecContext(ctx, "PREPARE "+name+" AS "+query); err != nil {
			return nil, err
		}
		k.kept[query] = name
	}
	if len(args) == 0 {
		return k.Conn.QueryContext(ctx, "EXPLAIN EXECUTE "+name)
	}
	return k.Conn.QueryContext(ctx, "EXPLAIN EXECUTE "+name+" (NULL"+strings.Repeat(", NULL", len(args)-1)+")")
}

// TestPlans checks the plan of every statement: none reads more jobs than necessary, whatever
// rows exist now and existed when the plan was made.
func TestPlans(t *testing.T) { testPlans(t, false) }

// TestPlansOfOldStatistics is the same with statistics that were gathered when there
// were no jobs.
func TestPlansOfOldStatistics(t *testing.T) { testPlans(t, true) }

func testPlans(t *testing.T, old bool) {
	t.Helper()
	t.Parallel()
	dbtest.Anew(t, func(t *testing.T, db *dbtest.DB) {
		rows := 8192
		switch {
		case !dbtest.Long():
		case db.Dialect.SkipLocked == "":
			rows = 16_000 // embedded: this process does all the work
		default:
			rows = 64_000
		}
		rows = cmp.Or(*planRows, rows)
		conn := db.Conn(t)
		fresh := func(when string, free bool) {
			t.Helper()
			p := planner{db: db, when: when, free: free, tables: sizes(t, db)}
			p.look(t, func(stmt *sqlrun.Stmt, args sqlrun.Args) []dbtest.PlanLine {
				if db.Dialect.PipelineWithout != nil { // and transactions are without this
					_, err := conn.ExecContext(t.Context(), "SET enable_seqscan = "+onOff(!settled[stmt]))
					must(t, err)
				}
				return db.Plan(t, conn, stmt, args)
			})
		}
		freeze(t, db)
		if old {
			db.Analyze(t, bigTables...)
		}
		fresh("empty", false)
		ofEmpty := keep(t, db, old)
		planQueues(t, db)
		planMore(t, db, 0)
		fresh("small", false)
		ofSmall := keep(t, db, old)
		planMore(t, db, 8192) // for many pages
		for _, table := range bigTables {
			db.Do(t, "DELETE FROM {prefix}"+table, nil)
		}
		if old {
			db.Analyze(t, bigTables...)
		}
		ofDrained := keep(t, db, old)
		planQueues(t, db)
		planMore(t, db, rows)
		fresh("large", old)
		keep(t, db, false)("large")
		ofEmpty("large, was empty")
		ofSmall("large, was small")
		ofDrained("large, was empty again")
		db.Analyze(t, bigTables...)
		fresh("large, with statistics", false)
		keep(t, db, false)("large, with statistics")
	}, (*testing.T).Parallel)
}

// A planner reads plans.
type planner struct {
	db     *dbtest.DB
	when   string
	kept   bool // plans are made once, for any values
	free   bool // by statistics that say that tables are empty, or small
	tables map[string]size
}

func (p *planner) look(t *testing.T, ask func(stmt *sqlrun.Stmt, args sqlrun.Args) []dbtest.PlanLine) {
	t.Helper()
	for _, stmt := range sqlrun.Statements() {
		sentinel := stmt == store.RemoveReadySentinels || stmt == store.RemoveDelayedSentinel
		if sentinel && !p.db.Dialect.PassesEnds { // it is never sent there
			continue
		}
		if !strings.HasPrefix(stmt.Name, "queue.") || strings.Contains(stmt.Text(p.db.Dialect), "VALUES (") || p.kept && settled[stmt] {
			continue // or it looks nowhere
		}
		for _, n := range []int{1, planBlocks} {
			plan := ask(stmt, planArgs(stmt, n))
			why := wrong(stmt, p.db.Dialect, plan, n, p.tables)
			if why == "" {
				continue
			}
			report := t.Errorf
			if p.gap(stmt) {
				report = t.Logf
			}
			report("%s, %s, of %d: %s\n%s", stmt.Name, p.when, n, why, planText(plan))
			break
		}
	}
}

// keep makes the engine cache generic plans, if it does so, and returns a function that reads
// how the same connection later runs the statements.
func keep(t *testing.T, db *dbtest.DB, free bool) (look func(when string)) {
	t.Helper()
	conn, err := db.Pool().Conn(t.Context())
	must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	if _, err := conn.ExecContext(t.Context(), "SET plan_cache_mode = force_generic_plan"); err != nil {
		return func(string) {}
	}
	on := db.On(keeper{conn, map[string]string{}})
	look = func(when string) {
		t.Helper()
		p := planner{db: db, when: "kept, " + when, kept: true, free: free, tables: sizes(t, db)}
		p.look(t, func(stmt *sqlrun.Stmt, args sqlrun.Args) []dbtest.PlanLine {
			for _, what := range db.Dialect.PipelineWithout {
				_, err := conn.ExecContext(t.Context(), "SET "+what+" = "+onOff(!piped[stmt]))
				must(t, err)
			}
			plan, err := sqlrun.Select(t.Context(), on, stmt, args, dbtest.ScanPlan)
			must(t, err)
			return plan
		})
	}
	look("at once")
	return look
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}

func planText(plan []dbtest.PlanLine) string {
	var lines []string
	for _, l := range plan {
		lines = append(lines, l.String())
	}
	return strings.Join(lines, "\n")
}

// gap reports whether a bad plan is known: then it is logged, and is no error.
func (p *planner) gap(stmt *sqlrun.Stmt) bool {
	// A table costs nothing to read of which statistics say that it is empty, or small;
	// such plans are kept until there are new ones, for a minute or so.
	return p.free && !piped[stmt] && !sound[stmt]
}
