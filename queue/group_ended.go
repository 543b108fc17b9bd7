package queue

import (
	"slices"

	"github.com/dbcron/dbcron/queue/internal/store"
)

// tied reports whether the job has rows in other tables. It has to be ended by a transaction that
// knows which jobs it has ended.
func (j *Job) tied() bool { return j.Unique != "" || j.Group != 0 }

func anyTied(rows []jobRow) bool {
	return slices.ContainsFunc(rows, func(r jobRow) bool { return r.tied() })
}

// endedOf selects, from list, the done and tied jobs whose ids among accepts.
func endedOf(list []*Delivery, among func(id int64) bool) (all []store.Ended) {
	for _, d := range list {
		if d.tied() && among(d.ID) {
			e := store.Ended{ID: d.ID, Unique: d.Unique, Group: d.Group, State: store.MemberDone, Result: d.result}
			if d.discarded() {
				e.State = store.MemberCancelled
			}
			all = append(all, e)
		}
	}
	return all
}
