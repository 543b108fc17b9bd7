package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dbcron/dbcron/internal/ops/wireof"
	"github.com/dbcron/dbcron/internal/setting"
	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/wire"
)

func (p *program) queueSet() *cobra.Command {
	var c *cobra.Command
	c = &cobra.Command{
		Use:   "set NAME [flags]",
		Short: "Change the settings of a queue, or make it",
		Long: `Change the settings of a queue, or make it: without a flag, one with the usual settings.
What is not given stays as it is, and an empty text takes a setting back: --timeout ''.
Producers and workers go by the new settings within seconds.

Durations are such as 500ms, 90s, 1h30m or 30d, and sizes 65536, 64KiB or 4MiB. A
job can have a number of attempts and a timeout of its own.`,
		Example: `  dbcron queue set mail --max-attempts 5 --retry-delay 30s --retry-max-delay 10m
  dbcron queue set ledger --fifo
  dbcron queue set import --timeout 2h --keep-dead forever --keep-done 24h
  dbcron queue set billing --notify ada@example.org,https://example.org/in`,
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			given, err := givenQueueSettings(c)
			if err != nil {
				return err
			}
			if err := checkQueues(args); err != nil {
				return err
			}
			return p.withAPI(c.Context(), func() error { return p.setQueue(c.Context(), args[0], given) })
		},
	}
	c.Flags().SortFlags = false
	registerSettings(c, queueSettings)
	return c
}

// givenQueueSettings returns the texts of the settings that flags give, by name. It reports all errors together.
func givenQueueSettings(c *cobra.Command) (map[string]string, error) {
	var wrong []string
	given := map[string]string{}
	for i := range queueSettings {
		s := &queueSettings[i]
		flag := c.Flags().Lookup(s.Flag())
		if !flag.Changed {
			continue
		}
		var only admin.Queue
		given[s.Name] = flag.Value.String()
		problem := ""
		if err := s.Set(&only, given[s.Name]); err != nil {
			problem = err.Error()
		} else {
			problem = s.Problem(&only)
		}
		if problem != "" {
			wrong = append(wrong, fmt.Sprintf("--%s: %s", s.Flag(), problem))
		}
	}
	return given, refused(wrong)
}

// refused joins all errors into one.
func refused(wrong []string) error {
	switch len(wrong) {
	case 0:
		return nil
	case 1:
		return usagef("%s", wrong[0])
	}
	return usagef("%d errors to correct, and nothing was changed:\n  %s", len(wrong), strings.Join(wrong, "\n  "))
}

func (p *program) setQueue(ctx context.Context, name string, given map[string]string) error {
	now, err := ask[wire.Queue](ctx, p, "get-queue", "queue", name)
	q, made := usualQueue(name), isNotThere(err)
	if err != nil && !made {
		return err
	}
	if !made {
		if _, err := setting.Apply(queueSettings, &q, now); err != nil {
			return err
		}
	}
	if len(given) == 0 && !made {
		fmt.Fprintf(p.err, "dbcron: there is a queue %s already, and nothing was changed: no flag says what is to be\n", oneLine(name, 200))
		return nil
	}
	for i := range queueSettings {
		if text, is := given[queueSettings[i].Name]; is {
			_ = queueSettings[i].Set(&q, text) // it was validated before
		}
	}
	if err := refused(mismatches(&q)); err != nil { // before the queue is created
		return err
	}
	change, err := changeOf[wire.QueueChange](wireof.Queue(&q), given)
	if err != nil {
		return err
	}
	answer, err := p.send(ctx, "set-queue", values{"queue": name}, change, "")
	if err != nil {
		return flagged(err)
	}
	if made {
		p.tellMade(name)
	}
	if set := answer.(*wire.Queue); set.State != "active" { //nolint:forcetypeassert // it sets a queue
		fmt.Fprintf(p.err, "dbcron: its jobs wait: it is %s\n", standingOf(set.State, set.Reason))
	}
	return nil
}

// changeOf returns those settings of a noun that are given, as the API takes them.
func changeOf[T any](noun any, given map[string]string) (change T, err error) {
	text, err := json.Marshal(noun)
	all, only := map[string]json.RawMessage{}, map[string]json.RawMessage{}
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	for name := range given {
		if only[name] = all[name]; only[name] == nil { // an empty text and 0 are left out
			only[name] = json.RawMessage(`""`)
			if json.Unmarshal(fmt.Appendf(nil, `{%q: ""}`, name), new(T)) != nil {
				only[name] = json.RawMessage(`0`)
			}
		}
	}
	if err == nil {
		text, err = json.Marshal(only)
	}
	if err == nil {
		err = json.Unmarshal(text, &change)
	}
	return change, err
}

// mismatches lists settings that are valid, but not together.
func mismatches(q *admin.Queue) (wrong []string) {
	if q.RetryMaxDelay < q.RetryDelay {
		wrong = append(wrong, fmt.Sprintf("--retry-max-delay, %s, is less than --retry-delay, %s",
			wire.DurationOf(q.RetryMaxDelay), wire.DurationOf(q.RetryDelay)))
	}
	if q.PollMax < q.PollMin {
		wrong = append(wrong, fmt.Sprintf("--poll-max, %s, is less than --poll-min, %s", wire.DurationOf(q.PollMax), wire.DurationOf(q.PollMin)))
	}
	return wrong
}

// tellMade reports a new queue, since its name may be mistyped.
func (p *program) tellMade(name string) {
	fmt.Fprintf(p.err, "dbcron: there was no queue %s; it was made\n", oneLine(name, 200))
}

// making has an operation that makes its queue if there is none say so.
func (p *program) making(t twin) twin {
	before, then, missing := t.before, t.then, ""
	t.before = func(ctx context.Context, given values) error {
		if before != nil {
			if err := before(ctx, given); err != nil {
				return err
			}
		}
		_, err := p.do(ctx, "get-queue", values{"queue": given["queue"]})
		if codeOf(err) == exitNotFound {
			missing, err = given["queue"], nil
		}
		return err
	}
	t.then = func(ctx context.Context, answer any) error {
		if missing != "" {
			p.tellMade(missing)
		}
		if then == nil {
			return nil
		}
		return then(ctx, answer)
	}
	return t
}
