// Package httpapi is the HTTP API: jobs, queues, schedules and locks for programs in any language.
//
// Go types describe each operation once. They yield the OpenAPI document, the validation of requests,
// and errors: problem details (RFC 9457) that name the offending field. A refused request writes
// nothing.
//
// [Tokens] say who may do what. While there are none, the API only answers requests from its own host,
// and none from a web page of another origin.
package httpapi

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/httpapi/push"
	"github.com/dbcron/dbcron/internal/barrier"
	"github.com/dbcron/dbcron/lock"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/wire"
)

// prefix begins the path of every operation.
const prefix = "/api/v1"

// Options configures an API. The zero value is ready to use.
type Options struct {
	Node    string        // the readable part of this process's name in the tables; default: the host's name
	Version string        // version of the program, for the OpenAPI document; default: devel
	MaxBody int64         // limit of a request's body, in bytes; default: 16 MiB
	Timeout time.Duration // limit of a request after its body has arrived; default: 1 minute
	Origins []string      // other origins whose pages may use the API from a browser, such as https://ops.example.org
	Logger  *slog.Logger  // default: slog.Default

	// TrustedProxies are the addresses and networks of proxies that authorize requests themselves.
	// While there is no token, the API refuses requests through other proxies.
	TrustedProxies []string

	// ProxyUserHeader is the header in which these proxies name the user, such as
	// X-Forwarded-User. Such users have the scopes ProxyUserScopes, by default read. A request of a
	// trusted proxy without the header is anonymous. From anybody else the header is ignored.
	ProxyUserHeader string
	ProxyUserScopes []Scope

	// AllowCommands allows creating and changing schedules that run something on or from the
	// daemons' hosts, in addition to those that enqueue a job. The request needs a token.
	AllowCommands bool

	// Stopping is closed when the process begins to stop. It ends requests that are waiting for
	// something to happen.
	Stopping <-chan struct{}

	// Observe is called after each request with its method, the path of its operation or "other",
	// the status, and the duration. It feeds metrics.
	Observe func(method, path string, status int, took time.Duration)

	// LogDone logs jobs that were claimed here and completed at level info instead of debug.
	LogDone bool

	// LeaseLost is called when the API loses its lease on a queue's blocks: see [queue.Options].
	LeaseLost func(why string)

	// Doorbell notifies workers of new jobs: see [queue.Options].
	Doorbell string

	// Hosts are the hosts that jobs may be sent to, for checking endpoints when they are set; nil
	// means that endpoints are not checked.
	Hosts *push.Hosts
}

// An API answers requests. It is an [http.Handler] and safe for concurrent use.
type API struct {
	opt    Options
	log    *slog.Logger
	db     *dialect.DB
	queues *queue.Client
	admin  *admin.Client
	locks  *lock.Locker
	tokens *Tokens
	sample *sampler
	hub    *hub
	pulls  *pulls

	endpoints *push.Endpoints

	operations map[string]*Operation // by id
	awaits     atomic.Int64          // requests that wait for jobs

	mux     *http.ServeMux
	docs    huma.API          // nil: it answers no requests, and only does operations
	routes  map[string]*route // by the mux's pattern
	bodies  *bodies
	answers *pool // for what is answered

	proxies []netip.Prefix
}

// A route is what must be known about an operation before its handler runs.
type route struct {
	scope     Scope        // "": none needed
	body      *huma.Schema // of its body; nil: no body
	needsBody bool
	limit     int64 // of its body, in bytes; 0: Options.MaxBody
}

// maxBody returns the limit of the body; any applies to operations without their own.
func (r *route) maxBody(any int64) int64 {
	if r.limit == 0 {
		return any
	}
	return min(r.limit, any)
}

// New returns an API. It does not access the database.
func New(db *dialect.DB, opt Options) (*API, error) {
	a, err := describe(opt)
	if err != nil {
		return nil, err
	}
	return a, a.on(db)
}

// on makes the API that of a database.
func (a *API) on(db *dialect.DB) (err error) {
	opt := a.opt
	a.db, a.tokens, a.endpoints = db, NewTokens(db), push.NewEndpoints(db)
	if a.queues, err = queue.New(db, queue.Options{
		RetryFor: -1, // who asks is told at once, and can ask again
		Node:     opt.Node, Version: a.opt.Version, Logger: a.log,
		Doorbell: opt.Doorbell, LeaseLost: opt.LeaseLost,
	}); err != nil {
		return err
	}
	if a.admin, err = admin.New(db, admin.Options{}); err != nil {
		return err
	}
	a.sample = newSampler(db, a.admin)
	a.hub = &hub{db: db, sample: a.sample, log: a.log, followers: map[*follower]struct{}{}}
	if a.locks, err = lock.New(db, lock.Options{}); err != nil {
		return err
	}
	a.pulls = newPulls(db, a.queues, a.admin, a.log)
	a.pulls.logDone = opt.LogDone
	a.answers.freed = a.pulls.resume
	return nil
}

// Document returns the OpenAPI document, as JSON.
func Document(version string) ([]byte, error) {
	a, err := describe(Options{Version: version})
	if err != nil {
		return nil, err
	}
	return json.MarshalIndent(a.docs.OpenAPI(), "", "  ")
}

// Flush waits until workers have been notified of enqueued jobs. Call it after the last request.
func (a *API) Flush(ctx context.Context) error { return a.queues.Flush(ctx) }

// describe makes an API without a database, which only knows its operations and their document.
func describe(opt Options) (*API, error) {
	a, err := prepare(opt)
	if err != nil {
		return nil, err
	}
	a.docs = humago.New(a.mux, a.config())
	a.routes["GET "+prefix+"/openapi.json"] = &route{}
	a.routes["GET "+prefix+"/openapi.yaml"] = &route{}
	a.registerAll()
	return a, nil
}

// registerAll registers all operations.
func (a *API) registerAll() {
	for _, describe := range []func(){
		a.jobs, a.awaitJobs, a.jobActions, a.manyJobs, a.queueSettings, a.queueActions, a.queueStatus, a.limits, a.shares, a.nodes, a.findings,
		a.pushing, a.claiming, a.claims, a.overall, a.events, a.routing, a.topics, a.groups,
		a.schedules, a.locking, a.audit, a.settings,
	} {
		describe()
	}
}

// prepare makes an API that knows nothing but its options.
func prepare(opt Options) (*API, error) {
	opt.Version = cmp.Or(opt.Version, "devel")
	opt.MaxBody = cmp.Or(opt.MaxBody, 16<<20)
	opt.Timeout = cmp.Or(opt.Timeout, time.Minute)
	if opt.Logger == nil {
		opt.Logger = slog.Default()
	}
	opt.Logger = barrier.Logger(opt.Logger)
	if opt.MaxBody < 1<<10 || opt.MaxBody > 1<<30 {
		return nil, fmt.Errorf("%w: max body: %d is not 1 KiB to 1 GiB", ErrInvalid, opt.MaxBody)
	}
	for _, origin := range opt.Origins {
		if err := checkOrigin(origin); err != nil {
			return nil, err
		}
	}
	proxies, err := parseProxies(opt.TrustedProxies)
	if err == nil {
		err = opt.checkProxyUsers()
	}
	if err != nil {
		return nil, err
	}
	return &API{
		opt: opt, proxies: proxies, log: opt.Logger, mux: http.NewServeMux(), routes: map[string]*route{},
		bodies: newBodies(opt.MaxBody), answers: newPool(answersSize), operations: map[string]*Operation{},
	}, nil
}

// checkOrigin returns an error unless origin is a scheme and a host.
func checkOrigin(origin string) error {
	u, err := url.Parse(origin)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || origin != u.Scheme+"://"+
		u.Host || origin != strings.ToLower(origin) {
		return fmt.Errorf("%w: origin %q: write it as https://ops.example.org, in small letters and without a path", ErrInvalid, origin)
	}
	return nil
}

// config configures huma: JSON only, no pages, and nothing added to answers.
func (a *API) config() huma.Config {
	const schemas = "#/components/schemas/"
	registry := huma.NewMapRegistry(schemas, schemaName)
	registry.RegisterTypeAlias(reflect.TypeFor[wire.Instant](), reflect.TypeFor[time.Time]())
	c := huma.DefaultConfig("dbcron", a.opt.Version)
	c.Info.Description = "Locks, a scheduler and a queue in the tables of a database. Ids are strings, since readers of JSON round large numbers; times are UTC."
	c.Servers = []*huma.Server{
		{URL: "/", Description: "The daemon that this document comes from"},
		{URL: "http://127.0.0.1:8686", Description: "A daemon on this host, with the usual --listen"},
	}
	c.Components = &huma.Components{
		Schemas: registry,
		SecuritySchemes: map[string]*huma.SecurityScheme{"token": {
			Type: "http", Scheme: "bearer",
			Description: "A token of dbcron token create. As long as there is none at all, requests from the same host need none.",
		}},
	}
	c.OpenAPIPath, c.DocsPath, c.SchemasPath = prefix+"/openapi", "", ""
	c.CreateHooks = nil
	c.RejectUnknownQueryParameters = true
	c.Formats = map[string]huma.Format{"application/json": jsonFormat, "json": jsonFormat}
	c.Transformers = []huma.Transformer{presentable}
	return c
}

// schemaName is the name of a type in the document.
func schemaName(t reflect.Type, hint string) string {
	name := huma.DefaultSchemaNamer(t, hint)
	return strings.TrimSuffix(strings.TrimSuffix(name, "JSON"), "Body")
}

// A bodySize is the limit of an operation's body.
type bodySize int

const (
	sizeSmall  bodySize = iota // smallBody
	sizeTokens                 // tokensBody: the tokens of up to 1000 claims
	sizeLarge                  // Options.MaxBody: payloads or long texts
)

func (b bodySize) limit() int64 {
	return [...]int64{sizeSmall: smallBody, sizeTokens: tokensBody, sizeLarge: 0}[b]
}

// text describes the limit in the document.
func (b bodySize) text() string {
	return [...]string{
		sizeSmall: "64 KiB", sizeTokens: "4 MiB",
		sizeLarge: "what the daemon takes (--max-body), 16 MiB unless it says otherwise",
	}[b]
}

// An operation describes an operation for the document and for authorization.
type operation struct {
	id, method, path string
	tag              string
	summary, more    string
	scope            Scope
	body             bodySize
	answer           answerSize
	status           int   // default: 200, or 204 without an answer
	also             int   // another status with the same answer; 0: none
	errors           []int // besides those of all operations
}

// register adds an operation. Its handler's errors become problems.
func register[I, O any](a *API, o operation, handle func(ctx context.Context, in *I) (*O, error)) {
	handle = audited(a, &o, handle)
	addOperation(a, &o, handle)
	if a.docs == nil {
		return
	}
	_, hasBody := reflect.TypeFor[I]().FieldByName("Body")
	if o.scope == "" {
		panic("operation " + o.id + " has no scope") // it would be open to everybody
	}
	errs := append([]int{
		http.StatusUnauthorized, http.StatusForbidden, http.StatusUnprocessableEntity, http.StatusServiceUnavailable,
		http.StatusInsufficientStorage,
	},
		o.errors...)
	more := o.more
	if hasBody {
		more += "\n\nThe body has up to " + o.body.text() + "."
		errs = append(errs, http.StatusBadRequest, http.StatusRequestTimeout, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType)
	}
	slices.Sort(errs)
	errs = slices.Compact(errs)
	huma.Register(a.docs, huma.Operation{
		OperationID: o.id, Method: o.method, Path: prefix + o.path, Tags: []string{o.tag},
		Summary: o.summary, Description: strings.TrimSpace(more + "\n\nScope: " + string(o.scope) + "."),
		DefaultStatus: o.status, Errors: errs, MaxBodyBytes: -1, BodyReadTimeout: -1, SkipValidateBody: true, // see checkBody
		Security: []map[string][]string{{"token": {string(o.scope)}}},
	}, func(ctx context.Context, in *I) (*O, error) {
		w := senderOf(ctx).reply
		w.body.decoded()
		err := a.makeRoom(ctx, w, o.answer)
		var out *O
		if err == nil {
			out, err = handle(ctx, in)
		}
		w.body.leave() // who reads the answer slowly keeps only that
		var held *lock.HeldError
		switch {
		case errors.As(err, &held):
			return nil, newHeldProblem(held)
		case err != nil:
			return nil, a.problemOf(ctx, &o, err)
		}
		return out, nil
	})
	if o.also != 0 {
		a.sameAnswer(&o)
	}
	to := &route{scope: o.scope, limit: o.body.limit()}
	if hasBody {
		described := a.operation(&o).RequestBody
		to.body, to.needsBody = described.Content["application/json"].Schema, described.Required
	}
	a.routes[o.method+" "+prefix+o.path] = to
}

// operation returns the document's entry for an operation.
func (a *API) operation(o *operation) *huma.Operation {
	item := a.docs.OpenAPI().Paths[prefix+o.path]
	return map[string]*huma.Operation{
		http.MethodGet: item.Get, http.MethodPost: item.Post, http.MethodPut: item.Put,
		http.MethodDelete: item.Delete,
	}[o.method]
}

// rawAnswer documents an answer of any media type.
func (a *API) rawAnswer(path string) {
	if a.docs == nil {
		return
	}
	a.docs.OpenAPI().Paths[prefix+path].Get.Responses["200"].Content = map[string]*huma.MediaType{
		"application/json":         {Schema: &huma.Schema{}},
		"application/octet-stream": {Schema: &huma.Schema{}},
	}
}

// sameAnswer documents the other status of an operation.
func (a *API) sameAnswer(o *operation) {
	all := a.operation(o).Responses
	one := *all[fmt.Sprint(o.status)]
	one.Description = http.StatusText(o.also)
	all[fmt.Sprint(o.also)] = &one
}
