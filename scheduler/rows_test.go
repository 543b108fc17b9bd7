package scheduler

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/sqlrun"
)

// by hand inserts a schedule as a person would, with an SQL value for each column.
func byHand(t *testing.T, db *dbtest.DB, columns map[string]string) {
	t.Helper()
	names, values := "command", "'true'"
	for name, value := range columns {
		names, values = names+", "+name, values+", "+value
	}
	db.Do(t, `INSERT INTO {prefix}schedule (`+names+`) VALUES (`+values+`)`, nil)
}

// A row that is inserted without a slot is planned by the next daemon.
func TestRowsByHandArePlanned(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		byHand(t, db, map[string]string{"name": "'interval'", "spec": "'@every 1m'"})
		byHand(t, db, map[string]string{"name": "'cron'", "spec": "'30  9 * * *'", "time_zone": "'Europe/Berlin'"})
		byHand(t, db, map[string]string{"name": "'paused'", "spec": "'@every 1m'", "state": "'paused'"})
		// A person may give the slot, or the time of the claim only.
		byHand(t, db, map[string]string{"name": "'next'", "spec": "'@every 1m'", "next_exec": "{now}"})
		s := daemon(t, db, Options{})
		if wait, err := s.step(t.Context(), context.Background()); err != nil || wait != 0 {
			t.Fatalf("step: wait %v, %v", wait, err)
		}
		s.runs.Wait()
		for name, want := range map[string]time.Time{
			"interval": at(time.Minute), "cron": at(23*time.Hour + 30*time.Minute), "paused": {}, "next": at(time.Minute),
		} {
			if got := stored(t, db, name); !got.Due.Equal(want) || got.Reason != "" {
				t.Errorf("%s: due at %v (%s), want %v", name, got.Due, got.Reason, want)
			}
		}
		wantRows(t, db, "", "next 0 1 ok")
	})
}

// One bad row fails with a readable reason, and the others continue.
func TestBadRows(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		bad := map[string]sqlrun.Args{
			"spec":       {"spec": "61 * * * *"},
			"never":      {"spec": "0 0 30 2 *"},
			"no spec":    {"spec": ""},
			"env":        {"env": "PATH=/bin"},
			"env list":   {"env": "[1]"},
			"env name":   {"env": `{"A=` + strings.Repeat("x", 100_000) + `": "b"}`},
			"env nul":    {"env": `{"A": "b\u0000"}`},
			"zone":       {"time_zone": "Mars/Olympus"},
			"local":      {"time_zone": "Local"},
			"no command": {"command": " "},
			" blank":     {},
			"tab\t":      {},
			"new\nline":  {},
		}
		for _, planned := range []bool{false, true} {
			db.Do(t, `DELETE FROM {prefix}schedule`, nil)
			db.Do(t, `DELETE FROM {prefix}run`, nil)
			for name, columns := range bad {
				row := sqlrun.Args{"name": name, "spec": "@every 1m", "time_zone": "UTC", "dst": "", "env": "{}", "command": "true"}
				maps.Copy(row, columns)
				db.Do(t, `INSERT INTO {prefix}schedule (name, spec, time_zone, dst, env, command)
					VALUES (:name, :spec, :time_zone, :dst, :env, :command)`, row)
			}
			byHand(t, db, map[string]string{"name": "'good'", "spec": "'@every 1m'"})
			if planned {
				db.Do(t, `UPDATE {prefix}schedule SET next_exec = {now}`, nil)
			}
			badRowsFail(t, db, len(bad))
		}
	})
}

// badRowsFail lets a daemon work, and checks that all schedules but the one
// that is good have failed, and that this one has run.
func badRowsFail(t *testing.T, db *dbtest.DB, bad int) {
	t.Helper()
	all := goodRuns(t, db)
	if len(all) != bad+1 {
		t.Errorf("%d schedules, want %d", len(all), bad+1)
	}
	for _, got := range all {
		if good := got.Name == "good"; (got.State == "active") != good || (got.Reason == "") != good || len(got.Reason) > 5000 {
			t.Errorf("%.50q is %s: %.200s", got.Name, got.State, got.Reason)
		}
	}
}

// goodRuns lets a daemon work, checks that it runs the good schedules, and returns all
// schedules.
func goodRuns(t *testing.T, db *dbtest.DB) []Schedule {
	t.Helper()
	s := daemon(t, db, Options{})
	for range 2 {
		if _, err := s.step(t.Context(), context.Background()); err != nil {
			t.Fatal(err)
		}
		s.runs.Wait()
		db.Advance(t, time.Minute)
	}
	if got := allRuns(t, db, "good"); len(got) == 0 || got[0].State != "ok" {
		t.Errorf("the good one's runs are %+v", got)
	}
	all, err := List(t.Context(), db.DB, "", 100)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// What is no instant, or no name, is refused: a daemon must be able to read the
// smallest next_exec, and to list every schedule.
func TestRowsThatAreRefused(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		for what, insert := range map[string]string{
			"no name":            `(name, spec, command) VALUES ('', '@every 1m', 'true')`,
			"text":               `(name, spec, command, next_exec) VALUES ('x', '@every 1m', 'true', 'soon')`,
			"nothing":            `(name, spec, command, next_exec) VALUES ('x', '@every 1m', 'true', '')`,
			"a zero date":        `(name, spec, command, next_exec) VALUES ('x', '@every 1m', 'true', '0000-00-00 00:00:00')`,
			"no day":             `(name, spec, command, next_exec) VALUES ('x', '@every 1m', 'true', '2026-13-45 00:00:00.000')`,
			"another form":       `(name, spec, command, next_exec) VALUES ('x', '@every 1m', 'true', '2026-01-01Tnoon')`,
			"minus infinity":     `(name, spec, command, next_exec) VALUES ('x', '@every 1m', 'true', '-infinity')`,
			"the year 10000":     `(name, spec, command, next_exec) VALUES ('x', '@every 1m', 'true', '9999-12-31 23:59:59.000')`,
			"1970":               `(name, spec, command, due_at) VALUES ('x', '@every 1m', 'true', '1970-01-01 00:00:00.000')`,
			"due after its time": `(name, spec, command, due_at, next_exec) VALUES ('x', '@every 1m', 'true', '2099-01-01 00:00:00.000', '2026-01-01 00:00:00.000')`,
		} {
			if _, err := db.Exec(t.Context(), sqlrun.Unlisted(`INSERT INTO {prefix}schedule `+insert), nil); err == nil {
				t.Errorf("%s is accepted", what)
			}
		}
		for what, due := range map[string]string{"text": "soon", "infinity": "infinity", "a zero date": "0000-00-00 00:00:00"} {
			if _, err := db.Exec(t.Context(), sqlrun.Unlisted(`INSERT INTO {prefix}run (schedule, due_at, attempt, state) VALUES ('x', :due, 1, 'ok')`),
				sqlrun.Args{"due": due}); err == nil {
				t.Errorf("a run due at %s is accepted", what)
			}
		}
	})
}

// Names are compared by bytes, and refused where an engine would not.
func TestNames(t *testing.T) {
	clockedMemory(t, func(t *testing.T, db *dbtest.DB) {
		good := []string{
			"Job", "job", "jób", "jo\u0301b", "straße", "strasse", "ÅNGSTRÖM", "a b", "a'b\"c`d;--", "%_\\", "{now} :name ?", "$1",
			"🕰", strings.Repeat("🕰", 200), strings.Repeat("é", 200), "日本語",
		}
		for _, name := range good {
			add(t, db, name, "@every 1m")
		}
		for _, name := range good {
			if err := Add(t.Context(), db.DB, Schedule{Name: name, Spec: "@daily", Command: "true"}); !errors.Is(err, ErrExists) ||
				!strings.Contains(err.Error(), name) {
				t.Errorf("a second %.20q: %v, want ErrExists", name, err)
			}
		}
		for _, name := range []string{
			"", " ", "job ", " job", "job\u00a0", "job\t", "a\nb", "a\x00b", "a\xffb", strings.Repeat("🕰", 201), strings.Repeat("x", 201),
		} {
			if err := Add(t.Context(), db.DB, Schedule{Name: name, Spec: "@daily", Command: "true"}); !errors.Is(err, ErrInvalid) {
				t.Errorf("Add of %.20q: %v, want ErrInvalid", name, err)
			}
			if err := CheckName(name); !errors.Is(err, ErrInvalid) {
				t.Errorf("CheckName of %.20q: %v, want ErrInvalid", name, err)
			}
		}
		db.Advance(t, time.Minute)
		settle(t, daemon(t, db, Options{}))
		for _, name := range good {
			wantRows(t, db, name, "60 1 ok")
			if err := Delete(t.Context(), db.DB, name); err != nil {
				t.Error(err)
			}
			if err := Delete(t.Context(), db.DB, name); !errors.Is(err, ErrNotFound) {
				t.Errorf("a second delete of %.20q: %v, want ErrNotFound", name, err)
			}
			if _, err := Get(t.Context(), db.DB, name); !errors.Is(err, ErrNotFound) {
				t.Errorf("%.20q after its delete: %v, want ErrNotFound", name, err)
			}
			wantRows(t, db, name, "60 1 ok") // the history stays
		}
	})
}

// What cannot be stored or run is refused, and nothing is stored.
func TestAddRefuses(t *testing.T) {
	clockedMemory(t, func(t *testing.T, db *dbtest.DB) {
		mega := strings.Repeat("x", 1<<20)
		for what, s := range map[string]Schedule{
			"no command":         {Command: " \n"},
			"a long command":     {Command: mega + "x"},
			"a long input":       {Stdin: mega + "x"},
			"NUL in the command": {Command: "a\x00b"},
			"no text":            {Stdin: "\xff"},
			"a variable's name":  {Env: map[string]string{"A=B": ""}},
			"no variable's name": {Env: map[string]string{"": "x"}},
			"NUL in a variable":  {Env: map[string]string{"A": "\x00"}},
			"spec":               {Spec: "* * *"},
			"never":              {Spec: "0 0 31 4 *"},
			"zone":               {Zone: "Nowhere"},
			"dst":                {DST: "no"},
		} {
			s.Name = "job"
			if s.Spec == "" {
				s.Spec = "@daily"
			}
			if s.Command == "" {
				s.Command = "true"
			}
			if err := Add(t.Context(), db.DB, s); !errors.Is(err, ErrInvalid) {
				t.Errorf("%s: %v, want ErrInvalid", what, err)
			}
		}
		if all, err := List(t.Context(), db.DB, "", 10); err != nil || len(all) != 0 {
			t.Errorf("stored: %v, %v", all, err)
		}
		want := Schedule{
			Name: "job", Spec: "0 12 * * *", Zone: "Asia/Tokyo", DST: "wall", Command: mega, Stdin: "é\n🕰",
			Env: map[string]string{"A": "b c", "Ü": "=\n\"", "E": ""}, State: "active",
		}
		given := want
		given.Source, given.Key = "file", "key" // not for one made by hand
		if err := Add(t.Context(), db.DB, given); err != nil {
			t.Fatal(err)
		}
		got := stored(t, db, "job")
		want.ID, want.Due = got.ID, at(18*time.Hour)
		if !equal(got, want) {
			t.Errorf("stored %+v", got)
		}
		if now, err := Clock(t.Context(), db.DB); err != nil || !now.Equal(at(0)) {
			t.Errorf("Clock: %v, %v", now, err)
		}
	})
}

func equal(a, b Schedule) bool {
	if len(a.Env) != len(b.Env) {
		return false
	}
	for name, value := range a.Env {
		if v, ok := b.Env[name]; !ok || v != value {
			return false
		}
	}
	return a.ID == b.ID && a.Name == b.Name && a.Source == b.Source && a.Key == b.Key && a.Spec == b.Spec && a.Zone == b.Zone &&
		a.DST == b.DST && a.Command == b.Command && a.Stdin == b.Stdin && a.State == b.State && a.Reason == b.Reason && a.Due.Equal(b.Due)
}

func TestList(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		for _, name := range []string{"b", "B", "a", "ä", "c"} {
			add(t, db, name, "@daily")
		}
		var names []string
		for after := ""; ; {
			page, err := List(t.Context(), db.DB, after, 2)
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range page {
				names = append(names, s.Name)
				after = s.Name
			}
			if len(page) < 2 {
				break
			}
		}
		if got := strings.Join(names, " "); got != "B a b c ä" {
			t.Errorf("listed %q, want the order of the bytes", got)
		}
	})
}

// History is newest first, and bounded.
func TestHistory(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		add(t, db, "a", "@every 1m")
		add(t, db, "b", "@every 1m")
		for range 3 {
			db.Advance(t, time.Minute)
			settle(t, daemon(t, db, Options{}))
		}
		got, err := History(t.Context(), db.DB, "a", 2)
		if err != nil || len(got) != 2 || !got[0].Due.Equal(at(3*time.Minute)) || !got[1].Due.Equal(at(2*time.Minute)) || got[0].Schedule != "a" {
			t.Errorf("of a: %+v, %v", got, err)
		}
		got, err = History(t.Context(), db.DB, "", 3)
		if err != nil || len(got) != 3 || got[0].ID <= got[1].ID || got[1].ID <= got[2].ID || got[0].Schedule == got[1].Schedule {
			t.Errorf("of all: %+v, %v", got, err)
		}
	})
}

// A schedule whose spec, zone or rule is changed by a plain statement is planned anew, by itself. One that
// cannot be read is said to be wrong, and what was not changed keeps its slot.
func TestAChangedSpecIsPlannedAnew(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		for _, name := range []string{"by go", "kept", "wrong", "paused", "due"} {
			add(t, db, name, "@every 24h")
		}
		add(t, db, "zone", "0 12 * * *")
		byHand(t, db, map[string]string{"name": "'by hand'", "spec": "'@every 24h'"})
		db.Do(t, `UPDATE {prefix}schedule SET command = 'true'`, nil)
		s := daemon(t, db, Options{})
		stepped(t, s)
		zone := stored(t, db, "zone").Due
		db.Advance(t, time.Hour)
		change := func(name, set string) {
			t.Helper()
			db.Do(t, `UPDATE {prefix}schedule SET `+set+` WHERE name = :name`, sqlrun.Args{"name": name})
		}
		change("by go", `spec = '@every 1h'`)
		change("by hand", `spec = '@every 1h'`)
		change("kept", `timeout = '1h', next_exec = {now + 90000000000}`) // as by jitter
		change("wrong", `spec = '61 * * * *'`)
		change("paused", `spec = '@every 1h', state = 'paused'`)
		change("zone", `time_zone = 'Pacific/Auckland'`)
		change("due", `spec = '@every 48h', due_at = {now}, next_exec = {now}`)
		look := func() {
			t.Helper()
			s.wakeAll()
			stepped(t, s)
		}
		look()
		var now int64
		db.Scan(t, `SELECT {us {now}}`, nil, &now)
		for _, name := range []string{"by go", "by hand"} {
			if got, want := stored(t, db, name).Due, time.UnixMicro(now).Add(time.Hour); !got.Equal(want) {
				t.Errorf("%s: planned for %v, want %v", name, got, want)
			}
		}
		if got := db.List(t, `SELECT COUNT(*) FROM {prefix}schedule WHERE name = 'kept' AND next_exec = {now + 90000000000}`, nil); got[0] != "1" {
			t.Error("what was not changed is planned anew")
		}
		if got := stored(t, db, "zone").Due; got.IsZero() || got.Equal(zone) {
			t.Errorf("in another zone it is planned for %v, as before", got)
		}
		if got := stored(t, db, "wrong"); got.State != "failed" || got.Reason == "" {
			t.Errorf("what cannot be read is %s: %q", got.State, got.Reason)
		}
		if got := rows(t, db, "due"); len(got) != 1 || !strings.HasSuffix(got[0], "1 ok") {
			t.Errorf("the slot that was due has runs %q", got)
		}
		look()
		left := db.List(t, `SELECT name, CASE WHEN next_exec IS NULL THEN 0 ELSE 1 END FROM {prefix}schedule WHERE stale = 1 ORDER BY name`, nil)
		if want := []string{"paused 1", "wrong 0"}; !slices.Equal(left, want) {
			t.Errorf("not planned anew: %q", left)
		}
		change("wrong", `spec = '@every 2h', state = 'active'`)
		look()
		if got := stored(t, db, "wrong"); got.State != "active" || got.Due.IsZero() || got.Reason != "" {
			t.Errorf("what was put right is %s, %v", got.State, got.Due)
		}
	})
}

// Words that nobody knows are refused by the tables, and those that are known are not.
func TestUnknownWordsAreRefused(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		byHand(t, db, map[string]string{"name": "'good'", "spec": "'@every 1m'", "dst": "''"})
		db.Do(t, `INSERT INTO {prefix}queue (name) VALUES ('good')`, nil)
		for _, set := range []string{
			"schedule SET state = ", "schedule SET kind = ", "schedule SET dst = ", "schedule SET missed = ", "schedule SET overlap = ",
			"schedule SET first_run = ", "schedule SET retry_past_next = ", "schedule SET repeatable = ",
			"queue SET state = ", "queue SET ordered = ", "queue SET key_retry = ",
		} {
			if _, err := db.Exec(t.Context(), sqlrun.Unlisted(`UPDATE {prefix}`+set+`'x'`), nil); !db.Dialect.Refused(err) {
				t.Errorf("UPDATE %s'x': %v", set, err)
			}
		}
		for _, bad := range []string{
			`schedule SET job_priority = 5`, `schedule SET job_priority = 0`, `schedule SET overlap = 'Forbid'`,
		} {
			if _, err := db.Exec(t.Context(), sqlrun.Unlisted(`UPDATE {prefix}`+bad), nil); !db.Dialect.Refused(err) {
				t.Errorf("UPDATE %s: %v", bad, err)
			}
		}
		for _, insert := range []string{
			`schedule (name, spec, command, missed) VALUES ('bad', '@daily', 'true', 'twice')`, `queue (name, key_retry) VALUES ('bad', 'drop')`,
		} {
			if _, err := db.Exec(t.Context(), sqlrun.Unlisted(`INSERT INTO {prefix}`+insert), nil); !db.Dialect.Refused(err) {
				t.Errorf("INSERT %s: %v", insert, err)
			}
		}
		db.Do(t, `UPDATE {prefix}schedule SET dst = 'wall', missed = 'all', overlap = 'queue', first_run = 'now', retry_past_next = 'yes', repeatable = 'no', job_priority = 4`, nil)
		db.Do(t, `UPDATE {prefix}queue SET state = 'paused', ordered = 'yes', key_retry = 'pass'`, nil)
	})
}
