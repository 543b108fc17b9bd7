package notify

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/scheduler"
)

func clocked(t *testing.T, f func(t *testing.T, db *dbtest.DB)) {
	t.Helper()
	t.Parallel()
	dbtest.EachClock(t, f, (*testing.T).Parallel)
}

// messages are those that wait in the queue, and those that were kept.
func messages(t *testing.T, db *dbtest.DB) (all []Message) {
	t.Helper()
	texts := db.List(t, `SELECT payload FROM {prefix}job WHERE kind = 'notify' ORDER BY id`, nil)
	texts = append(texts, db.List(t, `SELECT payload FROM {prefix}job_delayed WHERE kind = 'notify' ORDER BY id`, nil)...)
	for _, text := range texts {
		var m Message
		must(t, json.Unmarshal([]byte(text), &m))
		all = append(all, m)
	}
	return all
}

func notices(t *testing.T, db *dbtest.DB) []string {
	t.Helper()
	return db.List(t, `SELECT subject, name, problem, times, CASE WHEN told_at IS NULL THEN 'untold' ELSE 'told' END FROM {prefix}notice ORDER BY subject, name`, nil)
}

func is(t *testing.T, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

func TestToldOnceAtFailureAndOnceAtRecovery(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		server := newMailServer(t, nil, "")
		n := notifier(t, db, Options{
			Targets: []string{"ops@example.org"}, Mail: Mail{Server: server.URL(), From: "dbcron@example.com"}, Link: "https://cron.example.com/",
		})
		add(t, db, "sicherung", "echo fünf Bänder; exit 3", "")
		db.Do(t, `UPDATE {prefix}schedule SET time_zone = 'Asia/Tokyo' WHERE name = 'sicherung'`, nil)
		fail := func() {
			t.Helper()
			db.Advance(t, time.Minute)
			ask(t, db, "sicherung")
			runAll(t, db)
			must(t, n.Once(t.Context()))
		}
		fail()
		letters := server.Letters()
		if len(letters) != 1 || letters[0].From != "dbcron@example.com" || letters[0].To != "ops@example.org" {
			t.Fatalf("letters %+v", letters)
		}
		header, subject, body := read(t, letters[0])
		if subject != "[dbcron] sicherung failed: exit code 3" || !strings.Contains(body, "    fünf Bänder\n") ||
			!strings.Contains(body, "dbcron schedule output ") {
			t.Errorf("subject %q, body %q", subject, body)
		}
		// What whoever is woken needs first: where, what, when on the clocks there, and where to look.
		for _, line := range []string{"  host       ", "  command    echo fünf Bänder; exit 3\n", " JST, ", "  page       https://cron.example.com/run?id="} {
			if !strings.Contains(body, line) {
				t.Errorf("no %q in %q", line, body)
			}
		}
		if header.Get("Auto-Submitted") != "auto-generated" || !strings.HasSuffix(header.Get("Message-ID"), "@example.com>") {
			t.Errorf("header %q", header)
		}
		fail()
		if letters := server.Letters(); len(letters) != 1 {
			t.Fatalf("it failed on: %d letters", len(letters))
		}
		is(t, "it is known", notices(t, db), []string{"schedule sicherung failed 2 told"})

		must(t, scheduler.Edit(t.Context(), db.DB, scheduler.Schedule{Name: "sicherung", Spec: "@manual", Command: "true"}))
		fail()
		letters = server.Letters()
		if len(letters) != 2 {
			t.Fatalf("it is well again: %d letters", len(letters))
		}
		if _, subject, body := read(t, letters[1]); subject != "[dbcron] sicherung is well again" || !strings.Contains(body, "2 times") {
			t.Errorf("subject %q, body %q", subject, body)
		}
		is(t, "it is forgotten", notices(t, db), nil)
		fail()
		if len(server.Letters()) != 2 {
			t.Error("it was told that nothing is wrong")
		}
	})
}

// What fails while a target may not be told shares the next message, and so does what fails at
// once. No target has more messages in an hour than the limit.
func TestManyFailuresShareAMessage(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		n := notifier(t, db, Options{Targets: []string{"ops@example.org", "https://example.org/in"}, Limit: 2})
		sick := func(from, to int) {
			t.Helper()
			for i := from; i < to; i++ {
				s := scheduler.Schedule{Name: fmt.Sprintf("s%03d", i), Command: "x"}
				must(t, db.ShortTx(t.Context(), func(ctx ctx, tx *sqlrun.Session) error { return scheduler.NoteLate(ctx, tx, &s, "nobody") }))
			}
		}
		sick(0, 250)
		must(t, n.gather(t.Context(), true))
		sick(250, 260) // within the minute
		must(t, n.gather(t.Context(), true))
		all := messages(t, db)
		if len(all) != 2 || all[0].Failed != 250 || len(all[0].Troubles) != maxListed || all[1].Failed != 250 || all[0].Target == all[1].Target {
			t.Fatalf("%d messages: %.300v", len(all), all)
		}
		if text := all[0].Text(); !strings.Contains(text, "… and 50 more problems") {
			t.Errorf("text %.500q", text)
		}
		db.Advance(t, 2*time.Minute)
		must(t, n.gather(t.Context(), true))
		if all = messages(t, db); len(all) != 4 || all[2].Failed != 10 || !all[2].Last {
			t.Fatalf("after a minute: %d messages", len(all))
		}
		sick(260, 261)
		db.Advance(t, 2*time.Minute)
		must(t, n.gather(t.Context(), true))
		if all = messages(t, db); len(all) != 4 {
			t.Errorf("over the limit: %d messages", len(all))
		}
		db.Advance(t, time.Hour)
		must(t, n.gather(t.Context(), true))
		if all = messages(t, db); len(all) != 6 || all[4].Failed != 1 {
			t.Errorf("an hour later: %d messages", len(all))
		}
	})
}

// A mail server that is down loses nothing: the message is sent when it is there again.
func TestAMailServerComesBack(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		server := newMailServer(t, nil, "")
		server.Refuse(true)
		n := notifier(t, db, Options{Mail: Mail{Server: server.URL()}})
		add(t, db, "job", "false", "mailto:root")
		ask(t, db, "job")
		runAll(t, db)
		must(t, n.Once(t.Context()))
		if len(server.Letters()) != 0 || len(messages(t, db)) != 1 {
			t.Fatalf("%d letters, %d messages wait", len(server.Letters()), len(messages(t, db)))
		}
		server.Refuse(false)
		db.Advance(t, time.Hour)
		must(t, n.Once(t.Context()))
		if letters := server.Letters(); len(letters) != 1 || letters[0].To != "root" || len(messages(t, db)) != 0 {
			t.Errorf("letters %+v, %d messages wait", letters, len(messages(t, db)))
		}
	})
}

// A run that takes longer than usual is told, and so is its end: that it is well, or that it failed after all.
func TestASlowRunIsTold(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		n := notifier(t, db, Options{Targets: []string{"ops@example.org"}})
		add(t, db, "nightly", "false", "")
		tell := func(want ...string) {
			t.Helper()
			db.Advance(t, 2*time.Minute)
			must(t, n.look(t.Context()))
			must(t, n.gather(t.Context(), false))
			var got []string
			for _, m := range messages(t, db) {
				got = append(got, m.Subject())
			}
			if len(got) != len(want) {
				t.Fatalf("got %q", got)
			}
			for i := range got {
				if !strings.HasPrefix(got[i], want[i]) {
					t.Errorf("got %q, want %q", got[i], want[i])
				}
			}
		}
		hang := func() {
			t.Helper()
			db.Do(t, `INSERT INTO {prefix}run (schedule, due_at, attempt, state, started_at, next_exec, claim, exec_by)
				VALUES ('nightly', {now}, 1, 'running', {now}, {now + 100000000000}, 'c', 'vm:1:x')`, nil)
			db.Do(t, `UPDATE {prefix}schedule SET spec = '@every 1h' WHERE name = 'nightly'`, nil)
		}
		hang()
		tell()
		db.Advance(t, 30*time.Minute)
		const slow, well, failed = "[dbcron] nightly takes longer than usual: run 1 has been under way for ", "[dbcron] nightly is well again", "[dbcron] nightly failed"
		tell(slow)
		tell(slow)
		db.Do(t, `UPDATE {prefix}run SET state = 'ok', finished_at = {now}, next_exec = NULL, claim = NULL`, nil)
		tell(slow, well)
		hang()
		db.Advance(t, 40*time.Minute)
		const again = "[dbcron] nightly takes longer than usual: run 2 "
		tell(slow, well, again)
		db.Do(t, `DELETE FROM {prefix}run WHERE state = 'running'`, nil)
		ask(t, db, "nightly")
		runAll(t, db)
		tell(slow, well, again, failed)
	})
}

// Two daemons that look at once tell each thing once.
func TestTwoDaemonsTellOnce(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		const each = 20
		var making sync.WaitGroup
		for d := range 2 {
			n := notifier(t, db.Another(t, dialect.Options{}),
				Options{Targets: []string{"ops@example.org"}, Every: time.Microsecond, Limit: 1 << 20})
			making.Go(func() {
				for i := range each {
					s := scheduler.Schedule{Name: fmt.Sprintf("s%d-%d", d, i)}
					err := n.db.ShortTx(t.Context(), func(ctx ctx, tx *sqlrun.Session) error { return scheduler.NoteLate(ctx, tx, &s, "nobody") })
					if err = errors.Join(err, n.gather(t.Context(), true)); err != nil {
						t.Error(err)
					}
				}
			})
		}
		making.Wait()
		seen := map[string]int{}
		for _, m := range messages(t, db) {
			for _, x := range m.Troubles {
				seen[x.Name]++
			}
		}
		for name, times := range seen {
			if times != 1 {
				t.Errorf("%s was told %d times", name, times)
			}
		}
		if len(seen) != 2*each {
			t.Errorf("%d of %d were told", len(seen), 2*each)
		}
	}, (*testing.T).Parallel)
}

// Wherever a daemon dies between a failure and its message, another one tells it, and once.
func TestNothingIsLostBetweenFailureAndMessage(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		for call, reached := 1, true; reached; call++ {
			name := fmt.Sprintf("s%d", call)
			add(t, db, name, "false", "ops@example.org")
			ask(t, db, name)
			runAll(t, db)
			db.Advance(t, 2*time.Minute)
			f := &dbtest.Fault{Call: call}
			broken := notifier(t, db.Broken(t, f), Options{Limit: 1 << 20})
			_ = broken.gather(t.Context(), true) // it died
			reached = f.Reached()
			must(t, notifier(t, db, Options{Limit: 1 << 20}).gather(t.Context(), true))
			told := 0
			for _, m := range messages(t, db) {
				for _, x := range m.Troubles {
					if x.Name == name {
						told++
					}
				}
			}
			if told != 1 {
				t.Errorf("cut at call %d: told %d times", call, told)
			}
			if call > 40 {
				t.Fatal("gathering does not end")
			}
		}
	})
}

// Who has no targets of its own is told to the daemons' own, and not at all where they have none;
// nobody is told of what names nobody.
func TestWhoIsTold(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		for name, to := range map[string]string{"own": "ada@example.org, https://example.org/in", "usual": "", "nobody": "none"} {
			add(t, db, name, "false", to)
			ask(t, db, name)
		}
		runAll(t, db)
		must(t, notifier(t, db, Options{}).gather(t.Context(), true))
		targets := func() (all []string) {
			for _, m := range messages(t, db) {
				all = append(all, m.Target+" "+m.Troubles[0].Name)
			}
			slices.Sort(all)
			return all
		}
		is(t, "without targets", targets(), []string{"https://example.org/… own", "mailto:ada@example.org own"})
		command := "command:cat"
		must(t, notifier(t, db, Options{Targets: []string{command}}).gather(t.Context(), true))
		is(t, "with", targets(), []string{stored(command) + " usual", "https://example.org/… own", "mailto:ada@example.org own"})
		if strings.Contains(stored(command), "cat") {
			t.Error("tables show a command")
		}
		is(t, "notices", notices(t, db), []string{"schedule own failed 1 told", "schedule usual failed 1 told"})
	})
}

// heard lets a daemon look and tell, and returns what each target was told, such as "ops: well dead mail".
func heard(t *testing.T, db *dbtest.DB, n *Notifier) (all []string) {
	t.Helper()
	db.Advance(t, 2*time.Minute)
	must(t, n.look(t.Context()))
	must(t, n.gather(t.Context(), true))
	for _, m := range messages(t, db) {
		to := strings.TrimSuffix(strings.TrimPrefix(m.Target, "mailto:"), "@example.org")
		for _, x := range m.Troubles {
			all = append(all, to+": "+x.Problem+" "+x.Name)
		}
		for _, x := range m.Recovered {
			all = append(all, to+": well "+x.Problem+" "+x.Name)
		}
	}
	slices.Sort(all)
	db.Do(t, `DELETE FROM {prefix}job WHERE kind = 'notify'`, nil)
	return all
}

// Dead letters are told when there are more than were told, a queue that is behind once, and a
// schedule that no daemon claims.
func TestQueuesAndLateSchedules(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		n := notifier(t, db, Options{Targets: []string{"ops@example.org"}, QueueAge: time.Minute})
		c, err := queue.New(db.DB, queue.Options{Logger: quiet()})
		must(t, err)
		_, err = c.EnqueueMany(t.Context(), []queue.Job{{Queue: "mail", Kind: "k"}, {Queue: "post", Kind: "k", Delay: time.Second}})
		must(t, err)
		must(t, scheduler.Add(t.Context(), db.DB, scheduler.Schedule{Name: "hourly", Spec: "@hourly", Command: "true"}))
		told := func(what string, want ...string) {
			t.Helper()
			for i := range want {
				want[i] = "ops: " + want[i]
			}
			is(t, what, heard(t, db, n), want)
		}
		// No worker could begin this one, which waits for its rate.
		_, err = adminOf(c).Edit(t.Context(), "rated", func(*admin.Queue) {})
		must(t, err)
		_, err = adminOf(c).EditLimit(t.Context(), "rated", "", func(l *admin.Limit) { l.Rate, l.Per = 1, time.Hour })
		must(t, err)
		_, err = c.Enqueue(t.Context(), queue.Job{Queue: "rated", Kind: "k"})
		must(t, err)
		db.Do(t, `UPDATE {prefix}queue_limit SET drawn_at = {now}`, nil)
		told("the oldest job waits", "behind mail", "behind post")
		told("nothing is new")
		w, err := c.Worker(queue.WorkerOptions{Queues: []string{"mail"}, BuryUnknown: true, Logger: quiet()})
		must(t, err)
		must(t, w.RunOnce(t.Context())) // it has no handler
		told("it has died", "dead mail", "well behind mail")
		told("nothing is new")
		_, err = c.Enqueue(t.Context(), queue.Job{Queue: "mail", Kind: "k"})
		must(t, err)
		w, err = c.Worker(queue.WorkerOptions{Queues: []string{"mail"}, BuryUnknown: true, Logger: quiet()})
		must(t, err)
		must(t, w.RunOnce(t.Context()))
		told("another has", "dead mail")
		_, err = adminOf(c).Bulk(t.Context(), admin.BulkDelete, admin.Filter{Queue: "mail", State: admin.StateDead}, admin.BulkOptions{})
		must(t, err)
		told("they are gone", "well dead mail")
		dbtest.Must(t, adminOf(c).DeleteLimit(t.Context(), "rated", ""))
		told("a worker could begin it", "behind rated")
		db.Advance(t, time.Hour)
		told("nobody runs it", "late hourly")
		runAll(t, db)
		told("somebody has", "well late hourly")
	})
}

// A queue's own targets are told of its problems and recoveries, once each, and the daemons' targets are not: also
// by a daemon that has none.
func TestQueuesWithTargetsOfTheirOwn(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		c, err := queue.New(db.DB, queue.Options{Logger: quiet()})
		must(t, err)
		aims := func(name, notify string) {
			t.Helper()
			_, err := adminOf(c).Edit(t.Context(), name, func(q *admin.Queue) { q.Notify = notify })
			must(t, err)
		}
		queues := []string{"billing", "mail", "noise", "usual"}
		aims("billing", "ada@example.org, mailto:ben@example.org")
		aims("mail", "dan@example.org")
		aims("noise", "none")
		die := func() {
			t.Helper()
			for _, name := range queues {
				_, err := c.Enqueue(t.Context(), queue.Job{Queue: name, Kind: "k"})
				must(t, err)
			}
			w, err := c.Worker(queue.WorkerOptions{Queues: queues, BuryUnknown: true, Logger: quiet()})
			must(t, err)
			must(t, w.RunOnce(t.Context())) // it has no handler
		}
		bare := notifier(t, db, Options{})
		n := notifier(t, db, Options{Targets: []string{"ops@example.org"}})
		die()
		is(t, "by a daemon without targets", heard(t, db, bare), []string{"ada: dead billing", "ben: dead billing", "dan: dead mail"})
		is(t, "by one that has some", heard(t, db, n), []string{"ops: dead usual"})
		is(t, "nothing is new", heard(t, db, n), nil)
		is(t, "notices", notices(t, db), []string{"dead billing dead 1 told", "dead mail dead 1 told", "dead usual dead 1 told"})

		aims("mail", "eve@example.org") // Dan is told of the end of what he was told about
		aims("usual", "none")
		for _, name := range queues {
			_, err := adminOf(c).Bulk(t.Context(), admin.BulkDelete, admin.Filter{Queue: name, State: admin.StateDead}, admin.BulkOptions{})
			must(t, err)
		}
		is(t, "they are gone", heard(t, db, n),
			[]string{"ada: well dead billing", "ben: well dead billing", "dan: well dead mail", "ops: well dead usual"})
		is(t, "nothing is new then", heard(t, db, n), nil)

		die()
		must(t, n.look(t.Context()))
		aims("billing", "none") // before anybody was told
		aims("mail", "dan@example.org")
		aims("noise", "")
		is(t, "as it was set last", heard(t, db, n), []string{"dan: dead mail", "ops: dead noise"})
		is(t, "notices then", notices(t, db), []string{"dead mail dead 1 told", "dead noise dead 1 told"})

		// Another daemon has told it since this one looked: who was told is to hear of the end.
		must(t, n.noteQueue(t.Context(), "dead", &admin.Queue{Name: "mail", Notify: "none"}, "", 1, known{times: 1, there: true}))
		is(t, "notices at last", notices(t, db), []string{"dead mail dead 1 told", "dead noise dead 1 told"})
	})
}

// A queue's own targets are told also where there are more queues than are looked at for the daemons' targets.
func TestTargetsOfTheLastQueue(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		rows := make([]sqlrun.Args, queuesAtOnce)
		for i := range rows {
			rows[i] = sqlrun.Args{"name": fmt.Sprintf("q%04d", i)}
		}
		db.Do(t, `INSERT INTO {prefix}queue (name) VALUES {values rows: (:name)}`, sqlrun.Args{"rows": rows})
		c, err := queue.New(db.DB, queue.Options{Logger: quiet()})
		must(t, err)
		_, err = adminOf(c).Edit(t.Context(), "z", func(q *admin.Queue) { q.Notify = "ada@example.org" })
		must(t, err)
		_, err = c.Enqueue(t.Context(), queue.Job{Queue: "z", Kind: "k"})
		must(t, err)
		n := notifier(t, db, Options{QueueAge: time.Minute})
		is(t, "of the last one", heard(t, db, n), []string{"ada: behind z"})
	})
}

// adminOf returns what looks after the queues of a client's database.
func adminOf(c *queue.Client) *admin.Client {
	a, err := admin.New(c.DB(), admin.Options{})
	if err != nil {
		panic(err)
	}
	return a
}

// The server's clock is set back after it was two hours ahead. What was noted and told by it does not keep anything
// from being told now: neither of a new failure, nor of an older one, nor of a recovery.
func TestTheClockIsSetBack(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		n := notifier(t, db, Options{Targets: []string{"ops@example.org"}, Limit: 2})
		told := func(what string, want ...string) {
			t.Helper()
			var all []string
			for _, m := range messages(t, db) {
				for _, x := range m.Troubles {
					all = append(all, x.Problem+" "+x.Name)
				}
				for _, x := range m.Recovered {
					all = append(all, "well "+x.Name)
				}
			}
			db.Do(t, `DELETE FROM {prefix}job WHERE kind = 'notify'`, nil)
			slices.Sort(all)
			is(t, what, all, want)
		}
		round := func() {
			t.Helper()
			_, err := n.round(t.Context())
			must(t, err)
		}
		db.Advance(t, 2*time.Hour)
		add(t, db, "first", "false", "")
		ask(t, db, "first")
		runAll(t, db)
		round()
		told("by the clock that is ahead", "failed first")

		add(t, db, "second", "false", "")
		ask(t, db, "second")
		runAll(t, db)
		must(t, scheduler.Add(t.Context(), db.DB, scheduler.Schedule{Name: "tide", Spec: "@every 10s", Kind: "func", Command: "tide"}))
		db.Advance(t, 35*time.Second)
		s, err := scheduler.New(db.DB, scheduler.Options{Kinds: []string{scheduler.Functions}, Logger: quiet()})
		must(t, err)
		must(t, s.Handle("tide", func(ctx, *scheduler.Running) error {
			db.Advance(t, -2*time.Hour) // after its slots before were missed, and before this one is ok
			return nil
		}))
		must(t, s.RunOnce(t.Context()))
		must(t, n.gather(t.Context(), true))
		told("after it was set back", "failed second", "missed tide")
		db.Advance(t, 2*time.Minute)
		round() // it looks
		round()
		told("once it was looked at", "clock database", "well tide")
		for range 2 {
			db.Advance(t, 16*time.Second)
			round()
		}
		told("it is told once")
		db.Advance(t, 2*time.Hour)
		round()
		round()
		told("when the clock has caught up", "late tide", "well database")
		is(t, "what is left of it", db.List(t, `SELECT name FROM {prefix}notice WHERE subject = 'clock'`, nil), nil)
	})
}

// What a notification about the clock says.
func TestTheWordsAboutTheClock(t *testing.T) {
	x := []Trouble{{Subject: "clock", Name: "database", Problem: "clock", Detail: "by 58m or more"}}
	back, well := Message{Failed: 1, Troubles: x}, Message{Well: 1, Recovered: x}
	is(t, "the words", []string{back.Subject(), well.Subject(), troubles(x)[0].Subject}, []string{
		"[dbcron] the clock of the database went back: by 58m or more", "[dbcron] the clock of the database is well again", "clock",
	})
	if text := back.Text(); !strings.Contains(text, "more       dbcron doctor\n") {
		t.Error(text)
	}
}
