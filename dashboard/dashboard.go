// Package dashboard is a web page for operators: problems, queues and their jobs, schedules and
// their runs, locks and daemons, with actions on them.
//
// Pages are rendered on the server, from embedded templates and a style sheet. Everything works
// without JavaScript, which only refreshes the page. All links are relative, so a program can
// mount the dashboard at any path of its own server.
//
// Access is controlled by the API's tokens and checks: see [httpapi.API.Open]. A token with the
// scope read can see everything, one with admin can also do everything, and operate is in
// between.
//
// All pages are in one folder, and names are in the query (queue?name=…): browsers resolve ".." in a
// path, and proxies may strip a part of it. Sessions are in memory and end with their token or the
// process, so behind a load balancer a browser has to stay with one daemon. A token is never in a
// cookie, which would be the secret of scripts, too. What a page says after an action is one of a list
// of texts, so that an address cannot make it say anything else.
package dashboard

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/httpapi"
	"github.com/dbcron/dbcron/internal/barrier"
	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/ops/health"
	"github.com/dbcron/dbcron/internal/plain"
	"github.com/dbcron/dbcron/lock"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/scheduler"
)

const (
	actionTime = time.Minute // limit of an action, which may concern many jobs
	formBytes  = 64 << 10    // maximum size of a form
)

// Options adjusts a Dashboard. The zero value is ready to use.
type Options struct {
	Node     string        // the readable part of this process's name in the tables; default: the host's name
	Version  string        // of the program, shown in the footer
	Timeout  time.Duration // limit for a page's queries; default: 5s
	Logger   *slog.Logger  // default: slog.Default
	Doorbell string        // notifies workers of retried jobs: see [queue.Options]

	// HideArguments hides the payloads of jobs and the commands of schedules, and disables
	// searching them.
	HideArguments bool

	// Places are the dashboards of the databases among which work is divided, this one included. Pages lead to the others, and say which
	// one this is: the one whose URL has the host that the visitor asked for.
	Places []Place

	// Database is what titles call the database where none of Places is known to be this one, such as the database's name.
	Database string
}

// A Dashboard answers requests. It is an [http.Handler], safe for concurrent use. To mount it
// below a path of a server, use [http.StripPrefix]:
//
//	mux.Handle("/dbcron/", http.StripPrefix("/dbcron", d))
type Dashboard struct {
	opt      Options
	log      *slog.Logger
	db       *dialect.DB
	api      *httpapi.API
	queues   *queue.Client
	admin    *admin.Client
	locks    *lock.Locker
	sessions *sessions
	routes   map[string]route
	foreign  *http.CrossOriginProtection

	counts   cache[[]health.Depth]
	glance   cache[[]health.Depth] // counts for the overview when there are many queues
	lately   cache[doneLately]
	minutes  cache[[]admin.Minute]
	runs     cache[*runsSum]
	failures cache[failureList]
	checks   cache[[]problem] // checks of the database itself
}

// A route is a path: the page there, and its actions.
type route struct {
	show func(ctx context.Context, r *request) (*view, error)
	acts map[string]action
}

// An action changes something, and returns its outcome for the message to the visitor.
type action func(ctx context.Context, r *request) (done outcome, err error)

// An outcome is the result of an action.
type outcome struct {
	note    string // key of notes
	n       int    // number of affected objects
	to      string // the page to redirect to; default: the same one
	counted bool   // show n even if it is 0
	action  string // for the audit log; default: the page and the form's action
	object  string // for the audit log; default: the object named by the address
	detail  string // for the audit log: why, or to which; default: the reason given

	recorded bool // it is in the audit log

	// An action that is done in parts has one entry in the audit log.
	entry int64                    // the entry of the parts before; 0: none
	next  func(entry int64) string // the page of the next part; nil: there is none
}

// A request is a request from a visitor with access.
type request struct {
	*http.Request
	query url.Values
	who   visitor
	hide  bool      // hide payloads and commands
	now   time.Time // by the database's clock

	failed error // why the form's action failed, if the page is shown because of that
}

func (d *Dashboard) request(r *http.Request, who visitor) *request {
	return &request{Request: r, query: r.URL.Query(), who: who, hide: d.opt.HideArguments}
}

// A view is the content of a page inside its frame.
type view struct {
	template string
	title    string
	section  string // section of the navigation
	data     any
	troubles []string // parts that could not be read
	still    bool     // do not refresh it
	status   int      // default: 200
}

// New returns a Dashboard with the access control of an API of the same database. It does not
// access the database.
func New(db *dialect.DB, api *httpapi.API, opt Options) (*Dashboard, error) {
	opt.Timeout = cmp.Or(opt.Timeout, 5*time.Second)
	if opt.Logger == nil {
		opt.Logger = slog.Default()
	}
	opt.Logger = barrier.Logger(opt.Logger)
	d := &Dashboard{opt: opt, log: opt.Logger, db: db, api: api, sessions: newSessions(), foreign: http.NewCrossOriginProtection()}
	d.checks.every = checkedEvery
	var err error
	if d.queues, err = queue.New(db, queue.Options{Node: opt.Node, Logger: opt.Logger, Doorbell: opt.Doorbell}); err != nil {
		return nil, err
	}
	if d.admin, err = admin.New(db, admin.Options{}); err != nil {
		return nil, err
	}
	if d.locks, err = lock.New(db, lock.Options{}); err != nil {
		return nil, err
	}
	d.routes = map[string]route{
		"/":       {show: d.overview, acts: map[string]action{"acknowledge": d.acknowledge, "reopen": d.reopen}},
		"/queues": {show: d.listQueues},
		"/queue": {show: d.showQueue, acts: map[string]action{
			"pause": d.pauseQueue, "resume": d.resumeQueue,
			"purge": d.purgeQueue, "limit": d.limitQueue, "unlimit": d.unlimitQueue, "resize": d.resizeQueue,
			"notify": d.notifyOfQueue,
		}},
		"/jobs": {show: d.listJobs},
		"/job": {show: d.showJob, acts: map[string]action{
			"retry": d.jobAction("retry"), "run": d.jobAction("run"),
			"cancel": d.jobAction("cancel"), "delete": d.jobAction("delete"),
		}},
		"/bulk":      {show: d.showBulk, acts: map[string]action{"retry": d.doBulk, "run": d.doBulk, "cancel": d.doBulk, "delete": d.doBulk}},
		"/clone":     {show: d.showClone, acts: map[string]action{"clone": d.cloneJob}},
		"/errors":    {show: d.listErrors},
		"/schedules": {show: d.listSchedules},
		"/schedule": {show: d.showSchedule, acts: map[string]action{
			"run": d.runSchedule, "pause": d.pauseSchedule,
			"resume": d.resumeSchedule, "edit": d.editSchedule,
		}},
		"/backfill": {show: d.showBackfill, acts: map[string]action{"backfill": d.backfillSchedule}},
		"/runs":     {show: d.listRuns},
		"/run":      {show: d.showRun, acts: map[string]action{"cancel": d.cancelRun}},
		"/locks":    {show: d.listLocks},
		"/lock":     {show: d.showLock},
		"/daemons":  {show: d.listDaemons, acts: map[string]action{"drain": d.drainNode, "undrain": d.undrainNode}},
		"/routes":   {show: d.listRoutes, acts: map[string]action{"set": d.setRoute, "delete": d.deleteRoute}},
		"/topics":   {show: d.listTopics, acts: map[string]action{"subscribe": d.subscribe, "unsubscribe": d.unsubscribe}},
		"/groups":   {show: d.listGroups},
		"/group":    {show: d.showGroup, acts: map[string]action{"delete": d.deleteGroup}},
		"/tokens":   {show: d.listTokens, acts: map[string]action{"revoke": d.revokeToken}},
		"/audit":    {show: d.listAudit},
	}
	return d, nil
}

// Flush waits until workers have been notified of retried jobs. Call it after the last request.
func (d *Dashboard) Flush(ctx context.Context) error { return d.queues.Flush(ctx) }

// ServeHTTP answers a request.
func (d *Dashboard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	began, out := instant.Now(), &reply{ResponseWriter: w}
	var who visitor
	defer func() {
		if p := recover(); p != nil {
			if p == http.ErrAbortHandler { //nolint:errorlint // it is this very value
				panic(p)
			}
			d.log.Error("dashboard: panic", "path", r.URL.Path, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			if out.status == 0 {
				d.refuse(out, r, visitor{}, http.StatusInternalServerError, "Something went wrong. See the daemon's log.")
			}
		}
		level := slog.LevelDebug // an open page sends a request every few seconds
		if r.Method == http.MethodPost {
			level = slog.LevelInfo
		}
		d.log.Log(r.Context(), level, "dashboard", "method", r.Method, "path", plain.Cut(r.URL.Path, 200),
			"status", out.status, "took", instant.Now().Sub(began),
			"token", who.Name, "from", r.RemoteAddr)
	}()
	for name, value := range map[string]string{
		"Content-Security-Policy":      "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'",
		"X-Content-Type-Options":       "nosniff",
		"X-Frame-Options":              "DENY",
		"Referrer-Policy":              "same-origin",
		"Cross-Origin-Opener-Policy":   "same-origin",
		"Cross-Origin-Resource-Policy": "same-origin",
		"Cache-Control":                "no-store",
	} {
		out.Header().Set(name, value)
	}
	if strings.Count(r.URL.Path, "/") > 1 { // the links of a page would be wrong there
		http.Error(out, "there is nothing at this address", http.StatusNotFound)
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead && r.Method != http.MethodPost {
		out.Header().Set("Allow", "GET, HEAD, POST")
		d.refuse(out, r, who, http.StatusMethodNotAllowed, "Pages take GET and POST.")
		return
	}
	if err := d.foreign.Check(r); err != nil {
		d.refuse(out, r, who, http.StatusForbidden, "A page of another origin may not do anything here.")
		return
	}
	if r.Method != http.MethodPost && d.asset(out, r) {
		return
	}
	r.Body = http.MaxBytesReader(out, r.Body, formBytes)
	who = d.serve(out, r)
}

// A reply remembers its status.
type reply struct {
	http.ResponseWriter
	status int
}

// WriteHeader records the status.
func (w *reply) WriteHeader(status int) {
	w.status = cmp.Or(w.status, status)
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap is for http.ResponseController.
func (w *reply) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// serve answers a request that has passed the first checks, and returns its visitor.
func (d *Dashboard) serve(w http.ResponseWriter, r *http.Request) visitor {
	switch r.URL.Path {
	case "/sign-in":
		return d.signIn(w, r)
	case "/sign-out":
		d.signOut(w, r)
		return visitor{}
	}
	ctx, cancel := context.WithTimeout(r.Context(), d.opt.Timeout)
	defer cancel()
	who, err := d.visitor(r.WithContext(ctx))
	to, there := d.routes[r.URL.Path]
	switch {
	case errors.Is(err, httpapi.ErrRefused):
		d.refuse(w, r, who, http.StatusForbidden, sentence(err.Error()))
	case errors.Is(err, errNobody) && r.Method == http.MethodPost:
		d.refuse(w, r, who, http.StatusUnauthorized, "You are no longer signed in, so nothing was done. Sign in and try again.")
	case errors.Is(err, errNobody):
		redirect(w, link("sign-in", "to", strings.TrimPrefix(r.URL.RequestURI(), "/")))
	case err != nil:
		d.fail(w, r, who, err)
	case r.URL.Path == "/payload" && r.Method != http.MethodPost:
		d.payload(ctx, w, d.request(r, who))
	case !there:
		d.refuse(w, r, who, http.StatusNotFound, "There is nothing at this address.")
	case r.Method == http.MethodPost:
		d.act(w, r, who, to)
	default:
		d.show(ctx, w, d.request(r, who), to, nil)
	}
	return who
}

// act performs the action of a form. The query names the object; the form has the rest. On
// success it redirects to a page with a message, which can safely be reloaded.
func (d *Dashboard) act(w http.ResponseWriter, r *http.Request, who visitor, to route) {
	ctx, cancel := context.WithTimeout(r.Context(), actionTime)
	defer cancel()
	if err := r.ParseForm(); err != nil {
		d.refuse(w, r, who, http.StatusBadRequest, "The form cannot be read.")
		return
	}
	do, ok := to.acts[r.PostForm.Get("do")]
	switch {
	case !ok:
		d.refuse(w, r, who, http.StatusBadRequest, "There is no such action on this page.")
		return
	case !who.may(r.URL.Path, r.PostForm.Get("do")):
		scope := httpapi.ScopeAdmin
		if slices.Contains(operates[r.URL.Path], r.PostForm.Get("do")) {
			scope = httpapi.ScopeOperate
		}
		d.refuse(w, r, who, http.StatusForbidden, "Nothing was done: this requires a token with the scope "+string(scope)+".")
		return
	}
	req := d.request(r, who)
	done, err := do(ctx, req)
	if (err == nil || done.n > 0 || done.entry != 0) && !done.recorded {
		entry := d.record(req, done, err)
		if done.next != nil {
			done.to = done.next(entry)
		}
	}
	if err != nil {
		reading, cancel := context.WithTimeout(r.Context(), d.opt.Timeout)
		defer cancel()
		req.failed = err
		d.show(reading, w, req, to, err)
		return
	}
	d.counts.drop()
	d.glance.drop()
	d.runs.drop()
	d.failures.drop()
	d.log.Info("dashboard: done", "what", r.PostForm.Get("do"), "on", plain.Cut(r.URL.RequestURI(), 500), "token", who.Name)
	if done.to == "" {
		req.query.Del("ok")
		req.query.Del("n")
		done.to = strings.TrimPrefix(r.URL.Path, "/") + "?" + req.query.Encode()
	}
	if done.note != "" {
		done.to += "&ok=" + done.note
		if done.n > 0 {
			done.to += fmt.Sprint("&n=", done.n)
		}
	}
	redirect(w, done.to)
}

// show renders a page. failed is the error of an action that leads to this page.
func (d *Dashboard) show(ctx context.Context, w http.ResponseWriter, r *request, to route, failed error) {
	var err error
	if r.now, err = scheduler.Clock(ctx, d.db); err != nil {
		d.fail(w, r.Request, r.who, errors.Join(failed, err))
		return
	}
	v, err := to.show(ctx, r)
	if err != nil {
		if failed != nil { // its object does not exist
			err = failed
		}
		d.fail(w, r.Request, r.who, err)
		return
	}
	p := d.page(r, v)
	status := cmp.Or(v.status, http.StatusOK)
	if failed != nil {
		status, p.Error = d.explain(failed)
		p.Refresh = false
	}
	d.write(w, status, v.template, p)
}

// A page is the data of the frame around all pages.
type page struct {
	Title, Section string
	Data           any
	Who            visitor
	Now            time.Time
	Note, Error    string
	Troubles       []string
	Refresh        bool
	Version        string
	Hidden         bool   // payloads and commands are hidden
	Here           string // the page's address, for reloading
	Places         []Place
	Place          string // name of the one that this is, if that is known
}

func (d *Dashboard) page(r *request, v *view) *page {
	place := placeAt(d.opt.Places, r.Host)
	if r.who.Known {
		place = cmp.Or(place, d.opt.Database)
	}
	return &page{
		Title: v.title, Section: v.section, Data: v.data, Who: r.who, Now: r.now, Note: noteOf(r.query), Troubles: v.troubles, Refresh: !v.still,
		Version: d.opt.Version, Here: here(r.Request), Hidden: d.opt.HideArguments,
		Places: d.opt.Places, Place: place,
	}
}

// here returns the page's own address, relative like all links.
func here(r *http.Request) string {
	q := r.URL.Query()
	q.Del("ok")
	q.Del("n")
	path := "./" + strings.TrimPrefix(r.URL.EscapedPath(), "/")
	if len(q) == 0 {
		return path
	}
	return path + "?" + q.Encode()
}

// fail renders a page about an error.
func (d *Dashboard) fail(w http.ResponseWriter, r *http.Request, who visitor, err error) {
	status, text := d.explain(err)
	d.refuse(w, r, who, status, text)
}

// refuse renders a page that says why access is denied.
func (d *Dashboard) refuse(w http.ResponseWriter, r *http.Request, who visitor, status int, text string) {
	p := &page{Title: http.StatusText(status), Who: who, Error: text, Version: d.opt.Version, Here: here(r)}
	p.Refresh = status == http.StatusServiceUnavailable && r.Method != http.MethodPost
	if status == http.StatusUnauthorized {
		p.Here = "sign-in"
	}
	d.write(w, status, "error.html", p)
}

// write renders a page and sends it, but nothing if rendering fails.
func (d *Dashboard) write(w http.ResponseWriter, status int, name string, p *page) {
	var text bytes.Buffer
	if err := templates()[name].ExecuteTemplate(&text, "frame.html", p); err != nil {
		panic(err)
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(text.Bytes()) // the client is gone
}

// redirect sends the browser to a page, with a relative address: the path at which the
// dashboard is mounted is unknown here.
func redirect(w http.ResponseWriter, to string) {
	w.Header().Set("Location", to)
	w.WriteHeader(http.StatusSeeOther)
}

// errBadRequest means that the address is malformed.
var errBadRequest = errors.New("dashboard: bad request")

// kinds maps errors to statuses. The first match counts.
var kinds = []struct {
	status int
	errs   []error
}{
	{http.StatusBadRequest, []error{errBadRequest}},
	{http.StatusUnprocessableEntity, []error{queue.ErrInvalid, scheduler.ErrInvalid, lock.ErrInvalid}},
	{http.StatusNotFound, []error{
		queue.ErrNotFound, scheduler.ErrNotFound, scheduler.ErrNoRun, scheduler.ErrNoNode,
		lock.ErrNotFound, httpapi.ErrNoToken,
	}},
	{http.StatusConflict, []error{
		queue.ErrDeleted, queue.ErrState, admin.ErrInUse, admin.ErrAmbiguous,
		scheduler.ErrBusy, scheduler.ErrManaged, scheduler.ErrNotRunning, errChanged,
	}},
}

// explain describes an error to people. Database errors are logged, and not shown.
func (d *Dashboard) explain(err error) (status int, text string) {
	for _, kind := range kinds {
		for _, is := range kind.errs {
			if errors.Is(err, is) {
				return kind.status, sentence(err.Error())
			}
		}
	}
	d.log.Error("dashboard: request failed", "err", err)
	switch {
	case errors.Is(err, queue.ErrUnknownOutcome):
		return http.StatusServiceUnavailable, "The answer of the database was lost, so the action may or may not have taken effect. Check before you repeat it."
	case d.db.Dialect.ReadOnly(err), errors.Is(err, dialect.ErrReadOnly):
		return http.StatusServiceUnavailable, "The database takes no writes at the moment."
	case d.db.Dialect.Unreachable(err):
		return http.StatusServiceUnavailable, "The database does not answer."
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return http.StatusServiceUnavailable, fmt.Sprintf("The database took longer than %v, so the query was cancelled.", d.opt.Timeout)
	}
	return http.StatusInternalServerError, "Something went wrong. See the daemon's log."
}

// trouble says why a part of the page is missing.
func (d *Dashboard) trouble(part string, err error) string {
	_, text := d.explain(err)
	return part + " could not be read. " + text
}
