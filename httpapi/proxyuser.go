package httpapi

import (
	"fmt"
	"net/http"
	"net/textproto"
	"slices"

	"github.com/dbcron/dbcron/internal/pattern"
	"github.com/dbcron/dbcron/internal/sqlrun"
)

// headerName matches names for the header. Underscores are excluded: some servers turn them into dashes,
// so that a client could smuggle in the header under the other name.
var headerName = pattern.Lazy(`^[A-Za-z0-9]+(-[A-Za-z0-9]+)*$`)

// checkProxyUsers validates the options about users named by a proxy.
func (o *Options) checkProxyUsers() error {
	if o.ProxyUserHeader == "" {
		return nil
	}
	header := textproto.CanonicalMIMEHeaderKey(o.ProxyUserHeader)
	if !headerName().MatchString(header) || slices.Contains([]string{
		"Authorization", "Cookie", "Host", "Origin",
		"Content-Type", "Content-Length",
	}, header) {
		return fmt.Errorf("%w: proxy user header %q: name a header that the proxy sets, such as X-Forwarded-User", ErrInvalid, o.ProxyUserHeader)
	}
	if len(o.TrustedProxies) == 0 {
		return fmt.Errorf("%w: a proxy user header is believed from trusted proxies only, and none is named", ErrInvalid)
	}
	o.ProxyUserHeader = header
	if len(o.ProxyUserScopes) == 0 {
		o.ProxyUserScopes = []Scope{ScopeRead}
	}
	for _, s := range o.ProxyUserScopes {
		if !slices.Contains(Scopes, s) {
			return fmt.Errorf("%w: scope %q of a proxy's users is not known; use %s", ErrInvalid, s, joinScopes(Scopes))
		}
	}
	return nil
}

// ProxyUser returns the sender of a request as named by a trusted proxy ([Options.ProxyUserHeader]), or
// nil. From anybody else the header is ignored.
func (a *API) ProxyUser(r *http.Request) *Bearer {
	if !a.throughUserProxy(r) {
		return nil
	}
	names := r.Header.Values(a.opt.ProxyUserHeader)
	if len(names) != 1 || sqlrun.CheckName(names[0]) != nil {
		return nil // of two values, one may have been sent by the browser
	}
	return &Bearer{name: names[0], scopes: a.opt.ProxyUserScopes, proxy: true}
}

// throughUserProxy reports whether a request comes from a proxy that names its users.
func (a *API) throughUserProxy(r *http.Request) bool {
	return a.opt.ProxyUserHeader != "" && a.trusts(r.RemoteAddr)
}
