package manifest_test

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/dbcron/dbcron/internal/ops/manifest"
	"github.com/dbcron/dbcron/scheduler"
)

// drawText draws texts that are hard to write: YAML takes them for another type or gives them a
// meaning, or they contain invisible characters.
func drawText(t *rapid.T, label string) string {
	switch rapid.IntRange(0, 3).Draw(t, label+" is") {
	case 0:
		return rapid.SampledFrom([]string{
			"yes", "n", "~", "null", "", " ", "5", "0o7", "010", "1_000", "12:30", "1e3", ".5", "+1", "-", "--", "---", "...", "-x", "--all", "- a",
			"*/5 * * * *", "@daily", "&a", "!a", "%a", "`a`", "|", "> a", "? a", ": ", "a: b", "a:", "a:b", "a #b",
			"#a", "a#", "[a]", "{a}", "a, b", "<<", "=",
			"'", `"`, `'a' "b"`, `\`, `a\nb`, "\u00e9", "4時", "\u2028", "\u0085", "\ufeff", "\x1b", "\x7f", "\u00a0",
			"\U0001f600", "\u00ad", "\ufffd", "\ufffe",
			"2026-01-01", "2026-01-01T00:00:00Z", "true", "TRUE", ".inf", "0x1F", "a?b", "a\tb", "\ta", "a\t", "\r",
			"a\r\nb", "$HOME/bin", "(a)", "../a",
		}).Draw(t, label)
	case 1:
		return rapid.String().Draw(t, label)
	case 2:
		return rapid.StringMatching(`[a-z:#'"\\\[\]{}&*!|>%@, -]{0,20}`).Draw(t, label)
	}
	lines := rapid.SliceOfN(rapid.SampledFrom([]string{
		"", "", " ", "a", "  a", "a ", "\ta", "a\tb", "# a",
		"- a", "a: b", "---", "...", "%a", "é", "\"", "\u2028",
	}), 2, 6)
	return strings.Join(lines.Draw(t, label), "\n")
}

// drawSchedule draws a valid schedule.
func drawSchedule(t *rapid.T, name string) scheduler.Schedule {
	fits := func(label string, field string, set func(*scheduler.Schedule, string)) string {
		return rapid.Custom(func(t *rapid.T) string { return drawText(t, label) }).Filter(func(text string) bool {
			s := scheduler.Schedule{Name: "a", Spec: "@daily", Command: "x"}
			set(&s, text)
			for _, p := range s.Problems() {
				if p.Field == field {
					return false
				}
			}
			return true
		}).Draw(t, label)
	}
	maybe := func(label string) bool { return rapid.IntRange(0, 3).Draw(t, "has "+label) == 0 }
	duration := func(label string) time.Duration {
		if !maybe(label) {
			return 0
		}
		unit := rapid.SampledFrom([]time.Duration{
			time.Microsecond, time.Millisecond, time.Second, time.Minute,
			time.Hour, 24 * time.Hour,
		}).Draw(t, "unit")
		return max(time.Millisecond, unit*time.Duration(rapid.IntRange(1, 18000).Draw(t, label)))
	}
	word := func(label string, words ...string) string { return rapid.SampledFrom(append(words, "")).Draw(t, label) }
	number := func(label string, from, to int) int {
		if !maybe(label) {
			return 0
		}
		return rapid.IntRange(from, to).Draw(t, label)
	}
	instant := func(label string, from int) (at time.Time) {
		if maybe(label) {
			at = time.UnixMilli(rapid.Int64Range(1e12, 1e13).Draw(t, label)).UTC().AddDate(from, 0, 0)
		}
		return at
	}
	s := scheduler.Schedule{
		Name: name, Key: "name:" + name,
		Spec: word("spec", "30 3 * * *", "*/5 * * * *", "@every 15m", "@manual"),
		Zone: word("zone", "UTC", "Europe/Berlin"), DST: word("dst", "vixie", "wall"),
		Kind:  rapid.SampledFrom([]string{"shell", "argv", "http", "sql", "func", "job"}).Draw(t, "kind"),
		Tag:   word("tag", "default", "yes", "a:b"),
		State: word("state", "paused"),
		Policy: scheduler.Policy{
			Missed: word("missed", "skip", "once", "all"), MissedWindow: duration("window"), Overlap: word("overlap", "forbid", "queue"),
			FirstRun: word("first", "next", "now"), MaxAttempts: number("attempts", 1, 1000), RetryDelay: duration("delay"),
			RetryPastNext: maybe("past"), Unrepeatable: maybe("once"), Timeout: duration("timeout"), Jitter: duration("jitter"),
			Starts: instant("starts", 0), Ends: instant("ends", 400), MaxFailures: number("failures", 1, 1_000_000),
			KeepRuns: number("runs", -1, 1_000_000), KeepFor: duration("keep"), OnSuccess: word("success", "a", "yes"),
			OnFailure: word("failure", "a", "é b"),
		},
	}
	s.Spec += map[bool]string{true: "@daily"}[s.Spec == ""]
	if maybe("forever") {
		s.KeepFor = -1
	}
	if s.RetryDelay > 0 && maybe("max") {
		s.RetryMaxDelay = s.RetryDelay + duration("more")
	}
	if s.Kind != "sql" && s.Kind != "job" && maybe("stdin") {
		s.Stdin = fits("stdin", "stdin", func(s *scheduler.Schedule, text string) { s.Stdin = text })
	}
	texts := func(label, field string, set func(*scheduler.Schedule, map[string]string)) (all map[string]string) {
		for i := range rapid.IntRange(0, 3).Draw(t, label+"s") {
			key := fits(fmt.Sprint(label, i), field, func(s *scheduler.Schedule, text string) { set(s, map[string]string{text: ""}) })
			if slices.ContainsFunc(slices.Collect(maps.Keys(all)), func(k string) bool { return strings.EqualFold(k, key) }) {
				continue // names of headers are case-insensitive
			}
			value := fits(fmt.Sprint(label, " value", i), field, func(s *scheduler.Schedule, text string) { set(s, map[string]string{"A": text}) })
			if all == nil {
				all = map[string]string{}
			}
			all[key] = value
		}
		return all
	}
	switch s.Kind {
	case "shell", "argv":
		s.KillGrace = duration("grace")
		if maybe("stalls") { // a second at least
			s.Stall = max(time.Second, duration("stall"))
		}
		s.Env = texts("variable", "env", func(s *scheduler.Schedule, env map[string]string) { s.Env = env })
		s.Dir = fits("dir", "dir", func(s *scheduler.Schedule, text string) { s.Dir = text })
		s.User = fits("user", "user", func(s *scheduler.Schedule, text string) { s.User = text })
		if s.Kind == "argv" {
			words := []string{"/bin/a"}
			for i := range rapid.IntRange(0, 4).Draw(t, "words") {
				words = append(words, strings.ReplaceAll(drawText(t, fmt.Sprint("word", i)), "\x00", ""))
			}
			s.Command = scheduler.Argv(words...)
			return s
		}
	case "http":
		s.Command = rapid.SampledFrom([]string{"GET https://a/", "POST http://a:80/b?c=d&e=[f]#g", "M-SEARCH https://a/ b: c"}).Draw(t, "request")
		s.Headers = texts("header", "headers", func(s *scheduler.Schedule, h map[string]string) {
			s.Kind, s.Command, s.Headers = "http", "GET http://a", h
		})
		return s
	}
	kind := s.Kind
	if kind == "job" {
		s.MaxAttempts, s.Timeout = 0, 0
		s.Stdin = word("payload", `{"a":  [1, "ü"]}`, "[\n  1\n]\n", "5")
		s.Job = scheduler.JobOptions{
			Queue: word("queue", "default", "yes"), Key: word("key", "k: l"), Priority: number("priority", 1, 4),
			MaxAttempts: number("tries", 1, 1000), Timeout: duration("attempt"),
		}
	}
	s.Command = fits("command", "command", func(s *scheduler.Schedule, text string) { s.Kind, s.Command = kind, text })
	return s
}

func drawSchedules(t *rapid.T) (all []scheduler.Schedule) {
	names := map[string]bool{}
	for range rapid.IntRange(0, 4).Draw(t, "schedules") {
		name := rapid.Custom(func(t *rapid.T) string { return drawText(t, "name") }).Filter(func(name string) bool {
			return scheduler.CheckName(name) == nil && !names[name] && len(name) < 250
		}).Draw(t, "name")
		names[name] = true
		all = append(all, drawSchedule(t, name))
	}
	return all
}

func format(t rapid.TB, all []scheduler.Schedule) []byte {
	t.Helper()
	data, err := manifest.Format(all)
	if err != nil {
		t.Fatalf("%+v: %v", all, err)
	}
	return data
}

func TestFormatAndParse(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		all := drawSchedules(t)
		data := format(t, all)
		again, err := manifest.Parse("file", data)
		if err != nil {
			t.Fatalf("%s\n%v", data, err)
		}
		for i := range all {
			if !reflect.DeepEqual(again[i], all[i]) {
				t.Fatalf("%s\ngot  %+v\nwant %+v", data, again[i], all[i])
			}
		}
		if len(again) != len(all) {
			t.Fatalf("%s\ngot %d schedules, want %d", data, len(again), len(all))
		}
		if twice := format(t, again); !bytes.Equal(twice, data) {
			t.Fatalf("got\n%s\nwant\n%s", twice, data)
		}
		if bytes.Contains(data, []byte(" \n")) && !bytes.Contains(data, []byte(`"`)) {
			t.Fatalf("%q: a blank ends a line", data)
		}
	})
}

func TestFormat(t *testing.T) {
	t.Parallel()
	const filled = `
defaults:
  time_zone: UTC
  dst: vixie
  tag: default
  missed: once
  max_attempts: 1
  retry_delay: 10s
  keep_for: 30d

schedules:
  - name: "yes"
    spec: "@daily"
    shell: |-
      set -e
      make

      make install
    env:
      A: ""
      "N": "1"
      é x: it's "so"
    starts: 2026-11-26T23:00:00.5Z
    keep_runs: 5
    paused: true

  - name: b
    spec: "*/5 * * * *"
    argv: [ls, -l, "", "a,b", "5", "é", a=b, "-"]
    time_zone: Asia/Tokyo
    keep_runs: all

  - name: c
    spec: "@manual"
    http:
      method: GET
      url: https://example.org/?a=b
    missed: all
    keep_for: forever
`
	all := parse(t, filled)
	row := all[1]
	row.ID, row.Source, row.Key, row.State, row.Reason, row.Due, row.Failures = 5, "x.yaml", "line:0", "failed", "why", time.Unix(5, 0), 3
	row.Command = `[ "ls", "-l", "", "a\u002cb", "5", "é", "a=b", "-" ]`
	row.Env = map[string]string{}
	all[1] = row
	all[2].State, all[2].KeepFor = "active", -time.Hour
	all[0].Starts = all[0].Starts.In(time.FixedZone("", 3600))
	if got := string(format(t, all)); got != filled[1:] {
		t.Errorf("got\n%s\nwant\n%s", got, filled[1:])
	}
	if got := string(format(t, nil)); got != "schedules: []\n" {
		t.Errorf("got %q", got)
	}
}

// TestTexts shows how texts are written: as people would write them, and so that no other YAML
// reader takes them for another type.
func TestTexts(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"ls -l | wc > /tmp/x && y; z": "ls -l | wc > /tmp/x && y; z", "4時": "4時", "$HOME/bin/x": "$HOME/bin/x",
		"a:b#c": "a:b#c", "-x": "-x", "--all": "--all",
		`echo "a"`: `echo "a"`, `"a" b`: `'"a" b'`, `"it's"`: `'"it''s"'`, `\d`: `'\d'`, "'a'": `"'a'"`,
		"a: b": `"a: b"`, "a #b": `"a #b"`, "#a": `"#a"`, "a:": `"a:"`,
		"yes": `"yes"`, "N": `"N"`, "null": `"null"`, "~": `"~"`, "5": `"5"`, "1e3": `"1e3"`, "12:30": `"12:30"`,
		"1_000": `"1_000"`, "0o7": `"0o7"`, "2026-01-01": `"2026-01-01"`,
		"- a": `"- a"`, "-": `"-"`, "---": `"---"`, "*": `"*"`, "@x": `"@x"`, "[a]": `"[a]"`, "! a": `"! a"`,
		" a": `" a"`, "a ": `"a "`, "a\u2028": `"a\u2028"`, "a\tb": `"a\tb"`,
		"a\nb": "|-\n      a\n      b", "a\n\n\tb\n": "|\n      a\n\n      \tb", "a\nb\n\n": `"a\nb\n\n"`,
		" a\nb": `" a\nb"`, "a \nb": `"a \nb"`, "\na": `"\na"`, "a\r\nb": `"a\r\nb"`,
	} {
		got := string(format(t, []scheduler.Schedule{{Name: "a", Spec: "@daily", Kind: "shell", Command: text}}))
		if want := "schedules:\n  - name: a\n    spec: \"@daily\"\n    shell: " + want + "\n"; got != want {
			t.Errorf("%q: got\n%s\nwant\n%s", text, got, want)
		}
	}
}

// TestWhatIsNoDefault shows keys that all schedules share but that do not become defaults: one
// schedule shares nothing with others, later commands may join, and an alarm is not its own.
func TestWhatIsNoDefault(t *testing.T) {
	t.Parallel()
	one := scheduler.Schedule{
		Name: "a", Spec: "@daily", Kind: "shell", Command: "x", Dir: "/x", State: "paused", Tag: "t",
		Policy: scheduler.Policy{OnFailure: "a", Ends: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)},
	}
	const rest = "\n    spec: \"@daily\"\n    shell: x\n    dir: /x\n"
	const end = "    ends: 2026-01-01T00:00:00Z\n    on_failure: a\n    paused: true\n"
	if got, want := string(format(t, []scheduler.Schedule{one})), "schedules:\n  - name: a"+rest+"    tag: t\n"+end; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	two := one
	two.Name = "b"
	want := "defaults:\n  tag: t\n\nschedules:\n  - name: a" + rest + end + "\n  - name: b" + rest + end
	if got := string(format(t, []scheduler.Schedule{one, two})); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestFormatRefuses(t *testing.T) {
	t.Parallel()
	good := scheduler.Schedule{Name: "a", Spec: "@daily", Command: "x"}
	bad := good
	bad.Name, bad.Timeout = "b", -1
	worse := good
	worse.Name, worse.Spec = "c", ""
	odd := good
	odd.Name, odd.Env = "d", map[string]string{strings.Repeat("x", 2000): "y"}
	fine := good
	fine.Name, fine.Starts = "e", time.Unix(1e9, 1)
	for want, all := range map[string][]scheduler.Schedule{
		"schedule \"b\": timeout: -1ns is negative\nschedule \"c\": spec: spec \"\": it is empty": {good, bad, worse},
		`schedule "a": its name is given twice`:                                                   {good, good},
		"do not fit into a file":                                                                  {good, odd},
		"is finer than a millisecond":                                                             {fine},
	} {
		data, err := manifest.Format(all)
		if err == nil || !strings.Contains(err.Error(), want) || data != nil {
			t.Errorf("got %q, %v, want %s", data, err, want)
		}
	}
}

// withoutForm returns what a file says about schedules, in one form where there are two.
func withoutForm(all []scheduler.Schedule) []scheduler.Schedule {
	for i := range all {
		if all[i].State == "active" {
			all[i].State = "" // not written: otherwise an import would resume paused schedules
		}
		if len(all[i].Headers) == 0 {
			all[i].Headers = nil
		}
	}
	return all
}

func FuzzParse(f *testing.F) {
	example, err := os.ReadFile("../../../examples/schedules/shop.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(example))
	for _, seed := range []string{
		"", "schedules: []", "schedules:\n- {name: a, spec: '@daily', shell: x}", "defaults: &a {tag: b, <<: *a}\nschedules: [{<<: *a}]",
		"schedules:\n- name: a\n  spec: */5 * * * *\n", "a: 'b\n", "{a: [b", "\ufeff---\r\nschedules: []\r\n...\n",
		"%YAML 1.1\n---\n!!map {}", "? a\n: b",
		base("shell", "|2-\n       a\n\n      b\n"), base("shell", ">+\n      a\n\n"), base("env", "{a: !!binary aa, ? [b] : c}"),
		base("argv", "[a, \"\\u00e9\\x07\", '', *a]"), base("http", "{url: 'http://a b', method: !, headers: {A: b}, body: \"\\0\"}"),
		base("starts", "2026-03-29 02:30"), base("ends", "0001-01-01T00:00:00-23:59"), base("time_zone", "Europe/Berlin"),
		base("timeout", "9999w99999d1.5h"),
		base("keep_for", "forever"), base("keep_runs", "all"), base("paused", "false"), base("on_failure", "&x a\n    on_success: *x"),
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		all, err := manifest.Parse("file", []byte(text))
		if err != nil {
			messages(t, text)
			return
		}
		data, err := manifest.Format(all)
		if err != nil {
			if strings.Contains(err.Error(), "do not fit into a file") {
				return // for example, for a key of 2000 characters
			}
			t.Fatalf("%q: %v", text, err)
		}
		again, err := manifest.Parse("file", data)
		if err != nil || len(again) != len(all) || !reflect.DeepEqual(withoutForm(again), withoutForm(all)) {
			t.Fatalf("%q\n%s\ngot  %+v, %v\nwant %+v", text, data, again, err, all)
		}
		if twice := format(t, again); !bytes.Equal(twice, data) {
			t.Fatalf("got\n%s\nwant\n%s", twice, data)
		}
	})
}
