package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/scheduler"
	"github.com/dbcron/dbcron/scheduler/cronspec"
)

func (p *program) schedule() *cobra.Command {
	c := &cobra.Command{
		Use:   "schedule",
		Short: "See and change what runs when",
	}
	c.AddCommand(p.scheduleList(), p.scheduleAdd(), p.scheduleDelete(), p.scheduleNext(), p.scheduleHistory())
	return c
}

type scheduleRow struct {
	Name    string            `json:"name"`
	Spec    string            `json:"spec"`
	Zone    string            `json:"time_zone"`
	DST     string            `json:"dst" table:"-"`
	State   string            `json:"state"`
	Due     *time.Time        `json:"next"`
	Command string            `json:"command"`
	Stdin   string            `json:"stdin,omitempty" table:"-"`
	Env     map[string]string `json:"env,omitempty" table:"-"`
	Source  string            `json:"source,omitempty" table:"-"`
	Reason  string            `json:"reason"`
}

func (p *program) scheduleList() *cobra.Command {
	var output string
	c := &cobra.Command{
		Use:   "list",
		Short: "List the schedules",
		RunE: func(c *cobra.Command, _ []string) error {
			return p.with(c.Context(), func(db *dialect.DB) error { return p.listSchedules(c.Context(), db, output) })
		},
	}
	outputFlag(c, &output)
	return c
}

// listSchedules reads page by page: there may be a million.
func (p *program) listSchedules(ctx context.Context, db *dialect.DB, output string) error {
	const page = 1000
	var rows []scheduleRow
	for after := ""; ; {
		found, err := scheduler.List(ctx, db, after, page)
		if err != nil {
			return err
		}
		for _, s := range found {
			rows = append(rows, scheduleRow{
				s.Name, s.Spec, s.Zone, s.DST, s.State, optional(s.Due), s.Command, s.Stdin, s.Env, s.Source, s.Reason,
			})
		}
		if len(found) < page {
			return write(p.out, output, rows)
		}
		after = found[page-1].Name
	}
}

func (p *program) scheduleAdd() *cobra.Command {
	var s scheduler.Schedule
	var env []string
	c := &cobra.Command{
		Use:   "add NAME --expr SPEC -- COMMAND [ARG…]",
		Short: "Add a schedule",
		Long: `Add a schedule. Its first run is at the next slot.

One word after -- is a line for the shell (/bin/sh, or what --env SHELL=… says);
several are a command and its arguments. The command runs with the rights of
the daemon, and an environment of its own: see docs/operations.md.`,
		Example: `  dbcron schedule add backup --expr "30 3 * * *" --tz Europe/Berlin -- "pg_dump shop | gzip > /backup/shop.gz"
  dbcron schedule add poll --expr "@every 90s" -- /usr/local/bin/poll --quick`,
		Args: cobra.MinimumNArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			if err := needExpr(c); err != nil {
				return err
			}
			if c.ArgsLenAtDash() != 1 {
				return usagef("one name goes before --, and the command after it: %s", c.Use)
			}
			s.Name, s.Command, s.Env = args[0], shellLine(args[1:]), map[string]string{}
			for _, pair := range env {
				name, value, ok := strings.Cut(pair, "=")
				if !ok {
					return usagef("--env %q is not NAME=VALUE", pair)
				}
				s.Env[name] = value
			}
			return p.with(c.Context(), func(db *dialect.DB) error { return scheduler.Add(c.Context(), db, s) })
		},
	}
	flags := c.Flags()
	flags.StringVar(&s.Spec, "expr", "", "when: five cron fields, or @daily, @every 90s, …")
	flags.StringVar(&s.Zone, "tz", "UTC", "time zone of the spec")
	flags.StringVar(&s.DST, "dst", "vixie", "when clocks change: vixie (fixed times run once) or wall")
	flags.StringVar(&s.Stdin, "stdin", "", "text for the command's standard input")
	flags.StringArrayVar(&env, "env", nil, "NAME=VALUE for the command's environment; may be repeated")
	return c
}

// needExpr is what cobra's required flags are, with our exit code.
func needExpr(c *cobra.Command) error {
	if !c.Flags().Changed("expr") {
		return usagef("%s needs --expr, such as --expr '*/5 * * * *'", c.CommandPath())
	}
	return nil
}

// shellLine makes one line for the shell: several words are quoted.
func shellLine(words []string) string {
	if len(words) == 1 {
		return words[0]
	}
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
	}
	return strings.Join(quoted, " ")
}

func (p *program) scheduleDelete() *cobra.Command {
	return &cobra.Command{
		Use:   "delete NAME",
		Short: "Delete a schedule; its history stays",
		Args:  cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return p.with(c.Context(), func(db *dialect.DB) error { return scheduler.Delete(c.Context(), db, args[0]) })
		},
	}
}

func (p *program) scheduleNext() *cobra.Command {
	var expr, zone, from, dst, output string
	var n int
	c := &cobra.Command{
		Use:     "next --expr SPEC",
		Short:   "Print the next slots of a spec; no database is opened",
		Example: `  dbcron schedule next --expr "30 2 * * *" --tz Europe/Berlin --from 2026-03-28T00:00:00Z -n 3 -o json`,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := needExpr(c); err != nil {
				return err
			}
			plan, err := cronspec.New(expr, zone, dst)
			if err != nil {
				return err
			}
			at := hostNow()
			if from != "" {
				if at, err = time.Parse(time.RFC3339, from); err != nil {
					return usagef("--from %q is not a time as in RFC 3339, such as 2026-03-28T00:00:00Z", from)
				}
			}
			if at.Year() < 2 {
				return usagef("--from %s: slots are known from the year 2 on", from)
			}
			if n < 1 || n > 10_000 {
				return usagef("-n %d: from 1 to 10000 slots can be had", n)
			}
			return p.printSlots(plan, at, n, output)
		},
	}
	flags := c.Flags()
	flags.StringVar(&expr, "expr", "", "when: five cron fields, or @daily, @every 90s, …")
	flags.StringVar(&zone, "tz", "UTC", "time zone of the spec")
	flags.StringVar(&from, "from", "", "print slots strictly after this time (RFC 3339; default: now)")
	flags.IntVarP(&n, "count", "n", 5, "how many slots")
	flags.StringVar(&dst, "dst", "vixie", "when clocks change: vixie (fixed times run once) or wall")
	outputFlag(c, &output)
	return c
}

func (p *program) printSlots(plan *cronspec.Schedule, at time.Time, n int, output string) error {
	times := []string{}
	for range n {
		next, ok := plan.Next(at)
		if !ok {
			break
		}
		times = append(times, shown(next, plan.Location()))
		at = next
	}
	if output == "json" {
		return encode(p.out, struct {
			Times []string `json:"times"`
		}{times})
	}
	for _, t := range times {
		line := t
		if output == "jsonl" {
			line = `"` + t + `"`
		}
		if _, err := fmt.Fprintln(p.out, line); err != nil {
			return err
		}
	}
	return nil
}

// shown is an instant with its wall time, or in UTC where the zone's offset has
// seconds, as local mean times have: RFC 3339 cannot write these.
func shown(t time.Time, zone *time.Location) string {
	local := t.In(zone)
	if _, offset := local.Zone(); offset%60 != 0 {
		local = t.UTC()
	}
	return local.Format(time.RFC3339)
}

type runRow struct {
	ID       string     `json:"id" table:"-"` // a string: JSON readers round large numbers
	Schedule string     `json:"schedule"`
	Due      *time.Time `json:"due"`
	To       *time.Time `json:"to" table:"-"`
	Slots    int64      `json:"slots"`
	Attempt  int        `json:"attempt"`
	State    string     `json:"state"`
	Exit     *int       `json:"exit_code"`
	Seconds  string     `json:"seconds"`
	By       string     `json:"by" table:"-"`
	Started  *time.Time `json:"started" table:"-"`
	Finished *time.Time `json:"finished" table:"-"`
	Error    string     `json:"error"`
	Output   string     `json:"output"`
}

func (p *program) scheduleHistory() *cobra.Command {
	var output string
	var n int
	c := &cobra.Command{
		Use:   "history [NAME]",
		Short: "List the newest runs, with what became of them",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if n < 1 || n > 100_000 {
				return usagef("-n %d: from 1 to 100000 runs can be had", n)
			}
			name := strings.Join(args, "")
			return p.with(c.Context(), func(db *dialect.DB) error { return p.listRuns(c.Context(), db, name, n, output) })
		},
	}
	c.Flags().IntVarP(&n, "count", "n", 20, "how many runs")
	outputFlag(c, &output)
	return c
}

func (p *program) listRuns(ctx context.Context, db *dialect.DB, name string, n int, output string) error {
	found, err := scheduler.History(ctx, db, name, n)
	if err != nil {
		return err
	}
	if len(found) == 0 && name != "" {
		// No runs yet is an empty list; a name that nobody knows is an error.
		if _, err := scheduler.Get(ctx, db, name); err != nil {
			return err
		}
	}
	rows := make([]runRow, len(found))
	for i, r := range found {
		rows[i] = runRow{
			ID: fmt.Sprint(r.ID), Schedule: r.Schedule, Due: optional(r.Due), To: optional(r.To), Slots: r.Slots,
			Attempt: r.Attempt, State: r.State, Seconds: "-", By: r.By, Started: optional(r.Started),
			Finished: optional(r.Finished), Error: r.Error, Output: r.Output,
		}
		if r.ExitCode >= 0 {
			rows[i].Exit = &r.ExitCode
		}
		if !r.Started.IsZero() && !r.Finished.IsZero() {
			rows[i].Seconds = fmt.Sprintf("%.3f", r.Finished.Sub(r.Started).Seconds())
		}
	}
	return write(p.out, output, rows)
}
