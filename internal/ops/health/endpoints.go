package health

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/httpapi/push"
	"github.com/dbcron/dbcron/internal/ops/wireof"
	"github.com/dbcron/dbcron/internal/plain"
	"github.com/dbcron/dbcron/scheduler"
	"github.com/dbcron/dbcron/wire"
)

const (
	// answersFor is how long an endpoint's answers count.
	answersFor = time.Hour

	// badFailures consecutive failures are more than a hiccup; so is a pause of badPause.
	badFailures = 3
	badPause    = time.Minute
)

// OfEndpoints finds endpoints that throttle, endpoints that fail every request, and invalid endpoints. A
// user who may not read endpoints, which contain secrets, sees the first two kinds. answered is the
// number of endpoints that have answered in the last hour.
func OfEndpoints(ctx context.Context, db *dialect.DB, now time.Time) (all []Problem, answered int, err error) {
	endpoints := push.NewEndpoints(db)
	reports, err := endpoints.Reports(ctx, answersFor, MostQueues)
	if err != nil {
		return nil, 0, err
	}
	for i := range reports {
		if p := endpointProblem(&reports[i], now); p != nil && len(all) < Most {
			all = append(all, *p)
		}
	}
	found, err := endpoints.List(ctx, "", MostQueues)
	if err != nil && db.Dialect.Denied(err) {
		return all, len(reports), nil
	}
	for i := range found {
		e := &found[i]
		if wrong := e.Check(); wrong != nil && len(all) < 2*Most {
			all = append(all, Problem{
				Of: Endpoints, Name: e.Queue, Bad: true, what: "The endpoint of queue %s is wrong", Why: plain.Cut(wrong.Error(), 200),
				Do: "its jobs wait until it is fixed: dbcron endpoint set " + argument(e.Queue),
			})
		}
	}
	return all, len(reports), err
}

// Standing is the state of an endpoint according to its recent answers.
type Standing struct {
	Pushed   bool // it is paused repeatedly, or fails every request
	Bad      bool
	Answers  int          // known recent answers
	Last     *push.Answer // the newest failure; nil: none
	Failures int          // consecutive failures that led to a pause; 0: it answers, but always fails
	Until    time.Time    // end of its pause
	Since    time.Time    // the first known failure
}

// StandingOf returns the state of an endpoint. If several processes send, it is the worst that any of
// them sees. Endpoints of single jobs do not count.
func StandingOf(answers []push.Answer, now time.Time) (s Standing) {
	seen, good, bad := map[string]bool{}, false, 0
	for i := range answers { // newest first
		a := &answers[i]
		if a.Origin != "" || now.Sub(a.At) > answersFor {
			continue
		}
		if s.Answers++; !seen[a.By] && a.Failures > s.Failures {
			s.Failures, s.Until = a.Failures, a.Until
			s.Pushed, s.Bad = true, a.Failures >= badFailures || a.Until.Sub(a.At) >= badPause
		}
		seen[a.By] = true
		if a.Error == "" {
			good = true
			continue
		}
		if s.Last == nil {
			s.Last = a
		}
		if !good || s.Pushed && s.Since.IsZero() {
			s.Since = a.At
			bad++
		}
	}
	if bad >= badFailures && !good {
		s.Pushed, s.Bad = true, true
	}
	return s
}

func endpointProblem(r *push.Report, now time.Time) *Problem {
	s := StandingOf(r.Answers, now)
	if !s.Pushed || s.Last == nil {
		return nil
	}
	p := &Problem{
		Of: Endpoints, Name: r.Queue, Bad: s.Bad, Since: s.Last.At, what: "The endpoint of queue %s fails", // as it tells of the last one
		Why: "no recent request succeeded; the last answer: " + plain.Cut(s.Last.Error, 200),
		Do:  "fix what it says, and see the other answers: dbcron endpoint show " + argument(r.Queue),
	}
	if s.Failures > 0 {
		p.what = "The endpoint of queue %s pushes back"
		p.Why = fmt.Sprintf("%s in a row; %s; the last: %s", plain.Plural(s.Failures, "failure", "failures"), s.next(now),
			plain.Cut(s.Last.Error, 200))
		p.Do = "check whether it is up, and can take so many at a time; its jobs wait meanwhile: dbcron endpoint show " + argument(r.Queue)
	}
	if strings.Contains(s.Last.Error, push.ErrRefused.Error()) {
		p.Do = "let the daemons send there (dbcron serve --push-to), or correct the URL: dbcron endpoint set " + argument(r.Queue) + " URL"
	}
	return p
}

// EndpointDetail returns an endpoint, how it is, and its newest answers.
func EndpointDetail(ctx context.Context, db *dialect.DB, e *push.Endpoint) (wire.EndpointDetail, error) {
	d := wire.EndpointDetail{Endpoint: e.JSON()}
	answers, err := push.NewEndpoints(db).Answers(ctx, e.Queue)
	if err != nil {
		return d, err
	}
	now, err := scheduler.Clock(ctx, db)
	d.Standing, d.Answers = EndpointText(answers, now), wireof.Each(answers, (*push.Answer).JSON)
	return d, err
}

// EndpointText describes the state of an endpoint.
func EndpointText(answers []push.Answer, now time.Time) string {
	switch s := StandingOf(answers, now); {
	case s.Failures > 0:
		return fmt.Sprintf("it pushes back: %s in a row; %s", plain.Plural(s.Failures, "failure", "failures"), s.next(now))
	case s.Pushed:
		return "it fails: no recent request succeeded"
	case s.Answers == 0:
		return "nothing was sent to it in the last hour"
	case s.Last != nil:
		return "it answers, and some recent requests failed"
	}
	return "it answers"
}

// next says when the next request is sent.
func (s *Standing) next(now time.Time) string {
	if left := s.Until.Sub(now); left > 0 {
		return "it is paused for " + plain.Span(left) + " more"
	}
	return "the next job is sent as a trial"
}
