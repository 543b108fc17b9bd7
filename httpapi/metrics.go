package httpapi

import (
	"context"
	"net/http"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/queue"
)

// Metrics are figures of a daemon and its database, as Prometheus reads them: an
// [http.Handler]. However often they are read, the database is asked every five seconds at the
// most.
type Metrics struct {
	http.Handler

	sample   *sampler
	requests *prometheus.CounterVec
	took     *prometheus.HistogramVec
	runs     *prometheus.CounterVec
	runsTook prometheus.Histogram
}

// scrapeTime is for the database, so that the rest is told while it does not answer.
const scrapeTime = 8 * time.Second

// durations are the bounds of a run's histogram, in seconds.
var durations = []float64{.01, .1, .5, 1, 5, 15, 60, 300, 900, 3600, 4 * 3600}

// NewMetrics returns the metrics of a daemon. It does not touch the database.
func NewMetrics(db *dialect.DB, version string) (*Metrics, error) {
	queues, err := queue.New(db, queue.Options{})
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
			Name: "dbcron_runs_total", Help: "Runs of schedules that this daemon has executed, by what became of them.",
		}, []string{"outcome"}),
		runsTook: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "dbcron_run_duration_seconds", Help: "How long they took.", Buckets: durations,
		}),
	}
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "dbcron_build_info", Help: "1, with the version.", ConstLabels: prometheus.Labels{"version": version, "database": db.Dialect.Name},
	})
	build.Set(1)
	own := prometheus.NewRegistry() // not the default one, to which any package adds
	for _, c := range []prometheus.Collector{
		m.requests, m.took, m.runs, m.runsTook, build, &tables{m.sample},
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), collectors.NewDBStatsCollector(db.Pool(), "dbcron"),
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

// RunEnded counts a run of a schedule: see [scheduler.Options].
func (m *Metrics) RunEnded(state string, took time.Duration) {
	m.runs.WithLabelValues(state).Inc()
	m.runsTook.Observe(took.Seconds())
}

// tables collects what the tables say.
type tables struct{ sample *sampler }

func description(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("dbcron_"+name, help, labels, nil)
}

var (
	descUp       = description("database_up", "Whether the database has answered. If it has not, what the tables say is missing.")
	descJobs     = description("queue_jobs", "Jobs of a queue by state; 10000 is that many or more.", "queue", "state")
	descAge      = description("queue_oldest_ready_age_seconds", "How long ago the oldest ready job was enqueued; 0: there is none.", "queue")
	descPaused   = description("queue_paused", "Whether the queue is paused.", "queue")
	descDone     = description("jobs_done_total", "Jobs that all workers have done since this daemon began to look: the same at each daemon, so take one.", "queue")
	descFailed   = description("job_attempts_failed_total", "Attempts that failed and are followed by another, likewise.", "queue")
	descDead     = description("jobs_dead_total", "Jobs that were given up, likewise.", "queue")
	descWork     = description("job_work_seconds_total", "How long attempts took, all together, likewise.", "queue")
	descPlans    = description("schedules", "Schedules by state.", "state")
	descDue      = description("schedules_due", "Active schedules that a daemon should run by now.")
	descLate     = description("schedules_late", "Those of them that it should have run ten seconds ago.")
	descOpenRuns = description("runs_open", "Runs that have not ended, by state.", "state")
	descLocks    = description("locks_held", "Locks and slots of pools that are held.")
)

// Describe tells which metrics there are.
func (*tables) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		descUp, descJobs, descAge, descPaused, descDone, descFailed, descDead, descWork, descPlans, descDue, descLate, descOpenRuns, descLocks,
	} {
		to <- d
	}
}

// Collect tells what they are.
func (t *tables) Collect(to chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTime)
	defer cancel()
	f, err := t.sample.look(ctx)
	if err != nil {
		gauge(descUp, 0)
		return
	}
	gauge(descUp, 1)
	for _, q := range f.queues {
		if !utf8.ValidString(q.name) { // made by hand: a label has to be
			continue
		}
		for state, n := range map[string]int{"ready": q.Ready, "delayed": q.Delayed, "running": q.Running, "dead": q.Dead, "done": q.Done} {
			gauge(descJobs, float64(n), q.name, state)
		}
		gauge(descAge, q.age.Seconds(), q.name)
		gauge(descPaused, map[bool]float64{true: 1}[q.state == "paused"], q.name)
		done := f.totals[q.name]
		for d, v := range map[*prometheus.Desc]float64{
			descDone: float64(done.Done), descFailed: float64(done.Failed), descDead: float64(done.Dead), descWork: done.Took.Seconds(),
		} {
			to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, q.name)
		}
	}
	for _, state := range []string{"active", "paused", "ended", "failed"} {
		gauge(descPlans, float64(f.schedules[state]), state)
	}
	for _, state := range []string{"waiting", "running", "retry"} {
		gauge(descOpenRuns, float64(f.runs[state]), state)
	}
	gauge(descDue, float64(f.due))
	gauge(descLate, float64(f.late))
	gauge(descLocks, float64(f.locks))
}
