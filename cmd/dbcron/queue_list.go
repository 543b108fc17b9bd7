package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/httpapi/push"
	"github.com/dbcron/dbcron/internal/health"
	"github.com/dbcron/dbcron/internal/plain"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/scheduler"
)

type queueRow struct {
	Name     string  `json:"name"`
	State    string  `json:"state"`
	Ready    tally   `json:"ready"`
	Delayed  tally   `json:"delayed"`
	Running  tally   `json:"running"`
	Dead     tally   `json:"dead"`
	Done     tally   `json:"done" table:"-"`
	Counted  int     `json:"counted_to" table:"-"`
	Oldest   waitAge `json:"oldest_seconds" table:"oldest"`
	In       rate    `json:"in_per_minute" table:"in/min"`
	Out      rate    `json:"out_per_minute" table:"out/min"`
	Empty    emptied `json:"empty_seconds" table:"empty in"`
	Workers  int     `json:"workers"`
	Blocks   int     `json:"blocks"`
	Endpoint string  `json:"endpoint" table:",rare"`
	Reason   string  `json:"reason" table:",rare"`

	queueSettingsRow `table:"-"`
}

// A waitAge is a duration; a negative one is unknown.
type waitAge time.Duration

func (s waitAge) String() string {
	if s < 0 {
		return "-"
	}
	return plain.Span(time.Duration(s))
}

// MarshalJSON returns a number, or null.
func (s waitAge) MarshalJSON() ([]byte, error) {
	if s < 0 {
		return []byte("null"), nil
	}
	return json.Marshal(math.Round(time.Duration(s).Seconds()*1000) / 1000)
}

// A rate is a number of jobs per minute; a negative one is unknown.
type rate float64

func (r rate) String() string {
	switch {
	case r < 0:
		return "-"
	case r == 0 || r >= 9.95:
		return strconv.FormatFloat(float64(r), 'f', 0, 64)
	}
	return strconv.FormatFloat(max(0.1, float64(r)), 'f', 1, 64)
}

// MarshalJSON returns a number, or null.
func (r rate) MarshalJSON() ([]byte, error) {
	if r < 0 {
		return []byte("null"), nil
	}
	return json.Marshal(math.Round(float64(r)*100) / 100)
}

// An emptied is the time until a queue is drained.
type emptied struct {
	health.Emptying
	waits bool // jobs are waiting
}

func (e emptied) String() string {
	if !e.waits || !e.Never && e.In < 0 {
		return "-"
	}
	return e.Emptying.String()
}

// MarshalJSON returns a number, or null: never, or unknown.
func (e emptied) MarshalJSON() ([]byte, error) {
	if e.Never {
		return []byte("null"), nil
	}
	return waitAge(e.In).MarshalJSON()
}

func (p *program) queueList() *cobra.Command {
	var output, after string
	limit := health.MostQueues
	c := &cobra.Command{
		Use:   "list",
		Short: "List the queues, how many jobs are in them, and how fast they come and go",
		Long: `List the queues, and how many jobs are in each. No more than 10000 of a state are
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
BLOCKS is how many could share it: dbcron queue resize. ENDPOINT is where its jobs are
sent, without the URL's query: dbcron endpoint.`,
		Example: `  dbcron queue list
  dbcron queue list -o jsonl | jq -r 'select(.dead > 0 or .oldest_seconds > 60) | .name'
  dbcron queue list -n 100 --after mail`,
		RunE: func(c *cobra.Command, _ []string) error {
			if limit < 1 {
				return usagef("-n %d: use 1 or more", limit)
			}
			return p.withAdminOf(c.Context(), func(db *dialect.DB, q *admin.Client) error {
				return p.listQueues(c.Context(), db, q, after, limit, output)
			})
		},
	}
	c.Flags().IntVarP(&limit, "count", "n", limit, "how many queues at the most: the jobs of each are counted")
	c.Flags().StringVar(&after, "after", "", "only queues whose names come after this one")
	outputFlag(c, &output)
	return c
}

func (p *program) listQueues(ctx context.Context, db *dialect.DB, c *admin.Client, after string, limit int, output string) error {
	all, err := queuesAfter(ctx, c, after, limit+1)
	if err != nil {
		return err
	}
	more := len(all) > limit
	all = all[:min(len(all), limit)]
	look, err := p.newQueueLook(ctx, db, c)
	if err != nil {
		return err
	}
	rows := make([]queueRow, len(all))
	for i := range all {
		if rows[i], _, err = look.row(ctx, all[i]); err != nil {
			return err
		}
	}
	if more {
		fmt.Fprintf(p.err, "dbcron: there are more queues: --after %s\n", oneLine(all[limit-1].Name, 200))
	}
	return write(p.out, output, rows)
}

// queuesAfter reads page by page, since programs may invent any number of names.
func queuesAfter(ctx context.Context, c *admin.Client, after string, limit int) (all []admin.Queue, err error) {
	const page = 1000
	for {
		n := min(page, limit-len(all))
		found, err := c.Queues(ctx, after, n)
		all = append(all, found...)
		if err != nil || len(found) < n || len(all) == limit {
			return all, err
		}
		after = found[n-1].Name
	}
}

// A queueLook makes rows of queues. It reads what all of them share once.
type queueLook struct {
	c         *admin.Client
	now       time.Time
	flows     map[string]health.Flow
	endpoints map[string]string
}

func (p *program) newQueueLook(ctx context.Context, db *dialect.DB, c *admin.Client) (*queueLook, error) {
	l := &queueLook{c: c, endpoints: map[string]string{}}
	now, err := scheduler.Clock(ctx, db)
	if err != nil {
		return nil, err
	}
	minutes, err := c.FinishedByMinute(ctx, health.FlowTime)
	if err != nil {
		return nil, err
	}
	l.now, l.flows = now, health.Flows(minutes, now)
	rows, err := endpointRows(ctx, push.NewEndpoints(db))
	if err != nil { // endpoints contain secrets; a user who may not read them sees the rest
		fmt.Fprintf(p.err, "dbcron: which queues have endpoints is not known: %v\n", err)
	}
	for i := range rows {
		l.endpoints[rows[i].Queue] = "each job's own"
		if rows[i].URL != "" {
			l.endpoints[rows[i].Queue] = plain.URL(rows[i].URL)
		}
	}
	return l, nil
}

// row counts a queue's jobs, and reads who leases its blocks.
func (l *queueLook) row(ctx context.Context, q admin.Queue) (queueRow, []admin.Block, error) {
	depths, err := health.Depths(ctx, l.c, []admin.Queue{q}, health.CountTo, l.now)
	if err != nil {
		return queueRow{}, nil, err
	}
	d := &depths[0]
	done, err := l.c.CountDone(ctx, q.Name, countLimit)
	var blocks []admin.Block
	if err == nil {
		blocks, err = l.c.Blocks(ctx, q.Name)
	}
	if errors.Is(err, queue.ErrNotFound) { // it was inserted by hand and has had no job yet
		err = nil
	}
	flow, oldest, in := l.flows[q.Name], waitAge(-1), rate(-1)
	if d.Waiting() > 0 {
		oldest = waitAge(d.Age)
	}
	if n, ok := d.In(flow, l.now); ok {
		in = rate(n)
	}
	return queueRow{
		q.Name, q.State, tally(d.Waiting()), tally(d.Delayed - d.Due), tally(d.Running), tally(d.Dead), tally(done), countLimit,
		oldest, in, rate(flow.Out),
		emptied{d.Empty(flow, l.now), d.Waiting() > 0},
		len(holders(blocks)), q.Blocks, l.endpoints[q.Name], q.Reason, newQueueSettingsRow(&q),
	}, blocks, err
}
