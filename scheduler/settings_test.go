package scheduler_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/dialect/dbtest/dbserver"
	"github.com/dbcron/dbcron/dialect/engines"
	"github.com/dbcron/dbcron/dialect/postgres"
	"github.com/dbcron/dbcron/lock"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/scheduler"
	"github.com/dbcron/dbcron/sqlschema"
)

// oddText is one that a wrong setting would change.
const oddText = `it's \ "odd" | 100 % ä 4時`

// useAll is two processes that migrate an empty database, and share what dbcron does in it: jobs, a
// schedule for each of two kinds of work, and a lock.
func useAll(t *testing.T, first, second *dialect.DB) {
	t.Helper()
	both := []*dialect.DB{first, second}
	atOnce(t, both, func(db *dialect.DB) error { return sqlschema.Migrate(t.Context(), db) })
	if t.Failed() {
		return
	}
	useQueue(t, both)
	useSchedules(t, both)
	useLocks(t, both)
}

// Short names of dbtest's.
var eventually, silent = dbtest.Eventually, dbtest.Quiet

// atOnce runs f for each of some databases.
func atOnce(t *testing.T, all []*dialect.DB, f func(db *dialect.DB) error) {
	t.Helper()
	var group sync.WaitGroup
	for _, db := range all {
		group.Go(func() {
			if err := f(db); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
}

// running runs something until the function that it returns is called.
func running(t *testing.T, run func(context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	return func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// useQueue has four workers do jobs: with and without a key, of transactions, later, and one that
// fails at first.
func useQueue(t *testing.T, both []*dialect.DB) {
	t.Helper()
	var mu sync.Mutex
	done, order := map[int]int{}, map[string][]int{}
	const jobs, ofTx = 60, 20
	type number struct {
		N    int
		Text string
	}
	kind := queue.Kind[number]{Name: "count", Queue: "settings"}
	var clients []*queue.Client
	for _, db := range both {
		c, err := queue.New(db, queue.Options{Logger: silent()})
		if err != nil {
			t.Error(err)
			return
		}
		clients = append(clients, c)
	}
	ops, err := admin.New(both[0], admin.Options{})
	if err != nil {
		t.Error(err)
		return
	}
	_, err = ops.Edit(t.Context(), "settings", func(q *admin.Queue) { q.RetryDelay = time.Millisecond })
	if err != nil {
		t.Error(err)
		return
	}
	for i := range 4 {
		w, err := clients[i%2].Worker(queue.WorkerOptions{Queues: []string{"settings"}, Logger: silent()})
		if err == nil {
			err = queue.HandleKind(w, kind, func(_ context.Context, n number, d *queue.Delivery) error {
				if n.Text != oddText {
					t.Errorf("a job's text is %q", n.Text)
				}
				if n.N == 7 && d.Attempt == 1 {
					return errors.New("not yet")
				}
				mu.Lock()
				defer mu.Unlock()
				done[n.N]++
				order[d.Key] = append(order[d.Key], n.N)
				return nil
			})
		}
		if err != nil {
			t.Error(err)
			return
		}
		defer running(t, w.Run)()
	}
	atOnce(t, both, func(db *dialect.DB) error {
		which := slices.Index(both, db)
		for n := which; n < jobs; n += 2 {
			job := kind.Job(number{n, oddText})
			job.Key = []string{"", "a", "b"}[n%3]
			if job.Key != "" {
				job.Key += fmt.Sprint(which) // whose order is that of this loop
			}
			if n%10 == 3 && job.Key == "" {
				job.Delay = time.Second
			}
			if n >= ofTx {
				if _, err := clients[which].Enqueue(t.Context(), job); err != nil {
					return err
				}
				continue
			}
			if err := enqueueTx(t, db, clients[which], job); err != nil {
				return err
			}
		}
		return nil
	})
	eventually(t, "all jobs are done", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(done) == jobs
	})
	mu.Lock()
	defer mu.Unlock()
	for n, times := range done {
		if times != 1 {
			t.Errorf("job %d was done %d times", n, times)
		}
	}
	delete(order, "")
	for key, of := range order {
		if !slices.IsSorted(of) {
			t.Errorf("the jobs of %s were done in the order %v", key, of)
		}
	}
}

// enqueueTx enqueues in a transaction of the program's own, with the settings that its sessions
// have, and one more in a transaction that is rolled back. It runs a transaction again that met another.
func enqueueTx(t *testing.T, db *dialect.DB, c *queue.Client, job queue.Job) error {
	t.Helper()
	for {
		err := func() error {
			for _, commit := range []bool{false, true} {
				tx, err := db.Pool().BeginTx(t.Context(), nil)
				if err != nil {
					return err
				}
				_, wake, err := c.EnqueueTx(t.Context(), tx, job)
				if err != nil || !commit {
					err = errors.Join(err, tx.Rollback())
				} else if err = tx.Commit(); err == nil {
					wake()
				}
				if err != nil {
					return err
				}
			}
			return nil
		}()
		if !db.Dialect.Retryable(err) {
			return err
		}
	}
}

// useSchedules has two daemons run a function and enqueue a job each second.
func useSchedules(t *testing.T, both []*dialect.DB) {
	t.Helper()
	schedules := []scheduler.Schedule{
		{Name: "function", Spec: "@every 1s", Zone: "Asia/Tokyo", Kind: "func", Command: "count"},
		{Name: "job", Spec: "@every 1s", Zone: "UTC", Kind: "job", Command: "slot", Stdin: `{}`, Job: scheduler.JobOptions{Queue: "slots"}},
	}
	for _, s := range schedules {
		if err := scheduler.Add(t.Context(), both[0], s); err != nil {
			t.Error(err)
			return
		}
		stored, err := scheduler.Get(t.Context(), both[1], s.Name)
		if wait := time.Until(stored.Due); err != nil || wait < -time.Minute || wait > time.Minute {
			t.Errorf("%s is due in %v, %v", s.Name, wait, err)
		}
	}
	for _, db := range both {
		s, err := scheduler.New(db, scheduler.Options{Logger: silent(), Poll: time.Second})
		if err == nil {
			err = s.Handle("count", func(context.Context, *scheduler.Running) error { return nil })
		}
		if err != nil {
			t.Error(err)
			return
		}
		defer running(t, s.Run)()
	}
	eventually(t, "each schedule has run", func() bool {
		slots := map[string]bool{}
		runs, _, err := scheduler.RecentRuns(t.Context(), both[0], scheduler.RunFilter{States: []string{"ok"}})
		if err != nil {
			t.Error(err)
		}
		ok := map[string]int{}
		for _, r := range runs {
			ok[r.Schedule]++
			if slot := fmt.Sprint(r.Schedule, r.Due); slots[slot] {
				t.Errorf("slot %s ran twice", slot)
			} else {
				slots[slot] = true
			}
		}
		return ok["function"] >= 2 && ok["job"] >= 2
	})
}

// useLocks has six holders, of which one has the lock at a time.
func useLocks(t *testing.T, both []*dialect.DB) {
	t.Helper()
	var inside, entered int
	var mu sync.Mutex
	var group sync.WaitGroup
	for i := range 6 {
		group.Go(func() {
			l, err := lock.New(both[i%2], lock.Options{Logger: silent(), TTL: time.Minute, Meta: oddText})
			for range 5 {
				if err != nil {
					break
				}
				err = l.Do(t.Context(), "settings", func(context.Context, *lock.Lease) error {
					mu.Lock()
					inside++
					entered++
					if inside != 1 {
						t.Errorf("%d have the lock", inside)
					}
					mu.Unlock()
					mu.Lock()
					inside--
					mu.Unlock()
					return nil
				})
			}
			if err != nil {
				t.Error(err)
				return
			}
			s, err := l.TrySession(t.Context(), fmt.Sprint(i))
			if err == nil {
				err = s.Release()
			} else if errors.Is(err, lock.ErrNoSessions) {
				err = nil
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if entered != 30 {
		t.Errorf("the lock was had %d times", entered)
	}
}

// userOf makes a user, who may make tables in a database, and returns the URL for it.
func userOf(t *testing.T, db *dbtest.DB) string {
	t.Helper()
	u, err := url.Parse(db.URL)
	if err != nil {
		t.Fatal(err)
	}
	role := "bare_" + strings.TrimPrefix(u.Path[1:], "dbcron_")
	db.Do(t, `CREATE ROLE `+role+` LOGIN PASSWORD 'secret'`, nil)
	db.Do(t, `GRANT ALL ON SCHEMA public TO `+role, nil)
	t.Cleanup(func() {
		for _, query := range []string{`DROP OWNED BY ` + role + ` CASCADE`, `DROP ROLE ` + role} {
			if _, err := db.Pool().ExecContext(context.Background(), query); err != nil {
				t.Error(err)
			}
		}
	})
	u.User = url.UserPassword(role, "secret")
	return u.String()
}

const (
	noNotifications = `REVOKE EXECUTE ON FUNCTION pg_notify(TEXT, TEXT) FROM PUBLIC`
	noAdvisoryLocks = `REVOKE EXECUTE ON FUNCTION pg_try_advisory_lock(BIGINT), pg_advisory_unlock(BIGINT), pg_try_advisory_xact_lock(BIGINT) FROM PUBLIC`
)

// The features that an engine lacks are found out on connecting, and dbcron works without them,
// even if every transaction is serializable by default.
func TestWithoutWhatAnEngineMayLack(t *testing.T) {
	dbtest.SkipBare(t, "it has none to take away")
	dbtest.One(t, postgres.Dialect, func(t *testing.T, db *dbtest.DB) {
		bare := userOf(t, db)
		u, err := url.Parse(bare)
		if err != nil {
			t.Fatal(err)
		}
		db.Do(t, noNotifications, nil)
		db.Do(t, noAdvisoryLocks, nil)
		db.Do(t, `DROP EXTENSION plpgsql`, nil)
		db.Do(t, `ALTER DATABASE `+u.Path[1:]+` SET default_transaction_isolation = 'serializable'`, nil)
		first, second := dbtest.Open(t, bare, dialect.Options{}).DB, dbtest.Open(t, bare, dialect.Options{}).DB
		useAll(t, first, second)
		for _, f := range []dialect.Feature{dialect.Notifications, dialect.AdvisoryLocks} {
			if why, lacks := first.Lacks(f); !lacks || !strings.Contains(why, "42501") {
				t.Errorf("%s are taken to be missing: %t, because %q", f, lacks, why)
			}
		}
		if has, err := sqlschema.HasPrompt(t.Context(), first); has || err != nil {
			t.Errorf("what takes functions is there: %t, %v", has, err)
		}
		l, err := lock.New(first, lock.Options{Logger: silent()})
		if err != nil {
			t.Fatal(err)
		}
		if _, err = l.TrySession(t.Context(), "x"); !errors.Is(err, lock.ErrNoSessions) || !strings.Contains(err.Error(), "permission denied") {
			t.Errorf("a session lock: %v", err)
		}
	})
}

// A notification that the server refuses, although it accepted others before, undoes nothing:
// neither what it announces, nor what comes after.
func TestNotificationsThatAreRefusedLater(t *testing.T) {
	dbtest.One(t, postgres.Dialect, func(t *testing.T, db *dbtest.DB) {
		rawURL := userOf(t, db)
		both := []*dialect.DB{dbtest.Open(t, rawURL, dialect.Options{}).DB, dbtest.Open(t, rawURL, dialect.Options{}).DB}
		if err := sqlschema.Migrate(t.Context(), both[0]); err != nil {
			t.Fatal(err)
		}
		locker := func(db *dialect.DB) *lock.Locker {
			l, err := lock.New(db, lock.Options{Logger: silent(), TTL: time.Hour})
			if err != nil {
				t.Fatal(err)
			}
			return l
		}
		holder, err := locker(both[0]).Acquire(t.Context(), "held")
		if err != nil {
			t.Fatal(err)
		}
		got := make(chan error, 1)
		go func() {
			le, err := locker(both[1]).Acquire(t.Context(), "held")
			if err == nil {
				err = le.Release(t.Context())
			}
			got <- err
		}()
		if !dbtest.Bare() {
			eventually(t, "somebody waits to be told", func() bool {
				return db.List(t, `SELECT cardinality(waiters) FROM {prefix}lock WHERE name = 'held'`, nil)[0] == "1"
			})
		}
		db.Do(t, noNotifications, nil)
		if err := holder.Release(t.Context()); err != nil {
			t.Error(err)
		}
		if err := <-got; err != nil {
			t.Error(err)
		}
		useQueue(t, both)
		useSchedules(t, both)
		useLocks(t, both)
	})
}

// A parameter of the URL has dbcron do without, beside a process that does not, and while the
// server takes all for serializable.
func TestDoingWithout(t *testing.T) {
	dbtest.One(t, postgres.Dialect, func(t *testing.T, db *dbtest.DB) {
		params := "&default_transaction_isolation=serializable"
		first := dbtest.Open(t, db.URL+params+"&dbcron_without=notifications,advisory-locks,functions", dialect.Options{})
		second := dbtest.Open(t, db.URL+params, dialect.Options{})
		useAll(t, first.DB, second.DB)
	})
}

// hostile are settings that a server, a database or a user may have, each as statements that make it the
// default of sessions to come, and undo that. {database} is the database's name.
var hostile = map[string]map[string][2][]string{
	"postgres": {
		"serializable": {{`ALTER DATABASE {database} SET default_transaction_isolation = 'serializable'`}},
		"zone and dates": {{
			`ALTER DATABASE {database} SET timezone = 'Pacific/Apia'`,
			`ALTER DATABASE {database} SET datestyle = 'SQL, DMY'`, `ALTER DATABASE {database} SET intervalstyle = 'sql_standard'`,
		}},
		"strings": {{
			`ALTER DATABASE {database} SET standard_conforming_strings = 'off'`,
			`ALTER DATABASE {database} SET bytea_output = 'escape'`, `ALTER DATABASE {database} SET extra_float_digits = -15`,
		}},
		"deferred and quiet": {{
			`ALTER DATABASE {database} SET default_transaction_deferrable = 'on'`,
			`ALTER DATABASE {database} SET client_min_messages = 'error'`, `ALTER DATABASE {database} SET row_security = 'off'`,
			`ALTER DATABASE {database} SET synchronous_commit = 'off'`,
		}},
	},
	"mariadb": {
		"small packets":      {{`SET GLOBAL max_allowed_packet = 65536`}, {`SET GLOBAL max_allowed_packet = 16777216`}},
		"serializable":       {{`SET GLOBAL tx_isolation = 'SERIALIZABLE'`}, {`SET GLOBAL tx_isolation = DEFAULT`}},
		"without autocommit": {{`SET GLOBAL autocommit = 0`}, {`SET GLOBAL autocommit = 1`}},
		"safe updates":       {{`SET GLOBAL sql_safe_updates = 1`}, {`SET GLOBAL sql_safe_updates = 0`}},
		"zone":               {{`SET GLOBAL time_zone = '-11:00'`}, {`SET GLOBAL time_zone = '+00:00'`}},
		"ORACLE":             {{`SET GLOBAL sql_mode = 'ORACLE'`}, {`SET GLOBAL sql_mode = ''`}},
		"ANSI":               {{`SET GLOBAL sql_mode = 'ANSI,NO_BACKSLASH_ESCAPES'`}, {`SET GLOBAL sql_mode = ''`}},
		"latin1": {
			{`ALTER DATABASE {database} CHARACTER SET latin1`, `SET GLOBAL character_set_server = 'latin1'`},
			{`SET GLOBAL character_set_server = 'utf8mb4'`},
		},
	},
	"mysql": {
		"small packets":      {{`SET GLOBAL max_allowed_packet = 65536`}, {`SET GLOBAL max_allowed_packet = 67108864`}},
		"serializable":       {{`SET GLOBAL transaction_isolation = 'SERIALIZABLE'`}, {`SET GLOBAL transaction_isolation = DEFAULT`}},
		"without autocommit": {{`SET GLOBAL autocommit = 0`}, {`SET GLOBAL autocommit = 1`}},
		"safe updates":       {{`SET GLOBAL sql_safe_updates = 1`}, {`SET GLOBAL sql_safe_updates = 0`}},
		"zone":               {{`SET GLOBAL time_zone = '-11:00'`}, {`SET GLOBAL time_zone = '+00:00'`}},
		"ANSI":               {{`SET GLOBAL sql_mode = 'ANSI,NO_BACKSLASH_ESCAPES'`}, {`SET GLOBAL sql_mode = ''`}},
		"latin1": {
			{`ALTER DATABASE {database} CHARACTER SET latin1`, `SET GLOBAL character_set_server = 'latin1'`},
			{`SET GLOBAL character_set_server = 'utf8mb4'`},
		},
		"primary key required": {
			{`SET GLOBAL sql_require_primary_key = 1`, `SET GLOBAL sql_generate_invisible_primary_key = 0`},
			{`SET GLOBAL sql_require_primary_key = 0`},
		},
	},
}

// What sessions are by default changes nothing.
func TestHostileDefaults(t *testing.T) {
	for _, engine := range dbserver.Engines {
		t.Run(engine.Name, func(t *testing.T) {
			t.Parallel()
			database := func(t *testing.T) *dbtest.DB { return dbtest.Fresh(t, engine.Name) }
			if engine.Name != "postgres" { // its settings are the server's, so it has one of its own
				server, err := engine.Start(t.Context(), dbserver.Options{})
				if err != nil {
					dbtest.Missing(t, err)
				}
				t.Cleanup(func() { _ = server.Stop() })
				database = func(t *testing.T) *dbtest.DB {
					t.Helper()
					admin := dbtest.Open(t, server.URL(), dialect.Options{})
					admin.Do(t, `DROP DATABASE test`, nil)
					admin.Do(t, `CREATE DATABASE test`, nil)
					return dbtest.Open(t, server.URL(), dialect.Options{})
				}
			}
			for _, name := range slices.Sorted(maps.Keys(hostile[engine.Name])) {
				t.Run(name, func(t *testing.T) {
					db := database(t)
					u, err := url.Parse(db.URL)
					if err != nil {
						t.Fatal(err)
					}
					setting := hostile[engine.Name][name]
					for _, query := range setting[0] {
						db.Do(t, strings.ReplaceAll(query, "{database}", u.Path[1:]), nil)
					}
					t.Cleanup(func() {
						for _, query := range setting[1] {
							if _, err := db.Pool().ExecContext(context.Background(), query); err != nil {
								t.Error(err)
							}
						}
					})
					first, second := dbtest.Open(t, db.URL, dialect.Options{}), dbtest.Open(t, db.URL, dialect.Options{})
					useAll(t, first.DB, second.DB)
				})
			}
		})
	}
}

// Sessions of a program's own pool may be set in ways that dbcron's are not. They change nothing, or
// are refused with advice before anything is made.
func TestHostilePools(t *testing.T) {
	const strict = "charset=utf8mb4&innodb_lock_wait_timeout=2&sql_mode='STRICT_TRANS_TABLES,"
	settings := map[string]map[string]string{ // to whether it is refused, and why
		"postgres": {
			"default_transaction_isolation=serializable&timezone=Pacific/Apia&datestyle=SQL,%20DMY&intervalstyle=sql_standard": "",
			"default_transaction_isolation=repeatable%20read&standard_conforming_strings=off&bytea_output=escape":              "",
		},
		"mariadb": {
			strict + "ORACLE'":                          "take ORACLE out",
			strict + "NO_ZERO_DATE'&sql_safe_updates=1": "sql_safe_updates=0",
			strict + "ANSI,NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT'&tx_isolation='SERIALIZABLE'&time_zone='-11:00'": "",
			strict + "HIGH_NOT_PRECEDENCE,PAD_CHAR_TO_FULL_LENGTH'&sql_auto_is_null=1":                           "",
			"charset=utf8mb4&sql_mode='ORACLE'":                                                                  "STRICT_TRANS_TABLES",
		},
		"mysql": {
			strict + "ANSI,NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT'&transaction_isolation='SERIALIZABLE'&time_zone='-11:00'": "",
			strict + "HIGH_NOT_PRECEDENCE,PAD_CHAR_TO_FULL_LENGTH'&sql_auto_is_null=1":                                    "",
			strict + "NO_ZERO_DATE'&sql_require_primary_key=1":                                                            "",
		},
	}
	if dbtest.Gated() {
		settings["mysql"] = map[string]string{
			strict + "ANSI,NO_BACKSLASH_ESCAPES'":                                                    "take NO_BACKSLASH_ESCAPES out",
			strict + "ANSI,PIPES_AS_CONCAT'&transaction_isolation='SERIALIZABLE'&time_zone='-11:00'": "",
			strict + "HIGH_NOT_PRECEDENCE,PAD_CHAR_TO_FULL_LENGTH'&sql_auto_is_null=1":               "",
		}
	}
	dbtest.EachEmpty(t, func(t *testing.T, db *dbtest.DB) {
		for _, parameters := range slices.Sorted(maps.Keys(settings[db.Engine])) {
			t.Run(parameters, func(t *testing.T) {
				own := dbtest.Fresh(t, db.Engine)
				u, err := url.Parse(own.URL)
				if err != nil {
					t.Fatal(err)
				}
				driver, dsn := "pgx", own.URL+"&"+parameters
				if db.Engine != "postgres" {
					password, _ := u.User.Password()
					driver, dsn = "mysql", fmt.Sprintf("%s:%s@tcp(%s)%s?%s", u.User.Username(), password, u.Host, u.Path, parameters)
				}
				var both []*dialect.DB
				for range 2 {
					pool, err := sql.Open(driver, dsn)
					if err != nil {
						t.Fatal(err)
					}
					t.Cleanup(func() { _ = pool.Close() })
					wrapped, err := engines.Wrap(t.Context(), pool, dialect.Options{})
					if why := settings[db.Engine][parameters]; why != "" {
						if !errors.Is(err, dialect.ErrUnfit) || !strings.Contains(err.Error(), why) {
							t.Errorf("got %v, want to be refused for %s", err, why)
						}
						return
					}
					if err != nil {
						t.Fatal(err)
					}
					both = append(both, wrapped)
				}
				useAll(t, both[0], both[1])
			})
		}
	})
}
