package sqlrun

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
	"slices"
	"strings"
	"time"

	"github.com/dbcron/dbcron/internal/pattern"
	"github.com/dbcron/dbcron/internal/sqlconn"
)

// ErrUnfit means that a database lacks something that the statements rely on. The error's text says
// what it lacks and what to do.
var ErrUnfit = errors.New("this database cannot be used as it is")

// Open implements the Open of the engines' packages: it connects to the database that rawURL names,
// with everything that the SQL relies on, and checks it. among lists the engines that the program
// has.
func Open(ctx context.Context, among []*Dialect, rawURL string, opt Options) (*DB, error) {
	db, err := Connect(ctx, among, rawURL, opt)
	if err != nil {
		return nil, err
	}
	if err := db.check(ctx); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

// connLife is the lifetime of a connection.
const connLife = 30 * time.Minute

// Connect is Open without the check, for programs that examine why a database is refused.
func Connect(ctx context.Context, among []*Dialect, rawURL string, opt Options) (*DB, error) {
	u, d, err := parse(rawURL, among)
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
	if d.SkipLocked != "" { // after a failover, connections to the old server must end some day
		pool.SetConnMaxLifetime(connLife)
	}
	pool.SetConnMaxIdleTime(d.IdleLife)
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
	if err := db.settle(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", Redact(rawURL), err), pool.Close())
	}
	db.share(ctx)
	return db, nil
}

// Wrap implements the Wrap of the engines' packages: it uses a pool that the program has, of one of
// the given engines. Close leaves the pool open.
func Wrap(ctx context.Context, among []*Dialect, pool *sql.DB, opt Options) (*DB, error) {
	d, err := recognize(ctx, among, pool)
	if err != nil {
		return nil, err
	}
	db, err := newDB(d, pool, opt)
	if err != nil {
		return nil, err
	}
	if err := db.settle(ctx); err != nil {
		return nil, err
	}
	if err := db.check(ctx); err != nil {
		return nil, err
	}
	db.share(ctx)
	return db, nil
}

// WrapOwned is Wrap for a pool that borrows the connections of another pool, maxConns at most. Close
// closes it, and so does an error. inUse returns how many connections of the other pool are in use.
func WrapOwned(ctx context.Context, among []*Dialect, pool *sql.DB, maxConns int, inUse func() int, opt Options) (*DB, error) {
	db, err := Wrap(ctx, among, pool, opt)
	if err != nil {
		return nil, errors.Join(err, pool.Close())
	}
	db.owned, db.limit, db.inUse = true, maxConns, inUse
	return db, nil
}

// recognize asks the server which engine it is: the driver's type says nothing once it is wrapped for
// tracing.
func recognize(ctx context.Context, among []*Dialect, pool *sql.DB) (*Dialect, error) {
	if err := pool.PingContext(ctx); err != nil {
		return nil, err
	}
	var refused []error
	var names []string
	for _, d := range among {
		var one int
		err := pool.QueryRowContext(ctx, d.Probe).Scan(&one)
		if err == nil {
			return d, recognizeErrors(ctx, pool, d)
		}
		if ctx.Err() != nil || d.Unreachable(err) { // not an answer
			return nil, err
		}
		refused = append(refused, err)
		names = append(names, strings.Split(d.Title, ", ")...)
	}
	return nil, fmt.Errorf("%w: it is not %s: %w", ErrUnfit, orList(names), errors.Join(refused...))
}

// recognizeErrors refuses drivers whose errors dbcron cannot interpret. It provokes an error: each
// engine's driver reports a syntax error with its own type.
func recognizeErrors(ctx context.Context, pool *sql.DB, d *Dialect) error {
	_, err := pool.ExecContext(ctx, "THIS IS NOT SQL")
	if d.SyntaxError(err) {
		return nil
	}
	if ctx.Err() != nil || d.Unreachable(err) {
		return err
	}
	return fmt.Errorf("%w: the driver's errors (%T) are not known; use pgx, go-sql-driver/mysql or modernc.org/sqlite for %s",
		ErrUnfit, err, d.Name)
}

// orList joins alternatives.
func orList(list []string) string {
	if len(list) < 2 {
		return strings.Join(list, "")
	}
	last := len(list) - 1
	return strings.Join(list[:last], ", ") + " or " + list[last]
}

// A Finding is the state of one thing that the SQL relies on.
type Finding struct {
	Subject string
	OK      bool
	Detail  string // what was seen
	Advice  string // what to do about it, if not OK

	readOnly bool // it says whether the server takes writes
}

// RowSecurity is the subject of a finding: what the tables hold cannot be judged then.
const RowSecurity = "row security"

// Findings checks everything that the SQL relies on.
func (db *DB) Findings(ctx context.Context) ([]Finding, error) {
	found, _, err := db.look(ctx)
	return found, err
}

// look is Findings that also returns what the database lacks, besides what was known.
func (db *DB) look(ctx context.Context) (found []Finding, lacks []Lack, err error) {
	found, err = db.Dialect.Check(ctx, db)
	if err != nil {
		return nil, nil, err
	}
	unfit := func(f Finding) bool { return !f.OK }
	if !slices.ContainsFunc(found, unfit) { // a read-only server would refuse to answer
		if lacks, err = db.lacking(ctx); err != nil {
			return found, nil, err
		}
	}
	f, err := db.timeFinding(ctx)
	if found = append(append(found, lackFindings(db.lacks, lacks)...), f); err != nil || slices.ContainsFunc(found, unfit) {
		return found, lacks, err
	}
	if f, err = db.proof(ctx); !f.OK {
		found = append(found, f)
	}
	return found, lacks, err
}

// The instants that timeFinding sends. The last one is what statements take for the end of time. Rows that
// wait for nothing have it.
var (
	firstInstant = time.UnixMicro(0).UTC()
	lateInstant  = time.Date(2100, 2, 28, 23, 59, 59, 999_000_000, time.UTC) // past 2038, and all columns hold milliseconds
	endOfTime    = time.UnixMicro(253402300799000000).UTC()
)

var timeProbe = SQL("dialect.time", `
	SELECT {us {time :first}}, {us {time :late}}, {us {time :end}}, {us {now + :day}} - {us {now}},
		CASE WHEN {time :first} < {now} AND {now} < {time :late} AND {time :late} < {time :end} THEN 1 ELSE 0 END`)

// timeFinding sends instants through the engine and back, so that a time zone, rounding, a driver flag or a
// server that knows fewer years shows at startup. On such a server schedules would be claimed and never
// run, without an error.
func (db *DB) timeFinding(ctx context.Context) (Finding, error) {
	f := Finding{Subject: "time", Advice: "report this as a bug, with the settings of the pool and the server"}
	const day = 24 * time.Hour
	want := []time.Time{firstInstant, lateInstant, endOfTime}
	var back [3]int64
	var later int64
	var inOrder bool
	err := db.Get(ctx, timeProbe, Args{
		"first": want[0].UnixMicro(), "late": want[1].UnixMicro(), "end": want[2].UnixMicro(), "day": day.Microseconds(),
	}, &back[0], &back[1], &back[2], &later, &inOrder)
	if err != nil {
		f.Detail = err.Error()
		if ctx.Err() != nil || db.Dialect.Unreachable(err) { // not an answer
			return f, err
		}
		return f, nil
	}
	const layout = "2006-01-02 15:04:05.999999"
	for i, at := range want {
		if back[i] != at.UnixMicro() {
			f.Detail = fmt.Sprintf("%s comes back as %s, %d µs off", at.Format(layout), time.UnixMicro(back[i]).UTC().Format(layout), back[i]-at.UnixMicro())
			return f, nil
		}
	}
	switch {
	case later != day.Microseconds():
		f.Detail = fmt.Sprintf("a day later is %v later", time.Duration(later)*time.Microsecond)
	case !inOrder:
		f.Detail = fmt.Sprintf("the server's clock is not between %s and %s, or instants do not compare in order", want[0].Format(layout), want[1].Format(layout))
	default:
		f.OK, f.Detail = true, "instants come back as they were, up to the end of "+endOfTime.Format("2006")
	}
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
			unfit = append(unfit, fmt.Errorf("%w: %s: %w: %s; %s", ErrUnfit, f.Subject, ErrReadOnly,
				strings.TrimPrefix(f.Detail, ErrReadOnly.Error()+": "), f.Advice))
		default:
			unfit = append(unfit, fmt.Errorf("%w: %s: %s; %s", ErrUnfit, f.Subject, f.Detail, f.Advice))
		}
	}
	return errors.Join(unfit...)
}

// ForURL returns the one of the given dialects whose engine a URL names, without connecting.
func ForURL(among []*Dialect, rawURL string) (*Dialect, error) {
	_, d, err := parse(rawURL, among)
	return d, err
}

func parse(rawURL string, among []*Dialect) (*url.URL, *Dialect, error) {
	const escaping = "in user, password and file names write %25 for %, %2F for /, %40 for @, %23 for #, %3F for ?"
	examples := make([]string, len(among))
	for i, d := range among {
		examples[i] = d.Example
	}
	known := "use " + orList(examples)
	u, err := url.Parse(rawURL)
	if err != nil {
		// The error of url.Parse repeats the URL, password included.
		return nil, nil, fmt.Errorf("database URL %s cannot be read: %s; %s", Redact(rawURL), known, escaping)
	}
	if u.Fragment != "" {
		return nil, nil, fmt.Errorf("database URL %s has a # in it: %s", Redact(rawURL), escaping)
	}
	for _, d := range among {
		if slices.Contains(d.Schemes, u.Scheme) {
			return u, d, nil
		}
	}
	return nil, nil, fmt.Errorf("database URL %s: unknown kind %q: %s", Redact(rawURL), u.Scheme, known)
}

// secrets finds parameters with a password: by name, or because escapes disguise the name.
var secrets = pattern.Lazy(`(?i)([^?&=\s]*(?:pass|pwd|%)[^?&=\s]*\s*=)[^&]*`)

// Redact removes what may be a password from a URL, and more in doubt: all of a URL that it cannot
// parse, because nobody knows where its password ends, and otherwise everything between the first :
// and the last @.
func Redact(rawURL string) string {
	scheme, rest, found := strings.Cut(rawURL, "://")
	if found {
		scheme += "://"
	} else {
		scheme, rest = "", rawURL
	}
	if scheme == "" && strings.HasPrefix(rawURL, "sqlite:") {
		return rawURL // only a file's name
	}
	if _, err := url.Parse(rawURL); err != nil {
		return scheme + "…"
	}
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		if user, _, found := strings.Cut(rest[:at], ":"); found {
			rest = user + ":…" + rest[at:]
		}
	}
	return scheme + secrets().ReplaceAllString(rest, "$1…")
}

// errNoAnswer distinguishes a server that does not answer from a statement that took too long: both
// are context.DeadlineExceeded.
var errNoAnswer = errors.New("no answer")

// ConnectionError reports whether a connection failed or was cut, or leads to a server that takes no
// writes. What a server said takes precedence over another address of the same host that did not
// answer: a refused password must not be retried.
func ConnectionError(err error) bool {
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
	for _, cut := range []error{errNoAnswer, sqlconn.ErrCut, driver.ErrBadConn, sql.ErrConnDone, io.EOF, io.ErrUnexpectedEOF, net.ErrClosed} {
		if errors.Is(err, cut) {
			return true
		}
	}
	return false
}
