package postgres

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/dbcron/dbcron/internal/sqlrun"
)

// manyRows are rows of one number, which counts them as they are read.
type manyRows struct{ n, read int }

func (r *manyRows) Len() int { return r.n }

func (r *manyRows) Copy(row int, to sqlrun.CopyWriter) {
	r.read++
	to.Int64(int64(row))
}

// A load has the rows in order between its header and its end, however it is read.
func TestCopyReader(t *testing.T) {
	const n = 2*copyPart/14 + 7
	var want copyWriter
	want.b = append(want.b, "PGCOPY\n\xff\r\n\x00\x00\x00\x00\x00\x00\x00\x00\x00"...)
	for i := range n {
		want.b = append(want.b, 0, 1)
		want.Int64(int64(i))
	}
	want.b = append(want.b, 0xff, 0xff)
	for range 2 { // the second time with a used buffer
		r := &copyReader{rows: &manyRows{n: n}, columns: 1}
		got, err := io.ReadAll(r)
		if err != nil || !bytes.Equal(got, want.b) {
			t.Fatalf("got %d bytes, not the %d wanted: %v", len(got), len(want.b), err)
		}
		r.end()
	}
}

// A load that has returned leaves the rows alone, whatever still reads.
func TestCopyReaderEnds(t *testing.T) {
	rows := &manyRows{n: copyPart}
	r := &copyReader{rows: rows, columns: 1}
	if _, err := r.Read(make([]byte, 10)); err != nil {
		t.Fatal(err)
	}
	read := rows.read
	r.end()
	if n, err := r.Read(make([]byte, 10)); n != 0 || !errors.Is(err, io.EOF) || rows.read != read {
		t.Errorf("got %d bytes, %v, and %d rows more", n, err, rows.read-read)
	}
}
