package httpapi

import (
	"context"
	"io"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/dbcron/dbcron/scheduler"
)

const (
	aliveEvery = 15 * time.Second // a comment, for proxies that close silent connections
	eventTime  = 10 * time.Second // to send an event
)

type eventsInput struct {
	Last string `header:"Last-Event-ID" maxLength:"19" pattern:"^[0-9]*$" doc:"The id of the last event that came. The stream begins with what has become of runs since then."`
}

// readyJSON is the data of events about the stream itself.
type readyJSON struct{}

// events registers the stream of events.
func (a *API) events() {
	register(a, operation{
		id: "events", method: http.MethodGet, path: "/events", tag: "events", scope: ScopeRead,
		errors:  []int{http.StatusTooManyRequests},
		summary: "Follow what happens, as server-sent events",
		more: "run: a run of a schedule was made, began or ended, as in its history. queue: a queue's figures have changed, as in /stats/queues. " +
			"ready: everything up to now has been sent. reset: more runs were missed than are sent; read their history. " +
			"An event may come twice; reconnecting with Last-Event-ID loses no run. Up to 100 can listen at a daemon, 20 of them with one token; it ends the stream when it ends.",
	}, a.follow)
	if a.docs == nil {
		return
	}
	a.docs.OpenAPI().Paths[prefix+"/events"].Get.Responses["200"].Content = map[string]*huma.MediaType{
		"text/event-stream": {Schema: &huma.Schema{Type: huma.TypeString}},
	}
}

func (a *API) follow(ctx context.Context, in *eventsInput) (*huma.StreamResponse, error) {
	after := int64(-1)
	if in.Last != "" {
		var err error
		if after, err = strconv.ParseInt(in.Last, 10, 64); err != nil {
			after = math.MaxInt64
		}
	}
	l, mark, queues, err := a.hub.join(ctx, senderOf(ctx).account())
	if err != nil {
		return nil, err
	}
	r := senderOf(ctx).request
	return &huma.StreamResponse{Body: func(c huma.Context) {
		defer a.hub.leave(l)
		c.SetHeader("Content-Type", "text/event-stream")
		if r.Method == http.MethodHead {
			return
		}
		s := &stream{w: c.BodyWriter(), r: r}
		for _, q := range queues {
			s.send(event("queue", noMark, q))
		}
		a.catchUp(s, after)
		s.send(event("ready", mark, readyJSON{}))
		a.forward(s, l)
	}}, nil
}

// A stream writes events to a follower until an error occurs.
type stream struct {
	w   io.Writer
	r   *http.Request
	err error
}

// send writes at once, with a deadline of its own: the server's is for requests that end. Between events
// there is no deadline, since HTTP/2 ends a stream whose deadline has passed even if nothing is sent.
func (s *stream) send(text []byte) {
	w, ok := s.w.(http.ResponseWriter)
	if s.err != nil || !ok {
		return
	}
	c := http.NewResponseController(w)
	_ = c.SetReadDeadline(time.Time{})                // a test's writer has no deadlines
	_ = c.SetWriteDeadline(time.Now().Add(eventTime)) //nolint:forbidigo // of this host's network
	if _, s.err = w.Write(text); s.err == nil {
		s.err = c.Flush()
	}
	_ = c.SetWriteDeadline(time.Time{})
}

// catchUp sends what happened to the runs after a mark, for a client that reconnects.
func (a *API) catchUp(s *stream, after int64) {
	if after < 0 || s.err != nil {
		return
	}
	runs, err := scheduler.RunsAfter(s.r.Context(), a.db, after, maxRuns)
	if err != nil {
		s.err = err
		return
	}
	for i := range runs {
		s.send(event("run", noMark, listedRun(&runs[i])))
	}
	if len(runs) == maxRuns {
		s.send(event("reset", noMark, readyJSON{}))
	}
}

// forward sends events until the client or the process ends, or the client's token is no longer valid.
func (a *API) forward(s *stream, l *follower) {
	alive := time.NewTicker(aliveEvery)
	defer alive.Stop()
	for s.err == nil {
		if a.isStopping() {
			return
		}
		select {
		case e := <-l.events:
			s.send(e)
		case <-l.slow:
			return
		case <-alive.C:
			if a.authorize(&reply{ResponseWriter: nobody{}}, s.r, ScopeRead) != nil {
				return
			}
			s.send([]byte(": alive\n\n"))
		case <-a.opt.Stopping:
		case <-s.r.Context().Done():
			return
		}
	}
}

// nobody discards the answer when a request is authorized again.
type nobody struct{}

func (nobody) Header() http.Header         { return http.Header{} }
func (nobody) Write(p []byte) (int, error) { return len(p), nil }
func (nobody) WriteHeader(int)             {}
