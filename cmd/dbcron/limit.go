package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/wire"
)

func (p *program) limit() *cobra.Command {
	c := &cobra.Command{
		Use:   "limit",
		Short: "See and change how many jobs may run at a time, or begin in a period",
		Long: `See and change how many jobs of a queue, of one of its kinds, or of each tenant, may run
at a time, and how many may begin in a time: over all workers together. Workers learn of a
change within three seconds; jobs that run by then are not stopped.`,
	}
	c.AddCommand(p.twin(twin{
		id: "list-all-limits", use: "list", short: "List the limits",
		long: `List the limits, with how many permits to run a job workers have at the moment, and
whether one of them waits for a permit. A limit without a kind and a tenant is of all jobs
of the queue together; one of the tenant * is of each tenant without one of its own.`,
		example: `  dbcron limit list -o json`,
	}), ofOne(p.twin(p.making(twin{
		id: "set-limit", other: ofAllKinds("set-queue-limit"), also: "set-queue-limit", use: "set QUEUE",
		short: "Limit the jobs of a queue, of one of its kinds, or of each tenant",
		needs: "--running, --rate or --burst",
		long: `Limit the jobs of a queue, those of one of its kinds, or those of each tenant, over all
workers together. What is not given stays as it is, and none takes it back: --rate none.

--running 5 lets five run at a time. --rate 100/m lets a hundred begin in a minute,
evenly; --burst 20 lets up to twenty of them begin at once after a pause, or else what
comes in a tenth of a second. Every attempt counts, and each job of a batch. The jobs of
a kind that has reached its limit keep few others back; a kind of which very many wait
is better off in a queue of its own: dbcron route.

--per tenant limits the jobs of each tenant: --running 2 lets two of each run, and not two
in all. --tenant acme gives one tenant a limit of its own instead. Jobs without a tenant
have none. A queue is made if there is none.`,
		example: `  dbcron limit set mail --rate 100/m --burst 10
  dbcron limit set default --kind report --running 1
  dbcron limit set mail --per tenant --running 2 --rate 10/s`,
	}))), ofOne(p.twin(twin{
		id: "delete-limit", other: ofAllKinds("delete-queue-limit"), also: "delete-queue-limit", use: "delete QUEUE", short: "End a limit",
		example: `  dbcron limit delete default --kind report
  dbcron limit delete mail --per tenant`,
	})))
	return c
}

// ofOne has a limit be of a kind, or of tenants.
func ofOne(c *cobra.Command) *cobra.Command {
	c.MarkFlagsMutuallyExclusive("kind", "per")
	c.MarkFlagsMutuallyExclusive("kind", "tenant")
	return c
}

// ofAllKinds chooses an operation unless a kind is given.
func ofAllKinds(id string) func(*cobra.Command) string {
	return func(c *cobra.Command) string {
		if c.Flags().Changed("kind") {
			return ""
		}
		return id
	}
}

// limitText describes a limit of a queue.
func limitText(l *wire.Limit) string {
	kind, running, rate := "", "", ""
	switch {
	case l.Kind != "":
		kind = oneLine(l.Kind, 200) + ": "
	case l.Tenant == admin.EachTenant:
		kind = "each tenant: "
	case l.Tenant != "":
		kind = "tenant " + oneLine(l.Tenant, 200) + ": "
	}
	if l.Running != wire.Unlimited {
		running = string(l.Running) + " at a time, "
	}
	if l.Rate != string(wire.Unlimited) {
		rate = fmt.Sprintf("%s, burst %d", l.Rate, l.Burst)
	}
	return strings.TrimSuffix(kind+running+rate, ", ")
}
