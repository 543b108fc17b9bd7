package httpapi

import (
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/wire"
)

// Who waits for a job gets it as it has ended, or as it is when the wait is over; not for longer than the daemon allows, and
// not if nobody could say.
func TestAwaitJobs(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		s := serve(t, db.DB, Options{})
		loose := s.enqueue(object{"kind": "x"})
		s.get("/api/v1/jobs/" + loose + "/await").is(409).has("keeps no done jobs")
		s.get("/api/v1/jobs/77/await").is(404)
		s.put("/api/v1/queues/kept", object{"keep_done": "1h"})
		id := s.enqueue(object{"kind": "x", "queue": "kept"})
		s.get("/api/v1/queues/kept/jobs/" + id + "/await?wait=31s").is(422)
		if j := read[wire.Job](s.get("/api/v1/queues/kept/jobs/" + id + "/await?wait=1ms").is(200)); j.State != "ready" {
			t.Errorf("it is %+v", j)
		}
		got := make(chan wire.Job, 2)
		for _, path := range []string{"/api/v1/queues/kept/jobs/" + id, "/api/v1/jobs/" + id} {
			go func() {
				for {
					j := read[wire.Job](s.get(path + "/await").is(200))
					if j.State == "done" {
						got <- j
						return
					}
				}
			}()
		}
		claimed := read[wire.Claimed](s.post("/api/v1/queues/kept/claim", object{"wait": "20s"}).is(200))
		s.post("/api/v1/claims/complete", object{"claims": []object{{"token": claimed.Jobs[0].Token, "result": object{"n": 1}}}}).is(200)
		for range 2 {
			select {
			case j := <-got:
				if j.ID != id || string(j.Result) != `{"n":1}` {
					t.Errorf("it is %+v", j)
				}
			case <-time.After(time.Minute):
				t.Fatal("no answer")
			}
		}
	})
}
