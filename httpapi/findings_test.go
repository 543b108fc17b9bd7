package httpapi

import (
	"encoding/json"
	"testing"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/wire"
)

// A finding is acknowledged by who may operate, until it changes; the audit has who did it.
func TestFindings(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		s := serve(t, db.DB, Options{})
		list := func() (all []wire.Finding) {
			t.Helper()
			var body struct{ Findings []wire.Finding }
			must(t, json.Unmarshal([]byte(s.get("/api/v1/findings").is(200).text), &body))
			return body.Findings
		}
		if all := list(); len(all) != 0 {
			t.Fatalf("%+v", all)
		}
		s.enqueue(object{"kind": "k", "queue": "mail"})
		tokens := NewTokens(db.DB)
		reader, err := tokens.Create(t.Context(), "eve", []Scope{ScopeRead}, 0)
		must(t, err)
		operator, err := tokens.Create(t.Context(), "ada", []Scope{ScopeOperate}, 0)
		must(t, err)
		s.token = operator
		s.post("/api/v1/queues/mail/pause", object{"reason": "until Monday"}).is(204)
		all := list()
		if len(all) != 1 || all[0].About != "queues" || all[0].What != "Queue mail is paused" || all[0].AcknowledgedBy != "" {
			t.Fatalf("%+v", all)
		}
		path := "/api/v1/findings/" + all[0].ID
		s.token = reader
		s.post(path+"/acknowledge", nil).is(403)
		s.token = operator
		s.post("/api/v1/findings/none/acknowledge", nil).is(404).has("no such finding")
		s.post(path+"/acknowledge", object{"reason": "ada looks after it"}).is(204)
		if all = list(); len(all) != 1 || all[0].AcknowledgedBy != "ada" || all[0].Reason != "ada looks after it" || all[0].AcknowledgedAt.IsZero() {
			t.Errorf("%+v", all)
		}
		s.get("/api/v1/audit").is(200).has(`"action":"finding.acknowledge"`).has(`Queue mail is paused; because: ada looks after it`)
		s.post(path+"/reopen", nil).is(204)
		if all = list(); len(all) != 1 || all[0].AcknowledgedBy != "" {
			t.Errorf("%+v", all)
		}
		s.post("/api/v1/queues/mail/resume", nil).is(204)
		s.post(path+"/acknowledge", nil).is(404)
	})
}
