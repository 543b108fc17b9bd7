package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/dbcron/dbcron/internal/duration"
	"github.com/dbcron/dbcron/internal/health"
	"github.com/dbcron/dbcron/internal/jobfield"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/queue/admin"
)

// A jobRow is a job. It uses the names that dbcron job enqueue --jsonl reads, where there are such.
type jobRow struct {
	ID          string          `json:"id"` // a string: JSON readers round large numbers
	Queue       string          `json:"queue" table:"-"`
	State       admin.State     `json:"state" table:"-"`
	Kind        string          `json:"kind"`
	Key         string          `json:"key" table:",rare"`
	Priority    priority        `json:"priority" table:",rare"`
	Enqueued    *time.Time      `json:"enqueued"`
	At          *time.Time      `json:"at" table:"-"`
	When        string          `json:"-" table:"at,rare"`
	Attempts    int             `json:"attempts" table:"-"`
	Tried       string          `json:"-" table:"attempts,rare"`
	Crashes     int             `json:"crashes" table:"-"`
	MaxAttempts int             `json:"max_attempts,omitempty" table:"-"`
	Timeout     string          `json:"timeout,omitempty" table:"-"`
	Trace       string          `json:"trace,omitempty" table:"-"`
	Endpoint    string          `json:"endpoint,omitempty" table:"-"`
	Unique      string          `json:"unique,omitempty" table:"-"`
	Group       string          `json:"group,omitempty" table:"-"`
	Callback    string          `json:"callback_of,omitempty" table:"-"` // the group whose callback it is
	Progress    *progressRow    `json:"progress,omitempty" table:"-"`
	HowFar      string          `json:"-" table:"progress,rare"`
	Started     *time.Time      `json:"started,omitempty" table:"-"`
	Discarded   bool            `json:"discarded,omitempty" table:"-"`
	Worker      string          `json:"worker,omitempty" table:",rare"`
	Block       int             `json:"block" table:"-"`
	Error       string          `json:"error" table:",rare"`
	Detail      string          `json:"detail,omitempty" table:"-"`
	Refused     *refusedRow     `json:"refused,omitempty" table:"-"`
	Payload     json.RawMessage `json:"payload,omitempty" table:"-"`
	Binary      []byte          `json:"payload_base64,omitempty" table:"-"`
	What        string          `json:"-" table:"payload,rare"`
}

// A progressRow is the progress stored by a job's handler.
type progressRow struct {
	Percent int             `json:"percent,omitempty"`
	Message string          `json:"message,omitempty"`
	State   json.RawMessage `json:"state,omitempty"`
	Binary  []byte          `json:"state_base64,omitempty"`
}

func newProgressRow(p *admin.Progress) *progressRow {
	if p.Percent == 0 && p.Message == "" && len(p.State) == 0 {
		return nil
	}
	row := &progressRow{Percent: p.Percent, Message: p.Message}
	if json.Valid(p.State) {
		row.State = p.State
	} else {
		row.Binary = p.State
	}
	return row
}

// howFar describes a job's progress for people.
func howFar(p *admin.Progress) string {
	if p.Percent == 0 {
		return p.Message
	}
	return strings.TrimSuffix(fmt.Sprintf("%d%%, %s", p.Percent, p.Message), ", ")
}

// A refusedRow says that the database refuses to store a job's outcome.
type refusedRow struct {
	Job    string     `json:"job,omitempty"` // set in lists
	What   string     `json:"what"`
	Error  string     `json:"error"`
	Tries  int        `json:"tries"`
	Since  *time.Time `json:"since"`
	Worker string     `json:"worker"`
}

func newRefusedRow(r *admin.Refusal) *refusedRow {
	if r == nil {
		return nil
	}
	return &refusedRow{What: r.What, Error: r.Error, Tries: r.Tries, Since: optional(r.Since), Worker: r.Worker}
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
		ID: fmt.Sprint(i.ID), Queue: i.Queue, State: i.State, Kind: i.Kind, Key: i.Key, Priority: priority(i.Priority),
		Enqueued: optional(i.Enqueued), At: optional(i.At), Attempts: i.Attempts, Crashes: i.Crashes,
		MaxAttempts: i.MaxAttempts, Timeout: duration.Format(i.Timeout), Trace: i.Trace, Endpoint: i.Endpoint,
		Unique: i.Unique, Group: orNone(i.Group), Callback: orNone(i.Callback),
		Progress: newProgressRow(&i.Progress), HowFar: howFar(&i.Progress), Started: optional(i.Started),
		Discarded: i.Discarded, Worker: i.Worker, Block: i.Block, Error: i.Error, Detail: i.Detail,
		Refused: newRefusedRow(i.Refused), What: payloadText(i),
	}
	if i.State != admin.StateReady {
		row.When, row.Tried = shown(i.At, time.UTC), strconv.Itoa(i.Attempts)
	}
	if i.Binary || !json.Valid(i.Payload) {
		row.Binary = i.Payload
	} else {
		row.Payload = i.Payload
	}
	return row
}

// orNone formats an id; 0 becomes "".
func orNone(id int64) string {
	if id == 0 {
		return ""
	}
	return strconv.FormatInt(id, 10)
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
		return encode(p.out, newJobRow(i))
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
		{"priority", priority(i.Priority).String()},
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
		fact{"timeout", duration.Format(i.Timeout)}, fact{"trace", i.Trace}, fact{"endpoint", i.Endpoint},
		fact{"unique key", i.Unique}, fact{"group", orNone(i.Group)}, fact{"callback of", orNone(i.Callback)}, fact{"worker", i.Worker},
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
	rows := make([]jobRow, len(jobs))
	for i := range jobs {
		rows[i] = newJobRow(&jobs[i])
	}
	return write(p.out, output, rows)
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

// A priority is a number in JSON. Tables show a word, unless it is the default.
type priority int

func (p priority) String() string {
	if p == queue.Normal {
		return ""
	}
	return jobfield.PriorityName(int(p))
}
