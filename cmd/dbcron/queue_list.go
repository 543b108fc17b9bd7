package main

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/dbcron/dbcron/internal/ops/health"
	"github.com/dbcron/dbcron/internal/plain"
	"github.com/dbcron/dbcron/wire"
)

// A queueRow is what a table shows of a queue.
type queueRow struct {
	Name     string `table:"name"`
	State    string `table:"state"`
	Ready    tally  `table:"ready"`
	Delayed  tally  `table:"delayed"`
	Running  tally  `table:"running"`
	Dead     tally  `table:"dead"`
	Oldest   string `table:"oldest"`
	In       string `table:"in/min"`
	Out      string `table:"out/min"`
	Empty    string `table:"empty in"`
	Workers  int    `table:"workers"`
	Blocks   int    `table:"blocks"`
	Endpoint string `table:"endpoint,rare"`
	Lost     string `table:"lost,rare"`
	Reason   string `table:"reason,rare"`
}

func newQueueRow(q *wire.QueueStatus) queueRow {
	lost := ""
	if q.Lost != nil {
		lost = q.Lost.Text
	}
	return queueRow{
		q.Name, q.State, tally(q.Ready), tally(q.Delayed), tally(q.Running), tally(q.Dead),
		ageText(q.Oldest), rateText(q.In), rateText(&q.Out), cmp.Or(q.EmptyIn, "-"), q.Workers, q.Blocks, q.Endpoint, lost, q.Reason,
	}
}

// ageText is a number of seconds for people.
func ageText(seconds *float64) string {
	if seconds == nil {
		return "-"
	}
	return plain.Span(time.Duration(*seconds * float64(time.Second)))
}

// rateText is a number of jobs per minute for people.
func rateText(n *float64) string {
	switch {
	case n == nil:
		return "-"
	case *n == 0 || *n >= 9.95:
		return strconv.FormatFloat(*n, 'f', 0, 64)
	}
	return strconv.FormatFloat(max(0.1, *n), 'f', 1, 64)
}

func (p *program) queueList() *cobra.Command {
	return p.twin(twin{
		id: "list-queue-status", use: "list", count: health.MostQueues,
		long: `List the queues, and how many jobs are in each. No more than 10000 of a state are
counted: 10000+ is that many or more. The states of a job:

    ready      it waits for a worker, or has been running for less than a second;
               also a delayed one that is due, such as a dead letter that is retried
    delayed    it waits for its time, or for its next attempt
    running    it has been running for longer
    dead       it failed too often, and is kept for somebody to look at

OLDEST is for how long the oldest ready job has waited. OUT/MIN is how many jobs a minute
ended, done or dead, in the last ten whole minutes, as workers have counted; IN/MIN is how
many came in then: an estimate from the jobs that are there and those that ended, and -
where there are too many to be counted. EMPTY IN is how long it takes until none waits if
it goes on so: never if as many come in as end, "over" what the first 10000 take. WORKERS are the processes that do its jobs now.
LOST is the worker that was lost last, of a queue that nobody serves since.
BLOCKS is how many could share it: dbcron queue resize. ENDPOINT is where its jobs are
sent, without the URL's query: dbcron endpoint.`,
		example: `  dbcron queue list
  dbcron queue list -o jsonl | jq -r 'select(.dead > 0 or .oldest_ready_seconds > 60) | .name'
  dbcron queue list -n 100 --after mail`,
		rows: func(_ context.Context, rows any, more, output string) error {
			if all := rows.([]wire.QueueStatus); more != "" { //nolint:forcetypeassert // what the operation lists
				fmt.Fprintf(p.err, "dbcron: there are more queues: --after %s\n", oneLine(all[len(all)-1].Name, 200))
			}
			return writeRows(p.out, output, rows)
		},
	})
}
