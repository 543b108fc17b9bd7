package health

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/httpapi/push"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/queue/queuetest"
	"github.com/dbcron/dbcron/scheduler"
)

// What a dispatcher notes of a busy endpoint is told, and what cannot be is as well.
func TestEndpoints(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		c := queuetest.Client(t, db.DB)
		busy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "600")
			w.WriteHeader(http.StatusServiceUnavailable)
		}))
		t.Cleanup(busy.Close)
		endpoints := push.NewEndpoints(db.DB)
		for _, name := range []string{"mail", "wrong"} {
			if _, err := endpoints.Set(t.Context(), adminOf(c), name, func(e *push.Endpoint) { e.URL = busy.URL }); err != nil {
				t.Fatal(err)
			}
		}
		db.Do(t, `UPDATE {prefix}endpoint SET timeout = '2d' WHERE queue_id = (SELECT queue_id FROM {prefix}queue WHERE name = :name)`,
			sqlrun.Args{"name": "wrong"})
		if _, err := c.Enqueue(t.Context(), queue.Job{Queue: "mail", Kind: "x"}); err != nil {
			t.Fatal(err)
		}
		hosts, err := push.ParseHosts([]string{"127.0.0.1"})
		if err != nil {
			t.Fatal(err)
		}
		d, err := push.New(db.DB, push.Options{Hosts: hosts, Lease: 10 * time.Minute, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- d.Run(ctx) }()
		t.Cleanup(func() {
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
		for answers := []push.Answer(nil); len(answers) == 0; {
			if answers, err = endpoints.Answers(t.Context(), "mail"); err != nil {
				t.Fatal(err)
			}
			select {
			case <-t.Context().Done():
			case <-time.After(20 * time.Millisecond):
			}
		}
		now, err := scheduler.Clock(t.Context(), db.DB)
		if err != nil {
			t.Fatal(err)
		}
		all, answered, err := OfEndpoints(t.Context(), db.DB, now)
		wants(t, all, err, "!The endpoint of queue mail pushes back: 1 failure in a row; …HTTP 503…dbcron endpoint show mail",
			"!The endpoint of queue wrong is wrong: …timeout…dbcron endpoint set wrong")
		if answered != 1 {
			t.Errorf("%d have answered", answered)
		}
	})
}

func TestStandingOf(t *testing.T) {
	now := dbtest.Start
	answer := func(ago int, by, err string, failures int) push.Answer {
		a := push.Answer{At: now.Add(-time.Duration(ago) * time.Second), By: by, Error: err, Failures: failures}
		if failures > 0 {
			a.Until = a.At.Add(5 * time.Second)
		}
		return a
	}
	for name, c := range map[string]struct {
		answers []push.Answer
		want    string
		bad     bool
		since   int // seconds ago; 0: not said
	}{
		"nothing":           {nil, "nothing was sent to it in the last hour", false, 0},
		"old":               {[]push.Answer{answer(4000, "a", "no", 9)}, "nothing was sent to it in the last hour", false, 0},
		"well":              {[]push.Answer{answer(1, "a", "", 0), answer(2, "a", "", 0)}, "it answers", false, 0},
		"well again":        {[]push.Answer{answer(1, "a", "", 0), answer(2, "a", "no", 7)}, "it answers, and some recent requests failed", false, 0},
		"a hiccup":          {[]push.Answer{answer(1, "a", "no", 1), answer(2, "a", "", 0)}, "it pushes back: 1 failure in a row; it is paused for 4s more", false, 1},
		"again and again":   {[]push.Answer{answer(9, "a", "no", 3), answer(20, "a", "no", 2)}, "it pushes back: 3 failures in a row; the next job is sent as a trial", true, 20},
		"from one of two":   {[]push.Answer{answer(1, "a", "", 0), answer(2, "b", "no", 4), answer(3, "a", "", 0)}, "it pushes back: 4 failures in a row; it is paused for 3s more", true, 2},
		"fails":             {[]push.Answer{answer(1, "a", "no", 0), answer(2, "a", "no", 0), answer(3, "a", "no", 0)}, "it fails: no recent request succeeded", true, 3},
		"a job's endpoints": {[]push.Answer{{At: now, Error: "no", Failures: 9, Origin: "http://elsewhere"}}, "nothing was sent to it in the last hour", false, 0},
	} {
		s := StandingOf(c.answers, now)
		since := 0
		if s.Pushed {
			since = int(now.Sub(s.Since).Seconds())
		}
		if got := EndpointText(c.answers, now); got != c.want || s.Bad != c.bad || since != c.since {
			t.Errorf("%s: %q, bad %t, since %d s", name, got, s.Bad, since)
		}
	}
	again := &push.Report{Queue: "mail", Answers: []push.Answer{answer(9, "a", "the last", 3), answer(20, "a", "no", 2)}}
	if p := endpointProblem(again, now); p == nil || !strings.Contains(p.Why, "the last: the last") || now.Sub(p.Since) != 9*time.Second {
		t.Errorf("the time is not that of the last failure: %+v", p)
	}
}
