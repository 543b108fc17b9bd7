package dbtest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/dbcron/dbcron/dialect"
)

var poolMySQL = &pooling{
	lock:      "SELECT GET_LOCK('%[1]s', 0)",
	unlock:    "SELECT RELEASE_LOCK('%[1]s')",
	there:     "SELECT COUNT(*) FROM information_schema.schemata WHERE schema_name = '%[1]s'",
	connected: connectedMySQL,
	template: func(ctx context.Context, admin *dialect.DB, adminURL string) (template, error) {
		like, err := templateMySQL(ctx, adminURL)
		if err != nil {
			return template{}, err
		}
		c, err := admin.Pool().Conn(ctx)
		if err != nil {
			return template{}, err
		}
		defer c.Close()
		described, err := describe(ctx, c, fmt.Sprintf(linesMySQL, like))
		return template{like, described}, err
	},
	empty: emptyMySQL,
}

// connectedMySQL uses SHOW, since information_schema.processlist fails on MySQL while anybody's statement has
// a character of four bytes.
func connectedMySQL(ctx context.Context, c *sql.Conn, name string) (n int, err error) {
	rows, err := c.QueryContext(ctx, "SHOW PROCESSLIST")
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	for rows.Next() {
		line, err := ScanPlan(rows) // by column, since engines have different ones
		if err != nil {
			return 0, err
		}
		if line["db"] == name {
			n++
		}
	}
	return n, rows.Err()
}

// linesMySQL selects a line for everything that is no row.
const linesMySQL = `
	SELECT CONCAT_WS(' ', table_name, table_type, engine, table_collation, row_format, create_options) FROM information_schema.tables
	WHERE table_schema = '%[1]s' AND table_name <> 'whole'
	UNION ALL SELECT CONCAT_WS(' ', table_name, ordinal_position, column_name, column_type, is_nullable, column_default, collation_name, extra)
	FROM information_schema.columns WHERE table_schema = '%[1]s' AND table_name <> 'whole'
	UNION ALL SELECT CONCAT_WS(' ', table_name, index_name, seq_in_index, column_name, non_unique)
	FROM information_schema.statistics WHERE table_schema = '%[1]s'
	UNION ALL SELECT CONCAT_WS(' ', table_name, constraint_name, constraint_type)
	FROM information_schema.table_constraints WHERE table_schema = '%[1]s'
	UNION ALL SELECT CONCAT_WS(' ', event_object_table, trigger_name) FROM information_schema.triggers WHERE trigger_schema = '%[1]s'
	UNION ALL SELECT CONCAT_WS(' ', routine_type, routine_name, SHA2(routine_definition, 256)) FROM information_schema.routines WHERE routine_schema = '%[1]s'
	UNION ALL SELECT CONCAT_WS(' ', event_name) FROM information_schema.events WHERE event_schema = '%[1]s'
	UNION ALL SELECT CONCAT_WS(' ', default_character_set_name, default_collation_name) FROM information_schema.schemata WHERE schema_name = '%[1]s'
	UNION ALL SELECT CONCAT_WS(' ', version_id, is_applied) FROM %[1]s.dbcron_migration
	UNION ALL SELECT CONCAT_WS(' ', version, checksum) FROM %[1]s.dbcron_migration_checksum`

// emptyMySQL deletes rows where there are a few, since TRUNCATE makes the table anew.
func emptyMySQL(ctx context.Context, c *sql.Conn, _, name, described string) (same bool, err error) {
	for _, clock := range clocks {
		if _, err := c.ExecContext(ctx, fmt.Sprintf("DROP TABLE IF EXISTS %s.%s", name, clock)); err != nil {
			return false, err
		}
	}
	is, err := describe(ctx, c, fmt.Sprintf(linesMySQL, name))
	if err != nil || is != described {
		return false, err
	}
	_, _ = c.ExecContext(ctx, "SET SESSION information_schema_stats_expiry = 0") // MariaDB has and needs no such variable
	tables, err := usedMySQL(ctx, c, name)
	if err != nil {
		return false, err
	}
	for _, table := range tables {
		var has bool
		if err := ask(ctx, c, "SELECT EXISTS (SELECT 1 FROM %s)", table.name, &has); err != nil {
			return false, err
		}
		switch {
		case table.numbered, has && table.large:
			_, err = c.ExecContext(ctx, "TRUNCATE TABLE "+table.name)
		case has:
			_, err = c.ExecContext(ctx, "DELETE FROM "+table.name)
		}
		if err != nil {
			return false, err
		}
	}
	_, err = c.ExecContext(ctx, fmt.Sprintf(lastFence, name))
	return true, err
}

type usedTable struct {
	name            string
	large, numbered bool // has many rows; has given numbers to rows
}

func usedMySQL(ctx context.Context, c *sql.Conn, name string) (tables []usedTable, err error) {
	rows, err := c.QueryContext(ctx, fmt.Sprintf(`SELECT table_name, COALESCE(table_rows, 0) > 500, COALESCE(auto_increment, 0) > 1
		FROM information_schema.tables WHERE table_schema = '%s' AND table_type = 'BASE TABLE' AND table_name NOT LIKE 'dbcron\_migration%%'`, name))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var table usedTable
		if err := rows.Scan(&table.name, &table.large, &table.numbered); err != nil {
			return nil, err
		}
		table.name = name + "." + table.name
		tables = append(tables, table)
	}
	return tables, errors.Join(rows.Err(), rows.Close())
}
