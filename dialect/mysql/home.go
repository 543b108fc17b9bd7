package mysql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"strings"

	"github.com/dbcron/dbcron/internal/engine"
	"github.com/dbcron/dbcron/internal/sqlconn"
	"github.com/dbcron/dbcron/internal/sqlrun"
)

// home is the database of a connection. On Vitess it may be a target, such as the shard jobs:-80 or
// jobs@replica, which no statement can name: connections alone decide about it.
func home(ctx context.Context, on sqlrun.Execer, _ string) (database, quoted string, err error) {
	var name sql.NullString
	err = engine.QueryRow(ctx, on, "SELECT DATABASE()", nil, &name)
	if name.String == "" || strings.ContainsAny(name.String, ":@/") {
		return name.String, "", err
	}
	return name.String, quoteName(name.String), err
}

// atHome refuses a connection with another database: the migrations ask for DATABASE(). It does not change that,
// because the program may rely on it.
func atHome(ctx context.Context, c driver.Conn, home, _ string) error {
	at, err := sqlconn.Int(ctx, c, "SELECT COALESCE(DATABASE() = "+quoteText(home)+", 0)")
	if err == nil && at != 1 {
		err = fmt.Errorf("%w: a connection of this pool uses another database than %s, where the tables are: migrate with a pool in which nobody runs USE",
			sqlrun.ErrUnfit, home)
	}
	return err
}
