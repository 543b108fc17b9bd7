package httpapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/sqlrun"
)

// operations calls f for each operation of the document, with a path in which the names
// are ones that are not there.
func operations(t *testing.T, a *API, f func(method, path string, scope Scope)) {
	t.Helper()
	n := 0
	for path, item := range a.docs.OpenAPI().Paths {
		for method, op := range methods(item) {
			real := path
			for _, p := range op.Parameters {
				real = strings.ReplaceAll(real, "{"+p.Name+"}", "77")
			}
			f(method, real, Scope(op.Security[0]["token"][0]))
			n++
		}
	}
	if n < 30 {
		t.Errorf("there are %d operations only", n)
	}
}

// Each operation takes a token with its scope or admin, and no other; operators may read.
func TestScopes(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		stopping := make(chan struct{})
		close(stopping) // so that streams end
		s, tokens := serve(t, db.DB, Options{Stopping: stopping}), NewTokens(db.DB)
		secrets := map[Scope]string{}
		for _, scope := range Scopes {
			var err error
			secrets[scope], err = tokens.Create(t.Context(), string(scope), []Scope{scope}, 0)
			must(t, err)
		}
		operations(t, s.api, func(method, path string, scope Scope) {
			for has, secret := range secrets {
				s.token = secret
				a := s.send(method, path, nil)
				if allowed := has == scope || has == ScopeAdmin || has == ScopeOperate && scope == ScopeRead; allowed != (a.status != 403) ||
					a.status == 401 || a.status >= 500 {
					t.Errorf("%s with %s: %d %s", a.what, has, a.status, a.text)
				}
				if a.status == 403 {
					a.is(403).has("scope " + string(scope))
				}
			}
			s.token = ""
			if a := s.send(method, path, nil).is(401); a.header.Get("WWW-Authenticate") == "" {
				t.Errorf("%s: no WWW-Authenticate", a.what)
			}
		})
		for _, wrong := range []string{
			"Bearer", "Bearer ", "Bearer x", "Basic bWU6eA==", "Bearer " + secrets[ScopeAdmin] + "x",
			"Bearer " + secrets[ScopeAdmin][1:], secrets[ScopeAdmin], "Bearer dbcron_" + strings.Repeat("A", 43),
		} {
			s.send("GET", "/api/v1/queues", nil, "Authorization: "+wrong).is(401)
		}
		s.get("/api/v1/openapi.json").status200(t)
		for _, secret := range secrets {
			if logs := s.logs.String(); strings.Contains(logs, secret) || strings.Contains(logs, hashOf(secret)) {
				t.Error("a secret is in the log")
			}
		}
		if db.List(t, `SELECT hash FROM {prefix}token WHERE name = 'admin'`, nil)[0] != hashOf(secrets[ScopeAdmin]) {
			t.Error("not the hash is stored")
		}
		if logs := s.logs.String(); !strings.Contains(logs, "token=admin") {
			t.Error("the log does not tell whose token it was")
		}
	})
}

func (a *answer) status200(t *testing.T) {
	t.Helper()
	if a.status != 200 {
		t.Errorf("%s: %d %s", a.what, a.status, a.text)
	}
}

// While there is no token, the API answers programs on this host, but neither pages that use a
// name of this host nor requests passed on by a proxy.
func TestWithoutTokens(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		s := serve(t, db.DB, Options{})
		request := func(remote, local, host string, headers ...string) int {
			r := httptest.NewRequestWithContext(t.Context(), "GET", "/api/v1/queues", nil)
			r.RemoteAddr, r.Host = remote, host
			for _, h := range headers {
				name, value, _ := strings.Cut(h, ": ")
				r.Header.Set(name, value)
			}
			at, err := net.ResolveTCPAddr("tcp", local)
			must(t, err)
			w := httptest.NewRecorder()
			s.api.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, at)))
			return w.Code
		}
		const here = "127.0.0.1:8686"
		for _, host := range []string{"127.0.0.1:8686", "127.0.0.1", "localhost", "LocalHost.:8686", "[::1]:8686", "[::1]", "127.1.2.3:80"} {
			if got := request("127.0.0.1:5555", here, host); got != 200 {
				t.Errorf("for host %s: %d", host, got)
			}
		}
		if got := request("[::1]:5555", "[::1]:8686", "[::1]:8686"); got != 200 {
			t.Errorf("by IPv6: %d", got)
		}
		for _, host := range []string{
			"evil.example", "evil.example:8686", "", "localhost.evil.example",
			"127.0.0.1.evil.example", "10.0.0.1:8686", "0.0.0.0:8686", "[::]:8686", "evil.example:127.0.0.1",
		} {
			if got := request("127.0.0.1:5555", here, host); got != 403 {
				t.Errorf("for host %q: %d", host, got)
			}
		}
		for _, remote := range []string{"10.0.0.1:5555", "[fe80::1%eth0]:5555", "[::ffff:10.0.0.1]:5555", "nonsense"} {
			if got := request(remote, here, here); got != 403 {
				t.Errorf("from %s: %d", remote, got)
			}
		}
		if got := request("127.0.0.1:5555", "10.0.0.1:8686", here); got != 403 {
			t.Errorf("at another address: %d", got)
		}
		for _, h := range []string{"Traceparent: 00", "X-Request-ID: x", "X-Requested-With: x", "Forward: x"} {
			if got := request("127.0.0.1:5555", here, here, h); got != 200 {
				t.Errorf("with %s: %d", h, got)
			}
		}
		// With a token, none of that matters; and a token is needed from then on, even if it is
		// revoked.
		secret, err := NewTokens(db.DB).Create(t.Context(), "x", []Scope{ScopeRead}, 0)
		must(t, err)
		with := "Authorization: Bearer " + secret
		if got := request("10.0.0.1:5555", "10.0.0.2:8686", "api.example.org", with, "X-Forwarded-For: 10.0.0.1"); got != 200 {
			t.Errorf("with a token: %d", got)
		}
		eventually(t, "one is needed", func() bool { return request("127.0.0.1:5555", here, here) == 401 })
		must(t, NewTokens(db.DB).Revoke(t.Context(), "x"))
		eventually(t, "it is not good any more", func() bool { return request("127.0.0.1:5555", here, here, with) == 401 })
		if got := request("127.0.0.1:5555", here, here); got != 401 {
			t.Errorf("without one: %d", got)
		}
		if got := other(t, db).get("/api/v1/queues"); got.status != 401 {
			t.Errorf("at another process: %d", got.status)
		}
		// To open it again somebody has to say so. Other hosts stay out.
		if n, err := NewTokens(db.DB).Reset(t.Context()); n != 1 || err != nil {
			t.Errorf("removed %d, %v", n, err)
		}
		eventually(t, "none is needed", func() bool { return request("127.0.0.1:5555", here, here) == 200 })
		if got := request("10.0.0.1:5555", "10.0.0.2:8686", "api.example.org"); got != 403 {
			t.Errorf("from another host: %d", got)
		}
		if got := request("127.0.0.1:5555", here, here, with); got != 401 {
			t.Errorf("with a token that was removed: %d", got)
		}
		if n, err := NewTokens(db.DB).Reset(t.Context()); n != 0 || err != nil {
			t.Errorf("removed %d of none, %v", n, err)
		}
		if _, err := NewTokens(db.DB).Create(t.Context(), "x", []Scope{ScopeRead}, 0); err != nil {
			t.Errorf("the name of one that was removed: %v", err)
		}
		eventually(t, "one is needed again", func() bool { return request("127.0.0.1:5555", here, here) == 401 })
	})
}

// As long as there is no token, what comes through a proxy is refused, unless the proxy is one
// that decides who may use the API.
func TestProxies(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		const path = "/api/v1/queues"
		s, trusting, other := serve(t, db.DB, Options{}), serve(t, db.DB, Options{TrustedProxies: []string{"10.1.2.0/24", "127.0.0.1"}}),
			serve(t, db.DB, Options{TrustedProxies: []string{"127.0.0.2", "::1"}})
		for _, h := range []string{
			"X-Forwarded-For: 10.0.0.1", "X-Forwarded-For: ", "X-Forwarded-Proto: https", "X-Forwarded-Host: x",
			"Forwarded: for=10.0.0.1", "Via: 1.1 x", "X-Real-IP: 10.0.0.1",
			"X-Client-IP: 10.0.0.1", "CF-Connecting-IP: 10.0.0.1", "True-Client-IP: 10.0.0.1", "X-Original-URI: /",
			"X-Envoy-External-Address: 10.0.0.1", "Max-Forwards: 9", "Remote-Addr: x",
		} {
			s.send("GET", path, nil, h).is(403).has("proxy").has("--trusted-proxy")
			trusting.send("GET", path, nil, h).is(200)
			trusting.send("GET", path, nil, h, "Host: evil.example").is(403)
			other.send("GET", path, nil, h).is(403)
		}
		// nginx up to 1.29.6 adds nothing unless it is told to, but speaks HTTP/1.0.
		for api, want := range map[*service]string{s: "HTTP/1.0 403", trusting: "HTTP/1.0 200", other: "HTTP/1.0 403"} {
			conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(api.url, "http://"))
			must(t, err)
			_, err = io.WriteString(conn, "GET "+path+" HTTP/1.0\r\nHost: 127.0.0.1:8686\r\nConnection: close\r\n\r\n")
			must(t, err)
			if text, err := io.ReadAll(conn); err != nil || !strings.HasPrefix(string(text), want) {
				t.Errorf("by HTTP/1.0: %s, %v, want %s", text, err, want)
			}
			must(t, conn.Close())
		}
		var err error
		s.token, err = NewTokens(db.DB).Create(t.Context(), "x", []Scope{ScopeRead}, 0)
		must(t, err)
		s.send("GET", path, nil, "X-Forwarded-For: 10.0.0.1").is(200) // the token decides
		for _, wrong := range []string{"", "localhost", "10.0.0.1:80", "10.0.0.0/33", "*"} {
			if _, err := New(db.DB, Options{TrustedProxies: []string{wrong}}); !errors.Is(err, ErrInvalid) {
				t.Errorf("proxy %q: %v", wrong, err)
			}
		}
	})
}

// Pages of other origins are refused, but for those that are allowed, and these can read
// what they get.
func TestOrigins(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		const friend = "https://ops.example.org"
		s := serve(t, db.DB, Options{Origins: []string{friend}})
		for _, origin := range []string{
			"https://evil.example", "null", "http://ops.example.org", friend + ".evil.example",
			friend + ":8443", "file://", "HTTPS://OPS.EXAMPLE.ORG",
		} {
			for _, method := range []string{"GET", "POST", "OPTIONS"} {
				a := s.send(method, "/api/v1/jobs", nil, "Origin: "+origin, "Access-Control-Request-Method: POST").is(403)
				if got := a.header.Get("Access-Control-Allow-Origin"); got != "" {
					t.Errorf("%s is allowed: %s", origin, got)
				}
			}
		}
		for _, site := range []string{"cross-site", "same-site"} {
			s.send("GET", "/api/v1/queues", nil, "Sec-Fetch-Site: "+site).is(403)
		}
		for _, h := range []string{"Origin: " + s.url, "Sec-Fetch-Site: none", "Sec-Fetch-Site: same-origin"} {
			s.send("GET", "/api/v1/queues", nil, h).is(200)
		}
		a := s.send("OPTIONS", "/api/v1/jobs", nil, "Origin: "+friend, "Access-Control-Request-Method: POST")
		if a.status != 204 || a.header.Get("Access-Control-Allow-Origin") != friend ||
			!strings.Contains(a.header.Get("Access-Control-Allow-Headers"), "Authorization") {
			t.Errorf("before a request: %d %v", a.status, a.header)
		}
		if a := s.send("POST", "/api/v1/jobs", object{"kind": "x"}, "Origin: "+
			friend).is(201); a.header.Get("Access-Control-Allow-Origin") != friend ||
			!strings.Contains(strings.Join(a.header.Values("Vary"), ","), "Origin") {
			t.Errorf("the answer has %v", a.header)
		}
		if n := rows(t, db, "job"); n != 1 {
			t.Errorf("%d jobs", n)
		}
		for _, wrong := range []string{"*", "ops.example.org", "https://ops.example.org/", "ftp://x", "https://OPS.example.org", "https://a b"} {
			if _, err := New(db.DB, Options{Origins: []string{wrong}}); !errors.Is(err, ErrInvalid) {
				t.Errorf("origin %s: %v", wrong, err)
			}
		}
	})
}

// A rotated token has a new secret, and its old one stays good for a while. The name of a
// revoked one can be used again, for a token that the old secret is not good for.
func TestRotate(t *testing.T) {
	t.Parallel()
	dbtest.EachClock(t, func(t *testing.T, db *dbtest.DB) {
		tokens := NewTokens(db.DB)
		good := func(want string, secrets ...string) {
			t.Helper()
			for i, secret := range secrets {
				b, err := NewTokens(db.DB).Verify(t.Context(), secret) // as a process that knows nothing
				must(t, unless(err, ErrNoToken))
				if (b != nil) != (want[i] == '+') || b != nil && (b.name != "shop" || !b.May(ScopeEnqueue)) {
					t.Errorf("secret %d: %+v, want %s", i, b, want)
				}
			}
		}
		if _, err := tokens.Rotate(t.Context(), "shop", 0); !errors.Is(err, ErrNoToken) {
			t.Errorf("rotating none: %v", err)
		}
		if _, err := tokens.Rotate(t.Context(), "shop", -1); !errors.Is(err, ErrInvalid) {
			t.Errorf("for less than nothing: %v", err)
		}
		first, err := tokens.Create(t.Context(), "shop", []Scope{ScopeEnqueue}, 24*time.Hour)
		must(t, err)
		second, err := tokens.Rotate(t.Context(), "shop", time.Hour)
		must(t, err)
		good("++", first, second)
		if _, err := tokens.Rotate(t.Context(), "shop", time.Hour); !errors.Is(err, ErrRotated) {
			t.Errorf("rotating again: %v", err)
		}
		good("++", first, second)
		db.Advance(t, time.Hour-time.Second)
		all, err := tokens.List(t.Context())
		must(t, err)
		if len(all) != 1 || !all[0].Old.Equal(dbtest.Start.Add(time.Hour)) || all[0].Expires.Sub(all[0].Created) != 24*time.Hour {
			t.Errorf("it is %+v", all)
		}
		good("++", first, second)
		db.Advance(t, time.Second)
		good("-+", first, second)
		third, err := tokens.Rotate(t.Context(), "shop", 48*time.Hour)
		must(t, err)
		fourth, err := tokens.Rotate(t.Context(), "shop", 0) // at once: all before are known to others
		must(t, err)
		good("---+", first, second, third, fourth)
		fifth, err := tokens.Rotate(t.Context(), "shop", 48*time.Hour)
		must(t, err)
		db.Advance(t, 24*time.Hour) // it has expired, and so have both of its secrets
		good("-----", first, second, third, fourth, fifth)
		if _, err := tokens.Rotate(t.Context(), "shop", 0); !errors.Is(err, ErrNoToken) {
			t.Errorf("rotating an expired one: %v", err)
		}
		if _, err := tokens.Create(t.Context(), "shop", []Scope{ScopeEnqueue}, 0); !errors.Is(err, ErrTokenExists) {
			t.Errorf("its name is free: %v", err)
		}
		must(t, tokens.Revoke(t.Context(), "shop"))
		again, err := tokens.Create(t.Context(), "shop", []Scope{ScopeEnqueue}, 0)
		must(t, err)
		good("----+", second, third, fourth, fifth, again)
		if _, err := tokens.Create(t.Context(), "shop", []Scope{ScopeEnqueue}, 0); !errors.Is(err, ErrTokenExists) {
			t.Errorf("twice: %v", err)
		}
		all, err = tokens.List(t.Context())
		must(t, err)
		if len(all) != 1 || !all[0].Revoked.IsZero() || !all[0].Expires.IsZero() || !all[0].Old.IsZero() ||
			!all[0].Created.Equal(dbtest.Start.Add(25*time.Hour)) {
			t.Errorf("it is %+v", all)
		}
	})
}

// A token is good until it expires by the database's clock, and its use is noted once a
// minute.
func TestTokens(t *testing.T) {
	t.Parallel()
	dbtest.EachClock(t, func(t *testing.T, db *dbtest.DB) {
		tokens := NewTokens(db.DB)
		for _, bad := range []struct {
			name   string
			scopes []Scope
			lasts  time.Duration
		}{{"", []Scope{ScopeRead}, 0}, {"a ", []Scope{ScopeRead}, 0}, {"a", nil, 0}, {"a", []Scope{"root"}, 0}, {"a", []Scope{ScopeRead}, -1}} {
			if _, err := tokens.Create(t.Context(), bad.name, bad.scopes, bad.lasts); !errors.Is(err, ErrInvalid) {
				t.Errorf("%+v: %v", bad, err)
			}
		}
		if any, err := tokens.Any(t.Context()); any || err != nil {
			t.Errorf("there is one: %v, %v", any, err)
		}
		long, err := tokens.Create(t.Context(), "long", []Scope{ScopeAdmin, ScopeRead, ScopeAdmin}, 0)
		must(t, err)
		short, err := tokens.Create(t.Context(), "short", []Scope{ScopeEnqueue}, time.Hour)
		must(t, err)
		if _, err := tokens.Create(t.Context(), "long", []Scope{ScopeRead}, 0); !errors.Is(err, ErrTokenExists) {
			t.Errorf("again: %v", err)
		}
		good := func(secret string) *Bearer {
			b, err := NewTokens(db.DB).Verify(t.Context(), secret) // as a process that knows nothing
			must(t, unless(err, ErrNoToken))
			return b
		}
		if b := good(long); b == nil || b.name != "long" || !slices.Equal(b.scopes, []Scope{ScopeRead, ScopeAdmin}) || !b.May(ScopeWork) {
			t.Errorf("long is %+v", b)
		}
		if b := good(short); b == nil || b.May(ScopeRead) || !b.May(ScopeEnqueue) {
			t.Errorf("short is %+v", b)
		}
		used := func() time.Time {
			all, err := tokens.List(t.Context())
			must(t, err)
			if len(all) != 2 || all[0].Name != "long" || all[1].Name != "short" || all[1].Expires.Sub(all[1].Created) != time.Hour ||
				!all[0].Expires.IsZero() {
				t.Fatalf("they are %+v", all)
			}
			return all[0].Used
		}
		first := used()
		if !first.Equal(dbtest.Start) {
			t.Errorf("used at %v", first)
		}
		db.Advance(t, 59*time.Second)
		good(long)
		if got := used(); !got.Equal(first) {
			t.Errorf("noted again at %v", got)
		}
		db.Advance(t, time.Second)
		good(long)
		if got := used(); !got.Equal(first.Add(time.Minute)) {
			t.Errorf("noted at %v", got)
		}
		db.Advance(t, 58*time.Minute+59*time.Second)
		if good(short) == nil {
			t.Error("it is not good any more before its time")
		}
		db.Advance(t, time.Second)
		if good(short) != nil {
			t.Error("it is good after its time")
		}
		for range 2 {
			must(t, tokens.Revoke(t.Context(), "long"))
			db.Advance(t, time.Second)
		}
		if good(long) != nil {
			t.Error("it is good although it was revoked")
		}
		if err := tokens.Revoke(t.Context(), "none"); !errors.Is(err, ErrNoToken) {
			t.Errorf("revoking none: %v", err)
		}
		all, err := tokens.List(t.Context())
		must(t, err)
		if got := all[0].Revoked.Sub(dbtest.Start); got != time.Hour || all[0].State != TokenRevoked || all[1].State != TokenExpired {
			t.Errorf("revoked after %v, %+v", got, all)
		}
	}, (*testing.T).Parallel)
}

// Of many processes that see a token used at once one notes it.
func TestTouch(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		secret, err := NewTokens(db.DB).Create(t.Context(), "x", []Scope{ScopeRead}, 0)
		must(t, err)
		if _, err := NewTokens(db.DB).verify(t.Context(), secret); err != nil {
			t.Fatal(err)
		}
		db.Do(t, `UPDATE {prefix}token SET last_used_at = {now + :ago}`, sqlrun.Args{"ago": -time.Hour.Microseconds()})
		var n int64
		var all sync.WaitGroup
		var mu sync.Mutex
		for range 4 {
			far := dbtest.Open(t, db.URL, dialect.Options{MaxConns: 1})
			all.Go(func() {
				got, err := far.Exec(context.WithoutCancel(t.Context()), touchToken, sqlrun.Args{"name": "x", "since": -touchEvery.Microseconds()})
				mu.Lock()
				defer mu.Unlock()
				if n += got; err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if n != 1 {
			t.Errorf("%d noted it", n)
		}
	})
}

// Problems of a request are reported with the field, nothing is stored, and the answer repeats
// nothing that may be secret.
func TestBadInput(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		s := serve(t, db.DB, Options{MaxBody: 4096})
		const path = "/api/v1/jobs"
		for body, location := range map[string]string{
			`{"kind": "x"`: "body", `nonsense`: "body", `[]`: "body", `"x"`: "body", `null`: "body", `{"kind": "x"} {}`: "body", `{}`: "body",
			`{"kind": 5}`: "body.kind", `{"kind": null}`: "body.kind", `{"kind": "x", "hunter2": "hunter2"}`: "body.hunter2",
			`{"kind": "x", "queue": ["hunter2"]}`:   "body.queue",
			`{"kind": "x", "priority": "hunter2!"}`: "body.priority", `{"kind": "x", "delay": 5}`: "body.delay",
			`{"kind": "x", "delay": "5"}`:   "body.delay",
			`{"kind": "x", "delay": "-5s"}`: "body.delay", `{"kind": "x", "delay": "1h", "run_at": "2030-01-01T00:00:00Z"}`: "body.delay",
			`{"kind": "x", "run_at": "2030-01-01T00:00:00"}`: "body.run_at", `{"kind": "x", "run_at": "9999-01-01T00:00:01Z"}`: "body.run_at",
			`{"kind": "x", "max_attempts": 0}`:   "body.max_attempts",
			`{"kind": "x", "max_attempts": 1.5}`: "body.max_attempts", `{"kind": "x", "unique_for": "1h"}`: "body.unique_for",
			`{"kind": "x", "trace": "ü"}`:                                                             "body.trace",
			`{"kind": "x", "payload": 1, "payload_base64": "eA=="}`:                                   "body.payload_base64",
			`{"kind": "x", "payload_base64": "?"}`:                                                    "body.payload_base64",
			`{"kind": "x", "payload": ` + strings.Repeat("[", 1001) + strings.Repeat("]", 1001) + `}`: "body.payload",
			`{"kind": "x", "group": "-5"}`:                                                            "body.group",
			`{"kind": "x", "timeout": "200y"}`:                                                        "body.timeout",
		} {
			a := s.post(path, body)
			if a.status != 422 && a.status != 400 {
				t.Errorf("%.80s: %d %s", body, a.status, a.text)
			}
			a.at(location)
			if strings.Contains(a.text, `"value"`) || strings.Contains(strings.ReplaceAll(a.text, "body.hunter2", ""), `"hunter2"`) {
				t.Errorf("%s tells what was sent: %s", body, a.text)
			}
		}
		s.post(path, "").is(400)
		s.post(path, `{"kind": "x", "payload": "`+strings.Repeat("x", 4096)+`"}`).is(413).at("body")
		s.send("POST", path, `{"kind": "x"}`, "Content-Type: text/plain").is(415)
		s.send("POST", path, `{"kind": "x"}`, "Content-Type: application/x-www-form-urlencoded").is(415)
		s.send("POST", path, `{"kind": "x"}`, "Content-Type: application/json; charset=utf-8").is(201)
		s.post(path+"?access_token=hunter2", object{"kind": "x"}).is(422).at("query.access_token")
		for _, where := range []string{
			"/", "/api", "/api/v1/none", "/api/v1/queues/", "/api/v1//queues",
			"/api/v1/queues/../queues", "/api/v1/openapi", "/docs", "/schemas/Job.json",
		} {
			s.get(where).is(404)
		}
		if a := s.send("PATCH", "/api/v1/queues/q", object{}).is(405); a.header.Get("Allow") != "GET, PUT, DELETE, HEAD" {
			t.Errorf("allowed is %q", a.header.Get("Allow"))
		}
		s.remove("/api/v1/jobs").is(405)
		s.send("OPTIONS", "/api/v1/jobs", nil).is(405)
		if n := rows(t, db, "job"); n != 1 || rows(t, db, "queue") != 1 {
			t.Errorf("%d jobs, %d queues", n, rows(t, db, "queue"))
		}
		if logs := s.logs.String(); strings.Contains(logs, "hunter2") || !strings.Contains(logs, "status=422 method=POST path=/api/v1/jobs ") {
			t.Errorf("the log has\n%s", logs)
		}
	})
}

// What the database says is logged, and not sent.
func TestDatabaseErrors(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		s := serve(t, db.DB, Options{})
		db.Do(t, `DROP TABLE {prefix}topic_queue`, nil)
		if a := s.get("/api/v1/topics").is(500); strings.Contains(a.text, "topic") {
			t.Errorf("it tells %s", a.text)
		}
		if !strings.Contains(s.logs.String(), "queue.subscriptions") {
			t.Errorf("the log has %s", s.logs)
		}
		far := dbtest.Open(t, db.URL, dialect.Options{MaxConns: 2})
		gone := serve(t, far.DB, Options{})
		gone.get("/api/v1/queues").is(200)
		must(t, far.Pool().Close())
		for _, path := range []string{"/api/v1/queues", "/api/v1/queues/x"} {
			if a := gone.get(path); a.status != 503 && a.status != 500 || strings.Contains(a.text, "sql") {
				t.Errorf("without a database: %d %s", a.status, a.text)
			}
		}
	})
}

// A panic is answered, and logged.
func TestPanic(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		s := serve(t, db.DB, Options{})
		s.api.mux.HandleFunc("GET /boom", func(http.ResponseWriter, *http.Request) { panic("boom") })
		s.api.routes["GET /boom"] = &route{}
		s.get("/boom").is(500)
		if logs := s.logs.String(); !strings.Contains(logs, "panic=boom") || !strings.Contains(logs, "status=500") {
			t.Errorf("the log has %s", fmt.Sprint(logs))
		}
	})
}

// unless is an error, unless it is the expected one.
func unless(err, expected error) error {
	if errors.Is(err, expected) {
		return nil
	}
	return err
}
