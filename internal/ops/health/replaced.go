package health

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/internal/plain"
	"github.com/dbcron/dbcron/scheduler"
)

// Under overlap: replace, a slot ends the run before. Work that takes longer than the time between slots never
// completes then, and no run fails.

const (
	fewReplaced = 3  // runs in a row that were replaced, from which on they are a problem
	newestRead  = 20 // runs that are looked at
)

// replacedRuns returns how many of a schedule's newest runs were replaced, if all were that have ended and there are
// enough of them, and otherwise 0. Runs that never began count, too: these were replaced while they waited.
func replacedRuns(s *scheduler.Schedule, newest []scheduler.Run) (n int) {
	if s.Overlap != "replace" {
		return 0
	}
	begun := false
	for i := range newest {
		switch r := &newest[i]; {
		case !Ended(r), r.State == "missed", r.State == "skipped":
		case r.State == "cancelled" && r.Error == scheduler.WhyReplaced:
			n++
			begun = begun || !r.Started.IsZero()
		default:
			return 0
		}
	}
	if n < fewReplaced || !begun {
		return 0
	}
	return n
}

// ofReplaced finds schedules none of whose runs completes, because each is replaced by the next slot.
func ofReplaced(ctx context.Context, db *dialect.DB, now time.Time) (all []Problem, err error) {
	runs, _, err := scheduler.RecentRuns(ctx, db, scheduler.RunFilter{States: []string{"cancelled"}, Limit: 200, Since: now.Add(-back)})
	if err != nil {
		return nil, err
	}
	looked := map[string]bool{}
	for i := range runs {
		r := &runs[i]
		if r.Error != scheduler.WhyReplaced || looked[r.Schedule] || len(looked) == Most {
			continue
		}
		looked[r.Schedule] = true
		s, newest, err := newestOf(ctx, db, r.Schedule)
		if err != nil {
			return nil, err
		}
		if n := replacedRuns(s, newest); n > 0 {
			all = append(all, Problem{
				Of: Runs, Name: r.Schedule, Run: r.ID, Bad: true, what: "No run of %s completes", Since: r.Finished,
				Why: fmt.Sprintf("each of the last %s was replaced by the next slot (overlap: replace)", plain.Plural(n, "run", "runs")),
				Do:  "lengthen its interval, or choose another overlap: dbcron schedule explain " + argument(r.Schedule),
			})
		}
	}
	return all, nil
}

// newestOf reads a schedule and its newest runs. If it was removed, nothing is found.
func newestOf(ctx context.Context, db *dialect.DB, name string) (*scheduler.Schedule, []scheduler.Run, error) {
	s, err := scheduler.Get(ctx, db, name)
	if errors.Is(err, scheduler.ErrNotFound) {
		return &s, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	newest, err := NewestRuns(ctx, db, name, newestRead)
	return &s, newest, err
}
