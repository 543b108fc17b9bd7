package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/lock"
	"github.com/dbcron/dbcron/wire"
)

func (p *program) lock() *cobra.Command {
	c := &cobra.Command{
		Use:   "lock",
		Short: "Run commands one at a time on all hosts; see and free locks",
		Long: `Run commands one at a time, or N at a time, on all hosts that share the
database. A lock is a lease: its holder renews it, and when the holder dies, it
comes free when its time is over. docs/lock-run.md is for those who know flock(1).`,
	}
	c.AddCommand(p.lockRun(), p.lockList(), p.lockRelease(), p.lockResize(), p.lockPurge())
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
    closed    a slot that its pool no longer has`,
	})
}

type lockReleaseFlags struct {
	force       bool
	reason, who string
	slot        int
}

func (p *program) lockRelease() *cobra.Command {
	var f lockReleaseFlags
	c := &cobra.Command{
		Use:   "release NAME --force --reason TEXT",
		Short: "Free a lock whose holder is dead, before its lease runs out",
		Long: `Free a lock, or a slot of a pool, whoever holds it, and record who did that,
when and why.

Only for holders that are dead: one that is alive goes on until it next renews its
lease (within 5 seconds, if --ttl is 30s), and another may have the lock by then.
Without --force nothing is done but to say whose the lock is.`,
		Example: `  dbcron lock release backup --force --reason 'db3 has burnt down'`,
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return p.withLocks(c.Context(), lock.Options{}, func(l *lock.Locker) error { return p.releaseLock(c.Context(), l, args[0], f) })
		},
	}
	flags := c.Flags()
	flags.BoolVar(&f.force, "force", false, "free it although it is held")
	flags.StringVar(&f.reason, "reason", "", "why, for others to read later")
	flags.IntVar(&f.slot, "slot", 0, "which slot, of a pool")
	flags.StringVar(&f.who, "by", "", "who frees it (default: user@host)")
	return c
}

func (p *program) releaseLock(ctx context.Context, l *lock.Locker, name string, f lockReleaseFlags) error {
	if !f.force {
		return p.refuseRelease(ctx, l, name, f.slot)
	}
	if f.reason == "" {
		return usagef("--force needs --reason, for others to read later")
	}
	was, err := l.ForceRelease(ctx, name, f.slot, cmp.Or(f.who, whoami()), f.reason)
	if errors.Is(err, lock.ErrPool) {
		return usagef("%s is a pool: say with --slot which slot (dbcron lock list shows them)", name)
	}
	if err != nil {
		return err
	}
	text := holding(was)
	if p.say("released", text != ""); text != "" {
		p.say("by", was.By)
		p.say("fence", strconv.FormatInt(was.Fence, 10)) // a string: JSON readers round large numbers
		object := name
		if f.slot != 0 {
			object += fmt.Sprint("/", f.slot)
		}
		_ = p.did(ctx, nil, "lock.release", object, 1, f.reason)
		fmt.Fprintf(p.err, "dbcron: released %s (fence %d)\n", text, was.Fence)
		return nil
	}
	fmt.Fprintf(p.err, "dbcron: nothing to release: %s\n", unheld(was))
	return nil
}

// refuseRelease says who holds a lock.
func (p *program) refuseRelease(ctx context.Context, l *lock.Locker, name string, slot int) error {
	rows, err := l.Get(ctx, name)
	if err != nil {
		return err
	}
	found, text := false, ""
	for _, i := range rows {
		if slot != 0 && i.Slot != slot {
			continue
		}
		found = true
		if held := holding(i); held != "" {
			text += "\n  " + held
		}
	}
	if !found {
		return fmt.Errorf("%w: %s has no slot %d", lock.ErrNotFound, name, slot)
	}
	if text == "" {
		fmt.Fprintf(p.err, "dbcron: nothing to release: nobody holds %s\n", name)
		return nil
	}
	return usagef("a lock comes free when its holder is done, or when its lease ends:%s\n"+
		"--force is for holders that are dead: one that is alive goes on until it next renews its lease, while another may begin", text)
}

// holding describes the holder of a lock, or returns "" if there is none.
func holding(i lock.Info) string {
	if i.State != lock.Held && i.State != lock.Kept && i.State != lock.Expired {
		return ""
	}
	return fmt.Sprintf("%s, %s by %s since %s, until %s", seat(i), i.State, i.By,
		i.Since.Format(time.RFC3339), i.Until.Format(time.RFC3339))
}

func unheld(i lock.Info) string { return fmt.Sprintf("%s is %s", seat(i), i.State) }

func seat(i lock.Info) string {
	if i.Slot == 0 {
		return i.Name
	}
	return fmt.Sprintf("slot %d of %s", i.Slot, i.Name)
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
	return &cobra.Command{
		Use:   "resize NAME N",
		Short: "Change how many slots a pool has, or make it",
		Long: `Change how many slots a pool has, or make it. At no time are there more holders
than slots: a pool of which more are held than are to stay is left as it is (exit
code 4). Commands that still ask for the old size (dbcron lock run --slots) are
refused from then on.`,
		Example: `  dbcron lock resize export 5`,
		Args:    cobra.ExactArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			size, err := strconv.Atoi(args[1])
			if err != nil {
				return usagef("%q is no number of slots", args[1])
			}
			return p.withLocks(c.Context(), lock.Options{}, func(l *lock.Locker) error {
				pool, err := l.Pool(args[0], 0)
				if err != nil {
					return err
				}
				return p.did(c.Context(), pool.Resize(c.Context(), size), "lock.resize", args[0], 1, fmt.Sprint("to ", size))
			})
		},
	}
}

func (p *program) lockPurge() *cobra.Command {
	var unused time.Duration
	c := &cobra.Command{
		Use:   "purge --unused DURATION",
		Short: "Forget locks that nobody has used for long, and print how many",
		Long: `Forget locks that have been free and unused for longer than the time given, and
print how many. Their fences go on rising if they are used again. Pools stay.

Only programs that make up names need it; a few locks with a name of their own
can stay for ever.`,
		Example: `  dbcron lock purge --unused 720h`,
		RunE: func(c *cobra.Command, _ []string) error {
			if !c.Flags().Changed("unused") {
				return usagef("%s needs --unused, such as --unused 720h", c.CommandPath())
			}
			return p.withLocks(c.Context(), lock.Options{}, func(l *lock.Locker) error {
				so := p.begin(c.Context(), task{what: "forgetting locks"})
				n, err := l.Purge(c.Context(), unused)
				so.end()
				if err := p.did(c.Context(), err, "lock.purge", "", int(n), fmt.Sprint("unused for ", unused)); err != nil {
					return err
				}
				p.say("purged", n)
				_, err = fmt.Fprintf(p.out, "purged %d locks\n", n)
				return err
			})
		},
	}
	durationVar(c.Flags(), &unused, "unused", 0, "how long they have not been used; a minute at least")
	return c
}
