package push

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/dbcron/dbcron/queue"
)

// A sender sends the jobs of one queue. Its connections are its own, so that a queue whose
// endpoint is slow takes none from another.
type sender struct {
	endpoint atomic.Pointer[Endpoint] // as it was read last
	client   *http.Client
	throttle *throttle // of all senders
	agent    string
	now      func() time.Time
	aborted  context.Context
	log      *slog.Logger
}

func newSender(d *Dispatcher, e *Endpoint) *sender {
	s := &sender{throttle: &d.throttle, agent: "dbcron/" + d.opt.Version, now: d.queues.Now, aborted: d.aborted, log: d.log}
	s.endpoint.Store(e)
	s.client = &http.Client{
		// A redirect leads where nobody allowed it to lead.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			Proxy:       nil, // it would connect to what is not looked at
			DialContext: d.opt.Hosts.dial, TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12}, TLSHandshakeTimeout: 10 * time.Second,
			MaxIdleConnsPerHost: e.Concurrency, MaxConnsPerHost: e.Concurrency, IdleConnTimeout: 30 * time.Second,
			MaxResponseHeaderBytes: 64 << 10, ForceAttemptHTTP2: true, DisableCompression: true,
		},
	}
	return s
}

func (s *sender) close() { s.client.CloseIdleConnections() }

// patience is how long a job waits here for its host, if others of its queue may go
// elsewhere meanwhile.
const patience = time.Second

// forever is how long it does so if all go there.
const forever = 100 * 365 * 24 * time.Hour

// handle does a job by sending it. It is the handler of a worker.
func (s *sender) handle(ctx context.Context, d *queue.Delivery) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.aborted, cancel)()
	err := s.send(ctx, d)
	if err != nil && s.aborted.Err() != nil {
		return queue.Snooze(0)
	}
	return err
}

// send sends a job, and tells what became of it.
func (s *sender) send(ctx context.Context, d *queue.Delivery) error {
	e := s.endpoint.Load()
	to, wait := d.Endpoint, patience
	if to == "" {
		to, wait = e.URL, forever
	}
	if to == "" {
		return queue.Bury(errors.New("the job names no endpoint, and its queue's has no URL"))
	}
	if err := queue.CheckEndpoint(to); err != nil { // written by hand
		return queue.Bury(fmt.Errorf("endpoint: %w", err))
	}
	u, err := url.Parse(to)
	if err != nil {
		return queue.Bury(errors.New("endpoint: it is not a URL"))
	}
	leave, pause, err := s.throttle.enter(ctx, u.Host, wait)
	switch {
	case err != nil:
		return err
	case leave == nil:
		return queue.Snooze(pause)
	}
	s1, after := unknown, time.Duration(0)
	defer func() { leave(s1, after) }()
	limit := limitOf(e, d)
	if d.Timeout > 0 || e.limit > 0 {
		d.Extend(limit + time.Second) // it may have waited; the request's own time is looked after below
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("no whole answer within %v", limit))
	defer cancel()
	r, err := newRequest(ctx, e, to, d, s.agent, s.now(), limit)
	if err != nil {
		return queue.Bury(withoutURL(err))
	}
	answer, err := s.exchange(r)
	if err != nil {
		if isDial(err) && ctx.Err() == nil { // also if it may not be sent to: nothing is lost while that is mended
			s1 = busy
		}
		if ctx.Err() != nil {
			err = fmt.Errorf("%w: %w", context.Cause(ctx), withoutURL(err))
		}
		return withoutURL(err)
	}
	s1 = answer.state()
	if s1 == busy {
		after, _ = retryAfter(answer.header, s.now())
	}
	if d.Group != 0 && answer.status < 300 && !answer.cut && json.Valid(answer.body) {
		if err := d.SetResult(json.RawMessage(answer.body)); err != nil {
			s.log.Warn("an answer could not be kept as the job's result", "queue", d.Queue, "id", d.ID, "err", err)
		}
	}
	return answer.outcome(s.now())
}

func (s *sender) exchange(r *http.Request) (answer, error) {
	response, err := s.client.Do(r)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	return readAnswer(response)
}

// isDial tells whether an error means that nobody was reached.
func isDial(err error) bool {
	var op *net.OpError
	var name *net.DNSError
	return errors.As(err, &name) || errors.As(err, &op) && op.Op == "dial"
}

// withoutURL is an error of the HTTP client without its URL, which may have secrets in it.
func withoutURL(err error) error {
	var of *url.Error
	if errors.As(err, &of) {
		return of.Err
	}
	return err
}
