package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/dbcron/dbcron/internal/plain"
	"github.com/dbcron/dbcron/queue"
)

func (p *program) group() *cobra.Command {
	c := &cobra.Command{
		Use:   "group",
		Short: "See and create groups of jobs, which end with a callback",
		Long: `See and make groups of jobs. A group ends when it is sealed and all of its jobs have
ended; then its callback, a job, is enqueued, once. docs/queue-cli.md has examples.`,
	}
	c.AddCommand(p.groupList(), p.groupShow(), p.groupCreate(), p.groupSeal(), p.groupDelete())
	return c
}

// A groupRow is a group. Pending and the like are known only for a single one.
type groupRow struct {
	ID       string       `json:"id"` // a string: JSON readers round large numbers
	Name     string       `json:"name" table:",rare"`
	State    string       `json:"state"`
	Created  *time.Time   `json:"created"`
	Ended    *time.Time   `json:"ended" table:",rare"`
	Callback string       `json:"callback" table:",rare"` // its kind
	Error    string       `json:"error" table:",rare"`
	Keep     string       `json:"keep" table:"-"`
	Counts   *groupCounts `json:"jobs,omitempty" table:"-"`
}

type groupCounts struct {
	Pending   int `json:"pending"`
	Done      int `json:"done"`
	Dead      int `json:"dead"`
	Cancelled int `json:"cancelled"`
}

type groupResult struct {
	Job    string          `json:"job"`
	Queue  string          `json:"queue"`
	Kind   string          `json:"kind"`
	State  string          `json:"state"`
	Error  string          `json:"error" table:",rare"`
	Result json.RawMessage `json:"result" table:"-"`
	Made   string          `json:"-" table:"result,rare"`
}

func newGroupRow(g *queue.GroupInfo) groupRow {
	row := groupRow{
		ID: strconv.FormatInt(g.ID, 10), Name: g.Name, State: g.State, Created: optional(g.Created),
		Ended: optional(g.Ended), Error: g.Error,
	}
	if row.Keep = "forever"; g.Keep >= 0 {
		row.Keep = plain.FormatDuration(g.Keep)
	}
	if g.Callback != nil {
		row.Callback = g.Callback.Kind
	}
	return row
}

func groupID(text string) (int64, error) {
	id, err := strconv.ParseInt(text, 10, 64)
	if err != nil || id < 1 {
		return 0, usagef("%q is not a group's id; dbcron group list shows them", text)
	}
	return id, nil
}

func (p *program) groupList() *cobra.Command {
	var output, state string
	var limit int
	c := &cobra.Command{
		Use:   "list",
		Short: "List groups, the oldest first",
		Long: `List groups that are in a state, the oldest first:

    open      jobs are added to it; it does not end before it is sealed
    sealed    it ends as soon as none of its jobs is pending
    done      it has ended; it is kept for a while`,
		Example: `  dbcron group list
  dbcron group list --state open`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return p.withQueues(c.Context(), func(q *queue.Client) error {
				all, err := q.Groups(c.Context(), state, 0, limit)
				if err != nil {
					return err
				}
				rows := make([]groupRow, len(all))
				for i := range all {
					rows[i] = newGroupRow(&all[i])
				}
				return write(p.out, output, rows)
			})
		},
	}
	c.Flags().StringVar(&state, "state", queue.GroupSealed, "`word`: open, sealed or done")
	c.Flags().IntVarP(&limit, "limit", "n", 100, "at the most so many")
	outputFlag(c, &output)
	return c
}

func (p *program) groupShow() *cobra.Command {
	var output string
	var results bool
	c := &cobra.Command{
		Use:   "show ID",
		Short: "Show one group, its progress and its jobs' results",
		Example: `  dbcron group show 4711
  dbcron group show 4711 --results -o jsonl | jq .result`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			id, err := groupID(args[0])
			if err != nil {
				return err
			}
			return p.withQueues(c.Context(), func(q *queue.Client) error { return p.showGroup(c.Context(), q, id, results, output) })
		},
	}
	c.Flags().BoolVar(&results, "results", false, "list its jobs, and what has become of each, instead")
	outputFlag(c, &output)
	return c
}

func (p *program) showGroup(ctx context.Context, c *queue.Client, id int64, results bool, output string) error {
	g, err := c.Group(ctx, id)
	if err != nil {
		return err
	}
	if results {
		var rows []groupResult
		for r, err := range c.Results(ctx, id) {
			if err != nil {
				return err
			}
			rows = append(rows, groupResult{
				strconv.FormatInt(r.Job, 10), r.Queue, r.Kind, r.State, r.Error, r.Result,
				beginning(string(r.Result), "-o json"),
			})
		}
		return write(p.out, output, rows)
	}
	row := newGroupRow(&g)
	row.Counts = &groupCounts{g.Pending, g.Done, g.Dead, g.Cancelled}
	if output != "table" {
		return encode(p.out, row)
	}
	facts := []fact{
		{"id", row.ID},
		{"name", g.Name},
		{"state", g.State},
		{"jobs", fmt.Sprintf("%d pending, %d done, %d dead, %d cancelled", g.Pending, g.Done, g.Dead, g.Cancelled)},
		{"created", shown(g.Created, time.UTC)},
	}
	if !g.Ended.IsZero() {
		facts = append(facts, fact{"ended", shown(g.Ended, time.UTC)})
	}
	if j := g.Callback; j != nil {
		facts = append(facts, fact{"callback", j.Kind}, fact{"its queue", j.Queue}, fact{"its payload", beginning(string(j.Payload), "-o json")})
	}
	return writeFacts(p.out, append(facts, fact{"kept", row.Keep}, fact{"error", g.Error}))
}

func (p *program) groupCreate() *cobra.Command {
	t := jobText{}
	var name, keep, payload string
	c := &cobra.Command{
		Use:   "create",
		Short: "Create an open group, and print its id",
		Long: `Make a group and print its id. Jobs are added with dbcron job enqueue --group ID, until
dbcron group seal ID: from then on it ends as soon as none of its jobs is pending, and the
job that --callback and --payload say is enqueued.`,
		Example: `  id=$(dbcron group create --callback report --payload '{"month": "2026-11"}')
  dbcron job enqueue part '{"n": 1}' --group "$id"
  dbcron job enqueue part '{"n": 2}' --group "$id"
  dbcron group seal "$id"`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			g := queue.Group{Name: name}
			var err error
			switch {
			case keep == "forever":
				g.Keep = -1
			case keep != "":
				if g.Keep, err = notNegative(keep); err != nil || g.Keep == 0 {
					return usagef("--keep: %q is not a duration, such as 7d, nor forever", keep)
				}
			}
			if c.Flags().Changed("callback") && t.kind == "" {
				return usagef("--callback is empty; leave it out if nobody is to be told")
			}
			if t.kind == "" && (payload != "" || c.Flags().Changed("callback-queue")) {
				return usagef("there is no --callback that this is about")
			}
			if t.kind != "" {
				t.payload = []byte(payload)
				job, err := t.job(func(field string) string {
					return map[string]string{"kind": "--callback", "queue": "--callback-queue", "payload": "--payload"}[field]
				})
				if err != nil {
					return usagef("%v", err)
				}
				g.Callback = &job
			}
			return p.withQueues(c.Context(), func(q *queue.Client) error {
				id, err := q.NewGroup(c.Context(), g)
				if err != nil {
					return err
				}
				p.say("id", strconv.FormatInt(id, 10))
				_, err = fmt.Fprintln(p.out, id)
				return err
			})
		},
	}
	flags := c.Flags()
	flags.SortFlags = false
	flags.StringVar(&t.kind, "callback", "", "`kind` of the job that is enqueued at its end")
	flags.StringVar(&t.queue, "callback-queue", "", "`name` of that job's queue (default: by the route of its kind)")
	flags.StringVar(&payload, "payload", "", "that job's `JSON`")
	flags.StringVar(&name, "name", "", "a `text` for people")
	flags.StringVar(&keep, "keep", "", "a `duration` for which it is kept after its end, or forever (default: 7d)")
	return c
}

func (p *program) groupSeal() *cobra.Command {
	return &cobra.Command{
		Use:     "seal ID",
		Short:   "Let a group end as soon as none of its jobs is pending",
		Example: `  dbcron group seal 4711`,
		Args:    cobra.ExactArgs(1),
		RunE:    p.onGroup("", (*queue.Client).Seal),
	}
}

func (p *program) groupDelete() *cobra.Command {
	return &cobra.Command{
		Use:   "delete ID",
		Short: "End a group without its callback, and remove it",
		Long: `End a group without its callback. It is removed within a minute or two, if a worker
runs, with all results. Its jobs are done all the same.`,
		Example: `  dbcron group delete 4711`,
		Args:    cobra.ExactArgs(1),
		RunE:    p.onGroup("group.delete", (*queue.Client).DeleteGroup),
	}
}

func (p *program) onGroup(action string, do func(*queue.Client, context.Context, int64) error) func(*cobra.Command, []string) error {
	return func(c *cobra.Command, args []string) error {
		id, err := groupID(args[0])
		if err != nil {
			return err
		}
		return p.withQueues(c.Context(), func(q *queue.Client) error {
			err := do(q, c.Context(), id)
			if action == "" { // programs' routine work is not audited
				return err
			}
			return p.did(c.Context(), err, action, args[0], 1, "")
		})
	}
}
