package scheduler

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
)

// entry is a schedule of a source, with its key for a name.
func entry(key, spec, command string) Schedule {
	return Schedule{Name: key, Key: key, Spec: spec, Command: command}
}

func imported(t *testing.T, db *dbtest.DB, source string, given ...Schedule) Changes {
	t.Helper()
	c, err := Import(t.Context(), db.DB, source, given, ImportOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func wantChanges(t *testing.T, c Changes, want string) {
	t.Helper()
	slices.Sort(c.Removed) // in no order
	if got := fmt.Sprintf("%q %q %q %d", c.Added, c.Changed, c.Removed, c.Unchanged); got != want {
		t.Errorf("changes %s, want %s", got, want)
	}
}

// A schedule is recognized by its key, and changed where it differs; it keeps
// its next slot unless its times changed.
func TestImport(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		add(t, db, "by hand", "@every 1m")
		imported(t, db, "other", entry("of another file", "@every 1m", "true"))
		first := []Schedule{
			entry("command", "@every 1h", "old"), entry("gone", "@every 1h", "true"), entry("same", "@every 1h", "true"),
			entry("spec", "@every 1h", "true"), entry("zone", "0 20 * * *", "true"), entry("env", "@every 1h", "true"),
			entry("input", "@every 1h", "true"), entry("dst", "30 20 * * *", "true"),
		}
		wantChanges(t, imported(t, db, "file", first...), `["command" "gone" "same" "spec" "zone" "env" "input" "dst"] [] [] 0`)
		db.Advance(t, 10*time.Minute)
		wantChanges(t, imported(t, db, "file", first...), `[] [] [] 8`)
		settle(t, daemon(t, db, Options{})) // runs of the others

		changed := map[string]Schedule{
			"command": entry("command", "@every 1h", "new"), "same": entry("same", " @every  1h ", "true"),
			"spec": entry("spec", "@every 2h", "true"), "zone": entry("zone", "0 20 * * *", "true"),
			"env": entry("env", "@every 1h", "true"), "input": entry("input", "@every 1h", "true"),
			"dst": entry("dst", "30 20 * * *", "true"), "new": entry("new", "@every 1h", "true"),
		}
		var given []Schedule
		for _, name := range []string{"command", "same", "spec", "zone", "env", "input", "dst", "new"} {
			s := changed[name]
			switch name {
			case "zone":
				s.Zone = "Asia/Tokyo" // 20:00 there is 11:00 UTC
			case "dst":
				s.DST = "wall"
			case "env":
				s.Env = map[string]string{"A": "1"}
			case "input":
				s.Stdin = "text"
			}
			given = append(given, s)
		}
		wantChanges(t, imported(t, db, "file", given...), `["new"] ["command" "spec" "zone" "env" "input" "dst"] ["gone"] 1`)
		due := map[string]time.Time{
			"by hand": at(11 * time.Minute), "of another file": at(11 * time.Minute),
			"command": at(time.Hour), "same": at(time.Hour), "env": at(time.Hour), "input": at(time.Hour),
			"spec": at(130 * time.Minute), "zone": at(2 * time.Hour), "dst": at(11*time.Hour + 30*time.Minute), "new": at(70 * time.Minute),
		}
		all, err := List(t.Context(), db.DB, "", 100)
		if err != nil || len(all) != len(due) {
			t.Errorf("%d schedules, want %d; %v", len(all), len(due), err)
		}
		for _, s := range all {
			if !s.Due.Equal(due[s.Name]) {
				t.Errorf("%s is due at %v, want %v", s.Name, s.Due, due[s.Name])
			}
		}
		if s := stored(t, db, "command"); s.Command != "new" || s.Source != "file" || s.Key != "command" {
			t.Errorf("changed: %+v", s)
		}
		if s := stored(t, db, "env"); s.Env["A"] != "1" {
			t.Errorf("changed: %+v", s)
		}
		if s := stored(t, db, "input"); s.Stdin != "text" {
			t.Errorf("changed: %+v", s)
		}
		wantChanges(t, imported(t, db, "file", given...), `[] [] [] 8`)
		if given[0].Source != "" {
			t.Error("what is given was changed")
		}
		wantChanges(t, imported(t, db, "file"), `[] [] ["command" "dst" "env" "input" "new" "same" "spec" "zone"] 0`)
		wantRows(t, db, "", "by hand 60 1 missed to 540: 9", "by hand 600 1 ok", "of another file 60 1 missed to 540: 9",
			"of another file 600 1 ok")
	})
}

// The history of what is removed stays.
func TestImportKeepsTheHistory(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		imported(t, db, "file", entry("a", "@every 1m", "true"))
		db.Advance(t, time.Minute)
		settle(t, daemon(t, db, Options{}))
		imported(t, db, "file")
		wantRows(t, db, "a", "60 1 ok")
	})
}

// A schedule that is paused stays so; one that failed and is well again runs.
func TestImportAndStates(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		imported(t, db, "file", entry("paused", "@every 1m", "true"), entry("broken", "@every 1m", "true"))
		db.Do(t, `UPDATE {prefix}schedule SET state = 'paused', reason = 'holidays' WHERE name = 'paused'`, nil)
		db.Do(t, `UPDATE {prefix}schedule SET spec = 'nonsense' WHERE name = 'broken'`, nil)
		db.Advance(t, time.Minute)
		settle(t, daemon(t, db, Options{}))
		if s := stored(t, db, "broken"); s.State != "failed" || s.Reason == "" {
			t.Fatalf("%+v", s)
		}
		wantChanges(t, imported(t, db, "file", entry("paused", "@every 2m", "false"), entry("broken", "@every 1m", "true")),
			`[] ["paused" "broken"] [] 0`)
		if s := stored(t, db, "paused"); s.State != "paused" || s.Spec != "@every 2m" || s.Command != "false" {
			t.Errorf("%+v", s)
		}
		if s := stored(t, db, "broken"); s.State != "active" || s.Reason != "" || !s.Due.Equal(at(2*time.Minute)) {
			t.Errorf("%+v", s)
		}
		wantChanges(t, imported(t, db, "file", entry("paused", "@every 2m", "false"), entry("broken", "@every 1m", "true")), `[] [] [] 2`)
		db.Advance(t, time.Hour)
		settle(t, daemon(t, db, Options{}))
		wantRows(t, db, "paused", "60 1 skipped to 60: 1") // the slot that had come when its times were changed
	})
}

// A name may pass from one key to another, and a key may get another name.
func TestImportMovesNames(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		named := func(key, name string) Schedule {
			return Schedule{Key: key, Name: name, Spec: "@every 1h", Command: key}
		}
		imported(t, db, "file", named("1", "a"), named("2", "b"))
		for _, given := range [][]Schedule{
			{named("3", "a"), named("2", "b")},
			{named("2", "a"), named("3", "b")}, // swapped
			{named("2", "c"), named("3", "b")},
			{named("3", "c")},
		} {
			c := imported(t, db, "file", given...)
			all, err := List(t.Context(), db.DB, "", 10)
			if err != nil || len(all) != len(given) {
				t.Fatalf("%v: %d schedules, %v", c, len(all), err)
			}
			for _, s := range given {
				if got := stored(t, db, s.Name); got.Key != s.Key || got.Command != s.Key {
					t.Errorf("%s has key %s and command %s, want %s", s.Name, got.Key, got.Command, s.Key)
				}
			}
			if again := imported(t, db, "file", given...); again.Unchanged != len(given) {
				t.Errorf("a second time: %v", again)
			}
		}
	})
}

// A name that is taken by another source, or by hand, is ErrExists, and nothing
// of the import happens. The same is true of anything that is invalid.
func TestImportIsAllOrNothing(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		add(t, db, "by hand", "@every 1m")
		imported(t, db, "other", entry("theirs", "@every 1m", "true"))
		imported(t, db, "file", entry("a", "@every 1m", "true"), entry("b", "@every 1m", "true"))
		before := db.List(t, `SELECT * FROM {prefix}schedule ORDER BY id`, nil)
		good := []Schedule{entry("a", "@every 2m", "changed"), entry("c", "@every 1m", "true")}
		for _, c := range []struct {
			bad  Schedule
			want error
		}{
			{entry("by hand", "@every 1m", "true"), ErrExists},
			{entry("theirs", "@every 1m", "true"), ErrExists},
			{entry("d", "* * *", "true"), ErrInvalid},
			{entry("d", "@every 1m", ""), ErrInvalid},
			{entry("d ", "@every 1m", "true"), ErrInvalid},
			{entry("c", "@every 1m", "true"), ErrInvalid}, // twice
			{Schedule{Key: "c", Name: "d", Spec: "@daily", Command: "true"}, ErrInvalid},
			{Schedule{Key: strings.Repeat("k", 256), Name: "d", Spec: "@daily", Command: "true"}, ErrInvalid},
		} {
			changes, err := Import(t.Context(), db.DB, "file", append(good[:2:2], c.bad), ImportOptions{})
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.bad.Name) {
				t.Errorf("with %+v: %v, %v; want %v", c.bad, changes, err, c.want)
			}
			after := db.List(t, `SELECT * FROM {prefix}schedule ORDER BY id`, nil)
			if strings.Join(after, "\n") != strings.Join(before, "\n") {
				t.Fatalf("with %+v:\n%q\nbecame\n%q", c.bad, before, after)
			}
		}
		for _, source := range []string{"", strings.Repeat("s", 256)} {
			if _, err := Import(t.Context(), db.DB, source, good, ImportOptions{}); !errors.Is(err, ErrInvalid) {
				t.Errorf("source %.10q: %v, want ErrInvalid", source, err)
			}
		}
	})
}

// Two processes may import the same source at once.
func TestImportRace(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		versions := [][]Schedule{nil, nil, nil}
		for i := range 20 {
			versions[0] = append(versions[0], entry(fmt.Sprintf("s%d", i), "@every 1h", "true"))
			versions[1] = append(versions[1], entry(fmt.Sprintf("s%d", 29-i), "@every 2h", "changed")) // another order
		}
		for _, given := range versions {
			var each sync.WaitGroup
			for range 8 {
				other := again(t, db)
				each.Go(func() {
					if _, err := Import(t.Context(), other.DB, "file", given, ImportOptions{}); err != nil {
						t.Error(err)
					}
				})
			}
			each.Wait()
			wantChanges(t, imported(t, db, "file", given...), fmt.Sprintf("[] [] [] %d", len(given)))
			if all, err := List(t.Context(), db.DB, "", 100); err != nil || len(all) != len(given) {
				t.Errorf("%d schedules, %v; want %d", len(all), err, len(given))
			}
		}
	})
}

func TestChangesAreToldInALine(t *testing.T) {
	for want, c := range map[string]Changes{
		"3 schedules, nothing changed":               {Unchanged: 3},
		"2 added, 1 unchanged":                       {Added: []string{"a", "b"}, Unchanged: 1},
		"1 added, 2 changed, 3 removed, 0 unchanged": {Added: []string{"a"}, Changed: []string{"b", "c"}, Removed: []string{"d", "e", "f"}},
	} {
		if got := c.String(); got != want {
			t.Errorf("%+v: %q, want %q", c, got, want)
		}
	}
}

// Slots that have come and have not been run are not forgotten when their
// schedule's times change.
func TestImportRecordsWhatItReplans(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		imported(t, db, "file", entry("x", "@every 1m", "true"))
		name := stored(t, db, entry("x", "", "").Name).Name
		db.Advance(t, 3*time.Minute)
		imported(t, db, "file", entry("x", "@every 1h", "true"))
		wantRows(t, db, name, "60 1 missed to 180: 3")
		if got := stored(t, db, name).Due; !got.Equal(at(3*time.Minute + time.Hour)) {
			t.Errorf("due at %v", got)
		}
	})
}
