package main

import (
	"fmt"
	"io"
	"time"

	"github.com/dbcron/dbcron/internal/ops/table"
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

// describeEndpoint prints an endpoint and its answers.
func describeEndpoint(w io.Writer, d *wire.EndpointDetail) error {
	url := plain.URL(d.URL)
	if d.URL == "" {
		url = "what each job says"
	}
	atATime := fmt.Sprintf("%d by each daemon", d.Concurrency)
	if d.Batch > 1 {
		atATime += fmt.Sprintf(", of up to %d jobs", d.Batch)
	}
	err := writeFacts(w, []fact{
		{"queue", d.Queue},
		{"sent to", url},
		{"at a time", atATime},
		{"timeout", string(d.Timeout)},
		{"format", d.Format},
		{"standing", d.Standing},
	})
	if err != nil || len(d.Answers) == 0 {
		return err
	}
	if _, err = fmt.Fprintln(w); err != nil {
		return err
	}
	return table.Print(w, wireof.Each(d.Answers, newAnswerRow))
}
