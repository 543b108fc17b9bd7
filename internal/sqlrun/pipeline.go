package sqlrun

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/dbcron/dbcron/internal/sqlconn"
)

// A Step is one statement of a pipeline.
type Step struct {
	Stmt *Stmt
	Args Args
	Scan func(*Row) error // called with each row; nil: not a query

	Changed int64 // number of rows changed, set by running it
}

// A Row is a row returned by a query of a pipeline. It is valid only during the call that receives
// it.
type Row struct {
	raw    [][]byte
	binary []bool // which numbers are in PostgreSQL's binary format; others are decimal digits
	err    error
}

// Give hands the next row that a driver returned to scan: its columns, and which of them are binary
// numbers (nil: none). Texts and bytes must be as they are stored, not in a form of the protocol. The error is
// that of scan, or says that scan has read a number from a column that holds none.
func (r *Row) Give(columns [][]byte, binary []bool, scan func(*Row) error) error {
	r.raw, r.binary = columns, binary
	return cmp.Or(scan(r), r.err)
}

// Null reports whether column i is NULL.
func (r *Row) Null(i int) bool { return r.raw[i] == nil }

// Bytes returns column i, a text or bytes. Copy it to keep it.
func (r *Row) Bytes(i int) []byte { return r.raw[i] }

// Int returns column i, a number; 0 if it is NULL. If it is something else, it returns 0, and the
// statement fails.
func (r *Row) Int(i int) int64 {
	b := r.raw[i]
	if b == nil {
		return 0
	}
	if r.binary != nil && r.binary[i] {
		switch len(b) {
		case 8:
			return int64(binary.BigEndian.Uint64(b))
		case 4:
			return int64(int32(binary.BigEndian.Uint32(b)))
		case 2:
			return int64(int16(binary.BigEndian.Uint16(b)))
		}
	} else if n, err := strconv.ParseInt(string(b), 10, 64); err == nil {
		return n
	}
	r.err = cmp.Or(r.err, fmt.Errorf("column %d holds no number, but %d other bytes", i+1, len(b)))
	return 0
}

// cells are the columns of a row from database/sql, and what they hold. [sql.RawBytes] would not do:
// it makes NULL of an empty text.
type cells struct {
	columns [][]byte
	held    []byte // what columns refer to
}

// A cell receives a column.
type cell struct {
	of *cells
	at int
}

// Scan copies a value: a driver may use its memory for something else as soon as Scan returns.
func (c cell) Scan(value any) error {
	held, from := c.of.held, len(c.of.held)
	switch v := value.(type) {
	case nil:
		c.of.columns[c.at] = nil
		return nil
	case []byte:
		held = append(held, v...)
	case string:
		held = append(held, v...)
	case int64:
		held = strconv.AppendInt(held, v, 10)
	default:
		held = fmt.Append(held, v)
	}
	c.of.held, c.of.columns[c.at] = held, held[from:len(held):len(held)]
	return nil
}

// Pipeline runs statements in order, in one round trip and one transaction if the driver can, and
// otherwise one by one.
func (db *DB) Pipeline(ctx context.Context, steps ...*Step) error {
	if db.Dialect.Pipeline != nil {
		err := db.retrying(ctx, func() error { return db.pipeline(ctx, steps) })
		if !errors.Is(err, errors.ErrUnsupported) {
			return err
		}
	}
	for _, step := range steps {
		if err := db.step(ctx, step); err != nil {
			return err
		}
	}
	return nil
}

// pipeline sends all steps at once.
func (db *DB) pipeline(ctx context.Context, steps []*Step) error {
	texts, values := make([]string, len(steps)), make([][]any, len(steps))
	for i, step := range steps {
		var err error
		if texts[i], values[i], err = db.render(step.Stmt, step.Args); err != nil {
			return fmt.Errorf("%s: %w", step.Stmt.Name, err)
		}
	}
	if db.brief {
		ctx = sqlconn.Brief(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, db.timeout)
	defer cancel()
	c, err := db.pool.Conn(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	return c.Raw(func(driverConn any) error {
		return sqlconn.Through(ctx, driverConn, strings.Join(texts, ";\n"), func(own any) error {
			at, err := db.Dialect.Pipeline(ctx, own, texts, values, steps)
			if err != nil && at < len(steps) {
				err = fmt.Errorf("%s: %w", steps[at].Stmt.Name, err)
			}
			if ended := ctx.Err(); err != nil && ended != nil && !errors.Is(err, ended) {
				err = fmt.Errorf("%w: %w", ended, err) // the server only says that it was cancelled
			}
			return err
		})
	})
}

// step runs one statement.
func (s *Session) step(ctx context.Context, step *Step) (err error) {
	if step.Scan == nil {
		step.Changed, err = s.Exec(ctx, step.Stmt, step.Args)
		return err
	}
	return s.runParts(ctx, step.Stmt, step.Args, func(ctx context.Context, query string, values []any) error {
		rows, err := s.on.QueryContext(ctx, query, values...)
		if err != nil {
			return err
		}
		defer rows.Close()
		columns, err := rows.Columns()
		if err != nil {
			return err
		}
		row, cells, dest := Row{}, cells{columns: make([][]byte, len(columns)), held: make([]byte, 0, 256)}, make([]any, len(columns))
		for i := range dest {
			dest[i] = cell{&cells, i}
		}
		for rows.Next() {
			cells.held = cells.held[:0]
			if err := rows.Scan(dest...); err != nil {
				return err
			}
			if err := row.Give(cells.columns, nil, step.Scan); err != nil {
				return err
			}
		}
		return rows.Err()
	})
}

// Bytes is a value of rows that holds bytes.
type Bytes []byte

// CopyRows is the input of a bulk load. It may be read in another goroutine, but not after the load
// has returned.
type CopyRows interface {
	Len() int
	Copy(row int, to CopyWriter) // writes the row's values
}

// A CopyWriter takes the values of a row in the order of the columns. A method for each type spares
// boxing the values, which would cost more than writing them. Numbers must have their column's size.
type CopyWriter interface {
	Null()
	Int16(n int16)
	Int32(n int32)
	Int64(n int64)
	Text(text string)
	Bytes(b []byte) // also the text of JSON
}

// CanCopy reports whether there is a bulk load that is faster than INSERT.
func (db *DB) CanCopy() bool { return db.Dialect.Copy != nil && db.copies.Load() != never }

// Copy loads rows into a table in one statement, all or none, in a session of [DB.WithConn]. If the
// driver cannot do it, Copy returns errors.ErrUnsupported, and CanCopy returns false from then on.
func (s *Session) Copy(ctx context.Context, table string, columns []string, rows CopyRows) error {
	c, held := s.on.(*sql.Conn)
	if !held || s.Dialect.Copy == nil {
		return errors.ErrUnsupported
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	err := c.Raw(func(driverConn any) error {
		return sqlconn.Through(ctx, driverConn, "COPY "+table, func(own any) error {
			return s.Dialect.Copy(ctx, own, s.prefix+table, columns, rows)
		})
	})
	if errors.Is(err, errors.ErrUnsupported) {
		s.copies.Store(never)
	}
	if err != nil {
		return fmt.Errorf("copy into %s: %w", table, err)
	}
	return nil
}

const never = -1

// CleanText returns text in a form that all engines store: UTF-8 without NUL, cut to limit bytes.
func CleanText(text string, limit int) string {
	text = strings.ReplaceAll(strings.ToValidUTF8(text, "\ufffd"), "\x00", "\ufffd")
	if len(text) <= limit {
		return text
	}
	for limit > 0 && !utf8.RuneStart(text[limit]) {
		limit--
	}
	return text[:limit] + " …"
}
