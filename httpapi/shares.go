package httpapi

import (
	"context"
	"fmt"
	"net/http"

	"github.com/dbcron/dbcron/internal/ops/wireof"
	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/wire"
)

type sharePath struct {
	Queue  string `path:"queue" minLength:"1" maxLength:"200"`
	Tenant string `path:"tenant" minLength:"1" maxLength:"200" doc:"The tenant of the jobs."`
}

type listSharesInput struct {
	Queue  string `path:"queue" minLength:"1" maxLength:"200"`
	Cursor string `query:"cursor" maxLength:"1200" doc:"The next_cursor of the answer before. The list goes on after it."`
	Limit  int    `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"The greatest number of entries in the answer."`
}

type sharesOutput struct {
	Body struct {
		Shares     []wire.Share `json:"shares" nullable:"false" doc:"The shares, by tenant."`
		NextCursor string       `json:"next_cursor,omitempty" doc:"If it is there, there may be more: send it as cursor."`
	} `nameHint:"Shares"`
}

type setShareInput struct {
	Queue  string `path:"queue" minLength:"1" maxLength:"200"`
	Tenant string `path:"tenant" minLength:"1" maxLength:"200" doc:"The tenant of the jobs."`
	Body   wire.ShareChange
}

type shareOutput struct{ Body wire.Share }

// shares registers the operations on the shares of tenants.
func (a *API) shares() {
	const all, one = "/queues/{queue}/shares", "/queues/{queue}/shares/{tenant}"
	notFound := []int{http.StatusNotFound}
	register(a, operation{
		id: "list-shares", method: http.MethodGet, path: all, tag: "queues", scope: ScopeRead, answer: answerList, errors: notFound,
		summary: "List the shares of a queue's tenants",
		more:    "A tenant that is not listed has one turn. Shares have an effect while the queue is fair.",
	}, func(ctx context.Context, in *listSharesInput) (*sharesOutput, error) {
		if err := checkNames("queue", in.Queue); err != nil {
			return nil, err
		}
		if _, err := a.admin.Queue(ctx, in.Queue); err != nil {
			return nil, err
		}
		out := &sharesOutput{}
		var err error
		list := func(ctx context.Context, after string, limit int) ([]admin.Share, error) {
			return a.admin.Shares(ctx, in.Queue, after, limit)
		}
		name := func(s *admin.Share) string { return s.Tenant }
		out.Body.Shares, out.Body.NextCursor, err = pageOf(ctx, &page{in.Cursor, in.Limit}, list, name, wireof.Share)
		return out, err
	})
	register(a, operation{
		id: "set-share", method: http.MethodPut, path: one, tag: "queues", scope: ScopeAdmin,
		summary: "Give a tenant of a queue a share",
		more:    "A queue is made if there is none. It has an effect while the queue is fair. Workers learn of it within three seconds.",
	}, func(ctx context.Context, in *setShareInput) (*shareOutput, error) {
		deedOf(ctx).detail = fmt.Sprintf("%s: weight %d", in.Tenant, in.Body.Weight)
		err := a.admin.SetShare(ctx, in.Queue, in.Tenant, in.Body.Weight)
		return &shareOutput{wire.Share{Queue: in.Queue, Tenant: in.Tenant, Weight: in.Body.Weight}}, err
	})
	register(a, operation{
		id: "delete-share", method: http.MethodDelete, path: one, tag: "queues", scope: ScopeAdmin, errors: notFound,
		summary: "Delete the share of a tenant, which has one turn then",
	}, func(ctx context.Context, in *sharePath) (*struct{}, error) {
		deedOf(ctx).detail = in.Tenant
		return nil, a.admin.DeleteShare(ctx, in.Queue, in.Tenant)
	})
}
