package main

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/internal/ops/health"
	"github.com/dbcron/dbcron/internal/ops/wireof"
	"github.com/dbcron/dbcron/scheduler"
	"github.com/dbcron/dbcron/wire"
)

// A scheduleDetail is everything about one schedule.
type scheduleDetail struct {
	s     scheduler.Schedule
	slots []time.Time
	open  []scheduler.Run
	last  *scheduler.Run
}

func (d *scheduleDetail) word() wire.ScheduleDetail {
	w := wire.ScheduleDetail{Schedule: wireof.Schedule(&d.s), NextSlots: wireof.Instants(d.slots), UnderWay: wireof.Each(d.open, wireof.Run)}
	if d.last != nil {
		w.Last = new(wireof.Run(d.last))
	}
	return w
}

func (p *program) scheduleShow() *cobra.Command {
	var output string
	c := &cobra.Command{
		Use:   "show NAME",
		Short: "Show all of one schedule: settings, next slots, what runs, and the last result",
		Long: `Show all of one schedule: its settings, as far as they are not the usual ones (with
-o json: all), the next three slots, what runs or waits now, and the last result.`,
		Example: `  dbcron schedule show backup
  dbcron schedule show backup -o json`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return p.with(c.Context(), func(db *dialect.DB) error { return p.showSchedule(c.Context(), db, args[0], output) })
		},
	}
	outputFlag(c, &output)
	return c
}

func (p *program) showSchedule(ctx context.Context, db *dialect.DB, name, output string) error {
	d, err := detail(ctx, db, name)
	if err != nil {
		return err
	}
	if output != "table" {
		return encode(p.out, d.word())
	}
	return writeFacts(p.out, d.facts())
}

func detail(ctx context.Context, db *dialect.DB, name string) (*scheduleDetail, error) {
	s, at, err := health.LookUp(ctx, db, name)
	if err != nil {
		return nil, err
	}
	d := &scheduleDetail{s: s, slots: health.NextSlots(&s, at, 3)}
	if d.open, err = health.OpenRuns(ctx, db, name, health.OpenLimit); err != nil {
		return nil, err
	}
	newest, err := health.NewestRuns(ctx, db, name, 200)
	for i := range newest {
		if d.last == nil && health.Ended(&newest[i]) {
			d.last = &newest[i]
		}
	}
	return d, err
}

func (d *scheduleDetail) facts() []fact {
	from := "made by hand"
	if d.s.Source != "" {
		from = "from " + d.s.Source
	}
	input := "stdin"
	if d.s.Kind == "job" {
		input = "payload"
	}
	facts := []fact{
		{"name", d.s.Name},
		{"source", from},
		{"state", standing(&d.s)},
		{"spec", d.s.Spec},
		{"time zone", d.s.Zone},
		{d.s.Kind, what(&d.s)},
		{input, d.s.Stdin},
		{"env", pairs(d.s.Env, "=")},
		{"headers", pairs(d.s.Headers, ": ")},
	}
	for i := range settings {
		set := &settings[i]
		if set.Name != "time_zone" && !set.Ordinary(&d.s) {
			facts = append(facts, fact{strings.ReplaceAll(set.Name, "_", " "), set.Text(&d.s)})
		}
	}
	slots := make([]string, len(d.slots))
	for i, slot := range d.slots {
		slots[i] = health.InZone(slot, &d.s)
	}
	facts = append(facts, fact{"next slots", strings.Join(slots, "\n")})
	for i := range d.open {
		facts = append(facts, fact{d.open[i].State, health.UnderWay(&d.open[i], &d.s)})
	}
	if d.last != nil {
		facts = append(facts, fact{"last", d.last.State + ", slot " + health.InZone(d.last.Due, &d.s) + ", " + health.WithJob(d.last)})
	}
	return facts
}

// standing describes the state of a schedule, and why it is not active.
func standing(s *scheduler.Schedule) string { return health.StateOf(s) }
