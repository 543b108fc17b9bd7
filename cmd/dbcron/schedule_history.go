package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/internal/ops/health"
	"github.com/dbcron/dbcron/internal/ops/wireof"
	"github.com/dbcron/dbcron/internal/plain"
	"github.com/dbcron/dbcron/internal/setting"
	"github.com/dbcron/dbcron/scheduler"
	"github.com/dbcron/dbcron/wire"
)

// A runRow is what a table shows of a run.
type runRow struct {
	ID       string    `table:"id"`
	Schedule string    `table:"schedule"`
	Due      time.Time `table:"due"`
	Slots    int64     `table:"slots"`
	Attempt  int       `table:"attempt"`
	Cause    string    `table:"cause"`
	State    string    `table:"state"`
	Exit     *int      `table:"exit code"`
	Seconds  string    `table:"seconds"`
	Error    string    `table:"error"`
	Output   string    `table:"output"`
}

func newRunRow(r *scheduler.Run) runRow {
	row := runRow{
		ID: wire.ID(r.ID), Schedule: r.Schedule, Due: r.Due, Slots: r.Slots, Attempt: r.Attempt, Cause: r.Cause, State: r.State,
		Seconds: "-", Error: r.Error, Output: r.Output,
	}
	if r.ExitCode >= 0 {
		row.Exit = &r.ExitCode
	}
	if !r.Started.IsZero() && !r.Finished.IsZero() {
		row.Seconds = fmt.Sprintf("%.3f", r.Finished.Sub(r.Started).Seconds())
	}
	return row
}

func (p *program) scheduleHistory() *cobra.Command {
	var output string
	var n int
	var f historyFlags
	c := &cobra.Command{
		Use:   "history [NAME]",
		Short: "List the newest runs, with what became of them",
		Long: `List the newest runs, with what became of them: of one schedule by slot, or of all
in the order in which they were made. Runs of schedules that were deleted are
there too. The states:

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
--on-failure of another). Only the beginning of ERROR and OUTPUT is shown: see
dbcron schedule output, or use -o json.`,
		Example: `  dbcron schedule history
  dbcron schedule history backup -n 5 -o json
  dbcron schedule history --since 12h --state failed,timeout,lost
  dbcron schedule history --since 2026-11-20T22:00 --until 2026-11-21T06:00`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if n < 1 || n > 100_000 {
				return usagef("-n %d: use 1 to 100000", n)
			}
			name := strings.Join(args, "")
			return p.with(c.Context(), func(db *dialect.DB) error { return p.listRuns(c.Context(), db, name, n, &f, output) })
		},
	}
	c.Flags().IntVarP(&n, "count", "n", 20, "how many runs")
	c.Flags().StringVar(&f.since, "since", "", "runs that had not ended before that time, or so long ago")
	c.Flags().StringVar(&f.until, "until", "", "runs that began before that time, or so long ago")
	c.Flags().StringSliceVar(&f.states, "state", nil, "runs in one of these states, with commas between")
	outputFlag(c, &output)
	return c
}

// historyFlags select the listed runs.
type historyFlags struct {
	since, until string
	states       []string
}

// filter parses the flags. now is the database's time.
func (f *historyFlags) filter(now time.Time) (scheduler.RunFilter, error) {
	r := scheduler.RunFilter{States: f.states}
	for _, state := range f.states {
		if !slices.Contains(scheduler.RunStates, state) {
			return r, usagef("--state %q is not known; use %s", state, strings.Join(scheduler.RunStates, ", "))
		}
	}
	for _, t := range []struct {
		flag, text string
		at         *time.Time
	}{{"since", f.since, &r.Since}, {"until", f.until, &r.Until}} {
		if t.text == "" {
			continue
		}
		var err error
		if *t.at, err = timeOrAgo(t.flag, t.text, now); err != nil {
			return r, err
		}
	}
	if !r.Until.IsZero() && !r.Since.Before(r.Until) {
		return r, usagef("--until %s is not after --since %s", f.until, f.since)
	}
	return r, nil
}

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

// findRuns returns the newest runs that the flags select, with their output.
func findRuns(ctx context.Context, db *dialect.DB, name string, n int, f *historyFlags) (all []scheduler.Run, err error) {
	if f.since == "" && f.until == "" && len(f.states) == 0 {
		return scheduler.History(ctx, db, name, n)
	}
	now, err := scheduler.Clock(ctx, db)
	if err != nil {
		return nil, err
	}
	filter, err := f.filter(now)
	if err != nil {
		return nil, err
	}
	filter.Schedule = name
	for more := int64(1); more > 0 && len(all) < n; filter.Before = more {
		var page []scheduler.Run
		filter.Limit = min(n-len(all), 1000)
		if page, more, err = scheduler.RecentRuns(ctx, db, filter); err != nil {
			return nil, err
		}
		for i := range page {
			run, err := scheduler.GetRun(ctx, db, page[i].ID)
			if errors.Is(err, scheduler.ErrNoRun) { // deleted meanwhile
				continue
			}
			if err != nil {
				return nil, err
			}
			all = append(all, run)
		}
	}
	return all, nil
}

func (p *program) listRuns(ctx context.Context, db *dialect.DB, name string, n int, f *historyFlags, output string) error {
	found, err := findRuns(ctx, db, name, n, f)
	if err != nil {
		return err
	}
	if len(found) == 0 && name != "" {
		// A schedule without runs gives an empty list; an unknown name is an error.
		if _, err := scheduler.Get(ctx, db, name); err != nil {
			return err
		}
	}
	return writeEach(p.out, output, found, wireof.Run, newRunRow)
}

func (p *program) scheduleOutput() *cobra.Command {
	var follow bool
	c := &cobra.Command{
		Use:   "output RUN_ID",
		Short: "Print a run's output, also while it runs",
		Long: `Print what a run has written to standard output and standard error: all that was
kept of it, which is the first and the last 32 KiB. While it runs, its daemon
brings the table up to date every 3 seconds.

The run's id is in dbcron schedule history, and in the run's environment as
DBCRON_RUN_ID.`,
		Example: `  dbcron schedule output 4711
  dbcron schedule output 4711 --follow`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			id, err := runID(args[0])
			if err != nil {
				return err
			}
			return p.with(c.Context(), func(db *dialect.DB) error { return p.printOutput(c.Context(), db, id, follow) })
		},
	}
	c.Flags().BoolVarP(&follow, "follow", "f", false, "go on until the run has ended")
	return c
}

func runID(text string) (int64, error) {
	id, err := strconv.ParseInt(text, 10, 64)
	if err != nil || id < 1 {
		return 0, usagef("%q is not a run's id; dbcron schedule history shows them", text)
	}
	return id, nil
}

func (p *program) printOutput(ctx context.Context, db *dialect.DB, id int64, follow bool) error {
	look := func(ctx context.Context) ([]scheduler.Run, error) {
		r, err := scheduler.GetRun(ctx, db, id)
		return []scheduler.Run{r}, err
	}
	if !follow {
		found, err := look(ctx)
		if err != nil {
			return err
		}
		return (&printer{out: p.out}).print(found[0].Output)
	}
	r, err := p.follow(ctx, look)
	if err == nil {
		fmt.Fprintln(p.err, "dbcron: "+r.State+": "+health.Result(r))
	}
	return err
}

// follow prints the growing output of runs until the last of them has ended, and returns that one.
func (p *program) follow(ctx context.Context, look func(context.Context) ([]scheduler.Run, error)) (*scheduler.Run, error) {
	printers := map[int64]*printer{}
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
			if health.Ended(last) {
				return last, nil
			}
			if news := fmt.Sprintf("attempt %d, run %d, is %s", last.Attempt, last.ID, last.State); news != told {
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
