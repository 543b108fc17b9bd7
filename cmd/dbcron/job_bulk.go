package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dbcron/dbcron/internal/ops/progress"
	"github.com/dbcron/dbcron/internal/ops/table"
	"github.com/dbcron/dbcron/wire"
)

// A bulk is an action on all jobs selected by a filter.
type bulk struct {
	op    string // bulk-jobs or purge-queue
	given values // of the operation, and action
	most  int    // 0: all
}

// bulkFlags say how to carry out a bulk.
type bulkFlags struct {
	dryRun, yes bool
	output      string
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

// doBulks asks for confirmation and acts, or shows what it would do.
func (p *program) doBulks(ctx context.Context, all []bulk, f bulkFlags) (err error) {
	var rows []wire.BulkResult
	if f.dryRun || !f.yes {
		for _, b := range all {
			r, err := p.bulkPart(ctx, &b, true, min(cmp.Or(b.most, countLimit), countLimit), "")
			if err != nil {
				return err
			}
			r.NextCursor = "" // of a count
			rows = append(rows, r)
		}
	}
	if !f.dryRun {
		if !f.yes && !p.confirm(rows) {
			return errors.New("nothing was changed")
		}
		rows = nil
		for _, b := range all {
			var r wire.BulkResult
			r, err = p.doBulk(ctx, &b)
			if rows = append(rows, r); err != nil {
				break // report what was done nevertheless
			}
		}
	}
	if f.output != "text" {
		return errors.Join(err, table.Write(p.out, f.output, rows))
	}
	for i := range rows {
		fmt.Fprintln(p.err, "dbcron: "+story(&rows[i]))
	}
	return err
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

// bulkPart acts on some of the jobs, or counts them.
func (p *program) bulkPart(ctx context.Context, b *bulk, dryRun bool, most int, cursor string) (r wire.BulkResult, err error) {
	given := maps.Clone(b.given)
	given["limit"], given["dry_run"] = strconv.Itoa(most), strconv.FormatBool(dryRun)
	r = wire.BulkResult{Action: given["action"], Queue: given["queue"], State: given["state"], DryRun: dryRun}
	if b.op == "purge-queue" {
		delete(given, "action")
	}
	if cursor != "" {
		given["cursor"] = cursor
	}
	answer, err := p.do(ctx, b.op, given)
	if err != nil {
		return r, err
	}
	switch answer := answer.(type) {
	case *wire.BulkResult:
		r = *answer
	case *wire.PurgeResult:
		r.Done, r.All, r.NextCursor = answer.Removed, answer.All, answer.NextCursor
	}
	return r, nil
}

// doBulk carries out one bulk, part by part, and shows its progress. All parts are about the jobs that were there
// when the first one began.
func (p *program) doBulk(ctx context.Context, b *bulk) (sum wire.BulkResult, err error) {
	doing := map[string]string{"retry": "retrying", "cancel": "cancelling", "delete": "deleting"}[b.given["action"]]
	so := p.begin(ctx, progress.Task{
		What: fmt.Sprintf("%s %s jobs of %s", doing, b.given["state"], oneLine(b.given["queue"], 200)), Unit: "jobs",
		Left: func(ctx context.Context) (int, error) {
			r, err := p.bulkPart(ctx, b, true, maxInPart, "")
			return r.Done, err
		},
	})
	defer so.End()
	for {
		part := countLimit
		if b.most > 0 {
			part = min(part, b.most-sum.Done-sum.Gone-sum.InUse)
		}
		r, err := p.bulkPart(ctx, b, false, part, sum.NextCursor)
		r.Done, r.Gone, r.InUse = r.Done+sum.Done, r.Gone+sum.Gone, r.InUse+sum.InUse
		sum = r
		so.At(sum.Done)
		if err != nil || sum.NextCursor == "" || b.most > 0 && sum.Done+sum.Gone+sum.InUse >= b.most {
			sum.NextCursor = ""
			return sum, err
		}
	}
}

// maxInPart is how many jobs an operation acts on at the most.
const maxInPart = 100_000

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
	var f bulkFlags
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
			return p.withAPI(c.Context(), func() error {
				if err := p.doBulks(c.Context(), all, f); err != nil {
					return err
				}
				n, err := ask[wire.QueueStats](c.Context(), p, "queue-stats", "queue", args[0])
				if err == nil && n.Running > 0 {
					fmt.Fprintf(p.err, "dbcron: %s running, and left\n", counted(n.Running, "job is", "jobs are"))
				}
				return err
			})
		},
	}
	c.Flags().StringVar(&state, "state", "ready", "`state` of the jobs: ready, delayed, dead, done or all, which leaves those that are done")
	f.add(c)
	return c
}

// purges returns the bulks that delete a queue's jobs in a state. Ready jobs come first: those that become
// delayed or dead meanwhile are found afterwards.
func purges(name, state string) (all []bulk, err error) {
	for _, part := range [][2]string{{"cancel", "ready"}, {"cancel", "delayed"}, {"delete", "dead"}, {"delete", "done"}} {
		if state == "all" && part[1] != "done" || state == part[1] {
			all = append(all, bulk{op: "purge-queue", given: values{"queue": name, "action": part[0], "state": part[1]}})
		}
	}
	if all == nil {
		err = usagef("--state: %q is not known; use ready, delayed, dead, done or all", state)
	}
	return all, err
}
