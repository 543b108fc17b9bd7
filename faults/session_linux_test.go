package faults

import (
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/scheduler"
)

// What a schedule's statement sets in its session, and what shows it.
var settings = map[string]struct{ change, shows string }{
	"postgres": {"SET search_path TO pg_catalog", "current_setting('search_path')"},
	"mysql":    {"SET SESSION sql_select_limit = 1", "@@sql_select_limit"},
	"sqlite":   {"PRAGMA case_sensitive_like = 1", "'a' LIKE 'A'"},
}

// A schedule changes its session each second. The runs of another schedule, which share a daemon's pool with it, never see that.
// scheduler.TestAStatementLeavesItsSession has every other way to change a session.
func TestAStatementChangesItsSession(t *testing.T) {
	t.Parallel()
	binary := build(t)
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		set := settings[db.Dialect.Name]
		marks := "marks"
		if db.Dialect.Name == "postgres" {
			marks = "public.marks"
		}
		db.Do(t, `CREATE TABLE `+marks+` (value VARCHAR(200))`, nil)
		for name, text := range map[string]string{"change": set.change, "mark": "INSERT INTO " + marks + " SELECT " + set.shows} {
			if err := scheduler.Add(t.Context(), db.DB, scheduler.Schedule{Name: name, Spec: "@every 1s", Kind: "sql", Command: text}); err != nil {
				t.Fatal(err)
			}
		}
		dir := t.TempDir()
		r := &rig{t: t, db: db, binary: binary, dir: dir, mark: "FAULTS_MARK=" + dir, lease: 5 * time.Second, poll: 200 * time.Millisecond, grace: time.Second}
		d := r.serve(binary, "one", "--poll", "200ms", "--listen", "off")
		count := func(of string) (n int) {
			if err := db.Pool().QueryRowContext(t.Context(), `SELECT COUNT(`+of+`) FROM `+marks).Scan(&n); err != nil {
				t.Fatal(err)
			}
			return n
		}
		r.eventually("five runs have marked", patience, func() bool { return count("*") >= 5 })
		d.stop()
		if n := count("DISTINCT value"); n != 1 {
			t.Errorf("runs of one schedule have seen %d values of what another one sets in its session, want 1", n)
		}
	})
}
