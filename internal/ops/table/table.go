// Package table prints lists for people and for programs: tables, JSON, and a line of JSON for each entry.
package table

import (
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/dbcron/dbcron/internal/plain"
	"github.com/dbcron/dbcron/wire"
)

// Write prints a slice of structs: their json tags name the columns. A tag
// `table:"-"` keeps a field out of the table, `table:"name"` gives it another
// name there, and `table:",rare"` shows it only if a row has something in it.
func Write(w io.Writer, output string, rows any) error {
	all := reflect.ValueOf(rows)
	switch {
	case output == "json" && all.Len() == 0:
		return Encode(w, []int{})
	case output == "json":
		return Encode(w, rows)
	case output == "jsonl":
		for i := range all.Len() {
			if err := Encode(w, all.Index(i).Interface()); err != nil {
				return err
			}
		}
		return nil
	}
	return Print(w, rows)
}

// Encode prints a value as a line of JSON.
func Encode(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// Print prints a slice of structs as a table, without rare columns that have no values: see Write.
func Print(w io.Writer, rows any) error {
	t := table.NewWriter()
	style := table.StyleDefault
	style.Options = table.OptionsNoBordersAndSeparators
	style.Format.Header = text.FormatUpper
	style.Box.PaddingLeft, style.Box.PaddingRight = "", "  "
	t.SetStyle(style)
	header, all := table.Row{}, reflect.ValueOf(rows)
	lines := make([]table.Row, all.Len())
	for i := range all.Type().Elem().NumField() {
		name, rare, ok := column(all.Type().Elem().Field(i))
		if !ok {
			continue
		}
		cells, filled := make([]string, all.Len()), !rare
		for j := range lines {
			cells[j] = Cell(all.Index(j).Field(i).Interface())
			filled = filled || cells[j] != ""
		}
		if !filled {
			continue
		}
		header = append(header, name)
		for j := range lines {
			lines[j] = append(lines[j], cells[j])
		}
	}
	t.AppendHeader(header)
	t.AppendRows(lines)
	for line := range strings.Lines(t.Render()) {
		if _, err := fmt.Fprintln(w, strings.TrimRight(line, " \n")); err != nil {
			return err
		}
	}
	return nil
}

// column returns a field's name in tables, and whether it is shown only if it has a value. ok reports whether it
// is shown at all.
func column(f reflect.StructField) (name string, rare, ok bool) {
	tag := f.Tag.Get("table")
	if tag == "-" {
		return "", false, false
	}
	name, _, _ = strings.Cut(f.Tag.Get("json"), ",")
	if other := strings.TrimSuffix(tag, ",rare"); other != "" {
		name = other
	}
	return strings.ReplaceAll(name, "_", " "), strings.HasSuffix(tag, ",rare"), true
}

// Cell formats a value as one line of text that is safe for a terminal.
func Cell(v any) string {
	switch v := v.(type) {
	case wire.Instant:
		return Cell(v.Time)
	case json.RawMessage:
		return plain.Line(string(v), 60)
	case time.Time:
		if v.IsZero() {
			return "-"
		}
		return v.Format(time.RFC3339)
	case []string:
		return plain.Line(strings.Join(v, ","), 60)
	case *int:
		if v == nil {
			return "-"
		}
		return fmt.Sprint(*v)
	case bool:
		if v {
			return "yes"
		}
		return "no"
	}
	return plain.Line(fmt.Sprint(v), 60)
}
