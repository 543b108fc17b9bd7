package sqlrun

import (
	"context"
	"database/sql/driver"
	"fmt"
	"strings"
)

// settle looks once where the tables are, or would be made, and has all statements name that: a program may change
// the search_path or the database of its connections, for instance for each of its tenants, and a job must
// not end up in the tables of whoever had the connection before.
//
// The class: state of a session that decides where data goes.
func (db *DB) settle(ctx context.Context) error {
	if db.opt.Schema != "" { // Filled has qualified the names
		db.home, db.quoted = db.opt.Schema, db.opt.Schema
		return nil
	}
	if db.Dialect.Home == nil {
		return nil
	}
	home, quoted, err := db.Dialect.Home(ctx, db.pool, db.opt.Prefix+"migration")
	if err != nil {
		return fmt.Errorf("look for the tables: %w", err)
	}
	db.home = home
	// These would be taken for arguments and fragments of the statement.
	if quoted != "" && !strings.ContainsAny(quoted, "':{}?\x00") {
		db.quoted, db.prefix = quoted, quoted+"."+db.opt.Prefix
	}
	return nil
}

// Home returns the schema or database of the tables, "" if it is not known.
func (db *DB) Home() string { return db.home }

// atHome has a connection's transaction work on the tables of db, also in statements that do not name their home:
// migrations, whose text is the same for all homes.
func (db *DB) atHome(ctx context.Context, c driver.Conn) error {
	if db.Dialect.AtHome == nil || db.quoted == "" {
		return nil
	}
	return db.Dialect.AtHome(ctx, c, db.home, db.quoted)
}
