package plain

import "strings"

// Or joins words of which one is to be chosen: ready, delayed or dead.
func Or(words []string) string {
	n := len(words)
	if n < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:n-1], ", ") + " or " + words[n-1]
}
