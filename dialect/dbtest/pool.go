package dbtest

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/engines"
)

// A server keeps databases with dbcron's tables for the tests, since to empty one takes a fraction
// of the time that it takes to make one. A test has one for itself: its connection holds a lock of
// the database's name, which ends with the program, however that ends. What it then finds in the
// database, of whichever test and program, is removed; if that were more than rows, or if somebody
// else is connected, it takes another one.

// A pooling is how an engine's databases are reused. In queries, %[1]s is the database's name.
type pooling struct {
	lock, unlock string // of the name, for the connection's session; lock returns whether that went well
	there        string // returns how many databases have the name

	// connected returns how many clients are connected to it.
	connected func(ctx context.Context, c *sql.Conn, name string) (int, error)

	template func(ctx context.Context, admin *dialect.DB, adminURL string) (template, error)

	// empty leaves the rows that a fresh database has, if the database is as described.
	empty func(ctx context.Context, c *sql.Conn, adminURL, name, described string) (same bool, err error)
}

// A template is a database that others are copies of.
type template struct {
	name      string
	described string // its tables, and everything else that is not a row
}

// template asks each server once.
func (e *engine) template(ctx context.Context, admin *dialect.DB, adminURL string) (template, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.like.name != "" {
		return e.like, nil
	}
	var err error
	e.like, err = e.pool.template(ctx, admin, adminURL)
	return e.like, err
}

// clocks are the tables of tests that move the clock.
var clocks = []string{"dbcron_test_clock", "dbcron_test_shift"}

// lastFence is the only row in tables of a fresh database, but for those of the migrations, which are described.
const lastFence = "INSERT INTO %[1]s.dbcron_lock_fence (name, slot) VALUES ('', 0)"

// pooled returns the URL of a database with dbcron's tables that is the test's own until its end.
func (e *engine) pooled(t *testing.T, adminURL string) string {
	t.Helper()
	admin, err := engines.Connect(t.Context(), adminURL, dialect.Options{MaxConns: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = admin.Close() })
	c, err := admin.Pool().Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	name, err := e.take(t.Context(), admin, c, adminURL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		why := e.spoilt(t, c, name)
		if why == "" {
			return
		}
		t.Logf("%s is dropped: %s", name, why)
		if err := e.drop(context.Background(), admin, name); err != nil {
			t.Error(err)
		}
	})
	return withPath(adminURL, name)
}

// take returns a name that c has locked, of a database like a fresh one.
func (e *engine) take(ctx context.Context, admin *dialect.DB, c *sql.Conn, adminURL string) (string, error) {
	like, err := e.template(ctx, admin, adminURL)
	if err != nil {
		return "", err
	}
	for n := 0; ; n++ {
		name := fmt.Sprintf("%s_%d", strings.Replace(like.name, "template", "pool", 1), n)
		var locked bool
		if err := ask(ctx, c, e.pool.lock, name, &locked); err != nil {
			return "", err
		}
		if !locked {
			continue
		}
		usable, err := e.renew(ctx, admin, c, adminURL, name, like.described)
		if usable || err != nil {
			return name, err
		}
		if err := ask(ctx, c, e.pool.unlock, name, &locked); err != nil {
			return "", err
		}
	}
}

// renew makes a locked database like a fresh one, unless somebody is connected to it.
func (e *engine) renew(ctx context.Context, admin *dialect.DB, c *sql.Conn, adminURL, name, described string) (usable bool, err error) {
	var there int
	connected, err := e.pool.connected(ctx, c, name)
	if err := errors.Join(err, ask(ctx, c, e.pool.there, name, &there)); err != nil {
		return false, err
	}
	if connected > 0 {
		return false, nil
	}
	if there > 0 {
		same, err := e.pool.empty(ctx, c, adminURL, name, described)
		if same || err != nil {
			return same, err
		}
		if err := e.drop(ctx, admin, name); err != nil {
			return false, err
		}
	}
	return true, e.make(ctx, admin, adminURL, name, e.tables)
}

// spoilt says why a database must not be used again, once the test has closed its connections. A
// server may notice late that a connection was closed.
func (e *engine) spoilt(t *testing.T, c *sql.Conn, name string) string {
	if t.Failed() {
		return "the test failed"
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	tick, over := time.NewTicker(5*time.Millisecond), time.After(10*time.Second)
	defer tick.Stop()
	for {
		connected, err := e.pool.connected(ctx, c, name)
		if err != nil {
			return err.Error()
		}
		if connected == 0 {
			return ""
		}
		select {
		case <-tick.C:
		case <-over:
			return fmt.Sprintf("the test has left %d connections", connected)
		}
	}
}

func ask(ctx context.Context, c *sql.Conn, query, name string, dest any) error {
	query = fmt.Sprintf(query, name)
	if err := c.QueryRowContext(ctx, query).Scan(dest); err != nil {
		return fmt.Errorf("%s: %w", query, err)
	}
	return nil
}

// describe returns a sum of the lines that a query returns, in any order.
func describe(ctx context.Context, c *sql.Conn, query string) (string, error) {
	rows, err := c.QueryContext(ctx, query)
	if err != nil {
		return "", fmt.Errorf("describe: %w", err)
	}
	defer rows.Close()
	var lines []string
	for rows.Next() {
		var line string
		if err := rows.Scan(&line); err != nil {
			return "", err
		}
		lines = append(lines, line)
	}
	slices.Sort(lines)
	sum := sha256.Sum256([]byte(strings.Join(lines, "\n")))
	return hex.EncodeToString(sum[:]), rows.Err()
}
