package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/engines"
	"github.com/dbcron/dbcron/internal/ops/audit"
	"github.com/dbcron/dbcron/internal/ops/checkup"
	"github.com/dbcron/dbcron/internal/ops/health"
	"github.com/dbcron/dbcron/internal/ops/table"
	"github.com/dbcron/dbcron/internal/plain"
	"github.com/dbcron/dbcron/scheduler"
	"github.com/dbcron/dbcron/wire"
)

// errDoctor is the error of a doctor that found a problem.
var errDoctor = errors.New("something needs attention")

func (p *program) doctor() *cobra.Command {
	var output string
	var monitor bool
	var o examination
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Check the database, and say what to do about what is wrong",
		Example: `  dbcron doctor
  dbcron doctor --role daemon -o json
  dbcron doctor --acknowledge 'A run of nightly failed' --reason 'the disk comes on Monday'`,
		Long: `Check the database, and say what to do about what is wrong: the server's settings, the
tables, the clock, jobs of which the database refuses to write what has become of them, and
the rights of the user that it connects with. It says what the rights are enough for, and
prints a GRANT for each table on which one is missing: for what --role says the user is for,
or else for what it comes nearest to. A user that may write little, such as that of a program
that only enqueues, lacks nothing unless --role says so.

Then it looks at the work: schedules that are late or were given up, runs that failed in the
last day, queues that are behind or paused, dead jobs of the last day, processes that were
lost, tokens that expire within a week. What is wrong comes first, the worst before the rest, and
causes before what follows from them.

It exits with 1 if a check failed; warnings leave that at 0. With --monitor it prints one
line and exits as Nagios and its relatives expect: 0 all is well, 1 there are warnings,
2 something failed. A run that failed is a warning,
and so is a dead job: what failed yesterday may be fine today.

--acknowledge TEXT marks the findings whose line contains the text as known: they count
neither for the exit code nor for --monitor, and the dashboard and top leave them out, until
they change (the schedule fails again, another job dies, a pause has another reason), for 30
days at the longest. --reopen TEXT ends that. The audit has who did it. Nothing else is
changed.

With the --url of a daemon it says what that finds wrong with the work.`,
		RunE: func(c *cobra.Command, _ []string) error {
			if o.as != "" && !slices.Contains(health.Purposes(), o.as) {
				return usagef("--role %q is not known; use %s", o.as, strings.Join(health.Purposes(), ", "))
			}
			if o.acknowledge != "" && o.reopen != "" || o.reason != "" && o.acknowledge == "" {
				return usagef("give --acknowledge, with a --reason if you like, or --reopen")
			}
			rows, err := p.examine(c.Context(), &o)
			if err != nil {
				return err
			}
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
	c.Flags().BoolVar(&o.work, "work", true, "look at the work, too; --work=false: at the database alone")
	c.Flags().BoolVar(&monitor, "monitor", false, "for Nagios and the like: one line, and exit code 1 for warnings, 2 for failures")
	c.Flags().StringVar(&o.as, "role", "", "what the user is for: "+strings.Join(health.Purposes(), ", "))
	c.Flags().StringVar(&o.acknowledge, "acknowledge", "", "`TEXT`: findings whose line contains it are known, until they change")
	c.Flags().StringVar(&o.reopen, "reopen", "", "`TEXT`: findings whose line contains it are no longer known")
	c.Flags().StringVar(&o.reason, "reason", "", "why, for the audit and the next one who looks")
	return c
}

// An examination says what doctor looks at, and which findings it marks.
type examination struct {
	as   string // what the user is for
	work bool

	acknowledge, reopen, reason string
}

// mark acknowledges findings, or reopens them, and says of each that was acknowledged who did it.
func (o *examination) mark(ctx context.Context, db *dialect.DB, rows []health.Check) error {
	now, err := scheduler.Clock(ctx, db)
	if err != nil {
		return err
	}
	action, text := health.Acknowledge, o.acknowledge
	if o.reopen != "" {
		action, text = health.Reopen, o.reopen
	}
	marked := 0
	for i := range rows {
		if id := rows[i].ID(); text != "" && id != "" && strings.Contains(rows[i].Name+" "+flat(rows[i].Detail), text) {
			marked++
			e := audit.Entry{
				Actor: whoami(), Login: audit.OS, Source: audit.CLI, Action: action, Object: id, Count: 1,
				Detail: health.Acknowledging(rows[i].Detail, o.reason),
			}
			if _, err := audit.Write(ctx, db, e); err != nil {
				return err
			}
		}
	}
	if text != "" && marked == 0 {
		return fmt.Errorf("no finding contains %q that can be acknowledged", text)
	}
	known, err := health.Acknowledged(ctx, db, now)
	for i := range rows {
		if e, ok := known[rows[i].ID()]; ok {
			rows[i].Status, rows[i].Detail = health.Known, fmt.Sprintf("%s (%s)", rows[i].Detail, health.KnownText(&e, now))
		}
	}
	return err
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
	for i := range rows {
		if err := p.writeCheck(&rows[i], ""); err != nil {
			return err
		}
	}
	return nil
}

// writeCheck prints a check, with the id that somebody asks for it by, or "".
func (p *program) writeCheck(r *health.Check, id string) error {
	line := fmt.Sprintf("%-8s %-13s %s", r.Status, r.Name, flat(r.Detail))
	if r.Advice != "" {
		line += "\n         what to do:   " + r.Advice
	}
	if id != "" {
		line += "\n         id:           " + id
	}
	_, err := fmt.Fprintln(p.out, line)
	return err
}

var worstFirst = []health.Status{health.Failed, health.Warning, health.Known, health.OK}

func (p *program) examine(ctx context.Context, o *examination) ([]health.Check, error) {
	rawURL, err := p.databaseURL()
	if err != nil {
		return []health.Check{{Name: "url", Status: health.Failed, Detail: err.Error(), Advice: "set DBCRON_DATABASE_URL"}}, nil
	}
	if isDaemon(rawURL) {
		return p.examineDaemon(ctx, rawURL, o)
	}
	db, err := p.connect(ctx, p.existing(), engines.Connect)
	if err != nil {
		advice := "start the database, or correct the URL; then look at user and password, firewall, and the rights on files"
		if errors.Is(err, dialect.ErrReadOnly) {
			advice = "promote a server, or name the primary in the URL; to look at this one, leave target_session_attrs out"
		}
		if engines.Full(err) {
			advice = "end some, or allow more, of which a daemon takes up to ten: CONNECTION LIMIT of the role or the database, " +
				"MAX_USER_CONNECTIONS of the user, or max_connections of the server"
		}
		return []health.Check{{Name: "reachable", Status: health.Failed, Detail: err.Error(), Advice: advice}}, nil
	}
	defer db.Close()
	rows := []health.Check{{Name: "reachable", Status: health.OK, Detail: dialect.Redact(rawURL)}}
	found, usable := health.OfDatabase(ctx, db, o.as)
	rows = append(rows, found...)
	if o.work && usable {
		rows = append(rows, checkup.Work(ctx, db)...)
		if host, unnamed := hostZone(); !isUTC(host) {
			if text, err := health.OfZones(ctx, db, cmp.Or(host, unnamed)); err == nil && text != "" { // else another check reports it
				rows = append(rows, health.Check{Name: "time zones", Status: health.OK, Detail: text})
			}
		}
	}
	if usable {
		err = o.mark(ctx, db, rows)
	}
	sortChecks(rows)
	return rows, err
}

// examineDaemon asks a daemon what is wrong with the work. It cannot examine the database.
func (p *program) examineDaemon(ctx context.Context, rawURL string, o *examination) ([]health.Check, error) {
	if o.as != "" || !o.work {
		return nil, usagef("%s is the URL of a daemon, which tells of the work: --role and --work=false take the database's URL", plain.URL(rawURL))
	}
	const name = "reachable"
	rows := []health.Check{{Name: name, Status: health.OK, Detail: "the daemon at " + plain.URL(rawURL) +
		"; it tells of the work, and the database itself is examined where its URL is known"}}
	err := p.withAPI(ctx, func() error {
		list := func() ([]wire.Finding, error) {
			answer, err := p.do(ctx, "list-findings", nil)
			if err != nil {
				return nil, err
			}
			return entriesOf(answer).([]wire.Finding), nil //nolint:forcetypeassert // what the operation lists
		}
		all, err := list()
		if err != nil {
			rows = []health.Check{{Name: name, Status: health.Failed, Detail: err.Error(), Advice: "start the daemon, or correct the URL and the token"}}
			return nil
		}
		if text := o.acknowledge + o.reopen; text != "" {
			id, given := "reopen-finding", values{}
			if o.acknowledge != "" {
				id, given = "acknowledge-finding", values{"reason": o.reason}
			}
			marked := 0
			for i := range all {
				row := findingCheck(&all[i])
				if all[i].ID == "" || !strings.Contains(row.Name+" "+flat(row.Detail), text) {
					continue
				}
				marked++
				given["finding"] = all[i].ID
				if _, err := p.do(ctx, id, given); err != nil {
					return err
				}
			}
			if marked == 0 {
				return fmt.Errorf("no finding contains %q that can be acknowledged", text)
			}
			if all, err = list(); err != nil {
				return err
			}
		}
		for i := range all {
			rows = append(rows, findingCheck(&all[i]))
		}
		return nil
	})
	sortChecks(rows)
	return rows, err
}

// sortChecks puts what is wrong first.
func sortChecks(rows []health.Check) {
	slices.SortStableFunc(rows, func(a, b health.Check) int {
		return slices.Index(worstFirst, a.Status) - slices.Index(worstFirst, b.Status)
	})
}
