package httpapi

import (
	"context"
	"net/http"
	"strings"

	"github.com/dbcron/dbcron/scheduler"
)

type runPath struct {
	ID string `path:"id" pattern:"^[1-9][0-9]*$" maxLength:"19"`
}

// A wholeRunJSON is a run with what it has written.
type wholeRunJSON struct {
	runJSON
	Cancel string `json:"cancel,omitempty" doc:"Somebody wants it to end, and why"`
	Output string `json:"output" doc:"Standard output and error, or the answer: the first and the last 32 KiB. While it runs, as far as its daemon has written it, which it does every few seconds"`
}

type wholeRunOutput struct {
	Body wholeRunJSON `nameHint:"RunWithOutput"`
}

type cancelRunInput struct {
	ID   string `path:"id" pattern:"^[1-9][0-9]*$" maxLength:"19"`
	Body *struct {
		Reason string `json:"reason,omitempty" maxLength:"200" doc:"For people; 200 bytes"`
	} `nameHint:"Cancel"`
}

// runs describes what can be seen of runs and done with them.
func (a *API) runs() {
	register(a, operation{
		id: "get-run", method: http.MethodGet, path: "/runs/{id}", tag: "schedules", scope: ScopeRead,
		errors:  []int{http.StatusNotFound},
		summary: "Show a run and its output, also while it runs",
	}, func(ctx context.Context, in *runPath) (*wholeRunOutput, error) {
		id, err := readID("id", in.ID)
		if err != nil {
			return nil, err
		}
		r, err := scheduler.GetRun(ctx, a.db, id)
		if err != nil {
			return nil, err
		}
		return &wholeRunOutput{wholeRunJSON{newRunJSON(&r), strings.ToValidUTF8(r.Cancel, "�"), strings.ToValidUTF8(r.Output, "�")}}, nil
	})
	register(a, operation{
		id: "cancel-run", method: http.MethodPost, path: "/runs/{id}/cancel", tag: "schedules", scope: ScopeAdmin,
		errors:  []int{http.StatusNotFound, http.StatusConflict},
		summary: "End a run: at once if it waits, else by its daemon, within seconds",
	}, a.cancelRun)
}

func (a *API) cancelRun(ctx context.Context, in *cancelRunInput) (*struct{}, error) {
	id, err := readID("id", in.ID)
	if err != nil {
		return nil, err
	}
	why := ""
	if in.Body != nil {
		why = in.Body.Reason
	}
	if err := checkText("reason", why, 200); err != nil {
		return nil, err
	}
	_, err = scheduler.Cancel(ctx, a.db, id, why)
	return nil, err
}
