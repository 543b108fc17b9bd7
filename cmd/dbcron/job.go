package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/queue/admin"
)

func (p *program) job() *cobra.Command {
	c := &cobra.Command{
		Use:   "job",
		Short: "Enqueue, see and change jobs",
		Long: `Enqueue jobs, see them, and end those that are not wanted or try those anew that
have failed. Programs do them, with the Go package queue, and commands, with dbcron
worker exec. Of a job that is done nothing is left, and its id is not found, unless its queue keeps
such for a while (dbcron queue set --keep-done). docs/queue-cli.md has examples.`,
	}
	c.AddCommand(p.jobEnqueue(), p.jobGet(), p.jobList(), p.jobStats(), p.jobRetry(), p.jobCancel(), p.jobDelete())
	return c
}

// usualQueueName is the default queue of commands about jobs.
const usualQueueName = "default"

// queueFlag adds --queue to a command about jobs.
func queueFlag(c *cobra.Command, to *string) {
	c.Flags().StringVar(to, "queue", usualQueueName, "`name` of the jobs' queue")
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
		Use:   "retry [ID…]",
		Short: "Retry dead jobs, and run delayed ones at once",
		Long: `Retry dead jobs, with all their attempts before them, and run delayed ones at once: those
with these ids, or all that a filter selects.

Exit code 4: a job with one of the ids is ready or runs, or is dead and another job has
its unique key.`,
		Example: `  dbcron job retry 4711
  dbcron job retry --queue mail --state dead --kind welcome --dry-run
  dbcron job retry --queue mail --state dead --kind welcome --yes`,
	}, admin.BulkRetry, []admin.State{admin.StateDead, admin.StateDelayed}, "will be tried", (*admin.Client).Retry)
}

func (p *program) jobCancel() *cobra.Command {
	return p.eachJob(&cobra.Command{
		Use:   "cancel [ID…]",
		Short: "End jobs that are not done yet",
		Long: `End jobs that are not done yet, those with these ids or all that a filter selects: they
are removed, and the handler of one that runs is told within about a second. One that
a worker begins at this moment may still be done.

Exit code 4: a job with one of the ids is dead already.`,
		Example: `  dbcron job cancel 4711
  dbcron job cancel --queue mail --state delayed --where '$.user.id = 42'`,
	}, admin.BulkCancel, []admin.State{admin.StateReady, admin.StateDelayed, admin.StateRunning}, "was cancelled", (*admin.Client).Cancel)
}

func (p *program) jobDelete() *cobra.Command {
	return p.eachJob(&cobra.Command{
		Use:   "delete [ID…]",
		Short: "Remove dead jobs, or those that are done and kept",
		Long: `Remove dead jobs before their time is over (dbcron queue set --keep-dead), or those
that are done and kept (--keep-done): those with these ids or all that a filter selects.

Exit code 4: a job with one of the ids is neither dead nor done.`,
		Example: `  dbcron job delete 4711
  dbcron job delete --queue mail --kind welcome`,
	}, admin.BulkDelete, []admin.State{admin.StateDead, admin.StateDone}, "was deleted", (*admin.Client).Delete)
}

// eachJob makes a command that acts on listed jobs, or on those selected by a filter, in the given states.
func (p *program) eachJob(c *cobra.Command, what admin.BulkAction, states []admin.State, done string,
	one func(c *admin.Client, ctx context.Context, name string, id int64) error,
) *cobra.Command {
	var filter jobFilter
	var how bulkFlags
	c.Long += `

Ids name jobs of any queue, or of --queue. If two jobs have one, which is rare, it takes
--queue to say which is meant.
Of several ids each is dealt with by itself: what cannot be done is told, and the others
are done. A filter is at least one of --state, --kind, --key, --where and --older-than; see
dbcron job list. Then it asks before; --yes spares that, and --dry-run only tells how many
there are. It deals with what is there now, in small transactions, and when it is
interrupted it can be called again.`
	c.Args = cobra.ArbitraryArgs
	c.RunE = func(c *cobra.Command, args []string) error {
		if len(args) == 0 {
			if err := filter.choose(c, states); err != nil {
				return err
			}
			if err := how.check(p); err != nil {
				return err
			}
			return p.withAdmin(c.Context(), func(q *admin.Client) error {
				return p.doBulks(c.Context(), q, []bulk{{what, filter.filter}}, how)
			}, filter.filter.Queue)
		}
		for _, name := range append([]string{"dry-run", "output"}, filterNames...) {
			if c.Flag(name).Changed {
				return usagef("--%s goes with a filter, and there are ids as well", name)
			}
		}
		ids := make([]int64, len(args))
		for i, text := range args { // validate all before acting on any
			var err error
			if ids[i], err = jobID(text); err != nil {
				return err
			}
		}
		var of []string // queues of the jobs
		if c.Flag("queue").Changed {
			of = []string{filter.filter.Queue}
		}
		return p.withAdmin(c.Context(), func(q *admin.Client) error { return p.doEach(c.Context(), q, of, ids, string(what), done, one) }, of...)
	}
	filter.add(c, string(states[0]), states, 0, "how many jobs at the most (default all)")
	how.add(c)
	return c
}

// doEach acts on some jobs, of one queue or of any.
func (p *program) doEach(ctx context.Context, c *admin.Client, of []string, ids []int64, what, done string,
	one func(c *admin.Client, ctx context.Context, name string, id int64) error,
) error {
	for _, name := range of {
		if _, err := c.Queue(ctx, name); err != nil { // report it once, not for each job
			return err
		}
	}
	var failed []error
	for _, id := range ids {
		i, err := admin.Job{Queue: strings.Join(of, "")}, error(nil)
		if len(of) == 0 {
			i, err = c.Find(ctx, id)
		}
		if err == nil {
			err = p.did(ctx, one(c, ctx, i.Queue, id), "job."+what, fmt.Sprint(i.Queue, "/", id), 1, "")
		}
		switch {
		case err == nil:
			fmt.Fprintf(p.err, "dbcron: job %d %s\n", id, done)
		case errors.Is(err, admin.ErrAmbiguous):
			failed = append(failed, exitError{exitConflict, err})
		case errors.Is(err, queue.ErrState):
			text := strings.TrimPrefix(err.Error(), queue.ErrState.Error()+": ")
			failed = append(failed, exitError{exitConflict, errors.New(text)})
		case errors.Is(err, queue.ErrNotFound), errors.Is(err, queue.ErrDeleted):
			failed = append(failed, err)
		default: // the next would fail, too
			return errors.Join(append(failed, err)...)
		}
	}
	return errors.Join(failed...)
}
