package httpapi

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/dbcron/dbcron/dialect/dbtest"
)

// A user named by a trusted proxy may do what the scopes allow, and the audit log has the name.
// A request of that proxy that names nobody, or two users, is refused; from anybody else the
// header is ignored, with and without tokens.
func TestProxyUsers(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		const header, path, pause = "X-Forwarded-User", "/api/v1/queues", "/api/v1/queues/mail/pause"
		named := Options{TrustedProxies: []string{"127.0.0.1"}, ProxyUserHeader: strings.ToLower(header), ProxyUserScopes: []Scope{ScopeOperate}}
		s := serve(t, db.DB, named)
		named.TrustedProxies = []string{"10.1.2.3"}
		elsewhere := serve(t, db.DB, named)
		elsewhere.put("/api/v1/queues/mail", object{}).is(201) // of this host, that needs no token
		s.send("GET", path, nil, header+": ada").is(200)
		s.send("POST", pause, nil, header+": ada").is(204)
		s.send("DELETE", path+"/mail", nil, header+": ada").is(403).has("scope admin").has("users of the proxy have operate")
		s.send("PUT", "/api/v1/schedules/x", object{"spec": "@daily", "command": "true"}, header+": ada").is(403)
		for _, none := range []string{
			header + ": ", "X-Forwarded-For: 10.0.0.1", header + ": a\tb",
			header + ": " + strings.Repeat("x", 300), "X_Forwarded_User: ada",
		} {
			s.send("GET", path, nil, none).is(403).has(header)
		}
		twice, err := http.NewRequestWithContext(t.Context(), "GET", s.url+path, nil)
		must(t, err)
		twice.Header[header] = []string{"ada", "root"}
		s.do(twice).is(403).has(header)
		elsewhere.send("GET", path, nil, header+": ada").is(403).has("--trusted-proxy")
		elsewhere.send("POST", pause, nil, header+": ada").is(403)

		secret, err := NewTokens(db.DB).Create(t.Context(), "bob", []Scope{ScopeAdmin}, 0)
		must(t, err)
		s, elsewhere = serve(t, db.DB, s.api.opt), serve(t, db.DB, named)
		s.send("POST", "/api/v1/queues/mail/resume", nil, header+": ada").is(204)
		s.send("GET", path, nil).is(401)
		s.send("POST", pause, nil, header+": ada", "Authorization: Bearer "+secret).is(204) // the token counts
		s.send("POST", pause, nil, header+": ada", "Authorization: Bearer x").is(401)
		s.send("POST", pause, nil, header+": ada", "Origin: https://evil.example").is(403)
		elsewhere.send("GET", path, nil, header+": ada").is(401)
		want := []string{
			"this host none api queue.set mail 1", "ada proxy api queue.pause mail 1",
			"ada proxy api queue.resume mail 1", "bob token api queue.pause mail 1",
		}
		if got := auditLines(t, db); !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		if logs := s.logs.String(); !strings.Contains(logs, "user=ada") || strings.Contains(logs, "token=ada") {
			t.Errorf("the log is %s", logs)
		}
	})
}

// Options of users whom nobody could name, or who have no such scope, are refused.
func TestProxyUserOptions(t *testing.T) {
	proxies := []string{"127.0.0.1"}
	for _, opt := range []Options{
		{ProxyUserHeader: "X-User"},
		{ProxyUserHeader: "X-User", TrustedProxies: proxies, ProxyUserScopes: []Scope{"root"}},
		{ProxyUserHeader: "X_User", TrustedProxies: proxies},
		{ProxyUserHeader: "x user", TrustedProxies: proxies},
		{ProxyUserHeader: "authorization", TrustedProxies: proxies},
	} {
		if _, err := describe(opt); !errors.Is(err, ErrInvalid) {
			t.Errorf("%+v: got %v", opt, err)
		}
	}
	a, err := describe(Options{ProxyUserHeader: "x-user", TrustedProxies: proxies})
	if err != nil || !slices.Equal(a.opt.ProxyUserScopes, []Scope{ScopeRead}) {
		t.Errorf("got %v, %v", a.opt.ProxyUserScopes, err)
	}
}
