package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/stdlib"

	"github.com/dbcron/dbcron/internal/sqlconn"
	"github.com/dbcron/dbcron/internal/sqlrun"
)

// Servers that speak PostgreSQL's protocol may lack some of its features, and an administrator can
// revoke the right to a function. So dbcron tries each feature in a transaction that it rolls back:
// nobody receives the notification, and no lock remains.

// A trial is a list of queries that work if a feature exists. Each must return true.
type trial struct {
	feature sqlrun.Feature
	queries []string
}

func trials() []trial {
	key := strconv.FormatInt(rand.Int64(), 10) // a key that nobody else uses
	return []trial{
		{sqlrun.Notifications, []string{"LISTEN dbcron_probe", "SELECT pg_notify('dbcron_probe', '') IS NOT NULL"}},
		// The server must also list the lock: some servers have such functions as no-ops.
		{sqlrun.AdvisoryLocks, []string{"SELECT CASE WHEN pg_try_advisory_xact_lock(" + key + ") THEN EXISTS (" +
			"SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid() AND granted) END"}},
		{sqlrun.Sessions, []string{"SELECT CASE WHEN pg_try_advisory_lock(" + key + ") THEN pg_advisory_unlock(" + key + ") END"}},
	}
}

// without finds out what the server lacks, what its user may not use, and what a pooler in between
// does not support.
func without(ctx context.Context, c *sql.Conn, known map[sqlrun.Feature]string) (lacks []sqlrun.Lack, err error) {
	is, _, err := behindPooler(ctx, c)
	if err != nil {
		return nil, err
	}
	if is {
		lacks = []sqlrun.Lack{
			{Feature: sqlrun.Listening, Why: "a pooler is between this program and the server"},
			{Feature: sqlrun.Sessions, Why: "a pooler is between this program and the server, and may give the session to others; connect directly"},
		}
	}
	trials := slices.DeleteFunc(trials(), func(t trial) bool {
		_, is := known[t.feature]
		return is || slices.ContainsFunc(lacks, func(l sqlrun.Lack) bool { return l.Feature == t.feature })
	})
	var all []string
	for _, t := range trials {
		all = append(all, t.queries...)
	}
	why, err := try(ctx, c, all)
	if err != nil || why == "" { // all in one round trip, the usual case
		return lacks, err
	}
	for _, t := range trials {
		if why, err = try(ctx, c, t.queries); err != nil {
			return nil, err
		}
		if why != "" {
			lacks = append(lacks, sqlrun.Lack{Feature: t.feature, Why: why})
		}
	}
	return lacks, nil
}

// try runs queries in a transaction that it rolls back, and returns why they do not work, or "".
func try(ctx context.Context, c *sql.Conn, queries []string) (why string, err error) {
	works := true
	err = c.Raw(func(driverConn any) (err error) {
		own, ok := sqlconn.Unwrap(driverConn).(*stdlib.Conn)
		if !ok {
			return errors.ErrUnsupported
		}
		works, err = tryAtOnce(ctx, own, queries)
		return err
	})
	if errors.Is(err, errors.ErrUnsupported) {
		works, err = tryEach(ctx, c, queries)
	}
	switch {
	case err == nil && works:
		return "", nil
	case err == nil:
		return "the server has such a function, which does nothing", nil
	case refused(err) || sqlState("0A000")(err):
		return err.Error(), nil
	}
	return "", fmt.Errorf("find out what the server has: %w", err)
}

// tryAtOnce is try in one round trip.
func tryAtOnce(ctx context.Context, own *stdlib.Conn, queries []string) (works bool, err error) {
	c := own.Conn().PgConn()
	results, err := c.Exec(ctx, "BEGIN; "+strings.Join(append(slices.Clone(queries), "ROLLBACK"), "; ")).ReadAll()
	if err != nil {
		_, rollback := c.Exec(ctx, "ROLLBACK").ReadAll()
		if rollback != nil {
			err = errors.Join(err, rollback)
		}
		return false, err
	}
	for _, r := range results {
		if len(r.FieldDescriptions) > 0 && (len(r.Rows) != 1 || string(r.Rows[0][0]) != "t") {
			return false, nil
		}
	}
	return true, nil
}

// tryEach is try for drivers other than pgx's.
func tryEach(ctx context.Context, c *sql.Conn, queries []string) (works bool, err error) {
	tx, err := c.BeginTx(ctx, nil)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, tx.Rollback()) }()
	for _, query := range queries {
		var is sql.NullBool
		err := tx.QueryRowContext(ctx, query).Scan(&is)
		switch {
		case errors.Is(err, sql.ErrNoRows): // LISTEN returns no rows
		case err != nil:
			return false, err
		case !is.Bool:
			return false, nil
		}
	}
	return true, nil
}
