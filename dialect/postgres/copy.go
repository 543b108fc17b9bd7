package postgres

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

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
	r := &copyReader{rows: rows, columns: len(columns)}
	defer r.end()
	text := "COPY " + table + " (" + strings.Join(columns, ", ") + ") FROM STDIN BINARY"
	_, err := own.Conn().PgConn().CopyFrom(ctx, r, text)
	if e := (*pgconn.PgError)(nil); errors.As(err, &e) && e.Code == "0A000" { // as with row-level security
		err = fmt.Errorf("%w: %w", errors.ErrUnsupported, err)
	}
	return err
}

// A copyReader is the binary format of rows.
type copyReader struct {
	mu      sync.Mutex // pgx may still read after an error of the connection
	rows    sqlrun.CopyRows
	columns int
	at      int // the row that is written next
	to      copyWriter
	rest    []byte // of to, to be read
	buffer  *[]byte
}

// copyPart is how many bytes of rows are encoded ahead: the server begins with the first part.
const copyPart = 16 << 10

// copyBuffers has buffers of about copyPart bytes.
var copyBuffers = sync.Pool{New: func() any { return new([]byte) }}

// Read fills p with as much as there is.
func (r *copyReader) Read(p []byte) (n int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.rest) == 0 {
		if r.rows == nil || r.at > r.rows.Len() {
			return 0, io.EOF
		}
		r.fill()
	}
	n = copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// end makes further reads return nothing: the rows are their owner's again.
func (r *copyReader) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.buffer != nil && cap(r.to.b) <= 4*copyPart {
		*r.buffer = r.to.b
		copyBuffers.Put(r.buffer)
	}
	r.rows, r.rest, r.buffer = nil, nil, nil
}

// fill writes the next rows into the buffer.
func (r *copyReader) fill() {
	b := &r.to
	if r.buffer == nil {
		r.buffer = copyBuffers.Get().(*[]byte)
		b.b = (*r.buffer)[:0]
		b.b = append(b.b, "PGCOPY\n\xff\r\n\x00\x00\x00\x00\x00\x00\x00\x00\x00"...)
	} else {
		b.b = b.b[:0]
	}
	for ; r.at < r.rows.Len() && len(b.b) < copyPart; r.at++ {
		b.b = binary.BigEndian.AppendUint16(b.b, uint16(r.columns))
		r.rows.Copy(r.at, b)
	}
	if r.at == r.rows.Len() && len(b.b) < copyPart {
		b.b = append(b.b, 0xff, 0xff) // the end
		r.at++
	}
	r.rest = b.b
}

// A copyWriter appends values, each after its length.
type copyWriter struct{ b []byte }

func (w *copyWriter) Null() { w.b = append(w.b, 0xff, 0xff, 0xff, 0xff) }

func (w *copyWriter) Int16(n int16) {
	w.b = binary.BigEndian.AppendUint16(append(w.b, 0, 0, 0, 2), uint16(n))
}

func (w *copyWriter) Int32(n int32) {
	w.b = binary.BigEndian.AppendUint32(append(w.b, 0, 0, 0, 4), uint32(n))
}

func (w *copyWriter) Int64(n int64) {
	w.b = binary.BigEndian.AppendUint64(append(w.b, 0, 0, 0, 8), uint64(n))
}

func (w *copyWriter) Text(text string) {
	w.b = append(binary.BigEndian.AppendUint32(w.b, uint32(len(text))), text...)
}

func (w *copyWriter) Bytes(b []byte) {
	w.b = append(binary.BigEndian.AppendUint32(w.b, uint32(len(b))), b...)
}
