package httpapi

import (
	"context"
	"net/http"

	"github.com/dbcron/dbcron/internal/ops/health"
	"github.com/dbcron/dbcron/wire"
)

type explainInput struct {
	Schedule string `path:"schedule" minLength:"1" maxLength:"200"`
	Slots    int    `query:"slots" minimum:"1" maximum:"1000" default:"10" doc:"The number of the last slots."`
}

type explainOutput struct{ Body wire.Explanation }

type jobExplainOutput struct{ Body wire.JobExplanation }

// explaining registers the operations that explain why a schedule runs or does not, and why a job waits.
func (a *API) explaining() {
	oneJob(a, operation{
		id: "explain-job", method: http.MethodGet, path: "/queues/{queue}/jobs/{id}/explain", scope: ScopeRead, answer: answerList,
		summary: "Explain why a job waits, or what has become of it, and what to do",
	}, func(ctx context.Context, name string, id int64) (*jobExplainOutput, error) {
		e, err := health.ExplainJob(ctx, a.db, a.admin, name, id)
		if err != nil {
			return nil, err
		}
		return &jobExplainOutput{e.Wire()}, nil
	})
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
		return &explainOutput{e.Wire()}, nil
	})
}
