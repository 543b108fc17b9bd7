package dashboard

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/httpapi"
	"github.com/dbcron/dbcron/internal/audit"
	"github.com/dbcron/dbcron/queue"
)

// done is what the audit has of an action, the newest first.
func done(t *testing.T, db *dbtest.DB, action string) (all []string) {
	t.Helper()
	entries, _, err := audit.List(t.Context(), db.DB, audit.Filter{Action: action})
	must(t, err)
	for _, e := range entries {
		all = append(all, strings.TrimSpace(e.Object+" "+e.Detail))
	}
	return all
}

// Routes, subscriptions and groups are seen and changed, and a name that was mistyped makes no
// queue.
func TestRoutesTopicsGroups(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		w, ctx := newWorld(t, db), t.Context()
		s := serve(t, db.DB, "/x", Options{})
		c := s.board.queues
		s.post("routes", "do", "set", "kind", "thumbnail", "queue", "mail").has("The route is set", "thumbnail")
		if name, err := c.Route(ctx, "thumbnail"); err != nil || name != "mail" {
			t.Errorf("got %s, %v", name, err)
		}
		s.try("routes", "do", "set", "kind", "x", "queue", "nothing").is(404)
		s.try("routes", "do", "set", "kind", "", "queue", "mail").is(422).has("kind is missing")
		s.post("routes", "do", "delete", "kind", "thumbnail").has("The route is removed").lacks("thumbnail<")
		s.try("routes", "do", "delete", "kind", "thumbnail").is(404)
		s.post("topics", "do", "subscribe", "topic", "placed", "queue", "mail").has("gets copies", "placed")
		s.try("topics", "do", "subscribe", "topic", "placed", "queue", "nothing").is(404)
		s.post("topics", "do", "unsubscribe", "topic", "placed", "queue", "mail").has("The subscription has ended")
		s.try("topics", "do", "unsubscribe", "topic", "placed", "queue", "mail").is(404)
		group := link("group", "id", w.group)
		s.get(group).has(">1</b><span>pending", "is enqueued")
		s.try(group, "do", "delete", "typed", "7").is(422).has("nothing was removed")
		s.post(group, "do", "delete", "typed", fmt.Sprint(w.group)).has("The group has ended")
		if g, err := c.Group(ctx, w.group); err != nil || g.State != queue.GroupDone {
			t.Errorf("got %+v, %v", g, err)
		}
		for action, want := range map[string]string{
			"route.set": "thumbnail to mail", "route.delete": "thumbnail", "topic.subscribe": "placed/mail", "topic.unsubscribe": "placed/mail", "group.delete": fmt.Sprint(w.group),
		} {
			if got := done(t, db, action); !slices.Equal(got, []string{want}) {
				t.Errorf("%s: got %q, want %q", action, got, want)
			}
		}
		if _, err := c.Queue(ctx, "nothing"); !errors.Is(err, queue.ErrNotFound) {
			t.Errorf("there is a queue: %v", err)
		}
	})
}

// Tokens are listed with what they may and when they end, without their secrets; an
// administrator revokes one, and an operator sees no button.
func TestTokens(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		tokens := httpapi.NewTokens(db.DB)
		var secrets []string
		create := func(name string, lasts time.Duration, scopes ...httpapi.Scope) string {
			t.Helper()
			secret, err := tokens.Create(t.Context(), name, scopes, lasts)
			must(t, err)
			secrets = append(secrets, secret)
			return secret
		}
		admin, operator := create("ops", 0, httpapi.ScopeAdmin), create("ada", time.Hour, httpapi.ScopeOperate, httpapi.ScopeEnqueue)
		create(hostile, 0, httpapi.ScopeRead)
		s := serve(t, db.DB, "/x", Options{})
		s.try("sign-in", "token", operator).is(303)
		page := s.get("tokens").has("ops", "enqueue, operate", "yours", "t-warn", "never").lacks("Revoke", "onerror=alert(2)>")
		s.try("tokens", "do", "revoke", "name", "ops").is(403)
		for _, secret := range secrets {
			page.lacks(secret, secret[7:])
		}
		s.get("").has("Token ada expires", `href="tokens"`)
		a := s.another()
		a.try("sign-in", "token", admin).is(303)
		a.get("tokens").has("Revoke ops", "Revoke ada")
		a.post("tokens", "do", "revoke", "name", "ada").has("The token is revoked", "s-revoked").lacks("Revoke ada")
		a.try("tokens", "do", "revoke", "name", "nobody").is(404)
		if _, err := httpapi.NewTokens(db.DB).Verify(t.Context(), operator); !errors.Is(err, httpapi.ErrNoToken) {
			t.Errorf("the token is still good: %v", err)
		}
		if got := done(t, db, "token.revoke"); !slices.Equal(got, []string{"ada"}) {
			t.Errorf("the audit has %q", got)
		}
	})
}
