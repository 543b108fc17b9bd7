package browser

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dashboard"
	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/httpapi"
	"github.com/dbcron/dbcron/httpapi/push"
	"github.com/dbcron/dbcron/internal/ops/audit"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/lock"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/queue/queuetest"
	"github.com/dbcron/dbcron/scheduler"
	"github.com/dbcron/dbcron/sqlschema"
)

const (
	hostile  = `"><script>document.title='broken'</script><img src=x onerror="document.title='broken'">`
	longName = "nightly-export-of-everything-that-the-warehouse-has-in-all-of-its-regions-for-the-auditors"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// serve serves a dashboard below /ops until the test ends, and returns its address.
func serve(t *testing.T, db *dialect.DB) string {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	api, err := httpapi.New(db, httpapi.Options{Logger: log})
	must(t, err)
	board, err := dashboard.New(db, api, dashboard.Options{Logger: log, Version: "v0.1.0"})
	must(t, err)
	mux := http.NewServeMux()
	mux.Handle("/ops/", http.StripPrefix("/ops", board))
	server := httptest.NewServer(mux)
	t.Cleanup(func() {
		server.Close()
		must(t, board.Flush(context.WithoutCancel(t.Context())))
	})
	return server.URL + "/ops/"
}

// A world has some of everything, and very many of something.
type world struct {
	dead, ready, delayed int64
	strange              int64 // a job whose names are hostile
	failed, running      int64 // runs
	group                int64
}

// webhooks makes a queue with an endpoint that was healthy and now pushes back, with two jobs that
// wait for another day.
func webhooks(t *testing.T, db *dbtest.DB, c *queue.Client) {
	t.Helper()
	_, err := push.NewEndpoints(db.DB).Set(t.Context(), adminOf(c), "webhooks", func(e *push.Endpoint) { e.URL = "https://partner.example.org/hooks?key=secret" })
	must(t, err)
	for range 2 {
		_, err = c.Enqueue(t.Context(), queue.Job{Queue: "webhooks", Kind: "order.paid", Delay: 26 * time.Hour})
		must(t, err)
	}
	now, err := scheduler.Clock(t.Context(), db.DB)
	must(t, err)
	var answers []map[string]any
	for i, ago := range []time.Duration{7 * time.Second, 24 * time.Second, 31 * time.Second, time.Minute, 2 * time.Minute} {
		a := map[string]any{
			"at": now.Add(-ago).UnixMicro(), "took": 48_000 + 700*i, "status": 503, "error": "HTTP 503 Service Unavailable: we are back at 4 o'clock", "job": 891603368580005642 + i,
			"by": "app-1.example.org:4711", "failures": 3 - i, "until": now.Add(-ago + 15*time.Second).UnixMicro(),
		}
		if i > 2 {
			a["status"], a["error"], a["failures"], a["until"] = 200, "", 0, 0
		}
		answers = append(answers, a)
	}
	text, err := json.Marshal(answers)
	must(t, err)
	db.Do(t, `INSERT INTO {prefix}endpoint_answers (queue_id, answers) SELECT queue_id, :answers FROM {prefix}queue WHERE name = 'webhooks'`,
		sqlrun.Args{"answers": string(text)})
}

// life fills a database as after a day's work.
func life(t *testing.T, db *dbtest.DB, many int) (w world) {
	t.Helper()
	ctx := t.Context()
	c := queuetest.Client(t, db.DB)
	for kind, n := range map[string]int{"invoice": 9, "reminder": 4} {
		for i := range n {
			_, err := c.Enqueue(ctx, queue.Job{
				Queue: "billing", Kind: kind, Key: fmt.Sprint("customer-", i),
				Payload: []byte(fmt.Sprintf(`{"customer":%d,"amount":"%d.50"}`, 4200+i, i)),
			})
			must(t, err)
		}
	}
	worker, err := c.Worker(queue.WorkerOptions{Queues: []string{"billing"}})
	must(t, err)
	must(t, worker.Handle("invoice", func(context.Context, *queue.Delivery) error { return nil }))
	must(t, worker.Handle("reminder", func(context.Context, *queue.Delivery) error {
		return queue.Bury(errors.New("550 5.1.1 <ada@example.org>: no such user here\nremote: mx1.example.org, after 3 redirects"))
	}))
	queuetest.DrainAll(t, worker)
	dead, _, err := adminOf(c).Jobs(ctx, admin.Filter{Queue: "billing", State: admin.StateDead})
	must(t, err)
	w.dead = dead[0].ID
	for range 5 {
		e, err := c.Enqueue(ctx, queue.Job{
			Queue: "mail", Kind: "welcome", Key: "ada",
			Payload: []byte(`{"to":"ada@example.org","order":12345678901234567890,"items":[{"sku":"A-17","n":2,"gift":true},{"sku":"B-4","n":1,"note":null}],"text":"Dear Ada,\nthank you for your order. It will be on its way tomorrow, and we hope that you like it."}`),
		})
		must(t, err)
		w.ready = e.ID
	}
	e, err := c.Enqueue(ctx, queue.Job{Queue: "mail", Kind: "reminder", Delay: 3 * time.Hour})
	must(t, err)
	w.delayed = e.ID
	webhooks(t, db, c)
	for n := 0; n < many; n += 500 {
		jobs := make([]queue.Job, 500)
		for i := range jobs {
			jobs[i] = queue.Job{Queue: "thumbnails", Kind: "resize", Payload: []byte(fmt.Sprintf(`{"image":%d}`, n+i))}
		}
		_, err := c.EnqueueMany(ctx, jobs)
		must(t, err)
	}
	e, err = c.Enqueue(ctx, queue.Job{Queue: hostile, Kind: hostile, Payload: []byte(`{"` + strings.ReplaceAll(hostile, `"`, `\"`) + `":1}`)})
	must(t, err)
	w.strange = e.ID
	for _, to := range []string{"mail", "billing", hostile} {
		must(t, c.Subscribe(ctx, "order-placed", to))
	}
	w.group, _, err = c.EnqueueGroup(ctx, queue.Group{Name: "catalogue of the autumn", Callback: &queue.Job{Kind: "publish", Queue: "mail"}},
		queue.Job{Queue: "catalogue", Kind: "page"}, queue.Job{Queue: "catalogue", Kind: "page"}, queue.Job{Queue: "catalogue", Kind: longName})
	must(t, err)
	for kind, to := range map[string]string{"resize": "catalogue", "invoice": "billing", "*": "mail", longName: "billing"} {
		must(t, adminOf(c).SetRoute(ctx, kind, to))
	}
	for _, e := range []audit.Entry{
		{
			Actor: "ada", Login: audit.Token, Source: audit.Dashboard, Action: "job.retry", Object: "billing",
			Count: 1234, Detail: "state=dead kind=invoice",
		},
		{
			Actor: "deploy@app-1.example.org", Login: audit.OS, Source: audit.CLI, Action: "schedule.import",
			Object: "/etc/dbcron/schedules.yaml", Count: 3, Detail: "2 added, 1 changed",
		},
		{
			Actor: longName + "@example.org", Login: audit.Proxy, Source: audit.Dashboard, Action: "queue.pause",
			Object: longName, Count: 1, Detail: "the mail server moves to the new data centre, and comes back on Monday; ask ops@example.org if that is too late for you",
		},
		{Actor: hostile, Login: audit.Token, Source: audit.API, Action: "limit.set", Object: hostile, Count: 1, Detail: hostile},
	} {
		_, err := audit.Write(ctx, db.DB, e)
		must(t, err)
	}
	must(t, adminOf(c).Pause(ctx, "mail", "the mail server moves to the new data centre"))
	_, err = adminOf(c).EditLimit(ctx, "mail", "", func(l *admin.Limit) { l.Running, l.Rate, l.Per = 8, 200, time.Minute })
	must(t, err)

	for _, s := range []scheduler.Schedule{
		{Name: "backup", Spec: "30 3 * * *", Zone: "Europe/Berlin", Command: "pg_dump app | gzip > /backup/app.gz"},
		{Name: longName, Spec: "*/15 * * * *", Command: "export --all"},
		{Name: "report-daily", Spec: "0 6 * * *", Command: "report"},
		{Name: "report-weekly", Spec: "0 6 * * 1", Zone: "America/New_York", Command: "report --week"},
		{Name: "ping", Spec: "* * * * *", Kind: "http", Command: "GET https://example.org/health?key=secret"},
		{Name: "vacuum", Spec: "@daily", Kind: "sql", Command: "DELETE FROM session WHERE expires < now()"},
		{Name: hostile, Spec: "@hourly", Command: "echo"},
		{Name: "by-hand", Spec: "@manual", Command: "true"},
		{Name: "holidays", Spec: "@hourly", Command: "true"},
	} {
		must(t, scheduler.Add(ctx, db.DB, s))
	}
	must(t, scheduler.Pause(ctx, db.DB, "holidays", "until 7 January"))
	now, err := scheduler.Clock(ctx, db.DB)
	must(t, err)
	db.Do(t, `UPDATE {prefix}schedule SET due_at = {time :at}, next_exec = {time :at} WHERE name = 'ping'`,
		sqlrun.Args{"at": now.Add(-3 * time.Minute).UnixMicro()})
	db.Do(t, `UPDATE {prefix}schedule SET state = 'failed', reason = 'it has failed 5 times in a row', next_exec = NULL, failures = 5 WHERE name = 'vacuum'`, nil)
	var rows []sqlrun.Args
	for i := range 60 {
		due := now.Add(-time.Duration(61-i) * 15 * time.Minute)
		state, why, code := "ok", "", 0
		switch {
		case i%17 == 11:
			state, why, code = "failed", "exit code 3: connection refused: warehouse.example.com:5432", 3
		case i%23 == 20:
			state, why = "skipped", "the run before is under way"
		case i == 40:
			state, why = "timeout", "it took longer than 10m"
		}
		rows = append(rows, sqlrun.Args{
			"name": longName, "at": due.UnixMicro(),
			"end": due.Add(time.Duration(20+(i*37)%60) * time.Second).UnixMicro(), "state": state, "error": why,
			"code": code, "output": "exporting region eu-central\n" + hostile + "\n" + strings.Repeat("copied 10000 rows\n", 30),
		})
	}
	db.Do(t, `INSERT INTO {prefix}run (schedule, due_at, attempt, state, started_at, finished_at, exec_by, exit_code, error, output)
		VALUES {values rows: (:name, {time :at}, 1, :state, {time :at}, {time :end}, 'app-1.example.org:4711:K3XQ', :code, :error, :output)}`, sqlrun.Args{"rows": rows})
	db.Do(t, `INSERT INTO {prefix}run (schedule, due_at, attempt, state, started_at, next_exec, exec_by, output)
		VALUES ('backup', {time :at}, 1, 'running', {time :at}, {time :until}, 'app-2.example.org:815:Z7PA', 'dumping table orders')`, sqlrun.Args{"at": now.Add(-2 * time.Minute).UnixMicro(), "until": now.Add(time.Hour).UnixMicro()})
	runs, _, err := scheduler.RecentRuns(ctx, db.DB, scheduler.RunFilter{States: []string{"failed"}, Limit: 1})
	must(t, err)
	w.failed = runs[0].ID
	runs, _, err = scheduler.RecentRuns(ctx, db.DB, scheduler.RunFilter{States: []string{"running"}, Limit: 1})
	must(t, err)
	w.running = runs[0].ID
	for i := range 55 {
		db.Do(t, `INSERT INTO {prefix}job_count (minute, queue_id, kind, done, failed, dead, wait_us, run_us)
			SELECT {time :at}, queue_id, 'invoice', :done, :failed, :dead, :wait, :took FROM {prefix}queue WHERE name = 'billing'`, sqlrun.Args{
			"at": now.Truncate(time.Minute).Add(-time.Duration(i+1) * time.Minute).UnixMicro(), "done": 300 + (i*i*13)%190,
			"failed": boolInt(i%9 == 4) * 22, "dead": boolInt(i%19 == 7) * 6, "wait": int64(300_000_000), "took": int64(20_000_000),
		})
	}

	locker, err := lock.New(db.DB, lock.Options{Owner: "app-1.example.org:4711", TTL: time.Hour})
	must(t, err)
	for _, name := range []string{"migration", "warehouse-export", hostile} {
		lease, err := locker.TryAcquire(ctx, name)
		must(t, err)
		t.Cleanup(func() { must(t, lease.Release(context.WithoutCancel(ctx))) })
	}
	db.Do(t, `INSERT INTO {prefix}node (name, state, expire_at, started_at) VALUES ('app-1.example.org:4711:K3XQ', 'live', {time :later}, {time :start}), ('app-2.example.org:815:Z7PA', 'live', {time :later}, {time :start}), ('app-3.example.org:99:BBCD', 'live', {time :past}, {time :start})`,
		sqlrun.Args{
			"later": now.Add(time.Hour).UnixMicro(), "past": now.Add(-4 * time.Minute).UnixMicro(),
			"start": now.Add(-9 * time.Hour).UnixMicro(),
		})
	return w
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// serveText serves a page.
func serveText(t *testing.T, text string) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = w.Write([]byte(text))
	}))
	t.Cleanup(server.Close)
	return strings.Replace(server.URL, "127.0.0.1", "localhost", 1) + "/"
}

func migrate(t *testing.T, db *dbtest.DB) error {
	t.Helper()
	return sqlschema.Migrate(t.Context(), db.DB)
}

// adminOf returns an admin client for a client's database.
func adminOf(c *queue.Client) *admin.Client {
	a, err := admin.New(c.DB(), admin.Options{})
	if err != nil {
		panic(err)
	}
	return a
}
