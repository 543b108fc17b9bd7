package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/dbcron/dbcron/internal/ops/health"
	"github.com/dbcron/dbcron/internal/ops/table"
	"github.com/dbcron/dbcron/wire"
)

func (p *program) finding() *cobra.Command {
	c := &cobra.Command{
		Use:   "finding",
		Short: "See what is wrong with the work, and acknowledge it",
		Long: `See what is wrong with schedules, runs, queues, endpoints and processes, and acknowledge what
is known. It is what dbcron doctor says beside its checks of the database, and works through a
daemon, too.`,
	}
	c.AddCommand(p.twin(twin{
		id: "list-findings", use: "list", short: "List what is wrong with the work",
		long: `List what is wrong with the work, the worst first, and causes before what follows from them.
What was acknowledged has the state known.`,
		example: `  dbcron finding list`,
		rows: func(_ context.Context, rows any, _, output string) error {
			return p.writeFindings(output, rows.([]wire.Finding)) //nolint:forcetypeassert // what the operation lists
		},
	}), p.twin(twin{
		id: "acknowledge-finding", use: "acknowledge FINDING", short: "Acknowledge a finding until it changes",
		long: `Acknowledge a finding by its id, which dbcron finding list has. It counts no more, neither for
dbcron doctor nor on the dashboard, until it changes, for 30 days at the longest. The audit has
who did it. Exit code 3: there is no such finding, or it has changed.`,
		example: `  dbcron finding acknowledge 4f2a90c1d377 --reason 'the disk comes on Monday'`,
	}), p.twin(twin{
		id: "reopen-finding", use: "reopen FINDING", short: "Have a finding count again that was acknowledged",
		example: `  dbcron finding reopen 4f2a90c1d377`,
	}))
	return c
}

// writeFindings prints findings as dbcron doctor prints checks, each with its id.
func (p *program) writeFindings(output string, all []wire.Finding) error {
	if output != "table" {
		return table.Write(p.out, output, all)
	}
	if len(all) == 0 {
		fmt.Fprintln(p.err, "dbcron: nothing is wrong with the work")
	}
	for i := range all {
		row := findingCheck(&all[i])
		if err := p.writeCheck(&row, all[i].ID); err != nil {
			return err
		}
	}
	return nil
}

// findingCheck returns a finding as one of doctor's checks.
func findingCheck(f *wire.Finding) health.Check {
	row := health.Check{Name: f.About, Status: health.Warning, Detail: f.What, Advice: f.Do}
	if f.Failed {
		row.Status = health.Failed
	}
	if f.Why != "" {
		row.Detail += ": " + f.Why
	}
	if !f.Since.IsZero() {
		row.Detail += ", since " + shown(f.Since.Time, time.UTC)
	}
	if f.AcknowledgedBy != "" {
		row.Status = health.Known
		row.Detail += fmt.Sprintf(" (acknowledged by %s at %s", f.AcknowledgedBy, shown(f.AcknowledgedAt.Time, time.UTC))
		if f.Reason != "" {
			row.Detail += ": " + f.Reason
		}
		row.Detail += ")"
	}
	return row
}
