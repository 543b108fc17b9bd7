package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/httpapi/push"
	"github.com/dbcron/dbcron/internal/ops/health"
	"github.com/dbcron/dbcron/internal/ops/wireof"
	"github.com/dbcron/dbcron/internal/plain"
	"github.com/dbcron/dbcron/wire"
)

// An answerRow is what a table shows of an endpoint's answer.
type answerRow struct {
	At     time.Time `table:"at"`
	Status int       `table:"status"`
	Took   string    `table:"took"`
	Error  string    `table:"error"`
	Job    string    `table:"job"`
	By     string    `table:"by"`
	Origin string    `table:"origin,rare"`
}

func newAnswerRow(a *wire.EndpointAnswer) answerRow {
	took := time.Duration(a.Took * float64(time.Second))
	return answerRow{a.At.Time, a.Status, plain.Span(took), a.Error, a.Job, a.By, a.Origin}
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
	e, err := push.NewEndpoints(db).Get(ctx, name)
	if err != nil {
		return err
	}
	d, err := health.EndpointDetail(ctx, db, &e)
	if err != nil {
		return err
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
		{"timeout", string(d.Timeout)},
		{"format", d.Format},
		{"standing", d.Standing},
	})
	if err != nil || len(d.Answers) == 0 {
		return err
	}
	if _, err = fmt.Fprintln(p.out); err != nil {
		return err
	}
	return writeTable(p.out, wireof.Each(d.Answers, newAnswerRow))
}
