package crontab_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/dbcron/dbcron/internal/ops/crontab"
)

func TestFormat(t *testing.T) {
	t.Parallel()
	shop := []string{"SHELL=/bin/bash", "GREETING= hello "}
	later := []string{"GREETING= hello ", "EMPTY=", "SHELL=/bin/sh"}
	got, err := crontab.Format([]crontab.Entry{
		{Spec: "@daily", Command: "date +%F"},
		{Spec: "5 0 * * *", Command: "close-till", Env: shop, Name: "close the till"},
		{Spec: " 0\t4 * *  *", Command: "ls -l ", Env: shop},
		{Spec: "@every 90s", Command: "mail shop", Stdin: "Hello,\n\n100% sure.\n", Env: later, Zone: "Asia/Tokyo"},
		{Spec: "@hourly", Command: `printf 'a\n\\'`, Env: later, Name: "print", Line: 7, Key: "name:other"},
	})
	want := `@daily date +\%F

SHELL=/bin/bash
GREETING=" hello "

# name: close the till
5 0 * * * close-till
0 4 * * * ls -l ` + `

EMPTY=""
SHELL=/bin/sh
CRON_TZ=Asia/Tokyo

@every 90s mail shop%Hello,%%100\% sure.

CRON_TZ=""

# name: print
@hourly printf 'a\n\\\'
`
	if err != nil || string(got) != want {
		t.Errorf("got %s, %v, want %s", got, err, want)
	}
	if got, err := crontab.Format(nil); err != nil || len(got) != 0 {
		t.Errorf("no entries: got %q, %v", got, err)
	}
}

// TestFormatLines checks forms that only just can be expressed.
func TestFormatLines(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		entry crontab.Entry
		want  string
	}{
		{crontab.Entry{Command: "x"}, "@daily x"},
		{crontab.Entry{Command: "x "}, "@daily x "},
		{crontab.Entry{Command: "x\r"}, "@daily x\r\r"},
		{crontab.Entry{Command: "# x"}, "@daily # x"},
		{crontab.Entry{Command: "* * * * * x"}, "@daily * * * * * x"},
		{crontab.Entry{Command: "=x", Spec: "@every 1h"}, "@every 1h =x"},
		{crontab.Entry{Command: "=x", Spec: "0 0 * * *"}, "0 0 * * * =x"},
		{crontab.Entry{Command: `\`}, `@daily \`},
		{crontab.Entry{Command: `\`, Stdin: "\n"}, `@daily \\%%`},
		{crontab.Entry{Command: `a\%`}, `@daily a\\\%`},
		{crontab.Entry{Command: `a\\`}, `@daily a\\\`},
		{crontab.Entry{Command: "x", Stdin: "a\n"}, "@daily x%a"},
		{crontab.Entry{Command: "x", Stdin: "a\n\n"}, "@daily x%a%%"},
		{crontab.Entry{Command: "x", Stdin: "\n\na\r\n"}, "@daily x%%%a\r\r"},
		{crontab.Entry{Command: "x", Stdin: "a\\\n"}, `@daily x%a\`},
		{crontab.Entry{Command: "x", Stdin: `\%` + "\n"}, `@daily x%\\%`},
		{crontab.Entry{Command: "x", Env: []string{"A=x # y"}}, "A=x # y\n\n@daily x"},
		{crontab.Entry{Command: "x", Env: []string{"A=x\r"}}, "A=x\r\r\n\n@daily x"},
		{crontab.Entry{Command: "x", Env: []string{`A=x"y'z`}}, "A=x\"y'z\n\n@daily x"},
		{crontab.Entry{Command: "x", Env: []string{`A="x"`}}, "A='\"x\"'\n\n@daily x"},
		{crontab.Entry{Command: "x", Env: []string{"A='x'"}}, "A=\"'x'\"\n\n@daily x"},
		{crontab.Entry{Command: "x", Env: []string{"A=\t"}}, "A=\"\t\"\n\n@daily x"},
		{crontab.Entry{Command: "x", Env: []string{"A="}}, "A=\"\"\n\n@daily x"},
		{crontab.Entry{Command: "x", Env: []string{"A==x"}}, "A==x\n\n@daily x"},
		{crontab.Entry{Command: "x", Env: []string{"A B=x"}}, "\"A B\"=x\n\n@daily x"},
		{crontab.Entry{Command: "x", Env: []string{`"=x`}}, "'\"'=x\n\n@daily x"},
		{crontab.Entry{Command: "x", Env: []string{`a"b'=x`}}, "a\"b'=x\n\n@daily x"},
		{crontab.Entry{Command: "x", Env: []string{"#=x"}}, "\"#\"=x\n\n@daily x"},
		{crontab.Entry{Command: "x", Env: []string{"*=x"}}, "*=x\n\n@daily x"},
		{crontab.Entry{Command: "x", Env: []string{"\ufeffA=x"}}, "\ufeff\ufeffA=x\n\n@daily x"},
		{crontab.Entry{Command: "x", Env: []string{"B=x", "A=x"}}, "B=x\nA=x\n\n@daily x"},
		{crontab.Entry{Command: "x", Name: "# name: x"}, "# name: # name: x\n@daily x"},
	} {
		if c.entry.Spec == "" {
			c.entry.Spec = "@daily"
		}
		given := []crontab.Entry{c.entry}
		if text := format(t, given); text != c.want+"\n" {
			t.Errorf("got %q, want %q", text, c.want)
		} else if read := parse(t, text); !same(read, given) {
			t.Errorf("%q: got %+v, want %+v", text, read, given)
		}
	}
}

// TestFormatOrder: entries with fewer settings are written first, and no others
// are moved.
func TestFormatOrder(t *testing.T) {
	t.Parallel()
	text := format(t, []crontab.Entry{
		{Spec: "@daily", Command: "1", Env: []string{"A=1", "B=1"}},
		{Spec: "@daily", Command: "2", Env: []string{"B=2"}},
		{Spec: "@daily", Command: "3"},
		{Spec: "@daily", Command: "4", Env: []string{"B=1", "A=2"}},
		{Spec: "@daily", Command: "5", Env: []string{"B=1"}},
		{Spec: "@daily", Command: "6", Zone: "UTC"},
	})
	var got []string
	for _, e := range parse(t, text) {
		slices.Sort(e.Env)
		got = append(got, fmt.Sprint(e.Command, e.Zone, e.Env))
	}
	if want := "3[] 6UTC[] 2[B=2] 5[B=1] 1[A=1 B=1] 4[A=2 B=1]"; strings.Join(got, " ") != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestFormatRefuses(t *testing.T) {
	t.Parallel()
	daily := func(command, stdin string, env ...string) []crontab.Entry {
		return []crontab.Entry{{Spec: "@daily", Command: command, Stdin: stdin, Env: env}}
	}
	named := func(names ...string) (entries []crontab.Entry) {
		for _, name := range names {
			entries = append(entries, crontab.Entry{Name: name, Spec: "@daily", Command: "x"})
		}
		return entries
	}
	long := strings.Repeat("x", 64<<10)
	var many, large []string
	for i := range 1001 {
		many = append(many, fmt.Sprintf("A%d=x", i))
		if i < 260 {
			large = append(large, fmt.Sprintf("A%d=%s", i, long[:65000]))
		}
	}
	for _, c := range []struct {
		entries []crontab.Entry
		want    string
	}{
		{daily("", ""), `entry 1, "@daily ": no command follows "@daily"; write one`},
		{daily(" x", ""), `entry 1, "@daily  x": the command begins with a blank, which a crontab leaves out; remove it`},
		{daily("x\ny", ""), `entry 1, "@daily x\ny": the command holds a newline; join its lines with ; or call a script`},
		{daily("=x", ""), `entry 1, "@daily =x": @daily before a command that begins with = is read as a setting; write five fields`},
		{daily("x\x00", ""), `entry 1, "@daily x\x00": "x\x00" is no UTF-8 text, or holds a NUL; change it`},
		{daily("x", "\xff\n"), `entry 1, "@daily x": "\xff\n" is no UTF-8 text, or holds a NUL; change it`},
		{daily("x", "a"), `entry 1, "@daily x": the input does not end with a newline, which a crontab adds; add one`},
		{daily("x", "a\\\nb\n"), `entry 1, "@daily x": a line of the input ends with a backslash, but \% is a percent sign in a crontab; put`},
		{daily("x", "a\\\n\n"), `entry 1, "@daily x": a line of the input ends with a backslash`},
		{daily("x", "", "A=\xff"), `entry 1, "@daily x": "A=\xff" is no UTF-8 text, or holds a NUL; change it`},
		{daily("x", "", "A"), `entry 1, "@daily x": the setting "A" has no equals sign; write NAME=VALUE`},
		{daily("x", "", "=1"), `entry 1, "@daily x": the name before = is empty`},
		{daily("x", "", "A=1\nB=2"), `entry 1, "@daily x": the setting "A" holds a newline; set it in a script`},
		{daily("x", "", "A\n=1"), `entry 1, "@daily x": the setting "A\n" holds a newline`},
		{daily("x", "", `A= "'`), `entry 1, "@daily x": the value of "A" needs quotes and holds both kinds; set it in a script`},
		{daily("x", "", `A="'`), `entry 1, "@daily x": the value of "A" needs quotes and holds both kinds`},
		{daily("x", "", `A "'=1`), `entry 1, "@daily x": the name "A \"'" needs quotes and holds both kinds; choose another`},
		{daily("x", "", "A=1", "A=1"), `entry 1, "@daily x": the setting "A" is there twice; remove one`},
		{daily("x", "", "CRON_TZ=UTC"), `entry 1, "@daily x": CRON_TZ is among the settings; in a crontab it is the zone of the spec, so set that`},
		{daily("x", "", "DBCRON_RUN=1"), `entry 1, "@daily x": the name "DBCRON_RUN" is reserved`},
		{daily("x", "", "LOGNAME=x"), `entry 1, "@daily x": LOGNAME is the user that runs the commands`},
		{daily("x", "", "A="+long), `entry 1, "@daily x": the line has 65538 bytes; use at most 65536`},
		{daily("x", "", many...), `entry 1, "@daily x": more than 1000 settings`},
		{daily(long, ""), `entry 1, "@daily ` + long[:53] + `": the line has 65543 bytes; use at most 65536, or call a script`},
		{named("a", "b", "a"), `entry 3, "a": its name is that of entry 1, "a"; choose another`},
		{named(" a"), `entry 1, " a": the name begins or ends with a blank; remove it`},
		{named("a\t"), `entry 1, "a\t": the name begins or ends with a blank; remove it`},
		{named("\u00a0a"), `entry 1, "\u00a0a": the name "\u00a0a" begins or ends with a space; remove it`},
		{named(" "), `entry 1, " ": the name begins or ends with a blank; remove it`},
		{named("a\nb"), `entry 1, "a\nb": the name "a\nb" holds a control character; remove it`},
		{named(long[:201]), `entry 1, "` + long[:60] + `": the name has 201 characters; use at most 200`},
		{[]crontab.Entry{{Spec: " @daily", Command: "=x"}}, `entry 1, " @daily =x": @daily before a command that begins with =`},
		{
			[]crontab.Entry{{Spec: "@daily\n", Command: "x"}},
			`entry 1, "@daily\n x": invalid schedule: spec "@daily\n": it holds the control character`,
		},
		{[]crontab.Entry{{Command: "x"}}, `entry 1, " x": invalid schedule: spec "": it is empty`},
		{
			[]crontab.Entry{{Spec: "@daily", Command: "x", Zone: "Mars/Base"}},
			`entry 1, "@daily x": invalid schedule: time zone "Mars/Base" is unknown; use a name`,
		},
		{[]crontab.Entry{{Spec: "@daily", Command: "x", Zone: "UTC "}}, `entry 1, "@daily x": the zone "UTC " holds blanks`},
		{
			slices.Concat(daily("x", "", "B=1"), daily("y", "", "A=1")),
			`entry 2, "@daily y": the setting "B" of entry 1, "@daily x", is missing, and no line of a crontab takes it back; give it to both, or write two files`,
		},
		{
			slices.Concat(daily("x", "", "A=1", "B=1"), daily("y", "", "C=1")),
			`entry 1, "@daily x": the setting "C" of entry 2, "@daily y", is missing`,
		},
		{daily("x", "", large...), "the crontab has 16901460 bytes; write several of at most 16777216"},
	} {
		got, err := crontab.Format(c.entries)
		if err == nil || got != nil {
			t.Errorf("got %.40q, want %q", got, c.want)
			continue
		}
		if !strings.HasPrefix(err.Error(), c.want) || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), "; ") {
			t.Errorf("got %q, want one line, %q", err, c.want)
		}
	}
}

// TestFormatAllProblems: one call shows all that is wrong, in the given order.
func TestFormatAllProblems(t *testing.T) {
	t.Parallel()
	_, err := crontab.Format([]crontab.Entry{
		{Spec: "@daily", Command: "x", Name: "good", Env: []string{"A=1"}},
		{Spec: "@daily", Command: "x", Name: "command\n"},
		{Spec: "@daily", Command: " x", Name: "blank", Env: []string{"A=1", "B=1"}},
		{Spec: "@daily", Command: "x", Env: []string{"B=1"}},
		{Spec: "@daily", Command: "y", Env: []string{"A=2"}},
		{Spec: "@never", Command: "x"},
	})
	if err == nil {
		t.Fatal("accepted")
	}
	var got []string
	for line := range strings.SplitSeq(err.Error(), "\n") {
		entry, _, _ := strings.Cut(line, ",")
		got = append(got, entry)
	}
	if want := "entry 2 entry 3 entry 4 entry 6"; strings.Join(got, " ") != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func format(t rapid.TB, entries []crontab.Entry) string {
	t.Helper()
	text, err := crontab.Format(entries)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// same compares all that a crontab says; a spec by its words, and Env as a set.
func same(a, b []crontab.Entry) bool {
	return slices.EqualFunc(a, b, func(a, b crontab.Entry) bool {
		return a.Name == b.Name && slices.Equal(strings.Fields(a.Spec), strings.Fields(b.Spec)) && a.Zone == b.Zone &&
			a.Command == b.Command && a.Stdin == b.Stdin && slices.Equal(sorted(a.Env), sorted(b.Env))
	})
}

func sorted(env []string) []string { return slices.Sorted(slices.Values(env)) }

// checkFormat writes and reads what Parse has returned.
func checkFormat(t rapid.TB, entries []crontab.Entry) {
	t.Helper()
	text := format(t, entries)
	read, err := crontab.Parse("tab", []byte(text))
	switch {
	case err != nil:
		t.Fatalf("%q, which was written for %+v: %v", text, entries, err)
	case !same(read, entries):
		t.Fatalf("%q: got %+v, want %+v", text, read, entries)
	case !slices.Equal(keys(read), keys(entries)):
		t.Fatalf("%q: got keys %q, want %q", text, keys(read), keys(entries))
	}
	if again := format(t, read); again != text {
		t.Fatalf("got %q the second time, and %q the first", again, text)
	}
}

var (
	hostile = []string{
		"a", "b", `\`, `\`, "%", "%", `\%`, " ", "\t", "=", "\r", `"`, "'", "#", "é", "\ufeff", "\v", "$A", "@daily", "* * * * *", "\x01",
	}
	specs = []string{"@daily", "@Every  90s", "* * * * *", "0 4\t* * mon-FRI", "*/10 8-18 1,15 feb 0", "@midnight"}
	zones = []string{"", "UTC", "Asia/Tokyo"}
)

func drawText(t *rapid.T, label string) string {
	return strings.Join(rapid.SliceOfN(rapid.SampledFrom(hostile), 0, 6).Draw(t, label), "")
}

// drawLine draws a line of a crontab that is most likely a good one.
func drawLine(t *rapid.T, n int) string {
	blank := rapid.SampledFrom([]string{"", " ", "\t", " \t "})
	switch rapid.IntRange(0, 9).Draw(t, "kind") {
	case 0:
		return rapid.SampledFrom([]string{"", " ", "# comment", "\t#"}).Draw(t, "nothing")
	case 1:
		return "CRON_TZ=" + rapid.SampledFrom(zones).Draw(t, "zone")
	case 2, 3, 4:
		name := rapid.SampledFrom([]string{"A", "B", "C", `"A B"`, `'#"'`, `a"b'`, "\ufeffA", "1", "*", "'\\%'"}).Draw(t, "setting")
		value := drawText(t, "value")
		if quote := rapid.SampledFrom([]string{"", `"`, "'"}).Draw(t, "quote"); !strings.Contains(value, quote) {
			value = quote + value + quote
		}
		return blank.Draw(t, "1") + name + blank.Draw(t, "2") + "=" + blank.Draw(t, "3") + value + blank.Draw(t, "4")
	case 5:
		return fmt.Sprintf("#%sname: %d%s\n@hourly x", blank.Draw(t, "1"), n, blank.Draw(t, "2"))
	}
	first := rapid.SampledFrom([]string{"x", "x", `\`, `"`, "#"}).Draw(t, "first")
	return blank.Draw(t, "1") + rapid.SampledFrom(specs).Draw(t, "spec") + rapid.SampledFrom([]string{" ", "\t "}).Draw(t, "2") +
		first + drawText(t, "command")
}

// TestFormatReadsBack draws files.
func TestFormatReadsBack(t *testing.T) {
	t.Parallel()
	entries := 0
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.SampledFrom([]string{"", "", "\ufeff"}).Draw(t, "mark")
		for n := range rapid.IntRange(0, 12).Draw(t, "lines") {
			text += drawLine(t, n) + rapid.SampledFrom([]string{"\n", "\r\n"}).Draw(t, "end")
		}
		read, err := crontab.Parse("tab", []byte(text))
		if err != nil {
			return // a value with a quote at its start
		}
		entries += len(read)
		checkFormat(t, read)
	})
	if entries < 100 {
		t.Errorf("only %d entries were drawn", entries)
	}
}

// TestFormatWritesOrRefuses draws entries that no file needs to have: what is
// written is what was given.
func TestFormatWritesOrRefuses(t *testing.T) {
	t.Parallel()
	written, refused := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		given := rapid.SliceOfN(rapid.Custom(drawEntry), 0, 4).Draw(t, "entries")
		text, err := crontab.Format(given)
		if err != nil {
			refused++
			return
		}
		written += len(given)
		read, err := crontab.Parse("tab", text)
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		slices.SortStableFunc(given, func(a, b crontab.Entry) int { return len(a.Env) - len(b.Env) })
		if !same(read, given) {
			t.Fatalf("%q: got %+v, want %+v", text, read, given)
		}
		checkFormat(t, read)
	})
	t.Logf("%d entries written, %d crontabs refused", written, refused)
	if written < 10 || refused < 3 {
		t.Error("too few: draw others")
	}
}

func drawEntry(t *rapid.T) crontab.Entry {
	rarely := func(text string) string {
		if rapid.IntRange(0, 40).Draw(t, "rarely") != 20 { // the ends are drawn often
			return ""
		}
		return text + rapid.SampledFrom([]string{"\n", "\x00", "\xff", "", "", ""}).Draw(t, "worse")
	}
	e := crontab.Entry{
		Name:    rarely(drawText(t, "name")),
		Spec:    rapid.SampledFrom(specs).Draw(t, "spec") + rarely(" "),
		Zone:    rapid.SampledFrom(zones).Draw(t, "zone") + rarely(""),
		Command: rapid.SampledFrom([]string{"x", "x", "x", "x", "x", "x", "=", ""}).Draw(t, "first") + drawText(t, "command") + rarely(""),
	}
	for range rapid.IntRange(0, 2).Draw(t, "input") {
		e.Stdin += drawText(t, "line") + "\n" + rarely("")
	}
	for _, name := range []string{"A", "a\"b'", "# B"}[:rapid.IntRange(0, 3).Draw(t, "settings")] {
		name += rarely(drawText(t, "odd"))
		e.Env = append(e.Env, name+"="+drawText(t, "value")+rarely(""))
	}
	return e
}

func FuzzFormat(f *testing.F) {
	for _, seed := range []string{
		"", "* * * * * a\n@daily b%c\\%", "A=1\n'B' = \" 2 \"\r\n# name: x\n@every 5m c", "CRON_TZ=Asia/Tokyo\n0 0 * * * é",
		"@daily x\r\r\n@daily x%a\r%\n@daily x\r%\n@daily \\\\%\\\\%%\\", "\ufeff\ufeffA=1\n@daily #\n\"#\"=' '\n@daily '",
		"@daily a\n@daily a%\n@daily a", "# dbcron: a=1 b=' 2' c=\n@daily x",
		"a\"b'=c\"d'\r\r\n@daily x\nCRON_TZ=UTC\n@daily x\nCRON_TZ=\n@daily x\nA=1\nB=1\n@daily x\nA=2\nA=1\n@daily x",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		// Not the longest lines: to write NAME="" for NAME= may take one over the limit.
		if entries, err := crontab.Parse("tab", data); err == nil && len(data) < 60<<10 {
			checkFormat(t, entries)
		}
	})
}
