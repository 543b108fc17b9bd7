package dashboard

import (
	"fmt"
	"html"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/httpapi"
	"github.com/dbcron/dbcron/internal/ops/audit"
	"github.com/dbcron/dbcron/internal/ops/health"
	"github.com/dbcron/dbcron/internal/plain"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/scheduler"
)

var (
	links    = regexp.MustCompile(`(?:href|action|src)="([^"]*)"`)
	elements = regexp.MustCompile(`<(script|img|iframe|svg)[^>]*>`)
)

// Each page shows what there is, every link on it leads to a page, and names, payloads and
// outputs stay text, at the root of a server and below a path.
func TestPages(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		w := newWorld(t, db)
		for _, prefix := range []string{"", "/ops/dbcron"} {
			s := serve(t, db.DB, prefix, Options{Version: "v1"})
			seen := map[string]bool{}
			for _, path := range w.pages() {
				a := s.get(path).has("<main", "</html>").lacks("alert(1)</script>", "<img", "onerror=alert(2)>",
					"ZgotmplZ", "<svg onload", "geheim", "<b>ada", "\x1b", "\u202e", "could not be read", " style=", "%!")
				if got := a.header.Get("Content-Security-Policy"); !strings.HasPrefix(got, "default-src 'self';") {
					t.Errorf("%s: the policy is %q", a.what, got)
				}
				for _, e := range elements.FindAllString(a.text, -1) {
					if !strings.HasPrefix(e, "<svg viewBox=") && !strings.HasPrefix(e, `<svg class="strip"`) && e != `<script src="script.js" defer>` {
						t.Errorf("%s: there is %s", a.what, e)
					}
				}
				for _, m := range links.FindAllStringSubmatch(a.text, -1) {
					to := html.UnescapeString(m[1])
					if strings.Contains(to, ":") || strings.HasPrefix(to, "/") {
						t.Errorf("%s: the link %s leaves the page", a.what, to)
					}
					if !seen[to] && to != "#main" && to != "sign-out" && to != "bulk" && to != "backfill" { // these two need more than their address
						seen[to] = true
						s.get(to)
					}
				}
			}
		}
		s := serve(t, db.DB, "", Options{})
		s.get("").has("What is wrong", "A run of backup failed", "exit code 3", "was lost", "is paused",
			"1 job of queue mail died", "Next runs", "backup", "1,234", "1,234 done, 5 failed, 1 dead",
			`<td>day</td><td class="num">2,000</td><td class="num">1.4</td>`, "pushes back", "4 failures in a row; the next job is sent as a trial",
			"dbcron endpoint show", "dbcron queue resume")
		s.get("queues").has("mail", "paused", "Empty in", ">124<")
		s.get(link("queue", "name", hostile)).has("it pushes back: 4 failures in a row", `class="t-bad">503</b> `, ">70ms<").lacks("geheim")
		s.get(link("queue", "name", "mail")).has(">100/m<", ">7<", "block", "Purge", ">bounce<", "1,234 done, 5 failed, 1 dead")
		s.get(link("jobs", "queue", "mail")).has(fmt.Sprint(w.ready), "welcome")
		s.get(link("jobs", "queue", "mail", "where", "$.n = "+big)).has(fmt.Sprint(w.ready)).lacks(fmt.Sprint(w.strange))
		s.get(link("jobs", "queue", "mail", "where", "nonsense")).has("banner warn")
		s.get(link("job", "queue", "mail", "id", w.ready)).has(`<span class="j-number">`+big+`</span>`, `"a<b>\u202e"`, "0 of 10", "Why it waits", "No worker serves its queue. What to do: start a worker")
		s.get(link("job", "queue", "mail", "id", w.dead)).has("550 no such user &lt;b&gt;ada", "Retry", "Delete").lacks(`</span><span class="when">`, `</span><span class="why">`)
		s.get(link("schedule", "name", "backup")).has("<span>every day at 03:30</span>", "CE", "Europe/Berlin", "Its last run failed: ",
			`class="bar s-failed"`, `<span class="state s-failing">failing</span></h1>`)
		s.get(link("schedule", "name", "idle")).has("No daemon is at work. What to do: start one: dbcron serve")
		s.get(link("schedules", "from", "backup")).has(">backup<")
		s.get(link("run", "id", w.run)).has("dumping", "⟨U+001B⟩[31m", "1m 30s", "host:1:x")
		s.get(link("lock", "name", "migration")).has("<b>host-7:", "holds it for")
		s.get("daemons").has("s-lost")
		if a := s.get(link("payload", "queue", "mail", "id", w.ready)); !strings.Contains(a.header.Get("Content-Disposition"),
			"attachment") || a.header.Get("Content-Type") != "application/octet-stream" || !strings.Contains(a.text, big) {
			t.Errorf("got %v %q", a.header, a.text)
		}
	})
}

// What holds jobs up is told on the pages of the queue and of the job, and on the overview.
func TestHeldUp(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		c, err := queue.New(db.DB, queue.Options{Blocks: 1})
		must(t, err)
		for range 2 {
			_, err = c.Enqueue(t.Context(), queue.Job{Queue: "rated", Kind: "x"})
			must(t, err)
		}
		a, err := admin.New(db.DB, admin.Options{})
		must(t, err)
		_, err = a.EditLimit(t.Context(), "rated", "", func(l *admin.Limit) { l.Rate, l.Per = 1, time.Hour })
		must(t, err)
		db.Do(t, `UPDATE {prefix}queue_limit SET drawn_at = {now}`, nil)
		db.Do(t, `UPDATE {prefix}job SET id = id - 90000000 * 4096 WHERE id > 0`, nil)
		s := serve(t, db.DB, "", Options{})
		const why = "it is at the limit of its queue: 1/h; the next one begins at "
		s.get("").has("Jobs of queue rated are held up", why, "dbcron limit set rated --rate RATE").lacks("is behind")
		s.get(link("queue", "name", "rated")).has("Held up: 2 jobs, the oldest for 1m 3", why, "dbcron limit set rated --rate RATE").lacks("never")
	})
}

// Where there is nothing, pages say what to do.
func TestEmpty(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		s := serve(t, db.DB, "", Options{})
		s.get("").has("Nothing. No schedule failed", "dbcron schedule add")
		for path, text := range map[string]string{
			"queues": "no queue yet", "jobs": "no queue yet", "schedules": "no schedule yet", "runs": "Nothing has run",
			"locks": "No lock has been used", "daemons": "No process", "routes": "There is no route", "routes?after=x": "no more",
			"topics": "No queue has subscribed", "topics?after=x&queue=x": "no more", "groups": "No group is sealed",
			"groups?state=done&after=7": "no more", "tokens": "There is no token", "audit": "Nobody has done anything",
			"audit?actor=x": "No entry matches", "audit?before=7": "no older",
			"queues?after=x": "no more", "schedules?after=x": "no more", "schedules?state=failed": "No schedule is failed",
			"runs?state=lost": "No run is lost", "runs?before=7": "no older", "locks?after=x": "no more", "daemons?after=x": "no more",
			"jobs?queue=none": "There is no queue",
		} {
			s.get(path).has(text)
		}
		for path, status := range map[string]int{
			"nothing": 404, "queue?name=none": 404, "job?queue=none&id=1": 404, "schedule?name=none": 404,
			"run?id=1": 404, "lock?name=none": 404, "payload?queue=none&id=1": 404,
			"queue": 400, "run?id=x": 400, "run?id=0": 400, "run?id=99999999999999999999": 400, "runs?state=x": 400,
			"schedules?state=x": 400, "jobs?state=x": 400, "job?queue=a": 400,
			"queue?name=" + strings.Repeat("x", 300): 400, "queue?name=%ff": 400, "queue?name=a%00b": 400,
			"jobs?where=" + strings.Repeat("x", 3000): 400, "locks?slot=77777777": 400, "audit?before=x": 400,
			"groups?state=x": 400, "group?id=x": 400, "group?id=7": 404, "audit?actor=" + strings.Repeat("x", 5000): 400,
		} {
			s.do("GET", path, nil).is(status).has("banner bad", `href="style.css"`)
		}
		s.do("GET", "a/b", nil).is(404).lacks("href")
		s.do("PUT", "", nil).is(405)
		s.do("GET", "style.css", nil).is(200)
		s.do("GET", "script.js", nil).is(200)
		s.do("GET", "icon.svg", nil).is(200)
		s.get("?ok=nonsense&n=7").lacks("banner ok")
	})
}

// Lists continue where a page ends.
func TestLists(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		ctx := t.Context()
		c, err := queue.New(db.DB, queue.Options{Blocks: 1})
		must(t, err)
		var jobs []queue.Job
		for range 2*jobsListed + 1 {
			jobs = append(jobs, queue.Job{Queue: "q000", Kind: "k"})
		}
		_, err = c.EnqueueMany(ctx, jobs)
		must(t, err)
		var schedules, runs, locks, nodes []sqlrun.Args
		for i := range 2*listed + 1 {
			schedules = append(schedules, sqlrun.Args{"name": fmt.Sprintf("s%03d", i)})
			locks = append(locks, sqlrun.Args{"name": fmt.Sprintf("l%03d", i)})
			nodes = append(nodes, sqlrun.Args{"name": fmt.Sprintf("n%03d", i)})
		}
		for i := range 2*runsListed + 1 {
			runs = append(runs, sqlrun.Args{"at": 1_700_000_000_000_000 + int64(i)*1_000_000})
		}
		db.Do(t, `INSERT INTO {prefix}schedule (name, spec, command) VALUES {values rows: (:name, '@daily', 'true')}`,
			sqlrun.Args{"rows": schedules})
		db.Do(t, `INSERT INTO {prefix}lock (name, state, slot) VALUES {values rows: (:name, 'FREE', 0)}`, sqlrun.Args{"rows": locks})
		db.Do(t, `INSERT INTO {prefix}node (name) VALUES {values rows: (:name)}`, sqlrun.Args{"rows": nodes})
		db.Do(t, `INSERT INTO {prefix}run (schedule, due_at, attempt, state, finished_at) VALUES {values rows: ('s000', {time :at}, 1, 'ok', {time :at})}`, sqlrun.Args{"rows": runs})
		for _, n := range nodes {
			_, err := audit.Write(ctx, db.DB, audit.Entry{Actor: "ada", Action: "queue.pause", Object: n["name"].(string)})
			must(t, err)
		}
		s := serve(t, db.DB, "", Options{})
		next := regexp.MustCompile(`<a href="([^"]*)" rel="next">`)
		for path, want := range map[string]int{
			"jobs?queue=q000": 2*jobsListed + 1, "schedules": 2*listed + 1,
			"runs": 2*runsListed + 1, "runs?state=ok": 2*runsListed + 1, "locks": 2*listed + 1, "daemons": 2*listed + 1,
			"audit": 2*listed + 1, "audit?actor=ada": 2*listed + 1,
		} {
			got, pages := 0, 0
			for to := path; to != ""; pages++ {
				a := s.get(to)
				_, rows, _ := strings.Cut(a.text, "<tbody>")
				got += strings.Count(rows, "<tr>")
				to = ""
				if m := next.FindStringSubmatch(a.text); m != nil && pages < 10 {
					to = html.UnescapeString(m[1])
				}
			}
			if got != want || pages != 3 {
				t.Errorf("%s: got %d rows on %d pages, want %d on 3", path, got, pages, want)
			}
		}
	})
}

// Pages of schedules with long texts have fewer rows: none reads more than a MiB of them.
func TestListOfLongSchedules(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		for i := range 5 {
			must(t, scheduler.Add(t.Context(), db.DB, scheduler.Schedule{
				Name: fmt.Sprint("s", i), Spec: "@daily", Command: "true", Stdin: strings.Repeat("x", 400<<10),
			}))
		}
		s := serve(t, db.DB, "", Options{})
		s.get("schedules").has("s0", "s1", `href="schedules?after=s1" rel="next"`).lacks("s2")
		s.get("schedules?after=s1").has("s2", "s3", `href="schedules?after=s3" rel="next"`).lacks("s4")
		s.get("schedules?after=s3").has("s4").lacks(`rel="next"`)
		s.get("schedules?state=active").has("s0", "s1", "These are the first 2.").lacks("s2")
	})
}

// Counts end at a limit and say so.
func TestManyJobs(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		c, err := queue.New(db.DB, queue.Options{Blocks: 1})
		must(t, err)
		for n := 0; n <= health.CountTo; n += 1000 {
			jobs := make([]queue.Job, 1000)
			for i := range jobs {
				jobs[i] = queue.Job{Queue: "mail", Kind: "k"}
			}
			_, err := c.EnqueueMany(t.Context(), jobs)
			must(t, err)
		}
		s := serve(t, db.DB, "", Options{Timeout: time.Minute})
		for _, path := range []string{"", "queues", "queue?name=mail"} {
			s.get(path).has("10,000+").lacks("11,000")
		}
		s.post("queue?name=mail", "do", "purge", "state", "ready", "typed", "mail").has("Removed 10,000 jobs.")
		s.post("queue?name=mail", "do", "purge", "state", "ready", "typed", "mail").has("Removed 1,000 jobs, all there were.")
		s.post("queue?name=mail", "do", "purge", "state", "ready", "typed", "mail").has("nothing to remove")
	})
}

// With many queues, the overview counts fewer jobs of each, and says so. The list of queues
// counts them all.
func TestManyQueues(t *testing.T) {
	for queues, want := range map[int]int{0: 10_000, 1: 10_000, 5: 10_000, 6: 8000, 10: 5000, 49: 1000, 50: 1000, 1000: 1000} {
		if got := glanceLimit(queues); got != want {
			t.Errorf("%d queues: got %d, want %d", queues, got, want)
		}
	}
	memory(t, func(t *testing.T, db *dbtest.DB) {
		c, err := queue.New(db.DB, queue.Options{Blocks: 1})
		must(t, err)
		jobs := make([]queue.Job, 0, 1100)
		for i := range cap(jobs) {
			jobs = append(jobs, queue.Job{Queue: "mail", Kind: "k"})
			if i < 49 {
				jobs[i].Queue = fmt.Sprint("other", i)
			}
		}
		_, err = c.EnqueueMany(t.Context(), jobs)
		must(t, err)
		s := serve(t, db.DB, "", Options{Timeout: time.Minute})
		s.get("").has("<b>1,049+</b><span>ready</span>", "<b>50</b><span>queues</span>")
		s.get("queues").has(">1,051<").lacks("1,000+")
	})
}

// Each action does what it says and reports that, or says why it failed.
func TestActions(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		w, ctx := newWorld(t, db), t.Context()
		s := serve(t, db.DB, "/x", Options{})
		c := s.board.queues
		mail := link("queue", "name", "mail")
		job := func(id int64) string { return link("job", "queue", "mail", "id", id) }
		state := func(id int64, want admin.State) {
			t.Helper()
			i, err := adminOf(c).Job(ctx, "mail", id)
			now, clockErr := scheduler.Clock(ctx, db.DB)
			must(t, clockErr)
			if i.State == admin.StateDelayed && i.At.Before(now.Add(time.Minute)) {
				i.State = admin.StateReady // it is due
			}
			if err != nil || i.State != want {
				t.Errorf("job %d: got %v, %v, want %v", id, i.State, err, want)
			}
		}

		s.post(mail, "do", "pause", "reason", "the <b>server</b> moves").has("Paused.", "the &lt;b&gt;server&lt;/b&gt; moves", `value="resume"`)
		if q, err := adminOf(c).Queue(ctx, "mail"); err != nil || q.State != "paused" || q.Reason != "the <b>server</b> moves" {
			t.Errorf("got %+v, %v", q, err)
		}
		s.post(mail, "do", "resume").has("Resumed.", `value="pause"`)
		s.post(job(w.delayed), "do", "run").has("may begin now")
		state(w.delayed, admin.StateReady)
		s.try(job(w.ready), "do", "run").is(409).has("banner bad", "Cancel")
		s.post(job(w.delayed), "do", "cancel").has("The job is cancelled", "no longer exists")
		s.try(job(w.delayed), "do", "cancel").is(404)
		s.try(job(w.dead), "do", "cancel").is(409)
		state(w.dead, admin.StateDead)
		s.post(job(w.dead), "do", "retry").has("The job will be retried")
		state(w.dead, admin.StateReady)
		s.try(job(w.dead), "do", "delete").is(409)
		s.post(job(w.dead), "do", "cancel")
		for _, typed := range []string{"", "Mail", "mail "} {
			s.try(mail, "do", "purge", "state", "ready", "typed", typed).is(422).has("not the queue's name")
		}
		s.try(mail, "do", "purge", "state", "running", "typed", "mail").is(400)
		state(w.ready, admin.StateReady)
		s.post(mail, "do", "purge", "state", "ready", "typed", "mail").has("Removed 2 jobs, all there were.")
		s.post(link("queue", "name", hostile), "do", "resume").has("Resumed.")

		s.post(link("schedule", "name", "backup"), "do", "pause", "reason", "holidays").has("Paused.", "It is paused, by ", ": holidays. What to do: when it may run again")
		s.post(link("schedule", "name", "backup"), "do", "resume").has("Resumed.")
		a := s.try(link("schedule", "name", hostile), "do", "run").is(303)
		s.get(a.header.Get("Location")).has("A daemon will begin this run soon", "waiting", "hand")
		runs, _, err := scheduler.RecentRuns(ctx, db.DB, scheduler.RunFilter{Limit: 1})
		must(t, err)
		run := link("run", "id", runs[0].ID)
		s.post(run, "do", "cancel", "reason", "by mistake").has("The run is cancelled", "s-cancelled")
		s.try(run, "do", "cancel").is(409)
		s.get("audit").has("this host")
		entries, _, err := audit.List(ctx, db.DB, audit.Filter{Actor: audit.ThisHost})
		must(t, err)
		var got []string
		for _, e := range slices.Backward(entries) {
			got = append(got, strings.TrimSpace(fmt.Sprint(e.Action, " ", e.Object, " ", e.Count, " ", e.Detail)))
			if e.Login != audit.None || e.Source != audit.Dashboard {
				t.Errorf("got %+v", e)
			}
		}
		if want := []string{
			"queue.pause mail 1 the <b>server</b> moves", "queue.resume mail 1", fmt.Sprint("job.run mail/", w.delayed, " 1"),
			fmt.Sprint("job.cancel mail/", w.delayed, " 1"),
			fmt.Sprint("job.retry mail/", w.dead, " 1"), fmt.Sprint("job.cancel mail/", w.dead, " 1"),
			"queue.purge mail 2 state=ready", "queue.resume " + hostile + " 1",
			"schedule.pause backup 1 holidays", "schedule.resume backup 1", "schedule.run " + hostile + " 1",
			fmt.Sprint("run.cancel ", hostile, "/", runs[0].ID, " 1 by mistake"),
		}; !slices.Equal(got, want) {
			t.Errorf("the audit has\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		s.try(link("schedule", "name", "none"), "do", "run").is(404)
		s.try(link("run", "id", 1<<40), "do", "cancel").is(404)
		s.try(mail, "do", "nonsense").is(400)
		s.try("queues", "do", "pause").is(400)
		s.try(mail, "do", "pause", "reason", strings.Repeat("x", 1000)).is(400)
		s.do("POST", mail, url.Values{"do": {strings.Repeat("x", formBytes)}}).is(400)
	})
}

// A name that could be taken for none is one.
func TestLink(t *testing.T) {
	for want, got := range map[string]string{
		"queue?name=0": link("queue", "name", "0"), "jobs?queue=a%26b": link("jobs", "queue", "a&b", "after", int64(0), "kind", ""),
		"runs": link("runs"), "run?id=7": link("run", "id", 7),
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	for want, d := range map[string]time.Duration{
		"–": -1, "0µs": 0, "52ms": 52 * time.Millisecond,
		"1.5s": 1500 * time.Millisecond, "2s": 2 * time.Second, "42s": 42 * time.Second, "1m": time.Minute,
		"1m 5s": 65 * time.Second, "1h": time.Hour, "3d 4h": 76*time.Hour + 5*time.Minute,
	} {
		if got := plain.Span(d); got != want {
			t.Errorf("%d: got %q, want %q", d, got, want)
		}
	}
	for want, n := range map[string]int{"0": 0, "999": 999, "1,000": 1000, "12,345,678": 12345678, "-1,234": -1234} {
		if got := plain.Number(n); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// Payloads are shown with the numbers and the order of their text; payloads that are not JSON,
// or too large, are shown as text.
func TestPayload(t *testing.T) {
	deep := strings.Repeat("[", 200) + strings.Repeat("]", 200)
	wide := "[" + strings.Repeat("0,", foldedNodes) + "0]"
	for _, text := range []string{deep, wide, "{", "", "{} {}", `"\xff`, strings.Repeat(" ", foldedBytes) + "1"} {
		if v := viewOf(&admin.Job{Payload: []byte(text)}); v.Root != nil ||
			v.Text != plain.Clean(text)[:min(len(text), shownText)] {
			t.Errorf("%.40q: got %+v", text, v)
		}
	}
	if v := viewOf(&admin.Job{Payload: []byte("a\xff")}); !v.Binary {
		t.Errorf("got %+v", v)
	}
	root := viewOf(&admin.Job{Payload: []byte(`{"b":-0.10e+5,"a":` + big + `,"a":"\\u003c<"}`)}).Root
	if root == nil || len(root.Children) != 3 || root.Children[0].Name != "b" || root.Children[0].Text != "-0.10e+5" ||
		root.Children[1].Text != big || root.Children[2].Text != `"\\u003c<"` {
		t.Errorf("got %+v", root)
	}
}

// Whoever may only look sees no buttons, and is refused what they would do.
func TestScopes(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		w, tokens := newWorld(t, db), httpapi.NewTokens(db.DB)
		secrets := map[httpapi.Scope]string{}
		for _, scope := range httpapi.Scopes {
			var err error
			secrets[scope], err = tokens.Create(t.Context(), string(scope), []httpapi.Scope{scope}, 0)
			must(t, err)
		}
		s := serve(t, db.DB, "/x", Options{})
		for _, path := range w.pages() {
			a := s.do("GET", path, nil).is(303)
			if to := a.header.Get("Location"); !strings.HasPrefix(to, "sign-in") {
				t.Errorf("%s leads to %s", a.what, to)
			}
		}
		s.do("GET", link("payload", "queue", "mail", "id", w.ready), nil).is(303)
		s.try(link("queue", "name", "mail"), "do", "pause").is(401)
		for _, wrong := range []string{"", "x", "dbcron_" + strings.Repeat("A", 43)} {
			s.try("sign-in", "token", wrong).is(401).has("unknown or no longer valid").lacks("AAAA")
		}
		s.try("sign-in", "token", secrets[httpapi.ScopeEnqueue]).is(403)
		s.try("sign-in", "token", secrets[httpapi.ScopeWork]).is(403)
		s.do("GET", "", nil).is(303)

		reader := s.another()
		reader.try("sign-in", "token", secrets[httpapi.ScopeRead], "to", link("queue", "name", "mail")).is(303)
		for _, path := range w.pages() {
			reader.get(path).lacks(`name="do"`).has("read only", "Sign out").lacks(secrets[httpapi.ScopeRead])
		}
		for path, do := range map[string]string{
			link("queue", "name", "mail"):               "pause",
			link("job", "queue", "mail", "id", w.ready): "cancel", link("schedule", "name", "backup"): "pause", link("run", "id", w.run): "cancel",
		} {
			reader.try(path, "do", do).is(403).has("Nothing was done")
		}
		if q, err := adminOf(s.board.queues).Queue(t.Context(), "mail"); err != nil || q.State != "active" {
			t.Errorf("got %v, %v", q.State, err)
		}

		operator := s.another()
		operator.try("sign-in", "token", secrets[httpapi.ScopeOperate]).is(303)
		mail, dead := link("queue", "name", "mail"), link("job", "queue", "mail", "id", w.dead)
		operator.get(mail).has("operator", `value="pause"`).lacks("Purge")
		operator.get(dead).has(`value="retry"`).lacks(`value="delete"`, "Clone")
		operator.get(link("jobs", "queue", "mail", "state", "dead")).has(`value="retry"`).lacks(`value="delete"`)
		operator.try(mail, "do", "purge", "state", "ready", "typed", "mail").is(403).has("scope admin")
		operator.try(dead, "do", "delete").is(403).has("scope admin")
		operator.try(link("bulk", "queue", "mail", "state", "dead", "do", "delete"), "do", "delete").is(403)
		operator.try(link("clone", "queue", "mail", "id", w.dead), "do", "clone").is(403)
		operator.try(dead, "do", "nonsense").is(400)
		operator.post(mail, "do", "pause").has("by operate")
		operator.post(mail, "do", "resume")
		operator.post(dead, "do", "retry").has("will be retried")
		for path, to := range s.board.routes {
			for do := range to.acts {
				allowed := slices.Contains([]string{"retry", "run", "cancel", "pause", "resume", "backfill", "drain", "undrain", "acknowledge", "reopen"}, do)
				if got := (visitor{Operate: true}).may(path, do); got != allowed {
					t.Errorf("%s %s with the scope operate: %v, want %v", path, do, got, allowed)
				}
			}
		}

		admin := s.another()
		a := admin.try("sign-in", "token", " "+secrets[httpapi.ScopeAdmin]+"\n", "to", link("queue", "name", "mail")).is(303)
		if to := a.header.Get("Location"); to != link("queue", "name", "mail") {
			t.Errorf("signing in leads to %s", to)
		}
		admin.get("").has("<b>admin</b>")
		admin.post(link("queue", "name", "mail"), "do", "pause").has("by admin")
		admin.get(link("audit", "actor", "admin")).has("queue.pause", "dashboard")
		admin.post(link("queue", "name", "mail"), "do", "resume")

		must(t, tokens.Revoke(t.Context(), "admin"))
		_, err := httpapi.NewTokens(db.DB).Verify(t.Context(), secrets[httpapi.ScopeAdmin])
		if err == nil {
			t.Error("a revoked token is good")
		}
		revoked := serve(t, db.DB, "/x", Options{}) // it does not know what this process has read of the token
		if a := revoked.try("sign-in", "token", secrets[httpapi.ScopeAdmin]); a.status != 401 {
			t.Errorf("a revoked token opens a session: %d", a.status)
		}
		revoked.board.sessions, revoked.client = s.board.sessions, admin.client // with the session that there is
		revoked.do("GET", "", nil).is(303)

		reader.try("sign-out").is(303)
		reader.do("GET", "", nil).is(303)
	})
}

// A session's cookie cannot be read by pages, is another one after each signing in, and one
// that was given back, or is made up, is good for nothing.
func TestSessions(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		secret, err := httpapi.NewTokens(db.DB).Create(t.Context(), "ada", []httpapi.Scope{httpapi.ScopeAdmin}, 0)
		must(t, err)
		s := serve(t, db.DB, "/x", Options{})
		signIn := func(headers ...string) string {
			t.Helper()
			return s.do("POST", "sign-in", url.Values{"token": {secret}}, headers...).is(303).header.Get("Set-Cookie")
		}
		first := signIn()
		for _, part := range []string{cookieName + "=", "HttpOnly", "SameSite=Lax", "Max-Age=43200"} {
			if !strings.Contains(first, part) {
				t.Errorf("the cookie is %q, want %s in it", first, part)
			}
		}
		if strings.Contains(first, "Secure") || strings.Contains(first, "Path") || strings.Contains(first, secret) {
			t.Errorf("the cookie is %q", first)
		}
		value := func(cookie string) string { v, _, _ := strings.Cut(cookie, ";"); return v }
		good := func(cookie string) bool {
			t.Helper()
			return s.another().do("GET", "", nil, "Cookie: "+cookie).status == 200
		}
		second := signIn()
		if value(first) == value(second) || good(value(first)) || !good(value(second)) {
			t.Error("signing in again does not change the session")
		}
		if third := signIn("X-Forwarded-Proto: https"); !strings.Contains(third, "Secure") || good(value(second)) {
			t.Errorf("the cookie is %q", third)
		}
		if good(cookieName+"=x") || good(cookieName+"=") {
			t.Error("a cookie that was made up is good")
		}
		for to, want := range map[string]string{
			"https://evil.example/": "./", "//evil.example/": "./", "javascript:alert(1)": "./", "sign-out": "./",
			"../x": "./", "": "./", "/queues": "./", "queues": "queues?", "jobs?queue=a&ok=paused": "jobs?queue=a",
		} {
			if got := s.do("POST", "sign-in", url.Values{"token": {secret}, "to": {to}}).is(303).header.Get("Location"); got != want {
				t.Errorf("signing in for %q leads to %q, want %q", to, got, want)
			}
		}
		b, err := s.board.api.Tokens().Verify(t.Context(), secret)
		must(t, err)
		other, err := s.board.api.Tokens().Create(t.Context(), "other", []httpapi.Scope{httpapi.ScopeRead}, 0)
		must(t, err)
		theirs, err := s.board.api.Tokens().Verify(t.Context(), other)
		must(t, err)
		mine := s.board.sessions.begin(b)
		for range 3 * maxSessions {
			s.board.sessions.begin(theirs)
		}
		if n := len(s.board.sessions.open); n > maxSessions {
			t.Errorf("there are %d sessions", n)
		}
		if s.board.sessions.find(mine) == nil {
			t.Error("many sessions of one token end that of another")
		}
	})
}

// Requests sent by a page of another origin are refused, whoever is signed in; and while there
// is no token, so are requests from other hosts.
func TestForeign(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		newWorld(t, db)
		s := serve(t, db.DB, "", Options{})
		form := url.Values{"do": {"pause"}}
		mail := link("queue", "name", "mail")
		refused := func() {
			t.Helper()
			for _, header := range []string{
				"Sec-Fetch-Site: cross-site", "Sec-Fetch-Site: same-site",
				"Origin: https://evil.example", "Origin: null",
			} {
				s.do("POST", mail, form, header).is(403).has("another origin")
				s.do("POST", "sign-in", url.Values{"token": {"x"}}, header).is(403)
				s.do("POST", "sign-out", url.Values{}, header).is(403)
			}
			if q, err := adminOf(s.board.queues).Queue(t.Context(), "mail"); err != nil || q.State != "active" {
				t.Errorf("got %v, %v", q.State, err)
			}
		}
		refused()
		s.do("GET", "", nil, "Sec-Fetch-Site: cross-site").is(200) // a link
		for _, header := range []string{"Host: evil.example", "X-Forwarded-For: 10.0.0.1", "Via: 1.1 proxy"} {
			s.do("GET", "", nil, header).is(403).has("token").lacks("mail")
			s.do("GET", "sign-in", nil, header).is(403)
			s.do("POST", mail, form, header).is(403)
		}
		secret, err := httpapi.NewTokens(db.DB).Create(t.Context(), "ada", []httpapi.Scope{httpapi.ScopeAdmin}, 0)
		must(t, err)
		s = serve(t, db.DB, "", Options{})
		s.try("sign-in", "token", secret).is(303)
		s.get("")
		refused()
		s.post(mail, "do", "pause").has("Paused.")
	})
}

// If the database does not answer in time, the browser gets a page that says so and is
// reloaded, instead of waiting. The overview shows what could be read.
func TestTroubles(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		newWorld(t, db)
		s := serve(t, db.DB, "", Options{Timeout: time.Nanosecond})
		for _, path := range []string{"", "queue?name=mail"} {
			s.do("GET", path, nil).is(503).has("took longer than 1ns", "Try again", "data-refresh")
		}
		broken := db.Broken(t, &dbtest.Fault{Random: func() (bool, bool) { return true, false }, Text: "dbcron_queue"})
		s = serve(t, broken.DB, "", Options{})
		s.get("").has("Queues could not be read", "A run of backup failed", "Next runs")
	})
}

// A page does not wait for a table that somebody has locked: it says so, and its statement ends
// in the server, too. On SQLite nobody can block readers.
func TestHang(t *testing.T) {
	having(t, dbtest.SeveralWriters, func(t *testing.T, db *dbtest.DB) {
		how := map[string]struct{ lock, unlock, running string }{
			"postgres": {
				`LOCK TABLE dbcron_job IN ACCESS EXCLUSIVE MODE`, `ROLLBACK`,
				`SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`,
			},
			"mariadb": {
				`LOCK TABLES dbcron_job WRITE`, `UNLOCK TABLES`,
				`SELECT id FROM information_schema.processlist WHERE db = DATABASE() AND state LIKE 'Waiting for table%'`,
			},
			"mysql": {
				`LOCK TABLES dbcron_job WRITE`, `UNLOCK TABLES`,
				`SELECT id FROM information_schema.processlist WHERE db = DATABASE() AND state LIKE 'Waiting for table%'`,
			},
		}[strings.Split(t.Name(), "/")[1]]
		newWorld(t, db)
		other := dbtest.Open(t, db.URL, dialect.Options{})
		conn, err := other.Pool().Conn(t.Context())
		must(t, err)
		defer conn.Close()
		run := func(text string) {
			t.Helper()
			_, err := conn.ExecContext(t.Context(), text)
			must(t, err)
		}
		s := serve(t, db.DB, "", Options{Timeout: 500 * time.Millisecond})
		page := link("jobs", "queue", "mail")
		run("BEGIN")
		run(how.lock)
		if a := s.do("GET", page, nil); a.status != 503 || !strings.Contains(a.text, "took longer than 500ms") ||
			!strings.Contains(a.text, "Try again") {
			t.Errorf("got %d, %s", a.status, a.banner())
		}
		for until := time.Now().Add(5 * time.Minute); len(db.List(t, how.running, nil)) > 0; { //nolint:forbidigo // it measures
			if time.Now().After(until) { //nolint:forbidigo // it measures
				t.Fatal("the statement still waits in the server")
			}
		}
		run(how.unlock)
		serve(t, db.DB, "", Options{Timeout: time.Minute}).get(page).has("welcome")
	})
}
