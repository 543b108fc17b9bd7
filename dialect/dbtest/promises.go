package dbtest

import (
	"os"
	"strings"
	"testing"
)

// Promises fails for each sentence, or part of one, that a page of docs does not have, and for each whose figures are not those
// of the code: its value says whether they are. The tests of what a figure does use the constant itself, so none of them fails
// if somebody changes it and leaves the page alone.
func Promises(t *testing.T, page string, sentences map[string]bool) {
	t.Helper()
	read, err := os.ReadFile(page)
	Must(t, err)
	text := oneLine(string(read))
	for sentence, holds := range sentences {
		switch {
		case !strings.Contains(text, oneLine(sentence)):
			t.Errorf("%s does not say %q any more: change this test with it", page, sentence)
		case !holds:
			t.Errorf("%s says %q, and the code does not do so", page, sentence)
		}
	}
}

// oneLine removes the breaks of lines.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }
