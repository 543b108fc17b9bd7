package audit

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/sqlrun"
)

var must = dbtest.Must

// byClock runs a test on each engine, with a clock that it moves.
func byClock(t *testing.T, f func(t *testing.T, db *dbtest.DB)) {
	t.Helper()
	t.Parallel()
	dbtest.EachClock(t, f, (*testing.T).Parallel)
}

// objects are those of entries, in order.
func objects(t *testing.T, db *dbtest.DB, f Filter) (all []string, more int64) {
	t.Helper()
	found, more, err := List(t.Context(), db.DB, f)
	must(t, err)
	for _, e := range found {
		all = append(all, e.Object)
	}
	return all, more
}

func want(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("%s: got %q, want %q", what, got, want)
	}
}

// What is written is read again, the newest first, by the database's clock, whoever selects
// what; texts that an engine would refuse are made fit; and a request that has ended does not
// keep its act from being written.
func TestEntries(t *testing.T) {
	byClock(t, func(t *testing.T, db *dbtest.DB) {
		ended, end := context.WithCancel(t.Context())
		end()
		hostile := "a\x00\xff'; DROP TABLE x; --<script>" + strings.Repeat("é", 600)
		for i, e := range []Entry{
			{Actor: "ada", Login: Token, Source: API, Action: "queue.pause", Object: "mail", Count: 1, Detail: "it rains"},
			{Actor: "ada", Login: Token, Source: Dashboard, Action: "job.retry", Object: "mail/7", Count: 1},
			{Actor: "bob@host", Login: OS, Source: CLI, Action: "queue.pause", Object: "post", Count: 1},
			{Actor: hostile, Login: Proxy, Source: Dashboard, Action: "job.cancel", Object: hostile, Count: 12_345_678_901, Detail: hostile},
		} {
			if i > 0 {
				db.Advance(t, time.Hour)
			}
			_, err := Write(ended, db.DB, e)
			must(t, err)
		}
		all, more, err := List(t.Context(), db.DB, Filter{})
		must(t, err)
		if len(all) != 4 || more != 0 {
			t.Fatalf("got %d entries, and more from %d", len(all), more)
		}
		if e := all[0]; len([]rune(e.Object)) != longestText || len([]rune(e.Actor)) != longestName ||
			e.Count != 12_345_678_901 || !strings.HasPrefix(e.Detail, "a��'; DROP") {
			t.Errorf("got %+v", e)
		}
		if e := all[3]; e.Actor != "ada" || e.Login != Token || e.Source != API || e.Action != "queue.pause" ||
			e.Object != "mail" || e.Count != 1 || e.Detail != "it rains" || all[0].At.Sub(e.At) != 3*time.Hour {
			t.Errorf("got %+v, and the newest at %v", e, all[0].At)
		}
		got, _ := objects(t, db, Filter{Actor: "ada"})
		want(t, "of ada", got, "mail/7", "mail")
		got, _ = objects(t, db, Filter{Action: "queue.pause"})
		want(t, "pauses", got, "post", "mail")
		got, _ = objects(t, db, Filter{Object: "mail"})
		want(t, "of mail", got, "mail")
		got, _ = objects(t, db, Filter{Object: "mail", Actor: "bob@host"})
		want(t, "bob's of mail", got)
		got, _ = objects(t, db, Filter{Action: "queue.pause", Actor: "ada", Object: "mail"})
		want(t, "ada's pauses of mail", got, "mail")
		got, _ = objects(t, db, Filter{Actor: "Ada"})
		want(t, "of Ada", got)
		got, _ = objects(t, db, Filter{Object: hostile})
		want(t, "of the hostile one", got, all[0].Object)
		got, _ = objects(t, db, Filter{Action: "queue.pause", Since: all[1].At})
		want(t, "since the third", got, "post")
		var pages []string
		for before, n := int64(0), 0; n == 0 || before != 0; n++ {
			page, more := objects(t, db, Filter{Actor: "ada", Limit: 1, Before: before})
			pages, before = append(pages, page...), more
		}
		want(t, "by pages", pages, "mail/7", "mail")
	})
}

// The parts of an operation are one entry, also when two are added at once; one that fails is noted, and going on
// takes that back. What is another act, another actor's, of an earlier day or was swept has an entry of its own, and
// what did nothing has none.
func TestParts(t *testing.T) {
	byClock(t, func(t *testing.T, db *dbtest.DB) {
		part := Entry{Actor: "ada", Login: Token, Source: API, Action: "queue.purge", Object: "mail", Detail: strings.Repeat("é", 600), More: true}
		add := func(id int64, n int, change ...func(*Entry)) int64 {
			e := part
			e.ID, e.Count = id, n
			for _, f := range change {
				f(&e)
			}
			id, err := Write(t.Context(), db.DB, e)
			must(t, err)
			return id
		}
		entries := func(want ...string) {
			t.Helper()
			all, _, err := List(t.Context(), db.DB, Filter{})
			must(t, err)
			var got []string
			for _, e := range all {
				text := fmt.Sprint(e.Action, " ", e.Count)
				if strings.HasSuffix(e.Detail, failedText) {
					text += failedText
				}
				got = append(got, text)
			}
			if slices.Reverse(got); strings.Join(got, ", ") != strings.Join(want, ", ") {
				t.Errorf("got %q, want %q", got, want)
			}
		}
		id := add(0, 0)
		db.Advance(t, time.Hour)
		var both sync.WaitGroup
		for range 2 {
			both.Go(func() {
				if _, err := Write(t.Context(), db.DB, Entry{
					ID: id, Actor: "ada", Login: Token, Source: API, Action: "queue.purge", Object: "mail", Count: 10, Detail: part.Detail,
				}); err != nil {
					t.Error(err)
				}
			})
		}
		both.Wait()
		entries("queue.purge 20")
		fails := func(e *Entry) { e.Failed = true }
		if again := add(id, 3, fails); again != id {
			t.Errorf("got entry %d after %d", again, id)
		}
		entries("queue.purge 23" + failedText)
		add(id, 4)
		entries("queue.purge 27")

		other := add(id, 1, func(e *Entry) { e.Action = "job.delete" })
		add(id, 2, func(e *Entry) { e.Object = "post" })
		add(id, 3, func(e *Entry) { e.Actor = "bob" })
		add(id, 4, func(e *Entry) { e.Detail = "state=dead" })
		add(id, 5, func(e *Entry) { e.Login, e.Source = OS, CLI })
		add(-1, 6)
		add(id, 0, fails, func(e *Entry) { e.Actor = "bob" })
		rest := []string{"job.delete 1", "queue.purge 2", "queue.purge 3", "queue.purge 4", "queue.purge 5", "queue.purge 6"}
		entries(append([]string{"queue.purge 27"}, rest...)...)
		if other <= id {
			t.Errorf("got entry %d of another act, after %d", other, id)
		}
		db.Advance(t, 24*time.Hour)
		add(id, 7)
		entries(append(append([]string{"queue.purge 27"}, rest...), "queue.purge 7")...)
	})
}

// Entries go when they are too old, and when there are too many, and others stay, also when
// several daemons sweep at once.
func TestSweep(t *testing.T) {
	byClock(t, func(t *testing.T, db *dbtest.DB) {
		ctx := t.Context()
		if n, err := Sweep(ctx, db.DB, Usual); n != 0 || err != nil {
			t.Errorf("of an empty table: got %d, %v", n, err)
		}
		for i := range 6 {
			_, err := Write(ctx, db.DB, Entry{Object: fmt.Sprint(i)})
			must(t, err)
			db.Advance(t, 24*time.Hour)
		}
		errs, removed := make(chan error), make(chan int64, 3)
		for range 3 {
			go func() {
				n, err := Sweep(ctx, db.DB, Keep{For: 4*24*time.Hour + time.Hour, Max: 100})
				removed <- n
				errs <- err
			}()
		}
		sum := int64(0)
		for range 3 {
			must(t, <-errs)
			sum += <-removed
		}
		if sum != 2 {
			t.Errorf("three daemons have removed %d entries, want 2", sum)
		}
		got, _ := objects(t, db, Filter{})
		want(t, "four days", got, "5", "4", "3", "2")
		n, err := Sweep(ctx, db.DB, Keep{For: 365 * 24 * time.Hour, Max: 3})
		must(t, err)
		if got, _ = objects(t, db, Filter{}); n != 1 {
			t.Errorf("got %d", n)
		}
		want(t, "three entries", got, "5", "4", "3")
		_, err = Sweep(ctx, db.DB, Keep{})
		must(t, err)
		_, err = Sweep(ctx, db.DB, Usual)
		must(t, err)
		got, _ = objects(t, db, Filter{})
		want(t, "all that are usual", got, "5", "4", "3")
	})
}

// Each list reads backwards in an index, and the sweep goes along the primary key, among
// 20,000 entries.
func TestPlans(t *testing.T) {
	scans := regexp.MustCompile(`Seq Scan|Sort|TEMP B-TREE|filesort|SCAN \S*_audit($|\s*$)|type=ALL`)
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		for part := range 20 {
			rows := make([]sqlrun.Args, 1000)
			for i := range rows {
				n := part*1000 + i
				rows[i] = sqlrun.Args{
					"a": fmt.Sprint("actor", n%500), "b": fmt.Sprint("action", n%100),
					"c": fmt.Sprint("object", n), "at": int64(1_700_000_000_000_000 + n*1_000_000),
				}
			}
			db.Do(t, `INSERT INTO {prefix}audit (done_at, actor, login, source, action, object, affected, detail)
				VALUES {values rows: ({time :at}, :a, 'token', 'api', :b, :c, 1, '')}`, sqlrun.Args{"rows": rows})
		}
		db.Analyze(t, "audit")
		conn, err := db.Pool().Conn(t.Context())
		must(t, err)
		defer conn.Close()
		args := sqlrun.Args{
			"actor": "actor7", "action": "action7", "object": "object7", "before": int64(15_000), "since": int64(0), "limit": 101,
			"from": int64(1), "to": int64(50),
		}
		for name, value := range (&Entry{}).args() {
			if args[name] == nil {
				args[name] = value
			}
		}
		args["id"] = int64(7)
		for _, stmt := range []*sqlrun.Stmt{list, listActor, listAction, listObject, newestOld, sweep, writeFurther} {
			if args["since"] = int64(0); stmt == newestOld {
				args["since"] = int64(-1)
			}
			for _, line := range db.Plan(t, conn, stmt, args) {
				if scans.MatchString(line.String()) {
					t.Errorf("%s: %s", stmt.Name, line)
				}
			}
		}
	}, (*testing.T).Parallel)
}
