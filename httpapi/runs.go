package httpapi

import (
	"cmp"
	"context"
	"net/http"

	"github.com/dbcron/dbcron/internal/ops/wireof"
	"github.com/dbcron/dbcron/scheduler"
)

type runPath struct {
	ID string `path:"id" pattern:"^[1-9][0-9]*$" maxLength:"19"`
}

type cancelRunInput struct {
	ID   string `path:"id" pattern:"^[1-9][0-9]*$" maxLength:"19"`
	Body *struct {
		Reason string `json:"reason,omitempty" maxLength:"200" doc:"The reason, for people, up to 200 bytes."`
	} `nameHint:"Cancel"`
}

// runs registers the operations on runs.
func (a *API) runs() {
	register(a, operation{
		id: "get-run", method: http.MethodGet, path: "/runs/{id}", tag: "schedules", scope: ScopeRead, answer: answerList,
		errors:  []int{http.StatusNotFound},
		summary: "Show a run and its output, also while it runs",
	}, func(ctx context.Context, in *runPath) (*runOutput, error) {
		id, err := readID("id", in.ID)
		if err != nil {
			return nil, err
		}
		r, err := scheduler.GetRun(ctx, a.db, id)
		if err != nil {
			return nil, err
		}
		return &runOutput{wireof.Run(&r)}, nil
	})
	register(a, operation{
		id: "cancel-run", method: http.MethodPost, path: "/runs/{id}/cancel", tag: "schedules", scope: ScopeOperate,
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
	r, err := scheduler.Cancel(ctx, a.db, id, cmp.Or(why, doneBy(ctx, "cancelled")))
	if err == nil {
		d := deedOf(ctx)
		d.object, d.detail = r.Schedule+"/"+in.ID, why
	}
	return nil, err
}
