package queue

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/sqlrun"
)

// The newest dead jobs of all queues are listed, and delayed ones that have failed; others are
// not, and no more than were asked for.
func TestFailures(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{Blocks: 2})
		if all, more, err := adminOf(c).Failures(t.Context(), 10); err != nil || more || len(all) > 0 {
			t.Errorf("of nothing: %v, %v, %v", all, more, err)
		}
		ids := enqueueMany(t, c, many(3*100, nil))
		other := enqueueMany(t, c, many(5, func(_ int, j *Job) { j.Queue = "other" }))
		die(t, db)
		db.Do(t, `UPDATE {prefix}job_dead SET error = :error`, sqlrun.Args{"error": strings.Repeat("é", 1000)})
		late := enqueueMany(t, c, many(3, func(_ int, j *Job) { j.Delay = time.Hour }))
		db.Do(t, `UPDATE {prefix}job_delayed SET attempt = 4, error = 'it failed' WHERE id <> :id`, sqlrun.Args{"id": late[0]})
		want := slices.Concat(ids, other, late[1:])
		slices.Sort(want)
		slices.Reverse(want)
		for _, limit := range []int{1, 2, 7, 100, 100 + 1, len(want) - 1, len(want), 10_000} {
			all, more, err := adminOf(c).Failures(t.Context(), limit)
			var got []int64
			for _, f := range all {
				got = append(got, f.ID)
			}
			if err != nil || !slices.Equal(got, want[:min(limit, len(want))]) || limit < len(want) && !more || limit == 10_000 && more {
				t.Errorf("up to %d: got %d, more %v, %v", limit, len(got), more, err)
			}
		}
		all, _, err := adminOf(c).Failures(t.Context(), 10_000)
		if err != nil {
			t.Fatal(err)
		}
		for i, text := range map[int]string{0: "default b 4 delayed 9", 2: "other a 10 dead 1000", len(all) - 1: "default a 10 dead 1000"} {
			f := all[i]
			if got := fmt.Sprint(f.Queue, " ", f.Kind, " ", f.Attempts, " ", f.State, " ", len(f.Error)); i != 0 &&
				got != text || i == 0 && !strings.HasSuffix(got, "4 delayed 9") || f.At.IsZero() {
				t.Errorf("%d: got %s, want %s", i, got, text)
			}
		}
		if _, _, err := adminOf(c).Failures(t.Context(), 0); err == nil {
			t.Error("a limit of 0 is taken")
		}
	})
}
