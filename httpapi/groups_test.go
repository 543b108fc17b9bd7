package httpapi

import (
	"strings"
	"testing"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/wire"
)

// Groups are made open or with their jobs, sealed, and removed.
func TestMakeGroups(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		s := serve(t, db.DB, Options{})
		callback := object{"kind": "all-done", "queue": "c", "payload": object{"n": 1}}
		open := read[wire.CreatedGroup](s.post("/api/v1/groups", object{"name": "nightly", "keep": "forever", "callback": callback}).is(201))
		if open.State != "open" || len(open.Jobs) != 0 {
			t.Errorf("made %+v", open)
		}
		path := "/api/v1/groups/" + open.ID
		s.get(path).is(200).has(`"name":"nightly","state":"open"`).has(`"callback":"all-done","keep":"forever"`)
		job := s.enqueue(object{"kind": "x", "group": open.ID})
		s.post(path+"/seal", nil).is(204)
		s.post(path+"/seal", nil).is(204)
		s.get(path).is(200).has(`"state":"sealed"`)
		s.post("/api/v1/queues/default/jobs/"+job+"/cancel", nil).is(204)
		s.get(path).is(200).has(`"state":"done"`).has(`"jobs":{"pending":0,"done":0,"dead":0,"cancelled":1}`)
		s.get("/api/v1/queues/c/jobs").is(200).has(`"callback_of":"` + open.ID + `"`)

		whole := read[wire.CreatedGroup](s.post("/api/v1/groups", object{"jobs": []object{{"kind": "a"}, {"kind": "b", "queue": "q"}}}).is(201))
		if whole.State != "sealed" || len(whole.Jobs) != 2 || whole.Jobs[1].Queue != "q" {
			t.Errorf("made %+v", whole)
		}
		s.get("/api/v1/groups/" + whole.ID).is(200).has(`"pending":2`)
		s.remove("/api/v1/groups/" + whole.ID).is(204)
		s.get("/api/v1/queues/q/jobs").is(200).has(`"kind":"b"`)
		s.post("/api/v1/groups/77/seal", nil).is(404)
		s.remove("/api/v1/groups/77").is(404)
	})
}

// Problems of a group are reported by field, and nothing is stored.
func TestMakeGroupsRefuses(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		s := serve(t, db.DB, Options{})
		for at, body := range map[string]object{
			"body.name":               {"name": " x"},
			"body.keep":               {"keep": "0s"},
			"body.callback.kind":      {"callback": object{"kind": " x"}},
			"body.callback.unique":    {"callback": object{"kind": "x", "unique": "u"}},
			"body.callback.group":     {"callback": object{"kind": "x", "group": "5"}},
			"body.callback.run_at":    {"callback": object{"kind": "x", "run_at": "2030-01-01T00:00:00Z"}},
			"body.jobs[0].queue":      {"jobs": []object{{"kind": "x", "queue": strings.Repeat("x", 199) + " "}}},
			"body.jobs[1].group":      {"jobs": []object{{"kind": "x"}, {"kind": "x", "group": "5"}}},
			"body.jobs[1].delay":      {"jobs": []object{{"kind": "x"}, {"kind": "x", "delay": "long"}}},
			"body.jobs[0].unique_for": {"jobs": []object{{"kind": "x", "unique_for": "1h"}}},
		} {
			s.post("/api/v1/groups", body).is(422).at(at)
		}
		if n := rows(t, db, "job_group") + rows(t, db, "job"); n != 0 {
			t.Errorf("%d rows are stored", n)
		}
	})
}

// Limits of a queue and of its kinds are set, changed in part, listed and ended.
func TestLimits(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		s := serve(t, db.DB, Options{})
		const path = "/api/v1/queues/q/limits"
		s.get(path).is(404)
		s.put("/api/v1/queues/q", object{}).is(201)
		s.get(path).is(200).has(`{"limits":[]}`)
		for field, bad := range map[string]any{"running": "-1", "rate": "many", "burst": 0, "nonsense": 1} {
			s.put(path, object{field: bad}).is(422).at("body." + field)
		}
		s.put(path, object{}).is(422).at("body.running")
		s.put(path, object{"rate": "none"}).is(422).at("body.running")
		s.put(path, object{"running": "3"}).is(200).has(`{"queue":"q","running":"3","rate":"none","burst":1,"permits":0,"waiting":false}`)
		s.put(path+"/a%2Fb", object{"rate": "100/m", "burst": 5}).is(200).has(`"kind":"a/b","running":"none","rate":"100/m","burst":5`)
		s.put(path+"/a%2Fb", object{"running": "2"}).is(200).has(`"running":"2","rate":"100/m","burst":5`)
		s.put(path+"/a%2Fb", object{"rate": "none"}).is(200).has(`"running":"2","rate":"none","burst":5`)
		s.get(path + "/a%2Fb").is(200).has(`"running":"2"`)
		s.get(path).is(200).has(`[{"queue":"q","running":"3",`).has(`{"queue":"q","kind":"a/b","running":"2",`)
		s.remove(path).is(204)
		s.remove(path).is(404)
		s.get(path + "/none").is(404)
		s.remove(path + "/none").is(404)
		s.remove(path + "/a%2Fb").is(204)
		s.get(path).is(200).has(`{"limits":[]}`)
	})
}

// Jobs that are done are shown where a queue keeps them, and can be removed.
func TestDoneJobs(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		s := serve(t, db.DB, Options{})
		s.put("/api/v1/queues/q", object{"keep_done": "1d"}).is(201)
		db.Do(t, `INSERT INTO {prefix}job_done (queue_id, id, divided, priority, attempt, crashes, outcome, error, worker, started_at, ended_at, purge_at, kind, payload)
			SELECT queue_id, 5, 0, 2, 1, 0, 'discarded', 'too old', 'w', {now}, {now}, {now + 3600000000}, 'x', '1' FROM {prefix}queue`, nil)
		s.get("/api/v1/queues/q/jobs?state=done").is(200).has(`"state":"done"`).has(`"discarded":true`)
		s.get("/api/v1/queues/q/jobs/5").is(200).has(`"state":"done"`).has(`"started":"`).has(`"error":"too old"`)
		s.get("/api/v1/queues/q/stats").is(200).has(`"done":1,`).has(`"state":"done","kind":"x","count":1`)
		s.post("/api/v1/queues/q/jobs/5/retry", nil).is(409)
		s.post("/api/v1/queues/q/jobs/bulk", object{"action": "delete", "state": "done", "dry_run": true}).is(200).has(`"done":1`)
		s.remove("/api/v1/queues/q/jobs/5").is(204)
		s.get("/api/v1/queues/q/jobs/5").is(404)
	})
}
