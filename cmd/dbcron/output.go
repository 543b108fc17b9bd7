package main

import (
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/cobra"
)

// outputFlag adds -o to a command.
func outputFlag(c *cobra.Command, to *string) {
	c.Flags().StringVarP(to, "output", "o", "table", "table, json or jsonl")
	before := c.PreRunE
	c.PreRunE = func(c *cobra.Command, args []string) error {
		switch *to {
		case "table", "json", "jsonl":
		default:
			return usagef("output %q is not known: use table, json or jsonl", *to)
		}
		if before != nil {
			return before(c, args)
		}
		return nil
	}
}

// write prints rows, which are structs: their json tags name the columns, and a
// tag `table:"-"` keeps a field out of the table.
func write[T any](w io.Writer, output string, rows []T) error {
	switch output {
	case "json":
		if rows == nil {
			rows = []T{}
		}
		return encode(w, rows)
	case "jsonl":
		for _, row := range rows {
			if err := encode(w, row); err != nil {
				return err
			}
		}
		return nil
	}
	return writeTable(w, rows)
}

func encode(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

func writeTable[T any](w io.Writer, rows []T) error {
	t := table.NewWriter()
	style := table.StyleDefault
	style.Options = table.OptionsNoBordersAndSeparators
	style.Format.Header = text.FormatUpper
	style.Box.PaddingLeft, style.Box.PaddingRight = "", "  "
	t.SetStyle(style)
	var header table.Row
	var shown []int
	for i := range reflect.TypeFor[T]().NumField() {
		f := reflect.TypeFor[T]().Field(i)
		if f.Tag.Get("table") == "-" {
			continue
		}
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		header, shown = append(header, strings.ReplaceAll(name, "_", " ")), append(shown, i)
	}
	t.AppendHeader(header)
	for _, row := range rows {
		var cells table.Row
		for _, i := range shown {
			cells = append(cells, cell(reflect.ValueOf(row).Field(i).Interface()))
		}
		t.AppendRow(cells)
	}
	for line := range strings.Lines(t.Render()) {
		if _, err := fmt.Fprintln(w, strings.TrimRight(line, " \n")); err != nil {
			return err
		}
	}
	return nil
}

// cell is a value as one line of text that does nothing to a terminal.
func cell(v any) string {
	switch v := v.(type) {
	case *time.Time:
		if v == nil {
			return "-"
		}
		return v.Format(time.RFC3339)
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
	return oneLine(fmt.Sprint(v), 60)
}

// oneLine cuts text to its first line and to a width, without control characters.
func oneLine(s string, width int) string {
	line, rest, more := strings.Cut(strings.TrimSpace(s), "\n")
	line = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return ' '
		}
		return r
	}, line)
	if runes := []rune(line); len(runes) > width {
		return string(runes[:width-1]) + "…"
	}
	if more && strings.TrimSpace(rest) != "" {
		line += " …"
	}
	return line
}

// flat makes one line of the several that drivers write.
func flat(s string) string { return strings.Join(strings.Fields(s), " ") }

// optional is nil for the zero time.
func optional(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
