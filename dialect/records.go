package dialect

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// records is a table of Args.
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
	return e.d.Records(":"+rows, columns), nil
}

// listed joins what columns become.
func listed(columns []Column, as func(Column) string) string {
	parts := make([]string, len(columns))
	for i, c := range columns {
		parts[i] = as(c)
	}
	return strings.Join(parts, ", ")
}

// recordsOf writes rows as a JSON array of objects, for {records}. It does so by
// hand: for a batch of a hundred, reflection would take longer than the database.
func recordsOf(rows []Args) string {
	b := make([]byte, 0, 256*len(rows)+2)
	b = append(b, '[')
	for i, row := range rows {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, '{')
		first := true
		for name, value := range row {
			if !first {
				b = append(b, ',')
			}
			first = false
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

// appendText writes a JSON string. What is not UTF-8 becomes U+FFFD, as the
// engines would refuse it.
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
