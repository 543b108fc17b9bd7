package dialect

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// CheckName tells what is wrong with a name that users choose, if anything:
// those that pass are stored and compared alike by all engines. A column for
// them holds 200 characters.
func CheckName(name string) error {
	wrong := ""
	switch {
	case name == "":
		wrong = "it is empty"
	case !utf8.ValidString(name):
		wrong = "it is not UTF-8"
	case utf8.RuneCountInString(name) > 200:
		wrong = "it has more than 200 characters"
	case strings.TrimSpace(name) != name:
		// MySQL ignores trailing blanks when it compares.
		wrong = "it begins or ends with a blank"
	case strings.ContainsFunc(name, unicode.IsControl):
		wrong = "it has control characters"
	default:
		return nil
	}
	return fmt.Errorf("name %q: %s", name, wrong)
}

// CutVersion makes what a program calls its version fit for a column and a label.
func CutVersion(v string) string {
	return strings.ToValidUTF8(v[:min(len(v), 64)], "")
}
