package dbtest

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/engines"
	"github.com/dbcron/dbcron/dialect/mysql"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/sqlschema"
)

// A database with dbcron's tables is a copy of one that was migrated before or, on engines that
// cannot copy, is made by the migrations' script; sqlschema's tests show that the result is the same.

// script returns the SQL that creates an engine's tables.
func script(ctx context.Context, d *sqlrun.Dialect) (string, error) {
	var text bytes.Buffer
	err := sqlschema.SQL(ctx, &text, d, dialect.Options{}, 0)
	return text.String(), err
}

// copyPostgres makes a database by copying a template that this server keeps for the current
// migrations. If several programs make the template at once, the first one wins.
func copyPostgres(ctx context.Context, admin *dialect.DB, adminURL, name string) error {
	template, err := templatePostgres(ctx, admin, adminURL)
	if err != nil {
		return err
	}
	// Copied file by file, as version 14 always does.
	query := "CREATE DATABASE " + name + " TEMPLATE " + template
	if _, err = admin.Pool().ExecContext(ctx, query+" STRATEGY FILE_COPY"); err != nil {
		_, err = admin.Pool().ExecContext(ctx, query)
	}
	return err
}

// templatePostgres returns the template's name.
func templatePostgres(ctx context.Context, admin *dialect.DB, adminURL string) (name string, err error) {
	text, err := script(ctx, admin.Dialect)
	if err != nil {
		return "", err
	}
	name = templateName(text + linesPostgres) // which described it
	there, err := isThere(ctx, admin, name)
	if err == nil && !there {
		err = makeTemplate(ctx, admin, adminURL, name)
	}
	return name, err
}

func templateName(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "dbcron_template_" + hex.EncodeToString(sum[:8])
}

// makeTemplate builds the template under another name, so that nobody copies half of it.
func makeTemplate(ctx context.Context, admin *dialect.DB, adminURL, template string) (err error) {
	name := freshName()
	if err := createPostgres(ctx, admin, adminURL, name); err != nil {
		return err
	}
	db, err := engines.Open(ctx, withPath(adminURL, name), dialect.Options{})
	if err != nil {
		return err
	}
	var described string
	if err = sqlschema.Migrate(ctx, db); err == nil {
		described, err = describePool(ctx, db)
	}
	if err := errors.Join(err, db.Close()); err != nil {
		return err
	}
	for _, query := range []string{
		"COMMENT ON DATABASE " + name + " IS '" + described + "'",
		"ALTER DATABASE " + name + " ALLOW_CONNECTIONS false", // a database in use cannot be copied
		"ALTER DATABASE " + name + " RENAME TO " + template,
	} {
		if _, err = admin.Pool().ExecContext(ctx, query); err != nil {
			break
		}
	}
	if err == nil {
		return nil
	}
	_, dropped := admin.Pool().ExecContext(ctx, "DROP DATABASE "+name+" WITH (FORCE)")
	if there, looked := isThere(ctx, admin, template); looked == nil && there {
		return dropped // another program was faster
	}
	return errors.Join(err, dropped)
}

func describePool(ctx context.Context, db *dialect.DB) (string, error) {
	c, err := db.Pool().Conn(ctx)
	if err != nil {
		return "", err
	}
	defer c.Close()
	return describe(ctx, c, linesPostgres)
}

func isThere(ctx context.Context, admin *dialect.DB, name string) (there bool, err error) {
	err = admin.Pool().QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM pg_database WHERE datname = $1)", name).Scan(&there)
	return there, err
}

// copyMySQL runs the migrations' script: there is nothing to copy a database with.
func copyMySQL(ctx context.Context, admin *dialect.DB, adminURL, name string) error {
	text, err := script(ctx, mysql.Dialect)
	if err != nil {
		return err
	}
	if err := createMySQL(ctx, admin, adminURL, name); err != nil {
		return err
	}
	return run(ctx, withPath(adminURL, name), statements(text))
}

// templateMySQL returns the name of a database with the tables of the current migrations, which the server keeps to compare others
// with. It is complete when it has the table that is made last. Concurrent programs wait for each other.
func templateMySQL(ctx context.Context, adminURL string) (template string, err error) {
	text, err := script(ctx, mysql.Dialect)
	if err != nil {
		return "", err
	}
	template = templateName(text)
	admin, err := engines.Connect(ctx, adminURL, dialect.Options{MaxConns: 1})
	if err != nil {
		return "", err
	}
	defer admin.Close() // which also ends the lock
	db := admin.Pool()
	var whole int
	err = errors.Join(
		db.QueryRowContext(ctx, "SELECT GET_LOCK(?, 600)", template).Scan(&whole),
		db.QueryRowContext(ctx, "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = ? AND table_name = 'whole'",
			template).Scan(&whole))
	if err != nil || whole > 0 {
		return template, err
	}
	if _, err = db.ExecContext(ctx, "DROP DATABASE IF EXISTS "+template); err == nil {
		err = createMySQL(ctx, admin, adminURL, template)
	}
	if err == nil {
		err = run(ctx, withPath(adminURL, template), append(statements(text), "CREATE TABLE whole (n INTEGER)"))
	}
	return template, err
}

// run runs statements in order on one connection.
func run(ctx context.Context, databaseURL string, all []string) error {
	db, err := engines.Connect(ctx, databaseURL, dialect.Options{MaxConns: 1})
	if err != nil {
		return err
	}
	defer db.Close()
	for _, query := range all {
		if _, err := db.Pool().ExecContext(ctx, query); err != nil {
			return fmt.Errorf("%s: %w", query, err)
		}
	}
	return nil
}

// statements splits a script as the mysql program would.
func statements(text string) (all []string) {
	end, part := ";", ""
	for line := range strings.Lines(text) {
		if comment := strings.HasPrefix(line, "--"); comment && part == "" || strings.TrimSpace(line) == "" {
			continue
		}
		if delimiter, is := strings.CutPrefix(line, "DELIMITER "); is {
			end = strings.TrimSpace(delimiter)
			continue
		}
		part += line
		if query, over := strings.CutSuffix(strings.TrimSpace(part), end); over {
			all, part = append(all, query), ""
		}
	}
	return all
}

// migratedFile returns the contents of an SQLite database with dbcron's tables.
var migratedFile = sync.OnceValues(func() ([]byte, error) {
	folder, err := os.MkdirTemp("", "dbcron-template")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder)
	ctx, name := context.Background(), filepath.Join(folder, "template.db")
	db, err := engines.Open(ctx, "sqlite:"+name, dialect.Options{})
	if err != nil {
		return nil, err
	}
	if err := errors.Join(sqlschema.Migrate(ctx, db), db.Close()); err != nil {
		return nil, err
	}
	if info, err := os.Stat(name + "-wal"); err == nil && info.Size() > 0 {
		return nil, errors.New("the last to close it has left a log")
	}
	return os.ReadFile(name)
})

// copySQLite makes a file with dbcron's tables.
func copySQLite(t *testing.T, name string) {
	t.Helper()
	contents, err := migratedFile()
	if err == nil {
		err = os.WriteFile(name, contents, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func freshName() string { return "dbcron_" + strings.ToLower(rand.Text()[:12]) }
