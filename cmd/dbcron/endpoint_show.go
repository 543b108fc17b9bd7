package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/httpapi/push"
	"github.com/dbcron/dbcron/internal/ops/health"
	"github.com/dbcron/dbcron/internal/plain"
	"github.com/dbcron/dbcron/scheduler"
)

// An endpointDetail is an endpoint, how it is, and what it has answered of late.
type endpointDetail struct {
	endpointRow
	Standing string      `json:"standing"` // in words; empty: nothing was sent of late
	Answers  []answerRow `json:"answers"`
}

// An answerRow is an answer. An empty error is one that was well.
type answerRow struct {
	At     time.Time  `json:"at"`
	Status int        `json:"status"` // 0: there was no whole answer
	Took   string     `json:"took"`
	Error  string     `json:"error"`
	Job    string     `json:"job"`
	By     string     `json:"by"`
	Origin string     `json:"origin" table:",rare"`
	Until  *time.Time `json:"until" table:"-"`
}

func (p *program) endpointShow() *cobra.Command {
	var output string
	c := &cobra.Command{
		Use:   "show QUEUE",
		Short: "Show where a queue's jobs are sent, and the newest answers",
		Long: `Show where a queue's jobs are sent, and some of the newest answers. Daemons note them
every five seconds. A job whose endpoint pushes back (429, 503, no connection) waits, and
loses nothing; any other failure is one of the job's attempts.`,
		Example: `  dbcron endpoint show mail`,
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return p.with(c.Context(), func(db *dialect.DB) error { return p.showEndpoint(c.Context(), db, args[0], output) })
		},
	}
	outputFlag(c, &output)
	return c
}

func (p *program) showEndpoint(ctx context.Context, db *dialect.DB, name, output string) error {
	all := push.NewEndpoints(db)
	e, err := all.Get(ctx, name)
	if err != nil {
		return err
	}
	answers, err := all.Answers(ctx, name)
	if err != nil {
		return err
	}
	now, err := scheduler.Clock(ctx, db)
	if err != nil {
		return err
	}
	d := endpointDetail{endpointRow: newEndpointRow(&e), Standing: health.EndpointText(answers, now), Answers: []answerRow{}}
	for _, a := range answers {
		d.Answers = append(d.Answers, answerRow{
			a.At, a.Status, plain.Span(a.Took), a.Error, fmt.Sprint(a.Job), a.By, a.Origin, optional(a.Until),
		})
	}
	if output != "table" {
		return encode(p.out, d)
	}
	url := plain.URL(d.URL)
	if d.URL == "" {
		url = "what each job says"
	}
	atATime := fmt.Sprintf("%d by each daemon", d.Concurrency)
	if d.Batch > 1 {
		atATime += fmt.Sprintf(", of up to %d jobs", d.Batch)
	}
	err = writeFacts(p.out, []fact{
		{"queue", name},
		{"sent to", url},
		{"at a time", atATime},
		{"timeout", plain.FormatDuration(e.Timeout)},
		{"format", d.Format},
		{"standing", d.Standing},
	})
	if err != nil || len(d.Answers) == 0 {
		return err
	}
	if _, err = fmt.Fprintln(p.out); err != nil {
		return err
	}
	return write(p.out, output, d.Answers)
}
