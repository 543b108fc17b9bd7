package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/internal/guardian"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/queue/admin"
)

func (p *program) worker() *cobra.Command {
	c := &cobra.Command{
		Use:   "worker",
		Short: "Do jobs with a command",
		Long: `Do jobs with a command, in whatever language. Programs in Go do them with the
package queue. dbcron help queue-cli has examples.`,
	}
	c.AddCommand(p.workerExec())
	return c
}

// maxInBatch limits the jobs of one command.
const maxInBatch = 1000

type workerFlags struct {
	options   queue.WorkerOptions
	timeout   time.Duration
	killGrace time.Duration
	stall     time.Duration
	batch     int
	result    bool
	drain     bool
	kinds     []string
	doorbell  string
	logs      string
}

func (p *program) workerExec() *cobra.Command {
	var f workerFlags
	c := &cobra.Command{
		Use:   "exec [flags] -- COMMAND [ARG…]",
		Short: "Run a command for each job of a queue",
		Long: `Run a command for each job of a queue, of whatever kind. Any number of workers may
share a queue. With --kind it does jobs of these kinds only, and leaves the others to workers
that do them.

The command finds the job's payload on stdin, byte for byte, and beside this one's
environment DBCRON_JOB_ID, DBCRON_QUEUE, DBCRON_KIND, DBCRON_KEY and DBCRON_TENANT (empty if
it has none), DBCRON_GROUP, DBCRON_CALLBACK_OF (the group whose end it tells), DBCRON_ATTEMPT
(from 1), DBCRON_MAX_ATTEMPTS and, if the job has one, TRACEPARENT. Its exit code says what becomes of the job:

    0      it is done
    100    it is discarded: it is not tried again, and leaves no trace but the log
    other  it has failed, and is tried again as the queue's settings say; the end of
           what the command has written is kept as the error (dbcron job get)

A command that was told to end has not done its job, whatever its exit code: one that
took too long has failed; one that was ended because the worker stops, or has lost the
job, is done again. When the command ends, what it has left running is killed.

With --stall 5m a command that makes no progress for five minutes is ended, with all that it
has started, and its job has failed, and is tried again. Progress is whatever it writes, and a
touch of the file that DBCRON_PROGRESS_FILE names.

With --batch N the command is run for up to N jobs that are ready. It finds each as a line
of JSON on stdin, with id, queue, kind, key, payload (or payload_base64), attempt,
max_attempts, group, callback_of and trace, and writes a line of JSON to stdout for each: its
"id", and nothing else if it is done. "error", "retry_after", "dead", "discard" and
"result" say something else, as over HTTP. A job of which it has said nothing when it ends
has failed, whatever the exit code. It also finds DBCRON_BATCH, the number of jobs.

With --result what the command has written to stdout is the job's result: JSON, or else a
text. It is kept in the job's group, and in queues that keep done jobs.

With --drain it ends when none of the queue's jobs is ready or due, but for those that
wait for another of their key, and those of a paused queue. What other workers have
begun to run for long is not waited for; retries are left to the next call.

The first SIGTERM, SIGINT or SIGHUP starts no more jobs and lets those that run end
(--grace); then they get SIGTERM, after a second SIGKILL, and are handed over. A
second SIGTERM or SIGINT kills them at once.

Exit codes: 0 ended by a signal, or (--drain) nothing is left, whatever came of the
jobs; 126 the command cannot be run, 127 it is not found: no job is begun then; 1
failure, also ended by a signal with --drain; 2 wrong usage or input.`,
		Example: `  dbcron worker exec --queue mail --concurrency 4 -- /usr/local/bin/send-mail
  dbcron worker exec --queue rows --batch 100 -- python3 load.py
  dbcron worker exec --queue import --stall 5m -- import-orders --verbose
  dbcron worker exec --queue photos --drain --timeout 5m -- sh -c 'convert - "thumb/$DBCRON_JOB_ID.png"'`,
		Args: cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			if c.ArgsLenAtDash() != 0 || len(args) == 0 || args[0] == "" {
				return usagef("the command goes after --: %s", c.UseLine())
			}
			if err := f.check(c); err != nil {
				return err
			}
			return p.runWorker(c.Context(), &f, args)
		},
	}
	f.register(c.Flags())
	return c
}

func (f *workerFlags) register(flags *pflag.FlagSet) {
	flags.StringArrayVar(&f.options.Queues, "queue", []string{usualQueueName}, "`name` of the jobs' queue; may be repeated")
	flags.StringArrayVar(&f.kinds, "kind", nil, "a `kind` of jobs that it does; may be repeated (default: all)")
	flags.BoolVar(&f.options.BuryUnknown, "bury-unknown", false, "with --kind: make jobs of other kinds dead letters, instead of leaving them to others")
	flags.IntVar(&f.options.Concurrency, "concurrency", 1, "how many jobs are done at a time")
	flags.IntVar(&f.batch, "batch", 0, "run the command for up to `N` jobs at once: each is a line of JSON on stdin, and its outcome one on stdout")
	flags.BoolVar(&f.result, "result", false, "what the command writes to stdout is the job's result")
	flags.BoolVar(&f.drain, "drain", false, "end when nothing is ready or due")
	durationVar(flags, &f.timeout, "timeout", 0, "how long an attempt may take, if the job and the queue do not say less (default: no limit)")
	durationVar(flags, &f.stall, "stall", 0, "end a command after this long without progress (default: no limit)")
	durationVar(flags, &f.options.Lease, "lease", queue.DefaultLease, "how long a dead worker's jobs wait for another one")
	graceFlag(flags, &f.options.Grace, "how long running commands may go on when the worker is stopped, or forever")
	durationVar(flags, &f.killGrace, "kill-grace", 10*time.Second, "time from SIGTERM to SIGKILL")
	doorbellFlag(flags, &f.doorbell)
	flags.StringVar(&f.logs, "log-format", "auto", "text, json, or auto: text on a terminal")
}

func (f *workerFlags) check(c *cobra.Command) error {
	for _, name := range f.options.Queues {
		if err := sqlrun.CheckName(name); err != nil {
			return usagef("the queue's %v", err)
		}
	}
	for i, kind := range f.kinds {
		if err := sqlrun.CheckName(kind); err != nil {
			return usagef("the kind's %v", err)
		}
		if slices.Contains(f.kinds[:i], kind) {
			return usagef("--kind %s is there twice", kind)
		}
	}
	switch {
	case f.options.BuryUnknown && len(f.kinds) == 0:
		return usagef("--bury-unknown is about jobs of other kinds than those of --kind")
	case f.options.Concurrency < 1:
		return usagef("--concurrency %d: use 1 or more", f.options.Concurrency)
	case c.Flags().Changed("batch") && (f.batch < 1 || f.batch > maxInBatch):
		return usagef("--batch %d: use 1 to %d", f.batch, maxInBatch)
	case f.batch > 0 && f.result:
		return usagef("--result is for a command that does one job; with --batch an outcome has its result: {\"id\": …, \"result\": …}")
	case f.options.Lease < time.Second:
		return usagef("--lease %v: use 1s or more", f.options.Lease)
	case c.Flags().Changed("timeout") && f.timeout <= 0:
		return usagef("--timeout must be more than 0")
	}
	if err := checkStall(f.stall, c.Flags().Changed("stall")); err != nil {
		return err
	}
	// None; 0 would mean the default.
	if f.options.Grace == 0 {
		f.options.Grace = -1
	}
	if f.killGrace == 0 {
		f.killGrace = -1
	}
	// Commands are slow, so acknowledge each: a crash repeats only the running ones, and few jobs are
	// quarantined with them.
	f.options.AckEach = true
	f.options.Batch = max(min(100, 10+2*f.options.Concurrency), f.batch)
	return nil
}

func (p *program) runWorker(ctx context.Context, f *workerFlags, argv []string) error {
	log, err := newLogger(p.err, f.logs, slog.LevelInfo)
	if err != nil {
		return err
	}
	if _, code, err := guardian.LookPath(argv[0], p.environ); err != nil {
		return exitError{code, err}
	}
	ctx, stop := p.untilHangup(ctx)
	defer stop()
	var failed error
	err = p.with(ctx, func(db *dialect.DB) error {
		c, err := queue.New(db, queue.Options{Version: version, Logger: log, Doorbell: doorbellAt(f.doorbell)})
		if err == nil {
			err = p.tellNew(ctx, c, f.options.Queues)
		}
		if err != nil {
			return err
		}
		failed, err = p.work(ctx, c, f, argv, log)
		return errors.Join(err, c.Flush(context.WithoutCancel(ctx)))
	})
	switch {
	case failed != nil:
		return failed
	case ctx.Err() != nil && (err == nil || errors.Is(err, ctx.Err())):
		log.Info("stopped")
		if f.drain {
			return errors.New("ended by a signal before all was done; the rest is left to the next call")
		}
		return nil
	}
	return err
}

// tellNew lists queues that do not exist yet: their names may be mistyped.
func (p *program) tellNew(ctx context.Context, client *queue.Client, names []string) error {
	c, err := admin.New(client.DB(), admin.Options{})
	if err != nil {
		return err
	}
	for _, name := range names {
		switch _, err := c.Queue(ctx, name); {
		case errors.Is(err, queue.ErrNotFound):
			fmt.Fprintf(p.err, "dbcron: there was no queue %s yet; it is made now\n", name)
		case err != nil:
			return err
		}
	}
	return nil
}

// work runs the worker. Separately it returns why the command cannot be run any more.
func (p *program) work(ctx context.Context, c *queue.Client, f *workerFlags, argv []string, log *slog.Logger) (failed, err error) {
	w, err := c.Worker(f.options)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	x := executor{p: p, c: c, flags: f, argv: argv, log: log, cancel: cancel, stopping: ctx}
	if err := x.register(w); err != nil {
		return nil, err
	}
	log.Info("working", "queues", f.options.Queues, "concurrency", f.options.Concurrency, "version", version)
	run := w.Run
	if f.drain {
		run = w.RunOnce
	}
	err = run(ctx)
	var exit exitError
	if errors.As(context.Cause(ctx), &exit) {
		return exit, err
	}
	return nil, err
}
