package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/dbcron/dbcron/wire"
)

func (p *program) topic() *cobra.Command {
	c := &cobra.Command{
		Use:   "topic",
		Short: "See and change which queues subscribe to topics, and publish",
		Long: `See and change which queues get what is published to a topic. A publication is a job,
of which each queue that has subscribed gets a copy, all in one transaction.
dbcron help queue-groups has examples.`,
	}
	c.AddCommand(p.twin(twin{
		id: "list-subscriptions", use: "list", example: `  dbcron topic list`,
	}), p.twin(twin{
		id: "subscribe", use: "subscribe TOPIC QUEUE", short: "Subscribe a queue to a topic, from now on",
		example: `  dbcron topic subscribe order-placed mail`,
	}), p.twin(twin{
		id: "unsubscribe", use: "unsubscribe TOPIC QUEUE", short: "Unsubscribe a queue from a topic; jobs that were enqueued are still done",
		example: `  dbcron topic unsubscribe order-placed mail`,
	}), p.topicPublish())
	return c
}

func (p *program) topicPublish() *cobra.Command {
	var t jobFlags
	c := &cobra.Command{
		Use:   "publish TOPIC KIND [PAYLOAD|-]",
		Short: "Enqueue a copy of a job in each queue that has subscribed",
		Long: `Enqueue a copy of a job in each queue that has subscribed to a topic, all or none, and
print the id of the publication: dbcron group show tells how many copies are done. If
nobody has subscribed, stderr tells so, and nothing is printed.`,
		Example: `  id=$(dbcron topic publish order-placed order '{"id": 4711}')
  dbcron group show "$id"`,
		Args: cobra.RangeArgs(2, 3),
		RunE: func(c *cobra.Command, args []string) error {
			t.Kind = args[1]
			if len(args) == 3 {
				if err := p.readPayload(&t, args[2]); err != nil {
					return err
				}
			}
			if t.Queue != "" || t.Group != "" {
				return usagef("a publication goes to the queues that have subscribed, and is a group of its own")
			}
			n, err := t.job()
			if err != nil {
				return err
			}
			return p.withAPI(c.Context(), func() error {
				answer, err := p.send(c.Context(), "publish", values{"topic": args[0]}, n, "")
				if err != nil {
					return flaggedJob(err)
				}
				made := answer.(*wire.Published) //nolint:forcetypeassert // it publishes
				queues := make([]string, len(made.Copies))
				for i := range made.Copies {
					queues[i] = made.Copies[i].Queue
				}
				if p.say("queues", queues); made.Group == "" {
					fmt.Fprintf(p.err, "dbcron: no queue has subscribed to topic %s; nothing was enqueued\n", oneLine(args[0], 200))
					return nil
				}
				p.say("id", made.Group)
				_, err = fmt.Fprintln(p.out, made.Group)
				return err
			})
		},
	}
	t.register(c)
	return c
}
