package postgres

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/dbcron/dbcron/internal/sqlrun"
)

// hiding lists tables of which row-level security may hide rows from this user, or refuse rows that they write: for
// one of the commands that they may use, no permissive policy takes all rows, or a restrictive one does not.
const hiding = `
	SELECT c.relname, quote_ident(current_user) FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
	WHERE c.relkind IN ('r', 'p') AND starts_with(CAST(c.relname AS TEXT), $1) AND (n.nspname = $2 OR $2 = '' AND pg_table_is_visible(c.oid))
		AND row_security_active(c.oid) AND EXISTS (
			SELECT 1 FROM (VALUES ('r', 'SELECT'), ('a', 'INSERT'), ('w', 'UPDATE'), ('d', 'DELETE')) AS v (command, verb)
				LEFT JOIN LATERAL (
					SELECT p.polpermissive AS permissive, COALESCE((v.command = 'a' OR pg_get_expr(p.polqual, p.polrelid) = 'true') AND
						(v.command IN ('r', 'd') OR COALESCE(pg_get_expr(p.polwithcheck, p.polrelid), pg_get_expr(p.polqual, p.polrelid)) = 'true'), FALSE) AS takes_all
					FROM pg_policy AS p WHERE p.polrelid = c.oid AND CAST(p.polcmd AS TEXT) IN (v.command, '*') AND EXISTS (
						SELECT 1 FROM unnest(p.polroles) AS r (id) WHERE CASE WHEN r.id = 0 THEN TRUE ELSE pg_has_role(r.id, 'USAGE') END)
				) AS policy ON TRUE
			WHERE has_table_privilege(c.oid, v.verb)
			GROUP BY v.command HAVING NOT COALESCE(BOOL_OR(policy.permissive AND policy.takes_all), FALSE) OR
				COALESCE(BOOL_OR(NOT policy.permissive AND NOT policy.takes_all), FALSE))
	ORDER BY c.relname`

// rowSecurity returns a finding if row-level security hides rows of our tables: an UPDATE of a row that is hidden
// changes none, so that jobs would be enqueued and never done, without an error. Rights say nothing about it.
func rowSecurity(ctx context.Context, db *sqlrun.DB) ([]sqlrun.Finding, error) {
	rows, err := db.Pool().QueryContext(ctx, hiding, db.Options().Prefix, db.Home())
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var tables []string
	var user string
	for rows.Next() {
		var table string
		if err := rows.Scan(&table, &user); err != nil {
			return nil, err
		}
		tables = append(tables, table)
	}
	if err := rows.Err(); err != nil || len(tables) == 0 {
		return nil, err
	}
	ours := sqlrun.Tables(db.Dialect)
	tables = slices.DeleteFunc(tables, func(name string) bool { // others' names may begin like ours
		return !slices.Contains(ours, strings.TrimPrefix(name, db.Options().Prefix))
	})
	if len(tables) == 0 {
		return nil, nil
	}
	some := strings.Join(tables[:min(3, len(tables))], ", ")
	if more := len(tables) - 3; more > 0 {
		some += fmt.Sprintf(" and %d more", more)
	}
	return []sqlrun.Finding{{
		Subject: sqlrun.RowSecurity,
		Detail:  fmt.Sprintf("row-level security hides rows of %s from %s", some, user),
		Advice: fmt.Sprintf("as the owner, for each table: ALTER TABLE %s DISABLE ROW LEVEL SECURITY, or CREATE POLICY dbcron ON %s TO %s USING (true)",
			tables[0], tables[0], user),
	}}, nil
}
