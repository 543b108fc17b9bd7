package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/wire"
)

// A claimedList is the answer to a claim.
type claimedList struct {
	Node string
	Jobs []claimedJob
}

type claimedJob struct {
	Token, ID, Queue, Kind, Key, Priority, Group, Trace string

	Payload          json.RawMessage
	PayloadBase64    []byte `json:"payload_base64"`
	Attempt, Crashes int
	MaxAttempts      int `json:"max_attempts"`
	Enqueued         time.Time
	CallbackOf       string `json:"callback_of"`
}

// tokens returns the jobs' tokens, for reporting their outcomes.
func (l *claimedList) tokens() (all []object) {
	for _, j := range l.Jobs {
		all = append(all, object{"token": j.Token})
	}
	return all
}

// claim claims jobs of the queue q.
func (s *service) claim(body object) claimedList {
	s.t.Helper()
	return read[claimedList](s.post("/api/v1/queues/q/claim", body).is(200))
}

// one claims a job that must come. Its lease is long.
func (s *service) one() claimedList {
	s.t.Helper()
	var got claimedList
	s.eventually("a job comes", func() bool {
		got = s.claim(object{"wait": "30s", "lease": "12h"})
		return len(got.Jobs) == 1
	})
	return got
}

// say reports the outcomes of claims.
func (s *service) say(what string, claims []object) *answer {
	s.t.Helper()
	return s.post("/api/v1/claims/"+what, object{"claims": claims})
}

func (s *service) eventually(what string, is func() bool) {
	s.t.Helper()
	tick, over := time.NewTicker(10*time.Millisecond), time.After(longWait)
	defer tick.Stop()
	for !is() {
		select {
		case <-tick.C:
		case <-over:
			s.t.Fatalf("waited in vain: %s", what)
		}
	}
}

// waits waits until n claims wait.
func (s *service) waits(n int) {
	s.t.Helper()
	s.eventually(fmt.Sprint(n, " wait"), func() bool {
		s.api.pulls.mu.Lock()
		defer s.api.pulls.mu.Unlock()
		return s.api.pulls.claims == n
	})
}

// makeQueue makes a queue whose jobs are tried again at once.
func (s *service) makeQueue() {
	s.t.Helper()
	s.put("/api/v1/queues/q", object{"retry_delay": "1ms", "retry_max_delay": "1ms", "max_attempts": 7}).is(201)
}

// What a batch says of jobs is what the API shows and gives out, from the least to the greatest value of each field: as many at
// once as are written by a bulk load.
func TestColumnsBothWays(t *testing.T) {
	dialects(t, func(t *testing.T, db *dbtest.DB) {
		s := serve(t, db.DB, Options{})
		s.makeQueue()
		s.put("/api/v1/queues/q", object{"max_timeout": "none"}).is(200)
		long := strings.Repeat("\U0001F41E", 200)
		jobs := []object{
			{"kind": "x"},
			{
				"kind": "y", "queue": "q", "key": "k", "tenant": "t", "cost": 2, "priority": "urgent", "max_attempts": 1, "timeout": "1h",
				"trace": "00-" + strings.Repeat("0", 31) + "1-" + strings.Repeat("0", 15) + "1-00", "payload_base64": "AA==",
			},
			{
				"kind": long, "key": long, "tenant": long, "cost": 1000, "priority": "idle", "max_attempts": 1_000_000, "timeout": "36500d",
				"trace":   "00-" + strings.Repeat("f", 32) + "-" + strings.Repeat("f", 16) + "-ff",
				"payload": object{"a": long + "\u0001"},
			},
		}
		many := make([]object, 300)
		for i := range many {
			many[i] = maps.Clone(jobs[i%len(jobs)])
			many[i]["queue"] = "q"
		}
		made := read[struct{ Jobs []wire.Enqueued }](s.post("/api/v1/jobs/batch", object{"jobs": many}).is(201)).Jobs
		given := map[string]object{}
		for len(given) < len(many) {
			got := read[struct {
				Node string
				Jobs []object
			}](s.post("/api/v1/queues/q/claim", object{"wait": "30s", "lease": "12h", "max": 100}).is(200))
			for _, j := range got.Jobs {
				given[j["id"].(string)] = j
			}
			var tokens []object
			for _, j := range got.Jobs {
				tokens = append(tokens, object{"token": j["token"]})
				shown := read[object](s.get("/api/v1/queues/q/jobs/" + j["id"].(string)).is(200))
				i := slices.IndexFunc(made, func(e wire.Enqueued) bool { return e.ID == j["id"] })
				for field, want := range many[i] {
					if is := fmt.Sprint(shown[field]); is != asRead(want) {
						t.Fatalf("%s is shown as %s, not %s", field, is, asRead(want))
					}
					if is, has := j[field]; has && fmt.Sprint(is) != asRead(want) {
						t.Fatalf("%s is given out as %v, not %s", field, is, asRead(want))
					}
				}
			}
			s.say("complete", tokens).is(200)
		}
	})
}

// asRead is how a value of a JSON text is printed.
func asRead(v any) string {
	b, _ := json.Marshal(v)
	var read any
	_ = json.Unmarshal(b, &read)
	return fmt.Sprint(read)
}

// A claim returns a job with all its fields, and its reported outcome is recorded.
func TestClaim(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		s := serve(t, db.DB, Options{})
		s.post("/api/v1/queues/q/claim", object{}).is(404)
		s.makeQueue()
		if got := s.claim(object{}); got.Jobs == nil || len(got.Jobs) != 0 || !strings.HasPrefix(got.Node, "test:") {
			t.Errorf("an empty queue gives %+v", got)
		}
		trace := "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
		id := s.enqueue(object{
			"kind": "x", "queue": "q", "key": "k", "payload": object{"a": 1}, "priority": "urgent",
			"max_attempts": 3, "trace": trace,
		})
		binary := s.enqueue(object{"kind": "y", "queue": "q", "payload_base64": "/w=="})
		got := s.one()
		for len(got.Jobs) < 2 {
			got.Jobs = append(got.Jobs, s.one().Jobs...)
		}
		slices.SortFunc(got.Jobs, func(a, b claimedJob) int { return strings.Compare(a.Kind, b.Kind) })
		j := got.Jobs[0]
		if j.ID != id || j.Queue != "q" || j.Kind != "x" || j.Key != "k" || j.Priority != "urgent" ||
			string(j.Payload) != `{"a":1}` || j.Attempt != 1 || j.MaxAttempts != 3 || j.Crashes != 0 || j.Trace != trace || j.Enqueued.IsZero() {
			t.Errorf("got %+v", j)
		}
		if y := got.Jobs[1]; y.ID != binary || string(y.PayloadBase64) != "\xff" || y.Payload != nil || y.MaxAttempts != 7 {
			t.Errorf("got %+v", y)
		}
		s.say("complete", got.tokens()).is(200).has(`"done":2`).has(`"lost":[]`)
		s.get("/api/v1/queues/q/jobs/" + id).is(404)
		otherwise := got.tokens()
		for _, c := range otherwise {
			c["result"] = "another one"
		}
		s.say("complete", otherwise).is(409)
		s.enqueue(object{"kind": "x", "queue": "q"})
		more := s.one()
		s.say("complete", append(otherwise, more.tokens()...)).is(200).has(`"done":1`).has(got.Jobs[1].Token)
		s.put("/api/v1/queues/gone", object{}).is(201)
		s.remove("/api/v1/queues/gone").is(204)
		s.post("/api/v1/queues/gone/claim", object{}).is(409)
	})
}

// Problems in a request are reported, and nothing is done. A claim of some kinds gets as many
// such jobs as exist, and the others stay for those who claim them.
func TestClaimKinds(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		s := serve(t, db.DB, Options{})
		s.makeQueue()
		var jobs []object
		for i := range 300 {
			jobs = append(jobs, object{"kind": []string{"a", "b", "c"}[i%3], "queue": "q"})
		}
		s.post("/api/v1/jobs/batch", object{"jobs": jobs}).is(201)
		s.one() // until then it may have no blocks
		for _, kind := range []string{"b", "c"} {
			for n := 0; n < 100; { // a claim has all of them, unless a read takes longer than a moment
				got := s.claim(object{"max": 100, "wait": "30s", "lease": "12h", "kinds": []string{kind, "none"}})
				n += len(got.Jobs)
				for _, j := range got.Jobs {
					if j.Kind != kind {
						t.Errorf("one of kind %s came", j.Kind)
					}
				}
			}
		}
		for n := 0; n < 99; {
			n += len(s.claim(object{"max": 1000, "wait": "30s", "lease": "12h"}).Jobs)
		}
		s.post("/api/v1/queues/q/claim", object{"kinds": []string{}}).is(422).at("body.kinds")
		s.post("/api/v1/queues/q/claim", object{"kinds": []string{"a", " b"}}).is(422).at("body.kinds[1]")
	})
}

func TestClaimBadInput(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		s := serve(t, db.DB, Options{})
		s.makeQueue()
		for field, body := range map[string]object{
			"max": {"max": 0}, "lease": {"lease": "500ms"}, "wait": {"wait": "31s"},
		} {
			s.post("/api/v1/queues/q/claim", body).is(422).at("body." + field)
		}
		s.post("/api/v1/queues/q/claim", object{"lease": "13h"}).is(422).at("body.lease")
		s.post("/api/v1/queues/q/claim", object{"max": 1001}).is(422).at("body.max")
		s.post("/api/v1/queues/q/claim", object{"wait": "soon"}).is(422).at("body.wait")
		s.enqueue(object{"kind": "x", "queue": "q"})
		token := s.one().Jobs[0].Token
		for at, claims := range map[string][]object{
			"token": {{"token": "x"}}, "retry_after": {{"token": token, "retry_after": "-1s"}},
			"discard": {{"token": token, "dead": true, "discard": true}},
		} {
			s.say("fail", claims).is(422).at("body.claims[0]." + at)
		}
		s.say("fail", []object{{"token": token, "dead": true, "retry_after": "1s"}}).is(422).at("body.claims[0].retry_after")
		s.say("complete", []object{{"token": token}, {"token": token}}).is(422).at("body.claims[1].token")
		s.say("complete", []object{}).is(422).at("body.claims")
		s.post("/api/v1/claims/heartbeat", object{"claims": []object{{"token": token}}, "lease": "1ms"}).is(422).at("body.lease")
		s.say("complete", []object{{"token": token}}).is(200) // it is given out all the while
	})
}

// A job that has failed is tried again as was said, and one that was released as if it had
// not been given out.
func TestClaimOutcomes(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		s := serve(t, db.DB, Options{})
		s.makeQueue()
		id := s.enqueue(object{"kind": "x", "queue": "q"})
		fail := func(more object) {
			t.Helper()
			got := s.one()
			more["token"] = got.Jobs[0].Token
			s.say("fail", []object{more}).is(200).has(`"done":1`)
		}
		fail(object{"error": "no luck"})
		got := s.one()
		if j := got.Jobs[0]; j.ID != id || j.Attempt != 2 {
			t.Errorf("got %+v", j)
		}
		s.say("release", got.tokens()).is(200).has(`"done":1`)
		s.say("release", got.tokens()).is(409)
		got = s.one()
		if j := got.Jobs[0]; j.ID != id || j.Attempt != 2 {
			t.Errorf("got %+v", j)
		}
		s.say("heartbeat", got.tokens()).is(200).has(`"done":1`)
		s.say("fail", []object{{"token": got.Jobs[0].Token, "retry_after": "1h", "error": "later"}}).is(200)
		s.get("/api/v1/queues/q/jobs/" + id).is(200).has(`"state":"delayed"`).has(`"attempts":2`).has(`"error":"later"`)
		s.post("/api/v1/queues/q/jobs/"+id+"/run", nil).is(204)
		fail(object{"dead": true})
		s.get("/api/v1/queues/q/jobs/" + id).is(200).has(`"state":"dead"`).has(`"error":"its worker gave no reason"`)
		other := s.enqueue(object{"kind": "x", "queue": "q"})
		fail(object{"discard": true, "error": "not needed"})
		s.get("/api/v1/queues/q/jobs/" + other).is(404)

		group, err := s.api.queues.NewGroup(t.Context(), queue.Group{})
		must(t, err)
		s.enqueue(object{"kind": "x", "queue": "q", "group": wire.ID(group)})
		got = s.one()
		if got.Jobs[0].Group != wire.ID(group) {
			t.Errorf("got %+v", got)
		}
		s.say("complete", []object{{"token": got.Jobs[0].Token, "result": strings.Repeat("x", 2<<20)}}).is(422).at("body.claims[0].result")
		s.say("complete", []object{{"token": got.Jobs[0].Token, "result": object{"n": 1}}}).is(200)
		s.get("/api/v1/groups/" + wire.ID(group) + "/results").is(200).has(`"result":{"n":1}`)
	})
}

// Who reports the same outcome once more, because the answer was lost, is told the same; who reports another one is not.
func TestClaimOutcomesOnceMore(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		s, elsewhere := serve(t, db.DB, Options{Node: "first"}), other(t, db)
		s.makeQueue()
		for _, at := range []*service{s, elsewhere} {
			s.enqueue(object{"kind": "x", "queue": "q"})
			token := s.one().Jobs[0].Token
			done := []object{{"token": token, "result": object{"n": 1}}}
			for range 2 {
				at.say("complete", done).is(200).has(`"done":1`).has(`"lost":[]`)
			}
			at.say("complete", []object{{"token": token, "result": object{"n": 2}}}).is(409)
			at.say("fail", []object{{"token": token}}).is(409)
			at.say("complete", done).is(200)

			s.enqueue(object{"kind": "x", "queue": "q"})
			token = s.one().Jobs[0].Token
			for range 2 {
				at.say("fail", []object{{"token": token, "dead": true}}).is(200).has(`"done":1`)
			}
			at.say("complete", []object{{"token": token}}).is(409)
		}
		var r reports
		for i := range 2 * maxReports {
			c := &claimed{key: secret{byte(i), byte(i >> 8), byte(i >> 16)}, said: saying("done", i)}
			mine, _ := r.begin(c)
			r.end(c, mine, nil)
		}
		if len(r.of) != maxReports {
			t.Errorf("it remembers %d", len(r.of))
		}
	})
}

// A job of which nothing is heard in time has failed, and is tried again; a heartbeat gives
// it more.
func TestClaimLease(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		s := serve(t, db.DB, Options{})
		s.makeQueue()
		id := s.enqueue(object{"kind": "x", "queue": "q"})
		got := s.claim(object{"lease": "1s", "wait": "30s"})
		again := s.one()
		if j := again.Jobs[0]; j.ID != id || j.Attempt != 2 {
			t.Errorf("got %+v", j)
		}
		s.get("/api/v1/queues/q/jobs/" + id).is(200)
		for _, what := range []string{"complete", "fail", "heartbeat", "release"} {
			s.say(what, got.tokens()).is(409)
		}
		s.say("fail", []object{{"token": again.Jobs[0].Token, "dead": true}}).is(200)

		s.enqueue(object{"kind": "x", "queue": "q", "max_attempts": 1})
		s.claim(object{"lease": "1s", "wait": "30s"})
		s.eventually("it has failed", func() bool {
			return strings.Contains(s.get("/api/v1/queues/q/jobs?state=dead").text, "the claim's lease has ended: no heartbeat came for 1s")
		})

		s.enqueue(object{"kind": "x", "queue": "q", "max_attempts": 1000})
		s.eventually("a heartbeat is in time", func() bool { // at once, but on a slow machine
			got = s.claim(object{"lease": "1s", "wait": "30s"})
			return len(got.Jobs) == 1 && s.post("/api/v1/claims/heartbeat", object{"claims": got.tokens(), "lease": "12h"}).status == 200
		})
		began := instant.Now()
		s.eventually("its time would be over", func() bool { return instant.Now().Sub(began) > 1500*time.Millisecond })
		s.say("complete", got.tokens()).is(200)
	})
}

// Of several who wait each gets a job, if there are enough: also if these come at once, and
// if they come between an empty answer and the next wait.
func TestLongPoll(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		s, producer := serve(t, db.DB, Options{}), other(t, db)
		s.makeQueue()
		for round := range 3 {
			answers := make(chan claimedList, 2)
			for i := range 2 {
				go func() {
					got, err := s.quietly(object{"wait": "30s", "lease": "12h"})
					if err != nil {
						t.Error(err)
					}
					answers <- got
				}()
				s.waits(i + 1)
			}
			from := []*service{s, producer, producer}[round]
			from.enqueue(object{"kind": "x", "queue": "q"})
			from.enqueue(object{"kind": "x", "queue": "q"})
			var ids []string
			for range 2 {
				got := <-answers
				for _, j := range got.Jobs {
					ids = append(ids, j.ID)
				}
				if len(got.Jobs) > 0 {
					s.say("complete", got.tokens()).is(200)
				}
			}
			if slices.Sort(ids); len(slices.Compact(ids)) != 2 {
				t.Errorf("round %d: the two who waited got %v", round, ids)
			}
		}
		for range 3 { // empty, then a job, then a wait
			if got := s.claim(object{}); len(got.Jobs) > 0 {
				t.Errorf("got %+v", got)
			}
			id := producer.enqueue(object{"kind": "x", "queue": "q"})
			got := s.claim(object{"lease": "12h"}) // the database is read before an empty answer
			if len(got.Jobs) != 1 || got.Jobs[0].ID != id {
				t.Fatalf("%s is there, and came %+v", id, got)
			}
			s.say("complete", got.tokens()).is(200)
		}
	})
}

// quietly is claim for goroutines.
func (s *service) quietly(body object) (got claimedList, err error) {
	return s.quietlyAs(s.t.Context(), body)
}

func (s *service) quietlyAs(ctx context.Context, body object) (got claimedList, err error) {
	text, err := json.Marshal(body)
	if err != nil {
		return got, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+"/api/v1/queues/q/claim", strings.NewReader(string(text)))
	if err != nil {
		return got, err
	}
	r.Header.Set("Content-Type", "application/json")
	a, err := s.client.Do(r)
	if err != nil {
		return got, err
	}
	defer a.Body.Close()
	if text, err = io.ReadAll(a.Body); err == nil && a.StatusCode != 200 {
		err = fmt.Errorf("%d %s", a.StatusCode, text)
	}
	if err == nil {
		err = json.Unmarshal(text, &got)
	}
	return got, err
}

// A client that leaves takes no job with it.
func TestClaimantLeaves(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		s := serve(t, db.DB, Options{})
		s.makeQueue()
		for range 3 {
			ctx, leave := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() {
				_, err := s.quietlyAs(ctx, object{"wait": "30s", "lease": "12h"})
				ended <- err
			}()
			s.waits(1)
			leave()
			if err := <-ended; err == nil {
				t.Error("one who has left got an answer")
			}
			id := s.enqueue(object{"kind": "x", "queue": "q"}) // maybe before that is noticed
			got := s.one()
			if j := got.Jobs[0]; j.ID != id || j.Attempt != 1 {
				t.Errorf("got %+v", j)
			}
			s.say("complete", got.tokens()).is(200)
		}
		// One who leaves when the job is there already.
		ctx, leave := context.WithCancel(t.Context())
		leave()
		for range 5 {
			id := s.enqueue(object{"kind": "x", "queue": "q"})
			if _, list, err := s.api.pulls.claim(ctx, "q", claimOf{limit: 1, lease: time.Hour}); err == nil || len(list) > 0 {
				t.Errorf("got %v, %v", list, err)
			}
			got := s.one()
			if j := got.Jobs[0]; j.ID != id || j.Attempt != 1 {
				t.Errorf("got %+v", j)
			}
			s.say("complete", got.tokens()).is(200)
		}
	})
}

// Complete and fail work at any daemon; heartbeat and release at the one that gave the job
// out, which another names. What was ended elsewhere is lost there.
func TestClaimsOfOtherDaemons(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		s, elsewhere := serve(t, db.DB, Options{Node: "first"}), other(t, db)
		s.makeQueue()
		for range 2 {
			id := s.enqueue(object{"kind": "x", "queue": "q"})
			got := s.one()
			if !strings.HasPrefix(got.Node, "first:") {
				t.Errorf("the daemon is %s", got.Node)
			}
			for _, what := range []string{"heartbeat", "release"} {
				elsewhere.say(what, got.tokens()).is(http.StatusMisdirectedRequest).has(got.Node)
			}
			elsewhere.say("fail", []object{{"token": got.Jobs[0].Token, "error": "elsewhere"}}).is(200).has(`"done":1`)
			elsewhere.say("complete", got.tokens()).is(409)
			s.say("complete", got.tokens()).is(409)
			got = s.one()
			if j := got.Jobs[0]; j.ID != id || j.Attempt != 2 {
				t.Errorf("got %+v", j)
			}
			elsewhere.say("complete", got.tokens()).is(200).has(`"done":1`)
			s.eventually("it has noticed", func() bool { return s.say("heartbeat", got.tokens()).status == 409 })
			s.say("complete", got.tokens()).is(409)
			s.get("/api/v1/queues/q/jobs/" + id).is(404)
		}
	})
}

// After a restart a daemon's tokens are good nowhere, and its jobs are done again,
// uncounted.
func TestClaimsAfterRestart(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		s, elsewhere := serve(t, db.DB, Options{}), other(t, db)
		s.makeQueue()
		id := s.enqueue(object{"kind": "x", "queue": "q"})
		got := s.one()
		s.api.Close()
		s.post("/api/v1/queues/q/claim", object{}).is(503)
		for _, at := range []*service{s, elsewhere} {
			for _, what := range []string{"complete", "fail", "heartbeat", "release"} {
				at.say(what, got.tokens()).is(409)
			}
		}
		got = elsewhere.one()
		if j := got.Jobs[0]; j.ID != id || j.Attempt != 1 || j.Crashes != 0 {
			t.Errorf("got %+v", j)
		}
		elsewhere.say("complete", got.tokens()).is(200)
	})
}

// A stopping daemon answers waiting claims with no jobs, hands out no more, and waits for what
// it has handed out.
func TestClaimsDrain(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		s := serve(t, db.DB, Options{})
		s.makeQueue()
		s.enqueue(object{"kind": "x", "queue": "q"})
		given := s.one()
		answers := make(chan claimedList, 1)
		go func() {
			got, err := s.quietly(object{"wait": "30s"})
			if err != nil {
				t.Error(err)
			}
			answers <- got
		}()
		s.waits(1)
		drained := make(chan struct{})
		go func() {
			s.api.Drain(t.Context())
			close(drained)
		}()
		if got := <-answers; len(got.Jobs) > 0 {
			t.Errorf("got %+v", got)
		}
		s.post("/api/v1/queues/q/claim", object{}).is(503)
		select {
		case <-drained:
			t.Error("it did not wait for the job that is given out")
		default:
		}
		s.say("complete", given.tokens()).is(200)
		<-drained
		if n := rows(t, db, "job"); n > 0 {
			t.Errorf("%d jobs are left", n)
		}
	})
}

// The blocks of a queue from which nobody claims go back, and come again.
func TestIdleQueueIsLeft(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		s := serve(t, db.DB, Options{})
		s.api.pulls.idle = time.Millisecond
		s.makeQueue()
		for range 2 {
			id := s.enqueue(object{"kind": "x", "queue": "q"})
			got := s.one()
			s.say("complete", got.tokens()).is(200)
			s.get("/api/v1/queues/q/jobs/" + id).is(404)
			s.eventually("nobody has the blocks", func() (left bool) {
				var n int
				db.Scan(t, `SELECT COUNT(*) FROM {prefix}queue_block WHERE state = 'LEASED'`, nil, &n)
				return n == 0
			})
			s.say("complete", got.tokens()).is(200) // as if the answer had been lost
			s.say("fail", got.tokens()).is(409)
		}
	})
}

// Several programs that claim at two daemons do each job once, as long as the leases are.
func TestManyClaim(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		const n = 2000
		s, elsewhere := serve(t, db.DB, Options{}), other(t, db)
		s.makeQueue()
		var jobs []queue.Job
		for range n {
			jobs = append(jobs, queue.Job{Kind: "x", Queue: "q"})
		}
		_, err := s.api.queues.EnqueueMany(t.Context(), jobs)
		must(t, err)
		var mu sync.Mutex
		done, all := map[string]int{}, 0
		var clients sync.WaitGroup
		for i := range 6 {
			from, to := []*service{s, elsewhere}[i%2], []*service{s, elsewhere, s}[i%3]
			clients.Go(func() {
				for over := instant.Now().Add(longWait); ; {
					mu.Lock()
					ended := all >= n
					mu.Unlock()
					if ended || instant.Now() > over {
						return
					}
					got, err := from.quietly(object{"wait": "1s", "lease": "12h", "max": 40})
					if err != nil {
						t.Error(err)
						return
					}
					if len(got.Jobs) == 0 {
						continue
					}
					answer := to.say("complete", got.tokens())
					if answer.status != 200 || !strings.Contains(answer.text, fmt.Sprintf(`"done":%d`, len(got.Jobs))) {
						t.Errorf("%d jobs: %d %s", len(got.Jobs), answer.status, cut(answer.text))
					}
					mu.Lock()
					for _, j := range got.Jobs {
						done[j.ID]++
						all++
					}
					mu.Unlock()
				}
			})
		}
		clients.Wait()
		if len(done) != n || slices.Max(slices.Collect(maps.Values(done))) != 1 {
			t.Errorf("%d of %d jobs were done, in %d goes", len(done), n, all)
		}
		if left := rows(t, db, "job") + rows(t, db, "job_running") + rows(t, db, "job_delayed") + rows(t, db, "job_dead"); left > 0 {
			t.Errorf("%d rows are left", left)
		}
	})
}

// Jobs of a key are given out in their order, one after the other, wherever they are
// claimed and completed.
func TestClaimInOrder(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		s, elsewhere := serve(t, db.DB, Options{}), other(t, db)
		s.makeQueue()
		var ids []string
		for range 12 {
			ids = append(ids, s.enqueue(object{"kind": "x", "queue": "q", "key": "k"}))
		}
		var got claimedList
		for i, id := range ids {
			s.eventually("the next one comes", func() bool {
				got = []*service{s, elsewhere}[i/6].claim(object{"wait": "1s", "lease": "12h", "max": 10})
				return len(got.Jobs) > 0
			})
			if len(got.Jobs) != 1 || got.Jobs[0].ID != id {
				t.Fatalf("%d: got %+v, and not %s", i, got, id)
			}
			[]*service{s, elsewhere}[i%2].say("complete", got.tokens()).is(200)
		}
	})
}

// A token decodes to what it was made of, and other texts are refused. No part of it can be changed.
func TestClaimTokens(t *testing.T) {
	s := &signer{key: []byte("of this database")}
	for _, c := range []queue.Claim{
		{Node: "host:1:abc", Queue: "q", Block: 3, Fence: 1 << 40, Priority: 2, Job: 1 << 61, Attempt: 1},
		{Node: strings.Repeat("n", 200), Queue: strings.Repeat("😀", 200), Priority: 4, Attempt: 1000000},
	} {
		token, key := s.write(&c)
		if got, ok := s.read(token); !ok || got.forged || got.key != key || got.claim != c || len(token) > longestToken {
			t.Errorf("%d: %+v became %+v, %v", len(token), c, got, ok)
		}
		if got, _ := (&signer{key: []byte("of another")}).read(token); !got.forged {
			t.Error("one of another database is signed")
		}
		for i := range len(token) {
			for _, text := range []string{token[:i], token[:i] + "_" + token[i+1:], token[:i] + token[min(i+2, len(token)):]} {
				if got, ok := s.read(text); ok && !got.forged && text != token {
					t.Errorf("%q is a token like %q", text, token)
				}
			}
		}
	}
	for _, text := range []string{"", "AQ", "====", "x y", strings.Repeat("A", 100), strings.Repeat("_", 100)} {
		if _, ok := s.read(text); ok {
			t.Errorf("%q is a token", text)
		}
	}
}

// While one request waits for the database to say which key signs claims, another one can give up.
func TestKeyOfClaimsUnderWay(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		s := &signer{db: db.DB}
		db.Pool().SetMaxOpenConns(1)
		only, err := db.Pool().Conn(t.Context())
		must(t, err)
		first := make(chan error, 1)
		go func() { first <- s.ready(context.Background()) }()
		eventually(t, "a request waits for a connection", func() bool { return db.Pool().Stats().WaitCount > 0 })
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		second := make(chan error, 1)
		go func() { second <- s.ready(gone) }()
		select {
		case err := <-second:
			if err == nil {
				t.Error("there is no key yet")
			}
		case <-time.After(longWait):
			t.Error("a request whose context has ended waits for another one")
		}
		must(t, only.Close())
		must(t, <-first)
	})
}

// A token that no daemon of the database has made ends nothing, at any daemon, even if it is right in all but the signature. The
// daemons agree on a key, whoever makes it. What belongs to the class: whatever a request brings back that names rows and was not
// looked up for its sender. Tickets of locks have a random part in their row; cursors only say where to read on.
func TestForgedClaims(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		all := []*service{serve(t, db.DB, Options{}), other(t, db), other(t, db)}
		var wg sync.WaitGroup
		for _, s := range all {
			wg.Go(func() {
				if err := s.api.pulls.signer.ready(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		for _, s := range all[1:] {
			if n := rows(t, db, "secret"); n != 1 || !bytes.Equal(s.api.pulls.signer.key, all[0].api.pulls.signer.key) {
				t.Fatalf("the daemons have different keys, and there are %d", n)
			}
		}
		s, stranger := all[0], &signer{key: make([]byte, 32)}
		s.makeQueue()
		id := s.enqueue(object{"kind": "k", "queue": "q"})
		got := s.one()
		honest, ok := s.api.pulls.signer.read(got.Jobs[0].Token)
		if !ok || honest.forged {
			t.Fatalf("its own token is %+v", honest)
		}
		forged, _ := stranger.write(&honest.claim)
		for _, s := range all {
			for _, do := range []string{"complete", "fail", "heartbeat", "release"} {
				s.say(do, []object{{"token": forged}}).is(409)
			}
		}
		s.get("/api/v1/jobs/" + id).is(200)
		all[1].say("complete", got.tokens()).is(200)
		s.get("/api/v1/jobs/" + id).is(404)
	})
}

// A job whose end the database refuses to write is a conflict. The others of its request are done, and
// the job says why.
func TestRefusedClaim(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		s := serve(t, db.DB, Options{})
		s.makeQueue()
		allow := db.Refuse(t, "DELETE", "job", `OLD.kind = 'bad'`)
		bad, good := s.enqueue(object{"kind": "bad", "queue": "q"}), s.enqueue(object{"kind": "good", "queue": "q"})
		got := s.one()
		for len(got.Jobs) < 2 {
			got.Jobs = append(got.Jobs, s.one().Jobs...)
		}
		s.say("complete", got.tokens()).is(409).has("the database refuses to record")
		s.eventually("the other is done", func() bool { return s.get("/api/v1/jobs/"+good).status == 404 })
		s.eventually("the job says why", func() bool { return strings.Contains(s.get("/api/v1/jobs/"+bad).is(200).text, "not this one") })
		allow()
		s.eventually("it is done", func() bool { return s.get("/api/v1/jobs/"+bad).status == 404 })
	})
}
