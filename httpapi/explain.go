package httpapi

import (
	"context"
	"net/http"
	"time"

	"github.com/dbcron/dbcron/internal/health"
)

// An explanationJSON says why a schedule runs or does not.
type explanationJSON struct {
	Name    string          `json:"name"`
	State   string          `json:"state" doc:"active, paused, ended or failed"`
	Reason  string          `json:"reason,omitempty" doc:"Why it is not active, or cannot be claimed"`
	Next    *stamp          `json:"next,omitempty" doc:"The next slot"`
	Overdue *stamp          `json:"overdue_since,omitempty" doc:"Since when something waits for a daemon, and for too long"`
	Advice  []string        `json:"what_to_do" nullable:"false" doc:"In words and commands of dbcron"`
	Open    []underWayJSON  `json:"under_way" nullable:"false" doc:"The first 20 runs that have not ended, and what they wait for"`
	Slots   []slotStoryJSON `json:"slots" nullable:"false" doc:"The last slots, the newest first, each with the attempts at it"`
}

type underWayJSON struct {
	Run   string `json:"run" doc:"Its id"`
	State string `json:"state"`
	Text  string `json:"text"`
}

type slotStoryJSON struct {
	Due   *stamp `json:"due,omitempty"`
	To    *stamp `json:"to,omitempty" doc:"Of a stretch of slots: the last one"`
	State string `json:"state"`
	Why   string `json:"why"`
}

func newExplanationJSON(e *health.Explanation) explanationJSON {
	at := func(t *time.Time) *stamp {
		if t == nil {
			return nil
		}
		return optional(*t)
	}
	x := explanationJSON{
		Name: e.Name, State: e.State, Reason: e.Reason, Next: at(e.Next), Overdue: at(e.Overdue), Advice: e.Advice,
		Open: make([]underWayJSON, len(e.Open)), Slots: make([]slotStoryJSON, len(e.Slots)),
	}
	for i, o := range e.Open {
		x.Open[i] = underWayJSON{o.ID, o.State, o.Text}
	}
	for i, s := range e.Slots {
		x.Slots[i] = slotStoryJSON{at(s.Due), at(s.To), s.State, s.Why}
	}
	return x
}

type explainInput struct {
	Schedule string `path:"schedule" minLength:"1" maxLength:"200"`
	Slots    int    `query:"slots" minimum:"1" maximum:"1000" default:"10" doc:"How many of the last slots"`
}

type explainOutput struct{ Body explanationJSON }

// explaining registers the operation that explains why a schedule runs or does not.
func (a *API) explaining() {
	register(a, operation{
		id: "explain-schedule", method: http.MethodGet, path: "/schedules/{schedule}/explain", tag: "schedules", scope: ScopeRead,
		answer:  answerList,
		errors:  []int{http.StatusNotFound},
		summary: "Explain why a schedule did or did not run, and what to do",
	}, func(ctx context.Context, in *explainInput) (*explainOutput, error) {
		if err := checkNames("schedule", in.Schedule); err != nil {
			return nil, err
		}
		e, err := health.Explain(ctx, a.db, in.Schedule, in.Slots, false)
		if err != nil {
			return nil, err
		}
		return &explainOutput{newExplanationJSON(e)}, nil
	})
}
