package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue"
)

func (p *program) queueMove() *cobra.Command {
	var from, to string
	var opt queue.MoveOptions
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
			if len(opt.Kinds) == 0 || to == "" {
				return usagef("which jobs, and where to? %s", c.Use)
			}
			for _, kind := range opt.Kinds {
				if err := sqlrun.CheckName(kind); err != nil {
					return usagef("the kind's %v", err)
				}
			}
			return p.withQueues(c.Context(), func(q *queue.Client) error { return p.moveJobs(c.Context(), q, from, to, opt) }, from, to)
		},
	}
	flags := c.Flags()
	flags.SortFlags = false
	flags.StringArrayVar(&opt.Kinds, "kind", nil, "`name` of the jobs' kind; may be repeated")
	flags.StringVar(&from, "from", usualQueueName, "`name` of the queue that they are in")
	flags.StringVar(&to, "to", "", "`name` of the queue that they are to be in, which must be there")
	flags.BoolVar(&opt.DryRun, "dry-run", false, "only count them, and keep nobody waiting")
	return c
}

func (p *program) moveJobs(ctx context.Context, c *queue.Client, from, to string, opt queue.MoveOptions) error {
	so := p.begin(ctx, task{
		what: fmt.Sprintf("moving from %s to %s", oneLine(from, 200), oneLine(to, 200)), unit: "jobs",
		left: func(ctx context.Context) (int, error) {
			n, err := c.Move(ctx, from, to, queue.MoveOptions{Kinds: opt.Kinds, DryRun: true})
			return n.Jobs, err
		},
	})
	opt.Progress = func(n queue.Moved) { so.at(n.Jobs) }
	n, err := c.Move(ctx, from, to, opt)
	so.end()
	if !opt.DryRun && (err == nil || n.Jobs > 0) {
		_ = p.did(ctx, nil, "queue.move", from, n.Jobs, "to "+to+", kind="+strings.Join(opt.Kinds, ","))
	}
	done := "moved"
	if opt.DryRun {
		done = "to be moved"
	}
	if err == nil || n.Jobs > 0 {
		for name, value := range map[string]any{
			"from": from, "to": to, "dry_run": opt.DryRun, "jobs": n.Jobs, "running": n.Running, "behind": n.Behind, "taken": n.Taken,
		} {
			p.say(name, value)
		}
		fmt.Fprintf(p.err, "dbcron: %s %s from %s to %s\n", counted(n.Jobs, "job", "jobs"), done, oneLine(from, 200), oneLine(to, 200))
	}
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
	return err
}
