package manifest_test

import (
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dbcron/dbcron/internal/ops/manifest"
	"github.com/dbcron/dbcron/scheduler"
)

func parse(t *testing.T, text string) []scheduler.Schedule {
	t.Helper()
	all, err := manifest.Parse("file", []byte(text))
	if err != nil {
		t.Fatalf("%s\n%v", text, err)
	}
	return all
}

func TestFile(t *testing.T) {
	t.Parallel()
	got := parse(t, "\ufeff"+strings.ReplaceAll(`
# What the shop does at night.
defaults:
  time_zone: Europe/Berlin
  env: {LANG: C, PGHOST: db0}
  timeout: 2h
schedules:
  - name: backup
    spec: "30 3 * * *"
    shell: pg_dump shop | gzip > /backup/shop.gz # nightly
    timeout: 1h
    env: {PGHOST: db1}
  - name: report
    spec: "@every 15m"
    http: {method: POST, url: https://example.org/report, headers: {Authorization: Bearer x}, body: '{"a":1}'}
    starts: 2026-11-27 00:00
    ends: "2026-12-31T18:00:00.25+01:00"
  - {name: clean, spec: "@daily", sql: "DELETE FROM session WHERE expires < now()", timeout: ""}
  - {name: mail, spec: "@hourly", argv: [/usr/local/bin/mail, --all, "", <a&b>], stdin: "4時\n", time_zone: UTC}
  - {name: count, spec: 0 9 * * 1-5, func: count, input: "text", keep_runs: all, keep_for: forever, paused: true}
  - name: lines
    spec: "@weekly"
    paused: false
    shell: |
      # not a comment
      make clean

      make -j2	all
`, "\n", "\r\n"))
	berlin := scheduler.Policy{Timeout: 2 * time.Hour}
	want := []scheduler.Schedule{
		{
			Name: "backup", Spec: "30 3 * * *", Kind: "shell", Command: "pg_dump shop | gzip > /backup/shop.gz",
			Env: map[string]string{"LANG": "C", "PGHOST": "db1"}, Policy: scheduler.Policy{Timeout: time.Hour},
		},
		{
			Name: "report", Spec: "@every 15m", Kind: "http", Command: "POST https://example.org/report",
			Headers: map[string]string{"Authorization": "Bearer x"}, Stdin: `{"a":1}`,
			Policy: scheduler.Policy{
				Timeout: 2 * time.Hour,
				Starts:  time.Date(2026, 11, 26, 23, 0, 0, 0, time.UTC), Ends: time.Date(2026, 12, 31, 17, 0, 0, 250e6, time.UTC),
			},
		},
		{Name: "clean", Spec: "@daily", Kind: "sql", Command: "DELETE FROM session WHERE expires < now()"},
		{
			Name: "mail", Spec: "@hourly", Zone: "UTC", Kind: "argv", Stdin: "4時\n", Policy: berlin,
			Command: scheduler.Argv("/usr/local/bin/mail", "--all", "", "<a&b>"), Env: map[string]string{"LANG": "C", "PGHOST": "db0"},
		},
		{
			Name: "count", Spec: "0 9 * * 1-5", Kind: "func", Command: "count", Stdin: "text", State: "paused",
			Policy: scheduler.Policy{Timeout: 2 * time.Hour, KeepRuns: -1, KeepFor: -1},
		},
		{
			Name: "lines", Spec: "@weekly", Kind: "shell", Command: "# not a comment\nmake clean\n\nmake -j2\tall\n", Policy: berlin,
			Env: map[string]string{"LANG": "C", "PGHOST": "db0"}, State: "active",
		},
	}
	if len(got) != len(want) {
		t.Fatalf("got %d schedules, want %d", len(got), len(want))
	}
	for i := range want {
		want[i].Key = "name:" + want[i].Name
		if want[i].Zone == "" {
			want[i].Zone = "Europe/Berlin"
		}
		if !reflect.DeepEqual(got[i], want[i]) {
			t.Errorf("got  %+v\nwant %+v", got[i], want[i])
		}
	}
}

func TestNoSchedules(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"schedules: []", "---\nschedules: [] # none\n...\n", "defaults: {tag: a}\nschedules: []", "{schedules: []}",
		"%YAML 1.1\n---\nschedules: []", "x-any: [&a !foo 010, *a]\nschedules:\n  []",
	} {
		if got := parse(t, text); len(got) != 0 {
			t.Errorf("%q: got %v, want no schedules", text, got)
		}
	}
}

func TestAnchors(t *testing.T) {
	t.Parallel()
	got := parse(t, `
x-slow: &slow {timeout: 2h, jitter: 5m, tag: slow}
x-env: &env
  PGHOST: db1
  PGPORT: "5432"
schedules:
  - &first
    name: &a a
    spec: &hourly "@hourly"
    shell: "true"
    env: *env
    on_failure: *a
  - {<<: *slow, name: b, spec: *hourly, shell: x, timeout: 1h}
  - {name: c, spec: *hourly, shell: x, <<: [{tag: fast}, *slow], env: {PGHOST: db2, <<: *env}}
  - {<<: {<<: *first}, name: d}
`)
	var all []string
	for _, s := range got {
		all = append(all, fmt.Sprintf("%s %s %s %s %v %v %s", s.Name, s.Command, s.Tag, s.Timeout, s.Jitter, s.Env, s.OnFailure))
	}
	want := []string{
		"a true  0s 0s map[PGHOST:db1 PGPORT:5432] a",
		"b x slow 1h0m0s 5m0s map[] ",
		"c x fast 2h0m0s 5m0s map[PGHOST:db2 PGPORT:5432] ",
		"d true  0s 0s map[PGHOST:db1 PGPORT:5432] a",
	}
	if !slices.Equal(all, want) {
		t.Errorf("got  %q\nwant %q", all, want)
	}
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	got := parse(t, `
schedules:
  - {name: a, shell: x}
  - {name: b, http: {url: http://b}, spec: "@daily", time_zone: "", timeout: 0s, max_attempts: 1, paused: false}
  - {name: alarm, func: f, retry_past_next: false, on_success: "", starts: 2026-07-01 00:00, keep_for: ""}
  - {name: d, argv: [x], env: {A: "", C: c}, dir: "", user: "", kill_grace: "", retry_delay: ""}
defaults:
  spec: "@manual"
  time_zone: Asia/Tokyo
  timeout: 1h
  max_attempts: 3
  retry_delay: 1s
  retry_past_next: true
  env: {A: a, B: b}
  dir: /a
  user: u
  kill_grace: 1s
  on_failure: alarm
  on_success: b
  starts: 2026-07-01 09:00
  paused: true
  keep_for: 1w
`)
	starts := time.Date(2026, 7, 1, 0, 0, 0, 0, time.UTC)
	const week = 7 * 24 * time.Hour
	want := []scheduler.Schedule{
		{
			Name: "a", Spec: "@manual", Zone: "Asia/Tokyo", Kind: "shell", Command: "x",
			Env: map[string]string{"A": "a", "B": "b"}, Dir: "/a", User: "u", State: "paused",
			Policy: scheduler.Policy{
				MaxAttempts: 3, RetryDelay: time.Second, RetryPastNext: true, Timeout: time.Hour, KillGrace: time.Second,
				Starts: starts, KeepFor: week, OnSuccess: "b", OnFailure: "alarm",
			},
		},
		{
			Name: "b", Spec: "@daily", Kind: "http", Command: "GET http://b", State: "active",
			Policy: scheduler.Policy{
				MaxAttempts: 1, RetryDelay: time.Second, RetryPastNext: true,
				Starts: starts.Add(9 * time.Hour), KeepFor: week, OnFailure: "alarm",
			},
		},
		{
			Name: "alarm", Spec: "@manual", Zone: "Asia/Tokyo", Kind: "func", Command: "f", State: "paused",
			Policy: scheduler.Policy{
				MaxAttempts: 3, RetryDelay: time.Second, Timeout: time.Hour, Starts: starts.Add(-9 * time.Hour),
			},
		},
		{
			Name: "d", Spec: "@manual", Zone: "Asia/Tokyo", Kind: "argv", Command: `["x"]`,
			Env: map[string]string{"A": "", "B": "b", "C": "c"}, State: "paused",
			Policy: scheduler.Policy{
				MaxAttempts: 3, RetryPastNext: true, Timeout: time.Hour, Starts: starts, KeepFor: week, OnSuccess: "b", OnFailure: "alarm",
			},
		},
	}
	for i := range want {
		want[i].Key = "name:" + want[i].Name
		if !reflect.DeepEqual(got[i], want[i]) {
			t.Errorf("got  %+v\nwant %+v", got[i], want[i])
		}
	}
}

// TestExample also checks that the package forgets no field of Schedule: the example sets all of
// them.
func TestExample(t *testing.T) {
	t.Parallel()
	const name = "../../../examples/schedules/shop.yaml"
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	all := parse(t, string(data))
	notInFile := []string{"ID", "Source", "Reason", "Due", "Failures"}
	var unset func(of []reflect.Value)
	unset = func(of []reflect.Value) {
		for i := range of[0].NumField() {
			field := of[0].Type().Field(i)
			var values []reflect.Value
			for _, v := range of {
				values = append(values, v.Field(i))
			}
			switch set := slices.ContainsFunc(values, func(v reflect.Value) bool { return !v.IsZero() }); {
			case field.Anonymous:
				unset(values)
			case !field.IsExported():
			case set == slices.Contains(notInFile, field.Name):
				t.Errorf("%s: is the field %s set? %v", name, field.Name, set)
			}
		}
	}
	var values []reflect.Value
	for _, s := range all {
		values = append(values, reflect.ValueOf(s))
	}
	unset(values)
	for _, key := range knownKeys(t) {
		text := string(data) // inside a job, two of them exist as well
		if n := strings.Count(text, "\n    "+key+": ") + strings.Count(text, "\n  "+key+": ") +
			strings.Count(text, "\n    "+key+":\n"); n != 1 && key != "name" && key != "spec" {
			t.Errorf("%s: %s is there %d times, want once", name, key, n)
		}
	}
}

// knownKeys returns the keys that a message lists.
func knownKeys(t *testing.T) []string {
	t.Helper()
	_, err := manifest.Parse("file", []byte("schedules: [{qqqqqq: 1, name: a, spec: '@daily', shell: x}]"))
	_, known, ok := strings.Cut(fmt.Sprint(err), `unknown key "qqqqqq"; use one of `)
	if !ok {
		t.Fatalf("got %v", err)
	}
	return strings.Split(known, ", ")
}
