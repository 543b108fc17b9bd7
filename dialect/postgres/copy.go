package postgres

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/dbcron/dbcron/internal/sqlrun"
)

// copyRows loads rows in the binary format, which it writes itself: pgx's CopyFrom asks the server for
// the columns' types each time, and looks up an encoder for each value.
func copyRows(ctx context.Context, driverConn any, table string, columns []string, rows sqlrun.CopyRows) error {
	own, ok := driverConn.(*stdlib.Conn)
	if !ok {
		return errors.ErrUnsupported
	}
	text := "COPY " + pgx.Identifier(strings.Split(table, ".")).Sanitize() + " (" + strings.Join(columns, ", ") + ") FROM STDIN BINARY"
	_, err := own.Conn().PgConn().CopyFrom(ctx, &copyReader{rows: rows, columns: len(columns)}, text)
	if e := (*pgconn.PgError)(nil); errors.As(err, &e) && e.Code == "0A000" { // as with row-level security
		err = fmt.Errorf("%w: %w", errors.ErrUnsupported, err)
	}
	return err
}

// A copyReader is the binary format of rows.
type copyReader struct {
	rows    sqlrun.CopyRows
	columns int
	at      int // the row that is written next
	begun   bool
	values  []any
	buffer  []byte
	rest    []byte // of buffer, to be read
}

// copyPart is how many bytes of rows are encoded ahead.
const copyPart = 64 << 10

// Read fills p with as much as there is.
func (r *copyReader) Read(p []byte) (n int, err error) {
	if len(r.rest) == 0 {
		if r.at > r.rows.Len() {
			return 0, io.EOF
		}
		if err := r.fill(); err != nil {
			return 0, err
		}
	}
	n = copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// fill writes the next rows into the buffer.
func (r *copyReader) fill() error {
	b := r.buffer[:0]
	if !r.begun {
		b, r.begun = append(b, "PGCOPY\n\xff\r\n\x00\x00\x00\x00\x00\x00\x00\x00\x00"...), true
	}
	for ; r.at < r.rows.Len() && len(b) < copyPart; r.at++ {
		b = binary.BigEndian.AppendUint16(b, uint16(r.columns))
		r.values = r.rows.Values(r.at, r.values[:0])
		for _, value := range r.values {
			var err error
			if b, err = appendCopied(b, value); err != nil {
				return err
			}
		}
	}
	if r.at == r.rows.Len() && len(b) < copyPart {
		b = append(b, 0xff, 0xff) // the end
		r.at++
	}
	r.buffer, r.rest = b, b
	return nil
}

// appendCopied writes a value after its length.
func appendCopied(b []byte, value any) ([]byte, error) {
	switch v := value.(type) {
	case nil:
		return append(b, 0xff, 0xff, 0xff, 0xff), nil
	case int16:
		return binary.BigEndian.AppendUint16(append(b, 0, 0, 0, 2), uint16(v)), nil
	case int32:
		return binary.BigEndian.AppendUint32(append(b, 0, 0, 0, 4), uint32(v)), nil
	case int64:
		return binary.BigEndian.AppendUint64(append(b, 0, 0, 0, 8), uint64(v)), nil
	case string:
		return append(binary.BigEndian.AppendUint32(b, uint32(len(v))), v...), nil
	case sqlrun.Bytes:
		return append(binary.BigEndian.AppendUint32(b, uint32(len(v))), v...), nil
	case sqlrun.JSON:
		return append(binary.BigEndian.AppendUint32(b, uint32(len(v))), v...), nil
	}
	return nil, fmt.Errorf("a %T cannot be copied", value)
}
