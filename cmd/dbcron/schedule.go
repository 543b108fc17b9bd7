package main

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/internal/duration"
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

type scheduleRow struct {
	Name    string            `json:"name"`
	Spec    string            `json:"spec"`
	Zone    string            `json:"time_zone"`
	State   string            `json:"state"`
	Due     *time.Time        `json:"next"`
	Tag     tagName           `json:"tag" table:",rare"`
	Kind    string            `json:"kind"`
	What    string            `json:"-" table:"command"`
	Command string            `json:"command" table:"-"`
	Stdin   string            `json:"stdin,omitempty" table:"-"`
	Env     map[string]string `json:"env,omitempty" table:"-"`
	Headers map[string]string `json:"headers,omitempty" table:"-"`
	Source  string            `json:"source,omitempty" table:"-"`
	Reason  string            `json:"reason"`

	policyRow  `table:"-"`
	jobColumns `table:"-"`
}

// jobColumns are the columns of a schedule that enqueues a job.
type jobColumns struct {
	Queue       string `json:"job_queue,omitempty"`
	Key         string `json:"job_key,omitempty"`
	Priority    int    `json:"job_priority,omitempty"`
	MaxAttempts int    `json:"job_max_attempts,omitempty"`
	Timeout     string `json:"job_timeout,omitempty"`
	Unique      string `json:"job_unique,omitempty"`
	UniqueFor   string `json:"job_unique_for,omitempty"`
}

// A policyRow has the columns as the table has them: durations such as 1h30m, -1 for all runs, and "" for unset.
type policyRow struct {
	DST           string     `json:"dst"`
	Dir           string     `json:"dir"`
	User          string     `json:"user"`
	Missed        string     `json:"missed"`
	MissedWindow  string     `json:"missed_window"`
	Overlap       string     `json:"overlap"`
	FirstRun      string     `json:"first_run"`
	MaxAttempts   int        `json:"max_attempts"`
	RetryDelay    string     `json:"retry_delay"`
	RetryMaxDelay string     `json:"retry_max_delay"`
	RetryPastNext bool       `json:"retry_past_next"`
	Repeatable    bool       `json:"repeatable"`
	Timeout       string     `json:"timeout"`
	Stall         string     `json:"stall"`
	KillGrace     string     `json:"kill_grace"`
	Jitter        string     `json:"jitter"`
	Starts        *time.Time `json:"starts"`
	Ends          *time.Time `json:"ends"`
	MaxFailures   int        `json:"max_failures"`
	KeepRuns      int        `json:"keep_runs"`
	KeepFor       string     `json:"keep_for"`
	OnSuccess     string     `json:"on_success"`
	OnFailure     string     `json:"on_failure"`
	Notify        string     `json:"notify"`
	Failures      int        `json:"failures"`
}

// A tagName appears in tables only if it is not the default.
type tagName string

func (t tagName) String() string {
	if t == "default" {
		return ""
	}
	return string(t)
}

func newScheduleRow(s *scheduler.Schedule) scheduleRow {
	keep := duration.Format(s.KeepFor)
	if s.KeepFor < 0 {
		keep = "forever"
	}
	var due *time.Time
	if s.State == "active" { // otherwise it will not run
		due = optional(s.Due)
	}
	var job jobColumns
	if s.Kind == "job" {
		job = jobColumns{
			s.Job.Queue, s.Job.Key, s.Job.Priority, s.Job.MaxAttempts, duration.Format(s.Job.Timeout),
			s.Job.Unique, duration.Format(s.Job.UniqueFor),
		}
	}
	return scheduleRow{
		s.Name, s.Spec, s.Zone, s.State, due, tagName(s.Tag), s.Kind, what(s), s.Command, s.Stdin, s.Env, s.Headers,
		s.Source, s.Reason,
		policyRow{
			s.DST, s.Dir, s.User, s.Missed, duration.Format(s.MissedWindow), s.Overlap, s.FirstRun, s.MaxAttempts,
			duration.Format(s.RetryDelay), duration.Format(s.RetryMaxDelay), s.RetryPastNext, !s.Unrepeatable,
			duration.Format(s.Timeout), duration.Format(s.Stall), duration.Format(s.KillGrace), duration.Format(s.Jitter),
			optional(s.Starts), optional(s.Ends), s.MaxFailures, s.KeepRuns, keep, s.OnSuccess, s.OnFailure, s.Notify, s.Failures,
		},
		job,
	}
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
				var rows []scheduleRow
				err := eachSchedule(c.Context(), db, func(s *scheduler.Schedule) {
					if len(states) == 0 || slices.Contains(states, s.State) {
						rows = append(rows, newScheduleRow(s))
					}
				})
				if err != nil {
					return err
				}
				return write(p.out, output, rows)
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
