package main

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/internal/ops/wireof"
	"github.com/dbcron/dbcron/scheduler"
	"github.com/dbcron/dbcron/wire"
)

func (p *program) schedule() *cobra.Command {
	c := &cobra.Command{
		Use:   "schedule",
		Short: "See and change what runs when",
		Long: `See and change what runs when, and what became of it.

To look:      list, show, next, history, output, explain
To change:    add, edit, delete, pause, resume
From files:   apply, import, export
By hand:      run, cancel, backfill`,
	}
	c.AddCommand(
		p.scheduleList(), p.scheduleShow(), p.scheduleNext(), p.scheduleHistory(), p.scheduleOutput(), p.scheduleExplain(),
		p.scheduleAdd(), p.scheduleEdit(), p.scheduleDelete(), p.schedulePause(), p.scheduleResume(),
		p.scheduleApply(), p.scheduleImport(), p.scheduleExport(),
		p.scheduleRun(), p.scheduleCancel(), p.scheduleBackfill())
	return c
}

// A scheduleRow is what a table shows of a schedule.
type scheduleRow struct {
	Name   string       `table:"name"`
	Spec   string       `table:"spec"`
	Zone   string       `table:"time zone"`
	State  string       `table:"state"`
	Next   wire.Instant `table:"next"`
	Tag    string       `table:"tag,rare"`
	Kind   string       `table:"kind"`
	What   string       `table:"command"`
	Reason string       `table:"reason"`
}

func newScheduleRow(w *wire.Schedule) scheduleRow {
	s := wireof.ScheduleOf(w)
	row := scheduleRow{
		Name: w.Name, Spec: w.Spec, Zone: w.TimeZone, State: w.State, Next: w.Next, Kind: w.Kind, What: what(&s), Reason: w.Reason,
	}
	if w.Tag != "default" {
		row.Tag = w.Tag
	}
	return row
}

// what describes for people what a schedule runs.
func what(s *scheduler.Schedule) string {
	if s.Kind == "job" {
		if s.Job.Queue == "" {
			return s.Command
		}
		return s.Command + " in queue " + s.Job.Queue
	}
	var argv []string
	if s.Kind != "argv" || json.Unmarshal([]byte(s.Command), &argv) != nil {
		return s.Command
	}
	return shellLine(argv)
}

// shellLine quotes words for a shell.
func shellLine(words []string) string {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:,@%"
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = w
		if w == "" || strings.Trim(w, plain) != "" {
			quoted[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
	}
	return strings.Join(quoted, " ")
}

func (p *program) scheduleList() *cobra.Command {
	var states []string
	c := p.twin(twin{
		id: "list-schedules", use: "list", short: "List the schedules",
		long: `List the schedules. The column NEXT is the next slot, in UTC. With -o json all of
each schedule is there, with the names that the columns of the table have.`,
		example: `  dbcron schedule list
  dbcron schedule list --state failed,paused
  dbcron schedule list -o jsonl | jq -r 'select(.tag == "eu") | .name'`,
		rows: func(_ context.Context, rows any, _, output string) error {
			all := slices.DeleteFunc(rows.([]wire.Schedule), func(s wire.Schedule) bool { //nolint:forcetypeassert // what the operation lists
				return len(states) > 0 && !slices.Contains(states, s.State)
			})
			return writeRows(p.out, output, all)
		},
	})
	check := c.PreRunE
	c.PreRunE = func(c *cobra.Command, args []string) error {
		for _, state := range states {
			if !slices.Contains(scheduleStates, state) {
				return usagef("--state %q is not known; use %s", state, strings.Join(scheduleStates, ", "))
			}
		}
		return check(c, args)
	}
	c.Flags().StringSliceVar(&states, "state", nil, "schedules in one of these states, with commas between: "+
		strings.Join(scheduleStates, ", "))
	return c
}

var scheduleStates = []string{"active", "paused", "ended", "failed"}

// eachSchedule reads page by page, since there may be a million.
func eachSchedule(ctx context.Context, db *dialect.DB, f func(*scheduler.Schedule)) error {
	const page = 1000
	for after := ""; ; {
		found, err := scheduler.List(ctx, db, after, page)
		if err != nil {
			return err
		}
		for i := range found {
			f(&found[i])
		}
		if len(found) < page {
			return nil
		}
		after = found[page-1].Name
	}
}
