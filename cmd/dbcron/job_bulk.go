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
	"github.com/dbcron/dbcron/internal/plain"
	"github.com/dbcron/dbcron/wire"
)

// A bulk is an action on all jobs selected by a filter.
type bulk struct {
	op    string // bulk-jobs or purge-queue
	given values // of the operation
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
		return usagef("standard input is not a terminal: add --yes, or --dry-run to count the jobs")
	}
	return nil
}

// doBulk asks for confirmation and acts, or shows what it would do.
func (p *program) doBulk(ctx context.Context, b *bulk, f bulkFlags) (err error) {
	var rows []wire.BulkResult
	if f.dryRun || !f.yes {
		for _, one := range b.each() {
			r, _, err := p.bulkPart(ctx, &one, true, min(cmp.Or(b.most, countLimit), countLimit), "")
			if err != nil {
				return err
			}
			rows = append(rows, r...)
		}
	}
	if !f.dryRun {
		if !f.yes && !p.confirm(rows) {
			return errors.New("nothing was changed")
		}
		rows, err = p.bulkParts(ctx, b) // with an error, rows have what was done nevertheless
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

// each returns a bulk for each of the states.
func (b *bulk) each() (all []bulk) {
	for _, state := range statesOf(b.given["state"]) {
		one := *b
		one.given = maps.Clone(b.given)
		one.given["state"] = state
		all = append(all, one)
	}
	return all
}

// statesOf returns the states that the word of a purge means, in the order in which their jobs are removed.
func statesOf(word string) []string {
	if word == "all" {
		return []string{"ready", "delayed", "dead"}
	}
	return []string{word}
}

// bulkPart acts on some of the jobs, or counts them. It returns a result for each state, and the cursor for the next
// part, if there is one.
func (p *program) bulkPart(ctx context.Context, b *bulk, dryRun bool, most int, cursor string) (rows []wire.BulkResult, next string,
	err error,
) {
	given := maps.Clone(b.given)
	given["limit"], given["dry_run"] = strconv.Itoa(most), strconv.FormatBool(dryRun)
	if cursor != "" {
		given["cursor"] = cursor
	}
	answer, err := p.do(ctx, b.op, given)
	switch answer := answer.(type) {
	case *wire.BulkResult:
		rows, next = []wire.BulkResult{*answer}, answer.NextCursor
	case *wire.PurgeResult:
		for _, state := range statesOf(given["state"]) {
			if n, ok := answer.ByState[state]; ok {
				what := map[string]string{"ready": "cancel", "delayed": "cancel"}[state]
				rows = append(rows, wire.BulkResult{
					Action: cmp.Or(what, "delete"), Queue: given["queue"], State: state, DryRun: dryRun, Done: n, All: answer.All,
				})
			}
		}
		next = answer.NextCursor
	}
	return rows, next, err
}

// bulkParts carries out a bulk, part by part, and shows its progress. All parts are about the jobs that were there
// when the first one began.
func (p *program) bulkParts(ctx context.Context, b *bulk) (rows []wire.BulkResult, err error) {
	doing := map[string]string{"retry": "retrying", "cancel": "cancelling", "delete": "deleting"}[b.given["action"]]
	so := p.begin(ctx, progress.Task{
		What: fmt.Sprintf("%s %s jobs of %s", cmp.Or(doing, "removing"), b.given["state"], oneLine(b.given["queue"], 200)), Unit: "jobs",
		Left: func(ctx context.Context) (n int, err error) {
			r, _, err := p.bulkPart(ctx, b, true, maxInPart, "")
			for i := range r {
				n += r[i].Done
			}
			return n, err
		},
	})
	defer so.End()
	for done, seen, cursor := 0, 0, ""; ; {
		part := countLimit
		if b.most > 0 {
			part = min(part, b.most-seen)
		}
		var r []wire.BulkResult
		r, cursor, err = p.bulkPart(ctx, b, false, part, cursor)
		for _, r := range r {
			r.NextCursor = ""
			done, seen = done+r.Done, seen+r.Done+r.Gone+r.InUse
			if i := len(rows) - 1; i >= 0 && rows[i].State == r.State { // more of what the part before ended with
				r.Done, r.Gone, r.InUse = r.Done+rows[i].Done, r.Gone+rows[i].Gone, r.InUse+rows[i].InUse
				rows = rows[:i]
			}
			rows = append(rows, r)
		}
		so.At(done)
		if err != nil || cursor == "" || b.most > 0 && seen >= b.most {
			return rows, err
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
			var err error
			if states := []string{"ready", "delayed", "dead", "done", "all"}; !slices.Contains(states, state) {
				err = usagef("--state: %q is not known; use %s", state, plain.Or(states))
			}
			if err == nil {
				err = f.check(p)
			}
			if err != nil {
				return err
			}
			return p.withAPI(c.Context(), func() error {
				b := bulk{op: "purge-queue", given: values{"queue": args[0], "state": state}}
				if err := p.doBulk(c.Context(), &b, f); err != nil {
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
