package address

import "testing"

// A text that nobody can read, since it was written by hand, is the daemons' default, and not nobody.
func TestOwnTargets(t *testing.T) {
	for text, want := range map[string]struct {
		own    string
		nobody bool
	}{
		"":                     {"", false},
		"none":                 {"", true},
		" none ":               {"", true},
		"somebody":             {"", false},
		"a@b.example, none":    {"", false},
		"a@b.example":          {"mailto:a@b.example", false},
		"mailto:root\ta@b.c,":  {"mailto:root mailto:a@b.c", false},
		"a@b.c,mailto:a@b.c":   {"mailto:a@b.c", false},
		"https://example.org/": {"https://example.org/", false},
		"command:true":         {"", false},
	} {
		if own, nobody := OwnTargets(text); own != want.own || nobody != want.nobody {
			t.Errorf("%q: %q, %v", text, own, nobody)
		}
	}
}
