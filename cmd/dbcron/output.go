package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"reflect"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/dbcron/dbcron/internal/ops/wireof"
	"github.com/dbcron/dbcron/internal/plain"
	"github.com/dbcron/dbcron/wire"
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

// writeEach prints each item of a list: as JSON what word makes of it, which is what the API sends, too, and in
// tables what row does.
func writeEach[T, W, R any](w io.Writer, output string, all []T, word func(*T) W, row func(*T) R) error {
	if output == "table" {
		return writeTable(w, wireof.Each(all, row))
	}
	return write(w, output, wireof.Each(all, word))
}

// writeRows prints a list of an API's nouns: in tables what rowsOf makes of them.
func writeRows(w io.Writer, output string, rows any) error {
	if output == "table" {
		rows = rowsOf(rows)
	}
	return write(w, output, rows)
}

// rowsOf returns what tables show of nouns.
func rowsOf(rows any) any {
	switch rows := rows.(type) {
	case []wire.QueueStatus:
		return wireof.Each(rows, newQueueRow)
	case []wire.Schedule:
		return wireof.Each(rows, newScheduleRow)
	case []wire.Job:
		return wireof.Each(rows, newJobRow)
	case []wire.JobCount:
		return wireof.Each(rows, newStatRow)
	case []wire.Finished:
		return wireof.Each(rows, newFinishedRow)
	case []wire.Run:
		return wireof.Each(rows, newRunRow)
	case []wire.Lock:
		return wireof.Each(rows, newLockRow)
	}
	return rows
}

// describe prints one noun for people.
func describe(w io.Writer, noun any) error {
	switch noun := noun.(type) {
	case *[]byte:
		return (&printer{out: w}).print(string(*noun))
	case *wire.QueueDetail:
		return writeFacts(w, queueFacts(noun))
	case *wire.ScheduleDetail:
		return writeFacts(w, scheduleFacts(noun))
	case *wire.Job:
		return writeFacts(w, jobFacts(noun))
	case *wire.Group:
		return writeFacts(w, groupFacts(noun))
	case *wire.EndpointDetail:
		return describeEndpoint(w, noun)
	}
	return encode(w, noun)
}

// write prints a slice of structs: their json tags name the columns. A tag
// `table:"-"` keeps a field out of the table, `table:"name"` gives it another
// name there, and `table:",rare"` shows it only if a row has something in it.
func write(w io.Writer, output string, rows any) error {
	all := reflect.ValueOf(rows)
	switch {
	case output == "json" && all.Len() == 0:
		return encode(w, []int{})
	case output == "json":
		return encode(w, rows)
	case output == "jsonl":
		for i := range all.Len() {
			if err := encode(w, all.Index(i).Interface()); err != nil {
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

// writeTable omits columns without values: see write.
func writeTable(w io.Writer, rows any) error {
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
			cells[j] = cell(all.Index(j).Field(i).Interface())
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

// cell formats a value as one line of text that is safe for a terminal.
func cell(v any) string {
	switch v := v.(type) {
	case wire.Instant:
		return cell(v.Time)
	case json.RawMessage:
		return oneLine(string(v), 60)
	case time.Time:
		if v.IsZero() {
			return "-"
		}
		return v.Format(time.RFC3339)
	case []string:
		return oneLine(strings.Join(v, ","), 60)
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
func oneLine(s string, width int) string { return plain.Line(s, width) }

// shown is an instant with its wall time.
func shown(t time.Time, zone *time.Location) string { return plain.Instant(t, zone) }

// harmless returns text that is safe for a terminal.
func harmless(s string) string { return plain.Harmless(s) }

// A fact is one entry of a description.
type fact struct{ about, text string }

// writeFacts prints facts of one or more lines, and omits empty ones.
func writeFacts(w io.Writer, facts []fact) error {
	for _, f := range facts {
		text := strings.TrimRight(harmless(f.text), "\n")
		if text == "" {
			continue
		}
		text = strings.ReplaceAll(text, "\n", "\n"+strings.Repeat(" ", 17))
		if _, err := fmt.Fprintf(w, "%-16s %s\n", f.about, text); err != nil {
			return err
		}
	}
	return nil
}

// isTerminal reports whether a stream is a terminal.
func isTerminal(stream any) bool {
	file, isFile := stream.(*os.File)
	return isFile && term.IsTerminal(int(file.Fd()))
}

// flat joins the lines of a driver's message.
func flat(s string) string { return strings.Join(strings.Fields(s), " ") }

// hostNow returns this host's clock, for people to compare and for deadlines of this host.
func hostNow() time.Time { return time.Now() } //nolint:forbidigo // never stored
