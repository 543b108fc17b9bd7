package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/dbcron/dbcron/dashboard"
	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/httpapi"
	"github.com/dbcron/dbcron/internal/setting"
)

const (
	usualListen = "127.0.0.1:8686"
	noListen    = "off"

	// claimGrace is how long a stopping daemon still accepts outcomes of jobs claimed from it.
	claimGrace = 5 * time.Second
)

// maxMetrics limits the schedules whose runs a scrape reads.
const maxMetrics = 10_000

// newMetrics returns the metrics of this daemon, with up to so many schedules one by one.
func (p *program) newMetrics(db *dialect.DB, schedules int) (*httpapi.Metrics, error) {
	if schedules == 0 {
		schedules = -1
	}
	opt := httpapi.MetricsOptions{Version: version, Schedules: schedules}
	if o := p.outlet(); o != nil {
		opt.LogDropped = o.Dropped
	}
	return httpapi.NewMetrics(db, opt)
}

// httpFlags configure the HTTP server.
type httpFlags struct {
	listen, admin string
	chosen        bool // listen is not the default
	asked         bool // --listen or --admin-listen is on the command line
	cert, key     string
	maxBody       string
	origins       []string
	proxies       []string
	userHeader    string
	userScopes    []string
	hide          bool
	places        []string
	commands      bool

	schedules int // those with metrics of their own

	bytes   int // parsed maxBody
	metrics *httpapi.Metrics
	server  *httpapi.Server // of the API, or nil if it is not served
}

func (f *httpFlags) register(c *cobra.Command) {
	flags := c.Flags()
	flags.StringVar(&f.listen, "listen", usualListen,
		"`address` of the HTTP API and the dashboard, or off; other hosts can reach it only when there is a token")
	flags.StringVar(&f.admin, "admin-listen", "", "`address` of /livez, /readyz and /metrics, which need no token (default: none)")
	flags.IntVar(&f.schedules, "metrics-schedules", 100, "number of schedules that have metrics of their own, the first by name; 0: none")
	flags.StringVar(&f.cert, "tls-cert", "", "`file` with a certificate, in PEM: then the API speaks TLS. It is read again when it changes")
	flags.StringVar(&f.key, "tls-key", "", "`file` with its key")
	flags.StringVar(&f.maxBody, "max-body", "16MiB", "maximum size of a request's body")
	flags.StringArrayVar(&f.origins, "allow-origin", nil,
		"`origin` of pages that may use the API in a browser, such as https://ops.example.org; may be repeated")
	flags.StringArrayVar(&f.proxies, "trusted-proxy", nil,
		"`address` or network of a proxy that itself decides who may use the API: as long as there is no token, others' requests are refused; may be repeated")
	flags.StringVar(&f.userHeader, "proxy-user-header", "",
		"`header` in which the proxies of --trusted-proxy say who a user is, such as X-Forwarded-User; from others it is ignored")
	flags.StringSliceVar(&f.userScopes, "proxy-user-scope", []string{string(httpapi.ScopeRead)},
		"`scope` of these users: read, operate or admin")
	flags.BoolVar(&f.hide, "hide-arguments", false, "keep payloads of jobs and commands of schedules off the dashboard")
	flags.StringArrayVar(&f.places, "dashboard", nil,
		"`name=URL` of a dashboard of another database, or of this one: pages lead from one to the other; may be repeated")
	flags.BoolVar(&f.commands, "allow-commands", false,
		"let the API make and change schedules that run commands, requests or SQL; without it only those that enqueue a job. There must be a token")
}

// check parses the flags.
func (f *httpFlags) check(once bool) (err error) {
	switch {
	case (f.cert == "") != (f.key == ""):
		return usagef("--tls-cert and --tls-key go together")
	case once && f.asked: // the file may be shared with daemons that stay
		return usagef("--once ends when all is done; --listen and --admin-listen are for daemons that stay")
	}
	if f.schedules < 0 || f.schedules > maxMetrics {
		return usagef("--metrics-schedules: %d is not 0 to %d", f.schedules, maxMetrics)
	}
	if f.bytes, err = setting.ParseSize(f.maxBody); err != nil {
		return usagef("--max-body: %v", err)
	}
	if _, err := placesOf(f.places); err != nil {
		return usagef("--dashboard: %v", err)
	}
	return nil
}

func placesOf(texts []string) (all []dashboard.Place, err error) {
	for _, text := range texts {
		p, err := dashboard.ParsePlace(text)
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}

// probeConnections are those of the address for probes and metrics: few ask there.
const probeConnections = 64

// startHTTP answers requests until stop is called, and those of the API only until ctx ends: a stopping daemon takes
// no more work, but still answers probes.
func (p *program) startHTTP(ctx context.Context, db *dialect.DB, f *serveFlags, log *slog.Logger) (stop func(), err error) {
	if f.http.listen != noListen && f.does(partAPI) {
		f.http.server = &httpapi.Server{Logger: log, Cert: f.http.cert, Key: f.http.key}
		if err := f.http.server.Load(); err != nil {
			return nil, err
		}
	}
	admin, stopAdmin := context.WithCancel(context.WithoutCancel(ctx))
	serving, stopAPI := context.WithCancel(ctx)
	var all sync.WaitGroup
	stop = func() {
		stopAPI()
		stopAdmin()
		all.Wait()
	}
	if f.http.admin != "" {
		at, err := (&net.ListenConfig{}).Listen(ctx, "tcp", f.http.admin)
		if err != nil {
			stop()
			return nil, err
		}
		log.Info("http: /livez, /readyz and /metrics", "address", at.Addr().String())
		health := &httpapi.Server{
			Handler: &httpapi.Health{DB: db, Stopping: ctx.Done(), Metrics: f.http.metrics, Aside: func() string { return both(p.logProblem(), certProblem(f.http.server, hostNow())) }},
			Logger:  log, Grace: time.Second, Connections: probeConnections,
		}
		all.Go(func() { serveLogged(admin, health, at, log) })
	}
	if err := p.startAPI(ctx, serving, db, f, log, &all); err != nil {
		stop()
		return nil, err
	}
	return stop, nil
}

func (p *program) startAPI(ctx, serving context.Context, db *dialect.DB, of *serveFlags, log *slog.Logger, all *sync.WaitGroup) error {
	f, server := &of.http, of.http.server
	if server == nil {
		return nil
	}
	opt := httpapi.Options{
		Node: of.node, Version: version, MaxBody: int64(f.bytes), Origins: f.origins, Logger: log, Doorbell: doorbellAt(of.doorbell), Hosts: of.hosts(),
		TrustedProxies: f.proxies, ProxyUserHeader: f.userHeader, ProxyUserScopes: scopesOf(f.userScopes),
		AllowCommands: f.commands, Stopping: serving.Done(), LogDone: of.logDone,
	}
	if f.metrics != nil {
		opt.Observe, opt.LeaseLost = f.metrics.Request, f.metrics.LeaseLost
		server.ConnectionClosed = f.metrics.ConnectionClosed
	}
	api, err := httpapi.New(db, opt)
	if err != nil {
		return err
	}
	places, err := placesOf(f.places)
	if err != nil {
		return err
	}
	board, err := dashboard.New(db, api, dashboard.Options{
		HideArguments: f.hide, Node: of.node, Version: version, Places: places, Database: p.databaseName(),
		Logger: log, Doorbell: doorbellAt(of.doorbell),
	})
	if err != nil {
		return err
	}
	tokens := httpapi.NewTokens(db)
	if f.commands {
		if err := needToken(ctx, tokens); err != nil {
			return err
		}
	}
	at, err := httpapi.Listen(ctx, tokens, f.listen)
	if errors.Is(err, syscall.EADDRINUSE) && !f.chosen {
		log.Warn("no HTTP API: the default address is in use, maybe by another daemon; choose another with --listen, or none with --listen off",
			"address", f.listen)
		return nil
	}
	if err != nil {
		return err
	}
	log.Info("http: the API and the dashboard", "dashboard", linkTo(at.Addr(), f.cert != ""), "address",
		at.Addr().String(), "tls", f.cert != "")
	if host, ok := at.Addr().(*net.TCPAddr); ok && !host.IP.IsLoopback() && f.cert == "" {
		log.Warn("http: tokens can be read on the network, unless a proxy in front of the API speaks TLS: --tls-cert and --tls-key")
	}
	server.Handler = withDashboard(api, board)
	draining, drained := context.WithCancel(context.WithoutCancel(ctx))
	all.Go(func() { // claimed jobs may be finished for a moment
		defer drained()
		<-serving.Done()
		last, cancel := context.WithTimeout(draining, claimGrace)
		defer cancel()
		api.Drain(last)
	})
	all.Go(func() {
		serveLogged(draining, server, at, log)
		api.Close()
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancel()
		_, _ = api.Flush(last), board.Flush(last) // best effort: workers poll, too
	})
	return nil
}

// withDashboard serves the API below /api, and the dashboard elsewhere.
func withDashboard(api, board http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/api" || strings.HasPrefix(r.URL.Path, "/api/") {
			api.ServeHTTP(w, r)
			return
		}
		board.ServeHTTP(w, r)
	})
}

// linkTo returns the dashboard's URL for a browser on this host.
func linkTo(at net.Addr, secure bool) string {
	scheme, host := "http", at.String()
	if secure {
		scheme = "https"
	}
	if a, ok := at.(*net.TCPAddr); ok && a.IP.IsUnspecified() {
		host = net.JoinHostPort("localhost", strconv.Itoa(a.Port))
	}
	return scheme + "://" + host + "/"
}

// needToken refuses --allow-commands while the API needs no token: otherwise a proxy on this host, or any of its
// users, could run commands.
func needToken(ctx context.Context, tokens *httpapi.Tokens) error {
	there, err := tokens.Any(ctx)
	if err == nil && !there {
		err = usagef("--allow-commands lets whoever reaches the API run commands as this daemon's user, and as long as there is no token that is anybody on this host: make a token first (dbcron token create NAME --scope admin), which every request needs from then on, or leave --allow-commands out")
	}
	return err
}

// serveLogged serves, and logs if that ends prematurely.
func serveLogged(ctx context.Context, s *httpapi.Server, at net.Listener, log *slog.Logger) {
	if err := s.Serve(ctx, at); err != nil {
		log.Error("http: the server has stopped answering", "address", at.Addr().String(), "err", err)
	}
}
