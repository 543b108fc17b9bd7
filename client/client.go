// Package client is a client of the HTTP API of a dbcron daemon. It enqueues jobs, manages queues, and
// does jobs by pull ([Client.Work]) or by push ([PushHandler]). It only needs the standard library, and
// no database.
//
//	c, err := client.New("http://127.0.0.1:8686", client.Options{Token: os.Getenv("DBCRON_TOKEN")})
//	job, err := c.Enqueue(ctx, client.Job{Kind: "welcome", Queue: "mail", Payload: map[string]string{"to": "ada@example.org"}})
//
// The client retries requests that are safe to repeat, if the daemon does not answer or is temporarily
// unable to. If the daemon refuses a request, the error is a [*Problem]. All errors begin with
// "client: ", except for those of handlers.
package client

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dbcron/dbcron/internal/pace"
)

// Options configures a Client. The zero value is ready to use with a daemon that needs no token.
type Options struct {
	Token      string        // made by dbcron token create
	HTTPClient *http.Client  // default: one of the client's own
	Timeout    time.Duration // of one try, not counting the time it waits for jobs; default: 1 minute
	Tries      int           // tries of a request at most; default: 6, within about 5 seconds
	Delay      time.Duration // before the second try; doubles with each further try; default: 200ms
	MaxAnswer  int64         // bytes of an answer; a longer one is an error; default: 1.5 GiB, for the largest payload
}

// A Client is a client of one daemon. It is safe for concurrent use.
type Client struct {
	base string
	opt  Options
}

const (
	prefix      = "/api/v1"
	longestWait = 30 * time.Second // between tries, whatever Retry-After says
	maxProblem  = 64 << 10         // bytes of an error that are read
	maxAnswer   = 3 << 29          // of MaxAnswer: the largest payload has 1 GiB, and a third more in base64
)

// New returns a client of the daemon at an address such as http://127.0.0.1:8686. It sends nothing.
func New(baseURL string, opt Options) (*Client, error) {
	u, err := url.Parse(baseURL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.User != nil {
		return nil, errors.New("client: invalid address of the daemon: use one such as http://127.0.0.1:8686")
	}
	opt.Timeout = cmp.Or(opt.Timeout, time.Minute)
	opt.Tries = max(1, cmp.Or(opt.Tries, 6))
	opt.Delay = cmp.Or(opt.Delay, 200*time.Millisecond)
	opt.MaxAnswer = cmp.Or(opt.MaxAnswer, maxAnswer)
	if opt.HTTPClient == nil {
		opt.HTTPClient = &http.Client{CheckRedirect: sameOrigin}
		if usual, ok := http.DefaultTransport.(*http.Transport); ok {
			own := usual.Clone()
			own.MaxIdleConnsPerHost = 32 // there is one host
			own.MaxResponseHeaderBytes = maxProblem
			opt.HTTPClient.Transport = own
		}
	}
	return &Client{base: strings.TrimRight(u.String(), "/") + prefix, opt: opt}, nil
}

// errElsewhere begins the errors of redirects that are not followed.
var errElsewhere = errors.New("it redirects")

// errTooLong is an answer that is not read to its end.
var errTooLong = errors.New("the answer is too long")

// sameOrigin refuses to follow a redirect to another host, or from https to http: it would get the token. It also
// refuses one that makes a change into a question, as those to a page for signing in do: the answer would look
// as if the change had been made.
func sameOrigin(r *http.Request, via []*http.Request) error {
	if first := via[0].URL; r.URL.Scheme != first.Scheme || r.URL.Host != first.Host {
		return fmt.Errorf("%w to %s://%s, which does not get the token; if that is the daemon, use that address", errElsewhere, r.URL.Scheme, r.URL.Host)
	}
	if r.Method != via[0].Method {
		return fmt.Errorf("%w %s to %s, where nothing would be changed; have what stands before the daemon let the API's addresses through",
			errElsewhere, via[0].Method, r.URL.Path)
	}
	if len(via) >= 10 {
		return fmt.Errorf("%w in a circle", errElsewhere)
	}
	return nil
}

// CloseIdleConnections closes connections that are not in use.
func (c *Client) CloseIdleConnections() { c.opt.HTTPClient.CloseIdleConnections() }

// A call is a request and its properties.
type call struct {
	method, path string
	query        url.Values
	in, out      any
	key          string        // Idempotency-Key
	again        bool          // it is safe to repeat
	wait         time.Duration // how long the daemon may wait before it answers
}

// A Request is a request of the API for which Client has no method: see its OpenAPI document.
type Request struct {
	Method string     // GET, POST, PUT or DELETE
	Path   string     // below /api/v1, with escaped segments: /queues/mail
	Query  url.Values // optional
	Body   any        // encoded as JSON; nil: none
	Again  bool       // it is safe to send it more than once
	Key    string     // an Idempotency-Key, with which it is, of a request that enqueues; "": none
}

// Do sends a request, and decodes the answer into out: from JSON, or as it is into a *[]byte. out is nil if there is none.
func (c *Client) Do(ctx context.Context, r Request, out any) error {
	return c.do(ctx, &call{method: r.Method, path: r.Path, query: r.Query, in: r.Body, out: out, again: r.Again || r.Key != "", key: r.Key})
}

// do sends a request, with retries, until it is answered.
func (c *Client) do(ctx context.Context, r *call) error {
	var body []byte
	if r.in != nil {
		var err error
		if body, err = encode(r.in); err != nil {
			return fmt.Errorf("client: %s %s: %w", r.method, r.path, err)
		}
	}
	for failures := 1; ; failures++ {
		after, err := c.try(ctx, r, body)
		if err == nil || after < 0 || !r.again || failures >= c.opt.Tries {
			return err
		}
		wait := pace.Delay(c.opt.Delay, longestWait, failures, rand.Float64())
		if pause(ctx, max(wait, after)) != nil {
			return err // the reason says more than a timeout
		}
	}
}

// try sends a request once. after is the delay before the next try; it is negative if a retry is
// pointless.
func (c *Client) try(ctx context.Context, r *call, body []byte) (after time.Duration, err error) {
	own, cancel := context.WithTimeout(ctx, c.opt.Timeout+r.wait)
	defer cancel()
	target := c.base + r.path
	if len(r.query) > 0 {
		target += "?" + r.query.Encode()
	}
	var reader io.Reader
	if body != nil {
		reader = bytes.NewReader(body)
	}
	request, err := http.NewRequestWithContext(own, r.method, target, reader)
	if err != nil {
		return -1, fmt.Errorf("client: %w", err)
	}
	request.Header.Set("Accept", "application/json")
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	if c.opt.Token != "" {
		request.Header.Set("Authorization", "Bearer "+c.opt.Token)
	}
	if r.key != "" {
		request.Header.Set("Idempotency-Key", r.key)
	}
	answer, err := c.opt.HTTPClient.Do(request)
	if err == nil {
		defer answer.Body.Close()
		if answer.StatusCode >= 300 {
			return retryAfter(answer), readProblem(r, answer)
		}
		err = decode(answer.Body, r.out, c.opt.MaxAnswer)
	}
	if err != nil {
		err = fmt.Errorf("client: %s %s: %w", r.method, r.path, err)
	}
	var untrusted *tls.CertificateVerificationError
	if ctx.Err() != nil || errors.Is(err, errElsewhere) || errors.Is(err, errTooLong) || errors.As(err, &untrusted) {
		return -1, err
	}
	return 0, err
}

// retryAfter returns how long to wait after an answer that is a problem.
func retryAfter(answer *http.Response) time.Duration {
	again := []int{http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout}
	if !slices.Contains(again, answer.StatusCode) {
		return -1
	}
	n, err := strconv.Atoi(answer.Header.Get("Retry-After"))
	if err != nil || n < 0 {
		return 0
	}
	return min(time.Duration(min(n, 3600))*time.Second, longestWait)
}

func encode(v any) ([]byte, error) {
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false) // keep payloads as given, except for white space
	err := e.Encode(v)
	return text.Bytes(), err
}

// decode reads an answer. It ignores unknown fields, which come from a newer daemon.
func decode(body io.Reader, out any, most int64) error {
	limited := &io.LimitedReader{R: body, N: most + 1}
	tooLong := func(err error) error {
		if err == nil && limited.N == 0 {
			return fmt.Errorf("%w: it has more than %d bytes", errTooLong, most)
		}
		return err
	}
	if out == nil {
		_, err := io.Copy(io.Discard, limited)
		return tooLong(err)
	}
	text, err := io.ReadAll(limited)
	err = tooLong(err)
	if raw, ok := out.(*[]byte); ok {
		*raw = text
		return err
	}
	if err != nil || len(text) == 0 {
		return err
	}
	return json.Unmarshal(text, out)
}

// pause waits, and returns an error if ctx ends first.
func pause(ctx context.Context, d time.Duration) error {
	if !pace.Sleep(ctx, d) {
		return ctx.Err()
	}
	return nil
}

// path joins segments, escaping each, including . and .., which would be resolved.
func path(segments ...string) string {
	var b strings.Builder
	for _, s := range segments {
		s = url.PathEscape(s)
		if s == "." || s == ".." {
			s = strings.ReplaceAll(s, ".", "%2E")
		}
		b.WriteString("/" + s)
	}
	return b.String()
}
