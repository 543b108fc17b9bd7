package bench

import (
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dashboard"
	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/httpapi"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/scheduler"
)

var (
	pageJobs      = flag.Int("page-jobs", 10_000_000, "jobs in the tables, for TestDashboardPages")
	pageSchedules = flag.Int("page-schedules", 1_000_000, "schedules, for TestDashboardPages")
	pageRuns      = flag.Int("page-runs", 1_000_000, "runs, for TestDashboardPages")
	pageRounds    = flag.Int("page-rounds", 10, "how often each page is asked for, by a dashboard that remembers nothing")
	pageServer    = flag.Int("page-server", 0, "the server's process `id`, whose time on the processor is printed; 0: this one's")
)

// TestDashboardPages prints how long each page of the dashboard takes with very many jobs, schedules
// and runs: the shortest and the median time of a whole request, and the database's mean CPU time
// for it, which other work on the machine hardly changes.
func TestDashboardPages(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		began := time.Now()
		loader := db.Another(t, dialect.Options{StatementTimeout: time.Hour})
		names := loadQueues(t, loader, *pageJobs)
		loadSchedules(t, loader, *pageSchedules, *pageRuns)
		loader.Analyze(t, "job", "job_dead", "job_delayed", "job_done", "schedule", "run")
		t.Logf("%s: loaded in %v", db.Dialect.Name, time.Since(began).Round(time.Second))
		for _, path := range bigPages(t, db, names) {
			var all []time.Duration
			status, busy := 0, cpuOf(t, *pageServer)
			for range *pageRounds {
				d, got := ask(t, db.DB, path)
				all, status = append(all, d), max(status, got)
			}
			busy = (cpuOf(t, *pageServer) - busy) / time.Duration(*pageRounds)
			slices.Sort(all)
			note := ""
			if status != http.StatusOK {
				note = fmt.Sprint(" !", status)
			}
			t.Logf("%-8s %8.1f ms %8.1f ms, busy %6.1f ms  /%s%s", db.Dialect.Name, ms(all[0]), ms(all[len(all)/2]), ms(busy), path, note)
		}
	})
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// cpuOf returns the CPU time of a process and its children, in steps of 10 ms.
func cpuOf(t *testing.T, pid int) (sum time.Duration) {
	t.Helper()
	if pid == 0 {
		pid = os.Getpid()
	}
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range stats {
		text, err := os.ReadFile(file)
		_, rest, ok := strings.Cut(string(text), ") ")
		words := strings.Fields(rest)
		if err != nil || !ok || len(words) < 13 {
			continue // it has ended
		}
		if words[1] != strconv.Itoa(pid) && file != fmt.Sprintf("/proc/%d/stat", pid) {
			continue
		}
		for _, word := range words[11:13] {
			n, _ := strconv.Atoi(word)
			sum += time.Duration(n) * 10 * time.Millisecond
		}
	}
	return sum
}

// ask requests a page from a new dashboard.
func ask(t *testing.T, db *dialect.DB, path string) (time.Duration, int) {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	api, err := httpapi.New(db, httpapi.Options{Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	board, err := dashboard.New(db, api, dashboard.Options{Logger: log, Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest(http.MethodGet, "http://127.0.0.1/"+path, http.NoBody).WithContext(t.Context())
	r.RemoteAddr = "127.0.0.1:1"
	w := httptest.NewRecorder()
	began := time.Now()
	board.ServeHTTP(w, r)
	took := time.Since(began)
	if strings.Contains(w.Body.String(), "could not be read") {
		t.Errorf("%s: a part could not be read", path)
	}
	return took, w.Code
}

// bigPages returns the pages to measure.
func bigPages(t *testing.T, db *dbtest.DB, names []string) []string {
	t.Helper()
	c, err := queue.New(db.DB, queue.Options{})
	if err != nil {
		t.Fatal(err)
	}
	at := func(page string, pairs ...string) string {
		q := url.Values{}
		for i := 0; i < len(pairs); i += 2 {
			q.Set(pairs[i], pairs[i+1])
		}
		return page + "?" + q.Encode()
	}
	q := names[0]
	pages := []string{
		"", "queues", at("queue", "name", q), "errors", "schedules", at("schedules", "state", "paused"),
		at("schedules", "from", "s00500"), at("schedule", "name", "s0000007"), "runs", at("runs", "state", "failed"),
		at("runs", "state", "lost"), "locks", "daemons",
	}
	for _, state := range []admin.State{admin.StateReady, admin.StateDelayed, admin.StateRunning, admin.StateDead, admin.StateDone} {
		pages = append(pages, at("jobs", "queue", q, "state", string(state)))
		jobs, _, err := adminOf(c).Jobs(t.Context(), admin.Filter{Queue: q, State: state, Limit: 1})
		if err != nil {
			t.Fatal(err)
		}
		if len(jobs) > 0 {
			pages = append(pages, at("job", "queue", q, "id", fmt.Sprint(jobs[0].ID)))
		}
	}
	pages = append(pages, at("jobs", "queue", q, "kind", "none"), at("jobs", "queue", q, "state", "dead", "kind", "none"),
		at("jobs", "queue", q, "key", "k7"),
		at("bulk", "queue", q, "state", "ready", "do", "cancel"), at("bulk", "queue", q, "state", "dead", "do", "retry"),
		at("bulk", "queue", q, "state", "dead", "do", "retry", "kind", "none"))
	runs, _, err := scheduler.RecentRuns(t.Context(), db.DB, scheduler.RunFilter{Limit: 1})
	if err != nil || len(runs) == 0 {
		t.Fatal(runs, err)
	}
	return append(pages, at("run", "id", fmt.Sprint(runs[0].ID)))
}

// loadQueues makes jobs: three quarters are ready; the others are dead, delayed, or done and kept.
// It spreads them over ten queues, of which the first has the most.
func loadQueues(t *testing.T, db *dbtest.DB, n int) (names []string) {
	t.Helper()
	c, err := queue.New(db.DB, queue.Options{})
	if err != nil {
		t.Fatal(err)
	}
	const seed = 10_000
	var jobs []queue.Job
	for i := range min(seed, n) {
		name := "mail"
		if i%20 < 9 {
			name = fmt.Sprint("queue-", i%20)
		}
		j := queue.Job{Queue: name, Kind: []string{"welcome", "invoice", "reminder"}[i%3], Payload: payload(i)}
		if i%10 == 0 {
			j.Key = fmt.Sprint("k", i)
		}
		jobs = append(jobs, j)
	}
	first, last := int64(0), int64(0)
	for part := range slices.Chunk(jobs, 1000) {
		all, err := c.EnqueueMany(t.Context(), part)
		if err != nil {
			t.Fatal(err)
		}
		if first == 0 {
			first = all[0].ID
		}
		last = all[len(all)-1].ID
	}
	const columns = `queue_id, divided, priority, id, kind, job_key, payload`
	ready := n * 3 / 4
	for have, more := len(jobs), last-first+1000; have < ready; have, more = 2*have, 2*more {
		db.Do(t, `INSERT INTO {prefix}job (`+columns+`) SELECT queue_id, divided, priority, id - :more, kind, job_key, payload
			FROM (SELECT * FROM {prefix}job LIMIT :n) AS seed`, sqlrun.Args{"more": more, "n": min(have, ready-have)})
	}
	for _, to := range []struct{ columns, values, where string }{
		{
			`job_dead (attempt, error, died_at, purge_at,`,
			`10, CASE WHEN id % 5 = 0 THEN '550 5.1.1 no such user' WHEN id % 5 < 3 THEN 'dial tcp 192.0.2.25:25: i/o timeout' ELSE 'the bank refuses: card expired' END, {now}, {now}`, `id % 7 = 1`,
		},
		{
			`job_delayed (attempt, error, run_at,`,
			`CASE WHEN id % 5 = 0 THEN 2 ELSE 0 END, CASE WHEN id % 5 = 0 THEN 'POST https://example.org: 503' ELSE '' END, {now + 3600000000 + id % 1000000}`, `id % 11 = 3`,
		},
		{
			`job_done (attempt, crashes, outcome, error, worker, started_at, ended_at, purge_at,`,
			`1, 0, 'done', '', 'n1', {now}, {now}, {now}`, `id % 13 = 5`,
		},
	} {
		db.Do(t, `INSERT INTO {prefix}`+to.columns+columns+`) SELECT `+to.values+
			`, queue_id, divided, priority, id + 7, kind, job_key, payload FROM {prefix}job WHERE `+to.where, nil)
	}
	return []string{"mail"}
}

// loadSchedules makes schedules, and runs for the first thousand of them.
func loadSchedules(t *testing.T, db *dbtest.DB, n, runs int) {
	t.Helper()
	now, err := scheduler.Clock(t.Context(), db.DB)
	if err != nil {
		t.Fatal(err)
	}
	batches := func(n int, query string, row func(i int) sqlrun.Args) {
		t.Helper()
		for i := 0; i < n; i += 1000 {
			rows := make([]sqlrun.Args, 0, 1000)
			for j := i; j < min(n, i+1000); j++ {
				rows = append(rows, row(j))
			}
			db.Do(t, query, sqlrun.Args{"rows": rows})
		}
	}
	batches(n, `INSERT INTO {prefix}schedule (name, spec, command, state, due_at, next_exec) VALUES {values rows: (:name, '30 3 * * *', 'true', :state, {time :at}, {time :at})}`, func(i int) sqlrun.Args {
		state := "active"
		if i%100_000 == 99 {
			state = "failed"
		}
		return sqlrun.Args{"name": fmt.Sprintf("s%07d", i), "state": state, "at": now.Add(time.Hour + time.Duration(i)*time.Second).UnixMicro()}
	})
	batches(runs, `INSERT INTO {prefix}run (schedule, due_at, attempt, state, started_at, finished_at, exec_by, output)
		VALUES {values rows: (:name, {time :at}, 1, :state, {time :at}, {time :at}, 'host:1:x', 'dumping table orders')}`, func(i int) sqlrun.Args {
		state := "ok"
		if i%1000 == 7 {
			state = "failed"
		}
		return sqlrun.Args{
			"name": fmt.Sprintf("s%07d", i%1000), "state": state,
			"at": now.Add(-time.Duration(runs-i) * 50 * time.Millisecond).UnixMicro(),
		}
	})
}
