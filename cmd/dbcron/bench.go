package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/engines"
	"github.com/dbcron/dbcron/internal/ops/measure"
	"github.com/dbcron/dbcron/internal/ops/table"
	"github.com/dbcron/dbcron/sqlschema"
)

// benchPrefix begins the names of the tables that bench creates and drops.
const benchPrefix = "dbcron_bench_"

func (p *program) bench() *cobra.Command {
	var output string
	span := time.Minute
	c := &cobra.Command{
		Use:   "bench",
		Short: "Measure what dbcron does on this database, in a minute",
		Long: `Measure what dbcron does on this database: jobs enqueued by 1 and by 32 callers and
in bulk, jobs drained, the time from enqueueing a job to its start, locks, and schedules
that fire. It says what bounds each figure.

bench works in tables of its own, ` + benchPrefix + `…, which it makes and removes, and
touches no others. It loads the database as much as it can: do not run it where others
need that database now. Its user needs the right to make tables.

HOST is the share of this host's processors that was busy, with all that runs here. With
defaults, one worker and one scheduler do the work; more processes do more.`,
		Example: `  dbcron bench
  dbcron bench --for 20s -o json`,
		RunE: func(c *cobra.Command, _ []string) error {
			if span < measure.MinSpan {
				return usagef("--for %v: use %v or more", span, measure.MinSpan)
			}
			figures, err := p.runBench(c.Context(), span)
			if len(figures) == 0 {
				return err
			}
			return errors.Join(table.Write(p.out, output, benchRows(figures)), err)
		},
	}
	durationVar(c.Flags(), &span, "for", span, "about how long it takes")
	outputFlag(c, &output)
	return c
}

// runBench measures in tables of its own, which it drops however it ends. If interrupted, it returns what
// it has measured.
func (p *program) runBench(ctx context.Context, span time.Duration) (figures []measure.Figure, err error) {
	opt := p.options()
	opt.Prefix, opt.ApplicationName = benchPrefix, "dbcron bench"
	producer, err := p.connect(ctx, opt, engines.Open)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, producer.Close()) }()
	if err := clearBench(ctx, producer); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, dropBench(ctx, producer)) }()
	if err := sqlschema.Migrate(ctx, producer); err != nil {
		return nil, err
	}
	worker, err := p.connect(ctx, opt, engines.Open)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, worker.Close()) }()
	begin, done := p.benchStep(span)
	defer done()
	return measure.Run(ctx, producer, worker, measure.Options{Span: span, Begin: begin})
}

// clearBench removes what a killed bench has left. It refuses while another one runs.
func clearBench(ctx context.Context, db *dialect.DB) error {
	at, err := sqlschema.Version(ctx, db)
	if err != nil || at == 0 {
		return err
	}
	nodes, err := sqlschema.LiveNodes(ctx, db)
	if err == nil && len(nodes) > 0 {
		err = fmt.Errorf("%w: another dbcron bench runs on this database, or was killed less than a minute ago", errLive)
	}
	if err != nil {
		return err
	}
	return sqlschema.To(ctx, db, 0)
}

// dropBench removes the tables, even if ctx has ended.
func dropBench(ctx context.Context, db *dialect.DB) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	if err := sqlschema.To(ctx, db, 0); err != nil {
		return fmt.Errorf("removing the tables %s…: %w; the next dbcron bench removes them", benchPrefix, err)
	}
	return nil
}

// benchStep shows on standard error what is being measured: on a terminal as one line with a bar, which
// done clears.
func (p *program) benchStep(span time.Duration) (begin func(step string, over time.Duration), done func()) {
	if !isTerminal(p.err) {
		return func(step string, over time.Duration) {
			fmt.Fprintf(p.err, "dbcron: measuring %s (%v of %v)\n", step, over.Round(time.Second), span)
		}, func() {}
	}
	const width = 24
	return func(step string, over time.Duration) {
		full := int(width * over / span)
		fmt.Fprintf(p.err, "\r\x1b[K[%s%s] %v of %v: %s", strings.Repeat("#", full), strings.Repeat("-", width-full),
			over.Round(time.Second), span, step)
	}, func() { fmt.Fprint(p.err, "\r\x1b[K") }
}

// A benchRow is a figure for people and for programs.
type benchRow struct {
	Name    string  `json:"name" table:"-"`
	What    string  `json:"-" table:"what"`
	Callers int     `json:"callers,omitempty" table:"-"`
	Rate    float64 `json:"per_second,omitempty" table:"-"`
	Unit    string  `json:"unit" table:"-"`
	P50     float64 `json:"p50_ms,omitempty" table:"-"`
	P99     float64 `json:"p99_ms,omitempty" table:"-"`
	Host    float64 `json:"host_busy" table:"-"`
	Figure  string  `json:"-" table:"figure"`
	Times   string  `json:"-" table:"p50, p99"`
	Busy    string  `json:"-" table:"host"`
	Bound   string  `json:"bound_by" table:"bound by"`
}

func benchRows(figures []measure.Figure) []benchRow {
	rows := make([]benchRow, len(figures))
	for i, f := range figures {
		r := benchRow{
			Name: f.Name, What: f.Name, Callers: f.Callers, Rate: math.Round(f.Rate), Unit: f.Unit, Bound: f.Bound,
			P50: milliseconds(f.P50), P99: milliseconds(f.P99), Host: math.Round(f.Host*100) / 100,
		}
		if f.Callers > 1 {
			r.What += fmt.Sprintf(", %d callers", f.Callers)
		}
		if f.Rate > 0 {
			r.Figure = fmt.Sprintf("%.0f %s/s", f.Rate, f.Unit)
		}
		if f.P50 > 0 {
			r.Times = fmt.Sprintf("%.2f, %.2f ms", r.P50, r.P99)
		}
		if f.Host >= 0 {
			r.Busy = fmt.Sprintf("%.0f %%", f.Host*100)
		}
		rows[i] = r
	}
	return rows
}

func milliseconds(d time.Duration) float64 {
	return math.Round(float64(d)/float64(time.Microsecond)) / 1000
}
