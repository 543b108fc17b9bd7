package dbtest

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/dbcron/dbcron/internal/sqlrun"
)

// A PlanLine is one line of a query plan, by column name.
type PlanLine map[string]string

// String formats the line for messages, as name=value.
func (l PlanLine) String() string {
	var words []string
	for _, name := range slices.Sorted(maps.Keys(l)) {
		if l[name] != "" {
			words = append(words, name+"="+l[name])
		}
	}
	return strings.Join(words, " ")
}

// Plan returns the plan of a statement without running it. It uses one connection, which caches the
// plans that it makes.
func (db *DB) Plan(t *testing.T, c *sql.Conn, stmt *sqlrun.Stmt, args sqlrun.Args) []PlanLine {
	t.Helper()
	plan, err := sqlrun.Select(t.Context(), db.On(explainer{c}), stmt, args, ScanPlan)
	if err != nil || len(plan) == 0 {
		t.Errorf("%s has no plan: %v", stmt.Name, err)
	}
	return plan
}

// Analyze gathers statistics, with the statement of whichever engine it is.
func (db *DB) Analyze(t *testing.T, tables ...string) {
	t.Helper()
	for _, table := range tables {
		if _, err := db.Exec(t.Context(), sqlrun.Unlisted("ANALYZE {prefix}"+table), nil); err == nil {
			continue
		}
		db.List(t, "ANALYZE TABLE {prefix}"+table, nil)
	}
}

// An explainer asks for each query's plan instead of its result, in the engine's syntax.
type explainer struct{ *sql.Conn }

func (x explainer) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	if strings.Contains(query, "max_allowed_packet") { // which decides how a statement is sent
		return x.Conn.QueryContext(ctx, query, args...)
	}
	var rows *sql.Rows
	var err error
	for _, explain := range []string{"EXPLAIN QUERY PLAN ", "EXPLAIN FORMAT=TRADITIONAL ", "EXPLAIN "} {
		if rows, err = x.Conn.QueryContext(ctx, explain+query, args...); err == nil {
			break
		}
	}
	return rows, err
}

// ScanPlan reads a row with any columns.
func ScanPlan(rows *sql.Rows) (PlanLine, error) {
	columns, err := rows.Columns()
	if err != nil {
		return nil, fmt.Errorf("columns: %w", err)
	}
	values, dest := make([]sql.NullString, len(columns)), make([]any, len(columns))
	for i := range values {
		dest[i] = &values[i]
	}
	err = rows.Scan(dest...)
	line := PlanLine{}
	for i, name := range columns {
		line[name] = values[i].String
	}
	return line, err
}
