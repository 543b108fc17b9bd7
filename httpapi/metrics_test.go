package httpapi

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/ops/health"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/scheduler"
)

// scrape reads the metrics.
func scrape(t *testing.T, h http.Handler) string {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/metrics", http.NoBody))
	text, err := io.ReadAll(w.Result().Body)
	must(t, err)
	if w.Code != 200 {
		t.Fatalf("got %d %s", w.Code, text)
	}
	return string(text)
}

// The metrics tell what there is, and are named as others are.
func TestMetrics(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		m, err := NewMetrics(db.DB, MetricsOptions{Version: "1.2.3"})
		must(t, err)
		s := serve(t, db.DB, Options{Observe: m.Request})
		for range 3 {
			s.enqueue(object{"kind": "x", "queue": "mail"})
		}
		s.enqueue(object{"kind": "x", "queue": "mail", "delay": "1h"})
		for i := range 12 {
			for range 12 - i {
				s.enqueue(object{"kind": "x", "queue": "shared", "tenant": fmt.Sprint("tenant", i)})
			}
		}
		_, err = s.api.admin.Edit(t.Context(), "shared", func(q *admin.Queue) { q.Fair = true })
		must(t, err)
		s.get("/api/v1/queues/none").is(404)
		s.get("/nonsense/" + strings.Repeat("x", 50)).is(404)
		s.post("/api/v1/locks/l/acquire", object{"ttl": "1h"}).is(200)
		must(t, scheduler.Add(t.Context(), db.DB, scheduler.Schedule{Name: "a", Spec: "@daily", Command: "true"}))
		must(t, scheduler.Add(t.Context(), db.DB,
			scheduler.Schedule{Name: "b", Spec: "@daily", Command: "true", Policy: scheduler.Policy{FirstRun: "now"}}))
		s.post("/api/v1/schedules/a/run", nil).is(201)
		m.RunEnded("ok", time.Second)
		db.Do(t, `INSERT INTO {prefix}job_count (minute, queue_id, kind, done) SELECT {now}, queue_id, 'x', 5 FROM {prefix}queue`, nil)
		text := scrape(t, m)
		for _, want := range []string{
			`dbcron_build_info{database="` + db.Dialect.Name + `",version="1.2.3"} 1`, "dbcron_database_up 1",
			`dbcron_queue_jobs{queue="mail",state="ready"} 3`, `dbcron_queue_jobs{queue="mail",state="delayed"} 1`,
			`dbcron_queue_oldest_ready_age_seconds{queue="mail"} `,
			`dbcron_queue_tenant_jobs{queue="shared",tenant="tenant0"} 12`, `dbcron_queue_tenant_jobs{queue="shared",tenant="tenant9"} 3`,
			`dbcron_queue_tenant_oldest_ready_age_seconds{queue="shared",tenant="tenant0"} `,
			`dbcron_jobs_done_total{queue="mail"} 0`, `dbcron_schedules{state="active"} 2`, "dbcron_schedules_due 1",
			`dbcron_runs_open{state="waiting"} 1`,
			`dbcron_runs_total{outcome="ok"} 1`, "dbcron_locks_held 1",
			`dbcron_http_requests_total{method="POST",path="/api/v1/jobs",status="201"} 82`,
			`dbcron_http_requests_total{method="GET",path="/api/v1/queues/{queue}",status="404"} 1`,
			`dbcron_http_requests_total{method="other",path="other",status="404"} 1`,
			"go_goroutines ", "process_start_time_seconds ", `go_sql_open_connections{db_name="dbcron"} `,
		} {
			if !strings.Contains(text, want) {
				t.Errorf("there is no %s in\n%s", want, text)
			}
		}
		if strings.Contains(text, "tenant10") {
			t.Error("there are metrics of an eleventh tenant")
		}
		problems, err := promlint.New(strings.NewReader(text)).Lint()
		must(t, err)
		for _, p := range problems {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}

		m.Sent("https://example.org:443", 200, time.Second)
		promtool(t, scrape(t, m))

		// Work done after the first scrape is counted, and each scrape adds what is new.
		db.Do(t, `UPDATE {prefix}job_count SET done = 7, failed = 1, wait_us = 2500000`, nil)
		if again := scrape(t, m); !strings.Contains(again, `dbcron_jobs_done_total{queue="mail"} 0`) {
			t.Errorf("the tables were looked at again at once")
		}
		for range 2 {
			m.sample.until = instant.Instant(0)
			if text = scrape(t, m); !strings.Contains(text, `dbcron_jobs_done_total{queue="mail"} 2`) ||
				!strings.Contains(text, `dbcron_job_attempts_failed_total{queue="mail"} 1`) ||
				!strings.Contains(text, `dbcron_job_wait_seconds_total{queue="mail"} 2.5`) {
				t.Errorf("got\n%s", text)
			}
		}
	})
}

// Without the database, the other metrics are reported.
func TestMetricsWithoutADatabase(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		gone := dbtest.Open(t, db.URL, dialect.Options{MaxConns: 2})
		m, err := NewMetrics(gone.DB, MetricsOptions{Version: "1.2.3"})
		must(t, err)
		must(t, gone.Close())
		if text := scrape(t, &Health{DB: gone.DB, Metrics: m}); !strings.Contains(text, "dbcron_database_up 0") ||
			!strings.Contains(text, "go_goroutines ") {
			t.Errorf("got\n%s", text)
		}
	})
}

// A queue whose name cannot be a label does not keep the others from being told.
func TestMetricsOfAQueueThatIsNotText(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		m, err := NewMetrics(db.DB, MetricsOptions{Version: "1.2.3"})
		must(t, err)
		m.sample.last, m.sample.until = &figures{queues: []queueFigures{queueNamed("\xff", 0), queueNamed("mail", 2)}}, instant.Now().Add(time.Hour)
		if text := scrape(t, m); !strings.Contains(text, `dbcron_queue_paused{queue="mail"} 0`) ||
			!strings.Contains(text, `dbcron_queue_stuck_jobs{queue="mail"} 2`) {
			t.Errorf("got\n%s", text)
		}
	})
}

func queueNamed(name string, stuck int) queueFigures {
	return queueFigures{Depth: health.Depth{Queue: admin.Queue{Name: name}}, stuck: stuck}
}

// The figures of all queues are read at once, and are the same wherever they are told: a delayed job that is due, such
// as a retried one, is ready.
func TestAllQueueStats(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		s := serve(t, db.DB, Options{})
		s.enqueue(object{"kind": "x", "queue": "mail"})
		s.put("/api/v1/queues/idle", object{}).is(201)
		s.get("/api/v1/stats/queues").is(200).has(`[{"queue":"idle","state":"active","ready":0,`).has(`{"queue":"mail","state":"active","ready":1,"delayed":0,"running":0,"dead":0,"done":0,"counted_to":10000,"oldest_ready_seconds":`)
		s.post("/api/v1/jobs/"+s.enqueue(object{"kind": "x", "queue": "due", "delay": "1h"})+"/run", nil).is(204)
		db.Do(t, `UPDATE {prefix}job_delayed SET run_at = {now + :ago} WHERE id > 0`, sqlrun.Args{"ago": -time.Minute.Microseconds()})
		counts := `"ready":1,"delayed":0,"running":0,"dead":0,"done":0,"counted_to":10000,`
		since := regexp.MustCompile(regexp.QuoteMeta(counts) + `"oldest_ready_seconds":[6-9][0-9]`)
		s = serve(t, db.DB, Options{})
		for _, path := range []string{"stats/queues", "queues/due/status", "status/queues"} {
			if got := s.get("/api/v1/" + path).is(200).text; !since.MatchString(got) {
				t.Errorf("%s: got %s, want %s and a minute", path, got, counts)
			}
		}
	})
}
