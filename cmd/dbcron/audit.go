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
	"github.com/dbcron/dbcron/internal/plain"
)

// did adds an entry to the audit log, unless err says that the command failed, and returns err. If writing
// the entry fails, what was done stays done.
func (p *program) did(ctx context.Context, err error, action, object string, n int, detail string) error {
	if err != nil {
		return err
	}
	_, failed := audit.Write(ctx, p.db, audit.Entry{
		Actor: whoami(), Login: audit.OS, Source: audit.CLI, Action: action, Object: object, Count: n, Detail: detail,
	})
	if failed != nil {
		p.warn("warning: the change was made, but could not be written to the audit: " + flat(failed.Error()))
	}
	return nil
}

func (p *program) warn(text string) { fmt.Fprintln(p.err, "dbcron: "+text) }

func (p *program) audit() *cobra.Command {
	return p.twin(twin{
		id: "list-audit", use: "audit", count: 50,
		long: `List what operators did from the command line, the HTTP API and the dashboard, the newest
first: who did what to how many, and when. What programs do as their work is not there:
they enqueue, claim and lock. Daemons keep entries for 90 days (dbcron serve --audit-keep).

ACTOR is a token's name; the user and the host of a command line, which it says by itself; or
"this host", of requests that need no token. --actor, --action and --object select entries
that have exactly that.`,
		example: `  dbcron audit --since 24h
  dbcron audit --action queue.pause --object mail
  dbcron audit --actor ada -o jsonl | jq -r .action | sort | uniq -c`,
		before: func(_ context.Context, given values) error { return aloneTime("since", given) },
	})
}

// aloneTime gives a time the zone of this host, unless it has one or is how long ago.
func aloneTime(name string, given values) error {
	text := given[name]
	if _, err := plain.ParseDuration(text); err == nil {
		return nil
	}
	at, err := timeOrAgo(name, text, time.Time{})
	given[name] = at.UTC().Format(time.RFC3339Nano)
	return err
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
