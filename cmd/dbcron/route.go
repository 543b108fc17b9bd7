package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/dbcron/dbcron/internal/jobfield"
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
	c.AddCommand(p.twin(twin{
		id: "list-routes", use: "list", short: "List the routes", example: `  dbcron route list -o json`,
	}), p.routeSet(), p.twin(twin{
		id: "delete-route", use: "delete KIND", short: "End a route", example: `  dbcron route delete thumbnail`,
	}))
	return c
}

func (p *program) routeSet() *cobra.Command {
	var create bool
	c := p.twin(twin{
		id: "set-route", use: "set KIND QUEUE", short: "Route jobs of a kind to a queue",
		long: `Route jobs of a kind to a queue if they name none; KIND * is for all kinds that have
no route of their own. Whoever enqueues follows within two seconds. Exit code 3: there is
no such queue.`,
		example: `  dbcron route set thumbnail photos --create
  dbcron route set '*' misc`,
		before: func(ctx context.Context, given values) error {
			switch _, err := p.do(ctx, "get-queue", values{"queue": given["queue"]}); {
			case codeOf(err) != exitNotFound:
				return err
			case !create:
				return fmt.Errorf("%w; to make it, add --create, or use dbcron queue set", err)
			}
			_, err := p.do(ctx, "set-queue", values{"queue": given["queue"]})
			if err == nil {
				p.tellMade(given["queue"])
			}
			return err
		},
	})
	c.Flags().BoolVar(&create, "create", false, "make the queue if there is none")
	return c
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
