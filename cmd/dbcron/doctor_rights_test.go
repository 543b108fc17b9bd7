package main

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/dialect/postgres"
	"github.com/dbcron/dbcron/internal/ops/health"
	"github.com/dbcron/dbcron/sqlschema"
)

// examined are the rows of a doctor who connects to a URL, and its exit code.
func examined(t *testing.T, asUser string, flags ...string) (rows []health.Check, code int) {
	t.Helper()
	var out, errs bytes.Buffer
	p := &program{in: strings.NewReader(""), out: &out, err: &errs, environ: []string{"DBCRON_DATABASE_URL=" + asUser}}
	code = run(t.Context(), p, slices.Concat([]string{"doctor", "-o", "json"}, flags))
	if err := json.Unmarshal(out.Bytes(), &rows); err != nil {
		t.Fatalf("%v: %s%s", err, &out, &errs)
	}
	return rows, code
}

// ofCheck are the rows of one check.
func ofCheck(rows []health.Check, check string) []health.Check {
	return slices.DeleteFunc(slices.Clone(rows), func(r health.Check) bool { return r.Name != check })
}

// eachRole runs f on each engine that has users, with a user that has the documented rights
// of a role.
func eachRole(t *testing.T, f func(t *testing.T, db *dbtest.DB, role health.Role, user, asUser string)) {
	t.Helper()
	t.Parallel()
	dbtest.Users.Each(t, func(t *testing.T, db *dbtest.DB) {
		for _, role := range []health.Role{health.DaemonRole, health.LockRole} {
			t.Run(role.User, func(t *testing.T) {
				name, asUser := restricted(t, db)
				for _, grant := range documentedGrants(t, db, role, name) {
					db.Do(t, grant, nil)
				}
				if !db.Dialect.Schema {
					name += "@'%'"
				}
				f(t, db, role, name, asUser)
			})
		}
	}, (*testing.T).Parallel)
}

// TestDoctorIsContentWithDocumentedGrants also sees to it that doctor does not promise a user
// more than its role.
func TestDoctorIsContentWithDocumentedGrants(t *testing.T) {
	eachRole(t, func(t *testing.T, _ *dbtest.DB, role health.Role, _, asUser string) {
		want := "enough to look around and to take locks and to run as a daemon"
		if role.User == health.LockRole.User {
			want = "enough to take locks; not enough to look around or to run as a daemon"
		}
		rows, code := examined(t, asUser)
		rights := ofCheck(rows, "rights")
		if code != 0 || len(rights) != 1 || rights[0].Status != "ok" || !strings.HasSuffix(rights[0].Detail, ": "+want) ||
			len(ofCheck(rows, "right")) > 0 {
			t.Errorf("exit code %d: %+v", code, rows)
		}
		if tables := ofCheck(rows, "tables"); len(tables) != 1 || tables[0].Status != "ok" {
			t.Errorf("%+v", tables)
		}
	})
}

// TestDoctorNamesMissingGrant takes each of the rights away, those of a few tables at a time: doctor
// has to name each, and no other, and the statements that it prints have to give them back.
func TestDoctorNamesMissingGrant(t *testing.T) {
	const few = 6 // it still looks like a user of that role
	eachRole(t, func(t *testing.T, db *dbtest.DB, role health.Role, user, asUser string) {
		rights := role.Rights(db.Dialect)
		for tables := range slices.Chunk(slices.Sorted(maps.Keys(rights)), few) {
			for round := range 4 { // SELECT, INSERT, UPDATE, DELETE
				var want []string
				for _, table := range tables {
					if verbs := rights[table]; round < len(verbs) {
						db.Do(t, "REVOKE "+verbs[round]+" ON {prefix}"+table+" FROM "+user, nil)
						want = append(want, verbs[round]+" on "+tablesOf(t, db)+table)
					}
				}
				if len(want) == 0 {
					continue
				}
				rows, code := examined(t, asUser)
				var named []string
				for _, missing := range ofCheck(rows, "right") {
					_, what, _ := strings.Cut(missing.Detail, " lacks ")
					named = append(named, what)
					db.Do(t, strings.TrimSuffix(missing.Advice, ";"), nil)
				}
				if code != 1 || !slices.Equal(named, want) {
					t.Fatalf("without %q: exit code %d, %+v", want, code, rows)
				}
			}
		}
		if rows, code := examined(t, asUser); code != 0 || len(ofCheck(rows, "right")) > 0 {
			t.Errorf("with all of it: exit code %d, %+v", code, rows)
		}
	})
}

// TestDoctorOnReader looks as a user who may only look: that is nothing to be corrected,
// whether it may read all or a part.
func TestDoctorOnReader(t *testing.T) {
	t.Parallel()
	dbtest.Users.Each(t, func(t *testing.T, db *dbtest.DB) {
		name, asUser := restricted(t, db)
		if !db.Dialect.Schema {
			name += "@'%'"
		}
		for table := range health.Uses(db.Dialect)[0].Rights {
			if table != "run" {
				db.Do(t, "GRANT SELECT ON {prefix}"+table+" TO "+name, nil)
			}
		}
		rows, code := examined(t, asUser)
		missing := ofCheck(rows, "right")
		if code != 0 || len(missing) != 1 || missing[0].Status != "warning" ||
			!strings.HasSuffix(missing[0].Detail, "SELECT on "+tablesOf(t, db)+"run") {
			t.Fatalf("a part: exit code %d, %+v", code, rows)
		}
		db.Do(t, strings.TrimSuffix(missing[0].Advice, ";"), nil)
		rows, code = examined(t, asUser)
		rights := ofCheck(rows, "rights")
		if code != 0 || rights[0].Status != "ok" ||
			!strings.HasSuffix(rights[0].Detail, ": enough to look around; not enough to take locks or to run as a daemon") ||
			len(ofCheck(rows, "right")) > 0 {
			t.Errorf("all: exit code %d, %+v", code, rows)
		}
	})
}

// TestDoctorOnEnqueuer runs doctor as the user of a program that only enqueues jobs: it does
// not count as a daemon that lacks most of its rights, unless --as says so.
func TestDoctorOnEnqueuer(t *testing.T) {
	t.Parallel()
	dbtest.Users.Each(t, func(t *testing.T, db *dbtest.DB) {
		name, asUser := restricted(t, db)
		if !db.Dialect.Schema {
			name += "@'%'"
		}
		for table, verbs := range map[string]string{
			"migration": "SELECT", "queue": "SELECT, INSERT, UPDATE", "queue_block": "SELECT, INSERT", "route": "SELECT",
			"job": "SELECT, INSERT", "job_delayed": "SELECT, INSERT", "job_unique": "SELECT, INSERT, UPDATE, DELETE",
		} {
			db.Do(t, "GRANT "+verbs+" ON {prefix}"+table+" TO "+name, nil)
		}
		rows, code := examined(t, asUser)
		rights := ofCheck(rows, "rights")
		if code != 0 || len(rights) != 1 || rights[0].Status != "ok" || !strings.Contains(rights[0].Advice, "--role daemon") ||
			len(ofCheck(rows, "right")) > 0 {
			t.Errorf("exit code %d: %+v", code, rows)
		}
		for _, role := range health.Purposes() {
			rows, code := examined(t, asUser, "--role", role)
			missing := ofCheck(rows, "right")
			at := slices.IndexFunc(health.Uses(db.Dialect), func(u health.Use) bool { return u.Name == role })
			want := "to " + health.Uses(db.Dialect)[at].To + " it lacks "
			if code != 1 || len(missing) == 0 || !strings.HasPrefix(missing[0].Detail, want) {
				t.Errorf("%s: exit code %d, %+v", role, code, rows)
			}
		}
	})
}

// tablesOf returns what precedes a table's name in a GRANT.
func tablesOf(t *testing.T, db *dbtest.DB) string {
	t.Helper()
	holds, err := db.Dialect.Holdings(t.Context(), db.DB, nil)
	if err != nil || holds == nil {
		t.Fatalf("%v, %v", holds, err)
	}
	return holds.Tables
}

// TestDoctorNamesMissingSchema examines tables in a schema of their own that the user cannot
// access.
func TestDoctorNamesMissingSchema(t *testing.T) {
	dbtest.One(t, postgres.Dialect, func(t *testing.T, db *dbtest.DB) {
		db.Do(t, `CREATE SCHEMA apart`, nil)
		apart := dbtest.Open(t, db.URL, dialect.Options{Schema: "apart"})
		if err := sqlschema.Migrate(t.Context(), apart.DB); err != nil {
			t.Fatal(err)
		}
		name, asUser := restricted(t, db)
		db.Do(t, `GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA apart TO `+name, nil)
		rows, code := examined(t, asUser, "--schema", "apart")
		missing := ofCheck(rows, "right")
		if code != 1 || len(missing) != 1 || !strings.HasSuffix(missing[0].Detail, "lacks USAGE on the schema apart") {
			t.Fatalf("exit code %d, %+v", code, rows)
		}
		db.Do(t, strings.TrimSuffix(missing[0].Advice, ";"), nil)
		if rows, code := examined(t, asUser, "--schema", "apart"); code != 0 || ofCheck(rows, "rights")[0].Status != "ok" {
			t.Errorf("exit code %d, %+v", code, rows)
		}
	})
}
