package queue

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// A job is found by its id in whatever table, block and queue it is, with all that is known
// of it.
func TestFind(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		world(t, db)
		byHand(
			t, db,
			`INSERT INTO {prefix}queue (queue_id, name) VALUES (2, 'r'), (3, 's')`,
			`INSERT INTO {prefix}queue_block (queue_id, divided, state, lock_by, fence) VALUES (2, 3, 'FREE', '', 5), (2, 4, 'FREE', '', 5), (3, 3, 'FREE', '', 5)`,
			`INSERT INTO {prefix}job (queue_id, divided, priority, id, kind, job_key) VALUES (2, 4, 1, 101, 'x', 'k'), (2, 4, 2, 102, 'x', 'k'), (2, 3, 3, 103, 'x', NULL), (2, 4, 4, 104, 'x', NULL)`,
			`UPDATE {prefix}job_delayed SET attempt = 3, error = 'why' WHERE id = 17`,
			`UPDATE {prefix}job_dead SET detail = 'a stack', divided = 99 WHERE id = 37`, // whose block has gone
		)
		c := client(t, db, Options{})
		for id, want := range map[int64]string{
			7: "q ready 3 0", 17: "q delayed 3 3 why", 27: "q running 3 0 me", 37: "q dead 99 0 a stack", 47: "q done 3 1 me",
			101: "r ready 4 0 k", 102: "r ready 4 0 k", 103: "r ready 3 0", 104: "r ready 4 0",
		} {
			found, err := adminOf(c).Find(t.Context(), id)
			must(t, err)
			got := fmt.Sprint(found.Queue, " ", found.State, " ", found.Block, " ", found.Attempts)
			for _, more := range []string{found.Key, found.Error, found.Worker, found.Detail} {
				if more != "" {
					got += " " + more
				}
			}
			if got != want || found.ID != id || found.State == admin.StateDone && found.Started.IsZero() ||
				found.State != admin.StateReady && found.State != admin.StateRunning && found.At.IsZero() {
				t.Errorf("job %d is %q, not %q: %+v", id, got, want, found)
			}
			for _, name := range []string{"q", "r", "s"} {
				_, err := adminOf(c).Job(t.Context(), name, id)
				if found.Queue == name && err != nil || found.Queue != name && !errors.Is(err, ErrNotFound) {
					t.Errorf("job %d in queue %s: %v", id, name, err)
				}
			}
		}
		if _, err := adminOf(c).Find(t.Context(), 999); !errors.Is(err, ErrNotFound) {
			t.Errorf("there is none: %v", err)
		}
		if _, err := adminOf(c).Job(t.Context(), "none", 7); !errors.Is(err, ErrNotFound) {
			t.Errorf("there is no such queue: %v", err)
		}
	})
}

// Of several jobs with one id none is guessed: the error names all, and nothing is done.
func TestFindAmbiguous(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		world(t, db)
		byHand(
			t, db,
			`INSERT INTO {prefix}queue (queue_id, name) VALUES (2, 'r')`,
			`INSERT INTO {prefix}queue_block (queue_id, divided, state, lock_by, fence) VALUES (2, 3, 'FREE', '', 5)`,
			`INSERT INTO {prefix}job (queue_id, divided, priority, id, kind, job_key) VALUES (1, 5, 2, 7, 'y', 'its key'), (2, 3, 2, 17, 'x', NULL)`,
			`INSERT INTO {prefix}job_delayed (queue_id, divided, id, kind, run_at) VALUES (1, 5, 27, 'y', {now})`,
		)
		c := client(t, db, Options{})
		for id, names := range map[int64][]string{
			7:  {`ready in queue "q", block 3, of kind "x"`, `ready in queue "q", block 5, of kind "y" and key "its key"`},
			27: {`running in queue "q", block 3`, `delayed in queue "q", block 5`},
		} {
			for what, do := range map[string]func() error{
				"find":   func() error { _, err := adminOf(c).Find(t.Context(), id); return err },
				"get":    func() error { _, err := adminOf(c).Job(t.Context(), "q", id); return err },
				"cancel": func() error { return adminOf(c).Cancel(t.Context(), "q", id) }, "delete": func() error { return adminOf(c).Delete(t.Context(), "q", id) },
				"retry": func() error { return adminOf(c).Retry(t.Context(), "q", id) }, "run": func() error { return adminOf(c).RunNow(t.Context(), "q", id) },
			} {
				err := do()
				for _, name := range names {
					if !errors.Is(err, admin.ErrAmbiguous) || !strings.Contains(err.Error(), name) {
						t.Errorf("%s %d: %v", what, id, err)
					}
				}
			}
		}
		wantRows(t, db, "jobs", `SELECT id FROM {prefix}job WHERE id = 7 UNION ALL SELECT id FROM {prefix}job_running WHERE id = 27 UNION ALL SELECT id FROM {prefix}job_delayed WHERE id = 27`, "7", "7", "27", "27")
		if _, err := adminOf(c).Find(t.Context(), 17); !errors.Is(err, admin.ErrAmbiguous) {
			t.Errorf("in two queues: %v", err)
		}
		i, err := adminOf(c).Job(t.Context(), "r", 17)
		must(t, err)
		if i.State != admin.StateReady || i.Queue != "r" {
			t.Errorf("%+v", i)
		}
	})
}

// A job is found in whichever of a thousand blocks its key has it.
func TestFindInManyBlocks(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{Blocks: 1000})
		e, err := c.Enqueue(t.Context(), Job{Kind: "x", Key: "k", Priority: Idle})
		must(t, err)
		i, err := adminOf(c).Find(t.Context(), e.ID)
		must(t, err)
		if i.Key != "k" || i.Block != store.Divided("k", e.ID, 1000) {
			t.Errorf("%+v", i)
		}
	})
}
