package main

import "github.com/spf13/cobra"

func (p *program) share() *cobra.Command {
	c := &cobra.Command{
		Use:   "share",
		Short: "See and change how many turns the tenants of a fair queue have",
		Long: `See and change how many turns the tenants of a fair queue have. In a queue that is
fair (dbcron queue set mail --fair) the tenants that have jobs have equal turns; one with
a share of 5 has five while a tenant without a share has one. Workers learn of a change
within three seconds.`,
	}
	c.AddCommand(p.twin(twin{
		id: "list-shares", use: "list QUEUE", short: "List the shares of a queue's tenants", example: `  dbcron share list mail -o json`,
	}), p.twin(p.making(twin{
		id: "set-share", use: "set QUEUE TENANT WEIGHT", short: "Give a tenant a share",
		long: `Give a tenant of a queue a share, from 1 to 1000. It has an effect while the queue is
fair. A queue is made if there is none.`,
		example: `  dbcron share set mail acme 5`,
	})), p.twin(twin{
		id: "delete-share", use: "delete QUEUE TENANT", short: "End a share: the tenant has one turn", example: `  dbcron share delete mail acme`,
	}))
	return c
}
