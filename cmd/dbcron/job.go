package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dbcron/dbcron/queue"
)

func (p *program) job() *cobra.Command {
	c := &cobra.Command{
		Use:   "job",
		Short: "Enqueue, see and change jobs",
		Long: `Enqueue jobs, see them, and end those that are not wanted or try those anew that
have failed. Programs do them, with the Go package queue, and commands, with dbcron
worker exec. Of a job that is done nothing is left: its id is not found then. docs/queue-cli.md has examples.`,
	}
	c.AddCommand(p.jobEnqueue(), p.jobGet(), p.jobList(), p.jobRetry(), p.jobCancel(), p.jobDelete())
	return c
}

// queueFlag adds --queue to a command about jobs.
func queueFlag(c *cobra.Command, to *string) {
	c.Flags().StringVar(to, "queue", "default", "`name` of the jobs' queue")
}

func jobID(text string) (int64, error) {
	id, err := strconv.ParseInt(text, 10, 64)
	if err != nil || id < 1 {
		return 0, usagef("%q is not a job's id; dbcron job list shows them", text)
	}
	return id, nil
}

func (p *program) jobRetry() *cobra.Command {
	return p.eachJob(&cobra.Command{
		Use:   "retry ID…",
		Short: "Try dead jobs anew, and delayed ones at once",
		Long: `Try dead jobs anew, with all their attempts before them, and let delayed ones go at
once. Exit code 4: a job is ready or runs.`,
		Example: `  dbcron job retry 4711 --queue mail
  dbcron job list --queue mail --state dead --ids | xargs dbcron job retry --queue mail`,
	}, "will be tried", func(ctx context.Context, c *queue.Client, name string, id int64) error { return c.Retry(ctx, name, id) })
}

func (p *program) jobCancel() *cobra.Command {
	return p.eachJob(&cobra.Command{
		Use:   "cancel ID…",
		Short: "End jobs that are not done yet",
		Long: `End jobs that are not done yet: they are removed, and the handler of one that runs is
told within about a second. One that a worker begins at this moment may still be
done. Exit code 4: a job is dead already.`,
		Example: `  dbcron job cancel 4711 --queue mail`,
	}, "was cancelled", func(ctx context.Context, c *queue.Client, name string, id int64) error {
		return c.Cancel(ctx, name, id)
	})
}

func (p *program) jobDelete() *cobra.Command {
	return p.eachJob(&cobra.Command{
		Use:   "delete ID…",
		Short: "Remove dead jobs",
		Long: `Remove dead jobs before their time is over (dbcron queue set --keep-dead). Exit code
4: a job is not dead.`,
		Example: `  dbcron job delete 4711 --queue mail`,
	}, "was deleted", func(ctx context.Context, c *queue.Client, name string, id int64) error {
		return c.Delete(ctx, name, id)
	})
}

// eachJob makes a command that does something with each job of a list.
func (p *program) eachJob(c *cobra.Command, done string, do func(ctx context.Context, c *queue.Client, name string, id int64) error) *cobra.Command {
	var name string
	c.Long += "\n\nOf several jobs each is dealt with by itself: what cannot be done is told, and the\nothers are done."
	c.Args = cobra.MinimumNArgs(1)
	c.RunE = func(c *cobra.Command, args []string) error {
		ids := make([]int64, len(args))
		for i, text := range args { // all of them before anything is done
			var err error
			if ids[i], err = jobID(text); err != nil {
				return err
			}
		}
		return p.withQueues(c.Context(), func(q *queue.Client) error {
			return p.doEach(c.Context(), q, name, ids, done, do)
		}, name)
	}
	queueFlag(c, &name)
	return c
}

func (p *program) doEach(ctx context.Context, c *queue.Client, name string, ids []int64, done string,
	do func(ctx context.Context, c *queue.Client, name string, id int64) error,
) error {
	if _, err := c.Queue(ctx, name); err != nil { // told once, and not for each job
		return err
	}
	var failed []error
	for _, id := range ids {
		err := do(ctx, c, name, id)
		switch {
		case err == nil:
			fmt.Fprintf(p.err, "dbcron: job %d %s\n", id, done)
		case errors.Is(err, queue.ErrState):
			text := strings.TrimPrefix(err.Error(), queue.ErrState.Error()+": ")
			failed = append(failed, exitError{exitConflict, errors.New(text)})
		case errors.Is(err, queue.ErrNotFound), errors.Is(err, queue.ErrDeleted):
			failed = append(failed, err)
		default: // the next would fail as well
			return errors.Join(append(failed, err)...)
		}
	}
	return errors.Join(failed...)
}
