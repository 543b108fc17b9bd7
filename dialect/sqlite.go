package dialect

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
)

// SQLite is SQLite from 3.42 on, by modernc.org/sqlite: one file, many
// processes of one host, one writer at a time.
var SQLite = &Dialect{
	Name:    "sqlite",
	Goose:   "sqlite3",
	Schemes: []string{"sqlite"},

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
	AddDuplicate:    addOnConflict,
	IgnoreDuplicate: func(string) string { return "ON CONFLICT DO NOTHING" },
	Records: func(rows string, columns []Column) string {
		return "(SELECT " + listed(columns, func(c Column) string { return "json_extract(value, '$." + c.Name + "') AS " + c.Name }) +
			" FROM json_each(" + rows + ")) AS record"
	},
	JoinByKey: func(table string) string { return "CROSS JOIN " + table }, // which it does not turn round
	In: func(column, list string) string {
		return column + " IN (SELECT value FROM json_each(" + list + ".json))"
	},
	Only: func(string) string { return "" },
	UpdateFrom: func(table string, key []string, set, condition, pick string) string {
		return "WITH picked AS MATERIALIZED (" + pick + ")\nUPDATE " + table + " SET " + set +
			" FROM picked WHERE " + sameKey(table, key) + also(" AND ", condition)
	},

	Next:      func(column string) string { return column + " = " + column + " + 1" },
	Returning: func(column string) string { return "RETURNING " + column },

	Isolation: sql.LevelDefault,

	Duplicate: sqliteError(sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY, sqlite3.SQLITE_CONSTRAINT_UNIQUE),
	Missing: func(err error) bool {
		return sqliteError(sqlite3.SQLITE_ERROR)(err) && strings.Contains(err.Error(), "no such table")
	},
	Denied:      func(error) bool { return false }, // there are no rights but those on the file
	Retryable:   sqliteBusy,
	Unavailable: func(error) bool { return false },
	ReadOnly:    func(error) bool { return false }, // a file that is read-only stays so
	Refused: func(err error) bool {
		var e *sqlite.Error
		return errors.As(err, &e) && slices.Contains([]int{
			sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_RANGE, sqlite3.SQLITE_AUTH,
		}, e.Code()&0xff)
	},

	Connector: sqliteConnector,
	Check:     sqliteCheck,

	WhyReadOnly: func(ctx context.Context, on Execer) (string, error) {
		return "", queryRow(ctx, on, "SELECT 1", nil, new(int))
	},

	Exclusive: sqliteExclusive,
	DDLInTx:   true,
}

var sqliteBusy = sqliteError(sqlite3.SQLITE_BUSY, sqlite3.SQLITE_BUSY_RECOVERY, sqlite3.SQLITE_BUSY_SNAPSHOT,
	sqlite3.SQLITE_BUSY_TIMEOUT, sqlite3.SQLITE_LOCKED)

func sqliteError(codes ...int) func(error) bool {
	return func(err error) bool {
		var e *sqlite.Error
		return errors.As(err, &e) && slices.Contains(codes, e.Code())
	}
}

// sqliteDSN makes the driver's name for a file: waits for the writer instead
// of failing, readers and a writer at once, every commit on the disk. A second
// is as long as the driver waits deaf to the context; DB tries again after it.
func sqliteDSN(path string) string {
	return sqliteName(path) + "&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)"
}

func sqliteName(path string) string {
	path = strings.NewReplacer("%", "%25", "?", "%3f", "#", "%23").Replace(path)
	return "file:" + path + "?_txlock=immediate&_pragma=busy_timeout(1000)"
}

func sqliteConnector(u *url.URL, opt Options) (driver.Connector, error) {
	path := sqlitePath(u)
	switch {
	case path == "":
		return nil, errors.New("the URL names no file: sqlite:dbcron.db")
	case strings.Contains(path, ":memory:"):
		return nil, errors.New("a database in memory belongs to one connection only: name a file, sqlite:dbcron.db")
	case u.RawQuery != "":
		return nil, fmt.Errorf("parameters after a file's name are not known: ?%s", u.RawQuery)
	}
	if err := sqliteUsable(path, opt.Existing); err != nil {
		return nil, err
	}
	return sqlite.NewConnector(sqliteDSN(path))
}

// sqliteUsable says in plain words what the driver would call "unable to open
// database file".
func sqliteUsable(path string, existing bool) error {
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

func sqlitePath(u *url.URL) string {
	if u.Opaque != "" {
		path, err := url.PathUnescape(u.Opaque)
		if err != nil {
			return u.Opaque
		}
		return path
	}
	return u.Host + u.Path // sqlite:///abs and sqlite://rel, as other tools have them
}

func sqliteCheck(ctx context.Context, db *DB) (found []Finding, err error) {
	c, err := db.pool.Conn(ctx)
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
	major, minor := versionNumbers(version)
	writable := Finding{Subject: "writable", OK: true, Detail: "the file takes writes", Advice: "check the rights on the file and its folder"}
	if err := sqliteWrite(ctx, c); err != nil && !sqliteBusy(err) { // busy: somebody writes, so one can
		writable.OK, writable.Detail = false, err.Error()
	}
	return []Finding{
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

// sqliteWrite writes something and takes it back. BEGIN IMMEDIATE alone is
// granted on a file that cannot be written, too.
func sqliteWrite(ctx context.Context, c *sql.Conn) error {
	if _, err := c.ExecContext(ctx, "BEGIN IMMEDIATE"); err != nil {
		return err
	}
	_, err := c.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS dbcron_writable (x INTEGER)")
	_, rollback := c.ExecContext(context.WithoutCancel(ctx), "ROLLBACK")
	if rollback != nil {
		discard(c)
	}
	return errors.Join(err, rollback)
}

// sqliteExclusive holds BEGIN EXCLUSIVE on an empty database beside the real
// one. Not on the real one, which the holder wants to write to through other
// connections. The file stays: removing it would let two in at once. Its journal is
// left as it is: to change that takes the lock, and fails while somebody has it.
func sqliteExclusive(ctx context.Context, db *DB, name string, _ *Stmt) (func(), error) {
	path, err := sqliteFile(ctx, db)
	if err != nil {
		return nil, err
	}
	connector, err := sqlite.NewConnector(sqliteName(path + "-migrate"))
	if err != nil {
		return nil, err
	}
	pool := sql.OpenDB(connector)
	pool.SetMaxOpenConns(1)
	unlock, err := exclusive(ctx, pool, sqliteMutex, name)
	if err != nil {
		return nil, errors.Join(err, pool.Close())
	}
	return func() {
		unlock()
		_ = pool.Close() // the lock went with unlock; nothing was written
	}, nil
}

var sqliteMutex = &SessionLocks{
	Refuse: func(context.Context, *sql.Conn) error { return nil },
	Try: func(ctx context.Context, c *sql.Conn, _ string) (bool, error) {
		_, err := c.ExecContext(ctx, "BEGIN EXCLUSIVE")
		if sqliteBusy(err) {
			return false, nil
		}
		return err == nil, err
	},
	Free: func(ctx context.Context, c *sql.Conn, _ string) (bool, error) {
		_, err := c.ExecContext(ctx, "ROLLBACK")
		return err == nil, err
	},
}

func sqliteFile(ctx context.Context, db *DB) (string, error) {
	var seq int
	var schema, path string
	err := db.pool.QueryRowContext(ctx, "PRAGMA database_list").Scan(&seq, &schema, &path)
	if err == nil && path == "" {
		err = errors.New("the database has no file")
	}
	return path, err
}
