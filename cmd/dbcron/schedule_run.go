package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/internal/ops/health"
	"github.com/dbcron/dbcron/internal/setting"
	"github.com/dbcron/dbcron/scheduler"
	"github.com/dbcron/dbcron/scheduler/cronspec"
	"github.com/dbcron/dbcron/wire"
)

func (p *program) scheduleRun() *cobra.Command {
	var wait bool
	c := p.twin(twin{
		id: "run-schedule", use: "run NAME", short: "Run a schedule now, on any daemon",
		long: `Have a daemon run a schedule now, even if it is paused, and print the run's id.
Its next slot stays what it is. While a run is under way, another one waits for its
end or, with --overlap forbid, is refused: exit code 4.

With --wait follow it until it has ended, print what it writes, and exit with 0 if
it ended well, else with 1. A signal ends the waiting, not the run.`,
		example: `  dbcron schedule run backup --wait
  id=$(dbcron schedule run backup) && dbcron schedule output "$id" --follow`,
		before: func(context.Context, values) error {
			if wait && p.db == nil {
				return usagef("--wait takes the database, and not a daemon; dbcron schedule run prints the run's id")
			}
			return nil
		},
		then: func(ctx context.Context, answer any) error {
			return p.started(ctx, answer.(*wire.Run), wait) //nolint:forcetypeassert // it starts one
		},
	})
	c.Flags().BoolVarP(&wait, "wait", "w", false, "follow the run, and exit by its outcome")
	return c
}

// started prints the id of a run, or follows it.
func (p *program) started(ctx context.Context, run *wire.Run, wait bool) error {
	p.say("run_id", run.ID)
	if !wait {
		_, err := fmt.Fprintln(p.out, run.ID)
		return err
	}
	last, err := p.follow(ctx, func(ctx context.Context) ([]scheduler.Run, error) {
		return health.RunsOfSlot(ctx, p.db, run.Schedule, run.Due.Time)
	})
	if err != nil {
		return err
	}
	p.say("state", last.State)
	text := fmt.Sprintf("%s: %s", last.State, health.Result(last))
	if last.State != "ok" {
		return errors.New(text)
	}
	fmt.Fprintln(p.err, "dbcron: "+text)
	return nil
}

func (p *program) scheduleCancel() *cobra.Command {
	var run *wire.Run // before
	return p.twin(twin{
		id: "cancel-run", use: "cancel RUN_ID", short: "End a run that waits or is under way",
		long: `End a run: one that waits at once, and one that is under way by asking its daemon,
which looks once per --poll and then sends SIGTERM. It is not tried again. Exit code
4: it has ended already.`,
		example: `  dbcron schedule cancel 4711 --reason "wrong month"`,
		before: func(ctx context.Context, given values) (err error) {
			run, err = ask[wire.Run](ctx, p, "get-run", "id", given["id"])
			return err
		},
		then: func(context.Context, any) error {
			p.say("schedule", run.Schedule)
			p.say("state", run.State)
			done := "was cancelled: it had not begun"
			if run.State != "waiting" {
				done = "is to be ended by its daemon, " + oneLine(run.By, 200)
			}
			fmt.Fprintf(p.err, "dbcron: run %s of %s %s\n", run.ID, oneLine(run.Schedule, 200), done)
			return nil
		},
	})
}

type backfillFlags struct {
	from, to string
	dryRun   bool
}

func (p *program) scheduleBackfill() *cobra.Command {
	var f backfillFlags
	c := &cobra.Command{
		Use:   "backfill NAME --from TIME --to TIME",
		Short: "Run past slots that have no good run",
		Long: `Run the slots of a schedule from one time to another, both included, as far as they
have no run that is ok or has not ended: oldest first, and one after another unless
--overlap is allow. The command finds its slot in DBCRON_DUE.

A time is RFC 3339, or a date with or without a time of day, read in the schedule's
zone. A date alone is the whole day, today as far as it is past.`,
		Example: `  dbcron schedule backfill report --from 2026-11-20 --to 2026-11-22 --dry-run
  dbcron schedule backfill report --from 2026-11-20T10:00 --to 2026-11-20T18:00:00Z`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if f.from == "" || f.to == "" {
				return usagef("%s needs --from and --to, such as --from 2026-11-20T10:00", c.CommandPath())
			}
			return p.with(c.Context(), func(db *dialect.DB) error { return p.backfill(c.Context(), db, args[0], f) })
		},
	}
	flags := c.Flags()
	flags.StringVar(&f.from, "from", "", "`time` of the first slot")
	flags.StringVar(&f.to, "to", "", "`time` of the last slot")
	flags.BoolVar(&f.dryRun, "dry-run", false, "only print what would be run")
	return c
}

func (p *program) backfill(ctx context.Context, db *dialect.DB, name string, f backfillFlags) error {
	s, err := scheduler.Get(ctx, db, name)
	if err != nil {
		return err
	}
	from, to, err := f.window(ctx, db, &s)
	if err != nil {
		return err
	}
	so := p.begin(ctx, task{what: "looking for the slots of " + oneLine(name, 200)})
	done, err := scheduler.Backfill(ctx, db, name, from, to, f.dryRun)
	so.end()
	if err != nil {
		return err
	}
	if !f.dryRun {
		_ = p.did(ctx, nil, "schedule.backfill", name, len(done.Slots), f.from+" to "+f.to)
	}
	p.say("slots", len(done.Slots))
	p.say("left", done.Left)
	p.say("dry_run", f.dryRun)
	text := counted(len(done.Slots), "slot", "slots")
	if n := len(done.Slots); n > 0 {
		text += fmt.Sprintf(", from %s to %s,", health.InZone(done.Slots[0], &s), health.InZone(done.Slots[n-1], &s))
	}
	switch {
	case f.dryRun:
		text += " would be run (dry run: nothing was changed)"
	default:
		text += " will be run"
	}
	_, err = fmt.Fprintf(p.out, "%s; %d left alone\n", text, done.Left)
	return err
}

// window parses from and to in the schedule's zone.
func (f *backfillFlags) window(ctx context.Context, db *dialect.DB, s *scheduler.Schedule) (from, to time.Time, err error) {
	plan, err := cronspec.New("@daily", s.Zone, "")
	if err != nil {
		return from, to, fmt.Errorf("%s: %w", s.Name, err)
	}
	from, _, err = setting.ParseTime(f.from, plan.Location())
	if err != nil {
		return from, to, usagef("--from: %v", err)
	}
	to, day, err := setting.ParseTime(f.to, plan.Location())
	if err != nil {
		return from, to, usagef("--to: %v", err)
	}
	if !day {
		return from, to, nil
	}
	next := to.In(plan.Location()).AddDate(0, 0, 1)
	now, err := scheduler.Clock(ctx, db)
	if last := next.Add(-time.Microsecond); last.Before(now) {
		return from, last, err
	}
	if to.Before(now) {
		return from, now, err
	}
	return from, to, err
}
