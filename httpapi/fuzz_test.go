package httpapi

import (
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/danielgtaylor/huma/v2"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/scheduler"
	"github.com/dbcron/dbcron/wire"
)

var (
	fuzzRequests = flag.Int("fuzz-requests", 15, "how many requests of each operation TestDocumentedAnswers sends")
	fuzzSeed     = flag.Uint64("fuzz-seed", 0, "what they are made from; 0: chance")
)

// TestDocumentedAnswers sends requests to each operation that are made from the document:
// valid, invalid and malformed ones. No answer is a server error, and each is documented for
// the operation, with a body as described there.
func TestDocumentedAnswers(t *testing.T) {
	seed := *fuzzSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	dialects(t, func(t *testing.T, db *dbtest.DB) {
		stopping := make(chan struct{})
		close(stopping) // nobody waits, and what streams ends at once
		s := serve(t, db.DB, Options{MaxBody: 1 << 16, AllowCommands: true, Stopping: stopping})
		g := &generator{Rand: rand.New(rand.NewPCG(seed, 1)), schemas: s.api.docs.OpenAPI().Components.Schemas}
		must(t, scheduler.Add(t.Context(), db.DB, scheduler.Schedule{Name: "q", Spec: "@daily", Command: "true"}))
		s.put("/api/v1/queues/q", object{}).is(201)
		for i := range 5 {
			g.ids = append(g.ids, s.enqueue(object{"kind": "k", "queue": "q", "delay": []string{"", "1h"}[i%2]}))
		}
		g.ticket = read[wire.LockTicket](s.post("/api/v1/locks/q/acquire", object{"ttl": "1h"}).is(200)).Token
		seen := map[int]int{}
		try := func(method, path string, op *huma.Operation) {
			t.Helper()
			a := g.send(s, method, path, op)
			seen[a.status]++
			why := undocumented(s.api, op, a)
			if a.status >= 500 {
				why = "it is a server's error"
			}
			if why != "" {
				t.Errorf("seed %d: %s: %s\nsent %s\ngot %d %s", seed, a.what, why, g.sent, a.status, cut(a.text))
			}
		}
		paths := s.api.docs.OpenAPI().Paths
		for _, path := range slices.Sorted(maps.Keys(paths)) {
			for method, op := range methods(paths[path]) {
				for range *fuzzRequests {
					try(method, path, op)
				}
				for _, g.name = range g.texts(op) { // whatever chance did not think of
					for _, g.forced = range []string{
						"", " ", "a\x00", "a\xff", "a\ufffd", "\n", "..", "😀",
						strings.Repeat("ü", 201), "99999999999999999999", "{now}",
					} {
						try(method, path, op)
					}
				}
				g.name = ""
			}
		}
		t.Logf("seed %d: answers by status: %v", seed, seen)
		for _, status := range []int{200, 201, 204, 400, 404, 409, 422} {
			if seen[status] == 0 {
				t.Errorf("seed %d: no request was answered by %d: the requests are all alike", seed, status)
			}
		}
	})
}

// A generator makes requests from descriptions of them.
type generator struct {
	*rand.Rand
	schemas huma.Registry
	ids     []string // of jobs that are there, or were
	sent    string   // the last body
	ticket  string   // of the lock q

	name, forced string // values by the name of the parameter or field
}

// texts lists the parameters of an operation, and the fields of its body that are texts.
func (g *generator) texts(op *huma.Operation) (names []string) {
	for _, p := range op.Parameters {
		names = append(names, p.Name)
	}
	var fields func(s *huma.Schema)
	fields = func(s *huma.Schema) {
		for s.Ref != "" {
			s = g.schemas.SchemaFromRef(s.Ref)
		}
		if s.Items != nil {
			fields(s.Items)
		}
		for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
			if s.Properties[name].Type == huma.TypeString {
				names = append(names, name)
			}
			fields(s.Properties[name])
		}
	}
	if op.RequestBody != nil {
		fields(op.RequestBody.Content["application/json"].Schema)
	}
	return names
}

func (g *generator) oneIn(n int) bool { return g.IntN(n) == 0 }

func pick[T any](g *generator, all ...T) T { return all[g.IntN(len(all))] }

// odd is a text that is apt to break something.
func (g *generator) odd() string {
	return pick(g, "", " ", "q", "k", "\x00", "a\nb", "\xff\xfe", "ü", "\ufffd", "😀", "..", ".", "a/b", "%",
		"%00", "'; DROP TABLE x; --", `\`, `"`, "null", "-1", "0", "NaN", "1e999",
		"99999999999999999999", "9223372036854775807", strings.Repeat("x", 201), strings.Repeat("ü", 2000), "$.a",
		"$.a[0] > 5", "$[", "9999-12-31T23:59:59Z", "0000-01-01T00:00:00Z",
		"2026-02-30T00:00:00Z", "100y", "876000h", "-5s", "1w", "{now}", "${x}", "{}", "*")
}

// text is one that a schema takes, mostly.
func (g *generator) text(name string, s *huma.Schema) string {
	switch {
	case name == g.name:
		return g.forced
	case g.oneIn(6):
		return g.odd()
	case len(s.Enum) > 0:
		return fmt.Sprint(pick(g, s.Enum...))
	case s.Format == "date-time":
		return pick(g, "2026-01-01T00:00:00Z", "2030-06-01T12:00:00.123456789+02:00", "9998-12-31T23:59:59Z")
	case s.ContentEncoding == "base64":
		return base64.StdEncoding.EncodeToString([]byte(g.odd()))
	case name == "id" || name == "group" || strings.HasPrefix(s.Pattern, "^[1-9]"):
		return pick(g, append(g.ids, "1", "77")...)
	case name == "where":
		return pick(g, "$.n = 1", "$.a.b[2]", `$."x y" != null`, "$")
	case name == "cursor":
		return pick(g, "", g.ids[0], cursorOf("a"), cursorOf("a", "b"))
	case slices.Contains([]string{
		"delay", "timeout", "retry_delay", "retry_max_delay", "keep_dead", "poll_min", "poll_max", "unique_for", "last",
		"job_timeout", "job_unique_for", "missed_window", "stall", "kill_grace", "linger", "jitter", "keep_for", "ttl",
	}, name):
		return pick(g, "0s", "1ms", "90s", "1h", "1d", "forever", "")
	case name == "wait":
		return pick(g, "0s", "1ms", "31s", "")
	case name == "lease" || name == "retry_after":
		return pick(g, "1s", "30s", "12h", "13h", "")
	case name == "token":
		token, _ := new(signer).write(&queue.Claim{
			Node: pick(g, "n", "m:1:x"), Queue: pick(g, "q", "none"), Priority: g.IntN(6), Fence: 1,
			Job: 1, Attempt: 1,
		})
		return pick(g, g.ticket, "1.aaaa.YQ", token)
	case name == "spec":
		return pick(g, "@daily", "*/5 * * * *", "@every 90s", "@manual", "0 0 30 2 *")
	case name == "time_zone":
		return pick(g, "UTC", "Europe/Berlin", "")
	case name == "starts" || name == "ends" || name == "after":
		return pick(g, "2026-01-01T00:00:00Z", "2030-06-01T12:00:00+02:00", "")
	case name == "kind":
		return pick(g, "k", "l", "*")
	case name == "Idempotency-Key" || name == "unique" || name == "key":
		return pick(g, "a", "b", "")
	}
	return pick(g, "q", "r", "default", "other")
}

// value returns a value that mostly fits a schema.
func (g *generator) value(name string, s *huma.Schema, depth int) any {
	for s.Ref != "" {
		s = g.schemas.SchemaFromRef(s.Ref)
	}
	if g.name != "" && name == g.name {
		return g.forced
	}
	if g.oneIn(25) {
		return pick[any](g, nil, true, -1, 1.5, 1e300, "x", []any{}, []any{nil}, object{}, object{"x": 1}, g.odd())
	}
	switch s.Type {
	case huma.TypeString:
		return g.text(name, s)
	case huma.TypeBoolean:
		return g.oneIn(2)
	case huma.TypeInteger, huma.TypeNumber:
		return pick(g, 0, 1, 2, 16, 1000, 1001, -1, 1<<30, 1<<31, 1<<62)
	case huma.TypeArray:
		all := make([]any, pick(g, 1, 1, 2, 3, 0))
		for i := range all {
			all[i] = g.value(name, s.Items, depth+1)
		}
		return all
	case huma.TypeObject:
		o := object{}
		for _, field := range slices.Sorted(maps.Keys(s.Properties)) { // the same with the same seed
			is := s.Properties[field]
			if needed := slices.Contains(s.Required, field) || field == g.name; needed && !g.oneIn(20) || !needed && g.oneIn(4) {
				o[field] = g.value(field, is, depth+1)
			}
		}
		if g.oneIn(20) {
			o[pick(g, "nonsense", "KIND", "Queue", "", "\x00", "$schema")] = g.odd()
		}
		return o
	}
	return pick[any](g, nil, 1, "text", []any{1, object{"n": 1}}, object{"n": 1, "a": object{"b": []any{1, 2, 3}}}, g.odd())
}

// send sends a request to an operation.
func (g *generator) send(s *service, method, path string, op *huma.Operation) *answer {
	s.t.Helper()
	query, headers := url.Values{}, []string{}
	for _, p := range op.Parameters {
		text := g.text(p.Name, p.Schema)
		if p.Schema.Type == huma.TypeInteger && p.Name != g.name {
			text = pick(g, "1", "2", "100", "1000", "0", "-1", "x", "1.5", "99999999999999999999", "")
		}
		switch {
		case p.In == "path":
			if text == "" {
				text = "q"
			}
			path = strings.ReplaceAll(path, "{"+p.Name+"}", escapeSegment(text))
		case p.In == "query" && (g.oneIn(3) || p.Name == g.name):
			query.Set(p.Name, text)
		case p.In == "header" && (g.oneIn(3) || p.Name == g.name) && !strings.ContainsAny(text, "\x00\n"):
			headers = append(headers, p.Name+": "+text)
		}
	}
	if g.oneIn(25) {
		query.Set("nonsense", g.odd())
	}
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	if g.sent = ""; op.RequestBody == nil {
		return s.send(method, path, nil)
	}
	text, err := json.Marshal(g.value("", op.RequestBody.Content["application/json"].Schema, 0))
	must(s.t, err)
	g.sent = string(text)
	switch g.IntN(40) {
	case 0, 1:
		g.sent = g.sent[:g.IntN(len(g.sent)+1)]
	case 2, 3:
		g.sent += g.odd()
	case 4:
		g.sent = strings.Repeat("[", 20_000)
	case 5:
		g.sent = `{"kind": "` + strings.Repeat("x", 1<<16) + `"}`
	case 6, 7:
		headers = append(headers, "Content-Type: "+
			pick(g, "text/plain", "application/xml", "application/cbor", "x", ";", "application/json;charset=latin1",
				"application/vnd.x+json", "+;"))
	}
	return s.send(method, path, g.sent, headers...)
}
