package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/engines"
	"github.com/dbcron/dbcron/internal/ops/checkup"
	"github.com/dbcron/dbcron/internal/ops/health"
	"github.com/dbcron/dbcron/internal/ops/table"
)

// errDoctor is the error of a doctor that found a problem.
var errDoctor = errors.New("something needs attention")

func (p *program) doctor() *cobra.Command {
	var output, as string
	var work, monitor bool
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Check the database, and say what to do about what is wrong",
		Example: `  dbcron doctor
  dbcron doctor --role daemon -o json`,
		Long: `Check the database, and say what to do about what is wrong: the server's settings, the
tables, the clock, jobs of which the database refuses to write what has become of them, and
the rights of the user that it connects with. It says what the rights are enough for, and
prints a GRANT for each table on which one is missing: for what --role says the user is for,
or else for what it comes nearest to. A user that may write little, such as that of a program
that only enqueues, lacks nothing unless --role says so.

Then it looks at the work: schedules that are late or were given up, runs that failed in the
last day, queues that are behind or paused, dead jobs of the last day, processes that were
lost, tokens that expire within a week.

It exits with 1 if a check failed; warnings leave that at 0. With --monitor it prints one
line and exits as Nagios and its relatives expect: 0 all is well, 1 there are warnings,
2 something failed. A run that failed is a warning,
and so is a dead job: what failed yesterday may be fine today. It changes nothing.`,
		RunE: func(c *cobra.Command, _ []string) error {
			if as != "" && !slices.Contains(health.Purposes(), as) {
				return usagef("--role %q is not known; use %s", as, strings.Join(health.Purposes(), ", "))
			}
			rows := p.examine(c.Context(), as, work)
			if monitor {
				return p.monitored(rows)
			}
			if err := p.writeChecks(output, rows); err != nil {
				return err
			}
			for _, r := range rows {
				if r.Status == health.Failed {
					return errDoctor
				}
			}
			return nil
		},
	}
	outputFlag(c, &output)
	c.Flags().BoolVar(&work, "work", true, "look at the work, too; --work=false: at the database alone")
	c.Flags().BoolVar(&monitor, "monitor", false, "for Nagios and the like: one line, and exit code 1 for warnings, 2 for failures")
	c.Flags().StringVar(&as, "role", "", "what the user is for: "+strings.Join(health.Purposes(), ", "))
	return c
}

// monitored prints output for Nagios: one line with the worst first, and the rest below.
func (p *program) monitored(rows []health.Check) error {
	worst, code := "OK", 0
	var lines []string
	for i, status := range []health.Status{health.Failed, health.Warning} {
		for _, r := range rows {
			if r.Status == status {
				lines = append(lines, r.Name+": "+flat(r.Detail))
			}
		}
		if len(lines) > 0 && code == 0 {
			worst, code = []string{"CRITICAL", "WARNING"}[i], 2-i
		}
	}
	first := "all checks passed"
	if len(lines) > 0 {
		first = fmt.Sprintf("%s; %s", counted(len(lines), "finding", "findings"), lines[0])
	}
	if _, err := fmt.Fprintln(p.out, strings.Join(append([]string{"DBCRON " + worst + ": " + first}, lines...), "\n")); err != nil {
		return err
	}
	if code > 0 {
		return exitError{code: code}
	}
	return nil
}

// writeChecks prints one full line per check: advice is not cut.
func (p *program) writeChecks(output string, rows []health.Check) error {
	if output != "table" {
		return table.Write(p.out, output, rows)
	}
	for _, r := range rows {
		line := fmt.Sprintf("%-8s %-13s %s", r.Status, r.Name, flat(r.Detail))
		if r.Advice != "" {
			line += "\n         what to do:   " + r.Advice
		}
		if _, err := fmt.Fprintln(p.out, line); err != nil {
			return err
		}
	}
	return nil
}

func (p *program) examine(ctx context.Context, as string, work bool) []health.Check {
	rawURL, err := p.databaseURL()
	if err != nil {
		return []health.Check{{Name: "url", Status: health.Failed, Detail: err.Error(), Advice: "set DBCRON_DATABASE_URL"}}
	}
	db, err := p.connect(ctx, p.existing(), engines.Connect)
	if err != nil {
		advice := "start the database, or correct the URL; then look at user and password, firewall, and the rights on files"
		if errors.Is(err, dialect.ErrReadOnly) {
			advice = "promote a server, or name the primary in the URL; to look at this one, leave target_session_attrs out"
		}
		return []health.Check{{Name: "reachable", Status: health.Failed, Detail: err.Error(), Advice: advice}}
	}
	defer db.Close()
	rows := []health.Check{{Name: "reachable", Status: health.OK, Detail: dialect.Redact(rawURL)}}
	found, usable := health.OfDatabase(ctx, db, as)
	rows = append(rows, found...)
	if work && usable {
		rows = append(rows, checkup.Work(ctx, db)...)
		if host := hostZone(); !isUTC(host) {
			if text, err := health.OfZones(ctx, db, host); err == nil && text != "" { // else another check reports it
				rows = append(rows, health.Check{Name: "time zones", Status: health.OK, Detail: text})
			}
		}
	}
	return rows
}
