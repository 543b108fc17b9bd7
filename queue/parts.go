package queue

import (
	"iter"

	"github.com/dbcron/dbcron/dialect"
)

// inParts divides a list by what one statement should have: up to chunk rows, and so many
// bytes that every server takes them, or one row that has more.
func inParts[T any](list []T, weight func(*T) int) iter.Seq[[]T] {
	return func(yield func([]T) bool) {
		for len(list) > 0 {
			n := partOf(list, weight)
			if !yield(list[:n:n]) {
				return
			}
			list = list[n:]
		}
	}
}

// partOf is how many of the first of a list are a part.
func partOf[T any](list []T, weight func(*T) int) int {
	size := 0
	for i := range min(len(list), chunk) {
		if size += weight(&list[i]); size > dialect.MaxBytes && i > 0 {
			return i
		}
	}
	return min(len(list), chunk)
}
