package store

import (
	"context"
	"iter"

	"github.com/dbcron/dbcron/internal/sqlrun"
)

// Chunk is the maximum number of jobs that one statement inserts.
const Chunk = 1000

// InParts splits a list into what one statement should have: up to chunk rows, of a total size
// that every server accepts, or one row that is larger.
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

// PartOf returns how many of a list's first items have a total size of at most most bytes.
func PartOf[T any](list []T, most int, weight func(*T) int) int {
	size := 0
	for i := range min(len(list), Chunk) {
		if size += weight(&list[i]); size > most && i > 0 {
			return i
		}
	}
	return min(len(list), Chunk)
}

// ExecParts runs a statement for some records, its :rows, in parts. It returns the total number
// of rows that it changed in the table.
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

// recordWeight returns the approximate size of a record in a statement, in bytes: its texts,
// and as much again for its numbers and the names of its fields.
func recordWeight(row *sqlrun.Args) int {
	n := 256
	for _, value := range *row {
		if text, ok := value.(string); ok {
			n += sqlrun.Weight(text)
		}
	}
	return n
}

// UpTo cuts a list that is sorted by id, but never between jobs with the same id: a caller that
// continues after that id would miss the rest of them.
func UpTo[T any](all []T, limit int, id func(*T) int64) []T {
	for limit > 0 && limit < len(all) && id(&all[limit-1]) == id(&all[limit]) {
		limit++
	}
	return all[:min(limit, len(all))]
}
