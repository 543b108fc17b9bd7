package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/wire"
)

func (p *program) queueSet() *cobra.Command {
	var c *cobra.Command
	c = &cobra.Command{
		Use:   "set NAME [flags]",
		Short: "Change the settings of a queue, or make it",
		Long: `Change the settings of a queue, or make it: without a flag, one with the usual settings.
What is not given stays as it is, and an empty text takes a setting back: --timeout ''.
Producers and workers go by the new settings within seconds.

Durations are such as 500ms, 90s, 1h30m or 30d, and sizes 65536, 64KiB or 4MiB. A
job can have a number of attempts and a timeout of its own.`,
		Example: `  dbcron queue set mail --max-attempts 5 --retry-delay 30s --retry-max-delay 10m
  dbcron queue set ledger --fifo
  dbcron queue set import --timeout 2h --keep-dead forever --keep-done 24h
  dbcron queue set billing --notify ada@example.org,https://example.org/in`,
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			given, err := givenQueueSettings(c)
			if err != nil {
				return err
			}
			return p.withAdmin(c.Context(), func(q *admin.Client) error {
				return p.setQueue(c.Context(), q, args[0], given)
			}, args[0])
		},
	}
	c.Flags().SortFlags = false
	registerSettings(c, queueSettings)
	return c
}

// givenQueueSettings returns a function that makes the change given by the flags, or nil if there is none. It
// reports all errors together.
func givenQueueSettings(c *cobra.Command) (func(*admin.Queue), error) {
	var wrong []string
	var given []func(*admin.Queue)
	for i := range queueSettings {
		s := &queueSettings[i]
		flag := c.Flags().Lookup(s.Flag())
		if !flag.Changed {
			continue
		}
		var only admin.Queue
		text := flag.Value.String()
		problem := ""
		if err := s.Set(&only, text); err != nil {
			problem = err.Error()
		} else {
			problem = s.Problem(&only)
		}
		if problem != "" {
			wrong = append(wrong, fmt.Sprintf("--%s: %s", s.Flag(), problem))
			continue
		}
		given = append(given, func(q *admin.Queue) { _ = s.Set(q, text) }) // it was validated before
	}
	if err := refused(wrong); err != nil {
		return nil, err
	}
	if len(given) == 0 {
		return nil, nil
	}
	return func(q *admin.Queue) {
		for _, change := range given {
			change(q)
		}
	}, nil
}

// refused joins all errors into one.
func refused(wrong []string) error {
	switch len(wrong) {
	case 0:
		return nil
	case 1:
		return usagef("%s", wrong[0])
	}
	return usagef("%d errors to correct, and nothing was changed:\n  %s", len(wrong), strings.Join(wrong, "\n  "))
}

func (p *program) setQueue(ctx context.Context, c *admin.Client, name string, change func(*admin.Queue)) error {
	q, made, err := orUsual(ctx, c, name)
	if err != nil {
		return err
	}
	if change == nil {
		if change = func(*admin.Queue) {}; !made {
			fmt.Fprintf(p.err, "dbcron: there is a queue %s already, and nothing was changed: no flag says what is to be\n", oneLine(name, 200))
			return nil
		}
	}
	change(&q)
	if err := refused(mismatches(&q)); err != nil { // before the queue is created
		return err
	}
	q, err = c.Edit(ctx, name, change)
	if err != nil {
		return err
	}
	_ = p.did(ctx, nil, "queue.set", name, 1, "")
	if made {
		p.tellMade(name)
	}
	if q.State != "active" {
		fmt.Fprintf(p.err, "dbcron: its jobs wait: it is %s\n", queueStanding(&q))
	}
	return nil
}

// mismatches lists settings that are valid, but not together.
func mismatches(q *admin.Queue) (wrong []string) {
	if q.RetryMaxDelay < q.RetryDelay {
		wrong = append(wrong, fmt.Sprintf("--retry-max-delay, %s, is less than --retry-delay, %s",
			wire.DurationOf(q.RetryMaxDelay), wire.DurationOf(q.RetryDelay)))
	}
	if q.PollMax < q.PollMin {
		wrong = append(wrong, fmt.Sprintf("--poll-max, %s, is less than --poll-min, %s", wire.DurationOf(q.PollMax), wire.DurationOf(q.PollMin)))
	}
	return wrong
}

// orUsual returns a queue's settings, or the defaults of a new one.
func orUsual(ctx context.Context, c *admin.Client, name string) (q admin.Queue, isNew bool, err error) {
	q, err = c.Queue(ctx, name)
	if errors.Is(err, queue.ErrNotFound) {
		return usualQueue(name), true, nil
	}
	return q, false, err
}

// tellMade reports a new queue, since its name may be mistyped.
func (p *program) tellMade(name string) {
	fmt.Fprintf(p.err, "dbcron: there was no queue %s; it was made\n", oneLine(name, 200))
}
