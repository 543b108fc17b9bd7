package httpapi

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/wire"
)

func TestMain(m *testing.M) { dbtest.Main(m, http.DefaultClient.CloseIdleConnections) }

// longWait is for what must happen, on a slow machine.
const longWait = 2 * time.Minute

// each is dbtest.Each, beside the other tests.
func each(t *testing.T, f func(t *testing.T, db *dbtest.DB)) {
	t.Helper()
	t.Parallel()
	dbtest.Each(t, f, (*testing.T).Parallel)
}

// memory is each on the engines for what happens in memory: see dbtest.Memory.
func memory(t *testing.T, f func(t *testing.T, db *dbtest.DB)) {
	t.Helper()
	t.Parallel()
	dbtest.Memory.Each(t, f, (*testing.T).Parallel)
}

// locks is each on the engines for what needs writers side by side: see dbtest.Locks.
func locks(t *testing.T, f func(t *testing.T, db *dbtest.DB)) {
	t.Helper()
	t.Parallel()
	dbtest.Locks.Each(t, f, (*testing.T).Parallel)
}

// dialects is each on the engines for what depends on the shape of statements: see dbtest.Dialects.
func dialects(t *testing.T, f func(t *testing.T, db *dbtest.DB)) {
	t.Helper()
	t.Parallel()
	dbtest.Dialects.Each(t, f, (*testing.T).Parallel)
}

// Short names of dbtest's.
var must, eventually, quiet = dbtest.Must, dbtest.Eventually, dbtest.Quiet

// A logbook has the log as text.
type logbook struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logbook) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logbook) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// A service is an API that is served.
type service struct {
	t      *testing.T
	url    string
	api    *API
	logs   *logbook
	token  string // that its requests have
	client *http.Client
}

// serve serves an API until the test ends.
func serve(t *testing.T, db *dialect.DB, opt Options) *service {
	t.Helper()
	s := &service{t: t, logs: &logbook{}}
	opt.Node = cmp.Or(opt.Node, "test")
	opt.Logger = slog.New(slog.NewTextHandler(s.logs, nil))
	var err error
	s.api, err = New(db, opt)
	must(t, err)
	server := httptest.NewServer(s.api)
	t.Cleanup(func() {
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		s.api.Drain(gone)
		server.Close()
		s.api.Close()
		must(t, s.api.Flush(context.WithoutCancel(t.Context())))
	})
	s.url, s.client = server.URL, server.Client()
	if opt.AllowCommands { // that takes a token
		s.token, err = NewTokens(db).Create(t.Context(), "commands", []Scope{ScopeAdmin}, 0)
		must(t, err)
	}
	return s
}

// other is a service as another process would be it: on connections of its own.
func other(t *testing.T, db *dbtest.DB) *service {
	t.Helper()
	return serve(t, dbtest.Open(t, db.URL, dialect.Options{MaxConns: 5}).DB, Options{})
}

// An answer is the answer to a request.
type answer struct {
	t      *testing.T
	what   string
	status int
	header http.Header
	text   string
}

// send sends a request: a body that is not text is sent as JSON, and headers are
// "Name: value".
func (s *service) send(method, path string, body any, headers ...string) *answer {
	s.t.Helper()
	var reader io.Reader
	switch body := body.(type) {
	case nil:
	case string:
		reader = strings.NewReader(body)
	default:
		text, err := json.Marshal(body)
		must(s.t, err)
		reader = bytes.NewReader(text)
	}
	r, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, reader)
	must(s.t, err)
	if reader != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if s.token != "" {
		r.Header.Set("Authorization", "Bearer "+s.token)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		if name == "Host" {
			r.Host = value
		}
		r.Header.Set(name, value)
	}
	return s.do(r)
}

func (s *service) do(r *http.Request) *answer {
	s.t.Helper()
	got, err := s.client.Do(r)
	must(s.t, err)
	defer got.Body.Close()
	text, err := io.ReadAll(got.Body)
	must(s.t, err)
	a := &answer{s.t, r.Method + " " + r.URL.RequestURI(), got.StatusCode, got.Header, string(text)}
	if op := s.operation(r); op != nil {
		if why := undocumented(s.api, op, a); why != "" {
			s.t.Errorf("%s: %s\ngot %d %s", a.what, why, a.status, cut(a.text))
		}
	}
	return a
}

// operation is the one that a request goes to; nil: none.
func (s *service) operation(r *http.Request) *huma.Operation {
	if _, p := s.api.find(http.Header{}, r); p != nil || r.Method == http.MethodHead {
		return nil
	}
	_, pattern := s.api.mux.Handler(r)
	_, path, _ := strings.Cut(pattern, " ")
	item := s.api.docs.OpenAPI().Paths[path]
	if item == nil {
		return nil
	}
	for method, op := range methods(item) {
		if method == r.Method {
			return op
		}
	}
	return nil
}

// undocumented says why an answer is not one that the document has for an operation. All
// answers in tests are checked with it.
func undocumented(api *API, op *huma.Operation, a *answer) string {
	described := op.Responses[fmt.Sprint(a.status)]
	if described == nil {
		return "the status is not documented"
	}
	if len(described.Content) == 0 {
		if a.text != "" {
			return "there is a body, and none is documented"
		}
		return ""
	}
	kind, _, err := mime.ParseMediaType(a.header.Get("Content-Type"))
	if err != nil || described.Content[kind] == nil {
		return "the content type is not documented: " + a.header.Get("Content-Type")
	}
	if (strings.TrimSuffix(op.OperationID, "-by-id") == "get-payload" || op.OperationID == "events") && a.status == 200 {
		return ""
	}
	var body any
	if err := json.Unmarshal([]byte(a.text), &body); err != nil {
		return err.Error()
	}
	var wrong huma.ValidateResult
	huma.Validate(api.docs.OpenAPI().Components.Schemas, described.Content[kind].Schema,
		huma.NewPathBuffer([]byte("answer"), 6), huma.ModeReadFromServer, body, &wrong)
	if len(wrong.Errors) > 0 {
		return "the body is not as documented: " + wrong.Errors[0].Error()
	}
	return ""
}

func (s *service) get(path string) *answer { s.t.Helper(); return s.send("GET", path, nil) }

func (s *service) post(path string, body any) *answer {
	s.t.Helper()
	return s.send("POST", path, body)
}

func (s *service) put(path string, body any) *answer { s.t.Helper(); return s.send("PUT", path, body) }

func (s *service) remove(path string) *answer { s.t.Helper(); return s.send("DELETE", path, nil) }

// is checks the status, and that an error is a problem with a text.
func (a *answer) is(status int) *answer {
	a.t.Helper()
	if a.status != status {
		a.t.Fatalf("%s: got %d, want %d\n%s", a.what, a.status, status, a.text)
	}
	if status >= 400 {
		var p struct {
			Status        int
			Title, Detail string
		}
		if err := json.Unmarshal([]byte(a.text), &p); err != nil || p.Status != status || p.Title == "" ||
			p.Detail == "" || a.header.Get("Content-Type") != "application/problem+json" {
			a.t.Errorf("%s: %s %s is no problem: %v", a.what, a.header.Get("Content-Type"), a.text, err)
		}
	}
	return a
}

// at checks where an error says that something is wrong.
func (a *answer) at(location string) {
	a.t.Helper()
	var p struct {
		Errors []struct{ Location, Message string }
	}
	if err := json.Unmarshal([]byte(a.text), &p); err != nil || len(p.Errors) == 0 || p.Errors[0].Location != location ||
		p.Errors[0].Message == "" {
		a.t.Errorf("%s: %s is not about %s", a.what, a.text, location)
	}
}

// has checks that the answer contains a text.
func (a *answer) has(text string) *answer {
	a.t.Helper()
	if !strings.Contains(a.text, text) {
		a.t.Errorf("%s: got %s, want %s in it", a.what, a.text, text)
	}
	return a
}

// read reads the answer.
func read[T any](a *answer) (v T) {
	a.t.Helper()
	d := json.NewDecoder(strings.NewReader(a.text))
	d.DisallowUnknownFields()
	if err := d.Decode(&v); err != nil {
		a.t.Fatalf("%s: %s: %v", a.what, a.text, err)
	}
	return v
}

type object = map[string]any

// enqueue enqueues a job that must be taken, and returns its id.
func (s *service) enqueue(job object) string {
	s.t.Helper()
	return read[wire.Enqueued](s.post("/api/v1/jobs", job).is(201)).ID
}

// rows counts the rows of a table.
func rows(t *testing.T, db *dbtest.DB, table string) (n int) {
	t.Helper()
	db.Scan(t, "SELECT COUNT(*) FROM {prefix}"+table, nil, &n)
	return n
}
