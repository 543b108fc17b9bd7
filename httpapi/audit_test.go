package httpapi

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/ops/audit"
	"github.com/dbcron/dbcron/wire"
)

// auditLines returns the audit log, oldest entry first.
func auditLines(t *testing.T, db *dbtest.DB) (lines []string) {
	t.Helper()
	all, _, err := audit.List(t.Context(), db.DB, audit.Filter{Limit: 1000})
	must(t, err)
	slices.Reverse(all)
	for _, e := range all {
		lines = append(lines, strings.TrimSpace(fmt.Sprint(e.Actor, " ", e.Login, " ", e.Source, " ", e.Action,
			" ", e.Object, " ", e.Count, " ", e.Detail)))
	}
	return lines
}

// Actions are recorded, with the actor and the number of objects, and can be read page by page.
// Failures, reads, and the routine work of programs are not; and no payload or secret is.
func TestAudit(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		s := serve(t, db.DB, Options{})
		id := s.enqueue(object{"kind": "k", "queue": "mail", "delay": "1h", "payload": object{"password": "geheim"}})
		s.enqueue(object{"kind": "k", "queue": "mail", "delay": "1h"})
		s.post("/api/v1/queues/mail/pause", object{"reason": "it <b>rains</b>"}).is(204)
		secret, err := NewTokens(db.DB).Create(t.Context(), "ada", []Scope{ScopeAdmin}, 0)
		must(t, err)
		s = serve(t, db.DB, Options{})
		s.token = secret
		s.post("/api/v1/queues/mail/resume", nil).is(204)
		s.post("/api/v1/queues/none/resume", nil).is(404)
		s.post("/api/v1/jobs/"+id+"/cancel", nil).is(204)
		s.post("/api/v1/queues/mail/jobs/"+id+"/cancel", nil).is(404)
		s.post("/api/v1/queues/mail/jobs/bulk", object{"action": "cancel", "state": "delayed", "dry_run": true}).is(200)
		s.post("/api/v1/queues/mail/jobs/bulk", object{"action": "cancel", "state": "delayed", "kind": "k"}).is(200)
		s.post("/api/v1/queues/mail/purge", object{"state": "all"}).is(200)
		s.put("/api/v1/queues/mail/limits/k", object{"running": "3"}).is(200)
		s.put("/api/v1/queues/mail/endpoint", object{"url": "https://example.org/", "secret": "whsec_" + strings.Repeat("Z2VoZWlt", 4)}).is(201)
		s.put("/api/v1/routes/k", object{"queue": "mail"}).is(200)
		want := []string{
			"this host none api queue.pause mail 1 it <b>rains</b>",
			"ada token api queue.resume mail 1",
			"ada token api job.cancel mail/" + id + " 1",
			"ada token api job.cancel mail 1 state=delayed kind=k",
			"ada token api queue.purge mail 0 state=all",
			"ada token api limit.set mail/k 1",
			"ada token api endpoint.set mail 1",
			"ada token api route.set k 1 to mail",
		}
		if got := auditLines(t, db); !slices.Equal(got, want) {
			t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		type list struct {
			Entries    []wire.AuditEntry `json:"entries"`
			NextCursor string            `json:"next_cursor"`
		}
		var got []string
		for path := "/api/v1/audit?limit=3&actor=ada&since=1h"; ; {
			page := read[list](s.get(path).is(200))
			for _, e := range page.Entries {
				got = append(got, e.Action+" "+e.Object)
			}
			if page.NextCursor == "" {
				break
			}
			path = "/api/v1/audit?limit=3&actor=ada&since=1h&cursor=" + page.NextCursor
		}
		if wanted := "route.set k, endpoint.set mail, limit.set mail/k, queue.purge mail, job.cancel mail, job.cancel mail/" +
			id + ", queue.resume mail"; strings.Join(got, ", ") != wanted {
			t.Errorf("got %s, want %s", strings.Join(got, ", "), wanted)
		}
		if page := read[list](s.get("/api/v1/audit?action=queue.pause&object=mail").is(200)); len(page.Entries) != 1 ||
			page.Entries[0].Detail != "it <b>rains</b>" || page.Entries[0].Count != 1 {
			t.Errorf("got %+v", page)
		}
		s.get("/api/v1/audit?since=yesterday").is(422)
		s.get("/api/v1/audit?cursor=x").is(422)
	})
}

// What is sent in parts is one entry, which has what was done so far: after the first part, and when a part fails.
// Another filter, and the same one from the beginning, have entries of their own; a dry run has none.
func TestAuditOfParts(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		s := serve(t, db.DB, Options{})
		const path = "/api/v1/queues/mail/"
		s.put("/api/v1/queues/post", object{}).is(201)
		for range 12 {
			s.enqueue(object{"queue": "mail", "kind": "x"})
		}
		want := []string{"this host none api queue.set post 1"}
		check := func(after string, lines ...string) {
			t.Helper()
			for i := range lines {
				lines[i] = "this host none api " + lines[i]
			}
			if got := auditLines(t, db); !slices.Equal(got, append(slices.Clone(want), lines...)) {
				t.Fatalf("%s: got\n%s\nwant, at the end,\n%s", after, strings.Join(got, "\n"), strings.Join(lines, "\n"))
			}
		}
		next := func(to string, body object) (cursor string) {
			cursor, _ = read[map[string]any](s.post(path+to, body).is(200))["next_cursor"].(string)
			return cursor
		}
		bulk := object{"action": "cancel", "limit": 3}
		bulk["cursor"] = next("jobs/bulk", bulk)
		check("the first part", "job.cancel mail 3")
		bulk["dry_run"] = true
		next("jobs/bulk", bulk)
		check("a dry run", "job.cancel mail 3")
		delete(bulk, "dry_run")
		began := bulk["cursor"]
		bulk["cursor"] = next("jobs/bulk", bulk)
		check("the second part", "job.cancel mail 6")
		bulk["cursor"], bulk["limit"] = began, 1 // sent again, as after a lost answer
		next("jobs/bulk", bulk)
		check("the second part again", "job.cancel mail 7")
		bulk["kind"] = "x"
		next("jobs/bulk", bulk)
		check("another filter", "job.cancel mail 7", "job.cancel mail 1 kind=x")

		purge := object{"state": "all", "limit": 2}
		purge["cursor"] = next("purge", purge)
		db.Do(t, `ALTER TABLE {prefix}job RENAME COLUMN priority TO elsewhere`, nil)
		s.post(path+"purge", purge).is(500)
		db.Do(t, `ALTER TABLE {prefix}job RENAME COLUMN elsewhere TO priority`, nil)
		check("a part that failed", "job.cancel mail 7", "job.cancel mail 1 kind=x", "queue.purge mail 2 state=all (then it failed)")
		for purge["cursor"] != "" {
			purge["cursor"] = next("purge", purge)
		}
		if n := rows(t, db, "job"); n != 0 {
			t.Errorf("%d jobs are left", n)
		}
		check("the rest", "job.cancel mail 7", "job.cancel mail 1 kind=x", "queue.purge mail 4 state=all")

		s.enqueue(object{"queue": "mail", "kind": "x"})
		id, err := audit.Write(t.Context(), db.DB, audit.Entry{ // of a move for which time was over
			Actor: audit.ThisHost, Login: audit.None, Source: audit.API, Action: "queue.move", Object: "mail", Count: 5, Detail: "to post", More: true,
		})
		must(t, err)
		if all := read[wire.Moved](s.post(path+"move", object{"to": "post", "cursor": wire.ID(id)}).is(200)); !all.All || all.NextCursor != "" {
			t.Errorf("got %+v", all)
		}
		check("a move", "job.cancel mail 7", "job.cancel mail 1 kind=x", "queue.purge mail 4 state=all", "queue.move mail 6 to post")
		s.post(path+"move", object{"to": "post", "cursor": "x"}).is(422)
	})
}

// If the audit entry cannot be written, the action is still done, and answered so: the log
// reports it.
func TestAuditThatCannotBeWritten(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		s := serve(t, db.DB, Options{})
		s.put("/api/v1/queues/mail", object{}).is(201)
		db.Do(t, `DROP TABLE {prefix}audit`, nil)
		s.post("/api/v1/queues/mail/pause", nil).is(204)
		if got := db.List(t, `SELECT state FROM {prefix}queue WHERE name = 'mail'`, nil); !slices.Equal(got, []string{"paused"}) {
			t.Errorf("the queue is %v", got)
		}
		if logs := s.logs.String(); !strings.Contains(logs, "not written to the audit") || !strings.Contains(logs, "queue.pause") {
			t.Errorf("the log is %s", logs)
		}
	})
}

// Each operation that changes something, and is not the work of programs, is one of the acts,
// and each act is an operation.
func TestActsAreOperations(t *testing.T) {
	a, err := describe(Options{})
	must(t, err)
	left := maps.Clone(acts)
	for path, item := range a.docs.OpenAPI().Paths {
		for method, op := range methods(item) {
			_, isAct := acts[op.OperationID]
			delete(left, op.OperationID)
			scope := Scope(op.Security[0]["token"][0])
			if should := method != http.MethodGet && (scope == ScopeAdmin || scope == ScopeOperate); should != isAct {
				t.Errorf("%s %s (%s): in the audit: %v, want %v", method, path, op.OperationID, isAct, should)
			}
		}
	}
	if len(left) > 0 {
		t.Errorf("there are no operations for %v", left)
	}
}
