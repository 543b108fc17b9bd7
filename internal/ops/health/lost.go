package health

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/dbcron/dbcron/internal/jobfield"
	"github.com/dbcron/dbcron/internal/plain"
	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/scheduler"
)

// processOf returns the name of the process of a worker.
func processOf(node string) string { return (&scheduler.Node{Name: node}).Process() }

// LostOf returns the worker that a queue lost last, if nobody serves it since.
func LostOf(lost []admin.LostWorker, queue string) *admin.LostWorker {
	if i := slices.IndexFunc(lost, func(w admin.LostWorker) bool { return w.Queue == queue }); i >= 0 {
		return &lost[i]
	}
	return nil
}

// LostText says when a worker was lost.
func LostText(w *admin.LostWorker, now time.Time) string {
	return plain.Line(processOf(w.Node), 100) + " was lost " + plain.Span(max(0, now.Sub(w.At)).Round(time.Second)) + " ago"
}

// unserved is why a job waits of whose queue nobody is a worker, and what to do about it. lost is nil if no worker is known to be lost.
func unserved(queue string, lost *admin.LostWorker, now time.Time) Cause {
	c := Cause{
		Why: "no worker serves its queue", unserved: true,
		Do: "start a worker for it: a program of yours, dbcron worker exec --queue " + argument(queue) + " -- COMMAND, or dbcron serve for one with an endpoint",
	}
	if lost != nil {
		c.lost = LostText(lost, now)
		c.Why += ": " + c.lost
		c.Do = "see the log of that host, and " + c.Do
	}
	return c
}

// Unserved says that nobody serves a queue since its last worker was lost, or returns nil.
func Unserved(ctx context.Context, c *admin.Client, queue string, now time.Time) (*Cause, error) {
	lost, err := c.Lost(ctx)
	if w := LostOf(lost, queue); err == nil && w != nil {
		return new(unserved(queue, w, now)), nil
	}
	return nil, err
}

// unservedBy returns the queues that nobody serves since a process was lost.
func unservedBy(lost []admin.LostWorker, process string) (queues []string) {
	for i := range lost {
		if w := &lost[i]; processOf(w.Node) == process && !jobfield.Reserved(w.Queue) && !slices.Contains(queues, w.Queue) {
			queues = append(queues, w.Queue)
		}
	}
	slices.Sort(queues)
	return queues
}

// some names the first of some things.
func some(names []string) string {
	const most = 3
	var list []string
	for _, name := range names[:min(len(names), most)] {
		list = append(list, plain.Line(name, 100))
	}
	text := strings.Join(list, ", ")
	if more := len(names) - most; more > 0 {
		text += " and " + plain.Plural(more, "other", "others")
	}
	return text
}
