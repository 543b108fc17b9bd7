package sqlrun

import (
	"strconv"
	"strings"
	"testing"
)

func TestCompile(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"SELECT 1", "SELECT 1"},
		{"\n\t\tSELECT a\n\t\tFROM x\n", "SELECT a\nFROM x"},
		{"SELECT :a, :b_2, :a", "SELECT $1, $2, $3"},
		{"SELECT ':a', 'it''s :b', :c", "SELECT ':a', 'it''s :b', $1"},
		{"SELECT x::text, :a::bigint", "SELECT x::text, $1::bigint"},
		{"SELECT a : b, 'x':", "SELECT a : b, 'x':"},
		{"FROM {prefix}run", "FROM ops.other_run"},
		{"{now}", "NOW"},
		{"{now + :ttl}", "(NOW + $1)"},
		{"{now + {int :ttl}}", "(NOW + CAST($1 AS INT8))"},
		{"{us {time :due}}", "us(time($1))"},
		{"SELECT id {skip_locked}", "SELECT id SKIP"},
		{"INSERT {ignore_duplicate id}", "INSERT IGNORE id"},
		{"VALUES {values rows: (:a, {time :b})} x", "VALUES ($1, time($2)) x"},
		{"{union rows: SELECT :a AS a} WHERE :b", "SELECT $1 AS a WHERE $2"},
		{"'{prefix}run'", "'ops.other_run'"},
		{"{in a.b :ids} AND {in c text :names}", "a.b int $1 AND c text $2"},
	} {
		got, err := render(c.text)
		if err != nil || got != c.want {
			t.Errorf("%q: got %q, %v; want %q", c.text, got, err, c.want)
		}
	}
}

func TestCompileRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"SELECT {now":                  "unclosed {",
		"SELECT {us {now}":             "unclosed {",
		"SELECT {soon}":                "unknown fragment {soon}",
		"SELECT {}":                    "unknown fragment {}",
		"SELECT {us}":                  "unknown fragment {us}",
		"SELECT {prefix x}":            "unknown fragment {prefix x}",
		"SELECT {now - :ttl}":          "unknown fragment {now - :ttl}",
		"SELECT {now +:ttl}":           "unknown fragment {now +:ttl}",
		"VALUES {values (:a)}":         "names no rows",
		"VALUES {values : (:a)}":       "names no rows",
		"SELECT '{values rows: (:a)}'": "within quotes",
		"SELECT \x000\x00":             "NUL",
	} {
		if got, err := render(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %q, %v; want an error with %q", text, got, err, want)
		}
	}
}

// Whatever stands in a statement, compiling it ends in a text or an error, and
// what has none of the marks is left as it is.
func FuzzCompile(f *testing.F) {
	for _, s := range []string{
		"SELECT 1", "SELECT {us {time :a}} -- ':b'", "{values r: ({int :a}, 'x')}", "{union r: {values q: :a}}",
		"a::b :c {now + :d}", "{", "}", "'{", ":", "\x00", "{values r: '}{us '}", "{{{}}}",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 300 || strings.Count(text, "{") > 20 { // fragments may repeat what is in them
			return
		}
		got, err := render(text)
		if !strings.ContainsAny(text, "{}:'\x00") && (err != nil || got != dedent(text)) {
			t.Errorf("%q became %q, %v", text, got, err)
		}
	})
}

// render compiles and writes text for an engine whose fragments are easy to
// read.
func render(text string) (string, error) {
	d := &Dialect{
		Placeholder:     func(n int) string { return "$" + strconv.Itoa(n) },
		Now:             "NOW",
		Add:             func(t, us string) string { return "(" + t + " + " + us + ")" },
		FromMicros:      func(us string) string { return "time(" + us + ")" },
		ToMicros:        func(t string) string { return "us(" + t + ")" },
		BigInt:          "INT8",
		SkipLocked:      "SKIP",
		In:              func(column Column, list string) string { return column.Name + " " + column.Kind + " " + list },
		IgnoreDuplicate: func(column string) string { return "IGNORE " + column },
	}
	nodes, err := compile(text, d, "ops.other_")
	if err != nil {
		return "", err
	}
	w := writer{d: d, sample: true}
	err = w.write(nodes, nil, row{})
	return w.text.String(), err
}
