// Package sqlite is the engine for SQLite, with modernc.org/sqlite, which needs no C compiler, as its
// only driver.
package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/dbcron/dbcron/internal/engine"
	"github.com/dbcron/dbcron/internal/sqlrun"
)

// Dialect is the engine of SQLite from 3.42 on: one file, many processes of one host, one writer at a
// time.
var Dialect = &sqlrun.Dialect{
	Name:    "sqlite",
	Goose:   "sqlite3",
	Title:   "SQLite",
	Schemes: []string{"sqlite"},
	Example: "sqlite:file.db",
	Probe:   "SELECT 1 FROM (SELECT sqlite_version()) AS v",

	Placeholder: func(int) string { return "?" },
	Now:         "strftime('%Y-%m-%d %H:%M:%f', 'now')",
	Add: func(t, us string) string {
		return "strftime('%Y-%m-%d %H:%M:%f', " + t + ", printf('%+.3f seconds', (" + us + ") / 1000000.0))"
	},
	FromMicros: func(us string) string {
		return "strftime('%Y-%m-%d %H:%M:%f', (" + us + ") / 1000000.0, 'unixepoch')"
	},
	// Rounded to the milliseconds that the column has.
	ToMicros: func(t string) string { return "(CAST(ROUND(unixepoch(" + t + ", 'subsec') * 1000) AS INTEGER) * 1000)" },
	BigInt:   "INTEGER",

	JSONBytes: func(column string) string { return "OCTET_LENGTH(" + column + ")" },

	// Transactions begin as writers (_txlock=immediate): nobody else's row can be locked.
	SkipLocked:      "",
	Locked:          "",
	ShareLocked:     "",
	AddDuplicate:    engine.AddOnConflict,
	IgnoreDuplicate: func(string) string { return "ON CONFLICT DO NOTHING" },
	Records: func(rows string, columns []sqlrun.Column) string {
		return "(SELECT " + engine.Listed(columns,
			func(c sqlrun.Column) string { return "json_extract(value, '$." + c.Name + "') AS " + c.Name }) +
			" FROM json_each(" + rows + ")) AS record"
	},
	JoinByKey: func(table string) string { return "CROSS JOIN " + table }, // whose order SQLite keeps
	In: func(column sqlrun.Column, list string) string {
		return column.Name + " IN (SELECT value FROM json_each(" + list + ".json))"
	},
	Only:       func(string) string { return "" },
	UpdateFrom: engine.UpdateFrom,
	DeleteFrom: func(table string, key []string, pick string) string {
		return "DELETE FROM " + table + " WHERE (" + strings.Join(key, ", ") + ") IN (" + pick + ")"
	},

	Next:      func(column string) string { return column + " = " + column + " + 1" },
	Returning: func(column string) string { return "RETURNING " + column },

	Isolation: sql.LevelDefault,

	Duplicate: coded(sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY, sqlite3.SQLITE_CONSTRAINT_UNIQUE),
	Missing: func(err error) bool {
		return coded(sqlite3.SQLITE_ERROR)(err) && strings.Contains(err.Error(), "no such table")
	},
	Denied:      func(error) bool { return false }, // there are only the file's rights
	Retryable:   isBusy,
	Unavailable: func(error) bool { return false },
	Full:        func(error) bool { return false },
	NoSpace: func(err error) bool {
		var e *sqlite.Error
		return errors.As(err, &e) && e.Code()&0xff == sqlite3.SQLITE_FULL
	},
	ReadOnly: func(error) bool { return false }, // a read-only file stays so
	Refused: func(err error) bool {
		var e *sqlite.Error
		return errors.As(err, &e) && slices.Contains([]int{
			sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_MISMATCH,
			sqlite3.SQLITE_RANGE, sqlite3.SQLITE_AUTH,
		}, e.Code()&0xff)
	},

	Temporary: func(err error) bool {
		var e *sqlite.Error
		return isBusy(err) || errors.As(err, &e) && slices.Contains([]int{
			sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_INTERRUPT, sqlite3.SQLITE_CANTOPEN,
			sqlite3.SQLITE_PROTOCOL,
		}, e.Code()&0xff)
	},

	SyntaxError: coded(1),

	Restore: []string{"PRAGMA query_only = OFF"},

	Connector: connector,
	Check:     check,

	WhyReadOnly: func(ctx context.Context, on sqlrun.Execer) (string, error) {
		return "", engine.QueryRow(ctx, on, "SELECT 1", nil, new(int))
	},

	Exclusive: exclusive,
	File:      file,
	DDLInTx:   true,
}

var isBusy = coded(sqlite3.SQLITE_BUSY, sqlite3.SQLITE_BUSY_RECOVERY, sqlite3.SQLITE_BUSY_SNAPSHOT,
	sqlite3.SQLITE_BUSY_TIMEOUT, sqlite3.SQLITE_LOCKED)

func coded(codes ...int) func(error) bool {
	return func(err error) bool {
		var e *sqlite.Error
		return errors.As(err, &e) && slices.Contains(codes, e.Code())
	}
}

// dsn returns the driver's name for a file: wait for the writer instead of failing, allow readers
// beside the writer, and sync every commit. The driver ignores the context while it waits, for up to
// a second; DB then retries.
func dsn(path string) string {
	return connectionName(path) + "&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)"
}

func connectionName(path string) string {
	path = strings.NewReplacer("%", "%25", "?", "%3f", "#", "%23").Replace(path)
	return "file:" + path + "?_txlock=immediate&_pragma=busy_timeout(1000)"
}

func connector(u *url.URL, opt sqlrun.Options) (driver.Connector, error) {
	path := filePath(u)
	switch {
	case path == "":
		return nil, errors.New("the URL names no file: sqlite:dbcron.db")
	case strings.Contains(path, ":memory:"):
		return nil, errors.New("a database in memory belongs to one connection only: name a file, sqlite:dbcron.db")
	case u.RawQuery != "":
		return nil, fmt.Errorf("parameters after a file's name are not known: ?%s", u.RawQuery)
	}
	if err := usable(path, opt.Existing); err != nil {
		return nil, err
	}
	return sqlite.NewConnector(dsn(path))
}

// usable explains what the driver would only call "unable to open database file".
func usable(path string, existing bool) error {
	dir := filepath.Dir(path)
	if info, err := os.Stat(dir); err != nil {
		return fmt.Errorf("the folder of the database file: %w", err)
	} else if !info.IsDir() {
		return fmt.Errorf("%s is not a folder", dir)
	}
	info, err := os.Stat(path)
	if err == nil && info.IsDir() {
		return fmt.Errorf("%s is a folder, not a database file", path)
	}
	if errors.Is(err, fs.ErrNotExist) && existing {
		return fmt.Errorf("there is no file %s: dbcron serve or dbcron migrate up makes it; --url names another database", path)
	}
	return networkFileSystem(dir)
}

func filePath(u *url.URL) string {
	if u.Opaque != "" {
		path, err := url.PathUnescape(u.Opaque)
		if err != nil {
			return u.Opaque
		}
		return path
	}
	return u.Host + u.Path // sqlite:///abs and sqlite://rel, as in other tools
}

func check(ctx context.Context, db *sqlrun.DB) (found []sqlrun.Finding, err error) {
	c, err := db.Pool().Conn(ctx)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	var version, journal string
	var busy int
	err = errors.Join(
		c.QueryRowContext(ctx, "SELECT sqlite_version()").Scan(&version),
		c.QueryRowContext(ctx, "PRAGMA journal_mode").Scan(&journal),
		c.QueryRowContext(ctx, "PRAGMA busy_timeout").Scan(&busy))
	if err != nil {
		return nil, err
	}
	major, minor := engine.Version(version)
	writable := sqlrun.Finding{
		Subject: "writable", OK: true, Detail: "the file takes writes",
		Advice: "check the rights on the file and its folder",
	}
	if err := tryWrite(ctx, c); err != nil && !isBusy(err) { // busy: somebody else writes, so writing works
		writable.OK, writable.Detail = false, err.Error()
	}
	return []sqlrun.Finding{
		{
			Subject: "version", OK: major > 3 || major == 3 && minor >= 42, Detail: "SQLite " + version,
			Advice: "use a modernc.org/sqlite with SQLite 3.42 or later",
		},
		writable,
		{
			Subject: "journal", OK: journal == "wal", Detail: "journal_mode = " + journal,
			Advice: "add _pragma=journal_mode(WAL) to this pool's DSN: readers must not block the writer",
		},
		{
			Subject: "busy timeout", OK: busy > 0, Detail: fmt.Sprintf("busy_timeout = %d ms", busy),
			Advice: "add _pragma=busy_timeout(10000) to this pool's DSN: a second writer must wait, not fail",
		},
	}, nil
}

// tryWrite writes and rolls back. BEGIN IMMEDIATE alone also succeeds on a file that cannot be
// written. A change of the schema that is rolled back would have the connection read the whole schema again.
func tryWrite(ctx context.Context, c *sql.Conn) error {
	if _, err := c.ExecContext(ctx, "BEGIN IMMEDIATE"); err != nil {
		return err
	}
	_, err := c.ExecContext(ctx, "PRAGMA user_version = 1")
	_, rollback := c.ExecContext(context.WithoutCancel(ctx), "ROLLBACK")
	if rollback != nil {
		engine.Discard(c)
	}
	return errors.Join(err, rollback)
}

// exclusive holds BEGIN EXCLUSIVE on an empty database beside the real one, to which the holder writes
// through other connections. The file stays: removing it would let two in at once. Its journal mode
// stays, too: changing it takes the lock, and fails while somebody holds it.
func exclusive(ctx context.Context, db *sqlrun.DB, name, _ string) (func(), error) {
	path, err := file(ctx, db)
	if err != nil {
		return nil, err
	}
	connector, err := sqlite.NewConnector(connectionName(path + "-migrate"))
	if err != nil {
		return nil, err
	}
	pool := sql.OpenDB(connector)
	pool.SetMaxOpenConns(1)
	unlock, err := mutex.Take(ctx, pool, "", name)
	if err != nil {
		return nil, errors.Join(err, pool.Close())
	}
	return func() {
		unlock()
		_ = pool.Close() // unlock released the lock; nothing was written
	}, nil
}

var mutex = &sqlrun.SessionLocks{
	Refuse: func(context.Context, *sql.Conn) error { return nil },
	Try: func(ctx context.Context, c *sql.Conn, _ string) (bool, error) {
		_, err := c.ExecContext(ctx, "BEGIN EXCLUSIVE")
		if isBusy(err) {
			return false, nil
		}
		return err == nil, err
	},
	Free: func(ctx context.Context, c *sql.Conn, _ string) (bool, error) {
		_, err := c.ExecContext(ctx, "ROLLBACK")
		return err == nil, err
	},
}

func file(ctx context.Context, db *sqlrun.DB) (string, error) {
	var seq int
	var schema, path string
	err := db.Pool().QueryRowContext(ctx, "PRAGMA database_list").Scan(&seq, &schema, &path)
	if err == nil && path == "" {
		err = errors.New("the database has no file")
	}
	return path, err
}
