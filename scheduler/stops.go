package scheduler

import (
	"context"
	"database/sql"
	"slices"
	"sync"
	"time"

	"github.com/dbcron/dbcron/internal/guardian"
	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/pace"
	"github.com/dbcron/dbcron/internal/sqlrun"
)

// Work may be the reason why its daemon is stopped: package stops has the rules.

// SuspiciousStops is the number of stops in a row after which a run pauses before it begins again.
const SuspiciousStops = pace.Suspicious

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
	return after, st.at != 0 && e.begun != 0 && after < pace.Soon
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
	v := pace.Judge("daemon", o.stops, alone, after, s.chance())
	if v.Fails {
		return outcome{state: "failed", why: v.Why, final: true}
	}
	o.pause, o.why = v.Pause, v.Why
	return o
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
			args := sqlrun.Args{"lane": lane, "since": -pace.Soon.Microseconds(), "limit": batch}
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
