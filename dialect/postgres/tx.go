package postgres

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/dbcron/dbcron/dialect"
)

// Tx adapts a transaction of pgx to [sqlrun.Execer].
func Tx(tx pgx.Tx) dialect.Execer { return pgxTx{tx} }

type pgxTx struct{ tx pgx.Tx }

func (p pgxTx) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	tag, err := p.tx.Exec(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	return driver.RowsAffected(tag.RowsAffected()), nil
}

// QueryContext reads all rows, which are few, before it returns: pgx needs the connection to be free
// for the next statement.
func (p pgxTx) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	answer, err := p.query(ctx, query, args)
	if err != nil {
		return nil, err
	}
	// Only database/sql can make an sql.Rows, from the answer of a driver; pgxAnswer is one.
	db := sql.OpenDB(answer)
	rows, err := db.QueryContext(ctx, query)
	return rows, errors.Join(err, db.Close()) // the rows remain valid
}

// query requests text format, which all columns can be scanned from.
func (p pgxTx) query(ctx context.Context, query string, args []any) (*pgxAnswer, error) {
	rows, err := p.tx.Query(ctx, query, append([]any{pgx.QueryResultFormats{pgx.TextFormatCode}}, args...)...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	a := &pgxAnswer{}
	for rows.Next() {
		row := make([]driver.Value, len(rows.FieldDescriptions()))
		for i, text := range rows.RawValues() {
			if row[i], err = pgxValue(rows.FieldDescriptions()[i].DataTypeOID, text); err != nil {
				return nil, err
			}
		}
		a.rows = append(a.rows, row)
	}
	for _, f := range rows.FieldDescriptions() {
		a.columns = append(a.columns, f.Name)
	}
	return a, rows.Err()
}

// pgxValue copies a column's text, which is valid until the next row is read.
func pgxValue(oid uint32, text []byte) (driver.Value, error) {
	switch {
	case text == nil:
		return nil, nil
	case oid != pgtype.ByteaOID:
		return string(text), nil
	}
	return appendBytes([]byte{}, text)
}

// A pgxAnswer is a driver that returns the answer to one query.
type pgxAnswer struct {
	columns []string
	rows    [][]driver.Value
}

func (a *pgxAnswer) Connect(context.Context) (driver.Conn, error) { return pgxAnswered{a}, nil }
func (a *pgxAnswer) Driver() driver.Driver                        { return nil }

func (a *pgxAnswer) Columns() []string { return a.columns }
func (a *pgxAnswer) Close() error      { return nil }

func (a *pgxAnswer) Next(row []driver.Value) error {
	if len(a.rows) == 0 {
		return io.EOF
	}
	copy(row, a.rows[0])
	a.rows = a.rows[1:]
	return nil
}

// pgxAnswered is a connection whose answer has arrived already.
type pgxAnswered struct{ answer *pgxAnswer }

func (c pgxAnswered) QueryContext(context.Context, string, []driver.NamedValue) (driver.Rows, error) {
	return c.answer, nil
}

func (pgxAnswered) Prepare(string) (driver.Stmt, error) { return nil, errors.ErrUnsupported }
func (pgxAnswered) Begin() (driver.Tx, error)           { return nil, errors.ErrUnsupported }
func (pgxAnswered) Close() error                        { return nil }
