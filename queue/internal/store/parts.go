package store

import (
	"context"
	"iter"

	"github.com/dbcron/dbcron/internal/sqlrun"
)

// Chunk is how many jobs one statement inserts at the most.
const Chunk = 1000

// InParts divides a list by what one statement should have: up to chunk rows, and so many
// bytes that every server takes them, or one row that has more.
func InParts[T any](list []T, weight func(*T) int) iter.Seq[[]T] {
	return func(yield func([]T) bool) {
		for len(list) > 0 {
			n := PartOf(list, sqlrun.MaxBytes, weight)
			if !yield(list[:n:n]) {
				return
			}
			list = list[n:]
		}
	}
}

// PartOf is how many of the first of a list are a part of so many bytes at the most.
func PartOf[T any](list []T, most int, weight func(*T) int) int {
	size := 0
	for i := range min(len(list), Chunk) {
		if size += weight(&list[i]); size > most && i > 0 {
			return i
		}
	}
	return min(len(list), Chunk)
}

// ExecParts runs a statement for some records, which are :rows, a part of them at a time. It
// adds up how many rows of the table that reached.
func ExecParts(ctx context.Context, tx *sqlrun.Session, stmt *sqlrun.Stmt, args sqlrun.Args, rows []sqlrun.Args) (n int64, err error) {
	for part := range InParts(rows, recordWeight) {
		args["rows"] = part
		reached, err := tx.Exec(ctx, stmt, args)
		if err != nil {
			return n, err
		}
		n += reached
	}
	return n, nil
}

// recordWeight is how many bytes a record has in a statement: its texts, and about as many as
// its numbers and the names of its fields.
func recordWeight(row *sqlrun.Args) int {
	n := 256
	for _, value := range *row {
		if text, ok := value.(string); ok {
			n += sqlrun.Weight(text)
		}
	}
	return n
}

// UpTo cuts a list that is sorted by ids, but not between jobs that have one id: whoever goes on
// after it would miss the rest of them.
func UpTo[T any](all []T, limit int, id func(*T) int64) []T {
	for limit > 0 && limit < len(all) && id(&all[limit-1]) == id(&all[limit]) {
		limit++
	}
	return all[:min(limit, len(all))]
}
