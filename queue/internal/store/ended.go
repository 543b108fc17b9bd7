package store

import (
	"cmp"
	"context"
	"slices"

	"github.com/dbcron/dbcron/internal/sqlrun"
)

// An Ended is a job that a transaction has ended and that other tables refer to: it has a
// unique key, or its group waits for it.
type Ended struct {
	ID     int64
	Unique string
	Group  int64
	State  MemberState
	Result []byte
	Why    string
}

// ReleaseTies frees the unique keys of jobs that this transaction has ended, and records their
// outcomes in their groups.
func ReleaseTies(ctx context.Context, tx *sqlrun.Session, queue int, all []Ended) error {
	var keys Uniques
	var members []Ended
	for _, e := range all {
		keys.Add(e.ID, e.Unique)
		if e.Group != 0 {
			members = append(members, e)
		}
	}
	if err := FreeUnique(ctx, tx, queue, &keys); err != nil {
		return err
	}
	slices.SortFunc(members, func(a, b Ended) int { return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.ID, b.ID)) })
	return Finish(ctx, tx, members)
}
