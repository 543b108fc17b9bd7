package queue

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"testing"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/queue/admin"
)

// inEveryState enqueues n jobs with payloads of a given size in each state.
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

// allocated returns how many bytes f allocates.
func allocated(f func()) int {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return int(after.TotalAlloc - before.TotalAlloc)
}

var everyState = []admin.State{admin.StateReady, admin.StateDelayed, admin.StateRunning, admin.StateDead, admin.StateDone}

// TestListWithoutLargePayloads lists jobs whose payloads are left out: they do not come here
// from the database.
func TestListWithoutLargePayloads(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		const n, size = 8, 1 << 20
		c := client(t, db, Options{})
		inEveryState(t, db, c, n, size)
		for _, state := range everyState {
			var all []admin.Job
			bytes := allocated(func() {
				var more int64
				var err error
				if all, more, err = adminOf(c).Jobs(t.Context(), admin.Filter{State: state, Limit: 1000, LongestPayload: 64 << 10}); err != nil || more != 0 {
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
			f, pages := admin.Filter{State: state, Limit: 1000, MaxBytes: most}, 0
			for more := true; more; more = f.After != 0 {
				var part []admin.Job
				var err error
				bytes := allocated(func() { part, f.After, err = adminOf(c).Jobs(t.Context(), f) })
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
			found, _, err := adminOf(c).Jobs(t.Context(), admin.Filter{State: state, Where: "$.n = 7", LongestPayload: 100})
			if err != nil || len(found) != 1 || found[0].Payload != nil || found[0].PayloadBytes != size {
				t.Errorf("%s: $.n = 7: %d jobs, %v", state, len(found), err)
			}
			what := admin.BulkCancel
			if state == admin.StateDead || state == admin.StateDone {
				what = admin.BulkDelete
			}
			r, err := adminOf(c).Bulk(t.Context(), what, admin.Filter{State: state, Where: "$.n > 7"}, admin.BulkOptions{})
			if err != nil || r.Done != 4 {
				t.Errorf("%s: %s: %+v, %v", state, what, r, err)
			}
		}
	})
}

func TestJobsWhere(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		jobs := make([]Job, 300)
		for i := range jobs {
			jobs[i] = Job{Kind: []string{"even", "odd"}[i%2], Payload: fmt.Appendf(nil, `{"n": %d, "big": 900719925474099%d}`, i, i%10)}
		}
		ids := enqueueMany(t, c, jobs)
		f := admin.Filter{Where: `$.big = 9007199254740993`, Limit: 2}
		var got []int64
		for {
			part, more, err := adminOf(c).Jobs(t.Context(), f)
			must(t, err)
			for _, i := range part {
				got = append(got, i.ID)
			}
			if f.After = more; more == 0 {
				break
			}
		}
		var want []int64
		for i := 3; i < len(ids); i += 10 {
			want = append(want, ids[i])
		}
		if !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
		both, _, err := adminOf(c).Jobs(t.Context(), admin.Filter{Where: `$.n >= 290`, Kind: "odd"})
		must(t, err)
		if len(both) != 5 {
			t.Errorf("with a kind there are %d", len(both))
		}
		// It stops after a number of rows, and returns where to continue.
		none, more, err := adminOf(c).Jobs(t.Context(), admin.Filter{Where: `$.none`, Limit: 1})
		must(t, err)
		if len(none) != 0 || more != ids[99] {
			t.Errorf("got %d, more after %d, not %d", len(none), more, ids[99])
		}
		_, _, err = adminOf(c).Jobs(t.Context(), admin.Filter{Queue: "none", Where: `$.`})
		if !errors.Is(err, ErrInvalid) {
			t.Errorf("a wrong condition: %v", err)
		}
	})
}
