package httpapi

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/dbcron/dbcron/queue"
)

type groupPath struct {
	ID string `path:"id" pattern:"^[1-9][0-9]*$" maxLength:"19"`
}

type groupsInput struct {
	State  string `query:"state" enum:"open,sealed,done" default:"sealed"`
	Cursor string `query:"cursor" maxLength:"1200" doc:"next_cursor of the answer before: what comes after that"`
	Limit  int    `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"How many at the most"`
}

type memberCounts struct {
	Pending   int `json:"pending"`
	Done      int `json:"done"`
	Dead      int `json:"dead"`
	Cancelled int `json:"cancelled"`
}

type groupJSON struct {
	ID       string        `json:"id"`
	Name     string        `json:"name,omitempty"`
	State    string        `json:"state" enum:"open,sealed,done" doc:"open: it does not end yet; sealed: it ends when none of its jobs is pending"`
	Created  stamp         `json:"created"`
	Ended    *stamp        `json:"ended,omitempty"`
	Callback string        `json:"callback,omitempty" doc:"The kind of the job that is enqueued when it has ended"`
	Keep     string        `json:"keep" doc:"How long it is kept after its end, or forever"`
	Error    string        `json:"error,omitempty" doc:"Why its callback could not be enqueued"`
	Jobs     *memberCounts `json:"jobs,omitempty" doc:"What has become of them; not in lists"`
}

func newGroupJSON(g *queue.GroupInfo) groupJSON {
	j := groupJSON{
		ID: idText(g.ID), Name: g.Name, State: g.State, Created: stamp{g.Created}, Ended: optional(g.Ended),
		Keep: durationText(g.Keep), Error: g.Error,
	}
	if g.Keep < 0 {
		j.Keep = forever
	}
	if g.Callback != nil {
		j.Callback = g.Callback.Kind
	}
	return j
}

type groupsOutput struct {
	Body struct {
		Groups     []groupJSON `json:"groups" nullable:"false"`
		NextCursor string      `json:"next_cursor,omitempty"`
	} `nameHint:"Groups"`
}

type groupOutput struct {
	Body groupJSON
}

type resultsInput struct {
	ID     string `path:"id" pattern:"^[1-9][0-9]*$" maxLength:"19"`
	Cursor string `query:"cursor" maxLength:"1200" doc:"next_cursor of the answer before: what comes after that"`
	Limit  int    `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"How many at the most"`
}

type resultJSON struct {
	Job    string   `json:"job"`
	Queue  string   `json:"queue"`
	Kind   string   `json:"kind"`
	State  string   `json:"state" enum:"pending,done,dead,cancelled"`
	Result jsonText `json:"result,omitempty" doc:"The job's result"`
	Error  string   `json:"error,omitempty" doc:"Why it is dead"`
}

type resultsOutput struct {
	Body struct {
		Results    []resultJSON `json:"results" nullable:"false"`
		NextCursor string       `json:"next_cursor,omitempty"`
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
		out.Body.Groups = make([]groupJSON, len(found))
		for i := range found {
			out.Body.Groups[i] = newGroupJSON(&found[i])
		}
		if n := len(found); n == in.Limit {
			out.Body.NextCursor = idText(found[n-1].ID)
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
		out := &groupOutput{newGroupJSON(&g)}
		out.Body.Jobs = &memberCounts{g.Pending, g.Done, g.Dead, g.Cancelled}
		return out, nil
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
	out.Body.Results = make([]resultJSON, len(found))
	for i, r := range found {
		out.Body.Results[i] = resultJSON{Job: idText(r.Job), Queue: r.Queue, Kind: r.Kind, State: r.State, Error: r.Error}
		if json.Valid(r.Result) { // otherwise somebody wrote it by hand
			out.Body.Results[i].Result = jsonText(r.Result)
		}
	}
	if more {
		out.Body.NextCursor = idText(found[len(found)-1].Job)
	}
	return out, nil
}
