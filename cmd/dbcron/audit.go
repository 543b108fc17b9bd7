package main

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/internal/ops/audit"
	"github.com/dbcron/dbcron/internal/ops/wireof"
	"github.com/dbcron/dbcron/internal/plain"
	"github.com/dbcron/dbcron/scheduler"
)

// did adds an entry to the audit log, unless err says that the command failed, and returns err. If writing
// the entry fails, what was done stays done.
func (p *program) did(ctx context.Context, err error, action, object string, n int, detail string) error {
	if err != nil {
		return err
	}
	failed := audit.Write(ctx, p.db, audit.Entry{
		Actor: whoami(), Login: audit.OS, Source: audit.CLI, Action: action, Object: object, Count: n, Detail: detail,
	})
	if failed != nil {
		fmt.Fprintf(p.err, "dbcron: warning: the change was made, but could not be written to the audit: %s\n", flat(failed.Error()))
	}
	return nil
}

// An auditRow is what a table shows of an entry.
type auditRow struct {
	At     time.Time `table:"at"`
	Actor  string    `table:"actor"`
	Source string    `table:"source"`
	Action string    `table:"action"`
	Object string    `table:"object"`
	Count  int       `table:"count"`
	Detail string    `table:"detail,rare"`
}

func newAuditRow(e *audit.Entry) auditRow {
	return auditRow{e.At, e.Actor, e.Source, e.Action, e.Object, e.Count, e.Detail}
}

type auditFlags struct {
	filter        audit.Filter
	since, output string
	count         int
}

func (p *program) audit() *cobra.Command {
	var f auditFlags
	c := &cobra.Command{
		Use:   "audit",
		Short: "List what operators did, the newest first",
		Long: `List what operators did from the command line, the HTTP API and the dashboard, the newest
first: who did what to how many, and when. What programs do as their work is not there:
they enqueue, claim and lock. Daemons keep entries for 90 days (dbcron serve --audit-keep).

ACTOR is a token's name; the user and the host of a command line, which it says by itself; or
"this host", of requests that need no token. --actor, --action and --object select entries
that have exactly that.`,
		Example: `  dbcron audit --since 24h
  dbcron audit --action queue.pause --object mail
  dbcron audit --actor ada -o jsonl | jq -r .action | sort | uniq -c`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if f.count < 1 || f.count > 1_000_000 {
				return usagef("-n %d: use 1 to 1000000", f.count)
			}
			return p.with(c.Context(), func(db *dialect.DB) error { return p.listAudit(c.Context(), db, &f) })
		},
	}
	flags := c.Flags()
	flags.IntVarP(&f.count, "count", "n", 50, "how many entries")
	flags.StringVar(&f.since, "since", "", "entries since that time, or so long ago: 2026-11-20T18:00, 24h, 7d")
	flags.StringVar(&f.filter.Actor, "actor", "", "what this `name` did")
	flags.StringVar(&f.filter.Action, "action", "", "this `action`, such as queue.pause")
	flags.StringVar(&f.filter.Object, "object", "", "what was done to this, such as a queue's `name`")
	outputFlag(c, &f.output)
	return c
}

func (p *program) listAudit(ctx context.Context, db *dialect.DB, f *auditFlags) error {
	if f.since != "" {
		now, err := scheduler.Clock(ctx, db)
		if err == nil {
			f.filter.Since, err = timeOrAgo("since", f.since, now)
		}
		if err != nil {
			return err
		}
	}
	var all []audit.Entry
	for more := int64(1); more > 0 && len(all) < f.count; f.filter.Before = more {
		var page []audit.Entry
		var err error
		f.filter.Limit = min(f.count-len(all), 1000)
		if page, more, err = audit.List(ctx, db, f.filter); err != nil {
			return err
		}
		all = append(all, page...)
	}
	return writeEach(p.out, f.output, all, wireof.AuditEntry, newAuditRow)
}

// keptAudit is the retention of the audit log.
type keptAudit struct {
	age string
	max int64

	keep audit.Keep // as parsed from the flags
}

func (f *keptAudit) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.age, "audit-keep", plain.FormatDuration(audit.Usual.For), "how long entries of the audit are kept, or forever")
	flags.Int64Var(&f.max, "audit-max", audit.Usual.Max, "how many entries of the audit are kept at the most, or 0 for any number")
}

// check reads the flags.
func (f *keptAudit) check() (err error) {
	f.keep = audit.Keep{Max: f.max}
	if f.age != "forever" {
		if f.keep.For, err = plain.ParseDuration(f.age); err != nil || f.keep.For < time.Hour {
			return usagef("--audit-keep: %q is not a time of an hour or more, such as 90d, or forever", f.age)
		}
	}
	if f.max < 0 {
		return usagef("--audit-max: %d is less than 0", f.max)
	}
	return nil
}

// sweep removes expired entries periodically, until stop is called.
func (f *keptAudit) sweep(ctx context.Context, db *dialect.DB, log *slog.Logger) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	all.Go(func() { audit.SweepOften(ctx, db, f.keep, log) })
	return func() {
		cancel()
		all.Wait()
	}
}
