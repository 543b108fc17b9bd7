package queue

import (
	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// If a queue keeps done jobs, the transaction that deletes a job copies it to the table of done
// jobs, so it is always in exactly one of the two. Other queues do not use that table.

// doneJobs are done jobs that one statement can end: see byTable.
type doneJobs struct {
	from table
	rows []store.Done
}

// doneOf describes jobs that are done, or are about to be, to the transaction that ends them. mu is held, or the
// jobs have ended.
func doneOf(list []*Delivery) []store.Done {
	all, now := make([]store.Done, len(list)), instant.Now()
	for i, d := range list {
		all[i] = store.Done{
			ID: d.ID, Priority: d.Priority, Attempt: d.Attempt, Crashes: d.Crashes, Discarded: d.what == discard, Reason: d.reason,
			Unique: d.unique(), Group: d.Group,
		}
		if d.what != discard {
			all[i].Result = d.result
		}
		if d.began != 0 { // otherwise it is about to begin, at most once
			all[i].Began = now.Sub(d.began)
		}
	}
	return all
}
