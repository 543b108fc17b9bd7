package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/dbcron/dbcron/internal/ops/health"
	"github.com/dbcron/dbcron/internal/ops/table"
	"github.com/dbcron/dbcron/internal/ops/wireof"
	"github.com/dbcron/dbcron/internal/plain"
	"github.com/dbcron/dbcron/scheduler"
	"github.com/dbcron/dbcron/wire"
)

func (p *program) scheduleExplain() *cobra.Command {
	return p.twin(twin{
		id: "explain-schedule", use: "explain NAME", flags: map[string]string{"slots": "count,n"},
		long: `Explain why a schedule did or did not run: its state, the cause, or of several the one to
begin with first, each with what to do about it; its next slot and whether that is overdue,
what runs or waits now and for what, and what became of its last slots, each on one line
with the attempts at it. Times are those of the schedule's zone.`,
		example: `  dbcron schedule explain backup
  dbcron schedule explain backup -n 100 | grep missed`,
		show: func(ctx context.Context, answer any, output string) error {
			e := answer.(*wire.Explanation) //nolint:forcetypeassert // what the operation answers with
			if output != "table" {
				return table.Encode(p.out, e)
			}
			w, err := ask[wire.Schedule](ctx, p, "get-schedule", "schedule", e.Name)
			if err != nil {
				return err
			}
			s := wireof.ScheduleOf(w)
			return p.explain(e, &s)
		},
	})
}

// explain prints all of an explanation for people.
func (p *program) explain(e *wire.Explanation, s *scheduler.Schedule) error {
	facts := append([]fact{{"name", e.Name}, {"state", standing(s)}}, causeFacts(e.Causes)...)
	if !e.Next.IsZero() {
		text := health.InZone(e.Next.Time, s)
		if left := e.Next.Sub(e.Now.Time); left > 0 {
			text += ", in " + plain.Span(left)
		}
		if s.Jitter > 0 {
			text += ", and up to " + plain.FormatDuration(s.Jitter) + " later"
		}
		facts = append(facts, fact{"next slot", text})
	}
	if !e.Overdue.IsZero() {
		facts = append(facts, fact{"overdue", "since " + health.InZone(e.Overdue.Time, s) + ", for " +
			plain.Span(e.Now.Sub(e.Overdue.Time))})
	}
	for _, o := range e.UnderWay {
		facts = append(facts, fact{o.State, o.Text})
	}
	if err := writeFacts(p.out, facts); err != nil {
		return err
	}
	if len(e.Slots) == 0 {
		_, err := fmt.Fprintln(p.out, "\nno slot of it has come yet")
		return err
	}
	if _, err := fmt.Fprintln(p.out); err != nil {
		return err
	}
	for _, slot := range e.Slots {
		when := health.InZone(slot.Due.Time, s)
		if !slot.To.IsZero() && !slot.To.Equal(slot.Due.Time) {
			when += " to " + health.InZone(slot.To.Time, s)
		}
		if _, err := fmt.Fprintf(p.out, "%s  %-9s  %s\n", when, slot.State, harmless(slot.Why)); err != nil {
			return err
		}
	}
	return nil
}
