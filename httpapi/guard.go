package httpapi

import (
	"errors"
	"fmt"
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
		if who := a.ProxyUser(r); who != nil {
			w.bearer = who
			return who.lacks(w, scope)
		}
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
	w.token, w.bearer = who.name, who
	return who.lacks(w, scope)
}

// lacks tells who may not do what needs a scope.
func (b *Bearer) lacks(w *reply, scope Scope) *huma.ErrorModel {
	switch {
	case scope == "" || b.May(scope):
		return nil
	case b.proxy:
		return problem(http.StatusForbidden, "this needs the scope "+string(scope)+", and users of the proxy have "+joinScopes(b.scopes))
	}
	w.Header().Set("WWW-Authenticate", `Bearer error="insufficient_scope", scope="`+string(scope)+`"`)
	return problem(http.StatusForbidden, "this needs a token with the scope "+string(scope))
}

// A refusedError is why a request that needs no token is refused all the same.
type refusedError string

func (e refusedError) Error() string { return string(e) }

// ErrRefused means that a request without a token is not answered: there is no token yet, and
// it is not from this host.
var ErrRefused = errors.New("httpapi: refused")

// Is makes it an ErrRefused.
func (refusedError) Is(err error) bool { return err == ErrRefused }

// Open tells whether a request may do everything without a token, which is so as long as
// there is none at all, for requests from this host and from trusted proxies. It returns false
// if it takes a token, and an ErrRefused if the request has to be refused before there is one.
func (a *API) Open(r *http.Request) (bool, error) {
	needed, err := a.tokens.Any(r.Context())
	switch {
	case err != nil || needed:
		return false, err
	case !fromHere(r):
		return false, refusedError("as long as there is no token, only requests from the same host are answered, and for localhost or an address such as 127.0.0.1; dbcron token create makes one")
	case a.throughUserProxy(r):
		return false, refusedError("the proxy does not say whose request this is: it should set the header " +
			a.opt.ProxyUserHeader + ", once, to a name")
	case throughProxy(r) && !a.trusts(r.RemoteAddr):
		return false, refusedError("this came through a proxy, and as long as there is no token only programs on this host are answered; dbcron token create makes one. If the proxy itself decides who may use the API, dbcron serve --trusted-proxy names its address")
	}
	return true, nil
}

// Tokens returns the tokens that the API goes by.
func (a *API) Tokens() *Tokens { return a.tokens }

// withoutToken lets those in who have none: as long as there is none at all, and from this
// host.
func (a *API) withoutToken(w *reply, r *http.Request, scope Scope) *huma.ErrorModel {
	open, err := a.Open(r)
	switch {
	case errors.Is(err, ErrRefused):
		return problem(http.StatusForbidden, err.Error())
	case err != nil:
		return a.problemOf(r.Context(), &operation{id: "authorize"}, err)
	case !open && scope != "":
		return unauthorized(w, "this needs a token: Authorization: Bearer, and then the token")
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
	if local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok && !isLoopback(local.String()) {
		return false
	}
	return isLoopback(r.RemoteAddr) && (isLoopback(r.Host) || isLocalhost(r.Host))
}

// proxyHeaders are what proxies add to requests, whatever the value; those with a * are all
// that begin so.
var proxyHeaders = []string{
	"Forwarded", "X-Forwarded-*", "X-Real-*", "Via", "X-Client-*", "X-Cluster-Client-*", "X-Original-*",
	"X-Proxy*", "X-Envoy-*", "X-Amzn-*", "X-Amz-Cf-*", "X-Azure-*",
	"Cf-*", "Cdn-*", "Fastly-*", "Fly-*", "True-Client-Ip", "Client-Ip", "Remote-Addr", "X-Remote-*", "X-Nginx-*",
	"X-Host", "X-Scheme", "X-Url-Scheme", "X-Arr-*", "Max-Forwards",
	"X-Cloud-Trace-Context", "Front-End-Https",
}

// throughProxy tells whether a request shows that it came through a proxy. HTTP/1.0 is what
// nginx speaks to a server behind it unless it is told otherwise, and what no client speaks
// nowadays. A proxy that adds nothing and speaks HTTP/1.1 cannot be told from a client.
func throughProxy(r *http.Request) bool {
	if !r.ProtoAtLeast(1, 1) {
		return true
	}
	for name := range r.Header {
		for _, h := range proxyHeaders {
			if begin, all := strings.CutSuffix(h, "*"); name == h || all && strings.HasPrefix(name, begin) {
				return true
			}
		}
	}
	return false
}

// trusts tells whether an address is that of a proxy that decides who may use the API.
func (a *API) trusts(address string) bool {
	from, err := netip.ParseAddrPort(address)
	return err == nil && slices.ContainsFunc(a.proxies, func(p netip.Prefix) bool { return p.Contains(from.Addr().Unmap().WithZone("")) })
}

// parseProxies reads addresses and networks.
func parseProxies(list []string) (all []netip.Prefix, err error) {
	for _, text := range list {
		if net, err := netip.ParsePrefix(text); err == nil && !net.Addr().Is4In6() {
			all = append(all, net.Masked())
			continue
		}
		at, err := netip.ParseAddr(text)
		if err != nil {
			return nil, fmt.Errorf("%w: trusted proxy %q: write the address that it connects from, such as 127.0.0.1, or a network such as 10.1.0.0/16", ErrInvalid, text)
		}
		at = at.Unmap().WithZone("")
		all = append(all, netip.PrefixFrom(at, at.BitLen()))
	}
	return all, nil
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

func isLocalhost(address string) bool { return strings.EqualFold(withoutPort(address), "localhost") }

// withoutPort is the name in an address.
func withoutPort(address string) string {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = address
	}
	return strings.TrimSuffix(host, ".")
}
