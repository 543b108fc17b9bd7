// Package engine has what the packages of several engines share: parts of their SQL, and short ways
// to query a connection.
package engine

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"hash/fnv"
	"strings"
)

// Listed joins the results of as for each element, separated by commas.
func Listed[T any](list []T, as func(T) string) string {
	texts := make([]string, len(list))
	for i, x := range list {
		texts[i] = as(x)
	}
	return strings.Join(texts, ", ")
}

// SameKey compares the key columns of table with those of picked.
func SameKey(table string, key []string) string {
	same := make([]string, len(key))
	for i, column := range key {
		same[i] = table + "." + column + " = picked." + column
	}
	return strings.Join(same, " AND ")
}

// Also adds a condition, if there is one.
func Also(word, condition string) string {
	if condition == "" {
		return ""
	}
	return word + condition
}

// AddOnConflict is Dialect.AddDuplicate for engines with ON CONFLICT.
func AddOnConflict(table, key string, columns []string) string {
	sums := make([]string, len(columns))
	for i, c := range columns {
		sums[i] = c + " = " + table + "." + c + " + excluded." + c
	}
	return "ON CONFLICT (" + key + ") DO UPDATE SET " + strings.Join(sums, ", ")
}

// UpdateFrom is Dialect.UpdateFrom for engines whose UPDATE can have WITH and FROM.
func UpdateFrom(table string, key []string, set, condition, pick string) string {
	// MATERIALIZED, because the engine may run a plain subquery with a LIMIT more than once.
	return "WITH picked AS MATERIALIZED (" + pick + ")\nUPDATE " + table + " SET " + set +
		" FROM picked WHERE " + SameKey(table, key) + Also(" AND ", condition)
}

// DeleteFrom is Dialect.DeleteFrom for engines whose DELETE can have WITH and USING.
func DeleteFrom(table string, key []string, pick string) string {
	return "WITH picked AS MATERIALIZED (" + pick + ")\nDELETE FROM " + table + " USING picked WHERE " + SameKey(table, key)
}

// A Querier runs queries: a *sql.DB, *sql.Conn or *sql.Tx.
type Querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// QueryRow scans the first row of a query, or returns sql.ErrNoRows.
func QueryRow(ctx context.Context, on Querier, query string, values []any, dest ...any) error {
	rows, err := on.QueryContext(ctx, query, values...)
	if err != nil {
		return err
	}
	defer rows.Close()
	if !rows.Next() {
		return cmp.Or(rows.Err(), sql.ErrNoRows)
	}
	if err := rows.Scan(dest...); err != nil {
		return err
	}
	return rows.Close()
}

// QueryBool runs a query that returns one boolean.
func QueryBool(ctx context.Context, c *sql.Conn, query string, args ...any) (bool, error) {
	var yes sql.NullBool
	err := c.QueryRowContext(ctx, query, args...).Scan(&yes)
	return yes.Bool, err
}

// HoldsRow runs a query that locks a row, and reports whether it did. A lock that somebody else holds
// is not an error.
func HoldsRow(ctx context.Context, c *sql.Conn, query string, held func(error) bool) (bool, error) {
	var one any
	err := c.QueryRowContext(ctx, query).Scan(&one)
	if held(err) {
		return false, nil
	}
	if errors.Is(err, sql.ErrNoRows) {
		err = errors.New("the row to lock is not there")
	}
	return err == nil, err
}

// Discard closes the connection itself instead of returning it to the pool.
func Discard(c *sql.Conn) {
	_ = c.Raw(func(any) error { return driver.ErrBadConn })
	_ = c.Close() // it is gone already
}

// LockKey hashes a lock's name to the 64 bits that PostgreSQL's advisory locks take.
func LockKey(name string) int64 {
	h := fnv.New64a()
	h.Write([]byte("dbcron:" + name))
	return int64(h.Sum64())
}

// Version reads the first two numbers of a version such as 10.11.19-MariaDB.
func Version(version string) (major, minor int) {
	_, _ = fmt.Sscanf(version, "%d.%d", &major, &minor) // what is not a number stays 0, and is refused as too old
	return major, minor
}
