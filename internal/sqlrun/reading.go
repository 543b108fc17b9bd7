package sqlrun

import (
	"database/sql"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// A Reading reads a row of a table that a person may write. A value that means nothing harms no other row: what
// was to be set stays as it is, and Wrong names the column and the problem. The zero value is ready to use.
//
// Each list of such a table reads its rows with one, and carries both: values, and what is wrong with them.
type Reading struct {
	Wrong string   // "column: problem", of the first column that means nothing; "": none
	Of    []string // the columns that mean nothing
	Why   []string // what is wrong with each
}

// Note notes what is wrong with a column. The first one counts.
func (r *Reading) Note(column, problem string) {
	if r.Of, r.Why = append(r.Of, column), append(r.Why, problem); r.Wrong == "" {
		r.Wrong = column + ": " + problem
	}
}

// Into returns a destination for Scan that never fails: to is a pointer to an int, int64, bool or string.
func (r *Reading) Into(column string, to any) any { return &place{r, column, to} }

// Instant is Into for what [Seen] reads: µs since 1970.
func (r *Reading) Instant(column string, to *int64) any {
	return &instantPlace{place{r, column, to}, to}
}

// Seen reads a column with an instant of a row that a person may have written: µs since 1970, 0 for NULL, and -1 for what is
// no instant from 1970 to 9999. The engine would refuse the whole list for one that is infinite.
func Seen(column string) string {
	return `COALESCE(CASE WHEN ` + column + ` >= {time 0} AND ` + column + ` < {time 253402214400000000} THEN {us ` + column + `} END,
			CASE WHEN ` + column + ` IS NULL THEN 0 ELSE -1 END)`
}

// An instantPlace is where an instant goes.
type instantPlace struct {
	place
	us *int64
}

// Scan sets the instant, or notes why it cannot.
func (p *instantPlace) Scan(from any) error {
	err := p.place.Scan(from)
	if *p.us < 0 {
		p.of.Note(p.column, "it is no time from 1970 to 9999")
		*p.us = 0
	}
	return err
}

// A place is where a column goes.
type place struct {
	of     *Reading
	column string
	to     any
}

var _ sql.Scanner = (*place)(nil)

// Scan sets the value, or notes why it cannot.
func (p *place) Scan(from any) error {
	text := ""
	switch v := from.(type) {
	case nil:
		p.of.Note(p.column, "it is NULL")
		return nil
	case []byte:
		text = string(v)
	case time.Time:
		text = v.UTC().Format(time.RFC3339Nano)
	default:
		text = fmt.Sprint(v)
	}
	switch to := p.to.(type) {
	case *string:
		if !utf8.ValidString(text) {
			p.of.Note(p.column, "it is not UTF-8")
			text = strings.ToValidUTF8(text, "\ufffd")
		}
		*to = text
	case *int:
		if n, err := strconv.Atoi(text); err == nil {
			*to = n
			return nil
		}
		p.of.Note(p.column, fmt.Sprintf("%.40q is not a number", text))
	case *int64:
		if n, err := strconv.ParseInt(text, 10, 64); err == nil {
			*to = n
			return nil
		}
		p.of.Note(p.column, fmt.Sprintf("%.40q is not a number", text))
	case *bool:
		if is, err := strconv.ParseBool(text); err == nil {
			*to = is
			return nil
		}
		p.of.Note(p.column, fmt.Sprintf("%.40q is neither 0 nor 1", text))
	default:
		return fmt.Errorf("%s: cannot read into a %T", p.column, p.to)
	}
	return nil
}
