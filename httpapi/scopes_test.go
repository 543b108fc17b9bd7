package httpapi

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/queue"
)

// scopesOf says which scope each operation takes beside admin. A new operation is added here:
// operate is for what an operator does at night and can be undone or tried again, and admin for
// what changes a definition, deletes, or deals with secrets.
var scopesOf = map[Scope]string{
	ScopeRead: `all-queue-stats await-job await-job-by-id events explain-job explain-job-by-id explain-schedule finished get-endpoint get-group get-job get-job-by-id get-limit get-lock get-payload get-payload-by-id
		get-queue get-route get-run get-schedule group-results list-audit list-endpoints list-findings list-groups list-jobs list-limits list-locks list-nodes
		list-queues list-routes list-schedules list-subscriptions preview-schedule queue-stats schedule-history schedule-next
		list-all-limits list-attempts list-queue-status list-runs list-shares node-work queue-status
		schedule-status`,
	ScopeEnqueue: `create-group enqueue-job enqueue-jobs publish seal-group`,
	ScopeWork:    `acquire-lock claim-jobs complete-claims fail-claims heartbeat-claims release-claims release-lock renew-lock`,
	ScopeOperate: `acknowledge-finding reopen-finding backfill-schedule bulk-jobs cancel-job cancel-job-by-id cancel-run drain-node undrain-node pause-queue pause-schedule resume-queue resume-schedule
		retry-job retry-job-by-id run-job run-job-by-id run-schedule`,
	ScopeAdmin: `delete-endpoint delete-group delete-job delete-job-by-id delete-limit delete-queue delete-queue-limit delete-route
		delete-schedule delete-share force-release-lock move-jobs purge-locks purge-queue resize-lock resize-queue set-endpoint set-limit set-queue set-queue-limit set-route set-schedule set-share
		subscribe unsubscribe`,
}

// Each operation takes the scope that the table above says.
func TestScopesOfOperations(t *testing.T) {
	a, err := describe(Options{})
	must(t, err)
	got := map[Scope][]string{}
	for _, item := range a.docs.OpenAPI().Paths {
		for _, op := range methods(item) {
			scope := Scope(op.Security[0]["token"][0])
			got[scope] = append(got[scope], op.OperationID)
		}
	}
	for _, scope := range Scopes {
		want := strings.Fields(scopesOf[scope])
		slices.Sort(want)
		slices.Sort(got[scope])
		if !slices.Equal(got[scope], want) {
			t.Errorf("%s: got\n%s\nwant\n%s", scope, strings.Join(got[scope], " "), strings.Join(want, " "))
		}
	}
}

// An operator looks, pauses, retries and cancels; what changes settings or deletes is refused,
// also by a filter, and nothing is done.
func TestOperators(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		secret, err := NewTokens(db.DB).Create(t.Context(), "ada", []Scope{ScopeOperate, ScopeEnqueue}, 0)
		must(t, err)
		s := serve(t, db.DB, Options{})
		s.token = secret
		id := s.enqueue(object{"kind": "k", "queue": "mail", "delay": "1h"})
		s.get("/api/v1/queues/mail/jobs/" + id + "/payload").is(200)
		s.post("/api/v1/queues/mail/pause", nil).is(204)
		s.post("/api/v1/queues/mail/resume", nil).is(204)
		s.post("/api/v1/queues/mail/jobs/"+id+"/run", nil).is(204)
		db.Do(t, `INSERT INTO {prefix}job_dead (queue_id, id, divided, kind, attempt, error)
			SELECT queue_id, 7, 0, 'k', 3, 'x' FROM {prefix}queue WHERE name = 'mail'`, nil)
		for _, body := range []object{{"action": "delete"}, {"action": "delete", "dry_run": true}, {"action": "delete", "state": "dead"}} {
			s.post("/api/v1/queues/mail/jobs/bulk", body).is(403).has("scope admin")
		}
		s.post("/api/v1/queues/mail/purge", object{"state": "all"}).is(403).has("scope admin")
		s.remove("/api/v1/queues/mail/jobs/7").is(403)
		s.put("/api/v1/queues/mail", object{"max_attempts": 2}).is(403)
		if n := rows(t, db, "job_dead"); n != 1 {
			t.Errorf("there are %d dead jobs", n)
		}
		s.enqueue(object{"kind": "k", "queue": "mail", "delay": "1h"})
		s.post("/api/v1/queues/mail/jobs/bulk", object{"action": "cancel", "state": "delayed", "limit": 5}).is(200)
		s.post("/api/v1/queues/mail/jobs/bulk", object{"action": "retry"}).is(200).has(`"done":1`)
	})
}

// Enqueueing into dbcron's own queues would send mail and run commands, and claiming from them
// would read these. A token for jobs may do neither, with any operation on jobs.
func TestReservedQueues(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		tokens := NewTokens(db.DB)
		secret, err := tokens.Create(t.Context(), "shop", []Scope{ScopeOperate, ScopeEnqueue, ScopeWork}, 0)
		must(t, err)
		admin, err := tokens.Create(t.Context(), "ops", []Scope{ScopeAdmin}, 0)
		must(t, err)
		s := serve(t, db.DB, Options{})
		s.token = secret
		one := object{"kind": "message", "queue": "dbcron.notify"}
		other := object{"kind": "k", "queue": "mail"}
		s.post("/api/v1/jobs", one).is(403).has("scope admin")
		s.post("/api/v1/jobs/batch", object{"jobs": []object{other, one}}).is(403).has("scope admin")
		s.post("/api/v1/groups", object{"callback": one}).is(403).has("scope admin")
		s.post("/api/v1/groups", object{"jobs": []object{other, one}}).is(403).has("scope admin")
		s.post("/api/v1/queues/dbcron.notify/claim", object{"max": 1}).is(403).has("scope admin")
		forged, _ := new(signer).write(&queue.Claim{Queue: "dbcron.notify", Node: "n", Job: 1, Attempt: 1})
		for _, do := range []string{"complete", "fail", "heartbeat", "release"} {
			s.post("/api/v1/claims/"+do, object{"claims": []object{{"token": forged}}}).is(403).has("scope admin")
		}
		if n := rows(t, db, "job"); n != 0 {
			t.Errorf("there are %d jobs", n)
		}
		s.enqueue(other)
		s.token = admin
		s.post("/api/v1/jobs", one).is(201)
		// Nothing may lead there, whoever sets it up.
		s.put("/api/v1/routes/k", object{"queue": "dbcron.notify"}).is(422).has("dbcron's own")
		s.put("/api/v1/topics/t/queues/dbcron.notify", nil).is(422).has("dbcron's own")
		s.put("/api/v1/queues/dbcron.notify/endpoint", object{"url": "https://example.org/"}).is(422).has("dbcron's own")
		s.put("/api/v1/schedules/s", object{"spec": "@daily", "kind": "job", "command": "k", "job_queue": "dbcron.notify"}).is(422).has("dbcron's own")
		c, err := queue.New(db.DB, queue.Options{})
		must(t, err)
		for from, to := range map[string]string{"mail": "dbcron.notify", "dbcron.notify": "mail"} {
			if _, err := c.Move(t.Context(), from, to, queue.MoveOptions{}); !errors.Is(err, queue.ErrInvalid) {
				t.Errorf("moving from %s to %s: %v", from, to, err)
			}
		}
	})
}
