package dashboard

import (
	"net/url"
	"strings"
	"testing"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/httpapi"
	"github.com/dbcron/dbcron/internal/ops/audit"
	"github.com/dbcron/dbcron/queue/admin"
)

// A trusted proxy names the visitor, who may do what the proxy's users may; from anybody else
// its header is ignored, before the first token and after.
func TestProxyUsers(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		newWorld(t, db)
		const ada = "X-Forwarded-User: ada <b>"
		mail := link("queue", "name", "mail")
		of := httpapi.Options{
			TrustedProxies: []string{"127.0.0.1"}, ProxyUserHeader: "X-Forwarded-User",
			ProxyUserScopes: []httpapi.Scope{httpapi.ScopeOperate},
		}
		s := serveBeside(t, db.DB, "/x", of, Options{})
		of.TrustedProxies = []string{"10.1.2.3"}
		elsewhere := serveBeside(t, db.DB, "/x", of, Options{})
		look := func() {
			t.Helper()
			s.do("GET", mail, nil, ada).is(200).has("ada &lt;b&gt;", "operator", `value="pause"`).lacks("Purge", "Sign out", "ada <b>")
			s.do("POST", mail, url.Values{"do": {"pause"}}, ada, "Sec-Fetch-Site: same-origin").is(303)
			s.do("POST", mail, url.Values{"do": {"resume"}}, ada, "Sec-Fetch-Site: same-origin").is(303)
			s.do("POST", mail, url.Values{"do": {"purge"}, "state": {"ready"}, "typed": {"mail"}}, ada).is(403)
			s.do("POST", mail, url.Values{"do": {"pause"}}, ada, "Sec-Fetch-Site: cross-site").is(403).has("another origin")
		}
		look()
		s.do("GET", mail, nil, "X-Forwarded-For: 10.0.0.1").is(403).has("X-Forwarded-User").lacks("welcome")
		elsewhere.do("GET", mail, nil, ada).is(403).lacks("welcome")
		elsewhere.do("POST", mail, url.Values{"do": {"pause"}}, ada).is(403)
		secret, err := httpapi.NewTokens(db.DB).Create(t.Context(), "bob", []httpapi.Scope{httpapi.ScopeAdmin}, 0)
		must(t, err)
		of.TrustedProxies = []string{"127.0.0.1"}
		s = serveBeside(t, db.DB, "/x", of, Options{})
		look()
		s.do("GET", mail, nil).is(303)
		s.do("POST", "sign-in", url.Values{"token": {secret}}, ada).is(303)
		s.do("GET", mail, nil, ada).is(200).has("<b>bob</b>", "Purge", "Sign out")
		entries, _, err := audit.List(t.Context(), db.DB, audit.Filter{Object: "mail"})
		must(t, err)
		if len(entries) != 4 {
			t.Errorf("got %+v", entries)
		}
		for _, e := range entries {
			if e.Actor != "ada <b>" || e.Login != audit.Proxy {
				t.Errorf("got %+v", e)
			}
		}
	})
}

// Where arguments are hidden, payloads and commands are on no page, and cannot be found out.
func TestHiddenArguments(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		w := newWorld(t, db)
		s := serve(t, db.DB, "", Options{HideArguments: true})
		for _, path := range w.pages() {
			if strings.Contains(path, "where=") {
				s.do("GET", path, nil).is(400).has("cannot be searched")
				continue
			}
			s.get(path).lacks(big, "pg_dump", "example.org")
		}
		s.get(link("job", "queue", "mail", "id", w.ready)).has("Payloads are hidden here").lacks("Download", "payload?")
		s.get(link("schedule", "name", "backup")).has("Commands are hidden here")
		s.do("GET", link("payload", "queue", "mail", "id", w.ready), nil).is(403).has("hidden")
		s.do("GET", link("bulk", "queue", "mail", "state", "ready", "do", "cancel", "where", "$.n = 1"), nil).is(400)
		clone := link("clone", "queue", "mail", "id", w.ready)
		s.get(clone).has("copied unchanged").lacks("<textarea", big)
		s.try(clone, "do", "clone", "queue", "mail", "kind", "copied", "priority", "normal", "payload", "{}").is(303)
		jobs, _, err := adminOf(s.board.queues).Jobs(t.Context(), admin.Filter{Queue: "mail", Kind: "copied", Limit: 1})
		must(t, err)
		if len(jobs) != 1 || !strings.Contains(string(jobs[0].Payload), big) {
			t.Errorf("the clone is %+v", jobs)
		}
	})
}
