package scheduler

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/guardian"
	"github.com/dbcron/dbcron/internal/sqlconn"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue"
)

// A stranger's transaction, such as a session at the SQL prompt that was left open, may hold any row of
// ours for hours. What a daemon does for all its runs and schedules waits for no such row. These are the statements of
// package scheduler that lock rows, who runs them, and why those that wait may do so. A new one belongs into one of the
// lists. (SQLite has one writer: there a stranger's transaction that has written stops all others for as long as it
// takes, and nothing can pass over a row.)

// A freeStatement passes over locked rows. These are its arguments in the world of strangers.
type freeStatement struct {
	stmt *sqlrun.Stmt
	args sqlrun.Args
}

// passes has the statements of what serves all.
func passes(w *strangersWorld) map[string][]freeStatement {
	lane := sqlrun.Args{"lane": "default", "since": int64(0), "limit": 10}
	due, notice := at(0).UnixMicro(), sqlrun.Args{"rows": noteRows{{who: "noted", what: "missed"}}}
	return map[string][]freeStatement{
		"the renewal of all leases": {{renew, w.leases()}, {renewed, w.leases()}},
		"the writer of all outcomes": {
			{finish, sqlrun.Args{"rows": finishRows{{id: w.ids["running"], claim: "token", outcome: "ok", exitStatus: 0}}}},
			{free, sqlrun.Args{"ids": []int64{w.ids["running"]}}},
		},
		"the output of all runs": {{publish, sqlrun.Args{"id": w.ids["running"], "claim": "token", "output": "news", "error": ""}}},
		"the poll of all lanes": {
			{unplan, sqlrun.Args{"limit": 10}},
			{unplanAhead, sqlrun.Args{"limit": 10, "slack": -time.Hour.Microseconds()}},
			{bootSeen, sqlrun.Args{"boot": "before"}},
		},
		"claims": {
			{stmtDue, lane},
			{unplanned, sqlrun.Args{"lane": "default", "limit": 10, "but": []int64{0}}},
			{lockNamed, sqlrun.Args{"names": []string{"due"}}},
			{expired, lane},
			{lengthen, sqlrun.Args{"rows": passRows{{id: w.ids["missed"], c: &candidate{}, state: "missed", slotRange: slotRange{from: instantOf(due), to: instantOf(due), n: 1}}}}},
			{release, sqlrun.Args{"ids": []int64{w.ids["waiting"]}}},
			{noteAgain, notice},
			{noticesFree, sqlrun.Args{"names": []string{"noted"}}},
			{putOff, sqlrun.Args{"id": w.ids["due"], "after": 1, "reason": ""}},
			{putOffRun, sqlrun.Args{"id": w.ids["expired"], "after": 1, "reason": ""}},
		},
		"the removal of old history": {
			{outdated, sqlrun.Args{"limit": 10}},
			{surplus, sqlrun.Args{"schedule": "long", "newer": 0, "limit": 10}},
			{purge, sqlrun.Args{"ids": []int64{w.ids["old"]}}},
			{forgetBoots, sqlrun.Args{"ago": 0}},
		},
		"the daemon's announcement": {{forgetNodes, sqlrun.Args{"names": []string{"dead"}, "since": 0}}},
		"a daemon that stops": {
			{pausing, sqlrun.Args{"lane": "default", "since": 0, "limit": 10}},
			{handBack, sqlrun.Args{"id": w.ids["running"], "claim": "token", "left": "retry", "error": "", "output": "", "stops": 0, "after": 0}},
		},
	}
}

// stmtDue is due, for functions that have a time of that name.
var stmtDue = due

// mayWait has statements that wait, for a reason.
var mayWait = map[string][]*sqlrun.Stmt{
	"rows that the same transaction has locked or begun before": {
		move, plan, disable, failed, lose, resume, count, postpone, dismiss, acquit, carryStops,
	},
	"new rows: these wait for whoever has inserted the same key and not committed; those of jobs do so briefly": {
		begin, wait, chain, pass, noteFirst, noteBoot, arrive,
	},
	"the daemon's own row, in a goroutine of its own":                 {stay, leave, noteProblem},
	"runs of a claim whose answer was lost, for five seconds at most": {forget},
	"operators, who wait for themselves": {
		lockOne, getRun, drain, undrain, insert, update, replan, takeSource, relane, pause, unpause, removeOfSource, remove,
	},
}

// rowLocks recognizes statements that lock rows.
var rowLocks = regexp.MustCompile(`\b(UPDATE|DELETE|INSERT|LOCK IN SHARE MODE|FOR SHARE)\b`)

// Each statement of the package that locks rows is in one of the lists.
func TestWhoWaits(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		listed := map[*sqlrun.Stmt]int{}
		for _, list := range passes(&strangersWorld{}) {
			for _, s := range list {
				listed[s.stmt]++
			}
		}
		for _, list := range mayWait {
			for _, stmt := range list {
				listed[stmt]++
			}
		}
		seen := 0
		for _, stmt := range sqlrun.Statements() {
			if !strings.HasPrefix(stmt.Name, "scheduler.") || !rowLocks.MatchString(stmt.Text(db.Dialect)) {
				continue
			}
			seen++
			if n := listed[stmt]; n != 1 {
				t.Errorf("%s locks rows, and is in %d lists: say who runs it, and whether it may wait for a stranger's transaction", stmt.Name, n)
			}
		}
		if seen < 40 {
			t.Errorf("only %d statements were found that lock rows", seen)
		}
	})
}

// A strangersWorld has rows in all tables for the statements in passes, and beside each a neighbour.
type strangersWorld struct{ ids map[string]int64 }

func (w *strangersWorld) leases() sqlrun.Args {
	return sqlrun.Args{"ids": []int64{w.ids["running"]}, "owner": "me", "lease": int64(30e6)}
}

func newStrangersWorld(t *testing.T, db *dbtest.DB) *strangersWorld {
	t.Helper()
	const past, future = "{now + -10000000}", "{now + 60000000}"
	w := &strangersWorld{ids: map[string]int64{}}
	planned := "'@every 1m UTC vixie'"
	for _, name := range []string{"due", "neighbour"} {
		byHand(t, db, map[string]string{"name": "'" + name + "'", "spec": "'@every 1m'", "due_at": past, "next_exec": past, "planned": planned})
	}
	byHand(t, db, map[string]string{"name": "'stale'", "spec": "'@every 1m'", "due_at": future, "next_exec": future, "planned": "'@every 2m UTC vixie'"})
	byHand(t, db, map[string]string{"name": "'unplanned'", "spec": "'@every 1m'"})
	db.Scan(t, `SELECT id FROM {prefix}schedule WHERE name = 'due'`, nil, new(int64))
	var id int64
	db.Scan(t, `SELECT id FROM {prefix}schedule WHERE name = 'due'`, nil, &id)
	w.ids["due"] = id
	for name, columns := range map[string]map[string]string{
		"running":   {"state": "'running'", "exec_by": "'me'", "claim": "'token'", "next_exec": future, "lane": "'default'"},
		"expired":   {"state": "'running'", "exec_by": "'dead'", "claim": "'lost'", "next_exec": past, "lane": "'default'"},
		"waiting":   {"state": "'waiting'", "next_exec": future, "lane": "'default'"},
		"pausing":   {"state": "'retry'", "next_exec": future, "lane": "'default'", "stops": "3", "finished_at": past},
		"missed":    {"state": "'missed'", "due_to": past, "finished_at": past},
		"old":       {"state": "'ok'", "purge_at": past, "finished_at": past},
		"neighbour": {"state": "'running'", "exec_by": "'me'", "claim": "'token'", "next_exec": future, "lane": "'default'"},
	} {
		columns["schedule"], columns["due_at"] = "'"+name+"'", past
		w.ids[name] = putRun(t, db, columns)
	}
	for i := range 3 {
		putRun(t, db, map[string]string{"schedule": "'long'", "state": "'ok'", "due_at": fmt.Sprintf("{now + %d000000}", i-20), "finished_at": past})
	}
	for _, name := range []string{"noted", "neighbour"} {
		db.Do(t, `INSERT INTO {prefix}notice (subject, name, problem, detail, target, run_id, times, begun_at, last_at) VALUES ('schedule', :name, 'missed', '', '', 0, 1, {now}, {now})`,
			sqlrun.Args{"name": name})
	}
	for _, name := range []string{"dead", "neighbour"} {
		db.Do(t, `INSERT INTO {prefix}node (name, state, expire_at) VALUES (:name, 'live', `+past+`)`, sqlrun.Args{"name": name})
		db.Do(t, `INSERT INTO {prefix}schedule_boot (boot, schedule, lane, seen_at) VALUES ('before', :name, 'x', `+past+`)`, sqlrun.Args{"name": name})
	}
	return w
}

// held are the tables whose rows the stranger holds, and what selects a neighbour there.
var held = map[string]string{
	"schedule": "name = 'neighbour'", "run": "schedule = 'neighbour'", "notice": "name = 'neighbour'", "node": "name = 'neighbour'",
	"schedule_boot": "schedule = 'neighbour'",
}

// brieflyOn returns the database with a bound for waits, so that a wait is an error.
func brieflyOn(t *testing.T, db *dbtest.DB) *dialect.DB {
	t.Helper()
	if db.Dialect.LockTimeout == nil {
		return db.DB
	}
	pool := sqlconn.Borrow(db.Pool(), 1, db.Dialect.Briefly)
	t.Cleanup(func() { _ = pool.Close() })
	return db.Over(pool).Brief()
}

// hold locks rows in a stranger's transaction, which changes them if there is something to set.
func strangerHolds(t *testing.T, db *dbtest.DB, tx *sql.Tx, table, set, where string) {
	t.Helper()
	ids, err := sqlrun.Select(t.Context(), db.On(tx), sqlrun.Unlisted("SELECT * FROM {prefix}"+table+" WHERE "+where+" {locked}"), nil,
		func(*sql.Rows) (none struct{}, err error) { return none, nil })
	if must(t, err); len(ids) == 0 {
		t.Fatalf("the stranger holds no row of %s", table)
	}
	if set != "" {
		_, err = db.On(tx).Exec(t.Context(), sqlrun.Unlisted("UPDATE {prefix}"+table+" SET "+set+" WHERE "+where), nil)
		must(t, err)
	}
}

func strangersTx(t *testing.T, db *dbtest.DB) *sql.Tx {
	t.Helper()
	return db.Begin(t, &sql.TxOptions{Isolation: db.Dialect.Isolation})
}

// None of the statements that serve all waits for a row that a stranger's transaction holds, and each finds the row when it
// is free, also if the stranger holds the row beside it.
func TestRoundsPassAStranger(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		w := newStrangersWorld(t, db)
		brief := brieflyOn(t, db)
		errUndo := errors.New("undone")
		all := func(check func(who string, s freeStatement, n int64, err error)) {
			for who, list := range passes(w) {
				for _, s := range list {
					err := brief.Tx(t.Context(), func(_ context.Context, tx *sqlrun.Session) (err error) {
						var n int64
						if strings.HasPrefix(strings.TrimSpace(s.stmt.Text(db.Dialect)), "SELECT") {
							var rows []struct{}
							rows, err = sqlrun.Select(t.Context(), tx, s.stmt, s.args, func(*sql.Rows) (none struct{}, err error) { return none, nil })
							n = int64(len(rows))
						} else {
							n, err = tx.Exec(t.Context(), s.stmt, s.args)
						}
						check(who, s, n, err)
						return errUndo
					})
					if !errors.Is(err, errUndo) {
						t.Error(err)
					}
				}
			}
		}
		all(func(_ string, s freeStatement, n int64, err error) {
			if err != nil || n == 0 {
				t.Errorf("%s reaches %d rows without the stranger (%v)", s.stmt.Name, n, err)
			}
		})
		if db.Dialect.SkipLocked == "" {
			return // one writer at a time
		}
		for _, table := range append(slices.Sorted(maps.Keys(held)), "") {
			tx := strangersTx(t, db)
			for one := range held {
				if table == "" || one == table {
					strangerHolds(t, db, tx, one, "", "1 = 1")
				}
			}
			all(func(who string, s freeStatement, n int64, err error) {
				if err != nil || table == "" && n != 0 {
					t.Errorf("%s, in %s, with the rows of %s held by a stranger, reaches %d rows: %v", s.stmt.Name, who, cmp.Or(table, "all tables"), n, err)
				}
			})
			must(t, tx.Rollback())
		}
		tx := strangersTx(t, db)
		for table, where := range held {
			strangerHolds(t, db, tx, table, "", where)
		}
		all(func(who string, s freeStatement, n int64, err error) {
			if err != nil || n == 0 {
				t.Errorf("%s, in %s, with a neighbour held by a stranger, reaches %d rows: %v", s.stmt.Name, who, n, err)
			}
		})
		must(t, tx.Rollback())
	})
}

// several is clocked on the engines with several writers.
func several(t *testing.T, f func(t *testing.T, db *dbtest.DB)) {
	t.Helper()
	t.Parallel()
	dbtest.SeveralWriters.EachClock(t, f, (*testing.T).Parallel)
}

// A stranger holds the row of one of a daemon's runs. The other leases are renewed. That one stays as it is, and
// is renewed if the stranger lets go in time; otherwise it is lost by the database's clock, and its work is ended.
func TestLeasesBesideAStranger(t *testing.T) {
	several(t, func(t *testing.T, db *dbtest.DB) {
		for i := range 3 {
			add(t, db, fmt.Sprint("s", i), "@every 1h")
		}
		db.Advance(t, time.Hour)
		s := daemon(t, db, Options{Lease: longWait})
		runs := claimed(t, s, 10)
		left := func() (names string) {
			t.Helper()
			all, err := s.renew(t.Context(), s.held())
			must(t, err)
			for _, e := range all {
				names += e.schedule
			}
			return names
		}
		lost := func() (names string) {
			for _, e := range runs {
				if e.isLost() {
					names += e.schedule
				}
			}
			return names
		}
		for _, letsGo := range []bool{true, false} {
			tx := strangersTx(t, db)
			strangerHolds(t, db, tx, "run", "error = 'mine'", "schedule = 's1'")
			db.Advance(t, longWait*2/3)
			if got := left(); got != "s1" || lost() != "" {
				t.Errorf("left are %q, and lost %q", got, lost())
			}
			if letsGo {
				must(t, tx.Rollback())
				if got := left(); got != "" || lost() != "" {
					t.Errorf("when it is let go, left are %q, and lost %q", got, lost())
				}
				continue
			}
			db.Advance(t, longWait*2/3)
			if got := left(); got != "" || lost() != "s1" {
				t.Errorf("after its end, left are %q, and lost %q", got, lost())
			}
			must(t, tx.Rollback())
			if got := left(); got != "" || lost() != "s1" {
				t.Errorf("when it is let go, left are %q, and lost %q", got, lost())
			}
		}
		if got := db.List(t, `SELECT schedule FROM {prefix}run WHERE next_exec > {now} AND renewals = 5 ORDER BY schedule`, nil); !slices.Equal(got, []string{"s0", "s2"}) {
			t.Errorf("renewed each time are %q", got)
		}
	})
}

// A stranger holds the row of a run that ends, and that of a schedule whose run fails. The outcomes of the other runs are
// written, and theirs when the stranger lets go. Those that wait for that take no connection meanwhile: here there is one.
func TestOutcomesBesideAStranger(t *testing.T) {
	several(t, func(t *testing.T, db *dbtest.DB) {
		for _, name := range []string{"ends", "fails", "held", "locked", "stops"} {
			add(t, db, name, "@every 1h")
		}
		db.Advance(t, time.Hour)
		s := daemon(t, db.Another(t, dialect.Options{MaxConns: 1, StatementTimeout: longWait}), Options{Lease: longWait})
		runs := claimed(t, s, 10)
		tx := strangersTx(t, db)
		strangerHolds(t, db, tx, "run", "error = 'mine'", "schedule IN ('held', 'stops')")
		strangerHolds(t, db, tx, "schedule", "reason = 'mine'", "name = 'locked'")
		done := make(chan struct{}, len(runs))
		for _, e := range runs {
			r := guardian.Result{Cause: guardian.Exited}
			switch e.schedule {
			case "fails", "locked":
				r.ExitCode = 1
			case "stops":
				r.Cause = guardian.Deadline
			}
			go func() {
				s.record(t.Context(), e, r)
				done <- struct{}{}
			}()
		}
		states := func(want string) {
			t.Helper()
			got := strings.Join(db.List(t, `SELECT CONCAT(schedule, ' ', state) FROM {prefix}run ORDER BY schedule`, nil), ", ")
			if got != want {
				t.Errorf("got %s\nwant %s", got, want)
			}
		}
		ends := func(n int) {
			t.Helper()
			eventually(t, fmt.Sprint(n, " end"), func() bool { return len(done) == n })
		}
		ends(2)
		states("ends ok, fails failed, held running, locked running, stops running")
		must(t, tx.Rollback())
		ends(5)
		states("ends ok, fails failed, held ok, locked failed, stops running")
		if got := db.List(t, `SELECT schedule FROM {prefix}run WHERE next_exec <= {now}`, nil); !slices.Equal(got, []string{"stops"}) {
			t.Errorf("handed back are %q", got)
		}
	})
}

// A stranger holds the row of a run that waits for another to end. The outcome of that one is written, and the run that
// waited begins when the stranger lets go, though nobody's clock moves: whoever ends the one before, a daemon or a user.
func TestTurnsBesideAStranger(t *testing.T) {
	several(t, func(t *testing.T, db *dbtest.DB) {
		for name, end := range map[string]func(s *Scheduler, e *execution){
			"finished":  func(s *Scheduler, e *execution) { finished(t, s, e, 0) },
			"cancelled": nil,
		} {
			addWith(t, db, name, "@manual", Policy{Overlap: "queue", MaxAttempts: 2, RetryDelay: 8 * time.Hour, RetryPastNext: true})
			s := daemon(t, db, Options{Lease: longWait})
			waiting := func() {
				_, err := Start(t.Context(), db.DB, name)
				must(t, err)
			}
			waiting()
			e := one(t, takenOver(t, s, 10))
			if end == nil { // its retry waits, and is cancelled
				finished(t, s, e, 1)
			}
			db.Advance(t, time.Second)
			waiting()
			none(t, takenOver(t, s, 10)) // it has looked, and waits on
			ctx, stop := context.WithCancel(t.Context())
			var releasing sync.WaitGroup
			releasing.Go(func() { s.releaseRest(ctx) })
			tx := strangersTx(t, db)
			all := allRuns(t, db, name)
			strangerHolds(t, db, tx, "run", "error = 'mine'", fmt.Sprint("id = ", all[len(all)-1].ID)) // by its key: an engine may lock what it looks at
			if end != nil {
				end(s, e)
				must(t, tx.Rollback())
			} else {
				id := allRuns(t, db, name)[1].ID
				cancelled := make(chan error)
				go func() {
					_, err := Cancel(t.Context(), db.DB, id, "")
					cancelled <- err
				}()
				eventually(t, "the retry is cancelled", func() bool { return allRuns(t, db, name)[1].State == "cancelled" })
				must(t, tx.Rollback())
				must(t, <-cancelled)
			}
			eventually(t, name+": the run that waited begins", func() bool {
				runs, _, err := s.takeOver(t.Context(), "default", 10)
				must(t, err)
				return len(runs) == 1
			})
			stop()
			releasing.Wait()
		}
	})
}

// A stranger holds rows that a claim would change: a run that the next slot replaces, missed slots that grow, a notice. The
// other schedules of the claim go on at once, and so do these, but for the first, which follows when its run is let go. The
// notice comes later.
func TestClaimsBesideAStranger(t *testing.T) {
	several(t, func(t *testing.T, db *dbtest.DB) {
		addWith(t, db, "replaced", "@every 1m", Policy{Overlap: "replace"})
		for _, name := range []string{"free", "missed", "noted"} {
			addWith(t, db, name, "@every 1m", Policy{Missed: "skip", MissedWindow: time.Second})
		}
		db.Advance(t, time.Minute)
		s := daemon(t, db, Options{Lease: longWait})
		for _, e := range claimed(t, s, 10) {
			if e.schedule != "replaced" {
				finished(t, s, e, 0)
			}
		}
		db.Advance(t, 3*time.Minute+30*time.Second) // all but one miss three slots
		claimed(t, s, 10)
		db.Advance(t, 2*time.Minute)
		tx := strangersTx(t, db)
		strangerHolds(t, db, tx, "run", "error = 'mine'", "schedule = 'replaced'")
		strangerHolds(t, db, tx, "run", "output = 'mine'", "schedule = 'missed' AND state = 'missed'")
		strangerHolds(t, db, tx, "notice", "detail = 'mine'", "name = 'noted'")
		claimed(t, s, 10)
		times := func(what string, want ...string) {
			t.Helper()
			if got := db.List(t, `SELECT CONCAT(name, ' ', times) FROM {prefix}notice ORDER BY name`, nil); !slices.Equal(got, want) {
				t.Errorf("%s: notices are %q, want %q", what, got, want)
			}
		}
		wantRows(t, db, "free", "60 1 ok", "120 1 missed to 360: 5")
		wantRows(t, db, "noted", "60 1 ok", "120 1 missed to 360: 5")
		wantRows(t, db, "missed", "60 1 ok", "120 1 missed to 240: 3", "300 1 missed to 360: 2")
		times("held", "free 2", "missed 2", "noted 1", "replaced 1")
		if got := stored(t, db, "replaced"); !strings.Contains(got.Reason, errHeld.Error()) {
			t.Errorf("what is to be replaced says %q", got.Reason)
		}
		if err := s.noteRest(t.Context()); !errors.Is(err, errHeld) {
			t.Errorf("while its notice is held: %v", err)
		}
		must(t, tx.Rollback())
		must(t, s.noteRest(t.Context()))
		times("let go", "free 2", "missed 2", "noted 2", "replaced 1")
		db.Advance(t, time.Second)
		claimed(t, s, 10)
		if got := db.List(t, `SELECT state FROM {prefix}run WHERE schedule = 'replaced' AND cancel IS NOT NULL`, nil); !slices.Equal(got, []string{"running"}) {
			t.Errorf("asked to end are %q", got)
		}
		if got := stored(t, db, "replaced"); got.Reason != "" {
			t.Errorf("it still says %q", got.Reason)
		}
	})
}

// A stranger has enqueued a job and not committed. The schedule whose job has the same unique key waits for that; the
// other schedules that enqueue go on meanwhile: nothing ends the stranger's transaction, or the wait for it, within hours.
func TestUniqueJobsBesideAStranger(t *testing.T) {
	several(t, func(t *testing.T, db *dbtest.DB) {
		for name, unique := range map[string]string{"first": "", "second": "", "unique": "u"} {
			addJob(t, db, Schedule{Name: name, Spec: "@every 24h", Kind: "job", Command: "k", Job: JobOptions{Unique: unique}})
		}
		patient := db.Another(t, dialect.Options{StatementTimeout: time.Hour})
		c, err := queue.New(db.DB, queue.Options{Logger: quiet()})
		must(t, err)
		_, err = c.Enqueue(t.Context(), queue.Job{Kind: "k"}) // creates the queue: the stranger might do so, on a busy machine
		must(t, err)
		tx := strangersTx(t, db)
		_, _, err = c.EnqueueTx(t.Context(), tx, queue.Job{Kind: "k", Unique: "u"})
		must(t, err)
		db.Advance(t, 24*time.Hour)
		s := daemon(t, patient, Options{})
		l := laneProbe{lane: "default job", now: 1}
		l.schedules.Valid = true
		ctx, stop := context.WithCancel(t.Context())
		var claims sync.WaitGroup
		defer claims.Wait()
		defer stop()
		claims.Go(func() {
			for ctx.Err() == nil {
				if _, err := s.serve(ctx, ctx, l); err != nil && ctx.Err() == nil {
					t.Error(err)
				}
				select {
				case <-ctx.Done():
				case <-time.After(10 * time.Millisecond):
				}
			}
		})
		ends := func(what, want string) {
			t.Helper()
			var got string
			defer func() {
				if t.Failed() {
					t.Logf("%s: %s; %q", what, got, db.List(t, `SELECT name, reason FROM {prefix}schedule ORDER BY name`, nil))
				}
			}()
			eventually(t, what, func() bool {
				got = strings.Join(db.List(t, `SELECT CONCAT(schedule, ' ', state) FROM {prefix}run ORDER BY schedule`, nil), ", ")
				return got == want
			})
		}
		ends("the others are enqueued", "first ok, second ok")
		must(t, tx.Rollback())
		db.Advance(t, putOffHeld)
		ends("it follows", "first ok, second ok, unique ok")
	})
}

// A stranger holds the row of a daemon that died long ago. Another daemon arrives, and forgets the other dead ones.
func TestArrivalBesideAStranger(t *testing.T) {
	several(t, func(t *testing.T, db *dbtest.DB) {
		for _, name := range []string{"dead", "held"} {
			db.Do(t, `INSERT INTO {prefix}node (name, state, expire_at) VALUES (:name, 'live', {now})`, sqlrun.Args{"name": name})
		}
		db.Advance(t, 48*time.Hour)
		tx := strangersTx(t, db)
		strangerHolds(t, db, tx, "node", "heartbeats = 7", "name = 'held'")
		s := daemon(t, db, Options{Node: "new"})
		must(t, s.stay(t.Context()))
		if got := db.List(t, `SELECT name FROM {prefix}node ORDER BY name`, nil); !slices.Equal(got, []string{"held", s.owner}) {
			t.Errorf("there are %q", got)
		}
		must(t, tx.Rollback())
	})
}
