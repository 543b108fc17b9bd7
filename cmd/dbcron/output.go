package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/dbcron/dbcron/internal/ops/logs"
	"github.com/dbcron/dbcron/internal/ops/table"
	"github.com/dbcron/dbcron/internal/ops/wireof"
	"github.com/dbcron/dbcron/internal/plain"
	"github.com/dbcron/dbcron/scheduler"
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
		return table.Print(w, wireof.Each(all, row))
	}
	return table.Write(w, output, wireof.Each(all, word))
}

// writeRows prints a list of an API's nouns: in tables what rowsOf makes of them.
func writeRows(w io.Writer, output string, rows any) error {
	if output == "table" {
		rows = rowsOf(rows)
	}
	return table.Write(w, output, rows)
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
	case []wire.Node: // one row for each process, as on the dashboard
		return wireof.Each(scheduler.Processes(wireof.Each(rows, wireof.NodeOf)), wireof.Node)
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
	case *wire.JobExplanation:
		return writeFacts(w, jobCauses(noun))
	case *wire.Group:
		return writeFacts(w, groupFacts(noun))
	case *wire.EndpointDetail:
		return describeEndpoint(w, noun)
	}
	return table.Encode(w, noun)
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
	file, isFile := direct(stream).(*os.File)
	return isFile && term.IsTerminal(int(file.Fd()))
}

// direct returns the stream to which an outlet writes, or the stream itself.
func direct(stream any) any {
	if o, ok := stream.(*logs.Outlet); ok {
		return o.To
	}
	return stream
}

// flat joins the lines of a driver's message.
func flat(s string) string { return strings.Join(strings.Fields(s), " ") }

// hostNow returns this host's clock, for people to compare and for deadlines of this host.
func hostNow() time.Time { return time.Now() } //nolint:forbidigo // never stored
