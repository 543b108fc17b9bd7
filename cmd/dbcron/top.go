package main

import (
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/internal/ops/top"
)

func (p *program) top() *cobra.Command {
	interval, once := 2*time.Second, false
	c := &cobra.Command{
		Use:   "top",
		Short: "Watch problems, queues, schedules, locks and daemons",
		Example: `  dbcron top
  dbcron top --interval 10s
  dbcron top --once | head -20`,
		Long: `Watch the work in a terminal: problems first, then queues, the next runs, locks and
daemons. It is looked at again every --interval, or more seldom where a look takes long.

    1 to 6         overview, queues, schedules, runs, locks, daemons
    up down enter  go to a line, and into it: a queue's jobs, a schedule's runs
    left, esc      go back
    /              show only lines that have a text; esc shows all again
    q, Ctrl-C      leave

When its output is no terminal, or with --once, it prints all of it once, and ends. NO_COLOR
turns colors off. It changes nothing.`,
		RunE: func(c *cobra.Command, _ []string) error {
			if interval < 500*time.Millisecond {
				return usagef("--interval %v is shorter than 500ms, which would only load the database", interval)
			}
			return p.with(c.Context(), func(db *dialect.DB) error {
				look, err := top.New(db)
				if err != nil {
					return err
				}
				if out, ok := p.out.(*os.File); ok && !once && isTerminal(p.in) && isTerminal(out) {
					return (&top.Terminal{
						Look: look, Interval: interval, In: p.in.(*os.File), Out: out, Plain: p.getenv("NO_COLOR") != "",
					}).Run(c.Context())
				}
				return look.Print(c.Context(), p.out)
			})
		},
	}
	durationVar(c.Flags(), &interval, "interval", interval, "how often to look")
	c.Flags().BoolVar(&once, "once", false, "print everything once, and end")
	return c
}
