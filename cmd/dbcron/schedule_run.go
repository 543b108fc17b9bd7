package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/dbcron/dbcron/internal/ops/health"
	"github.com/dbcron/dbcron/scheduler"
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
	last, err := p.follow(ctx, p.attemptsAt(run))
	if err != nil {
		return err
	}
	p.say("state", last.State)
	text := fmt.Sprintf("%s: %s", last.State, resultOf(last))
	if last.State != "ok" {
		return errors.New(text)
	}
	fmt.Fprintln(p.err, "dbcron: "+text)
	return nil
}

func (p *program) scheduleCancel() *cobra.Command {
	return p.twin(twin{
		id: "cancel-run", use: "cancel RUN_ID", short: "End a run that waits or is under way",
		long: `End a run: one that waits at once, and one that is under way by asking its daemon,
which looks once per --poll and then sends SIGTERM. It is not tried again. Exit code
4: it has ended already.`,
		example: `  dbcron schedule cancel 4711 --reason "wrong month"`,
		then: func(_ context.Context, answer any) error {
			run := answer.(*wire.Run) //nolint:forcetypeassert // what the operation answers with
			done := "was cancelled: it had not begun"
			if run.State != "waiting" {
				done = "is to be ended by its daemon, " + oneLine(run.By, 200)
			}
			fmt.Fprintf(p.err, "dbcron: run %s of %s %s\n", run.ID, oneLine(run.Schedule, 200), done)
			return nil
		},
	})
}

func (p *program) scheduleBackfill() *cobra.Command {
	var zone scheduler.Schedule
	return p.twin(twin{
		id: "backfill-schedule", use: "backfill NAME --from TIME --to TIME", takes: "looking for the slots",
		must: map[string]string{"from": "2026-11-20T10:00", "to": "2026-11-20T18:00"},
		long: `Run the slots of a schedule from one time to another, both included, as far as they
have no run that is ok or has not ended: oldest first, and one after another unless
--overlap is allow. The command finds its slot in DBCRON_DUE.

A time is RFC 3339, or a date with or without a time of day, read in the schedule's
zone. A date alone is the whole day, today as far as it is past.`,
		example: `  dbcron schedule backfill report --from 2026-11-20 --to 2026-11-22 --dry-run
  dbcron schedule backfill report --from 2026-11-20T10:00 --to 2026-11-20T18:00:00Z`,
		before: func(ctx context.Context, given values) error {
			s, err := ask[wire.Schedule](ctx, p, "get-schedule", "schedule", given["schedule"])
			if err == nil {
				zone.Zone = s.TimeZone
			}
			return err
		},
		then: func(_ context.Context, answer any) error {
			done := answer.(*wire.Backfilled) //nolint:forcetypeassert // what the operation answers with
			text := counted(done.Slots, "slot", "slots")
			if done.Slots > 0 {
				text += fmt.Sprintf(", from %s to %s,", health.InZone(done.First.Time, &zone), health.InZone(done.Last.Time, &zone))
			}
			fate := "will be run"
			if done.DryRun {
				fate = "would be run (dry run: nothing was changed)"
			}
			_, err := fmt.Fprintf(p.out, "%s %s; %d left alone\n", text, fate, done.Left)
			return err
		},
	})
}
