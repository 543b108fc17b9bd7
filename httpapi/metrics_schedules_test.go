package httpapi

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/scheduler"
)

// look scrapes after a fresh look into the tables.
func (m *Metrics) look(t *testing.T) string {
	t.Helper()
	m.sample.until = 0
	return scrape(t, m)
}

// has reports lines that a scrape lacks.
func has(t *testing.T, text string, want ...string) {
	t.Helper()
	for _, line := range want {
		if !strings.Contains(text, line) {
			t.Errorf("there is no %s in\n%s", line, text)
		}
	}
}

// put inserts a run by hand, which began the given number of minutes ago and took three
// seconds.
func put(t *testing.T, db *dbtest.DB, schedule, state string, ago time.Duration) {
	t.Helper()
	ended := "{now + :ended}"
	if state == "running" {
		ended = "NULL"
	}
	db.Do(t, `INSERT INTO {prefix}run (schedule, due_at, attempt, state, started_at, finished_at, next_exec)
		VALUES (:schedule, {now + :began}, 1, :state, {now + :began}, `+ended+`, CASE WHEN :state = 'running' THEN {now + :hour} END)`, sqlrun.Args{
		"schedule": schedule, "state": state, "hour": time.Hour.Microseconds(),
		"began": -ago.Microseconds(), "ended": (3*time.Second - ago).Microseconds(),
	})
}

// Metrics of single schedules are limited to a number of them, by name.
func TestMetricsOfSchedules(t *testing.T) {
	t.Parallel()
	dbtest.EachClock(t, func(t *testing.T, db *dbtest.DB) {
		add := func(name string) {
			must(t, scheduler.Add(t.Context(), db.DB,
				scheduler.Schedule{Name: name, Spec: "@daily", Command: "true", Policy: scheduler.Policy{Jitter: time.Minute}}))
		}
		for _, name := range []string{"bad", "fine", "late", "new", "too many"} {
			add(name)
		}
		m, err := NewMetrics(db.DB, MetricsOptions{Schedules: 4})
		must(t, err)
		db.Do(t, `UPDATE {prefix}schedule SET due_at = {now + :ago}, next_exec = {now + :ago} WHERE name = 'late'`,
			sqlrun.Args{"ago": -(3 * time.Minute).Microseconds()})
		put(t, db, "fine", "ok", time.Hour)
		put(t, db, "fine", "running", time.Minute)
		put(t, db, "bad", "ok", 100*time.Hour)
		for i := range 25 { // more than are usually examined
			put(t, db, "bad", []string{"failed", "timeout", "lost"}[i%3], time.Duration(25-i)*time.Hour)
		}
		put(t, db, "late", "failed", 3*time.Hour)
		put(t, db, "late", "skipped", time.Hour)
		text := m.look(t)
		at := func(ago time.Duration) float64 {
			now, err := scheduler.Clock(t.Context(), db.DB)
			must(t, err)
			return float64(now.Add(3*time.Second-ago).UnixMicro()) / 1e6
		}
		has(t, text, `dbcron_schedule_failures_in_a_row{schedule="bad"} 20`, `dbcron_schedule_failures_in_a_row{schedule="fine"} 0`,
			`dbcron_schedule_failures_in_a_row{schedule="late"} 1`, `dbcron_schedule_failures_in_a_row{schedule="new"} 0`,
			`dbcron_schedule_running{schedule="fine"} 1`, `dbcron_schedule_running{schedule="bad"} 0`,
			`dbcron_schedule_lateness_seconds{schedule="late"} 120`, `dbcron_schedule_lateness_seconds{schedule="fine"} 0`,
			`dbcron_schedule_last_duration_seconds{schedule="fine"} 3`, "dbcron_schedules_omitted 1",
			fmt.Sprintf("dbcron_schedule_last_success_timestamp_seconds{schedule=\"fine\"} %v\n", at(time.Hour)),
			fmt.Sprintf("dbcron_schedule_last_success_timestamp_seconds{schedule=\"bad\"} %v\n", at(100*time.Hour)))
		for _, none := range []string{"too many", `_success_timestamp_seconds{schedule="late"}`, `last_duration_seconds{schedule="new"}`} {
			if strings.Contains(text, none) {
				t.Errorf("there is %s in\n%s", none, text)
			}
		}

		// What is known is not looked up again, and does not go with the row.
		db.Do(t, `DELETE FROM {prefix}run WHERE schedule = 'bad' AND state = 'ok'`, nil)
		has(t, m.look(t), fmt.Sprintf("dbcron_schedule_last_success_timestamp_seconds{schedule=\"bad\"} %v\n", at(100*time.Hour)))
		db.Do(t, `DELETE FROM {prefix}schedule WHERE name = 'bad'`, nil)
		m.look(t)
		add("bad")
		if text := m.look(t); strings.Contains(text, `_success_timestamp_seconds{schedule="bad"}`) {
			t.Errorf("a schedule that is new has succeeded:\n%s", text)
		}

		none, err := NewMetrics(db.DB, MetricsOptions{Schedules: -1})
		must(t, err)
		if text := none.look(t); strings.Contains(text, `schedule="`) || !strings.Contains(text, "dbcron_schedules_omitted 5") {
			t.Errorf("schedules are told of one by one:\n%s", text)
		}
	})
}

// The processes are counted by version, and the clocks compared.
func TestMetricsOfProcesses(t *testing.T) {
	t.Parallel()
	dbtest.EachClock(t, func(t *testing.T, db *dbtest.DB) {
		for i, version := range []string{"1.2.3", "1.2.3", "1.3.0", "", "1.2.3"} {
			db.Do(t, `INSERT INTO {prefix}node (name, state, expire_at, version) VALUES (:name, :state, {now + :left}, :version)`, sqlrun.Args{
				"name": fmt.Sprint("n", i), "state": []string{"live", "gone"}[i/4], "left": int64(i+1) * time.Minute.Microseconds(), "version": version,
			})
		}
		db.Advance(t, 90*time.Second)
		m, err := NewMetrics(db.DB, MetricsOptions{})
		must(t, err)
		text := m.look(t)
		has(t, text, `dbcron_processes{state="live",version="1.2.3"} 1`, `dbcron_processes{state="lost",version="1.2.3"} 1`,
			`dbcron_processes{state="live",version="1.3.0"} 1`, `dbcron_processes{state="lost",version="1.3.0"} 0`,
			`dbcron_processes{state="live",version=""} 1`)
		before := m.sample.last.offset
		db.Advance(t, time.Hour)
		m.look(t)
		if by := before - m.sample.last.offset; by > time.Hour || by < time.Hour-15*time.Minute { // a machine may stand still in between
			t.Errorf("the database's clock is an hour ahead of where it was, and the offset %v less", by)
		}
	})
}

// The counts of hooks are reported, and jobs with endpoints of their own do not add labels
// forever.
func TestMetricsOfHooks(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		m, err := NewMetrics(db.DB, MetricsOptions{})
		must(t, err)
		m.sample.last, m.sample.until = &figures{}, instant.Now().Add(time.Hour)
		text := scrape(t, m)
		has(t, text, `dbcron_lease_losses_total{of="run"} 0`, `dbcron_lease_losses_total{of="worker"} 0`)
		m.RunEnded("lost", time.Second)
		m.RunEnded("ok", time.Second)
		m.LeaseLost("why")
		m.LeaseLost("why")
		for i := range maxOrigins + 5 {
			m.Sent(fmt.Sprintf("https://h%d:443", i), 200, time.Second)
		}
		m.Sent("https://h0:443", 503, time.Second)
		m.Sent("https://h0:443", 0, time.Second)
		text = scrape(t, m)
		has(t, text, `dbcron_lease_losses_total{of="run"} 1`, `dbcron_lease_losses_total{of="worker"} 2`,
			`dbcron_push_requests_total{origin="https://h0:443",status="2xx"} 1`,
			`dbcron_push_requests_total{origin="https://h0:443",status="5xx"} 1`,
			`dbcron_push_requests_total{origin="https://h0:443",status="none"} 1`, `dbcron_push_requests_total{origin="other",status="2xx"} 5`,
			`dbcron_push_request_duration_seconds_count{origin="https://h0:443"} 3`)
	})
}

// promtool checks what Prometheus is to read: without it, which Debian's package prometheus
// has, only CI fails.
func promtool(t *testing.T, text string) {
	t.Helper()
	path, err := exec.LookPath("promtool")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("tools/test-deps installs promtool: %v", err)
		}
		t.Skip("there is no promtool; Debian's package prometheus has it")
	}
	check := exec.CommandContext(t.Context(), path, "check", "metrics")
	check.Stdin = strings.NewReader(text)
	if said, err := check.CombinedOutput(); err != nil || len(said) > 0 {
		t.Errorf("promtool check metrics: %v\n%s", err, said)
	}
}
