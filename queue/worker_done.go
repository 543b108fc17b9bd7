package queue

import (
	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// If a queue keeps done jobs, the transaction that deletes a job copies it to the table of done
// jobs, so it is always in exactly one of the two. Other queues do not use that table.

// doneOf describes done jobs to the transaction that ends them.
func doneOf(list []*Delivery) []store.Done {
	all, now := make([]store.Done, len(list)), instant.Now()
	for i, d := range list {
		all[i] = store.Done{
			ID: d.ID, Priority: d.Priority, Attempt: d.Attempt, Crashes: d.Crashes, Discarded: d.discarded(), Reason: d.reason,
			Unique: d.Unique, Group: d.Group, Result: d.result,
		}
		if d.began != 0 { // otherwise it is about to begin, at most once
			all[i].Began = now.Sub(d.began)
		}
	}
	return all
}
