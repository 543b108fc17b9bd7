package sqlschema_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/dialect/engines"
	"github.com/dbcron/dbcron/dialect/mysql"
	"github.com/dbcron/dbcron/dialect/postgres"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/sqlschema"
)

// eachEmpty is dbtest.EachEmpty with all engines in parallel.
func eachEmpty(t *testing.T, f func(t *testing.T, db *dbtest.DB)) {
	t.Helper()
	dbtest.EachEmpty(t, f, (*testing.T).Parallel)
}

// emptyHaving is eachEmpty on the engines that have something: see dbtest.With.
func emptyHaving(t *testing.T, has dbtest.With, f func(t *testing.T, db *dbtest.DB)) {
	t.Helper()
	has.EachEmpty(t, f, (*testing.T).Parallel)
}

// onSQLite is eachEmpty for what is the same on all engines, or changes with a migration only, each of which
// TestUpDownUp and TestAnUpgradeAndTheWayBack run on all engines: see dbtest.Memory.
func onSQLite(t *testing.T, f func(t *testing.T, db *dbtest.DB)) {
	t.Helper()
	dbtest.Memory.EachEmpty(t, f, (*testing.T).Parallel)
}

// TestMain makes this test binary also act as the processes that migrate and are killed.
func TestMain(m *testing.M) {
	if job := os.Getenv("SQLSCHEMA_TEST_CHILD"); job != "" {
		if err := child(job, os.Getenv("SQLSCHEMA_TEST_URL")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// child migrates, or holds the migration lock until it is killed.
func child(job, databaseURL string) error {
	ctx := context.Background()
	db, err := engines.Open(ctx, databaseURL, dialect.Options{})
	if err != nil {
		return err
	}
	if job == "migrate" {
		return errors.Join(sqlschema.Migrate(ctx, db), db.Close())
	}
	if _, err := db.Exclusive(ctx, "migrate "+db.Name(), nil); err != nil {
		return err
	}
	fmt.Println("held")
	select {}
}

func start(t *testing.T, job, databaseURL string) (*exec.Cmd, io.Reader, *bytes.Buffer) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe)
	cmd.Env = append(os.Environ(), "SQLSCHEMA_TEST_CHILD="+job, "SQLSCHEMA_TEST_URL="+databaseURL)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, out, &stderr
}

// versions lists the rows of the version table.
func versions(t *testing.T, db *dbtest.DB) string {
	t.Helper()
	return strings.Join(db.List(t, `SELECT version_id FROM {prefix}migration ORDER BY id`, nil), " ")
}

// all is the content of the version table after all migrations.
func all(d *sqlrun.Dialect) string {
	words := []string{"0"}
	for _, v := range numbers(d) {
		words = append(words, fmt.Sprint(v))
	}
	return strings.Join(words, " ")
}

// numbers returns the numbers of the migrations' files.
func numbers(d *sqlrun.Dialect) (all []int64) {
	names, err := filepath.Glob(filepath.Join("migrations", d.Name, "*.sql"))
	if err != nil {
		panic(err) // the pattern is wrong
	}
	for _, name := range names {
		n, err := strconv.ParseInt(filepath.Base(name)[:5], 10, 64)
		if err != nil {
			panic(err) // TestEnginesHaveTheSameMigrations reports such names, too
		}
		all = append(all, n)
	}
	return all
}

func migrate(t *testing.T, db *dbtest.DB) {
	t.Helper()
	if err := sqlschema.Migrate(t.Context(), db.DB); err != nil {
		t.Fatal(err)
	}
}

// with connects to the same database with other options.
func with(t *testing.T, db *dbtest.DB, opt dialect.Options) *dbtest.DB {
	t.Helper()
	return dbtest.Open(t, db.URL, opt)
}

func TestUpDownUp(t *testing.T) {
	eachEmpty(t, func(t *testing.T, db *dbtest.DB) {
		empty := tables(t, db)
		migrate(t, db)
		full := tables(t, db)
		migrate(t, db)
		if got := versions(t, db); got != all(db.Dialect) || tables(t, db) != full {
			t.Errorf("a second Migrate: versions %s", got)
		}
		steps := append([]int64{0}, numbers(db.Dialect)...)
		for i := len(steps) - 1; i > 0; i-- {
			if err := sqlschema.Down(t.Context(), db.DB); err != nil {
				t.Fatal(err)
			}
			if got, err := sqlschema.Version(t.Context(), db.DB); got != steps[i-1] || err != nil {
				t.Errorf("one down from %d: version %d, %v", steps[i], got, err)
			}
		}
		if err := sqlschema.Down(t.Context(), db.DB); err != nil {
			t.Errorf("down from 0: %v", err)
		}
		left := strings.Split(tables(t, db), "\n")
		if len(left) != 1 || !strings.HasSuffix(left[0], "migration") || empty != "" {
			t.Errorf("after all the way down there are %q", left)
		}
		migrate(t, db)
		if got := tables(t, db); got != full {
			t.Errorf("up again makes %s\nwant %s", got, full)
		}
	})
}

func TestTo(t *testing.T) {
	onSQLite(t, func(t *testing.T, db *dbtest.DB) {
		latest := sqlschema.Latest(db.Dialect)
		for _, to := range []int64{latest, latest, 0, 0, numbers(db.Dialect)[0]} {
			if err := sqlschema.To(t.Context(), db.DB, to); err != nil {
				t.Fatal(err)
			}
			if got, err := sqlschema.Version(t.Context(), db.DB); got != to || err != nil {
				t.Errorf("to %d: version %d, %v", to, got, err)
			}
		}
		for _, to := range []int64{-1, 1, latest + 1} {
			err := sqlschema.To(t.Context(), db.DB, to)
			if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("there is no version %d", to)) {
				t.Errorf("to %d: %v", to, err)
			}
		}
	})
}

func TestStatus(t *testing.T) {
	onSQLite(t, func(t *testing.T, db *dbtest.DB) {
		for _, applied := range []bool{false, true} {
			if applied {
				migrate(t, db)
			}
			got, err := sqlschema.Status(t.Context(), db.DB)
			if err != nil || len(got) != len(numbers(db.Dialect)) {
				t.Fatalf("got %v, %v", got, err)
			}
			for i, m := range got {
				if m.Version != numbers(db.Dialect)[i] || m.Name == "" || m.Applied != applied {
					t.Errorf("got %+v", m)
				}
			}
			if got[0].Name != "tables" {
				t.Errorf("the first is %s", got[0].Name)
			}
		}
	})
}

func TestCheck(t *testing.T) {
	onSQLite(t, func(t *testing.T, db *dbtest.DB) {
		check := func() error { return sqlschema.Check(t.Context(), db.DB) }
		if err := check(); !errors.Is(err, sqlschema.ErrOutdated) {
			t.Errorf("an empty database: %v", err)
		}
		migrate(t, db)
		if err := check(); err != nil {
			t.Error(err)
		}
		before := tables(t, db)
		db.Do(t, `INSERT INTO {prefix}migration (version_id, is_applied) VALUES (199, TRUE)`, nil)
		for name, err := range map[string]error{
			"Check": check(), "Migrate": sqlschema.Migrate(t.Context(), db.DB),
			"To": sqlschema.To(t.Context(), db.DB, numbers(db.Dialect)[0]), "To 0": sqlschema.To(t.Context(), db.DB, 0),
		} {
			if !errors.Is(err, sqlschema.ErrNewer) || !strings.Contains(err.Error(), "at version 199") {
				t.Errorf("%s of a newer database: %v", name, err)
			}
		}
		if got := versions(t, db); got != all(db.Dialect)+" 199" || tables(t, db) != before {
			t.Errorf("the newer database was changed: versions %s", got)
		}
	})
}

func TestTenMigrateAtOnce(t *testing.T) {
	eachEmpty(t, func(t *testing.T, db *dbtest.DB) {
		pools := make([]*dbtest.DB, 10)
		for i := range pools {
			pools[i] = with(t, db, dialect.Options{MaxConns: 2})
		}
		together(t, pools)
		if got := versions(t, db); got != all(db.Dialect) {
			t.Errorf("ten pools: versions %s", got)
		}
		if err := sqlschema.To(t.Context(), db.DB, 0); err != nil {
			t.Fatal(err)
		}
		same := make([]*dbtest.DB, 10)
		for i := range same {
			same[i] = pools[0] // with two connections
		}
		together(t, same)
		if got := versions(t, db); got != all(db.Dialect) {
			t.Errorf("ten goroutines: versions %s", got)
		}
	})
}

// patience bounds what must happen even on a slow machine.
const patience = 5 * time.Minute

func together(t *testing.T, dbs []*dbtest.DB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	errs := make(chan error, len(dbs))
	for _, db := range dbs {
		go func() { errs <- sqlschema.Migrate(ctx, db.DB) }()
	}
	for range dbs {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}

func TestFiveProcessesMigrateAtOnce(t *testing.T) {
	eachEmpty(t, func(t *testing.T, db *dbtest.DB) {
		var wait []func() error
		for range 5 {
			cmd, _, stderr := start(t, "migrate", db.URL)
			wait = append(wait, func() error {
				if err := cmd.Wait(); err != nil {
					return fmt.Errorf("%w: %s", err, stderr)
				}
				return nil
			})
		}
		for _, w := range wait {
			if err := w(); err != nil {
				t.Error(err)
			}
		}
		if got := versions(t, db); got != all(db.Dialect) {
			t.Errorf("versions %s", got)
		}
	})
}

// A migrating process can be killed: its lock ends with it. Until then, waiters wait as long as
// their contexts allow.
func TestAKilledMigrator(t *testing.T) {
	eachEmpty(t, func(t *testing.T, db *dbtest.DB) {
		cmd, out, stderr := start(t, "hold", db.URL)
		if line := make([]byte, 5); true {
			if _, err := io.ReadFull(out, line); err != nil || string(line) != "held\n" {
				t.Fatalf("the child says %q, %v: %s", line, err, stderr)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		began := time.Now() //nolint:forbidigo // measures how long it takes
		err := sqlschema.Migrate(ctx, db.DB)
		if took := time.Since(began); took > patience/2 {
			t.Errorf("it waited %v", took)
		}
		version, looked := sqlschema.Version(t.Context(), db.DB)
		if !errors.Is(err, context.DeadlineExceeded) || version != 0 || looked != nil {
			t.Errorf("while another holds the lock: %v, and version %d, %v", err, version, looked)
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // killed
		ctx, cancel = context.WithTimeout(t.Context(), patience)
		defer cancel()
		if err := sqlschema.Migrate(ctx, db.DB); err != nil {
			t.Errorf("after the holder was killed: %v", err)
		}
	})
}

// Of several processes that migrate at once, one works at a time, with and without advisory locks.
func TestMigratorsWithoutAdvisoryLocks(t *testing.T) {
	dbtest.One(t, postgres.Dialect, func(t *testing.T, db *dbtest.DB) {
		const each = 3
		errs := make(chan error, 2*each)
		for i := range 2 * each {
			var opt dialect.Options
			if i%2 == 0 {
				opt.Without = []dialect.Feature{dialect.AdvisoryLocks, dialect.Functions}
			}
			own := dbtest.Open(t, db.URL, opt)
			go func() { errs <- sqlschema.Migrate(t.Context(), own.DB) }()
		}
		for range 2 * each {
			if err := <-errs; err != nil {
				t.Error(err)
			}
		}
		if got := versions(t, db); got != all(db.Dialect) {
			t.Errorf("versions %s", got)
		}
		tx := db.Begin(t, nil)
		if _, err := tx.ExecContext(t.Context(), `SELECT 1 FROM dbcron_migration WHERE version_id = 0 FOR UPDATE`); err != nil {
			t.Fatal(err)
		}
		for _, without := range [][]dialect.Feature{nil, {dialect.AdvisoryLocks}} {
			own := dbtest.Open(t, db.URL, dialect.Options{Without: without})
			var err error
			for wait := time.Second; wait < 2*time.Minute; wait *= 4 { // a busy machine needs more to find out who has it
				ctx, cancel := context.WithTimeout(t.Context(), wait)
				err = sqlschema.To(ctx, own.DB, 0)
				cancel()
				if !errors.Is(err, context.DeadlineExceeded) || strings.Contains(err.Error(), "another process holds it") {
					break
				}
			}
			if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "another process holds it") {
				t.Errorf("without %v, while another process has the row: %v", without, err)
			}
		}
	})
}

// Where each DDL statement commits by itself, a migration can be cut off after any of them. It must
// be able to run again from its start.
func TestAMigrationThatDiedHalfWay(t *testing.T) {
	dbtest.SkipGated(t, "it has no procedures")
	dbtest.One(t, mysql.Dialect, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		db = next(db)
		latest := sqlschema.Latest(db.Dialect) + 1
		to := func(version int64) {
			t.Helper()
			if err := sqlschema.To(t.Context(), db.DB, version); err != nil {
				t.Fatal(err)
			}
		}
		for _, version := range append(numbers(db.Dialect), latest) {
			steps := stepsOf(t, db, version)
			last := len(steps) - 1
			ends := []int{1, last / 2, last} // of many statements that are alike
			if version == latest {
				ends = nil
				for n := range last {
					ends = append(ends, n+1)
				}
			}
			for _, n := range ends {
				byHand(t, db, steps[:n])
				if err := sqlschema.To(t.Context(), db.DB, version); err != nil {
					t.Fatalf("version %d, after %d of its %d statements: %v", version, n, len(steps), err)
				}
				got, whole := versions(t, db), fmt.Sprint(all(db.Dialect), " ", latest, " ")
				if !strings.HasPrefix(whole, got+" ") || !strings.HasSuffix(" "+got, fmt.Sprint(" ", version)) {
					t.Errorf("version %d, after %d of its %d statements: versions %s", version, n, len(steps), got)
				}
				to(sqlschema.Previous(version))
				if sqlschema.Previous(version) == 0 {
					db.Do(t, `DROP TABLE {prefix}migration`, nil)
				}
			}
			to(version)
		}
	})
}

// stepsOf returns the statements of the printed script that bring the schema from the previous
// version to the given one.
func stepsOf(t *testing.T, db *dbtest.DB, version int64) []string {
	t.Helper()
	var script strings.Builder
	if err := sqlschema.WriteSQL(t.Context(), &script, db.Dialect, db.FurtherMigrations(), dialect.Options{}, sqlschema.Previous(version)); err != nil {
		t.Fatal(err)
	}
	steps := statements(script.String())
	last := slices.IndexFunc(steps, func(s string) bool { return strings.Contains(s, fmt.Sprintf("VALUES (%d, TRUE)", version)) })
	if last < 1 {
		t.Fatalf("version %d has %d statements", version, last)
	}
	return steps[:last+1]
}

// statements splits a script as a database's client does.
func statements(script string) []string {
	var all []string
	statement, end, quoted := "", ";", false
	for line := range strings.Lines(script) {
		if to, is := strings.CutPrefix(line, "DELIMITER "); is {
			end = strings.TrimSpace(to)
			continue
		}
		quoted = quoted != (strings.Count(line, "$")%4 == 2)
		statement += line
		if strings.Contains(statement, "CREATE TRIGGER ") && strings.Contains(statement, " BEGIN\n") && !strings.HasSuffix(statement, "END;\n") {
			continue // it holds semicolons
		}
		if before, is := strings.CutSuffix(strings.TrimRight(statement, "\n"), end); is && !quoted {
			all, statement = append(all, strings.TrimSpace(before)), ""
		}
	}
	return all
}

// byHand executes a script's statements unchanged.
func byHand(t *testing.T, db *dbtest.DB, script []string) {
	t.Helper()
	for _, s := range script {
		if _, err := db.Pool().ExecContext(t.Context(), s); err != nil {
			t.Fatalf("%v in\n%s", err, s)
		}
	}
}

func TestSQLMakesTheSameSchema(t *testing.T) {
	dbtest.SkipGated(t, "it has no procedures")
	eachEmpty(t, func(t *testing.T, db *dbtest.DB) {
		migrate(t, db)
		other := dbtest.Fresh(t, db.Engine)
		var script strings.Builder
		if err := sqlschema.SQL(t.Context(), &script, db.Dialect, dialect.Options{}, 0); err != nil {
			t.Fatal(err)
		}
		byHand(t, other, statements(script.String()))
		if got, want := schema(t, other), schema(t, db); got != want {
			t.Errorf("by hand it becomes\n%s\nwant\n%s", got, want)
		}
		if err := sqlschema.Check(t.Context(), other.DB); err != nil {
			t.Errorf("by hand: %v", err)
		}
		migrate(t, other)
		if got := versions(t, other); got != all(db.Dialect) {
			t.Errorf("by hand, and then Migrate: versions %s", got)
		}
		var rest strings.Builder
		err := sqlschema.SQL(t.Context(), &rest, db.Dialect, dialect.Options{}, sqlschema.Latest(db.Dialect))
		if err != nil || rest.String() != "" {
			t.Errorf("from the latest on there is %q, %v", rest.String(), err)
		}
	})
}

// The tests' databases are copied rather than migrated.
func TestTheDatabasesOfTestsHaveTheSameSchema(t *testing.T) {
	dbtest.SkipGated(t, "it has no procedures")
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		other := dbtest.Fresh(t, db.Engine)
		migrate(t, other)
		if got, want := schema(t, db), schema(t, other); got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
		rows := `SELECT name, slot FROM {prefix}lock_fence`
		if got, want := db.List(t, rows, nil), other.List(t, rows, nil); !slices.Equal(got, want) {
			t.Errorf("got the rows %q, want %q", got, want)
		}
		hasPrompt(t, db, true)
		if got := versions(t, db); got != all(db.Dialect) {
			t.Errorf("got versions %s", got)
		}
	})
}

func TestTwoPrefixesSideBySide(t *testing.T) {
	eachEmpty(t, func(t *testing.T, db *dbtest.DB) {
		other := with(t, db, dialect.Options{Prefix: "other_"})
		migrate(t, other)
		if err := sqlschema.Check(t.Context(), db.DB); !errors.Is(err, sqlschema.ErrOutdated) {
			t.Errorf("the other prefix counts: %v", err)
		}
		migrate(t, db)
		if err := sqlschema.To(t.Context(), other.DB, 0); err != nil {
			t.Fatal(err)
		}
		if err := sqlschema.Check(t.Context(), db.DB); err != nil {
			t.Errorf("taking back the other prefix: %v", err)
		}
		for name := range strings.SplitSeq(tables(t, db), "\n") {
			if strings.HasPrefix(name, "other_") && name != "other_migration" {
				t.Errorf("%s is left", name)
			}
		}
		migrate(t, other)
		if got, want := strings.Count(tables(t, db), "other_"), strings.Count(tables(t, db), "dbcron_"); got != want {
			t.Errorf("%d tables and indexes of one prefix, %d of the other", got, want)
		}
	})
}

func TestASchemaOfItsOwn(t *testing.T) {
	eachEmpty(t, func(t *testing.T, db *dbtest.DB) {
		if !db.Dialect.Schema {
			return // Open refuses it
		}
		ops := with(t, db, dialect.Options{Schema: "ops"})
		if v, err := sqlschema.Version(t.Context(), ops.DB); v != 0 || err != nil {
			t.Errorf("without the schema: version %d, %v", v, err)
		}
		migrate(t, ops)
		migrate(t, db)
		migrate(t, with(t, db, dialect.Options{Schema: "ops", Prefix: "other_"}))
		var public, both int
		db.Scan(t, `SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = 'public'`, nil, &public)
		db.Scan(t, `SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = 'ops'`, nil, &both)
		if public < 27 || both != 2*public {
			t.Errorf("there are %d tables in public, and %d in ops of two prefixes", public, both)
		}
		if err := sqlschema.To(t.Context(), ops.DB, 0); err != nil {
			t.Fatal(err)
		}
		if err := sqlschema.Check(t.Context(), db.DB); err != nil {
			t.Errorf("taking back the schema's tables: %v", err)
		}

		// As in docs/grants.md, an administrator creates the schema, and its owner may not create another.
		owner := role(t, db)
		db.Do(t, `CREATE SCHEMA owned AUTHORIZATION `+owner.User.Username(), nil)
		migrate(t, dbtest.Open(t, owner.String(), dialect.Options{Schema: "owned"}))
		err := sqlschema.Migrate(t.Context(), dbtest.Open(t, owner.String(), dialect.Options{Schema: "new"}).DB)
		if err == nil || !strings.Contains(err.Error(), "schema new: ") {
			t.Errorf("a schema that it may not make: %v", err)
		}

		var script strings.Builder
		if err := sqlschema.SQL(t.Context(), &script, db.Dialect, dialect.Options{Schema: "hand"}, 0); err != nil {
			t.Fatal(err)
		}
		byHand(t, db, statements(script.String()))
		if err := sqlschema.Check(t.Context(), with(t, db, dialect.Options{Schema: "hand"}).DB); err != nil {
			t.Errorf("by hand: %v", err)
		}
	})
}

// role creates a role without rights and returns the URL to connect as it.
func role(t *testing.T, db *dbtest.DB) *url.URL {
	t.Helper()
	dbtest.SkipGated(t, "its users are its own")
	u, err := url.Parse(db.URL)
	if err != nil {
		t.Fatal(err)
	}
	name := strings.TrimPrefix(u.Path, "/")[:15] // random, and short enough for every engine
	u.User = url.UserPassword(name, "x")
	create, remove := `CREATE ROLE `+name+` LOGIN PASSWORD 'x'`, []string{`DROP OWNED BY ` + name + ` CASCADE`, `DROP ROLE ` + name}
	if db.Dialect.Name == mysql.Dialect.Name {
		create, remove = `CREATE USER `+name+`@'%' IDENTIFIED BY 'x'`, []string{`DROP USER ` + name + `@'%'`}
	}
	db.Do(t, create, nil)
	t.Cleanup(func() {
		for _, s := range remove {
			if _, err := db.Pool().ExecContext(context.Background(), s); err != nil {
				t.Error(err)
			}
		}
	})
	return u
}

// Who may make no tables is told so, in one line, and what to do; who looks in one schema is told of the tables in another.
func TestWhereTheTablesAre(t *testing.T) {
	eachEmpty(t, func(t *testing.T, db *dbtest.DB) {
		if db.Dialect.SkipLocked == "" {
			return // SQLite has no roles
		}
		user := role(t, db)
		name := user.User.Username()
		if !db.Dialect.Schema {
			db.Do(t, `GRANT SELECT ON `+strings.TrimPrefix(user.Path, "/")+`.* TO `+name, nil)
			err := sqlschema.Migrate(t.Context(), dbtest.Open(t, user.String(), dialect.Options{}).DB)
			isLine(t, err, "the user may not make tables here: grant it the rights of docs/grants.md, or migrate as one that has them: ")
			return
		}
		db.Do(t, `REVOKE CREATE ON SCHEMA public FROM PUBLIC`, nil)
		advice := func(want string) {
			t.Helper()
			if got := sqlschema.Advice(t.Context(), dbtest.Open(t, user.String(), dialect.Options{}).DB); got != want {
				t.Errorf("the advice is %q, want %q", got, want)
			}
		}
		const mayNot = "the user may not make tables in schema public: grant it CREATE there, or name one where it may with --schema (docs/grants.md)"
		isLine(t, sqlschema.Migrate(t.Context(), dbtest.Open(t, user.String(), dialect.Options{}).DB), mayNot+": ")
		advice(mayNot + "; then run dbcron migrate up")
		err := sqlschema.Check(t.Context(), dbtest.Open(t, user.String(), dialect.Options{}).DB)
		if !errors.Is(err, sqlschema.ErrOutdated) || strings.Contains(err.Error(), "--schema") {
			t.Errorf("without tables anywhere: %v", err)
		}
		db.Do(t, `GRANT CREATE ON SCHEMA public TO `+name, nil)
		advice("run dbcron migrate up")
		db.Do(t, `CREATE SCHEMA apart AUTHORIZATION `+name, nil)
		migrate(t, dbtest.Open(t, user.String(), dialect.Options{Schema: "apart"}))
		err = sqlschema.Check(t.Context(), dbtest.Open(t, user.String(), dialect.Options{}).DB)
		if want := "; there are tables in schema apart, and this is about schema public: --schema apart names that one"; !errors.Is(err, sqlschema.ErrOutdated) ||
			!strings.HasSuffix(err.Error(), want) {
			t.Errorf("got %v, want an end %q", err, want)
		}
		advice("name the schema that has the tables: --schema apart; this is about schema public")
		if err := sqlschema.Check(t.Context(), dbtest.Open(t, user.String(), dialect.Options{Schema: "apart"}).DB); err != nil {
			t.Errorf("the right schema: %v", err)
		}
	})
}

// isLine checks that an error is one line, with that beginning.
func isLine(t *testing.T, err error, begin string) {
	t.Helper()
	if err == nil || !strings.HasPrefix(err.Error(), begin) || strings.Contains(err.Error(), "\n") {
		t.Errorf("got %v, want one line that begins with %q", err, begin)
	}
}

func TestLookingTakesNoMoreThanSELECT(t *testing.T) {
	eachEmpty(t, func(t *testing.T, db *dbtest.DB) {
		if db.Dialect.SkipLocked == "" {
			return // SQLite has no roles
		}
		reader := role(t, db)
		name := reader.User.Username()
		look := func(want error) {
			t.Helper()
			own := dbtest.Open(t, reader.String(), dialect.Options{})
			if err := sqlschema.Check(t.Context(), own.DB); !errors.Is(err, want) {
				t.Errorf("Check: %v, want %v", err, want)
			}
			if _, err := sqlschema.Status(t.Context(), own.DB); err != nil {
				t.Error(err)
			}
			err := sqlschema.Migrate(t.Context(), own.DB)
			if (want == nil) != (err == nil) {
				t.Errorf("Migrate: %v", err)
			}
		}
		if db.Dialect.Schema {
			look(sqlschema.ErrOutdated)
			migrate(t, db)
			db.Do(t, `GRANT SELECT ON ALL TABLES IN SCHEMA public TO `+name, nil)
		} else {
			db.Do(t, `GRANT SELECT ON `+strings.TrimPrefix(reader.Path, "/")+`.* TO `+name+`@'%'`, nil)
			look(sqlschema.ErrOutdated)
			migrate(t, db)
		}
		look(nil)
		if got := versions(t, db); got != all(db.Dialect) {
			t.Errorf("versions %s", got)
		}
	})
}

func TestAPoolOfOneConnection(t *testing.T) {
	eachEmpty(t, func(t *testing.T, db *dbtest.DB) {
		db.Pool().SetMaxOpenConns(1)
		own, err := engines.Wrap(t.Context(), db.Pool(), dialect.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if err := sqlschema.Migrate(t.Context(), own); err == nil || !strings.Contains(err.Error(), "two connections") {
			t.Errorf("got %v, want to be told", err)
		}
		db.Pool().SetMaxOpenConns(2)
		if err := sqlschema.Migrate(t.Context(), own); err != nil {
			t.Error(err)
		}
		db.Pool().SetMaxOpenConns(1)
		if err := sqlschema.Migrate(t.Context(), own); err != nil {
			t.Errorf("with nothing to do: %v", err)
		}
	})
}
