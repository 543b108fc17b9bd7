package sqlschema_test

import (
	"context"
	"net/url"
	"strings"
	"testing"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/sqlschema"
)

func hasPrompt(t *testing.T, db *dbtest.DB, want bool) {
	t.Helper()
	if got, err := sqlschema.HasPrompt(t.Context(), db.DB); got != want || err != nil {
		t.Errorf("the views and the routine are there: %v, %v", got, err)
	}
}

func TestPromptIsMadeAnew(t *testing.T) {
	dbtest.SkipGated(t, "it has no procedures")
	eachEmpty(t, func(t *testing.T, db *dbtest.DB) {
		hasPrompt(t, db, false)
		if err := sqlschema.Prompt(t.Context(), db.DB); err == nil {
			t.Error("it is made without tables")
		}
		migrate(t, db)
		hasPrompt(t, db, true)
		for range 2 {
			if err := sqlschema.Prompt(t.Context(), db.DB); err != nil {
				t.Fatal(err)
			}
			hasPrompt(t, db, true)
			db.Do(t, `DROP VIEW {prefix}v_job`, nil)
			hasPrompt(t, db, false)
		}
		if got := versions(t, db); got != all(db.Dialect) {
			t.Errorf("versions %s", got)
		}
	})
}

// A user with the rights that used to be sufficient gets the tables, and gets the rest once it has
// the rights.
func TestPromptIsLeftOutWithoutRights(t *testing.T) {
	dbtest.SkipGated(t, "it has no procedures")
	emptyHaving(t, func(d *sqlrun.Dialect) bool { return !d.DDLInTx }, func(t *testing.T, db *dbtest.DB) {
		u, err := url.Parse(db.URL)
		if err != nil {
			t.Fatal(err)
		}
		name := "owner_" + strings.TrimPrefix(u.Path, "/")[7:]
		db.Do(t, `CREATE USER `+name+`@'%' IDENTIFIED BY 'secret'`, nil)
		t.Cleanup(func() {
			if _, err := db.Pool().ExecContext(context.Background(), `DROP USER `+name+`@'%'`); err != nil {
				t.Error(err)
			}
		})
		db.Do(t, `GRANT CREATE, ALTER, DROP, INDEX, REFERENCES, SELECT, INSERT, UPDATE, DELETE ON `+u.Path[1:]+`.* TO `+name+`@'%'`, nil)
		u.User = url.UserPassword(name, "secret")
		owner := dbtest.Open(t, u.String(), dialect.Options{})
		for range 2 { // also down, and up again
			migrate(t, owner)
			if err := sqlschema.Check(t.Context(), owner.DB); err != nil {
				t.Error(err)
			}
			if got := versions(t, db); got != all(db.Dialect) {
				t.Errorf("versions %s", got)
			}
			hasPrompt(t, owner, false)
			if err := sqlschema.Prompt(t.Context(), owner.DB); !db.Dialect.Denied(err) {
				t.Errorf("without the rights: %v", err)
			}
			if err := sqlschema.To(t.Context(), owner.DB, 0); err != nil {
				t.Fatal(err)
			}
			db.Do(t, `DROP TABLE {prefix}migration`, nil)
		}
		migrate(t, owner)
		db.Do(t, `GRANT CREATE VIEW, SHOW VIEW, CREATE ROUTINE, ALTER ROUTINE, EXECUTE ON `+u.Path[1:]+`.* TO `+name+`@'%'`, nil)
		again := dbtest.Open(t, u.String(), dialect.Options{}) // a connection keeps the rights that it began with
		if err := sqlschema.Prompt(t.Context(), again.DB); err != nil {
			t.Fatal(err)
		}
		hasPrompt(t, again, true)
	})
}

// A user who may call dbcron_enqueue still may after it was made anew; nobody may who was not granted the right.
func TestEnqueueKeepsItsGrants(t *testing.T) {
	emptyHaving(t, func(d *sqlrun.Dialect) bool { return d.DDLInTx && d.Routines }, func(t *testing.T, db *dbtest.DB) {
		public := func(want string) {
			t.Helper()
			got := db.List(t, `SELECT COUNT(*) FROM pg_proc
				WHERE proname = 'dbcron_enqueue' AND EXISTS (SELECT 1 FROM aclexplode(proacl) WHERE grantee = 0)`, nil)
			if got[0] != want {
				t.Errorf("everybody may call %s functions, want %s", got, want)
			}
			if err := sqlschema.Prompt(t.Context(), db.DB); err != nil {
				t.Fatal(err)
			}
		}
		migrate(t, db)
		public("0")
		public("0")
		db.Do(t, `GRANT EXECUTE ON FUNCTION {prefix}enqueue TO PUBLIC`, nil)
		public("1")
		public("1")
	})
}

// Rows with words that nobody knows, written before the words were checked, do not keep what checks them from being
// made anew, and can be claimed.
func TestOldWordsAreNoObstacle(t *testing.T) {
	emptyHaving(t, func(d *sqlrun.Dialect) bool { return d.DDLInTx }, func(t *testing.T, db *dbtest.DB) {
		if err := sqlschema.To(t.Context(), db.DB, numbers(db.Dialect)[0]); err != nil {
			t.Fatal(err)
		}
		db.Do(t, `INSERT INTO {prefix}schedule (name, spec, command, overlap) VALUES ('old', '@daily', 'true', 'some')`, nil)
		migrate(t, db)
		db.Do(t, `UPDATE {prefix}schedule SET due_at = {now}, next_exec = {now}, update_time = {now} WHERE name = 'old'`, nil) // as a claim
		db.Do(t, `UPDATE {prefix}schedule SET overlap = 'forbid'`, nil)
		if err := sqlschema.Prompt(t.Context(), db.DB); err != nil {
			t.Fatal(err)
		}
	})
}

// An unknown word is refused.
func TestUnknownWordsAreRefused(t *testing.T) {
	eachEmpty(t, func(t *testing.T, db *dbtest.DB) {
		migrate(t, db)
		db.Do(t, `INSERT INTO {prefix}schedule (name, spec, command) VALUES ('one', '@daily', 'true')`, nil)
		if _, err := db.Exec(t.Context(), sqlrun.Unlisted(`UPDATE {prefix}schedule SET overlap = 'some'`), nil); !db.Dialect.Refused(err) {
			t.Errorf("an unknown word: %v", err)
		}
	})
}
