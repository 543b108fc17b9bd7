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
	"strings"
	"testing"

	"github.com/dbcron/dbcron/client"
	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/dialect/engines"
	"github.com/dbcron/dbcron/httpapi"
)

// An outside asks for the same noun in three ways.
type outside struct {
	t     *testing.T
	env   []string
	api   *httptest.Server
	c     *client.Client
	there context.Context
}

// command returns what a command prints.
func (o *outside) command(args ...string) string {
	o.t.Helper()
	var out, errs bytes.Buffer
	p := &program{in: strings.NewReader(""), out: &out, err: &errs, environ: o.env}
	if code := run(o.there, p, args); code != 0 {
		o.t.Fatalf("%v: exit code %d: %s", args, code, &errs)
	}
	return strings.TrimSpace(out.String())
}

// get returns what the API answers.
func (o *outside) get(path string) string {
	o.t.Helper()
	r, err := http.NewRequestWithContext(o.there, http.MethodGet, o.api.URL+"/api/v1"+path, nil)
	o.must(err)
	answer, err := o.api.Client().Do(r)
	o.must(err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if o.must(err); answer.StatusCode != http.StatusOK {
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

// Commands with -o json, the API and the client say the same about the same noun.
func TestOneJSON(t *testing.T) {
	dbtest.Memory.EachEmpty(t, func(t *testing.T, db *dbtest.DB) {
		o := &outside{t: t, env: []string{"DBCRON_DATABASE_URL=" + db.URL}, there: t.Context()}
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
	})
}

func (o *outside) nouns() {
	for _, args := range [][]string{
		{"--priority", "urgent", "--delay", "1h", "--timeout", "90s", "--max-attempts", "3", "--unique", "u", "--key", "k", "x", `{"a": [1]}`},
		{"plain"},
	} {
		id := o.command(append([]string{"job", "enqueue", "--queue", "mail"}, args...)...)
		of, err := o.c.Job(o.there, "mail", id)
		o.must(err)
		o.same("job", o.said(o.command("job", "get", id, "-o", "json")), o.said(o.get("/jobs/"+id)), of)
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
	o.same("subscriptions", o.said(o.command("topic", "list", "-o", "json")), o.said(o.get("/topics"), "subscriptions"))

	o.command("schedule", "add", "report", "--expr", "30 2 * * *", "--time-zone", "Europe/Berlin", "--job", "x", "--job-priority", "low",
		"--max-failures", "none", "--keep-runs", "all", "--ends", "2090-01-01T00:00")
	o.command("schedule", "run", "report")
	o.same("schedules", o.said(o.command("schedule", "list", "-o", "json")), o.said(o.get("/schedules"), "schedules"))
	o.same("explanation", o.said(o.command("schedule", "explain", "report", "-o", "json")), o.said(o.get("/schedules/report/explain")))
	o.same("slots", o.said(o.command("schedule", "next", "report", "-o", "json")), o.said(o.get("/schedules/report/next")))
	o.same("runs", o.said(o.command("schedule", "history", "report", "-o", "json")), o.said(o.get("/schedules/report/runs"), "runs"))
}
