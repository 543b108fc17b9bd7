package dialect

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
)

// ErrUnfit means that a database lacks something that the statements rely on.
// The error's text says what, and what to do.
var ErrUnfit = errors.New("this database cannot be used as it is")

// Open connects to the database that rawURL names, with all that the SQL
// relies on, and checks it. The URL is one of
//
//	postgres://user:password@host:5432/database
//	mysql://user:password@host:3306/database     (mariadb:// is the same)
//	sqlite:file.db
//
// followed by parameters of the driver, if any. Close it when done.
func Open(ctx context.Context, rawURL string, opt Options) (*DB, error) {
	db, err := Connect(ctx, rawURL, opt)
	if err != nil {
		return nil, err
	}
	if err := db.check(ctx); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

// Connect is Open without the check, for programs that look into why a
// database is refused.
func Connect(ctx context.Context, rawURL string, opt Options) (*DB, error) {
	u, d, err := parse(rawURL)
	if err != nil {
		return nil, err
	}
	opt.ApplicationName = cmp.Or(opt.ApplicationName, "dbcron")
	c, err := d.Connector(u, opt)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", Redact(rawURL), err)
	}
	pool := sql.OpenDB(c)
	pool.SetMaxOpenConns(cmp.Or(opt.MaxConns, 10))
	pool.SetMaxIdleConns(cmp.Or(opt.MaxConns, 10))
	db, err := newDB(d, pool, opt)
	if err != nil {
		return nil, errors.Join(err, pool.Close())
	}
	db.owned = true
	if err := pool.PingContext(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", Redact(rawURL), err), pool.Close())
	}
	return db, nil
}

// Wrap takes a pool that the program already has. The pool stays the
// caller's: Close does not close it. Drivers: pgx's stdlib or another for
// PostgreSQL whose errors have SQLState, go-sql-driver/mysql, modernc.org/sqlite.
func Wrap(ctx context.Context, pool *sql.DB, opt Options) (*DB, error) {
	d, err := recognize(ctx, pool)
	if err != nil {
		return nil, err
	}
	db, err := newDB(d, pool, opt)
	if err != nil {
		return nil, err
	}
	return db, db.check(ctx)
}

// WrapPgx is Wrap for a pool of pgx's own kind.
func WrapPgx(ctx context.Context, pool *pgxpool.Pool, opt Options) (*DB, error) {
	std := stdlib.OpenDBFromPool(pool)
	db, err := Wrap(ctx, std, opt)
	if err != nil {
		return nil, errors.Join(err, std.Close())
	}
	db.owned = true // std is ours; closing it leaves the caller's pool open
	return db, nil
}

// recognize asks the server what it is: a driver's type says nothing once it
// is wrapped for tracing.
func recognize(ctx context.Context, pool *sql.DB) (*Dialect, error) {
	if err := pool.PingContext(ctx); err != nil {
		return nil, err
	}
	for _, probe := range []struct {
		dialect *Dialect
		query   string
	}{
		{SQLite, "SELECT 1 FROM (SELECT sqlite_version()) AS v"},
		{MySQL, "SELECT 1 FROM (SELECT CONNECTION_ID()) AS v"},
		{Postgres, "SELECT 1 FROM (SELECT pg_backend_pid()) AS v"},
	} {
		var one int
		if err := pool.QueryRowContext(ctx, probe.query).Scan(&one); err == nil {
			return probe.dialect, recognizeErrors(ctx, pool, probe.dialect)
		}
	}
	return nil, fmt.Errorf("%w: it is not PostgreSQL, MySQL, MariaDB or SQLite", ErrUnfit)
}

// recognizeErrors refuses drivers whose errors we cannot tell apart, by
// provoking one: each engine reports a syntax error with its own type.
func recognizeErrors(ctx context.Context, pool *sql.DB, d *Dialect) error {
	_, err := pool.ExecContext(ctx, "THIS IS NOT SQL")
	if err == nil || slices.Contains([]bool{
		sqlState("42601")(err), mysqlError(1064)(err), sqliteError(1)(err),
	}, true) {
		return nil
	}
	return fmt.Errorf("%w: the driver's errors (%T) are not known; use pgx, go-sql-driver/mysql or modernc.org/sqlite for %s",
		ErrUnfit, err, d.Name)
}

// A Finding is one thing that the SQL relies on, and how it stands.
type Finding struct {
	Subject string
	OK      bool
	Detail  string // what was seen
	Advice  string // what to do if it is not OK
}

// Findings looks at everything that the SQL relies on.
func (db *DB) Findings(ctx context.Context) ([]Finding, error) {
	found, err := db.Dialect.Check(ctx, db.pool)
	if err != nil {
		return nil, err
	}
	return append(found, db.timeFinding(ctx)), nil
}

// The last microsecond of 2100-02-28: past 2038, and rounded by nothing that
// keeps milliseconds at least.
const probeMicros = 4107542399_999000

var timeProbe = SQL("dialect.time", `SELECT {us {time :us}}`)

// timeFinding sends an instant through the engine and back, so that a time
// zone, a rounding or a driver's flag that would shift it shows at the start.
func (db *DB) timeFinding(ctx context.Context) Finding {
	f := Finding{Subject: "time", Advice: "report this as a bug, with the settings of the pool and the server"}
	var back int64
	if err := db.Get(ctx, timeProbe, Args{"us": int64(probeMicros)}, &back); err != nil {
		f.Detail = err.Error()
		return f
	}
	f.OK, f.Detail = back == probeMicros, fmt.Sprintf("an instant comes back %d µs off", back-probeMicros)
	return f
}

func (db *DB) check(ctx context.Context) error {
	found, err := db.Findings(ctx)
	if err != nil {
		return err
	}
	var unfit []error
	for _, f := range found {
		if !f.OK {
			unfit = append(unfit, fmt.Errorf("%w: %s: %s; %s", ErrUnfit, f.Subject, f.Detail, f.Advice))
		}
	}
	return errors.Join(unfit...)
}

func parse(rawURL string) (*url.URL, *Dialect, error) {
	const known = "use postgres://user:password@host/database, mysql://user:password@host/database or sqlite:file.db"
	u, err := url.Parse(rawURL)
	if err != nil {
		// The error of url.Parse repeats the URL, password included.
		return nil, nil, fmt.Errorf("database URL %s cannot be read (a %%, / or @ in the password must be escaped): %s", Redact(rawURL), known)
	}
	for _, d := range Engines {
		if slices.Contains(d.Schemes, u.Scheme) {
			return u, d, nil
		}
	}
	return nil, nil, fmt.Errorf("database URL %s: unknown kind %q: %s", Redact(rawURL), u.Scheme, known)
}

var (
	userInfo = regexp.MustCompile(`://[^/]*@`)
	secrets  = regexp.MustCompile(`(?i)(password|passwd|pwd|sslpassword)=[^&\s]*`)
)

// Redact takes what may be a password out of a URL, also out of one that
// cannot be parsed.
func Redact(rawURL string) string {
	rawURL = userInfo.ReplaceAllStringFunc(rawURL, func(s string) string {
		user, _, _ := strings.Cut(strings.TrimPrefix(s, "://"), ":")
		return "://" + strings.TrimSuffix(user, "@") + "@"
	})
	return secrets.ReplaceAllString(rawURL, "$1=…")
}

// Unavailable tells whether err means that the server cannot be reached or
// does not serve yet, so that trying again later makes sense.
func Unavailable(err error) bool {
	for _, d := range Engines {
		if d.Unavailable(err) {
			return true
		}
	}
	return false
}

func networkError(err error) bool {
	var op *net.OpError
	var dns *net.DNSError
	return errors.As(err, &op) || errors.As(err, &dns) || errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, net.ErrClosed)
}

// versionNumbers reads the first two numbers of a version such as 10.11.19-MariaDB.
func versionNumbers(version string) (major, minor int) {
	_, _ = fmt.Sscanf(version, "%d.%d", &major, &minor) // what is not a number stays 0, and is refused as too old
	return major, minor
}
