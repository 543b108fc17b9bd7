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

// checkBrowser refuses requests that a page of another origin makes a browser send. Browsers send the
// page's origin, and other programs do not. Pages of allowed origins get the headers without which a
// browser would withhold the answer.
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

// authorize returns a problem unless the sender has a scope; "" means any authorized sender.
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
	var ended *endedError
	switch {
	case errors.As(err, &ended):
		w.token = ended.name // for the log
		return unauthorized(w, ended.Error()+"; dbcron token create makes another one")
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

// lacks returns a problem unless b has a scope.
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

// A refusedError says why a request that needs no token is refused nevertheless.
type refusedError string

func (e refusedError) Error() string { return string(e) }

// ErrRefused means that a request without a token is refused although there is no token yet, because it
// is not from this host.
var ErrRefused = errors.New("httpapi: refused")

// Is reports that every refusedError is ErrRefused.
func (refusedError) Is(err error) bool { return err == ErrRefused }

// Open reports whether a request may do everything without a token. That is so while there is no token
// at all, for requests from this host and from trusted proxies. It returns false if a token is needed,
// and ErrRefused if the request must be refused until there is one.
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

// Tokens returns the API's tokens.
func (a *API) Tokens() *Tokens { return a.tokens }

// withoutToken admits requests without a token, from this host, while there is none at all.
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

// fromHere reports whether a request comes from a program on this host and names this host. It checks
// the Host header, because a web page may have a name that resolves to this host: a browser here sends
// its requests, which then are of the same origin.
func fromHere(r *http.Request) bool {
	if local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok && !isLoopback(local.String()) {
		return false
	}
	return isLoopback(r.RemoteAddr) && (isLoopback(r.Host) || isLocalhost(r.Host))
}

// proxyHeaders are headers that proxies add to requests; * stands for any ending.
var proxyHeaders = []string{
	"Forwarded", "X-Forwarded-*", "X-Real-*", "Via", "X-Client-*", "X-Cluster-Client-*", "X-Original-*",
	"X-Proxy*", "X-Envoy-*", "X-Amzn-*", "X-Amz-Cf-*", "X-Azure-*",
	"Cf-*", "Cdn-*", "Fastly-*", "Fly-*", "True-Client-Ip", "Client-Ip", "Remote-Addr", "X-Remote-*", "X-Nginx-*",
	"X-Host", "X-Scheme", "X-Url-Scheme", "X-Arr-*", "Max-Forwards",
	"X-Cloud-Trace-Context", "Front-End-Https",
}

// throughProxy reports whether a request evidently came through a proxy. nginx up to 1.29.6 speaks HTTP/1.0 to
// its backends by default, and clients no longer do. A proxy that adds nothing and speaks HTTP/1.1 looks
// like a client, and so does nginx from 1.29.7 on (1.30.6 was run).
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

// trusts reports whether an address is that of a trusted proxy.
func (a *API) trusts(address string) bool {
	from, err := netip.ParseAddrPort(address)
	return err == nil && slices.ContainsFunc(a.proxies, func(p netip.Prefix) bool { return p.Contains(from.Addr().Unmap().WithZone("")) })
}

// parseProxies parses addresses and networks.
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

// isLoopback reports whether an address, with or without a port, is a loopback address.
func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = strings.TrimSuffix(strings.TrimPrefix(address, "["), "]")
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}

func isLocalhost(address string) bool { return strings.EqualFold(withoutPort(address), "localhost") }

// withoutPort returns the host of an address.
func withoutPort(address string) string {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = address
	}
	return strings.TrimSuffix(host, ".")
}
