package queue

import (
	"bytes"
	"fmt"
	"runtime"
	"testing"

	"github.com/dbcron/dbcron/dialect/dbtest"
)

// inEveryState has n jobs with payloads of so many bytes in each state.
func inEveryState(t *testing.T, db *dbtest.DB, c *Client, n, size int) {
	t.Helper()
	for i := range n {
		enqueue(t, c, Job{Kind: "large", Payload: fmt.Appendf(nil, `{"n":%d,"x":"%s"}`, i,
			bytes.Repeat([]byte{'x'}, size-len(fmt.Sprintf(`{"n":%d,"x":""}`, i))))})
	}
	const is = `queue_id, divided, id, priority, kind, payload`
	for table, more := range map[string][2]string{
		"job_delayed": {"run_at", "{now + :later}"},
		"job_running": {"state, lock_by, fence, started_at", "'running', 'x', 1, {now}"},
		"job_dead":    {"error, died_at", "'no', {now}"},
		"job_done": {
			"attempt, crashes, error, outcome, worker, started_at, ended_at, purge_at",
			"1, 0, '', 'done', 'x', {now}, {now}, {now + :later}",
		},
	} {
		db.Do(t, `INSERT INTO {prefix}`+table+` (`+is+`, `+more[0]+`) SELECT `+is+`, `+more[1]+` FROM {prefix}job`,
			map[string]any{"later": int64(3_600_000_000)})
	}
}

// allocated is how many bytes f allocates.
func allocated(f func()) int {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return int(after.TotalAlloc - before.TotalAlloc)
}

var everyState = []State{StateReady, StateDelayed, StateRunning, StateDead, StateDone}

// TestListWithoutLargePayloads lists jobs whose payloads are left out: they do not come here
// from the database.
func TestListWithoutLargePayloads(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		const n, size = 8, 1 << 20
		c := client(t, db, Options{})
		inEveryState(t, db, c, n, size)
		for _, state := range everyState {
			var all []Info
			bytes := allocated(func() {
				var more int64
				var err error
				if all, more, err = c.Jobs(t.Context(), Filter{State: state, Limit: 1000, LongestPayload: 64 << 10}); err != nil || more != 0 {
					t.Fatalf("%s: %v, more after %d", state, err, more)
				}
			})
			if len(all) != n || bytes > n*size/4 {
				t.Errorf("%s: %d jobs, and %d bytes of memory", state, len(all), bytes)
			}
			for _, i := range all {
				if i.Payload != nil || i.PayloadBytes != size {
					t.Errorf("%s: %d bytes of %d", state, len(i.Payload), i.PayloadBytes)
				}
			}
		}
	})
}

// TestListEndsBeforeItIsTooLarge reads pages of a few payloads, until each job was there once.
func TestListEndsBeforeItIsTooLarge(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		const n, size, most = 12, 256 << 10, 5 * 256 << 10
		c := client(t, db, Options{})
		inEveryState(t, db, c, n, size)
		for _, state := range everyState {
			seen := map[int64]bool{}
			f, pages := Filter{State: state, Limit: 1000, MaxBytes: most}, 0
			for more := true; more; more = f.After != 0 {
				var part []Info
				var err error
				bytes := allocated(func() { part, f.After, err = c.Jobs(t.Context(), f) })
				if err != nil {
					t.Fatal(err)
				}
				if pages++; len(part) > most/size || len(part) == 0 || bytes > 4*most {
					t.Errorf("%s: a page of %d jobs, and %d bytes of memory", state, len(part), bytes)
				}
				for _, i := range part {
					if len(i.Payload) != size || i.PayloadBytes != size {
						t.Errorf("%s: a payload of %d bytes of %d", state, len(i.Payload), i.PayloadBytes)
					}
					seen[i.ID] = true
				}
			}
			if len(seen) != n || pages < n*size/most {
				t.Errorf("%s: %d jobs on %d pages", state, len(seen), pages)
			}
			found, _, err := c.Jobs(t.Context(), Filter{State: state, Where: "$.n = 7", LongestPayload: 100})
			if err != nil || len(found) != 1 || found[0].Payload != nil || found[0].PayloadBytes != size {
				t.Errorf("%s: $.n = 7: %d jobs, %v", state, len(found), err)
			}
			what := BulkCancel
			if state == StateDead || state == StateDone {
				what = BulkDelete
			}
			r, err := c.Bulk(t.Context(), what, Filter{State: state, Where: "$.n > 7"}, BulkOptions{})
			if err != nil || r.Done != 4 {
				t.Errorf("%s: %s: %+v, %v", state, what, r, err)
			}
		}
	})
}
