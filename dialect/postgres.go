package dialect

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/stdlib"
)

// Postgres is PostgreSQL, from 14 on.
var Postgres = &Dialect{
	Name:    "postgres",
	Goose:   "postgres",
	Schemes: []string{"postgres", "postgresql"},

	Placeholder: func(n int) string { return "$" + strconv.Itoa(n) },
	// Not now(), which is the start of the transaction; not clock_timestamp(),
	// which is volatile, so that a range on it could not use an index.
	Now: "statement_timestamp()",
	Add: func(t, us string) string {
		return "(" + t + " + CAST(" + us + " AS BIGINT) * INTERVAL '1 microsecond')"
	},
	// Seconds and µs apart: µs alone times an interval is computed in floating
	// point, and is one off in far years.
	FromMicros: func(us string) string {
		us = "CAST(" + us + " AS BIGINT)"
		return "(TIMESTAMPTZ 'epoch' + " + us + " / 1000000 * INTERVAL '1 second' + " + us + " % 1000000 * INTERVAL '1 microsecond')"
	},
	ToMicros: func(t string) string { return "CAST(EXTRACT(EPOCH FROM " + t + ") * 1000000 AS BIGINT)" },
	BigInt:   "BIGINT",

	SkipLocked:      "FOR UPDATE SKIP LOCKED",
	IgnoreDuplicate: func(string) string { return "ON CONFLICT DO NOTHING" },
	UpdateFrom: func(table, set, pick string) string {
		// MATERIALIZED, because a LIMIT in a plain subquery can be run again.
		return "WITH picked AS MATERIALIZED (" + pick + ")\nUPDATE " + table + " SET " + set +
			" FROM picked WHERE " + table + ".id = picked.id"
	},

	Isolation: sql.LevelReadCommitted,
	// A process that is stopped in the middle of a transaction must not keep its
	// locks. LOCAL, because a pooler may give the session to somebody else next.
	OnBegin: "SET LOCAL idle_in_transaction_session_timeout = '5s'",

	Duplicate: sqlState("23505"),
	Missing:   sqlState("42P01"),
	Retryable: sqlState("40001", "40P01"),
	Unavailable: func(err error) bool {
		return networkError(err) || sqlState("57P01", "57P02", "57P03", "53300")(err) ||
			sqlState("08000", "08001", "08003", "08004", "08006", "08P01")(err) // poolers use these
	},

	Connector: postgresConnector,
	Check:     postgresCheck,
	Exclusive: postgresExclusive,
	DDLInTx:   true,
	Schema:    true,
}

// sqlState tells errors by SQLSTATE. Any driver's error that has the usual
// method fits, so that a caller's pool need not be pgx's.
func sqlState(codes ...string) func(error) bool {
	return func(err error) bool {
		var e interface{ SQLState() string }
		return errors.As(err, &e) && slices.Contains(codes, e.SQLState())
	}
}

func postgresConnector(u *url.URL, opt Options) (driver.Connector, error) {
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
	// A statement whose context ends is cancelled in the server, and its end is
	// waited for: it must not be granted a lock after nobody wants it any more.
	cfg.BuildContextWatcherHandler = func(c *pgconn.PgConn) ctxwatch.Handler {
		return &pgconn.CancelRequestContextWatcherHandler{Conn: c, DeadlineDelay: time.Second}
	}
	return stdlib.GetConnector(*cfg), nil
}

func postgresCheck(ctx context.Context, pool *sql.DB) ([]Finding, error) {
	var version int
	var name, readOnly, encoding, isolation string
	err := pool.QueryRowContext(ctx, `SELECT CAST(current_setting('server_version_num') AS INT), current_setting('server_version'),
		current_setting('transaction_read_only'), current_setting('server_encoding'), current_setting('transaction_isolation')`).
		Scan(&version, &name, &readOnly, &encoding, &isolation)
	if err != nil {
		return nil, err
	}
	return []Finding{
		{
			Subject: "version", OK: version >= 140000, Detail: "PostgreSQL " + name,
			Advice: "use PostgreSQL 14 or later",
		},
		{
			Subject: "writable", OK: readOnly == "off", Detail: "transaction_read_only = " + readOnly,
			Advice: "connect to the primary (target_session_attrs=read-write in the URL finds it), or unset default_transaction_read_only",
		},
		{
			Subject: "encoding", OK: encoding == "UTF8", Detail: "server_encoding = " + encoding,
			Advice: "create the database with ENCODING 'UTF8'",
		},
		{
			Subject: "isolation", OK: true,
			Detail: fmt.Sprintf("session default %q; dbcron's transactions ask for read committed themselves", isolation),
		},
	}, nil
}

// postgresExclusive waits by asking again, because a statement that blocks on
// the lock would hold a snapshot, and be ended by the statement timeout.
func postgresExclusive(ctx context.Context, db *DB, name string) (func(), error) {
	return pinned(ctx, db, name,
		func(ctx context.Context, c *sql.Conn) (got bool, err error) {
			err = c.QueryRowContext(ctx, "SELECT pg_try_advisory_lock($1)", lockKey(name)).Scan(&got)
			return got, err
		},
		func(ctx context.Context, c *sql.Conn) (freed bool, err error) {
			err = c.QueryRowContext(ctx, "SELECT pg_advisory_unlock($1)", lockKey(name)).Scan(&freed)
			return freed, err
		})
}
