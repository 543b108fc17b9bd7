package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/internal/ops/health"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/wire"
)

func (p *program) queue() *cobra.Command {
	c := &cobra.Command{
		Use:   "queue",
		Short: "See and change the queues of jobs",
		Long: `See and change the queues of jobs, which programs do with the Go package queue.
A queue is made by the first job in it, or by dbcron queue set. What is in it is
seen and changed with dbcron job. docs/queue-cli.md has examples.`,
	}
	c.AddCommand(
		p.queueList(), p.queueShow(), p.queuePeek(),
		p.queueSet(), p.queuePause(), p.queueResume(), p.queuePurge(), p.queueResize(), p.queueMove())
	return c
}

// withQueues opens the database for a command that enqueues jobs or moves them. It validates the names of queues
// first, since engines treat odd ones differently.
func (p *program) withQueues(ctx context.Context, f func(c *queue.Client) error, names ...string) error {
	if err := checkQueues(names); err != nil {
		return err
	}
	return p.with(ctx, func(db *dialect.DB) error {
		c, err := queue.New(db, queue.Options{Doorbell: usualDoorbell})
		if err != nil {
			return err
		}
		if err := f(c); err != nil {
			return err
		}
		return c.Flush(ctx)
	})
}

// adminOf returns what looks after the queues of a client's database.
func adminOf(c *queue.Client) (*admin.Client, error) { return admin.New(c.DB(), admin.Options{}) }

// withAdmin is withQueues for a command that looks after queues and their jobs.
func (p *program) withAdmin(ctx context.Context, f func(c *admin.Client) error, names ...string) error {
	if err := checkQueues(names); err != nil {
		return err
	}
	return p.withAdminOf(ctx, func(_ *dialect.DB, c *admin.Client) error { return f(c) })
}

// withAdminOf is withAdmin that also passes the database.
func (p *program) withAdminOf(ctx context.Context, f func(db *dialect.DB, c *admin.Client) error) error {
	return p.with(ctx, func(db *dialect.DB) error {
		ends, err := queue.New(db, queue.Options{}) // ends groups whose last job is cancelled
		if err != nil {
			return err
		}
		defer runtime.KeepAlive(ends)
		c, err := adminOf(ends)
		if err != nil {
			return err
		}
		return f(db, c)
	})
}

func checkQueues(names []string) error {
	for _, name := range names {
		if err := sqlrun.CheckName(name); err != nil {
			return usagef("the queue's %v", err)
		}
	}
	return nil
}

// usualDoorbell is the address at which workers are notified of jobs enqueued by other processes of this host.
const usualDoorbell = "127.0.0.1:0"

// doorbellFlag adds the flag that sets another address.
func doorbellFlag(flags *pflag.FlagSet, to *string) {
	flags.StringVar(to, "doorbell", usualDoorbell,
		"`address` at which it hears of new jobs where the database notifies nobody, on MySQL and SQLite, or off")
}

// doorbellAt is the address that the flag means; empty: none.
func doorbellAt(flag string) string {
	if flag == "off" {
		return ""
	}
	return flag
}

// countLimit limits counts of jobs: nobody waits for millions.
const countLimit = health.CountTo

// A tally is a number of jobs; tables format it for people.
type tally int

func (t tally) String() string {
	if t >= countLimit {
		return strconv.Itoa(countLimit) + "+"
	}
	return strconv.Itoa(int(t))
}

func (p *program) queuePause() *cobra.Command {
	return p.twin(twin{
		id: "pause-queue", use: "pause NAME", short: "Pause a queue",
		long: `Pause a queue: its jobs wait until it is resumed. Running jobs continue, and jobs can
still be enqueued. Workers notice within seconds.`,
		example: `  dbcron queue pause mail --reason "the relay is down, ticket 4711"`,
		before:  p.unlessQueueIs("paused"),
	})
}

func (p *program) queueResume() *cobra.Command {
	return p.twin(twin{
		id: "resume-queue", use: "resume NAME", short: "Resume a paused queue",
		example: `  dbcron queue resume mail`,
		before:  p.unlessQueueIs("active"),
	})
}

// unlessQueueIs ends a command that has nothing to do.
func (p *program) unlessQueueIs(state string) func(context.Context, values) error {
	return func(ctx context.Context, given values) error {
		q, err := ask[wire.Queue](ctx, p, "get-queue", "queue", given["queue"])
		switch {
		case err != nil:
			return err
		case q.State == "deleted": // which neither pause nor resume may undo
			return fmt.Errorf("%w: %s", queue.ErrDeleted, q.Name)
		case q.State == state:
			fmt.Fprintf(p.err, "dbcron: nothing to do: %s is %s\n", oneLine(q.Name, 200), standingOf(q.State, q.Reason))
			return errNothing
		}
		return nil
	}
}

// errNothing ends a command that has nothing to do, and has told so.
var errNothing = errSilent{errors.New("nothing to do")}

// standingOf describes the state of a queue, and why it is not active.
func standingOf(state, reason string) string {
	if reason == "" {
		return state
	}
	return state + ": " + oneLine(reason, 1000)
}

func (p *program) queueResize() *cobra.Command {
	return &cobra.Command{
		Use:   "resize NAME N",
		Short: "Change how many workers can share a queue",
		Long: `Change the number of a queue's blocks, from 1 to 1000. A worker has whole blocks, so
this is how many workers can share the queue. Jobs that are enqueued after a few
seconds, when all who enqueue know of it, go to new blocks, delayed ones follow, and the
old blocks go when they are empty. If jobs have keys, the new blocks wait for that, so
that no key's order is broken. No job is lost.`,
		Example: `  dbcron queue resize mail 64`,
		Args:    cobra.ExactArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			n, err := strconv.Atoi(args[1])
			if err != nil || n < 1 || n > 1000 {
				return usagef("%q is not a number of blocks, from 1 to 1000", args[1])
			}
			return p.withAdmin(c.Context(), func(q *admin.Client) error { return p.resizeQueue(c.Context(), q, args[0], n) }, args[0])
		},
	}
}

func (p *program) resizeQueue(ctx context.Context, c *admin.Client, name string, n int) error {
	before, err := c.Queue(ctx, name)
	if err != nil {
		return err
	}
	if before.Blocks == n {
		fmt.Fprintf(p.err, "dbcron: nothing to do: %s has %s\n", oneLine(name, 200), counted(n, "block", "blocks"))
		return nil
	}
	if err := p.did(ctx, c.Resize(ctx, name, n), "queue.resize", name, 1, fmt.Sprintf("from %d to %d", before.Blocks, n)); err != nil {
		return err
	}
	fmt.Fprintf(p.err, "dbcron: new jobs of %s go to %s in a few seconds; the old ones, %d, go when they are empty\n",
		oneLine(name, 200), counted(n, "new block", "new blocks"), before.Blocks)
	return nil
}
