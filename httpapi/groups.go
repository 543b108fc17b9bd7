package httpapi

import (
	"context"
	"net/http"

	"github.com/dbcron/dbcron/internal/ops/wireof"
	"github.com/dbcron/dbcron/wire"
)

type groupPath struct {
	ID string `path:"id" pattern:"^[1-9][0-9]*$" maxLength:"19"`
}

type groupsInput struct {
	State  string `query:"state" enum:"open,sealed,done" default:"sealed" doc:"The state of the groups."`
	Cursor string `query:"cursor" maxLength:"1200" doc:"The next_cursor of the answer before. The list goes on after it."`
	Limit  int    `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"The greatest number of entries in the answer."`
}

type groupsOutput struct {
	Body struct {
		Groups     []wire.Group `json:"groups" nullable:"false" doc:"The groups, by id."`
		NextCursor string       `json:"next_cursor,omitempty" doc:"If it is there, there may be more: send it as cursor."`
	} `nameHint:"Groups"`
}

type groupOutput struct{ Body wire.Group }

type resultsInput struct {
	ID     string `path:"id" pattern:"^[1-9][0-9]*$" maxLength:"19"`
	Cursor string `query:"cursor" maxLength:"1200" doc:"The next_cursor of the answer before. The list goes on after it."`
	Limit  int    `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"The greatest number of entries in the answer."`
}

type resultsOutput struct {
	Body struct {
		Results    []wire.GroupResult `json:"results" nullable:"false" doc:"The jobs of the group, by id, and what has become of each."`
		NextCursor string             `json:"next_cursor,omitempty" doc:"If it is there, there may be more: send it as cursor."`
	} `nameHint:"Results"`
}

// groups registers the operations that show groups.
func (a *API) groups() {
	register(a, operation{
		id: "list-groups", method: http.MethodGet, path: "/groups", tag: "groups", scope: ScopeRead, answer: answerList,
		summary: "List the groups that are in one state, by id",
	}, func(ctx context.Context, in *groupsInput) (*groupsOutput, error) {
		after, err := readIDCursor(in.Cursor)
		if err != nil {
			return nil, err
		}
		found, err := a.queues.Groups(ctx, in.State, after, in.Limit)
		if err != nil {
			return nil, err
		}
		out := &groupsOutput{}
		out.Body.Groups = wireof.Each(found, wireof.Group)
		if n := len(found); n == in.Limit {
			out.Body.NextCursor = wire.ID(found[n-1].ID)
		}
		return out, nil
	})
	register(a, operation{
		id: "get-group", method: http.MethodGet, path: "/groups/{id}", tag: "groups", scope: ScopeRead,
		errors:  []int{http.StatusNotFound},
		summary: "Show a group, and what has become of its jobs",
	}, func(ctx context.Context, in *groupPath) (*groupOutput, error) {
		id, err := readID("id", in.ID)
		if err != nil {
			return nil, err
		}
		g, err := a.queues.Group(ctx, id)
		if err != nil {
			return nil, err
		}
		return &groupOutput{wireof.GroupDetail(&g)}, nil
	})
	register(a, operation{
		id: "group-results", method: http.MethodGet, path: "/groups/{id}/results", tag: "groups", scope: ScopeRead, answer: answerList,
		errors:  []int{http.StatusNotFound},
		summary: "List the jobs of a group, and what has become of each",
		more:    "When the results have more than 1 MiB together there are fewer than the limit, and a next_cursor.",
	}, a.results)
	a.groupActions()
}

func (a *API) results(ctx context.Context, in *resultsInput) (*resultsOutput, error) {
	id, err := readID("id", in.ID)
	if err != nil {
		return nil, err
	}
	after, err := readIDCursor(in.Cursor)
	if err != nil {
		return nil, err
	}
	found, more, err := a.queues.ResultsAfter(ctx, id, after, in.Limit)
	if err == nil && len(found) == 0 {
		_, err = a.queues.Group(ctx, id)
	}
	if err != nil {
		return nil, err
	}
	out := &resultsOutput{}
	out.Body.Results = wireof.Each(found, wireof.GroupResult)
	if more {
		out.Body.NextCursor = wire.ID(found[len(found)-1].Job)
	}
	return out, nil
}
