package httpapi

import (
	"context"
	"errors"
	"maps"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/scheduler"
	"github.com/dbcron/dbcron/wire"
)

// Fields of a schedule that are sent are stored, and other fields stay.
func TestSetSchedule(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		s := serve(t, db.DB, Options{AllowCommands: true})
		const path = "/api/v1/schedules/nightly"
		s.put(path, object{
			"spec": "30 2 * * *", "time_zone": "Europe/Berlin", "command": "true", "env": object{"A": "hunter2"},
			"stdin": "hunter2", "max_attempts": 3, "retry_delay": "30s",
			"ends": "2090-01-01T00:00:00Z", "keep_for": "forever", "timeout": "1h", "on_failure": "page",
		}).is(201).has(`"name":"nightly","spec":"30 2 * * *","time_zone":"Europe/Berlin","dst":"vixie","state":"active"`).has(`"keep_for":"forever"`)
		got := s.put(path, object{
			"spec": "0 4 * * *", "overlap": "queue", "timeout": "none",
			"ends": "",
		}).is(200).has(`"overlap":"queue"`).has(`"timeout":"none"`).has(`"on_failure":"page"`)
		if strings.Contains(got.text, "hunter2") || strings.Contains(got.text, `"ends"`) {
			t.Errorf("it is %s", got.text)
		}
		is, err := scheduler.Get(t.Context(), db.DB, "nightly")
		must(t, err)
		if is.Spec != "0 4 * * *" || is.Env["A"] != "hunter2" || is.Stdin != "hunter2" || is.MaxAttempts != 3 ||
			is.KeepFor >= 0 || is.Due.IsZero() || !is.Ends.IsZero() {
			t.Errorf("it is %+v", is)
		}
		s.put(path, object{"env": object{"A": nil, "B": "c"}, "headers": nil}).is(200)
		if is, err = scheduler.Get(t.Context(), db.DB, "nightly"); err != nil || !maps.Equal(is.Env, map[string]string{"B": "c"}) {
			t.Errorf("it is %+v, %v", is, err)
		}
		s.put(path+"?only=new", object{"spec": "@daily"}).is(409)
		s.put(path+"x?only=existing", object{"spec": "@daily", "command": "true"}).is(404)
		s.put(path+"?only=existing", object{"env": object{}, "stdin": "", "retry_delay": ""}).is(200).has(`"retry_delay":"10s"`)
		if is, err = scheduler.Get(t.Context(), db.DB, "nightly"); err != nil || is.Env != nil || is.Stdin != "" {
			t.Errorf("it is %+v, %v", is, err)
		}
		s.post(path+"/pause", object{"reason": "holidays"}).is(204)
		s.put(path, object{"command": "false"}).is(200).has(`"state":"paused","reason":"holidays"`)
		s.remove(path).is(204)
		s.remove(path).is(404)
		s.get(path).is(404)
	})
}

// Problems of a schedule are reported by field, and nothing is stored.
func TestSetScheduleRefuses(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		s := serve(t, db.DB, Options{AllowCommands: true})
		const path = "/api/v1/schedules/x"
		for field, bad := range map[string]any{
			"spec": "61 * * * *", "time_zone": "Mars/Olympus", "dst": "none", "kind": "exec", "command": " ", "tag": "a b",
			"dir": "here", "user": "a:b", "job_queue": "q",
			"missed": "never", "missed_window": "none", "overlap": "x", "max_attempts": 0, "retry_delay": "0s",
			"retry_max_delay": "1s", "timeout": "-1s", "jitter": "x",
			"starts": "tomorrow", "ends": "2001-01-01T00:00:00Z", "keep_for": "none", "keep_runs": "-2", "max_failures": "0", "on_success": " ",
			"on_failure": "\ufffd", "headers": object{"A": "b"},
			"env": object{"DBCRON_X": "y"}, "nonsense": 1, "payload": object{},
		} {
			body := object{"spec": "@daily", "command": "true", field: bad}
			at := "body." + field
			if field == "job_queue" {
				at = "body.job"
			}
			s.put(path, body).is(422).at(at)
		}
		s.put(path, object{"command": "true"}).is(422).at("body.spec")
		s.put(path, object{"spec": "@daily"}).is(422).at("body.command")
		s.put(path, object{"spec": "0 0 30 2 *", "command": "true"}).is(422).at("body.spec")
		s.put("/api/v1/schedules/%20x", object{"spec": "@daily", "command": "true"}).is(422).at("path.schedule")
		if n := rows(t, db, "schedule"); n != 0 {
			t.Errorf("%d are stored", n)
		}
		_, err := scheduler.Import(t.Context(), db.DB, "file:/x",
			[]scheduler.Schedule{{Name: "x", Key: "x", Spec: "@daily", Command: "true"}}, scheduler.ImportOptions{})
		must(t, err)
		s.put(path, object{"command": "false"}).is(409).has("file:/x")
		s.get(path).is(200).has(`"command":"true"`)
	})
}

// Without the flag no schedule is made or changed that does more than enqueue a job; and
// those that are there can be run.
func TestCommandsNeedTheFlag(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		s := serve(t, db.DB, Options{})
		must(t, scheduler.Add(t.Context(), db.DB, scheduler.Schedule{Name: "there", Spec: "@daily", Command: "true"}))
		for _, kind := range []string{"shell", "argv", "http", "sql", "func"} {
			s.put("/api/v1/schedules/x", object{"spec": "@daily", "kind": kind, "command": "true"}).is(403).has("--allow-commands")
		}
		s.put("/api/v1/schedules/x", object{"spec": "@daily", "command": "true"}).is(403)
		s.put("/api/v1/schedules/there", object{"spec": "@hourly"}).is(403)
		s.put("/api/v1/schedules/there", object{"kind": "job"}).is(403)
		s.put("/api/v1/schedules/job", object{
			"spec": "@daily", "kind": "job", "command": "report",
			"payload": object{"n": 1}, "job_queue": "q", "job_priority": "low",
		}).
			is(201).has(`"kind":"job","command":"report"`).has(`"job_queue":"q","job_priority":"low"`)
		s.put("/api/v1/schedules/job", object{"kind": "shell", "stdin": ""}).is(403)
		s.put("/api/v1/schedules/job", object{"job_priority": "urgent"}).is(200).has(`"job_priority":"urgent"`)
		s.post("/api/v1/schedules/there/run", nil).is(201)
		s.api.opt.AllowCommands = true // a token is needed all the same
		s.put("/api/v1/schedules/there", object{"spec": "@hourly"}).is(403).has("token")
		s.put("/api/v1/schedules/x", object{"spec": "@daily", "command": "true"}).is(403)
		if n := rows(t, db, "schedule"); n != 2 {
			t.Errorf("there are %d schedules", n)
		}
		if j, err := scheduler.Get(t.Context(), db.DB, "job"); err != nil || j.Stdin != `{"n":1}` {
			t.Errorf("the job is %+v, %v", j, err)
		}
	})
}

// Of changes of several settings at once none is lost.
func TestSetScheduleAtOnce(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		s := serve(t, db.DB, Options{})
		fields := []object{
			{"job_key": "a"},
			{"job_queue": "b"},
			{"job_max_attempts": 7},
			{"job_unique": "u"},
			{"on_success": "c"},
			{"keep_runs": "5"},
			{"missed": "skip"},
		}
		var all sync.WaitGroup
		made := make(chan bool, len(fields))
		for _, body := range fields {
			body["spec"], body["kind"], body["command"] = "@daily", "job", "report"
			all.Go(func() {
				got := s.put("/api/v1/schedules/x", body)
				if got.status != 200 && got.status != 201 {
					t.Errorf("%d %s", got.status, got.text)
				}
				made <- got.status == 201
			})
		}
		all.Wait()
		close(made)
		n := 0
		for one := range made {
			if one {
				n++
			}
		}
		s.get("/api/v1/schedules/x").is(200).has(`"job_key":"a"`).has(`"job_queue":"b"`).has(`"job_max_attempts":7`).has(`"job_unique":"u"`).has(`"on_success":"c"`).has(`"keep_runs":"5"`).has(`"missed":"skip"`)
		if n != 1 {
			t.Errorf("it was made %d times", n)
		}
	})
}

// A preview tells slots, and stores nothing.
func TestPreview(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		s := serve(t, db.DB, Options{})
		const path = "/api/v1/schedules/preview"
		s.post(path, object{"spec": "30 2 * * *", "time_zone": "Europe/Berlin", "after": "2026-03-27T12:00:00Z", "count": 3}).is(200).
			has(`{"slots":["2026-03-28T01:30:00.000000Z","2026-03-29T01:00:00.000000Z","2026-03-30T00:30:00.000000Z"]}`)
		s.post(path, object{"spec": "@daily", "after": "2026-01-01T00:00:00Z", "ends": "2026-01-03T00:00:00Z"}).is(200).
			has(`{"slots":["2026-01-02T00:00:00.000000Z","2026-01-03T00:00:00.000000Z"]}`)
		s.post(path, object{"spec": "@manual"}).is(200).has(`{"slots":[]}`)
		if got := read[struct{ Slots []string }](s.post(path, object{"spec": "* * * * *"}).is(200)).Slots; len(got) != 5 {
			t.Errorf("slots are %v", got)
		}
		for field, bad := range map[string]any{
			"spec": "x", "time_zone": "x", "dst": "x", "starts": "x",
			"ends": "0001-01-01T00:00:00Z", "after": "9999-01-01T00:00:00Z", "count": 101,
		} {
			s.post(path, object{"spec": "@daily", field: bad}).is(422).at("body." + field)
		}
		if n := rows(t, db, "schedule"); n != 0 {
			t.Errorf("%d are stored", n)
		}
	})
}

// A run is shown with its output, also while it runs, and can be ended.
func TestRuns(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		s := serve(t, db.DB, Options{})
		must(t, scheduler.Add(t.Context(), db.DB, scheduler.Schedule{Name: "a", Spec: "@manual", Command: "true"}))
		id := read[wire.Run](s.post("/api/v1/schedules/a/run", nil).is(201)).ID
		path := "/api/v1/runs/" + url.PathEscape(id)
		s.get(path).is(200).has(`"state":"waiting"`)
		db.Do(t, `UPDATE {prefix}run SET state = 'running', output = :said WHERE id = :id`, sqlrun.Args{"said": "half\ndone", "id": id})
		s.get(path).is(200).has(`"state":"running"`).has(`"output":"half\ndone"`)
		s.post(path+"/cancel", object{"reason": strings.Repeat("ü", 150)}).is(422).at("body.reason")
		s.post(path+"/cancel", object{"reason": "enough"}).is(200)
		s.get(path).has(`"cancel":"enough"`)
		db.Do(t, `UPDATE {prefix}run SET state = 'waiting', cancel = NULL WHERE id = :id`, sqlrun.Args{"id": id})
		s.post(path+"/cancel", nil).is(200)
		s.get(path).is(200).has(`"state":"cancelled"`)
		s.post(path+"/cancel", nil).is(409)
		s.get("/api/v1/runs/9999999").is(404)
		s.post("/api/v1/runs/9999999/cancel", nil).is(404)
		s.get("/api/v1/runs/0").is(422).at("path.id")
		if _, err := scheduler.GetRun(context.WithoutCancel(t.Context()), db.DB, 77777); !errors.Is(err, scheduler.ErrNoRun) {
			t.Errorf("got %v", err)
		}
	})
}
