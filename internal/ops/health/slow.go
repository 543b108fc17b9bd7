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

// A run that hangs has no error, and a schedule with long intervals skips its first slot a day later. So what counts is time:
// how long its good runs have taken, or, if there are few, the time to its next slot.
const (
	slowAfter  = time.Minute // no run is slow before
	slowTimes  = 3           // as long as the longest of its last good runs
	slowOf     = 5           // good runs that are enough to judge by; with fewer, half of the interval counts
	slowLooked = 50          // runs of a schedule that are read
)

// A Slow is a run that is under way for longer than is usual.
type Slow struct {
	Schedule scheduler.Schedule
	Run      scheduler.Run
	Why      string
}

// SlowRuns finds runs that are under way for longer than is usual, up to Most. A schedule with a timeout says itself how long its
// runs may take. It looks at the newest 200 runs under way.
func SlowRuns(ctx context.Context, db *dialect.DB, now time.Time) (all []Slow, err error) {
	runs, _, err := scheduler.RecentRuns(ctx, db, scheduler.RunFilter{States: []string{"running"}, Limit: 200})
	if err != nil {
		return nil, err
	}
	for i := range runs {
		r := &runs[i]
		if r.Started.IsZero() || now.Sub(r.Started) < slowAfter || r.Error != "" || len(all) == Most {
			continue
		}
		s, err := scheduler.Get(ctx, db, r.Schedule)
		switch {
		case errors.Is(err, scheduler.ErrNotFound):
			continue
		case err != nil:
			return nil, err
		}
		newest, err := NewestRuns(ctx, db, r.Schedule, slowLooked)
		if err != nil {
			return nil, err
		}
		if why := slowness(&s, r, newest, now); why != "" {
			all = append(all, Slow{s, *r, fmt.Sprintf("run %d has been under way for %s on %s; %s", r.ID, plain.Span(now.Sub(r.Started)), plain.Cut(r.By, 100), why)})
		}
	}
	return all, nil
}

// slowness says why a run is slow; "": it is not.
func slowness(s *scheduler.Schedule, r *scheduler.Run, newest []scheduler.Run, now time.Time) string {
	if s.Timeout > 0 || now.Sub(r.Started) < slowAfter {
		return ""
	}
	took, good, longest := now.Sub(r.Started), 0, time.Duration(0)
	for i := range newest {
		if n := &newest[i]; n.State == "ok" && !n.Started.IsZero() {
			good, longest = good+1, max(longest, n.Finished.Sub(n.Started))
		}
	}
	if good >= slowOf {
		if took < slowTimes*longest {
			return ""
		}
		return fmt.Sprintf("the longest of its last %d good runs took %s", good, plain.Span(longest))
	}
	plan, err := s.Slots()
	if err != nil {
		return ""
	}
	if next, ok := plan.Next(r.Started); ok && took >= next.Sub(r.Started)/2 {
		return "the time to its next slot is half over"
	}
	return ""
}

// ofSlow makes problems of slow runs, except those of which others tell that slots are skipped.
func ofSlow(ctx context.Context, db *dialect.DB, now time.Time, told []Problem) (all []Problem, err error) {
	slow, err := SlowRuns(ctx, db, now)
	known := map[int64]bool{}
	for i := range told {
		known[told[i].Run] = true
	}
	for i := range slow {
		r := &slow[i].Run
		if known[r.ID] {
			continue
		}
		all = append(all, Problem{
			Of: Runs, Name: r.Schedule, Run: r.ID, what: "A run of %s takes longer than usual", Why: slow[i].Why, Since: r.Started, Do: endIt(r.ID),
			change: fmt.Sprint(r.ID), // acknowledged, it stays so until it is another run
		})
	}
	return all, err
}
