package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/internal/ops/health"
	"github.com/dbcron/dbcron/internal/ops/wireof"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/wire"
)

// A queueDetail is everything about one queue.
type queueDetail struct {
	queueState
	blocks  []admin.Block
	limits  []string
	refused []admin.Refusal
}

func (d *queueDetail) word() wire.QueueDetail {
	return wire.QueueDetail{
		QueueStatus: d.status(), BlockList: wireof.Each(d.blocks, wireof.Block), Refused: wireof.Each(d.refused, wireof.Refusal),
	}
}

func (p *program) queueShow() *cobra.Command {
	var output string
	c := &cobra.Command{
		Use:   "show NAME",
		Short: "Show all of one queue: settings, how many jobs it has, and who does them",
		Long: `Show all of one queue: its settings, how many jobs of each state it has (10000+ is
that many or more), and which worker has which blocks. A block is a part of the
queue's jobs, which one worker has at a time. It also tells of up to 100 jobs of which the
database refuses to write what has become of them.`,
		Example: `  dbcron queue show mail
  dbcron queue show mail -o json`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return p.showQueue(c.Context(), args[0], output)
		},
	}
	outputFlag(c, &output)
	return c
}

func (p *program) showQueue(ctx context.Context, name, output string) error {
	if err := sqlrun.CheckName(name); err != nil {
		return usagef("the queue's %v", err)
	}
	return p.withAdminOf(ctx, func(db *dialect.DB, c *admin.Client) error { return p.showQueueOf(ctx, db, c, name, output) })
}

func (p *program) showQueueOf(ctx context.Context, db *dialect.DB, c *admin.Client, name, output string) error {
	q, err := c.Queue(ctx, name)
	if err != nil {
		return err
	}
	look, err := p.newQueueLook(ctx, db, c)
	if err != nil {
		return err
	}
	state, blocks, err := look.state(ctx, q)
	if err != nil {
		return err
	}
	d := queueDetail{queueState: state, blocks: blocks}
	d.refused, err = c.Refusals(ctx, name, health.MostRefusals)
	if err != nil { // a user who may not read it sees the rest
		fmt.Fprintf(p.err, "dbcron: which jobs the database refuses is not known: %v\n", err)
	}
	if output != "table" {
		return encode(p.out, d.word())
	}
	if d.limits, err = limitsText(ctx, c, name); err != nil {
		return err
	}
	return writeFacts(p.out, d.facts())
}

func (d *queueDetail) facts() []fact {
	r := d.row()
	facts := []fact{
		{"name", r.Name},
		{"state", queueStanding(&d.q)},
		{"ready", r.Ready.String()},
		{"delayed", r.Delayed.String()},
		{"running", r.Running.String()},
		{"dead", r.Dead.String()},
	}
	if r.Oldest >= 0 {
		facts = append(facts, fact{"oldest", r.Oldest.String() + " ready"})
	}
	if r.Empty.waits {
		facts = append(facts, fact{"empty in", r.Empty.String()})
	}
	facts = append(facts, fact{"in, out", r.In.String() + " and " + r.Out.String() + " a minute"}, fact{"endpoint", r.Endpoint})
	if d.q.KeepDone > 0 || d.counts.Done > 0 {
		facts = append(facts, fact{"done", tally(d.counts.Done).String()})
	}
	for i := range queueSettings {
		s := &queueSettings[i]
		facts = append(facts, fact{strings.ReplaceAll(s.Name, "_", " "), s.Text(&d.q)})
	}
	if len(d.limits) > 0 {
		facts = append(facts, fact{"limits", strings.Join(d.limits, "\n")})
	}
	return append(facts, fact{"workers", fmt.Sprint(d.workers)}, fact{"blocks", d.whose()}, fact{"refused", refusalsText(d.refused)})
}

// refusalsText describes refusals, one per line.
func refusalsText(all []admin.Refusal) string {
	lines := make([]string, len(all))
	for i := range all {
		r := &all[i]
		lines[i] = fmt.Sprintf("job %d of kind %s, block %d: %s", r.Job, oneLine(r.Kind, 200), r.Block, refusedText(r))
	}
	return strings.Join(lines, "\n")
}

// whose describes the holders of the blocks. Consecutive blocks with the same description share a line.
func (d *queueDetail) whose() string {
	lines := []string{fmt.Sprint(d.q.Blocks)}
	for i := 0; i < len(d.blocks); {
		n := 1
		for i+n < len(d.blocks) && d.story(i+n) == d.story(i) {
			n++
		}
		numbers := fmt.Sprint(d.blocks[i].Number)
		if n > 1 {
			numbers += fmt.Sprintf("-%d", d.blocks[i+n-1].Number)
		}
		lines = append(lines, numbers+": "+d.story(i))
		i += n
	}
	return strings.Join(lines, "\n")
}

// story describes a block's holder and anything unusual.
func (d *queueDetail) story(i int) string {
	b := d.blocks[i]
	text := "free"
	switch wireof.BlockState(&b) {
	case "held":
		text = oneLine(b.Worker, 200) + " since " + shown(b.Since, time.UTC)
	case "lost":
		text = "of " + oneLine(b.Worker, 200) + ", which was not heard of in time; another worker takes it"
	}
	if b.Crashes > 0 {
		text += ", after " + counted(b.Crashes, "worker died", "workers in a row died")
	}
	if b.Generation < d.blocks[len(d.blocks)-1].Generation {
		text += ", from before the resize: it goes when it is empty"
	}
	return text
}
