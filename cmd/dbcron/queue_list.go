package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/httpapi/push"
	"github.com/dbcron/dbcron/internal/ops/health"
	"github.com/dbcron/dbcron/internal/ops/wireof"
	"github.com/dbcron/dbcron/internal/plain"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/scheduler"
	"github.com/dbcron/dbcron/wire"
)

// A queueRow is what a table shows of a queue.
type queueRow struct {
	Name     string  `table:"name"`
	State    string  `table:"state"`
	Ready    tally   `table:"ready"`
	Delayed  tally   `table:"delayed"`
	Running  tally   `table:"running"`
	Dead     tally   `table:"dead"`
	Oldest   waitAge `table:"oldest"`
	In       rate    `table:"in/min"`
	Out      rate    `table:"out/min"`
	Empty    emptied `table:"empty in"`
	Workers  int     `table:"workers"`
	Blocks   int     `table:"blocks"`
	Endpoint string  `table:"endpoint,rare"`
	Reason   string  `table:"reason,rare"`
}

// A queueState is a queue, its jobs and its workers.
type queueState struct {
	q        admin.Queue
	counts   admin.Counts // delayed jobs that are due are ready
	oldest   waitAge
	in, out  rate
	empty    emptied
	workers  int
	endpoint string
}

func (s *queueState) row() queueRow {
	return queueRow{
		s.q.Name, s.q.State, tally(s.counts.Ready), tally(s.counts.Delayed), tally(s.counts.Running), tally(s.counts.Dead),
		s.oldest, s.in, s.out, s.empty, s.workers, s.q.Blocks, s.endpoint, s.q.Reason,
	}
}

func (s *queueState) status() wire.QueueStatus {
	return wire.QueueStatus{
		Queue: wireof.Queue(&s.q), QueueCounts: wireof.QueueCounts(&s.counts), Oldest: s.oldest.seconds(), In: s.in.number(),
		Out: roundedTo(100, float64(s.out)), Empty: s.empty.seconds(), Workers: s.workers, Endpoint: s.endpoint,
	}
}

// roundedTo rounds a number to a fraction.
func roundedTo(parts, n float64) float64 { return math.Round(n*parts) / parts }

// A waitAge is a duration; a negative one is unknown.
type waitAge time.Duration

func (s waitAge) String() string {
	if s < 0 {
		return "-"
	}
	return plain.Span(time.Duration(s))
}

// seconds returns a number, or nil.
func (s waitAge) seconds() *float64 {
	if s < 0 {
		return nil
	}
	return new(roundedTo(1000, time.Duration(s).Seconds()))
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

// number returns a number, or nil.
func (r rate) number() *float64 {
	if r < 0 {
		return nil
	}
	return new(roundedTo(100, float64(r)))
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

// seconds returns a number, or nil: never, or unknown.
func (e emptied) seconds() *float64 {
	if e.Never {
		return nil
	}
	return waitAge(e.In).seconds()
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
  dbcron queue list -o jsonl | jq -r 'select(.dead > 0 or .oldest_ready_seconds > 60) | .name'
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
	states := make([]queueState, len(all))
	for i := range all {
		if states[i], _, err = look.state(ctx, all[i]); err != nil {
			return err
		}
	}
	if more {
		fmt.Fprintf(p.err, "dbcron: there are more queues: --after %s\n", oneLine(all[limit-1].Name, 200))
	}
	return writeEach(p.out, output, states, (*queueState).status, (*queueState).row)
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
	all, err := endpoints(ctx, push.NewEndpoints(db))
	if err != nil { // endpoints contain secrets; a user who may not read them sees the rest
		fmt.Fprintf(p.err, "dbcron: which queues have endpoints is not known: %v\n", err)
	}
	for i := range all {
		l.endpoints[all[i].Queue] = "each job's own"
		if all[i].URL != "" {
			l.endpoints[all[i].Queue] = plain.URL(all[i].URL)
		}
	}
	return l, nil
}

// state counts a queue's jobs, and reads who leases its blocks.
func (l *queueLook) state(ctx context.Context, q admin.Queue) (queueState, []admin.Block, error) {
	depths, err := health.Depths(ctx, l.c, []admin.Queue{q}, health.CountTo, l.now)
	if err != nil {
		return queueState{}, nil, err
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
	flow := l.flows[q.Name]
	s := queueState{
		q: q, oldest: -1, in: -1, out: rate(flow.Out), empty: emptied{d.Empty(flow, l.now), d.Waiting() > 0},
		counts: admin.Counts{
			Ready: d.Waiting(), Delayed: d.Delayed - d.Due, Running: d.Running, Dead: d.Dead, Done: done, Limit: countLimit,
		},
		workers: len(holders(blocks)), endpoint: l.endpoints[q.Name],
	}
	if d.Waiting() > 0 {
		s.oldest = waitAge(d.Age)
	}
	if n, ok := d.In(flow, l.now); ok {
		s.in = rate(n)
	}
	return s, blocks, err
}
