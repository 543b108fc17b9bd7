package main

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/dbcron/dbcron/internal/plain"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/admin"
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

type limitRow struct {
	Queue   string `json:"queue"`
	Kind    string `json:"kind"`    // empty: the whole queue
	Running string `json:"running"` // empty: no limit
	Rate    string `json:"rate"`    // such as 100/1m; empty: no limit
	Burst   int    `json:"burst"`
	Permits int    `json:"permits"` // held by workers
	Waiting bool   `json:"waiting"` // a worker waits for one
}

func newLimitRow(l admin.LimitInfo) limitRow {
	r := limitRow{Queue: l.Queue, Kind: l.Kind, Burst: l.Burst, Permits: l.Permits, Waiting: l.Waiting}
	if l.Running > 0 {
		r.Running = strconv.Itoa(l.Running)
	}
	if l.Rate > 0 {
		r.Rate = plain.FormatRate(l.Rate, l.Per)
	}
	return r
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
				rows, err := limits(c.Context(), q)
				if err != nil {
					return err
				}
				return write(p.out, output, rows)
			})
		},
	}
	outputFlag(c, &output)
	return c
}

func limits(ctx context.Context, c *admin.Client) (rows []limitRow, err error) {
	const page = 1000
	var last admin.LimitInfo
	for {
		found, err := c.Limits(ctx, last.Queue, last.Kind, page)
		if err != nil {
			return nil, err
		}
		for _, l := range found {
			rows, last = append(rows, newLimitRow(l)), l
		}
		if len(found) < page {
			return rows, nil
		}
	}
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
What is not given stays as it is, and an empty text takes it back: --rate ''.

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
				row := newLimitRow(admin.LimitInfo{Limit: made})
				p.say("kind", row.Kind)
				p.say("running", row.Running)
				p.say("rate", row.Rate)
				p.say("burst", row.Burst)
			}
			return p.did(c.Context(), err, "limit.set", ofKind(args[0], f.kind), 1, "")
		}, args[0])
	}
	c.Flags().SortFlags = false
	c.Flags().StringVar(&f.kind, "kind", "", "limit the jobs of this kind only")
	c.Flags().StringVar(&f.running, "running", "", "how many may run at a time")
	c.Flags().StringVar(&f.rate, "rate", "", "how many may begin in a time: 100/s, 5/1m30s, 1/h")
	c.Flags().IntVar(&f.burst, "burst", 1, "how many may begin at once after a pause")
	return c
}

// change returns a function that makes the change given by the flags.
func (f *limitFlags) change(c *cobra.Command) (func(*admin.Limit), error) {
	given := func(flag string) bool { return c.Flags().Changed(flag) }
	if !given("running") && !given("rate") && !given("burst") {
		return nil, usagef("there is nothing to change; give --running, --rate or --burst")
	}
	var to admin.Limit
	var err error
	if f.running != "" {
		if to.Running, err = strconv.Atoi(f.running); err != nil || to.Running < 1 {
			return nil, usagef("--running: %q is not a number of jobs, 1 or more; to have none begin, use dbcron queue pause", f.running)
		}
	}
	if f.rate != "" {
		if to.Rate, to.Per, err = plain.ParseRate(f.rate); err != nil {
			return nil, usagef("--rate: %v", err)
		}
	}
	return func(l *admin.Limit) {
		if given("running") {
			l.Running = to.Running
		}
		if given("rate") {
			l.Rate = to.Rate
			if to.Rate > 0 {
				l.Per = to.Per
			}
		}
		if given("burst") {
			l.Burst = f.burst
		}
	}, nil
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
	rows, err := limits(ctx, c)
	for _, r := range rows {
		if r.Queue != name {
			continue
		}
		line := ""
		if r.Kind != "" {
			line = oneLine(r.Kind, 200) + ": "
		}
		if r.Running != "" {
			line += r.Running + " at a time"
		}
		if r.Rate != "" {
			if r.Running != "" {
				line += ", "
			}
			line += fmt.Sprintf("%s, burst %d", r.Rate, r.Burst)
		}
		lines = append(lines, line)
	}
	return lines, err
}
