package dialect_test

import (
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/dialect/engines"
	"github.com/dbcron/dbcron/dialect/postgres"
	"github.com/dbcron/dbcron/internal/sqlrun"
)

// lacksOf lists the features that a database lacks.
func lacksOf(db *dbtest.DB) (all string) {
	for _, f := range []dialect.Feature{dialect.Notifications, dialect.AdvisoryLocks, dialect.Functions} {
		if _, lacks := db.Lacks(f); lacks {
			all += string(f) + " "
		}
	}
	return all
}

// Functions earlier in the search_path replace the server's own, to simulate another server.
func TestWhatAServerLacksIsFoundOut(t *testing.T) {
	dbtest.SkipBare(t, "it lacks all")
	dbtest.One(t, postgres.Dialect, func(t *testing.T, db *dbtest.DB) {
		if got := lacksOf(db); got != "" {
			t.Errorf("PostgreSQL lacks %s", got)
		}
		const refuses = ` LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''unimplemented'' USING ERRCODE = ''0A000''; END'`
		for _, c := range []struct {
			name, function, lacks, why string
			session                    bool
		}{
			{"notify", `pg_notify(TEXT, TEXT) RETURNS VOID` + refuses, "notifications ", "unimplemented", true},
			{"transaction", `pg_try_advisory_xact_lock(BIGINT) RETURNS BOOLEAN` + refuses, "advisory-locks ", "unimplemented", false},
			{"nothing", `pg_try_advisory_xact_lock(BIGINT) RETURNS BOOLEAN LANGUAGE sql AS 'SELECT true'`, "advisory-locks ", "does nothing", false},
			{"session", `pg_try_advisory_lock(BIGINT) RETURNS BOOLEAN` + refuses, "", "unimplemented", false},
		} {
			db.Do(t, `CREATE SCHEMA `+c.name, nil)
			db.Do(t, `CREATE FUNCTION `+c.name+`.`+c.function, nil)
			own := dbtest.Open(t, db.URL+"&search_path="+c.name+",pg_catalog,public", dialect.Options{})
			if got := lacksOf(own); got != c.lacks {
				t.Errorf("%s: it lacks %q, want %q", c.name, got, c.lacks)
			}
			if why, _ := own.Lacks(dialect.Feature(strings.TrimSpace(c.lacks))); c.lacks != "" && !strings.Contains(why, c.why) {
				t.Errorf("%s: because %q", c.name, why)
			}
			if has := own.Dialect.Notify != nil; has == (c.name == "notify") {
				t.Errorf("%s: it notifies: %t", c.name, has)
			}
			lock, err := own.SessionLock(t.Context(), c.name)
			if err == nil {
				lock.Free()
			}
			if c.session != (err == nil) || err != nil && (!errors.Is(err, sqlrun.ErrNoSessions) || !strings.Contains(err.Error(), c.why)) {
				t.Errorf("%s: a session lock: %v", c.name, err)
			}
			found, err := own.Findings(t.Context())
			told := ""
			for _, f := range found {
				if strings.HasPrefix(f.Detail, "none (") && f.OK {
					told += f.Subject + " "
				}
			}
			if err != nil || told != c.lacks {
				t.Errorf("%s: findings tell of %q, %v", c.name, told, err)
			}
		}
	})
}

// The parameter belongs to dbcron: no driver sees it.
func TestDoingWithoutByURL(t *testing.T) {
	dbtest.EachEmpty(t, func(t *testing.T, db *dbtest.DB) {
		with := func(value string) string {
			u, err := url.Parse(db.URL)
			if err != nil {
				t.Fatal(err)
			}
			parameter := "dbcron_without=" + value
			if u.RawQuery != "" {
				parameter = "&" + parameter
			}
			u.RawQuery += parameter
			return u.String()
		}
		own := dbtest.Open(t, with("functions%2Cnotifications"), dialect.Options{})
		if got := lacksOf(own); !dbtest.Bare() && got != "notifications functions " || own.Dialect.Notify != nil || own.Dialect.Listen != nil {
			t.Errorf("it does without %s", got)
		}
		err := refusal(t, with("notification"), dialect.Options{})
		if !strings.Contains(err.Error(), `"notification"`) || !strings.Contains(err.Error(), "use notifications, advisory-locks or functions") {
			t.Errorf("an unknown feature: %v", err)
		}
		other, err := engines.Open(t.Context(), with("advisory-locks"), dialect.Options{})
		if can := db.Dialect.RowLocked != ""; can != (err == nil) {
			t.Errorf("without advisory locks: %v", err)
		}
		if err == nil {
			if _, err := other.SessionLock(t.Context(), "x"); !errors.Is(err, sqlrun.ErrNoSessions) ||
				!strings.Contains(err.Error(), "dbcron_without") {
				t.Errorf("a session lock: %v", err)
			}
			if err := other.Close(); err != nil {
				t.Error(err)
			}
		}
	})
}
