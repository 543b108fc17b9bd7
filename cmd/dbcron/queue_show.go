package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/internal/health"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/admin"
)

// A queueDetail is everything about one queue.
type queueDetail struct {
	queueRow
	Has     []blockRow    `json:"has"`
	Refused []*refusedRow `json:"refused"`

	q       admin.Queue
	blocks  []admin.Block
	limits  []string
	refused []admin.Refusal
}

// A blockRow is a block of a queue and its holder.
type blockRow struct {
	Block      int        `json:"block"`
	Generation int        `json:"generation"`
	State      string     `json:"state"`
	Worker     string     `json:"worker"` // current or last holder
	Since      *time.Time `json:"since"`
	Fence      string     `json:"fence"` // a string: JSON readers round large numbers
	Crashes    int        `json:"crashes"`
}

func newBlockRow(b admin.Block) blockRow {
	return blockRow{b.Number, b.Generation, blockState(b), b.Worker, optional(b.Since), fmt.Sprint(b.Fence), b.Crashes}
}

func blockState(b admin.Block) string {
	switch {
	case !b.Leased:
		return "free"
	case !b.Live:
		return "lost"
	}
	return "held"
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
	row, blocks, err := look.row(ctx, q)
	if err != nil {
		return err
	}
	d := queueDetail{queueRow: row, Has: make([]blockRow, len(blocks)), q: q, blocks: blocks}
	for i, b := range blocks {
		d.Has[i] = newBlockRow(b)
	}
	d.Refused = []*refusedRow{}
	d.refused, err = c.Refusals(ctx, name, health.MostRefusals)
	if err != nil { // a user who may not read it sees the rest
		fmt.Fprintf(p.err, "dbcron: which jobs the database refuses is not known: %v\n", err)
	}
	for i := range d.refused {
		row := newRefusedRow(&d.refused[i])
		row.Job = fmt.Sprint(d.refused[i].Job)
		d.Refused = append(d.Refused, row)
	}
	if output != "table" {
		return encode(p.out, d)
	}
	if d.limits, err = limitsText(ctx, c, name); err != nil {
		return err
	}
	return writeFacts(p.out, d.facts())
}

func (d *queueDetail) facts() []fact {
	facts := []fact{
		{"name", d.Name},
		{"state", queueStanding(&d.q)},
		{"ready", d.Ready.String()},
		{"delayed", d.Delayed.String()},
		{"running", d.Running.String()},
		{"dead", d.Dead.String()},
	}
	if d.Oldest >= 0 {
		facts = append(facts, fact{"oldest", d.Oldest.String() + " ready"})
	}
	if d.Empty.waits {
		facts = append(facts, fact{"empty in", d.Empty.String()})
	}
	facts = append(facts, fact{"in, out", d.In.String() + " and " + d.Out.String() + " a minute"}, fact{"endpoint", d.Endpoint})
	if d.q.KeepDone > 0 || d.Done > 0 {
		facts = append(facts, fact{"done", d.Done.String()})
	}
	for _, s := range queueSettings {
		facts = append(facts, fact{strings.ReplaceAll(s.name, "_", " "), s.get(&d.q)})
	}
	if len(d.limits) > 0 {
		facts = append(facts, fact{"limits", strings.Join(d.limits, "\n")})
	}
	return append(facts, fact{"workers", fmt.Sprint(d.Workers)}, fact{"blocks", d.whose()}, fact{"refused", refusalsText(d.refused)})
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
	lines := []string{fmt.Sprint(d.Blocks)}
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
	switch blockState(b) {
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
