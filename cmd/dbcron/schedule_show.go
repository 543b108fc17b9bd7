package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/dbcron/dbcron/internal/ops/health"
	"github.com/dbcron/dbcron/internal/ops/wireof"
	"github.com/dbcron/dbcron/scheduler"
	"github.com/dbcron/dbcron/wire"
)

func (p *program) scheduleShow() *cobra.Command {
	return p.twin(twin{
		id: "schedule-status", use: "show NAME",
		long: `Show all of one schedule: its settings, as far as they are not the usual ones (with
-o json: all), the next three slots, what runs or waits now, and the last result.`,
		example: `  dbcron schedule show backup
  dbcron schedule show backup -o json`,
	})
}

func scheduleFacts(d *wire.ScheduleDetail) []fact {
	s := wireof.ScheduleOf(&d.Schedule)
	from := "made by hand"
	if s.Source != "" {
		from = "from " + s.Source
	}
	input := "stdin"
	if s.Kind == "job" {
		input = "payload"
	}
	facts := []fact{
		{"name", s.Name},
		{"source", from},
		{"state", standing(&s)},
		{"spec", s.Spec},
		{"time zone", s.Zone},
		{s.Kind, what(&s)},
		{input, s.Stdin},
		{"env", pairs(s.Env, "=")},
		{"headers", pairs(s.Headers, ": ")},
	}
	for i := range settings {
		set := &settings[i]
		if set.Name != "time_zone" && !set.Ordinary(&s) {
			facts = append(facts, fact{strings.ReplaceAll(set.Name, "_", " "), set.Text(&s)})
		}
	}
	slots := make([]string, len(d.NextSlots))
	for i, slot := range d.NextSlots {
		slots[i] = health.InZone(slot.Time, &s)
	}
	facts = append(facts, fact{"next slots", strings.Join(slots, "\n")})
	for i := range d.UnderWay {
		r := wireof.RunOf(&d.UnderWay[i])
		facts = append(facts, fact{r.State, health.UnderWay(&r, &s)})
	}
	if d.Last != nil {
		r := wireof.RunOf(d.Last)
		facts = append(facts, fact{"last", r.State + ", slot " + health.InZone(r.Due, &s) + ", " + health.WithJob(&r)})
	}
	return facts
}

// standing describes the state of a schedule, and why it is not active.
func standing(s *scheduler.Schedule) string { return health.StateOf(s) }
