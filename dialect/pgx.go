package dialect

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Pgx makes a transaction of pgx's own fit to be an Execer, for statements that
// return no rows: those that enqueue and complete jobs.
func Pgx(tx pgx.Tx) Execer { return pgxTx{tx} }

type pgxTx struct{ tx pgx.Tx }

func (p pgxTx) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	tag, err := p.tx.Exec(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	return driver.RowsAffected(tag.RowsAffected()), nil
}

func (p pgxTx) QueryContext(context.Context, string, ...any) (*sql.Rows, error) {
	return nil, fmt.Errorf("a query in a transaction of pgx's own: %w", errors.ErrUnsupported)
}
