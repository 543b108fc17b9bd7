package httpapi

import (
	"context"
	"fmt"
	"net/http"

	"github.com/dbcron/dbcron/queue"
)

type routingJSON struct {
	Kind  string `json:"kind" doc:"Or * for all kinds without a route of their own"`
	Queue string `json:"queue"`
}

type routingsOutput struct {
	Body struct {
		Routings   []routingJSON `json:"routings" nullable:"false"`
		NextCursor string        `json:"next_cursor,omitempty"`
	} `nameHint:"Routings"`
}

type kindPath struct {
	Kind string `path:"kind" minLength:"1" maxLength:"200"`
}

type setRoutingInput struct {
	Kind string `path:"kind" minLength:"1" maxLength:"200"`
	Body struct {
		Queue string `json:"queue" minLength:"1" maxLength:"200" doc:"A queue that is there"`
	} `nameHint:"SetRouting"`
}

type routingOutput struct{ Body routingJSON }

// routings registers the operations on routings.
func (a *API) routings() {
	register(a, operation{
		id: "list-routings", method: http.MethodGet, path: "/routings", tag: "routings", scope: ScopeRead, answer: answerList,
		summary: "List the routes: which queues jobs go to that name none, by kind",
	}, func(ctx context.Context, in *page) (*routingsOutput, error) {
		var after string
		if err := readCursor(in.Cursor, &after); err != nil {
			return nil, err
		}
		found, err := a.admin.Routes(ctx, after, in.Limit)
		if err != nil {
			return nil, err
		}
		out := &routingsOutput{}
		out.Body.Routings = make([]routingJSON, len(found))
		for i, r := range found {
			out.Body.Routings[i] = routingJSON(r)
		}
		if n := len(found); n == in.Limit {
			out.Body.NextCursor = cursorOf(found[n-1].Kind)
		}
		return out, nil
	})
	register(a, operation{
		id: "get-routing", method: http.MethodGet, path: "/routings/{kind}", tag: "routings", scope: ScopeRead,
		summary: "Tell which queue jobs of a kind go to that name none",
		more:    "A kind without a route has that of *, or else the queue default.",
	}, func(ctx context.Context, in *kindPath) (*routingOutput, error) {
		if err := checkNames("kind", in.Kind); err != nil {
			return nil, err
		}
		name, err := a.admin.Route(ctx, in.Kind)
		return &routingOutput{routingJSON{in.Kind, name}}, err
	})
	register(a, operation{
		id: "set-routing", method: http.MethodPut, path: "/routings/{kind}", tag: "routings", scope: ScopeAdmin,
		errors:  []int{http.StatusConflict},
		summary: "Route jobs of a kind to a queue if they name none",
		more:    "All who enqueue follow within two seconds. Jobs that were enqueued before stay where they are.",
	}, func(ctx context.Context, in *setRoutingInput) (*routingOutput, error) {
		if err := checkNames("kind", in.Kind, "queue", in.Body.Queue); err != nil {
			return nil, err
		}
		if _, err := a.admin.Queue(ctx, in.Body.Queue); err != nil {
			return nil, noSuchQueue(err, in.Body.Queue)
		}
		deedOf(ctx).detail = "to " + in.Body.Queue
		err := a.admin.SetRoute(ctx, in.Kind, in.Body.Queue)
		return &routingOutput{routingJSON{in.Kind, in.Body.Queue}}, noSuchQueue(err, in.Body.Queue)
	})
	register(a, operation{
		id: "delete-routing", method: http.MethodDelete, path: "/routings/{kind}", tag: "routings", scope: ScopeAdmin,
		errors:  []int{http.StatusNotFound},
		summary: "Delete the route of a kind",
	}, func(ctx context.Context, in *kindPath) (*struct{}, error) {
		if err := checkNames("kind", in.Kind); err != nil {
			return nil, err
		}
		return nil, a.admin.DeleteRoute(ctx, in.Kind)
	})
}

// noSuchQueue turns an unknown queue into an error about a field of the body: what the path names
// exists.
func noSuchQueue(err error, name string) error {
	if isNotFound(err) {
		return fmt.Errorf("%w", &queue.InvalidError{Field: "queue", Problem: fmt.Sprintf("there is no queue %q; make it first", name)})
	}
	return err
}
