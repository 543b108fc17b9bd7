package dashboard

import (
	"context"
	"encoding/json"
	"errors"
	"html"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/httpapi"
	"github.com/dbcron/dbcron/httpapi/push"
	"github.com/dbcron/dbcron/internal/ops/audit"
	"github.com/dbcron/dbcron/internal/plain"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/lock"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/queue/queuetest"
	"github.com/dbcron/dbcron/scheduler"
)

// hostile is a name as an enemy of those who look would choose it.
const hostile = `"><script>alert(1)</script>&amp;<img src=x onerror=alert(2)>`

// big is a number that floating point would round.
const big = "12345678901234567890"

// each is dbtest.Each, beside the other tests.
func each(t *testing.T, f func(t *testing.T, db *dbtest.DB)) {
	t.Helper()
	t.Parallel()
	dbtest.Each(t, f, (*testing.T).Parallel)
}

// having is each on the engines that have something: see dbtest.With.
func having(t *testing.T, has dbtest.With, f func(t *testing.T, db *dbtest.DB)) {
	t.Helper()
	t.Parallel()
	has.Each(t, f, (*testing.T).Parallel)
}

// memory is each on the engines for what happens in memory: see dbtest.Memory.
func memory(t *testing.T, f func(t *testing.T, db *dbtest.DB)) {
	t.Helper()
	t.Parallel()
	dbtest.Memory.Each(t, f, (*testing.T).Parallel)
}

var must = dbtest.Must

// A site is a served dashboard, and a browser that visits it.
type site struct {
	t      *testing.T
	url    string // below which it is
	board  *Dashboard
	client *http.Client
}

// serve serves a dashboard below a path until the test ends.
func serve(t *testing.T, db *dialect.DB, prefix string, opt Options) *site {
	t.Helper()
	return serveBeside(t, db, prefix, httpapi.Options{}, opt)
}

// serveBeside is serve, beside an API that has options.
func serveBeside(t *testing.T, db *dialect.DB, prefix string, of httpapi.Options, opt Options) *site {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	of.Node, of.Logger = "test", log
	api, err := httpapi.New(db, of)
	must(t, err)
	opt.Logger, opt.Node = log, "test"
	board, err := New(db, api, opt)
	must(t, err)
	mux := http.NewServeMux()
	mux.Handle(prefix+"/", http.StripPrefix(prefix, board))
	server := httptest.NewServer(mux)
	t.Cleanup(func() {
		server.Close()
		must(t, board.Flush(context.WithoutCancel(t.Context())))
	})
	return (&site{t: t, url: server.URL + prefix + "/", board: board}).another()
}

// another is another browser.
func (s *site) another() *site {
	s.t.Helper()
	jar, err := cookiejar.New(nil)
	must(s.t, err)
	other := *s
	other.client = &http.Client{Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return &other
}

// An answer is the answer to a request.
type answer struct {
	t      *testing.T
	what   string
	status int
	header http.Header
	text   string
}

func (s *site) do(method, path string, form url.Values, headers ...string) *answer {
	s.t.Helper()
	var body io.Reader
	if form != nil {
		body = strings.NewReader(form.Encode())
	}
	base, err := url.Parse(s.url)
	must(s.t, err)
	to, err := base.Parse(path)
	must(s.t, err)
	r, err := http.NewRequestWithContext(s.t.Context(), method, to.String(), body)
	must(s.t, err)
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		if r.Header.Set(name, value); name == "Host" {
			r.Host = value
		}
	}
	w, err := s.client.Do(r)
	must(s.t, err)
	defer w.Body.Close()
	text, err := io.ReadAll(w.Body)
	must(s.t, err)
	return &answer{s.t, method + " " + path, w.StatusCode, w.Header, string(text)}
}

func (s *site) get(path string) *answer {
	s.t.Helper()
	return s.do(http.MethodGet, path, nil).is(200)
}

// post sends a form as the dashboard's own page does, and follows the redirect to the result.
func (s *site) post(path string, pairs ...string) *answer {
	s.t.Helper()
	a := s.try(path, pairs...).is(303)
	return s.get(a.header.Get("Location"))
}

// try sends a form.
func (s *site) try(path string, pairs ...string) *answer {
	s.t.Helper()
	form := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		form.Set(pairs[i], pairs[i+1])
	}
	return s.do(http.MethodPost, path, form, "Sec-Fetch-Site: same-origin")
}

func (a *answer) is(status int) *answer {
	a.t.Helper()
	if a.status != status {
		a.t.Fatalf("%s: got %d, want %d: %s", a.what, a.status, status, a.banner())
	}
	return a
}

// banner returns a page's error, for messages.
func (a *answer) banner() string {
	if _, text, ok := strings.Cut(a.text, `class="banner`); ok {
		text, _, _ = strings.Cut(text, "</p>")
		return text
	}
	return plain.Cut(a.text, 300)
}

func (a *answer) has(texts ...string) *answer {
	a.t.Helper()
	for _, text := range texts {
		if !strings.Contains(a.text, text) && !strings.Contains(html.UnescapeString(a.text), text) {
			_, main, _ := strings.Cut(a.text, "<main")
			a.t.Errorf("%s: there is no %q in %s", a.what, text, plain.Cut(main, 4000))
		}
	}
	return a
}

func (a *answer) lacks(texts ...string) *answer {
	a.t.Helper()
	for _, text := range texts {
		if strings.Contains(a.text, text) {
			a.t.Errorf("%s: there is %q", a.what, text)
		}
	}
	return a
}

// A world is a database that has some of everything.
type world struct {
	ready, delayed, dead, strange int64 // jobs of the queue mail; strange is one whose names are hostile
	run                           int64 // that has failed
	group                         int64 // with hostile names
}

// newWorld makes some of everything, also with hostile names.
func newWorld(t *testing.T, db *dbtest.DB) (w world) {
	t.Helper()
	ctx := t.Context()
	c := queuetest.Client(t, db.DB)
	enqueue := func(j queue.Job) int64 {
		t.Helper()
		e, err := c.Enqueue(ctx, j)
		must(t, err)
		return e.ID
	}
	w.dead = enqueue(queue.Job{Queue: "mail", Kind: "bounce", Payload: []byte(`{"to":"ada"}`)})
	worker, err := c.Worker(queue.WorkerOptions{Queues: []string{"mail"}})
	must(t, err)
	must(t, worker.Handle("bounce", func(context.Context, *queue.Delivery) error {
		return queue.Bury(errors.New("550 no such user <b>ada</b>"))
	}))
	queuetest.DrainAll(t, worker)
	w.ready = enqueue(queue.Job{
		Queue: "mail", Kind: "welcome", Key: "ada",
		Payload: []byte(`{"n":` + big + `,"a":[1,{"b":null,"c":true}],"text":"a<b>\u202e"}`),
	})
	w.delayed = enqueue(queue.Job{Queue: "mail", Kind: "welcome", Delay: time.Hour})
	w.strange = enqueue(queue.Job{
		Queue: "mail", Kind: hostile, Key: hostile,
		Payload: []byte(`{"</script><script>alert(3)</script>":"` + "\u2028" + `<svg onload=alert(4)>"}`),
	})
	enqueue(queue.Job{Queue: hostile, Kind: "x", Payload: []byte{0xff, 0}, Binary: true})
	must(t, adminOf(c).Pause(ctx, hostile, hostile))
	must(t, adminOf(c).SetRoute(ctx, hostile, hostile))
	must(t, c.Subscribe(ctx, hostile, hostile))
	w.group, err = c.NewGroup(ctx, queue.Group{Name: hostile, Callback: &queue.Job{Kind: hostile}})
	must(t, err)
	failing := enqueue(queue.Job{Queue: hostile, Kind: hostile, Group: w.group})
	_, err = adminOf(c).EditLimit(ctx, "mail", "", func(l *admin.Limit) { l.Running, l.Rate, l.Per = 7, 100, time.Minute })
	must(t, err)

	for _, s := range []scheduler.Schedule{
		{Name: "backup", Spec: "30 3 * * *", Zone: "Europe/Berlin", Command: "pg_dump app"},
		{Name: hostile, Spec: "@hourly", Kind: "http", Command: "GET https://example.org/?key=geheim"},
		{Name: "idle", Spec: "@manual", Command: "true"},
		{Name: "digest", Spec: "@daily", Kind: "job", Command: "digest", Stdin: `{"to":"<b>ada"}`},
	} {
		must(t, scheduler.Add(ctx, db.DB, s))
	}
	now, err := scheduler.Clock(ctx, db.DB)
	must(t, err)
	db.Do(t, `INSERT INTO {prefix}job_count (minute, queue_id, kind, done, failed, dead, wait_us, run_us)
		SELECT {time :at}, queue_id, 'bounce', 1234, 5, 1, 2000000, 3000000 FROM {prefix}queue WHERE name = 'mail'`,
		sqlrun.Args{"at": now.Truncate(time.Minute).Add(-5 * time.Minute).UnixMicro()})
	db.Do(t, `INSERT INTO {prefix}job_count (minute, queue_id, kind, done, wait_us) SELECT {time :at}, queue_id, 'bounce', 766, 766 FROM {prefix}queue WHERE name = 'mail'`,
		sqlrun.Args{"at": now.Truncate(time.Minute).Add(-5 * time.Hour).UnixMicro()})
	_, err = push.NewEndpoints(db.DB).Set(ctx, adminOf(c), hostile, func(e *push.Endpoint) { e.URL = "https://worker.example/?key=geheim" })
	must(t, err)
	said, err := json.Marshal([]map[string]any{{
		"at": now.Add(-3 * time.Second).UnixMicro(), "took": 70_000, "status": 503, "error": hostile, "origin": hostile, "job": failing, "by": hostile, "failures": 4,
	}, {"at": now.Add(-9 * time.Second).UnixMicro(), "status": 503, "error": "HTTP 503 " + hostile, "job": failing, "by": "host:1", "failures": 4}})
	must(t, err)
	db.Do(t, `INSERT INTO {prefix}endpoint_answers (queue_id, answers) SELECT queue_id, :said FROM {prefix}queue WHERE name = :name`,
		sqlrun.Args{"said": string(said), "name": hostile})
	for i, name := range []string{hostile, "backup"} {
		db.Do(t, `INSERT INTO {prefix}run (schedule, due_at, attempt, state, started_at, finished_at, exec_by, exit_code, error, output)
			VALUES (:name, {time :at}, 1, 'failed', {time :at}, {time :end}, 'host:1:x', 3, :error, :output)`, sqlrun.Args{
			"name": name, "at": now.Add(-time.Hour).UnixMicro(), "end": now.Add(-time.Hour + 90*time.Second).UnixMicro(),
			"error": "exit code 3 " + hostile, "output": "dumping\n" + hostile + "\x1b[31m\n", "i": i,
		})
	}
	runs, err := scheduler.History(ctx, db.DB, "backup", 1)
	must(t, err)
	w.run = runs[0].ID

	locker, err := lock.New(db.DB, lock.Options{Owner: "host-7", TTL: time.Hour})
	must(t, err)
	for _, name := range []string{"migration", hostile} {
		lease, err := locker.TryAcquire(ctx, name)
		must(t, err)
		t.Cleanup(func() { must(t, lease.Release(context.WithoutCancel(ctx))) })
	}
	db.Do(t, `INSERT INTO {prefix}node (name, state, expire_at) VALUES (:name, 'live', {time :at})`,
		sqlrun.Args{"name": hostile, "at": now.Add(-time.Minute).UnixMicro()})
	db.Do(t, `INSERT INTO {prefix}node (name, state, expire_at) VALUES ('web-1:4711', 'live', {time :at})`,
		sqlrun.Args{"at": now.Add(time.Hour).UnixMicro()})
	_, err = audit.Write(ctx, db.DB, audit.Entry{
		Actor: hostile, Login: audit.Proxy, Source: audit.Dashboard,
		Action: "job.cancel", Object: hostile, Count: 3, Detail: hostile,
	})
	must(t, err)
	return w
}

// pages are all pages of a world.
func (w *world) pages() []string {
	return []string{
		"", "queues", link("queue", "name", "mail"), link("queue", "name", hostile), link("jobs", "queue", "mail"),
		link("jobs", "queue", "mail", "state", "dead"),
		link("jobs", "queue", "mail", "state", "delayed"), link("jobs", "queue", hostile),
		link("jobs", "queue", "mail", "kind", hostile, "key", hostile, "where", `$.n = `+big),
		link("job", "queue", "mail", "id", w.ready), link("job", "queue", "mail", "id", w.dead), link("job", "queue", "mail", "id", w.strange),
		"errors", link("errors", "queue", "mail"), link("errors", "queue", hostile), link("clone", "queue", "mail", "id", w.ready),
		link("clone", "queue", "mail", "id", w.strange),
		link("bulk", "queue", "mail", "state", "dead", "do", "retry"),
		link("bulk", "queue", "mail", "do", "cancel", "kind", hostile, "key", hostile, "where", "$.n", "like", "<b>"),
		link("bulk", "queue", "mail", "do", "cancel", "id", w.ready),
		link("bulk", "queue", hostile, "state", "ready", "do", "cancel", "from", "end", "done", 7),
		"schedules", link("schedules", "state", "active"), link("schedules", "from", "backup"),
		link("schedule", "name", "backup"), link("schedule", "name", hostile), link("schedule", "name", "digest"),
		link("backfill", "name", "backup", "from", "2026-01-02T03:30", "to", "2026-01-04T03:29"),
		"runs", link("runs", "state", "failed"), link("run", "id", w.run), link("run", "id", w.run-1), "locks",
		link("lock", "name", "migration"), link("lock", "name", hostile), "daemons",
		"routes", "topics", "groups", link("groups", "state", "open"), link("group", "id", w.group), "tokens",
		"audit", link("audit", "actor", hostile, "action", "job.cancel", "object", hostile),
	}
}

// adminOf returns an admin client for a client's database.
func adminOf(c *queue.Client) *admin.Client {
	a, err := admin.New(c.DB(), admin.Options{})
	if err != nil {
		panic(err)
	}
	return a
}
