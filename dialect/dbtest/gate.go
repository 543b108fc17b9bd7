package dbtest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/engines"
	"github.com/dbcron/dbcron/sqlschema"
)

// A gate, such as Vitess's, leads to a server and makes no databases. DBCRON_TEST_MYSQL is its URL then, DBCRON_TEST_MYSQL_DIRECT that
// of the server, and the server has the databases gate_1, gate_2 and so on, which both know. A test takes one of them, and empties it
// at the server: the gate would take a multiple of the time. tools/vitess/with starts all that.

const gatePrefix = "gate_"

// directURL returns the URL of the server behind a gate, or "".
func directURL() string { return os.Getenv("DBCRON_TEST_MYSQL_DIRECT") }

// Gated reports whether MySQL is tested through a gate.
func Gated() bool { return directURL() != "" }

// SkipGated skips a test in that case.
func SkipGated(t *testing.T, why string) {
	t.Helper()
	if Gated() {
		t.Skip("through a gate: " + why)
	}
}

// gated returns the URL, at the gate, of a database that is the test's own until it ends.
func (e *engine) gated(t *testing.T, gateURL string, state state) string {
	t.Helper()
	admin, err := engines.Connect(t.Context(), directURL(), dialect.Options{MaxConns: 1})
	Must(t, err)
	t.Cleanup(func() { _ = admin.Close() })
	c, err := admin.Pool().Conn(t.Context())
	Must(t, err)
	t.Cleanup(func() { _ = c.Close() }) // which ends the lock
	name, err := e.takeGated(t.Context(), c)
	Must(t, err)
	Must(t, e.renewGated(t.Context(), c, name, state))
	return withPath(gateURL, name)
}

// behindGate returns the database without the gate in front of it, which makes no triggers.
func (db *DB) behindGate(t *testing.T) *DB {
	t.Helper()
	if db.Engine != "mysql" || !Gated() {
		return db
	}
	u, err := url.Parse(db.URL)
	Must(t, err)
	opt := dialect.Options{MaxConns: 1, Prefix: db.options.Prefix}
	own, err := engines.Open(t.Context(), withPath(directURL(), strings.Trim(u.Path, "/")), opt)
	Must(t, err)
	t.Cleanup(func() { _ = own.Close() })
	return &DB{DB: own, Engine: db.Engine, URL: db.URL, options: db.options}
}

// takeGated locks the name of a database that nobody has.
func (e *engine) takeGated(ctx context.Context, c *sql.Conn) (string, error) {
	names, err := firstColumn(ctx, c, "SELECT schema_name FROM information_schema.schemata WHERE schema_name LIKE '"+gatePrefix+"%'")
	if err == nil && len(names) == 0 {
		err = errors.New("the server behind the gate has no databases for the tests")
	}
	if err != nil {
		return "", err
	}
	for tick := time.NewTicker(20 * time.Millisecond); ; {
		for _, name := range names {
			var locked bool
			if err := ask(ctx, c, e.pool.lock, name, &locked); err != nil || locked {
				return name, err
			}
		}
		select {
		case <-ctx.Done():
			return "", context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// renewGated makes a database like a fresh one.
func (e *engine) renewGated(ctx context.Context, c *sql.Conn, name string, state state) error {
	e.mu.Lock()
	described := e.like.described
	e.mu.Unlock()
	if state == pooled && described != "" {
		if same, err := e.pool.empty(ctx, c, "", name, described); same || err != nil && !e.dialect.Missing(err) {
			return err
		}
	}
	drops, err := firstColumn(ctx, c, fmt.Sprintf(`SELECT CONCAT('DROP ', REPLACE(table_type, 'BASE ', ''), ' %[1]s.', table_name)
		FROM information_schema.tables WHERE table_schema = '%[1]s'`, name))
	for _, drop := range drops {
		if err == nil {
			_, err = c.ExecContext(ctx, drop)
		}
	}
	if err != nil || state == empty {
		return err
	}
	db, err := engines.Open(ctx, withPath(directURL(), name), dialect.Options{MaxConns: 2, Without: []dialect.Feature{dialect.Functions}})
	if err != nil {
		return err
	}
	if err := errors.Join(sqlschema.Migrate(ctx, db), db.Close()); err != nil {
		return err
	}
	described, err = describe(ctx, c, fmt.Sprintf(linesMySQL, name))
	e.mu.Lock()
	defer e.mu.Unlock()
	e.like.described = described
	return err
}

func firstColumn(ctx context.Context, c *sql.Conn, query string) (all []string, err error) {
	rows, err := c.QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var one string
		if err := rows.Scan(&one); err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, rows.Err()
}
