package scheduler

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/sqlrun"
)

// Schedules of all lanes stand in one order, late ones first, and those that do not run are
// not among them.
func TestUpcoming(t *testing.T) {
	dbtest.EachClock(t, func(t *testing.T, db *dbtest.DB) {
		for i, tag := range []string{"default", "reports", "default", "b", "default"} {
			must(t, Add(t.Context(), db.DB, Schedule{Name: fmt.Sprint("s", i), Spec: fmt.Sprintf("%d * * * *", 50-10*i), Command: "true", Tag: tag}))
		}
		must(t, Add(t.Context(), db.DB, Schedule{Name: "by-hand", Spec: "@manual", Command: "true"}))
		must(t, Pause(t.Context(), db.DB, "s4", "holidays"))
		names := func(limit int) (names []string) {
			t.Helper()
			found, err := Upcoming(t.Context(), db.DB, limit)
			must(t, err)
			for _, p := range found {
				names = append(names, p.Name)
				if !p.Next.Equal(p.Due) {
					t.Errorf("%s may be claimed at %v, want its slot %v", p.Name, p.Next, p.Due)
				}
			}
			return names
		}
		if got, want := names(10), []string{"s3", "s2", "s1", "s0"}; !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
		if got, want := names(2), []string{"s3", "s2"}; !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
		db.Advance(t, 2*time.Hour)
		if got, want := names(1), []string{"s3"}; !slices.Equal(got, want) {
			t.Errorf("got %v, want %v: the one that is late for longest", got, want)
		}
		paused, err := InState(t.Context(), db.DB, "paused", 10)
		must(t, err)
		if len(paused) != 1 || paused[0].Name != "s4" || paused[0].Reason != "holidays" {
			t.Errorf("got %v, want s4", paused)
		}
	})
}

// RecentRuns goes through all runs, page by page. With a filter it examines a number of them,
// and returns where to continue.
func TestRecentRuns(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		const all = runDepth + 500
		for from := 0; from < all; from += 500 {
			var rows []sqlrun.Args
			for i := from; i < from+500; i++ {
				state := "ok"
				if i == 3 || i == all-1 {
					state = "failed"
				}
				rows = append(rows, sqlrun.Args{"due": at(time.Duration(i) * time.Second).UnixMicro(), "state": state, "name": fmt.Sprint("s", i%2)})
			}
			db.Do(t, `INSERT INTO {prefix}run (schedule, due_at, attempt, state, output) VALUES {values rows: (:name, {time :due}, 1, :state, 'much')}`, sqlrun.Args{"rows": rows})
		}
		seen, before := 0, int64(0)
		for {
			runs, more, err := RecentRuns(t.Context(), db.DB, RunFilter{Before: before, Limit: 3000})
			must(t, err)
			for _, r := range runs {
				if before != 0 && r.ID >= before {
					t.Fatalf("run %d comes after one before %d", r.ID, before)
				}
				if before = r.ID; r.Output != "" {
					t.Fatal("the output is read")
				}
			}
			if seen += len(runs); more == 0 {
				break
			}
		}
		if seen != all {
			t.Errorf("got %d runs, want %d", seen, all)
		}
		failed, more, err := RecentRuns(t.Context(), db.DB, RunFilter{States: []string{"failed"}})
		must(t, err)
		if len(failed) != 1 || more == 0 {
			t.Fatalf("got %d failed runs, and more from %d; want the newest and that there may be more", len(failed), more)
		}
		older, more, err := RecentRuns(t.Context(), db.DB, RunFilter{States: []string{"failed"}, Before: more})
		must(t, err)
		if len(older) != 1 || more != 0 || !older[0].Due.Equal(at(3*time.Second)) {
			t.Errorf("got %v, and more from %d; want the oldest one, and no more", older, more)
		}
		// By name and time: run i began never, and its slot is that of second i.
		db.Do(t, `UPDATE {prefix}run SET started_at = {time :began}, finished_at = {time :ended} WHERE due_at = {time :due}`,
			sqlrun.Args{"due": at(3 * time.Second).UnixMicro(), "began": at(time.Hour).UnixMicro(), "ended": at(2 * time.Hour).UnixMicro()})
		for _, c := range []struct {
			f    RunFilter
			want []int64 // slots, in seconds
		}{
			{RunFilter{Until: at(2 * time.Second)}, []int64{1, 0}},
			{RunFilter{Schedule: "s1", Until: at(6 * time.Second)}, []int64{5, 1}},
			{RunFilter{Schedule: "s1", States: []string{"failed"}, Since: at(2 * time.Hour)}, []int64{all - 1, 3}},
			{RunFilter{States: []string{"failed"}, Since: at(2*time.Hour + time.Second)}, []int64{all - 1}},
			{RunFilter{States: []string{"failed"}, Since: at(90 * time.Minute), Until: at(100 * time.Minute)}, []int64{3}},
			{RunFilter{Schedule: "s", Until: at(time.Hour)}, nil},
		} {
			var got []int64
			for more := int64(1); more > 0; c.f.Before = more {
				var runs []Run
				runs, more, err = RecentRuns(t.Context(), db.DB, c.f)
				must(t, err)
				for i := range runs {
					got = append(got, int64(runs[i].Due.Sub(at(0)).Seconds()))
				}
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("%+v: got slots %v, want %v", c.f, got, c.want)
			}
		}
		short, err := ShortHistory(t.Context(), db.DB, "s1", 3)
		must(t, err)
		if len(short) != 3 || short[0].Output != "" || !short[0].Due.After(short[1].Due) || short[0].Schedule != "s1" {
			t.Errorf("got %v, want the three newest of s1 without output", short)
		}
	})
}

func TestNodes(t *testing.T) {
	dbtest.EachClock(t, func(t *testing.T, db *dbtest.DB) {
		for i, name := range []string{"b", "a", "c"} {
			_, err := db.Exec(t.Context(), arrive,
				sqlrun.Args{"node": name, "lease": int64(i+1) * time.Minute.Microseconds(), "version": "1.2.3", "tags": ""})
			must(t, err)
		}
		db.Advance(t, 90*time.Second)
		nodes, err := Nodes(t.Context(), db.DB, "", 2)
		must(t, err)
		if len(nodes) != 2 || nodes[0].Name != "a" || !nodes[0].Live || nodes[0].Version != "1.2.3" ||
			nodes[1].Name != "b" || nodes[1].Live || nodes[1].State != "live" {
			t.Errorf("got %+v, want a, which lives, and b, whose time is over", nodes)
		}
		nodes, err = Nodes(t.Context(), db.DB, "b", 2)
		must(t, err)
		if len(nodes) != 1 || nodes[0].Name != "c" || !nodes[0].Until.Equal(at(3*time.Minute)) {
			t.Errorf("got %+v, want c", nodes)
		}
	})
}
