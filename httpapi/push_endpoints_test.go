package httpapi

import (
	"reflect"
	"strings"
	"testing"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/httpapi/push"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/wire"
)

// Endpoints are set, changed, listed and deleted; their secret is shown once.
// The query of a URL that jobs are sent to may hold a secret: only who may set it sees it.
func TestQueriesOfEndpointsAreSecret(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		tokens := NewTokens(db.DB)
		admin, err := tokens.Create(t.Context(), "ops", []Scope{ScopeAdmin}, 0)
		must(t, err)
		reader, err := tokens.Create(t.Context(), "board", []Scope{ScopeRead, ScopeOperate}, 0)
		must(t, err)
		s := serve(t, db.DB, Options{})
		s.token = admin
		s.put("/api/v1/queues/mail/endpoint", object{"url": "https://example.org/a?key=KEY"}).is(201).has("key=KEY")
		id := s.enqueue(object{"kind": "k", "queue": "mail", "endpoint": "https://example.org/b?key=KEY"})
		for _, path := range []string{"/endpoints", "/queues/mail/endpoint", "/queues/mail/jobs/" + id, "/queues/mail/jobs"} {
			s.token = admin
			s.get("/api/v1" + path).is(200).has("key=KEY")
			s.token = reader
			if a := s.get("/api/v1" + path).is(200).has("?…"); strings.Contains(a.text, "KEY") {
				t.Errorf("%s shows %s", path, a.text)
			}
		}
	})
}

func TestEndpoints(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		hosts, err := push.ParseHosts([]string{"worker", "*.example.org", "10.1.0.0/16"})
		must(t, err)
		s := serve(t, db.DB, Options{Hosts: hosts})
		const path = "/api/v1/queues/mail/endpoint"
		s.get("/api/v1/endpoints").is(200).has(`{"endpoints":[]}`)
		s.get(path).is(404)
		s.remove(path).is(404)
		secret := push.NewSecret()
		for _, bad := range []struct {
			field string
			value any
		}{
			{"url", "ftp://worker/"},
			{"url", "worker"},
			{"url", "https://user:hush@worker/"},
			{"url", "https://worker/#x"},
			{"url", "http://10.2.0.1/"},
			{"url", "http://169.254.169.254/latest"},
			{"url", "http://[::1]/"},
			{"url", 7},
			{"url", "https://worker/" + strings.Repeat("x", 1000)},
			{"format", "morse"},
			{"concurrency", 0},
			{"batch", 0},
			{"batch", 1001},
			{"concurrency", 10_001},
			{"concurrency", "4"},
			{"timeout", "0s"},
			{"timeout", "25h"},
			{"timeout", "-1s"},
			{"timeout", "soon"},
			{"secret", "hush"},
			{"secret", "whsec_aHVzaA=="},
			{"new_secret", "yes"},
			{"nonsense", 1},
		} {
			a := s.put(path, object{bad.field: bad.value}).is(422)
			a.at("body." + bad.field)
			if strings.Contains(a.text, "hush") {
				t.Errorf("it shows what was sent: %s", a.text)
			}
		}
		s.put(path, object{"secret": secret, "new_secret": true}).is(422).at("body.new_secret")
		s.get("/api/v1/queues/mail").is(404) // it was not even made

		first := read[wire.Endpoint](s.put(path, object{"url": "https://worker/mail"}).is(201))
		if push.CheckSecret(first.Secret) != nil {
			t.Errorf("its secret is %q", first.Secret)
		}
		want := wire.EndpointDetail{
			Endpoint: wire.Endpoint{Queue: "mail", URL: "https://worker/mail", Format: "plain", Concurrency: 16, Batch: 1, Timeout: "30s"},
			Standing: "nothing was sent to it in the last hour", Answers: []wire.EndpointAnswer{},
		}
		if got := read[wire.EndpointDetail](s.get(path).is(200)); !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, want %+v", got, want)
		}
		db.Do(t, `INSERT INTO {prefix}endpoint_answers (queue_id, answers) SELECT queue_id, :answers FROM {prefix}queue WHERE name = 'mail'`,
			sqlrun.Args{"answers": `[{"at":1700000001000000,"took":250000,"status":503,"error":"HTTP 503","job":7,"by":"host:1","failures":2,"until":1700000004000000},{"at":1700000000000000,"took":1,"status":200,"job":6,"by":"host:1"}]`})
		s.get(path).is(200).has(`"answers":[{"at":"2023-11-14T22:13:21.000000Z","took_seconds":0.25,"status":503,"error":"HTTP 503","job":"7","by":"host:1","failures":2,"until":"2023-11-14T22:13:24.000000Z"},{"at":`)
		second := read[wire.Endpoint](s.put(path, object{"new_secret": true, "concurrency": 4, "timeout": "2m", "format": "cloudevents"}).is(200))
		if second.Secret == first.Secret || push.CheckSecret(second.Secret) != nil || !second.OldSecret {
			t.Errorf("a new secret: %+v", second)
		}
		s.put(path, object{"new_secret": true}).is(422).at("body.secret") // it would throw away what receivers know
		third := read[wire.Endpoint](s.put(path, object{"secret": secret, "drop_old_secret": true, "url": ""}).is(200))
		if third.Secret != "" || !third.OldSecret {
			t.Errorf("a secret that was sent: %+v", third)
		}
		third = read[wire.Endpoint](s.put(path, object{"drop_old_secret": true}).is(200))
		if want := (wire.Endpoint{Queue: "mail", Format: "cloudevents", Concurrency: 4, Batch: 1, Timeout: "2m"}); third != want {
			t.Errorf("got %+v, want %+v", third, want)
		}
		e, err := push.NewEndpoints(db.DB).Get(t.Context(), "mail")
		must(t, err)
		if e.Secret != secret || e.OldSecret != "" {
			t.Errorf("the secrets are not those that were sent")
		}
		for _, name := range []string{"a", "b", "c"} {
			s.put("/api/v1/queues/"+name+"/endpoint", object{}).is(201)
		}
		s.wantPages("/api/v1/endpoints?", "endpoints", "queue", "a b c mail")
		if text := s.get("/api/v1/endpoints").text + s.get(path).text + s.logs.String(); strings.Contains(text, "whsec_") {
			t.Error("a secret is shown, or logged")
		}

		// A job's own endpoint counts only where jobs are sent.
		id := s.enqueue(object{"queue": "mail", "kind": "x", "endpoint": "https://a.example.org/x"})
		s.get("/api/v1/queues/mail/jobs/" + id).is(200).has(`"endpoint":"https://a.example.org/x"`)
		s.post("/api/v1/jobs", object{"queue": "mail", "kind": "x", "endpoint": "http://10.2.0.1/"}).is(422).at("body.endpoint")
		s.post("/api/v1/jobs", object{"queue": "other", "kind": "x", "endpoint": "https://worker/"}).is(422).at("body.endpoint")
		s.post("/api/v1/jobs", object{"kind": "x", "endpoint": "https://worker/"}).is(422).at("body.endpoint")
		s.post("/api/v1/jobs/batch", object{"jobs": []object{
			{"queue": "mail", "kind": "x", "endpoint": "https://worker/"}, {"queue": "other", "kind": "x", "endpoint": "https://worker/"},
		}}).is(422).at("body.jobs[1].endpoint")
		s.put("/api/v1/routes/x", object{"queue": "mail"}).is(200)
		s.post("/api/v1/jobs", object{"kind": "x", "endpoint": "https://worker/"}).is(201)
		if n := rows(t, db, "job"); n != 2 {
			t.Errorf("%d jobs", n)
		}

		s.remove("/api/v1/queues/c/endpoint").is(204)
		s.remove("/api/v1/queues/c").is(204)
		s.put("/api/v1/queues/c/endpoint", object{}).is(409)
	})
}
