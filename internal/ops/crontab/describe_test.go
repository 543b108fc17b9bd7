package crontab

import (
	"strings"
	"testing"
)

func TestDescription(t *testing.T) {
	t.Parallel()
	const line = "0 5 * * * true\n"
	for text, want := range map[string]string{
		line:                               "",
		"# Nightly backup\n" + line:        "Nightly backup",
		"##  Nightly\t backup  #\n" + line: "Nightly backup #",
		"# Backs up\n# the shop.\n" + line: "Backs up the shop.",
		"# Backup\n\n" + line:              "",
		"# Backup\nA=b\n" + line:           "",
		"# All\n#\n# Backup\n" + line:      "Backup",
		"# Backup\n# ------\n" + line:      "",
		"# ------\n# Backup\n# name: b\n# dbcron: timeout=1h\n" + line: "Backup",
		"# name: b\n# Backup\n" + line:                                 "Backup",
		"# Old:\n#0 4 * * * old\n" + line:                              "",
		"#@daily old\n" + line:                                         "",
		"#MAILTO=root\n" + line:                                        "",
		"# Tasks.\n#\n# m h  dom mon dow   command\n" + line:           "",
		"# *  *  *  *  * user-name command to be executed\n" + line:    "",
		"# Sauvegarde \xe9t\xe9\n" + line:                              "Sauvegarde été",
		"# Sicherung täglich\r\n" + line:                               "Sicherung täglich",
		"# \x00\x1b[1m Backup\n" + line:                                "",
		"# " + strings.Repeat("é", 1001) + "\n" + line:                 strings.Repeat("é", 999) + "…",
	} {
		entries, err := Parse("tab", []byte(text+"1 5 * * * other\n"))
		if strings.Contains(text, "\x00") { // a line that is refused
			if err == nil {
				t.Errorf("%q is read", text)
			}
			continue
		}
		if err != nil || len(entries) != 2 || entries[0].Description != want || entries[1].Description != "" {
			t.Errorf("%q: got %+v, %v, want %q", text, entries, err, want)
		}
		written, err := Format(entries)
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		again, err := Parse("tab", written)
		if err != nil || again[0].Description != want || again[1].Description != "" {
			t.Errorf("%q: written as %q, %v", text, written, err)
		}
	}
	for text, want := range map[string]bool{"Backup": true, "": true, "@daily": false, "a\nb": false, "name: x": false, " a": false} {
		if Describes(text) != want {
			t.Errorf("Describes(%q) is %v", text, !want)
		}
	}
	if text, err := Format([]Entry{{Spec: "@daily", Command: "true", Description: "@hourly"}}); err == nil {
		t.Errorf("written: %q", text)
	}
}
