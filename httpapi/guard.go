package httpapi

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

// checkBrowser refuses what a page of somebody else's has a browser send: a browser says
// where a page is from, and other programs do not. Pages of the origins that are allowed
// get the headers without which a browser would keep the answer from them.
func (a *API) checkBrowser(h http.Header, r *http.Request) *huma.ErrorModel {
	h.Add("Vary", "Origin")
	origins := r.Header.Values("Origin")
	if len(origins) == 0 {
		if site := r.Header.Get("Sec-Fetch-Site"); site == "cross-site" || site == "same-site" {
			return problem(http.StatusForbidden, "a page of another origin may not use the API")
		}
		return nil
	}
	origin := origins[0]
	switch {
	case len(origins) > 1:
	case slices.Contains(a.opt.Origins, origin):
		h.Set("Access-Control-Allow-Origin", origin)
		h.Set("Access-Control-Allow-Methods", "GET, POST, PUT, DELETE")
		h.Set("Access-Control-Allow-Headers", "Authorization, Content-Type, Idempotency-Key, Last-Event-ID")
		h.Set("Access-Control-Expose-Headers", "Location")
		return nil
	case origin == schemeOf(r)+"://"+r.Host:
		return nil
	}
	return problem(http.StatusForbidden, "pages of the origin "+origin+" may not use the API; dbcron serve --allow-origin allows one")
}

func schemeOf(r *http.Request) string {
	if r.TLS != nil {
		return "https"
	}
	return "http"
}

// authorize tells who may not do what needs a scope, "" being what all may who may use the
// API at all.
func (a *API) authorize(w *reply, r *http.Request, scope Scope) *huma.ErrorModel {
	header := r.Header.Get("Authorization")
	if header == "" {
		return a.withoutToken(w, r, scope)
	}
	scheme, secret, _ := strings.Cut(header, " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return unauthorized(w, "the API takes tokens: Authorization: Bearer, and then the token")
	}
	who, err := a.tokens.verify(r.Context(), strings.TrimSpace(secret))
	switch {
	case who == nil && err != nil:
		return a.problemOf(r.Context(), &operation{id: "authorize"}, err)
	case who == nil:
		return unauthorized(w, "the token is not known, or not good any more; dbcron token list shows those that are")
	case err != nil:
		a.log.Warn("http: it could not be noted that a token is used", "token", who.name, "err", err)
	}
	w.token = who.name
	if scope != "" && !who.may(scope) {
		w.Header().Set("WWW-Authenticate", `Bearer error="insufficient_scope", scope="`+string(scope)+`"`)
		return problem(http.StatusForbidden, "this needs a token with the scope "+string(scope))
	}
	return nil
}

// withoutToken lets those in who have none: as long as there is none at all, and from this
// host.
func (a *API) withoutToken(w *reply, r *http.Request, scope Scope) *huma.ErrorModel {
	needed, err := a.tokens.Any(r.Context())
	switch {
	case err != nil:
		return a.problemOf(r.Context(), &operation{id: "authorize"}, err)
	case needed && scope == "":
		return nil
	case needed:
		return unauthorized(w, "this needs a token: Authorization: Bearer, and then the token")
	case !fromHere(r):
		return problem(http.StatusForbidden,
			"as long as there is no token, only requests from the same host are answered, not through a proxy, and for localhost or an address such as 127.0.0.1; dbcron token create makes one")
	}
	return nil
}

func unauthorized(w *reply, detail string) *huma.ErrorModel {
	w.Header().Set("WWW-Authenticate", `Bearer realm="dbcron"`)
	return problem(http.StatusUnauthorized, detail)
}

// fromHere tells whether a request is from a program on this host, and meant for it. The
// Host is looked at since a page can have a name that leads here: its requests come from a
// browser on this host, and are of one origin with it.
func fromHere(r *http.Request) bool {
	for _, h := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Real-Ip", "Via"} {
		if r.Header.Get(h) != "" {
			return false
		}
	}
	if local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok && !isLoopback(local.String()) {
		return false
	}
	return isLoopback(r.RemoteAddr) && (isLoopback(r.Host) || isLocalhost(r.Host))
}

// isLoopback tells whether an address, with or without a port, is one of this host alone.
func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = strings.TrimSuffix(strings.TrimPrefix(address, "["), "]")
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}

func isLocalhost(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = address
	}
	return strings.EqualFold(strings.TrimSuffix(host, "."), "localhost")
}
