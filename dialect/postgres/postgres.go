// Package postgres is the engine for PostgreSQL, with pgx as its only driver.
package postgres

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/dbcron/dbcron/internal/engine"
	"github.com/dbcron/dbcron/internal/sqlconn"
	"github.com/dbcron/dbcron/internal/sqlrun"
)

// arrays are the types of columns of records and of lists.
var arrays = map[string]string{"int": "BIGINT[]", "text": "TEXT[]"}

// Dialect is the engine of PostgreSQL from 14 on.
var Dialect = &sqlrun.Dialect{
	Name:    "postgres",
	Goose:   "postgres",
	Title:   "PostgreSQL",
	Schemes: []string{"postgres", "postgresql"},
	Example: "postgres://user:password@host/database",
	Probe:   "SELECT 1 FROM (SELECT pg_backend_pid()) AS v",

	Placeholder: func(n int) string { return "$" + strconv.Itoa(n) },
	// Not now(), which is the start of the transaction; not clock_timestamp(),
	// which is volatile, so that a range on it could not use an index.
	Now: "statement_timestamp()",
	Add: func(t, us string) string {
		return "(" + t + " + CAST(" + us + " AS BIGINT) * INTERVAL '1 microsecond')"
	},
	// Seconds and µs separately: an interval from µs alone is computed in floating point, and off
	// by one in far years.
	FromMicros: func(us string) string {
		us = "CAST(" + us + " AS BIGINT)"
		return "(TIMESTAMPTZ 'epoch' + " + us + " / 1000000 * INTERVAL '1 second' + " + us + " % 1000000 * INTERVAL '1 microsecond')"
	},
	ToMicros: func(t string) string { return "CAST(EXTRACT(EPOCH FROM " + t + ") * 1000000 AS BIGINT)" },
	BigInt:   "BIGINT",

	JSONBytes: func(column string) string { return "OCTET_LENGTH(CAST(" + column + " AS TEXT))" },

	SkipLocked:      "FOR UPDATE SKIP LOCKED",
	Locked:          "FOR UPDATE",
	RowLocked:       "FOR UPDATE NOWAIT",
	ShareLocked:     "FOR SHARE",
	LocksTakeUpdate: true,
	AddDuplicate:    engine.AddOnConflict,
	IgnoreDuplicate: func(string) string { return "ON CONFLICT DO NOTHING" },
	// Arrays, which the server reads several times as fast as JSON.
	Records: func(rows string, columns []sqlrun.Column) string {
		return "unnest(" + engine.Listed(columns,
			func(c sqlrun.Column) string { return "CAST(" + rows + "." + c.Name + " AS " + arrays[c.Kind] + ")" }) +
			") AS record (" + engine.Listed(columns, func(c sqlrun.Column) string { return c.Name }) + ")"
	},
	JoinByKey: func(table string) string { return "JOIN " + table },

	PipelineWithout: pipelineWithout,
	ArrayRows:       true,
	In: func(column sqlrun.Column, list string) string {
		return column.Name + " = ANY (CAST(" + list + ".list AS " + arrays[column.Kind] + "))"
	},
	Only:       func(string) string { return "" },
	UpdateFrom: engine.UpdateFrom,
	DeleteFrom: engine.DeleteFrom,

	Next:      func(column string) string { return column + " = " + column + " + 1" },
	Returning: func(column string) string { return "RETURNING " + column },

	Isolation: sql.LevelReadCommitted,
	// A statement with a long list could keep the plan made for an empty table, and read all of the
	// table after it has grown. A new plan does the same if the statistics say that the table is
	// empty. See pipelineWithout. LOCAL, because a pooler may give the session to somebody else
	// next.
	OnBegin:      "SELECT " + onBegin,
	OnBeginShort: onBeginShort,
	OnBeginBrief: onBeginShort + ", " + lockTimeout(sqlconn.BriefWait),
	OnBeginHasty: onBeginShort + ", " + lockTimeout(sqlconn.HastyWait),

	Duplicate:   sqlState("23505"),
	Missing:     sqlState("42P01"),
	Denied:      sqlState("42501"),
	Unknown:     sqlState("42704", "42883", "0A000"),
	Retryable:   sqlState("40001", "40P01"),
	LockTimeout: sqlState("55P03"),
	Unavailable: func(err error) bool {
		return sqlrun.ConnectionError(err) || errors.Is(err, pgconn.ErrConnClosed) ||
			sqlState("57P01", "57P02", "57P03", "57P05", "25P03", "25P04", "53300", readOnlyState)(err) || // the 25P0 end a session, too
			sqlState("08000", "08001", "08003", "08004", "08006", "08P01")(err) || // poolers use the class 08
			unanswered(err)
	},
	Full:      sqlState("53300"),
	NoSpace:   sqlState("53100"),
	ReadOnly:  sqlState(readOnlyState),
	Refused:   refused,
	Temporary: temporary,

	SyntaxError: sqlState("42601"),

	// DISCARD ALL does not run in a transaction.
	Restore: []string{
		"RESET SESSION AUTHORIZATION", "RESET ALL", "CLOSE ALL", "UNLISTEN *", "DISCARD TEMP", "DISCARD SEQUENCES",
		"SELECT pg_advisory_unlock_all()",
	},

	Connector:   connector,
	Check:       check,
	Strain:      strain,
	WhyReadOnly: whyReadOnly,
	Holdings:    holdings,
	Lacks:       without,
	Exclusive:   exclusive,
	Session:     session,
	Notify:      func(channel, payload string) string { return "pg_notify(" + channel + ", " + payload + ")" },
	Listen:      listen,
	Pipeline:    pipeline,
	Copy:        copyRows,
	Home:        home,
	AtHome:      atHome,
	TableLocks:  tableLocks,
	DDLInTx:     true,
	Routines:    true,
	Schema:      true,
}

// readOnlyState is read_only_sql_transaction.
const readOnlyState = "25006"

const onBegin = "set_config('plan_cache_mode', 'force_custom_plan', true), set_config('enable_seqscan', 'off', true), set_config('jit', 'off', true)"

const onBeginShort = "SELECT set_config('idle_in_transaction_session_timeout', '5s', true), " + onBegin

// lockTimeout is for one transaction, since a pooler may give the session to somebody else next.
func lockTimeout(wait time.Duration) string {
	return fmt.Sprintf("set_config('lock_timeout', '%dms', true)", wait.Milliseconds())
}

// sqlState recognizes errors by SQLSTATE. Any driver's error with the usual method fits, so a
// caller's pool need not be pgx's.
func sqlState(codes ...string) func(error) bool {
	return func(err error) bool {
		var e interface{ SQLState() string }
		return errors.As(err, &e) && slices.Contains(codes, e.SQLState())
	}
}

// refused goes by the class of the error, its first two characters: all but those of connections,
// transactions, resources, operators and the server itself. A trigger may use any class of its own.
func refused(err error) bool {
	var e interface{ SQLState() string }
	if !errors.As(err, &e) || len(e.SQLState()) != 5 {
		return false
	}
	switch e.SQLState() {
	case "26000", "42P05", "0A000": // a prepared statement is missing, exists already, or is older than a change of the tables
		return false
	}
	return !slices.Contains([]string{"08", "25", "40", "53", "55", "57", "58"}, e.SQLState()[:2]) && !unanswered(err)
}

// temporary goes by the class, too: connections, transactions that are rolled back, resources, locks, operators, and the system
// below the server. Of class 25 it takes the limits of time, and read-only servers: the rest are mistakes.
func temporary(err error) bool {
	var e interface{ SQLState() string }
	if !errors.As(err, &e) || len(e.SQLState()) != 5 {
		return false
	}
	return slices.Contains([]string{"08", "40", "53", "55", "57", "58"}, e.SQLState()[:2]) ||
		sqlState("25P03", "25P04", readOnlyState)(err) || unanswered(err)
}

func connector(u *url.URL, opt sqlrun.Options) (driver.Connector, error) {
	if err := checkFiles(u); err != nil {
		return nil, err
	}
	cfg, err := pgx.ParseConfig(u.String())
	if err != nil {
		return nil, err
	}
	if cfg.ConnectTimeout == 0 {
		cfg.ConnectTimeout = 10 * time.Second
	}
	if cfg.RuntimeParams["application_name"] == "" {
		cfg.RuntimeParams["application_name"] = opt.ApplicationName
	}
	// Close a connection to a server that takes no writes: the next one may lead to the primary.
	onError := cfg.OnPgError
	cfg.OnPgError = func(c *pgconn.PgConn, e *pgconn.PgError) bool {
		hear(c, e)
		return onError(c, e) && e.Code != readOnlyState && !unanswered(e)
	}
	if validate := cfg.ValidateConnect; validate != nil { // target_session_attrs
		cfg.ValidateConnect = func(ctx context.Context, c *pgconn.PgConn) error {
			err := validate(ctx, c)
			if errors.Is(err, pgconn.ErrReadOnlyConnection) || errors.Is(err, pgconn.ErrStandbyConnection) {
				err = fmt.Errorf("%w: %w", sqlrun.ErrReadOnly, err)
			}
			return err
		}
	}
	return newPoolerConnector(cfg, u.Query().Has("default_query_exec_mode")), nil
}

func check(ctx context.Context, db *sqlrun.DB) ([]sqlrun.Finding, error) {
	var version int
	var name, encoding, isolation, path, schema string
	err := db.Pool().QueryRowContext(ctx, `SELECT CAST(current_setting('server_version_num') AS INT), current_setting('server_version'),
		current_setting('server_encoding'), current_setting('transaction_isolation'),
		current_setting('search_path'), COALESCE(current_schema(), '')`).
		Scan(&version, &name, &encoding, &isolation, &path, &schema)
	if err != nil {
		return nil, err
	}
	readOnly, err := whyReadOnly(ctx, db.Pool())
	if err != nil {
		return nil, err
	}
	hidden, err := rowSecurity(ctx, db)
	if err != nil {
		return nil, err
	}
	pooler, err := poolerFinding(ctx, db.Pool())
	return append([]sqlrun.Finding{
		{
			Subject: "version", OK: version >= 140000, Detail: "PostgreSQL " + name,
			Advice: "use PostgreSQL 14 or later",
		},
		sqlrun.Writable(readOnly, "connect to the primary (a URL that names all hosts, with target_session_attrs=read-write, finds it), promote this server, or unset default_transaction_read_only"),
		{
			Subject: "encoding", OK: encoding == "UTF8", Detail: "server_encoding = " + encoding,
			Advice: "create the database with ENCODING 'UTF8'",
		},
		searchPathFinding(db.Home(), path, schema),
		{
			Subject: "isolation", OK: true,
			Detail: fmt.Sprintf("session default %q; dbcron's transactions ask for read committed themselves", isolation),
		},
	}, append(hidden, pooler...)...), err
}

// searchPathFinding reports whether there is a schema for the tables. home is the one that they are in or would
// be made in, if that is known; current is the first schema of the search_path that exists and may be used, or "".
func searchPathFinding(home, path, current string) sqlrun.Finding {
	f := sqlrun.Finding{
		Subject: "search_path", OK: home != "" || current != "",
		Advice: "create a schema and grant USAGE on it (CREATE SCHEMA dbcron AUTHORIZATION the_user), or name one that exists: search_path=its_name in the URL",
	}
	switch {
	case home != "":
		f.Detail = "tables are in schema " + home
	case current != "":
		f.Detail = "tables are in schema " + current
	default:
		f.Detail = fmt.Sprintf("search_path is %s, and none of these schemas exists and may be used", strings.TrimSpace(cmp.Or(path, `""`)))
	}
	return f
}

func whyReadOnly(ctx context.Context, on sqlrun.Execer) (why string, err error) {
	var standby bool
	var readOnly string
	err = engine.QueryRow(ctx, on, "SELECT pg_is_in_recovery(), current_setting('transaction_read_only')", nil, &standby, &readOnly)
	switch {
	case err != nil:
	case standby:
		why = "it is a standby (pg_is_in_recovery)"
	case readOnly != "off":
		why = "transaction_read_only = " + readOnly
	}
	return why, err
}

// exclusive polls, because a statement that blocks on the lock would hold a snapshot and run into the
// statement timeout. The locks belong to a transaction, which a pooler gives to nobody else before it
// ends. The advisory lock excludes earlier versions, which took no other and may hold a session lock
// with the same key. The row lock excludes processes without advisory locks.
func exclusive(ctx context.Context, db *sqlrun.DB, name, query string) (func(), error) {
	_, without := db.Lacks(sqlrun.AdvisoryLocks)
	if without && query == "" {
		return nil, errors.New("there are no advisory locks, and no row to lock")
	}
	locks := &sqlrun.SessionLocks{
		Refuse: func(context.Context, *sql.Conn) error { return nil },
		Try: func(ctx context.Context, c *sql.Conn, name string) (got bool, err error) {
			if _, err := c.ExecContext(ctx, "BEGIN ISOLATION LEVEL READ COMMITTED"); err != nil {
				return false, err
			}
			if _, err := c.ExecContext(ctx, "SELECT set_config('idle_in_transaction_session_timeout', '0', true)"); err != nil {
				return false, err
			}
			if got = true; !without {
				got, err = engine.QueryBool(ctx, c, "SELECT pg_try_advisory_xact_lock($1)", engine.LockKey(name))
			}
			if err == nil && got && query != "" {
				got, err = engine.HoldsRow(ctx, c, query, sqlState("55P03"))
			}
			if err == nil && !got {
				_, err = c.ExecContext(ctx, "ROLLBACK")
			}
			return got, err
		},
		Free: func(ctx context.Context, c *sql.Conn, _ string) (bool, error) {
			_, err := c.ExecContext(ctx, "ROLLBACK")
			return err == nil, err
		},
	}
	return locks.Take(ctx, db.Pool(), db.Home(), name)
}

var session = &sqlrun.SessionLocks{
	Refuse: noSession,
	Try: func(ctx context.Context, c *sql.Conn, name string) (bool, error) {
		return engine.QueryBool(ctx, c, "SELECT pg_try_advisory_lock($1)", engine.LockKey(name))
	},
	// Read the list of locks: behind a pooler, a session that belongs to somebody else by now would
	// answer, too.
	Held: func(ctx context.Context, c *sql.Conn, name string) (bool, error) {
		return engine.QueryBool(ctx, c, `SELECT NOT pg_is_in_recovery() AND EXISTS (
			SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid() AND granted AND objsubid = 1
			AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
			AND classid = CAST(($1::bigint >> 32) & 4294967295 AS oid) AND objid = CAST($1::bigint & 4294967295 AS oid))`, engine.LockKey(name))
	},
	Free: func(ctx context.Context, c *sql.Conn, name string) (bool, error) {
		return engine.QueryBool(ctx, c, "SELECT pg_advisory_unlock($1)", engine.LockKey(name))
	},
}

func noSession(ctx context.Context, c *sql.Conn) error {
	var standby bool
	if err := c.QueryRowContext(ctx, "SELECT pg_is_in_recovery()").Scan(&standby); err != nil {
		return err
	}
	if standby {
		return fmt.Errorf("%w: the server is a standby, whose locks its primary does not know; connect to the primary", sqlrun.ErrNoSessions)
	}
	is, _, err := behindPooler(ctx, c)
	if err == nil && is {
		err = fmt.Errorf("%w: a pooler is between this program and the server, and may give the session to others; connect directly",
			sqlrun.ErrNoSessions)
	}
	return err
}

// pipelineWithout lists what the planner must not use in pipelines. A plan made while a table was
// empty is kept for a minute or longer, and would read everything added since, or sort a whole block.
// So the plan must use an index in its order. Where it cannot, the plan would seem expensive enough to
// be compiled, which does not pay.
var pipelineWithout = []string{"enable_seqscan", "enable_bitmapscan", "enable_sort", "jit"}

var (
	pipelineSettings      = "SELECT set_config('" + strings.Join(pipelineWithout, "', 'off', true), set_config('") + "', 'off', true)"
	briefPipelineSettings = pipelineSettings + ", " + lockTimeout(sqlconn.BriefWait)
)

// pipeline is a transaction: the server commits at its end.
func pipeline(ctx context.Context, driverConn any, texts []string, values [][]any, steps []*sqlrun.Step) (at int, err error) {
	own, ok := driverConn.(*stdlib.Conn)
	if !ok {
		return len(steps), errors.ErrUnsupported
	}
	var batch pgx.Batch
	settings := pipelineSettings
	if sqlconn.IsBrief(ctx) {
		settings = briefPipelineSettings
	}
	batch.Queue(settings)
	for i, text := range texts {
		batch.Queue(text, values[i]...)
	}
	results := own.Conn().SendBatch(ctx, &batch)
	if _, err := results.Exec(); err != nil {
		_ = results.Close() // it would return the same error
		return 0, err
	}
	for i, step := range steps {
		if err := runStep(results, step); err != nil {
			_ = results.Close() // it would return the same error
			return i, err
		}
	}
	return len(steps), results.Close()
}

func runStep(results pgx.BatchResults, step *sqlrun.Step) error {
	if step.Scan == nil {
		tag, err := results.Exec()
		step.Changed = tag.RowsAffected()
		return err
	}
	rows, err := results.Query()
	if err != nil {
		return err
	}
	defer rows.Close()
	var row sqlrun.Row
	var in *format
	for rows.Next() {
		if in == nil {
			if in, err = formatOf(rows.FieldDescriptions()); err != nil {
				return err
			}
		}
		columns, err := in.stored(rows.RawValues())
		if err != nil {
			return err
		}
		if err := row.Give(columns, in.binary, step.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}

func listen(ctx context.Context, driverConn any, channel string, ready func(), heard func(string)) error {
	own, ok := driverConn.(*stdlib.Conn)
	if !ok {
		return fmt.Errorf("notifications through driver %T: %w", driverConn, errors.ErrUnsupported)
	}
	if is, err := pooled(ctx, own); err != nil || is {
		return cmp.Or(err, fmt.Errorf("notifications behind a pooler: %w", errors.ErrUnsupported))
	}
	c := own.Conn()
	if _, err := c.Exec(ctx, "LISTEN "+pgx.Identifier{channel}.Sanitize()); err != nil {
		return err
	}
	// Waiting with ctx would end a second late: cancellation asks the server to end a statement
	// first, and there is none.
	defer context.AfterFunc(ctx, func() { _ = c.PgConn().Conn().Close() })()
	ready()
	for {
		n, err := c.WaitForNotification(context.WithoutCancel(ctx))
		if err != nil {
			return err
		}
		if n.Channel == channel {
			heard(n.Payload)
		}
	}
}
