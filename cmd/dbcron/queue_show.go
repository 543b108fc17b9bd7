package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dbcron/dbcron/internal/plain"
	"github.com/dbcron/dbcron/internal/setting"
	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/wire"
)

func (p *program) queueShow() *cobra.Command {
	return p.twin(twin{
		id: "queue-status", use: "show NAME",
		long: `Show all of one queue: its settings, how many jobs of each state it has (10000+ is
that many or more), and which worker has which blocks. A block is a part of the
queue's jobs, which one worker has at a time. It also tells of the tenants with the most
ready jobs among those that are next, and of up to 100 jobs of which the database refuses
to write what has become of them.`,
		example: `  dbcron queue show mail
  dbcron queue show mail -o json`,
	})
}

func queueFacts(d *wire.QueueDetail) []fact {
	r := newQueueRow(&d.QueueStatus)
	facts := []fact{
		{"name", r.Name},
		{"state", standingOf(d.State, d.Reason)},
		{"held", heldText(d.Held)},
		{"ready", r.Ready.String()},
		{"delayed", r.Delayed.String()},
		{"running", r.Running.String()},
		{"dead", r.Dead.String()},
	}
	if d.Oldest != nil {
		facts = append(facts, fact{"oldest", r.Oldest + " ready"}, fact{"empty in", r.Empty})
	}
	facts = append(facts, fact{"in, out", r.In + " and " + r.Out + " a minute"}, fact{"endpoint", r.Endpoint})
	if d.KeepDone != wire.None || d.Done > 0 {
		facts = append(facts, fact{"done", tally(d.Done).String()})
	}
	var q admin.Queue
	_, _ = setting.Apply(queueSettings, &q, &d.Queue) // which was made from these settings
	for i := range queueSettings {
		s := &queueSettings[i]
		facts = append(facts, fact{strings.ReplaceAll(s.Name, "_", " "), s.Text(&q)})
	}
	limits := make([]string, len(d.Limits))
	for i := range d.Limits {
		limits[i] = limitText(&d.Limits[i])
	}
	if len(d.Tenants) > 0 {
		facts = append(facts, fact{"tenants", tenantsText(d.Tenants)})
	}
	return append(facts, fact{"limits", strings.Join(limits, "\n")}, fact{"workers", workersText(d)}, fact{"blocks", whose(d)},
		fact{"refused", refusalsText(d.Refused)})
}

// workersText says how many workers a queue has, and of one that has none which was lost.
func workersText(d *wire.QueueDetail) string {
	if d.Lost != nil {
		return "no worker serves it: " + d.Lost.Text
	}
	return fmt.Sprint(d.Workers)
}

// heldText describes jobs that no worker could begin, and what to do about it.
func heldText(h *wire.Held) string {
	if h == nil {
		return ""
	}
	n := counted(h.Jobs, "job", "jobs")
	if h.More {
		n = "at least " + n
	}
	return fmt.Sprintf("%s, the oldest for %s: %s\n%s", n, plain.Span(time.Duration(h.Oldest*float64(time.Second))), h.Why, h.Do)
}

// tenantsText describes tenants with ready jobs, one per line.
func tenantsText(all []wire.Tenant) string {
	lines := make([]string, len(all))
	for i := range all {
		t := &all[i]
		name := "of no tenant"
		if t.Name != "" {
			name = oneLine(t.Name, 200)
		}
		lines[i] = fmt.Sprintf("%s: %d ready, the oldest for %s", name, t.Ready, plain.Span(time.Duration(t.Oldest*float64(time.Second))))
		if t.Weight > 1 {
			lines[i] += fmt.Sprintf(", a share of %d", t.Weight)
		}
	}
	return strings.Join(lines, "\n")
}

// refusalsText describes refusals, one per line.
func refusalsText(all []wire.Refusal) string {
	lines := make([]string, len(all))
	for i := range all {
		r := &all[i]
		lines[i] = fmt.Sprintf("job %s of kind %s, block %d: %s", r.Job, oneLine(r.Kind, 200), r.Block, refusedText(r))
	}
	return strings.Join(lines, "\n")
}

// whose describes the holders of the blocks. Consecutive blocks with the same description share a line.
func whose(d *wire.QueueDetail) string {
	lines := []string{fmt.Sprint(d.Blocks)}
	for i := 0; i < len(d.BlockList); {
		n := 1
		for i+n < len(d.BlockList) && blockStory(d.BlockList, i+n) == blockStory(d.BlockList, i) {
			n++
		}
		numbers := fmt.Sprint(d.BlockList[i].Block)
		if n > 1 {
			numbers += fmt.Sprintf("-%d", d.BlockList[i+n-1].Block)
		}
		lines = append(lines, numbers+": "+blockStory(d.BlockList, i))
		i += n
	}
	return strings.Join(lines, "\n")
}

// blockStory describes a block's holder and anything unusual.
func blockStory(blocks []wire.Block, i int) string {
	b := &blocks[i]
	text := "free"
	switch b.State {
	case "held":
		text = oneLine(b.Worker, 200) + " since " + shown(b.Since.Time, time.UTC)
	case "lost":
		text = "of " + oneLine(b.Worker, 200) + ", which was lost"
	}
	if b.Crashes > 0 {
		text += ", after " + counted(b.Crashes, "worker died", "workers in a row died")
	}
	if b.Generation < blocks[len(blocks)-1].Generation {
		text += ", from before the resize: it goes when it is empty"
	}
	return text
}
