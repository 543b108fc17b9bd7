package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/dbcron/dbcron/internal/ops/table"
	"github.com/dbcron/dbcron/internal/plain"
	"github.com/dbcron/dbcron/wire"
)

// awaitFor is how long one request waits for a job's end.
const awaitFor = 20 * time.Second

func (p *program) jobWait() *cobra.Command {
	var queue, within, output string
	c := &cobra.Command{
		Use:   "wait ID",
		Short: "Wait until a job has ended, and print its result",
		Long: `Wait until a job has ended, and print the result that its handler has set, which is
JSON; with -o json print all of the job. The job may have ended before. Its queue has to keep
done jobs (dbcron queue set --keep-done), or nobody could say how it has ended: exit code 4,
at once. A signal ends the waiting, not the job.

Exit codes: 0 the job is done; 3 there is no such job: it never existed, or is not kept any
more; 5 it is dead; 6 it was cancelled or discarded; 7 it has not ended --within the time.`,
		Example: `  dbcron job wait 4711 --within 5m | jq .`,
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if output != "text" && output != "json" && output != "jsonl" {
				return usagef("output %q is not known: use text, json or jsonl", output)
			}
			most, err := readWithin(within)
			if err != nil {
				return err
			}
			given := values{"id": args[0]}
			if queue != "" {
				given["queue"] = queue
			}
			p.named = []string{"id"}
			if _, err := operations()[awaitOf(given)].Input(given); err != nil {
				return p.worded(err)
			}
			return p.withAPI(c.Context(), func() error { return p.awaitJob(c.Context(), given, most, output) })
		},
	}
	c.Flags().StringVar(&queue, "queue", "", "`name` of its queue, if two jobs have the id")
	c.Flags().StringVar(&within, "within", "", "a `duration` to wait at the most (default: as long as it takes)")
	c.Flags().StringVarP(&output, "output", "o", "text", "the result as text, or the job as json or jsonl")
	return c
}

// readWithin reads how long to wait at the most; 0: as long as it takes.
func readWithin(text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	d, err := plain.ParseDuration(text)
	if err != nil || d <= 0 {
		return 0, usagef("--within: %q is not a duration above 0, such as 30s or 5m", text)
	}
	return d, nil
}

// awaitOf returns the operation that waits for a job, in its queue or in any.
func awaitOf(given values) string {
	if given["queue"] == "" {
		return "await-job-by-id"
	}
	return "await-job"
}

// awaitJob waits for a job, for so long at the most, tells how it has ended, and returns an error with the exit code that
// says so.
func (p *program) awaitJob(ctx context.Context, given values, within time.Duration, output string) error {
	began := time.Now() //nolint:forbidigo // it measures how long it waits
	for {
		wait := awaitFor
		if within > 0 {
			wait = min(wait, max(0, within-time.Since(began)))
		}
		given["wait"] = wait.String()
		answer, err := p.do(ctx, awaitOf(given), given)
		if err != nil {
			return err
		}
		j := answer.(*wire.Job) //nolint:forcetypeassert // that is what it answers
		if j.State == "done" || j.State == "dead" {
			return p.tellEnded(j, output)
		}
		if given["queue"] != "" {
			given["queue"] = j.Queue // it may have been moved
		}
		if within > 0 && time.Since(began) >= within {
			return exitError{exitWaited, fmt.Errorf("job %s is %s after %s; dbcron job wait goes on", j.ID, j.State, within)}
		}
	}
}

func (p *program) tellEnded(j *wire.Job, output string) error {
	var err error
	switch {
	case output != "text":
		err = table.Encode(p.out, j)
	case len(j.Result) > 0:
		_, err = fmt.Fprintf(p.out, "%s\n", j.Result)
	}
	switch {
	case err != nil:
		return err
	case j.State == "dead":
		return exitError{exitDead, fmt.Errorf("job %s is dead: %s", j.ID, j.Error)}
	case j.Cancelled:
		return exitError{exitNotDone, fmt.Errorf("job %s was cancelled", j.ID)}
	case j.Discarded:
		return exitError{exitNotDone, fmt.Errorf("job %s was discarded: %s", j.ID, j.Error)}
	}
	return nil
}
