package main

import (
	"context"
	"slices"
	"testing"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/dialect/postgres"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/queue/queuetest"
)

func TestRun(t *testing.T) {
	dbtest.One(t, postgres.Dialect, func(t *testing.T, db *dbtest.DB) {
		for range 2 { // the second time its tables and its schedule are there
			if err := run(t.Context(), db.URL); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestSort(t *testing.T) {
	c := queuetest.Client(t, queuetest.DB(t)) // SQLite: it needs no server
	w, err := c.Worker(queue.WorkerOptions{Queues: []string{"river"}})
	if err != nil {
		t.Fatal(err)
	}
	var did []string
	if err := handle(w, func(args sortArgs) { did = append(did, args.Strings...) }); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Enqueue(context.Background(), sortKind.Job(sortArgs{[]string{"b", "a"}})); err != nil {
		t.Fatal(err)
	}
	queuetest.Enqueued(t, c, sortKind.Job(sortArgs{[]string{"b", "a"}}))
	queuetest.Drain(t, w)
	if !slices.Equal(did, []string{"b", "a"}) {
		t.Errorf("did %q", did)
	}
	if o := queuetest.Do(t, w, sortKind.Job(sortArgs{})); o.Verdict != queuetest.Dead {
		t.Error(o)
	}
}
