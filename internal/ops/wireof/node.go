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
