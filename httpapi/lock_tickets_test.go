package httpapi

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/wire"
)

// A lock is taken, renewed and released at any daemon, by its token alone.
func TestLockTickets(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		s, elsewhere := serve(t, db.DB, Options{}), other(t, db)
		const path = "/api/v1/locks/a%2Fb"
		s.get(path).is(404)
		first := read[wire.LockTicket](s.post(path+"/acquire", object{"ttl": "1h", "owner": "report.py", "meta": "nightly"}).is(200))
		if first.Name != "a/b" || first.Fence != "1" || !strings.HasPrefix(first.By, "report.py:") || first.Left < 3000 || first.Left > 3600 {
			t.Errorf("got %+v", first)
		}
		if got := elsewhere.get(path).is(200).has(`"state":"held","by":"report.py:`).has(`"meta":"nightly"`); strings.Contains(got.text,
			first.Token) {
			t.Errorf("the token can be seen: %s", got.text)
		}
		for _, body := range []object{{}, {"wait": "10ms"}} {
			got := elsewhere.post(path+"/acquire", body).is(409)
			var held wire.LockTicket
			if err := json.Unmarshal([]byte(got.text), &held); err != nil || held.By != first.By || held.Until != first.Until {
				t.Errorf("got %s, %v", got.text, err)
			}
		}
		renewed := read[wire.LockTicket](elsewhere.post(path+"/renew", object{"token": first.Token, "ttl": "2h"}).is(200))
		if renewed.Fence != "1" || renewed.Token != first.Token || renewed.Left < 3700 {
			t.Errorf("got %+v", renewed)
		}
		waited := make(chan *answer, 1)
		go func() { waited <- elsewhere.post(path+"/acquire", object{"wait": "30s", "ttl": "1h"}) }()
		s.post(path+"/release", object{"token": first.Token}).is(204)
		second := read[wire.LockTicket]((<-waited).is(200))
		if second.Fence != "2" || !strings.HasPrefix(second.By, "http:") {
			t.Errorf("got %+v", second)
		}
		s.post(path+"/renew", object{"token": first.Token}).is(409)
		s.post(path+"/release", object{"token": first.Token}).is(409)
		s.post(path+"/force-release", object{"reason": "it hangs"}).is(200).has(`"by":"http:`)
		elsewhere.post(path+"/renew", object{"token": second.Token}).is(409)
		s.post(path+"/force-release", object{"reason": "it hangs"}).is(200).has(`"state":"free"`)
	})
}

// A request repeated with its Idempotency-Key gets the same ticket, and another request does
// not.
func TestAcquireAgain(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		s, elsewhere := serve(t, db.DB, Options{}), other(t, db)
		const path = "/api/v1/locks/x/acquire"
		first := read[wire.LockTicket](s.send("POST", path, object{"ttl": "1h"}, "Idempotency-Key: one").is(200))
		again := read[wire.LockTicket](elsewhere.send("POST", path, object{"ttl": "2h"}, "Idempotency-Key: one").is(200))
		if again.Token != first.Token || again.Fence != first.Fence || again.Left <= first.Left {
			t.Errorf("got %+v, before %+v", again, first)
		}
		elsewhere.send("POST", path, object{}, "Idempotency-Key: two").is(409)
		elsewhere.send("POST", path, object{"owner": "other"}, "Idempotency-Key: one").is(409)
	})
}

// Problems are reported by field, and no row is created.
func TestLockTicketsRefuse(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		s := serve(t, db.DB, Options{})
		for field, bad := range map[string]any{"ttl": "25h", "wait": "31s", "owner": strings.Repeat("ü", 80), "meta": "\x00", "nonsense": 1} {
			s.post("/api/v1/locks/x/acquire", object{field: bad}).is(422).at("body." + field)
		}
		for _, action := range []string{"renew", "release"} {
			s.post("/api/v1/locks/x/"+action, object{"token": "x"}).is(422).at("body.token")
			s.post("/api/v1/locks/x/"+action, object{"token": "1.aaaa.YQ"}).is(409)
		}
		s.post("/api/v1/locks/x/renew", object{"token": "1.aaaa.YQ", "ttl": "10ms"}).is(422).at("body.ttl")
		s.post("/api/v1/locks/x/force-release", object{"reason": "x"}).is(404)
		s.post("/api/v1/locks/x/force-release", object{}).is(422).at("body")
		s.post("/api/v1/locks/%20x/acquire", nil).is(422).at("path.lock")
		s.get("/api/v1/locks").is(200).has(`{"locks":[]}`)
		s.post("/api/v1/locks/x/acquire", nil).is(200)
	})
}

// Nobody waits for a lock once the daemon has begun to end; one that is free can be had.
func TestNoWaitingAtTheEnd(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		stopping := make(chan struct{})
		s := serve(t, db.DB, Options{Stopping: stopping})
		s.post("/api/v1/locks/x/acquire", object{"ttl": "1h", "wait": "1s"}).is(200)
		waits := make(chan *answer, 1)
		go func() { waits <- s.post("/api/v1/locks/x/acquire", object{"wait": "30s"}) }()
		close(stopping)
		if got := <-waits; got.status != 409 && got.status != 503 {
			t.Errorf("got %d %s", got.status, got.text)
		}
		s.post("/api/v1/locks/x/acquire", object{"wait": "30s"}).is(409)
		s.post("/api/v1/locks/y/acquire", object{"wait": "30s"}).is(200)
	})
}
