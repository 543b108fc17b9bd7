package lock

import (
	"context"
	"database/sql"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/dbtest"
)

// An explainer asks for the plan of each statement instead of running it.
type explainer struct{ *sql.Conn }

func (x explainer) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	rows, err := x.Conn.QueryContext(ctx, "EXPLAIN QUERY PLAN "+query, args...)
	if err != nil { // most engines do without the two words
		rows, err = x.Conn.QueryContext(ctx, "EXPLAIN "+query, args...)
	}
	return rows, err
}

// A table that is read from its start. Beyond that, no plan of these needs to
// be looked at: a primary key is all that there is.
var scans = regexp.MustCompile(`Seq Scan|SCAN \S*_lock(_fence)?\b|select_type=[^I]\S* table=\S*_lock(_fence)? type=(ALL|index)`)

// Every statement finds its row by the key, among 20 000 locks, also when it was
// planned on an empty table.
func TestPlans(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		args := dialect.Args{
			"name": "n7", "slot": 0, "owner": "x", "fence": 1, "ttl": 1, "meta": "", "session": "", "me": "x", "min": 1, "by": "x",
			"why": "x", "seen": "x", "seen_fence": 1, "slots": []int64{1, 2}, "names": []string{"n7", "n8"}, "after": "n7", "limit": 5,
			"ago": 1, "patience": 1, "channel": "x", "rows": []dialect.Args{{"name": "n7", "slot": 0, "state": "FREE", "fence": 0}},
		}
		conn, err := db.Pool().Conn(t.Context())
		must(t, err)
		defer conn.Close()
		explain := func(what string) {
			for _, stmt := range dialect.Statements() {
				if !strings.HasPrefix(stmt.Name, "lock.") {
					continue
				}
				lines, err := dialect.Select(t.Context(), db.On(explainer{conn}), stmt, args, planLine)
				if err != nil {
					t.Errorf("%s: %v", stmt.Name, err)
				}
				for _, line := range lines {
					if scans.MatchString(line) {
						t.Errorf("%s, %s reads the whole table:\n%s", what, stmt.Name, strings.Join(lines, "\n"))
						break
					}
				}
			}
		}
		for part := range 20 {
			var rows []dialect.Args
			for i := range 1000 {
				rows = append(rows, dialect.Args{"name": fmt.Sprintf("n%d", part*1000+i), "slot": 0, "state": "FREE", "fence": 1})
			}
			for _, stmt := range []*dialect.Stmt{create, createFence} {
				_, err := db.Exec(t.Context(), stmt, dialect.Args{"rows": rows})
				must(t, err)
			}
		}
		explain("without statistics")
		analyze := "ANALYZE"
		if db.Dialect.Next("x") != "x = x + 1" { // an engine that wants to be told which
			analyze = "ANALYZE TABLE {prefix}lock, {prefix}lock_fence"
		}
		db.Do(t, analyze, nil)
		explain("with statistics")
	})
}

func planLine(rows *sql.Rows) (string, error) {
	columns, err := rows.Columns()
	if err != nil {
		return "", err
	}
	values, dest := make([]sql.NullString, len(columns)), make([]any, len(columns))
	for i := range values {
		dest[i] = &values[i]
	}
	err = rows.Scan(dest...)
	var words []string
	for i, v := range values {
		if v.Valid {
			words = append(words, columns[i]+"="+v.String)
		}
	}
	return strings.Join(words, " "), err
}
