package main

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

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
			return p.withAPI(c.Context(), func() error {
				if c.Flag("queue").Changed {
					return p.printStats(c.Context(), []wire.Queue{{Name: name, Blocks: 1}}, columns, output)
				}
				queues, _, err := p.list(c.Context(), "list-queues", values{}, 0, false)
				if err != nil {
					return err
				}
				return p.printStats(c.Context(), queues.([]wire.Queue), columns, output) //nolint:forcetypeassert // what it lists
			})
		},
	}
	c.Flags().StringVar(&name, "queue", "", "only the jobs of the queue of this `name` (default all queues)")
	c.Flags().StringVar(&by, "by", "kind,state", "what to count by: one or more of kind, state and `queue`, with commas between")
	c.Flags().StringVar(&last, "last", "", "what workers have done in this `duration`, such as 15m")
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

func newFinishedRow(f *wire.Finished) finishedRow {
	rounded := func(seconds float64) time.Duration {
		return time.Duration(seconds * float64(time.Second)).Round(10 * time.Microsecond)
	}
	return finishedRow{f.Queue, f.Kind, f.Done, f.Tried, f.Dead, rounded(f.Wait), rounded(f.Took)}
}

func (p *program) finished(c *cobra.Command, name, last, output string) error {
	if _, err := notNegative(last); err != nil {
		return usagef("--last: %v", err)
	}
	if c.Flag("by").Changed {
		return usagef("--by is about the jobs that are there, and --last about those that were")
	}
	return p.withAPI(c.Context(), func() error {
		answer, err := p.do(c.Context(), "finished", values{"last": last})
		if err != nil {
			return err
		}
		all := entriesOf(answer).([]wire.Finished) //nolint:forcetypeassert // what the operation answers with
		return writeRows(p.out, output, slices.DeleteFunc(all, func(f wire.Finished) bool { return name != "" && f.Queue != name }))
	})
}

// printStats counts the jobs of queues.
func (p *program) printStats(ctx context.Context, queues []wire.Queue, by []string, output string) error {
	type key struct{ queue, state, kind string }
	counts := map[key]*wire.JobCount{}
	for i := range queues {
		if queues[i].Blocks == 0 { // it was inserted by hand and has had no job yet
			continue
		}
		stats, err := ask[wire.QueueStats](ctx, p, "queue-stats", "queue", queues[i].Name)
		if err != nil {
			return err
		}
		for _, one := range stats.Kinds {
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
	states := operations()["list-jobs"].Parameter("state").Words
	all := make([]wire.JobCount, 0, len(counts))
	for _, sum := range counts {
		all = append(all, *sum)
	}
	slices.SortFunc(all, func(a, b wire.JobCount) int {
		return cmp.Or(cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.Kind, b.Kind),
			cmp.Compare(slices.Index(states, a.State), slices.Index(states, b.State)))
	})
	return writeRows(p.out, output, all)
}
