package scheduler

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/dbcron/dbcron/internal/guardian"
	"github.com/dbcron/dbcron/internal/instant"
)

// requestTimeout limits requests of schedules without a timeout.
const requestTimeout = 5 * time.Minute

// mostAnswered is how much of an answer is read, of which the run keeps the beginning and the end.
const mostAnswered = 256 << 20

// client sends the requests of all schedules. A redirect counts as a failure, because the endpoint
// that the schedule names has not done the work.
var client = &http.Client{
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	Transport: &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		ForceAttemptHTTP2:   true,
		MaxIdleConnsPerHost: 16,
		IdleConnTimeout:     time.Minute,
		TLSHandshakeTimeout: 10 * time.Second,

		MaxResponseHeaderBytes: 64 << 10, // also of a proxy
	},
}

// request sends the schedule's HTTP request. Each attempt at a slot carries the same
// Idempotency-Key.
func (s *Scheduler) request(e *execution, until instant.Instant) (activity, error) {
	method, target, err := parseRequest(e.what.Command)
	if err != nil {
		return nil, err
	}
	return start(until, s.opt.KillGrace, s.opt.MaxOutput, func(ctx context.Context, out *guardian.Output) guardian.Result {
		if e.what.Timeout == 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, s.requestTimeout)
			defer cancel()
		}
		r := guardian.Result{Cause: guardian.Exited, ExitCode: -1}
		r.ExitCode, r.Err = s.send(ctx, e, method, target, out)
		return r
	}), nil
}

func (s *Scheduler) send(ctx context.Context, e *execution, method, target string, out io.Writer) (status int, err error) {
	req, err := http.NewRequestWithContext(s.tracedIn(ctx, &e.trace), method, target, strings.NewReader(e.what.Stdin))
	if err != nil {
		return -1, err
	}
	req.Header.Set("User-Agent", "dbcron")
	req.Header.Set("Traceparent", e.trace.Parent)
	req.Header.Set("Idempotency-Key", strconv.QuoteToASCII(fmt.Sprintf("%s/%d", e.schedule, e.due.UnixMicro())))
	req.Header.Set("Dbcron-Schedule", strconv.QuoteToASCII(e.schedule))
	req.Header.Set("Dbcron-Run-Id", strconv.FormatInt(e.id, 10))
	req.Header.Set("Dbcron-Due", e.due.Format(time.RFC3339))
	req.Header.Set("Dbcron-Attempt", strconv.Itoa(e.attempt))
	req.Header.Set("Dbcron-Fence", strconv.FormatInt(e.fence, 10))
	if e.by != nil {
		e.by.setHeaders(req.Header)
	}
	for name, value := range e.what.Headers {
		req.Header.Set(name, value)
		if http.CanonicalHeaderKey(name) == "Host" {
			req.Host = value
		}
	}
	answer, err := client.Do(req)
	if err != nil {
		return -1, withoutURL(err)
	}
	defer answer.Body.Close()
	n, err := io.Copy(out, io.LimitReader(answer.Body, mostAnswered+1))
	switch {
	case n > mostAnswered:
		err = fmt.Errorf("the answer has more than %d MiB, so the rest was not read", mostAnswered>>20)
	case answer.StatusCode/100 == 3:
		to, _, _ := strings.Cut(answer.Header.Get("Location"), "?")
		err = fmt.Errorf("status %s, to %s: redirects are not followed", answer.Status, to)
	case answer.StatusCode/100 != 2:
		err = fmt.Errorf("status %s", answer.Status)
	}
	return answer.StatusCode, err
}

// withoutURL strips the URL from an error of the HTTP client. Its query may hold secrets, and
// everybody who may see runs sees their errors.
func withoutURL(err error) error {
	var of *url.Error
	if errors.As(err, &of) {
		return of.Err
	}
	return err
}
