package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/dbcron/dbcron/wire"
)

func (p *program) node() *cobra.Command {
	c := &cobra.Command{
		Use:   "node",
		Short: "See daemons and workers, and drain them",
		Long: `See the processes that take part, daemons and workers, and have them take no new work:
before a host is stopped, say. A process that is drained begins no runs and no jobs, and
ends what it has begun. It stays so until it is undrained, or ends.

A process has several parts: its schedules, its sending of jobs and the queues that its API
gives jobs of. node list has a row for each process, and with -o json its parts. NAME is what their names have in common before a
colon, host:pid or the host's name, which --node of dbcron serve sets; or it is the
whole name of one.`,
	}
	c.AddCommand(p.twin(twin{
		id: "list-nodes", use: "list", short: "List daemons and workers",
		long: `List daemons and workers with their state: live, drained, lost (it was not heard of in
time) or gone (it has ended). One that was killed stays listed for about a day. It is a line for
each process, which is live if a part of it is; -o json and the like have the parts.`,
		example: `  dbcron node list -o json`,
	}), p.nodeDrain(), p.twin(twin{
		id: "undrain-node", use: "undrain NAME",
		long:    "Undrain a process, so that it takes work again. Exit code 3: no process of that name is live.",
		example: `  dbcron node undrain "$(hostname)"`,
		then:    p.tellNodes("takes work again"),
	}))
	return c
}

func (p *program) nodeDrain() *cobra.Command {
	var wait time.Duration
	var name string
	c := p.twin(twin{
		id: "drain-node", use: "drain NAME",
		long: `Drain a process: it takes no new work, and finishes what it has begun. With --wait the command
ends when that is done, or with exit code 1 after so long: for the preStop hook of a
container. Exit code 3: no process of that name is live.`,
		example: `  dbcron node drain "$(hostname)" --wait 10m`,
		before: func(_ context.Context, given values) error {
			name = given["name"]
			return nil
		},
		then: func(ctx context.Context, answer any) error {
			err := p.tellNodes("takes no new work")(ctx, answer)
			if err == nil && wait > 0 {
				err = p.waitUntilEnded(ctx, name, wait)
			}
			return err
		},
	})
	durationVar(c.Flags(), &wait, "wait", 0, "wait until it has finished its work, at most this long (default: do not wait)")
	return c
}

// waitUntilEnded checks twice a second. A missing process has ended.
func (p *program) waitUntilEnded(ctx context.Context, name string, most time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, most, errNotEnded)
	defer cancel()
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	// The process must first notice: it still begins what it claims until then.
	for heard := 0; ; heard++ {
		left, err := ask[wire.NodeWork](ctx, p, "node-work", "name", name)
		switch {
		case codeOf(err) == exitNotFound:
			return nil
		case err != nil && ctx.Err() == nil:
			return err
		case err == nil && left.Runs+left.Jobs == 0 && heard >= drainHeard:
			return nil
		}
		select {
		case <-ctx.Done():
			if cause := context.Cause(ctx); cause != errNotEnded { //nolint:errorlint // it is this very value
				return cause
			}
			if left == nil {
				return fmt.Errorf("%w within %v", errNotEnded, most)
			}
			return fmt.Errorf("%w within %v: %s and %s are under way; it goes on to end them",
				errNotEnded, most, counted(left.Runs, "run", "runs"), counted(left.Jobs, "block or long job", "blocks and long jobs"))
		case <-tick.C:
		}
	}
}

var errNotEnded = errors.New("the process has not finished its work")

// drainHeard is the number of checks after which a process has noticed that it is drained: it looks once a
// second unless configured otherwise (serve --poll).
const drainHeard = 4

// tellNodes says of each of the nodes in an answer what it does now.
func (p *program) tellNodes(what string) func(context.Context, any) error {
	return func(_ context.Context, answer any) error {
		for _, n := range entriesOf(answer).([]wire.Node) { //nolint:forcetypeassert // these operations answer with nodes
			fmt.Fprintf(p.err, "dbcron: %s %s\n", oneLine(n.Name, 200), what)
		}
		return nil
	}
}
