package httpapi

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/dbcron/dbcron/internal/barrier"
	"github.com/dbcron/dbcron/internal/instant"
)

// A reply records what was answered.
type reply struct {
	http.ResponseWriter
	status int
	bytes  int64
	token  string // name of the sender's token
	bearer *Bearer
	body   taken // memory
	answer *room // memory; nil: it needs little
}

// user returns the user named by a proxy.
func (w *reply) user() string {
	if w.bearer == nil || !w.bearer.proxy {
		return ""
	}
	return w.bearer.name
}

// WriteHeader records the status.
func (w *reply) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write counts bytes.
func (w *reply) Write(p []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	n, err := w.ResponseWriter.Write(p)
	w.bytes += int64(n)
	return n, err
}

// Unwrap is for http.ResponseController.
func (w *reply) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// ServeHTTP answers a request and logs it, without its query, headers and body.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	began, out := instant.Now(), &reply{ResponseWriter: w}
	defer func() {
		if p := recover(); p != nil {
			if p == http.ErrAbortHandler { //nolint:errorlint // it is this very value
				panic(p)
			}
			a.log.Error("http: panic", "method", r.Method, "path", r.URL.EscapedPath(), "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			if out.status == 0 {
				write(out, problem(http.StatusInternalServerError, "internal error; the daemon's log has the cause"))
			}
		}
		took := instant.Now().Sub(began)
		a.observe(r, out.status, took)
		a.log.Info("http", "status", out.status, "method", cut(r.Method), "path", cut(r.URL.EscapedPath()), "bytes", out.bytes,
			"took", took, "token", out.token, "user", out.user(), "from", r.RemoteAddr) // the status first: lines for people are cut
	}()
	out.Header().Set("Cache-Control", "no-store")
	out.Header().Set("X-Content-Type-Options", "nosniff")
	defer func() {
		out.body.leave()
		out.answer.leave()
	}()
	ended, p := a.admit(out, r)
	switch {
	case p != nil:
		write(out, p)
	case !ended:
		ctx, cancel := context.WithTimeout(context.WithValue(r.Context(), callerKey{}, sender{r, out.token, out.bearer, out, nil}), a.opt.Timeout)
		defer cancel()
		a.mux.ServeHTTP(out, r.WithContext(ctx))
	}
}

// observe reports a request with the path of its operation: other paths can be anything.
func (a *API) observe(r *http.Request, status int, took time.Duration) {
	if a.opt.Observe == nil {
		return
	}
	method, path := "other", "other"
	if _, pattern := a.mux.Handler(r); pattern != "" {
		if _, ok := a.routes[pattern]; ok {
			method, path, _ = strings.Cut(pattern, " ")
		}
	}
	barrier.Tell(a.log, "Observe", func() { a.opt.Observe(method, path, status, took) })
}

// callerKey is the context key of the sender.
type callerKey struct{}

// A sender is the sender of a request, and the original request, whose context has no timeout.
type sender struct {
	request *http.Request
	token   string // its token's name
	bearer  *Bearer
	reply   *reply
	here    *Operator // who uses the API without HTTP, and then nothing else is set but token
}

// account identifies a named sender: a token, or a user of a proxy.
func (s sender) account() string {
	if s.bearer == nil {
		return ""
	}
	return s.bearer.Login() + " " + s.bearer.name
}

// account identifies who answers for a request's memory: its sender, and without a name its address.
func (w *reply) account(r *http.Request) string {
	if w.bearer == nil {
		host, _, _ := net.SplitHostPort(r.RemoteAddr)
		return "address " + host
	}
	return sender{bearer: w.bearer}.account()
}

// may reports whether the sender has a scope. A sender who needs no token has all of them.
func (s sender) may(scope Scope) bool { return s.bearer == nil || s.bearer.May(scope) }

// senderOf returns the sender of the current request.
func senderOf(ctx context.Context) sender {
	s, _ := ctx.Value(callerKey{}).(sender)
	return s
}

// caller names the sender for people: its token's name, or a proxy's user.
func caller(ctx context.Context) string {
	s := senderOf(ctx)
	if s.bearer != nil {
		return s.bearer.name
	}
	return cmp.Or(s.token, "http")
}

// admit makes all checks that precede a handler, and reads the body. ended reports that it has answered
// the request.
func (a *API) admit(w *reply, r *http.Request) (ended bool, p *huma.ErrorModel) {
	if p := a.checkBrowser(w.Header(), r); p != nil {
		return false, p
	}
	if r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != "" {
		w.WriteHeader(http.StatusNoContent)
		return true, nil
	}
	to, p := a.find(w.Header(), r)
	if p != nil {
		return false, p
	}
	if p := a.authorize(w, r, to.scope); p != nil {
		return false, p
	}
	if p := checkOnce(r); p != nil || to.body == nil {
		return false, p
	}
	return false, a.readBody(w, r, to)
}

// find returns the route of a request.
func (a *API) find(h http.Header, r *http.Request) (*route, *huma.ErrorModel) {
	none := problem(http.StatusNotFound, "there is nothing at this path; "+prefix+"/openapi.json describes what there is")
	for segment := range strings.SplitSeq(strings.TrimPrefix(r.URL.EscapedPath(), "/"), "/") {
		if segment == "" || segment == "." || segment == ".." {
			return nil, none // the mux would redirect it
		}
	}
	if _, pattern := a.mux.Handler(r); pattern != "" {
		if to, ok := a.routes[pattern]; ok {
			return to, nil
		}
	}
	var allow []string
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete} {
		other := r.Clone(r.Context())
		other.Method = method
		if _, pattern := a.mux.Handler(other); pattern != "" {
			if _, ok := a.routes[pattern]; ok {
				allow = append(allow, method)
			}
		}
	}
	if len(allow) == 0 {
		return nil, none
	}
	if slices.Contains(allow, http.MethodGet) {
		allow = append(allow, http.MethodHead)
	}
	h.Set("Allow", strings.Join(allow, ", "))
	return nil, problem(http.StatusMethodNotAllowed, "this path takes "+strings.Join(allow, ", "))
}

// checkOnce refuses parameters that occur twice: some programs use the first value, and others the last.
func checkOnce(r *http.Request) *huma.ErrorModel {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return refusal(http.StatusUnprocessableEntity,
			[]*huma.ErrorDetail{{Location: "query", Message: "it cannot be read: " + cut(err.Error())}})
	}
	var all []*huma.ErrorDetail
	for _, name := range slices.Sorted(maps.Keys(query)) {
		if len(query[name]) > 1 {
			all = append(all, &huma.ErrorDetail{Location: "query." + cutName(name), Message: "it is there more than once; send it once"})
		}
	}
	for _, name := range []string{"Authorization", "Content-Type", idempotencyField, "Last-Event-ID"} {
		if len(r.Header.Values(name)) > 1 {
			all = append(all, &huma.ErrorDetail{Location: "header." + name, Message: "it is there more than once; send it once"})
		}
	}
	if len(all) == 0 {
		return nil
	}
	return refusal(http.StatusUnprocessableEntity, all)
}
