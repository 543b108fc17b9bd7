package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/dialect/engines"
	"github.com/dbcron/dbcron/dialect/postgres"
	"github.com/dbcron/dbcron/internal/ops/health"
	"github.com/dbcron/dbcron/sqlschema"
)

// Nothing opens a database in which row-level security hides rows from its user, who may have all rights: an UPDATE of
// a hidden row changes none, and a job would be accepted and never be done. doctor says which tables these are.
//
// The class: what decides besides GRANTs which rows a statement meets. The other engines have no such rules; limits of a
// session on rows are set anew with each connection; what a trigger or a rule does, the proof of transactions tries.
func TestRowSecurity(t *testing.T) {
	dbtest.One(t, postgres.Dialect, func(t *testing.T, db *dbtest.DB) {
		dbtest.Must(t, sqlschema.Migrate(t.Context(), db.DB))
		user, asUser := restricted(t, db)
		for _, grant := range documentedGrants(t, db, health.DaemonRole, user) {
			db.Do(t, grant, nil)
		}
		db.Do(t, `CREATE TABLE dbcron_of_others (id INTEGER)`, nil)
		db.Do(t, `GRANT SELECT ON dbcron_of_others TO `+user, nil)
		var tables []string
		for table := range health.DaemonRole.Rights(db.Dialect) {
			tables = append(tables, "dbcron_"+table)
		}
		const enable, policy = `ALTER TABLE dbcron_job ENABLE ROW LEVEL SECURITY`, `CREATE POLICY a ON dbcron_job `
		for _, c := range []struct {
			name   string
			do     []string
			hidden string // in the finding; "": nothing is hidden
		}{
			{"without it", nil, ""},
			{"one table", []string{enable}, "hides rows of dbcron_job from " + user},
			{"all tables", strings.Split("ALTER TABLE "+strings.Join(tables, " ENABLE ROW LEVEL SECURITY;ALTER TABLE ")+" ENABLE ROW LEVEL SECURITY", ";"), " more from " + user},
			{"another program's table", []string{`ALTER TABLE dbcron_of_others ENABLE ROW LEVEL SECURITY`}, ""},
			{"a policy for everybody", []string{enable, policy + `USING (true)`}, ""},
			{"a policy for the user", []string{enable, policy + `TO ` + user + ` USING (true)`}, ""},
			{"a policy for another user", []string{enable, policy + `TO pg_monitor USING (true)`}, "dbcron_job"},
			{"a policy of some rows", []string{enable, policy + `USING (priority > 0)`}, "dbcron_job"},
			{"a policy of some rows that may be written", []string{enable, policy + `USING (true) WITH CHECK (priority > 0)`}, "dbcron_job"},
			{"a policy for reading", []string{enable, policy + `FOR SELECT USING (true)`}, "dbcron_job"},
			{"a policy for each command", []string{
				enable, policy + `FOR SELECT USING (true)`, `CREATE POLICY b ON dbcron_job FOR INSERT WITH CHECK (true)`,
				`CREATE POLICY c ON dbcron_job FOR UPDATE USING (true)`, `CREATE POLICY d ON dbcron_job FOR DELETE USING (true)`,
			}, ""},
			{"a restrictive policy, too", []string{
				enable, policy + `USING (true)`, `CREATE POLICY b ON dbcron_job AS RESTRICTIVE USING (priority > 0)`,
			}, "dbcron_job"},
			{"a restrictive policy for others", []string{
				enable, policy + `USING (true)`, `CREATE POLICY b ON dbcron_job AS RESTRICTIVE TO pg_monitor USING (priority > 0)`,
			}, ""},
			{"a restrictive policy of all rows", []string{
				enable, policy + `USING (true)`, `CREATE POLICY b ON dbcron_job AS RESTRICTIVE USING (true)`,
			}, ""},
			{"a table for which the user has no rights", []string{enable, `REVOKE ALL ON dbcron_job FROM ` + user}, ""},
			{"a user who is not bound", []string{`GRANT ALL ON dbcron_job TO ` + user, enable, `ALTER ROLE ` + user + ` BYPASSRLS`}, ""},
		} {
			for _, statement := range c.do {
				db.Do(t, statement, nil)
			}
			own, err := engines.Open(t.Context(), asUser, dialect.Options{})
			if err == nil {
				dbtest.Must(t, own.Close())
			}
			if c.hidden == "" != (err == nil) || err != nil && (!errors.Is(err, dialect.ErrUnfit) || !strings.Contains(err.Error(), c.hidden)) {
				t.Errorf("%s: %v, want %q", c.name, err, c.hidden)
			}
			rows, code := examined(t, asUser)
			if found := ofCheck(rows, "row security"); c.hidden == "" && len(found) > 0 || c.hidden != "" && (code != exitFailure || len(found) != 1 ||
				found[0].Status != "failed" || !strings.Contains(found[0].Detail, c.hidden) || !strings.Contains(found[0].Advice, "DISABLE ROW LEVEL SECURITY") ||
				len(ofCheck(rows, "schema"))+len(ofCheck(rows, "rights"))+len(ofCheck(rows, "transactions")) > 0) {
				t.Errorf("%s: doctor: exit code %d, %v", c.name, code, rows)
			}
			for _, table := range append(tables, "dbcron_of_others") {
				db.Do(t, `ALTER TABLE `+table+` DISABLE ROW LEVEL SECURITY`, nil)
			}
			for _, name := range db.List(t, `SELECT policyname FROM pg_policies WHERE tablename = 'dbcron_job'`, nil) {
				db.Do(t, `DROP POLICY `+name+` ON dbcron_job`, nil)
			}
		}
	})
}
