package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/dbcron/dbcron/internal/guardian"
	"github.com/dbcron/dbcron/internal/ops/stall"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/wire"
)

// exitDiscard is the exit code with which a command discards its job.
const exitDiscard = 100

const (
	keepOutput = 16 << 10 // bytes of a command's output, enough to include its end
	keepError  = 3000     // bytes of it in the job's error
)

// handOverKill is the kill grace of a command whose worker stops: the worker hands the job over after two seconds.
const handOverKill = time.Second

// An executor does jobs by running a command.
type executor struct {
	p        *program
	c        *queue.Client
	flags    *workerFlags
	argv     []string
	log      *slog.Logger
	stopping context.Context // ends when no more jobs are started
	cancel   context.CancelCauseFunc
}

// register has the command do the jobs of a worker: all, or those of some kinds.
func (x *executor) register(w *queue.Worker) (err error) {
	batch := queue.BatchOptions{Max: x.flags.batch}
	switch {
	case len(x.flags.kinds) == 0 && batch.Max > 0:
		return w.HandleOtherBatches(batch, x.doBatch)
	case len(x.flags.kinds) == 0:
		return w.HandleOthers(x.do)
	}
	for _, kind := range x.flags.kinds {
		if batch.Max > 0 {
			err = w.HandleBatch(kind, batch, x.doBatch)
		} else {
			err = w.Handle(kind, x.do)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// do is the handler of all its kinds.
func (x *executor) do(ctx context.Context, d *queue.Delivery) error {
	result := x.flags.result && d.KeepsResult()
	r, stdout, err := x.run(ctx, d.Queue+" "+d.Kind, x.environment(d), string(d.Payload), d.Left, result)
	if r.LeftBehind {
		x.log.Warn("killed processes that the command left running", "queue", d.Queue, "kind", d.Kind, "id", d.ID)
	}
	if err = x.outcome(ctx, d, r, err); err == nil && result {
		err = setResult(d, stdout)
	}
	return err
}

// run runs the command. It returns its stdout separately if that is captured.
func (x *executor) run(ctx context.Context, name string, env []string, input string, left func() time.Duration,
	captured bool,
) (r guardian.Result, stdout []byte, err error) {
	if limit := x.flags.timeout; limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, limit, fmt.Errorf("it took longer than %v (--timeout)", limit))
		defer cancel()
	}
	killed, kill := context.WithCancel(context.Background())
	defer kill()
	defer context.AfterFunc(ctx, func() {
		if x.stopping.Err() != nil {
			time.AfterFunc(handOverKill, kill)
		}
	})()
	again := make(chan struct{}) // ends the goroutine
	defer close(again)
	go func() {
		select {
		case <-x.p.signals.again:
			kill()
		case <-again:
		}
	}()
	g := guarded{
		Command: guardian.Command{Name: name, Argv: x.argv, Env: env, Input: input, Grace: x.flags.killGrace, MaxOutput: keepOutput},
		ttl:     x.flags.options.Lease, left: left, stop: ctx.Done(), kill: killed.Done(),
		survive: func(pids []int) {
			x.log.Warn("a job's command cannot be killed: the job runs on until it ends; end it as its user, or as root",
				"job", name, "pids", pids)
		},
	}
	var out *capture
	if captured {
		if out, err = newCapture(); err != nil {
			return r, nil, err
		}
		defer out.close()
		g.Stdout = out.file
	}
	if g.stall, err = stall.New(x.flags.stall, ""); err != nil {
		return r, nil, err
	}
	if g.Env = g.stall.Environ(env); g.stall != nil {
		g.stall.Grows = g.Stdout
	}
	if r, err = g.run(); err == nil {
		err = r.Err
	}
	if err == nil && g.stalled {
		err = g.stall.Err()
	}
	if err == nil && r.Cause != guardian.Exited && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if out != nil {
		var e error
		if stdout, e = out.read(); err == nil {
			err = e
		}
	}
	return r, stdout, err
}

// outcome returns the outcome of the job.
func (x *executor) outcome(ctx context.Context, d *queue.Delivery, r guardian.Result, err error) error {
	failure := errors.New(endOf(r))
	switch {
	case errors.Is(err, guardian.ErrPast):
		return queue.Snooze(0) // it was not started
	case r.Cause == guardian.NotStarted && (r.ExitCode == 126 || r.ExitCode == 127):
		x.cancel(exitError{r.ExitCode, fmt.Errorf("the command cannot be run any more; the worker ends: %w", err)})
		return queue.Snooze(0)
	case err != nil:
		return fmt.Errorf("%w: %w", err, failure)
	case r.Cause != guardian.Exited && ctx.Err() != nil:
		return fmt.Errorf("%w: %w", context.Cause(ctx), failure)
	case r.Cause != guardian.Exited && x.stopping.Err() != nil: // a second signal
		return queue.HandBack(failure)
	case r.Cause != guardian.Exited: // the lease ended
		return queue.Snooze(0)
	case r.ExitCode == 0:
		x.log.Info("job done", "queue", d.Queue, "kind", d.Kind, "id", d.ID, "attempt", d.Attempt, "took", r.Took)
		return nil
	case r.ExitCode == exitDiscard && r.Signal == 0:
		return queue.Discard(failure)
	}
	return failure
}

// endOf describes how a command ended, with its last output.
func endOf(r guardian.Result) string {
	text := fmt.Sprintf("exit code %d", r.ExitCode)
	if r.Signal != 0 {
		text = fmt.Sprintf("ended by signal %d, %v", r.Signal, r.Signal)
	}
	if output := strings.TrimSpace(r.Output); output != "" {
		text += ": " + tailOf(output, keepError)
	}
	return text
}

// tailOf returns the last bytes of a text.
func tailOf(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	start := len(text) - limit
	for start < len(text) && !utf8.RuneStart(text[start]) {
		start++
	}
	return "… " + text[start:]
}

// environment returns the caller's environment, plus variables about the job. Nested jobs override the outer job's
// variables.
func (x *executor) environment(d *queue.Delivery) []string {
	set := []string{
		"DBCRON_JOB_ID=" + strconv.FormatInt(d.ID, 10), "DBCRON_QUEUE=" + d.Queue, "DBCRON_KIND=" + d.Kind, "DBCRON_KEY=" + d.Key,
		"DBCRON_GROUP=" + wire.ID(d.Group), "DBCRON_CALLBACK_OF=" + wire.ID(d.Callback), "DBCRON_ATTEMPT=" +
			strconv.Itoa(d.Attempt), "DBCRON_TENANT=" + d.Tenant, "DBCRON_MAX_ATTEMPTS=", "TRACEPARENT=",
	}
	names := make([]string, len(set))
	for i, of := range set {
		names[i], _, _ = strings.Cut(of, "=")
	}
	env := x.inherited(names)
	if limit := d.AttemptLimit(); limit > 0 {
		set[8] += strconv.Itoa(d.AttemptLimit())
	}
	if d.Trace == "" {
		return append(env, set[:9]...)
	}
	set[9] += d.Trace
	return append(env, set...)
}

// inherited returns the caller's environment without some variables.
func (x *executor) inherited(without []string) []string {
	return slices.DeleteFunc(slices.Clone(x.p.environ), func(pair string) bool {
		return slices.ContainsFunc(without, func(name string) bool { return strings.HasPrefix(pair, name+"=") })
	})
}
