package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/dbcron/dbcron/internal/ops/table"
	"github.com/dbcron/dbcron/internal/ops/wireof"
	"github.com/dbcron/dbcron/scheduler/cronspec"
	"github.com/dbcron/dbcron/wire"
)

func (p *program) scheduleNext() *cobra.Command {
	var spec, zone, from, dst, output string
	var n int
	c := &cobra.Command{
		Use:   "next NAME | --spec SPEC",
		Short: "Print the next slots of a schedule, or of a spec",
		Long: `Print the next slots of a schedule, or of a spec. For a spec no database is opened,
so that it can be tried before it is used.`,
		Example: `  dbcron schedule next backup
  dbcron schedule next --spec "30 2 * * *" --time-zone Europe/Berlin --from 2026-03-28T00:00:00Z -n 3 -o json`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if n < 1 || n > 10_000 {
				return usagef("-n %d: use 1 to 10000", n)
			}
			if len(args) == 1 {
				for _, name := range []string{"spec", "time-zone", "dst", "from"} {
					if c.Flags().Changed(name) {
						return usagef("--%s is for a spec; leave it out, or the name %q", name, args[0])
					}
				}
				return p.withAPI(c.Context(), func() error { return p.nextOf(c.Context(), args[0], n, output) })
			}
			if !c.Flags().Changed("spec") {
				return usagef("%s needs the name of a schedule, or --spec, such as --spec '*/5 * * * *'", c.CommandPath())
			}
			plan, err := cronspec.New(spec, zone, dst)
			if err != nil {
				return err
			}
			return p.nextAfter(plan, from, n, output)
		},
	}
	flags := c.Flags()
	flags.StringVar(&spec, "spec", "", "when: five cron fields, or @daily, @every 90s, …")
	flags.StringVar(&zone, "time-zone", "UTC", "time zone of the spec")
	flags.StringVar(&from, "from", "", "print slots strictly after this time (RFC 3339; default: now)")
	flags.IntVarP(&n, "count", "n", 5, "how many slots")
	flags.StringVar(&dst, "dst", "vixie", "when clocks change: `vixie|wall`; vixie runs fixed times once")
	outputFlag(c, &output)
	return c
}

// nextAfter prints the slots after a time, by default after now.
func (p *program) nextAfter(plan *cronspec.Schedule, from string, n int, output string) (err error) {
	at := hostNow().Truncate(time.Second)
	if from != "" {
		if at, err = time.Parse(time.RFC3339, from); err != nil {
			return usagef("--from %q is not a time as in RFC 3339, such as 2026-03-28T00:00:00Z", from)
		}
	}
	if at.Year() < 2 {
		return usagef("--from %s: slots are known from the year 2 on", from)
	}
	var slots []time.Time
	for slot, ok := plan.Next(at); ok && len(slots) < n; slot, ok = plan.Next(slot) {
		slots = append(slots, slot)
	}
	return p.printSlots(&wire.Slots{Slots: wireof.Instants(slots)}, plan.Location(), output)
}

func (p *program) nextOf(ctx context.Context, name string, n int, output string) error {
	w, err := ask[wire.Schedule](ctx, p, "get-schedule", "schedule", name)
	if err != nil {
		return err
	}
	s := wireof.ScheduleOf(w)
	plan, err := s.Slots()
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	next, err := ask[wire.Slots](ctx, p, "schedule-next", "schedule", name, "count", strconv.Itoa(n))
	if err != nil {
		return err
	}
	if len(next.Slots) == 0 {
		why := standing(&s)
		if s.State == "active" {
			why = "its spec is " + s.Spec
		}
		fmt.Fprintf(p.err, "dbcron: %s has no slots to come: %s\n", oneLine(name, 200), why)
	}
	return p.printSlots(next, plan.Location(), output)
}

func (p *program) printSlots(all *wire.Slots, zone *time.Location, output string) error {
	if output == "json" {
		return table.Encode(p.out, all)
	}
	for _, slot := range all.Slots {
		err := error(nil)
		if output == "jsonl" {
			err = table.Encode(p.out, slot)
		} else {
			_, err = fmt.Fprintln(p.out, shown(slot.Time, zone))
		}
		if err != nil {
			return err
		}
	}
	return nil
}
