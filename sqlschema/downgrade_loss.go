package sqlschema

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/internal/pattern"
	"github.com/dbcron/dbcron/internal/sqlrun"
)

// LossLimit bounds the number of rows that [Losses] counts in a table.
const LossLimit = 1_000_000

// A Loss is what a downgrade takes from one table: the whole table, or some columns.
type Loss struct {
	Table   string   // its full name
	Columns []string // nil: the table is dropped
	Rows    int64    // number of rows now; LossLimit means that many or more
}

var (
	droppedTable   = pattern.Lazy(`(?m)^DROP TABLE \{prefix\}(\w+);`)
	alteredTable   = pattern.Lazy(`(?m)^ALTER TABLE \{prefix\}(\w+)([^;]*);`)
	droppedColumns = pattern.Lazy(`DROP COLUMN (\w+)`)
)

// Losses lists what migrating down to a version would delete: the tables and columns that have rows,
// tables first. It only reads.
func Losses(ctx context.Context, db *dialect.DB, to int64) ([]Loss, error) {
	at, err := Version(ctx, db)
	if err != nil {
		return nil, err
	}
	// All engines' migrations do the same, and PostgreSQL's are the easiest to parse: SQLite
	// rebuilds tables, and MySQL checks first.
	all, err := files("postgres", db.FurtherMigrations(), "{prefix}", "{name}")
	if err != nil {
		return nil, err
	}
	var tables, altered []string
	columns := map[string][]string{}
	for _, m := range slices.Backward(all) {
		if m.Version > at || m.Version <= to {
			continue
		}
		_, down, _ := strings.Cut(m.text, "-- +goose Down\n")
		for _, found := range droppedTable().FindAllStringSubmatch(down, -1) {
			if found[1] != "migration_checksum" { // nobody's data
				tables = append(tables, found[1])
			}
		}
		for _, found := range alteredTable().FindAllStringSubmatch(down, -1) {
			for _, column := range droppedColumns().FindAllStringSubmatch(found[2], -1) {
				if !strings.Contains(found[2], "ADD COLUMN "+column[1]+" ") { // otherwise the column is only computed anew
					columns[found[1]] = append(columns[found[1]], column[1])
				}
			}
			altered = append(altered, found[1])
		}
	}
	slices.Sort(tables)
	slices.Sort(altered)
	var losses []Loss
	for _, table := range slices.Concat(tables, slices.Compact(altered)) {
		lost := columns[table]
		if dropped := slices.Contains(tables, table); dropped {
			lost = nil
		} else if lost == nil {
			continue
		}
		rows, err := countRows(ctx, db, table)
		if err != nil {
			return nil, err
		}
		loss := Loss{Table: db.Name() + table, Columns: lost, Rows: rows}
		if rows > 0 && !slices.ContainsFunc(losses, func(l Loss) bool { return l.Table == loss.Table }) {
			losses = append(losses, loss)
		}
	}
	return losses, nil
}

// countRows counts the rows of a table up to LossLimit. A missing table has none.
func countRows(ctx context.Context, db *dialect.DB, table string) (n int64, err error) {
	err = db.Pool().QueryRowContext(ctx, fmt.Sprintf("SELECT COUNT(*) FROM (SELECT 1 AS one FROM %s%s LIMIT %d) AS counted",
		db.Prefix(), table, LossLimit)).Scan(&n)
	if db.Dialect.Missing(err) {
		return 0, nil
	}
	return n, err
}

var liveNodes = sqlrun.SQL("sqlschema.live-nodes", `
	SELECT name FROM {prefix}node WHERE state = 'live' AND expire_at > {now} ORDER BY name`)

// LiveNodes lists the processes that use the tables now, according to these: daemons that run
// schedules, and workers. It only reads, at any version of the schema.
func LiveNodes(ctx context.Context, db *dialect.DB) ([]string, error) {
	names, err := sqlrun.Select(ctx, &db.Session, liveNodes, nil, func(rows *sql.Rows) (name string, err error) {
		return name, rows.Scan(&name)
	})
	if db.Dialect.Missing(err) {
		return nil, nil
	}
	return names, err
}
