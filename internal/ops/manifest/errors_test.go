package manifest_test

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/dbcron/dbcron/internal/ops/manifest"
	"github.com/dbcron/dbcron/internal/setting"
	"github.com/dbcron/dbcron/scheduler"
)

// message matches each line of an error.
var message = regexp.MustCompile(`^file:([0-9]+): \S.*$`)

// messages returns the lines of a file's error.
func messages(t testing.TB, text string) []string {
	t.Helper()
	got, err := manifest.Parse("file", []byte(text))
	if err == nil {
		return nil
	}
	if got != nil {
		t.Errorf("%.1000q: got schedules and an error", text)
	}
	lines := strings.Split(err.Error(), "\n")
	for _, line := range lines {
		parts := message.FindStringSubmatch(line)
		if parts == nil {
			t.Errorf("%.1000q: %q is no message", text, line)
			continue
		}
		if n, err := strconv.Atoi(parts[1]); err != nil || n < 1 || n > strings.Count(text, "\n")+1 {
			t.Errorf("%.1000q: %q is on no line", text, line)
		}
	}
	return lines
}

// check compares messages with those wanted, "LINE: TEXT". TEXT may be part of the message.
func check(t *testing.T, text string, want ...string) {
	t.Helper()
	got := messages(t, text)
	ok := len(got) == len(want)
	for i := range min(len(got), len(want)) {
		line, part, _ := strings.Cut(want[i], ": ")
		ok = ok && strings.HasPrefix(got[i], "file:"+line+": ") && strings.Contains(got[i], part)
	}
	if !ok {
		t.Errorf("%s\ngot  %s\nwant %s", text, strings.Join(got, "\n     "), strings.Join(want, "\n     "))
	}
}

// base returns a schedule that begins on line 4 and has the given key on line 5. It omits what the
// key replaces.
func base(key, value string) string {
	lines := []string{"# A schedule.", "", "schedules:", "  - overlap: allow", "    " + key + ": " + value}
	if key == "overlap" {
		lines[3] = "  - missed: once"
	}
	has := func(keys ...string) bool { return slices.Contains(keys, key) }
	if !has("name") {
		lines = append(lines, "    name: a")
	}
	if !has("spec") {
		lines = append(lines, `    spec: "@daily"`)
	}
	switch {
	case has("input"):
		lines = append(lines, "    func: x")
	case !has("shell", "argv", "http", "sql", "func", "job"):
		lines = append(lines, "    shell: x")
	}
	return strings.Join(lines, "\n") + "\n"
}

// Values of the wrong type, and the messages about them.
var (
	notText = map[string]string{
		"5":          `is the number 5, not a text; write "5"`,
		"010":        `is the number 010, not a text; write "010"`,
		"1.5":        `is the number 1.5, not a text; write "1.5"`,
		"0x1f":       `is the number 0x1f, not a text; write "0x1f"`,
		".inf":       `is the number .inf, not a text; write ".inf"`,
		"true":       `is the truth value true, not a text; write "true"`,
		"yes":        `is the truth value yes, not a text; write "yes"`,
		"Off":        `is the truth value Off, not a text; write "Off"`,
		"2026-01-01": `is the date 2026-01-01, not a text; write "2026-01-01"`,
		"":           `is empty; write "" for the empty text`,
		"~":          `is ~; write "" for the empty text`,
		"null":       `is null; write "" for the empty text`,
		"[a]":        "is a list, not a text",
		"{a: b}":     "is a mapping, not a text",
		"!!str 5":    "a text that begins with ! must be in quotes",
		"! test":     "a text that begins with ! must be in quotes",
		"&a ! test":  "a text that begins with ! must be in quotes",
		"!x y":       "a text that begins with ! must be in quotes",
	}
	notDuration = map[string]string{
		"90":       "is the number 90; write a duration with its unit, such as 90s",
		"0":        "is the number 0; write a duration",
		"1.5":      "is the number 1.5; write a duration",
		"true":     "is true or false",
		"":         "is empty; write a duration",
		"[1s]":     "is a list, not a duration",
		"{a: 1s}":  "is a mapping, not a duration",
		"soon":     `"soon" is not a duration; write for example`,
		"-5s":      `"-5s" is negative`,
		"5 min":    `"5 min" is not a duration; write for example`,
		"1us":      "1µs is less than ",
		"15300w":   `"15300w" is `, // too long for a time.Duration
		"36501d":   `"36501d" is longer than 100 years; use a shorter one`,
		"!!str 1s": "must be in quotes",
	}
	notNumber = map[string]string{
		`"3"`:                  `is the text "3"; write a whole number such as 3, without quotes`,
		"010":                  "is the number 010; write a whole number",
		"0x10":                 "is the number 0x10; write a whole number",
		"1_000":                "is the number 1_000; write a whole number",
		"1.5":                  "is the number 1.5; write a whole number",
		"1e3":                  "is the number 1e3; write a whole number",
		"many":                 `is the text "many"; write a whole number`,
		"true":                 "is the truth value true; write a whole number",
		"":                     "is empty; write a whole number",
		"[1]":                  "is a list, not a number",
		"{a: 1}":               "is a mapping, not a number",
		"!!int 3":              "must be in quotes",
		"1000001":              `"1000001" is not a number from 1 to 1000`,
		"99999999999999999999": "is the number 99999999999999999999; write a whole number",
	}
	notFlag = map[string]string{
		"yes":     "is the truth value yes; write true or false, without quotes",
		"off":     "is the truth value off; write true or false, without quotes",
		`"true"`:  `is the text "true"; write true or false, without quotes`,
		"1":       "is the number 1; write true or false",
		"":        "is empty; write true or false",
		"[true]":  "is a list, not true or false",
		"{a: b}":  "is a mapping, not true or false",
		"!a true": "must be in quotes",
	}
	notInstant = map[string]string{
		"2026-01-01":                     `"2026-01-01" has no time of day; write for example 2026-01-01T00:00`,
		"2026":                           "is the number 2026; write for example",
		"tomorrow":                       `"tomorrow" is not a time such as`,
		"true":                           "is the truth value true; write for example",
		"":                               "is empty; write for example",
		"[2026-01-01 00:00]":             "is a list, not a time",
		"{a: b}":                         "is a mapping, not a time",
		"2026-02-30 00:00":               `"2026-02-30 00:00" is not a time such as`,
		"2026-01-01 24:00":               `"2026-01-01 24:00" is not a time such as`,
		"2026-01-01T00:00:00.1234Z":      "is finer than a millisecond; use at most three digits",
		"1970-01-01 00:00":               "1970-01-01T00:00:00Z is not in the years 1971 to 9998",
		"9999-01-01T00:00:00Z":           "9999-01-01T00:00:00Z is not in the years 1971 to 9998",
		"!!timestamp 2026-01-01 00:00:0": "must be in quotes",
	}
	notTexts = map[string]string{
		"5":               "is the number 5, not a mapping",
		"":                "is empty, not a mapping",
		"A=b":             `is the text "A=b", not a mapping`,
		"[A=b]":           "is a list, not a mapping",
		"!!map {A: b}":    "tags such as",
		"{A: 5}":          `A is the number 5, not a text; write "5"`,
		"{A: }":           "A is empty",
		"{A: [b]}":        "A is a list",
		"{5: b}":          `is the number 5, not a text; write "5"`,
		"{[A]: b}":        "is a list, not a text",
		"{A: a, A: b}":    `the key "A" is on line 5 already; remove one`,
		"{A: a, <<: [b]}": "<< is the text \"b\", not a mapping",
		"{A: a, <<: 5}":   "<< is the number 5, not a mapping",
	}
)

// some returns a table without some entries and with others added.
func some(from map[string]string, without []string, more map[string]string) map[string]string {
	all := map[string]string{}
	for value, text := range from {
		if !slices.Contains(without, value) {
			all[value] = text
		}
	}
	for value, text := range more {
		all[value] = text
	}
	return all
}

// TestEveryKey gives each key values of the wrong type and out of range.
func TestEveryKey(t *testing.T) {
	t.Parallel()
	text := func(more map[string]string) map[string]string { return some(notText, nil, more) }
	duration := func(more map[string]string) map[string]string {
		all := some(notDuration, []string{"true"}, more)
		all["true"] = "is the truth value true; write a duration"
		return all
	}
	zero := map[string]string{"0s": "is 0; use at least 1ms", "0m": "is 0; use at least 1ms"}
	long := `"` + strings.Repeat("x", 201) + `"`
	names := map[string]string{
		"' a'": "begins or ends with a blank", `"a\tb"`: "control characters", long: "more than 200 characters",
	}
	wrong := map[string]map[string]string{
		"name": text(some(names, nil, map[string]string{
			`""`: "it is empty", `"` + strings.Repeat("é", 126) + `"`: "it is too long for a schedule from a file; shorten it",
		})),
		"spec": text(map[string]string{
			`""`: "it is empty", `"* * * *"`: "4 fields", `"@reboot now"`: "stands alone", `"0 0 31 2 *"`: "never fires",
		}),
		"time_zone": text(map[string]string{"Europe/Bonn": "time zone \"Europe/Bonn\" is unknown", "Local": "differs between hosts"}),
		"dst":       text(map[string]string{"summer": `DST rule "summer" is unknown`}),
		"shell":     text(map[string]string{`""`: "there is no command", `"a\0b"`: "is not UTF-8 text without NUL"}),
		"sql":       text(map[string]string{`""`: "there is no command"}),
		"func":      text(map[string]string{`""`: "there is no command", "' f'": "not a function's name"}),
		"argv": {
			"ls -l": `is the text "ls -l", not a list; write [/bin/ls, -l]`, "": "is empty, not a list", "{a: b}": "is a mapping, not a list",
			"[]": "names no program", `[""]`: "names no program", "[sleep, 10]": `a word of argv is the number 10, not a text; write "10"`,
			"[a, [b]]": "a word of argv is a list", "[mail, -n, no]": `is the truth value no, not a text; write "no"`,
			"!!seq [a]": "tags such as", `["a\0"]`: "holds a NUL",
		},
		"http": {
			"http://a": `is the text "http://a", not a mapping`, "[a]": "is a list, not a mapping", "{}": "http has no url",
			"{url: 5}": `url is the number 5`, `{url: ""}`: `url: "" is not a URL`, "{url: /x}": `url: "/x" is not a URL`,
			"{url: ftp://x}": "the scheme must be http or https", "{url: http://a:b@c}": "a password in the URL",
			"{url: http://a, method: get}": `method: "get" is no method; write GET`, `{url: http://a, method: ""}`: `method: "" is no method`,
			"{url: http://a, method: [GET]}": "method is a list", "{url: http://a, body: {a: 1}}": "body is a mapping, not a text",
			"{url: http://a, header: {}}":        `unknown key "header" in http; did you mean headers?`,
			"{url: http://a, zzz: x}":            `unknown key "zzz" in http; use one of method, url, headers, body`,
			"{url: http://a, headers: []}":       "headers is a list, not a mapping",
			"{url: http://a, headers: {a b: c}}": `headers: "a b" is not a header`,
			"{url: http://a, headers: {X: 1}}":   `headers X is the number 1, not a text; write "1"`,
			"{url: http://a, url: http://b}":     `the key "url" is on line 5 already`,
			`{url: http://a, body: "\0"}`:        "body: is not UTF-8 text without NUL",
		},
		"job": {
			"x": `is the text "x", not a mapping`, "[a]": "is a list, not a mapping", "{}": "job has no kind",
			"{queue: mail}": "job has no kind, which picks its handler; add kind: KIND",
			`{kind: ""}`:    "kind: there is no command", "{kind: 5}": "kind is the number 5, not a text",
			`{kind: " x"}`:              "kind: is not a kind of job: ",
			`{kind: x, queue: "mail "}`: "queue: name \"mail \": it begins or ends with a blank", `{kind: x, key: " k"}`: "key: ",
			"{kind: x, payload: 'no'}":   "payload: is not JSON: invalid character 'o' in literal null",
			"{kind: x, payload: {a: 1}}": "payload is a mapping, not a text",
			"{kind: x, priority: high}":  `priority: "high" is not known; use urgent, normal, low, idle`,
			"{kind: x, priority: 1}":     "priority is the number 1, not a text",
			"{kind: x, max_attempts: 0}": "max_attempts is 0; use at least 1", "{kind: x, max_attempts: -1}": `max_attempts: "-1" is not a number from 1 to 1000000`,
			`{kind: x, unique: " u"}`:                "unique: ",
			"{kind: x, unique_for: 1h}":              "unique_for: there is no unique key",
			"{kind: x, unique: u, unique_for: 0s}":   "unique_for: is 0",
			"{kind: x, unique: u, unique_for: 367d}": "unique_for: 8808h0m0s is not 0 to",
			"{kind: x, unique: u, unique_until: 1h}": `unique_until: "1h" is none of end, begin`,
			"{kind: x, unique_until: begin}":         "unique_until: there is no unique key",
			"{kind: x, timeout: 5}":                  "timeout is the number 5; write a duration", "{kind: x, timeout: 0s}": "timeout: is 0",
			"{kind: x, queu: x}": `unknown key "queu" in job; did you mean queue?`, "{kind: x, kind: y}": `the key "kind" is on line 5 already`,
		},
		"stdin": text(map[string]string{`"\0"`: "stdin: is not UTF-8 text without NUL"}),
		"input": text(map[string]string{`"\0"`: "input: is not UTF-8 text without NUL"}),
		"env": some(notTexts, nil, map[string]string{
			`{"A=B": c}`: "a name has neither = nor NUL", "{DBCRON_X: x}": "reserved", `{A: "\0"}`: "without NUL",
		}),
		"dir":  text(map[string]string{"backup": `"backup" does not begin with /`}),
		"user": text(map[string]string{"a b": `"a b" is not a user's name`}),
		"tag":  text(map[string]string{"a b": `"a b" is not a tag`, `"a,b"`: `"a,b" is not a tag`}),
		"missed": text(map[string]string{
			"never": `"never" is not known; use skip, once, all`,
		}),
		"overlap":   text(map[string]string{"maybe": `"maybe" is not known; use forbid`}),
		"first_run": text(map[string]string{"soon": `"soon" is not known; use next, now`}),
		"max_attempts": some(notNumber, nil, map[string]string{
			"0": "is 0; use at least 1", "-1": `"-1" is not a number from 1 to 1000`, "1001": `"1001" is not a number from 1 to 1000`,
		}),
		"retry_max_delay": duration(some(zero, nil, map[string]string{"9s": "9s is less than the retry_delay of 10s", "1us": ""})),
		"repeatable": {
			"off": "is the truth value off", "1": "is the number 1; write true or false",
			"": "is empty; write true or false", "[true]": "is a list, not true or false",
		},
		"max_failures": some(notNumber, nil, map[string]string{"0": "is 0; use at least 1", "-1": `"-1" is not a number from 1 to 1000000, or none`}),
		"keep_runs": some(notNumber, nil, map[string]string{
			"0": "is 0; use at least 1", "-1": `"-1" is not a number from 1 to 1000000, or all`, "forever": "a whole number",
		}),
		"keep_for":    duration(some(zero, nil, map[string]string{"all": `"all" is not a duration`})),
		"on_success":  text(names),
		"on_failure":  text(names),
		"description": text(map[string]string{strings.Repeat("é", 1001): "has 1001 characters; use at most 1000", `"a\tb"`: "is not a line"}),
		"notify":      text(map[string]string{"ops": `"ops" is no target`}),
		"paused":      notFlag,
	}
	for _, s := range scheduler.Settings() {
		switch {
		case wrong[s.Name] != nil || strings.HasPrefix(s.Name, "job_"):
		case s.Kind == setting.Duration && slices.Contains(s.Words, "none"):
			wrong[s.Name] = duration(nil)
		case s.Kind == setting.Duration:
			wrong[s.Name] = duration(zero)
		case s.Kind == setting.Count:
			wrong[s.Name] = notNumber
		case s.Kind == setting.Flag:
			wrong[s.Name] = notFlag
		case s.Kind == setting.Instant:
			wrong[s.Name] = notInstant
		default:
			wrong[s.Name] = text(nil)
		}
	}
	for _, key := range knownKeys(t) {
		if len(wrong[key]) == 0 {
			t.Errorf("%s: nothing is tested", key)
		}
	}
	for key, values := range wrong {
		for value, want := range values {
			if want == "" {
				continue // two messages or none
			}
			check(t, base(key, value), "5: "+want)
		}
	}
}

// TestGoodValues ensures that the table above fails only for the intended reason.
func TestGoodValues(t *testing.T) {
	t.Parallel()
	for key, values := range map[string][]string{
		"name":      {"a b", "4時", `"yes"`, "'5'", "x#y", `"\u00e9"`, "|-\n      a"},
		"spec":      {"30 3 * * *", `"*/5 * * * *"`, "'@every 1h'", `"@manual"`, "0 9 * * mon-fri"},
		"time_zone": {"UTC", "Europe/Berlin", `""`},
		"dst":       {"wall", "vixie", `""`},
		"shell":     {"echo a | b && c > d", "'! true'", ">-\n      a\n      b", "|\n      a"},
		"sql":       {"SELECT 1"},
		"func":      {"f"},
		"argv":      {"[a]", "[a, ]", "\n    - a\n    - 'b c'\n"},
		"job": {
			"{kind: x}", "{kind: x, queue: q, payload: '[1]', key: k, priority: idle, max_attempts: 1, timeout: 1s}",
			"{kind: x, unique: u}", "{kind: x, unique: u, unique_for: 366d}", "{kind: x, unique: u, unique_until: begin}",
			`{kind: x, queue: "", priority: ""}`,
		},
		"http":            {"{url: http://a}", "{url: 'https://a/?b=c', method: M-SEARCH, headers: {}, body: ''}"},
		"stdin":           {"x", `""`, "|\n      a\n"},
		"input":           {"x", `""`},
		"env":             {"{}", "{A: b}", "{A: ''}", "\n      A: b"},
		"dir":             {"/", `""`},
		"user":            {"root", `""`},
		"description":     {"Backs up the shop", `""`},
		"tag":             {"a", `""`},
		"missed":          {"skip", "once", "all", `""`},
		"missed_window":   {"1ms", "1h30m", "100d", `""`, "36500d"},
		"overlap":         {"forbid", "allow", "queue", "replace"},
		"first_run":       {"next", "now"},
		"max_attempts":    {"1", "1000"},
		"retry_delay":     {"1s", "2h"},
		"retry_max_delay": {"10s", "1w"},
		"retry_past_next": {"true", "false", "True", "FALSE"},
		"repeatable":      {"true", "false"},
		"timeout":         {"1s", "none", "0s", `""`, "1d12h", "1.5h"},
		"kill_grace":      {"1s", `""`},
		"linger":          {"1s", "forever", `""`},
		"stall":           {"1s", "none", `""`},
		"jitter":          {"1s", "none"},
		"starts": {
			"2026-01-01T00:00:00Z", "2026-01-01T00:00:00.123+05:30", "2026-01-01 00:00", "'2026-01-01 00:00:30'", "2026-01-01T00:00",
			"2026-01-01T00:00:00", "2026-01-01 00:00:00", `""`,
		},
		"ends":         {"9998-12-31T00:00:00Z", `""`},
		"max_failures": {"none", "1", "1000000"},
		"keep_runs":    {"1", "1000000", "all", `"all"`},
		"keep_for":     {"1s", "forever", `""`},
		"on_success":   {"a", "not-there", `""`},
		"on_failure":   {"a", `""`},
		"notify":       {"ada@example.org", "none", "https://example.org/in mailto:root", `""`},
		"paused":       {"true", "false"},
	} {
		for _, value := range values {
			check(t, base(key, value))
		}
	}
}

func TestUnknownKeys(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]string{
		"namee": "did you mean name?", "sepc": "did you mean spec?", "Name": "did you mean name?",
		"time-zone": "did you mean time_zone?", "timzone": "did you mean time_zone?",
		"retry-delay": "did you mean retry_delay?", "stdinn": "did you mean stdin?", "maxattempts": "did you mean max_attempts?",
		"cron": "write spec", "timezone": "write time_zone", "command": "write shell, or argv", "comand": "did you mean shell, or argv",
		"url": "write http: {url", "run_as": "write user", "retries": "write max_attempts", "Enabled": "write paused",
		"x-note": "use one of name, spec, shell, argv, http, sql, func, job", "qqq": "use one of name",
		"id": "use one of name", `""`: `unknown key ""; use one of`,
		`"a\nb"`: `unknown key "a\nb"`, `"<<"`: `unknown key "<<"`,
	} {
		check(t, base(key, "x"), "5: unknown key ")
		check(t, base(key, "x"), "5: "+want)
	}
	check(t, "schedules: []\nschedule: []\nfoo: 1", `2: unknown key "schedule"; did you mean schedules?`,
		`3: unknown key "foo"; use one of defaults, schedules`)
	check(t, "defaults: {sepc: x, timout: 1s, foo: 1}\nschedules: []",
		`1: unknown key "sepc"; did you mean spec?`, `1: unknown key "timout"; did you mean timeout?`,
		`1: unknown key "foo"; use one of spec, env, time_zone`)
	check(t, "defaults:\n  name: a\n  shell: b\n  stdin: c\n  http: {}\nschedules: []",
		"2: name is of one schedule", "3: shell is of one schedule", "4: stdin is of one schedule", "5: http is of one schedule")
}

func TestWholeFile(t *testing.T) {
	t.Parallel()
	const missing = "the file has no key schedules; write schedules: [] if none is meant"
	for text, want := range map[string][]string{
		"":                             {"1: " + missing},
		"\ufeff":                       {"1: " + missing},
		"\n# nothing\n":                {"1: " + missing},
		"---\n":                        {"1: " + missing},
		"null":                         {"1: " + missing},
		"# a\n{}":                      {"2: " + missing},
		"\ndefaults: {tag: a}\n":       {"2: " + missing},
		"schedules:":                   {"1: schedules is empty, not a list; write [] if none is meant"},
		"schedules: {a: {}}":           {"1: schedules is a mapping, not a list"},
		"schedules: a":                 {`1: schedules is the text "a", not a list`},
		"- name: a":                    {"1: the file is a list, not a mapping"},
		"backup":                       {`1: the file is the text "backup", not a mapping`},
		"defaults:\nschedules: []":     {"1: defaults is empty, not a mapping"},
		"defaults: [a]\nschedules: []": {"1: defaults is a list, not a mapping"},
		"schedules: []\n5: a":          {`2: a key of the file is the number 5, not a text; write "5"`},
		"schedules: []\nschedules: []": {`2: the key "schedules" is on line 1 already; remove one`},
		"schedules:\n- a\n-\n- [b]": {
			`2: the schedule is the text "a", not a mapping`, "3: the schedule is empty",
			"4: the schedule is a list",
		},
		"!!map {schedules: []}":         {"1: the file: tags such as"},
		"schedules: !a []":              {"1: schedules: tags such as"},
		"schedules: []\n---\na: 1":      {"2: a second document begins"},
		"schedules: []\n...\n---\n":     {"3: a second document begins"},
		"---\n---\nschedules: []":       {"2: a second document begins"},
		"schedules: []\n--- |\n  a\n":   {"2: a second document begins"},
		"%YAML 1.2\n---\nschedules: []": {"1: this is read as YAML 1.1; remove the line that begins with %YAML"},
		"a: 1\nb: \x00\nc: \xff\nd: \x1b": {
			"2: the line holds a NUL; remove it", "3: the line is not UTF-8",
			"4: the line holds the character U+001B",
		},
		"a: b\rc: d": {"1: the line holds the character U+000D"},
		"a: \u2028\nb: \u0085\nc: \ufeff": {
			"1: the line holds the character U+2028", "2: the line holds the character U+0085",
			"3: the line holds the character U+FEFF",
		},
		"\xff\xfes\x00":                   {"1: the line is not UTF-8; save the file as UTF-8"},
		strings.Repeat(" ", 16<<20) + "a": {"1: the file has 16777217 bytes; use at most 16777216"},
	} {
		check(t, text, want...)
	}
}

func TestSchedule(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		"- tag: a": {
			"2: the schedule has no name; add name: NAME", "2: the schedule has no spec; add spec:",
			"2: the schedule has nothing to run; add one of the keys shell, argv, http, sql, func, job",
		},
		"- {}": {"2: the schedule has no name", "2: the schedule has no spec", "2: the schedule has nothing to run"},
		"- name: a\n  spec: '@daily'\n  shell: a\n  sql: b\n  func: c": {
			"5: sql: the schedule runs shell already, on line 4; keep one of them", "6: func: the schedule runs shell already, on line 4",
		},
		"- {name: a, spec: '@daily', shell: a}\n- spec: '@daily'\n  name: a\n  shell: b\n- {name: A, spec: '@daily', shell: a}": {
			`4: the name "a" is taken by the schedule on line 2; choose another`,
		},
		"- {name: a, spec: '@daily', sql: a}\n- {name: b, spec: '@daily',\n   sql: a,\n   tag: b,\n   sql: c}": {`6: the key "sql" is on line 4 already; remove one`},
		"- name: a\n  spec: '@daily'\n  sql: a\n  env: {A: b}\n  dir: /a\n  user: b\n  kill_grace: 1s\n  stdin: x": {
			"5: env: is for commands, not for the kind sql", "6: dir: is for commands", "7: user: is for commands",
			"8: kill_grace: is for commands", "9: stdin: a statement has no input",
		},
		"- {name: a, spec: '@daily', func: f,\n  stdin: x}":               {"3: stdin is not for func; write input"},
		"- {name: a, spec: '@daily', shell: f,\n  input: x}":              {"3: input is not for shell; write stdin"},
		"- {name: a, spec: '@daily', argv: [f],\n  input: x}":             {"3: input is not for argv; write stdin"},
		"- {name: a, spec: '@daily', http: {url: http://a},\n  stdin: x}": {"3: stdin is not for http; write body within http"},
		"- {name: a, spec: '@daily', job: {kind: k},\n  input: x}":        {"3: input is not for job; write payload within job"},
		"- {name: a, spec: '@daily', shell: f,\n  queue: mail}":           {`3: unknown key "queue"; write job: {queue: ...}`},
		"- {name: a, spec: '@daily', shell: f,\n  job: {kind: k}}":        {"3: job: the schedule runs shell already, on line 2; keep one of them"},
		"- {name: a, spec: '@daily', job: {kind: k},\n  max_attempts: 3,\n  timeout: 1h}": {
			"3: max_attempts: is not for jobs, which their queue tries again; say it of the job",
			"4: timeout: is not for jobs, which their queue ends; say it of the job",
		},
		"- {name: a, spec: '@daily', shell: f,\n  headers: {A: b}}": {`3: unknown key "headers"; write http: {headers: ...}`},
		"- name: a\n  shell: x\n  spec: '61 * * * *'\n  time_zone: Mars\n  dst: x\n  starts: 2026-01-01 00:00": {
			"4: spec: spec \"61 * * * *\"", "5: time_zone: time zone \"Mars\" is unknown", "6: dst: DST rule",
		},
		"- name: a\n  shell: x\n  spec: '30 2 25-31 3 */7'\n  time_zone: Europe/Berlin\n  dst: wall": {"4: spec: spec \"30 2 25-31 3 */7\" never fires in Europe/Berlin"},
		"- name: a\n  shell: x\n  spec: '@daily'\n  starts: 2026-02-02 00:00\n  ends: 2026-02-01T12:00:00Z": {
			"6: ends: 2026-02-01T12:00:00Z is before the start",
		},
		"- name: a\n  shell: x\n  spec: '@daily'\n  time_zone: Europe/Berlin\n  starts: 2026-03-29 02:30\n  ends: 2026-10-25 02:30": {
			`6: starts: the clocks of Europe/Berlin show 2026-03-29 02:30:00 never`, `7: ends: the clocks of Europe/Berlin show 2026-10-25 02:30:00 twice`,
		},
		"- name: a\n  shell: x\n  spec: '@daily'\n  retry_delay: 2h\n  retry_max_delay: 1h": {"6: retry_max_delay: 1h0m0s is less"},
		"- name: a\n  shell: x\n  spec: '@daily'\n  missed: all\n  overlap: replace":        {"5: missed: all runs every slot"},
		"- name: a\n  shell: x\n  spec: '@daily'\n  on_failure: a\n  on_success: b":         nil,
	} {
		check(t, "schedules:\n"+text, want...)
	}
}

func TestDefaultsErrors(t *testing.T) {
	t.Parallel()
	two := "\nschedules:\n- {name: a, spec: '@daily', shell: x}\n- {name: b, spec: '@daily', sql: x}\n"
	for text, want := range map[string][]string{
		"defaults:\n  timeout: 5\n  env: {A: 1}" + two: {"2: timeout is the number 5", "3: env A is the number 1"},
		"defaults:\n  timeout: 1us\n  time_zone: Mars\n  env: {DBCRON_A: b}\n  dir: x\n  spec: z" + two: {
			"2: timeout: 1µs is less", "3: time_zone: time zone", "4: env: variable", "5: dir:", "6: spec: spec \"z\"",
		},
		"defaults:\n  retry_delay: 5m\n  retry_max_delay: 1m" +
			two: {"3: retry_max_delay: 1m0s is less"},
		"defaults:\n  retry_max_delay: 1m\nschedules:\n- name: a\n  retry_delay: 5m\n  spec: '@daily'\n  shell: x":               {"4: retry_max_delay: 1m0s is less than the retry_delay of 5m0s"},
		"defaults:\n  tag: a b\nschedules: [{name: a, tag: c, shell: x, spec: '@daily'}]":                                        {"2: tag: \"a b\" is not a tag"},
		"defaults: &d\n  tag: a\n  <<: *d" + two:                                                                                 {"3: <<: a mapping is merged into itself; remove one of both"},
		"defaults:\n  starts: 2026-03-29 02:30\nschedules:\n- {name: a, spec: '@daily', shell: x,\n   time_zone: Europe/Berlin}": {"2: starts: the clocks of Europe/Berlin show 2026-03-29 02:30:00 never"},
	} {
		check(t, text, want...)
	}
}

func TestAnchorErrors(t *testing.T) {
	t.Parallel()
	const tail = "name: a, spec: '@daily', shell: x"
	for text, want := range map[string][]string{
		"x-a: &a\n  timeout: 5\n  namee: x\nschedules:\n- {<<: *a, " + tail + "}\n- {<<: *a, name: b, spec: '@daily', shell: x}": {
			"2: timeout is the number 5", `3: unknown key "namee"`,
		},
		"x-a: &a 5\nschedules:\n- name: *a\n  spec: '@daily'\n  shell: *a\n  timeout: *a": {
			"3: name is the number 5",
			"5: shell is the number 5", "6: timeout is the number 5",
		},
		"x-a: &a {A: b}\nschedules:\n- {" + tail + ",\n  timeout: *a}": {"4: timeout is a mapping, not a duration"},
		"schedules: &s\n- {" + tail + "}\n- *s":                        {"3: the schedule is a list, not a mapping"},
		"schedules:\n- &a {" + tail + "}\n- *a\n- *a":                  {`2: the name "a" is taken by the schedule on line 2`},
		"x-a: &a {<<: [*a, *a]}\nschedules: [*a]": {
			"1: <<: a mapping is merged into itself",
			"2: the schedule has no name", "2: the schedule has no spec", "2: the schedule has nothing",
		},
		"schedules:\n- {" + tail + ",\n   <<: {env: {A: b}},\n   <<: {dir: /a}}": {`4: the key "<<" is on line 3 already`},
		"schedules:\n- {" + tail + ",\n   tag: *b}":                              {"3: *b stands for what is marked &b, and nothing above is"},
		"schedules:\n- {" + tail + ", env: &e {A: *e}}":                          {"2: env A is a mapping, not a text"},
	} {
		check(t, text, want...)
	}
}

func TestSyntax(t *testing.T) {
	t.Parallel()
	const head = "schedules:\n- name: a\n  "
	for text, want := range map[string]string{
		head + "spec: */5 * * * *\n  shell: x": `3: a text cannot begin with * or & unless it is in quotes; write spec: "*/5 * * * *"`,
		head + "spec: * * * * *":               `3: a text cannot begin with * or & unless it is in quotes; write spec: "* * * * *"`,
		head + "spec: *5 * * * *":              `3: a text cannot begin with * or & unless`,
		head + "spec: *\n  shell: x":           `3: a text cannot begin with * or & unless it is in quotes; write spec: "*"`,
		head + "spec: @daily\n  shell: x": `3: a text cannot begin with @, % or ` + "`" +
			` unless it is in quotes; write spec: "@daily"`,
		"schedules:\n- {name: a,\n spec: @daily, shell: x}": `3: a text cannot begin with @, % or ` + "`" +
			` unless it is in quotes; write spec: "@daily, shell: x}"`,
		head + "shell: `date`": "3: a text cannot begin with @, % or ` unless",
		head + "shell: @" + strings.Repeat("x",
			90): "3: a text cannot begin with @, % or ` unless it is in quotes; put the text in quotes",
		head + "shell: %x":                                  "3: a text cannot begin with @, % or ` unless",
		head + "shell: | sort":                              `3: a text cannot begin with | or > on the same line unless it is in quotes; write shell: "| sort"`,
		head + "shell: > /tmp/x":                            `3: a text cannot begin with | or >`,
		head + "shell: echo a: \"b\"\n":                     `3: a text cannot hold a colon and a blank unless it is in quotes; write shell: 'echo a: "b"'`,
		head + "shell: \"a\" b":                             `3: something follows a closing quote or bracket; write shell: '"a" b'`,
		head + "shell: [ -f x ]; y\n  tag: b":               `3: something follows a closing quote or bracket; write shell: "[ -f x ]; y"`,
		head + "shell: [ -f x ] && y\n  tag: b":             `3: a text cannot begin with * or & unless it is in quotes; put the text in quotes`,
		head + "shell: !a!b c":                              `3: a text cannot begin with ! unless it is in quotes; write shell: "!a!b c"`,
		head + "shell: - x":                                 `3: a text cannot begin with - and a blank unless it is in quotes; write shell: "- x"`,
		head + "shell: ? x":                                 `3: a text cannot begin with ? and`,
		head + "shell: \"\\d\"":                             "3: a backslash in double quotes begins an escape",
		head + "shell: \"\\xzz\"":                           "3: a backslash in double quotes begins an escape",
		head + "shell: 'a\n  b\n":                           "3: a quote that is opened here is not closed",
		"a: 'b\n":                                           "1: a quote that is opened here is not closed",
		head + "\tshell: x":                                 "3: a tab stands where YAML wants blanks",
		"schedules:\n\t- name: a":                           "2: a tab stands where YAML wants blanks; indent with blanks",
		head + " shell: x":                                  "3: the line does not fit to the one above",
		head + "shell: |\n    x\n y: z":                     "5: the line does not fit to the one above",
		"schedules:\n- name: a\n b: c":                      "3: the line does not fit to the one above",
		"schedules:\n  - name: a\n - name: b":               "3: the line does not fit to the one above",
		head + "shell\n  tag: b":                            "3: a key without a colon; write KEY: VALUE",
		head + "argv: [a, b\n  tag: c\n":                    "3: within [ ] or { }",
		head + "env: {A: b\n":                               "3: within [ ] or { }",
		head + "argv: [a]]\n":                               "3: something follows a closing quote",
		strings.Repeat("[", 20000):                          "1: the file nests too deep",
		"# a\n" + strings.Repeat("- ", 20000):               "2: the file nests too deep",
		"# " + strings.Repeat("a", 1<<20) + "\nb: 'c":       "2: a quote that is opened here is not closed",
		strings.Repeat("# a\n", 1000) + head + "spec: @x\n": "1003: a text cannot begin with @",
	} {
		check(t, text, want)
	}
}

// TestAllAtOnce checks that errors are ordered by line.
func TestAllAtOnce(t *testing.T) {
	t.Parallel()
	check(t, "schedules:\n- shell: x\n  sepc: y\n  name: 5\n- {name: b, spec: '@daily', argv: x}\ndefaults:\n  timeout: 3\nfoo: x\n",
		"2: the schedule has no spec", `3: unknown key "sepc"; did you mean spec?`, "4: name is the number 5", "5: argv is the text",
		"7: timeout is the number 3", `8: unknown key "foo"`)
}

// Without limits, TestBombs would not end or not fit into memory.
func TestBombs(t *testing.T) {
	t.Parallel()
	big := strings.Repeat("x", 1<<20-1)
	merges := "x-0: &a0 {tag: a}\n"
	for i := range 60 {
		merges += fmt.Sprintf("x-%d: &a%d {<<: [%s]}\n", i+1, i+1, strings.Repeat(fmt.Sprintf("*a%d, ", i), 9))
	}
	for name, text := range map[string]string{
		"merges":   merges + "schedules: [{<<: *a60}]",
		"env":      "x-e: &e {A: " + big + "}\nschedules:\n" + strings.Repeat("- {env: *e}\n", 1000),
		"defaults": "defaults: {dir: /" + big + "}\nschedules:\n" + strings.Repeat("- {shell: x}\n", 1000),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := messages(t, text)
			if len(got) != 1 || !strings.HasPrefix(got[0],
				"file:1: the file is larger than 67108864 bytes when its defaults and aliases are written out") {
				t.Errorf("got %d messages, such as %.200q", len(got), got[0])
			}
		})
	}
}

func TestMany(t *testing.T) {
	t.Parallel()
	check(t, "schedules: [&a {name: a, spec: '@daily', shell: x}"+strings.Repeat(",*a", 100_000)+"]",
		"1: the file has 100001 schedules; use at most 100000")
	got := messages(t, "schedules:\n"+strings.Repeat("- 5\n", 5000))
	want := "file:1001: 1000 errors were found, and no more were looked for; correct these first"
	if len(got) != 1001 || got[1000] != want {
		t.Errorf("got %d messages, the last one %q", len(got), got[len(got)-1])
	}
}

// TestLongLines is slow if the cost of a value grows with the length of its line.
func TestLongLines(t *testing.T) {
	t.Parallel()
	text := "schedules: [{é: '" + strings.Repeat("é", 1<<20) + "'}, " + strings.Repeat("{é}, ", 2000) + "]"
	if got := messages(t, text); len(got) == 0 {
		t.Error("got no messages")
	}
	for _, text := range []string{
		base("name", strings.Repeat("a", 1<<20)), base("'"+strings.Repeat("a", 1000)+"'", "x"), base("on_failure", strings.Repeat("é", 1<<20)),
		base("timeout", strings.Repeat("9", 1<<20)+"s"),
	} {
		for _, line := range messages(t, text) {
			if len(line) > 1100 {
				t.Errorf("a message has %d bytes", len(line))
			}
		}
	}
}
