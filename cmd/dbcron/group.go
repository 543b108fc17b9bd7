package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/dbcron/dbcron/internal/ops/wireof"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/wire"
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

// A groupRow is what a table shows of a group.
type groupRow struct {
	ID       string    `table:"id"`
	Name     string    `table:"name,rare"`
	State    string    `table:"state"`
	Created  time.Time `table:"created"`
	Ended    time.Time `table:"ended"`
	Callback string    `table:"callback,rare"` // its kind
	Error    string    `table:"error,rare"`
}

func newGroupRow(i *queue.GroupInfo) groupRow {
	g := wireof.Group(i)
	return groupRow{g.ID, g.Name, g.State, i.Created, i.Ended, g.Callback, g.Error}
}

// A resultRow is what a table shows of a job of a group.
type resultRow struct {
	Job    string `table:"job"`
	Queue  string `table:"queue"`
	Kind   string `table:"kind"`
	State  string `table:"state"`
	Error  string `table:"error,rare"`
	Result string `table:"result,rare"`
}

func newResultRow(r *queue.Result) resultRow {
	return resultRow{wire.ID(r.Job), r.Queue, r.Kind, r.State, r.Error, beginning(string(r.Result), "-o json")}
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
				return writeEach(p.out, output, all, wireof.Group, newGroupRow)
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
		var all []queue.Result
		for r, err := range c.Results(ctx, id) {
			if err != nil {
				return err
			}
			all = append(all, r)
		}
		return writeEach(p.out, output, all, wireof.GroupResult, newResultRow)
	}
	w := wireof.GroupDetail(&g)
	if output != "table" {
		return encode(p.out, w)
	}
	facts := []fact{
		{"id", w.ID},
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
	return writeFacts(p.out, append(facts, fact{"kept", string(w.Keep)}, fact{"error", g.Error}))
}

func (p *program) groupCreate() *cobra.Command {
	var t jobFlags
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
			if g.Keep, err = wire.Duration(keep).Time(); err != nil || g.Keep == 0 && keep != "" {
				return usagef("--keep: %q is not a duration, such as 7d, nor forever", keep)
			}
			if c.Flags().Changed("callback") && t.Kind == "" {
				return usagef("--callback is empty; leave it out if nobody is to be told")
			}
			if t.Kind == "" && (payload != "" || c.Flags().Changed("callback-queue")) {
				return usagef("there is no --callback that this is about")
			}
			if t.Kind != "" {
				t.Payload = []byte(payload)
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
	flags.StringVar(&t.Kind, "callback", "", "`kind` of the job that is enqueued at its end")
	flags.StringVar(&t.Queue, "callback-queue", "", "`name` of that job's queue (default: by the route of its kind)")
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
