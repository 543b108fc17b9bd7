package queue

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/dialect/mysql"
	"github.com/dbcron/dbcron/internal/sqlconn"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// A stranger's transaction, such as a session at the SQL prompt that was left open, may hold any row of
// ours for hours. What a worker does for all its queues, blocks, groups or limits waits for no such row.
// These are the statements of package queue that lock rows, who runs them, and why those that wait may
// do so. A new one belongs into one of the lists.

// A free statement passes over locked rows.
type freeStatement struct {
	stmt *sqlrun.Stmt
	at   int         // which job of the world it is about
	with sqlrun.Args // other arguments than those of told
}

// passes has statements that are run in rounds, by goroutines that serve all of a worker.
var passes = map[string][]freeStatement{
	"the round in which blocks are shared": {
		{store.ExpelNode, 0, sqlrun.Args{"node": "late"}},
		{store.SetBusy, 0, nil},
		{store.FreeBlocks, 0, sqlrun.Args{"rows": []sqlrun.Args{
			{"queue": 1, "block": 5, "seen": 5, "was": "FREE", "died": 0}, {"queue": 1, "block": 7, "seen": 5, "was": "LEASED", "died": 1},
		}}},
		{store.HandOverBlocks, 0, nil},
		{store.TrustBlocks, 0, nil},
		{store.RetireBlocks, 0, nil},
		{store.LockLater, inDelayed, nil},
		{store.AdoptRunning, inRunning, sqlrun.Args{"id": 30, "died": 1, "lost": 0, "charged": "", "had": ""}},
		{store.HandRunning, inRunning, nil},
		{store.SetTrial, inRunning, nil},
		{store.NoteStuck, inRunning, sqlrun.Args{"attempt": 0, "error": ""}},
		{store.TakeBack, inRunning, sqlrun.Args{"had": "", "n": 0, "charged": "", "clears": 0}},
	},
	"the renewal of the leases of all workers of a client": {{store.Heartbeat, 0, sqlrun.Args{"nodes": []string{"me", "left"}}}},
	"a flusher, which serves one block after the other":    {{store.NoteBatch, 0, nil}},
	"the poll for new jobs":                                {{store.PutBell, 0, sqlrun.Args{"at": "", "key": ""}}},
	"the keeper of all limits": {
		{store.TakePermit, 0, sqlrun.Args{"kind": "x", "slot": 0, "fence": 0}},
		{store.ReturnPermit, 0, sqlrun.Args{"kind": "x", "slot": 1, "fence": 5}},
		{store.WaitForPermit, 0, sqlrun.Args{"kind": "x", "lasts": 1, "soon": 1}},
		{store.ReturnTenantPermits, 0, sqlrun.Args{"rows": []sqlrun.Args{{"name": "t", "nth": 3, "held": 5, "who": "me"}}}},
		{store.WaitForTenants, 0, sqlrun.Args{"tenants": []sqlrun.Args{{"name": "t"}}, "lasts": 1, "soon": 1}},
		{store.LockTenants, 0, sqlrun.Args{"tenants": []sqlrun.Args{{"name": "t"}}}},
	},
	"the end of a worker, before it waits for its jobs": {{store.LockPaused, inDelayed, nil}},
	"the goroutine that ends groups":                    {{store.LockGroup, 0, sqlrun.Args{"group": 1}}},
	"the sweep": {
		{store.ExpelIdleNodes, 0, sqlrun.Args{"since": int64(1e15)}},
		{store.ForgetNodes, 0, sqlrun.Args{"since": int64(1e15)}},
		{store.ForgetWorkers, 0, nil},
		{store.SweepPermits, 0, nil},
		{store.SweepTenants, 0, sqlrun.Args{"since": int64(1e15)}},
		{store.OutdatedDead, 0, nil},
		{store.OutdatedDone, 0, nil},
		{store.SurplusDead, inDead, nil},
		{store.OldKeys, 0, nil},
		{store.PurgeCounts, 0, sqlrun.Args{"since": int64(1e15)}},
		{store.SweepRefused, 0, sqlrun.Args{"since": int64(1e15)}},
		{store.PurgeMembers, 0, sqlrun.Args{"group": 1}},
		{store.PurgeGroup, 0, sqlrun.Args{"group": 1}},
	},
}

// mayWait has statements that wait, for a reason.
var mayWait = map[string][]*sqlrun.Stmt{
	"rows that the same transaction has locked before": {
		store.TakeBlocks, store.AcquitPaused,
		store.PurgeDead, store.PurgeDone, store.EndGroup, store.AccuseGroup, store.SetDrawn, store.SetDrawnTenants,
		store.DivideAnew, store.PassReady, store.PassKeys, store.PassOnKeys, store.PartingKeys, store.FinishMembers,
		store.KeepReady, store.KeepDelayed, store.KeepRunning, store.BuryReady, store.BuryDelayed, store.BuryRunning,
		store.DelayReady, store.DelayRunning, store.Redelay, store.CheckOutReady, store.CheckOutDelayed,
	},
	"the end of a job, by whoever ends it; a worker writes it for a block": {
		store.AckReady, store.AckDelayed, store.AckRunning, store.LockJobs, store.LockDelayed, store.LockRunning,
		store.FreeKeys, store.StillMine, store.ClaimHolds,
	},
	"new rows, which nobody can hold, and the worker's own at its begin and end": {
		store.JoinNode, store.LeaveNode, store.HandLast, store.ResignNodes, store.RegisterWorker, store.CreatePermits, store.CreateBlocks,
		store.TakeTenantPermits, store.MakeTenants,
		store.PlaceReadySentinels, store.PlaceDelayedSentinel, store.RemoveReadySentinels, store.RemoveDelayedSentinel,
	},
	"counts and reports, in goroutines of their own":                            {store.AddCounts, store.AgainRefused, store.AddRefused, store.EndRefused},
	"the draw of tokens, whose result has to be known":                          {store.LockLimit},
	"a successor, which may not begin before its predecessor's leases are free": {store.SucceedNodes},
	"a handler that saves its progress, for its own job":                        {store.SaveProgress},
}

// byCallers matches the statements of callers: producers, operators and test helpers wait for themselves.
var byCallers = regexp.MustCompile(`^queue\.(insert|create$|create-numbered|create-group|add-members|enter-group|seal-group|drop-group|get-now|take-keys|take-over-key|try-keys|keep-keys|key-holders|locked-key-holders|lock-replaced|` +
	`lock$|lock-some|lock-checked-out|lock-dead|lock-done|set$|set-ordered|mark-deleted|insert-|update-|delete-|subscribe|arrive-|unsubscribe|advance|hasten|revive|remove-running)`)

// rowLocks recognizes statements that lock rows.
var rowLocks = regexp.MustCompile(`\b(UPDATE|DELETE|INSERT|LOCK IN SHARE MODE|FOR SHARE)\b`)

// Each statement of the package that locks rows is in one of the lists.
func TestWhoWaits(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		listed := map[*sqlrun.Stmt]int{}
		for _, list := range passes {
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
			if !strings.HasPrefix(stmt.Name, "queue.") {
				continue
			}
			n := listed[stmt]
			if byCallers.MatchString(stmt.Name) {
				n++
			}
			locks := rowLocks.MatchString(stmt.Text(db.Dialect))
			if locks && n != 1 {
				t.Errorf("%s locks rows, and is in %d lists: say who runs it, and whether it may wait for a stranger's transaction", stmt.Name, n)
			}
			if locks {
				seen++
			}
		}
		if seen < 60 {
			t.Errorf("only %d statements were found that lock rows", seen)
		}
	})
}

// held are the tables whose rows the stranger holds.
var held = []string{
	"queue", "queue_block", "node", "queue_worker", "queue_limit", "queue_permit", "queue_tenant", "queue_share", "job", "job_delayed", "job_running", "job_dead", "job_done",
	"job_unique", "job_group", "job_member", "job_count", "job_refused",
}

// strangers is the world, with rows in all tables for the statements in passes.
func strangers(t *testing.T, db *dbtest.DB) {
	t.Helper()
	world(t, db)
	byHand(
		t, db,
		`INSERT INTO {prefix}node (name, state, expire_at) VALUES ('late', 'live', `+ago+`), ('nobody', 'lost', `+ago+`)`,
		`INSERT INTO {prefix}queue_worker (queue_id, node) VALUES (1, 'forgotten')`,
		`INSERT INTO {prefix}job_delayed (queue_id, divided, id, kind, run_at, stops, stopped_at) VALUES (1, 4, 21, 'x', `+ahead+`, 3, `+ago+`)`,
		`INSERT INTO {prefix}queue_block (queue_id, divided, state, lock_by, fence) VALUES (1, 7, 'LEASED', 'nobody', 5)`,
		`INSERT INTO {prefix}queue_limit (queue_id, kind) VALUES (1, 'x')`,
		`INSERT INTO {prefix}queue_share (queue_id, tenant, weight) VALUES (1, 'x', 5)`,
		`INSERT INTO {prefix}queue_permit (queue_id, kind, slot, state, lock_by, fence) VALUES (1, 'x', 0, 'LEASED', 'nobody', 0), (1, 'x', 1, 'LEASED', 'me', 5), (1, 'y', 0, 'FREE', '', 0)`,
		`INSERT INTO {prefix}queue_permit (queue_id, tenant, slot, state, lock_by, fence) VALUES (1, 't', 3, 'LEASED', 'me', 5)`,
		`INSERT INTO {prefix}queue_tenant (queue_id, tenant) VALUES (1, 't')`,
		`INSERT INTO {prefix}job_group (id, state, purge_at) VALUES (1, 'sealed', `+ago+`)`,
		`INSERT INTO {prefix}job_member (group_id, job, queue_id, kind, state) VALUES (1, 7, 1, 'x', 'done')`,
		`INSERT INTO {prefix}job_unique (queue_id, unique_key, job, pending, free_at) VALUES (1, 'u', 7, 'no', `+ago+`)`,
		`INSERT INTO {prefix}job_count (minute, queue_id, kind) VALUES (`+ago+`, 1, 'x')`,
		`INSERT INTO {prefix}job_refused (queue_id, divided, id, kind, what, error, worker, tries, first_at, last_at) VALUES (1, 3, 7, 'x', 'done', '', 'me', 1, {now}, {now})`,
	)
}

// None of the statements that serve all of a worker waits for a row that a stranger's transaction holds,
// and each finds the row when it is free.
func TestRoundsPassAStranger(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		strangers(t, db)
		run := func(on *sqlrun.Session, s freeStatement) (n int64, err error) {
			args := told(s.at)
			maps.Copy(args, s.with)
			if !strings.HasPrefix(s.stmt.Text(db.Dialect), "SELECT") {
				return on.Exec(t.Context(), s.stmt, args)
			}
			rows, err := sqlrun.Select(t.Context(), on, s.stmt, args, func(*sql.Rows) (none struct{}, err error) { return none, nil })
			return int64(len(rows)), err
		}
		errUndo := errors.New("undone")
		brief := db.DB
		if db.Dialect.LockTimeout != nil {
			pool := sqlconn.Borrow(db.Pool(), 1, db.Dialect.Briefly)
			defer pool.Close()
			brief = db.Over(pool).Brief()
		}
		all := func(leftOut func(s freeStatement) bool, check func(who string, s freeStatement, n int64, err error)) {
			for who, list := range passes {
				for _, s := range list {
					if leftOut(s) {
						continue
					}
					err := brief.Tx(t.Context(), func(_ context.Context, tx *sqlrun.Session) error {
						n, err := run(tx, s)
						check(who, s, n, err)
						return errUndo
					})
					if !errors.Is(err, errUndo) {
						t.Error(err)
					}
				}
			}
		}
		all(func(freeStatement) bool { return false }, func(_ string, s freeStatement, n int64, err error) {
			if err != nil || n == 0 {
				t.Errorf("%s reaches %d rows without the stranger (%v)", s.stmt.Name, n, err)
			}
		})
		if db.Dialect.SkipLocked == "" {
			return // one writer at a time
		}
		for _, table := range append(held, "") {
			tx := db.Begin(t, &sql.TxOptions{Isolation: db.Dialect.Isolation})
			for _, one := range held {
				if table != "" && one != table {
					continue
				}
				rows, err := sqlrun.Select(t.Context(), db.On(tx), sqlrun.Unlisted("SELECT * FROM {prefix}"+one+" {locked}"), nil,
					func(*sql.Rows) (none struct{}, err error) { return none, nil })
				if must(t, err); len(rows) == 0 {
					t.Errorf("the stranger holds no row of %s", one)
				}
			}
			// They wait for a second there: see UpdateFree.
			waits := func(s freeStatement) bool {
				text := s.stmt.Text(db.Dialect)
				return db.Dialect.LocksReads && !strings.HasPrefix(text, "SELECT") && strings.Contains(text, "(SELECT 1 FROM")
			}
			all(waits, func(who string, s freeStatement, n int64, err error) {
				if err != nil || table == "" && n != 0 {
					t.Errorf("%s, in %s, with the rows of %s held by a stranger, reaches %d rows: %v", s.stmt.Name, who, cmp.Or(table, "all tables"), n, err)
				}
			})
			must(t, tx.Rollback())
		}
	})
}

// A stranger's transaction holds a process that is late, as a session at the prompt does that has ended a
// job and does not commit. Other processes that died are noticed meanwhile, in all queues, and the job of
// the stranger's that is checked out is adopted when the transaction has ended.
func TestDeathsBesideAStranger(t *testing.T) {
	having(t, dbtest.SeveralWriters, func(t *testing.T, db *dbtest.DB) {
		patient := db.Another(t, dialect.Options{StatementTimeout: longWait, MaxConns: 10})
		c := client(t, patient, Options{})
		var log record
		w := worker(t, c, WorkerOptions{Queues: []string{"s", "w"}, Lease: longWait})
		must(t, w.HandleOthers(func(_ context.Context, d *Delivery) error {
			log.add("%s", d.Kind)
			return nil
		}))
		enqueue(t, c, Job{Queue: "s", Kind: "of the stranger"})
		byHand(
			t, db,
			`INSERT INTO {prefix}node (name, state, expire_at) VALUES ('stranger', 'live', `+ago+`), ('dead', 'live', `+ago+`)`,
			`UPDATE {prefix}queue_block SET state = 'LEASED', lock_by = 'stranger'`,
		)
		enqueue(t, c, Job{Queue: "w", Kind: "of the dead"})
		byHand(t, db, `UPDATE {prefix}queue_block SET state = 'LEASED', lock_by = 'dead' WHERE lock_by = ''`)
		tx := db.Begin(t, &sql.TxOptions{Isolation: db.Dialect.Isolation})
		_, err := sqlrun.Select(t.Context(), db.On(tx), sqlrun.Unlisted(`SELECT * FROM {prefix}node WHERE name = 'stranger' {locked}`), nil,
			func(*sql.Rows) (none struct{}, err error) { return none, nil })
		must(t, err)
		start(t, w)
		log.wants(t, "of the dead")
		must(t, tx.Rollback())
		log.wants(t, "of the dead", "of the stranger")
	})
}

// A stranger holds the row of a job whose handler does not return. That its time is over is recorded when the stranger
// lets go.
func TestStuckBesideAStranger(t *testing.T) {
	t.Parallel()
	dbtest.SeveralWriters.Each(t, func(t *testing.T, db *dbtest.DB) {
		tried := make(chan struct{}, 1000)
		c := client(t, db.Broken(t, &dbtest.Fault{Stall: func(op string) {
			if strings.Contains(op, "state = 'stuck'") {
				tried <- struct{}{}
			}
		}}), Options{})
		edit(t, c, impatient)
		w := worker(t, c, WorkerOptions{Lease: longWait})
		w.slow, w.returns = 0, longWait
		var r record
		goOn := make(chan struct{})
		must(t, w.HandleWith("deaf", RetryPolicy{Timeout: 20 * time.Millisecond}, unheeding(&r, goOn)))
		start(t, w)
		defer close(goOn)
		id := enqueue(t, c, Job{Kind: "deaf"})
		eventually(t, "its row is checked out", func() bool {
			return len(db.List(t, `SELECT id FROM {prefix}job_running`, nil)) == 1
		})
		tx := db.Begin(t, &sql.TxOptions{Isolation: db.Dialect.Isolation})
		_, err := sqlrun.Select(t.Context(), db.On(tx), sqlrun.Unlisted(`SELECT id FROM {prefix}job_running {locked}`), nil, store.ScanID)
		must(t, err)
		w.mu.Lock()
		w.returns = 10 * time.Millisecond
		w.mu.Unlock()
		for range 2 { // and passed over, since it is tried again
			received(t, "it is tried", tried)
		}
		must(t, tx.Rollback())
		eventually(t, "its failure is shown", func() bool {
			i, err := adminOf(c).Job(t.Context(), "", id)
			return err == nil && strings.Contains(i.Error, ErrTimeout.Error())
		})
	}, (*testing.T).Parallel)
}

// A transaction whose snapshot is older than the row of its job cannot complete it at REPEATABLE READ, on an engine whose
// deletions go by the snapshot. The error says so, and what to do.
func TestCompleteTxOfAnOldSnapshot(t *testing.T) {
	t.Parallel()
	dbtest.SeveralWriters.Each(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		w := worker(t, c, WorkerOptions{Lease: longWait})
		w.slow = longWait // until the snapshot is there
		result := make(chan error, 1)
		handle(t, w, "long", func(ctx context.Context, d *Delivery) error {
			if d.Attempt > 1 {
				return nil
			}
			tx, err := db.Pool().BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
			must(t, err)
			defer tx.Rollback() //nolint:errcheck // nothing is written
			_, err = sqlrun.Select(ctx, db.On(tx), sqlrun.Unlisted(`SELECT id FROM {prefix}job_running`), nil, store.ScanID)
			must(t, err)
			w.mu.Lock()
			w.slow = 0
			w.mu.Unlock()
			eventually(t, "its row is checked out", func() bool {
				return len(db.List(t, `SELECT id FROM {prefix}job_running`, nil)) == 1
			})
			result <- d.CompleteTx(ctx, tx)
			return errTest
		})
		start(t, w)
		enqueue(t, c, Job{Kind: "long"})
		err := received(t, "it has tried", result)
		snapshots := db.Dialect.Returning != nil || snapshotIsolation(t, db.Pool()) == "ON"
		if snapshots == (err == nil) || err != nil && !strings.Contains(err.Error(), "use READ COMMITTED") {
			t.Errorf("got %v", err)
		}
	}, (*testing.T).Parallel)
}

// snapshotIsolation is MariaDB's setting of that name, which is ON by default from 11.6.2 on; "" where there is none.
func snapshotIsolation(t *testing.T, on interface {
	QueryRowContext(context.Context, string, ...any) *sql.Row
},
) string {
	t.Helper()
	var name, value string
	err := on.QueryRowContext(t.Context(), "SHOW SESSION VARIABLES LIKE 'innodb_snapshot_isolation'").Scan(&name, &value)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		t.Fatal(err)
	}
	return value
}

// A promptCall is a call, the variable of its answer, and what others do before.
type promptCall struct{ call, answer, others string }

// promptCalls are the calls of the procedures that people may call, which write, and what each changes that others may have
// changed since a transaction began. They are about a job that was taken.
var promptCalls = []promptCall{
	{"acquire('l', 'us', 30, @dbcron_fence)", "fence", "UPDATE {prefix}lock SET meta = 'theirs'"},
	{"renew('l', 'them', 1, 30, @dbcron_renewed)", "renewed", "UPDATE {prefix}lock SET meta = 'theirs', lock_by = 'them', fence = 1, state = 'LOCK', expire_at = " + ahead},
	{"release('l', 'them', 1, @dbcron_released)", "released", "UPDATE {prefix}lock SET meta = 'theirs', lock_by = 'them', fence = 1, state = 'LOCK', expire_at = " + ahead},
	{"enqueue('new', 'x', '1', 'k', NULL, @dbcron_id)", "id", "INSERT INTO {prefix}queue (name) VALUES ('new')"},
	{"enqueue('mail', 'x', '1', 'k', NULL, @dbcron_id)", "id", "UPDATE {prefix}queue SET update_time = {now + 1}"},
	{"enqueue_within('newer', 'x', '1', 'k', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, @dbcron_id)", "id", "INSERT INTO {prefix}queue (name) VALUES ('newer')"},
	{
		"enqueue_within('mail', 'x', '1', NULL, NULL, 'u', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, @dbcron_id)", "id",
		"UPDATE {prefix}job_unique SET pending = 'no', free_at = " + ago,
	},
	{
		"enqueue_with('mail', 'x', '1', NULL, NULL, 'u', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, @dbcron_id)", "id",
		"UPDATE {prefix}job_unique SET pending = 'no', free_at = " + ago,
	},
	{"extend(@dbcron_job, @dbcron_token, 60, @dbcron_extended)", "extended", "UPDATE {prefix}node SET heartbeats = 5"},
	{"complete(@dbcron_job, @dbcron_token, '1', @dbcron_done)", "done", "UPDATE {prefix}job_running SET percent = 5"},
	{"fail(@dbcron_job, @dbcron_token, 'no', 5, 0, @dbcron_became)", "became", "UPDATE {prefix}job_running SET percent = 5"},
	{"fail(@dbcron_job, @dbcron_token, 'no', NULL, 1, @dbcron_became)", "became", "UPDATE {prefix}job_running SET percent = 5"},
	{"give_back(@dbcron_job, @dbcron_token, @dbcron_given)", "given", "UPDATE {prefix}job_running SET percent = 5"},
	{"take('mail', 60, NULL)", "job", ""},
}

// promptWorld is a session that has taken a job with a unique key, beside a free lock.
func promptWorld(t *testing.T, db *dbtest.DB) *prompt {
	t.Helper()
	p := newPrompt(t, db)
	p.do(t, "CALL {prefix}enqueue_with('mail', 'x', '1', NULL, NULL, 'u', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, @id)", nil)
	p.do(t, "CALL {prefix}take('mail', 60, NULL)", nil)
	db.Do(t, "INSERT INTO {prefix}lock (name) VALUES ('l')", nil)
	return p
}

// answered is the answer of the last call, which a session's variable has; NULL: there is none.
func (p *prompt) answered(t *testing.T, name string) (answer sql.NullString) {
	t.Helper()
	must(t, p.on.Get(t.Context(), sqlrun.Unlisted("SELECT @dbcron_"+name), nil, &answer))
	return answer
}

// atProcedures runs a test where there are procedures.
func atProcedures(t *testing.T, f func(t *testing.T, db *dbtest.DB)) {
	t.Helper()
	dbtest.SkipGated(t, "it has no procedures")
	dbtest.With(func(d *sqlrun.Dialect) bool { return d.Name == mysql.Dialect.Name }).Each(t, f)
}

// The procedures of the SQL prompt work in a transaction whose snapshot is older than what others did to the rows that they
// change. MariaDB from 11.6.2 on refuses that by default; they turn that off while they run, and leave the session as it was.
func TestPromptBesideASnapshot(t *testing.T) {
	atProcedures(t, func(t *testing.T, db *dbtest.DB) {
		p := promptWorld(t, db)
		was := snapshotIsolation(t, p.conn)
		for _, c := range promptCalls {
			p.do(t, "CALL {prefix}enqueue('mail', 'x', '1', NULL, NULL, @id)", nil)
			p.do(t, "CALL {prefix}take('mail', 60, NULL)", nil)
			if c.others != "" { // else it refuses to be called in a transaction
				p.do(t, "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ", nil)
				p.do(t, "START TRANSACTION WITH CONSISTENT SNAPSHOT", nil)
				db.Do(t, c.others, nil)
			}
			_, err := p.on.Exec(t.Context(), sqlrun.Unlisted("CALL {prefix}"+c.call), nil)
			got := p.answered(t, c.answer)
			if err != nil || got.String == "" || got.String == "0" {
				t.Errorf("%s, while others did %s: got %v, %v", c.call, c.others, got, err)
			}
			if now := snapshotIsolation(t, p.conn); now != was {
				t.Errorf("after %s it is %s, want %s", c.call, now, was)
			}
			_, err = p.conn.ExecContext(t.Context(), "COMMIT")
			must(t, err)
		}
	})
}

// After a call that failed there is no answer of an earlier one, in the variables that docs/queue-sql.md and docs/lock-sql.md
// pass; and the session is as it was.
func TestPromptHasNoOldAnswer(t *testing.T) {
	atProcedures(t, func(t *testing.T, db *dbtest.DB) {
		p := promptWorld(t, db)
		was := snapshotIsolation(t, p.conn)
		for _, table := range []string{"lock", "queue", "job_running", "queue_limit"} {
			db.Do(t, "DROP TABLE {prefix}"+table, nil)
		}
		for _, c := range promptCalls {
			p.do(t, "SET @dbcron_"+c.answer+" = 1, @dbcron_token = COALESCE(@dbcron_token, 'sql:1.1:1')", nil)
			_, err := p.on.Exec(t.Context(), sqlrun.Unlisted("CALL {prefix}"+c.call), nil)
			if got := p.answered(t, c.answer); err == nil || got.Valid {
				t.Errorf("after %s, which fails by %v, there is %v", c.call, err, got)
			}
			if now := snapshotIsolation(t, p.conn); now != was {
				t.Errorf("after %s it is %s, want %s", c.call, now, was)
			}
		}
	})
}

// The list has each procedure that people may call.
func TestPromptCalls(t *testing.T) {
	atProcedures(t, func(t *testing.T, db *dbtest.DB) {
		for _, name := range db.List(t, `SELECT routine_name FROM information_schema.routines WHERE routine_schema = DATABASE()`, nil) {
			if !strings.HasPrefix(name, "dbcron_sql_") && !slices.ContainsFunc(promptCalls, func(c promptCall) bool {
				return strings.HasPrefix("dbcron_"+c.call, name+"(")
			}) {
				t.Errorf("%s is in no list", name)
			}
		}
	})
}
