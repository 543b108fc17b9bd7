package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/internal/ops/health"
	"github.com/dbcron/dbcron/internal/plain"
)

func (p *program) scheduleExplain() *cobra.Command {
	var output string
	var n int
	c := &cobra.Command{
		Use:   "explain NAME",
		Short: "Explain why a schedule did or did not run, and what to do",
		Long: `Explain why a schedule did or did not run: its state, its next slot and whether that is
overdue, what runs or waits now and for what, and what became of its last slots,
each on one line with the attempts at it. Times are those of the schedule's zone.`,
		Example: `  dbcron schedule explain backup
  dbcron schedule explain backup -n 100 | grep missed`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if n < 1 || n > 10_000 {
				return usagef("-n %d: use 1 to 10000", n)
			}
			return p.with(c.Context(), func(db *dialect.DB) error {
				e, err := health.Explain(c.Context(), db, args[0], n, false)
				if err != nil {
					return err
				}
				if output != "table" {
					return encode(p.out, e.Wire())
				}
				return writeExplanation(p, e)
			})
		},
	}
	c.Flags().IntVarP(&n, "count", "n", 10, "how many of the last slots")
	outputFlag(c, &output)
	return c
}

// writeExplanation prints all of it for people.
func writeExplanation(p *program, e *health.Explanation) error {
	facts := []fact{{"name", e.Schedule.Name}, {"state", standing(&e.Schedule)}}
	if e.Next != nil {
		text := health.InZone(*e.Next, &e.Schedule)
		if left := e.Next.Sub(e.Now); left > 0 {
			text += ", in " + left.Round(time.Second).String()
		}
		if e.Schedule.Jitter > 0 {
			text += ", and up to " + plain.FormatDuration(e.Schedule.Jitter) + " later"
		}
		facts = append(facts, fact{"next slot", text})
	}
	if e.Overdue != nil {
		facts = append(facts, fact{"overdue", "since " + health.InZone(*e.Overdue, &e.Schedule) + ", for " +
			e.Now.Sub(*e.Overdue).Round(time.Second).String()})
	}
	for _, o := range e.Open {
		facts = append(facts, fact{o.State, o.Text})
	}
	facts = append(facts, fact{"what to do", strings.Join(e.Advice, "\n")})
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
		when := health.InZone(*slot.Due, &e.Schedule)
		if slot.To != nil && !slot.To.Equal(*slot.Due) {
			when += " to " + health.InZone(*slot.To, &e.Schedule)
		}
		if _, err := fmt.Fprintf(p.out, "%s  %-9s  %s\n", when, slot.State, harmless(slot.Why)); err != nil {
			return err
		}
	}
	return nil
}
