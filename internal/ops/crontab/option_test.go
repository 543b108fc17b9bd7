package crontab_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/dbcron/dbcron/internal/ops/crontab"
)

// Options stand in comments directly above an entry, beside its name, in any order.
func TestOptions(t *testing.T) {
	t.Parallel()
	text := strings.Join([]string{
		"# dbcron: timeout=1h max-attempts=3",
		"# name: backup",
		"# an ordinary comment",
		"#dbcron:\tdir='/srv/a b' tag=\"it's\" empty= x=a'b=c",
		"@daily true",
		"@daily next",
		"A=1",
		"# dbcron: last=1",
		"@hourly last",
	}, "\n")
	entries := parse(t, text)
	var got [][]crontab.Option
	for _, e := range entries {
		got = append(got, e.Options)
	}
	want := [][]crontab.Option{
		{{"timeout", "1h", 1}, {"max-attempts", "3", 1}, {"dir", "/srv/a b", 4}, {"tag", "it's", 4}, {"empty", "", 4}, {"x", "a'b=c", 4}},
		nil,
		{{"last", "1", 8}},
	}
	if !reflect.DeepEqual(got, want) || entries[0].Name != "backup" {
		t.Errorf("got %v of %q, want %v", got, entries[0].Name, want)
	}
	// They do not tell an entry from others, and are the same when they are written and read again.
	if plain := parse(t, "@daily next\n# dbcron: timeout=1h\n@daily true"); plain[0].Key != entries[1].Key {
		t.Errorf("got key %s, want %s", plain[0].Key, entries[1].Key)
	}
	again := parse(t, format(t, entries))
	for i := range again {
		for j := range again[i].Options {
			again[i].Options[j].Line = want[i][j].Line
		}
		if i < 2 && !reflect.DeepEqual(again[i].Options, want[i]) {
			t.Errorf("got %v, want %v", again[i].Options, want[i])
		}
	}
}

func TestWrongOptions(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"# dbcron:\n@daily x":                     `:1: no option follows`,
		"# dbcron: timeout\n@daily x":             `:1: "timeout" is no option; write NAME=VALUE`,
		"# dbcron: =1h\n@daily x":                 `:1: "=1h" is no option`,
		"# dbcron: a=1 b\n@daily x":               `:1: "b" is no option`,
		"# dbcron: a=1 a=2\n@daily x":             `:1: the option a is there twice`,
		"# dbcron: a=1\n# dbcron: a=2\n@daily x":  `:2: the option a is there twice`,
		"# dbcron: a='1\n@daily x":                `:1: the quote ' is not closed`,
		"# dbcron: a='1'2\n@daily x":              `:1: "2" follows the closing quote`,
		"@daily x\n# dbcron: a=1":                 `:2: the options belong to no entry`,
		"# dbcron: a=1\n\n@daily x":               `:1: the options belong to no entry`,
		"# dbcron: a=1\nA=1\n@daily x":            `:1: the options belong to no entry`,
		"# dbcron:" + strings.Repeat(" a=1", 200): `:1: the option a is there twice`,
	} {
		if entries, err := crontab.Parse("file", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, %v; want an error with %q", text, entries, err, want)
		}
	}
	for _, value := range []string{`'"`, "a\nb", `" 'x'`} {
		entry := crontab.Entry{Spec: "@daily", Command: "x", Options: []crontab.Option{{Name: "a", Value: value}}}
		if text, err := crontab.Format([]crontab.Entry{entry}); err == nil {
			t.Errorf("%q: got %q, want an error", value, text)
		}
	}
}
