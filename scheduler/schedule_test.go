//go:build unix

package scheduler

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/plain"
	"github.com/dbcron/dbcron/internal/sqlrun"
)

// fieldsOf lists the fields of problems, each once, in order.
func fieldsOf(all []Problem) []string {
	var fields []string
	for _, p := range all {
		fields = append(fields, p.Field)
	}
	slices.Sort(fields)
	return slices.Compact(fields)
}

// good is a schedule that has no problems, of a kind.
func good(kind string) Schedule {
	commands := map[string]string{
		"": "true", "shell": "true", "argv": Argv("true"), "http": "GET http://localhost/", "sql": "SELECT 1", "func": "work", "job": "work",
	}
	return Schedule{Name: "job", Spec: "@daily", Kind: kind, Command: commands[kind]}
}

// Each field refuses some values by name; all problems are reported at once.
func TestProblems(t *testing.T) {
	mega := strings.Repeat("x", maxText)
	for _, c := range []struct {
		kind  string
		field string
		bad   []func(*Schedule)
		good  []func(*Schedule)
	}{
		{"", "name", []func(*Schedule){
			func(s *Schedule) { s.Name = "" }, func(s *Schedule) { s.Name = " a" }, func(s *Schedule) { s.Name = "a\nb" },
			func(s *Schedule) { s.Name = strings.Repeat("x", 201) }, func(s *Schedule) { s.Name = "\xff" },
		}, []func(*Schedule){func(s *Schedule) { s.Name = strings.Repeat("🕰", 200) }, func(s *Schedule) { s.Name = "a b/c" }}},
		{"", "source", []func(*Schedule){
			func(s *Schedule) { s.Source = strings.Repeat("x", 256) }, func(s *Schedule) { s.Key = strings.Repeat("x", 256) },
		}, []func(*Schedule){func(s *Schedule) { s.Source = strings.Repeat("x", 255) }}},
		{"", "spec", []func(*Schedule){
			func(s *Schedule) { s.Spec = "" }, func(s *Schedule) { s.Spec = "* * *" }, func(s *Schedule) { s.Spec = "@every 0s" },
			func(s *Schedule) { s.Spec = "0 0 30 2 *" }, func(s *Schedule) { s.Zone = "Mars/Olympus" }, func(s *Schedule) { s.DST = "winter" },
		}, []func(*Schedule){func(s *Schedule) { s.Spec = "@manual" }, func(s *Schedule) { s.Zone, s.DST = "Asia/Tokyo", "wall" }}},
		{"", "kind", []func(*Schedule){func(s *Schedule) { s.Kind = "perl" }, func(s *Schedule) { s.Kind = "SHELL" }}, nil},
		{"", "command", []func(*Schedule){
			func(s *Schedule) { s.Command = "" }, func(s *Schedule) { s.Command = " \t\n" }, func(s *Schedule) { s.Command = "a\x00" },
			func(s *Schedule) { s.Command = "\xff" }, func(s *Schedule) { s.Command = mega + "x" },
		}, []func(*Schedule){func(s *Schedule) { s.Command = mega }}},
		{"argv", "command", []func(*Schedule){
			func(s *Schedule) { s.Command = "ls -l" }, func(s *Schedule) { s.Command = "[]" }, func(s *Schedule) { s.Command = `[""]` },
			func(s *Schedule) { s.Command = `["a", 1]` }, func(s *Schedule) { s.Command = `["a\u0000"]` },
			func(s *Schedule) { s.Command = `["a"] ["b"]` },
			func(s *Schedule) { s.Command = "null" },
		}, []func(*Schedule){func(s *Schedule) { s.Command = `["a", "", " "]` }}},
		{"http", "command", []func(*Schedule){
			func(s *Schedule) { s.Command = "http://localhost/" }, func(s *Schedule) { s.Command = "GET ftp://localhost/" },
			func(s *Schedule) { s.Command = "GET http://a:b@localhost/" },
		}, []func(*Schedule){func(s *Schedule) { s.Command = "DELETE https://localhost/" }}},
		{"func", "command", []func(*Schedule){
			func(s *Schedule) { s.Command = " work" }, func(s *Schedule) { s.Command = strings.Repeat("x", 201) },
		}, []func(*Schedule){func(s *Schedule) { s.Command = "a.B/c" }}},
		{"", "stdin", []func(*Schedule){
			func(s *Schedule) { s.Stdin = "\x00" }, func(s *Schedule) { s.Stdin = "\xff" }, func(s *Schedule) { s.Stdin = mega + "x" },
			func(s *Schedule) { *s = good("sql"); s.Stdin = "x" },
		}, []func(*Schedule){
			func(s *Schedule) { s.Stdin = mega }, func(s *Schedule) { *s = good("func"); s.Stdin = "x" },
			func(s *Schedule) { *s = good("http"); s.Stdin = "x" },
		}},
		{"", "env", []func(*Schedule){
			func(s *Schedule) { s.Env = map[string]string{"": "x"} }, func(s *Schedule) { s.Env = map[string]string{"A=B": "x"} },
			func(s *Schedule) { s.Env = map[string]string{"A": "\x00"} }, func(s *Schedule) { s.Env = map[string]string{"A\xff": ""} },
			func(s *Schedule) { s.Env = map[string]string{"DBCRON_FENCE": "7"} },
			func(s *Schedule) { s.Env = map[string]string{"A": mega, "B": "x"} },
			func(s *Schedule) { *s = good("http"); s.Env = map[string]string{"A": "x"} },
			func(s *Schedule) { *s = good("sql"); s.Env = map[string]string{"A": "x"} },
			func(s *Schedule) { *s = good("func"); s.Env = map[string]string{"A": "x"} },
		}, []func(*Schedule){func(s *Schedule) { *s = good("argv"); s.Env = map[string]string{"Ü": "=\n"} }}},
		{"http", "headers", []func(*Schedule){
			func(s *Schedule) { s.Headers = map[string]string{"": "x"} }, func(s *Schedule) { s.Headers = map[string]string{"A B": "x"} },
			func(s *Schedule) { s.Headers = map[string]string{"A": "x\r\nB: y"} }, func(s *Schedule) { s.Headers = map[string]string{"A": "\x00"} },
			func(s *Schedule) { s.Headers = map[string]string{"A": "\x01"} }, // which no request can have
			func(s *Schedule) { *s = good(""); s.Headers = map[string]string{"A": "x"} },
			func(s *Schedule) { *s = good("func"); s.Headers = map[string]string{"A": "x"} },
		}, []func(*Schedule){func(s *Schedule) { s.Headers = map[string]string{"X-A_b.c": "x\ty", "host": "example.org"} }}},
		{"", "dir", []func(*Schedule){
			func(s *Schedule) { s.Dir = "tmp" }, func(s *Schedule) { s.Dir = "/\x00" }, func(s *Schedule) { *s = good("http"); s.Dir = "/tmp" },
			func(s *Schedule) { *s = good("sql"); s.Dir = "/tmp" }, func(s *Schedule) { *s = good("func"); s.Dir = "/tmp" },
		}, []func(*Schedule){func(s *Schedule) { s.Dir = "/tmp/a b" }}},
		{"", "user", []func(*Schedule){
			func(s *Schedule) { s.User = "a b" }, func(s *Schedule) { s.User = "a:b" }, func(s *Schedule) { s.User = strings.Repeat("x", 65) },
			func(s *Schedule) { *s = good("http"); s.User = "nobody" },
		}, []func(*Schedule){func(s *Schedule) { s.User = "nobody" }, func(s *Schedule) { s.User = "65534" }}},
		{"", "tag", []func(*Schedule){
			func(s *Schedule) { s.Tag = "a b" }, func(s *Schedule) { s.Tag = "a,b" }, func(s *Schedule) { s.Tag = strings.Repeat("x", 65) },
			func(s *Schedule) { s.Tag = "a\n" }, func(s *Schedule) { s.Tag = "\xff" },
		}, []func(*Schedule){func(s *Schedule) { s.Tag = "eu-west/ü" }}},
		{"", "missed", []func(*Schedule){
			func(s *Schedule) { s.Missed = "some" }, func(s *Schedule) { s.Missed, s.Overlap = "all", "replace" },
		}, []func(*Schedule){func(s *Schedule) { s.Missed, s.Overlap = "all", "forbid" }, func(s *Schedule) { s.Missed = "skip" }}},
		{
			"", "overlap",
			[]func(*Schedule){func(s *Schedule) { s.Overlap = "no" }},
			[]func(*Schedule){func(s *Schedule) { s.Overlap = "replace" }},
		},
		{
			"", "first_run",
			[]func(*Schedule){func(s *Schedule) { s.FirstRun = "soon" }},
			[]func(*Schedule){func(s *Schedule) { s.FirstRun = "now" }},
		},
		{"", "missed_window", durations(func(s *Schedule) *time.Duration { return &s.MissedWindow }), nil},
		{"", "retry_delay", durations(func(s *Schedule) *time.Duration { s.RetryMaxDelay = plain.LongestDuration; return &s.RetryDelay })[:1], nil},
		{
			"", "retry_max_delay",
			append(durations(func(s *Schedule) *time.Duration { return &s.RetryMaxDelay }),
				func(s *Schedule) { s.RetryDelay, s.RetryMaxDelay = time.Hour, time.Minute }),
			[]func(*Schedule){func(s *Schedule) { s.RetryDelay = 2 * time.Hour }},
		},
		{
			"", "timeout", durations(func(s *Schedule) *time.Duration { return &s.Timeout }),
			[]func(*Schedule){func(s *Schedule) { *s = good("sql"); s.Timeout = time.Hour }},
		},
		{
			"", "stall", append(durations(func(s *Schedule) *time.Duration { return &s.Stall }),
				func(s *Schedule) { *s = good("func"); s.Stall = time.Second }, func(s *Schedule) { s.Stall = time.Second - 1 }),
			[]func(*Schedule){func(s *Schedule) { s.Stall = time.Second }},
		},
		{
			"", "kill_grace", append(durations(func(s *Schedule) *time.Duration { return &s.KillGrace }),
				func(s *Schedule) { *s = good("func"); s.KillGrace = time.Second }),
			[]func(*Schedule){func(s *Schedule) { s.KillGrace = time.Millisecond }},
		},
		{
			"", "linger", append(durations(func(s *Schedule) *time.Duration { return &s.Linger })[1:],
				func(s *Schedule) { *s = good("func"); s.Linger = time.Minute }),
			[]func(*Schedule){func(s *Schedule) { s.Linger = -1 }, func(s *Schedule) { *s = good("func"); s.Linger = time.Second }},
		},
		{"", "jitter", durations(func(s *Schedule) *time.Duration { return &s.Jitter }), nil},
		{
			"", "keep_for", durations(func(s *Schedule) *time.Duration { return &s.KeepFor })[1:],
			[]func(*Schedule){func(s *Schedule) { s.KeepFor = -1 }, func(s *Schedule) { s.KeepFor = -time.Hour }},
		},
		{
			"", "max_attempts",
			[]func(*Schedule){func(s *Schedule) { s.MaxAttempts = -1 }, func(s *Schedule) { s.MaxAttempts = 1001 }},
			[]func(*Schedule){func(s *Schedule) { s.MaxAttempts = 1000 }},
		},
		{"", "max_failures", []func(*Schedule){func(s *Schedule) { s.MaxFailures = -1 }, func(s *Schedule) { s.MaxFailures = 1_000_001 }}, nil},
		{
			"", "keep_runs",
			[]func(*Schedule){func(s *Schedule) { s.KeepRuns = -2 }, func(s *Schedule) { s.KeepRuns = 1_000_001 }},
			[]func(*Schedule){func(s *Schedule) { s.KeepRuns = -1 }, func(s *Schedule) { s.KeepRuns = 1 }},
		},
		{"", "starts", []func(*Schedule){
			func(s *Schedule) { s.Starts = time.Unix(1, 0) },
			func(s *Schedule) { s.Starts = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC) },
		}, nil},
		{"", "ends", []func(*Schedule){
			func(s *Schedule) { s.Ends = time.Unix(1, 0) }, func(s *Schedule) { s.Starts, s.Ends = at(time.Hour), at(0) },
		}, []func(*Schedule){func(s *Schedule) { s.Starts, s.Ends = at(0), at(0) }}},
		{
			"", "on_success",
			[]func(*Schedule){func(s *Schedule) { s.OnSuccess = " " }, func(s *Schedule) { s.OnSuccess = "a\n" }},
			[]func(*Schedule){func(s *Schedule) { s.OnSuccess = "job" }},
		},
		{
			"", "on_failure",
			[]func(*Schedule){func(s *Schedule) { s.OnFailure = strings.Repeat("x", 201) }},
			[]func(*Schedule){func(s *Schedule) { s.OnFailure = "ä b" }},
		},
		{"", "notify", []func(*Schedule){
			func(s *Schedule) { s.Notify = "somebody" }, func(s *Schedule) { s.Notify = "mailto:a@b@c" },
			func(s *Schedule) { s.Notify = "https://ada:secret@example.org/" },
			func(s *Schedule) { s.Notify = "ftp://example.org" }, func(s *Schedule) { s.Notify = "mailto:a<b@c" },
			func(s *Schedule) { s.Notify = "mailto:-f" },
		}, []func(*Schedule){
			func(s *Schedule) { s.Notify = "none" }, func(s *Schedule) { s.Notify = "mailto:root" },
			func(s *Schedule) { s.Notify = "a@b.example,https://example.org/x?y=z" },
		}},
	} {
		for i, spoil := range c.bad {
			s := good(c.kind)
			spoil(&s)
			all := s.Problems()
			if got := fieldsOf(all); !slices.Equal(got, []string{c.field}) {
				t.Errorf("%s %s, %d: problems %q", c.kind, c.field, i, all)
			}
			if err := s.check(); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), c.field+": ") || len(err.Error()) > 2000 {
				t.Errorf("%s %s, %d: %.2000v", c.kind, c.field, i, err)
			}
			for _, p := range all {
				if p.Text == "" || strings.Contains(p.Text, ErrInvalid.Error()) {
					t.Errorf("%s %s, %d: says %q", c.kind, c.field, i, p.Text)
				}
			}
		}
		for i, change := range c.good {
			s := good(c.kind)
			change(&s)
			if all := s.Problems(); len(all) > 0 {
				t.Errorf("%s %s, %d is good, and has problems %q", c.kind, c.field, i, all)
			}
		}
	}
	for _, kind := range kinds {
		s := good(kind)
		if all := s.Problems(); len(all) > 0 {
			t.Errorf("%s: %q", kind, all)
		}
	}
}

// durations are bad durations of a field: less than nothing, too small, too long.
func durations(of func(*Schedule) *time.Duration) (bad []func(*Schedule)) {
	for _, d := range []time.Duration{-time.Second, time.Microsecond, plain.LongestDuration + 1} {
		bad = append(bad, func(s *Schedule) { *of(s) = d })
	}
	return bad
}

// Add and Edit tell all that is wrong at once, and change nothing.
func TestAllProblemsAtOnce(t *testing.T) {
	clockedMemory(t, func(t *testing.T, db *dbtest.DB) {
		bad := Schedule{
			Name: "job", Spec: "61 * * * *", Kind: "argv", Command: "ls", Dir: "here", User: "a b", Tag: "a,b", Headers: map[string]string{"A": "x"},
			Policy: Policy{Missed: "x", Overlap: "y", Timeout: -1, MaxAttempts: -1, Starts: at(2), Ends: at(1), OnSuccess: " "},
		}
		want := []string{"command", "dir", "ends", "headers", "max_attempts", "missed", "on_success", "overlap", "spec", "tag", "timeout", "user"}
		if got := fieldsOf(bad.Problems()); !slices.Equal(got, want) {
			// Times of the same millisecond are the same.
			if !slices.Equal(got, slices.DeleteFunc(slices.Clone(want), func(f string) bool { return f == "ends" })) {
				t.Errorf("problems of %q, want %q", got, want)
			}
		}
		add(t, db, "job", "@every 1h")
		before := stored(t, db, "job")
		for what, err := range map[string]error{"Add": Add(t.Context(), db.DB, bad), "Edit": Edit(t.Context(), db.DB, bad)} {
			if !errors.Is(err, ErrInvalid) {
				t.Errorf("%s: %v, want ErrInvalid", what, err)
				continue
			}
			for _, p := range bad.Problems() {
				if !strings.Contains(err.Error(), p.Field+": "+p.Text) {
					t.Errorf("%s does not say %s: %v", what, p.Field, err)
				}
			}
		}
		if after := stored(t, db, "job"); !equal(before, after) {
			t.Errorf("it was %+v, and is %+v", before, after)
		}
	})
}

// full is a schedule all of whose settings differ from the defaults.
func full(name string) Schedule {
	return Schedule{
		Name: name, Spec: "30 4 * * 1-5", Zone: "Europe/Berlin", DST: "wall", Kind: "argv", Command: Argv("a", "b c"), Stdin: "in\n",
		Env: map[string]string{"A": "b", "SHELL": "/bin/bash"}, Dir: "/tmp", User: "nobody", Tag: "gpu",
		Policy: Policy{
			Missed: "all", MissedWindow: 90 * time.Second, Overlap: "queue", FirstRun: "now", MaxAttempts: 3, RetryDelay: 1500 * time.Millisecond,
			RetryMaxDelay: 36 * time.Hour, RetryPastNext: true, Unrepeatable: true, Timeout: time.Hour,
			Stall: 3 * time.Minute, KillGrace: 20 * time.Second, Linger: time.Minute, Jitter: 7 * time.Minute,
			Starts: at(-time.Hour), Ends: at(1000 * time.Hour), MaxFailures: 9, KeepRuns: 77, KeepFor: -1,
			OnSuccess: "next", OnFailure: "ä", Notify: "ada@example.org https://example.org/in",
		},
	}
}

// sameSettings compares all that a person can set but the first run.
func sameSettings(a, b Schedule) bool {
	a, b = a.filled(), b.filled()
	times := a.Starts.Equal(b.Starts) && a.Ends.Equal(b.Ends)
	policyA, policyB := a.Policy, b.Policy
	for _, p := range []*Policy{&policyA, &policyB} {
		p.Starts, p.Ends, p.FirstRun = time.Time{}, time.Time{}, ""
		p.KeepFor = max(p.KeepFor, -1)
	}
	return times && policyA == policyB && maps.Equal(a.Env, b.Env) && maps.Equal(a.Headers, b.Headers) &&
		a.Name == b.Name && a.Spec == b.Spec && a.Zone == b.Zone && a.DST == b.DST && a.Kind == b.Kind && a.Command == b.Command &&
		a.Stdin == b.Stdin && a.Dir == b.Dir && a.User == b.User && a.Tag == b.Tag
}

// All settings are stored, by Add and by Edit, and omitted ones get their defaults.
func TestEverySettingIsStored(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		addJob(t, db, full("added"))
		if got := stored(t, db, "added"); !sameSettings(got, full("added")) || got.FirstRun != "now" || !got.Due.Equal(at(0)) {
			t.Errorf("added: %+v", got)
		}
		add(t, db, "edited", "@every 1h")
		if err := Edit(t.Context(), db.DB, full("edited")); err != nil {
			t.Fatal(err)
		}
		if got := stored(t, db, "edited"); !sameSettings(got, full("edited")) || !got.Due.After(at(0)) {
			t.Errorf("edited: %+v", got)
		}
		plain := Schedule{Name: "edited", Spec: "@every 2h", Command: "true"}
		if err := Edit(t.Context(), db.DB, plain); err != nil {
			t.Fatal(err)
		}
		if got := stored(t, db, "edited"); !sameSettings(got, plain) || !got.Due.Equal(at(2*time.Hour)) {
			t.Errorf("edited again: %+v", got)
		}
		request := Schedule{
			Name: "added", Spec: "@manual", Kind: "http", Command: "GET http://localhost/",
			Headers: map[string]string{"A": "é"}, Policy: Policy{KeepRuns: -1},
		}
		if err := Edit(t.Context(), db.DB, request); err != nil {
			t.Fatal(err)
		}
		if got := stored(t, db, "added"); !sameSettings(got, request) || !got.Due.IsZero() {
			t.Errorf("a request now: %+v", got)
		}
	})
}

// Edit keeps the next slot unless the times change; then slots that have come
// and have not run are recorded.
func TestEdit(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		edit := func(name, spec, command string) {
			t.Helper()
			if err := Edit(t.Context(), db.DB, Schedule{Name: name, Spec: spec, Command: command}); err != nil {
				t.Fatal(err)
			}
		}
		for _, name := range []string{"command", "times", "both", "paused", "failed"} {
			add(t, db, name, "@every 1h")
		}
		paused(t, db, "paused")
		db.Do(t, `UPDATE {prefix}schedule SET state = 'failed', reason = 'for a test' WHERE name = 'failed'`, nil)
		db.Advance(t, 150*time.Minute)
		edit("command", "@every 1h", "echo new")
		edit("times", "0 */2 * * *", "echo times")
		edit("both", "@every 7h", "echo new")
		edit("paused", "@every 1h", "echo new")
		edit("failed", "@every 1h", "echo new")
		for name, due := range map[string]time.Duration{
			"command": time.Hour, "times": 3 * time.Hour,
			"both": 9*time.Hour + 30*time.Minute, "paused": time.Hour,
		} {
			if got := stored(t, db, name); !got.Due.Equal(at(due)) {
				t.Errorf("%s is due at %v, want %v", name, got.Due, at(due))
			}
		}
		if p, f := stored(t, db, "paused"), stored(t, db, "failed"); p.State != "paused" || p.Reason != "for a test" ||
			f.State != "failed" || f.Command != "echo new" {
			t.Errorf("%+v, %+v", p, f)
		}
		wantRows(t, db, "", "both 3600 1 missed to 7200: 2", "times 3600 1 missed to 7200: 2")
		work(t, daemon(t, db, Options{}))
		if all := allRuns(t, db, "command"); len(all) != 2 || all[1].Output != "new\n" {
			t.Errorf("%+v", all)
		}
		db.Advance(t, time.Hour)
		work(t, daemon(t, db, Options{}))
		wantRows(t, db, "times", "3600 1 missed to 7200: 2", "10800 1 ok")
	})
}

// Slots that came while a schedule was paused are recorded, even if its times are changed
// before it is resumed.
func TestEditOfAPausedSchedule(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		add(t, db, "job", "0 * * * *")
		paused(t, db, "job")
		db.Advance(t, 150*time.Minute)
		if err := Edit(t.Context(), db.DB, Schedule{Name: "job", Spec: "30 * * * *", Command: "true"}); err != nil {
			t.Fatal(err)
		}
		db.Advance(t, time.Minute)
		resumed(t, db, "job")
		work(t, daemon(t, db, Options{}))
		var slots int64
		for _, r := range allRuns(t, db, "job") {
			if r.State == "skipped" || r.State == "missed" {
				slots += r.Slots
			}
		}
		if slots != 2 {
			t.Errorf("2 slots came while it was paused, and %d are recorded: %q", slots, rows(t, db, "job"))
		}
	})
}

// Edit refuses schedules that do not exist, come from a file, or have no slot.
func TestEditRefuses(t *testing.T) {
	clockedMemory(t, func(t *testing.T, db *dbtest.DB) {
		add(t, db, "job", "@every 1h")
		imported(t, db, "file", entry("managed", "@every 1h", "true"))
		for name, want := range map[string]error{"unknown": ErrNotFound, "managed": ErrManaged} {
			err := Edit(t.Context(), db.DB, Schedule{Name: name, Spec: "@every 2h", Command: "false"})
			if !errors.Is(err, want) || !strings.Contains(err.Error(), name) {
				t.Errorf("%s: %v, want %v", name, err, want)
			}
		}
		if err := Edit(t.Context(), db.DB, Schedule{
			Name: "job", Spec: "0 0 1 1 *", Command: "true",
			Policy: Policy{Ends: at(time.Hour)},
		}); !errors.Is(err, ErrInvalid) || strings.Count(err.Error(), ":00Z") != 2 {
			t.Errorf("no slot before its end: %v, want ErrInvalid, and two times with their zone", err)
		}
		if got := stored(t, db, "managed"); got.Spec != "@every 1h" || got.Command != "true" || got.Source != "file" {
			t.Errorf("%+v", got)
		}
	})
}

// Daemons that claim while a schedule is edited lose no slot, and run none twice.
func TestEditBesideAClaim(t *testing.T) {
	clockedHaving(t, dbtest.SeveralWriters, func(t *testing.T, db *dbtest.DB) {
		add(t, db, "job", "0 * * * *")
		db.Advance(t, time.Hour)
		free := lockRow(t, db, `UPDATE {prefix}schedule SET stdin = 'x' WHERE name = 'job'`)
		edited := make(chan error, 1)
		go func() {
			edited <- Edit(t.Context(), db.DB, Schedule{Name: "job", Spec: "30 * * * *", Command: "true"})
		}()
		if got := claimed(t, daemon(t, db, Options{}), 1); len(got) != 0 {
			t.Errorf("claimed %d while it was locked", len(got))
		}
		free()
		if err := <-edited; err != nil {
			t.Error(err)
		}
		wantRows(t, db, "job", "3600 1 missed to 3600: 1")
		if got := claimed(t, daemon(t, db, Options{}), 1); len(got) != 0 {
			t.Errorf("claimed %d of a slot that is no more", len(got))
		}
		db.Do(t, `UPDATE {prefix}schedule SET stdin = 'x'`, sqlrun.Args{})
	})
}
