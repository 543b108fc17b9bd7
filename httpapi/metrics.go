package httpapi

import (
	"cmp"
	"net/http"
	"strconv"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/queue/admin"
)

// Metrics serves the metrics of a daemon and its database for Prometheus. It is an [http.Handler], safe
// for concurrent use. It queries the database at most every five seconds, however often it is scraped.
type Metrics struct {
	http.Handler

	sample   *sampler
	requests *prometheus.CounterVec
	took     *prometheus.HistogramVec
	runs     *prometheus.CounterVec
	runsTook prometheus.Histogram
	lost     *prometheus.CounterVec
	sent     *prometheus.CounterVec
	sentTook *prometheus.HistogramVec
	cut      prometheus.Counter

	mu      sync.Mutex
	origins map[string]bool // with a label of their own
}

// scrapeTime limits queries, so that other metrics are served while the database does not answer.
const scrapeTime = 8 * time.Second

// durations are the buckets of the histogram of runs, in seconds.
var durations = []float64{.01, .1, .5, 1, 5, 15, 60, 300, 900, 3600, 4 * 3600}

// maxOrigins limits the origins with a label of their own: jobs may name any.
const maxOrigins = 100

// MetricsOptions configures Metrics. The zero value is ready to use.
type MetricsOptions struct {
	Version   string // of the program; default: devel
	Schedules int    // schedules with metrics of their own, the first by name; default: 100; negative: none

	LogDropped func() int64 // lines of the log that were dropped; nil: none ever is
}

// NewMetrics returns the metrics of a daemon. It does not access the database.
func NewMetrics(db *dialect.DB, opt MetricsOptions) (*Metrics, error) {
	version := cmp.Or(opt.Version, "devel")
	queues, err := admin.New(db, admin.Options{})
	if err != nil {
		return nil, err
	}
	m := &Metrics{
		sample: newSampler(db, queues),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "dbcron_http_requests_total", Help: "Requests that this daemon's API has answered.",
		}, []string{"method", "path", "status"}),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "dbcron_http_request_duration_seconds", Help: "How long requests took.", Buckets: prometheus.DefBuckets,
		}, []string{"method", "path"}),
		runs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "dbcron_runs_total", Help: "Runs of schedules that this daemon has executed, by outcome.",
		}, []string{"outcome"}),
		runsTook: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "dbcron_run_duration_seconds", Help: "How long they took.", Buckets: durations,
		}),
		lost: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "dbcron_lease_losses_total", Help: "Leases that this daemon has lost: of a run of a schedule, or of a worker with what it had of a queue.",
		}, []string{"of"}),
		sent: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "dbcron_push_requests_total", Help: "Jobs that this daemon has sent to endpoints, by origin and class of the answer's status; none: there was no whole answer.",
		}, []string{"origin", "status"}),
		sentTook: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "dbcron_push_request_duration_seconds", Help: "How long they took.", Buckets: prometheus.DefBuckets,
		}, []string{"origin"}),
		cut: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "dbcron_http_connections_closed_total", Help: "Connections without a request that this daemon's API has closed since others needed the place.",
		}),
		origins: map[string]bool{},
	}
	m.sample.most = cmp.Or(opt.Schedules, 100)
	for _, of := range []string{lostRun, lostWorker} { // so that the first loss is an increase
		m.lost.WithLabelValues(of)
	}
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "dbcron_build_info", Help: "1, with the version.", ConstLabels: prometheus.Labels{"version": version, "database": db.Dialect.Name},
	})
	build.Set(1)
	dropped := prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "dbcron_log_lines_dropped_total", Help: "Lines of this daemon's log that were dropped, because nobody read them.",
	}, func() float64 {
		if opt.LogDropped == nil {
			return 0
		}
		return float64(opt.LogDropped())
	})
	own := prometheus.NewRegistry() // not the default registry, to which any package may add
	for _, c := range []prometheus.Collector{
		m.requests, m.took, m.runs, m.runsTook, m.lost, m.sent, m.sentTook, m.cut, dropped, build, &tables{m.sample},
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		collectors.NewDBStatsCollector(db.Pool(), "dbcron"),
	} {
		if err := own.Register(c); err != nil {
			return nil, err
		}
	}
	m.Handler = promhttp.HandlerFor(own, promhttp.HandlerOpts{MaxRequestsInFlight: 4})
	return m, nil
}

// Request counts a request: see [Options].
func (m *Metrics) Request(method, path string, status int, took time.Duration) {
	m.requests.WithLabelValues(method, path, strconv.Itoa(status)).Inc()
	m.took.WithLabelValues(method, path).Observe(took.Seconds())
}

// ConnectionClosed counts a closed connection: see [Server].
func (m *Metrics) ConnectionClosed() { m.cut.Inc() }

// RunEnded counts a run of a schedule: see [scheduler.Options].
func (m *Metrics) RunEnded(state string, took time.Duration) {
	m.runs.WithLabelValues(state).Inc()
	m.runsTook.Observe(took.Seconds())
	if state == "lost" {
		m.lost.WithLabelValues(lostRun).Inc()
	}
}

// Kinds of leases, as label values.
const (
	lostRun    = "run"
	lostWorker = "worker"
)

// LeaseLost counts a lease lost by a worker: see [queue.Options].
func (m *Metrics) LeaseLost(string) { m.lost.WithLabelValues(lostWorker).Inc() }

// Sent counts a job sent to an endpoint: see [push.Options].
func (m *Metrics) Sent(origin string, status int, took time.Duration) {
	origin, class := m.label(origin), "none"
	if status > 0 {
		class = strconv.Itoa(status/100) + "xx"
	}
	m.sent.WithLabelValues(origin, class).Inc()
	m.sentTook.WithLabelValues(origin).Observe(took.Seconds())
}

// label returns the label of an origin; late ones share the label other.
func (m *Metrics) label(origin string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.origins[origin] {
		return origin
	}
	if len(m.origins) == maxOrigins || !utf8.ValidString(origin) {
		return "other"
	}
	m.origins[origin] = true
	return origin
}
