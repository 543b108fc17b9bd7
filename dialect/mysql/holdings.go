package mysql

import (
	"context"
	"strings"

	"github.com/dbcron/dbcron/internal/sqlrun"
)

// holdings tries each right with a statement that always fails, because it names a column that no
// table has: the server checks rights on the table first. The server's own tables would not account
// for roles, patterns and partial revokes.
func holdings(ctx context.Context, db *sqlrun.DB, want sqlrun.Rights) (*sqlrun.Holdings, error) {
	var user string
	if err := db.Get(ctx, sqlrun.Unlisted("SELECT CURRENT_USER()"), nil, &user); err != nil {
		return nil, err
	}
	at := strings.LastIndexByte(user, '@')
	h := &sqlrun.Holdings{User: quoteText(user[:at]) + "@" + quoteText(user[at+1:]), Tables: quoteName(db.Home()) +
		"." + db.Options().Prefix, Lacks: sqlrun.Rights{}}
	denied, other := numbered(1142), numbered(1054, 1143, 1146) // 1143: holds it on some columns
	for table, verbs := range want {
		for _, verb := range verbs {
			_, err := db.Pool().ExecContext(ctx, strings.ReplaceAll(probes[verb], "{table}", db.Prefix()+table))
			if denied(err) {
				h.Lacks.Hold(table, verb)
			} else if !other(err) {
				return nil, err
			}
		}
	}
	return h, nil
}

var probes = map[string]string{
	"SELECT": "SELECT no_such_column FROM {table}",
	"INSERT": "INSERT INTO {table} (no_such_column) VALUES (1)",
	"UPDATE": "UPDATE {table} SET no_such_column = 1",
	"DELETE": "DELETE FROM {table} WHERE no_such_column = 1",
}

func quoteText(s string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, "'", "''").Replace(s) + "'"
}

func quoteName(s string) string { return "`" + strings.ReplaceAll(s, "`", "``") + "`" }
