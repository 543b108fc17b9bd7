package sqlschema_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/dialect/mysql"
	"github.com/dbcron/dbcron/dialect/sqlite"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/sqlschema"
)

// The commit that counts as version 0.1.0, and its schema version.
const (
	released       = "0522805ab1e65a92c1993a973b6f8f7a89e96465"
	releasedSchema = 13
)

// A release's migrations still make what they made then: released databases have gone through them.
func TestReleasedMigrationsStay(t *testing.T) {
	onSQLite(t, func(t *testing.T, db *dbtest.DB) {
		if db.Dialect.Name == mysql.Dialect.Name && !strings.Contains(db.List(t, `SELECT VERSION()`, nil)[0], "MariaDB") {
			t.Skip("the dump is in the words of MariaDB")
		}
		toReleased(t, db)
		want, err := os.ReadFile(filepath.Join("testdata", "v0.1.0", "schema."+db.Dialect.Name+".sql"))
		if err != nil {
			t.Fatal(err)
		}
		if got := schema(t, db) + "\n"; got != string(want) {
			t.Errorf("a migration that was released makes something else now; add a new one instead\ngot\n%s", got)
		}
	})
}

func toReleased(t *testing.T, db *dbtest.DB) {
	t.Helper()
	if err := sqlschema.To(t.Context(), db.DB, releasedSchema); err != nil {
		t.Fatal(err)
	}
}

// Rows of the release survive the upgrade and the downgrade.
func TestRowsOfTheReleaseSurvive(t *testing.T) {
	eachEmpty(t, func(t *testing.T, db *dbtest.DB) {
		toReleased(t, db)
		for _, insert := range []string{
			`INSERT INTO {prefix}schedule (name, spec, command, due_at, next_exec) VALUES ('backup', '@daily', 'true', {now}, {now})`,
			`INSERT INTO {prefix}run (schedule, due_at, attempt, state, started_at, finished_at, exec_by, exit_code, error)
				VALUES ('backup', {now}, 1, 'failed', {now}, {now}, 'host:1:x', 3, 'exit code 3')`,
			`INSERT INTO {prefix}lock (name, state, lock_by, fence, expire_at) VALUES ('report', 'FREE', 'host:1:x', 7, {now})`,
			`INSERT INTO {prefix}lock_fence (name, fence) VALUES ('report', 7)`,
			`INSERT INTO {prefix}queue (queue_id, name) VALUES (9, 'mail')`,
			`INSERT INTO {prefix}job_dead (queue_id, id, divided, kind, attempt, error)
				VALUES (9, 5, 3, 'welcome', 2, 'no such host')`,
			`INSERT INTO {prefix}node (name, state, expire_at) VALUES ('host:1:x', 'gone', {now})`,
			`INSERT INTO {prefix}token (name, hash, scopes) VALUES ('ci', 'h', 'read')`,
		} {
			db.Do(t, insert, nil)
		}
		look := func() (all []string) {
			for _, query := range []string{
				`SELECT name, spec, command, state, {us due_at} FROM {prefix}schedule`, `SELECT schedule, state, exit_code, error FROM {prefix}run`,
				`SELECT name, state, fence FROM {prefix}lock`, `SELECT name, fence FROM {prefix}lock_fence WHERE name <> ''`,
				`SELECT queue_id, name FROM {prefix}queue`,
				`SELECT queue_id, id, divided, kind, attempt, error FROM {prefix}job_dead`, `SELECT name, state FROM {prefix}node`,
				`SELECT name, hash, scopes FROM {prefix}token`,
			} {
				rows := db.List(t, query, nil)
				if len(rows) != 1 {
					t.Errorf("%s: %q", query, rows)
				}
				all = append(all, rows...)
			}
			return all
		}
		before := look()
		migrate(t, db)
		if got := look(); !slices.Equal(got, before) {
			t.Errorf("after the upgrade there is %q, want %q", got, before)
		}
		toReleased(t, db)
		if got := look(); !slices.Equal(got, before) {
			t.Errorf("after the way back there is %q, want %q", got, before)
		}
	})
}

// A program of the release keeps working with newer tables: the newest tables accept each of its
// statements that its own tables accept.
func TestStatementsOfTheRelease(t *testing.T) {
	text, err := exec.CommandContext(t.Context(), "git", "show", released+":testdata/statements.golden").Output()
	if err != nil {
		t.Skipf("the history is not in this clone: %v", err)
	}
	onSQLite(t, func(t *testing.T, db *dbtest.DB) {
		all := goldenStatements(string(text), db.Dialect)
		toReleased(t, db)
		refused := prepare(t, db, all)
		if n := len(all) - len(refused); n < 250 {
			t.Errorf("only %d of %d statements are accepted by their own tables", n, len(all))
		}
		migrate(t, db)
		for name, err := range prepare(t, db, all) {
			if refused[name] == nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// goldenStatements reads the statements of an engine.
func goldenStatements(text string, d *sqlrun.Dialect) map[string]string {
	all := map[string]string{}
	for _, section := range strings.Split(text, "\n== ")[1:] {
		name, rest, _ := strings.Cut(section, "\n")
		mine := false
		var lines []string
		for line := range strings.SplitSeq(rest, "\n") {
			if engines, is := strings.CutSuffix(line, ":"); is && !strings.HasPrefix(line, "\t") {
				mine = slices.Contains(strings.Split(engines, ", "), d.Name)
			} else if mine {
				lines = append(lines, strings.TrimPrefix(line, "\t"))
			}
		}
		if query := strings.TrimSpace(strings.Join(lines, "\n")); query != "" {
			all[name] = query
		}
	}
	return all
}

// prepare makes the engine check statements without running them, and returns those that it refuses.
func prepare(t *testing.T, db *dbtest.DB, all map[string]string) map[string]error {
	t.Helper()
	refused := map[string]error{}
	for name, query := range all {
		if err := accepts(t, db, query); err != nil {
			refused[name] = err
		}
	}
	return refused
}

func accepts(t *testing.T, db *dbtest.DB, query string) error {
	t.Helper()
	if db.Dialect.Name == sqlite.Dialect.Name { // its driver prepares a statement when it runs
		plan, err := db.Pool().QueryContext(t.Context(), "EXPLAIN "+query, make([]any, strings.Count(query, "?"))...)
		if err != nil {
			return err
		}
		defer plan.Close()
		return plan.Err()
	}
	stmt, err := db.Pool().PrepareContext(t.Context(), query)
	if err != nil {
		return err
	}
	defer stmt.Close()
	return nil
}
