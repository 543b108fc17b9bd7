package postgres

import (
	"context"
	"database/sql"
	"errors"

	"github.com/dbcron/dbcron/internal/sqlrun"
)

// holdings reads the catalogs, which everybody may do. It takes groups, owners and superusers into
// account.
func holdings(ctx context.Context, db *sqlrun.DB, want sqlrun.Rights) (*sqlrun.Holdings, error) {
	h := &sqlrun.Holdings{Lacks: sqlrun.Rights{}}
	var schema string
	var usage bool
	args := sqlrun.Args{"schema": db.Options().Schema, "table": db.Options().Prefix + "migration"}
	err := db.Get(ctx, tableUser, args, &h.User, &schema, &usage)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	h.Tables = schema + "." + db.Options().Prefix
	if !usage {
		h.Schema = schema
	}
	var rows []sqlrun.Args
	for table, verbs := range want {
		for _, verb := range verbs {
			rows = append(rows, sqlrun.Args{"name": table, "verb": verb})
		}
	}
	args = sqlrun.Args{"rows": rows, "schema": schema, "prefix": db.Options().Prefix}
	_, err = sqlrun.Select(ctx, &db.Session, lackedRights, args, func(rows *sql.Rows) (_ struct{}, err error) {
		var table, verb string
		if err = rows.Scan(&table, &verb); err == nil {
			h.Lacks.Hold(table, verb)
		}
		return
	})
	return h, err
}

// Unlisted, since no other engine has these.
var (
	tableUser = sqlrun.Unlisted(`SELECT quote_ident(current_user), quote_ident(n.nspname), has_schema_privilege(n.oid, 'USAGE')
		FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
		WHERE c.relname = :table AND (n.nspname = :schema OR :schema = '' AND pg_table_is_visible(c.oid))`)

	lackedRights = sqlrun.Unlisted(`SELECT record.name, record.verb FROM {records rows: name text, verb text}
		JOIN pg_class AS c ON c.relname = :prefix || record.name
		JOIN pg_namespace AS n ON n.oid = c.relnamespace AND quote_ident(n.nspname) = :schema
		WHERE NOT has_table_privilege(c.oid, record.verb)`)
)
