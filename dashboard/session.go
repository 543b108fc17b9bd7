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
	"github.com/dbcron/dbcron/internal/audit"
	"github.com/dbcron/dbcron/internal/instant"
)

const (
	cookieName   = "dbcron_session"
	sessionTime  = 12 * time.Hour
	mostSessions = 1000
)

// errNobody means that a request is of nobody who is signed in.
var errNobody = errors.New("dashboard: not signed in")

// A visitor is who has sent a request.
type visitor struct {
	Name    string // of the token; empty: there is no token yet
	Admin   bool   // may do everything
	Operate bool   // may do what operates says
	Signed  bool   // is signed in, and can sign out
	Login   string // how that is known, as the audit calls it
	Known   bool   // may look
}

// operates are the actions of each page for which the scope operate is enough. The others need
// admin: they change what is defined, delete, or deal with tokens.
var operates = map[string][]string{
	"/queue":    {"pause", "resume"},
	"/job":      {"retry", "run", "cancel"},
	"/bulk":     {"retry", "run", "cancel"},
	"/schedule": {"run", "pause", "resume"},
	"/backfill": {"backfill"},
	"/run":      {"cancel"},
	"/daemons":  {"drain", "undrain"},
}

// may reports whether a visitor may do something on a page.
func (v visitor) may(path, do string) bool {
	return v.Admin || v.Operate && slices.Contains(operates[path], do)
}

// sessions are those of this process: a browser that comes to another one signs in there. A
// session lasts no longer than its token, which is looked at with each request.
type sessions struct {
	mu   sync.Mutex
	open map[[sha256.Size]byte]session // by the hash of what the cookie holds
}

type session struct {
	bearer *httpapi.Bearer
	began  instant.Instant
}

func newSessions() *sessions { return &sessions{open: map[[sha256.Size]byte]session{}} }

// begin returns what the cookie of a new session holds. The oldest session goes if there are
// too many.
func (s *sessions) begin(b *httpapi.Bearer) string {
	secret, now := rand.Text(), instant.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	var oldest [sha256.Size]byte
	var since instant.Instant
	for key, one := range s.open {
		if now.Sub(one.began) > sessionTime {
			delete(s.open, key)
		} else if since == 0 || one.began.Sub(since) < 0 {
			oldest, since = key, one.began
		}
	}
	if len(s.open) >= mostSessions {
		delete(s.open, oldest)
	}
	s.open[sha256.Sum256([]byte(secret))] = session{b, now}
	return secret
}

// find returns whose session it is; nil: nobody's.
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

// visitor finds out who has sent a request, or returns errNobody, or an httpapi.ErrRefused.
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

// visitorOf is who may look, by what they may do.
func visitorOf(b *httpapi.Bearer) visitor {
	return visitor{Name: b.Name(), Login: b.Login(), Admin: b.May(httpapi.ScopeAdmin), Operate: b.May(httpapi.ScopeOperate), Known: true}
}

// signed returns the visitor whose session is a bearer's, by what its token is good for now.
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

// signInData is what the form is made of.
type signInData struct{ To string }

// signIn shows the form, and takes a token for a session. A session that there was before ends.
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
		p.Error = "This token is not known, or not good any more. dbcron token list shows those that are."
		d.write(w, http.StatusUnauthorized, "sign-in.html", p)
		return visitor{}
	case err != nil:
		d.fail(w, r, visitor{}, err)
		return visitor{}
	case !b.May(httpapi.ScopeRead):
		p.Error = "This token may not look at anything: it has neither the scope read nor admin."
		d.write(w, http.StatusForbidden, "sign-in.html", p)
		return visitor{Name: b.Name()}
	}
	d.forget(r)
	http.SetCookie(w, &http.Cookie{
		Name: cookieName, Value: d.sessions.begin(b), HttpOnly: true, SameSite: http.SameSiteLaxMode,
		Secure: overTLS(r), MaxAge: int(sessionTime.Seconds()),
	}) // its path is that of this page, without the last part
	redirect(w, to)
	return visitor{Name: b.Name()}
}

// overTLS reports whether the browser speaks TLS, with this process or with a proxy. Whoever says
// so without need keeps only their own cookie from being sent.
func overTLS(r *http.Request) bool {
	return r.TLS != nil || strings.EqualFold(r.Header.Get("X-Forwarded-Proto"), "https")
}

// target is where a browser goes when it has signed in: a page of ours, or else the overview.
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

// forget ends the session that a request has, if any.
func (d *Dashboard) forget(r *http.Request) {
	if c, err := r.Cookie(cookieName); err == nil {
		d.sessions.end(c.Value)
	}
}
