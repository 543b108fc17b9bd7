package dialect

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
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
// followed by parameters of the driver, if any, and dbcron_without=…, which names
// Features to do without, with commas between. Close it when done.
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

// connLife is how long a connection is used.
const connLife = 30 * time.Minute

// Connect is Open without the check, for programs that look into why a
// database is refused.
func Connect(ctx context.Context, rawURL string, opt Options) (*DB, error) {
	u, d, err := parse(rawURL)
	if err != nil {
		return nil, err
	}
	opt.ApplicationName = cmp.Or(opt.ApplicationName, "dbcron")
	without, err := takeWithout(u)
	if err == nil {
		err = d.checkWithout(without)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", Redact(rawURL), err)
	}
	opt.Without = append(slices.Clone(opt.Without), without...)
	c, err := d.Connector(u, opt)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", Redact(rawURL), err)
	}
	pool := sql.OpenDB(c)
	pool.SetMaxOpenConns(cmp.Or(opt.MaxConns, 10))
	pool.SetMaxIdleConns(cmp.Or(opt.MaxConns, 10))
	if d.SkipLocked != "" { // a server: after a failover, connections to the old one end some day
		pool.SetConnMaxLifetime(connLife)
	}
	if d == MySQL { // MySQL's server closes those that are idle for longer: see idleLimit
		pool.SetConnMaxIdleTime(idleSeconds * time.Second * 3 / 5)
	}
	db, err := newDB(d, pool, opt)
	if err != nil {
		return nil, errors.Join(err, pool.Close())
	}
	db.owned = true
	if d.Isolated {
		db.isolation = sql.LevelDefault
	}
	if err := pool.PingContext(ctx); err != nil {
		if errors.Is(err, context.DeadlineExceeded) {
			err = fmt.Errorf("%w: %w", errNoAnswer, err)
		}
		return nil, errors.Join(fmt.Errorf("%s: %w", Redact(rawURL), err), pool.Close())
	}
	return db, nil
}

// Wrap takes a pool that the program already has. The pool stays the
// caller's: Close does not close it. Drivers: pgx's stdlib or another for
// PostgreSQL whose errors have SQLState, go-sql-driver/mysql, modernc.org/sqlite.
//
// What Open sets on its connections, and a caller's pool may lack: on MySQL a
// cancelled statement goes on in the server until it is done, or until
// innodb_lock_wait_timeout if it waits for a lock.
func Wrap(ctx context.Context, pool *sql.DB, opt Options) (*DB, error) {
	d, err := recognize(ctx, pool)
	if err != nil {
		return nil, err
	}
	db, err := newDB(d, pool, opt)
	if err != nil {
		return nil, err
	}
	if err := db.check(ctx); err != nil {
		return nil, err
	}
	return db, nil
}

// WrapPgx is Wrap for a pool of pgx's own kind.
func WrapPgx(ctx context.Context, pool *pgxpool.Pool, opt Options) (*DB, error) {
	std := stdlib.OpenDBFromPool(pool)
	db, err := Wrap(ctx, std, opt)
	if err != nil {
		return nil, errors.Join(err, std.Close())
	}
	db.owned = true // std is ours; closing it leaves the caller's pool open
	db.limit = int(pool.Config().MaxConns)
	return db, nil
}

// recognize asks the server what it is: a driver's type says nothing once it
// is wrapped for tracing.
func recognize(ctx context.Context, pool *sql.DB) (*Dialect, error) {
	if err := pool.PingContext(ctx); err != nil {
		return nil, err
	}
	var refused []error
	for _, probe := range []struct {
		dialect *Dialect
		query   string
	}{
		{Postgres, "SELECT 1 FROM (SELECT pg_backend_pid()) AS v"},
		{MySQL, "SELECT 1 FROM (SELECT CONNECTION_ID()) AS v"},
		{SQLite, "SELECT 1 FROM (SELECT sqlite_version()) AS v"},
	} {
		var one int
		err := pool.QueryRowContext(ctx, probe.query).Scan(&one)
		if err == nil {
			return probe.dialect, recognizeErrors(ctx, pool, probe.dialect)
		}
		if ctx.Err() != nil || Unavailable(err) { // not an answer
			return nil, err
		}
		refused = append(refused, err)
	}
	return nil, fmt.Errorf("%w: it is not PostgreSQL, MySQL, MariaDB or SQLite: %w", ErrUnfit, errors.Join(refused...))
}

// recognizeErrors refuses drivers whose errors we cannot tell apart, by
// provoking one: each engine reports a syntax error with its own type.
func recognizeErrors(ctx context.Context, pool *sql.DB, d *Dialect) error {
	_, err := pool.ExecContext(ctx, "THIS IS NOT SQL")
	if sqlState("42601")(err) || mysqlError(1064)(err) || sqliteError(1)(err) {
		return nil
	}
	if ctx.Err() != nil || Unavailable(err) {
		return err
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

	readOnly bool // it is about whether the server takes writes
}

// Findings looks at everything that the SQL relies on.
func (db *DB) Findings(ctx context.Context) ([]Finding, error) {
	found, _, err := db.look(ctx)
	return found, err
}

// look is Findings, and also tells what the database lacks besides what was known.
func (db *DB) look(ctx context.Context) (found []Finding, lacks []Lack, err error) {
	found, err = db.Dialect.Check(ctx, db)
	if err != nil {
		return nil, nil, err
	}
	unfit := func(f Finding) bool { return !f.OK }
	if !slices.ContainsFunc(found, unfit) { // a server that is read-only would refuse to say
		if lacks, err = db.lacking(ctx); err != nil {
			return found, nil, err
		}
	}
	f, err := db.timeFinding(ctx)
	return append(append(found, lackFindings(db.lacks, lacks)...), f), lacks, err
}

// The last microsecond of 2100-02-28: past 2038, and rounded by nothing that
// keeps milliseconds at least.
const probeMicros = 4107542399_999000

var timeProbe = SQL("dialect.time", `SELECT {us {time :us}}`)

// timeFinding sends an instant through the engine and back, so that a time
// zone, a rounding or a driver's flag that would shift it shows at the start.
func (db *DB) timeFinding(ctx context.Context) (Finding, error) {
	f := Finding{Subject: "time", Advice: "report this as a bug, with the settings of the pool and the server"}
	var back int64
	if err := db.Get(ctx, timeProbe, Args{"us": int64(probeMicros)}, &back); err != nil {
		f.Detail = err.Error()
		if ctx.Err() != nil || Unavailable(err) { // not an answer
			return f, err
		}
		return f, nil
	}
	f.OK, f.Detail = back == probeMicros, fmt.Sprintf("an instant comes back %d µs off", back-probeMicros)
	return f, nil
}

func (db *DB) check(ctx context.Context) error {
	found, lacks, err := db.look(ctx)
	if err != nil {
		return err
	}
	db.without(lacks)
	var unfit []error
	for _, f := range found {
		switch {
		case f.OK, f.readOnly && db.opt.Reading:
		case f.readOnly:
			unfit = append(unfit, fmt.Errorf("%w: %s: %w: %s; %s", ErrUnfit, f.Subject, ErrReadOnly, strings.TrimPrefix(f.Detail, ErrReadOnly.Error()+": "), f.Advice))
		default:
			unfit = append(unfit, fmt.Errorf("%w: %s: %s; %s", ErrUnfit, f.Subject, f.Detail, f.Advice))
		}
	}
	return errors.Join(unfit...)
}

// ForURL returns the dialect of the engine that a URL names, without a look at
// the database.
func ForURL(rawURL string) (*Dialect, error) {
	_, d, err := parse(rawURL)
	return d, err
}

func parse(rawURL string) (*url.URL, *Dialect, error) {
	const known = "use postgres://user:password@host/database, mysql://user:password@host/database or sqlite:file.db"
	const escaping = "in user, password and file names write %25 for %, %2F for /, %40 for @, %23 for #, %3F for ?"
	u, err := url.Parse(rawURL)
	if err != nil {
		// The error of url.Parse repeats the URL, password included.
		return nil, nil, fmt.Errorf("database URL %s cannot be read: %s; %s", Redact(rawURL), known, escaping)
	}
	if u.Fragment != "" {
		return nil, nil, fmt.Errorf("database URL %s has a # in it: %s", Redact(rawURL), escaping)
	}
	for _, d := range Engines {
		if slices.Contains(d.Schemes, u.Scheme) {
			return u, d, nil
		}
	}
	return nil, nil, fmt.Errorf("database URL %s: unknown kind %q: %s", Redact(rawURL), u.Scheme, known)
}

// secrets finds parameters with a password: by their name, or because the name
// is disguised by escapes.
var secrets = regexp.MustCompile(`(?i)([^?&=\s]*(?:pass|pwd|%)[^?&=\s]*\s*=)[^&]*`)

// Redact takes what may be a password out of a URL. In doubt it takes out
// more: all of a URL that cannot be parsed, because where its password ends is
// unknown, and what is between the first : and the last @ of any other.
func Redact(rawURL string) string {
	scheme, rest, found := strings.Cut(rawURL, "://")
	if found {
		scheme += "://"
	} else {
		scheme, rest = "", rawURL
	}
	if scheme == "" && strings.HasPrefix(rawURL, "sqlite:") {
		return rawURL // a file's name, and no more
	}
	if _, err := url.Parse(rawURL); err != nil {
		return scheme + "…"
	}
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		if user, _, found := strings.Cut(rest[:at], ":"); found {
			rest = user + ":…" + rest[at:]
		}
	}
	return scheme + secrets.ReplaceAllString(rest, "$1…")
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

// errNoAnswer tells a server that does not answer from a statement that took
// too long: both are context.DeadlineExceeded.
var errNoAnswer = errors.New("no answer")

// networkError tells whether a connection could not be made, or was cut, or leads to a server
// that takes no writes. If a
// server said something, that counts, and not that another address of the same
// host did not answer: a refused password is not to be tried again.
func networkError(err error) bool {
	if errors.Is(err, ErrReadOnly) {
		return true
	}
	var said interface{ SQLState() string }
	if errors.As(err, &said) {
		return false
	}
	var op *net.OpError
	var dns *net.DNSError
	if errors.As(err, &op) || errors.As(err, &dns) {
		return true
	}
	for _, cut := range []error{errNoAnswer, ErrCut, driver.ErrBadConn, sql.ErrConnDone, pgconn.ErrConnClosed, io.EOF, io.ErrUnexpectedEOF, net.ErrClosed} {
		if errors.Is(err, cut) {
			return true
		}
	}
	return false
}

// versionNumbers reads the first two numbers of a version such as 10.11.19-MariaDB.
func versionNumbers(version string) (major, minor int) {
	_, _ = fmt.Sscanf(version, "%d.%d", &major, &minor) // what is not a number stays 0, and is refused as too old
	return major, minor
}
