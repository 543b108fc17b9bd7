package scheduler

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/dbcron/dbcron/internal/duration"
	"github.com/dbcron/dbcron/internal/guardian"
	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/sqlrun"
)

// Work may be the reason why its daemon is stopped: it restarts a service, and the daemon is part of that. Its
// run is handed back, as nobody's fault, and would stop the next daemon. So each run counts the daemons in a row
// that were stopped within [soonAfter] after they had begun it. From the third one on it pauses before it begins
// again, each time for twice as long:
//
//   - If a daemon is stopped during the pause, the run is not the reason, and its count begins anew. So it does
//     when the run has gone on for longer than soonAfter before a stop.
//   - If none is, and the next one is stopped soon after the run has begun again, the count goes on. At mostStops
//     the run fails, if nothing else had begun so soon before that stop.
//
// Restarts at a regular interval clear a run: an interval that ends within soonAfter of the end of the first pause
// ends during the second one. Pauses vary, so that runs that were stopped together part. The reasons:
// docs/adr/0036-a-run-that-stops-its-daemon.md.
const (
	// SuspiciousStops is the number of stops in a row after which a run pauses before it begins again.
	SuspiciousStops = 3

	soonAfter  = time.Minute
	pauseFrom  = SuspiciousStops
	firstPause = 2 * soonAfter
	longest    = 8 // the longest pause is so many times the first

	mostStops    = 5  // stops in a row after which a run fails that was the only one to have begun so late
	mostAnyStops = 20 // and one that never was the only one
)

// A stopping is the end of this daemon.
type stopping struct {
	mu       sync.Mutex
	at       instant.Instant // when it was told to stop; 0: not yet
	suspects int             // runs that had begun soon before, and were under way when the grace was over
}

func (st *stopping) begin() {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.at = instant.Now()
}

// soon reports whether a run had begun soon before the daemon was told to stop, and how long before.
func (st *stopping) soon(e *execution) (after time.Duration, ok bool) {
	st.mu.Lock()
	defer st.mu.Unlock()
	e.mu.Lock()
	defer e.mu.Unlock()
	after = max(0, st.at.Sub(e.begun))
	return after, st.at != 0 && e.begun != 0 && after < soonAfter
}

// findSuspects counts the runs that are about to be handed back and had begun soon before the stop.
func (s *Scheduler) findSuspects() {
	n := 0
	s.each(func(e *execution) {
		if _, ok := s.stopping.soon(e); ok {
			n++
		}
	})
	s.stopping.mu.Lock()
	defer s.stopping.mu.Unlock()
	s.stopping.suspects = n
}

// judge counts a stop of this daemon against a run that is handed back, and decides when that begins again, if at
// all.
func (s *Scheduler) judge(e *execution, o outcome, r guardian.Result) outcome {
	switch {
	case !o.back || e.why().cause != drained:
		o.stops = e.stops // no daemon was stopped
		return o
	case o.state != "retry" || r.Cause == guardian.NotStarted:
		return o
	}
	after, soon := s.stopping.soon(e)
	if !soon {
		return o
	}
	s.stopping.mu.Lock()
	alone := s.stopping.suspects == 1
	s.stopping.mu.Unlock()
	o.stops = e.stops + 1
	if o.stops >= mostStops && alone || o.stops >= mostAnyStops {
		why := fmt.Sprintf("it seems to stop its daemon: %d daemons in a row were stopped within %s after they had begun it, "+
			"and none while it paused; not begun again", o.stops, duration.Format(soonAfter))
		return outcome{state: "failed", why: why, final: true}
	}
	o.why += " " + inSeconds(after) + " after it had begun"
	if o.pause = pauseAfter(o.stops, s.chance()); o.pause > 0 {
		o.why += fmt.Sprintf(", as %d were before; it begins again after %s, or when a daemon is stopped without it",
			o.stops-1, duration.Format(o.pause))
	}
	return o
}

// inSeconds formats a duration for people, in whole seconds.
func inSeconds(d time.Duration) string {
	return duration.Format(max(time.Second, d.Round(time.Second)))
}

// pauseAfter returns how long a run pauses after so many stops in a row. random is in [0, 1).
func pauseAfter(stops int, random float64) time.Duration {
	if stops < pauseFrom {
		return 0
	}
	pause := firstPause * time.Duration(min(1<<min(stops-pauseFrom, 10), longest))
	return (pause + time.Duration(random*float64(pause)/2)).Round(time.Second)
}

// acquitPaused lets runs begin that pause, because this daemon is stopped without them. If it fails, they pause on.
func (s *Scheduler) acquitPaused(ctx context.Context) {
	lanes := s.lanes()
	if len(lanes) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second) // the stop does not wait for it for long
	defer cancel()
	err := s.db.ShortTx(ctx, func(ctx context.Context, tx *sqlrun.Session) error {
		var ids []int64
		for _, lane := range lanes {
			args := sqlrun.Args{"lane": lane, "since": -soonAfter.Microseconds(), "limit": batch}
			found, err := sqlrun.Select(ctx, tx, pausing, args, func(rows *sql.Rows) (id int64, err error) { return id, rows.Scan(&id) })
			if err != nil {
				return err
			}
			ids = append(ids, found...)
		}
		if len(ids) == 0 {
			return nil
		}
		slices.Sort(ids)
		_, err := tx.Exec(ctx, acquit, sqlrun.Args{"ids": ids})
		return err
	})
	if err != nil {
		s.opt.Logger.Warn("runs that pause since daemons were stopped could not be told that this one stops without them", "err", err)
	}
}

// A slot identifies a slot of a schedule.
type slot struct {
	schedule string
	due      int64
}

func slotOf(r *run) slot { return slot{r.schedule, r.due.UnixMicro()} }

// carryStops hands the counts of runs that were handed back to the attempts that go on with them.
func (t *takeover) carryStops(ctx context.Context, runs []run) error {
	ids := map[int][]int64{}
	for i := range runs {
		r := &runs[i]
		if r.stops = t.stops[slotOf(r)]; r.stops > 0 {
			ids[r.stops] = append(ids[r.stops], r.id)
		}
	}
	for n, ids := range ids {
		slices.Sort(ids)
		if _, err := t.tx.Exec(ctx, carryStops, sqlrun.Args{"ids": ids, "stops": n, "claim": t.b.token}); err != nil {
			return err
		}
	}
	return nil
}
