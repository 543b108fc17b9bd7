package postgres

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"

	"github.com/dbcron/dbcron/internal/engine"
	"github.com/dbcron/dbcron/internal/sqlconn"
	"github.com/dbcron/dbcron/internal/sqlrun"
)

// home is the first schema of the search_path that has the table, or else the first of all, where it would be
// made. Temporary tables, which PostgreSQL finds before any others, are none of ours.
func home(ctx context.Context, on sqlrun.Execer, table string) (schema, quoted string, err error) {
	err = engine.QueryRow(ctx, on, `SELECT n.nspname, quote_ident(n.nspname)
		FROM pg_namespace AS n LEFT JOIN pg_class AS c ON c.relnamespace = n.oid AND c.relname = $1
		WHERE n.nspname = ANY (current_schemas(false)) AND n.oid <> pg_my_temp_schema()
		ORDER BY c.oid IS NULL, array_position(current_schemas(false), n.nspname) LIMIT 1`, []any{table}, &schema, &quoted)
	if errors.Is(err, sql.ErrNoRows) || sqlState("42704", "42883", "0A000")(err) { // no schema, or no such functions
		err = nil
	}
	return schema, quoted, err
}

// atHome makes unqualified names those of the home until the transaction ends. Without pg_temp in the list
// temporary tables would precede it.
func atHome(ctx context.Context, c driver.Conn, _, quoted string) error {
	return sqlconn.Exec(ctx, c, "SET LOCAL search_path = "+quoted+", pg_temp")
}
