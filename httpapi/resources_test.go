package httpapi

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/lock"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/scheduler"
	"github.com/dbcron/dbcron/wire"
)

// pages goes through a list with a small limit, and returns a field of all that is there.
func (s *service) pages(path, list, field string) (all []string) {
	s.t.Helper()
	for cursor, n := "", 0; n < 20; n++ {
		p := read[map[string]any](s.get(path + "limit=2&cursor=" + url.QueryEscape(cursor)).is(200))
		for _, one := range p[list].([]any) {
			all = append(all, fmt.Sprint(one.(map[string]any)[field]))
		}
		var more bool
		if cursor, more = p["next_cursor"].(string); !more {
			return all
		}
	}
	s.t.Fatalf("%s does not end", path)
	return nil
}

func (s *service) wantPages(path, list, field, want string) {
	s.t.Helper()
	if got := strings.Join(s.pages(path, list, field), " "); got != want {
		s.t.Errorf("%s lists %s, want %s", path, got, want)
	}
}

// Queues are defined, changed, paused, counted, purged and deleted.
func TestQueues(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		s := serve(t, db.DB, Options{})
		s.get("/api/v1/queues").is(200).has(`{"queues":[]}`)
		const path = "/api/v1/queues/q"
		s.get(path).is(404)
		for _, action := range []string{"/pause", "/resume"} {
			s.post(path+action, nil).is(404)
		}
		s.get(path + "/stats").is(404)
		s.post(path+"/purge", object{"state": "all"}).is(404)
		s.remove(path).is(404)
		for field, bad := range map[string]any{
			"max_attempts": 0, "retry_delay": "5", "retry_max_delay": "1s", "timeout": "-1s", "max_timeout": "forever", "origin_share": 101, "keep_dead": "long",
			"keep_done": "-1s", "max_payload": 1 << 31, "poll_min": "0s",
			"poll_max": "1d", "blocks": 1001, "key_retry": "wait", "fifo": "yes", "keep_dead_max": "0", "max_crashes": "3", "nonsense": 1,
			"notify": "command:rm",
		} {
			s.put(path, object{field: bad}).is(422).at("body." + field)
		}
		s.get(path).is(404)

		usual := read[wire.Queue](s.put(path, object{}).is(201))
		if want := (wire.Queue{
			Name: "q", State: "active", Blocks: 16, KeyRetry: "hold", MaxAttempts: 10, MaxCrashes: 3, RetryDelay: "10s", RetryMaxDelay: "1h",
			Timeout: "none", MaxTimeout: "1h", OriginShare: 50, MaxPayload: 1 << 20, KeepDead: "90d", KeepDeadMax: wire.All, KeepDone: "none", PollMin: "2ms", PollMax: "250ms",
		}); usual != want {
			t.Errorf("as usual it is %+v", usual)
		}
		want := wire.Queue{
			Name: "q", State: "active", Blocks: 4, KeyRetry: "pass", MaxAttempts: 5, MaxCrashes: 4, RetryDelay: "30s", RetryMaxDelay: "1d",
			Timeout: "1m30s", MaxTimeout: "2h", OriginShare: 20, MaxPayload: 65536, KeepDead: "forever", KeepDeadMax: "9", KeepDone: "1d", PollMin: "10ms", PollMax: "1s",
			Notify: "ada@example.org https://example.org/in",
		}
		set := object{
			"blocks": 4, "key_retry": "pass", "max_attempts": 5, "max_crashes": 4, "retry_delay": "30s", "retry_max_delay": "24h",
			"timeout": "90s", "max_timeout": "120m", "origin_share": 20, "max_payload": 65536, "keep_dead": "forever", "keep_dead_max": "9", "keep_done": "24h",
			"poll_min": "10ms", "poll_max": "1s", "notify": "ada@example.org https://example.org/in",
		}
		if got := read[wire.Queue](s.put(path, set).is(200)); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
		want.KeepDeadMax, want.Timeout, want.Notify = wire.All, "none", ""
		s.put(path, object{"keep_dead_max": "all", "timeout": "none", "notify": ""}).is(200)
		if got := read[wire.Queue](s.get(path).is(200)); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}

		s.put("/api/v1/queues/fifo", object{"fifo": true, "blocks": 2}).is(422).at("body.blocks")
		if got := read[wire.Queue](s.put("/api/v1/queues/fifo", object{"fifo": true}).is(201)); !got.FIFO || got.Blocks != 1 {
			t.Errorf("got %+v", got)
		}
		s.post("/api/v1/jobs", object{"kind": "x", "queue": "fifo", "priority": "urgent"}).is(422).at("body.priority")
		s.put("/api/v1/queues/fifo", object{"fifo": false}).is(200).has(`"fifo":false`)
		s.remove("/api/v1/queues/fifo").is(204)

		s.post(path+"/pause", object{"reason": "maintenance"}).is(204)
		s.get(path).has(`"state":"paused","reason":"maintenance"`)
		s.put(path, object{"max_attempts": 6}).is(200).has(`"state":"paused"`)
		s.post(path+"/resume", nil).is(204)
		s.get(path).has(`"state":"active"`)
		s.post(path+"/pause", nil).is(204)
		s.post(path+"/resume", object{}).is(204)

		for i := range 4 {
			s.enqueue(object{"kind": []string{"a", "b"}[i%2], "queue": "q", "delay": []string{"", "1h"}[i/3]})
		}
		db.Do(t, `INSERT INTO {prefix}job_dead (queue_id, divided, id, priority, kind) SELECT queue_id, 0, 5, 2, 'a' FROM {prefix}queue`, nil)
		s.get(path + "/stats").is(200).has(`"ready":3,"delayed":1,"running":0,"dead":1,"done":0,"counted_to":10000,"kinds":[{"queue":"q","state":"ready","kind":"a","count":2,"more":false,"oldest":"`)
		s.get(path + "/stats?limit=0").is(422).at("query.limit")
		s.get("/api/v1/stats?last=1d").is(200).has(`{"finished":[]}`)
		s.get("/api/v1/stats?last=9d").is(422).at("query.last")
		s.remove(path).is(409).has("has ready jobs")
		for _, c := range []struct {
			body object
			want string
		}{
			{object{"state": "all", "dry_run": true}, `{"removed":5,"by_state":{"dead":1,"delayed":1,"ready":3},"all":true}`},
			{object{"state": "ready", "limit": 2}, `{"removed":2,"by_state":{"ready":2},"all":false,"next_cursor":`},
			{object{"state": "delayed"}, `{"removed":1,"by_state":{"delayed":1},"all":true}`},
			{object{"state": "all", "limit": 2}, `{"removed":2,"by_state":{"dead":1,"delayed":0,"ready":1},"all":false,"next_cursor":`},
			{object{"state": "all"}, `{"removed":0,"by_state":{"dead":0,"delayed":0,"ready":0},"all":true}`},
		} {
			s.post(path+"/purge", c.body).is(200).has(c.want)
		}
		s.post(path+"/purge", object{"state": "running"}).is(422).at("body.state")

		s.remove(path).is(204)
		s.get(path).is(200).has(`"state":"deleted"`)
		s.post("/api/v1/jobs", object{"kind": "x", "queue": "q"}).is(409)
		s.post(path+"/pause", nil).is(409)
		s.put(path, object{}).is(200).has(`"state":"active"`).has(`"max_attempts":6`)
		for _, name := range []string{"r", "s", "%2E%2E", "a%2Fb"} {
			s.put("/api/v1/queues/"+name, object{}).is(201)
		}
		s.wantPages("/api/v1/queues?", "queues", "name", ".. a/b fifo q r s")
		s.put("/api/v1/queues/..", object{}).is(404)
	})
}

// Names that differ are different queues, and invalid names are refused before anything is
// stored.
func TestNames(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		s := serve(t, db.DB, Options{})
		good := []string{"A-b", "A.b", "a-b", "a_b", "ä", "a\u0308", "😀", "a b", "'; DROP TABLE x", "%", `a"b\`, strings.Repeat("ü", 200)}
		for _, name := range good {
			s.put("/api/v1/queues/"+escapeSegment(name), object{}).is(201)
			s.post("/api/v1/jobs", object{"kind": name, "queue": name, "key": name, "unique": name}).is(201)
		}
		for _, name := range good {
			if p := read[struct{ Jobs []wire.Job }](s.get("/api/v1/queues/" + escapeSegment(name) + "/jobs").is(200)); len(p.Jobs) != 1 ||
				p.Jobs[0].Kind != name || p.Jobs[0].Queue != name {
				t.Errorf("%q has %+v", name, p.Jobs)
			}
		}
		for _, name := range []string{" a", "a ", "\u00a0a", "a\n", "a\x00", "a\ufffd", strings.Repeat("ü", 201)} {
			s.put("/api/v1/queues/"+escapeSegment(name), object{}).is(422).at("path.queue")
			for _, field := range []string{"kind", "queue", "key", "unique"} {
				job := object{"kind": "x"}
				job[field] = name
				s.post("/api/v1/jobs", job).is(422).at("body." + field)
			}
		}
		s.put("/api/v1/queues/a%ff", object{}).is(422).at("path.queue")
		s.post("/api/v1/jobs", "{\"kind\": \"a\xff\"}").is(400).at("body")
		s.post("/api/v1/jobs", `{"kind": "a\ud800"}`).is(422).at("body.kind")
		s.post("/api/v1/jobs", `{"kind": ""}`).is(422).at("body.kind")
		if n := rows(t, db, "queue"); n != len(good) {
			t.Errorf("%d queues", n)
		}
		if n := rows(t, db, "job"); n != len(good) {
			t.Errorf("%d jobs", n)
		}
	})
}

// Routes say where jobs go that name no queue, and make the queues to which they lead, as limits, shares and endpoints do.
func TestRoutes(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		s := serve(t, db.DB, Options{})
		s.get("/api/v1/routes").is(200).has(`{"routes":[]}`)
		s.get("/api/v1/routes/mail").is(200).has(`{"kind":"mail","queue":"default"}`)
		s.put("/api/v1/routes/mail", object{"queue": " slow"}).is(422).at("body.queue")
		s.put("/api/v1/routes/mail", object{}).is(422).at("body")
		s.put("/api/v1/routes/mail", object{"queue": 5}).is(422).at("body.queue")
		s.put("/api/v1/routes/%20mail", object{"queue": "slow"}).is(422).at("path.kind")
		s.put("/api/v1/queues/limited/limits", object{}).is(422)
		s.get("/api/v1/queues").has(`[]`)
		s.put("/api/v1/queues/limited/limits", object{"running": "1"}).is(200)
		s.put("/api/v1/queues/shared/shares/acme", object{"weight": 5}).is(200)
		s.get("/api/v1/queues").has(`"name":"limited"`).has(`"name":"shared"`)
		for _, kind := range []string{"mail", "*", "a/b"} {
			s.put("/api/v1/routes/"+escapeSegment(kind), object{"queue": "slow"}).is(200).has(`"queue":"slow"`)
		}
		if got := read[wire.Enqueued](s.post("/api/v1/jobs", object{"kind": "mail"}).is(201)); got.Queue != "slow" {
			t.Errorf("it went to %s", got.Queue)
		}
		s.wantPages("/api/v1/routes?", "routes", "kind", "* a/b mail")
		s.remove("/api/v1/queues/slow").is(409)
		for _, kind := range []string{"mail", "*", "a/b"} {
			s.remove("/api/v1/routes/" + escapeSegment(kind)).is(204)
		}
		s.remove("/api/v1/routes/mail").is(404)
		s.put("/api/v1/queues/gone", object{}).is(201)
		s.remove("/api/v1/queues/gone").is(204)
		s.put("/api/v1/routes/mail", object{"queue": "gone"}).is(409)
	})
}

// What is published reaches each queue that has subscribed.
func TestTopics(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		s := serve(t, db.DB, Options{})
		job := object{"kind": "x", "payload": 1}
		s.post("/api/v1/topics/t/publish", job).is(201).has(`{"copies":[]}`)
		for _, path := range []string{"t/queues/a", "t/queues/b", "t/queues/a", "u%2Fv/queues/a"} {
			s.send("PUT", "/api/v1/topics/"+path, nil).is(204)
		}
		got := read[struct {
			Group  string
			Copies []wire.Enqueued
		}](s.post("/api/v1/topics/t/publish", job).is(201))
		if len(got.Copies) != 2 || got.Copies[0].Queue != "a" || got.Copies[1].Queue != "b" || got.Group == "" || rows(t, db, "job") != 2 {
			t.Errorf("published %+v", got)
		}
		s.get("/api/v1/groups/" + got.Group).is(200).has(`"jobs":{"pending":2,"done":0,"dead":0,"cancelled":0}`).has(`"state":"sealed"`)
		s.wantPages("/api/v1/topics?", "subscriptions", "queue", "a b a")
		s.remove("/api/v1/topics/t/queues/b").is(204)
		s.remove("/api/v1/topics/t/queues/b").is(404)
		s.post("/api/v1/topics/t/publish", object{"kind": "x", "queue": "a"}).is(422).at("body.queue")
		s.post("/api/v1/topics/t/publish", object{"kind": "x", "group": "5"}).is(422).at("body.group")
		s.post("/api/v1/topics/t/publish", object{"kind": " x"}).is(422).at("body.kind")
		s.post("/api/v1/topics/%20t/publish", job).is(422).at("path.topic")
		s.send("PUT", "/api/v1/topics/t%00/queues/a", nil).is(422).at("path.topic")
		if n := rows(t, db, "job"); n != 2 {
			t.Errorf("%d jobs", n)
		}
	})
}

// Groups show the outcomes of their jobs.
func TestGroups(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		s := serve(t, db.DB, Options{})
		c, err := queue.New(db.DB, queue.Options{})
		must(t, err)
		open, err := c.NewGroup(t.Context(), queue.Group{Name: "nightly", Keep: -1})
		must(t, err)
		var sealed []string
		for range 3 {
			id, _, err := c.EnqueueGroup(t.Context(), queue.Group{}, queue.Job{Kind: "x"})
			must(t, err)
			sealed = append(sealed, wire.ID(id))
		}
		var jobs []string
		for i := range 3 {
			jobs = append(jobs, s.enqueue(object{"kind": "y", "group": wire.ID(open), "payload": i}))
		}
		s.post("/api/v1/jobs", object{"kind": "y", "group": "77"}).is(404)
		s.post("/api/v1/jobs", object{"kind": "y", "group": "99999999999999999999"}).is(422).at("body.group")
		s.post("/api/v1/queues/default/jobs/"+jobs[0]+"/cancel", nil).is(204)
		s.get("/api/v1/groups/" + wire.ID(open)).is(200).has(`"name":"nightly","state":"open"`).has(`"keep":"forever"`).has(`"jobs":{"pending":2,"done":0,"dead":0,"cancelled":1}`)
		s.wantPages("/api/v1/groups?", "groups", "id", strings.Join(sealed, " "))
		s.wantPages("/api/v1/groups?state=open&", "groups", "id", wire.ID(open))
		s.wantPages("/api/v1/groups/"+wire.ID(open)+"/results?", "results", "job", strings.Join(jobs, " "))
		db.Do(t, `UPDATE {prefix}job_member SET state = 'done', result = :made WHERE job = :job`,
			sqlrun.Args{"made": `{"n": 1}`, "job": jobs[1]})
		s.get("/api/v1/groups/" + wire.ID(open) + "/results?limit=2").is(200).has(`"state":"cancelled"}`).has(`"state":"done","result":{"n":1}}`)
		s.get("/api/v1/groups/77").is(404)
		s.get("/api/v1/groups/77/results").is(404)
		s.get("/api/v1/groups/0").is(422).at("path.id")
		s.get("/api/v1/groups/99999999999999999999").is(422).at("path.id")
		s.get("/api/v1/groups?state=closed").is(422).at("query.state")
	})
}

// Schedules can be shown, run, paused and resumed; secret parts are not shown.
func TestSchedules(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		s := serve(t, db.DB, Options{})
		add := func(one scheduler.Schedule) { must(t, scheduler.Add(t.Context(), db.DB, one)) }
		add(scheduler.Schedule{
			Name: "a", Spec: "30 2 1 1 *", Zone: "Europe/Berlin", Command: "true",
			Env: map[string]string{"A": "hunter2"}, Stdin: "hunter2",
		})
		add(scheduler.Schedule{
			Name: "b", Spec: "@manual", Kind: "http", Command: "GET https://example.org/x?key=hunter2#y",
			Headers: map[string]string{"Authorization": "hunter2"},
		})
		add(scheduler.Schedule{Name: "c", Spec: "@every 1h", Kind: "job", Command: "mail"})
		s.wantPages("/api/v1/schedules?", "schedules", "name", "a b c")
		if got := s.get("/api/v1/schedules").is(200).has("GET https://example.org/x?…"); strings.Contains(got.text, "hunter2") {
			t.Errorf("it shows secrets: %s", got.text)
		}
		s.get("/api/v1/schedules/a").is(200).has(`"spec":"30 2 1 1 *","time_zone":"Europe/Berlin","dst":"vixie","state":"active","next":"`).has(`"kind":"shell","command":"true"`)
		next := read[struct{ Slots []time.Time }](s.get("/api/v1/schedules/a/next?count=3").is(200)).Slots
		if len(next) != 3 || next[0].Hour() != 1 || next[0].Minute() != 30 || next[1].Year() != next[0].Year()+1 {
			t.Errorf("next are %v", next)
		}
		if next := read[struct{ Slots []time.Time }](s.get("/api/v1/schedules/b/next").is(200)).Slots; len(next) != 0 {
			t.Errorf("next of one without slots are %v", next)
		}
		s.post("/api/v1/schedules/a/pause", object{"reason": "holidays"}).is(204)
		s.get("/api/v1/schedules/a").is(200).has(`"state":"paused","reason":"holidays"`)
		s.get("/api/v1/schedules/a/next").is(200).has(`{"slots":[]}`)
		s.get("/api/v1/schedules/a/explain").is(200).has(`"what_to_do":"when it may run again: dbcron schedule resume a"`)
		s.get("/api/v1/schedules/none/explain").is(404)
		s.post("/api/v1/schedules/a/resume", nil).is(204)
		s.get("/api/v1/schedules/a").is(200).has(`"state":"active"`)
		run := read[wire.Run](s.post("/api/v1/schedules/a/run", nil).is(201))
		if run.Schedule != "a" || run.Cause != "hand" || run.State != "waiting" {
			t.Errorf("the run is %+v", run)
		}
		s.post("/api/v1/schedules/a/run", nil).is(409)
		runs := read[struct{ Runs []wire.Run }](s.get("/api/v1/schedules/a/runs").is(200)).Runs
		if len(runs) != 1 || runs[0].ID != run.ID {
			t.Errorf("the runs are %+v", runs)
		}
		s.get("/api/v1/schedules/none/runs").is(200).has(`{"runs":[]}`)
		s.get("/api/v1/schedules/none").is(404)
		s.get("/api/v1/schedules/none/next").is(404)
		for _, action := range []string{"run", "pause", "resume"} {
			s.post("/api/v1/schedules/none/"+action, nil).is(404)
		}
	})
}

// Locks are listed, with the slots of pools.
func TestLocks(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		s := serve(t, db.DB, Options{})
		s.get("/api/v1/locks").is(200).has(`{"locks":[]}`)
		l, err := lock.New(db.DB, lock.Options{Owner: "me"})
		must(t, err)
		for _, name := range []string{"a", "b", "c"} {
			lease, err := l.TryAcquire(t.Context(), name)
			must(t, err)
			t.Cleanup(func() { _ = lease.Release(context.WithoutCancel(t.Context())) })
		}
		s.get("/api/v1/locks").is(200).has(`"name":"a","state":"held","by":"`).has(`"fence":"1"`)
		s.wantPages("/api/v1/locks?", "locks", "name", "a b c")
	})
}

// Wrong cursors are refused, whatever they are.
func TestCursors(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		s := serve(t, db.DB, Options{})
		s.put("/api/v1/queues/q", object{}).is(201)
		for _, path := range []string{"queues", "routes", "topics", "schedules", "locks", "groups", "queues/q/jobs", "groups/5/results"} {
			for _, cursor := range []string{
				"x", "-1", "+5", "AAAA", cursorOf("a", "b", "c"), cursorOf("a\x00"),
				"99999999999999999999", cursorOf("a", "-1") + "=",
			} {
				s.get("/api/v1/" + path + "?cursor=" + url.QueryEscape(cursor)).is(422).at("query.cursor")
			}
			s.get("/api/v1/" + path + "?limit=0").is(422).at("query.limit")
			s.get("/api/v1/" + path + "?limit=1001").is(422).at("query.limit")
			s.get("/api/v1/" + path + "?nonsense=1").is(422).at("query.nonsense")
		}
	})
}
