package jobfield

import (
	"strings"
	"testing"
)

func TestValidTrace(t *testing.T) {
	const good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for _, text := range []string{good, NewTrace(), strings.Replace(good, "00", "01", 1), "cc" + good[2:] + "-what-will-be"} {
		if !ValidTrace(text) {
			t.Errorf("%q is refused", text)
		}
	}
	if one, two := NewTrace(), NewTrace(); one == two {
		t.Error("two traces are the same")
	}
	for what, text := range map[string]string{
		"nothing": "", "a word": "t", "more in version 00": good + "-x", "a version that cannot be": "ff" + good[2:],
		"no trace":  "00-00000000000000000000000000000000-b7ad6b7169203331-01",
		"no parent": "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
		"capitals":  strings.ToUpper(good), "too short": good[:54], "another mark": strings.ReplaceAll(good, "-", "_"),
		"more without a mark": "01" + good[2:] + "x", "a blank": "01" + good[2:] + "- ", "a line": "01" + good[2:] + "-\n",
		"too long": "01" + good[2:] + "-" + strings.Repeat("x", 512),
	} {
		if ValidTrace(text) {
			t.Errorf("%s is taken: %q", what, text)
		}
	}
}
