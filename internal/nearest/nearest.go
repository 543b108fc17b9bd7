// Package nearest finds the word that a mistyped one may be a slip of.
package nearest

import "strings"

// Of returns the one of the known words that name is nearest to, or "" if it is another
// word than any of them. Large letters and hyphens are no difference. Of two that are
// equally near, it is the later one.
func Of(name string, known []string) string {
	plain := plainly(name)
	best, nearest := 2, "" // more than two slips are another word
	for _, k := range known {
		if d := slips(plain, plainly(k)); d <= min(best, max(1, len(k)/3)) {
			best, nearest = d, k
		}
	}
	return nearest
}

func plainly(word string) string { return strings.ReplaceAll(strings.ToLower(word), "-", "_") }

// slips counts the letters to add, leave out or replace, and the neighbours to
// swap, until a is b. It gives up at lengths that differ a lot.
func slips(a, b string) int {
	if len(a) > len(b)+2 || len(b) > len(a)+2 {
		return 3
	}
	above := make([]int, len(b)+1) // the row of a[:i-1], and before it that of a[:i-2]
	before := above
	for j := range above {
		above[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row := make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			row[j] = min(above[j], row[j-1]) + 1
			if a[i-1] == b[j-1] {
				row[j] = min(row[j], above[j-1])
			}
			row[j] = min(row[j], above[j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, above = above, row
	}
	return above[len(b)]
}
