package scheduler

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/dbtest"
)

// What a statement of a schedule can do to its session, and what shows it.
var sessions = map[string]struct{ changes, shows []string }{
	"postgres": {
		[]string{
			"SET search_path TO pg_catalog", "SET statement_timeout = 77000", "SET default_transaction_read_only = on", "SET ROLE pg_monitor",
			"CREATE TEMPORARY TABLE guest (id INT)", "CREATE TEMPORARY TABLE dbcron_run (id INT)", "SELECT pg_advisory_lock(7700)",
			"PREPARE guest AS SELECT 1", "LISTEN guest", "SET TIME ZONE 'Asia/Tokyo'",
			"SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL SERIALIZABLE",
		},
		[]string{
			"SELECT current_setting('search_path') || current_setting('statement_timeout') || current_user",
			"SELECT current_setting('default_transaction_read_only')",
			"SELECT current_setting('TimeZone') || current_setting('default_transaction_isolation')",
			"SELECT COUNT(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()",
			"SELECT COUNT(*) FROM pg_class WHERE relnamespace = pg_my_temp_schema()",
			"SELECT COUNT(*) FROM pg_prepared_statements WHERE name = 'guest'",
			"SELECT COUNT(*) FROM pg_listening_channels()",
		},
	},
	"mysql": {
		[]string{
			"SET SESSION sql_select_limit = 1", "SET SESSION sql_mode = ''", "SET SESSION time_zone = '+09:00'", "SET @guest = 77", "SET NAMES latin1",
			"CREATE TEMPORARY TABLE guest (id INT)", "DO GET_LOCK('guest', 0)", "SET SESSION TRANSACTION READ ONLY", "SET SESSION sql_safe_updates = 1",
			"SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE",
		},
		[]string{
			"SELECT CONCAT(@@sql_select_limit, @@sql_mode, @@time_zone, COALESCE(@guest, ''), @@character_set_client, @@sql_safe_updates)",
			"SELECT COALESCE(IS_USED_LOCK('guest'), 0) = CONNECTION_ID()",
		},
	},
	"sqlite": {
		[]string{"PRAGMA query_only = 1", "CREATE TEMP TABLE guest (id INTEGER)", "CREATE TEMP TABLE dbcron_run (id INTEGER)", "PRAGMA case_sensitive_like = 1"},
		[]string{"SELECT query_only FROM pragma_query_only", "SELECT COUNT(*) FROM sqlite_temp_schema", "SELECT 'a' LIKE 'A'"},
	},
}

// A statement of a schedule leaves nothing behind in its session: neither for what the daemon sends next, nor for the statement of another
// schedule. The class: text or code of users on a connection that goes on being used. Functions, handlers, Guard, CompleteTx and EnqueueTx run on
// the program's own connections, of its own pool, and dbcron gets none of them back changed; a worker returns the ones it has borrowed.
func TestAStatementLeavesItsSession(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		look := func(on *sql.Conn) string {
			var all []string
			for _, query := range sessions[db.Dialect.Name].shows {
				var s sql.NullString
				must(t, on.QueryRowContext(t.Context(), query).Scan(&s))
				all = append(all, s.String)
			}
			return strings.Join(all, "|")
		}
		// all looks at each connection of a pool.
		all := func(pool *sql.DB, n int) (seen []string) {
			for range n {
				c, err := pool.Conn(t.Context())
				must(t, err)
				defer c.Close()
				seen = append(seen, look(c))
			}
			return seen
		}
		const conns = 3
		one := dbtest.Open(t, db.URL, dialect.Options{MaxConns: conns})
		fresh := all(one.Pool(), 1)[0]
		for i, text := range sessions[db.Dialect.Name].changes {
			s := daemon(t, one, Options{})
			name := fmt.Sprintf("change-%d", i)
			addJob(t, one, Schedule{Name: name, Spec: "@manual", Kind: "sql", Command: text})
			addJob(t, one, Schedule{Name: name + "-after", Spec: "@manual", Kind: "sql", Command: "SELECT 1"})
			for _, each := range []string{name, name + "-after"} {
				if _, err := Start(t.Context(), one.DB, each); err != nil {
					t.Fatal(err)
				}
				work(t, s)
			}
			for _, r := range allRuns(t, one, "") {
				// SQLite knows no schema that excludes temporary tables: there, one may break its own run.
				own := db.Dialect.Name == "sqlite" && strings.Contains(text, "dbcron_run")
				if strings.HasPrefix(r.Schedule, name) && r.State != "ok" && (!own || r.Schedule != name) {
					t.Errorf("%s: %s is %s: %s", text, r.Schedule, r.State, r.Error)
				}
			}
			for _, got := range all(one.Pool(), conns) {
				if got != fresh {
					t.Errorf("after %s a session has %s, want %s", text, got, fresh)
				}
			}
		}
	})
}
