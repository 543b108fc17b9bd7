package queue

import (
	"cmp"
	"context"
	"slices"

	"github.com/dbcron/dbcron/dialect"
)

// An ended is a job that a transaction has ended and that is noted elsewhere as well:
// its unique key is in use, or its group waits for it.
type ended struct {
	id     int64
	unique string
	group  int64
	state  memberState
	result []byte
	why    string
}

// tied tells whether a job is noted elsewhere. What ends one takes a transaction that
// knows which jobs it has ended.
func (j *Job) tied() bool { return j.Unique != "" || j.Group != 0 }

func anyTied(rows []jobRow) bool {
	return slices.ContainsFunc(rows, func(r jobRow) bool { return r.tied() })
}

// endedOf lists those of some jobs that are done, tied, and among some ids.
func endedOf(list []*Delivery, among func(id int64) bool) (all []ended) {
	for _, d := range list {
		if d.tied() && among(d.ID) {
			e := ended{id: d.ID, unique: d.Unique, group: d.Group, state: memberDone, result: d.result}
			if d.dropped {
				e.state = memberCancelled
			}
			all = append(all, e)
		}
	}
	return all
}

// releaseTies frees the unique keys of jobs that this transaction has ended, and notes in
// their groups what has become of them.
func releaseTies(ctx context.Context, tx *dialect.Session, queue int, all []ended) error {
	var keys uniques
	var members []ended
	for _, e := range all {
		keys.add(e.id, e.unique)
		if e.group != 0 {
			members = append(members, e)
		}
	}
	if err := freeUnique(ctx, tx, queue, &keys); err != nil {
		return err
	}
	slices.SortFunc(members, func(a, b ended) int { return cmp.Or(cmp.Compare(a.group, b.group), cmp.Compare(a.id, b.id)) })
	return finish(ctx, tx, members)
}
