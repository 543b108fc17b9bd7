package client

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// The example of the specification of Standard Webhooks, and what may not pass.
func TestVerify(t *testing.T) {
	const (
		secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
		other  = "whsec_b3RoZXI="
		id     = "msg_p5jXN8AQM9LWM0D4loKWxJek"
		stamp  = "1614265330"
		body   = `{"test": 2432232314}`
		good   = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
	)
	at := time.Unix(1614265330, 0)
	for name, c := range map[string]struct {
		secrets              []string
		id, stamp, sig, body string
		now                  time.Time
		tolerance            time.Duration
		want                 error
	}{
		"good":                {[]string{secret}, id, stamp, good, body, at, 0, nil},
		"one of two secrets":  {[]string{other, secret}, id, stamp, good, body, at, 0, nil},
		"one of three":        {[]string{secret}, id, stamp, "v1a,AAAA v1,AAAA " + good, body, at, 0, nil},
		"a little late":       {[]string{secret}, id, stamp, good, body, at.Add(4 * time.Minute), 0, nil},
		"too late":            {[]string{secret}, id, stamp, good, body, at.Add(6 * time.Minute), 0, ErrTimestamp},
		"too early":           {[]string{secret}, id, stamp, good, body, at.Add(-6 * time.Minute), 0, ErrTimestamp},
		"late by more":        {[]string{secret}, id, stamp, good, body, at.Add(2 * time.Second), time.Second, ErrTimestamp},
		"another secret":      {[]string{other}, id, stamp, good, body, at, 0, ErrSignature},
		"another body":        {[]string{secret}, id, stamp, good, body + " ", at, 0, ErrSignature},
		"another id":          {[]string{secret}, "x", stamp, good, body, at, 0, ErrSignature},
		"another time":        {[]string{secret}, id, "1614265331", good, body, at, 0, ErrSignature},
		"no id":               {[]string{secret}, "", stamp, good, body, at, 0, ErrSignature},
		"no time":             {[]string{secret}, id, "", good, body, at, 0, ErrSignature},
		"a time that is none": {[]string{secret}, id, "9223372036854775807", good, body, at, 0, ErrSignature},
		"no signature":        {[]string{secret}, id, stamp, "", body, at, 0, ErrSignature},
		"another version":     {[]string{secret}, id, stamp, strings.Replace(good, "v1", "v2", 1), body, at, 0, ErrSignature},
	} {
		h := http.Header{}
		h.Set("webhook-id", c.id)
		h.Set("webhook-timestamp", c.stamp)
		h.Set("webhook-signature", c.sig)
		if err := verifyAt(c.now, c.secrets, h, []byte(c.body), c.tolerance); !errors.Is(err, c.want) {
			t.Errorf("%s: got %v, want %v", name, err, c.want)
		}
	}
	for _, secrets := range [][]string{nil, {""}, {"whsec_"}, {"whsec_!"}} {
		h := http.Header{"Webhook-Id": {id}, "Webhook-Timestamp": {stamp}}
		if err := verifyAt(at, secrets, h, []byte(body), 0); err == nil {
			t.Errorf("secrets %q are good", secrets)
		}
	}
}

type panicking struct{}

func (panicking) Error() string { panic("oh") }
func (panicking) Is(error) bool { panic("oh") }

func TestPushHandler(t *testing.T) {
	t.Parallel()
	const secret = "whsec_c2VjcmV0"
	var got *Delivery
	outcomes := map[string]error{
		"done": nil, "failed": errors.New("no paper"), "later": RetryAfter(90*time.Second, errors.New("busy")),
		"dead": Bury(errors.New("no such user")), "discard": Discard(nil), "no text": panicking{},
	}
	h := PushHandler(PushOptions{Secrets: []string{secret}, MaxBody: 100, Handle: func(ctx context.Context, d *Delivery) error {
		if _, has := ctx.Deadline(); !has {
			t.Error("the context has no deadline")
		}
		got = d
		if d.Kind == "panic" {
			panic("oh")
		}
		return outcomes[d.Kind]
	}})
	send := func(kind, body, signedBody string) *httptest.ResponseRecorder {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(body))
		now := time.Now() //nolint:forbidigo // the handler goes by the host's clock, too
		for name, value := range map[string]string{
			"Content-Type": "application/json", "Idempotency-Key": "17", "Dbcron-Queue": "caf%C3%A9", "Dbcron-Kind": kind, "Dbcron-Key": "a%25b",
			"Dbcron-Attempt": "2", "Dbcron-Max-Attempts": "10", "Dbcron-Deadline": now.Add(time.Hour).UTC().Format(time.RFC3339),
			"traceparent": "00-x",
		} {
			r.Header.Set(name, value)
		}
		sign(r.Header, secret, "17", now, signedBody)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	for kind, want := range map[string]int{"done": 204, "failed": 500, "later": 503, "dead": 410, "discard": 410, "panic": 500, "no text": 500} {
		w := send(kind, `{"n": 1}`, `{"n": 1}`)
		if w.Code != want {
			t.Errorf("%s: status %d, want %d", kind, w.Code, want)
		}
		if kind == "later" && w.Header().Get("Retry-After") != "90" {
			t.Errorf("it is to be tried after %q", w.Header().Get("Retry-After"))
		}
		if kind == "failed" && strings.TrimSpace(w.Body.String()) != `{"message":"no paper","status":"failure"}` {
			t.Errorf("it says %s", w.Body)
		}
	}
	if got.ID != "17" || got.Queue != "café" || got.Key != "a%b" || got.Attempt != 2 || got.MaxAttempts != 10 ||
		got.Trace != "00-x" || !got.JSON || string(got.Payload) != `{"n": 1}` {
		t.Errorf("got %+v", got)
	}
	got = nil
	if w := send("done", `{"n": 2}`, `{"n": 1}`); w.Code != 401 || got != nil {
		t.Errorf("another body: status %d, and the handler got %+v", w.Code, got)
	}
	if w := send("done", strings.Repeat("x", 101), ""); w.Code != 400 || got != nil {
		t.Errorf("a large body: status %d", w.Code)
	}
}

// The deadline is by another clock, so that a host that is ahead has as much time as others.
func TestPushHandlerIsAhead(t *testing.T) {
	t.Parallel()
	const secret = "whsec_c2VjcmV0"
	left, began := time.Duration(0), time.Now() //nolint:forbidigo // the handler goes by the host's clock, too
	h := PushHandler(PushOptions{Secrets: []string{secret}, Tolerance: 24 * time.Hour, Handle: func(ctx context.Context, _ *Delivery) error {
		end, _ := ctx.Deadline()
		left = end.Sub(began)
		return ctx.Err()
	}})
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader("{}"))
	sent := began.Add(-2 * time.Hour)
	r.Header.Set("Dbcron-Deadline", sent.Add(time.Hour).UTC().Format(time.RFC3339))
	sign(r.Header, secret, "17", sent, "{}")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if w.Code != 204 || left < 59*time.Minute {
		t.Errorf("status %d, %v were left", w.Code, left)
	}
}
