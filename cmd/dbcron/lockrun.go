package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/dbcron/dbcron/internal/guardian"
	"github.com/dbcron/dbcron/internal/ops/stall"
	"github.com/dbcron/dbcron/internal/plain"
	"github.com/dbcron/dbcron/lock"
)

// Exit codes of dbcron lock run, besides those of its command.
const (
	exitNotAcquired = 75 // EX_TEMPFAIL
	exitLost        = 76
	exitStalled     = 77
	exitSignal      = 128 + int(syscall.SIGTERM)
)

// An exitError ends the program with its own exit code, and prints nothing unless it contains an error.
type exitError struct {
	code int
	err  error
}

func (e exitError) Error() string {
	if e.err == nil {
		return ""
	}
	return e.err.Error()
}

func (e exitError) Unwrap() error { return e.err }

// errWaited is the cause of waits ended by --wait.
var errWaited = errors.New("waited for long enough")

// nohup reports that SIGHUP was ignored at startup. It must be read before main, which catches the signal.
var nohup = signal.Ignored(syscall.SIGHUP)

type lockRunFlags struct {
	options  lock.Options
	wait     time.Duration
	noWait   bool
	conflict int
	slots    int
	grace    time.Duration
	stall    time.Duration
	stallOn  string
	line     string
}

func (p *program) lockRun() *cobra.Command {
	var f lockRunFlags
	c := &cobra.Command{
		Use:   "run NAME [flags] -- COMMAND [ARG…]",
		Short: "Run a command while holding a lock, as flock(1) does",
		Long: `Run a command while holding a lock, as flock(1) does, but on all hosts that share
the database. Locks are exclusive: there are no shared ones. With --slots so many
commands may run at a time.

The lock's lease is renewed while the command runs. If it cannot be, or somebody
has freed the lock by force, the command gets SIGTERM, and SIGKILL before another
can have the lock. When the command ends, what it has left running is killed.

With --stall 5m a command that makes no progress for five minutes is ended in the same
way, and the lock is released. Progress is whatever it writes to stdout or stderr, and a
touch of the file that DBCRON_PROGRESS_FILE names: --stall-file, or one that is made for it.
With --stall stdout and stderr are pipes, whose bytes are passed on as they are: a command
that looks finds no terminal there, and may write in larger pieces.

The command has this one's environment, folder, stdin, stdout and stderr, and
DBCRON_LOCK_NAME, DBCRON_LOCK_FENCE (a number that rises with each holder),
DBCRON_LOCK_DEADLINE (when it has to be done unless the lease is renewed) and, of
a pool, DBCRON_LOCK_SLOT. It has no terminal of its own: see dbcron help lock-run.

SIGTERM, SIGINT, SIGQUIT and SIGHUP are passed on as SIGTERM; a second SIGTERM or SIGINT
kills the command. SIGUSR1 and SIGUSR2 are passed on as they are.

Exit codes: the command's; 128+n if signal n ended it; 126 it cannot be run, 127
it is not found; 75 (or -E) the lock was not acquired; 76 the lock was lost; 77 it
was ended because it made no progress (--stall); 143 ended by a signal before it had the lock; 1 failure; 2 wrong usage or input; 4
there is a pool where a lock is wanted, or the other way round, or one of another
size.`,
		Example: `  dbcron lock run backup -n -- /usr/local/bin/backup --full
  dbcron lock run export --slots 3 -- export-customer 4711
  dbcron lock run import --stall 5m -- import-orders --verbose
  dbcron lock run report -w 5m -c 'make-report | mail -s report boss'`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			argv, err := f.command(c, args)
			if err != nil {
				return err
			}
			if err := f.check(c); err != nil {
				return err
			}
			return p.runLocked(c.Context(), &f, args[0], argv)
		},
	}
	flags := c.Flags()
	durationVar(flags, &f.options.TTL, "ttl", 30*time.Second, "how long a dead holder's lock stays taken")
	flags.VarP(&durationFlag{to: &f.wait}, "wait", "w", "give up if the lock is not free in time (default: wait for ever)")
	flags.BoolVarP(&f.noWait, "no-wait", "n", false, "give up at once if the lock is not free")
	flags.IntVarP(&f.conflict, "conflict-exit-code", "E", exitNotAcquired, "`code` to exit with when giving up")
	flags.IntVar(&f.slots, "slots", 0, "take one of `N` slots; the pool is made if there is none")
	durationVar(flags, &f.options.MinHold, "min-hold", 0, "the lock stays taken for at least this long, even if the command is quicker")
	durationVar(flags, &f.options.MaxHold, "max-hold", 0, "end a command that has run for this long")
	flags.StringVar(&f.options.Meta, "meta", "", "`text` that others see in dbcron lock list")
	durationVar(flags, &f.grace, "kill-grace", 10*time.Second, "time from SIGTERM to SIGKILL")
	durationVar(flags, &f.stall, "stall", 0, "end a command after this long without progress (default: no limit)")
	flags.StringVar(&f.stallOn, "stall-file", "", "`file` that the command touches to show progress (default: one is made)")
	flags.StringVarP(&f.line, "command", "c", "", "a `line` for /bin/sh, instead of a command after --")
	return c
}

// command returns the command to run.
func (f *lockRunFlags) command(c *cobra.Command, args []string) ([]string, error) {
	dash := c.ArgsLenAtDash()
	if c.Flags().Changed("command") {
		if dash >= 0 || len(args) > 1 {
			return nil, usagef("-c takes a whole line; only flags may follow it")
		}
		return []string{"/bin/sh", "-c", f.line}, nil
	}
	if dash != 1 || len(args) < 2 || args[1] == "" {
		return nil, usagef("one name goes before --, and the command after it: %s", c.UseLine())
	}
	return args[1:], nil
}

func (f *lockRunFlags) check(c *cobra.Command) error {
	changed := c.Flags().Changed
	switch {
	case f.noWait && changed("wait"):
		return usagef("--wait and --no-wait exclude each other")
	case f.conflict < 0 || f.conflict > 255:
		return usagef("-E %d: exit codes are from 0 to 255", f.conflict)
	case changed("slots") && f.slots < 1:
		return usagef("--slots %d: use 1 or more", f.slots)
	case changed("max-hold") && f.options.MaxHold <= 0, changed("ttl") && f.options.TTL <= 0:
		return usagef("--ttl and --max-hold must be more than 0")
	}
	if err := checkStall(f.stall, changed("stall")); err != nil {
		return err
	}
	if f.stallOn != "" && f.stall == 0 {
		return usagef("--stall-file needs --stall: after how long without progress the command is ended")
	}
	// Twice the usual rate, because the guardian needs the last third of a lease to end the command: an
	// unanswered renewal can be retried before that.
	f.options.Heartbeat = f.options.TTL / 6
	f.noWait = f.noWait || changed("wait") && f.wait == 0 // as in flock
	if f.grace == 0 {
		f.grace = -1 // none; 0 would mean the default
	}
	return nil
}

// runLocked runs the command under the lock, and returns how the program ends.
func (p *program) runLocked(ctx context.Context, f *lockRunFlags, name string, argv []string) error {
	ctx, stop := p.untilHangup(ctx)
	defer stop()
	passed := make(chan os.Signal, 2)
	signal.Notify(passed, syscall.SIGUSR1, syscall.SIGUSR2)
	defer signal.Stop(passed)
	log, err := newLogger(p.err, "text", slog.LevelInfo)
	if err != nil {
		return err
	}
	f.options.Logger = log
	p.shared = true
	had := false
	err = p.withLocks(ctx, f.options, func(l *lock.Locker) error {
		lease, err := f.acquire(ctx, l, name)
		if err != nil {
			return err
		}
		if ctx.Err() != nil {
			return errors.Join(ctx.Err(), lease.Release(ctx))
		}
		had = true
		return p.underLease(ctx, lease, f, argv, passed)
	})
	switch {
	case had:
		return err
	case ctx.Err() != nil:
		return exitError{exitSignal, fmt.Errorf("ended by a signal before it had the lock %s; nothing was run", name)}
	case errors.Is(err, lock.ErrHeld):
		return exitError{f.conflict, err}
	case errors.Is(err, lock.ErrPool) && f.slots > 0:
		return fmt.Errorf("%w (dbcron lock list shows what there is; dbcron lock resize changes a pool)", err)
	case errors.Is(err, lock.ErrPool):
		return fmt.Errorf("%w with --slots, or use another name", err)
	}
	return err
}

// untilHangup returns a context that SIGQUIT ends, too, which would otherwise end the program and leave the lock, and SIGHUP,
// unless the program was started by nohup.
func (p *program) untilHangup(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := signal.NotifyContext(ctx, syscall.SIGQUIT)
	if !nohup {
		go func() {
			select {
			case <-p.signals.reload:
				cancel()
			case <-ctx.Done():
			}
		}()
	}
	return ctx, cancel
}

// acquire takes the lock or a slot. It first tries without waiting, so that even a short --wait gets a free
// lock, and a failure can name the holder.
func (f *lockRunFlags) acquire(ctx context.Context, l *lock.Locker, name string) (*lock.Lease, error) {
	try := func(ctx context.Context) (*lock.Lease, error) { return l.TryAcquire(ctx, name) }
	wait := func(ctx context.Context) (*lock.Lease, error) { return l.Acquire(ctx, name) }
	if f.slots > 0 {
		pool, err := l.Pool(name, f.slots)
		if err != nil {
			return nil, err
		}
		try, wait = pool.TryAcquire, pool.Acquire
	}
	lease, err := try(ctx)
	var held *lock.HeldError
	if f.noWait || !errors.As(err, &held) {
		return lease, err
	}
	if f.wait > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, f.wait, errWaited)
		defer cancel()
	}
	lease, err = wait(ctx)
	if errors.Is(err, errWaited) {
		errors.As(err, &held) // the holder seen last
		return nil, fmt.Errorf("gave up after %v (--wait): %w", f.wait, held)
	}
	return lease, err
}

// underLease runs the command, releases the lock, and returns the results of both.
func (p *program) underLease(ctx context.Context, lease *lock.Lease, f *lockRunFlags, argv []string, passed <-chan os.Signal) error {
	result, stalled, err := p.guarded(ctx, lease, f, argv, passed)
	released := lease.Release(ctx)
	if errors.Is(err, guardian.ErrPast) {
		result = guardian.Result{Cause: guardian.NotStarted, ExitCode: -1, Err: err}
	} else if err != nil {
		return errors.Join(err, released)
	}
	switch {
	case errors.Is(released, lock.ErrLost):
		return exitError{exitLost, fmt.Errorf("%w; %s", released, ending(result))}
	case result.Cause == guardian.Deadline, errors.Is(result.Err, guardian.ErrPast):
		return exitError{exitLost, fmt.Errorf("%w: %s: it was not renewed in time; %s", lock.ErrLost, lease.Name(), ending(result))}
	case released != nil:
		// The command's result does not depend on it: the lease expires in any case.
		fmt.Fprintf(p.err, "dbcron: warning: the lock stays taken until its lease runs out: %s\n", flat(released.Error()))
	}
	switch {
	case stalled != nil:
		return exitError{exitStalled, fmt.Errorf("%w; %s", stalled, ending(result))}
	case result.Cause == guardian.NotStarted && ctx.Err() != nil:
		return exitError{exitSignal, errors.New("ended by a signal before the command was started")}
	case result.ExitCode < 0:
		return exitError{exitFailure, result.Err}
	case result.ExitCode != 0:
		return exitError{result.ExitCode, result.Err}
	}
	return result.Err
}

// ending describes how the command ended after its lock was lost.
func ending(r guardian.Result) string {
	switch {
	case r.Cause == guardian.NotStarted:
		return "the command was not started"
	case r.Cause == guardian.Exited:
		return fmt.Sprintf("the command had ended by itself (exit code %d), but another may have begun before", r.ExitCode)
	case r.Err != nil:
		return fmt.Sprintf("the command was ended: %v", r.Err)
	}
	return fmt.Sprintf("the command was ended (exit code %d)", r.ExitCode)
}

// guarded runs the command until it ends, its lease ends, or a signal arrives. stalled reports that it made no
// progress.
func (p *program) guarded(ctx context.Context, lease *lock.Lease, f *lockRunFlags, argv []string, passed <-chan os.Signal) (
	r guardian.Result, stalled, err error,
) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(lease.Context(), stop)()
	g := guarded{
		Command: guardian.Command{
			Name: lease.Name(), Argv: argv, Env: lockEnv(p.environ, lease), Grace: f.grace,
			Stdin: fileOf(p.in), Stdout: fileOf(p.out), Stderr: fileOf(p.err),
		},
		ttl: f.options.TTL, left: lease.Left, stop: ctx.Done(), kill: p.signals.again, pass: passed,
		survive: func(pids []int) {
			fmt.Fprintf(p.err, "dbcron: warning: SIGKILL does not end %s, so lock %s is kept until they end; end them as their user, or as root\n",
				plain.Pids(pids), lease.Name())
		},
	}
	if g.stall, err = stall.New(f.stall, f.stallOn); err != nil {
		return r, nil, err
	}
	if g.stall != nil {
		g.Env = g.stall.Environ(g.Env)
		if g.Stdout, g.Stderr, err = g.stall.Relay(p.out, direct(p.err).(io.Writer)); err != nil {
			g.stall.Begin() // there is no start to report
			g.stall.Finish(nil)
			return r, nil, err
		}
	}
	r, err = g.run()
	if r.LeftBehind {
		fmt.Fprintln(p.err, "dbcron: warning: killed processes that the command left running: they would have continued without the lock")
	}
	if g.stalled {
		stalled = g.stall.Err()
	}
	return r, stalled, err
}

// lockEnv returns the caller's environment, plus variables about the lease. Nested locks override the outer
// lock's variables.
func lockEnv(environ []string, lease *lock.Lease) []string {
	env := slices.DeleteFunc(slices.Clone(environ), func(pair string) bool { return strings.HasPrefix(pair, "DBCRON_LOCK_") })
	now := hostNow() // taken first, as for the guardian
	deadline := now.Add(lease.Left()).UTC()
	env = append(env,
		"DBCRON_LOCK_NAME="+lease.Name(),
		fmt.Sprintf("DBCRON_LOCK_FENCE=%d", lease.Fence()),
		"DBCRON_LOCK_DEADLINE="+deadline.Format("2006-01-02T15:04:05.000000Z07:00"))
	if lease.Slot() > 0 {
		env = append(env, fmt.Sprintf("DBCRON_LOCK_SLOT=%d", lease.Slot()))
	}
	return env
}
