package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/dbcron/dbcron/internal/ops/health"
	"github.com/dbcron/dbcron/internal/plain"
	"github.com/dbcron/dbcron/scheduler"
	"github.com/dbcron/dbcron/wire"
)

// ErrNoFinding means that no finding has this ID: it is over, or has changed.
var ErrNoFinding = errors.New("httpapi: no such finding, or no more; list them anew")

type findingsOutput struct {
	Body struct {
		Findings []wire.Finding `json:"findings" nullable:"false" doc:"What is wrong, the worst first, with what was acknowledged."`
	} `nameHint:"Findings"`
}

type findingPath struct {
	Finding string `path:"finding" minLength:"1" maxLength:"64" doc:"The id of the finding."`
}

type acknowledgeInput struct {
	Finding string `path:"finding" minLength:"1" maxLength:"64" doc:"The id of the finding."`
	Body    *pauseJSON
}

// findings registers the operations on what is wrong with the work.
func (a *API) findings() {
	notFound := []int{http.StatusNotFound}
	register(a, operation{
		id: "list-findings", method: http.MethodGet, path: "/findings", tag: "status", scope: ScopeRead,
		summary: "List what is wrong with schedules, runs, queues, endpoints and processes",
		more:    "It is what the dashboard's overview shows, and dbcron doctor beside its checks of the database.",
	}, func(ctx context.Context, _ *struct{}) (*findingsOutput, error) {
		out := &findingsOutput{}
		out.Body.Findings = []wire.Finding{}
		now, all, err := a.wrong(ctx)
		if err != nil {
			return nil, err
		}
		known, err := health.Acknowledged(ctx, a.db, now)
		for i := range all {
			f := findingOf(&all[i])
			if e, is := known[f.ID]; is {
				f.AcknowledgedBy, f.AcknowledgedAt, f.Reason = plain.Clean(e.Actor), wire.At(e.At), plain.Clean(health.ReasonOf(&e))
			}
			out.Body.Findings = append(out.Body.Findings, f)
		}
		return out, err
	})
	register(a, operation{
		id: "acknowledge-finding", method: http.MethodPost, path: "/findings/{finding}/acknowledge", tag: "status", scope: ScopeOperate,
		errors: notFound, summary: "Acknowledge a finding, so that it counts no more until it changes",
		more: "dbcron doctor then counts it neither for its exit code nor for --monitor, for 30 days at the longest.",
	}, func(ctx context.Context, in *acknowledgeInput) (*struct{}, error) {
		return nil, a.mark(ctx, in.Finding, in.Body.why())
	})
	register(a, operation{
		id: "reopen-finding", method: http.MethodPost, path: "/findings/{finding}/reopen", tag: "status", scope: ScopeOperate,
		errors: notFound, summary: "Have a finding count again that was acknowledged",
	}, func(ctx context.Context, in *findingPath) (*struct{}, error) {
		return nil, a.mark(ctx, in.Finding, "")
	})
}

// wrong returns all that is wrong, by the database's clock.
func (a *API) wrong(ctx context.Context) (now time.Time, all []health.Problem, err error) {
	if now, err = scheduler.Clock(ctx, a.db); err == nil {
		all, err = health.All(ctx, a.db, a.admin, now)
	}
	return now, all, err
}

// mark has the audit's entry, which is what is kept of it, name a finding that there is.
func (a *API) mark(ctx context.Context, id, reason string) error {
	_, all, err := a.wrong(ctx)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(all, func(p health.Problem) bool { return p.ID() == id })
	if i < 0 {
		return fmt.Errorf("%w: %s", ErrNoFinding, id)
	}
	deedOf(ctx).object, deedOf(ctx).detail = id, health.Acknowledging(all[i].What(), plain.Line(reason, 200))
	return nil
}

func findingOf(p *health.Problem) wire.Finding {
	return wire.Finding{
		ID: p.ID(), About: string(p.Of), Failed: p.Bad, What: p.What(), Why: p.Why, Do: p.Do, Since: wire.At(p.Since),
	}
}
