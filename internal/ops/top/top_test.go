package top

import (
	"slices"
	"strings"
	"testing"
)

func TestKeysIn(t *testing.T) {
	for sent, want := range map[string]string{
		"": "", "q": "q", "\x1b": "back", "\x1b[A\x1b[Bj": "up down j", "\r": "enter", "ü\x7f": "ü delete", "\x1b[1;5Cx": "x", "\x1b[": "",
		"\x03": "leave", "\x1b[5~\x1b[6~": "page up,page down", "\x00a": "a",
	} {
		if got := keysIn(sent); !slices.Equal(got,
			strings.FieldsFunc(want, func(r rune) bool { return r == ',' || r == ' ' && !strings.Contains(want, ",") })) {
			t.Errorf("%q is %q, not %q", sent, got, want)
		}
	}
}

// What goes wrong in a look is said, and ends nothing.
func TestTopLookPanics(t *testing.T) {
	looks := make(chan *screen, 1)
	(&Terminal{}).lookAt(t.Context(), place{view: locksView}, looks)
	if s := <-looks; s.err == nil || !strings.Contains(s.err.Error(), "panic") {
		t.Errorf("got %+v", s)
	}
}
