package crontab_test

import (
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/dbcron/dbcron/internal/ops/crontab"
)

func parse(t *testing.T, text string) []crontab.Entry {
	t.Helper()
	entries, err := crontab.Parse("tab", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return entries
}

func TestFile(t *testing.T) {
	t.Parallel()
	got := parse(t, "\ufeff"+strings.Join([]string{
		"# What the shop does at night.",
		"SHELL=/bin/bash",
		"  MAILTO = ops@example.org\t",
		`"GREETING" = "  hello, $USER  "`,
		"",
		"# name: close the till",
		"# It must be done before the report.",
		"5 0 * * *\t$HOME/bin/close-till >> $HOME/till.log 2>&1",
		"CRON_TZ=Asia/Tokyo",
		"TZ = Asia/Tokyo",
		"SHELL=/bin/sh",
		"\t0 4  * *\tmon-FRI  echo 4時になったよ # no comment",
		"*/10 8-18 * * 1-5 mail -s 'Stock' shop%Hello,%%100\\% sure.%",
		"@daily date +\\%F",
		"CRON_TZ=",
		"@Every  90s   poll",
		"23 0-23/2 * * sun ls",
		"23 0-23/2 * *  sun ls",
		"@weekly fortune",
	}, "\r\n"))
	env := []string{"SHELL=/bin/bash", "MAILTO=ops@example.org", "GREETING=  hello, $USER  "}
	later := []string{"MAILTO=ops@example.org", "GREETING=  hello, $USER  ", "TZ=Asia/Tokyo", "SHELL=/bin/sh"}
	want := []crontab.Entry{
		{
			Line: 8, Name: "close the till", Key: "name:close the till",
			Description: "It must be done before the report.", Spec: "5 0 * * *", Env: env,
			Command: "$HOME/bin/close-till >> $HOME/till.log 2>&1",
		},
		{Line: 12, Spec: "0 4 * * mon-FRI", Zone: "Asia/Tokyo", Env: later, Command: "echo 4時になったよ # no comment"},
		{
			Line: 13, Spec: "*/10 8-18 * * 1-5", Zone: "Asia/Tokyo", Env: later,
			Command: "mail -s 'Stock' shop", Stdin: "Hello,\n\n100% sure.\n",
		},
		{Line: 14, Spec: "@daily", Zone: "Asia/Tokyo", Env: later, Command: "date +%F"},
		{Line: 16, Spec: "@Every 90s", Env: later, Command: "poll"},
		{Line: 17, Spec: "23 0-23/2 * * sun", Env: later, Command: "ls"},
		{Line: 18, Spec: "23 0-23/2 * * sun", Env: later, Command: "ls"},
		{Line: 19, Spec: "@weekly", Env: later, Command: "fortune"},
	}
	if len(got) != len(want) {
		t.Fatalf("got %d entries, want %d", len(got), len(want))
	}
	for i := range want {
		if want[i].Key == "" {
			want[i].Key = got[i].Key
			if !regexp.MustCompile(`^line:[0-9a-f]{32}(#2)?$`).MatchString(got[i].Key) {
				t.Errorf("got key %q", got[i].Key)
			}
		}
		if !reflect.DeepEqual(got[i], want[i]) {
			t.Errorf("got  %+v\nwant %+v", got[i], want[i])
		}
	}
	if got[6].Key != got[5].Key+"#2" {
		t.Errorf("got keys %q and %q, want the second to be a repeat", got[5].Key, got[6].Key)
	}
}

func TestNoEntries(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "\ufeff", "\n\n", " \t", "# comment", "A=1\r\n#\n", "  # name of nothing"} {
		if got := parse(t, text); len(got) != 0 {
			t.Errorf("%q: got %v, want no entries", text, got)
		}
	}
}

func TestCommand(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ text, command, stdin string }{
		{"ls", "ls", ""},
		{"ls  -l ", "ls  -l ", ""},
		{"date +\\%H:\\%M", "date +%H:%M", ""},
		{"cat%a", "cat", "a\n"},
		{"cat%", "cat", ""},
		{"cat%a%b%", "cat", "a\nb\n"},
		{"cat%%", "cat", "\n"},
		{"cat %100\\%%a\\b", "cat ", "100%\na\\b\n"},
		// These are what Debian's cron 3.0pl1-162 passed on.
		{`x\\%y%z`, `x\`, "y\nz\n"},
		{`x\%y`, `x%y`, ""},
		{`x\\`, `x\`, ""},
		{`x\n\\n`, `x\n\n`, ""},
		{`x\`, `x\`, ""},
		{`x\\\%y%z`, `x\%y`, "z\n"},
		{`x%in\\%in2%in3`, `x`, "in\\%in2\nin3\n"},
		{`x%in\`, `x`, "in\\\n"},
		{`x%in\n\\n`, `x`, "in\\n\\\\n\n"},
		{`x%in\\\%in2%in3`, `x`, "in\\\\%in2\nin3\n"},
		{`x%in\\`, `x`, "in\\\\\n"},
		{`x%in\\\\%in2`, `x`, "in\\\\\\%in2\n"},
		{`x%%%x`, `x`, "\n\nx\n"},
		{"FOO=bar run", "FOO=bar run", ""},
	} {
		got := parse(t, "* * * * * "+c.text)[0]
		if got.Command != c.command || got.Stdin != c.stdin {
			t.Errorf("%q: got %q and %q, want %q and %q", c.text, got.Command, got.Stdin, c.command, c.stdin)
		}
	}
}

func TestSettings(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ text, want string }{
		{"A=1", "A=1"},
		{"A =1", "A=1"},
		{"A\t= \t 1 2 \t", "A=1 2"},
		{"A=", "A="},
		{`A=""`, "A="},
		{`A=" 1 "`, "A= 1 "},
		{`A=' "1" '`, `A= "1" `},
		{`A=1" 2"`, `A=1" 2"`},
		{`'A B' = 1`, "A B=1"},
		{`"A"=1`, "A=1"},
		{"A=b=c", "A=b=c"},
		{`PATH=$HOME/bin:\n # x`, `PATH=$HOME/bin:\n # x`},
		{"A=é", "A=é"},
	} {
		got := parse(t, c.text+"\n@daily x")[0].Env
		if len(got) != 1 || got[0] != c.want {
			t.Errorf("%s: got %q, want %q", c.text, got, c.want)
		}
	}
}

func TestEnvIsNotShared(t *testing.T) {
	t.Parallel()
	got := parse(t, "A=1\nB=1\n@daily x\nA=2\n@daily y\nB=3\n@daily z")
	for i, want := range []string{"[A=1 B=1]", "[B=1 A=2]", "[A=2 B=3]"} {
		if env := fmt.Sprint(got[i].Env); env != want {
			t.Errorf("entry %d: got %s, want %s", i, env, want)
		}
	}
}

func TestKeysStay(t *testing.T) {
	t.Parallel()
	before := parse(t, "0 1 * * * a%x\n0 2 * * * b")
	after := parse(t, "# new\nA=1\n\nCRON_TZ=Asia/Tokyo\n30 4 * * * c\n 0  2 * * *\tb\n0 1 * * * a%x")
	if before[0].Key != after[2].Key || before[1].Key != after[1].Key {
		t.Errorf("got keys %q, then %q, want the same for the same lines", keys(before), keys(after))
	}
	if other := parse(t, "0 1 * * * a%y"); other[0].Key == before[0].Key {
		t.Error("another input has the same key")
	}
	if same := parse(t, "0 1 * * * a%x%"); same[0].Key != before[0].Key {
		t.Error("the same input, written otherwise, has another key")
	}
}

// TestKeyIsFixed: schedules are recognized by their keys, also after an update.
func TestKeyIsFixed(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"0 1 * * *  a -b":      "line:0b7a7f4d91f05151746c4f8fbf14d9c5",
		`@daily	date +\%F%a%b`: "line:af13103598179334b0c39c54cade72af",
		"# name: x\n@daily y":  "name:x",
	} {
		if got := parse(t, text)[0].Key; got != want {
			t.Errorf("%q: got %s, want %s", text, got, want)
		}
	}
}

func keys(entries []crontab.Entry) []string {
	var all []string
	for _, e := range entries {
		all = append(all, e.Key)
	}
	return all
}

func TestRefused(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 64<<10)
	for _, c := range []struct{ text, want string }{
		{"61 * * * * x", `tab:1: invalid schedule: spec "61 * * * *": minute, item "61": 61 is out of range; use 0-59`},
		{"\n* * * *", "tab:2: invalid schedule: spec \"* * * *\": 4 fields"},
		{"* * * * *", `tab:1: no command follows "* * * * *"; write one`},
		{"* * * * * \t", "tab:1: no command follows"},
		{"* * * * * %in", "tab:1: no command follows"},
		{"@hourly", `tab:1: no command follows "@hourly"`},
		{"@every 5m", `tab:1: no command follows "@every 5m"`},
		{"@every", "tab:1: invalid schedule: spec \"@every\": @every takes one duration"},
		{"@reboots x", "tab:1: "},
		{"run this", "tab:1: invalid schedule: spec \"run this\": 2 fields"},
		{"CRON_TZ=Mars/Base\n@daily x", `tab:1: invalid schedule: time zone "Mars/Base" is unknown; use a name`},
		{"CRON_TZ=Local", "tab:1: invalid schedule: time zone \"Local\" differs between hosts"},
		{"=1", "tab:1: the name before = is empty; write NAME=VALUE"},
		{`""=1`, "tab:1: the name before = is empty"},
		{`"A=B"=1`, `tab:1: the name "A=B" holds an equals sign; choose another`},
		{`A="1`, "tab:1: the quote \" is not closed; add one"},
		{`'A=1`, "tab:1: the quote ' is not closed; add one"},
		{`A="1" # no`, `tab:1: " # no" follows the closing quote`},
		{`"A" 1`, `tab:1: no = follows the name "A"`},
		{"DBCRON_RUN=1", `tab:1: the name "DBCRON_RUN" is reserved, as all that begin with DBCRON_; choose another`},
		{"# name: a\n@daily x\n# name: a\n@daily y", `tab:4: the name "a" is taken by the entry on line 2; choose another`},
		{"# name: a\x01b\n@daily x", `tab:1: the name "a\x01b" holds a control character; remove it`},
		{"# name: \u00a0a\n@daily x", `tab:1: the name "\u00a0a" begins or ends with a space; remove it`},
		{"# name: " + long[:201] + "\n@daily x", "tab:1: the name has 201 characters; use at most 200"},
		{"\n@daily echo \xff", "tab:2: the line is not UTF-8; save the file as UTF-8"},
		{"@daily echo \x00", "tab:1: the line holds a NUL; remove it"},
		{"@daily " + long, "tab:1: the line has 65543 bytes; use at most 65536, or call a script"},
		{strings.Repeat(long+"\n", 256), "tab:1: the file has 16777472 bytes; use at most 16777216"},
	} {
		got, err := crontab.Parse("tab", []byte(c.text))
		if err == nil || got != nil {
			t.Errorf("%.40q: got %v, want %q", c.text, got, c.want)
			continue
		}
		if !strings.HasPrefix(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%.40q: got %q, want one line, %q", c.text, err, c.want)
		}
	}
}

func TestTooManySettings(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&text, "A%d=x\n", i)
	}
	parse(t, text.String()+"A7=y\n")
	_, err := crontab.Parse("tab", []byte(text.String()+"B=y\n"))
	if want := "tab:1001: more than 1000 settings"; err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
}

func TestLongName(t *testing.T) {
	t.Parallel()
	name := strings.Repeat("夜", 200)
	if got := parse(t, "# name:\t"+name+" \n@daily x")[0].Name; got != name {
		t.Errorf("got %q, want all of the name", got)
	}
}

// TestAllProblems: one reading shows all that is wrong, in the file's order.
func TestAllProblems(t *testing.T) {
	t.Parallel()
	_, err := crontab.Parse("etc/tab", []byte("@never a\n# dbcron: x=1\n\nCRON_TZ=X\n@daily fine\n99 * * * * b\n* * * * *\n"))
	if err == nil {
		t.Fatal("accepted")
	}
	var lines []string
	for line := range strings.SplitSeq(err.Error(), "\n") {
		lines = append(lines, strings.Join(strings.SplitN(line, ":", 3)[:2], ":"))
	}
	if got, want := strings.Join(lines, " "), "etc/tab:1 etc/tab:2 etc/tab:4 etc/tab:6 etc/tab:7"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestKeysAreUnique draws files in which lines and names repeat.
func TestKeysAreUnique(t *testing.T) {
	t.Parallel()
	line := rapid.SampledFrom([]string{
		"@daily a", "@daily  a", "@daily b", "0 0 * * * a", "# name: x", "# name: y", "# name: line:1", "", "A=1", "CRON_TZ=UTC",
	})
	rapid.Check(t, func(t *rapid.T) {
		lines := rapid.SliceOfN(line, 0, 12).Draw(t, "lines")
		entries, err := crontab.Parse("tab", []byte(strings.Join(lines, "\n")))
		if err != nil {
			return
		}
		checkEntries(t, entries)
	})
}

func checkEntries(t interface{ Fatalf(string, ...any) }, entries []crontab.Entry) {
	seen := map[string]int{}
	last := 0
	for _, e := range entries {
		if first, ok := seen[e.Key]; ok {
			t.Fatalf("lines %d and %d have the key %q", first, e.Line, e.Key)
		}
		seen[e.Key] = e.Line
		if e.Line <= last || e.Command == "" || e.Spec == "" {
			t.Fatalf("got %+v after line %d", e, last)
		}
		last = e.Line
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"", "* * * * * a\n@daily b%c\\%", "A=1\n'B' = \" 2 \"\r\n# name: x\n@every 5m c", "CRON_TZ=Asia/Tokyo\n0 0 * * * é",
		"# name: a\n\n@reboot x\n=\n\"\n61 * * * * x", "\ufeff@hourly \x00", "\xff\n@\n%", "@daily a\n@daily a\n@daily a",
		"# dbcron: a=1 b=' 2'\n@daily x\n# dbcron: =\n@daily x",
	} {
		f.Add([]byte(seed))
	}
	message := regexp.MustCompile(`^tab:[1-9][0-9]*: .+; .+$`)
	f.Fuzz(func(t *testing.T, data []byte) {
		if entries, err := crontab.ParseSystem("tab", data); err == nil {
			checkEntries(t, entries)
		}
		entries, err := crontab.Parse("tab", data)
		if err == nil {
			checkEntries(t, entries)
			return
		}
		if entries != nil {
			t.Fatalf("got entries and %v", err)
		}
		for line := range strings.SplitSeq(err.Error(), "\n") {
			if !message.MatchString(line) {
				t.Fatalf("got %q, want file:line: what; what to do", line)
			}
		}
	})
}
