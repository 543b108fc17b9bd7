package main

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/internal/ops/wireof"
	"github.com/dbcron/dbcron/scheduler"
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
	Name   string    `table:"name"`
	Spec   string    `table:"spec"`
	Zone   string    `table:"time zone"`
	State  string    `table:"state"`
	Next   time.Time `table:"next"`
	Tag    string    `table:"tag,rare"`
	Kind   string    `table:"kind"`
	What   string    `table:"command"`
	Reason string    `table:"reason"`
}

func newScheduleRow(s *scheduler.Schedule) scheduleRow {
	row := scheduleRow{Name: s.Name, Spec: s.Spec, Zone: s.Zone, State: s.State, Kind: s.Kind, What: what(s), Reason: s.Reason}
	if s.State == "active" { // otherwise it will not run
		row.Next = s.Due
	}
	if s.Tag != "default" {
		row.Tag = s.Tag
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
	var output string
	var states []string
	c := &cobra.Command{
		Use:   "list",
		Short: "List the schedules",
		Long: `List the schedules. The column NEXT is the next slot, in UTC. With -o json all of
each schedule is there, with the names that the columns of the table have.`,
		Example: `  dbcron schedule list
  dbcron schedule list --state failed,paused
  dbcron schedule list -o jsonl | jq -r 'select(.tag == "eu") | .name'`,
		RunE: func(c *cobra.Command, _ []string) error {
			for _, state := range states {
				if !slices.Contains(scheduleStates, state) {
					return usagef("--state %q is not known; use %s", state, strings.Join(scheduleStates, ", "))
				}
			}
			return p.with(c.Context(), func(db *dialect.DB) error {
				var all []scheduler.Schedule
				err := eachSchedule(c.Context(), db, func(s *scheduler.Schedule) {
					if len(states) == 0 || slices.Contains(states, s.State) {
						all = append(all, *s)
					}
				})
				if err != nil {
					return err
				}
				return writeEach(p.out, output, all, wireof.Schedule, newScheduleRow)
			})
		},
	}
	c.Flags().StringSliceVar(&states, "state", nil, "schedules in one of these states, with commas between: "+
		strings.Join(scheduleStates, ", "))
	outputFlag(c, &output)
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
