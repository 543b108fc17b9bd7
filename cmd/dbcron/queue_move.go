package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/dbcron/dbcron/internal/ops/progress"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/wire"
)

func (p *program) queueMove() *cobra.Command {
	var from string
	var jobs wire.Move
	c := &cobra.Command{
		Use:   "move --kind KIND --from QUEUE --to QUEUE",
		Short: "Move jobs that wait to another queue",
		Long: `Move the jobs of a kind that wait in a queue to another one: ready ones, delayed ones,
and those that wait for a retry, with their ids, keys, times and attempts. New jobs of the
kind are led there by dbcron route set; do that before.

Jobs can be enqueued meanwhile, but the workers of both queues begin nothing until all are
moved; what runs goes on. If the command is killed, they go on after ten seconds. Some
jobs have been moved then, and the command can be run again.

What runs stays, and with it the later jobs of its key; and a job whose unique key another
one has there. How many that are is told. Dead jobs stay: dbcron job retry.`,
		Example: `  dbcron route set thumbnail photos --create
  dbcron queue move --kind thumbnail --to photos --dry-run
  dbcron queue move --kind thumbnail --to photos`,
		RunE: func(c *cobra.Command, _ []string) error {
			if len(jobs.Kinds) == 0 || jobs.To == "" {
				return usagef("which jobs, and where to? %s", c.Use)
			}
			for _, kind := range jobs.Kinds {
				if err := sqlrun.CheckName(kind); err != nil {
					return usagef("the kind's %v", err)
				}
			}
			if err := checkQueues([]string{from, jobs.To}); err != nil {
				return err
			}
			return p.withAPI(c.Context(), func() error { return p.moveJobs(c.Context(), from, jobs) })
		},
	}
	flags := c.Flags()
	flags.SortFlags = false
	flags.StringArrayVar(&jobs.Kinds, "kind", nil, "`name` of the jobs' kind; may be repeated")
	flags.StringVar(&from, "from", usualQueueName, "`name` of the queue that they are in")
	flags.StringVar(&jobs.To, "to", "", "`name` of the queue that they are to be in, which must be there")
	flags.BoolVar(&jobs.DryRun, "dry-run", false, "only count them, and keep nobody waiting")
	return c
}

func (p *program) moveJobs(ctx context.Context, from string, jobs wire.Move) error {
	move := func(ctx context.Context, dryRun bool, cursor string) (wire.Moved, error) {
		part, n := jobs, wire.Moved{}
		part.DryRun, part.Cursor = dryRun, cursor
		answer, err := p.send(ctx, "move-jobs", values{"queue": from}, part, "")
		if moved, ok := answer.(*wire.Moved); ok {
			n = *moved // also after an error
		}
		n.From, n.To, n.DryRun = from, jobs.To, dryRun
		return n, flagged(err)
	}
	so := p.begin(ctx, progress.Task{
		What: fmt.Sprintf("moving from %s to %s", oneLine(from, 200), oneLine(jobs.To, 200)), Unit: "jobs",
		Left: func(ctx context.Context) (int, error) {
			n, err := move(ctx, true, "")
			return n.Jobs, err
		},
	})
	p.operator.Progress = so.At
	var sum wire.Moved
	var err error
	for err == nil && !sum.All {
		if jobs.DryRun && sum.Jobs > 0 { // counting does not get further by itself
			break
		}
		before := sum.Jobs
		sum, err = move(ctx, jobs.DryRun, sum.NextCursor)
		sum.Jobs += before
		so.At(sum.Jobs)
	}
	so.End()
	sum.NextCursor = ""
	if err == nil || sum.Jobs > 0 {
		p.tellMoved(&sum)
	}
	return err
}

func (p *program) tellMoved(n *wire.Moved) {
	_ = p.sayAll(n) // it encodes
	done := "moved"
	if n.DryRun {
		done = "to be moved"
	}
	jobs := counted(n.Jobs, "job", "jobs")
	if n.DryRun && !n.All {
		jobs = "at least " + jobs // time was over
	}
	fmt.Fprintf(p.err, "dbcron: %s %s from %s to %s\n", jobs, done, oneLine(n.From, 200), oneLine(n.To, 200))
	for _, stay := range []struct {
		n   int
		why string
	}{
		{n.Running, "they run"},
		{n.Behind, "others of their keys that stay are to be done before"},
		{n.Taken, "their unique keys are in use there"},
	} {
		if stay.n > 0 {
			fmt.Fprintf(p.err, "dbcron: left %d: %s\n", stay.n, stay.why)
		}
	}
}
