package httpapi

import (
	"cmp"
	"context"
	"net/http"

	"github.com/dbcron/dbcron/internal/ops/audit"
	"github.com/dbcron/dbcron/internal/ops/wireof"
	"github.com/dbcron/dbcron/scheduler"
	"github.com/dbcron/dbcron/wire"
)

type nodesOutput struct {
	Body struct {
		Nodes      []wire.Node `json:"nodes" nullable:"false" doc:"The parts of daemons and workers, by name."`
		NextCursor string      `json:"next_cursor,omitempty" doc:"If it is there, there may be more: send it as cursor."`
	} `nameHint:"Nodes"`
}

func newNodesOutput(found []scheduler.Node) *nodesOutput {
	out := &nodesOutput{}
	out.Body.Nodes = wireof.Each(found, wireof.Node)
	return out
}

type nodeWorkOutput struct{ Body wire.NodeWork }

type nodePath struct {
	Name string `path:"name" minLength:"1" maxLength:"200" doc:"The name of one, or what the names of several begin with before a colon, such as host:pid."`
}

// nodes registers the operations on daemons and workers.
func (a *API) nodes() {
	notFound := []int{http.StatusNotFound}
	register(a, operation{
		id: "list-nodes", method: http.MethodGet, path: "/nodes", tag: "nodes", scope: ScopeRead, answer: answerList,
		summary: "List daemons and workers by name",
	}, func(ctx context.Context, in *page) (*nodesOutput, error) {
		out := &nodesOutput{}
		list := func(ctx context.Context, after string, limit int) ([]scheduler.Node, error) {
			return scheduler.Nodes(ctx, a.db, after, limit)
		}
		var err error
		out.Body.Nodes, out.Body.NextCursor, err = pageOf(ctx, in, list, func(n *scheduler.Node) string { return n.Name }, wireof.Node)
		return out, err
	})
	register(a, operation{
		id: "node-work", method: http.MethodGet, path: "/nodes/{name}/work", tag: "nodes", scope: ScopeRead, errors: notFound,
		summary: "Tell how much a process has begun and not ended",
		more:    "A process that is drained has ended its work when this is nothing, or it is gone.",
	}, func(ctx context.Context, in *nodePath) (*nodeWorkOutput, error) {
		if err := checkNames("name", in.Name); err != nil {
			return nil, err
		}
		runs, jobs, err := scheduler.Begun(ctx, a.db, in.Name)
		return &nodeWorkOutput{wire.NodeWork{Runs: runs, Jobs: jobs}}, err
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
