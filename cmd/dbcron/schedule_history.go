package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dbcron/dbcron/internal/ops/health"
	"github.com/dbcron/dbcron/internal/ops/wireof"
	"github.com/dbcron/dbcron/internal/plain"
	"github.com/dbcron/dbcron/internal/setting"
	"github.com/dbcron/dbcron/wire"
)

// A runRow is what a table shows of a run.
type runRow struct {
	ID       string       `table:"id"`
	Schedule string       `table:"schedule"`
	Due      wire.Instant `table:"due"`
	Slots    int64        `table:"slots"`
	Attempt  int          `table:"attempt"`
	Cause    string       `table:"cause"`
	State    string       `table:"state"`
	Exit     *int         `table:"exit code"`
	Seconds  string       `table:"seconds"`
	Host     string       `table:"host"`
	Error    string       `table:"error"`
	Output   string       `table:"output"`
}

func newRunRow(r *wire.Run) runRow {
	row := runRow{
		ID: r.ID, Schedule: r.Schedule, Due: r.Due, Slots: r.Slots, Attempt: r.Attempt, Cause: r.Cause, State: r.State,
		Exit: r.ExitCode, Seconds: "-", Host: "-", Error: r.Error, Output: plain.LastLine(r.Output, 1000),
	}
	if r.By != "" {
		row.Host, _, _ = strings.Cut(r.By, ":")
	}
	if r.Took != nil {
		row.Seconds = fmt.Sprintf("%.3f", *r.Took)
	}
	return row
}

func (p *program) scheduleHistory() *cobra.Command {
	var name string
	return p.twin(twin{
		id: "list-runs", use: "history [NAME]", short: "List the newest runs, with what became of them", count: 20,
		long: `List the newest runs, with what became of them: of one schedule by slot, or of all
in the order in which they were made, which is also that of more than 1000, and of those
that flags select. Runs of schedules that were deleted are there too. The states:

    waiting     for its time, for the end of the run before, or for a daemon
    running     its daemon holds a lease on it
    ok          it ended well
    failed      it did not; ERROR says why
    timeout     it took longer than its --timeout, and was ended
    cancelled   somebody, or the overlap policy, ended it
    lost        its daemon died or was cut off; another attempt follows
    retry       its daemon was stopped and gave it back; another attempt follows
    skipped     the slot did not run, because of a policy
    missed      the slot did not run, because no daemon was there in time

--since, --until and --state select runs: those that were under way at some time between
the two, or whose slot came then if they never began. A time is such as 2026-11-20T18:00 on
the clocks of this host, 2026-11-20T18:00:00Z, a day, or how long ago: 12h, 7d.

CAUSE is why it ran: slot, hand (schedule run), backfill, or chain (--on-success or
--on-failure of another). HOST is where it ran. Of ERROR the beginning is shown, and of
OUTPUT the last line: see dbcron schedule output, or use -o json.`,
		example: `  dbcron schedule history
  dbcron schedule history backup -n 5 -o json
  dbcron schedule history --since 12h --state failed,timeout,lost
  dbcron schedule history --since 2026-11-20T22:00 --until 2026-11-21T06:00`,
		other: func(c *cobra.Command) string {
			flags := c.Flags()
			n, _ := flags.GetInt("count")
			if flags.NArg() == 1 && n <= maxBySlot && !slices.ContainsFunc([]string{"since", "until", "state"}, flags.Changed) {
				return "schedule-history"
			}
			return ""
		},
		before: func(_ context.Context, given values) (err error) {
			name = given["schedule"]
			for _, time := range []string{"since", "until"} {
				if given[time] != "" {
					err = cmp.Or(err, aloneTime(time, given))
				}
			}
			return err
		},
		rows: func(ctx context.Context, rows any, _, output string) error {
			if name != "" && reflect.ValueOf(rows).Len() == 0 {
				// A schedule without runs gives an empty list; an unknown name is an error.
				if _, err := ask[wire.Schedule](ctx, p, "get-schedule", "schedule", name); err != nil {
					return err
				}
			}
			return writeRows(p.out, output, rows)
		},
	})
}

// maxBySlot is how many runs of a schedule are listed by slot at the most.
const maxBySlot = 1000

// timeOrAgo parses a flag that is a time, or a duration before now.
func timeOrAgo(flag, text string, now time.Time) (time.Time, error) {
	if ago, err := plain.ParseDuration(text); err == nil && ago > 0 {
		return now.Add(-ago), nil
	}
	at, _, err := setting.ParseTime(text, time.Local)
	if err != nil {
		return at, usagef("--%s: %v, or how long ago, such as 12h", flag, err)
	}
	return at, nil
}

func (p *program) scheduleOutput() *cobra.Command {
	var follow bool
	var id string
	c := p.twin(twin{
		id: "get-run", use: "output RUN_ID", short: "Print a run's output, also while it runs",
		long: `Print what a run has written to standard output and standard error: all that was
kept of it, which is the first and the last 32 KiB. While it runs, its daemon
brings the table up to date every 3 seconds.

The run's id is in dbcron schedule history, and in the run's environment as
DBCRON_RUN_ID.`,
		example: `  dbcron schedule output 4711
  dbcron schedule output 4711 --follow`,
		before: func(_ context.Context, given values) error {
			id = given["id"]
			return nil
		},
		text: true,
		show: func(ctx context.Context, answer any, _ string) error {
			if !follow {
				return (&printer{out: p.out}).print(answer.(*wire.Run).Output) //nolint:forcetypeassert // what the operation answers with
			}
			r, err := p.follow(ctx, func(ctx context.Context) ([]wire.Run, error) {
				r, err := ask[wire.Run](ctx, p, "get-run", "id", id)
				if err != nil {
					return nil, err
				}
				return []wire.Run{*r}, nil
			})
			if err == nil {
				fmt.Fprintln(p.err, "dbcron: "+r.State+": "+resultOf(r))
			}
			return err
		},
	})
	c.Flags().BoolVarP(&follow, "follow", "f", false, "go on until the run has ended")
	return c
}

// attemptsAt returns a function that returns the attempts at a run's slot that were not seen to end.
func (p *program) attemptsAt(run *wire.Run) func(context.Context) ([]wire.Run, error) {
	from := 1
	return func(ctx context.Context) ([]wire.Run, error) {
		answer, err := p.do(ctx, "list-attempts", values{"id": run.ID, "from": strconv.Itoa(from)})
		if err != nil {
			return nil, err
		}
		all := entriesOf(answer).([]wire.Run) //nolint:forcetypeassert // what the operation answers with
		if len(all) > 0 {
			from = all[len(all)-1].Attempt
		}
		return all, nil
	}
}

func resultOf(w *wire.Run) string {
	r := wireof.RunOf(w)
	return health.Result(&r)
}

// follow prints the growing output of runs until the last of them has ended, and returns that one.
func (p *program) follow(ctx context.Context, look func(context.Context) ([]wire.Run, error)) (*wire.Run, error) {
	printers := map[string]*printer{}
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	var told string
	for looks := 0; ; looks++ {
		found, err := look(ctx)
		if ctx.Err() != nil {
			return nil, errors.New("ended by a signal; the run goes on: dbcron schedule output --follow shows more of it")
		}
		if err != nil {
			return nil, err
		}
		for i := range found {
			r := &found[i]
			if printers[r.ID] == nil {
				printers[r.ID] = &printer{out: p.out}
			}
			if err := printers[r.ID].print(r.Output); err != nil {
				return nil, err
			}
		}
		if len(found) > 0 {
			last := &found[len(found)-1]
			if last.Next.IsZero() {
				return last, nil
			}
			if news := fmt.Sprintf("attempt %d, run %s, is %s", last.Attempt, last.ID, last.State); news != told {
				told, looks = news, 0
				fmt.Fprintln(p.err, "dbcron: "+news)
			}
			if last.State == "waiting" && looks == 20 {
				fmt.Fprintln(p.err, "dbcron: it still waits; dbcron schedule explain tells for what")
			}
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

// A printer prints a growing text, each part once.
type printer struct {
	out   io.Writer
	shown string
}

// print prints what is new. Only head and tail of a long text are kept, so the part shown last may be gone or
// follow another part.
func (pr *printer) print(text string) error {
	const enough = 256 // bytes by which a position is recognized
	rest, ok := strings.CutPrefix(text, pr.shown)
	if !ok {
		end := pr.shown[max(0, len(pr.shown)-enough):]
		if at := strings.LastIndex(text, end); at >= 0 {
			rest = text[at+len(end):]
		} else {
			same := 0
			for same < min(len(text), len(pr.shown)) && text[same] == pr.shown[same] {
				same++
			}
			rest = text[same:]
		}
	}
	pr.shown = text
	if isTerminal(pr.out) {
		rest = harmless(rest)
	}
	_, err := io.WriteString(pr.out, rest)
	return err
}

// pairs formats a map as lines, sorted by key.
func pairs(m map[string]string, between string) string {
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(m)) {
		lines = append(lines, name+between+oneLine(m[name], 1000))
	}
	return strings.Join(lines, "\n")
}
