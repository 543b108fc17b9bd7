package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/internal/ops/wireof"
	"github.com/dbcron/dbcron/scheduler"
)

func (p *program) node() *cobra.Command {
	c := &cobra.Command{
		Use:   "node",
		Short: "See daemons and workers, and drain them",
		Long: `See the processes that take part, daemons and workers, and have them take no new work:
before a host is stopped, say. A process that is drained begins no runs and no jobs, and
ends what it has begun. It stays so until it is undrained, or ends.

A process has a row for each part of it: its schedules, its sending of jobs and the
queues that its API gives jobs of. NAME is what their names have in common before a
colon, such as the host's name or host:pid, or --node of dbcron serve; or it is the
whole name of one.`,
	}
	c.AddCommand(p.nodeList(), p.nodeDrain(), p.nodeUndrain())
	return c
}

// A nodeRow is what a table shows of a process.
type nodeRow struct {
	Name      string    `table:"name"`
	State     string    `table:"state"`
	Version   string    `table:"version"`
	Tags      string    `table:"tags"`
	Started   time.Time `table:"started"`
	Until     time.Time `table:"until"`
	DrainedBy string    `table:"drained by"`
}

func newNodeRow(n *scheduler.Node) nodeRow {
	return nodeRow{n.Name, wireof.Node(n).State, n.Version, n.Tags, n.Started, n.Until, n.DrainedBy}
}

func (p *program) nodeList() *cobra.Command {
	var output string
	c := &cobra.Command{
		Use:   "list",
		Short: "List daemons and workers",
		Long: `List daemons and workers with their state: live, drained, lost (it was not heard of in
time) or gone (it has ended). One that was killed stays listed for about a day.`,
		Example: `  dbcron node list -o json`,
		RunE: func(c *cobra.Command, _ []string) error {
			return p.with(c.Context(), func(db *dialect.DB) error {
				all, err := pages(func(last *scheduler.Node, most int) ([]scheduler.Node, error) {
					return scheduler.Nodes(c.Context(), db, last.Name, most)
				})
				if err != nil {
					return err
				}
				return writeEach(p.out, output, all, wireof.Node, newNodeRow)
			})
		},
	}
	outputFlag(c, &output)
	return c
}

func (p *program) nodeDrain() *cobra.Command {
	var wait time.Duration
	c := &cobra.Command{
		Use:   "drain NAME",
		Short: "Drain a process, so that it takes no new work",
		Long: `Drain a process: it takes no new work, and finishes what it has begun. With --wait the command
ends when that is done, or with exit code 1 after so long: for the preStop hook of a
container. Exit code 3: no process of that name is live.`,
		Example: `  dbcron node drain "$(hostname)" --wait 10m`,
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return p.with(c.Context(), func(db *dialect.DB) error {
				found, err := scheduler.Drain(c.Context(), db, args[0], whoami())
				if err := p.did(c.Context(), err, "node.drain", args[0], len(found), ""); err != nil {
					return err
				}
				p.tellNodes(found, "takes no new work")
				if wait == 0 {
					return nil
				}
				return waitUntilEnded(c.Context(), db, args[0], wait)
			})
		},
	}
	durationVar(c.Flags(), &wait, "wait", 0, "wait until it has finished its work, at most this long (default: do not wait)")
	return c
}

// waitUntilEnded checks twice a second. A missing process has ended.
func waitUntilEnded(ctx context.Context, db *dialect.DB, name string, most time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, most, errNotEnded)
	defer cancel()
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	// The process must first notice: it still begins what it claims until then.
	for heard := 0; ; heard++ {
		runs, jobs, err := scheduler.Begun(ctx, db, name)
		switch {
		case codeOf(err) == exitNotFound:
			return nil
		case err != nil && ctx.Err() == nil:
			return err
		case err == nil && runs+jobs == 0 && heard >= drainHeard:
			return nil
		}
		select {
		case <-ctx.Done():
			if cause := context.Cause(ctx); cause != errNotEnded { //nolint:errorlint // it is this very value
				return cause
			}
			return fmt.Errorf("%w within %v: %s and %s are under way; it goes on to end them",
				errNotEnded, most, counted(runs, "run", "runs"), counted(jobs, "block or long job", "blocks and long jobs"))
		case <-tick.C:
		}
	}
}

var errNotEnded = errors.New("the process has not finished its work")

// drainHeard is the number of checks after which a process has noticed that it is drained: it looks once a
// second unless configured otherwise (serve --poll).
const drainHeard = 4

func (p *program) nodeUndrain() *cobra.Command {
	return &cobra.Command{
		Use:     "undrain NAME",
		Short:   "Undrain a process, so that it takes work again",
		Long:    "Undrain a process, so that it takes work again. Exit code 3: no process of that name is live.",
		Example: `  dbcron node undrain "$(hostname)"`,
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return p.with(c.Context(), func(db *dialect.DB) error {
				found, err := scheduler.Undrain(c.Context(), db, args[0])
				if err := p.did(c.Context(), err, "node.undrain", args[0], len(found), ""); err != nil {
					return err
				}
				p.tellNodes(found, "takes work again")
				return nil
			})
		},
	}
}

func (p *program) tellNodes(nodes []scheduler.Node, what string) {
	for i := range nodes {
		fmt.Fprintf(p.err, "dbcron: %s %s\n", oneLine(nodes[i].Name, 200), what)
	}
}
