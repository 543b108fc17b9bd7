package queue

import (
	"fmt"
	"slices"
	"testing"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/queue/admin"
)

// Jobs whose rows somebody has written by hand, so that no worker can ever read them, are found: by their places, by their ids, and in
// lists. Others of the class that were looked at: a block between those of a queue is made anew (TestLateJobOfARetiredBlock), the priority of a
// delayed job is taken for normal, and dead and done jobs are found by queue and id.
func TestUnreadable(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		world(t, db)
		a := adminOf(client(t, db, Options{}))
		before, err := a.Unreadable(t.Context(), 100)
		if must(t, err); len(before) > 0 {
			t.Fatalf("before: %+v", before)
		}
		placeSentinels(t, db, 3)
		byHand(
			t, db,
			`INSERT INTO {prefix}queue (queue_id, name) VALUES (2, 'r'), (9, 'new')`,
			`INSERT INTO {prefix}queue_block (queue_id, divided, state, lock_by, fence) VALUES (2, 3, 'FREE', '', 5), (2, 4, 'FREE', '', 5)`,
			`INSERT INTO {prefix}job (queue_id, divided, priority, id, kind) VALUES (2, 4, 77, 202, 'x'), (2, 4, 77, 201, 'x'), (2, 3, 0, 203, 'x'), (2, 999, 3, 204, 'x'),
				(2, 4, 2, 205, 'x'), (5, 3, 2, 206, 'x'), (9, 3, 2, 209, 'x')`,
			`INSERT INTO {prefix}job_delayed (queue_id, divided, id, run_at, kind) VALUES (2, 1, 207, {now}, 'x'), (-5, 3, 208, {now}, 'x')`,
		)
		all, err := a.Unreadable(t.Context(), 100)
		must(t, err)
		var got []string
		for _, u := range all {
			got = append(got, fmt.Sprint(u.State, " ", u.Queue, " ", u.Job, " ", u.Wrong))
		}
		slices.Sort(got)
		want := []string{
			"delayed r 207 divided: the queue has no block 1", "ready  206 queue_id: there is no queue 5", "ready r 201 priority: 77 is not 1 to 4",
			"ready r 203 priority: 0 is not 1 to 4", "ready r 204 divided: the queue has no block 999",
		}
		if slices.Equal(got, append([]string{"delayed  208 queue_id: there is no queue -5"}, want...)) {
			got = want
		}
		if !slices.Equal(got, want) {
			t.Errorf("got  %q\nwant %q", got, want)
		}
		for id, wrong := range map[int64]bool{201: true, 202: true, 203: true, 204: true, 205: false, 206: true, 207: true} {
			i, err := a.Find(t.Context(), id)
			if must(t, err); (i.Unreadable != "") != wrong {
				t.Errorf("job %d: %q", id, i.Unreadable)
			}
		}
		for state, want := range map[admin.State]string{admin.StateReady: "[201! 202! 203! 204! 205]", admin.StateDelayed: "[207!]"} {
			jobs, _, err := a.Jobs(t.Context(), admin.Filter{Queue: "r", State: state})
			must(t, err)
			var ids []string
			for _, i := range jobs {
				ids = append(ids, fmt.Sprint(i.ID)+map[bool]string{true: "!"}[i.Unreadable != ""])
			}
			if fmt.Sprint(ids) != want {
				t.Errorf("%s: %v are listed, not %s", state, ids, want)
			}
		}
		done, err := a.Bulk(t.Context(), admin.BulkCancel, admin.Filter{Queue: "r"}, admin.BulkOptions{DryRun: true})
		if must(t, err); done.Done != 1 {
			t.Errorf("%d would be cancelled", done.Done)
		}
	})
}
