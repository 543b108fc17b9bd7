package sqlrun

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Rows are the rows of {values} and {records}, for callers for whom a map per row is too expensive.
// []Args are rows, too.
type Rows interface {
	Len() int
	Value(row int, column string) (value any, ok bool) // nil: NULL; not ok: no such column
}

// IntRows are Rows that return numbers without boxing them, which would cost more than everything
// else. Int is not ok for columns that Value must be asked for.
type IntRows interface {
	Rows
	Int(row int, column string) (n int64, ok bool)
}

type argRows []Args

func (a argRows) Len() int { return len(a) }

func (a argRows) Value(row int, column string) (any, bool) {
	value, ok := a[row][column]
	return value, ok
}

// rowsOf returns the rows that an argument holds, if any.
func rowsOf(value any) (Rows, bool) {
	if list, ok := value.([]Args); ok {
		return argRows(list), true
	}
	rows, ok := value.(Rows)
	return rows, ok
}

// records expands {records …}.
func (e *expander) records(rest string) (string, error) {
	rows, body, ok := strings.Cut(rest, ":")
	if !ok || strings.Trim(rows, letters) != "" || rows == "" {
		return "", fmt.Errorf("{records %s} names no rows", rest)
	}
	var columns []Column
	for part := range strings.SplitSeq(body, ",") {
		words := strings.Fields(part)
		if len(words) != 2 || words[1] != "int" && words[1] != "text" {
			return "", fmt.Errorf("{records %s}: %q is not a name, and int or text", rest, part)
		}
		columns = append(columns, Column{words[0], words[1]})
	}
	for _, c := range columns {
		e.columns = append(e.columns, column{rows, c.Name})
	}
	return e.d.Records(":"+rows, columns), nil
}

// A column is a column of the rows in an argument.
type column struct{ rows, name string }

// records returns the argument that holds rows.
func (n *node) records(rows Rows) string {
	if n.of != "" {
		return arrayOf(rows, n.of)
	}
	return recordsOf(rows, n.columns)
}

// arrayOf writes a column of rows in PostgreSQL's array syntax, which any driver sends as text.
func arrayOf(rows Rows, column string) string {
	b := make([]byte, 0, 24*rows.Len()+2)
	b = append(b, '{')
	ints, _ := rows.(IntRows)
	for i := range rows.Len() {
		if i > 0 {
			b = append(b, ',')
		}
		if ints != nil {
			if n, ok := ints.Int(i, column); ok {
				b = strconv.AppendInt(b, n, 10)
				continue
			}
		}
		value, _ := rows.Value(i, column)
		switch v := value.(type) {
		case nil:
			b = append(b, "NULL"...)
		case int:
			b = strconv.AppendInt(b, int64(v), 10)
		case int64:
			b = strconv.AppendInt(b, v, 10)
		case string:
			b = appendElement(b, v)
		case Bytes:
			b = append(hex.AppendEncode(append(b, `"\\x`...), v), '"')
		default:
			b = appendElement(b, fmt.Sprint(v))
		}
	}
	return string(append(b, '}'))
}

// appendElement writes an element of an array. As in appendText, bytes that are not UTF-8 become
// U+FFFD.
func appendElement(b []byte, text string) []byte {
	text = strings.ToValidUTF8(text, "\ufffd")
	b = append(b, '"')
	start := 0
	for i := range len(text) {
		if text[i] == '"' || text[i] == '\\' {
			b = append(append(b, text[start:i]...), '\\')
			start = i
		}
	}
	return append(append(b, text[start:]...), '"')
}

// recordsOf writes rows as a JSON array of objects, for {records}. It does so by hand: for a batch of
// a hundred, reflection would take longer than the database.
func recordsOf(rows Rows, columns []string) string {
	b := make([]byte, 0, 256*rows.Len()+2)
	b = append(b, '[')
	for i := range rows.Len() {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, '{')
		for j, name := range columns {
			if j > 0 {
				b = append(b, ',')
			}
			value, _ := rows.Value(i, name)
			b = append(appendText(b, name), ':')
			b = appendValue(b, value)
		}
		b = append(b, '}')
	}
	return string(append(b, ']'))
}

func appendValue(b []byte, value any) []byte {
	switch v := value.(type) {
	case nil:
		return append(b, "null"...)
	case int:
		return strconv.AppendInt(b, int64(v), 10)
	case int64:
		return strconv.AppendInt(b, v, 10)
	case string:
		return appendText(b, v)
	}
	return appendText(b, fmt.Sprint(value))
}

// appendText writes a JSON string. Bytes that are not UTF-8, which the engines would refuse, become
// U+FFFD.
func appendText(b []byte, text string) []byte {
	const hex = "0123456789abcdef"
	b = append(b, '"')
	start := 0
	for i := 0; i < len(text); {
		c := text[i]
		switch {
		case c == '"' || c == '\\':
			b = append(append(b, text[start:i]...), '\\', c)
		case c < ' ':
			b = append(append(b, text[start:i]...), '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		case c < utf8.RuneSelf:
			i++
			continue
		default:
			r, size := utf8.DecodeRuneInString(text[i:])
			if r != utf8.RuneError || size > 1 {
				i += size
				continue
			}
			b = append(append(b, text[start:i]...), "\ufffd"...)
		}
		i++
		start = i
	}
	return append(append(b, text[start:]...), '"')
}

// list writes numbers or texts as one argument, as a PostgreSQL array or in JSON. It is not ok for other values.
func (n *node) list(value any) (text string, ok bool) {
	switch list := value.(type) {
	case []int64:
		return listed(n.of, list, func(b []byte, v int64) []byte { return strconv.AppendInt(b, v, 10) }), true
	case []string:
		if n.of == "json" {
			return listed(n.of, list, appendText), true
		}
		return listed(n.of, list, appendElement), true
	}
	return "", false
}

func listed[T any](form string, list []T, appendTo func([]byte, T) []byte) string {
	brackets := "{}"
	if form == "json" {
		brackets = "[]"
	}
	b := make([]byte, 0, 20*len(list)+2)
	b = append(b, brackets[0])
	for i, v := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendTo(b, v)
	}
	return string(append(b, brackets[1]))
}

// in expands {in …}, which compares a column with a list of numbers, or, after "text", of texts.
func (e *expander) in(rest string) (string, error) {
	column, list, ok := strings.Cut(rest, " :")
	if !ok || list == "" || strings.Trim(list, letters) != "" {
		return "", fmt.Errorf("{in %s} is not a column and a list", rest)
	}
	c := Column{column, "int"}
	if name, text := strings.CutSuffix(column, " text"); text {
		c = Column{name, "text"}
	}
	return e.d.In(c, ":"+list), nil
}
