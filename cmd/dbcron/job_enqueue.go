package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/dbcron/dbcron/internal/jobfield"
	"github.com/dbcron/dbcron/internal/ops/table"
	"github.com/dbcron/dbcron/internal/ops/wireof"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/wire"
)

// jobFlags are the flags that describe a job.
type jobFlags struct {
	wire.NewJob
	runAt, maxAttempts, cost string
	binary                   bool
	told                     string // format of the result: text, json or jsonl
	wait                     bool
	within                   string // how long; "": for as long as it takes
}

// flagNames maps fields in errors to flags.
func flagNames(field string) string {
	if field == "kind" || field == "payload" {
		return "the " + field
	}
	return "--" + strings.ReplaceAll(field, "_", "-")
}

const jobEnqueueHelp = `Enqueue a job and print its id. KIND says which handler does it. PAYLOAD is what it
is about, as JSON; - reads it from standard input, and --binary takes anything, byte
for byte. When the command ends with exit code 0, nothing loses the job.

Jobs of one queue with the same --key are done one after the other, in the order in
which they were enqueued.

With - instead of KIND, or with --jsonl, standard input has a job on each line, and any
number of them. A line is a JSON object with any of kind, payload, payload_base64,
queue, key, unique, unique_for, unique_until, debounce, tenant, cost, group, priority,
delay, run_at, max_attempts, timeout, trace and endpoint. What a line does not have is as KIND and
the flags say.

Lines are enqueued in batches, each all or none: of --batch lines, or fewer if they have
16 MiB. The ids are printed after each. An error says with which --from-line to go on.

With --unique the job is enqueued unless one of the queue has that unique key already; then
the id of that one is printed. The key is free again when its job has ended, with
--unique-until begin when it begins, and with --unique-for not before so long after it was
enqueued: enqueueing again does no harm then when nobody knows whether the first time worked.

With --debounce the job replaces the one that waits with its unique key: of several changes
the newest is done, when there was none for --delay, or so long after the first.

With --wait print the job's result instead of its id when the job is done, and exit by its
outcome, as dbcron job wait does. The job's queue has to keep done jobs.

Durations are such as 500ms, 90s, 1h30m or 30d.`

func (p *program) jobEnqueue() *cobra.Command {
	var t jobFlags
	var f linesFlags
	lines, output := false, ""
	c := &cobra.Command{
		Use:   "enqueue {KIND [PAYLOAD|-] | -}",
		Short: "Enqueue a job, or many, and print the ids",
		Long:  jobEnqueueHelp,
		Example: `  dbcron job enqueue welcome '{"to": "ada@example.org"}' --queue mail --max-attempts 5
  make-thumbnail | dbcron job enqueue upload - --binary --delay 10m
  dbcron job enqueue - --queue mail <jobs.jsonl
  dbcron job enqueue --jsonl welcome --queue mail --from-line 20001 <welcome.jsonl`,
		Args: cobra.MaximumNArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			if c.Flags().Changed("key") && t.Key == "" {
				return usagef("--key is empty; leave it out if the job waits for no other")
			}
			if c.Flags().Changed("queue") && t.Queue == "" {
				return usagef("--queue is empty; leave it out if the job goes where its kind's route says")
			}
			if len(args) == 1 && args[0] == "-" && !lines {
				lines, args = true, nil
			}
			switch {
			case output != "text" && output != "json" && output != "jsonl":
				return usagef("output %q is not known: use text, json or jsonl", output)
			case lines && output == "json":
				return usagef("-o json is for one job; of lines -o jsonl prints one for each")
			}
			t.told = output
			if err := t.checkWait(lines); err != nil {
				return err
			}
			if lines {
				return p.enqueueLines(c.Context(), t, args, f)
			}
			if c.Flags().Changed("from-line") || c.Flags().Changed("batch") {
				return usagef("--from-line and --batch are for lines of JSON: dbcron job enqueue -")
			}
			return p.enqueueOne(c.Context(), t, args)
		},
	}
	t.register(c)
	c.Flags().StringVarP(&output, "output", "o", "text", "the ids as text, or jobs as json or jsonl")
	c.Flags().BoolVar(&lines, "jsonl", false, "read jobs from standard input, one JSON object on each line")
	c.Flags().IntVar(&f.from, "from-line", 1, "`number` of the line to begin with, of --jsonl")
	c.Flags().IntVar(&f.batch, "batch", usualBatch, "`number` of lines that are enqueued at a time, all or none")
	return c
}

// checkWait checks the flags of waiting.
func (t *jobFlags) checkWait(lines bool) error {
	switch {
	case t.within != "" && !t.wait:
		return usagef("--within says how long --wait waits, which is not given")
	case lines && t.wait:
		return usagef("--wait is for one job")
	}
	return nil
}

func (t *jobFlags) register(c *cobra.Command) {
	flags := c.Flags()
	flags.SortFlags = false
	flags.StringVar(&t.Queue, "queue", "", "`name` of the queue, which is made if there is none (default: by the route of its kind, or else default)")
	flags.StringVar(&t.Key, "key", "", "`name` of what the job is about: jobs of one key are done in order")
	flags.StringVar(&t.Unique, "unique", "", "`name` that keeps other jobs out that have the same one")
	flags.StringVar((*string)(&t.UniqueFor), "unique-for", "", "a `duration` for which it does so at least")
	flags.StringVar(&t.UniqueUntil, "unique-until", "", "`word`: end or begin, of the job, up to which it does so (default: end)")
	flags.StringVar((*string)(&t.Debounce), "debounce", "", "the longest `duration` for which others of its unique key that follow within --delay replace it")
	flags.StringVar(&t.Tenant, "tenant", "", "`name` of whose job it is: in a fair queue, tenants have equal turns")
	flags.StringVar(&t.cost, "cost", "", "for what `number` of jobs it counts at rates of limits, and in turns of tenants (default: 1)")
	flags.StringVar(&t.Group, "group", "", "`id` of a group that waits for it: dbcron group")
	flags.StringVar(&t.Priority, "priority", "", "`word`: urgent, normal, low or idle (default: normal)")
	flags.StringVar((*string)(&t.Delay), "delay", "", "a `duration` before which it is not done")
	flags.StringVar(&t.runAt, "run-at", "", "a `time` before which it is not done, such as 2026-12-31T18:00:00Z")
	flags.StringVar(&t.maxAttempts, "max-attempts", "", "a `number` of failed attempts after which it is dead (default: the queue's)")
	flags.StringVar((*string)(&t.Timeout), "timeout", "", "a `duration` after which an attempt has failed (default: the queue's)")
	flags.StringVar(&t.Trace, "trace", "", "the `traceparent` of the trace that it belongs to")
	flags.StringVar(&t.Endpoint, "endpoint", "", "a `URL` that it is sent to, in a queue that has an endpoint (default: the queue's)")
	flags.BoolVarP(&t.wait, "wait", "w", false, "wait until it has ended, print its result, and exit by its outcome")
	flags.StringVar(&t.within, "within", "", "a `duration` that --wait waits at the most (default: as long as it takes)")
	flags.BoolVar(&t.binary, "binary", false, "the payload is not JSON but anything")
}

func (p *program) enqueueOne(ctx context.Context, t jobFlags, args []string) error {
	if len(args) == 0 {
		return usagef("the kind is missing: dbcron job enqueue KIND [PAYLOAD|-]")
	}
	t.Kind = args[0]
	if len(args) == 1 && t.binary {
		return usagef("--binary is about a payload, and there is none")
	}
	if len(args) == 2 {
		if err := p.readPayload(&t, args[1]); err != nil {
			return err
		}
	}
	n, err := t.job()
	if err != nil {
		return err
	}
	within, err := readWithin(t.within)
	if err != nil {
		return err
	}
	return p.withAPI(ctx, func() error {
		looks := p.newEnqueueing()
		looks.awaits = t.wait
		made, err := looks.look(ctx, []wire.NewJob{n}, func(int) string { return "" })
		if err != nil {
			return err
		}
		answer, err := p.send(ctx, "enqueue-job", nil, n, keyFor(n))
		if err != nil {
			return flaggedJob(err)
		}
		e := *answer.(*wire.Enqueued) //nolint:forcetypeassert // it enqueues one
		if t.wait {
			if e.Existed {
				fmt.Fprintf(p.err, "dbcron: job %s has that unique key already; nothing was enqueued\n", e.ID)
			}
			fmt.Fprintf(p.err, "dbcron: waiting for job %s\n", e.ID)
			return p.awaitJob(ctx, values{"queue": e.Queue, "id": e.ID}, within, t.told)
		}
		return p.tellEnqueued([]wire.Enqueued{e}, made, t.told)
	})
}

// readPayload reads the payload that PAYLOAD stands for. Of JSON it drops the final line feed, which echo writes.
func (p *program) readPayload(t *jobFlags, arg string) error {
	payload, from := []byte(arg), "the payload"
	if arg == "-" {
		const most = 1 << 30 // no queue accepts more
		var err error
		payload, err = io.ReadAll(io.LimitReader(p.in, most+1))
		if err != nil {
			return fmt.Errorf("standard input: %w", err)
		}
		if from = "standard input"; len(payload) > most {
			return usagef("standard input is longer than 1 GiB")
		}
	}
	if t.binary {
		t.Binary = payload
		return nil
	}
	if t.Payload = bytes.TrimSpace(payload); len(t.Payload) == 0 {
		return usagef("%s is empty; leave PAYLOAD out if there is none", from)
	}
	return nil
}

// text reads the flags that are not a job's own texts.
func (t *jobFlags) text() (n wire.NewJob, err error) {
	if t.runAt != "" {
		at, err := readRunAt(t.runAt)
		if err != nil {
			return n, fmt.Errorf("--run-at: %w", err)
		}
		t.RunAt = wire.At(at)
	}
	if t.maxAttempts != "" {
		if t.MaxAttempts, err = readCount(t.maxAttempts, 1_000_000); err != nil {
			return n, fmt.Errorf("--max-attempts: %w", err)
		}
	}
	if t.cost != "" {
		if t.Cost, err = readCount(t.cost, queue.MaxCost); err != nil {
			return n, fmt.Errorf("--cost: %w", err)
		}
	}
	return t.NewJob, nil
}

// job returns the job of the flags, if they are right.
func (t *jobFlags) job() (wire.NewJob, error) {
	n, err := t.text()
	if err != nil {
		return n, usagef("%v", err)
	}
	if err := checkPayload(n.Payload); err != nil {
		return n, usagef("the payload: %w", err)
	}
	_, err = wireof.NewJob(&n)
	return n, flaggedJob(err)
}

// flaggedJob returns an error about a field of a job as one about an argument or a flag.
func flaggedJob(err error) error {
	var wrong *queue.InvalidError
	if errors.As(err, &wrong) {
		return usagef("%s: %s", flagNames(wrong.Field), wrong.Problem)
	}
	return err
}

// keyFor returns a key with which jobs may be sent again. Those with unique keys of their own have no other.
func keyFor(jobs ...wire.NewJob) string {
	if slices.ContainsFunc(jobs, func(n wire.NewJob) bool { return n.Unique != "" }) {
		return ""
	}
	return rand.Text()
}

// checkPayload says where JSON is wrong.
func checkPayload(payload []byte) error {
	if len(payload) == 0 {
		return nil
	}
	if !utf8.Valid(payload) {
		return errors.New("it is not UTF-8, as JSON is")
	}
	var any json.RawMessage
	err := json.Unmarshal(payload, &any)
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		return fmt.Errorf("it is not JSON: %w, at byte %d (a text needs quotes of its own: '\"text\"')", err, syntax.Offset)
	}
	return err
}

// readRunAt refuses a time without a zone, because it would be ambiguous.
func readRunAt(text string) (time.Time, error) {
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return at, fmt.Errorf("%q is not a time with its zone, such as 2026-12-31T18:00:00Z or 2026-12-31T18:00:00+01:00", text)
	}
	return at, nil
}

func readCount(text string, most int) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > most {
		return 0, fmt.Errorf("%q is not a number from 1 to %d", text, most)
	}
	return n, nil
}

// An enqueueing looks where jobs go before they are enqueued.
type enqueueing struct {
	p      *program
	routes map[string]string      // by kind
	queues map[string]*wire.Queue // nil: there is none, or the token may not see it
	awaits bool                   // their ends are awaited, so the queues have to keep them
}

func (p *program) newEnqueueing() *enqueueing {
	return &enqueueing{p: p, routes: map[string]string{}, queues: map[string]*wire.Queue{}}
}

// look checks that the queues accept the jobs before any is enqueued, and returns the queues that will be made. where
// says which job an error is about. A token that may enqueue need not be one that may read: what it cannot see is left
// to who enqueues.
func (e *enqueueing) look(ctx context.Context, jobs []wire.NewJob, where func(i int) string) (made []string, err error) {
	for i := range jobs {
		name := jobs[i].Queue
		if jobfield.Reserved(name) {
			return nil, usagef("the queue %s is dbcron's own: what is in it is sent or run; dbcron notify test sends a message", name)
		}
		if name == "" {
			if name, err = e.route(ctx, jobs[i].Kind); err != nil {
				return nil, err
			}
		}
		q, known := e.queues[name]
		if !known && name != "" {
			q, err = ask[wire.Queue](ctx, e.p, "get-queue", "queue", name)
			switch {
			case isNotThere(err):
				made = append(made, name)
			case err != nil && e.p.db != nil:
				return nil, err
			}
			e.queues[name] = q
		}
		if e.awaits && name != "" && keepsNone(q, err) {
			return nil, exitError{exitConflict, fmt.Errorf("queue %s keeps no done jobs, so nobody could say how this one ends; nothing was enqueued: "+
				"dbcron queue set %s --keep-done 1h", oneLine(name, 200), oneLine(name, 200))}
		}
		most := usualQueue(name).MaxPayload
		if q != nil {
			most = q.MaxPayload
		}
		if n := len(jobs[i].Payload) + len(jobs[i].Binary); n > most {
			return nil, usagef("%sthe payload has %d bytes, and the queue %s takes %d; store it elsewhere and enqueue its name, or raise --max-payload with dbcron queue set",
				where(i), n, oneLine(name, 200), most)
		}
	}
	return made, nil
}

// keepsNone reports whether a queue keeps no done jobs: one that is not there will not. One that cannot be seen may.
func keepsNone(q *wire.Queue, err error) bool {
	if q == nil {
		return isNotThere(err)
	}
	return q.KeepDone == "" || q.KeepDone == "0s" || q.KeepDone == "none"
}

// route returns the queue of a kind, which it tells if it is not the usual one; "" if that cannot be seen.
func (e *enqueueing) route(ctx context.Context, kind string) (string, error) {
	if name, known := e.routes[kind]; known {
		return name, nil
	}
	to, err := ask[wire.Route](ctx, e.p, "get-route", "kind", kind)
	switch {
	case err == nil:
		e.routes[kind] = to.Queue
		if to.Queue != usualQueueName {
			fmt.Fprintf(e.p.err, "dbcron: jobs of kind %s go to queue %s: dbcron route list\n", oneLine(kind, 200), oneLine(to.Queue, 200))
		}
	case e.p.db == nil:
		e.routes[kind] = ""
	default:
		return "", err
	}
	return e.routes[kind], nil
}

// isNotThere reports whether an error says that something is not there.
func isNotThere(err error) bool {
	return err != nil && codeOf(err) == exitNotFound
}

func (p *program) tellEnqueued(all []wire.Enqueued, made []string, output string) error {
	for _, name := range made {
		p.tellMade(name)
	}
	var text strings.Builder
	for _, e := range all {
		if output == "text" {
			fmt.Fprintln(&text, e.ID)
		} else if err := table.Encode(&text, e); err != nil {
			return err
		}
		if e.Existed {
			fmt.Fprintf(p.err, "dbcron: job %s has that unique key already; nothing was enqueued\n", e.ID)
		}
	}
	_, err := io.WriteString(p.out, text.String())
	return err
}
