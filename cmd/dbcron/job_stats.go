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

	"github.com/dbcron/dbcron/internal/ops/wireof"
	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/wire"
)

// A statRow is what a table shows of jobs that share some values.
type statRow struct {
	Queue  string    `table:"queue,rare"`
	State  string    `table:"state,rare"`
	Kind   string    `table:"kind,rare"`
	Count  string    `table:"count"`
	Oldest time.Time `table:"oldest"`
}

func newStatRow(c *wire.JobCount) statRow {
	row := statRow{c.Queue, c.State, c.Kind, strconv.Itoa(c.Count), c.Oldest.Time}
	if c.More {
		row.Count += "+"
	}
	return row
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

// A finishedRow is what a table shows of what workers have done.
type finishedRow struct {
	Queue string        `table:"queue"`
	Kind  string        `table:"kind"`
	Done  int           `table:"done"`
	Tried int           `table:"failed"`
	Dead  int           `table:"dead"`
	Wait  time.Duration `table:"waited"`
	Took  time.Duration `table:"took"`
}

func newFinishedRow(f *admin.Finished) finishedRow {
	const part = 10 * time.Microsecond
	return finishedRow{f.Queue, f.Kind, f.Done, f.Failed, f.Dead, f.Wait.Round(part), f.Took.Round(part)}
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
		all = slices.DeleteFunc(all, func(f admin.Finished) bool { return name != "" && f.Queue != name })
		return writeEach(p.out, output, all, wireof.Finished, newFinishedRow)
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
	type key struct{ queue, state, kind string }
	counts := map[key]*wire.JobCount{}
	for _, name := range names {
		stats, err := c.Stats(ctx, name, countLimit)
		if err != nil {
			return err
		}
		for i := range stats {
			one := wireof.JobCount(&stats[i])
			for column, value := range map[string]*string{"queue": &one.Queue, "state": &one.State, "kind": &one.Kind} {
				if !slices.Contains(by, column) {
					*value = ""
				}
			}
			sum := counts[key{one.Queue, one.State, one.Kind}]
			if sum == nil {
				counts[key{one.Queue, one.State, one.Kind}] = &one
				continue
			}
			sum.Count, sum.More = sum.Count+one.Count, sum.More || one.More
			if one.Oldest.Before(sum.Oldest.Time) {
				sum.Oldest = one.Oldest
			}
		}
	}
	all := make([]wire.JobCount, 0, len(counts))
	for _, sum := range counts {
		all = append(all, *sum)
	}
	slices.SortFunc(all, func(a, b wire.JobCount) int {
		return cmp.Or(cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.Kind, b.Kind),
			cmp.Compare(slices.Index(allStates, admin.State(a.State)), slices.Index(allStates, admin.State(b.State))))
	})
	return writeEach(p.out, output, all, func(c *wire.JobCount) wire.JobCount { return *c }, newStatRow)
}
