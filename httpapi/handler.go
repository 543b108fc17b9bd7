package httpapi

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/dbcron/dbcron/internal/instant"
)

// A reply knows what was answered.
type reply struct {
	http.ResponseWriter
	status int
	bytes  int64
	token  string // whose it was
	bearer *Bearer
	room   *room // that its body takes; nil: none
}

// user is whom a proxy has named.
func (w *reply) user() string {
	if w.bearer == nil || !w.bearer.proxy {
		return ""
	}
	return w.bearer.name
}

// WriteHeader notes the status.
func (w *reply) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write counts.
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

// ServeHTTP answers a request, and logs it without its query, headers and body.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	began, out := instant.Now(), &reply{ResponseWriter: w}
	defer func() {
		if p := recover(); p != nil {
			if p == http.ErrAbortHandler { //nolint:errorlint // it is this very value
				panic(p)
			}
			a.log.Error("http: panic", "method", r.Method, "path", r.URL.EscapedPath(), "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			if out.status == 0 {
				write(out, problem(http.StatusInternalServerError, "something went wrong; the log of the daemon says what"))
			}
		}
		took := instant.Now().Sub(began)
		a.observe(r, out.status, took)
		a.log.Info("http", "method", cut(r.Method), "path", cut(r.URL.EscapedPath()), "status", out.status, "bytes", out.bytes,
			"took", took, "token", out.token, "user", out.user(), "from", r.RemoteAddr)
	}()
	out.Header().Set("Cache-Control", "no-store")
	out.Header().Set("X-Content-Type-Options", "nosniff")
	defer func() { out.room.leave() }()
	ended, p := a.admit(out, r)
	switch {
	case p != nil:
		write(out, p)
	case !ended:
		ctx, cancel := context.WithTimeout(context.WithValue(r.Context(), callerKey{}, sender{r, out.token, out.bearer}), a.opt.Timeout)
		defer cancel()
		a.mux.ServeHTTP(out, r.WithContext(ctx))
	}
}

// observe tells of a request. The path is that of the operation: others can be anything.
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
	a.opt.Observe(method, path, status, took)
}

// callerKey finds in a request's context who sent it.
type callerKey struct{}

// A sender is who has sent a request, which is there as it came: its context has no time limit.
type sender struct {
	request *http.Request
	token   string // its name
	bearer  *Bearer
}

// account is what tells senders apart that have a name: a token, or a user of a proxy.
func (s sender) account() string {
	if s.bearer == nil {
		return ""
	}
	return s.bearer.Login() + " " + s.bearer.name
}

// may tells whether the sender may do what needs a scope: whoever needs no token may do all.
func (s sender) may(scope Scope) bool { return s.bearer == nil || s.bearer.May(scope) }

// senderOf finds who sent a request.
func senderOf(ctx context.Context) sender {
	s, _ := ctx.Value(callerKey{}).(sender)
	return s
}

// caller is who sent a request, for people: the name of its token, or of a proxy's user.
func caller(ctx context.Context) string {
	s := senderOf(ctx)
	if s.bearer != nil {
		return s.bearer.name
	}
	return cmp.Or(s.token, "http")
}

// admit looks at all that has to be right before a request is handled, and reads its body.
// ended tells that it was answered here.
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

// find returns where a request goes.
func (a *API) find(h http.Header, r *http.Request) (*route, *huma.ErrorModel) {
	none := problem(http.StatusNotFound, "there is nothing at this path; "+prefix+"/openapi.json describes what there is")
	for segment := range strings.SplitSeq(strings.TrimPrefix(r.URL.EscapedPath(), "/"), "/") {
		if segment == "" || segment == "." || segment == ".." {
			return nil, none // the mux would send it elsewhere
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

// checkOnce refuses what is there twice: of two values one program takes the first, and
// another the last.
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
