package dialect

import (
	"context"
	"database/sql"
	"errors"
	"strings"
)

// Holdings are what the user of a connection may do with dbcron's tables.
type Holdings struct {
	User   string // as a GRANT names it
	Tables string // what stands before a table's name in a GRANT: schema or database, and prefix
	Schema string // the schema whose tables the user cannot reach, for want of USAGE; "": none
	Lacks  Rights // those of the rights asked for that the user does not hold
}

// postgresHoldings asks the catalogs, which everybody may read. Rights of groups, owners and
// superusers count.
func postgresHoldings(ctx context.Context, db *DB, want Rights) (*Holdings, error) {
	h := &Holdings{Lacks: Rights{}}
	var schema string
	var usage bool
	args := Args{"schema": db.opt.Schema, "table": db.opt.Prefix + "migration"}
	err := db.Get(ctx, postgresUser, args, &h.User, &schema, &usage)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	h.Tables = schema + "." + db.opt.Prefix
	if !usage {
		h.Schema = schema
	}
	var rows []Args
	for table, verbs := range want {
		for _, verb := range verbs {
			rows = append(rows, Args{"name": table, "verb": verb})
		}
	}
	args = Args{"rows": rows, "schema": schema, "prefix": db.opt.Prefix}
	_, err = Select(ctx, &db.Session, postgresLacks, args, func(rows *sql.Rows) (_ struct{}, err error) {
		var table, verb string
		if err = rows.Scan(&table, &verb); err == nil {
			h.Lacks.add(table, verb)
		}
		return
	})
	return h, err
}

// Not listed with the others, since no other engine has these.
var (
	postgresUser = &Stmt{Name: "dialect.user", shape: func(*Dialect) string {
		return `SELECT quote_ident(current_user), quote_ident(n.nspname), has_schema_privilege(n.oid, 'USAGE')
		FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
		WHERE c.relname = :table AND (n.nspname = :schema OR :schema = '' AND pg_table_is_visible(c.oid))`
	}}

	postgresLacks = &Stmt{Name: "dialect.lacks", shape: func(*Dialect) string {
		return `SELECT record.name, record.verb FROM {records rows: name text, verb text}
		JOIN pg_class AS c ON c.relname = :prefix || record.name
		JOIN pg_namespace AS n ON n.oid = c.relnamespace AND quote_ident(n.nspname) = :schema
		WHERE NOT has_table_privilege(c.oid, record.verb)`
	}}
)

// mysqlHoldings tries each right with a statement that fails in any case, since it names a
// column that no table has: the server looks at the rights on the table first. What the
// server's own tables say would leave out roles, patterns and revoked parts.
func mysqlHoldings(ctx context.Context, db *DB, want Rights) (*Holdings, error) {
	var user, database string
	if err := db.Get(ctx, &Stmt{Name: "dialect.user", shape: func(*Dialect) string { return "SELECT CURRENT_USER(), DATABASE()" }}, nil, &user, &database); err != nil {
		return nil, err
	}
	at := strings.LastIndexByte(user, '@')
	h := &Holdings{User: mysqlText(user[:at]) + "@" + mysqlText(user[at+1:]), Tables: mysqlName(database) + "." + db.prefix, Lacks: Rights{}}
	denied, other := mysqlError(1142), mysqlError(1054, 1143, 1146) // 1143: holds it on some columns
	for table, verbs := range want {
		for _, verb := range verbs {
			_, err := db.pool.ExecContext(ctx, strings.ReplaceAll(mysqlProbes[verb], "{table}", db.prefix+table))
			if denied(err) {
				h.Lacks.add(table, verb)
			} else if !other(err) {
				return nil, err
			}
		}
	}
	return h, nil
}

var mysqlProbes = map[string]string{
	"SELECT": "SELECT no_such_column FROM {table}",
	"INSERT": "INSERT INTO {table} (no_such_column) VALUES (1)",
	"UPDATE": "UPDATE {table} SET no_such_column = 1",
	"DELETE": "DELETE FROM {table} WHERE no_such_column = 1",
}

func mysqlText(s string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, "'", "''").Replace(s) + "'"
}

func mysqlName(s string) string { return "`" + strings.ReplaceAll(s, "`", "``") + "`" }
