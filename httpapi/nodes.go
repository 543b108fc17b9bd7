package httpapi

import (
	"cmp"
	"context"
	"net/http"

	"github.com/dbcron/dbcron/internal/ops/audit"
	"github.com/dbcron/dbcron/scheduler"
)

type nodeJSON struct {
	Name      string `json:"name" doc:"Host, process and a random part: each part of a process has its own"`
	State     string `json:"state" enum:"live,drained,lost,gone" doc:"lost: it was not heard of in time; gone: it has ended"`
	Version   string `json:"version,omitempty" doc:"Of its program; absent: it does not say"`
	Tags      string `json:"tags,omitempty" doc:"Of the schedules that it runs, with commas between; absent: it runs none"`
	Started   stamp  `json:"started"`
	Until     *stamp `json:"until,omitempty" doc:"When it counts as lost, unless it is heard of before"`
	Drained   *stamp `json:"drained,omitempty" doc:"Since when it takes no new work"`
	DrainedBy string `json:"drained_by,omitempty"`
}

func newNodeJSON(n *scheduler.Node) nodeJSON {
	j := nodeJSON{
		Name: n.Name, State: n.State, Version: n.Version, Tags: n.Tags, Started: stamp{n.Started}, Until: optional(n.Until),
		Drained: optional(n.Drained), DrainedBy: n.DrainedBy,
	}
	switch {
	case n.State == "live" && !n.Live:
		j.State = "lost"
	case n.State == "live" && !n.Drained.IsZero():
		j.State = "drained"
	}
	return j
}

type nodesOutput struct {
	Body struct {
		Nodes      []nodeJSON `json:"nodes" nullable:"false"`
		NextCursor string     `json:"next_cursor,omitempty"`
	} `nameHint:"Nodes"`
}

func newNodesOutput(found []scheduler.Node) *nodesOutput {
	out := &nodesOutput{}
	out.Body.Nodes = make([]nodeJSON, len(found))
	for i := range found {
		out.Body.Nodes[i] = newNodeJSON(&found[i])
	}
	return out
}

type nodePath struct {
	Name string `path:"name" minLength:"1" maxLength:"200" doc:"Of one, or what the names of several begin with before a colon, such as host:pid"`
}

// nodes registers the operations on daemons and workers.
func (a *API) nodes() {
	notFound := []int{http.StatusNotFound}
	register(a, operation{
		id: "list-nodes", method: http.MethodGet, path: "/nodes", tag: "nodes", scope: ScopeRead, answer: answerList,
		summary: "List daemons and workers by name",
	}, func(ctx context.Context, in *page) (*nodesOutput, error) {
		var after string
		if err := readCursor(in.Cursor, &after); err != nil {
			return nil, err
		}
		found, err := scheduler.Nodes(ctx, a.db, after, in.Limit)
		if err != nil {
			return nil, err
		}
		out := newNodesOutput(found)
		if n := len(found); n == in.Limit {
			out.Body.NextCursor = cursorOf(found[n-1].Name)
		}
		return out, nil
	})
	register(a, operation{
		id: "drain-node", method: http.MethodPost, path: "/nodes/{name}/drain", tag: "nodes", scope: ScopeOperate, errors: notFound,
		summary: "Drain a process, so that it takes no new work",
		more:    "It begins no runs and no jobs, and ends what it has begun, until it is undrained or ends.",
	}, func(ctx context.Context, in *nodePath) (*nodesOutput, error) {
		if err := checkNames("name", in.Name); err != nil {
			return nil, err
		}
		found, err := scheduler.Drain(ctx, a.db, in.Name, cmp.Or(senderOf(ctx).token, audit.ThisHost))
		if err != nil {
			return nil, err
		}
		deedOf(ctx).count = len(found)
		return newNodesOutput(found), nil
	})
	register(a, operation{
		id: "undrain-node", method: http.MethodPost, path: "/nodes/{name}/undrain", tag: "nodes", scope: ScopeOperate, errors: notFound,
		summary: "Undrain a process, so that it takes work again",
	}, func(ctx context.Context, in *nodePath) (*nodesOutput, error) {
		if err := checkNames("name", in.Name); err != nil {
			return nil, err
		}
		found, err := scheduler.Undrain(ctx, a.db, in.Name)
		if err != nil {
			return nil, err
		}
		deedOf(ctx).count = len(found)
		return newNodesOutput(found), nil
	})
}
