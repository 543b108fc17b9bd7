package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/dbcron/dbcron/internal/jobfield"
	"github.com/dbcron/dbcron/internal/ops/wireof"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/queue/admin"
)

func (p *program) route() *cobra.Command {
	c := &cobra.Command{
		Use:   "route",
		Short: "See and change which queue kinds of jobs go to",
		Long: `See and change which queue jobs go to that name none, by their kind. A kind without a
route goes where the route of the kind * says, and without that to the queue default.
Programs, schedules, dbcron job enqueue and dbcron_enqueue follow a change within two
seconds. Jobs that were enqueued before stay where they are: dbcron queue move.`,
	}
	c.AddCommand(p.routeList(), p.routeSet(), p.routeDelete())
	return c
}

func (p *program) routeList() *cobra.Command {
	var output string
	c := &cobra.Command{
		Use:     "list",
		Short:   "List the routes",
		Example: `  dbcron route list -o json`,
		RunE: func(c *cobra.Command, _ []string) error {
			return p.withAdmin(c.Context(), func(q *admin.Client) error {
				all, err := pages(func(last *admin.Route, most int) ([]admin.Route, error) {
					return q.Routes(c.Context(), last.Kind, most)
				})
				if err != nil {
					return err
				}
				return write(p.out, output, wireof.Each(all, wireof.Route))
			})
		},
	}
	outputFlag(c, &output)
	return c
}

func (p *program) routeSet() *cobra.Command {
	var create bool
	c := &cobra.Command{
		Use:   "set KIND QUEUE",
		Short: "Route jobs of a kind to a queue",
		Long: `Route jobs of a kind to a queue if they name none; KIND * is for all kinds that have
no route of their own. Whoever enqueues follows within two seconds. Exit code 3: there is
no such queue.`,
		Example: `  dbcron route set thumbnail photos --create
  dbcron route set '*' misc`,
		Args: cobra.ExactArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			return p.withRoute(c.Context(), args[0], func(q *admin.Client) error {
				return p.setRoute(c.Context(), q, args[0], args[1], create)
			}, args[1])
		},
	}
	c.Flags().BoolVar(&create, "create", false, "make the queue if there is none")
	return c
}

func (p *program) setRoute(ctx context.Context, c *admin.Client, kind, name string, create bool) error {
	_, isNew, err := orUsual(ctx, c, name)
	switch {
	case err != nil:
		return err
	case isNew && !create:
		return fmt.Errorf("%w: queue %q; to make it, add --create, or use dbcron queue set", queue.ErrNotFound, name)
	case isNew:
		if _, err := c.Edit(ctx, name, func(*admin.Queue) {}); err != nil {
			return err
		}
		p.tellMade(name)
	}
	return p.did(ctx, c.SetRoute(ctx, kind, name), "route.set", kind, 1, "to "+name)
}

func (p *program) routeDelete() *cobra.Command {
	return &cobra.Command{
		Use:     "delete KIND",
		Short:   "End a route",
		Example: `  dbcron route delete thumbnail`,
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return p.withRoute(c.Context(), args[0], func(q *admin.Client) error {
				return p.did(c.Context(), q.DeleteRoute(c.Context(), args[0]), "route.delete", args[0], 1, "")
			})
		},
	}
}

// withRoute is withQueues for commands about a kind.
func (p *program) withRoute(ctx context.Context, kind string, f func(c *admin.Client) error, names ...string) error {
	if err := sqlrun.CheckName(kind); err != nil {
		return usagef("the kind's %v", err)
	}
	return p.withAdmin(ctx, f, names...)
}

// routed sets the queues of jobs that name none, and reports queues other than the default, which users of these
// commands need to know.
func (p *program) routed(ctx context.Context, c *admin.Client, jobs []queue.Job, told map[string]bool) error {
	queues := map[string]string{}
	for i := range jobs {
		j := &jobs[i]
		if jobfield.Reserved(j.Queue) {
			return usagef("the queue %s is dbcron's own: what is in it is sent or run; dbcron notify test sends a message", j.Queue)
		}
		if j.Queue != "" {
			continue
		}
		if queues[j.Kind] == "" {
			var err error
			if queues[j.Kind], err = c.Route(ctx, j.Kind); err != nil {
				return err
			}
			if name := queues[j.Kind]; name != usualQueueName && !told[j.Kind] {
				told[j.Kind] = true
				fmt.Fprintf(p.err, "dbcron: jobs of kind %s go to queue %s: dbcron route list\n", oneLine(j.Kind, 200), oneLine(name, 200))
			}
		}
		j.Queue = queues[j.Kind]
	}
	return nil
}
