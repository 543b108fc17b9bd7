package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/dbcron/dbcron/internal/ops/wireof"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/wire"
)

func (p *program) limit() *cobra.Command {
	c := &cobra.Command{
		Use:   "limit",
		Short: "See and change how many jobs may run at a time, or begin in a period",
		Long: `See and change how many jobs of a queue, or of one of its kinds, may run at a time,
and how many may begin in a time: over all workers together. Workers learn of a change
within three seconds; jobs that run by then are not stopped.`,
	}
	c.AddCommand(p.limitList(), p.limitSet(), p.limitDelete())
	return c
}

func (p *program) limitList() *cobra.Command {
	var output string
	c := &cobra.Command{
		Use:   "list",
		Short: "List the limits",
		Long: `List the limits, with how many permits to run a job workers have at the moment, and
whether one of them waits for a permit. A limit without a kind is of all jobs of the
queue together.`,
		Example: `  dbcron limit list -o json`,
		RunE: func(c *cobra.Command, _ []string) error {
			return p.withAdmin(c.Context(), func(q *admin.Client) error {
				all, err := limits(c.Context(), q)
				if err != nil {
					return err
				}
				return write(p.out, output, wireof.Each(all, wireof.Limit))
			})
		},
	}
	outputFlag(c, &output)
	return c
}

func limits(ctx context.Context, c *admin.Client) ([]admin.LimitInfo, error) {
	return pages(func(last *admin.LimitInfo, most int) ([]admin.LimitInfo, error) {
		return c.Limits(ctx, last.Queue, last.Kind, most)
	})
}

// limitFlags are the flags that change a limit.
type limitFlags struct {
	kind, running, rate string
	burst               int
}

func (p *program) limitSet() *cobra.Command {
	var f limitFlags
	c := &cobra.Command{
		Use:   "set QUEUE [--kind KIND] [--running N] [--rate N/TIME] [--burst N]",
		Short: "Limit the jobs of a queue, or of one of its kinds",
		Long: `Limit the jobs of a queue, or those of one of its kinds, over all workers together.
What is not given stays as it is, and none takes it back: --rate none.

--running 5 lets five run at a time. --rate 100/m lets a hundred begin in a minute,
evenly; --burst 20 lets up to twenty of them begin at once after a pause, or else what
comes in a tenth of a second. Every attempt counts, and each job of a batch. The jobs of
a kind that has reached its limit keep few others back; a kind of which very many wait
is better off in a queue of its own: dbcron route. Exit code 3: there is no such queue.`,
		Example: `  dbcron limit set mail --rate 100/m --burst 10
  dbcron limit set default --kind report --running 1`,
		Args: cobra.ExactArgs(1),
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		change, err := f.change(c)
		if err != nil {
			return err
		}
		return p.withLimit(c.Context(), f.kind, func(q *admin.Client) error {
			made, err := q.EditLimit(c.Context(), args[0], f.kind, change)
			if err == nil {
				w := wireof.Limit(&admin.LimitInfo{Limit: made})
				if w.Kind != "" {
					p.say("kind", w.Kind)
				}
				p.say("running", w.Running)
				p.say("rate", w.Rate)
				p.say("burst", w.Burst)
			}
			return p.did(c.Context(), err, "limit.set", ofKind(args[0], f.kind), 1, "")
		}, args[0])
	}
	c.Flags().SortFlags = false
	c.Flags().StringVar(&f.kind, "kind", "", "limit the jobs of this kind only")
	c.Flags().StringVar(&f.running, "running", "", "how many may run at a time, or none for any number")
	c.Flags().StringVar(&f.rate, "rate", "", "how many may begin in a time: 100/s, 5/1m30s, 1/h, or none for any number")
	c.Flags().IntVar(&f.burst, "burst", 1, "how many may begin at once after a pause")
	return c
}

// change returns a function that makes the change given by the flags.
func (f *limitFlags) change(c *cobra.Command) (func(*admin.Limit), error) {
	given := func(flag string) bool { return c.Flags().Changed(flag) }
	if !given("running") && !given("rate") && !given("burst") {
		return nil, usagef("there is nothing to change; give --running, --rate or --burst")
	}
	var n wire.LimitChange
	if given("running") {
		n.Running = (*wire.Count)(&f.running)
	}
	if given("rate") {
		n.Rate = &f.rate
	}
	if given("burst") {
		n.Burst = &f.burst
	}
	change, err := wireof.LimitChange(&n)
	return change, flagged(err)
}

func (p *program) limitDelete() *cobra.Command {
	var kind string
	c := &cobra.Command{
		Use:     "delete QUEUE [--kind KIND]",
		Short:   "End a limit",
		Example: `  dbcron limit delete default --kind report`,
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return p.withLimit(c.Context(), kind, func(q *admin.Client) error {
				return p.did(c.Context(), q.DeleteLimit(c.Context(), args[0], kind), "limit.delete", ofKind(args[0], kind), 1, "")
			}, args[0])
		},
	}
	c.Flags().StringVar(&kind, "kind", "", "that of the jobs of this kind")
	return c
}

// ofKind names the limit of a kind, or of a whole queue, in the audit log.
func ofKind(name, kind string) string {
	if kind == "" {
		return name
	}
	return name + "/" + kind
}

// withLimit is withQueues for commands about a kind, or about none.
func (p *program) withLimit(ctx context.Context, kind string, f func(c *admin.Client) error, names ...string) error {
	if err := sqlrun.CheckName(kind); kind != "" && err != nil {
		return usagef("the kind's %v", err)
	}
	return p.withAdmin(ctx, f, names...)
}

// limitsText describes the limits of a queue, one per line.
func limitsText(ctx context.Context, c *admin.Client, name string) (lines []string, err error) {
	all, err := limits(ctx, c)
	for i := range all {
		l := wireof.Limit(&all[i])
		if l.Queue != name {
			continue
		}
		line := ""
		if l.Kind != "" {
			line = oneLine(l.Kind, 200) + ": "
		}
		if l.Running != wire.Unlimited {
			line += string(l.Running) + " at a time"
		}
		if all[i].Rate > 0 {
			if l.Running != wire.Unlimited {
				line += ", "
			}
			line += fmt.Sprintf("%s, burst %d", l.Rate, l.Burst)
		}
		lines = append(lines, line)
	}
	return lines, err
}
