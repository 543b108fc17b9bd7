package wireof

import (
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/wire"
)

// GroupDetail returns a group, and what has become of its jobs.
func GroupDetail(g *queue.GroupInfo) wire.Group {
	w := Group(g)
	w.Jobs = &wire.GroupCount{Pending: g.Pending, Done: g.Done, Dead: g.Dead, Cancelled: g.Cancelled}
	if j := g.Callback; j != nil {
		w.CallbackQueue = j.Queue
		w.CallbackPayload, _ = ifJSON(j.Payload, j.Binary)
	}
	return w
}

// Group returns a group as lists have it.
func Group(g *queue.GroupInfo) wire.Group {
	w := wire.Group{
		ID: wire.ID(g.ID), Name: text(g.Name), State: g.State, Created: wire.At(g.Created), Ended: wire.At(g.Ended),
		Keep: wire.DurationOf(g.Keep), Error: text(g.Error),
	}
	if g.Callback != nil {
		w.Callback = g.Callback.Kind
	}
	return w
}

// GroupResult returns what has become of a job of a group.
func GroupResult(r *queue.Result) wire.GroupResult {
	w := wire.GroupResult{Job: wire.ID(r.Job), Queue: r.Queue, Kind: r.Kind, State: r.State, Error: text(r.Error)}
	w.Result, _ = ifJSON(r.Result, false)
	return w
}
