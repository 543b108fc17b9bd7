package httpapi

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/dbcron/dbcron/dialect/dbtest"
)

// withBody calls f for each operation that takes a body, with a path in which the names are
// ones that are not there, and the schema of the body.
func withBody(t *testing.T, a *API, f func(method, path string, op *huma.Operation, body *huma.Schema)) {
	t.Helper()
	schemas, n := a.docs.OpenAPI().Components.Schemas, 0
	for path, item := range a.docs.OpenAPI().Paths {
		for method, op := range methods(item) {
			if op.RequestBody == nil {
				continue
			}
			if text, err := json.Marshal(op.RequestBody); err != nil || strings.Contains(string(text), "Of\":") {
				t.Fatalf("checkBody does not know all of %s, %v", text, err)
			}
			for _, p := range op.Parameters {
				path = strings.ReplaceAll(path, "{"+p.Name+"}", "77")
			}
			f(method, path, op, schemas.SchemaFromRef(op.RequestBody.Content["application/json"].Schema.Ref))
			n++
		}
	}
	if n < 20 {
		t.Errorf("%d operations have a body", n)
	}
}

// Names of members are taken to the letter, and once: what one reader takes for a dry run is
// none for another otherwise.
func TestMembersToTheLetter(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		s := serve(t, db.DB, Options{})
		s.enqueue(object{"kind": "x", "queue": "q"})
		const purge, batch = "/api/v1/queues/q/purge", "/api/v1/jobs/batch"
		for body, location := range map[string]string{
			`{"state": "all", "dry_run": true, "Dry_Run": false}`:        "body.Dry_Run",
			`{"state": "all", "dry_run": true, "dry_run": false}`:        "body.dry_run",
			`{"state": "all", "dry_run": true, "dry_ru\u006e": false}`:   "body.dry_run",
			`{"state": "dead", "State": "all", "state": "ready"}`:        "body.State",
			`{"state": "all", "DRY_RUN": true}`:                          "body.DRY_RUN",
			`{"state": "all", "limit": 1, "\u017ftate": "all"}`:          "body.\u017ftate", // which folds to s
			`{"state": "all", "dry_run": true, "a.b": 1, "dry_run": ""}`: "body.a.b",
		} {
			s.post(purge, body).is(422).at(location)
		}
		s.post(batch, `{"jobs": [{"kind": "x"}, {"kind": "x", "kind": "y"}]}`).is(422).at("body.jobs[1].kind")
		s.post(batch, `{"jobs": [{"kind": "x"}, {"Kind": "x"}]}`).is(422).at("body.jobs[1].Kind")
		s.post(batch, `{"jobs": [{"kind": "x"}], "jobs": []}`).is(422).at("body.jobs")
		s.put("/api/v1/schedules/x", `{"spec": "@daily", "env": {"A": "1", "A": "2"}}`).is(422).at("body.env.A")
		if n := rows(t, db, "job"); n != 1 {
			t.Errorf("%d jobs", n)
		}
		s.put("/api/v1/queues/q", object{"keep_done": "1h"}).is(200) // an object of a payload is the job's own matter
		s.post("/api/v1/jobs", `{"kind": "x", "payload": {"a": 1, "A": 2, "a": 3}}`).is(201)
		withBody(t, s.api, func(method, path string, _ *huma.Operation, body *huma.Schema) {
			for _, name := range slices.Sorted(maps.Keys(body.Properties)) {
				s.send(method, path, fmt.Sprintf(`{%q: null}`, strings.ToUpper(name))).is(422).has("body." +
					strings.ToUpper(name)).has(`it is called \"` + name)
				if !slices.Contains(body.Required, name) { // null stands for what is not there, once
					s.send(method, path, fmt.Sprintf(`{%q: null, %q: null}`, name, name)).is(422).at("body." + name)
				}
			}
		})
	})
}

// Parameters and headers of which there are two are refused, and so is a query that cannot be
// read.
func TestParametersOnce(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		s := serve(t, db.DB, Options{})
		s.enqueue(object{"kind": "x", "queue": "q"})
		s.get("/api/v1/queues/q/jobs?state=ready&state=dead").is(422).at("query.state")
		s.get("/api/v1/queues/q/jobs?state=ready;limit=1").is(422).at("query")
		s.get("/api/v1/queues/q/jobs?State=ready").is(422).at("query.State")
		s.get("/api/v1/queues/q/jobs?state=%zz").is(422).at("query")
		r, err := http.NewRequestWithContext(t.Context(), "POST", s.url+"/api/v1/jobs", strings.NewReader(`{"kind": "x"}`))
		must(t, err)
		r.Header = http.Header{"Content-Type": {"application/json"}, "Idempotency-Key": {"a", "b"}}
		s.do(r).is(422).at("header.Idempotency-Key")
		if n := rows(t, db, "job"); n != 1 {
			t.Errorf("%d jobs", n)
		}
	})
}

// A problem lists at most 20 errors, its text is the first, and nothing in it is long.
func TestFewErrors(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		s := serve(t, db.DB, Options{})
		var unknown, wrong, query strings.Builder
		for i := range 50_000 {
			fmt.Fprintf(&unknown, `,"u%d":1`, i)
			fmt.Fprintf(&wrong, `,{"kind":%d}`, i)
		}
		for i := range 500 {
			fmt.Fprintf(&query, "&u%d=1", i)
		}
		long := strings.Repeat("x", 100_000)
		env := object{}
		for i := range 100 {
			env[fmt.Sprintf("a=%d", i)] = "x"
		}
		for _, a := range []*answer{
			s.post("/api/v1/jobs", `{"kind":"x"`+unknown.String()+`}`),
			s.post("/api/v1/jobs", `{"kind":"x","`+long+`":1,"`+long+`2":1}`),
			s.post("/api/v1/jobs/batch", `{"jobs":[{"kind":"x"}`+wrong.String()+`]}`),
			s.post("/api/v1/jobs/batch", `{"jobs":[{"kind":"x"}`+strings.Repeat(`,{"kind":"x"}`, 50_000)+`]}`),
			s.put("/api/v1/schedules/x", object{"spec": "@daily", "kind": "job", "command": "x", "env": env}),
			s.get("/api/v1/queues?" + query.String()[1:]),
			s.get("/api/v1/queues?limit=0&cursor=" + strings.Repeat("x", 2000)),
		} {
			var p struct {
				Detail string
				Errors []struct{ Location, Message string }
			}
			must(t, json.Unmarshal([]byte(a.is(422).text), &p))
			if len(p.Errors) == 0 || len(p.Errors) > maxErrors || len(a.text) > 64<<10 {
				t.Fatalf("%.80s: %d errors in %d bytes", a.what, len(p.Errors), len(a.text))
			}
			if first := p.Errors[0]; !strings.Contains(p.Detail, first.Message) ||
				!strings.Contains(p.Detail, strings.TrimPrefix(first.Location, "body.")) {
				t.Errorf("%.80s: the text is %q, and the first error %+v", a.what, p.Detail, first)
			}
		}
		if n := rows(t, db, "job"); n != 0 {
			t.Errorf("%d jobs", n)
		}
	})
}

// A body has to be declared as JSON, whatever the operation.
func TestContentTypes(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		s := serve(t, db.DB, Options{})
		withBody(t, s.api, func(method, path string, _ *huma.Operation, _ *huma.Schema) {
			for _, kind := range []string{
				"", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data",
				"text/json", "application/vnd.x+json", ";", "application/json;",
				"application/json; charset=utf-16", "application/json; charset=UTF-16LE", "application/json; charset=iso-8859-1",
			} {
				r, err := http.NewRequestWithContext(t.Context(), method, s.url+path, strings.NewReader(`{"kind": "x"}`))
				must(t, err)
				if kind != "" {
					r.Header.Set("Content-Type", kind)
				}
				if a := s.do(r); kind == "application/json;" && a.status == 415 || kind != "application/json;" && a.status != 415 {
					t.Errorf("%s as %q: %d %s", a.what, kind, a.status, a.text)
				}
			}
		})
		s.send("POST", "/api/v1/jobs", `{"kind": "y"}`, "Content-Type: Application/JSON; charset=UTF-8").is(201)
		s.post("/api/v1/queues/default/pause", nil).is(204) // there is none to declare
		if n := rows(t, db, "job"); n != 2 {                // this one, and that of "application/json;"
			t.Errorf("%d jobs", n)
		}
	})
}

// A body is limited to what its operation needs, and the document has the limit. One that
// declares to be larger is not read.
func TestBodySizes(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		s := serve(t, db.DB, Options{MaxBody: 8 << 20})
		limits := map[string]int{"64 KiB": 64 << 10, "4 MiB": 4 << 20, "(--max-body)": 8 << 20}
		seen := map[string]int{}
		withBody(t, s.api, func(method, path string, op *huma.Operation, _ *huma.Schema) {
			for text, limit := range limits {
				if !strings.Contains(op.Description, "The body has up to ") || !strings.Contains(op.Description, text) {
					continue
				}
				seen[text]++
				blanks := strings.Repeat(" ", limit-2)
				if a := s.send(method, path, "{}"+blanks); a.status == 413 {
					t.Errorf("%s with %d bytes: %s", a.what, limit, a.text)
				}
				s.send(method, path, "{} "+blanks).is(413).at("body")
				r, err := http.NewRequestWithContext(t.Context(), method, s.url+path, iotest.OneByteReader(strings.NewReader("{} "+blanks)))
				must(t, err)
				r.Header.Set("Content-Type", "application/json")
				if limit == 64<<10 {
					s.do(r).is(413).at("body")
				}
			}
		})
		if len(seen) != len(limits) || seen["64 KiB"] < 10 {
			t.Errorf("they are %v", seen)
		}
	})
}

// A request waits until there is room for its body, which others give back. Small ones do not
// wait for large ones.
func TestRoomForBodies(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		s := serve(t, db.DB, Options{})
		b := s.api.bodies
		large := `{"kind": "x", "payload": "` + strings.Repeat("x", 2*smallBody) + `"}`
		must(t, b.working.Acquire(t.Context(), b.workingSize))
		b.large.patience = time.Millisecond
		if a := s.post("/api/v1/jobs", large).is(503); a.header.Get("Retry-After") == "" {
			t.Error("it is not told when to come again")
		}
		s.enqueue(object{"kind": "x"})
		b.large.patience = longWait
		done := make(chan *answer)
		go func() { done <- s.post("/api/v1/jobs", large) }()
		select {
		case a := <-done:
			t.Errorf("it did not wait: %d", a.status)
		default:
		}
		b.working.Release(b.workingSize)
		(<-done).is(201)
		s.post("/api/v1/jobs", "{"+large).is(400)
		s.send("POST", "/api/v1/jobs", large, "Idempotency-Key: a b").is(422)
		if !b.working.TryAcquire(b.workingSize) || b.large.free != largeBodies || b.small.free != smallBodies {
			t.Errorf("not all was given back: %+v %+v", b.large, b.small)
		}
		if n := rows(t, db, "job"); n != 2 {
			t.Errorf("%d jobs", n)
		}
	})
}

// What is checked without being decoded is found good or bad as the document has it.
func TestCheckBody(t *testing.T) {
	t.Parallel()
	a, err := describe(Options{})
	must(t, err)
	schemas := a.docs.OpenAPI().Components.Schemas
	seed := rand.Uint64()
	g := &generator{Rand: rand.New(rand.NewPCG(seed, 1)), schemas: schemas, ids: []string{"5"}, ticket: "t"}
	good := 0
	withBody(t, a, func(_, path string, op *huma.Operation, _ *huma.Schema) {
		schema := op.RequestBody.Content["application/json"].Schema
		for range 500 {
			v := g.value("", schema, 0)
			text, err := json.MarshalIndent(v, " ", "\t")
			must(t, err)
			var decoded any
			must(t, json.Unmarshal(text, &decoded))
			var want huma.ValidateResult
			huma.Validate(schemas, schema, huma.NewPathBuffer(nil, 0), huma.ModeWriteToServer, decoded, &want)
			p := checkBody(schemas, schema, text)
			if p == nil && len(want.Errors) == 0 {
				good++
				continue
			}
			if p != nil && len(want.Errors) == 0 && (strings.Contains(p.Detail, "it is called") || strings.Contains(p.Detail, "base64")) {
				continue // huma takes any case, and what cannot be decoded
			}
			if (p == nil) != (len(want.Errors) == 0) {
				t.Fatalf("seed %d: %s: %s\nfound %+v, want %v", seed, path, text, p, want.Errors)
			}
		}
	})
	if good < 1000 {
		t.Errorf("seed %d: only %d were good", seed, good)
	}
}
