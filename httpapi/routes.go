package httpapi

import (
	"context"
	"net/http"

	"github.com/dbcron/dbcron/internal/ops/wireof"
	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/wire"
)

type routesOutput struct {
	Body struct {
		Routes     []wire.Route `json:"routes" nullable:"false" doc:"The routes, by kind."`
		NextCursor string       `json:"next_cursor,omitempty" doc:"If it is there, there may be more: send it as cursor."`
	} `nameHint:"Routes"`
}

type kindPath struct {
	Kind string `path:"kind" minLength:"1" maxLength:"200"`
}

type setRouteInput struct {
	Kind string `path:"kind" minLength:"1" maxLength:"200"`
	Body struct {
		Queue string `json:"queue" minLength:"1" maxLength:"200" doc:"The queue to which the jobs go. It must exist."`
	} `nameHint:"SetRoute"`
}

type routeOutput struct{ Body wire.Route }

// routing registers the operations on routes.
func (a *API) routing() {
	register(a, operation{
		id: "list-routes", method: http.MethodGet, path: "/routes", tag: "routes", scope: ScopeRead, answer: answerList,
		summary: "List the routes: which queues jobs go to that name none, by kind",
	}, func(ctx context.Context, in *page) (*routesOutput, error) {
		out := &routesOutput{}
		var err error
		out.Body.Routes, out.Body.NextCursor, err = pageOf(ctx, in, a.admin.Routes, func(r *admin.Route) string { return r.Kind }, wireof.Route)
		return out, err
	})
	register(a, operation{
		id: "get-route", method: http.MethodGet, path: "/routes/{kind}", tag: "routes", scope: ScopeRead,
		summary: "Tell which queue jobs of a kind go to that name none",
		more:    "A kind without a route has that of *, or else the queue default.",
	}, func(ctx context.Context, in *kindPath) (*routeOutput, error) {
		if err := checkNames("kind", in.Kind); err != nil {
			return nil, err
		}
		name, err := a.admin.Route(ctx, in.Kind)
		return &routeOutput{wire.Route{Kind: in.Kind, Queue: name}}, err
	})
	register(a, operation{
		id: "set-route", method: http.MethodPut, path: "/routes/{kind}", tag: "routes", scope: ScopeAdmin,
		errors:  []int{http.StatusConflict},
		summary: "Route jobs of a kind to a queue if they name none",
		more:    "A queue is made if there is none. All who enqueue follow within two seconds. Jobs that were enqueued before stay where they are.",
	}, func(ctx context.Context, in *setRouteInput) (*routeOutput, error) {
		if err := checkNames("kind", in.Kind, "queue", in.Body.Queue); err != nil {
			return nil, err
		}
		deedOf(ctx).detail = "to " + in.Body.Queue
		err := a.admin.SetRoute(ctx, in.Kind, in.Body.Queue)
		return &routeOutput{wire.Route{Kind: in.Kind, Queue: in.Body.Queue}}, err
	})
	register(a, operation{
		id: "delete-route", method: http.MethodDelete, path: "/routes/{kind}", tag: "routes", scope: ScopeAdmin,
		errors:  []int{http.StatusNotFound},
		summary: "Delete the route of a kind",
	}, func(ctx context.Context, in *kindPath) (*struct{}, error) {
		if err := checkNames("kind", in.Kind); err != nil {
			return nil, err
		}
		return nil, a.admin.DeleteRoute(ctx, in.Kind)
	})
}
