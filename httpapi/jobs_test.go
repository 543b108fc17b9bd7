package httpapi

import (
	"encoding/base64"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/wire"
)

// A job comes back as it was sent, and its payload byte for byte.
func TestJobs(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		s := serve(t, db.DB, Options{})
		const payload = "{\"n\" : 12345678901234567890,\n \"s\":\"<é\\u00e9>\" , \"n\":1.0}"
		sent := s.post("/api/v1/jobs", `{"kind": "mail", "queue": "a/b ü", "payload":  `+payload+
			`  , "key": "k", "priority": "urgent", "delay": "1h",
			"max_attempts": 3, "timeout": "1m30s", "trace": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "unique": "u", "unique_for": "1d"}`).is(201)
		made := read[wire.Enqueued](sent)
		if made.Queue != "a/b ü" || made.Existed {
			t.Errorf("made %+v", made)
		}
		path := sent.header.Get("Location")
		if want := "/api/v1/queues/a%2Fb%20%C3%BC/jobs/" + made.ID; path != want {
			t.Errorf("it is at %s, want %s", path, want)
		}
		j := read[wire.Job](s.get(path).is(200))
		due := j.Enqueued.Add(time.Hour)
		if j.ID != made.ID || j.State != "delayed" || j.Kind != "mail" || j.Key != "k" || j.Priority != "urgent" ||
			j.At.IsZero() || j.At.Sub(due).Abs() > time.Second ||
			j.MaxAttempts != 3 || j.Timeout != "1m30s" || j.Trace != "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01" || j.Unique != "u" || j.Attempts != 0 || j.PayloadBytes != len(payload) {
			t.Errorf("it is %+v", j)
		}
		s.get(path).has(`{"n":12345678901234567890,"s":"<é\u00e9>","n":1.0}`)
		if got := s.get(path + "/payload").is(200); got.text != payload || got.header.Get("Content-Type") != "application/json" {
			t.Errorf("the payload is %s %q", got.header.Get("Content-Type"), got.text)
		}
		again := read[wire.Enqueued](s.post("/api/v1/jobs", object{"kind": "mail", "queue": "a/b ü", "unique": "u"}).is(200))
		if again.ID != made.ID || !again.Existed {
			t.Errorf("again: %+v", again)
		}

		binary := s.enqueue(object{"kind": "x", "payload_base64": base64.StdEncoding.EncodeToString([]byte("\x00\xff{"))})
		if got := s.get("/api/v1/queues/default/jobs/" + binary + "/payload").is(200); got.text != "\x00\xff{" ||
			got.header.Get("Content-Type") != "application/octet-stream" {
			t.Errorf("the binary payload is %s %q", got.header.Get("Content-Type"), got.text)
		}
		if j := read[wire.Job](s.get("/api/v1/queues/default/jobs/" + binary).is(200)); string(j.Binary) != "\x00\xff{" ||
			j.State != "ready" || j.Priority != "normal" {
			t.Errorf("the binary one is %+v", j)
		}
		null := s.enqueue(object{"kind": "x", "payload": nil})
		s.get("/api/v1/queues/default/jobs/" + null + "/payload").is(200).has("null")
		none := s.enqueue(object{"kind": "x"})
		if got := s.get("/api/v1/queues/default/jobs/" + none + "/payload").is(200); got.text != "" {
			t.Errorf("no payload is %q", got.text)
		}
		s.get("/api/v1/queues/default/jobs/1").is(404)
		s.get("/api/v1/queues/none/jobs/1").is(404)
	})
}

// Lists continue where the previous page has ended, by filter.
func TestListJobs(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		s := serve(t, db.DB, Options{})
		var want []string
		for i := range 7 {
			id := s.enqueue(object{"kind": []string{"a", "b"}[i%2], "key": fmt.Sprint("k", i%3), "payload": object{"n": i}})
			if i%2 == 0 {
				want = append(want, id)
			}
		}
		large := s.enqueue(object{"kind": "large", "payload": strings.Repeat("x", longestListed)})
		type page struct {
			Jobs       []wire.Job
			NextCursor string `json:"next_cursor"`
		}
		var got []string
		for cursor, pages := "", 0; ; pages++ {
			p := read[page](s.get("/api/v1/queues/default/jobs?kind=a&limit=3&cursor=" + cursor).is(200))
			for _, j := range p.Jobs {
				got = append(got, j.ID)
			}
			if cursor = p.NextCursor; cursor == "" || pages > 10 {
				break
			}
		}
		if strings.Join(got, " ") != strings.Join(want, " ") {
			t.Errorf("got %v, want %v", got, want)
		}
		for query, n := range map[string]int{
			"": 8, "kind=b": 3, "key=k0": 3, "kind=a&key=k0": 2,
			"where=%24.n%20%3E%3D%205": 2, "state=delayed": 0, "state=dead": 0, "state=running": 0,
		} {
			if p := read[page](s.get("/api/v1/queues/default/jobs?" + query).is(200)); len(p.Jobs) != n {
				t.Errorf("%q lists %d, want %d", query, len(p.Jobs), n)
			}
		}
		if p := read[page](s.get("/api/v1/queues/default/jobs?kind=large").is(200)); p.Jobs[0].ID != large ||
			len(p.Jobs[0].Payload) != 0 || p.Jobs[0].PayloadBytes != longestListed+2 {
			t.Errorf("the large one is listed as %.300v", p.Jobs)
		}
		s.get("/api/v1/queues/none/jobs").is(404)
	})
}

// A list that would be large ends early, and continues at its cursor.
func TestListLargeJobs(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		s := serve(t, db.DB, Options{})
		const n = 40
		payload := strings.Repeat("x", longestListed-100)
		for range n {
			s.enqueue(object{"kind": "a", "payload": payload})
		}
		s.enqueue(object{"kind": "a", "payload": strings.Repeat("x", 1_000_000)})
		seen, cursor, pages := map[string]bool{}, "", 0
		for more := true; more; more = cursor != "" {
			answer := s.get("/api/v1/queues/default/jobs?limit=1000&cursor=" + cursor).is(200)
			if len(answer.text) > 2*maxListed {
				t.Errorf("an answer of %d bytes", len(answer.text))
			}
			p := read[struct {
				Jobs       []wire.Job
				NextCursor string `json:"next_cursor"`
			}](answer)
			for _, j := range p.Jobs {
				if seen[j.ID] = true; len(j.Payload) != len(payload)+2 && (len(j.Payload) != 0 || j.PayloadBytes != 1_000_002) {
					t.Errorf("a payload of %d bytes of %d", len(j.Payload), j.PayloadBytes)
				}
			}
			cursor = p.NextCursor
			pages++
		}
		if len(seen) != n+1 || pages < 2 {
			t.Errorf("%d jobs on %d pages", len(seen), pages)
		}
	})
}

// A batch is enqueued as a whole, in its order, or not at all.
func TestBatch(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		s := serve(t, db.DB, Options{})
		type made struct{ Jobs []wire.Enqueued }
		const maxJobs = 1000
		many := make([]object, maxJobs)
		for i := range many {
			many[i] = object{"kind": "x", "payload": i}
		}
		got := read[made](s.post("/api/v1/jobs/batch", object{"jobs": many}).is(201)).Jobs
		if len(got) != maxJobs || rows(t, db, "job") != maxJobs {
			t.Errorf("%d answers, and %d jobs", len(got), rows(t, db, "job"))
		}
		for i := 1; i < len(got); i++ {
			if got[i-1].ID >= got[i].ID { // of as many digits
				t.Fatalf("%s is before %s", got[i-1].ID, got[i].ID)
			}
		}
		s.post("/api/v1/jobs/batch", object{"jobs": append(many, many[0])}).is(422).at("body.jobs")
		s.post("/api/v1/jobs/batch", `{"jobs": [{"kind": "x"}], "JOBS": [`+strings.Repeat(`{"kind": "x"}, `, maxJobs)+
			`{"kind": "x"}]}`).is(422).at("body.JOBS")
		s.post("/api/v1/jobs/batch", object{"jobs": []object{}}).is(422).at("body.jobs")
		s.post("/api/v1/jobs/batch", object{"jobs": []object{{"kind": "x"}, {"kind": "x "}, {"kind": "x"}}}).is(422).at("body.jobs[1].kind")
		s.post("/api/v1/jobs/batch", object{"jobs": []object{
			{"kind": "x"},
			{"kind": "x", "run_at": "2026-01-01"},
		}}).is(422).at("body.jobs[1].run_at")
		s.put("/api/v1/queues/small", object{"max_payload": 10}).is(201)
		large := object{"kind": "x", "queue": "small", "payload": "longer than that"}
		s.post("/api/v1/jobs/batch", object{"jobs": []object{{"kind": "x", "queue": "fresh"}, large}}).is(413).at("body.jobs[1].payload")
		s.post("/api/v1/jobs/batch", object{"jobs": []object{large}}).is(413).at("body.jobs[0].payload")
		s.post("/api/v1/jobs", large).is(413).at("body.payload")
		s.post("/api/v1/jobs", object{"kind": "x", "timeout": "2h"}).is(422).at("body.timeout")
		if n := rows(t, db, "job"); n != maxJobs {
			t.Errorf("%d jobs", n)
		}
		both := []object{{"kind": "x", "unique": "u"}, {"kind": "y", "unique": "v"}}
		first := read[made](s.post("/api/v1/jobs/batch", object{"jobs": both[:1]}).is(201)).Jobs
		second := read[made](s.post("/api/v1/jobs/batch", object{"jobs": both}).is(201)).Jobs
		if !second[0].Existed || second[0].ID != first[0].ID || second[1].Existed {
			t.Errorf("got %+v after %+v", second, first)
		}
		s.post("/api/v1/jobs/batch", object{"jobs": both}).is(200)
	})
}

// A request with the same Idempotency-Key makes no second job: at another process at the
// same time, and when the job is done.
func TestIdempotencyKey(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		all := []*service{other(t, db), other(t, db)}
		for round := range 5 {
			var both sync.WaitGroup
			got := make([]*answer, 8)
			for i := range got {
				both.Go(func() {
					got[i] = all[i%2].send("POST", "/api/v1/jobs", object{"kind": "x", "payload": i}, fmt.Sprint("Idempotency-Key: ", round))
				})
			}
			both.Wait()
			made, ids := 0, map[string]bool{}
			for _, a := range got {
				e := read[wire.Enqueued](a)
				ids[e.ID] = true
				if a.status == 201 && !e.Existed {
					made++
				} else if a.status != 200 || !e.Existed {
					t.Errorf("got %d %s", a.status, a.text)
				}
			}
			if made != 1 || len(ids) != 1 || rows(t, db, "job") != round+1 {
				t.Fatalf("round %d: %d made, ids %v, %d jobs", round, made, ids, rows(t, db, "job"))
			}
		}
		s := all[0]
		c, err := queue.New(db.DB, queue.Options{})
		must(t, err)
		id := s.enqueue(object{"kind": "x", "queue": "q"})
		made := read[wire.Enqueued](s.send("POST", "/api/v1/jobs", object{"kind": "x", "queue": "q"}, "Idempotency-Key: a").is(201))
		n, err := adminOf(c).Bulk(t.Context(), admin.BulkCancel, admin.Filter{Queue: "q"}, admin.BulkOptions{})
		if err != nil || n.Done != 2 || made.ID == id {
			t.Fatalf("%+v, %v", n, err)
		}
		if again := read[wire.Enqueued](s.send("POST", "/api/v1/jobs", object{"kind": "x", "queue": "q"},
			"Idempotency-Key: a").is(200)); again.ID != made.ID {
			t.Errorf("got %+v, want %s", again, made.ID)
		}
		s.send("POST", "/api/v1/jobs", object{"kind": "x", "queue": "q"}, "Idempotency-Key: b").is(201)

		batch := object{"jobs": []object{{"kind": "x", "queue": "many"}, {"kind": "x", "queue": "many"}}}
		first := s.send("POST", "/api/v1/jobs/batch", batch, "Idempotency-Key: a").is(201)
		if second := s.send("POST", "/api/v1/jobs/batch", batch, "Idempotency-Key: a").is(200); strings.ReplaceAll(second.text,
			"true", "false") != first.text {
			t.Errorf("got %s after %s", second.text, first.text)
		}
		s.send("POST", "/api/v1/jobs", object{"kind": "x", "unique": "u"}, "Idempotency-Key: a").is(422).at("header.Idempotency-Key")
		s.send("POST", "/api/v1/jobs", object{"kind": "x"}, "Idempotency-Key: a b").is(422).at("header.Idempotency-Key")
		s.send("POST", "/api/v1/jobs", object{"kind": "x"}, "Idempotency-Key: "+strings.Repeat("x", 151)).is(422).at("header.Idempotency-Key")
	})
}

// One job is retried, run, cancelled and deleted, each from the states that allow it.
func TestJobActions(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		s := serve(t, db.DB, Options{})
		ready := "/api/v1/queues/default/jobs/" + s.enqueue(object{"kind": "x"})
		delayed := "/api/v1/queues/default/jobs/" + s.enqueue(object{"kind": "x", "delay": "1h"})
		db.Do(t, `INSERT INTO {prefix}job_dead (queue_id, divided, id, priority, kind, error, died_at) SELECT queue_id, 0, 5, 2, 'x', 'why', {now} FROM {prefix}queue`, nil)
		dead := "/api/v1/queues/default/jobs/5"
		s.get(dead).is(200).has(`"error":"why"`).has(`"state":"dead"`)
		for path, want := range map[string]int{
			ready + "/retry": 409, ready + "/run": 409, dead + "/run": 409, dead + "/cancel": 409,
			"/api/v1/queues/default/jobs/6/retry": 404, "/api/v1/queues/default/jobs/6/run": 404,
			"/api/v1/queues/default/jobs/6/cancel": 404, "/api/v1/queues/none/jobs/6/cancel": 404,
		} {
			s.post(path, nil).is(want)
		}
		s.remove(ready).is(409)
		s.remove("/api/v1/queues/default/jobs/6").is(404)
		before := read[wire.Job](s.get(delayed))
		s.post(delayed+"/run", nil).is(204)
		if now := read[wire.Job](s.get(delayed)); now.At.After(before.At.Add(-30 * time.Minute)) {
			t.Errorf("it is due at %v", now.At)
		}
		s.post(delayed+"/cancel", nil).is(204)
		s.get(delayed).is(404)
		s.post(dead+"/retry", nil).is(204)
		if now := read[wire.Job](s.get(dead).is(200)); now.State != "delayed" {
			t.Errorf("it is %+v", now)
		}
		db.Do(t, `INSERT INTO {prefix}job_dead (queue_id, divided, id, priority, kind) SELECT queue_id, 0, 7, 2, 'x' FROM {prefix}queue`, nil)
		s.remove("/api/v1/queues/default/jobs/7").is(204)
		s.get("/api/v1/queues/default/jobs/7").is(404)
	})
}

// A job's id alone names it, in whatever queue it is. Of several that have it none is meant.
func TestJobsByID(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		s := serve(t, db.DB, Options{})
		id := s.enqueue(object{"kind": "x", "queue": "mail", "key": "k", "payload": object{"n": 1}, "delay": "1h"})
		for _, path := range []string{"/api/v1/jobs/", "/api/v1/queues/mail/jobs/"} {
			if j := read[wire.Job](s.get(path + id).is(200)); j.ID != id || j.Queue != "mail" || j.Key != "k" {
				t.Errorf("%s: %+v", path, j)
			}
			s.get(path + id + "/payload").is(200).has(`{"n":1}`)
			s.get(path + "5").is(404)
		}
		s.post("/api/v1/jobs/"+id+"/run", nil).is(204)
		s.remove("/api/v1/jobs/" + id).is(409)
		s.post("/api/v1/jobs/"+id+"/cancel", nil).is(204)
		s.get("/api/v1/jobs/" + id).is(404)
		db.Do(t, `INSERT INTO {prefix}job_dead (queue_id, divided, id, priority, kind, died_at) SELECT queue_id, 0, 5, 2, 'x', {now} FROM {prefix}queue`, nil)
		s.post("/api/v1/jobs/5/retry", nil).is(204)
		s.enqueue(object{"kind": "x", "queue": "copies"})
		db.Do(t, `INSERT INTO {prefix}job_dead (queue_id, divided, id, priority, kind, died_at) SELECT queue_id, 0, 7, 2, 'x', {now} FROM {prefix}queue`, nil)
		s.get("/api/v1/jobs/7").is(409).has("mail").has("copies")
		s.remove("/api/v1/jobs/7").is(409).has("mail").has("copies")
		s.remove("/api/v1/queues/copies/jobs/7").is(204)
		s.remove("/api/v1/jobs/7").is(204)
		s.get("/api/v1/jobs/0").is(422)
	})
}

// Many jobs are dealt with by filter, up to a limit, and counted by a dry run.
// The parts of a bulk action, and of a purge, are about the jobs that were there when the first one began.
func TestBulkGoesOn(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		s := serve(t, db.DB, Options{})
		const path = "/api/v1/queues/default/"
		for _, c := range []struct {
			to   string
			body object
		}{{"jobs/bulk", object{"action": "cancel", "limit": 2}}, {"purge", object{"state": "all", "limit": 2}}} {
			for range 5 {
				s.enqueue(object{"kind": "x"})
			}
			db.Do(t, `UPDATE {prefix}job SET id = id - 1000000000000 WHERE id > 0`, nil) // minutes ago
			parts := 0
			for cursor := "begin"; cursor != ""; parts++ {
				got := read[map[string]any](s.post(path+c.to, c.body).is(200))
				cursor, _ = got["next_cursor"].(string)
				if got["all"] != (cursor == "") || parts > 5 {
					t.Fatalf("%s: part %d: %+v", c.to, parts, got)
				}
				if at, from, entry, err := readBulkCursor(cursor); cursor != "" {
					must(t, err)
					from.Began -= time.Minute.Microseconds() // clocks may differ by a little
					var text string
					(&deed{entry: entry}).goOn(&text, at, &from)
					c.body["cursor"] = text
				}
				s.enqueue(object{"kind": "later"})
			}
			if n := rows(t, db, "job"); n != parts || parts != 3 {
				t.Errorf("%s: after %d parts %d jobs are left", c.to, parts, n)
			}
			c.body["cursor"] = "no"
			s.post(path+c.to, c.body).is(422)
			s.post(path+"purge", object{"state": "all"}).is(200)
		}
	})
}

func TestBulk(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		s := serve(t, db.DB, Options{})
		const path = "/api/v1/queues/default/jobs/bulk"
		for i := range 6 {
			s.enqueue(object{"kind": []string{"a", "b"}[i%2], "payload": object{"n": i}})
		}
		type result struct {
			Done int
			All  bool
		}
		for _, c := range []struct {
			body object
			want result
			left int
		}{
			{object{"action": "cancel", "dry_run": true}, result{Done: 6, All: true}, 6},
			{object{"action": "cancel", "kind": "a", "where": "$.n >= 2", "dry_run": true}, result{Done: 2, All: true}, 6},
			{object{"action": "cancel", "kind": "a", "where": "$.n >= 2"}, result{Done: 2, All: true}, 4},
			{object{"action": "cancel", "state": "delayed"}, result{All: true}, 4},
			{object{"action": "cancel", "limit": 3}, result{Done: 3}, 1},
			{object{"action": "delete"}, result{All: true}, 1},
			{object{"action": "retry"}, result{All: true}, 1},
		} {
			got := read[wire.BulkResult](s.post(path, c.body).is(200))
			if (result{got.Done, got.All}) != c.want || rows(t, db, "job") != c.left || got.Action != c.body["action"] {
				t.Errorf("%v: got %+v, and %d left", c.body, got, rows(t, db, "job"))
			}
		}
		s.post(path, object{"action": "delete", "state": "ready"}).is(422).at("body.state")
		s.post(path, object{"action": "purge"}).is(422).at("body.action")
		s.post(path, object{"action": "cancel", "where": "$.n >"}).is(422).at("body.where")
		s.post("/api/v1/queues/none/jobs/bulk", object{"action": "cancel"}).is(404)
	})
}

// adminOf returns an admin client for a client's database.
func adminOf(c *queue.Client) *admin.Client {
	a, err := admin.New(c.DB(), admin.Options{})
	if err != nil {
		panic(err)
	}
	return a
}
