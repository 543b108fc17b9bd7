package sqlschema_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/sqlschema"
)

// refuses asserts that a program leaves the tables alone, with an error that says what to do.
func refuses(t *testing.T, db *dbtest.DB, want error, words string) {
	t.Helper()
	before := versions(t, db)
	latest := sqlschema.Latest(db.Dialect)
	for name, err := range map[string]error{
		"Check": sqlschema.Check(t.Context(), db.DB), "Migrate": sqlschema.Migrate(t.Context(), db.DB), "Down": sqlschema.Down(t.Context(), db.DB),
		"To": sqlschema.To(t.Context(), db.DB, 0), "To the latest": sqlschema.To(t.Context(), db.DB, latest), "Prompt": sqlschema.Prompt(t.Context(), db.DB),
	} {
		if !errors.Is(err, want) || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %v, want %v with %q", name, err, want, words)
		}
	}
	if got := versions(t, db); got != before {
		t.Errorf("versions %s, want %s", got, before)
	}
}

// The class: tables that have a number which this program knows, and are not its own. Builds between two releases have
// changed migrations without a new number, and programs of before the first release count from 1.
func TestTablesOfAnotherBuild(t *testing.T) {
	eachEmpty(t, func(t *testing.T, db *dbtest.DB) {
		migrate(t, db)
		first := numbers(db.Dialect)[0]
		set := func(version int64, checksum string) {
			db.Do(t, fmt.Sprintf(`UPDATE {prefix}migration_checksum SET checksum = '%s' WHERE version = %d`, checksum, version), nil)
		}
		sum := func(version int64) string {
			return db.List(t, fmt.Sprintf(`SELECT checksum FROM {prefix}migration_checksum WHERE version = %d`, version), nil)[0]
		}
		was := sum(first)
		set(first, "of a build of yesterday")
		refuses(t, db, sqlschema.ErrMismatch, fmt.Sprintf("migration %d", first))
		set(first, was)
		if err := sqlschema.Check(t.Context(), db.DB); err != nil {
			t.Error(err)
		}

		// Nothing but the SQL prompt needs its views and routines, so they stop nobody, and are made anew when asked for.
		prompt := sqlschema.Latest(db.Dialect)
		was = sum(prompt)
		set(prompt, "of a build of yesterday")
		if err := sqlschema.Check(t.Context(), db.DB); err != nil {
			t.Error(err)
		}
		hasPrompt(t, db, false)
		if err := sqlschema.Prompt(t.Context(), db.DB); err != nil {
			t.Fatal(err)
		}
		hasPrompt(t, db, true)
		if got := sum(prompt); got != was {
			t.Errorf("checksum %s, want %s", got, was)
		}

		db.Do(t, `DROP TABLE {prefix}migration_checksum`, nil)
		refuses(t, db, sqlschema.ErrMismatch, fmt.Sprintf("migration %d", first))
	})
}

// A database of before the first release, whichever of its numbers it has, is left alone.
func TestTablesOfBeforeTheFirstRelease(t *testing.T) {
	for _, version := range []int{1, 2, 32, 37} {
		t.Run(fmt.Sprint(version), func(t *testing.T) {
			eachEmpty(t, func(t *testing.T, db *dbtest.DB) {
				migrate(t, db)
				db.Do(t, `DROP TABLE {prefix}migration_checksum`, nil)
				db.Do(t, `DELETE FROM {prefix}migration WHERE version_id > 0`, nil)
				for v := range version {
					db.Do(t, fmt.Sprintf(`INSERT INTO {prefix}migration (version_id, is_applied) VALUES (%d, TRUE)`, v+1), nil)
				}
				refuses(t, db, sqlschema.ErrTooOld, fmt.Sprintf("version %d,", version))
			})
		})
	}
}

// Programs of before the first release know versions up to 37, and take what is above for newer than themselves.
func TestVersionsAreAboveTheOldOnes(t *testing.T) {
	dbtest.Memory.Each(t, func(t *testing.T, db *dbtest.DB) {
		for _, v := range numbers(db.Dialect) {
			if v <= 37 {
				t.Errorf("there is a migration %d", v)
			}
		}
	})
}

// A migration of a release says what it said then: its checksum is in people's databases.
func TestReleasedMigrations(t *testing.T) {
	git := func(args ...string) string {
		out, err := exec.CommandContext(t.Context(), "git", args...).Output()
		if err != nil {
			t.Skipf("git %s: %v: this is no clone", strings.Join(args, " "), err)
		}
		return string(out)
	}
	tags := strings.Fields(git("tag", "--list", "v*", "--merged"))
	if len(tags) == 0 {
		t.Skip("nothing has been released")
	}
	for _, tag := range tags {
		for _, file := range strings.Fields(git("ls-tree", "-r", "--name-only", tag, "migrations/")) {
			now, err := os.ReadFile(filepath.FromSlash(file))
			if err != nil || sqlschema.Checksum(string(now)) != sqlschema.Checksum(git("show", tag+":./"+file)) {
				t.Errorf("%s is not what it was in %s: add a migration instead (%v)", file, tag, err)
			}
		}
	}
}

// What a migration does counts, and how it is commented does not.
func TestChecksum(t *testing.T) {
	const text = "-- +goose Up\n-- All tables.\nCREATE TABLE one (id INT);\n\n-- +goose Down\nDROP TABLE one;\n"
	for other, same := range map[string]bool{
		strings.Replace(text, "All tables.", "Tables.", 1):                                     true,
		strings.Replace(text, "DROP TABLE one", "DROP TABLE IF EXISTS one", 1):                 true,
		strings.Replace(text, ";\n\n", ";  \n\n\n", 1):                                         true,
		strings.Replace(text, "INT", "BIGINT", 1):                                              false,
		strings.Replace(text, "-- +goose Down", "-- +goose StatementBegin\n-- +goose Down", 1): false,
	} {
		if got := sqlschema.Checksum(other) == sqlschema.Checksum(text); got != same {
			t.Errorf("%q: the same: %v, want %v", other, got, same)
		}
	}
}
