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

// A user who may call dbcron_enqueue still may after an upgrade, after a downgrade, and when it is made anew.
func TestEnqueueKeepsItsGrants(t *testing.T) {
	emptyHaving(t, func(d *sqlrun.Dialect) bool { return d.DDLInTx && d.Routines }, func(t *testing.T, db *dbtest.DB) {
		to := func(version int64) {
			t.Helper()
			if err := sqlschema.To(t.Context(), db.DB, version); err != nil {
				t.Fatal(err)
			}
		}
		public := func(args, want string) {
			t.Helper()
			got := db.List(t, `SELECT COUNT(*) FROM pg_proc WHERE oid = to_regprocedure('{prefix}enqueue(text,text,json,text,timestamptz`+args+`)') AND EXISTS (SELECT 1 FROM aclexplode(proacl) WHERE grantee = 0)`, nil)
			all := db.List(t, `SELECT COUNT(*) FROM pg_proc WHERE proname = 'dbcron_enqueue'`, nil)
			if got[0] != want || all[0] != "1" {
				t.Errorf("everybody may call %s of %s functions", got, all)
			}
		}
		const more = ",text,int,int,interval,interval"
		before := int64(24)
		to(before)
		public("", "0")
		to(sqlschema.Latest(db.Dialect))
		public(more, "0")
		to(before)
		db.Do(t, `GRANT EXECUTE ON FUNCTION {prefix}enqueue TO PUBLIC`, nil)
		to(sqlschema.Latest(db.Dialect))
		public(more, "1")
		if err := sqlschema.Prompt(t.Context(), db.DB); err != nil {
			t.Fatal(err)
		}
		public(more, "1")
		to(before)
		public("", "1")
	})
}

// Rows with words that no version knows do not keep the tables from being migrated or made anew.
func TestOldWordsAreNoObstacle(t *testing.T) {
	eachEmpty(t, func(t *testing.T, db *dbtest.DB) {
		if err := sqlschema.To(t.Context(), db.DB, 24); err != nil {
			t.Fatal(err)
		}
		db.Do(t, `INSERT INTO {prefix}schedule (name, spec, command, overlap) VALUES ('old', '@daily', 'true', 'some')`, nil)
		migrate(t, db)
		db.Do(t, `UPDATE {prefix}schedule SET due_at = {now}, next_exec = {now}, update_time = {now} WHERE name = 'old'`, nil) // as a claim
		db.Do(t, `UPDATE {prefix}schedule SET overlap = 'forbid'`, nil)
		if err := sqlschema.Prompt(t.Context(), db.DB); err != nil {
			t.Fatal(err)
		}
		if _, err := db.Exec(t.Context(), sqlrun.Unlisted(`UPDATE {prefix}schedule SET overlap = 'some'`), nil); !db.Dialect.Refused(err) {
			t.Errorf("an unknown word: %v", err)
		}
	})
}
