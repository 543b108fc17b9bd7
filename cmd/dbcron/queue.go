package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/dbcron/dbcron/internal/ops/health"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/wire"
)

func (p *program) queue() *cobra.Command {
	c := &cobra.Command{
		Use:   "queue",
		Short: "See and change the queues of jobs",
		Long: `See and change the queues of jobs, which programs do with the Go package queue.
A queue is made by the first job in it, or by dbcron queue set. What is in it is
seen and changed with dbcron job. dbcron help queue-cli has examples.`,
	}
	c.AddCommand(
		p.queueList(), p.queueShow(), p.queuePeek(),
		p.queueSet(), p.queuePause(), p.queueResume(), p.queuePurge(), p.queueResize(), p.queueMove())
	return c
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
	var was *wire.Queue
	var to string
	return p.twin(twin{
		id: "resize-queue", use: "resize NAME N",
		long: `Change the number of a queue's blocks, from 1 to 1000. A worker has whole blocks, so
this is how many workers can share the queue. Jobs that are enqueued after a few
seconds, when all who enqueue know of it, go to new blocks, delayed ones follow, and the
old blocks go when they are empty. If jobs have keys, the new blocks wait for that, so
that no key's order is broken. No job is lost.`,
		example: `  dbcron queue resize mail 64`,
		before: func(ctx context.Context, given values) (err error) {
			to = given["blocks"]
			if was, err = ask[wire.Queue](ctx, p, "get-queue", "queue", given["queue"]); err == nil && to == strconv.Itoa(was.Blocks) {
				fmt.Fprintf(p.err, "dbcron: nothing to do: %s has %s\n", oneLine(was.Name, 200), counted(was.Blocks, "block", "blocks"))
				return errNothing
			}
			return err
		},
		then: func(context.Context, any) error {
			n, _ := strconv.Atoi(to)
			fmt.Fprintf(p.err, "dbcron: new jobs of %s go to %s in a few seconds; the old ones, %d, go when they are empty\n",
				oneLine(was.Name, 200), counted(n, "new block", "new blocks"), was.Blocks)
			return nil
		},
	})
}
