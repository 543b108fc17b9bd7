package httpapi

import (
	"context"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
)

// tables collects metrics from the tables.
type tables struct{ sample *sampler }

func description(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("dbcron_"+name, help, labels, nil)
}

var (
	descUp     = description("database_up", "Whether the database has answered. If not, the metrics of the tables are missing.")
	descJobs   = description("queue_jobs", "Jobs of a queue by state; 10000 is that many or more.", "queue", "state")
	descAge    = description("queue_oldest_ready_age_seconds", "How long the oldest ready job has waited; 0: there is none.", "queue")
	descTenant = description("queue_tenant_jobs",
		"Ready jobs of the tenants of a fair queue that have the most among the jobs that are next: ten of them.", "queue", "tenant")
	descTenantAge = description("queue_tenant_oldest_ready_age_seconds",
		"How long the oldest ready job of each of them has waited.", "queue", "tenant")
	descPaused = description("queue_paused", "Whether the queue is paused.", "queue")
	descStuck  = description("queue_stuck_jobs",
		"Jobs whose handlers have not returned though their timeouts are over: each takes a slot of its worker.", "queue")
	descStarved = description("queue_starved_workers",
		"Workers whose handlers have all waited for connections of their pool for ten seconds.", "queue")
	descDone = description("jobs_done_total",
		"Jobs that all workers have done since this daemon began to look: the same at each daemon, so take one.", "queue")
	descFailed = description("job_attempts_failed_total", "Attempts that failed and are followed by another, likewise.", "queue")
	descDead   = description("jobs_dead_total", "Jobs that were given up, likewise.", "queue")
	descTardy  = description("jobs_found_late_total",
		"Jobs that workers found late since the transactions that enqueued them took longer than two seconds, likewise.", "queue")
	descWait = description("job_wait_seconds_total",
		"How long attempts waited from when they could begin, all together, likewise.", "queue")
	descWork     = description("job_work_seconds_total", "How long attempts took, all together, likewise.", "queue")
	descPlans    = description("schedules", "Schedules by state.", "state")
	descDue      = description("schedules_due", "Active schedules that a daemon should run by now.")
	descLate     = description("schedules_late", "Those of them that it should have run ten seconds ago.")
	descOpenRuns = description("runs_open", "Runs that have not ended, by state.", "state")
	descLocks    = description("locks_held", "Locks and slots of pools that are held.")
	descNodes    = description("processes",
		"Daemons and workers by the version that they say; lost are those of the last day that did not end as they should.", "version", "state")
	descOffset = description("clock_offset_seconds",
		"This host's clock minus the database's, which decides; as exact as the database's answer is fast.")

	descSuccess = description("schedule_last_success_timestamp_seconds",
		"When a run of the schedule last ended well. Missing: not in its history.", "schedule")
	descDuration = description("schedule_last_duration_seconds", "How long the last run of the schedule took that has ended.", "schedule")
	descFailures = description("schedule_failures_in_a_row",
		"Runs of the schedule that failed since the last that did not; 20 is that many or more.", "schedule")
	descRunning  = description("schedule_running", "Runs of the schedule that are under way.", "schedule")
	descLateness = description("schedule_lateness_seconds",
		"For how long the schedule's slot has been due without a daemon that has claimed it; 0: it is in time.", "schedule")
	descOmitted = description("schedules_omitted", "Schedules without metrics of their own: see serve --metrics-schedules.")
)

// Describe lists the metrics.
func (*tables) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		descUp, descJobs, descAge, descTenant, descTenantAge,
		descPaused, descStuck, descStarved, descDone, descFailed, descDead, descTardy, descWait, descWork, descPlans,
		descDue, descLate, descOpenRuns, descLocks,
		descNodes, descOffset, descSuccess, descDuration, descFailures, descRunning, descLateness, descOmitted,
	} {
		to <- d
	}
}

// Collect reads the metrics.
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
		if !utf8.ValidString(q.Name) { // labels must be UTF-8; this name was made by hand
			continue
		}
		for state, n := range map[string]int{"ready": q.Ready, "delayed": q.Delayed, "running": q.Running, "dead": q.Dead, "done": q.Done} {
			gauge(descJobs, float64(n), q.Name, state)
		}
		gauge(descAge, q.Age.Seconds(), q.Name)
		for i, one := range q.tenants {
			if utf8.ValidString(one.Name) {
				gauge(descTenant, float64(one.Ready), q.Name, one.Name)
				gauge(descTenantAge, q.longest[i].Seconds(), q.Name, one.Name)
			}
		}
		gauge(descPaused, map[bool]float64{true: 1}[q.State == "paused"], q.Name)
		gauge(descStuck, float64(q.stuck), q.Name)
		gauge(descStarved, float64(q.hungry), q.Name)
		done := f.totals[q.Name]
		for d, v := range map[*prometheus.Desc]float64{
			descDone: float64(done.Done), descFailed: float64(done.Failed), descDead: float64(done.Dead), descTardy: float64(done.Late),
			descWait: done.Waited.Seconds(), descWork: done.Took.Seconds(),
		} {
			to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, q.Name)
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
	gauge(descOffset, f.offset.Seconds())
	for _, n := range f.nodes {
		if utf8.ValidString(n.version) {
			gauge(descNodes, float64(n.live), n.version, "live")
			gauge(descNodes, float64(n.lost), n.version, "lost")
		}
	}
	f.collectEach(gauge)
}

// collectEach collects the metrics of single schedules.
func (f *figures) collectEach(gauge func(d *prometheus.Desc, v float64, labels ...string)) {
	all := 0
	for _, n := range f.schedules {
		all += n
	}
	gauge(descOmitted, float64(max(0, all-len(f.each))))
	for i := range f.each {
		s := &f.each[i]
		if !utf8.ValidString(s.name) {
			continue
		}
		gauge(descRunning, float64(s.running), s.name)
		gauge(descLateness, s.late.Seconds(), s.name)
		gauge(descFailures, float64(s.failures), s.name)
		if !s.success.IsZero() {
			gauge(descSuccess, float64(s.success.UnixMicro())/1e6, s.name)
		}
		if s.took >= 0 {
			gauge(descDuration, s.took.Seconds(), s.name)
		}
	}
}
