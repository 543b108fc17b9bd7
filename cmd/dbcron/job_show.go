package main

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/dbcron/dbcron/internal/ops/health"
	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/wire"
)

// A jobRow is what a table shows of a job.
type jobRow struct {
	ID       string       `table:"id"`
	Kind     string       `table:"kind"`
	Key      string       `table:"key,rare"`
	Priority string       `table:"priority,rare"`
	Enqueued wire.Instant `table:"enqueued"`
	When     string       `table:"at,rare"`
	Tried    string       `table:"attempts,rare"`
	HowFar   string       `table:"progress,rare"`
	Worker   string       `table:"worker,rare"`
	Error    string       `table:"error,rare"`
	What     string       `table:"payload,rare"`
}

// howFar describes a job's progress for people.
func howFar(p *wire.Progress) string {
	switch {
	case p == nil:
		return ""
	case p.Percent == 0:
		return p.Message
	}
	return strings.TrimSuffix(fmt.Sprintf("%d%%, %s", p.Percent, p.Message), ", ")
}

func newJobRow(j *wire.Job) jobRow {
	row := jobRow{
		ID: j.ID, Kind: j.Kind, Key: j.Key, Priority: priorityText(j.Priority), Enqueued: j.Enqueued,
		HowFar: howFar(j.Progress), Worker: j.Worker, Error: j.Error, What: payloadText(j),
	}
	if j.Unreadable != "" {
		row.Error = "no worker can read it: " + j.Unreadable
	}
	if j.State != "ready" {
		row.When, row.Tried = shown(j.At.Time, time.UTC), strconv.Itoa(j.Attempts)
	}
	return row
}

// payloadText is a payload for people to read.
func payloadText(j *wire.Job) string {
	switch {
	case len(j.Binary) > 0:
		return counted(len(j.Binary), "byte", "bytes") + ", binary"
	case len(j.Payload) == 0 && j.PayloadBytes > 0: // a daemon's list leaves it out
		return counted(j.PayloadBytes, "byte", "bytes")
	}
	return string(j.Payload)
}

func (p *program) jobGet() *cobra.Command {
	var payload bool
	c := p.twin(twin{
		id: "get-job", use: "get ID",
		long: `Show one job, whatever its state, and the beginning of its payload. With --payload
print only the payload, all of it and byte for byte. A job that is done is not found, exit
code 3, unless its queue keeps such: dbcron queue set --keep-done.

Its id alone names it. If two jobs have the id, which is rare, the exit code is 4, and the
message names them: choose one by --queue.`,
		example: `  dbcron job get 4711
  dbcron job get 4711 --payload | jq .`,
		other: func(c *cobra.Command) string {
			id := map[bool]string{true: "get-payload", false: "get-job"}[payload]
			if !c.Flags().Changed("queue") {
				id += "-by-id"
			}
			return id
		},
	})
	c.Flags().BoolVar(&payload, "payload", false, "print only the payload")
	return c
}

func (p *program) jobExplain() *cobra.Command {
	return p.twin(twin{
		id: "explain-job", use: "explain ID",
		long: `Explain why a job waits: for its time or its retry, for an earlier job of its key, at a
limit, for a worker, for its queue, which is paused, or for its turn. Of several causes
the one to begin with comes first, each with what to do about it. Of a job that runs, or has
ended, it tells that.`,
		example: `  dbcron job explain 4711
  dbcron job explain 4711 -o json | jq -r '.causes[0].why'`,
		other: func(c *cobra.Command) string {
			if c.Flags().Changed("queue") {
				return "explain-job"
			}
			return "explain-job-by-id"
		},
	})
}

func jobCauses(e *wire.JobExplanation) []fact {
	return append([]fact{{"id", e.ID}, {"queue", e.Queue}, {"state", e.State}}, causeFacts(e.Causes)...)
}

func causeFacts(all []wire.Cause) (facts []fact) {
	for i := range all {
		facts = append(facts, fact{"why", all[i].Why}, fact{"what to do", all[i].Do})
	}
	return facts
}

func jobFacts(j *wire.Job) []fact {
	facts := []fact{
		{"id", j.ID},
		{"queue", j.Queue},
		{"state", j.State},
		{"kind", j.Kind},
		{"key", j.Key},
		{"priority", priorityText(j.Priority)},
		{"enqueued", shown(j.Enqueued.Time, time.UTC)},
	}
	if about := map[string]string{"delayed": "due", "running": "since", "dead": "died", "done": "ended"}[j.State]; about != "" {
		if j.Cancelled {
			facts = append(facts, fact{"outcome", "cancelled"})
		} else if j.State == "done" {
			facts = append(facts, fact{"started", shown(j.Started.Time, time.UTC)})
		}
		facts = append(facts, fact{about, shown(j.At.Time, time.UTC)}, fact{"attempts", fmt.Sprint(j.Attempts)})
	}
	if j.Crashes > 0 {
		facts = append(facts, fact{"crashes", counted(j.Crashes, "worker died with it", "workers died with it")})
	}
	if j.MaxAttempts > 0 {
		facts = append(facts, fact{"max attempts", fmt.Sprint(j.MaxAttempts)})
	}
	var snapshot, refused, errors string
	if len(j.Errors) > 1 || len(j.Errors) == 1 && j.Errors[0].Error != j.Error { // otherwise error says it
		for _, e := range j.Errors {
			errors += fmt.Sprintf("attempt %d, %s: %s\n", e.Attempt, shown(e.At.Time, time.UTC), e.Error)
		}
	}
	if j.Progress != nil {
		snapshot = string(j.Progress.State)
		if b := j.Progress.Binary; utf8.Valid(b) {
			snapshot += string(b)
		} else {
			snapshot = counted(len(b), "byte", "bytes") + ", binary"
		}
	}
	if r := j.Refused; r != nil {
		refused = refusedText(r)
	}
	return append(facts,
		fact{"timeout", string(j.Timeout)}, fact{"trace", j.Trace}, fact{"endpoint", j.Endpoint},
		fact{"unique key", j.Unique}, fact{"unique until", j.UniqueUntil},
		fact{"tenant", j.Tenant}, fact{"cost", strings.TrimPrefix(strconv.Itoa(j.Cost), "0")},
		fact{"group", j.Group}, fact{"callback of", j.CallbackOf},
		fact{"worker", j.Worker},
		fact{"progress", howFar(j.Progress)}, fact{"snapshot", beginning(snapshot, "-o json")},
		fact{"block", fmt.Sprint(j.Block)}, fact{map[bool]string{true: "discarded", false: "error"}[j.Discarded], j.Error},
		fact{"errors", errors}, fact{"detail", j.Detail},
		fact{"result", beginning(string(j.Result), "-o json")}, fact{"refused", refused},
		fact{"no worker reads it", j.Unreadable},
		fact{"payload", beginning(payloadText(j), "--payload")})
}

// beginning cuts a long text, and adds its length and the command that prints all of it.
func beginning(text, all string) string {
	const enough = 4000
	runes := []rune(text[:min(len(text), 4*enough)]) // a character has up to four bytes
	if len(runes) <= enough && len(text) <= 4*enough {
		return text
	}
	return string(runes[:min(len(runes), enough)]) + fmt.Sprintf("…\n(%d bytes; %s prints all)", len(text), all)
}

func (p *program) jobList() *cobra.Command {
	var ids bool
	c := p.twin(twin{
		id: "list-jobs", use: "list", usual: values{"queue": usualQueueName}, count: 20, flags: map[string]string{"cursor": "after"},
		long: `List the jobs of a queue that are in one state, the oldest first:

    ready      they wait for a worker, or have been running for less than a second
    delayed    they wait for their time (AT), or for their next attempt
    running    they have been running for longer, since AT
    dead       they failed too often, and were given up AT
    done       they are done, since AT, and their queue keeps them for a while
               (dbcron queue set --keep-done)

--where takes a condition on the payload: a path, and what it is compared with by =
!= < <= > or >=, which is JSON; a path alone has to be there. Jobs that have no such
path are not listed.

With --kind, --key or --where not all of a long queue is looked at: then stderr says where to
go on with --after. Only the beginning of ERROR and PAYLOAD is shown, and of a payload
beyond 64 KiB its length: see dbcron job
get, or use -o json.`,
		example: `  dbcron job list --queue mail --state dead
  dbcron job list --queue mail --kind welcome -n 1000 -o jsonl
  dbcron job list --queue mail --state dead --where '$.user.id = 42'
  dbcron job list --queue mail --where '$.to[1]'
  dbcron job list --queue mail --older-than 1h`,
		none: p.otherStates,
		rows: func(_ context.Context, rows any, _, output string) error {
			if !ids {
				return writeRows(p.out, output, rows)
			}
			for _, j := range rows.([]wire.Job) { //nolint:forcetypeassert // what the operation lists
				if _, err := fmt.Fprintln(p.out, j.ID); err != nil {
					return err
				}
			}
			return nil
		},
	})
	c.Flags().BoolVar(&ids, "ids", false, "print only the ids, for xargs")
	return c
}

// otherStates tells of a queue's jobs in other states than the one of which there are none.
func (p *program) otherStates(ctx context.Context, given values) string {
	of := cmp.Or(given["state"], "ready")
	for _, filter := range []string{"kind", "key", "tenant", "where", "older_than", "cursor"} {
		if given[filter] != "" { // then it says little that there are others
			return ""
		}
	}
	stats, err := ask[wire.QueueStats](ctx, p, "queue-stats", "queue", given["queue"])
	if err != nil { // the list was there: it is a hint only
		return ""
	}
	var others []string
	for _, s := range []struct {
		state string
		n     int
	}{{"ready", stats.Ready}, {"delayed", stats.Delayed}, {"running", stats.Running}, {"dead", stats.Dead}, {"done", stats.Done}} {
		if s.n > 0 && s.state != of {
			others = append(others, fmt.Sprint(s.n, " ", s.state))
		}
	}
	if len(others) == 0 {
		return ""
	}
	return fmt.Sprintf("no job of %s is %s; in other states (--state): %s", given["queue"], of, strings.Join(others, ", "))
}

func (p *program) queuePeek() *cobra.Command {
	return p.twin(twin{
		id: "list-jobs", use: "peek NAME", short: "Show the jobs that have been ready for longest", count: 10,
		flags: map[string]string{"state": "", "kind": "", "key": "", "tenant": "", "where": "", "older_than": ""},
		long: `Show the jobs of a queue that have been ready for longest, without taking them. They
are about to be done, unless more urgent ones come first. For delayed, running and
dead ones see dbcron job list.`,
		example: `  dbcron queue peek mail -n 3`,
	})
}

// refusedText describes a refusal for people.
func refusedText(r *wire.Refusal) string {
	return health.RefusalText(&admin.Refusal{What: r.What, Error: r.Error, Worker: r.Worker, Tries: r.Tries, Since: r.Since.Time})
}

// priorityText is a priority for people, unless it is the default.
func priorityText(priority string) string { return strings.TrimPrefix(priority, "normal") }
