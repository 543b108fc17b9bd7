package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/dbcron/dbcron/internal/ops/wireof"
	"github.com/dbcron/dbcron/scheduler"
	"github.com/dbcron/dbcron/wire"
)

func (p *program) scheduleAdd() *cobra.Command {
	var f scheduleFlags
	c := &cobra.Command{
		Use:   "add NAME --spec SPEC [flags] -- COMMAND [ARG…]",
		Short: "Add a schedule",
		Long: `Add a schedule. Its first run is at the next slot.

One word after -- is a line for the shell (/bin/sh, or what --env SHELL=… says);
several are a program and its arguments, which no shell reads. The command runs
with the rights of the daemon, and an environment of its own: see
dbcron help operations. Instead of a command there may be --http, --sql, --func or --job.

--job enqueues a job: one for each slot, in the transaction that claims it. Its queue
tries it again and ends it; --max-attempts, --timeout and --overlap have nothing to do
with that, but there are --job-max-attempts and --job-timeout. --job-unique skips slots
while the last job waits or runs.

Durations are such as 90s, 1h30m or 30d. Times are read in the schedule's zone, if
they do not say otherwise (2026-12-31T18:00, or 2026-12-31T18:00:00Z).`,
		Example: `  dbcron schedule add backup --spec "30 3 * * *" --time-zone Europe/Berlin -- "pg_dump shop | gzip > /backup/shop.gz"
  dbcron schedule add poll --spec "@every 90s" --timeout 1m --max-attempts 3 -- /usr/local/bin/poll --quick
  dbcron schedule add report --spec @hourly --http "POST https://example.org/report" --header 'X-Key: 4711' --body '{}'
  dbcron schedule add purge --spec @daily --sql "DELETE FROM session WHERE expires < CURRENT_TIMESTAMP"
  dbcron schedule add digest --spec @daily --job digest --job-queue mail --payload '{"to": "ada@example.org"}'`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			name, err := f.split(c, args)
			if err != nil {
				return err
			}
			if !c.Flags().Changed("spec") {
				return usagef("%s needs --spec, such as --spec '*/5 * * * *'", c.CommandPath())
			}
			s := scheduler.Schedule{Name: name}
			if err := f.apply(&s); err != nil {
				return err
			}
			return p.withAPI(c.Context(), func() error {
				_, err := p.setSchedule(c.Context(), &f, &s, "new")
				return err
			})
		},
	}
	f.register(c)
	return c
}

func (p *program) scheduleEdit() *cobra.Command {
	f := scheduleFlags{edit: true}
	c := &cobra.Command{
		Use:   "edit NAME [flags] [-- COMMAND [ARG…]]",
		Short: "Change a schedule; settings that are not given stay",
		Long: `Change a schedule that was made by hand. What is not given stays as it is, and an
empty text takes a setting back: --timeout ''. --env and --header set one variable
or header; without a value they take it away: --env NAME.

If its times change, its next slot is planned anew from now on. A schedule that
comes from a file is changed there: exit code 4.`,
		Example: `  dbcron schedule edit backup --spec "0 4 * * *" --timeout 2h --env PGHOST=db2
  dbcron schedule edit backup -- /usr/local/bin/backup --full`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			name, err := f.split(c, args)
			if err != nil {
				return err
			}
			if !f.any() {
				return usagef("there is nothing to change; name with flags what is to be: %s", c.Use)
			}
			return p.withAPI(c.Context(), func() error { return p.editSchedule(c.Context(), name, &f) })
		},
	}
	f.register(c)
	return c
}

func (p *program) editSchedule(ctx context.Context, name string, f *scheduleFlags) error {
	w, err := ask[wire.Schedule](ctx, p, "get-schedule", "schedule", name)
	if err != nil {
		return err
	}
	s := wireof.ScheduleOf(w)
	if s.Source != "" { // before any error about the flags
		return fmt.Errorf("%w: %s comes from %s", scheduler.ErrManaged, name, s.Source)
	}
	if err := f.apply(&s); err != nil {
		return err
	}
	w, err = p.setSchedule(ctx, f, &s, "existing")
	if err == nil && w.State != "active" {
		s = wireof.ScheduleOf(w)
		fmt.Fprintf(p.err, "dbcron: it does not run yet: it is %s; dbcron schedule resume lets it run again\n", standing(&s))
	}
	return err
}

// setSchedule sends what the flags have changed of a schedule, and warns of what is missing.
func (p *program) setSchedule(ctx context.Context, f *scheduleFlags, s *scheduler.Schedule, only string) (*wire.Schedule, error) {
	change, err := f.change(s)
	if err != nil {
		return nil, err
	}
	answer, err := p.send(ctx, "set-schedule", values{"schedule": s.Name, "only": only}, change, "")
	if err != nil {
		return nil, flagged(err)
	}
	set := answer.(*wire.Schedule) //nolint:forcetypeassert // it sets a schedule
	return set, p.warnOfMissing([]scheduler.Schedule{*s}, func(name string) (bool, error) {
		_, err := ask[wire.Schedule](ctx, p, "get-schedule", "schedule", name)
		if isNotThere(err) {
			return true, nil
		}
		return false, err
	})
}

// warnOfMissing warns of schedules that others start but that do not exist, perhaps not yet.
func (p *program) warnOfMissing(given []scheduler.Schedule, isMissing func(name string) (bool, error)) error {
	known := map[string]bool{"": true}
	for _, s := range given {
		known[s.Name] = true
	}
	for _, s := range given {
		for _, next := range []struct{ column, name string }{{"on_success", s.OnSuccess}, {"on_failure", s.OnFailure}} {
			if known[next.name] {
				continue
			}
			known[next.name] = true
			missing, err := isMissing(next.name)
			if err != nil {
				return err
			}
			if missing {
				fmt.Fprintf(p.err, "dbcron: warning: %s of %s: there is no schedule %s yet\n", next.column,
					oneLine(s.Name, 200), oneLine(next.name, 200))
			}
		}
	}
	return nil
}

func (p *program) scheduleDelete() *cobra.Command {
	var source string
	return p.twin(twin{
		id: "delete-schedule", use: "delete NAME", short: "Delete a schedule; its history stays",
		long: `Delete a schedule. Its history stays, a run under way goes on, and runs that wait
are cancelled. One that comes from a file is there again after the next import, if
the file still has it.`,
		example: `  dbcron schedule delete backup`,
		before: func(ctx context.Context, given values) error {
			s, err := ask[wire.Schedule](ctx, p, "get-schedule", "schedule", given["schedule"])
			if err == nil {
				source = s.Source
			}
			return err
		},
		then: func(context.Context, any) error {
			if source != "" {
				fmt.Fprintf(p.err, "dbcron: it came from %s, and will be there again when that is imported, unless it is deleted there too\n",
					oneLine(source, 300))
			}
			return nil
		},
	})
}

func (p *program) schedulePause() *cobra.Command {
	return p.twin(twin{
		id: "pause-schedule", use: "pause NAME", short: "Pause a schedule",
		long: `Pause a schedule until it is resumed. A running run continues; waiting runs are
cancelled when their turn comes. The schedule can still be run by hand.

One that comes from a file stays paused when the file is imported again.`,
		example: `  dbcron schedule pause backup --reason "disk is full, ticket 4711"`,
		before:  p.unlessScheduleIs("paused"),
	})
}

func (p *program) scheduleResume() *cobra.Command {
	return p.twin(twin{
		id: "resume-schedule", use: "resume NAME", short: "Resume a schedule that was paused, has failed or has ended",
		long: `Resume a schedule that was paused, has failed or has ended, from its next slot on. Slots
that have come meanwhile are recorded as skipped. A daemon plans it, or finds again what
is wrong with it.`,
		example: `  dbcron schedule resume backup`,
		before:  p.unlessScheduleIs("active"),
	})
}

// unlessScheduleIs ends a command that has nothing to do.
func (p *program) unlessScheduleIs(state string) func(context.Context, values) error {
	return func(ctx context.Context, given values) error {
		w, err := ask[wire.Schedule](ctx, p, "get-schedule", "schedule", given["schedule"])
		if err != nil {
			return err
		}
		if w.State == state || state == "paused" && w.State != "active" {
			s := wireof.ScheduleOf(w)
			fmt.Fprintf(p.err, "dbcron: nothing to do: %s is %s\n", oneLine(w.Name, 200), standing(&s))
			return errNothing
		}
		return nil
	}
}
