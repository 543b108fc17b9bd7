package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/dbcron/dbcron/client"
	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/dialect/engines"
	"github.com/dbcron/dbcron/httpapi"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/wire"
)

// An outside asks for the same noun in three ways.
type outside struct {
	t     *testing.T
	env   []string
	api   *httptest.Server
	c     *client.Client
	there context.Context
	db    *dbtest.DB
}

// command returns what a command prints on the database. One that reads says the same through the daemon.
func (o *outside) command(args ...string) string {
	o.t.Helper()
	text := o.with(o.env, args...)
	if slices.ContainsFunc(throughDaemon, func(words string) bool { return strings.HasPrefix(strings.Join(args, " "), words) }) {
		if remote := o.with([]string{"DBCRON_URL=" + o.api.URL}, args...); timeless(remote) != timeless(text) {
			o.t.Errorf("%v: on the database it says\n%s\nthrough the daemon\n%s", args, text, remote)
		}
	}
	return text
}

// throughDaemon are the beginnings of commands of this test that read, and work through a daemon.
var throughDaemon = []string{
	"job get", "job explain", "job list", "job stats", "queue list", "queue peek", "queue show", "route list", "topic list", "finding list", "limit list", "endpoint list", "endpoint show",
	"group list", "group show", "lock list", "node list", "audit", "schedule list", "schedule show", "schedule next", "schedule explain", "schedule history",
}

// timeless leaves out how long a lock is held for, and other numbers that go on.
func timeless(text string) string {
	return regexp.MustCompile(`"(now|left_seconds|oldest_ready_seconds|in_per_minute|out_per_minute|empty_seconds|empty_in)":[^,}]+,?`).
		ReplaceAllString(text, "")
}

func (o *outside) with(env []string, args ...string) string {
	o.t.Helper()
	var out, errs bytes.Buffer
	p := &program{in: strings.NewReader(""), out: &out, err: &errs, environ: env}
	if code := run(o.there, p, args); code != 0 {
		o.t.Fatalf("%v with %v: exit code %d: %s", args, env, code, &errs)
	}
	return strings.TrimSpace(out.String())
}

// get returns what the API answers.
func (o *outside) get(path string) string {
	o.t.Helper()
	return o.ask(http.MethodGet, path, "")
}

// ask returns what the API answers to a request with a body.
func (o *outside) ask(method, path, body string) string {
	o.t.Helper()
	r, err := http.NewRequestWithContext(o.there, method, o.api.URL+"/api/v1"+path, strings.NewReader(body))
	o.must(err)
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	answer, err := o.api.Client().Do(r)
	o.must(err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if o.must(err); answer.StatusCode/100 != 2 {
		o.t.Fatalf("%s: %d %s", path, answer.StatusCode, text)
	}
	return string(text)
}

func (o *outside) must(err error) {
	o.t.Helper()
	if err != nil {
		o.t.Fatal(err)
	}
}

// said returns a part of a text of JSON: a member, or an item.
func (o *outside) said(text string, at ...any) (v any) {
	o.t.Helper()
	o.must(json.Unmarshal([]byte(text), &v))
	for _, key := range at {
		switch key := key.(type) {
		case int:
			v = v.([]any)[key]
		case string:
			v = v.(map[string]any)[key]
		}
	}
	return v
}

// same compares what is said of a noun.
func (o *outside) same(noun string, command, api any, clients ...any) {
	o.t.Helper()
	if !reflect.DeepEqual(command, api) {
		o.t.Errorf("%s: the command says\n%v\nthe API says\n%v", noun, command, api)
	}
	for _, v := range clients {
		text, err := json.Marshal(v)
		o.must(err)
		if c := o.said(string(text)); !reflect.DeepEqual(c, api) {
			o.t.Errorf("%s: the client says\n%v\nthe API says\n%v", noun, c, api)
		}
	}
}

// listed returns a list of the API as the client has it: what its types of the package wire lack is missing.
func listed[T any](o *outside, path, name string) []T {
	o.t.Helper()
	return reads[map[string][]T](o, path)[name]
}

// reads returns an answer of the API as the client has it.
func reads[T any](o *outside, path string) (out T) {
	o.t.Helper()
	o.must(o.c.Do(o.there, client.Request{Method: http.MethodGet, Path: path}, &out))
	return out
}

// Commands with -o json, the API and the client say the same about the same noun. There is no operation on tokens, which
// only the database makes.
func TestOneJSON(t *testing.T) {
	dbtest.Memory.EachEmpty(t, func(t *testing.T, db *dbtest.DB) {
		o := &outside{t: t, env: []string{"DBCRON_DATABASE_URL=" + db.URL}, there: t.Context(), db: db}
		o.command("migrate", "up")
		there, err := engines.Open(o.there, db.URL, dialect.Options{})
		o.must(err)
		defer there.Close()
		api, err := httpapi.New(there, httpapi.Options{Logger: slog.New(slog.DiscardHandler)})
		o.must(err)
		defer api.Close()
		o.api = httptest.NewServer(api)
		defer o.api.Close()
		o.c, err = client.New(o.api.URL, client.Options{})
		o.must(err)
		o.nouns()
		o.processes()
	})
}

func (o *outside) nouns() {
	o.command("queue", "set", "ledger")
	o.command("queue", "pause", "ledger", "--reason", "the year ends")
	findings, err := o.c.Findings(o.there)
	o.must(err)
	o.must(o.c.AcknowledgeFinding(o.there, findings[0].ID, "as planned"))
	findings, err = o.c.Findings(o.there)
	o.must(err)
	o.same("findings", o.said(o.command("finding", "list", "-o", "json")), o.said(o.get("/findings"), "findings"), findings)
	o.command("queue", "resume", "ledger")
	for _, args := range [][]string{
		{"--priority", "urgent", "--delay", "1h", "--timeout", "90s", "--max-attempts", "3", "--unique", "u", "--key", "k", "x", `{"a": [1]}`},
		{"plain"},
	} {
		id := o.command(append([]string{"job", "enqueue", "--queue", "mail"}, args...)...)
		of, err := o.c.Job(o.there, "mail", id)
		o.must(err)
		o.same("job", o.said(o.command("job", "get", id, "-o", "json")), o.said(o.get("/jobs/"+id)), of)
		if of.State == "ready" {
			o.same("explanation of a job", o.said(timeless(o.command("job", "explain", id, "-o", "json"))), o.said(timeless(o.get("/jobs/"+id+"/explain"))))
		}
	}
	jobs, err := o.c.Jobs(o.there, "mail", client.Filter{State: "delayed"})
	o.must(err)
	o.same("jobs", o.said(o.command("job", "list", "--queue", "mail", "--state", "delayed", "-o", "json")),
		o.said(o.get("/queues/mail/jobs?state=delayed"), "jobs"), jobs.Jobs)

	o.command("queue", "set", "mail", "--keep-dead", "forever", "--keep-dead-max", "7", "--timeout", "none", "--notify", "ada@example.org")
	o.command("queue", "set", "ledger", "--fifo")
	for i, name := range []string{"ledger", "mail"} {
		of, err := o.c.Queue(o.there, name)
		o.must(err)
		api, command := o.said(o.get("/queues/"+name)).(map[string]any), o.said(o.command("queue", "list", "-o", "json"), i).(map[string]any)
		stats := o.said(o.get("/queues/" + name + "/stats")).(map[string]any)
		for field, is := range command { // it has more: how many jobs there are, and how fast they come and go
			if stats[field] != nil && !reflect.DeepEqual(is, stats[field]) {
				o.t.Errorf("%s of %s: %v and %v", field, name, is, stats[field])
			}
			if _, ok := api[field]; !ok {
				delete(command, field)
			}
		}
		o.same("queue", command, api, of)
	}

	o.command("route", "set", "x", "mail")
	routes, err := o.c.Routes(o.there)
	o.must(err)
	o.same("routes", o.said(o.command("route", "list", "-o", "json")), o.said(o.get("/routes"), "routes"), routes)
	o.command("topic", "subscribe", "news", "mail")
	o.same("subscriptions", o.said(o.command("topic", "list", "-o", "json")), o.said(o.get("/topics"), "subscriptions"),
		listed[wire.Subscription](o, "/topics", "subscriptions"))

	o.command("limit", "set", "mail", "--rate", "100/m", "--burst", "10")
	o.command("limit", "set", "mail", "--kind", "x", "--running", "3")
	o.same("limits", o.said(o.command("limit", "list", "-o", "json")), o.said(o.get("/queues/mail/limits"), "limits"),
		listed[wire.Limit](o, "/queues/mail/limits", "limits"))
	o.command("endpoint", "set", "mail", "https://example.org/?key=k", "--timeout", "2m", "--format", "cloudevents")
	o.command("endpoint", "set", "ledger", "")
	o.same("endpoints", o.said(o.command("endpoint", "list", "-o", "json")), o.said(o.get("/endpoints"), "endpoints"),
		listed[wire.Endpoint](o, "/endpoints", "endpoints"))
	o.db.Do(o.t, `INSERT INTO {prefix}endpoint_answers (queue_id, answers) SELECT queue_id, :answers FROM {prefix}queue WHERE name = 'mail'`,
		sqlrun.Args{"answers": `[{"at":1700000001000000,"took":250000,"status":503,"error":"HTTP 503","job":7,"by":"a:1","failures":2,"until":1700000004000000},{"at":1700000000000000,"took":1,"status":200,"job":6,"by":"a:1"}]`})
	o.same("endpoint", o.said(o.command("endpoint", "show", "mail", "-o", "json")), o.said(o.get("/queues/mail/endpoint")),
		reads[wire.EndpointDetail](o, "/queues/mail/endpoint"))

	group := o.said(o.ask(http.MethodPost, "/groups", `{"name": "nightly", "keep": "forever", "callback": {"kind": "all-done"}, "jobs": [{"kind": "x"}, {"kind": "y"}]}`), "id").(string)
	o.command("group", "create")
	for _, state := range []string{"open", "sealed"} {
		o.same("groups", o.said(o.command("group", "list", "--state", state, "-o", "json")), o.said(o.get("/groups?state="+state), "groups"),
			listed[wire.Group](o, "/groups?state="+state, "groups"))
	}
	o.same("group", o.said(o.command("group", "show", group, "-o", "json")), o.said(o.get("/groups/"+group)), reads[wire.Group](o, "/groups/"+group))
	o.same("results", o.said(o.command("group", "show", group, "--results", "-o", "json")), o.said(o.get("/groups/"+group+"/results"), "results"),
		listed[wire.GroupResult](o, "/groups/"+group+"/results", "results"))

	o.command("job", "enqueue", "--queue", "rated", "x")
	o.command("limit", "set", "rated", "--rate", "1/h")
	o.db.Do(o.t, `UPDATE {prefix}queue_limit SET drawn_at = {now} WHERE rate_per = '1h'`, nil)
	o.db.Do(o.t, `UPDATE {prefix}job SET id = id - 90000000 * 4096 WHERE queue_id = (SELECT queue_id FROM {prefix}queue WHERE name = 'rated')`, nil)
	if text := o.with(o.env, "queue", "show", "rated"); !regexp.MustCompile(`(?m)^state +active\nheld +1 job, the oldest for 1m 3.s: it is at the limit of its queue: 1/h; .*\n +to have more begin: dbcron limit set rated `).MatchString(text) || strings.Contains(text, "never") {
		o.t.Errorf("of a queue with held jobs it says\n%s", text)
	}
	held := o.said(o.get("/queues/rated/status"), "held").(map[string]any)
	if held["jobs"] != 1.0 || held["more"] != false || held["until"] == nil || held["oldest_seconds"].(float64) < 90 {
		o.t.Errorf("over HTTP %v are held", held)
	}

	o.command("schedule", "add", "report", "--spec", "30 2 * * *", "--time-zone", "Europe/Berlin", "--job", "x", "--job-priority", "low",
		"--max-failures", "none", "--keep-runs", "all", "--ends", "2090-01-01T00:00")
	o.command("schedule", "run", "report")
	o.same("schedules", o.said(o.command("schedule", "list", "-o", "json")), o.said(o.get("/schedules"), "schedules"),
		listed[wire.Schedule](o, "/schedules", "schedules"))
	o.same("explanation", o.said(timeless(o.command("schedule", "explain", "report", "-o", "json"))), o.said(timeless(o.get("/schedules/report/explain"))))
	o.same("slots", o.said(o.command("schedule", "next", "report", "-o", "json")), o.said(o.get("/schedules/report/next")),
		reads[wire.Slots](o, "/schedules/report/next"))
	o.same("runs", o.said(o.command("schedule", "history", "report", "-o", "json")), o.said(o.get("/schedules/report/runs"), "runs"),
		listed[wire.Run](o, "/schedules/report/runs", "runs"))
}

// processes compares locks, daemons, and what operators did.
func (o *outside) processes() {
	free := o.said(o.ask(http.MethodPost, "/locks/free/acquire", `{"meta": "short"}`), "token").(string)
	o.ask(http.MethodPost, "/locks/free/release", `{"token": "`+free+`"}`)
	o.command("lock", "resize", "pool", "2")
	o.ask(http.MethodPost, "/locks/held/acquire", `{"ttl": "1h", "owner": "ada", "meta": "nightly"}`)
	o.ask(http.MethodPost, "/locks/forced/acquire", `{"ttl": "1h"}`)
	o.ask(http.MethodPost, "/locks/forced/force-release", `{"reason": "its host is dead"}`)
	locks, api := o.said(o.command("lock", "list", "-o", "json")), o.said(o.get("/locks"), "locks")
	text, err := json.Marshal(listed[wire.Lock](o, "/locks", "locks"))
	o.must(err)
	typed := o.said(string(text))
	for _, list := range []any{locks, api, typed} {
		for _, one := range list.([]any) {
			one := one.(map[string]any)
			if left, ok := one["left_seconds"]; ok != (one["state"] == "held") {
				o.t.Errorf("%v is held for %v more", one, left)
			}
			delete(one, "left_seconds") // it goes on
		}
	}
	o.same("locks", locks, api, typed)

	o.db.Do(o.t, `INSERT INTO {prefix}node (name, state, expire_at, version, tags) VALUES ('a:1:x', 'live', {now + 3600000000}, 'v1', 'gpu,eu')`, nil)
	o.db.Do(o.t, `INSERT INTO {prefix}node (name, state, expire_at) VALUES ('b:1:x', 'live', {now}), ('c:1:x', 'gone', {now})`, nil)
	o.command("node", "drain", "a")
	o.same("nodes", o.said(o.command("node", "list", "-o", "json")), o.said(o.get("/nodes"), "nodes"),
		listed[wire.Node](o, "/nodes", "nodes"))

	o.same("audit", o.said(o.command("audit", "-o", "json")), o.said(o.get("/audit"), "entries"),
		listed[wire.AuditEntry](o, "/audit", "entries"))

	o.command("token", "create", "shop", "--scope", "enqueue,read", "--expires", "90d", "--yes")
	tokens := o.command("token", "list", "-o", "json")
	var all []wire.Token
	o.must(json.Unmarshal([]byte(tokens), &all))
	again, err := json.Marshal(all)
	o.must(err)
	o.same("tokens", o.said(tokens), o.said(string(again)))
}
