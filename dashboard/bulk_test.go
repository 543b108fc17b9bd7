package dashboard

import (
	"context"
	"errors"
	"fmt"
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/ops/audit"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/queue/queuetest"
)

// bury makes dead jobs of a kind, each with an error.
func bury(t *testing.T, c *queue.Client, name, kind string, errs ...string) (ids []int64) {
	t.Helper()
	for i, text := range errs {
		e, err := c.Enqueue(t.Context(), queue.Job{Queue: name, Kind: kind, Payload: fmt.Appendf(nil, "%q", text), Key: fmt.Sprint(i % 3)})
		must(t, err)
		ids = append(ids, e.ID)
	}
	w, err := c.Worker(queue.WorkerOptions{Queues: []string{name}})
	must(t, err)
	must(t, queue.HandleKind(w, queue.Kind[string]{Name: kind},
		func(_ context.Context, text string, _ *queue.Delivery) error { return queue.Bury(errors.New(text)) }))
	queuetest.DrainAll(t, w)
	return ids
}

var formAction = regexp.MustCompile(`<form method="post" action="([^"]*)" class="line ask"`)

// form is the address that a page asks to send its form to.
func (a *answer) form() string {
	a.t.Helper()
	m := formAction.FindStringSubmatch(a.text)
	if m == nil {
		a.t.Fatalf("%s has no form: %s", a.what, a.banner())
	}
	return html.UnescapeString(m[1])
}

// Jobs that were selected, or all that match, are dealt with after a page that says how many
// there are, and no others.
func TestBulk(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		c := queuetest.Client(t, db.DB)
		bounced := bury(t, c, "mail", "bounce", "no such user 1", "no such user 22", "mailbox full", "no such user 333")
		bury(t, c, "mail", "other", "no such user 1")
		s := serve(t, db.DB, "/x", Options{})
		count := func(want admin.Counts) {
			t.Helper()
			got, err := adminOf(c).Count(t.Context(), "mail", 100)
			if want.Limit = 100; err != nil || got != want {
				t.Errorf("got %+v, %v, want %+v", got, err, want)
			}
		}

		s.get(link("jobs", "queue", "mail", "state", "dead")).has(fmt.Sprintf(`name="id" value="%d"`, bounced[0]),
			`value="retry"`, `value="delete"`, "All that are dead")
		chosen := link("bulk", "queue", "mail", "state", "dead", "chosen", "1", "do", "retry")
		s.do("GET", chosen, nil).is(400).has("no job was selected")
		s.do("GET", strings.Replace(chosen, "retry", "cancel", 1), nil).is(400)
		two := fmt.Sprint(chosen, "&id=", bounced[0], "&id=", bounced[1], "&id=", bounced[1]+77_777)
		ask := s.get(two).has("3 dead jobs", "which you have selected")
		count(admin.Counts{Dead: 5}) // looking does nothing
		s.try(ask.form(), "do", "delete").is(400)
		s.post(ask.form(), "do", "retry").has("It is done", "2 jobs", "were retried", "1 had gone").lacks(`class="line ask"`)
		count(admin.Counts{Dead: 3, Delayed: 2})

		all := link("bulk", "queue", "mail", "state", "dead", "do", "delete", "kind", "bounce", "where", `$ = "mailbox full"`)
		ask = s.get(all).has("1 dead job", "mailbox full", "bounce", "Delete 1 job")
		s.post(ask.form(), "do", "delete").has("1 job", "was deleted")
		count(admin.Counts{Dead: 2, Delayed: 2})
		s.get(all).has("No job matches").lacks(`class="line ask"`)

		ask = s.get(link("bulk", "queue", "mail", "state", "delayed", "do", "cancel")).has("2 delayed jobs", "none: all jobs of the queue")
		s.post(ask.form(), "do", "cancel").has("were cancelled")
		_, err := c.Enqueue(t.Context(), queue.Job{Queue: "mail", Kind: "later", Delay: time.Hour})
		must(t, err)
		s.post(s.get(link("bulk", "queue", "mail", "state", "delayed", "do", "run")).has("Run now 1 job").form(),
			"do", "run").has("1 job", "was let go")
		s.post(s.get(link("bulk", "queue", "mail", "state", "dead", "do", "retry")).has("2 dead jobs").form(), "do", "retry").has("2 jobs")
		count(admin.Counts{Delayed: 3})

		for path, status := range map[string]int{
			"bulk": 400, "bulk?queue=mail&do=retry": 400, "bulk?queue=none&do=cancel": 404, "bulk?queue=mail&do=cancel&id=x": 400,
			"bulk?queue=mail&do=cancel&from=x": 400, "bulk?queue=mail&do=cancel&state=x": 400,
			"bulk?queue=mail&do=cancel&where=nonsense": 422, "bulk?queue=mail&do=cancel" + strings.Repeat("&id=1", maxIDs+1): 400,
		} {
			s.do(http.MethodGet, path, nil).is(status)
		}
		s.do(http.MethodPost, ask.form(), url.Values{"do": {"cancel"}}, "Sec-Fetch-Site: cross-site").is(403)
		count(admin.Counts{Delayed: 3})
	})
}

// Very many jobs are processed in parts, each of which continues where the last one ended.
func TestBulkInParts(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		const n = bulkPart + 2000
		c := queuetest.Client(t, db.DB)
		for range n / 2000 {
			jobs := make([]queue.Job, 2000)
			for i := range jobs {
				jobs[i] = queue.Job{Queue: "mail", Kind: "k"}
			}
			_, err := c.EnqueueMany(t.Context(), jobs)
			must(t, err)
		}
		s := serve(t, db.DB, "", Options{Timeout: time.Minute})
		ask := s.get(link("bulk", "queue", "mail", "do", "cancel")).has("10,000+ ready jobs").lacks("data-go-on")
		parts := 0
		for ask = s.post(ask.form(), "do", "cancel"); strings.Contains(ask.text, "data-go-on") && parts < 10; parts++ {
			ask.has("A part is done", "Stop here", "are left")
			ask = s.post(ask.form(), "do", "cancel")
		}
		ask.has("It is done", "12,000 jobs")
		if got, err := adminOf(c).Count(t.Context(), "mail", 100); err != nil || got.Ready > 0 || parts != 1 {
			t.Errorf("%d are left after %d more parts, %v", got.Ready, parts, err)
		}
		if got, _, err := audit.List(t.Context(), db.DB, audit.Filter{Action: "job.cancel"}); err != nil || len(got) != 1 || got[0].Count != n {
			t.Errorf("got %+v, %v: want one entry for all parts", got, err)
		}
	})
}

// A job is cloned with the payload that was typed, byte for byte, and the old one stays.
func TestClone(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		w, ctx := newWorld(t, db), t.Context()
		s := serve(t, db.DB, "/x", Options{})
		c := s.board.queues
		from := link("clone", "queue", "mail", "id", w.ready)
		s.get(link("job", "queue", "mail", "id", w.ready)).has(html.EscapeString(from))
		s.get(from).has(`"n":`+big, `value="welcome"`, "selected>normal")
		clone := func(path string, pairs ...string) admin.Job {
			t.Helper()
			a := s.try(path, pairs...).is(303)
			to := a.header.Get("Location")
			s.get(to).has("This is the new job.")
			u, err := url.Parse(to)
			must(t, err)
			var id int64
			_, err = fmt.Sscan(u.Query().Get("id"), &id)
			must(t, err)
			i, err := adminOf(c).Job(ctx, u.Query().Get("queue"), id)
			must(t, err)
			return i
		}
		text := `{"n":` + big + "1,  \"a\":1.0}"
		i := clone(from, "do", "clone", "queue", "mail", "kind", "welcome", "key", "eve", "priority", "low", "payload", text)
		if i.ID == w.ready || string(i.Payload) != text || i.Key != "eve" || i.Priority != queue.Low ||
			i.Kind != "welcome" || i.State != admin.StateReady {
			t.Errorf("got %+v", i)
		}
		if old, err := adminOf(c).Job(ctx, "mail", w.ready); err != nil || old.Key != "ada" {
			t.Errorf("got %+v, %v", old, err)
		}
		s.try(from, "do", "clone", "queue", "mail", "kind", "welcome", "priority", "low", "payload", "{").is(422).has("banner bad", `>
{</textarea>`)
		s.try(from, "do", "clone", "queue", "none", "kind", "welcome", "priority", "low", "payload", "1").is(404)
		s.try(from, "do", "clone", "queue", "mail", "kind", "", "priority", "low", "payload", "1").is(422)
		s.try(from, "do", "clone", "queue", "mail", "kind", "k", "priority", "x", "payload", "1").is(422)

		strange, _, err := adminOf(c).Jobs(ctx, admin.Filter{Queue: hostile})
		must(t, err)
		bin := link("clone", "queue", hostile, "id", strange[0].ID)
		s.get(bin).has("copied unchanged").lacks("<textarea")
		if i := clone(bin, "do", "clone", "queue", hostile, "kind", "x", "priority", "normal", "payload",
			"ignored"); string(i.Payload) != "\xff\x00" || !i.Binary {
			t.Errorf("got %+v", i)
		}
	})
}

// The timeline shows the history of a job as far as its row has it.
func TestTimeline(t *testing.T) {
	now := time.Date(2026, 11, 24, 6, 0, 0, 0, time.UTC)
	at := func(ago time.Duration) time.Time { return now.Add(-ago) }
	job := func(state admin.State, attempts int, change func(*admin.Job)) admin.Job {
		i := admin.Job{State: state, Attempts: attempts, Enqueued: at(time.Hour), At: at(time.Minute), Error: "why", Worker: "w"}
		if change != nil {
			change(&i)
		}
		return i
	}
	for want, i := range map[string]admin.Job{
		"Enqueued; Attempt 1 of 5 (ahead): ready": job(admin.StateReady, 0, nil),
		"Enqueued; Attempts 1 to 2 failed; Attempt 3 failed: why; Attempt 4 of 5 (ahead): due": job(admin.StateDelayed,
			3, func(i *admin.Job) { i.At = now.Add(time.Minute) }),
		"Enqueued; Attempt 1 failed; Attempt 2 failed: why; 1 worker died with it; Attempt 3 began": job(admin.StateRunning,
			3, func(i *admin.Job) { i.Crashes = 1 }),
		"Enqueued; Attempts 1 to 4 failed; Attempt 5 failed, and it died: why": job(admin.StateDead, 5, nil),
		"Enqueued; It died: why": job(admin.StateDead, 0, nil),
		"Enqueued; Attempts 1 to 2 failed; Attempt 3 failed: third; Attempt 4 failed, and it died: fourth, given up": job(admin.StateDead, 4,
			func(i *admin.Job) {
				i.Errors = []admin.AttemptError{{Attempt: 4, Error: "fourth, given up"}, {Attempt: 3, Error: "third"}}
			}),
		"Enqueued; Attempt 1 failed: first; Attempt 2 failed: second; Attempt 3 of 5 (ahead): due": job(admin.StateDelayed, 2,
			func(i *admin.Job) {
				i.At = now.Add(time.Minute)
				i.Errors = []admin.AttemptError{{Attempt: 2, Error: "second"}, {Attempt: 1, Error: "first"}}
			}),
		"Enqueued; Attempt 1 failed; Attempt 2 began; Done: 30s": job(admin.StateDone, 2,
			func(i *admin.Job) { i.Started, i.Error = at(90*time.Second), "" }),
		"Enqueued; Cancelled":                       job(admin.StateDone, 0, func(i *admin.Job) { i.Cancelled = true }),
		"Enqueued; Attempt 1 began; Discarded: why": job(admin.StateDone, 1, func(i *admin.Job) { i.Discarded = true }),
	} {
		var got []string
		for _, m := range timelineOf(&i, 5, now) {
			text := m.What
			if m.Ahead {
				text += " (ahead)"
			}
			got = append(got, text+": "+m.Why)
		}
		for n, part := range strings.Split(want, "; ") {
			what, why, _ := strings.Cut(part, ": ")
			if n >= len(got) || !strings.HasPrefix(got[n], what+": ") || !strings.Contains(got[n], why) {
				t.Errorf("got %q, want %q", got, want)
				break
			}
		}
		if len(got) != strings.Count(want, "; ")+1 {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
