package httpapi

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
)

// A warning of what is to come becomes a failure when it comes, while it is still used. The class is what has an end and is used until then:
// tokens (here); the certificate of the API (TestTheLifeOfACertificate, certificate.txtar). Looked at, and not of it: the client certificate of
// a database's URL (the driver presents it, the server judges it: its refusal of a connection is an error in the daemon's own words, and
// nothing of ours knows before); the secret of an endpoint, of which the one before ends after a grace (it only signs more than it has to, and
// receivers take either); permits (renewed while they are held, and whoever loses one is told); retention (it deletes what nobody waits for).
func TestAnExpiredTokenIsTrouble(t *testing.T) {
	now := time.Date(2026, 1, 10, 0, 0, 0, 0, time.UTC)
	hours := func(n int) time.Time { return now.Add(time.Duration(n) * time.Hour) }
	for name, c := range map[string]struct {
		token Token
		words string
	}{
		"in a week":                   {Token{State: TokenGood, Expires: hours(100), Used: now}, "expires in"},
		"in a month":                  {Token{State: TokenGood, Expires: hours(800), Used: now}, ""},
		"never":                       {Token{State: TokenGood, Used: now}, ""},
		"used until it expired":       {Token{State: TokenExpired, Expires: hours(-2), Used: hours(-3)}, "requests with it are refused"},
		"used a week before":          {Token{State: TokenExpired, Expires: hours(-2), Used: hours(-170)}, ""},
		"never used":                  {Token{State: TokenExpired, Expires: hours(-2)}, ""},
		"expired a month ago":         {Token{State: TokenExpired, Expires: hours(-800), Used: hours(-801)}, ""},
		"revoked while it was in use": {Token{State: TokenRevoked, Expires: hours(-2), Used: hours(-3)}, ""},
	} {
		if got := c.token.Trouble(now); c.words == "" && got != "" || !strings.Contains(got, c.words) {
			t.Errorf("%s: %q, want %q", name, got, c.words)
		}
	}
}

// A request with a token that has ended is refused, with the token's name, which the log has, too.
func TestAnExpiredTokenIsNamed(t *testing.T) {
	dbtest.Memory.EachClock(t, func(t *testing.T, db *dbtest.DB) {
		s := serve(t, db.DB, Options{})
		_, err := s.api.Tokens().Create(t.Context(), "other", []Scope{ScopeRead}, 0)
		must(t, err)
		s.token, err = s.api.Tokens().Create(t.Context(), "shop", []Scope{ScopeRead}, time.Hour)
		must(t, err)
		db.Advance(t, 2*time.Hour)
		a := s.get("/api/v1/queues").is(http.StatusUnauthorized)
		if !strings.Contains(a.text, "the token shop has expired") || !strings.Contains(s.logs.String(), "token=shop") {
			t.Errorf("%s\n%s", a.text, s.logs)
		}
	})
}
