package httpapi

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/dbcron/dbcron/internal/ops/health"
	"github.com/dbcron/dbcron/internal/ops/wireof"
	"github.com/dbcron/dbcron/internal/plain"
	"github.com/dbcron/dbcron/scheduler"
	"github.com/dbcron/dbcron/wire"
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

type listRunsInput struct {
	Schedule string `query:"schedule" maxLength:"200" doc:"Only the runs of this schedule."`
	Since    string `query:"since" maxLength:"40" doc:"Only runs that had not ended before this time, in RFC 3339, or this long ago, such as 12h."`
	Until    string `query:"until" maxLength:"40" doc:"Only runs that began before this time, or this long ago. For a run that never began, its due time counts."`
	State    string `query:"state" maxLength:"200" doc:"Only runs in one of these states, with commas between."`
	Cursor   string `query:"cursor" maxLength:"1200" doc:"The next_cursor of the answer before. The list goes on after it."`
	Limit    int    `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"The greatest number of runs."`
}

type listRunsOutput struct {
	Body struct {
		Runs       []wire.Run `json:"runs" nullable:"false" doc:"The runs, the one that was made last first."`
		NextCursor string     `json:"next_cursor,omitempty" doc:"If it is there, there may be more: send it as cursor."`
	} `nameHint:"Runs"`
}

type attemptsInput struct {
	ID   string `path:"id" pattern:"^[1-9][0-9]*$" maxLength:"19"`
	From int    `query:"from" minimum:"1" maximum:"1000000" default:"1" doc:"Only attempts from this number on."`
}

// mostAttempts is how many attempts are listed with their output.
const mostAttempts = 20

// runs registers the operations on runs.
func (a *API) runs() {
	register(a, operation{
		id: "list-runs", method: http.MethodGet, path: "/runs", tag: "schedules", scope: ScopeRead, answer: answerList,
		summary: "List the newest runs of all schedules",
		more:    "Ten thousand runs are looked at, so there may be fewer than the limit, and a next_cursor.",
	}, a.listRuns)
	register(a, operation{
		id: "list-attempts", method: http.MethodGet, path: "/runs/{id}/attempts", tag: "schedules", scope: ScopeRead, answer: answerList,
		errors:  []int{http.StatusNotFound},
		summary: "List the attempts at a run's slot with their output, the first one first, 20 at the most",
	}, func(ctx context.Context, in *attemptsInput) (*historyOutput, error) {
		r, err := a.run(ctx, in.ID)
		if err != nil {
			return nil, err
		}
		found, err := health.RunsOfSlot(ctx, a.db, &r, in.From, mostAttempts)
		out := &historyOutput{}
		out.Body.Runs = wireof.Each(found, wireof.Run)
		return out, err
	})
	register(a, operation{
		id: "get-run", method: http.MethodGet, path: "/runs/{id}", tag: "schedules", scope: ScopeRead, answer: answerList,
		errors:  []int{http.StatusNotFound},
		summary: "Show a run and its output, also while it runs",
	}, func(ctx context.Context, in *runPath) (*runOutput, error) {
		r, err := a.run(ctx, in.ID)
		if err != nil {
			return nil, err
		}
		return &runOutput{wireof.Run(&r)}, nil
	})
	register(a, operation{
		id: "cancel-run", method: http.MethodPost, path: "/runs/{id}/cancel", tag: "schedules", scope: ScopeOperate,
		errors:  []int{http.StatusNotFound, http.StatusConflict},
		summary: "End a run: at once if it waits, else by its daemon, within seconds; show what it was",
	}, a.cancelRun)
}

func (a *API) run(ctx context.Context, text string) (scheduler.Run, error) {
	id, err := readID("id", text)
	if err != nil {
		return scheduler.Run{}, err
	}
	return scheduler.GetRun(ctx, a.db, id)
}

func (a *API) listRuns(ctx context.Context, in *listRunsInput) (*listRunsOutput, error) {
	f := scheduler.RunFilter{Schedule: in.Schedule, Limit: in.Limit}
	err := checkNames("schedule", in.Schedule)
	if err == nil {
		f.Before, err = readIDCursor(in.Cursor)
	}
	if err == nil && in.State != "" {
		f.States = strings.Split(in.State, ",")
	}
	for _, state := range f.States {
		if !slices.Contains(scheduler.RunStates, state) {
			err = invalid("state", "%q is not known; use %s", state, strings.Join(scheduler.RunStates, ", "))
		}
	}
	if err == nil {
		f.Since, err = a.timeOrAgo(ctx, "since", in.Since)
	}
	if err == nil {
		f.Until, err = a.timeOrAgo(ctx, "until", in.Until)
	}
	if err == nil && !f.Until.IsZero() && !f.Since.Before(f.Until) {
		err = invalid("until", "%s is not after since, %s", in.Until, in.Since)
	}
	if err != nil {
		return nil, err
	}
	found, more, err := scheduler.RecentRuns(ctx, a.db, f)
	if err != nil {
		return nil, err
	}
	out := &listRunsOutput{}
	out.Body.Runs = make([]wire.Run, 0, len(found))
	for i := range found {
		w := listedRun(&found[i])
		if senderOf(ctx).here != nil {
			all, err := scheduler.GetRun(ctx, a.db, found[i].ID)
			if errors.Is(err, scheduler.ErrNoRun) { // deleted meanwhile
				continue
			}
			if err != nil {
				return nil, err
			}
			w = wireof.Run(&all)
		}
		out.Body.Runs = append(out.Body.Runs, w)
	}
	out.Body.NextCursor = wire.ID(more)
	return out, nil
}

// timeOrAgo reads a time, or how long ago it was; "" is the zero time.
func (a *API) timeOrAgo(ctx context.Context, field, text string) (at time.Time, err error) {
	ago, wrong := plain.ParseDuration(text)
	if text == "" || wrong != nil {
		return at, givenTime(field, &at, &text)
	}
	now, err := scheduler.Clock(ctx, a.db)
	return now.Add(-ago), err
}

func (a *API) cancelRun(ctx context.Context, in *cancelRunInput) (*runOutput, error) {
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
	was, err := scheduler.Cancel(ctx, a.db, id, cmp.Or(why, doneBy(ctx, "cancelled")))
	if err != nil {
		return nil, err
	}
	d := deedOf(ctx)
	d.object, d.detail = was.Schedule+"/"+in.ID, why
	return &runOutput{listedRun(&was)}, nil
}
