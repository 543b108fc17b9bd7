package main

import (
	"context"
	"fmt"
	"os"
	"os/user"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/internal/ops/health"
	"github.com/dbcron/dbcron/lock"
	"github.com/dbcron/dbcron/wire"
)

func (p *program) lock() *cobra.Command {
	c := &cobra.Command{
		Use:   "lock",
		Short: "Run commands one at a time on all hosts; see and free locks",
		Long: `Run commands one at a time, or N at a time, on all hosts that share the
database. A lock is a lease: its holder renews it, and when the holder dies, it
comes free when its time is over. dbcron help lock-run is for those who know flock(1).`,
	}
	c.AddCommand(p.lockRun())
	if len(p.args) < 2 || p.args[0] != "lock" || p.args[1] != "run" { // which crontabs start by the thousand, and needs nothing of the API
		c.AddCommand(p.lockList(), p.lockRelease(), p.lockResize(), p.lockPurge())
	}
	return c
}

// withLocks opens the database for a command about locks.
func (p *program) withLocks(ctx context.Context, opt lock.Options, f func(l *lock.Locker) error) error {
	return p.with(ctx, func(db *dialect.DB) error {
		l, err := lock.New(db, opt)
		if err != nil {
			return err
		}
		return f(l)
	})
}

// A lockRow is what a table shows of a lock.
type lockRow struct {
	Name  string       `table:"name"`
	Slot  *int         `table:"slot"`
	State string       `table:"state"`
	By    string       `table:"by"`
	Since wire.Instant `table:"since"`
	Until wire.Instant `table:"until"`
	Left  string       `table:"left"` // in seconds
	Fence string       `table:"fence"`
	Meta  string       `table:"meta"`
}

func newLockRow(l *wire.Lock) lockRow {
	row := lockRow{Name: l.Name, State: l.State, By: l.By, Since: l.Since, Until: l.Until, Left: "-", Fence: l.Fence, Meta: l.Meta}
	if l.Slot > 0 {
		row.Slot = &l.Slot
	}
	if l.Left > 0 {
		row.Left = strconv.FormatFloat(l.Left, 'f', 1, 64)
	}
	return row
}

func (p *program) lockList() *cobra.Command {
	return p.twin(twin{
		id: "list-locks", use: "list", short: "List the locks, and whose they are",
		example: `  dbcron lock list
  dbcron lock list -o jsonl`,
		long: `List the locks, and whose they are. Of a lock that is free, the last holder is
shown. The states:

    held      by a holder that renews it
    kept      its holder is done; it comes free when its minimum hold is over
    expired   its holder died, or was cut off; it can be taken
    free      nobody has it
    pool      stands for a pool, whose slots follow
    closed    a slot that its pool no longer has

If the database's clock went back, stderr has the locks that nobody has renewed since.`,
		rows: func(_ context.Context, rows any, _, output string) error {
			if err := writeRows(p.out, output, rows); err != nil {
				return err
			}
			for _, l := range rows.([]wire.Lock) { //nolint:forcetypeassert // what the operation answers with
				if text := outlasting(&l); text != "" {
					fmt.Fprintf(p.err, "dbcron: %s: %s\n", oneLine(seat(&l), 200), text)
				}
			}
			return nil
		},
	})
}

// outlasting says of a lock that is held for longer than its holder has said that the database's clock went back, or returns "".
func outlasting(l *wire.Lock) string {
	if l.Ahead == 0 || l.State != string(lock.Held) && l.State != string(lock.Kept) {
		return ""
	}
	return fmt.Sprintf("%s, and nobody has renewed it since, so it is held until %s, or for a lease after somebody wants it; if its holder is dead: dbcron lock release %s --force --reason TEXT",
		health.WentBack(time.Duration(l.Ahead*float64(time.Second))), l.Until.Format(time.RFC3339), oneLine(l.Name, 200))
}

func (p *program) lockRelease() *cobra.Command {
	var force bool
	c := p.twin(twin{
		id: "force-release-lock", use: "release NAME --force --reason TEXT", short: "Free a lock whose holder is dead, before its lease runs out",
		long: `Free a lock, or a slot of a pool, by force, and record who did that,
when and why.

Only for holders that are dead: one that is alive goes on until it next renews its
lease (within 5 seconds, if --ttl is 30s), and another may have the lock by then.
Without --force nothing is done but to say whose the lock is.`,
		example: `  dbcron lock release backup --force --reason 'db3 has burnt down'`,
		before:  func(ctx context.Context, given values) error { return p.mayRelease(ctx, given, force) },
		then: func(_ context.Context, answer any) error {
			was := answer.(*wire.Lock) //nolint:forcetypeassert // what the operation answers with
			text := holding(was)
			p.say("released", text != "")
			if text == "" {
				fmt.Fprintf(p.err, "dbcron: nothing to release: %s is %s\n", seat(was), was.State)
				return nil
			}
			fmt.Fprintf(p.err, "dbcron: released %s (fence %s)\n", text, was.Fence)
			return nil
		},
	})
	c.Flags().BoolVar(&force, "force", false, "free it although it is held")
	return c
}

// mayRelease refuses to release a lock without --force, and says who holds it.
func (p *program) mayRelease(ctx context.Context, given values, force bool) error {
	answer, err := p.do(ctx, "get-lock", values{"lock": given["lock"]})
	if err != nil {
		return err
	}
	name, slot := given["lock"], given["slot"]
	rows := entriesOf(answer).([]wire.Lock) //nolint:forcetypeassert // what the operation answers with
	if slot != "" && slot != "0" {
		rows = slices.DeleteFunc(rows, func(l wire.Lock) bool { return strconv.Itoa(l.Slot) != slot })
	} else if force && rows[0].State == string(lock.Head) {
		return usagef("%s is a pool: say with --slot which slot (dbcron lock list shows them)", name)
	}
	var held string
	for i := range rows {
		if text := holding(&rows[i]); text != "" {
			held += "\n  " + text
		}
	}
	switch {
	case len(rows) == 0:
		return fmt.Errorf("%w: %s has no slot %s", lock.ErrNotFound, name, slot)
	case force && given["reason"] == "":
		return usagef("--force needs --reason, for others to read later")
	case force:
		return nil
	case held == "":
		fmt.Fprintf(p.err, "dbcron: nothing to release: nobody holds %s\n", name)
		return errNothing
	}
	return usagef("a lock comes free when its holder is done, or when its lease ends:%s\n"+
		"--force is for holders that are dead: one that is alive goes on until it next renews its lease, while another may begin", held)
}

// holding describes the holder of a lock, or returns "" if there is none.
func holding(l *wire.Lock) string {
	if !slices.Contains([]lock.State{lock.Held, lock.Kept, lock.Expired}, lock.State(l.State)) {
		return ""
	}
	text := fmt.Sprintf("%s, %s by %s since %s, until %s", seat(l), l.State, l.By, l.Since.Format(time.RFC3339), l.Until.Format(time.RFC3339))
	if l.Ahead > 0 {
		text += " (" + health.WentBack(time.Duration(l.Ahead*float64(time.Second))) + " since)"
	}
	return text
}

func seat(l *wire.Lock) string {
	if l.Slot == 0 {
		return l.Name
	}
	return fmt.Sprintf("slot %d of %s", l.Slot, l.Name)
}

// whoami identifies the user of this command to others.
func whoami() string {
	name, host := "unknown", "localhost"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if h, err := os.Hostname(); err == nil {
		host = h
	}
	return name + "@" + host
}

func (p *program) lockResize() *cobra.Command {
	return p.twin(twin{
		id: "resize-lock", use: "resize NAME N",
		long: `Change how many slots a pool has, or make it. At no time are there more holders
than slots: a pool of which more are held than are to stay is left as it is (exit
code 4). Commands that still ask for the old size (dbcron lock run --slots) are
refused from then on.`,
		example: `  dbcron lock resize export 5`,
	})
}

func (p *program) lockPurge() *cobra.Command {
	return p.twin(twin{
		id: "purge-locks", use: "purge --unused DURATION", short: "Delete locks that have not been used for long, and print how many",
		long: `Forget locks that have been free and unused for longer than the time given, and
print how many. Their fences go on rising if they are used again. Pools stay.

Only programs that make up names need it; a few locks with a name of their own
can stay for ever.`,
		example: `  dbcron lock purge --unused 720h`,
		takes:   "forgetting locks", must: map[string]string{"unused": "720h"},
		then: func(_ context.Context, answer any) error {
			_, err := fmt.Fprintf(p.out, "purged %d locks\n", answer.(*wire.LocksPurged).Purged) //nolint:forcetypeassert // what the operation answers with
			return err
		},
	})
}
