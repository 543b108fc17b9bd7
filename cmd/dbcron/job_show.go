package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/dbcron/dbcron/internal/ops/health"
	"github.com/dbcron/dbcron/internal/ops/wireof"
	"github.com/dbcron/dbcron/internal/plain"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/wire"
)

// A jobRow is what a table shows of a job.
type jobRow struct {
	ID       string    `table:"id"`
	Kind     string    `table:"kind"`
	Key      string    `table:"key,rare"`
	Priority string    `table:"priority,rare"`
	Enqueued time.Time `table:"enqueued"`
	When     string    `table:"at,rare"`
	Tried    string    `table:"attempts,rare"`
	HowFar   string    `table:"progress,rare"`
	Worker   string    `table:"worker,rare"`
	Error    string    `table:"error,rare"`
	What     string    `table:"payload,rare"`
}

// howFar describes a job's progress for people.
func howFar(p *admin.Progress) string {
	if p.Percent == 0 {
		return p.Message
	}
	return strings.TrimSuffix(fmt.Sprintf("%d%%, %s", p.Percent, p.Message), ", ")
}

// refusedText describes a refusal for people.
func refusedText(r *admin.Refusal) string {
	if r == nil {
		return ""
	}
	return health.RefusalText(r)
}

func newJobRow(i *admin.Job) jobRow {
	row := jobRow{
		ID: wire.ID(i.ID), Kind: i.Kind, Key: i.Key, Priority: priorityText(i.Priority), Enqueued: i.Enqueued,
		HowFar: howFar(&i.Progress), Worker: i.Worker, Error: i.Error, What: payloadText(i),
	}
	if i.State != admin.StateReady {
		row.When, row.Tried = shown(i.At, time.UTC), strconv.Itoa(i.Attempts)
	}
	return row
}

// payloadText is a payload for people to read.
func payloadText(i *admin.Job) string { return readable(i.Payload, i.Binary) }

func readable(b []byte, binary bool) string {
	if binary {
		return counted(len(b), "byte", "bytes") + ", binary"
	}
	return string(b)
}

func (p *program) jobGet() *cobra.Command {
	var name, output string
	var payload bool
	c := &cobra.Command{
		Use:   "get ID",
		Short: "Show one job, whatever its state",
		Long: `Show one job, whatever its state, and the beginning of its payload. With --payload
print only the payload, all of it and byte for byte. A job that is done is not found, exit
code 3, unless its queue keeps such: dbcron queue set --keep-done.

Its id alone names it. If two jobs have the id, which is rare, the exit code is 4, and the
message names them: choose one by --queue.`,
		Example: `  dbcron job get 4711
  dbcron job get 4711 --payload | jq .`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			id, err := jobID(args[0])
			if err != nil {
				return err
			}
			return p.withAdmin(c.Context(), func(q *admin.Client) error {
				i, err := jobOf(c.Context(), q, name, id)
				if err != nil {
					return err
				}
				return p.printJob(&i, output, payload)
			}, named(name)...)
		},
	}
	c.Flags().StringVar(&name, "queue", "", "`name` of the job's queue (default: any)")
	c.Flags().BoolVar(&payload, "payload", false, "print only the payload")
	outputFlag(c, &output)
	return c
}

// jobOf returns the job with an id, in a queue or, if name is empty, in any.
func jobOf(ctx context.Context, c *admin.Client, name string, id int64) (admin.Job, error) {
	if name == "" {
		return c.Find(ctx, id)
	}
	return c.Job(ctx, name, id)
}

// named returns a queue's name, if there is one.
func named(name string) []string {
	if name == "" {
		return nil
	}
	return []string{name}
}

func (p *program) printJob(i *admin.Job, output string, payload bool) error {
	switch {
	case payload:
		return (&printer{out: p.out}).print(string(i.Payload))
	case output != "table":
		return encode(p.out, wireof.Job(i))
	}
	return writeFacts(p.out, jobFacts(i))
}

func jobFacts(i *admin.Job) []fact {
	facts := []fact{
		{"id", fmt.Sprint(i.ID)},
		{"queue", i.Queue},
		{"state", string(i.State)},
		{"kind", i.Kind},
		{"key", i.Key},
		{"priority", priorityText(i.Priority)},
		{"enqueued", shown(i.Enqueued, time.UTC)},
	}
	if i.State != admin.StateReady {
		about := map[admin.State]string{admin.StateDelayed: "due", admin.StateRunning: "since", admin.StateDead: "died", admin.StateDone: "ended"}
		if i.State == admin.StateDone {
			facts = append(facts, fact{"started", shown(i.Started, time.UTC)})
		}
		facts = append(facts, fact{about[i.State], shown(i.At, time.UTC)}, fact{"attempts", fmt.Sprint(i.Attempts)})
	}
	if i.Crashes > 0 {
		facts = append(facts, fact{"crashes", counted(i.Crashes, "worker died with it", "workers died with it")})
	}
	if i.MaxAttempts > 0 {
		facts = append(facts, fact{"max attempts", fmt.Sprint(i.MaxAttempts)})
	}
	return append(facts,
		fact{"timeout", plain.FormatDuration(i.Timeout)}, fact{"trace", i.Trace}, fact{"endpoint", i.Endpoint},
		fact{"unique key", i.Unique}, fact{"group", wire.ID(i.Group)}, fact{"callback of", wire.ID(i.Callback)}, fact{"worker", i.Worker},
		fact{"progress", howFar(&i.Progress)}, fact{"snapshot", beginning(readable(i.Progress.State, !utf8.Valid(i.Progress.State)), "-o json")},
		fact{"block", fmt.Sprint(i.Block)}, fact{map[bool]string{true: "discarded", false: "error"}[i.Discarded], i.Error},
		fact{"detail", i.Detail}, fact{"refused", refusedText(i.Refused)}, fact{"payload", beginning(payloadText(i), "--payload")})
}

// beginning cuts a long text, and adds its length and the command that prints all of it.
func beginning(text, all string) string {
	const enough = 4000
	runes := []rune(text[:min(len(text), 4*enough)]) // a character has up to four bytes
	if len(runes) <= enough && len(text) <= 4*enough {
		return text
	}
	return string(runes[:min(len(runes), enough)]) + fmt.Sprintf("…\n(%d bytes; %s prints all)", len(text), all)
}

// A jobFilter selects jobs by flags.
type jobFilter struct {
	filter    admin.Filter
	state     string
	olderThan string
	after     string
}

// filterNames lists the flags of a jobFilter except --queue, which also goes with ids.
var filterNames = []string{"state", "kind", "key", "where", "older-than", "after", "count"}

func (f *jobFilter) add(c *cobra.Command, state string, states []admin.State, count int, howMany string) {
	queueFlag(c, &f.filter.Queue)
	flags := c.Flags()
	flags.StringVar(&f.state, "state", state, "`state` that they are in: "+orList(states))
	flags.StringVar(&f.filter.Kind, "kind", "", "only those of this `kind`")
	flags.StringVar(&f.filter.Key, "key", "", "only those of this ordering `key`")
	flags.StringVar(&f.filter.Where, "where", "", "only those whose payload fulfils this `condition`")
	flags.StringVar(&f.olderThan, "older-than", "", "only those that were enqueued longer ago than this `duration`")
	flags.StringVar(&f.after, "after", "", "only those with greater ids than this `id`")
	flags.IntVarP(&f.filter.Limit, "count", "n", count, howMany)
}

// read validates what can be checked without a database.
func (f *jobFilter) read(c *cobra.Command, states []admin.State) (err error) {
	f.filter.State = admin.State(f.state)
	if !slices.Contains(states, f.filter.State) {
		return usagef("--state: %q is not known; use %s", f.state, orList(states))
	}
	for _, name := range filterNames { // an unset variable in a script must not mean all jobs
		if flag := c.Flag(name); flag.Changed && flag.Value.String() == "" {
			return usagef("--%s is empty; leave it out if it is not to select jobs", name)
		}
	}
	if f.olderThan != "" {
		if f.filter.OlderThan, err = notNegative(f.olderThan); err != nil {
			return usagef("--older-than: %v", err)
		}
	}
	if f.after != "" {
		f.filter.After, err = jobID(f.after)
	}
	return err
}

// orList joins states.
func orList(states []admin.State) string {
	names := make([]string, len(states))
	for i, s := range states {
		names[i] = string(s)
	}
	if n := len(names); n > 1 {
		return strings.Join(names[:n-1], ", ") + " or " + names[n-1]
	}
	return strings.Join(names, "")
}

var allStates = []admin.State{admin.StateReady, admin.StateDelayed, admin.StateRunning, admin.StateDead, admin.StateDone}

type jobListFlags struct {
	jobFilter
	ids    bool
	output string
}

func (p *program) jobList() *cobra.Command {
	var f jobListFlags
	c := &cobra.Command{
		Use:   "list",
		Short: "List the jobs of a queue that are in one state",
		Long: `List the jobs of a queue that are in one state, the oldest first:

    ready      they wait for a worker, or have been running for less than a second
    delayed    they wait for their time (AT), or for their next attempt
    running    they have been running for longer, since AT
    dead       they failed too often, and were given up AT
    done       they are done, since AT, and their queue keeps them for a while
               (dbcron queue set --keep-done)

--where takes a condition on the payload: a path, and what it is compared with by =
!= < <= > or >=, which is JSON; a path alone has to be there. Jobs that have no such
path are not listed.

With --kind, --key or --where not all of a long queue is looked at: then stderr says where to
go on with --after. Only the beginning of ERROR and PAYLOAD is shown: see dbcron job
get, or use -o json.`,
		Example: `  dbcron job list --queue mail --state dead
  dbcron job list --queue mail --kind welcome -n 1000 -o jsonl
  dbcron job list --queue mail --state dead --where '$.user.id = 42'
  dbcron job list --queue mail --where '$.to[1]'
  dbcron job list --queue mail --older-than 1h`,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := f.read(c, allStates); err != nil {
				return err
			}
			if f.filter.Limit < 1 || f.filter.Limit > 10_000 {
				return usagef("-n %d: use 1 to 10000", f.filter.Limit)
			}
			return p.withAdmin(c.Context(), func(q *admin.Client) error { return p.listJobs(c.Context(), q, f) }, f.filter.Queue)
		},
	}
	f.add(c, "ready", allStates, 20, "how many jobs")
	c.Flags().BoolVar(&f.ids, "ids", false, "print only the ids, for xargs")
	outputFlag(c, &f.output)
	return c
}

func (p *program) listJobs(ctx context.Context, c *admin.Client, f jobListFlags) error {
	jobs, more, err := c.Jobs(ctx, f.filter)
	if err != nil {
		return err
	}
	if f.ids {
		for i := range jobs {
			if _, err := fmt.Fprintln(p.out, jobs[i].ID); err != nil {
				return err
			}
		}
	} else if err := p.writeJobs(jobs, f.output); err != nil {
		return err
	}
	if more > 0 {
		fmt.Fprintf(p.err, "dbcron: there may be more: --after %d\n", more)
	}
	return nil
}

func (p *program) writeJobs(jobs []admin.Job, output string) error {
	return writeEach(p.out, output, jobs, wireof.Job, newJobRow)
}

func (p *program) queuePeek() *cobra.Command {
	var n int
	var output string
	c := &cobra.Command{
		Use:   "peek NAME",
		Short: "Show the jobs that have been ready for longest",
		Long: `Show the jobs of a queue that have been ready for longest, without taking them. They
are about to be done, unless more urgent ones come first. For delayed, running and
dead ones see dbcron job list.`,
		Example: `  dbcron queue peek mail -n 3`,
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if n < 1 || n > 10_000 {
				return usagef("-n %d: use 1 to 10000", n)
			}
			return p.withAdmin(c.Context(), func(q *admin.Client) error {
				jobs, _, err := q.Jobs(c.Context(), admin.Filter{Queue: args[0], Limit: n})
				if err != nil {
					return err
				}
				return p.writeJobs(jobs, output)
			}, args[0])
		},
	}
	c.Flags().IntVarP(&n, "count", "n", 10, "how many jobs")
	outputFlag(c, &output)
	return c
}

// priorityText is a priority for people, unless it is the default.
func priorityText(priority int) string {
	if priority == queue.Normal {
		return ""
	}
	return wire.PriorityName(priority)
}
