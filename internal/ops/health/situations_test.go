package health

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/ops/audit"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/queue/queuetest"
	"github.com/dbcron/dbcron/scheduler"
)

// A scene is a queue of its own, with a worker that has all its blocks.
type scene struct {
	*testing.T
	db    *dbtest.DB
	c     *queue.Client
	queue string
}

// enqueue enqueues a job, and returns its id.
func (s *scene) enqueue(j queue.Job) int64 {
	s.Helper()
	j.Queue, j.Kind = s.queue, "x"
	e, err := s.c.Enqueue(s.Context(), j)
	dbtest.Must(s.T, err)
	return e.ID
}

// do runs a statement about the scene's queue, whose id is :q.
func (s *scene) do(text string, args sqlrun.Args) {
	s.Helper()
	if args == nil {
		args = sqlrun.Args{}
	}
	var id int
	s.db.Scan(s.T, `SELECT queue_id FROM {prefix}queue WHERE name = :name`, sqlrun.Args{"name": s.queue}, &id)
	args["q"] = id
	s.db.Do(s.T, text, args)
}

// leave moves a ready job to where it waits for its retry.
func (s *scene) leave(id int64, hold string) {
	s.Helper()
	s.do(`INSERT INTO {prefix}job_delayed (queue_id, divided, id, run_at, attempt, error, kind, job_key, hold_key)
		SELECT queue_id, divided, id, {now + 3600000000}, 1, 'no route to host', kind, job_key, :hold FROM {prefix}job WHERE queue_id = :q AND id = :id`,
		sqlrun.Args{"id": id, "hold": hold})
	s.do(`DELETE FROM {prefix}job WHERE queue_id = :q AND id = :id`, sqlrun.Args{"id": id})
}

// limit sets the limit of the queue, and has workers have as many permits.
func (s *scene) limit(kind, tenant string, n int) {
	s.Helper()
	edit := func(l *admin.Limit) { l.Running = n }
	var err error
	if tenant == "" {
		_, err = adminOf(s.c).EditLimit(s.Context(), s.queue, kind, edit)
	} else {
		_, err = adminOf(s.c).EditTenantLimit(s.Context(), s.queue, tenant, edit)
	}
	dbtest.Must(s.T, err)
	for slot := range n {
		s.do(`INSERT INTO {prefix}queue_permit (queue_id, kind, tenant, slot, state, lock_by) VALUES (:q, :kind, :tenant, :slot, 'LEASED', 'me')`,
			sqlrun.Args{"kind": kind, "tenant": tenant, "slot": slot})
	}
}

// A situation is one in which a job waits. The first cause that is told is the right one, and doing what it says ends that.
type situation struct {
	name string
	make func(s *scene) (id int64) // the job that waits
	want string                    // parts of the first cause and what to do, separated by …
	do   func(s *scene)            // what it says

	found string // parts of the first problem of the queue, with ! before one that is bad; empty: not looked at
}

var situations = []situation{
	{"retry of its key", func(s *scene) int64 {
		s.leave(s.enqueue(queue.Job{Key: "ord"}), "ord")
		return s.enqueue(queue.Job{Key: "ord"})
	}, "an earlier job of its key, …, waits for its retry at …for …more: no route to host…dbcron job retry …", func(s *scene) {
		_, err := adminOf(s.c).Bulk(s.Context(), admin.BulkRetry, admin.Filter{Queue: s.queue, State: admin.StateDelayed}, admin.BulkOptions{})
		dbtest.Must(s.T, err)
	}, "Jobs of queue …key are held up: 1 job, the oldest for 1m 30s: an earlier job of its key, …, waits for its retry at …dbcron job retry "},
	{"run of its key", func(s *scene) int64 {
		first := s.enqueue(queue.Job{Key: "ord"})
		s.do(`INSERT INTO {prefix}job_running (queue_id, divided, id, lock_by, started_at, kind, job_key)
			SELECT queue_id, divided, id, 'me', {now}, kind, job_key FROM {prefix}job WHERE queue_id = :q`, nil)
		s.do(`DELETE FROM {prefix}job WHERE queue_id = :q AND id = :id`, sqlrun.Args{"id": first})
		return s.enqueue(queue.Job{Key: "ord"})
	}, "an earlier job of its key, …, runs since …on me…dbcron job cancel ", func(s *scene) {
		s.do(`DELETE FROM {prefix}job_running WHERE queue_id = :q`, nil)
	}, "Jobs of queue …are held up: 1 job, …an earlier job of its key, …, runs since …dbcron job cancel "},
	{"earlier one of its key", func(s *scene) int64 {
		s.enqueue(queue.Job{Key: "ord"})
		return s.enqueue(queue.Job{Key: "ord"})
	}, "an earlier job of its key, …, has to end first…dbcron job explain ", func(s *scene) {
		s.do(`DELETE FROM {prefix}job WHERE queue_id = :q AND id = (SELECT id FROM (SELECT MIN(id) AS id FROM {prefix}job WHERE queue_id = :q AND id > 0) AS o)`, nil)
	}, "!Queue earlier one of its key is behind: 2 ready"},
	{"fifo", func(s *scene) int64 {
		_, err := adminOf(s.c).Edit(s.Context(), s.queue, func(q *admin.Queue) { q.FIFO = true })
		dbtest.Must(s.T, err)
		s.do(`DELETE FROM {prefix}queue_block WHERE queue_id = :q AND fifo = 'no'`, nil)
		s.do(`UPDATE {prefix}queue_block SET state = 'LEASED', lock_by = 'me' WHERE queue_id = :q`, nil)
		first, second := s.enqueue(queue.Job{}), s.enqueue(queue.Job{})
		s.do(`UPDATE {prefix}job SET divided = (SELECT MAX(divided) FROM {prefix}queue_block WHERE queue_id = :q) WHERE queue_id = :q`, nil)
		s.leave(first, "-")
		return second
	}, "the job before it in the FIFO queue, …, waits for its retry at …dbcron job retry ", func(s *scene) {
		s.do(`DELETE FROM {prefix}job_delayed WHERE queue_id = :q`, nil)
	}, "Jobs of queue fifo are held up: 1 job, …the job before it in the FIFO queue, …, waits for its retry at …dbcron job retry "},
	{"limit of its queue", func(s *scene) int64 {
		s.limit("", "", 2)
		return s.enqueue(queue.Job{})
	}, "at the limit of its queue: 2 at a time…dbcron limit set 'limit of its queue' --running N", func(s *scene) {
		_, err := adminOf(s.c).EditLimit(s.Context(), s.queue, "", func(l *admin.Limit) { l.Running = 3 })
		dbtest.Must(s.T, err)
	}, "are held up: …at the limit of its queue: 2 at a time…dbcron limit set "},
	{"limit of its kind", func(s *scene) int64 {
		s.limit("x", "", 1)
		return s.enqueue(queue.Job{})
	}, "at the limit of its kind, x: 1 at a time…dbcron limit set 'limit of its kind' --kind x --running N", func(s *scene) {
		dbtest.Must(s.T, adminOf(s.c).DeleteLimit(s.Context(), s.queue, "x"))
	}, "are held up: …at the limit of its kind, x: 1 at a time…dbcron limit set "},
	{"limit of its tenant", func(s *scene) int64 {
		s.limit("", "acme", 1)
		return s.enqueue(queue.Job{Tenant: "acme"})
	}, "at the limit of its tenant, acme: 1 at a time…dbcron limit set 'limit of its tenant' --tenant acme --running N", func(s *scene) {
		s.do(`DELETE FROM {prefix}queue_permit WHERE queue_id = :q`, nil)
	}, "are held up: …at the limit of its tenant, acme: 1 at a time…dbcron limit set "},
	{"rate", func(s *scene) int64 {
		_, err := adminOf(s.c).EditLimit(s.Context(), s.queue, "", func(l *admin.Limit) { l.Rate, l.Per = 1, time.Hour })
		dbtest.Must(s.T, err)
		s.do(`UPDATE {prefix}queue_limit SET drawn_at = {now} WHERE queue_id = :q`, nil)
		return s.enqueue(queue.Job{})
	}, "at the limit of its queue: 1/h; the next one begins at …, in …dbcron limit set rate --rate RATE", func(s *scene) {
		dbtest.Must(s.T, adminOf(s.c).DeleteLimit(s.Context(), s.queue, ""))
	}, "Jobs of queue rate are held up: 1 job, the oldest for 1m 30s: it is at the limit of its queue: 1/h; the next one begins at …dbcron limit set rate --rate RATE"},
	{"rate of each tenant", func(s *scene) int64 {
		_, err := adminOf(s.c).EditTenantLimit(s.Context(), s.queue, admin.EachTenant, func(l *admin.Limit) { l.Rate, l.Per = 1, time.Hour })
		dbtest.Must(s.T, err)
		s.do(`INSERT INTO {prefix}queue_tenant (queue_id, tenant, drawn_at) VALUES (:q, 'acme', {now})`, nil)
		return s.enqueue(queue.Job{Tenant: "acme"})
	}, "at the limit of its tenant, acme: 1/h; the next one begins at ", func(s *scene) {
		dbtest.Must(s.T, adminOf(s.c).DeleteTenantLimit(s.Context(), s.queue, admin.EachTenant))
	}, "are held up: …at the limit of its tenant, acme: 1/h"},
	{"no worker", func(s *scene) int64 {
		s.do(`DELETE FROM {prefix}queue_worker WHERE queue_id = :q`, nil)
		s.do(`UPDATE {prefix}queue_block SET state = 'FREE', lock_by = '' WHERE queue_id = :q`, nil)
		return s.enqueue(queue.Job{})
	}, "no worker serves its queue…start a worker for it", (*scene).work, "!No worker serves queue no worker: 1 ready…start a worker for it"},
	{
		"lost worker", func(s *scene) int64 { // its lease has ended, and nobody was there to say so
			s.only("lost", 90)
			return s.enqueue(queue.Job{})
		}, "no worker serves its queue: vm:24553 was lost 1m 30s ago…start a worker for it", (*scene).work,
		"!No worker serves queue lost worker: vm:24553 was lost 3m ago; 1 ready…start a worker for it",
	},
	{
		"lost worker of the past", func(s *scene) int64 {
			s.only("older", 90)
			s.do(`UPDATE {prefix}node SET state = 'lost' WHERE name = 'vm:24553:older'`, nil)
			s.only("newer", 30)
			return s.enqueue(queue.Job{})
		}, "no worker serves its queue: vm:24553 was lost 30s ago…start a worker for it", (*scene).work,
		"!No worker serves queue lost worker of the past: vm:24553 was lost 2m ago; 1 ready…start a worker for it",
	},
	{
		"lost worker beside another", func(s *scene) int64 { // which takes the block
			s.only("beside", 30)
			s.do(`INSERT INTO {prefix}queue_worker (queue_id, node) VALUES (:q, 'me')`, nil)
			return s.enqueue(queue.Job{})
		}, "vm:24553, which had its block, was lost: no worker has its block, …; me serves its queue, and takes free blocks every few seconds", (*scene).work,
		"!Queue lost worker beside another is behind: vm:24553, which had its block, was lost",
	},
	{"no worker for its kind", func(s *scene) int64 {
		s.do(`UPDATE {prefix}queue_worker SET kinds = '["y"]' WHERE queue_id = :q`, nil)
		return s.enqueue(queue.Job{})
	}, "none of the workers of its queue, 1, does the kind x…start a worker that does this kind", func(s *scene) {
		s.do(`UPDATE {prefix}queue_worker SET kinds = '["y", "x"]' WHERE queue_id = :q`, nil)
	}, "!Jobs of queue no worker for its kind wait that none of its workers does: 1 job of kind x; 1 ready…start a worker that does this kind"},
	{"drained", func(s *scene) int64 {
		s.do(`UPDATE {prefix}queue_worker SET node = 'drained' WHERE queue_id = :q`, nil)
		return s.enqueue(queue.Job{})
	}, "all workers of its queue are drained, as ada wants…dbcron node undrain drained", func(s *scene) {
		s.do(`UPDATE {prefix}node SET drained_at = NULL, drained_by = '' WHERE name = 'drained'`, nil)
	}, ""},
	{"paused", func(s *scene) int64 {
		dbtest.Must(s.T, adminOf(s.c).Pause(s.Context(), s.queue, "the relay is down"))
		_, err := audit.Write(s.Context(), s.db.DB, audit.Entry{Actor: "ada@host", Login: audit.OS, Source: audit.CLI, Action: "queue.pause", Object: s.queue, Count: 1})
		dbtest.Must(s.T, err)
		return s.enqueue(queue.Job{})
	}, "its queue is paused, by ada@host at …: the relay is down…dbcron queue resume paused", func(s *scene) {
		dbtest.Must(s.T, adminOf(s.c).Resume(s.Context(), s.queue))
	}, "Queue paused is paused: the relay is down…dbcron queue resume paused"},
	{"endpoint", func(s *scene) int64 {
		now, err := scheduler.Clock(s.Context(), s.db.DB)
		dbtest.Must(s.T, err)
		s.do(`INSERT INTO {prefix}endpoint_answers (queue_id, answers) VALUES (:q, :said)`, sqlrun.Args{"said": fmt.Sprintf(
			`[{"at": %d, "status": 503, "error": "HTTP 503", "by": "me", "failures": 4, "until": %d}]`, now.UnixMicro(), now.Add(time.Hour).UnixMicro())})
		return s.enqueue(queue.Job{})
	}, "its endpoint holds it up: 4 failures in a row; it is paused for …more; the last: HTTP 503…dbcron endpoint show endpoint", func(s *scene) {
		s.do(`DELETE FROM {prefix}endpoint_answers WHERE queue_id = :q`, nil)
	}, ""},
	{"refused", func(s *scene) int64 {
		id := s.enqueue(queue.Job{})
		s.do(`INSERT INTO {prefix}job_refused (queue_id, divided, id, kind, what, error, worker, tries, first_at, last_at)
			SELECT queue_id, divided, id, kind, 'done', 'a trigger says no', 'me', 3, {now}, {now} FROM {prefix}job WHERE queue_id = :q AND id > 0`, nil)
		return id
	}, "the database refuses what has become of it: done, …a trigger says no", func(s *scene) {
		s.do(`DELETE FROM {prefix}job_refused WHERE queue_id = :q`, nil)
	}, ""},
	{"delayed", func(s *scene) int64 {
		return s.enqueue(queue.Job{Delay: time.Hour})
	}, "it is delayed until …dbcron job retry ", func(s *scene) {
		_, err := adminOf(s.c).Bulk(s.Context(), admin.BulkRetry, admin.Filter{Queue: s.queue, State: admin.StateDelayed}, admin.BulkOptions{})
		dbtest.Must(s.T, err)
	}, ""},
	{"retry", func(s *scene) int64 {
		id := s.enqueue(queue.Job{})
		s.leave(id, "")
		return id
	}, "it waits for its retry at …, for …more, after attempt 1 failed: no route to host…dbcron job retry ", func(s *scene) {
		s.do(`UPDATE {prefix}job_delayed SET run_at = {now} WHERE queue_id = :q AND id > 0`, nil)
	}, ""},
	{"free block", func(s *scene) int64 {
		s.do(`UPDATE {prefix}queue_block SET state = 'FREE', lock_by = '' WHERE queue_id = :q`, nil)
		return s.enqueue(queue.Job{})
	}, "no worker has its block, …; me serves its queue, and takes free blocks every few seconds…dbcron queue show 'free block'", func(s *scene) {
		s.do(`UPDATE {prefix}queue_block SET state = 'LEASED', lock_by = 'me' WHERE queue_id = :q`, nil)
	}, ""},
	{"older block", func(s *scene) int64 {
		s.enqueue(queue.Job{Key: "ord"})
		dbtest.Must(s.T, adminOf(s.c).Resize(s.Context(), s.queue, 2))
		s.do(`UPDATE {prefix}queue_block SET state = 'LEASED', lock_by = 'me' WHERE queue_id = :q`, nil)
		id := s.enqueue(queue.Job{})
		s.do(`UPDATE {prefix}job SET divided = (SELECT MAX(divided) FROM {prefix}queue_block WHERE queue_id = :q) WHERE queue_id = :q AND id = :id`, sqlrun.Args{"id": id})
		return id
	}, "it is in a new block of its queue…dbcron queue show 'older block'", func(s *scene) {
		s.do(`DELETE FROM {prefix}queue_block WHERE queue_id = :q AND generation = 1`, nil)
	}, ""},
	{"turn", func(s *scene) int64 {
		s.enqueue(queue.Job{})
		s.enqueue(queue.Job{Priority: queue.Urgent})
		id := s.enqueue(queue.Job{})
		s.enqueue(queue.Job{})
		return id
	}, "its turn has not come: 2 jobs come before it in its block; none was done in the last ten minutes…more workers", func(s *scene) {
		_, err := adminOf(s.c).Bulk(s.Context(), admin.BulkCancel, admin.Filter{Queue: s.queue}, admin.BulkOptions{})
		dbtest.Must(s.T, err)
	}, ""},
	{"fair", func(s *scene) int64 {
		_, err := adminOf(s.c).Edit(s.Context(), s.queue, func(q *admin.Queue) { q.Fair = true })
		dbtest.Must(s.T, err)
		dbtest.Must(s.T, adminOf(s.c).SetShare(s.Context(), s.queue, "acme", 5))
		s.enqueue(queue.Job{Tenant: "acme"})
		return s.enqueue(queue.Job{Tenant: "small"})
	}, "the tenants of its queue take turns: of 2 jobs that are next 1 are of its own, which has 1 turn of 6 in a round", func(s *scene) {
		_, err := adminOf(s.c).Bulk(s.Context(), admin.BulkCancel, admin.Filter{Queue: s.queue, Tenant: "acme"}, admin.BulkOptions{})
		dbtest.Must(s.T, err)
	}, ""},
	{"priority", func(s *scene) int64 {
		id := s.enqueue(queue.Job{})
		s.do(`UPDATE {prefix}job SET priority = 77 WHERE queue_id = :q AND id = :id`, sqlrun.Args{"id": id})
		return id
	}, "no worker can read it, since its row is wrong: priority: 77 is not 1 to 4…dbcron doctor has the statement", func(s *scene) { s.repair() }, ""},
	{"no block", func(s *scene) int64 {
		id := s.enqueue(queue.Job{})
		s.do(`UPDATE {prefix}job SET divided = 999 WHERE queue_id = :q AND id = :id`, sqlrun.Args{"id": id})
		return id
	}, "no worker can read it, since its row is wrong: divided: the queue has no block 999", func(s *scene) { s.repair() }, ""},
	{"next", func(s *scene) int64 {
		return s.enqueue(queue.Job{})
	}, "it is the next one of its block: its worker, me, begins it as soon as it has a slot free", nil, ""},
}

// repair does the statement that doctor shows for a row of a job.
func (s *scene) repair() {
	s.Helper()
	found, err := OfRows(s.Context(), s.db.DB, adminOf(s.c))
	dbtest.Must(s.T, err)
	repaired := false
	for i := range found {
		_, stmt, _ := strings.Cut(found[i].Do, "within a minute: ")
		if strings.HasPrefix(found[i].Name, s.queue+" ") {
			_, err = s.db.Exec(s.Context(), sqlrun.Unlisted(stmt), nil)
			dbtest.Must(s.T, err)
			repaired = true
		}
	}
	if !repaired {
		s.Errorf("%s: no finding about it: %v", s.queue, found)
	}
}

// only has the scene's queue have one worker more, and none that lives, which was killed some seconds ago.
func (s *scene) only(name string, ago int64) {
	args := sqlrun.Args{"node": "vm:24553:" + name, "us": -ago * 1_000_000}
	s.do(`DELETE FROM {prefix}queue_worker WHERE queue_id = :q AND node = 'me'`, nil)
	s.db.Do(s.T, `INSERT INTO {prefix}node (name, state, expire_at) VALUES (:node, 'live', {now + :us})`, args)
	s.do(`INSERT INTO {prefix}queue_worker (queue_id, node) VALUES (:q, :node)`, args)
	s.do(`UPDATE {prefix}queue_block SET state = 'LEASED', lock_by = :node WHERE queue_id = :q`, args)
}

// work has the scene's queue have a worker.
func (s *scene) work() {
	s.do(`DELETE FROM {prefix}queue_worker WHERE queue_id = :q`, nil)
	s.do(`INSERT INTO {prefix}queue_worker (queue_id, node) VALUES (:q, 'me')`, nil)
	s.do(`UPDATE {prefix}queue_block SET state = 'LEASED', lock_by = 'me' WHERE queue_id = :q`, nil)
}

// contains reports whether text has some parts, which … separates, in order.
func contains(text, parts string) bool {
	for _, part := range strings.Split(parts, "…") {
		_, after, ok := strings.Cut(text, part)
		if !ok {
			return false
		}
		text = after
	}
	return true
}

// In each situation the first cause that is told is the right one, and doing what it says ends it. So it is with what is told of the queue,
// of which the jobs that no worker could begin are no backlog.
func TestSituations(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		c := queuetest.Client(t, db.DB)
		db.Do(t, `INSERT INTO {prefix}node (name, state, expire_at) VALUES ('me', 'live', {now + 3600000000})`, nil)
		db.Do(t, `INSERT INTO {prefix}node (name, state, expire_at, drained_at, drained_by) VALUES ('drained', 'live', {now + 3600000000}, {now}, 'ada')`, nil)
		for _, is := range situations {
			s := &scene{t, db, c, is.name}
			_, err := adminOf(c).Edit(t.Context(), s.queue, func(*admin.Queue) {})
			dbtest.Must(t, err)
			s.do(`UPDATE {prefix}queue_block SET state = 'LEASED', lock_by = 'me' WHERE queue_id = :q`, nil)
			s.do(`DELETE FROM {prefix}queue_block WHERE queue_id = :q AND divided > 0`, nil) // as queuetest's clients have one
			s.work()
			id := is.make(s)
			first := func() string {
				t.Helper()
				e, err := ExplainJob(t.Context(), db.DB, adminOf(c), s.queue, id)
				if err != nil || len(e.Causes) == 0 {
					t.Errorf("%s: %v, no cause", is.name, err)
					return ""
				}
				if w := e.Wire(); w.Causes[0].Why != e.Causes[0].Why || e.Causes[0].Job != 0 && w.Causes[0].Job == "" {
					t.Errorf("%s: leaves as %+v", is.name, w)
				}
				return e.Causes[0].Why + "; " + e.Causes[0].Do
			}
			problem := func() string {
				t.Helper()
				now, err := scheduler.Clock(t.Context(), db.DB)
				dbtest.Must(t, err)
				q, err := adminOf(c).Queue(t.Context(), s.queue)
				dbtest.Must(t, err)
				now = now.Add(90 * time.Second)
				depths, err := Depths(t.Context(), adminOf(c), []admin.Queue{q}, CountTo, now)
				dbtest.Must(t, err)
				all, err := OfQueues(t.Context(), db.DB, adminOf(c), depths, nil, nil, now)
				dbtest.Must(t, err)
				if len(all) == 0 {
					return ""
				}
				text := all[0].What() + ": " + all[0].Why + "; " + all[0].Do
				if all[0].Bad {
					text = "!" + text
				}
				if len(all) > 1 {
					t.Errorf("%s: there is another problem: %s: %s", is.name, all[1].What(), all[1].Why)
				}
				return text
			}
			if got := problem(); is.found != "" && (!contains(got, is.found) || strings.HasPrefix(got, "!") != strings.HasPrefix(is.found, "!")) {
				t.Errorf("%s: the first problem is %q\nwant %q", is.name, got, is.found)
			}
			if got := first(); !contains(got, is.want) {
				t.Errorf("%s: got %q\nwant %q", is.name, got, is.want)
			}
			if is.do == nil {
				continue
			}
			is.do(s)
			if strings.HasPrefix(is.name, "turn") { // it is gone
				continue
			}
			if got := first(); contains(got, is.want) {
				t.Errorf("%s: still %q", is.name, got)
			}
			if got := problem(); is.found != "" && contains(got, is.found) {
				t.Errorf("%s: the first problem is still %q", is.name, got)
			}
		}
	})
}
