package push

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/dbcron/dbcron/internal/address"
	"github.com/dbcron/dbcron/internal/barrier"
	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/queue"
)

// A sender sends the jobs of one queue. It has its own connections, so that a queue with a slow endpoint
// takes none from another.
type sender struct {
	endpoint atomic.Pointer[Endpoint] // as last read
	client   *http.Client
	hosts    *Hosts
	throttle *throttle // shared by all senders
	gate     *gate
	agent    string
	now      func() time.Time
	ending   context.Context // when it ends, no more requests begin
	aborted  context.Context
	log      *slog.Logger
	node     string                                              // this process, in recorded answers
	notes    notepad                                             // collects answers
	reporter *reporter                                           // shared by all senders
	observed func(origin string, status int, took time.Duration) // may be nil
}

func newSender(ending context.Context, d *Dispatcher, e *Endpoint) *sender {
	s := &sender{
		hosts: d.opt.Hosts, throttle: &d.throttle, gate: newGate(e.Concurrency), agent: "dbcron/" + d.opt.Version, now: d.queues.Now,
		ending: ending, aborted: d.aborted, log: d.log, observed: d.opt.Observe, node: d.node, reporter: &d.reporter,
	}
	s.endpoint.Store(e)
	s.client = &http.Client{
		// A redirect leads to a place that nobody allowed.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			Proxy:       nil, // a proxy would connect to unchecked addresses
			DialContext: s.dial, TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12}, TLSHandshakeTimeout: 10 * time.Second,
			MaxIdleConnsPerHost: e.Concurrency, MaxConnsPerHost: e.Concurrency, IdleConnTimeout: 30 * time.Second,
			MaxResponseHeaderBytes: 64 << 10, DisableCompression: true, ForceAttemptHTTP2: true,
			HTTP2: &http.HTTP2Config{SendPingTimeout: 15 * time.Second, PingTimeout: 10 * time.Second}, // detects dead connections
		},
	}
	return s
}

func (s *sender) close() { s.client.CloseIdleConnections() }

// patience is how long a job waits here for its host, if other jobs of its queue may go elsewhere.
const patience = time.Second

// forever is longer than anybody waits.
const forever = 100 * 365 * 24 * time.Hour

// handle does a job by sending it. It is the handler of a worker.
func (s *sender) handle(ctx context.Context, d *queue.Delivery) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.aborted, cancel)()
	err := s.send(ctx, d)
	if err != nil && s.aborted.Err() != nil {
		return queue.HandBack(err)
	}
	return err
}

// send sends a job and returns its outcome.
func (s *sender) send(ctx context.Context, d *queue.Delivery) (err error) {
	e, v, err := s.admit(ctx, d)
	if err != nil {
		return err
	}
	noted := &Answer{Job: d.ID}
	if d.Endpoint != "" {
		noted.Origin = v.at.origin
	}
	began, seen, after := instant.Now(), unknown, time.Duration(0)
	defer func() {
		v.leave(seen, after)
		noted.Took = instant.Now().Sub(began)
		if !errors.Is(ctx.Err(), context.Canceled) { // otherwise it was cancelled
			s.noteAnswer(noted, v, err)
		}
	}()
	seen, after, err = s.exchangeJob(ctx, d, e, v, noted)
	return err
}

// exchangeJob sends a job. It also returns the state of the endpoint, and for how long it asked not to be
// called.
func (s *sender) exchangeJob(ctx context.Context, d *queue.Delivery, e *Endpoint, v *visit,
	noted *Answer,
) (seen state, after time.Duration, err error) {
	limit := limitOf(e, d)
	answer, seen, after, err := s.roundTrip(ctx, v, limit, noted, func(ctx context.Context) (*http.Request, error) {
		return newRequest(ctx, e, urlOf(e, d), d, s.agent, s.now(), limit)
	}, readAnswer)
	if err != nil {
		return seen, 0, err
	}
	if answer.status < 300 && !answer.cut && d.KeepsResult() && json.Valid(answer.body) {
		if err := d.SetResult(json.RawMessage(answer.body)); err != nil {
			s.log.Warn("an answer could not be kept as the job's result", "queue", d.Queue, "id", d.ID, "err", err)
		}
	}
	return seen, after, answer.outcome(s.now())
}

// roundTrip sends a request, and reads its answer. It also returns the state of the endpoint, and for how
// long it asked not to be called.
func (s *sender) roundTrip(ctx context.Context, v *visit, limit time.Duration, noted *Answer,
	request func(context.Context) (*http.Request, error), read func(*http.Response) (answer, error),
) (a answer, seen state, after time.Duration, err error) {
	var connected atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected.Store(true) }})
	ctx, cancel := context.WithTimeoutCause(context.WithValue(ctx, dialFor{}, v.at.host), limit,
		fmt.Errorf("no whole answer within %v", limit))
	defer cancel()
	r, err := request(ctx)
	if err != nil {
		return a, unknown, 0, queue.Bury(WithoutAddresses(err))
	}
	began := instant.Now()
	a, err = s.exchange(r, read)
	s.observe(v.at, a.status, err, instant.Now().Sub(began))
	if err != nil {
		if !connected.Load() {
			seen = unconnected(ctx, err)
		}
		if err = WithoutAddresses(err); ctx.Err() != nil {
			err = fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
		return a, seen, 0, err
	}
	noted.Status = a.status
	v.answered()
	if seen = a.state(); seen == busy {
		after, _ = retryAfter(a.header, s.now())
	}
	return a, seen, after, nil
}

// observe reports an ended request.
func (s *sender) observe(at target, status int, err error, took time.Duration) {
	if s.observed == nil {
		return
	}
	if err != nil { // a truncated answer has a status, too
		status = 0
	}
	barrier.Tell(s.log, "Observe", func() { s.observed(at.origin, status, took) })
}

// unconnected returns the state of an endpoint after a failed connection. dial records whether the host
// can be reached; what remains is a failed TLS handshake. A timeout says nothing, since the job may have
// chosen it.
func unconnected(ctx context.Context, err error) state {
	var dial *dialError
	if ctx.Err() != nil || errors.As(err, &dial) {
		return unknown
	}
	return busy
}

// urlOf returns where a job is sent.
func urlOf(e *Endpoint, d *queue.Delivery) string { return cmp.Or(d.Endpoint, e.URL) }

// admit waits until a job may be sent. It rereads the endpoint, which may change meanwhile. The wait does
// not count towards the job's timeout. A job with its own endpoint goes back if the wait is long, since
// others may go elsewhere. All jobs go back when the worker ends.
func (s *sender) admit(ctx context.Context, d *queue.Delivery) (e *Endpoint, v *visit, err error) {
	began, waited := instant.Now(), false
	for {
		e = s.endpoint.Load()
		if urlOf(e, d) == "" {
			return nil, nil, queue.Bury(errors.New("the job names no endpoint, and its queue's has no URL"))
		}
		at, err := targetOf(e, d)
		if err != nil { // somebody wrote it by hand
			return nil, nil, queue.Bury(fmt.Errorf("endpoint: %w", err))
		}
		if d.Endpoint == "" {
			s.gate.pass(at.origin)
		} else if wait := s.gate.enter(at.origin, e.URL != "", e.share); wait > 0 {
			return nil, nil, queue.Snooze(wait)
		}
		v, wait, changed := s.throttle.enter(at)
		if d.Endpoint != "" {
			if v == nil {
				s.gate.leave(at.origin)
			} else {
				v.gate = s.gate
			}
		}
		if v != nil {
			if waited {
				d.Extend(limitOf(e, d) + time.Second)
			}
			return e, v, nil
		}
		if d.Endpoint != "" && instant.Now().Sub(began)+wait > patience {
			return nil, nil, queue.Snooze(wait)
		}
		if !waited {
			waited = true
			d.Extend(forever)
		}
		timer := time.NewTimer(min(wait, time.Second))
		select {
		case <-timer.C:
		case <-changed:
		case <-s.ending.Done():
			err = queue.Snooze(0)
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		timer.Stop()
		if err != nil {
			return nil, nil, err
		}
	}
}

// targetOf identifies to the throttle where a job is sent. It separates a job's own endpoint from its
// queue's, and by path from those of other jobs: whoever chose it can make it fail.
func targetOf(e *Endpoint, d *queue.Delivery) (at target, err error) {
	endpoint := urlOf(e, d)
	if err := address.CheckEndpoint(endpoint); err != nil {
		return at, err
	}
	u, err := url.Parse(endpoint)
	if err != nil {
		return at, errors.New("it is not a URL")
	}
	host := net.JoinHostPort(cleanHost(u.Hostname()), strconv.Itoa(int(portOf(u))))
	origin := u.Scheme + "://" + host
	at = target{host: place{url: host}, answers: place{d.Queue, origin}, origin: origin}
	if d.Endpoint != "" {
		at.answers.url += "/" + strings.TrimPrefix(u.EscapedPath(), "/")
	}
	return at, nil
}

// dialFor is the context key of the host's place, for dial.
type dialFor struct{}

// A dialError means that a host could not be connected to.
type dialError struct{ err error }

func (e *dialError) Error() string { return e.err.Error() }
func (e *dialError) Unwrap() error { return e.err }

// dial connects to a host, and records whether that succeeds. It does not end with the request, so its
// verdict does not depend on the request's timeout.
func (s *sender) dial(ctx context.Context, network, address string) (net.Conn, error) {
	began := instant.Now()
	conn, err := s.hosts.Dial(ctx, network, address)
	if host, ok := ctx.Value(dialFor{}).(place); ok && (err == nil || ctx.Err() == nil) {
		s.throttle.dialed(host, began, err == nil)
	}
	if err != nil {
		return nil, &dialError{err}
	}
	return conn, nil
}

func (s *sender) exchange(r *http.Request, read func(*http.Response) (answer, error)) (answer, error) {
	response, err := s.client.Do(r)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	return read(response)
}

// WithoutAddresses strips from an error of a network client what not everybody who sees jobs should see: the URL,
// which may contain secrets, and the addresses of the host and the name server.
func WithoutAddresses(err error) error {
	var of *url.Error
	if errors.As(err, &of) {
		err = of.Err
	}
	var name *net.DNSError
	if errors.As(err, &name) {
		return fmt.Errorf("lookup %s: %s", name.Name, name.Err)
	}
	var network *net.OpError
	if errors.As(err, &network) {
		return fmt.Errorf("%s: %w", network.Op, network.Err)
	}
	return err
}
