package dashboard

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dbcron/dbcron/httpapi"
	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/ops/audit"
)

const (
	cookieName  = "dbcron_session"
	sessionTime = 12 * time.Hour
	maxSessions = 1000
	ownSessions = 100 // of one token: who has it signs in from a few browsers, and ends nobody else's sessions
)

// errNobody means that the sender of a request is not signed in.
var errNobody = errors.New("dashboard: not signed in")

// A visitor is the sender of a request.
type visitor struct {
	Name    string // name of the token; empty: there is no token yet
	Admin   bool   // may do everything
	Operate bool   // may do what the map operates lists
	Signed  bool   // is signed in with a session, and can sign out
	Login   string // how it was identified, as the audit log calls it
	Known   bool   // may see pages
}

// operates lists the actions of each page that need only the scope operate. The others need
// admin: they change settings, delete, or concern tokens.
var operates = map[string][]string{
	"/":         {"acknowledge", "reopen"},
	"/queue":    {"pause", "resume"},
	"/job":      {"retry", "run", "cancel"},
	"/bulk":     {"retry", "run", "cancel"},
	"/schedule": {"run", "pause", "resume"},
	"/backfill": {"backfill"},
	"/run":      {"cancel"},
	"/daemons":  {"drain", "undrain"},
}

// may reports whether a visitor may use an action of a page.
func (v visitor) may(path, do string) bool {
	return v.Admin || v.Operate && slices.Contains(operates[path], do)
}

// sessions holds the sessions of this process: a browser that reaches another process has to
// sign in there. A session ends with its token at the latest, which is checked at each request.
type sessions struct {
	mu   sync.Mutex
	open map[[sha256.Size]byte]session // by the hash of the cookie's value
}

type session struct {
	bearer *httpapi.Bearer
	began  instant.Instant
}

func newSessions() *sessions { return &sessions{open: map[[sha256.Size]byte]session{}} }

// begin starts a session and returns its cookie's value. If there are too many sessions, of the token or in all, the oldest one
// ends: of the token if it has many.
func (s *sessions) begin(b *httpapi.Bearer) string {
	secret, now := rand.Text(), instant.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	own := 0
	var oldest, oldestOwn [sha256.Size]byte
	for key, one := range s.open {
		if now.Sub(one.began) > sessionTime {
			delete(s.open, key)
			continue
		}
		if was, ok := s.open[oldest]; !ok || one.began < was.began {
			oldest = key
		}
		if one.bearer.Name() != b.Name() {
			continue
		}
		own++
		if was, ok := s.open[oldestOwn]; !ok || one.began < was.began {
			oldestOwn = key
		}
	}
	switch {
	case own >= ownSessions:
		delete(s.open, oldestOwn)
	case len(s.open) >= maxSessions:
		delete(s.open, oldest)
	}
	s.open[sha256.Sum256([]byte(secret))] = session{b, now}
	return secret
}

// find returns the bearer of a session, or nil if there is none.
func (s *sessions) find(secret string) *httpapi.Bearer {
	s.mu.Lock()
	defer s.mu.Unlock()
	one, ok := s.open[sha256.Sum256([]byte(secret))]
	if !ok || instant.Now().Sub(one.began) > sessionTime {
		return nil
	}
	return one.bearer
}

func (s *sessions) end(secret string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, sha256.Sum256([]byte(secret)))
}

// visitor identifies the sender of a request. It returns errNobody, or an httpapi.ErrRefused.
func (d *Dashboard) visitor(r *http.Request) (visitor, error) {
	if c, err := r.Cookie(cookieName); err == nil {
		if b := d.sessions.find(c.Value); b != nil {
			who, err := d.signed(r.Context(), b)
			if err == nil {
				return who, nil
			}
			if !errors.Is(err, httpapi.ErrNoToken) {
				return visitor{}, err
			}
			d.sessions.end(c.Value)
		}
	}
	if b := d.api.ProxyUser(r); b != nil {
		if !b.May(httpapi.ScopeRead) {
			return visitor{}, errNobody
		}
		return visitorOf(b), nil
	}
	open, err := d.api.Open(r)
	if err != nil {
		return visitor{}, err
	}
	if !open {
		return visitor{}, errNobody
	}
	return visitor{Login: audit.None, Admin: true, Operate: true, Known: true}, nil
}

// visitorOf returns the visitor for a bearer, with its permissions.
func visitorOf(b *httpapi.Bearer) visitor {
	return visitor{Name: b.Name(), Login: b.Login(), Admin: b.May(httpapi.ScopeAdmin), Operate: b.May(httpapi.ScopeOperate), Known: true}
}

// signed returns the visitor for a session's bearer, with the token's current permissions.
func (d *Dashboard) signed(ctx context.Context, b *httpapi.Bearer) (visitor, error) {
	b, err := d.api.Tokens().Again(ctx, b)
	if err != nil {
		return visitor{}, err
	}
	if !b.May(httpapi.ScopeRead) {
		return visitor{}, httpapi.ErrNoToken
	}
	who := visitorOf(b)
	who.Signed = true
	return who, nil
}

// signInData is the data of the sign-in form.
type signInData struct{ To string }

// signIn shows the form, and starts a session for a valid token. It ends the previous session.
func (d *Dashboard) signIn(w http.ResponseWriter, r *http.Request) visitor {
	ctx, cancel := context.WithTimeout(r.Context(), d.opt.Timeout)
	defer cancel()
	p := &page{Title: "Sign in", Version: d.opt.Version, Here: "sign-in"}
	if r.Method != http.MethodPost {
		p.Data = signInData{d.target(r.URL.Query().Get("to"))}
		if _, err := d.api.Open(r.WithContext(ctx)); errors.Is(err, httpapi.ErrRefused) {
			d.refuse(w, r, visitor{}, http.StatusForbidden, sentence(err.Error()))
			return visitor{}
		}
		d.write(w, http.StatusOK, "sign-in.html", p)
		return visitor{}
	}
	if err := r.ParseForm(); err != nil {
		d.refuse(w, r, visitor{}, http.StatusBadRequest, "The form cannot be read.")
		return visitor{}
	}
	to := d.target(r.PostForm.Get("to"))
	p.Data = signInData{to}
	b, err := d.api.Tokens().Verify(ctx, strings.TrimSpace(r.PostForm.Get("token")))
	switch {
	case errors.Is(err, httpapi.ErrNoToken):
		p.Error = "This token is unknown or no longer valid. List the valid ones with dbcron token list."
		d.write(w, http.StatusUnauthorized, "sign-in.html", p)
		return visitor{}
	case err != nil:
		d.fail(w, r, visitor{}, err)
		return visitor{}
	case !b.May(httpapi.ScopeRead):
		p.Error = "This token may not see anything: it has neither the scope read nor admin."
		d.write(w, http.StatusForbidden, "sign-in.html", p)
		return visitor{Name: b.Name()}
	}
	d.forget(r)
	http.SetCookie(w, &http.Cookie{
		Name: cookieName, Value: d.sessions.begin(b), HttpOnly: true, SameSite: http.SameSiteLaxMode,
		Secure: overTLS(r), MaxAge: int(sessionTime.Seconds()),
	}) // the path is that of this page, without its last part
	redirect(w, to)
	return visitor{Name: b.Name()}
}

// overTLS reports whether the browser uses TLS, with this process or with a proxy. A client
// that claims so wrongly only keeps its own cookie from being sent.
func overTLS(r *http.Request) bool {
	return r.TLS != nil || strings.EqualFold(r.Header.Get("X-Forwarded-Proto"), "https")
}

// target returns the page for a browser that has signed in: one of the dashboard's, by default
// the overview.
func (d *Dashboard) target(to string) string {
	u, err := url.Parse(to)
	if err != nil || u.Scheme != "" || u.Host != "" || u.Opaque != "" || u.User != nil {
		return "./"
	}
	if _, ok := d.routes["/"+u.Path]; !ok || u.Path == "" {
		return "./"
	}
	q := u.Query()
	q.Del("ok")
	q.Del("n")
	return u.Path + "?" + q.Encode()
}

// signOut ends a session.
func (d *Dashboard) signOut(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		redirect(w, "./")
		return
	}
	d.forget(r)
	http.SetCookie(w, &http.Cookie{Name: cookieName, HttpOnly: true, SameSite: http.SameSiteLaxMode, Secure: overTLS(r), MaxAge: -1})
	redirect(w, "sign-in")
}

// forget ends the request's session, if any.
func (d *Dashboard) forget(r *http.Request) {
	if c, err := r.Cookie(cookieName); err == nil {
		d.sessions.end(c.Value)
	}
}
