package postgres

import (
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
)

// A format is how the server sends the columns of a query: each as text or in a binary form. In pgx's
// modes "exec" and "simple_protocol" all are text. Otherwise the types decide.
type format struct {
	binary []bool // which columns are binary
	hex    []int  // columns of bytes that are sent as text

	columns [][]byte // of the current row
	held    []byte   // the bytes that columns of hex refer to
}

// formatOf refuses types whose form is not known, in whatever form they come.
func formatOf(fields []pgconn.FieldDescription) (*format, error) {
	f := &format{binary: make([]bool, len(fields))}
	for i := range fields {
		f.binary[i] = fields[i].Format == pgx.BinaryFormatCode
		switch oid := fields[i].DataTypeOID; oid {
		case pgtype.Int2OID, pgtype.Int4OID, pgtype.Int8OID: // which Row reads in both forms
		case pgtype.TextOID, pgtype.VarcharOID, pgtype.JSONOID: // which are the same in both
		case pgtype.ByteaOID:
			if !f.binary[i] {
				f.hex = append(f.hex, i)
			}
		default:
			return nil, fmt.Errorf("column %s has type %d, and a pipeline reads integers, texts and bytes: cast it", fields[i].Name, oid)
		}
	}
	return f, nil
}

// stored returns a row's columns as they are stored, apart from numbers. They are valid until the next row is read.
func (f *format) stored(raw [][]byte) ([][]byte, error) {
	if f.hex == nil {
		return raw, nil
	}
	f.columns, f.held = append(f.columns[:0], raw...), f.held[:0]
	for _, i := range f.hex {
		if raw[i] == nil {
			continue
		}
		from := len(f.held)
		held, err := appendBytes(f.held, raw[i])
		if err != nil {
			return nil, err
		}
		if f.held, f.columns[i] = held, held[from:]; f.columns[i] == nil {
			f.columns[i] = []byte{}
		}
	}
	return f.columns, nil
}

// appendBytes decodes bytes that were sent as text.
func appendBytes(to, text []byte) ([]byte, error) {
	if len(text) < 2 || text[0] != '\\' || text[1] != 'x' {
		return nil, errors.New("bytes of an unknown form: set bytea_output = 'hex'")
	}
	return hex.AppendDecode(to, text[2:])
}
