package queue

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// Jobs are counted by state and kind, up to a limit, with the oldest of each.
func TestStats(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		stats := func(limit int) (lines []string) {
			t.Helper()
			all, err := adminOf(c).Stats(t.Context(), "", limit)
			must(t, err)
			for _, s := range all {
				if s.Queue != defaultQueue {
					t.Errorf("%+v", s)
				}
				lines = append(lines, fmt.Sprint(s.State, " ", s.Kind, " ", s.Count, " ", s.More))
			}
			return lines
		}
		wantStats := func(limit int, want ...string) {
			t.Helper()
			if got := stats(limit); !slices.Equal(got, want) {
				t.Errorf("up to %d:\ngot  %q\nwant %q", limit, got, want)
			}
		}
		dead := enqueueMany(t, c, many(6, nil))
		wantStats(100, "ready a 3 false", "ready b 3 false")
		die(t, db)
		enqueueMany(t, c, []Job{{Kind: "x", Delay: time.Hour}, {Kind: "y", Delay: time.Minute}, {Kind: "x", Queue: "other"}})
		jobs := []Job{{Kind: "rare", Priority: Idle}}
		for range 40 {
			jobs = append(jobs, Job{Kind: "a"})
		}
		ready := enqueueMany(t, c, jobs)
		wantStats(100, "ready a 40 false", "ready rare 1 false", "delayed x 1 false", "delayed y 1 false", "dead a 3 false", "dead b 3 false")
		wantStats(5, "ready a 6 true", "ready rare 1 true", "delayed x 1 false", "delayed y 1 false", "dead a 3 true", "dead b 2 true")
		all, err := adminOf(c).Stats(t.Context(), "", 5)
		must(t, err)
		for i, id := range map[int]int64{0: ready[1], 1: ready[0], 4: dead[0], 5: dead[1]} {
			if !all[i].Oldest.Equal(store.TimeOf(id)) {
				t.Errorf("the oldest of %+v is that of %v", all[i], store.TimeOf(id))
			}
		}
		_, err = adminOf(c).Stats(t.Context(), "", 0)
		want(t, "no limit", err, ErrInvalid)
		_, err = adminOf(c).Stats(t.Context(), "none", 1)
		want(t, "no queue", err, ErrNotFound)
	})
}
