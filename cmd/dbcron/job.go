package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dbcron/dbcron/internal/plain"
	"github.com/dbcron/dbcron/queue"
)

func (p *program) job() *cobra.Command {
	c := &cobra.Command{
		Use:   "job",
		Short: "Enqueue, see and change jobs",
		Long: `Enqueue jobs, see them, and end those that are not wanted or try those anew that
have failed. Programs do them, with the Go package queue, and commands, with dbcron
worker exec. Of a job that is done nothing is left, and its id is not found, unless its queue keeps
such for a while (dbcron queue set --keep-done). dbcron help queue-cli has examples.`,
	}
	c.AddCommand(p.jobEnqueue(), p.jobGet(), p.jobExplain(), p.jobWait(), p.jobList(), p.jobStats(),
		p.jobRetry(), p.jobCancel(), p.jobDelete())
	return c
}

// usualQueueName is the default queue of commands about jobs.
const usualQueueName = "default"

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
	}, "retry", []string{"dead", "delayed"}, "will be tried")
}

func (p *program) jobCancel() *cobra.Command {
	return p.eachJob(&cobra.Command{
		Use:   "cancel [ID…]",
		Short: "End jobs that are not done yet",
		Long: `End jobs that are not done yet, those with these ids or all that a filter selects: they
are removed, and the handler of a running one is asked to end within about a second. One that
a worker begins at this moment may still be done.

Exit code 4: a job with one of the ids is dead already.`,
		Example: `  dbcron job cancel 4711
  dbcron job cancel --queue mail --state delayed --where '$.user.id = 42'`,
	}, "cancel", []string{"ready", "delayed", "running"}, "was cancelled")
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
	}, "delete", []string{"dead", "done"}, "was deleted")
}

// eachJob makes a command that acts on listed jobs, or on those selected by a filter, in the given states.
func (p *program) eachJob(c *cobra.Command, what string, states []string, done string) *cobra.Command {
	b := bulk{op: "bulk-jobs", given: values{"queue": usualQueueName, "action": what, "state": states[0]}}
	var how bulkFlags
	c.Long += `

Ids name jobs of any queue, or of --queue. If two jobs have one, which is rare, it takes
--queue to say which is meant.
Each id is handled on its own: failures are reported, and do not stop the others. A filter
is at least one of --state, --kind, --key, --where and --older-than; see dbcron job list.
With a filter the command asks first; --yes goes on without asking, --dry-run only counts.
It handles the jobs that are there now, in small transactions. If it is interrupted, call it
again.`
	c.Args = cobra.ArbitraryArgs
	t := twin{flags: map[string]string{"action": "", "limit": "", "dry_run": "", "state": ""}}
	names := t.addFlags(c, operations()[b.op], b.given, nil)
	c.Flags().StringVar(new(string), "state", states[0], "`state` that they are in: "+plain.Or(states))
	c.Flags().IntVarP(&b.most, "count", "n", 0, "how many jobs at the most (default all)")
	how.add(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		selecting := slices.DeleteFunc(append([]string{"state", "count"}, names...), func(name string) bool {
			return name == "queue" || !c.Flag(name).Changed
		})
		if len(args) == 0 {
			b.given["state"] = c.Flag("state").Value.String()
			if err := b.check(c, states, selecting); err != nil {
				return err
			}
			if _, err := operations()[b.op].Input(b.given); err != nil {
				return p.worded(err)
			}
			if err := how.check(p); err != nil {
				return err
			}
			return p.withAPI(c.Context(), func() error { return p.doBulk(c.Context(), &b, how) })
		}
		for _, name := range append([]string{"dry-run", "output"}, selecting...) {
			if c.Flag(name).Changed {
				return usagef("--%s goes with a filter, and there are ids as well", name)
			}
		}
		p.named = []string{"id"}
		for _, id := range args { // validate all before acting on any
			if _, err := operations()["get-job"].Input(values{"queue": b.given["queue"], "id": id}); err != nil {
				return p.worded(err)
			}
		}
		return p.withAPI(c.Context(), func() error {
			id, in := what+"-job-by-id", values{}
			if c.Flag("queue").Changed {
				id, in = what+"-job", values{"queue": b.given["queue"]}
				if _, err := p.do(c.Context(), "get-queue", in); err != nil { // report it once, not for each job
					return err
				}
			}
			return p.doEach(c.Context(), id, in, args, done)
		})
	}
	return c
}

// check validates a filter, which must not be empty: that would select all jobs.
func (b *bulk) check(c *cobra.Command, states, selecting []string) error {
	for _, name := range selecting { // an unset variable in a script must not mean all jobs
		if c.Flag(name).Value.String() == "" {
			return usagef("--%s is empty; leave it out if it is not to select jobs", name)
		}
	}
	if _, err := notNegative(cmp.Or(b.given["older_than"], "1s")); err != nil {
		return usagef("--older-than: %v", err)
	}
	switch {
	case !slices.ContainsFunc(selecting, func(name string) bool { return name != "count" && name != "after" }):
		return usagef("choose jobs by their ids or by at least one of --state, --kind, --key, --where and --older-than")
	case c.Flag("count").Changed && b.most < 1:
		return usagef("-n %d: use 1 or more, or leave it out for all", b.most)
	case !slices.Contains(states, b.given["state"]):
		return usagef("--state: %q is not known; use %s", b.given["state"], plain.Or(states))
	}
	return nil
}

// doEach acts on some jobs, of one queue or of any.
func (p *program) doEach(ctx context.Context, id string, in values, jobs []string, done string) error {
	var failed []error
	for _, in["id"] = range jobs {
		_, err := p.do(ctx, id, in)
		switch code := codeOf(err); {
		case err == nil:
			fmt.Fprintf(p.err, "dbcron: job %s %s\n", in["id"], done)
		case code == exitConflict:
			failed = append(failed, exitError{code, errors.New(strings.TrimPrefix(err.Error(), queue.ErrState.Error()+": "))})
		case code == exitNotFound:
			failed = append(failed, err)
		default: // the next would fail, too
			return errors.Join(append(failed, err)...)
		}
	}
	return errors.Join(failed...)
}
