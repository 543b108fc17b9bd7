package wireof

import (
	"strings"

	"github.com/dbcron/dbcron/scheduler"
	"github.com/dbcron/dbcron/wire"
)

// Node returns a daemon or a worker.
func Node(n *scheduler.Node) wire.Node {
	w := wire.Node{
		Name: text(n.Name), State: n.State, Version: text(n.Version), Started: wire.At(n.Started), Until: wire.At(n.Until),
		Drained: wire.At(n.Drained), DrainedBy: text(n.DrainedBy),
	}
	if n.Tags != "" {
		w.Tags = strings.Split(n.Tags, ",")
	}
	switch {
	case n.State == "live" && !n.Live:
		w.State = "lost"
	case n.State == "live" && !n.Drained.IsZero():
		w.State = "drained"
	}
	return w
}

// NodeOf returns the node that Node has made this of.
func NodeOf(w *wire.Node) scheduler.Node {
	n := scheduler.Node{
		Name: w.Name, State: w.State, Version: w.Version, Started: w.Started.Time, Until: w.Until.Time,
		Drained: w.Drained.Time, DrainedBy: w.DrainedBy, Tags: strings.Join(w.Tags, ","),
	}
	if n.State == "drained" {
		n.State = "live"
	}
	n.Live = n.State == "live"
	return n
}
