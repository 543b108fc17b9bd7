package main

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dbcron/dbcron/queue/admin"
)

// A statRow counts the jobs that share the given values.
type statRow struct {
	Queue  string      `json:"queue,omitempty" table:",rare"`
	State  admin.State `json:"state,omitempty" table:",rare"`
	Kind   string      `json:"kind,omitempty" table:",rare"`
	Count  int         `json:"count" table:"-"`
	Shown  string      `json:"-" table:"count"`
	More   bool        `json:"more" table:"-"`
	Oldest *time.Time  `json:"oldest"`
}

func (p *program) jobStats() *cobra.Command {
	var name, by, last, output string
	c := &cobra.Command{
		Use:   "stats",
		Short: "Count jobs by kind, state and queue",
		Long: `Count jobs by kind, state and queue, and tell when the oldest of them was enqueued. OLDEST
does not tell how long a job has been dead, or due.

Of each queue and state only some 10000 jobs are looked at, those that were enqueued
first, however many there are; of ready ones so many of each priority. If there are
others, each count of that state is followed by a +: it is at least that, its share
in those looked at, and kinds may be missing. Numbers without a + are exact.

With --last it tells instead what workers have done since so long ago, up to 7 days, by
queue and kind: how many jobs are done, how many attempts have failed, how many jobs
were given up, and on average how long they had waited and how long they took.`,
		Example: `  dbcron job stats
  dbcron job stats --queue mail --by kind
  dbcron job stats --by queue,state -o json
  dbcron job stats --last 1h`,
		RunE: func(c *cobra.Command, _ []string) error {
			if c.Flag("last").Changed {
				return p.finished(c, name, last, output)
			}
			columns := strings.Split(by, ",")
			for i, column := range columns {
				if !slices.Contains([]string{"kind", "state", "queue"}, column) || slices.Contains(columns[:i], column) {
					return usagef("--by: %q is not one or more of kind, state and queue, with commas between", by)
				}
			}
			var names []string
			if c.Flag("queue").Changed {
				names = []string{name}
			}
			return p.withAdmin(c.Context(), func(q *admin.Client) error { return p.printStats(c.Context(), q, names, columns, output) }, names...)
		},
	}
	c.Flags().StringVar(&name, "queue", "", "only the jobs of the queue of this `name` (default all queues)")
	c.Flags().StringVar(&by, "by", "kind,state", "what to count by: one or more of kind, state and `queue`, with commas between")
	c.Flags().StringVar(&last, "last", "", "what has been done for so long: a `duration`, such as 15m")
	outputFlag(c, &output)
	return c
}

// A finishedRow counts what workers have done.
type finishedRow struct {
	Queue  string  `json:"queue"`
	Kind   string  `json:"kind"`
	Done   int     `json:"done"`
	Failed int     `json:"failed"`
	Dead   int     `json:"dead"`
	Wait   string  `json:"-" table:"waited"`
	Took   string  `json:"-" table:"took"`
	WaitS  float64 `json:"waited_seconds" table:"-"`
	TookS  float64 `json:"took_seconds" table:"-"`
}

func (p *program) finished(c *cobra.Command, name, last, output string) error {
	span, err := notNegative(last)
	if err != nil {
		return usagef("--last: %v", err)
	}
	if c.Flag("by").Changed {
		return usagef("--by is about the jobs that are there, and --last about those that were")
	}
	return p.withAdmin(c.Context(), func(q *admin.Client) error {
		all, err := q.Finished(c.Context(), span)
		if err != nil {
			return err
		}
		rows := []finishedRow{}
		for _, f := range all {
			if name == "" || f.Queue == name {
				rows = append(rows, finishedRow{
					f.Queue, f.Kind, f.Done, f.Failed, f.Dead,
					f.Wait.Round(10 * time.Microsecond).String(), f.Took.Round(10 * time.Microsecond).String(), f.Wait.Seconds(), f.Took.Seconds(),
				})
			}
		}
		return write(p.out, output, rows)
	})
}

// printStats counts the jobs of some queues, or of all.
func (p *program) printStats(ctx context.Context, c *admin.Client, names, by []string, output string) error {
	if names == nil {
		all, err := queuesAfter(ctx, c, "", math.MaxInt)
		if err != nil {
			return err
		}
		for i := range all {
			if all[i].Blocks > 0 { // otherwise it was inserted by hand and has had no job yet
				names = append(names, all[i].Name)
			}
		}
	}
	rows := map[statRow]*statRow{}
	for _, name := range names {
		stats, err := c.Stats(ctx, name, countLimit)
		if err != nil {
			return err
		}
		for _, s := range stats {
			key := statRow{}
			for _, column := range by {
				switch column {
				case "queue":
					key.Queue = s.Queue
				case "state":
					key.State = s.State
				case "kind":
					key.Kind = s.Kind
				}
			}
			row := rows[key]
			if row == nil {
				row = &statRow{Queue: key.Queue, State: key.State, Kind: key.Kind, Oldest: &s.Oldest}
				rows[key] = row
			}
			row.Count, row.More = row.Count+s.Count, row.More || s.More
			if s.Oldest.Before(*row.Oldest) {
				row.Oldest = &s.Oldest
			}
		}
	}
	all := make([]statRow, 0, len(rows))
	for _, row := range rows {
		row.Shown = strconv.Itoa(row.Count)
		if row.More {
			row.Shown += "+"
		}
		all = append(all, *row)
	}
	slices.SortFunc(all, func(a, b statRow) int {
		return cmp.Or(cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.Kind, b.Kind),
			cmp.Compare(slices.Index(allStates, a.State), slices.Index(allStates, b.State)))
	})
	return write(p.out, output, all)
}
