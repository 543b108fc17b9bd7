package plain

import "strings"

// Nearest returns the known word nearest to name, or "" if none is near. Case and hyphens do not count. Of two
// equally near words it returns the later one.
func Nearest(name string, known []string) string {
	plain := plainly(name)
	best, nearest := 2, "" // more than two edits make another word
	for _, k := range known {
		if d := slips(plain, plainly(k)); d <= min(best, max(1, len(k)/3)) {
			best, nearest = d, k
		}
	}
	return nearest
}

func plainly(word string) string { return strings.ReplaceAll(strings.ToLower(word), "-", "_") }

// slips counts the letters to insert, delete or replace, and the neighbors to swap, that turn a into b. It
// gives up if the lengths differ a lot.
func slips(a, b string) int {
	if len(a) > len(b)+2 || len(b) > len(a)+2 {
		return 3
	}
	above := make([]int, len(b)+1) // the row of a[:i-1]; before it that of a[:i-2]
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
