package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dbcron/dbcron/internal/ops/audit"
	"github.com/dbcron/dbcron/internal/ops/wireof"
	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/wire"
)

// A bulk is an action on all jobs selected by a filter.
type bulk struct {
	what   admin.BulkAction
	filter admin.Filter
}

// bulkFlags say how to carry out a bulk.
type bulkFlags struct {
	dryRun, yes bool
	output      string
	action      string // in the audit log; default: derived from the bulk
}

func (f *bulkFlags) add(c *cobra.Command) {
	flags := c.Flags()
	flags.BoolVar(&f.dryRun, "dry-run", false, "only count the jobs, up to 10000")
	flags.BoolVarP(&f.yes, "yes", "y", false, "do not ask")
	flags.StringVarP(&f.output, "output", "o", "text", "what has been done, as text (on stderr), json or jsonl")
}

// check validates the flags without a database.
func (f *bulkFlags) check(p *program) error {
	switch {
	case f.output != "text" && f.output != "json" && f.output != "jsonl":
		return usagef("output %q is not known: use text, json or jsonl", f.output)
	case !f.dryRun && !f.yes && !isTerminal(p.in):
		return usagef("standard input is not a terminal, so nobody can confirm: add --yes, or --dry-run to count the jobs")
	}
	return nil
}

// choose reads a filter, which must not be empty: that would select all jobs.
func (f *jobFilter) choose(c *cobra.Command, states []admin.State) error {
	if !slices.ContainsFunc([]string{"state", "kind", "key", "where", "older-than"}, func(name string) bool { return c.Flag(name).Changed }) {
		return usagef("choose jobs by their ids or by at least one of --state, --kind, --key, --where and --older-than")
	}
	if c.Flag("count").Changed && f.filter.Limit < 1 {
		return usagef("-n %d: use 1 or more, or leave it out for all", f.filter.Limit)
	}
	return f.read(c, states)
}

// doBulks asks for confirmation and acts, or shows what it would do.
func (p *program) doBulks(ctx context.Context, c *admin.Client, all []bulk, f bulkFlags) (err error) {
	var rows []wire.BulkResult
	if f.dryRun || !f.yes {
		if rows, err = p.countBulks(ctx, c, all); err != nil {
			return err
		}
	}
	if !f.dryRun {
		if !f.yes && !p.confirm(rows) {
			return errors.New("nothing was changed")
		}
		rows = nil
		for _, b := range all {
			var r admin.BulkResult
			r, err = p.doBulk(ctx, c, b)
			if err == nil || r.Done > 0 {
				action, detail := cmp.Or(f.action, "job."+string(b.what)),
					audit.FilterText(string(b.filter.State), b.filter.Kind, b.filter.Key, b.filter.Where)
				_ = p.did(ctx, nil, action, b.filter.Queue, r.Done, detail)
			}
			if rows = append(rows, wireof.BulkResult(b.what, &b.filter, false, &r)); err != nil {
				break // report what was done nevertheless
			}
		}
	}
	if f.output != "text" {
		return errors.Join(err, write(p.out, f.output, rows))
	}
	for i := range rows {
		fmt.Fprintln(p.err, "dbcron: "+story(&rows[i]))
	}
	return err
}

// countBulks counts the jobs that bulks would act on.
func (p *program) countBulks(ctx context.Context, c *admin.Client, all []bulk) (rows []wire.BulkResult, err error) {
	for _, b := range all {
		if b.filter.Limit == 0 || b.filter.Limit > countLimit {
			b.filter.Limit = countLimit
		}
		r, err := c.Bulk(ctx, b.what, b.filter, admin.BulkOptions{DryRun: true})
		if err != nil {
			return nil, err
		}
		rows = append(rows, wireof.BulkResult(b.what, &b.filter, true, &r))
	}
	return rows, nil
}

// confirm asks at the terminal, if there is something to do.
func (p *program) confirm(rows []wire.BulkResult) bool {
	var parts []string
	for i := range rows {
		if r := &rows[i]; r.Done > 0 {
			parts = append(parts, r.Action+" "+jobsOf(r))
		}
	}
	if len(parts) == 0 {
		return true
	}
	return slices.Contains([]string{"y", "yes"}, strings.ToLower(p.answer(strings.Join(parts, ", ")+"? [y/N]")))
}

// doBulk carries out one bulk and shows its progress.
func (p *program) doBulk(ctx context.Context, c *admin.Client, b bulk) (admin.BulkResult, error) {
	doing := map[admin.BulkAction]string{admin.BulkRetry: "retrying", admin.BulkCancel: "cancelling", admin.BulkDelete: "deleting"}[b.what]
	so := p.begin(ctx, task{
		what: fmt.Sprintf("%s %s jobs of %s", doing, b.filter.State, oneLine(b.filter.Queue, 200)), unit: "jobs",
		left: func(ctx context.Context) (int, error) {
			r, err := c.Bulk(ctx, b.what, b.filter, admin.BulkOptions{DryRun: true})
			return r.Done, err
		},
	})
	defer so.end()
	return c.Bulk(ctx, b.what, b.filter, admin.BulkOptions{Progress: func(r admin.BulkResult) { so.at(r.Done) }})
}

// jobsOf describes the jobs that a result is about.
func jobsOf(r *wire.BulkResult) string {
	n := strconv.Itoa(r.Done)
	if r.DryRun {
		n = tally(r.Done).String()
	}
	noun := "jobs"
	if r.Done == 1 {
		noun = "job"
	}
	return fmt.Sprintf("%s %s %s of %s", n, r.State, noun, oneLine(r.Queue, 200))
}

// story describes the result of a bulk.
func story(r *wire.BulkResult) string {
	if r.DryRun {
		return "would " + r.Action + " " + jobsOf(r)
	}
	text := map[string]string{"retry": "retried", "cancel": "cancelled", "delete": "deleted"}[r.Action] + " " + jobsOf(r)
	if r.InUse > 0 {
		text += "; " + counted(r.InUse, "stays dead: another job has its unique key", "stay dead: other jobs have their unique keys")
	}
	if r.Gone > 0 {
		text += "; " + counted(r.Gone, "had gone meanwhile", "had gone meanwhile")
	}
	return text
}

func (p *program) queuePurge() *cobra.Command {
	f := bulkFlags{action: "queue.purge"}
	var state string
	c := &cobra.Command{
		Use:   "purge NAME",
		Short: "Remove the jobs that wait in a queue, or the dead ones, or those that are kept",
		Long: `Remove the jobs of a queue that are ready, delayed or dead, or all of these, or those that
are done and kept (--state done), as they are there now, and free their unique keys. It asks before; --yes spares that, and
--dry-run only tells how many there are. Running jobs are left: dbcron job cancel
--state running ends them. One that a worker begins at this moment may still be done.

They are removed in small transactions, so workers and those who enqueue go on
meanwhile, and when it is interrupted it can be called again.`,
		Example: `  dbcron queue purge mail --dry-run
  dbcron queue purge mail --state all --yes`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			all, err := purges(args[0], state)
			if err == nil {
				err = f.check(p)
			}
			if err != nil {
				return err
			}
			return p.withAdmin(c.Context(), func(q *admin.Client) error {
				if err := p.doBulks(c.Context(), q, all, f); err != nil {
					return err
				}
				n, err := q.Count(c.Context(), args[0], countLimit)
				if err == nil && n.Running > 0 {
					fmt.Fprintf(p.err, "dbcron: %s running, and left\n", counted(n.Running, "job is", "jobs are"))
				}
				return err
			}, args[0])
		},
	}
	c.Flags().StringVar(&state, "state", "ready", "`state` of the jobs: ready, delayed, dead, done or all, which leaves those that are done")
	f.add(c)
	return c
}

// purges returns the bulks that delete a queue's jobs in a state. Ready jobs come first: those that become
// delayed or dead meanwhile are found afterwards.
func purges(name, state string) (all []bulk, err error) {
	for _, b := range []bulk{
		{admin.BulkCancel, admin.Filter{Queue: name, State: admin.StateReady}},
		{admin.BulkCancel, admin.Filter{Queue: name, State: admin.StateDelayed}},
		{admin.BulkDelete, admin.Filter{Queue: name, State: admin.StateDead}},
		{admin.BulkDelete, admin.Filter{Queue: name, State: admin.StateDone}},
	} {
		if state == "all" && b.filter.State != admin.StateDone || state == string(b.filter.State) {
			all = append(all, b)
		}
	}
	if all == nil {
		err = usagef("--state: %q is not known; use ready, delayed, dead, done or all", state)
	}
	return all, err
}
