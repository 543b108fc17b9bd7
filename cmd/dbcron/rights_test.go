package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/dialect/engines"
	"github.com/dbcron/dbcron/dialect/mysql"
	"github.com/dbcron/dbcron/dialect/postgres"
	"github.com/dbcron/dbcron/internal/ops/audit"
	"github.com/dbcron/dbcron/internal/ops/health"
	"github.com/dbcron/dbcron/internal/sqlrun"
)

// grantsBlock is a list of docs/grants.md, between comments that a reader does not see.
func grantsBlock(role health.Role, d *sqlrun.Dialect) *regexp.Regexp {
	return regexp.MustCompile(fmt.Sprintf("(?s)(<!-- rights: %s, %s -->\n```sql\n)(.*?)(```\n<!-- end -->)", role.User, d.Name))
}

// TestGoldenGrants compares the rights in the docs with those that the statements need.
func TestGoldenGrants(t *testing.T) {
	file := filepath.Join(root(t), "docs", "grants.md")
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, role := range []health.Role{health.DaemonRole, health.LockRole} {
		for _, d := range []*sqlrun.Dialect{postgres.Dialect, mysql.Dialect} {
			prefix, user := "app.dbcron_", role.User+"@'%'"
			if d.Schema {
				prefix, user = "dbcron.dbcron_", role.User
			}
			want := strings.Join(health.Grants(role.Rights(d), prefix, user), "\n") + "\n"
			block := grantsBlock(role, d)
			found := block.FindSubmatch(page)
			switch {
			case found == nil:
				t.Errorf("docs/grants.md has no rights of %s on %s", role.User, d.Name)
			case *updateGolden:
				page = block.ReplaceAll(page, []byte("${1}"+want+"${3}"))
			case string(found[2]) != want:
				t.Errorf("docs/grants.md has not what %s needs on %s: run make golden, and read the diff. It needs\n%s", role.User, d.Name, want)
			}
		}
	}
	if *updateGolden {
		if err := os.WriteFile(file, page, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// documentedGrants are the statements of a list in the docs, for a database of the test
// and a user of its own.
func documentedGrants(t *testing.T, db *dbtest.DB, role health.Role, user string) []string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(root(t), "docs", "grants.md"))
	if err != nil {
		t.Fatal(err)
	}
	found := grantsBlock(role, db.Dialect).FindSubmatch(page)
	if found == nil {
		t.Fatalf("no rights of %s", role.User)
	}
	named := strings.NewReplacer(" TO "+role.User, " TO "+user, " app.", " ", " dbcron.", " ")
	return strings.Split(strings.TrimRight(named.Replace(string(found[2])), ";\n"), ";\n")
}

// restricted makes a user without any right, and returns its name and the URL to connect
// to the database of the test as it.
func restricted(t *testing.T, db *dbtest.DB) (name, asUser string) {
	t.Helper()
	u, err := url.Parse(db.URL)
	if err != nil {
		t.Fatal(err)
	}
	name = "r_" + strings.TrimPrefix(u.Path, "/dbcron_") // at most 32 bytes for MySQL
	u.User = url.UserPassword(name, "x")
	create, remove := `CREATE ROLE `+name+` LOGIN PASSWORD 'x'`, []string{`DROP OWNED BY ` + name, `DROP ROLE ` + name}
	if !db.Dialect.Schema {
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
	return name, u.String()
}

// mayNot lists those of the role's statements for which the user of db lacks a right, up to max of
// them. The server checks them before it runs a statement, and none is run.
func mayNot(t *testing.T, db *dbtest.DB, statements []*sqlrun.Stmt, max int) (denied []string) {
	t.Helper()
	c, err := db.Pool().Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, s := range statements {
		if len(denied) == max {
			break
		}
		err := prepare(t.Context(), c, db.Dialect, s.Text(db.Dialect))
		if db.Dialect.Denied(err) {
			denied = append(denied, fmt.Sprintf("%s: %v", s.Name, err))
		} else if err != nil {
			t.Errorf("%s: %v", s.Name, err)
		}
	}
	return denied
}

// prepare goes as far as the server checks rights, and not further.
func prepare(ctx context.Context, c *sql.Conn, d *sqlrun.Dialect, text string) error {
	if !d.Schema {
		stmt, err := c.PrepareContext(ctx, text)
		if err != nil {
			return err
		}
		defer stmt.Close()
		return nil
	}
	if _, err := c.ExecContext(ctx, "PREPARE one AS "+text); err != nil {
		return err
	}
	_, err := c.ExecContext(ctx, "EXPLAIN EXECUTE one"+nulls(text)) // PREPARE alone does not check
	_, deallocated := c.ExecContext(ctx, "DEALLOCATE one")
	return errors.Join(err, deallocated)
}

// nulls are as many arguments as a text for PostgreSQL has.
func nulls(text string) string {
	n := 0
	for _, m := range regexp.MustCompile(`\$(\d+)`).FindAllStringSubmatch(text, -1) {
		i, _ := strconv.Atoi(m[1])
		n = max(n, i)
	}
	if n == 0 {
		return ""
	}
	return "(" + strings.TrimSuffix(strings.Repeat("NULL, ", n), ", ") + ")"
}

// TestDocumentedGrantsSuffice asks the server for each statement of a role, under exactly
// the rights of the docs; and for each of the rights, whether a statement needs it.
func TestDocumentedGrantsSuffice(t *testing.T) {
	t.Parallel()
	dbtest.Users.Each(t, func(t *testing.T, db *dbtest.DB) {
		for _, role := range []health.Role{health.DaemonRole, health.LockRole} {
			t.Run(role.User, func(t *testing.T) {
				name, asUser := restricted(t, db)
				var own []*sqlrun.Stmt
				for _, s := range sqlrun.Statements() {
					if role.Sends(s.Name) {
						own = append(own, s)
					}
				}
				for _, grant := range documentedGrants(t, db, role, name) {
					db.Do(t, grant, nil)
				}
				run := dbtest.Open(t, asUser, dialect.Options{})
				if denied := mayNot(t, run, own, len(own)); len(denied) > 0 {
					t.Errorf("denied:\n%s", strings.Join(denied, "\n"))
				}
				neededEach(t, db, run, name, role.Rights(db.Dialect), own)
			})
		}
	}, (*testing.T).Parallel)
}

// neededEach takes the rights away one by one.
func neededEach(t *testing.T, db, run *dbtest.DB, name string, rights sqlrun.Rights, own []*sqlrun.Stmt) {
	t.Helper()
	user := name
	if !db.Dialect.Schema {
		user += "@'%'"
	}
	for table, verbs := range rights {
		for _, verb := range verbs {
			users := slices.DeleteFunc(slices.Clone(own), func(s *sqlrun.Stmt) bool {
				one := sqlrun.Rights{}
				one.Add(s, db.Dialect)
				return !slices.Contains(one[table], verb)
			})
			db.Do(t, "REVOKE "+verb+" ON {prefix}"+table+" FROM "+user, nil)
			if len(mayNot(t, run, users, 1)) == 0 {
				t.Errorf("%s on %s: nothing needs it", verb, table)
			}
			db.Do(t, "GRANT "+verb+" ON {prefix}"+table+" TO "+user, nil)
		}
	}
}

// TestRunsUnderDocumentedGrants runs a daemon and commands of a role with the rights of the
// docs and no others, on tables of another user.
func TestRunsUnderDocumentedGrants(t *testing.T) {
	bin := programAlone(t)
	fails := http.NewServeMux()
	fails.HandleFunc("/", func(http.ResponseWriter, *http.Request) {})
	fails.HandleFunc("/fails", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) })
	endpoint := httptest.NewServer(fails)
	t.Cleanup(endpoint.Close)
	scripts := map[string]string{health.DaemonRole.User: "daemon.txtar", health.LockRole.User: "locks.txtar"}
	eachRole(t, func(t *testing.T, _ *dbtest.DB, role health.Role, _, asUser string) {
		runScript(t, filepath.Join(root(t), "testdata", "cli", "grants", scripts[role.User]), bin,
			map[string]string{"DBCRON_DATABASE_URL": asUser, "ENDPOINT": endpoint.URL})
	})
}

// The rights are read from the statements' texts by a pattern, which sees all that write.
func TestRightsOfAllWrites(t *testing.T) {
	writes := 0
	for _, d := range engines.All {
		for _, stmt := range sqlrun.Statements() {
			verb, _, _ := strings.Cut(strings.TrimSpace(stmt.Text(d)), " ")
			if !slices.Contains([]string{"INSERT", "UPDATE", "DELETE"}, verb) {
				continue
			}
			writes++
			rights := sqlrun.Rights{}
			rights.Add(stmt, d)
			if all := slices.Concat(slices.Collect(maps.Values(rights))...); !slices.Contains(all, verb) {
				t.Errorf("%s: %s on %s seems to need only %v", stmt.Name, verb, d.Name, rights)
			}
		}
	}
	if writes < 300 {
		t.Errorf("only %d statements write", writes)
	}
}

// Who may only insert into the audit has an entry for each part of an operation, and with the documented rights one for
// all.
func TestAuditOfPartsWithoutRights(t *testing.T) {
	t.Parallel()
	dbtest.Users.Each(t, func(t *testing.T, db *dbtest.DB) {
		name, asUser := restricted(t, db)
		if !db.Dialect.Schema {
			name += "@'%'"
		}
		db.Do(t, `GRANT INSERT ON {prefix}audit TO `+name, nil)
		near := dbtest.Open(t, asUser, dialect.Options{})
		write := func(object string) {
			t.Helper()
			id := int64(0)
			for range 3 {
				var err error
				if id, err = audit.Write(t.Context(), near.DB, audit.Entry{ID: id, Object: object, Count: 1, More: true}); err != nil {
					t.Fatal(err)
				}
			}
		}
		write("only insert")
		db.Do(t, `GRANT SELECT ON {prefix}audit TO `+name, nil)
		write("no update")
		db.Do(t, `GRANT UPDATE ON {prefix}audit TO `+name, nil)
		write("all")
		got := db.List(t, `SELECT CONCAT(object, ' ', affected) FROM {prefix}audit ORDER BY id`, nil)
		want := []string{"only insert 1", "only insert 1", "only insert 1", "no update 1", "no update 1", "no update 1", "all 3"}
		if !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}, (*testing.T).Parallel)
}
