package sqlrun

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// CheckName returns an error for a name chosen by a user that not all engines store and compare
// alike, or that exceeds the 200 characters of its column.
func CheckName(name string) error {
	if len(name) > 0 && len(name) <= 200 && visible(name) {
		return nil
	}
	wrong := ""
	switch {
	case name == "":
		wrong = "it is empty"
	case !utf8.ValidString(name):
		wrong = "it is not UTF-8"
	case utf8.RuneCountInString(name) > 200:
		wrong = "it has more than 200 characters"
	case strings.TrimSpace(name) != name:
		// MySQL ignores trailing blanks in comparisons.
		wrong = "it begins or ends with a blank"
	case strings.ContainsFunc(name, unicode.IsControl):
		wrong = "it has control characters"
	default:
		return nil
	}
	return fmt.Errorf("name %q: %s", name, wrong)
}

// visible reports whether a text is only of ASCII's letters, digits and signs, as most names are.
func visible(text string) bool {
	for i := range len(text) {
		if text[i] <= ' ' || text[i] > '~' {
			return false
		}
	}
	return true
}

// CutVersion makes a program's version fit a column and a label.
func CutVersion(v string) string {
	return strings.ToValidUTF8(v[:min(len(v), 64)], "")
}
