package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/engines"
	"github.com/dbcron/dbcron/lock"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/scheduler"
	"github.com/dbcron/dbcron/sqlschema"
)

// errDoctor is the error of a doctor that found a problem.
var errDoctor = errors.New("something needs attention")

type checkRow struct {
	Check  string `json:"check"`
	Status string `json:"status"` // ok, warning or failed
	Detail string `json:"detail"`
	Advice string `json:"what_to_do"`
}

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
			if as != "" && !slices.Contains(roleNames(), as) {
				return usagef("--role %q is not known; use %s", as, strings.Join(roleNames(), ", "))
			}
			rows := p.examine(c.Context(), as, work)
			if monitor {
				return p.monitored(rows)
			}
			if err := p.writeChecks(output, rows); err != nil {
				return err
			}
			for _, r := range rows {
				if r.Status == "failed" {
					return errDoctor
				}
			}
			return nil
		},
	}
	outputFlag(c, &output)
	c.Flags().BoolVar(&work, "work", true, "look at the work, too; --work=false: at the database alone")
	c.Flags().BoolVar(&monitor, "monitor", false, "for Nagios and the like: one line, and exit code 1 for warnings, 2 for failures")
	c.Flags().StringVar(&as, "role", "", "what the user is for: "+strings.Join(roleNames(), ", "))
	return c
}

// monitored prints output for Nagios: one line with the worst first, and the rest below.
func (p *program) monitored(rows []checkRow) error {
	worst, code := "OK", 0
	var lines []string
	for i, status := range []string{"failed", "warning"} {
		for _, r := range rows {
			if r.Status == status {
				lines = append(lines, r.Check+": "+flat(r.Detail))
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
func (p *program) writeChecks(output string, rows []checkRow) error {
	if output != "table" {
		return write(p.out, output, rows)
	}
	for _, r := range rows {
		line := fmt.Sprintf("%-8s %-13s %s", r.Status, r.Check, flat(r.Detail))
		if r.Advice != "" {
			line += "\n         what to do:   " + r.Advice
		}
		if _, err := fmt.Fprintln(p.out, line); err != nil {
			return err
		}
	}
	return nil
}

func (p *program) examine(ctx context.Context, as string, work bool) []checkRow {
	rawURL, err := p.databaseURL()
	if err != nil {
		return []checkRow{{"url", "failed", err.Error(), "set DBCRON_DATABASE_URL"}}
	}
	db, err := p.connect(ctx, p.existing(), engines.Connect)
	if err != nil {
		advice := "start the database, or correct the URL; then look at user and password, firewall, and the rights on files"
		if errors.Is(err, dialect.ErrReadOnly) {
			advice = "promote a server, or name the primary in the URL; to look at this one, leave target_session_attrs out"
		}
		return []checkRow{{"reachable", "failed", err.Error(), advice}}
	}
	defer db.Close()
	rows := []checkRow{{"reachable", "ok", dialect.Redact(rawURL), ""}}
	found, err := db.Findings(ctx)
	if err != nil {
		rows = append(rows, checkRow{"settings", "failed", err.Error(), "let this user read the server's settings"})
	}
	takesWrites := true
	for _, f := range found {
		takesWrites = takesWrites && (f.OK || f.Subject != "writable")
		row := checkRow{f.Subject, "ok", f.Detail, ""}
		if !f.OK {
			row.Status, row.Advice = "failed", f.Advice
		}
		rows = append(rows, row)
	}
	schema, usable := examineSchema(ctx, db)
	tables := examineTables(ctx, db)
	if !takesWrites { // rights cannot be judged there
		for _, row := range []*checkRow{&schema, &tables} {
			if row.Status == "failed" {
				row.Advice = "look at a server that takes writes: see above"
			}
		}
		return append(rows, schema, tables, examineClock(ctx, db))
	}
	rows = append(rows, schema, tables)
	if usable {
		rows = append(rows, examineRights(ctx, db, as)...)
	}
	if row, ok := examineGroups(ctx, db); ok {
		rows = append(rows, row)
	}
	if row, ok := examineRefused(ctx, db); ok {
		rows = append(rows, row)
	}
	rows = append(append(rows, examineStrain(ctx, db)...), examineClock(ctx, db))
	if work && usable {
		rows = append(rows, examineWork(ctx, db)...)
	}
	return rows
}

// examineSchema also reports whether the tables may be those that this dbcron knows: whoever may not read the
// version must be told why.
func examineSchema(ctx context.Context, db *dialect.DB) (_ checkRow, usable bool) {
	latest := sqlschema.Latest(db.Dialect)
	version, err := sqlschema.Version(ctx, db)
	row := checkRow{"schema", "ok", fmt.Sprintf("version %d of %d", version, latest), ""}
	switch {
	case err != nil:
		row.Status, row.Detail, row.Advice = "failed", err.Error(), "let this user read the tables: docs/grants.md"
	case version < latest:
		row.Status, row.Advice = "failed", "run dbcron migrate up"
	case version > latest:
		row.Status, row.Advice = "failed", fmt.Sprintf("use a dbcron that knows version %d", version)
	}
	return row, err != nil || version == latest
}

// examineTables reads from the tables, since a version table alone is no schema. examineRights reports tables
// that the user may not read.
func examineTables(ctx context.Context, db *dialect.DB) checkRow {
	detail := "they can be read"
	for _, read := range []func() error{
		func() error { _, err := scheduler.List(ctx, db, "", 1); return err },
		func() error { _, err := scheduler.History(ctx, db, "", 1); return err },
		func() error { return examineLocks(ctx, db) },
	} {
		switch err := read(); {
		case err == nil:
		case db.Dialect.Denied(err):
			detail = "this user may not read all of them"
		case db.Dialect.Missing(err):
			return checkRow{"tables", "failed", err.Error(), "run dbcron migrate up; if that finds nothing to do, the tables were " +
				"dropped by hand: dbcron migrate to 0, then up"}
		default:
			return checkRow{"tables", "failed", err.Error(), "see above; the server's log may tell more"}
		}
	}
	return checkRow{"tables", "ok", detail, ""}
}

func examineLocks(ctx context.Context, db *dialect.DB) error {
	l, err := lock.New(db, lock.Options{})
	if err == nil {
		_, err = l.List(ctx, "", 0, 1)
	}
	return err
}

// examineGroups reports groups that may never end because nobody has sealed them, for instance because their
// program died before it enqueued the last job.
func examineGroups(ctx context.Context, db *dialect.DB) (checkRow, bool) {
	c, err := queue.New(db, queue.Options{})
	if err != nil {
		return checkRow{}, false
	}
	open, err := c.Groups(ctx, queue.GroupOpen, 0, 1)
	if err != nil || len(open) == 0 {
		return checkRow{}, false // other checks report what cannot be read
	}
	now, err := scheduler.Clock(ctx, db)
	if age := now.Sub(open[0].Created); err != nil || age < 24*time.Hour {
		return checkRow{}, false
	}
	id := strconv.FormatInt(open[0].ID, 10)
	return checkRow{
		"groups", "warning", "group " + id + " has been open since " + shown(open[0].Created, time.UTC),
		"seal it, if all of its " +
			"jobs were enqueued, or delete it: dbcron group seal " + id + ", dbcron group list --state open",
	}, true
}

// examineRefused reports jobs whose outcome the database refuses to store.
func examineRefused(ctx context.Context, db *dialect.DB) (checkRow, bool) {
	c, err := queue.New(db, queue.Options{})
	if err != nil {
		return checkRow{}, false
	}
	all, err := c.AllRefusals(ctx, mostRefusals)
	if err != nil || len(all) == 0 {
		return checkRow{}, false // other checks report what cannot be read
	}
	r := &all[0]
	detail := fmt.Sprintf("job %d of queue %s, block %d: %s", r.Job, oneLine(r.Queue, 200), r.Block, refusedText(r))
	if n := len(all) - 1; n > 0 {
		more := strconv.Itoa(n)
		if len(all) == mostRefusals {
			more += " or more"
		}
		detail = fmt.Sprintf("%s; and %s other jobs", detail, more)
	}
	return checkRow{"refused", "warning", detail, "remove what makes the database refuse it, such as a trigger, a constraint or a " +
		"missing right; workers go on trying. See them with dbcron queue show " + oneLine(r.Queue, 200)}, true
}

// examineStrain reports what makes the server slow over time. None of it prevents work.
func examineStrain(ctx context.Context, db *dialect.DB) (rows []checkRow) {
	if db.Dialect.Strain == nil {
		return nil
	}
	found, err := db.Dialect.Strain(ctx, db)
	for _, f := range found {
		row := checkRow{f.Subject, "ok", f.Detail, ""}
		if !f.OK {
			row.Status, row.Advice = "warning", f.Advice
		}
		rows = append(rows, row)
	}
	if err != nil {
		rows = append(rows, checkRow{"strain", "warning", err.Error(), "look again; if it stays so, report it as a bug"})
	}
	return rows
}

// examineClock compares the clocks. The database's decides; people see the host's beside it.
func examineClock(ctx context.Context, db *dialect.DB) checkRow {
	before := hostNow()
	now, err := scheduler.Clock(ctx, db)
	if err != nil {
		return checkRow{"clock", "failed", err.Error(), "see above"}
	}
	took := hostNow().Sub(before)
	skew := now.Sub(before.Add(took / 2))
	side := "ahead of"
	if skew < 0 {
		side = "behind"
	}
	row := checkRow{"clock", "ok", fmt.Sprintf("the database's is %v %s this host's (asked in %v)",
		skew.Abs().Round(time.Millisecond), side, took.Round(time.Microsecond)), ""}
	if skew.Abs() > time.Second+took {
		row.Status = "warning"
		row.Advice = "runs start by the database's clock: let NTP set both"
	}
	return row
}

// hostNow returns this host's clock, which is only for people to compare.
func hostNow() time.Time { return time.Now() } //nolint:forbidigo // shown beside the database's, never stored
