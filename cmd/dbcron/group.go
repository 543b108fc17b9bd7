package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/dbcron/dbcron/wire"
)

func (p *program) group() *cobra.Command {
	c := &cobra.Command{
		Use:   "group",
		Short: "See and create groups of jobs, which end with a callback",
		Long: `See and make groups of jobs. A group ends when it is sealed and all of its jobs have
ended; then its callback, a job, is enqueued, once. dbcron help queue-groups has examples.`,
	}
	c.AddCommand(p.twin(twin{
		id: "list-groups", use: "list", short: "List groups, the oldest first", count: 100,
		long: `List groups that are in a state, the oldest first:

    open      jobs are added to it; it does not end before it is sealed
    sealed    it ends as soon as none of its jobs is pending
    done      it has ended; it is kept for a while`,
		example: `  dbcron group list
  dbcron group list --state open`,
	}), p.groupShow(), p.groupCreate(), p.twin(twin{
		id: "seal-group", use: "seal ID", example: `  dbcron group seal 4711`,
	}), p.twin(twin{
		id: "delete-group", use: "delete ID", short: "End a group without its callback, and remove it",
		long: `End a group without its callback. It is removed within a minute or two, if a worker
runs, with all results. Its jobs are done all the same.`,
		example: `  dbcron group delete 4711`,
	}))
	return c
}

func (p *program) groupShow() *cobra.Command {
	var results bool
	c := p.twin(twin{
		id: "get-group", use: "show ID", short: "Show one group, its progress and its jobs' results",
		example: `  dbcron group show 4711
  dbcron group show 4711 --results -o jsonl | jq .result`,
		other: func(*cobra.Command) string { return map[bool]string{true: "group-results"}[results] },
	})
	c.Flags().BoolVar(&results, "results", false, "list its jobs, and what has become of each, instead")
	return c
}

// groupFacts describes a group.
func groupFacts(g *wire.Group) []fact {
	facts := []fact{
		{"id", g.ID},
		{"name", g.Name},
		{"state", g.State},
		{"jobs", fmt.Sprintf("%d pending, %d done, %d dead, %d cancelled", g.Jobs.Pending, g.Jobs.Done, g.Jobs.Dead, g.Jobs.Cancelled)},
		{"created", shown(g.Created.Time, time.UTC)},
	}
	if !g.Ended.IsZero() {
		facts = append(facts, fact{"ended", shown(g.Ended.Time, time.UTC)})
	}
	return append(facts, fact{"callback", g.Callback}, fact{"its queue", g.CallbackQueue},
		fact{"its payload", beginning(string(g.CallbackPayload), "-o json")}, fact{"kept", string(g.Keep)}, fact{"error", g.Error})
}

func (p *program) groupCreate() *cobra.Command {
	var callback wire.NewJob
	var payload string
	c := p.twin(twin{
		id: "create-group", use: "create", short: "Create an open group, and print its id", flags: map[string]string{"callback": "", "jobs": ""},
		long: `Make a group and print its id. Jobs are added with dbcron job enqueue --group ID, until
dbcron group seal ID: from then on it ends as soon as none of its jobs is pending, and the
job that --callback and --payload say is enqueued.`,
		example: `  id=$(dbcron group create --callback report --payload '{"month": "2026-11"}')
  dbcron job enqueue part '{"n": 1}' --group "$id"
  dbcron job enqueue part '{"n": 2}' --group "$id"
  dbcron group seal "$id"`,
		before: func(_ context.Context, given values) error {
			if callback.Kind == "" && (payload != "" || callback.Queue != "") {
				return usagef("there is no --callback that this is about")
			}
			if callback.Kind == "" {
				return nil
			}
			callback.Payload = json.RawMessage(payload)
			text, err := json.Marshal(callback)
			if err != nil {
				return usagef("--payload: it is not JSON")
			}
			given["callback"] = string(text)
			return nil
		},
		then: func(_ context.Context, answer any) error {
			_, err := fmt.Fprintln(p.out, answer.(*wire.CreatedGroup).ID) //nolint:forcetypeassert // what the operation answers with
			return err
		},
	})
	c.PreRunE = func(c *cobra.Command, _ []string) error {
		if c.Flags().Changed("callback") && callback.Kind == "" {
			return usagef("--callback is empty; leave it out for a group without a callback")
		}
		return nil
	}
	c.Flags().StringVar(&callback.Kind, "callback", "", "`kind` of the job that is enqueued at its end")
	c.Flags().StringVar(&callback.Queue, "callback-queue", "", "`name` of that job's queue (default: by the route of its kind)")
	c.Flags().StringVar(&payload, "payload", "", "that job's `JSON`")
	return c
}
