package main

import (
	"cmp"
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/internal/ops/progress"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/wire"
)

func (p *program) queueMove() *cobra.Command {
	var from, away string
	var jobs wire.Move
	c := &cobra.Command{
		Use:   "move --kind KIND --from QUEUE --to QUEUE",
		Short: "Move jobs that wait to another queue, or a queue to another database",
		Long: `Move the jobs of a kind that wait in a queue to another one: ready ones, delayed ones,
and those that wait for a retry, with their ids, keys, times and attempts. New jobs of the
kind are led there by dbcron route set; do that before.

Jobs can be enqueued meanwhile, but the workers of both queues begin nothing until all are
moved; what runs goes on. If the command is killed, they go on after ten seconds. Some
jobs have been moved then, and the command can be run again.

What runs stays, and with it the later jobs of its key; and a job whose unique key another
one has there. The command reports how many. Dead jobs stay: dbcron job retry.

With --to-database, jobs of all kinds move to another database, the dead ones too. FILE has
its URL. --to is the queue there, by default one of the same name. The queue here must be
paused, so that nothing is done twice when the command is interrupted: run it again then,
before you resume the queue. The jobs get new ids and keep all else. Jobs of groups stay.`,
		Example: `  dbcron route set thumbnail photos
  dbcron queue move --kind thumbnail --to photos --dry-run
  dbcron queue move --kind thumbnail --to photos
  dbcron queue move --from mail --to-database south.url`,
		RunE: func(c *cobra.Command, _ []string) error {
			if away != "" {
				jobs.To = cmp.Or(jobs.To, from)
			} else if len(jobs.Kinds) == 0 || jobs.To == "" {
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
			if away != "" {
				return p.moveAway(c.Context(), from, away, jobs)
			}
			return p.withAPI(c.Context(), func() error { return p.moveJobs(c.Context(), from, jobs) })
		},
	}
	flags := c.Flags()
	flags.SortFlags = false
	flags.StringArrayVar(&jobs.Kinds, "kind", nil, "`name` of the jobs' kind; may be repeated")
	flags.StringVar(&from, "from", usualQueueName, "`name` of the queue that they are in")
	flags.StringVar(&jobs.To, "to", "", "`name` of the queue that they are to be in, which must be there")
	flags.StringVar(&away, "to-database", "", "`FILE` with the URL of another database, whose queue gets the jobs")
	flags.BoolVar(&jobs.DryRun, "dry-run", false, "only count them, without pausing workers")
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

// moveAway moves jobs to a queue of the database whose URL is in a file.
func (p *program) moveAway(ctx context.Context, from, file string, jobs wire.Move) error {
	return p.with(ctx, func(db *dialect.DB) error {
		return p.withOther(ctx, file, "--to-database", func(other *dialect.DB) error {
			here, err := queue.New(db, queue.Options{})
			if err != nil {
				return err
			}
			there, err := queue.New(other, queue.Options{})
			if err != nil {
				return err
			}
			so := p.begin(ctx, progress.Task{What: fmt.Sprintf("moving %s to another database", oneLine(from, 200)), Unit: "jobs"})
			n, err := here.MoveTo(ctx, from, there, jobs.To, queue.MoveOptions{
				Kinds: jobs.Kinds, DryRun: jobs.DryRun, Progress: func(n queue.Moved) { so.At(n.Jobs) },
			})
			so.End()
			if n.Jobs > 0 && !jobs.DryRun {
				detail := "to " + jobs.To + " of another database"
				_ = p.did(ctx, nil, "queue.move", from, n.Jobs, detail) // it warns
			}
			if err == nil || n.Jobs > 0 {
				p.tellMoved(&wire.Moved{
					From: from, To: jobs.To, DryRun: jobs.DryRun, Jobs: n.Jobs, Running: n.Running, Behind: n.Behind, Taken: n.Taken, All: err == nil,
				})
				p.tellStay(n.Grouped, "they belong to groups, which do not move")
			}
			return err
		})
	})
}

func (p *program) tellStay(n int, why string) {
	if n > 0 {
		fmt.Fprintf(p.err, "dbcron: left %d: %s\n", n, why)
	}
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
		p.tellStay(stay.n, stay.why)
	}
}
