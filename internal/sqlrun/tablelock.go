package sqlrun

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"

	"github.com/dbcron/dbcron/internal/sqlconn"
)

// TableLocks is how an engine bounds the wait for a lock on a table. A statement that changes a table waits
// until all transactions that have used the table end, and whoever wants to use it meanwhile waits behind
// that statement: a report or a dump that takes an hour would stop everything for an hour. So the statement gives up
// soon, and its caller tries again later.
type TableLocks struct {
	Bound   string // begins a transaction whose statements wait for locks for about a second
	Unbound string // is run before such a transaction ends; "": the bound ends with it

	TimedOut func(error) bool // a statement has given up

	// Holders is a query for transactions that have been open for long and may hold locks on our
	// tables, one line per transaction. Its arguments, if HoldersOf is not nil, are those of a prefix.
	Holders   string
	HoldersOf func(prefix string) []any

	// Waits finds transactions for whose locks on our tables others have waited for seconds, with the same arguments.
	Waits Strain
}

// Patient returns a pool for statements that change tables: each of its transactions waits for locks for about a
// second, and unqualified names in it are those of db's tables. It takes one connection of db's pool at a time,
// during use only. The caller must close it.
func (db *DB) Patient() *sql.DB {
	locks := db.Dialect.TableLocks
	if locks == nil {
		locks = &TableLocks{}
	}
	pool := sqlconn.BorrowThrough(db.pool, func(_ context.Context, c driver.Conn) (sqlconn.Around, error) {
		return func(ctx context.Context, op string, call func() error) error {
			switch {
			case op == "begin":
				if err := call(); err != nil {
					return err
				}
				err := db.atHome(ctx, c)
				if err == nil && locks.Bound != "" {
					err = sqlconn.Exec(ctx, c, locks.Bound)
				}
				if err != nil {
					return errors.Join(err, sqlconn.Exec(ctx, c, "ROLLBACK")) // nobody else would end it
				}
				return nil
			case (op == "commit" || op == "rollback") && locks.Unbound != "":
				if err := sqlconn.Exec(ctx, c, locks.Unbound); err != nil {
					return errors.Join(err, sqlconn.ErrCut) // it must not keep the bound
				}
			}
			return call()
		}, nil
	})
	pool.SetMaxOpenConns(1)
	pool.SetMaxIdleConns(-1)
	return pool
}

// TableLockHolders lists the oldest transactions that may hold locks on db's tables, as far as the user may see
// them.
func (db *DB) TableLockHolders(ctx context.Context) ([]string, error) {
	locks := db.Dialect.TableLocks
	if locks == nil || locks.Holders == "" {
		return nil, nil
	}
	s := db.ofTables(Strain{Query: locks.Holders})
	lines, err := db.linesOf(ctx, &s)
	if db.Dialect.Denied(err) {
		return nil, nil
	}
	return lines, err
}

// ofTables returns a query about locks with its arguments.
func (db *DB) ofTables(s Strain) Strain {
	if of := db.Dialect.TableLocks.HoldersOf; of != nil {
		s.Args = of(db.opt.Prefix)
	}
	return s
}

// TableLockWaits finds transactions that keep others waiting for db's tables, as far as the user may see them.
func (db *DB) TableLockWaits(ctx context.Context) ([]Finding, error) {
	locks := db.Dialect.TableLocks
	if locks == nil || locks.Waits.Query == "" {
		return nil, nil
	}
	return db.Strains(ctx, []Strain{db.ofTables(locks.Waits)})
}
