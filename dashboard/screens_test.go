package dashboard

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/httpapi"
	"github.com/dbcron/dbcron/httpapi/push"
	"github.com/dbcron/dbcron/internal/ops/audit"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/queue/queuetest"
	"github.com/dbcron/dbcron/scheduler"
)

// done returns the audit entries of an action, newest first.
func done(t *testing.T, db *dbtest.DB, action string) (all []string) {
	t.Helper()
	entries, _, err := audit.List(t.Context(), db.DB, audit.Filter{Action: action})
	must(t, err)
	for _, e := range entries {
		all = append(all, strings.TrimSpace(e.Object+" "+e.Detail))
	}
	return all
}

// Routes, subscriptions and groups are seen and changed, and a name that was mistyped makes no
// queue.
func TestRoutesTopicsGroups(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		w, ctx := newWorld(t, db), t.Context()
		s := serve(t, db.DB, "/x", Options{})
		c := s.board.queues
		s.post("routes", "do", "set", "kind", "thumbnail", "queue", "made").has("The route is set", "thumbnail")
		if _, err := adminOf(c).Queue(ctx, "made"); err != nil {
			t.Errorf("the route's queue: %v", err)
		}
		if name, err := adminOf(c).Route(ctx, "thumbnail"); err != nil || name != "made" {
			t.Errorf("got %s, %v", name, err)
		}
		s.try("routes", "do", "set", "kind", "", "queue", "mail").is(422).has("kind is missing")
		s.post("routes", "do", "delete", "kind", "thumbnail").has("The route is removed").lacks("thumbnail<")
		s.try("routes", "do", "delete", "kind", "thumbnail").is(404)
		s.post("topics", "do", "subscribe", "topic", "placed", "queue", "mail").has("gets copies", "placed")
		s.try("topics", "do", "subscribe", "topic", "placed", "queue", "nothing").is(404)
		s.post("topics", "do", "unsubscribe", "topic", "placed", "queue", "mail").has("The subscription has ended")
		s.try("topics", "do", "unsubscribe", "topic", "placed", "queue", "mail").is(404)
		group := link("group", "id", w.group)
		s.get(group).has(">1</b><span>pending", "is enqueued")
		s.try(group, "do", "delete", "typed", "7").is(422).has("nothing was removed")
		s.post(group, "do", "delete", "typed", fmt.Sprint(w.group)).has("The group has ended")
		if g, err := c.Group(ctx, w.group); err != nil || g.State != queue.GroupDone {
			t.Errorf("got %+v, %v", g, err)
		}
		for action, want := range map[string]string{
			"route.set": "thumbnail to made", "route.delete": "thumbnail", "topic.subscribe": "placed/mail",
			"topic.unsubscribe": "placed/mail", "group.delete": fmt.Sprint(w.group),
		} {
			if got := done(t, db, action); !slices.Equal(got, []string{want}) {
				t.Errorf("%s: got %q, want %q", action, got, want)
			}
		}
		if _, err := adminOf(c).Queue(ctx, "nothing"); !errors.Is(err, queue.ErrNotFound) {
			t.Errorf("there is a queue: %v", err)
		}
	})
}

// Tokens are listed with what they may and when they end, without their secrets; an
// administrator revokes one, and an operator sees no button.
func TestTokens(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		tokens := httpapi.NewTokens(db.DB)
		var secrets []string
		create := func(name string, lasts time.Duration, scopes ...httpapi.Scope) string {
			t.Helper()
			secret, err := tokens.Create(t.Context(), name, scopes, lasts)
			must(t, err)
			secrets = append(secrets, secret)
			return secret
		}
		admin, operator := create("ops", 0, httpapi.ScopeAdmin), create("ada", time.Hour, httpapi.ScopeOperate, httpapi.ScopeEnqueue)
		create(hostile, 0, httpapi.ScopeRead)
		s := serve(t, db.DB, "/x", Options{})
		s.try("sign-in", "token", operator).is(303)
		page := s.get("tokens").has("ops", "enqueue, operate", "yours", "t-warn", "never").lacks("Revoke", "onerror=alert(2)>")
		s.try("tokens", "do", "revoke", "name", "ops").is(403)
		for _, secret := range secrets {
			page.lacks(secret, secret[7:])
		}
		s.get("").has("Token ada expires", `href="tokens"`)
		a := s.another()
		a.try("sign-in", "token", admin).is(303)
		a.get("tokens").has("Revoke ops", "Revoke ada")
		a.post("tokens", "do", "revoke", "name", "ada").has("The token is revoked", "s-revoked").lacks("Revoke ada")
		a.try("tokens", "do", "revoke", "name", "nobody").is(404)
		if _, err := httpapi.NewTokens(db.DB).Verify(t.Context(), operator); !errors.Is(err, httpapi.ErrNoToken) {
			t.Errorf("the token is still good: %v", err)
		}
		if got := done(t, db, "token.revoke"); !slices.Equal(got, []string{"ada"}) {
			t.Errorf("the audit has %q", got)
		}
	})
}

// The limits and the number of blocks of a queue are changed on its page, which shows where its
// jobs are sent without what may be secret.
func TestQueueSettings(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		newWorld(t, db)
		s, ctx := serve(t, db.DB, "/x", Options{}), t.Context()
		c := s.board.queues
		mail := link("queue", "name", "mail")
		s.post(mail, "do", "limit", "kind", "welcome", "running", "3", "rate", "5/s").has("The limit is set",
			">5/s<", "Remove the limit of welcome")
		s.post(mail, "do", "limit", "kind", "", "running", "9").has("The limit is set", ">9<").lacks("100/m<")
		for _, wrong := range [][]string{
			{"running", "many"},
			{"running", "0"},
			{"rate", "5"},
			{"rate", "0/s"},
			{"burst", "2"},
			{"kind", "x "},
			{},
		} {
			if a := s.try(mail, append(wrong, "do", "limit")...); a.status != 422 && a.status != 400 {
				t.Errorf("%v: got %d", wrong, a.status)
			}
		}
		limits, err := adminOf(c).LimitsOf(ctx, "mail")
		must(t, err)
		if len(limits) != 2 || limits[0].Running != 9 || limits[0].Rate != 0 || limits[1].Kind != "welcome" ||
			limits[1].Running != 3 || limits[1].Rate != 5 {
			t.Errorf("got %+v", limits)
		}
		s.post(mail, "do", "unlimit", "kind", "welcome").has("The limit is removed")
		s.try(mail, "do", "unlimit", "kind", "welcome").is(404)
		s.try(mail, "do", "resize", "blocks", "1001").is(422)
		s.try(mail, "do", "resize", "blocks", "").is(422)
		s.post(mail, "do", "resize", "blocks", "7").has("New jobs go to new blocks")
		if q, err := adminOf(c).Queue(ctx, "mail"); err != nil || q.Blocks != 7 {
			t.Errorf("got %d blocks, %v", q.Blocks, err)
		}
		s.get(mail).has("the daemons' setting", `value="notify"`)
		s.try(mail, "do", "notify", "notify", "command:true").is(422)
		s.try(link("queue", "name", "nowhere"), "do", "notify", "notify", "none").is(404)
		s.post(mail, "do", "notify", "notify", " ada@example.org ").has("The notification setting is saved", `value="ada@example.org"`)
		if q, err := adminOf(c).Queue(ctx, "mail"); err != nil || q.Notify != "ada@example.org" {
			t.Errorf("notifies %q, %v", q.Notify, err)
		}
		s.get(mail).lacks("Endpoint")
		set, err := push.NewEndpoints(db.DB).Set(ctx, adminOf(c), "mail", func(e *push.Endpoint) { e.URL = "https://worker.example.org/jobs?key=geheim" })
		must(t, err)
		s.get(mail).has("Endpoint", "https://worker.example.org/jobs?…").lacks("geheim", set.Secret)
		if got, want := done(t, db, "limit.set"), []string{"mail running=9", "mail/welcome running=3 rate=5/s"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		if got := append(done(t, db, "limit.delete"), done(t, db, "queue.resize")...); !slices.Equal(got, []string{"mail/welcome", "mail to 7"}) {
			t.Errorf("got %q", got)
		}
		if got := done(t, db, "queue.set"); !slices.Equal(got, []string{"mail notify"}) {
			t.Errorf("got %q", got)
		}
	})
}

// A finding of the overview is acknowledged and reopened, which the audit has, and has a button for what ends it.
func TestAcknowledge(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		newWorld(t, db)
		s := serve(t, db.DB, "/x", Options{})
		page := s.get("").has(`aria-label="Acknowledge: A run of backup failed"`, `value="run">Run now<`, `value="resume">Resume<`, ">Retry…<").lacks("acknowledged")
		id := regexp.MustCompile(`name="id" value="([0-9a-f]+)"><input type="hidden" name="what" value="A run of backup failed"`).FindStringSubmatch(page.text)
		if id == nil {
			t.Fatal("the finding has no form")
		}
		what := "A run of backup failed"
		s.post("", "do", "acknowledge", "id", id[1], "what", what).has("until it changes", "1 finding acknowledged", "acknowledged by this host", `aria-label="Reopen: `+what).
			lacks(`aria-label="Acknowledge: ` + what)
		s.post("", "do", "reopen", "id", id[1], "what", what).has("It counts again", `aria-label="Acknowledge: `+what).lacks("1 finding acknowledged")
		got := append(done(t, db, "finding.acknowledge"), done(t, db, "finding.reopen")...)
		if line := id[1] + " " + what; !slices.Equal(got, []string{line, line}) {
			t.Errorf("got %q", got)
		}
		s.try("", "do", "acknowledge").is(422)
	})
}

// Slots of the past are run by the schedule's clock, and a process is drained and undrained.
func TestBackfillAndDrain(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		newWorld(t, db)
		s, ctx := serve(t, db.DB, "/x", Options{}), t.Context()
		backup := link("schedule", "name", "backup") // at 3:30 in Berlin
		between := func(from, to string) string { return link("backfill", "name", "backup", "from", from, "to", to) }
		s.get(backup).has(`<form method="get" action="backfill"`).lacks(`value="backfill"`)
		s.get(between("2026-01-02T03:30", "2026-01-04T03:29")).has("2 slots would be run", "Fri 2026-01-02 03:30:00 CET", "Sat 2026-01-03 03:30:00 CET")
		if n := len(db.List(t, `SELECT id FROM {prefix}run WHERE cause = 'backfill'`, nil)); n > 0 {
			t.Errorf("counting has run %d slots", n)
		}
		s.post(between("2026-01-02T03:30", "2026-01-04T03:29"), "do", "backfill").has("2 slots will run")
		s.get(between("2026-01-01T03:30", "2026-01-04T03:29")).has("1 slot would be run", "2 more have a successful run, or one that has not ended")
		due := db.List(t, `SELECT {us due_at} FROM {prefix}run WHERE schedule = 'backup' AND cause = 'backfill' ORDER BY due_at`, nil)
		want := time.Date(2026, 1, 2, 2, 30, 0, 0, time.UTC)
		if !slices.Equal(due, []string{fmt.Sprint(want.UnixMicro()), fmt.Sprint(want.Add(24 * time.Hour).UnixMicro())}) {
			t.Errorf("the slots are %v", due)
		}
		s.get(between("2026-01-02T03:30", "2026-01-04T03:29")).has("Every slot of that period has").lacks(`value="backfill"`)
		s.post(between("2026-01-02T03:30", "2026-01-04T03:29"), "do", "backfill").has("Every slot of that period has")
		for _, wrong := range []string{between("yesterday", "2026-01-04T03:29"), between("2026-01-05T03:30", "2026-01-04T03:29")} {
			s.do("GET", wrong, nil).is(422).has(`<small class="t-bad" role="alert">`, `value="2026-01-04T03:29"`)
			s.try(wrong, "do", "backfill").is(422)
		}
		s.do("GET", link("backfill", "name", "none", "from", "2026-01-02T03:30", "to", "2026-01-04T03:29"), nil).is(404)
		s.post("daemons", "do", "drain", "name", "web-1:4711").has("It takes no new work", "Undrain", "drained")
		s.post("daemons", "do", "undrain", "name", "web-1:4711").has("It takes work again").lacks("Undrain")
		s.try("daemons", "do", "drain", "name", "nobody").is(404)
		nodes, err := scheduler.Nodes(ctx, db.DB, "", 10)
		must(t, err)
		for _, n := range nodes {
			if !n.Drained.IsZero() {
				t.Errorf("%s is drained", n.Name)
			}
		}
		got := append(append(done(t, db, "node.drain"), done(t, db, "node.undrain")...), done(t, db, "schedule.backfill")...)
		if want := []string{
			"web-1:4711", "web-1:4711", "backup 2026-01-02 02:30:00 to 2026-01-04 02:29:00 UTC",
			"backup 2026-01-02 02:30:00 to 2026-01-04 02:29:00 UTC",
		}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

// The page of daemons says what each process does: which schedules and queues it deals with, how
// many runs it executes and how many blocks it has.
func TestDaemons(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		newWorld(t, db)
		s, ctx := serve(t, db.DB, "/x", Options{}), t.Context()
		c := queuetest.Client(t, db.DB)
		for _, name := range []string{"a", "b", "c", "d"} {
			_, err := c.Enqueue(ctx, queue.Job{Queue: name, Kind: "k"})
			must(t, err)
		}
		db.Do(t, `UPDATE {prefix}node SET tags = 'default,db' WHERE name = 'web-1:4711'`, nil)
		db.Do(t, `INSERT INTO {prefix}queue_worker (queue_id, node) SELECT queue_id, 'web-1:4711' FROM {prefix}queue WHERE name IN ('a', 'b', 'c', 'd', 'mail')`, nil)
		db.Do(t, `UPDATE {prefix}queue_block SET state = 'LEASED', lock_by = 'web-1:4711'
			WHERE divided = 0 AND queue_id IN (SELECT queue_id FROM {prefix}queue WHERE name IN ('a', 'mail'))`, nil)
		now, err := scheduler.Clock(ctx, db.DB)
		must(t, err)
		for i, run := range []struct {
			state, by string
			next      time.Duration
		}{
			{"running", "web-1:4711", time.Hour},
			{"running", "web-1:4711", 2 * time.Hour},
			{"running", "web-1:4711", -time.Hour}, // its daemon has not renewed it
			{"running", "other", time.Hour},
			{"waiting", "web-1:4711", time.Hour},
		} {
			db.Do(t, `INSERT INTO {prefix}run (schedule, due_at, attempt, state, started_at, exec_by, next_exec)
				VALUES ('backup', {time :at}, :i, :state, {time :at}, :by, {time :next})`, sqlrun.Args{
				"at": now.UnixMicro(), "i": i + 1, "state": run.state, "by": run.by, "next": now.Add(run.next).UnixMicro(),
			})
		}
		serving, err := adminOf(c).Serving(ctx, []string{"web-1:4711", hostile})
		must(t, err)
		web := serving["web-1:4711"]
		if web.Queues != 5 || web.Blocks != 2 || !slices.Equal(web.Names, []string{"a", "b", "c", "d", "mail"}) {
			t.Errorf("got %+v", web)
		}
		runs, err := scheduler.Executing(ctx, db.DB)
		must(t, err)
		if runs["web-1:4711"] != 2 || runs["other"] != 1 || len(runs) != 2 {
			t.Errorf("got %v", runs)
		}
		for _, part := range []string{"web-2:7:a", "web-2:7:b"} { // of one process
			db.Do(t, `INSERT INTO {prefix}node (name, state, expire_at, tags) VALUES (:name, 'live', {time :at}, 'shop')`,
				sqlrun.Args{"name": part, "at": now.Add(time.Hour).UnixMicro()})
			db.Do(t, `INSERT INTO {prefix}queue_worker (queue_id, node) SELECT queue_id, :name FROM {prefix}queue WHERE name = 'd'`, sqlrun.Args{"name": part})
		}
		if n := strings.Count(s.get("daemons").has("schedules tagged shop; jobs of "+`<a href="queue?name=d">d</a></td>`).text, "web-2:7</td>"); n != 1 {
			t.Errorf("the process has %d rows", n)
		}
		_, row, _ := strings.Cut(s.get("daemons").has("2 queues more").text, `<td class="name">web-1:4711</td>`)
		row, _, _ = strings.Cut(row, "</tr>")
		for _, want := range []string{
			"schedules tagged default,db; jobs of ", `<a href="queue?name=a">a</a>, `, ` and 2 queues more`,
			`<td class="num opt">2</td><td class="num opt">2</td>`,
		} {
			if !strings.Contains(row, want) {
				t.Errorf("there is no %q in %s", want, row)
			}
		}
	})
}

// Who has schedules and no queue sees what became of runs, and nothing of jobs; lists have outcomes, lateness and what was written.
func TestSchedulesOnly(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		ctx := t.Context()
		s := serve(t, db.DB, "/x", Options{})
		s.get("").has("Jobs in the last hour").lacks("Runs in the last hour")
		must(t, scheduler.Add(ctx, db.DB, scheduler.Schedule{Name: "rotate", Spec: "@every 1h", Command: "rotate"}))
		must(t, scheduler.Add(ctx, db.DB, scheduler.Schedule{Name: "never", Spec: "@every 1h", Command: "true"}))
		now, err := scheduler.Clock(ctx, db.DB)
		must(t, err)
		for i, state := range []string{"failed", "ok", "failed", "running"} {
			db.Do(t, `INSERT INTO {prefix}run (schedule, due_at, attempt, state, started_at, finished_at, output)
				VALUES ('rotate', {time :at}, 1, :state, {time :at}, {time :at}, :output)`, sqlrun.Args{
				"at": now.Add(time.Duration(i-10) * time.Minute).UnixMicro(), "state": state, "output": fmt.Sprintf("another\n<b>line %d\n", i),
			})
		}
		db.Do(t, `UPDATE {prefix}schedule SET due_at = {time :at}, next_exec = {time :at} WHERE name = 'never'`, sqlrun.Args{"at": now.Add(-time.Hour).UnixMicro()})
		s = serve(t, db.DB, "/x", Options{}) // whose counts are not of a moment ago
		s.get("").has("Runs in the last hour", "<b>1</b> ok", "<b>2</b> failed</span>", "<b>2</b><span>failed in the last hour").lacks("Jobs in the last hour", "<span>ready</span>")
		list := s.get("schedules").text
		_, row, _ := strings.Cut(list, `name=rotate`)
		row, _, _ = strings.Cut(row, "</tr>")
		if !strings.Contains(row, `s-running`) || strings.Contains(list, `<tr class="bad"><td class="name"><a href="schedule?name=rotate"`) {
			t.Errorf("the row is %s", row)
		}
		db.Do(t, `DELETE FROM {prefix}run WHERE state = 'running'`, nil)
		s.get("schedules").has(`<tr class="bad"><td class="name"><a href="schedule?name=rotate"`, "s-failed", `<b class="t-bad">late, <time `)
		s.get("runs").has("&lt;b&gt;line 2").lacks("another")
		s.get(link("schedule", "name", "rotate")).has("&lt;b&gt;line 1").lacks("another")

		c := queuetest.Client(t, db.DB)
		_, err = c.Enqueue(ctx, queue.Job{Queue: "mail", Kind: "k"})
		must(t, err)
		serve(t, db.DB, "/x", Options{}).get("").has("Runs in the last hour", "Jobs in the last hour", "<span>ready</span>")
	})
}
