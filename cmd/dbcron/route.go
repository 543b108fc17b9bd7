package main

import "github.com/spf13/cobra"

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
	}), p.twin(p.making(twin{
		id: "set-route", use: "set KIND QUEUE", short: "Route jobs of a kind to a queue",
		long: `Route jobs of a kind to a queue if they name none; KIND * is for all kinds that have
no route of their own. Whoever enqueues follows within two seconds. A queue is made if
there is none.`,
		example: `  dbcron route set thumbnail photos
  dbcron route set '*' misc`,
	})), p.twin(twin{
		id: "delete-route", use: "delete KIND", short: "End a route", example: `  dbcron route delete thumbnail`,
	}))
	return c
}
