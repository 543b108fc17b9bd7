package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/dbcron/dbcron/internal/ops/wireof"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/wire"
)

type limitPath struct {
	Queue string `path:"queue" minLength:"1" maxLength:"200"`
	Kind  string `path:"kind" minLength:"1" maxLength:"200" doc:"The kind of the jobs that are limited."`
}

type limitsOutput struct {
	Body struct {
		Limits []wire.Limit `json:"limits" nullable:"false" doc:"The limits of the queue: that of all its jobs first, then those of tenants, then those of kinds."`
	} `nameHint:"Limits"`
}

type allLimitsOutput struct {
	Body struct {
		Limits     []wire.Limit `json:"limits" nullable:"false" doc:"The limits, by queue, kind and tenant: that of all jobs of a queue first."`
		NextCursor string       `json:"next_cursor,omitempty" doc:"If it is there, there may be more: send it as cursor."`
	} `nameHint:"AllLimits"`
}

type limitOutput struct{ Body wire.Limit }

type setLimitInput struct {
	Queue string `path:"queue" minLength:"1" maxLength:"200"`
	Kind  string `path:"kind" minLength:"1" maxLength:"200" doc:"The kind of the jobs that are limited."`
	Body  wire.LimitChange
}

type queueLimitPath struct {
	Queue  string `path:"queue" minLength:"1" maxLength:"200"`
	Per    string `query:"per" enum:"tenant" doc:"tenant: it is a limit of each tenant that has none of its own, or with tenant of that one, and not of all jobs together."`
	Tenant string `query:"tenant" maxLength:"200" doc:"The tenant whose jobs are limited; *: each that has no limit of its own."`
}

type setQueueLimitInput struct {
	Queue  string `path:"queue" minLength:"1" maxLength:"200"`
	Per    string `query:"per" enum:"tenant" doc:"tenant: limit the jobs of each tenant that has no limit of its own, or with tenant those of that one, and not all jobs together."`
	Tenant string `query:"tenant" maxLength:"200" doc:"The tenant whose jobs are limited; *: each that has no limit of its own."`
	Body   wire.LimitChange
}

// tenantOf returns the tenant that is meant; empty: all jobs of the queue.
func tenantOf(per, tenant string) string {
	if tenant == "" && per != "" {
		return admin.EachTenant
	}
	return tenant
}

// limits registers the operations on the limits of queues and kinds.
func (a *API) limits() {
	const all, ofKind = "/queues/{queue}/limits", "/queues/{queue}/limits/{kind}"
	const what = "What is not given stays as it is. A queue is made if there is none. Workers learn of it within three seconds; jobs that run by then are not stopped."
	notFound := []int{http.StatusNotFound}
	register(a, operation{
		id: "list-all-limits", method: http.MethodGet, path: "/limits", tag: "queues", scope: ScopeRead, answer: answerList,
		summary: "List the limits of all queues, kinds and tenants",
	}, a.allLimits)
	register(a, operation{
		id: "list-limits", method: http.MethodGet, path: all, tag: "queues", scope: ScopeRead, answer: answerList, errors: notFound,
		summary: "List the limits of a queue, that of all its jobs first",
	}, func(ctx context.Context, in *queuePath) (*limitsOutput, error) {
		found, err := a.limitsOf(ctx, in.Queue)
		if err != nil {
			return nil, err
		}
		out := &limitsOutput{}
		out.Body.Limits = wireof.Each(found, wireof.Limit)
		return out, nil
	})
	register(a, operation{
		id: "get-limit", method: http.MethodGet, path: ofKind, tag: "queues", scope: ScopeRead, errors: notFound,
		summary: "Show the limit of a kind",
	}, func(ctx context.Context, in *limitPath) (*limitOutput, error) {
		if err := checkNames("kind", in.Kind); err != nil {
			return nil, err
		}
		return a.limit(ctx, in.Queue, in.Kind, "")
	})
	register(a, operation{
		id: "set-queue-limit", method: http.MethodPut, path: all, tag: "queues", scope: ScopeAdmin,
		summary: "Limit all jobs of a queue together, or those of each tenant", more: what,
	}, func(ctx context.Context, in *setQueueLimitInput) (*limitOutput, error) {
		return a.setLimit(ctx, in.Queue, "", tenantOf(in.Per, in.Tenant), &in.Body)
	})
	register(a, operation{
		id: "set-limit", method: http.MethodPut, path: ofKind, tag: "queues", scope: ScopeAdmin,
		summary: "Limit the jobs of one kind in a queue", more: what,
	}, func(ctx context.Context, in *setLimitInput) (*limitOutput, error) {
		return a.setLimit(ctx, in.Queue, in.Kind, "", &in.Body)
	})
	register(a, operation{
		id: "delete-queue-limit", method: http.MethodDelete, path: all, tag: "queues", scope: ScopeAdmin, errors: notFound,
		summary: "Delete the limit of all jobs of a queue together, or that of each tenant",
	}, func(ctx context.Context, in *queueLimitPath) (*struct{}, error) {
		of := tenantOf(in.Per, in.Tenant)
		if err := checkNames("queue", in.Queue, "tenant", of); err != nil {
			return nil, err
		}
		if of == "" {
			return nil, a.admin.DeleteLimit(ctx, in.Queue, "")
		}
		deedOf(ctx).detail = "tenant=" + of
		return nil, a.admin.DeleteTenantLimit(ctx, in.Queue, of)
	})
	register(a, operation{
		id: "delete-limit", method: http.MethodDelete, path: ofKind, tag: "queues", scope: ScopeAdmin, errors: notFound,
		summary: "Delete the limit of a kind",
	}, func(ctx context.Context, in *limitPath) (*struct{}, error) {
		if err := checkNames("queue", in.Queue, "kind", in.Kind); err != nil {
			return nil, err
		}
		return nil, a.admin.DeleteLimit(ctx, in.Queue, in.Kind)
	})
}

func (a *API) allLimits(ctx context.Context, in *page) (*allLimitsOutput, error) {
	var name, kind, tenant string
	if err := readCursor(in.Cursor, &name, &kind, &tenant); err != nil {
		return nil, err
	}
	after := admin.Limit{Queue: name, Kind: strings.TrimPrefix(kind, "="), Tenant: strings.TrimPrefix(tenant, "=")}
	found, err := a.admin.Limits(ctx, after, in.Limit)
	if err != nil {
		return nil, err
	}
	out := &allLimitsOutput{}
	out.Body.Limits = wireof.Each(found, wireof.Limit)
	if n := len(found); n == in.Limit {
		out.Body.NextCursor = cursorOf(found[n-1].Queue, "="+found[n-1].Kind, "="+found[n-1].Tenant) // a cursor has no empty names
	}
	return out, nil
}

// limitsOf lists the limits of a queue, which must exist.
func (a *API) limitsOf(ctx context.Context, name string) ([]admin.LimitInfo, error) {
	if err := checkNames("queue", name); err != nil {
		return nil, err
	}
	found, err := a.admin.LimitsOf(ctx, name)
	if err == nil && len(found) == 0 {
		_, err = a.admin.Queue(ctx, name)
	}
	return found, err
}

func (a *API) limit(ctx context.Context, name, kind, tenant string) (*limitOutput, error) {
	found, err := a.limitsOf(ctx, name)
	if err != nil {
		return nil, err
	}
	for i := range found {
		if found[i].Kind == kind && found[i].Tenant == tenant {
			return &limitOutput{wireof.Limit(&found[i])}, nil
		}
	}
	return nil, fmt.Errorf("%w: limit of queue %q and kind %q", queue.ErrNotFound, name, kind)
}

func (a *API) setLimit(ctx context.Context, name, kind, tenant string, n *wire.LimitChange) (*limitOutput, error) {
	if err := checkNames("queue", name, "kind", kind, "tenant", tenant); err != nil {
		return nil, err
	}
	change, err := wireof.LimitChange(n)
	if err != nil {
		return nil, err
	}
	if tenant == "" {
		_, err = a.admin.EditLimit(ctx, name, kind, change)
	} else {
		deedOf(ctx).detail = "tenant=" + tenant
		_, err = a.admin.EditTenantLimit(ctx, name, tenant, change)
	}
	var wrong *queue.InvalidError
	switch {
	case errors.As(err, &wrong) && wrong.Field == "limit":
		return nil, invalid("running", "%s", wrong.Problem)
	case err != nil:
		return nil, err
	}
	return a.limit(ctx, name, kind, tenant)
}
